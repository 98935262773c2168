//! The folder of a copy: in memory, for this user alone, gone with its owner.

use super::shared::Shared;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::fd::RawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The file system in memory.
const MEMORY: &str = "/dev/shm";
/// Name of the file with what CRIU does not copy.
const REST: &str = "weft.json";

/// The start of the names of this proxy's folders.
fn start() -> &'static str {
    static START: OnceLock<String> = OnceLock::new();
    START.get_or_init(|| format!("weft-move-{:016x}-", weft_link::random_u64()))
}

/// Removes all folders of this proxy, which has ended. Called by the guard, which calls
/// [`prepare`] before it splits.
pub fn sweep() {
    sweep_all(start());
}

fn sweep_all(start: &str) {
    for entry in fs::read_dir(MEMORY).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(start) {
            // The folder is in memory: a file that cannot be removed now goes with the machine.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Chooses the names of folders, the same in this process and in those split from it later.
pub fn prepare() {
    start();
}

/// The folder.
pub struct Image {
    /// Its path.
    pub folder: PathBuf,
}

/// A descriptor that the rank has from its launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Use {
    /// Standard input, output, error: 0, 1, 2.
    Stream(usize),
    /// The connection of PMI.
    Pmi,
    /// The connection by which the launcher orders moves.
    Control,
}

/// The numbers of descriptors of a rank's process that lead to its launcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    /// The number of the connection of PMI.
    pub pmi: RawFd,
    /// The number of the connection by which moves are ordered.
    pub control: RawFd,
}

/// The parts that CRIU does not copy: the rank's connections to its launcher.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Rest {
    /// The connections, by the names that CRIU has for them.
    pub inherited: Vec<(String, Use)>,
    /// Files in memory that go along.
    pub shared: Vec<Shared>,
    /// The numbers of two of them.
    pub numbers: Numbers,
    /// Bytes for the connection of PMI that the rank has not read.
    pub pmi: Vec<u8>,
    /// Bytes from it that are no whole line yet.
    pub pmi_line: Vec<u8>,
    /// Bytes for standard input that the rank has not read.
    pub stdin: Vec<u8>,
    /// True if standard input ends after them.
    pub stdin_ends: bool,
}

impl Image {
    /// Makes an empty folder.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn create() -> Result<Image> {
        let folder = Path::new(MEMORY).join(format!("{}{:016x}", start(), weft_link::random_u64()));
        let made = fs::DirBuilder::new().mode(0o700).create(&folder);
        made.with_context(|| format!("making {}", folder.display()))?;
        Ok(Image { folder })
    }

    /// Writes what CRIU does not copy beside the copy.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn put(&self, rest: &Rest) -> Result<()> {
        let bytes = serde_json::to_vec(rest)?;
        fs::write(self.folder.join(REST), bytes).context("writing beside the copy")
    }

    /// Reads it.
    ///
    /// # Errors
    /// The file is not there, or malformed.
    pub fn rest(&self) -> Result<Rest> {
        let bytes = fs::read(self.folder.join(REST)).context("reading beside the copy")?;
        serde_json::from_slice(&bytes).context("malformed word beside the copy")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // The folder is in memory: a file that cannot be removed now goes with the machine.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn sweep__removes_what_a_killed_proxy_left() {
        let start = format!("weft-test-{:016x}-", weft_link::random_u64());
        let folder = Path::new(MEMORY).join(format!("{start}1"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("pages"), b"secret").unwrap();
        sweep_all(&start);
        assert!(!folder.exists());
    }
}

//! Files in memory that a rank has open or mapped, such as those that an MPI makes for ranks of one
//! host: they are of one host, and go along.

use super::tree;
use anyhow::{Context, Result};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The folder of such files.
const FOLDER: &str = "/dev/shm/";
/// Longest file that goes along, in bytes.
const LONGEST: u64 = 1 << 30;

/// A file that goes along.
#[derive(Debug, Serialize, Deserialize)]
pub struct Shared {
    path: PathBuf,
    mode: u32,
    /// Name of its copy beside the copy of the process.
    name: String,
}

/// Returns the paths of such files that the processes have open or mapped, and that have a name.
fn paths(root: Pid) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::new();
    for pid in tree::of(root) {
        let folder = format!("/proc/{}", pid.as_raw_nonzero());
        let maps = fs::read_to_string(format!("{folder}/maps")).unwrap_or_default();
        let mapped = maps.lines().filter_map(|line| Some(&line[line.find(FOLDER)?..]));
        all.extend(mapped.map(PathBuf::from));
        let open = fs::read_dir(format!("{folder}/fd")).into_iter().flatten().flatten();
        all.extend(open.filter_map(|entry| fs::read_link(entry.path()).ok()));
    }
    all.retain(|path| path.starts_with(FOLDER) && path.is_file());
    all
}

/// Puts copies of the files into a folder.
///
/// # Errors
/// A file cannot be read, or is too long.
pub fn put(root: Pid, folder: &Path) -> Result<Vec<Shared>> {
    let mut all = Vec::new();
    for path in paths(root) {
        let what = || path.display().to_string();
        let meta = fs::metadata(&path).with_context(what)?;
        anyhow::ensure!(meta.len() <= LONGEST, "{} is too long to go along", path.display());
        let name = format!("weft-shared-{}", all.len());
        fs::copy(&path, folder.join(&name)).with_context(what)?;
        all.push(Shared { mode: meta.permissions().mode() & 0o777, path, name });
    }
    Ok(all)
}

/// Makes those files that are not on this host.
///
/// # Errors
/// A file is of another folder, or cannot be made.
pub fn make(all: &[Shared], folder: &Path) -> Result<()> {
    for Shared { path, mode, name } in all {
        let inside = path.strip_prefix(FOLDER).is_ok_and(|rest| rest.components().count() == 1);
        anyhow::ensure!(inside && !name.contains('/'), "{} does not go along", path.display());
        let mut options = fs::OpenOptions::new();
        match options.write(true).create_new(true).mode(*mode).open(path) {
            Ok(mut file) => {
                let mut copy = fs::File::open(folder.join(name))?;
                std::io::copy(&mut copy, &mut file)?;
            }
            // Hosts of a lab have it in common.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
    }
    Ok(())
}

/// The start of the names of MPICH's files. A process of MPICH removes its own in MPI_Finalize:
/// on the host where it runs then, and not at all if a signal ends it.
const OF_MPICH: &str = "mpich_";

/// The files of MPICH that ranks leave behind on this host: when they move away, or are killed.
#[derive(Debug, Default)]
pub struct LeftBehind(BTreeSet<PathBuf>);

impl LeftBehind {
    /// Notes the files that a rank has, before it ends or leaves.
    pub fn note(&mut self, root: Pid) {
        self.0.extend(paths(root).into_iter().filter(|path| is_of_mpich(path)));
    }

    /// Removes those that no process has any more, when the job is over: a rank that moves in the
    /// meantime between hosts with a folder in common could be overlooked.
    pub fn remove(&mut self) {
        if self.0.is_empty() {
            return;
        }
        let held = held();
        self.0.retain(|path| {
            let Ok(meta) = fs::symlink_metadata(path) else { return false };
            // If it cannot be removed, nobody else will.
            held.contains(&(meta.dev(), meta.ino())) || fs::remove_file(path).is_err()
        });
    }
}

fn is_of_mpich(path: &Path) -> bool {
    let name = path.strip_prefix(FOLDER).ok().and_then(Path::to_str);
    name.is_some_and(|name| name.starts_with(OF_MPICH) && !name.contains('/'))
}

/// Returns device and inode of each file of the folder that any process has open or mapped.
fn held() -> BTreeSet<(u64, u64)> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut held = BTreeSet::new();
    for number in numbers {
        for end in ends(number) {
            // Through the process, whose folder may be another one under the same name.
            let meta = fs::metadata(&end);
            held.extend(meta.ok().map(|meta| (meta.dev(), meta.ino())));
        }
    }
    held
}

/// Returns the links of a process to the files of the folder that it has open or mapped.
fn ends(number: u32) -> Vec<PathBuf> {
    let links = ["fd", "map_files"].map(|kind| fs::read_dir(format!("/proc/{number}/{kind}")));
    let links = links.into_iter().flatten().flatten().flatten().map(|entry| entry.path());
    let leads_here = |link: &PathBuf| {
        fs::read_link(link).is_ok_and(|to| to.to_string_lossy().starts_with(FOLDER))
    };
    links.filter(leads_here).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn remove__files_of_mpich_that_nobody_has() {
        let salt = weft_link::random_u64();
        let of = |name: &str| Path::new(FOLDER).join(format!("{name}{salt:x}"));
        let (held, other) = (of("mpich_shm_test_a_"), of("weft-test-"));
        fs::write(&other, b"x").unwrap();
        fs::write(&held, b"x").unwrap();
        let open = [fs::File::open(&held).unwrap(), fs::File::open(&other).unwrap()];
        let mut left = LeftBehind::default();
        left.note(rustix::process::getpid());
        left.remove();
        assert!(held.exists(), "this process has it");
        drop(open);
        left.remove();
        assert!(!held.exists() && other.exists());
        fs::remove_file(&other).unwrap();
    }

    #[test]
    fn put__an_open_file_goes_along_and_is_made_again() {
        let folder = super::super::image::Image::create().unwrap();
        let path = Path::new(FOLDER).join(format!("weft-test-{:x}", weft_link::random_u64()));
        fs::write(&path, b"some words").unwrap();
        let open = fs::File::open(&path).unwrap();
        let all = put(rustix::process::getpid(), &folder.folder).unwrap();
        drop(open);
        fs::remove_file(&path).unwrap();
        let own: Vec<Shared> = all.into_iter().filter(|shared| shared.path == path).collect();
        make(&own, &folder.folder).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"some words");
        make(&own, &folder.folder).unwrap();
        fs::remove_file(&path).unwrap();
        let name = String::from("x");
        let other = Shared { path: "/etc/passwd".into(), mode: 0o600, name };
        assert!(make(&[other], &folder.folder).is_err());
    }
}

//! Folders of a command for a while. They are removed at its end, also when a signal ends it
//! ([`Interrupt`](crate::interrupt::Interrupt)).

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The folders that are there.
static THERE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A folder that is deleted when this value is dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Makes a new folder in the one for temporary files; others cannot read it.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn new() -> Result<Folder> {
        use std::os::unix::fs::DirBuilderExt;
        let name = format!("weft-{}-{:x}", std::process::id(), weft_link::random_u64());
        let path = std::env::temp_dir().join(name);
        let folder = Folder(path.clone());
        THERE.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone());
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("creating {}", path.display()))?;
        Ok(folder)
    }

    /// Returns the path of a file in it.
    ///
    /// # Errors
    /// The path is not UTF-8.
    pub fn file(&self, name: &str) -> Result<String> {
        let path = self.0.join(name);
        Ok(path.to_str().context("a path in UTF-8")?.to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        THERE.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Removes all folders of this process, which is about to end.
pub(crate) fn remove_all() {
    let there = std::mem::take(&mut *THERE.lock().unwrap_or_else(PoisonError::into_inner));
    there.iter().for_each(|folder| _ = std::fs::remove_dir_all(folder));
}

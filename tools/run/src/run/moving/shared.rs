//! Files in memory that a rank has open or mapped, such as those that an MPI makes for ranks of one
//! host: they are of one host, and go along.

use super::tree;
use anyhow::{Context, Result};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
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

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

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

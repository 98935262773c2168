//! The source archive: the files of the commit.

use super::archive::complete;
use super::VERSION;
use crate::run::succeeds;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes the archive in `out`.
pub fn make(out: &Path) -> Result<PathBuf, String> {
    let file = std::path::absolute(out.join(format!("weft-{VERSION}.tar.gz")));
    let file = file.map_err(|e| format!("{}: {e}", out.display()))?;
    complete(&file, |part| {
        let mut git = Command::new("git");
        git.current_dir(crate::root()).args(["archive", "--format=tar.gz", "HEAD"]);
        git.arg(format!("--prefix=weft-{VERSION}/")).arg("--output").arg(part);
        match succeeds(&mut git) {
            true => Ok(()),
            false => Err("git archive failed: a source archive is made of a commit".into()),
        }
    })
}

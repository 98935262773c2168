//! The machine of the suite: weft's build, the folder of installed packages, and a lab.

use crate::run::{cargo, output_of, succeeds};
use crate::setup::is_root;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of a build of weft that is used in place of a fresh one.
const BUILT: &str = "WEFT_BUILT";

/// Things that all runs share. The lab is taken down when dropped.
pub struct Site {
    /// The command `weft`.
    pub weft: PathBuf,
    /// Folder of packages, outputs and results.
    pub cache: PathBuf,
    /// True if tests of every precision and more numbers of ranks are wanted.
    pub whole: bool,
    /// Name of the lab, or the reason why there is none.
    lab: Result<String, String>,
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.lab.is_ok() {
            let down =
                Command::new(&self.weft).args(["lab", "down"]).envs(self.variables()).output();
            if let Err(e) = down {
                eprintln!("the lab is not taken down: {e}");
            }
        }
    }
}

impl Site {
    /// Builds weft with optimisation, and makes a lab where that is possible.
    ///
    /// # Errors
    /// weft does not build, or the folder cannot be written.
    pub fn prepare(whole: bool) -> Result<Site, String> {
        let built = match std::env::var_os(BUILT) {
            Some(folder) => PathBuf::from(folder),
            None => build()?,
        };
        let cache = crate::root().join("target").join("consumers");
        let site = Site { weft: built.join("weft"), cache, whole, lab: Err(String::new()) };
        place(&built.join("libweft_fi.so"), &site.provider().join("libweft-fi.so"))?;
        let agent = site.lab_agent();
        // Launchers give the command for a host in words that a shell has to read.
        let script = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=$1; shift\n\
             exec '{}' lab exec \"$host\" sh -c \"$*\"\n",
            site.weft.display()
        );
        std::fs::write(&agent, script).map_err(|e| format!("{}: {e}", agent.display()))?;
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755))
            .map_err(|e| format!("{}: {e}", agent.display()))?;
        Ok(site.with_lab())
    }

    fn with_lab(mut self) -> Site {
        self.lab = match is_root() {
            false => Err("needs root: launchers start processes on hosts of a lab".into()),
            true => {
                let name = format!("consumers{}", std::process::id());
                let mut up = Command::new(&self.weft);
                up.args(["lab", "up", "2"]).env("WEFT_LAB", &name);
                match up.output() {
                    Ok(done) if done.status.success() => Ok(name),
                    Ok(done) => Err(String::from_utf8_lossy(&done.stderr).trim().to_string()),
                    Err(e) => Err(format!("weft does not start: {e}")),
                }
            }
        };
        self
    }

    /// Returns the reason why there is no lab.
    pub fn no_lab(&self) -> Option<&str> {
        self.lab.as_ref().err().map(String::as_str)
    }

    /// Returns the folder of the provider.
    pub fn provider(&self) -> PathBuf {
        self.cache.join("provider")
    }

    /// Returns the program that starts a command on a host of the lab, as ssh does.
    pub fn lab_agent(&self) -> PathBuf {
        self.cache.join("lab-agent")
    }

    /// Returns the variables of every run. One thread of a rank computes: the ranks share the
    /// cores.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let provider = self.provider().join("libweft-fi.so");
        let mut set = vec![
            ("WEFT_PROVIDER", provider.display().to_string()),
            ("OPENBLAS_NUM_THREADS", "1".into()),
            ("OMP_NUM_THREADS", "1".into()),
        ];
        set.extend(self.lab.as_ref().ok().map(|name| ("WEFT_LAB", name.clone())));
        set
    }

    /// Returns an empty folder for the outputs of a job.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn outputs(&self, job: &str) -> Result<PathBuf, String> {
        let name = job.replace(['/', ' '], "-");
        let folder = self.cache.join("outputs").join(name);
        let _old = std::fs::remove_dir_all(&folder);
        let failed = |e| format!("{}: {e}", folder.display());
        std::fs::create_dir_all(&folder).map_err(failed)?;
        Ok(folder)
    }

    /// Returns the version of weft.
    pub fn version(&self) -> String {
        let said = output_of(Command::new(&self.weft).arg("--version"));
        said.unwrap_or_default().trim().to_string()
    }
}

/// Builds weft; returns the folder of its files.
fn build() -> Result<PathBuf, String> {
    if !succeeds(&mut cargo(&["build", "--release", "--workspace"])) {
        return Err("weft does not build".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    Ok(target.unwrap_or_else(|| crate::root().join("target")).join("release"))
}

/// Copies a file by a rename: ranks of another run may have the old one mapped.
fn place(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |e| format!("{} as {}: {e}", from.display(), to.display());
    let fresh = to.with_extension("fresh");
    std::fs::create_dir_all(to.with_file_name("")).map_err(failed)?;
    std::fs::copy(from, &fresh).map_err(failed)?;
    std::fs::rename(&fresh, to).map_err(failed)
}

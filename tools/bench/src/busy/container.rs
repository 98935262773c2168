//! A container with half a core: a control group of its own.

use anyhow::{bail, Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where control groups are, by convention.
const GROUPS: &str = "/sys/fs/cgroup";
/// Microseconds of processor time in each period of so many microseconds.
const QUOTA: u32 = 50_000;
const PERIOD: u32 = 100_000;
/// Longest wait for the end of processes in the group.
const LIMIT: Duration = Duration::from_secs(5);

/// A control group whose processes get half a core; it is removed when this value is dropped.
pub struct Half(PathBuf);

impl Half {
    /// Makes the group, in either version of the kernel's interface.
    ///
    /// # Errors
    /// No controller of processor time is there, or this process may not make a group.
    pub fn start() -> Result<Half> {
        let (unified, own) = (Path::new(GROUPS), format!("weft-bench-{}", std::process::id()));
        let controllers = unified.join("cgroup.subtree_control");
        let with = |above: PathBuf, files: &[(&str, String)]| -> Result<Half> {
            let group = Half(above.join(&own));
            let place = || format!("the control group {}", group.0.display());
            fs::create_dir(&group.0).with_context(place)?;
            for (file, value) in files {
                fs::write(group.0.join(file), value).with_context(place)?;
            }
            Ok(group)
        };
        let has = |file: &Path| fs::read_to_string(file).unwrap_or_default().contains("cpu");
        if has(&controllers) || has(&unified.join("cgroup.controllers")) {
            // An error shows when the quota is written.
            let _ = fs::write(&controllers, "+cpu");
            return with(unified.into(), &[("cpu.max", format!("{QUOTA} {PERIOD}"))]);
        }
        let old = unified.join("cpu");
        if !old.join("cpu.cfs_quota_us").exists() && !old.join("cpu.shares").exists() {
            bail!("no control groups with processor time under {GROUPS}");
        }
        let files =
            [("cpu.cfs_period_us", PERIOD.to_string()), ("cpu.cfs_quota_us", QUOTA.to_string())];
        with(old, &files)
    }

    /// Returns the start of a command line that runs the rest inside.
    pub fn words(&self) -> [String; 4] {
        let file = self.0.join("cgroup.procs").display().to_string();
        ["sh".into(), "-c".into(), "echo $$ > \"$0\" && exec \"$@\"".into(), file]
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        let end = Instant::now() + LIMIT;
        // Processes that have ended leave it a moment later.
        while fs::remove_dir(&self.0).is_err() && self.0.exists() && Instant::now() < end {
            std::thread::yield_now();
        }
    }
}

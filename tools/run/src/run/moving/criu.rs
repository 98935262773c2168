//! CRIU, the program that copies and restores processes.

use anyhow::{bail, Context, Result};
use rustix::process::Pid;
use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

/// Variable with the path of CRIU.
pub const VARIABLE: &str = "WEFT_CRIU";
/// The least version: earlier ones cannot start on kernels from 6.13, or copy no UDP socket on
/// kernels from 6.16.
pub const LEAST: [u32; 2] = [4, 2];

/// Returns a command of CRIU.
fn command() -> Command {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let mut command = Command::new(named.unwrap_or_else(|| OsString::from("criu")));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Returns the version of CRIU.
///
/// # Errors
/// CRIU is not there, or too old; the text names the remedy.
pub fn version() -> Result<String> {
    let output = command().arg("--version").stdout(Stdio::piped()).output();
    let output = output.with_context(|| {
        format!(
            "no CRIU: install criu (Debian: package criu, from sid before Debian 14), or name its \
             path in {VARIABLE}"
        )
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.lines().find_map(|line| line.strip_prefix("Version: ")).unwrap_or("");
    let numbers: Vec<u32> =
        version.split('.').filter_map(|part| part.trim().parse().ok()).collect();
    if numbers.len() < 2 || numbers[..2] < LEAST[..] {
        let [major, minor] = LEAST;
        bail!("CRIU {version} is too old for this: {major}.{minor} or later is needed");
    }
    Ok(version.trim().to_owned())
}

/// Checks that this kernel, and the rights of this process, are enough.
///
/// # Errors
/// The kernel or the rights are not; the text is CRIU's.
pub fn check() -> Result<()> {
    let output = command().arg("check").stderr(Stdio::piped()).output().context("criu check")?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().rfind(|line| line.contains("Error"));
    bail!("criu check: {}", line.unwrap_or("it fails without a reason").trim());
}

/// Returns the reason in a log of CRIU.
fn reason(log: &Path, what: &str) -> anyhow::Error {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let errors = text.lines().filter(|line| line.contains("Error") && !line.contains("rlimit:"));
    let first = errors.into_iter().next();
    let first = first.map(|line| line.split_once("): ").map_or(line, |(_, rest)| rest));
    anyhow::anyhow!("CRIU cannot {what}: {}", first.unwrap_or("it gives no reason"))
}

/// Copies a process and its descendants into a folder; they stand still afterwards. `sockets` are
/// the inodes of those that lead out.
///
/// # Errors
/// CRIU refuses it; the processes go on then.
pub fn dump(pid: Pid, folder: &Path, sockets: &[u64]) -> Result<()> {
    let mut command = command();
    command.args(["dump", "--leave-stopped", "-v2", "-o", "dump.log"]);
    command.args(["--manage-cgroups=ignore", "-t", &pid.as_raw_nonzero().to_string()]);
    command.arg("-D").arg(folder);
    for inode in sockets {
        command.args(["--external", &format!("unix[{inode}]")]);
    }
    let status = command.status().context("starting CRIU")?;
    match status.success() {
        true => Ok(()),
        false => Err(reason(&folder.join("dump.log"), "copy the process")),
    }
}

/// Name of the file with the number of the restored process.
const PID: &str = "weft.pid";

/// Returns the command that restores a copy, which stands still afterwards and is a child of this
/// process. Descriptors of the copy, by CRIU's names, become `inherited`.
pub fn restore(folder: &Path, inherited: &[(String, OwnedFd)]) -> Command {
    let mut command = command();
    command.args(["restore", "--leave-stopped", "--restore-detached", "--restore-sibling"]);
    command.args(["-v2", "-o", "restore.log", "--manage-cgroups=ignore"]);
    command.arg("--pidfile").arg(folder.join(PID)).arg("-D").arg(folder);
    for (name, fd) in inherited {
        command.args(["--inherit-fd", &format!("fd[{}]:{name}", fd.as_raw_fd())]);
    }
    command
}

/// Returns the restored process, after the command ended well or not.
///
/// # Errors
/// CRIU refused to restore it.
pub fn restored(folder: &Path, well: bool) -> Result<Pid> {
    if !well {
        return Err(reason(&folder.join("restore.log"), "restore the process"));
    }
    let text = fs::read_to_string(folder.join(PID)).context("the number of the process")?;
    let number = text.trim().parse().ok().and_then(Pid::from_raw);
    number.context("the number of the process")
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn reason__is_the_first_error_of_the_log() {
        let folder = super::super::image::Image::create().unwrap();
        let log = folder.folder.join("dump.log");
        let text = "(00.01) Error (criu/util.c:1534): rlimit: Can't setup\n\
                    (00.02) Warn  (x.c:1): no\n\
                    (00.03) Error (criu/sk-inet.c:9): sk inet: not supported\n\
                    (00.04) Error (criu/cr-dump.c:1): Dumping FAILED.\n";
        fs::write(&log, text).unwrap();
        let why = reason(&log, "copy the process").to_string();
        assert_eq!(why, "CRIU cannot copy the process: sk inet: not supported");
    }
}

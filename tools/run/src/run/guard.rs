//! The guard of a proxy: its parent, which ends what the proxy leaves behind when it is killed.
//!
//! A killed proxy takes its ranks with it, since they end with their parent, but not the processes
//! that its ranks have started. These become children of the guard, as of the nearest process that
//! asked for them, and the guard kills them.

use super::moving::image;
use super::sys;
use anyhow::{Context, Result};
use rustix::process::{getpid, waitid, Pid, Signal, WaitId, WaitIdOptions};
use std::fs::File;
use std::process::ExitCode;

/// Splits this process into guard and proxy. Returns `None` in the proxy, and in the guard, after
/// the proxy has ended, its exit status.
pub fn begin() -> Result<Option<ExitCode>> {
    rustix::process::set_child_subreaper(Some(getpid()))?;
    image::prepare();
    let Some(proxy) = sys::split().context("starting the proxy")? else { return Ok(None) };
    // The launcher sees the end of the proxy by the end of these.
    let null = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    let null = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let status = loop {
        match waitid(WaitId::Pid(proxy), WaitIdOptions::EXITED) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    end_children();
    image::sweep();
    let Some(signal) = status.as_ref().and_then(|status| status.terminating_signal()) else {
        let code = status.and_then(|status| status.exit_status()).unwrap_or(1);
        return Ok(Some(ExitCode::from(code as u8)));
    };
    // The launcher, or ssh, shall see the end that the proxy came to.
    let signal = Signal::from_named_raw(signal).unwrap_or(Signal::KILL);
    rustix::process::kill_process(getpid(), signal)?;
    Ok(Some(ExitCode::FAILURE))
}

/// Kills all children of this process, and theirs: the children of a killed process become
/// children of this one. So this repeats until none are left that this user may kill.
pub fn end_children() {
    loop {
        let mut killed = 0;
        for pid in children() {
            if rustix::process::kill_process(pid, Signal::KILL).is_ok() {
                killed += 1;
                // The process may have been reaped already.
                let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
            }
        }
        if killed == 0 {
            return;
        }
    }
}

/// Returns the children of this process, which has one thread.
pub fn children() -> Vec<Pid> {
    let list = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    let numbers = list.split_whitespace().filter_map(|word| word.parse().ok());
    numbers.filter_map(Pid::from_raw).collect()
}

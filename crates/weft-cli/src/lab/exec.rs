//! `weft lab exec`: a command on a host of a lab.

use super::client::Entrance;
use super::sys;
use anyhow::{Context, Result};
use rustix::process::{kill_process, pidfd_open, Pid, PidfdFlags, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Run a command on a host of a lab
///
/// The command sees the host's network, name, processes and IPC, and the files of this machine. Its
/// exit status is passed on: 128 + number after a signal, 127 if there is no such command, 126 if
/// it cannot be run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft lab exec h1 ping -c 3 h2
  weft lab exec h2 iperf3 -s
  weft lab exec h1 bash")]
pub struct Args {
    /// Host: h1, h2, ...
    pub host: String,
    /// Command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

/// Runs the command and returns its exit status.
///
/// # Errors
/// There is no such lab or host.
pub fn run(lab: &str, args: &Args) -> Result<ExitCode> {
    Entrance::find_named(lab, &args.host)?.enter()?;
    let me = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    command.env("WEFT_LAB", lab).env("HOSTNAME", &args.host);
    sys::die_together(&mut command, &me);
    // Ctrl-C at the terminal reaches the command as well; whether it ends by it is its affair.
    let signals = Signals::catch()?;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => {
            eprintln!("weft lab exec: {}: {e}", args.command[0]);
            return Ok(ExitCode::from(if e.kind() == ErrorKind::NotFound { 127 } else { 126 }));
        }
    };
    let pid = Pid::from_child(&child);
    loop {
        match rustix::process::waitid(
            rustix::process::WaitId::Pid(pid),
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT,
        ) {
            Err(rustix::io::Errno::INTR) => signals.pass_on(pid),
            _ => break,
        }
    }
    Ok(code(child.wait().context("waiting for the command")?))
}

fn code(status: ExitStatus) -> ExitCode {
    let signal = status.signal().map(|signal| 128 + signal);
    ExitCode::from(status.code().or(signal).unwrap_or(1) as u8)
}

/// Signals to this process alone are meant for the command.
struct Signals {
    terminate: Arc<AtomicBool>,
    hang_up: Arc<AtomicBool>,
}

impl Signals {
    fn catch() -> Result<Signals> {
        let signals = Signals { terminate: Arc::default(), hang_up: Arc::default() };
        let ignored = Arc::new(AtomicBool::new(false));
        for (signal, flag) in [
            (SIGTERM, &signals.terminate),
            (SIGHUP, &signals.hang_up),
            (SIGINT, &ignored),
            (SIGQUIT, &ignored),
        ] {
            signal_hook::flag::register(signal, flag.clone())?;
        }
        Ok(signals)
    }

    fn pass_on(&self, to: Pid) {
        for (flag, signal) in [(&self.terminate, Signal::TERM), (&self.hang_up, Signal::HUP)] {
            if flag.swap(false, Ordering::Relaxed) {
                // It may have ended meanwhile; it is not reaped, so the number is still its own.
                let _ = kill_process(to, signal);
            }
        }
    }
}

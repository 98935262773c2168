//! `weft lab exec`: a command on a host of a lab.

use super::client::Entrance;
use super::sys;
use crate::run::poll::{Set, READ};
use anyhow::{Context, Result};
use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::atomic::AtomicBool;
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
    signals.pass_on_until_the_end_of(Pid::from_child(&child))?;
    Ok(code(child.wait().context("waiting for the command")?))
}

fn code(status: ExitStatus) -> ExitCode {
    let signal = status.signal().map(|signal| 128 + signal);
    ExitCode::from(status.code().or(signal).unwrap_or(1) as u8)
}

/// Signals to this process alone are meant for the command.
struct Signals {
    terminate: UnixStream,
    hang_up: UnixStream,
}

impl Signals {
    fn catch() -> Result<Signals> {
        let ignored = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGQUIT] {
            signal_hook::flag::register(signal, ignored.clone())?;
        }
        let [terminate, hang_up] = [SIGTERM, SIGHUP].map(|signal| {
            let (read, write) = UnixStream::pair()?;
            signal_hook::low_level::pipe::register(signal, write)?;
            std::io::Result::Ok(read)
        });
        Ok(Signals { terminate: terminate?, hang_up: hang_up? })
    }

    fn pass_on_until_the_end_of(&self, child: Pid) -> Result<()> {
        let process = pidfd_open(child, PidfdFlags::empty())?;
        let mut drain = [0; 64];
        loop {
            let mut set = Set::new();
            set.add(None, process.as_fd(), READ);
            set.add(Some((&self.terminate, Signal::TERM)), self.terminate.as_fd(), READ);
            set.add(Some((&self.hang_up, Signal::HUP)), self.hang_up.as_fd(), READ);
            for ready in set.wait(None)? {
                let Some((mut caught, signal)) = ready else { return Ok(()) };
                let _ = caught.read(&mut drain)?;
                // It may have ended meanwhile: then the next turn says so.
                let _ = pidfd_send_signal(&process, signal);
            }
        }
    }
}

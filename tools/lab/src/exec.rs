//! `weft lab exec`: a command on a host of a lab.

use super::client::{Entrance, Found};
use super::{proxy, sys};
use anyhow::{Context, Result};
use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use weft_run::run::poll::{Set, READ};

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
    #[arg(required = true, trailing_var_arg = true)]
    pub command: Vec<String>,
}

/// Runs the command and returns its exit status.
///
/// # Errors
/// There is no such lab or host.
pub fn run(lab: &str, args: &Args) -> Result<ExitCode> {
    let host = match Entrance::find_named(lab, &args.host)? {
        Found::Outside(host) => host,
        Found::Inside(host) => return proxy::ask(lab, host, &args.command),
    };
    host.enter()?;
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    // Ctrl-C at the terminal reaches the command as well, which decides if it ends.
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGQUIT] {
        signal_hook::flag::register(signal, ignored.clone())?;
    }
    let caught = Caught::of(&[SIGTERM, SIGHUP])?;
    let mut child = match start(command, lab, &host.name) {
        Ok(child) => child,
        Err((code, why)) => {
            eprintln!("{why}");
            return Ok(ExitCode::from(code));
        }
    };
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    loop {
        let mut set = Set::default();
        set.add(None, process.as_fd(), READ);
        caught.add_to(&mut set);
        for ready in set.wait(None)? {
            let Some(signal) = ready else {
                return Ok(ExitCode::from(code(child.wait().context("waiting for the command")?)));
            };
            // The process may have ended meanwhile: then the next turn returns.
            let _ = pidfd_send_signal(&process, caught.take(signal)?);
        }
    }
}

/// Starts a command on the host that this process has entered; the command ends with this process.
/// The error is an exit status and the reason.
pub(super) fn start(mut command: Command, lab: &str, host: &str) -> Result<Child, (u8, String)> {
    command.env("WEFT_LAB", lab).env("HOSTNAME", host);
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |e: std::io::Error| {
        let code = if e.kind() == ErrorKind::NotFound { 127 } else { 126 };
        (code, format!("weft lab exec: {program}: {e}"))
    };
    let me = pidfd_open(rustix::process::getpid(), PidfdFlags::empty());
    let me = me.map_err(|e| failed(e.into()))?;
    sys::die_together(&mut command, &me);
    command.spawn().map_err(failed)
}

/// Returns an exit status as a shell reports it.
pub(super) fn code(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    status.code().or(signal).unwrap_or(1) as u8
}

/// Signals sent to this process alone, to be passed to the command.
pub(super) struct Caught(Vec<(UnixStream, Signal)>);

impl Caught {
    /// Catches these signals from now on.
    pub fn of(signals: &[i32]) -> Result<Caught> {
        let mut caught = Vec::new();
        for &signal in signals {
            let (read, write) = UnixStream::pair()?;
            signal_hook::low_level::pipe::register(signal, write)?;
            caught.push((read, Signal::from_named_raw(signal).context("a signal with a name")?));
        }
        Ok(Caught(caught))
    }

    /// Adds the signals to a set of descriptors to wait for.
    pub fn add_to<'a>(&'a self, set: &mut Set<'a, Option<usize>>) {
        for (at, (stream, _)) in self.0.iter().enumerate() {
            set.add(Some(at), stream.as_fd(), READ);
        }
    }

    /// Returns the signal that arrived.
    pub fn take(&self, at: usize) -> Result<Signal> {
        let (mut stream, signal) = (&self.0[at].0, self.0[at].1);
        let _several_are_one = stream.read(&mut [0; 64])?;
        Ok(signal)
    }
}

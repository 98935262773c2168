//! The first process of a rank that can move. It has number 1 in a name space of process numbers of
//! the rank's own, so that every number is free where the rank goes; it starts the program, takes
//! what the program leaves behind, and ends with it.

use anyhow::{Context, Result};
use rustix::process::WaitOptions;
use std::io::ErrorKind;
use std::process::{Command, ExitCode};

/// Start a program as the first process of its name space; started by `weft run`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Runs the program; returns its exit status, 128 and the number of the signal that killed it.
///
/// # Errors
/// The system refuses to wait for it.
pub fn run(args: &Args) -> Result<ExitCode> {
    let program = &args.command[0];
    let child = match Command::new(program).args(&args.command[1..]).spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("cannot start {program}: {error}");
            let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
            return Ok(ExitCode::from(code));
        }
    };
    let child = child.id() as i32;
    loop {
        let (pid, status) = match rustix::process::wait(WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) | Ok(None) => continue,
            ended => ended.context("waiting for the program")?.context("no child")?,
        };
        if pid.as_raw_nonzero().get() == child {
            let of_signal = status.terminating_signal().map(|signal| 128 + signal);
            let code = status.exit_status().or(of_signal).unwrap_or(1);
            return Ok(ExitCode::from(code as u8));
        }
    }
}

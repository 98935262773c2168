//! The program that an MPI's launcher calls in place of ssh, if the user gave a command for that:
//! this program under another name. Launchers call it with options, a host and a shell command.

use super::provider;
use crate::program;
use anyhow::{bail, Context, Result};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use weft::launch::wire::{from_hex, to_hex};

/// Name of the variable that holds the user's command.
pub const VARIABLE: &str = "WEFT_LAUNCH_AGENT";
/// Name under which `weft` is the agent.
const NAME: &str = "weft-mpi-agent";

/// Makes `weft` callable as an agent, and returns the path. `command` must not be empty.
///
/// # Errors
/// The cache cannot be written.
pub fn install(command: &str) -> Result<PathBuf> {
    if command.trim().is_empty() {
        misuse!("--launch-agent: expected a command");
    }
    provider::linked(&program::weft()?, NAME)
}

/// True if this process was called as an agent.
pub fn is_called() -> bool {
    let name = std::env::args_os().next().map(PathBuf::from);
    name.is_some_and(|name| name.file_name().is_some_and(|name| name == NAME))
}

/// Returns host and shell command of an agent's arguments.
fn parse(args: impl Iterator<Item = String>) -> Option<(String, String)> {
    let mut words = args.skip_while(|word| word.starts_with('-'));
    let host = words.next()?;
    let line: Vec<String> = words.collect();
    (!line.is_empty()).then(|| (host, line.join(" ")))
}

/// Run a shell command, given in hexadecimal digits
#[derive(Debug, clap::Args)]
pub struct Line {
    digits: String,
}

/// Replaces this process by a shell that runs the line.
///
/// # Errors
/// The line is invalid, or there is no shell.
pub fn run_line(line: &Line) -> Result<ExitCode> {
    let line = from_hex(&line.digits).and_then(|bytes| String::from_utf8(bytes).ok());
    let line = line.context("expected hexadecimal digits of a line of text")?;
    Err(Command::new("sh").args(["-c", &line]).exec()).context("running sh")
}

/// Replaces this process by the user's command, which must run the shell command on the host. Its
/// arguments are plain words, because some commands run them directly and some, like ssh, pass them
/// to another shell.
///
/// # Errors
/// The command cannot be run, or the launcher's call is not understood.
pub fn run() -> Result<ExitCode> {
    let command = std::env::var(VARIABLE).with_context(|| format!("{NAME} without {VARIABLE}"))?;
    let Some((host, line)) = parse(std::env::args().skip(1)) else {
        bail!("{NAME} is called by the launchers of MPIs, with a host and a command");
    };
    let script = format!("exec {command} \"$@\"");
    // Other hosts have this program at the same path.
    let program = std::env::current_exe().context("finding this program's path")?;
    let mut command_line = Command::new("sh");
    command_line.args(["-c", &script, "launch-agent", &host]).arg(program);
    let error = command_line.args(["mpi-line", &to_hex(line.as_bytes())]).exec();
    Err(error).with_context(|| format!("running {command:?}"))
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn parse__as_launchers_call() {
        let call = |words: &[&str]| parse(words.iter().map(|w| (*w).to_owned()));
        let expected = Some(("h1".to_owned(), "\"/p/hydra\" --port h:1".to_owned()));
        assert_eq!(call(&["-x", "h1", "\"/p/hydra\"", "--port", "h:1"]), expected);
        assert_eq!(call(&["h1", "a;b -c"]), Some(("h1".into(), "a;b -c".into())));
        assert_eq!(call(&["h1"]), None);
        assert_eq!(call(&[]), None);
    }
}

//! Commands that tests run, and descriptors that must not be in other hands meanwhile.

use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

/// Held while a process is started: until it executes its program, it has a copy of every
/// descriptor of this one.
static STARTS: RwLock<()> = RwLock::new(());

/// Starts a process.
pub(crate) fn start(command: &mut Command) -> io::Result<Child> {
    let _starting = STARTS.read().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// Keeps all tests from starting processes: what is closed meanwhile is closed at once.
pub(crate) fn none_starts() -> RwLockWriteGuard<'static, ()> {
    STARTS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a command of these words; what it printed, or why it failed.
pub(crate) fn run(words: &str) -> Result<String, String> {
    let mut parts = words.split_whitespace();
    let program = parts.next().ok_or("no command")?;
    let mut command = Command::new(program);
    command.args(parts).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let out = start(&mut command).and_then(Child::wait_with_output);
    let out = out.map_err(|e| format!("{program}: {e}"))?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        false => Err(format!("{words}: {}", String::from_utf8_lossy(&out.stderr).trim())),
    }
}

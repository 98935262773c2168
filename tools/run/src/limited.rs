//! Short commands that may hang, and their output.

use rustix::process::{kill_process, Pid, Signal};
use std::io;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Longest time for which processes of a killed command may keep its output open.
const GRACE: Duration = Duration::from_secs(1);

/// Runs a command with empty input and returns its output.
///
/// # Errors
/// The command cannot be started, or did not end in time and was killed.
pub fn output_within(mut command: Command, limit: Duration) -> io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    let pid = Pid::from_child(&child);
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        // After the time limit the receiver is gone.
        let _ = tell.send(child.wait_with_output());
    });
    match told.recv_timeout(limit) {
        Ok(output) => output,
        Err(_) => {
            // The thread has not reaped the process yet, else its output would be here.
            let _ = kill_process(pid, Signal::KILL);
            let _ = told.recv_timeout(GRACE);
            let seconds = limit.as_secs_f64();
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no end after {seconds} s")))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn output_within__output_or_an_end() {
        let mut echo = Command::new("echo");
        echo.arg("hello");
        let output = output_within(echo, Duration::from_secs(60)).unwrap();
        assert_eq!(output.stdout, b"hello\n");
        let mut sleep = Command::new("sleep");
        sleep.arg("600");
        let error = output_within(sleep, Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(output_within(Command::new("/nonexistent"), Duration::from_secs(1)).is_err());
    }
}

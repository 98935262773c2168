//! The process that carries a copy, as its proxy has it.

use super::carry::{Did, Task};
use crate::run::frame::read_some;
use anyhow::{Context, Result};
use rustix::fs::OFlags;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use weft::launch::wire::LineBuffer;

/// The process.
pub struct Carrier {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
    lines: LineBuffer,
    ended: bool,
    /// The process has said its last.
    finished: bool,
}

impl Carrier {
    /// Starts the process and tells it its task.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn start(task: &Task) -> Result<Carrier> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("weft").arg("run-carry");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting the process that carries a copy")?;
        let (to, from) = child.stdin.take().zip(child.stdout.take()).context("its pipes")?;
        let flags = rustix::fs::fcntl_getfl(&from)?;
        rustix::fs::fcntl_setfl(&from, flags | OFlags::NONBLOCK)?;
        let mut carrier = Carrier {
            child,
            to,
            from,
            lines: LineBuffer::default(),
            ended: false,
            finished: false,
        };
        carrier.tell(&serde_json::to_string(task)?)?;
        Ok(carrier)
    }

    /// Writes a line to it.
    ///
    /// # Errors
    /// The process has ended.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        self.to.write_all(format!("{line}\n").as_bytes()).context("the carrier of the copy ended")
    }

    /// Returns the descriptor that is readable when it has done something. `None` after its end.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.ended).then(|| self.from.as_fd())
    }

    /// Reads once, and returns all that it has done.
    pub fn did(&mut self) -> Vec<Did> {
        match read_some(&self.from) {
            Ok(None) => return Vec::new(),
            Ok(Some(bytes)) if !bytes.is_empty() => self.lines.extend(&bytes),
            _ => self.ended = true,
        }
        let mut all = Vec::new();
        while let Ok(Some(line)) = self.lines.next_line() {
            all.extend(serde_json::from_slice::<Did>(&line));
        }
        self.finished |= matches!(all.last(), Some(Did::Failed { .. } | Did::Done));
        if self.ended && !self.finished {
            all.push(Did::Failed { why: "the process that carries the copy ended".into() });
        }
        all
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

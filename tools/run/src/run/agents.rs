//! Starting a proxy on each host, and the connection to it.

use super::frame::{read_some, Down, Incoming, Outgoing, Start, Up, MAGIC};
use super::hosts::Share;
use super::poll::{self, Set};
use crate::words;
use anyhow::{anyhow, bail, Result};
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags};
use std::iter;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

/// Most bytes that a login shell may print before the proxy's first frame.
const MAX_BANNER: usize = 1 << 20;

/// The command that starts proxies on other hosts.
pub struct Agent {
    /// Command used in place of ssh; a shell splits it into words.
    pub command: Option<String>,
    /// Path of this program on the other hosts.
    pub remote_weft: String,
}

/// A host of the job, its proxy and the connection to that.
pub struct Node {
    /// The host and its ranks.
    pub share: Share,
    /// True if the proxy was started without a launch agent.
    pub local: bool,
    child: Child,
    /// Input of the proxy, until it ended.
    pub stdin: Option<OwnedFd>,
    /// Output of the proxy, until it ended.
    pub stdout: Option<OwnedFd>,
    /// Standard error of the proxy, until it ended.
    pub stderr: Option<OwnedFd>,
    /// Frames to the proxy.
    pub down: Outgoing,
    incoming: Incoming,
    greeted: bool,
    /// True if the proxy has sent `Hello`.
    pub ready: bool,
    /// The start message, which is sent after `Hello`.
    pub start: Option<Box<Start>>,
    /// The command that reaches the host, for the user to try.
    pub reach: String,
    /// Last line of its standard error.
    pub last_words: String,
    complaints: Vec<u8>,
}

/// True if `host` names the machine that this process runs on.
pub fn is_local(host: &str) -> bool {
    let own = rustix::system::uname();
    let own = own.nodename().to_string_lossy();
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    matches!(host, "localhost" | "127.0.0.1" | "::1")
        || host == own
        || (!host.contains('.') && host == short(&own))
}

impl Agent {
    /// Returns the command that runs this program with these arguments on a host; true if that
    /// needs no other program.
    pub fn command(&self, host: &str, args: &[&str]) -> (Command, bool) {
        let local = self.command.is_none() && is_local(host);
        let mut command;
        match &self.command {
            _ if local => {
                command = Command::new("/proc/self/exe");
                command.arg0("weft").args(args);
            }
            Some(agent) => {
                command = Command::new("sh");
                command.arg("-c").arg(format!("exec {agent} \"$@\"")).arg("launch-agent");
                command.args([host, &self.remote_weft]).args(args);
            }
            None => {
                command = Command::new("ssh");
                command.args(["-x", "-o", "BatchMode=yes", "--", host]);
                // ssh joins its arguments to a line for the shell of the other host.
                let line = iter::once(self.remote_weft.as_str()).chain(args.iter().copied());
                command.arg(words::join(line));
            }
        }
        (command, local)
    }

    /// Starts the proxy of one host.
    pub fn start(&self, share: Share) -> Result<Node> {
        let (mut command, local) = self.command(&share.host, &["run-proxy"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The proxy has its own group: Ctrl-C at the terminal signals only the launcher, which
        // passes it on.
        command.process_group(0);
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|error| {
            let fix = match error.kind() {
                std::io::ErrorKind::NotFound => "is it installed?",
                _ => "see the limits on open files and processes (ulimit -n, -u)",
            };
            anyhow!("cannot start {program} for host {}: {error}; {fix}", share.host)
        })?;
        let stdin = child.stdin.take().map(OwnedFd::from);
        let stdout = child.stdout.take().map(OwnedFd::from);
        let stderr = child.stderr.take().map(OwnedFd::from);
        for fd in [&stdin, &stdout, &stderr].into_iter().flatten() {
            let flags = rustix::fs::fcntl_getfl(fd)?;
            rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
        }
        let agent = self.command.as_deref().unwrap_or("ssh");
        let reach = if local { "env".to_owned() } else { format!("{agent} {}", share.host) };
        Ok(Node {
            reach,
            share,
            local,
            child,
            stdin,
            stdout,
            stderr,
            down: Outgoing::default(),
            incoming: Incoming::default(),
            greeted: false,
            ready: false,
            start: None,
            last_words: String::new(),
            complaints: Vec::new(),
        })
    }
}

impl Node {
    /// Queues a message for the proxy and writes as much as it takes now.
    pub fn send(&mut self, message: &Down, body: &[u8]) {
        if self.stdin.is_some() {
            self.down.push(message, body);
            self.flush();
        }
    }

    /// Writes queued bytes. A read reports a broken connection.
    pub fn flush(&mut self) {
        if let Some(fd) = &self.stdin {
            if self.down.flush(fd.as_fd()).is_err() {
                self.stdin = None;
                self.down = Outgoing::default();
            }
        }
    }

    /// Reads once and returns the whole messages. At the end, `stdout` is `None`.
    pub fn read(&mut self) -> Result<Vec<(Up, Vec<u8>)>> {
        let Some(fd) = &self.stdout else {
            return Ok(Vec::new());
        };
        match read_some(fd) {
            Ok(None) => return Ok(Vec::new()),
            Ok(Some(bytes)) if !bytes.is_empty() => self.incoming.extend(&bytes),
            _ => {
                self.stdout = None;
                return Ok(Vec::new());
            }
        }
        if !self.greeted && !self.greet()? {
            return Ok(Vec::new());
        }
        let mut messages = Vec::new();
        while let Some(message) = self.incoming.next::<Up>()? {
            messages.push(message);
        }
        Ok(messages)
    }

    /// Skips the output of a login shell before the proxy's first frame.
    fn greet(&mut self) -> Result<bool> {
        let bytes = self.incoming.pending();
        let Some(at) = bytes.windows(MAGIC.len()).position(|window| window == MAGIC) else {
            if bytes.len() > MAX_BANNER {
                bail!("it printed {} bytes, but no weft proxy started", bytes.len());
            }
            return Ok(false);
        };
        self.incoming.skip(at + MAGIC.len());
        self.greeted = true;
        Ok(true)
    }

    /// Reads the standard error of the launch agent or proxy, as whole lines.
    pub fn read_complaints(&mut self) -> Vec<String> {
        let Some(fd) = &self.stderr else {
            return Vec::new();
        };
        match read_some(fd) {
            Ok(None) => return Vec::new(),
            Ok(Some(bytes)) if !bytes.is_empty() => self.complaints.extend(bytes),
            _ => {
                self.stderr = None;
                if !self.complaints.is_empty() {
                    self.complaints.push(b'\n');
                }
            }
        }
        let mut lines = Vec::new();
        while let Some(at) = self.complaints.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = self.complaints.drain(..=at).collect();
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if !line.is_empty() {
                self.last_words.clone_from(&line);
                lines.push(line);
            }
        }
        if self.complaints.len() > MAX_BANNER {
            self.complaints.clear();
        }
        lines
    }

    /// Waits until the launch agent or local proxy ends; kills it at `until`, and with a local
    /// proxy its ranks.
    pub fn wait(&mut self, until: Instant) -> Option<ExitStatus> {
        let pid = Pid::from_child(&self.child);
        if let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            loop {
                let mut set = Set::default();
                set.add((), pidfd.as_fd(), poll::READ);
                match set.wait(Some(until)) {
                    Ok(ready) if ready.is_empty() && Instant::now() < until => {}
                    _ => break,
                }
            }
        }
        if let Ok(Some(status)) = self.child.try_wait() {
            return Some(status);
        }
        // An error here means that the process has ended already.
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn command__ssh_gets_one_line_for_the_other_shell() {
        let agent = Agent { command: None, remote_weft: "/a b/weft".into() };
        let (command, local) = agent.command("weft-elsewhere.invalid", &["run-proxy", "$x"]);
        assert!(!local && command.get_args().last().unwrap() == "'/a b/weft' run-proxy '$x'");
    }

    #[test]
    fn is_local__knows_this_machine_and_no_other() {
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        assert!(is_local("localhost") && is_local(&own));
        assert!(!is_local("weft-elsewhere.invalid"));
    }
}

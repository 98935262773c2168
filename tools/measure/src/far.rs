//! The two ranks on hosts that are reached as by `weft run --hosts`. Ranks on this machine use
//! inherited descriptors; here the bytes of these go through standard input and output of the
//! command that reaches the host.

use anyhow::{ensure, Context, Result};
use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::spawn;
use weft_run::run::agents::Agent;
use weft_run::run::remote_weft;

/// Hosts to measure between, and how to reach them.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Reach {
    /// Measure between these two hosts, which are reached as by `weft run --hosts`
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 1..)]
    pub hosts: Vec<String>,
    /// Command used in place of ssh, called with HOST PROGRAM ARGS
    #[arg(long, value_name = "CMD", env = "WEFT_LAUNCH_AGENT")]
    pub launch_agent: Option<String>,
    /// Path of weft on the hosts [default: the path of this program]
    #[arg(long, value_name = "PATH", requires = "hosts")]
    pub remote_weft: Option<String>,
}

impl Reach {
    /// Returns the hosts to measure between, where some are named.
    ///
    /// # Errors
    /// Their number is not two.
    pub fn far(&self) -> Result<Option<Far>> {
        let hosts = match &self.hosts[..] {
            [] => return Ok(None),
            [a, b] if a != b => [a.clone(), b.clone()],
            other => misuse!("--hosts {}: two different hosts are needed", other.join(",")),
        };
        let remote_weft = remote_weft(self.remote_weft.as_deref())?;
        Ok(Some(Far { hosts, agent: Agent { command: self.launch_agent.clone(), remote_weft } }))
    }
}

/// Two hosts and how to reach them.
pub struct Far {
    /// Names of the hosts.
    pub hosts: [String; 2],
    /// The command that reaches them.
    pub agent: Agent,
}

/// The start values of a rank. They come over standard input, because arguments would show the key
/// to other users.
#[derive(Serialize, Deserialize)]
pub struct Start {
    /// 0 or 1.
    pub rank: usize,
    /// Value of `WEFT_LINK`.
    pub link: String,
    /// Job key.
    pub key: u64,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
}

/// The first bytes that a rank writes: login shells may print before it.
const MAGIC: &[u8] = b"weft bench rank 1\n";
/// Most bytes that may come before `MAGIC`.
const MAX_BANNER: usize = 1 << 20;
/// Longest piece, in bytes.
const PIECE: usize = 64 << 10;

/// Receiver of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    /// The rank, at its start.
    Start = 0,
    /// Tasks and answers.
    Control = 1,
    /// The other rank.
    Side = 2,
}

fn put(out: &mut impl Write, to: For, bytes: &[u8]) -> std::io::Result<()> {
    for piece in bytes.chunks(PIECE) {
        let len = (piece.len() as u32).to_le_bytes();
        out.write_all(&[&[to as u8], &len[..], piece].concat())?;
    }
    out.flush()
}

/// Reads the next piece; `None` at the end.
fn next(from: &mut impl Read) -> std::io::Result<Option<(For, Vec<u8>)>> {
    let mut head = [0; 5];
    match from.read_exact(&mut head) {
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let [to, len @ ..] = head;
    let len = u32::from_le_bytes(len) as usize;
    let to = [For::Start, For::Control, For::Side].into_iter().find(|t| *t as u8 == to);
    let to = to.filter(|_| len <= PIECE).ok_or(ErrorKind::InvalidData)?;
    let mut piece = vec![0; len];
    from.read_exact(&mut piece)?;
    Ok(Some((to, piece)))
}

/// Sends the bytes that come out of a socket as pieces, until the socket is closed.
fn carry<W: Write>(mut from: UnixStream, to: For, out: &Mutex<W>) {
    let mut bytes = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
        if put(&mut *out, to, &bytes[..len]).is_err() {
            return;
        }
    }
}

/// A rank that is being reached: the process that reaches its host, and the end of its control
/// socket.
pub type Reached = (Child, UnixStream);

impl Far {
    /// Starts a rank on each host.
    ///
    /// # Errors
    /// The command that reaches a host cannot be started.
    pub fn start(&self, starts: [Start; 2]) -> Result<[Reached; 2]> {
        let [a, b] = [&self.hosts[0], &self.hosts[1]].map(|host| -> Result<Child> {
            let (mut command, _) = self.agent.command(host, super::probe::far_words());
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().with_context(|| format!("starting a rank on {host}"))
        });
        let mut children = [a?, b?];
        let mut inputs = Vec::new();
        for (child, start) in children.iter_mut().zip(starts) {
            let mut input = child.stdin.take().context("no pipe")?;
            // A process that has ended reports the reason by itself.
            let _ = put(&mut input, For::Start, &serde_json::to_vec(&start)?);
            inputs.push(Arc::new(Mutex::new(input)));
        }
        let mut controls = Vec::new();
        for (at, child) in children.iter_mut().enumerate() {
            let (outer, inner) = UnixStream::pair()?;
            let output = child.stdout.take().context("no pipe")?;
            let (tasks, own) = (inner.try_clone()?, Arc::clone(&inputs[at]));
            let other = Arc::clone(&inputs[1 - at]);
            spawn(move || carry(tasks, For::Control, &own));
            spawn(move || {
                let mut answers = inner;
                // The command ended or wrote invalid bytes: the parent sees the end of the control
                // socket.
                let _ = deliver(output, &mut answers, &other);
                let _ = answers.shutdown(Shutdown::Both);
            });
            controls.push(outer);
        }
        let [a, b] = children;
        let mut controls = controls.into_iter();
        let control = controls.next().zip(controls.next()).context("two ranks")?;
        Ok([(a, control.0), (b, control.1)])
    }
}

/// Delivers the pieces that a rank writes.
fn deliver(
    mut output: impl Read,
    answers: &mut UnixStream,
    other: &Mutex<ChildStdin>,
) -> std::io::Result<()> {
    let mut banner = Vec::new();
    while !banner.ends_with(MAGIC) {
        let mut byte = [0];
        output.read_exact(&mut byte)?;
        banner.push(byte[0]);
        if banner.len() > MAX_BANNER {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    while let Some((to, piece)) = next(&mut output)? {
        match to {
            For::Control => answers.write_all(&piece)?,
            _ => {
                let mut other = other.lock().unwrap_or_else(PoisonError::into_inner);
                put(&mut *other, For::Side, &piece)?;
            }
        }
    }
    Ok(())
}

/// Returns the start values and descriptors of a rank on such a host, in the place of inherited
/// descriptors: control, side, and four that only ranks of one machine use.
pub fn ends() -> Result<(Start, [OwnedFd; 6])> {
    let mut output = std::io::stdout();
    output.write_all(MAGIC)?;
    output.flush()?;
    let mut input = std::io::stdin();
    let Some((For::Start, start)) = next(&mut input)? else {
        anyhow::bail!("this command is started by weft: `weft tune --hosts`");
    };
    let start: Start = serde_json::from_slice(&start)?;
    ensure!(start.rank < 2, "there are two ranks");
    let (control, mut tasks) = UnixStream::pair()?;
    let (side, mut notes) = UnixStream::pair()?;
    let output = Arc::new(Mutex::new(output));
    for (to, from) in [(For::Control, tasks.try_clone()?), (For::Side, notes.try_clone()?)] {
        let output = Arc::clone(&output);
        spawn(move || carry(from, to, &output));
    }
    spawn(move || {
        while let Ok(Some((to, piece))) = next(&mut input) {
            let into = if to == For::Control { &mut tasks } else { &mut notes };
            if into.write_all(&piece).is_err() {
                break;
            }
        }
        // The parent has ended, so the rank ends too, even while it waits.
        std::process::exit(0);
    });
    let (unix, pipe) = UnixStream::pair()?;
    let memory = memfd_create("weft-bench", MemfdFlags::CLOEXEC)?;
    ftruncate(&memory, super::sys::SHARED_LEN as u64)?;
    let pipe_out = pipe.try_clone()?;
    let all = [control.into(), side.into(), unix.into(), pipe.into(), pipe_out.into(), memory];
    Ok((start, all))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn next__reads_what_put_wrote_and_refuses_the_rest() {
        let mut bytes = Vec::new();
        let long = vec![7; PIECE + 1];
        put(&mut bytes, For::Control, b"task").unwrap();
        put(&mut bytes, For::Side, &long).unwrap();
        let mut from = &bytes[..];
        assert_eq!(next(&mut from).unwrap(), Some((For::Control, b"task".to_vec())));
        assert_eq!(next(&mut from).unwrap().map(|(to, p)| (to, p.len())), Some((For::Side, PIECE)));
        assert_eq!(next(&mut from).unwrap(), Some((For::Side, vec![7])));
        assert_eq!(next(&mut from).unwrap(), None);
        for broken in [&[9, 0, 0, 0, 0][..], &[1, 255, 255, 255, 255], &[1, 4, 0, 0, 0, 1]] {
            assert!(next(&mut &broken[..]).is_err());
        }
    }
}

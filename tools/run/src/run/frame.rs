//! The frames between the launcher and its proxies.
//!
//! A frame is two little-endian lengths (u32), a JSON message of the first length and a body of raw
//! bytes of the second. Both sides read and write without blocking. Bytes that cannot be written
//! yet wait in [`Outgoing`], and above [`HIGH_WATER`] its owner stops reading its sources.

use super::moving::{News, Order};
use anyhow::{bail, Context, Result};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use weft::launch::ends;

/// First bytes of a proxy, before its first frame; a login shell may print before them.
pub const MAGIC: &[u8] = b"\nweft-run-proxy 1\n";

/// Bytes waiting to be written above which a side stops reading sources that add to them.
pub const HIGH_WATER: usize = 1 << 20;

/// Bytes read from a descriptor at once.
pub const CHUNK: usize = 64 * 1024;

/// Bytes of standard input not yet read by a rank above which the launcher stops reading its own.
pub const STDIN_WINDOW: usize = 64 * 1024;

const MAX_JSON: usize = 16 << 20;
const MAX_BODY: usize = 1 << 20;

/// A message from the launcher to a proxy.
#[derive(Debug, Serialize, Deserialize)]
pub enum Down {
    /// Start ranks. The first message, sent once.
    Start(Box<Start>),
    /// Write the body to a rank's PMI connection.
    Pmi { rank: usize },
    /// Write the body to the standard input of rank 0.
    Stdin,
    /// Close the standard input of rank 0.
    StdinEnd,
    /// Send a signal to the process groups of all ranks still running.
    Signal { signal: i32 },
    /// A rank of any host has left the job (`None`), or its process has ended.
    Ended { rank: usize, end: Option<End> },
    /// Do a step of the move of this number of a rank.
    Move { rank: usize, number: u32, order: Order },
}

/// Parameters of a start.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Variables set on top of the proxy's environment.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub directory: String,
    /// First rank of this proxy.
    pub first: usize,
    /// Number of ranks of this proxy.
    pub count: usize,
    /// Number of ranks of the job.
    pub size: usize,
    /// Bind each rank to one core.
    pub bind: bool,
    /// Pass on output in whole lines.
    pub whole_lines: bool,
    /// Start ranks so that they can move to another host.
    pub migratable: bool,
}

/// A message from a proxy to the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub enum Up {
    /// The proxy runs. The first message.
    Hello { version: String, cores: usize },
    /// A rank's process exists.
    Started { rank: usize, pid: u32 },
    /// A rank could not be started; `code` is the exit status that a shell would give.
    NotStarted { rank: usize, problem: String, code: u8 },
    /// The body is a line that a rank wrote to its PMI connection, newline excluded.
    Pmi { rank: usize },
    /// The body is output of a rank.
    Output { rank: usize, error: bool },
    /// Rank 0 read this many bytes of its standard input.
    StdinTaken { bytes: usize },
    /// A rank ended and all its output was sent.
    Ended { rank: usize, end: End },
    /// Word about the move of this number of a rank.
    Move { rank: usize, number: u32, news: News },
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// With an exit status.
    Status(u8),
    /// By a signal.
    Signal(i32),
}

impl End {
    /// Returns the end as the ranks are told of it.
    pub fn told(self) -> ends::End {
        match self {
            End::Status(code) => ends::End::Status(code),
            End::Signal(signal) => ends::End::Signal(signal as u8),
        }
    }

    /// Returns the exit status that a shell would give.
    pub fn code(self) -> u8 {
        match self {
            End::Status(code) => code,
            End::Signal(signal) => 128u8.saturating_add(signal.clamp(0, 127) as u8),
        }
    }
}

/// Frames waiting to be written.
#[derive(Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    start: usize,
}

impl Outgoing {
    /// Returns the number of bytes that wait.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// True if no bytes wait.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that wait.
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Appends bytes unchanged.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a frame.
    pub fn push(&mut self, message: &impl Serialize, body: &[u8]) {
        let json = serde_json::to_vec(message).expect("messages are plain data");
        self.bytes.extend_from_slice(&(json.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&json);
        self.bytes.extend_from_slice(body);
    }

    /// Writes as many bytes as the descriptor takes now.
    pub fn flush(&mut self, to: impl AsFd) -> rustix::io::Result<()> {
        while !self.is_empty() {
            match rustix::io::write(&to, &self.bytes[self.start..]) {
                Ok(count) => self.start += count,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        } else if self.start > HIGH_WATER {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        Ok(())
    }
}

/// Frames being read.
#[derive(Default)]
pub struct Incoming {
    bytes: Vec<u8>,
    start: usize,
}

/// Reads once. `None`: no bytes now. Empty: the end.
pub fn read_some(from: impl AsFd) -> rustix::io::Result<Option<Vec<u8>>> {
    let mut chunk = vec![0; CHUNK];
    match rustix::io::read(from, &mut chunk[..]) {
        Ok(count) => {
            chunk.truncate(count);
            Ok(Some(chunk))
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Incoming {
    /// Adds bytes that were read.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the bytes not yet consumed.
    pub fn pending(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Drops `count` bytes unread.
    pub fn skip(&mut self, count: usize) {
        self.start += count.min(self.pending().len());
    }

    /// Returns the next whole frame.
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<(T, Vec<u8>)>> {
        let rest = self.pending();
        let Some((head, rest)) = rest.split_at_checked(8) else {
            return Ok(None);
        };
        let length = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| head[at + i])) as usize;
        let (json, body) = (length(0), length(4));
        if json > MAX_JSON || body > MAX_BODY {
            bail!("a frame of {json} and {body} bytes exceeds the limits");
        }
        if rest.len() < json + body {
            return Ok(None);
        }
        let message = serde_json::from_slice(&rest[..json]).context("malformed frame")?;
        let body = rest[json..json + body].to_vec();
        self.start += 8 + json + body.len();
        Ok(Some((message, body)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn next__joins_a_frame_from_single_bytes() {
        let mut out = Outgoing::default();
        out.push(&Up::Output { rank: 3, error: true }, b"hello\n");
        out.push(&Up::StdinTaken { bytes: 9 }, b"");
        let mut incoming = Incoming::default();
        let mut seen = Vec::new();
        for byte in &out.bytes {
            incoming.extend(&[*byte]);
            while let Some((message, body)) = incoming.next::<Up>().unwrap() {
                seen.push((format!("{message:?}"), body));
            }
        }
        assert_eq!(seen.len(), 2);
        assert!(seen[0].0.contains("rank: 3") && seen[0].1 == b"hello\n");
    }

    #[test]
    fn next__refuses_oversize_and_malformed_frames() {
        let mut incoming = Incoming::default();
        incoming.extend(&[0xff; 16]);
        assert!(incoming.next::<Up>().is_err());
        let mut incoming = Incoming::default();
        incoming.extend(&[2, 0, 0, 0, 0, 0, 0, 0, b'{', b'{']);
        assert!(incoming.next::<Up>().is_err());
    }

    /// Reads, as both sides do, until there is no whole frame or one is refused.
    fn read_all<T: DeserializeOwned + Serialize>(bytes: &[u8], piece: usize) -> usize {
        let (mut incoming, mut frames) = (Incoming::default(), 0);
        for part in bytes.chunks(piece) {
            incoming.extend(part);
            loop {
                match incoming.next::<T>() {
                    Ok(Some((message, body))) => {
                        assert!(body.len() <= MAX_BODY);
                        let mut again = Outgoing::default();
                        again.push(&message, &body);
                        frames += 1;
                    }
                    Ok(None) => break,
                    Err(_) => return frames,
                }
            }
        }
        assert!(incoming.pending().len() <= bytes.len());
        frames
    }

    #[test]
    fn next__survives_damaged_frames_in_pieces_of_any_size() {
        let mut good = Outgoing::default();
        good.push(&Up::Hello { version: "1".into(), cores: 2 }, b"");
        good.push(&Up::Pmi { rank: 1 }, b"cmd=init pmi_version=1");
        good.push(&Up::Ended { rank: 1, end: End::Signal(9) }, b"");
        let mut down = Outgoing::default();
        down.push(&Down::Pmi { rank: 1 }, b"cmd=response");
        down.push(&Down::Signal { signal: 15 }, b"");
        assert_eq!((read_all::<Up>(&good.bytes, 3), read_all::<Down>(&down.bytes, 3)), (3, 2));
        for seed in 0..5_000 {
            let mut rng = weft_link::rng::Rng::new(seed);
            let mut bytes = if rng.chance(500_000) { &good } else { &down }.bytes.clone();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(bytes.len() as u64 + 1) as usize;
                match rng.below(4) {
                    0 => bytes.truncate(at.max(1)),
                    1 => bytes.insert(at, rng.next_u64() as u8),
                    2 => bytes.extend_from_within(..at),
                    _ => bytes.iter_mut().skip(at).take(1).for_each(|b| *b ^= 1 << rng.below(8)),
                }
            }
            let piece = 1 + rng.below(64) as usize;
            let read = std::panic::catch_unwind(|| {
                read_all::<Up>(&bytes, piece) + read_all::<Down>(&bytes, piece)
            });
            assert!(read.is_ok(), "seed {seed}: {bytes:02x?}");
        }
    }

    #[test]
    fn code__is_what_a_shell_gives() {
        assert_eq!(End::Status(3).code(), 3);
        assert_eq!(End::Signal(9).code(), 137);
    }
}

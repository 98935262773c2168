//! The layer of paper 002 over a socket, with its ten configurations as settings.
//!
//! A message goes as frames of at most 32 KiB, each of which takes a place of the window until it
//! is acknowledged. A head has 8 bytes: kind, pad, acknowledgements u16, length u32. Programs see a
//! stream of bytes, as the paper's do.

use crate::sys::{await_readable, pinned};
use anyhow::{ensure, Context, Result};
use std::collections::VecDeque;
use std::io::{IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const HEAD: usize = 8;
const DATA: u8 = 1;
const ACK: u8 = 2;
/// Longest frame, and most bytes that are combined.
const CHUNK: usize = 32 << 10;
/// Messages below are buffered where that depends on the length, and are combined.
const SMALL: usize = 2 << 10;
/// Time for which messages are combined.
const COMBINE: Duration = Duration::from_millis(100);

/// The thread that takes frames from the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// A thread that sleeps in the receive of the connection: the notify function.
    Notify,
    /// A thread that waits for all connections: the handler thread.
    Handler,
    /// The thread of the application.
    Application,
}

/// The treatment of outgoing data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// Their pages are pinned while they are sent.
    Registered,
    /// The data are copied to a buffer.
    Buffered,
    /// Copied below 2 KiB, otherwise registered.
    Both,
}

/// One line of Table 4.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name there.
    pub label: &'static str,
    handling: Handling,
    outgoing: Outgoing,
    /// Frames that are not acknowledged.
    window: u32,
    /// Frames after which one acknowledgement is sent.
    threshold: u32,
    combines: bool,
}

const fn setting(
    label: &'static str,
    handling: Handling,
    outgoing: Outgoing,
    (window, threshold): (u32, u32),
    combines: bool,
) -> Setting {
    Setting { label, handling, outgoing, window, threshold, combines }
}

/// Table 4.
pub const SETTINGS: [Setting; 10] = [
    setting("SOVIA_NOTIFY", Handling::Notify, Outgoing::Registered, (1, 1), false),
    setting("SOVIA_HANDLER", Handling::Handler, Outgoing::Registered, (1, 1), false),
    setting("SOVIA_SINGLE", Handling::Application, Outgoing::Registered, (1, 1), false),
    setting("SOVIA_REG", Handling::Application, Outgoing::Registered, (1, 1), false),
    setting("SOVIA_COPY", Handling::Application, Outgoing::Buffered, (1, 1), false),
    setting("SOVIA_HYBRID", Handling::Application, Outgoing::Both, (1, 1), false),
    setting("SOVIA_BASE", Handling::Application, Outgoing::Both, (1, 1), false),
    setting("SOVIA_FLOWCNTL", Handling::Application, Outgoing::Both, (32, 1), false),
    setting("SOVIA_DACKS", Handling::Application, Outgoing::Both, (32, 16), false),
    setting("SOVIA_COMBINE", Handling::Application, Outgoing::Both, (32, 16), true),
];

impl Setting {
    /// Returns the setting of a name.
    pub fn of(label: &str) -> Option<Setting> {
        SETTINGS.into_iter().find(|one| one.label == label)
    }

    /// Returns its line of Table 4.
    pub fn cells(&self) -> [String; 6] {
        let handling = match self.handling {
            Handling::Notify => "a thread in the receive",
            Handling::Handler => "a thread that waits",
            Handling::Application => "the application",
        };
        let outgoing = match self.outgoing {
            Outgoing::Registered => "pinned",
            Outgoing::Buffered => "copied",
            Outgoing::Both => "by length",
        };
        let combines = if self.combines { "yes" } else { "no" };
        let (window, threshold) = (self.window.to_string(), self.threshold.to_string());
        [self.label, handling, outgoing, &window, &threshold, combines].map(str::to_string)
    }
}

/// Bytes that came, and places of the window.
struct Inbox {
    chunks: VecDeque<Vec<u8>>,
    /// Bytes of the first chunk that were taken.
    taken: usize,
    credit: u32,
    is_over: bool,
}

/// The parts that the application and a handler thread have in common.
struct Common {
    inbox: Mutex<Inbox>,
    has_news: Condvar,
    /// The socket for writing, and frames that are not acknowledged yet.
    out: Mutex<(TcpStream, u32)>,
    threshold: u32,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn head(kind: u8, acks: u32, len: usize) -> [u8; HEAD] {
    let mut bytes = [kind, 0, 0, 0, 0, 0, 0, 0];
    bytes[2..4].copy_from_slice(&(acks as u16).to_le_bytes());
    bytes[4..].copy_from_slice(&(len as u32).to_le_bytes());
    bytes
}

impl Common {
    /// Takes a frame. False: the other end has ended.
    fn take(&self, from: &mut impl Read) -> Result<bool> {
        let mut bytes = [0; HEAD];
        if from.read(&mut bytes[..1])? == 0 {
            return Ok(false);
        }
        from.read_exact(&mut bytes[1..])?;
        let acks = u16::from_le_bytes([bytes[2], bytes[3]]);
        let len = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
        ensure!(len <= CHUNK, "a frame of {len} bytes");
        let mut data = vec![0; len];
        from.read_exact(&mut data)?;
        let mut inbox = lock(&self.inbox);
        inbox.credit += u32::from(acks);
        if bytes[0] == DATA {
            inbox.chunks.push_back(data);
        }
        drop(inbox);
        self.has_news.notify_all();
        if bytes[0] == DATA {
            let mut out = lock(&self.out);
            out.1 += 1;
            if out.1 >= self.threshold {
                let ack = head(ACK, std::mem::take(&mut out.1), 0);
                // An end that has all it wanted does not read acknowledgements.
                let _ = out.0.write_all(&ack);
            }
        }
        Ok(true)
    }

    /// Takes frames until the other end ends.
    fn take_all(&self, mut from: TcpStream, handling: Handling) {
        loop {
            if handling == Handling::Handler && await_readable(&from).is_err() {
                break;
            }
            match self.take(&mut from) {
                Ok(true) => {}
                _ => break,
            }
        }
        lock(&self.inbox).is_over = true;
        self.has_news.notify_all();
    }
}

/// A connection.
pub struct Layer {
    setting: Setting,
    stream: TcpStream,
    common: Arc<Common>,
    /// Frame that is being made: room for the head, then data that are combined.
    buffer: Vec<u8>,
    since: Instant,
}

impl Layer {
    /// Makes the layer of a connection; both ends have the same setting.
    pub fn new(stream: TcpStream, setting: Setting) -> Result<Layer> {
        stream.set_nodelay(true)?;
        let (chunks, taken) = (VecDeque::new(), 0);
        let inbox = Inbox { chunks, taken, credit: setting.window, is_over: false };
        let common = Arc::new(Common {
            inbox: Mutex::new(inbox),
            has_news: Condvar::new(),
            out: Mutex::new((stream.try_clone()?, 0)),
            threshold: setting.threshold,
        });
        if setting.handling != Handling::Application {
            let (common, from) = (Arc::clone(&common), stream.try_clone()?);
            std::thread::spawn(move || common.take_all(from, setting.handling));
        }
        let buffer = vec![0; HEAD];
        Ok(Layer { setting, stream, common, buffer, since: Instant::now() })
    }

    /// Takes frames until the inbox is as wanted, or has them taken.
    fn until(&mut self, is_right: impl Fn(&Inbox) -> bool) -> Result<()> {
        let mut inbox = lock(&self.common.inbox);
        while !is_right(&inbox) {
            ensure!(!inbox.is_over, "the other end has ended");
            if self.setting.handling == Handling::Application {
                drop(inbox);
                ensure!(self.common.take(&mut self.stream)?, "the other end has ended");
                inbox = lock(&self.common.inbox);
            } else {
                let waited = self.common.has_news.wait(inbox);
                inbox = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
        Ok(())
    }

    /// Sends a frame: its head is written with it, or before it.
    fn frame(&mut self, data: Option<&[u8]>) -> Result<()> {
        self.until(|inbox| inbox.credit > 0)?;
        lock(&self.common.inbox).credit -= 1;
        let mut out = lock(&self.common.out);
        let acks = std::mem::take(&mut out.1);
        match data {
            None => {
                let head = head(DATA, acks, self.buffer.len() - HEAD);
                self.buffer[..HEAD].copy_from_slice(&head);
                out.0.write_all(&self.buffer)?;
                self.buffer.truncate(HEAD);
            }
            Some(data) => {
                let head = head(DATA, acks, data.len());
                pinned(data, || {
                    let parts = [IoSlice::new(&head), IoSlice::new(data)];
                    let sent = out.0.write_vectored(&parts)?;
                    let rest = sent.saturating_sub(HEAD);
                    out.0.write_all(head.get(sent..).unwrap_or(&[]))?;
                    out.0.write_all(&data[rest..])
                })
                .context("pinning memory (ulimit -l)")??;
            }
        }
        Ok(())
    }

    /// Sends what was combined.
    pub fn flush(&mut self) -> Result<()> {
        match self.buffer.len() > HEAD {
            true => self.frame(None),
            false => Ok(()),
        }
    }

    /// Sends a message.
    pub fn send(&mut self, data: &[u8]) -> Result<()> {
        if self.setting.combines && data.len() < SMALL {
            let is_late = self.buffer.len() > HEAD && self.since.elapsed() > COMBINE;
            if is_late || self.buffer.len() - HEAD + data.len() > CHUNK {
                self.flush()?;
            }
            if self.buffer.len() == HEAD {
                self.since = Instant::now();
            }
            self.buffer.extend_from_slice(data);
            return Ok(());
        }
        self.flush()?;
        for chunk in data.chunks(CHUNK) {
            let copies = match self.setting.outgoing {
                Outgoing::Registered => false,
                Outgoing::Buffered => true,
                Outgoing::Both => chunk.len() <= SMALL,
            };
            match copies {
                true => {
                    self.buffer.extend_from_slice(chunk);
                    self.frame(None)?;
                }
                false => self.frame(Some(chunk))?,
            }
        }
        Ok(())
    }

    /// Receives exactly so many bytes.
    pub fn receive(&mut self, to: &mut [u8]) -> Result<()> {
        self.flush()?;
        let mut got = 0;
        while got < to.len() {
            self.until(|inbox| !inbox.chunks.is_empty())?;
            let mut inbox = lock(&self.common.inbox);
            let Inbox { chunks, taken, .. } = &mut *inbox;
            let Some(first) = chunks.front() else { continue };
            let n = (first.len() - *taken).min(to.len() - got);
            to[got..got + n].copy_from_slice(&first[*taken..*taken + n]);
            got += n;
            *taken += n;
            if *taken == first.len() {
                chunks.pop_front();
                *taken = 0;
            }
        }
        Ok(())
    }
}

impl Drop for Layer {
    fn drop(&mut self) {
        let _ = self.flush();
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn layer__moves_every_byte_in_each_setting() {
        for setting in SETTINGS {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (from, _) = listener.accept().unwrap();
            let lens = [1, 7, 2047, 2048, 5000, 40_000, 3];
            let bytes = move |seed: usize, len: usize| -> Vec<u8> {
                (0..len).map(|at| (at ^ at >> 8 ^ seed) as u8).collect()
            };
            let receiver = std::thread::spawn(move || {
                let mut layer = Layer::new(from, setting).unwrap();
                for round in 0..60 {
                    let mut got = vec![0; lens[round % lens.len()]];
                    layer.receive(&mut got).unwrap();
                    assert_eq!(got, bytes(round, got.len()), "{}", setting.label);
                }
                layer.send(b"done").unwrap();
            });
            let mut layer = Layer::new(to, setting).unwrap();
            for round in 0..60 {
                layer.send(&bytes(round, lens[round % lens.len()])).unwrap();
            }
            let mut end = [0; 4];
            layer.receive(&mut end).unwrap();
            assert_eq!(&end, b"done");
            receiver.join().unwrap();
        }
    }
}

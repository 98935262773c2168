//! The bytes and records of a socket that go to its program, in order.
//!
//! A program that ends says nothing of the messages that it did not read; the kernel says only that
//! there were some. So of messages whose senders want them back, the kernel has one at a time, as
//! the last one of all that it has: if the program left some unread, that one is among them.

use crate::sys::{pairs, passing};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use weft_streams::tipc::{kind, record, RETURNED_MAX};

/// Bytes, or a record.
struct Entry {
    bytes: Vec<u8>,
    /// Its sender wants it back if it is not read.
    returns: bool,
}

/// Bytes and records that wait for the program of a socket.
pub struct Outbox {
    /// The type of the socket.
    kind: u8,
    queue: VecDeque<Entry>,
    bytes: usize,
    /// The last record that the kernel has, if it comes back unless it is read.
    last: Option<Vec<u8>>,
    /// The program has closed the socket.
    is_closed: bool,
    /// The program has closed the socket before it had read all that the kernel had.
    was_reset: bool,
    /// The end follows what waits.
    is_ending: bool,
    /// The agent is told when the program reads.
    pub is_watched: bool,
}

impl Outbox {
    /// Makes an empty one for a type of socket.
    pub fn new(kind: u8) -> Outbox {
        Outbox {
            kind,
            queue: VecDeque::new(),
            bytes: 0,
            last: None,
            is_closed: false,
            was_reset: false,
            is_ending: false,
            is_watched: false,
        }
    }

    /// True if all is the kernel's.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Messages that wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if the program has closed the socket.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// True if the program reads the end after what waits.
    pub fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Gives the program bytes, or a record.
    pub fn give(&mut self, socket: &OwnedFd, bytes: Vec<u8>, returns: bool) {
        self.bytes += bytes.len();
        self.queue.push_back(Entry { bytes, returns });
        self.push(socket);
    }

    /// Has the end follow.
    pub fn end(&mut self, socket: &OwnedFd) {
        self.is_ending = true;
        self.push(socket);
    }

    /// Writes what goes to the program.
    pub fn push(&mut self, socket: &OwnedFd) {
        while !self.queue.is_empty() {
            if self.is_closed || self.awaits_reader(socket) {
                return;
            }
            let Some(first) = self.queue.front_mut() else { break };
            match pairs::write(socket, &first.bytes) {
                // Records go whole.
                Ok(n) if self.kind == kind::STREAM && n < first.bytes.len() => {
                    self.bytes -= n;
                    drop(first.bytes.drain(..n));
                }
                Ok(_) => {
                    self.bytes -= first.bytes.len();
                    let taken = self.queue.pop_front().filter(|entry| entry.returns);
                    self.last = taken.map(|entry| cut(entry.bytes));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Its end is seen when it is read.
                Err(e) => {
                    self.is_closed = true;
                    self.has_failed(&e);
                    return;
                }
            }
        }
        if self.is_ending {
            pairs::end(socket);
        }
    }

    /// True if nothing more is written before the program has read a message that would come back.
    pub fn awaits_reader(&self, socket: &OwnedFd) -> bool {
        // A connection ends with the message that was not read; only messages without one come
        // back each.
        let is_alone = self.last.is_some() && matches!(self.kind, kind::DGRAM | kind::RDM);
        if !is_alone || self.is_closed {
            return false;
        }
        // The kernel counts 1 while it takes the rest of a message back. It counts nothing once the
        // program has closed the socket, so only the next write tells if the message was read.
        passing::unacknowledged(socket).is_ok_and(|bytes| bytes > 1)
    }

    /// A call on the agent's end of the socket has failed.
    pub fn has_failed(&mut self, error: &io::Error) {
        self.was_reset |= error.kind() == io::ErrorKind::ConnectionReset;
    }

    /// True if the program closed the socket before it had read all.
    pub fn is_unread(&self) -> bool {
        self.was_reset || !self.queue.is_empty()
    }

    /// The program has ended: returns the records that it did not read and that come back, as far
    /// as they do, in order.
    pub fn returned(self) -> impl Iterator<Item = Vec<u8>> {
        let last = self.last.filter(|_| self.was_reset);
        let rest = self.queue.into_iter().filter(|entry| entry.returns);
        last.into_iter().chain(rest.map(|entry| cut(entry.bytes)))
    }
}

/// Returns as much of a record as comes back.
fn cut(mut record: Vec<u8>) -> Vec<u8> {
    record.truncate(record::HEAD + RETURNED_MAX);
    record
}

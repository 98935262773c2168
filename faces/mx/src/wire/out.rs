//! Sending frames: one by one, with their bytes where they lie, or some that were copied together
//! by one system call; and faults for tests.

use super::faults::{Fate, Faults};
use super::{HEAD, SHORTEST};
use std::io::{self, ErrorKind};
use weft_link::BarePacket;
use weft_mxoe::node::{Mac, Node, Transmit};
use weft_mxoe::ETHERTYPE;

/// Most frames of one system call.
const BURST: usize = 32;
/// Least bytes of a message that are not copied.
const GATHER_MIN: usize = 512;

/// Frames on their way to the socket.
pub struct Out {
    mac: Mac,
    /// True if bytes of messages stay where they are.
    gathers: bool,
    faults: Option<Faults>,
    /// Frames that the next ones overtake.
    overtaken: Vec<Vec<u8>>,
    /// Frames that were copied, `stride` bytes apart, and those of them that have left.
    buffer: Vec<u8>,
    stride: usize,
    lens: Vec<u32>,
    gone: usize,
    /// Frames that have left.
    pub sent: u64,
    /// Frames that the system refused.
    pub errors: u64,
}

/// The result of one frame.
enum Next {
    /// The node has none.
    None,
    /// It has left.
    Left,
    /// It is in the buffer.
    Kept,
}

impl Out {
    /// Makes the way for frames of at most `stride` bytes from an address.
    pub fn new(mac: Mac, stride: usize, gathers: bool, faults: Option<Faults>) -> Out {
        let (overtaken, buffer, lens) = (Vec::new(), vec![0; BURST * stride], Vec::new());
        let gathers = gathers && faults.is_none();
        let (gone, sent, errors) = (0, 0, 0);
        Out { mac, gathers, faults, overtaken, buffer, stride, lens, gone, sent, errors }
    }

    /// Sends what the node wants to send. False if the system had no room.
    pub fn flush(&mut self, socket: &mut BarePacket, node: &mut Node) -> bool {
        loop {
            if !self.send_kept(socket) {
                return false;
            }
            let mut is_last = false;
            while self.lens.len() < BURST && !is_last {
                match self.next(socket, node) {
                    Next::None if self.lens.is_empty() => return true,
                    Next::None => is_last = true,
                    Next::Left | Next::Kept => {}
                }
            }
        }
    }

    /// Sends the frames in the buffer. False if the system had no room.
    fn send_kept(&mut self, socket: &mut BarePacket) -> bool {
        while self.gone < self.lens.len() {
            let (rest, lens) = (&self.buffer[self.gone * self.stride..], &self.lens[self.gone..]);
            let sent = match lens {
                [len] => socket.send(&rest[..*len as usize]).map(|()| 1),
                lens => socket.send_many(rest, self.stride, lens),
            };
            match sent {
                Ok(count) => (self.gone, self.sent) = (self.gone + count, self.sent + count as u64),
                Err(why) if has_no_room(&why) => return false,
                // Such as a path that is down: the frame is lost, as on the way.
                Err(_) => (self.gone, self.errors) = (self.gone + 1, self.errors + 1),
            }
        }
        if !self.lens.is_empty() {
            self.lens.clear();
            self.gone = 0;
            self.overtaken.drain(..).for_each(|frame| drop(socket.send(&frame)));
        }
        true
    }

    /// Sends the node's next frame, or copies it to the buffer.
    fn next(&mut self, socket: &mut BarePacket, node: &mut Node) -> Next {
        let Some(Transmit { to, head, payload }) = node.poll_transmit_parts() else {
            return Next::None;
        };
        let mut ether = [0; HEAD];
        ether[..6].copy_from_slice(&to);
        ether[6..12].copy_from_slice(&self.mac);
        ether[12..].copy_from_slice(&ETHERTYPE.to_be_bytes());
        let gathers = self.gathers && self.lens.is_empty() && payload.len() >= GATHER_MIN;
        if gathers {
            match socket.send_parts([&ether, head, payload]) {
                Ok(()) => {
                    self.sent += 1;
                    return Next::Left;
                }
                Err(why) if has_no_room(&why) => {}
                Err(_) => {
                    self.errors += 1;
                    return Next::Left;
                }
            }
        }
        let start = self.lens.len() * self.stride;
        let Some(place) = self.buffer.get_mut(start..start + self.stride) else {
            return Next::Left;
        };
        let mut len = 0;
        for part in [&ether[..], head, payload] {
            let Some(to) = place.get_mut(len..len + part.len()) else { return Next::Left };
            to.copy_from_slice(part);
            len += part.len();
        }
        if len < SHORTEST {
            place[len..SHORTEST].fill(0);
            len = SHORTEST;
        }
        let fate = self.faults.as_mut().map_or(Fate::Sent, Faults::fate);
        if matches!(fate, Fate::Doubled | Fate::Overtaken) {
            self.overtaken.push(place[..len].to_vec());
        }
        if matches!(fate, Fate::Sent | Fate::Doubled) {
            self.lens.push(len as u32);
        }
        Next::Kept
    }
}

fn has_no_room(why: &io::Error) -> bool {
    why.kind() == ErrorKind::WouldBlock || why.raw_os_error() == Some(libc::ENOBUFS)
}

//! Sending frames, up to 32 by one system call, with bytes of messages where they lie or copied
//! together; and faults for tests.

use super::faults::{Fate, Faults};
use std::io::{self, ErrorKind};
use weft_link::BarePacket;
use weft_mxoe::node::{Mac, Node, Transmit};
use weft_mxoe::{ETHERTYPE, HEADER_MAX};

/// Length of Ethernet's header, and of the shortest frame.
pub const HEAD: usize = 14;
const SHORTEST: usize = 60;
/// Most frames of one system call.
const BURST: usize = 32;
/// Least bytes of a message that are not copied.
const GATHER_MIN: usize = 512;
/// Room for the beginning of a frame, and for a frame that is not gathered.
const HEADS: usize = HEAD + HEADER_MAX + GATHER_MIN;

/// Frames on their way to the socket.
pub struct Out {
    mac: Mac,
    /// True if bytes of messages stay where they are.
    gathers: bool,
    faults: Option<Faults>,
    /// The beginnings of frames whose bytes stay where they are, `HEADS` bytes apart.
    heads: Vec<u8>,
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

impl Out {
    /// Makes the way for frames of at most `stride` bytes from an address.
    pub fn new(mac: Mac, stride: usize, gathers: bool, faults: Option<Faults>) -> Out {
        let (overtaken, buffer, lens) = (Vec::new(), vec![0; BURST * stride], Vec::new());
        let gathers = gathers && faults.is_none();
        let heads = vec![0; if gathers { BURST * HEADS } else { 0 }];
        let (gone, sent, errors) = (0, 0, 0);
        Out { mac, gathers, faults, heads, overtaken, buffer, stride, lens, gone, sent, errors }
    }

    /// Sends what the node wants to send. False if the system had no room.
    pub fn flush(&mut self, socket: &mut BarePacket, node: &mut Node) -> bool {
        loop {
            if !self.send_kept(socket) {
                return false;
            }
            if self.gathers && self.gather(socket, node) {
                continue;
            }
            while self.lens.len() < BURST && !(self.gathers && node.has_replies_next()) {
                let Some(frame) = node.poll_transmit_parts() else { break };
                self.keep(frame.to, [frame.head, frame.payload]);
            }
            if self.lens.is_empty() {
                return true;
            }
        }
    }

    /// Sends answers to pulls with their bytes where they lie. Those for which the system has no
    /// room are kept in the buffer. False if the node has none.
    fn gather(&mut self, socket: &mut BarePacket, node: &mut Node) -> bool {
        let mut heads = std::mem::take(&mut self.heads);
        let mut frames = Vec::with_capacity(BURST);
        for (frame, place) in node.poll_replies(BURST).zip(heads.chunks_exact_mut(HEADS)) {
            let Transmit { to, head, payload } = frame;
            let (inside, outside) = match payload.len() {
                ..GATHER_MIN => (payload, &[][..]),
                _ => (&[][..], payload),
            };
            let len = write(place, (to, self.mac), [head, inside], outside.len());
            frames.push((to, [&place[..len], outside]));
        }
        let parts: Vec<[&[u8]; 2]> = frames.iter().map(|(_, parts)| *parts).collect();
        let mut gone = 0;
        while gone < parts.len() {
            match socket.send_pairs(&parts[gone..]) {
                Ok(count) => (gone, self.sent) = (gone + count, self.sent + count as u64),
                Err(why) if has_no_room(&why) => break,
                Err(_) => (gone, self.errors) = (gone + 1, self.errors + 1),
            }
        }
        for (to, [head, payload]) in &frames[gone..] {
            self.keep(*to, [&head[HEAD..], payload]);
        }
        let found = !frames.is_empty();
        drop(frames);
        self.heads = heads;
        found
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

    /// Copies a frame to the buffer.
    fn keep(&mut self, to: Mac, parts: [&[u8]; 2]) {
        let start = self.lens.len() * self.stride;
        let len = HEAD + parts[0].len() + parts[1].len();
        let place = self.buffer.get_mut(start..start + self.stride);
        let Some(place) = place.filter(|place| len <= place.len()) else { return };
        let len = write(place, (to, self.mac), parts, 0);
        let fate = self.faults.as_mut().map_or(Fate::Sent, Faults::fate);
        if matches!(fate, Fate::Doubled | Fate::Overtaken) {
            self.overtaken.push(place[..len].to_vec());
        }
        if matches!(fate, Fate::Sent | Fate::Doubled) {
            self.lens.push(len as u32);
        }
    }
}

/// Writes a frame with the header of Ethernet to a place that has room, without `more` bytes that
/// follow elsewhere; returns its length. Frames have at least 60 bytes.
fn write(place: &mut [u8], (to, from): (Mac, Mac), parts: [&[u8]; 2], more: usize) -> usize {
    let mut len = 0;
    for part in [&to[..], &from, &ETHERTYPE.to_be_bytes(), parts[0], parts[1]] {
        place[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    if len + more < SHORTEST {
        place[len..SHORTEST].fill(0);
        len = SHORTEST;
    }
    len
}

fn has_no_room(why: &io::Error) -> bool {
    why.kind() == ErrorKind::WouldBlock || why.raw_os_error() == Some(libc::ENOBUFS)
}

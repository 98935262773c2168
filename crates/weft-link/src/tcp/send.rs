//! Sends: seals frames and hands several to the kernel in one call. Long payloads are not copied
//! before the kernel copies them.

use super::frame::{prefix, FRAME_MAX, PREFIX};
use super::open::{words, Outlet};
use super::streams::Id;
use super::TcpLink;
use crate::secure::Mode;
use crate::Frame;
use std::io::{ErrorKind, IoSlice};
use weft_core::PeerId;

/// Bytes that are handed over in one call, as long as more frames follow.
const CALL: usize = 256 << 10;
/// Most frames in a call, and most of its parts.
const FRAMES: usize = 64;
const PARTS: usize = 2 * FRAMES + 1;
/// From this payload size on, the payload is not copied: a further part of a call costs as much as
/// a copy of some hundred bytes, and the kernel copies anyway.
const BORROWED: usize = 2 << 10;
/// Bytes that wait for a connection to be made.
const WAITING: usize = 128 << 10;

/// A part of a call: bytes of the outbox, or a payload.
#[derive(Clone, Copy)]
enum Part {
    Own(usize, usize),
    /// The payload of the frame of this index.
    Borrowed(usize),
}

/// The frames of a call that is being prepared.
pub struct TcpOutbox {
    bytes: Box<[u8]>,
    used: usize,
    parts: Vec<Part>,
    /// The position behind each frame in the stream, counted from the start of the call.
    ends: Vec<usize>,
}

impl TcpOutbox {
    pub fn new() -> TcpOutbox {
        TcpOutbox {
            bytes: vec![0; 2 * (PREFIX + FRAME_MAX)].into(),
            used: 0,
            parts: Vec::with_capacity(PARTS),
            ends: Vec::with_capacity(FRAMES),
        }
    }

    fn clear(&mut self) {
        self.used = 0;
        self.parts.clear();
        self.ends.clear();
    }

    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Adds the next `n` bytes of the outbox to the call.
    fn push_own(&mut self, n: usize) {
        let start = self.used;
        self.used += n;
        match self.parts.last_mut() {
            Some(Part::Own(_, end)) if *end == start => *end += n,
            _ => self.parts.push(Part::Own(start, self.used)),
        }
    }

    fn slice<'a>(&'a self, part: Part, frames: &[Frame<'a>]) -> &'a [u8] {
        match part {
            Part::Own(from, to) => &self.bytes[from..to],
            Part::Borrowed(at) => frames[at].payload,
        }
    }
}

impl TcpLink {
    pub(super) fn send_frames(&mut self, frames: &[Frame<'_>]) -> usize {
        let mut done = 0;
        while done < frames.len() {
            let peer = frames[done].peer;
            let same = frames[done..].iter().take_while(|f| f.peer == peer).count();
            let part = &frames[done..done + same];
            let taken = match self.outlet(peer) {
                Outlet::Open(id) => self.send_over(id, peer, part),
                Outlet::Opening(id) => self.queue(id, peer, part),
                Outlet::Closed => {
                    self.count.send_dropped += same as u64;
                    same
                }
            };
            done += taken;
            if taken < same {
                self.count.send_full += 1;
                break;
            }
        }
        done
    }

    /// Sends frames over an open stream; returns the number of those taken.
    fn send_over(&mut self, id: Id, peer: PeerId, frames: &[Frame<'_>]) -> usize {
        let mut done = 0;
        while done < frames.len() {
            if !self.flush(id) {
                break;
            }
            let rest = &frames[done..];
            self.prepare(peer, rest);
            let (asked, prepared) = (self.tx.len(), self.tx.ends.len());
            if asked == 0 {
                done += prepared;
                continue;
            }
            let Some(sent) = self.hand_over(id, rest) else { break };
            done += self.note_sent(id, rest, sent);
            if sent < asked {
                break;
            }
        }
        done
    }

    /// Seals the next frames of a call. Frames that cannot be sent at all take no bytes.
    fn prepare(&mut self, peer: PeerId, frames: &[Frame<'_>]) {
        self.tx.clear();
        for (at, frame) in frames.iter().enumerate().take(FRAMES) {
            let borrowed = frame.payload.len() >= BORROWED
                && self.secure.mode() == Mode::Auth
                && self.corruptor.is_none();
            let len = frame.header.len() + frame.payload.len() + self.secure.trailer_len();
            let own = PREFIX + len - if borrowed { frame.payload.len() } else { 0 };
            if at > 0 && (self.tx.used + own > self.tx.bytes.len() || self.tx.len() >= CALL) {
                return;
            }
            let end = self.tx.len() + PREFIX + len;
            let sealed = len <= FRAME_MAX && self.seal(at, peer, frame, len, borrowed);
            let end = if sealed {
                end
            } else {
                self.count.send_dropped += 1;
                self.tx.len()
            };
            self.tx.ends.push(end);
        }
    }

    /// Seals one frame behind the others of the call. False if it cannot be sent.
    fn seal(&mut self, at: usize, peer: PeerId, f: &Frame<'_>, len: usize, borrowed: bool) -> bool {
        let TcpLink { secure, tx, corruptor, .. } = self;
        let start = tx.used;
        if borrowed {
            let Some(trailer) = secure.seal(peer, f.header, f.payload) else { return false };
            let head = PREFIX + f.header.len();
            tx.bytes[start..start + PREFIX].copy_from_slice(&prefix(len));
            tx.bytes[start + PREFIX..start + head].copy_from_slice(f.header);
            tx.push_own(head);
            tx.parts.push(Part::Borrowed(at));
            tx.bytes[tx.used..tx.used + trailer.len()].copy_from_slice(&trailer);
            tx.push_own(trailer.len());
            return true;
        }
        let Some(room) = tx.bytes.get_mut(start..start + PREFIX + len) else { return false };
        room[..PREFIX].copy_from_slice(&prefix(len));
        let body = &mut room[PREFIX..];
        if secure.seal_into(peer, f.header, f.payload, body).is_none() {
            return false;
        }
        if let Some(corruptor) = corruptor {
            corruptor.apply(body);
        }
        tx.push_own(PREFIX + len);
        true
    }

    /// Hands the prepared call to the kernel; returns the number of bytes that it took. `None` if
    /// the stream is gone.
    fn hand_over(&mut self, id: Id, frames: &[Frame<'_>]) -> Option<usize> {
        let stream = self.streams.get_mut(id)?;
        self.count.sent_calls += 1;
        let sent = match self.tx.parts[..] {
            [only] => stream.socket.send(&[IoSlice::new(self.tx.slice(only, frames))]),
            _ => {
                let mut parts = [IoSlice::new(&[]); PARTS];
                for (slot, &part) in parts.iter_mut().zip(&self.tx.parts) {
                    *slot = IoSlice::new(self.tx.slice(part, frames));
                }
                stream.socket.send(&parts[..self.tx.parts.len()])
            }
        };
        match sent {
            Ok(n) => {
                stream.used = self.care.now;
                Some(n)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Some(0),
            Err(e) => {
                self.broken(id, &words(&e));
                None
            }
        }
    }

    /// Returns the number of frames of which the kernel took at least a part, and keeps the rest of
    /// the last.
    fn note_sent(&mut self, id: Id, frames: &[Frame<'_>], sent: usize) -> usize {
        let whole = self.tx.ends.iter().take_while(|&&end| end <= sent).count();
        self.count.sent += whole as u64;
        let behind = whole.checked_sub(1).map_or(0, |last| self.tx.ends[last]);
        if sent == behind || whole == self.tx.ends.len() {
            return whole;
        }
        let end = self.tx.ends[whole];
        let Some(stream) = self.streams.get_mut(id) else { return whole };
        let mut at = 0;
        for &part in &self.tx.parts {
            let bytes = self.tx.slice(part, frames);
            let (from, to) = (sent.clamp(at, at + bytes.len()), end.clamp(at, at + bytes.len()));
            stream.out.push(&bytes[from - at..to - at]);
            at += bytes.len();
        }
        self.count.sent += 1;
        self.want_room(id);
        whole + 1
    }

    /// Keeps frames until the connection is made, a bounded number.
    #[cold]
    fn queue(&mut self, id: Id, peer: PeerId, frames: &[Frame<'_>]) -> usize {
        let mut done = 0;
        while done < frames.len() {
            if self.streams.get(id).is_none_or(|s| s.out.rest().len() >= WAITING) {
                break;
            }
            let one = &frames[done..=done];
            self.prepare(peer, one);
            let Some(stream) = self.streams.get_mut(id) else { break };
            for &part in &self.tx.parts {
                stream.out.push(self.tx.slice(part, one));
            }
            self.count.sent += u64::from(self.tx.len() > 0);
            done += 1;
        }
        done
    }

    /// Sends what waits for room. True if nothing waits any more.
    #[inline]
    pub(super) fn flush(&mut self, id: Id) -> bool {
        let Some(stream) = self.streams.get_mut(id) else { return false };
        if !stream.has_out() {
            return true;
        }
        self.flush_rest(id)
    }

    #[cold]
    fn flush_rest(&mut self, id: Id) -> bool {
        let Some(stream) = self.streams.get_mut(id) else { return false };
        if matches!(stream.stage, super::Stage::Connecting(_)) {
            return false;
        }
        match stream.socket.send(&[IoSlice::new(stream.out.rest())]) {
            Ok(n) => {
                stream.used = self.care.now;
                if !stream.out.taken(n, WAITING) {
                    return false;
                }
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => return false,
            Err(e) => {
                self.broken(id, &words(&e));
                return false;
            }
        }
        if matches!(stream.stage, super::Stage::Ending(_)) {
            stream.socket.finish();
        }
        true
    }

    /// Remembers that bytes of a stream wait for room.
    pub(super) fn want_room(&mut self, id: Id) {
        let wants = self.streams.get(id).is_some_and(|s| s.has_out() || s.armed);
        if wants && !self.wanting.contains(&id) {
            self.wanting.push(id);
        }
    }

    /// Sends what waits for room on all streams.
    pub(super) fn flush_all(&mut self) {
        let mut wanting = std::mem::take(&mut self.wanting);
        wanting.retain(|&id| {
            self.flush(id);
            self.streams.get(id).is_some_and(|s| s.has_out() || s.armed)
        });
        self.wanting.append(&mut wanting);
    }

    /// Before a sleep: lets the kernel report room on the streams with bytes that wait for it, and
    /// on no others.
    pub(super) fn watch_room(&mut self) {
        let TcpLink { wanting, streams, poll, .. } = self;
        wanting.retain(|&id| {
            let Some(stream) = streams.get_mut(id) else { return false };
            let wants = stream.has_out() || matches!(stream.stage, super::Stage::Connecting(_));
            if wants != stream.armed {
                let _ = poll.change(stream.socket.raw(), id.token(), wants);
                stream.armed = wants;
            }
            wants
        });
    }
}

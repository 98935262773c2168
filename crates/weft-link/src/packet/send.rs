//! Sends: makes headers, seals frames, passes them to the kernel.

use super::sys::{self, Carries};
use super::PacketLink;
use crate::ether::EtherHead;
use crate::kind::Kind;
use crate::Frame;
use std::io;
use weft_core::wire::{field, PacketType};
use weft_core::PeerId;

/// Frames for the kernel, `stride` bytes apart.
pub struct FrameOutbox {
    pub(super) bytes: Box<[u8]>,
    stride: usize,
    pub(super) lens: [u32; sys::BURST],
}

/// Bytes that stay in the cache while the outbox is filled and sent.
const OUTBOX: usize = 128 << 10;

impl FrameOutbox {
    pub fn new(mtu: u32) -> FrameOutbox {
        let stride = (mtu as usize + EtherHead::LEN).next_multiple_of(64);
        let frames = (OUTBOX / stride).clamp(1, sys::BURST);
        FrameOutbox { bytes: vec![0; stride * frames].into(), stride, lens: [0; sys::BURST] }
    }

    /// Makes room for frames of a larger MTU.
    pub fn grow(&mut self, mtu: u32) {
        if mtu as usize + EtherHead::LEN > self.stride {
            *self = FrameOutbox::new(mtu);
        }
    }

    fn frames(&self) -> usize {
        self.bytes.len() / self.stride
    }
}

pub(super) fn is_hello(frame: &Frame<'_>) -> bool {
    frame.header.get(field::TYPE) == Some(&(PacketType::Hello as u8))
}

impl PacketLink {
    pub(super) fn send_frames(&mut self, frames: &[Frame<'_>]) -> usize {
        let mut done = 0;
        while done < frames.len() {
            let first = &frames[done];
            if is_hello(first) && self.send_hello(first) {
                done += 1;
                continue;
            }
            let sent = self.send_some(&frames[done..]);
            if !self.note_sent(first.peer, sent, &mut done) {
                break;
            }
        }
        done
    }

    /// Sends some of the first frames with one call; returns their number. `None` if the first
    /// frame cannot be sent at all.
    #[inline]
    fn send_some(&mut self, frames: &[Frame<'_>]) -> Option<io::Result<usize>> {
        match self.carries {
            Carries::Packets(_) => {
                let (port, packed) = self.pack(frames)?;
                Some(self.hand_over(port, packed))
            }
            Carries::Trains => self.send_train(frames),
        }
    }

    /// Counts sent and failed frames. False if there is no room: try again later.
    #[inline]
    fn note_sent(
        &mut self,
        peer: PeerId,
        sent: Option<io::Result<usize>>,
        done: &mut usize,
    ) -> bool {
        match sent {
            None => self.count.send_dropped += 1,
            Some(Ok(n)) => {
                self.count.sent += n as u64;
                self.asked = Some(peer);
                self.no_buffers.end();
                *done += n;
                return true;
            }
            Some(Err(e)) => match (e.raw_os_error(), self.carries) {
                (Some(libc::EAGAIN), _) => {
                    self.count.send_full += 1;
                    return false;
                }
                (Some(libc::ENOBUFS), Carries::Packets(_)) if !self.no_buffers.is_lasting() => {
                    self.count.send_full += 1;
                    return false;
                }
                // The kernel would have to cut the frame, or the cable does not carry its length.
                (Some(libc::ENOBUFS), _) => self.count.send_errors += 1,
                // A frame that the socket refuses counts as lost on the network.
                (error, _) => self.send_failed(error),
            },
        }
        *done += 1;
        true
    }

    #[cold]
    pub(super) fn send_failed(&mut self, error: Option<i32>) {
        match error {
            Some(libc::EMSGSIZE) => self.count.send_too_long += 1,
            _ => self.count.send_errors += 1,
        }
        self.refresh_interfaces();
    }

    /// Seals the first frames that leave over one port, as many as there is room for. Returns the
    /// port and their number. `None` if the first frame cannot be sent at all.
    #[inline]
    fn pack(&mut self, frames: &[Frame<'_>]) -> Option<(usize, usize)> {
        let port = self.peer(frames[0].peer)?.outlet.port;
        let mut packed = 0;
        for frame in frames.iter().take(self.tx.frames()) {
            let fits = match self.peers.get(frame.peer) {
                Some(peer) => {
                    peer.outlet.port == port && (packed == 0 || peer.proof.is_confirmed())
                }
                None => false,
            };
            if !fits || self.seal_at(packed, frame).is_none() {
                break;
            }
            packed += 1;
        }
        (packed > 0).then_some((port, packed))
    }

    /// Seals one frame into the outbox.
    #[inline]
    fn seal_at(&mut self, at: usize, frame: &Frame<'_>) -> Option<()> {
        let head = &self.peers.get(frame.peer)?.outlet.head;
        let stride = self.tx.stride;
        let out = &mut self.tx.bytes[at * stride..][..stride];
        out[..EtherHead::LEN].copy_from_slice(head);
        let room = &mut out[EtherHead::LEN..];
        let len = self.secure.seal_into(frame.peer, frame.header, frame.payload, room)?;
        out[EtherHead::LENGTH..EtherHead::LEN].copy_from_slice(&(len as u16).to_le_bytes());
        if let Some(corruptor) = &mut self.corruptor {
            corruptor.apply(&mut out[EtherHead::LEN..][..len]);
        }
        self.tx.lens[at] = (EtherHead::LEN + len) as u32;
        Some(())
    }

    #[inline]
    fn hand_over(&mut self, port: usize, packed: usize) -> io::Result<usize> {
        self.count.sent_calls += 1;
        let socket = &mut self.ports[port].membership.socket;
        let lens = &self.tx.lens[..packed];
        if packed == 1 {
            return socket.send(&self.tx.bytes[..lens[0] as usize]).map(|()| 1);
        }
        socket.send_many(&self.tx.bytes, self.tx.stride, lens)
    }

    /// Sends a HELLO. An answer is sent over the path of the question, so that it proves this path.
    /// A question is sent over every path while no path is known to work; the first answer decides.
    /// False if the frame is to be sent over the path in use.
    #[cold]
    pub(super) fn send_hello(&mut self, frame: &Frame<'_>) -> bool {
        if Kind::of(frame.header) == Kind::Question {
            self.keep_question(frame.peer, frame.header, frame.payload);
        }
        let Some(known) = self.peer(frame.peer) else { return false };
        let caller = known.proof.question_path().filter(|_| Kind::of(frame.header) == Kind::Answer);
        let over = match caller {
            Some(at) => at..at + 1,
            None if known.proof.is_confirmed() => return false,
            None => 0..known.paths.len(),
        };
        over.for_each(|at| self.hello_over(at, frame));
        self.detour(frame.peer, None);
        true
    }

    /// Sends a HELLO over one of the peer's paths, if its interface is up; the path in use stays.
    pub(super) fn hello_over(&mut self, at: usize, frame: &Frame<'_>) {
        if !self.usable(frame.peer, at) || self.detour(frame.peer, Some(at)).is_none() {
            return;
        }
        match self.send_some(std::slice::from_ref(frame)) {
            Some(Ok(_)) => self.count.sent += 1,
            _ => self.count.send_errors += 1,
        }
    }
}

//! Sends: seals each packet into a frame, then calls the kernel once.

use super::sys::Flushed;
use super::XdpLink;
use crate::ether::{EtherHead, Path};
use crate::kind::Kind;
use crate::Frame;
use weft_core::wire::{field, PacketType};

/// Length of the shortest Ethernet frame, without checksum. Shorter frames are padded with zeros,
/// which some drivers leave to the sender.
const FRAME_MIN: usize = 60;

/// The result of queueing one frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Put {
    /// In the ring.
    Done,
    /// The frame could not be made: unknown peer, or too large.
    Dropped,
    /// No room now.
    Full,
}

impl XdpLink {
    pub(super) fn send_frames(&mut self, frames: &[Frame<'_>]) -> usize {
        let mut done = 0;
        for frame in frames {
            match self.send_one(frame) {
                Put::Done => self.count.sent += 1,
                Put::Dropped => self.count.send_dropped += 1,
                Put::Full => {
                    self.count.send_full += 1;
                    break;
                }
            }
            done += 1;
        }
        self.flush();
        done
    }

    #[inline]
    fn send_one(&mut self, frame: &Frame<'_>) -> Put {
        let Some(known) = self.peer(frame.peer) else { return Put::Dropped };
        let is_hello = frame.header.get(field::TYPE) == Some(&(PacketType::Hello as u8));
        let mut path = *known.path();
        if is_hello {
            // An answer is sent over the path of the question, so that it proves this path.
            let caller =
                known.proof.question_path().filter(|_| Kind::of(frame.header) == Kind::Answer);
            match caller.and_then(|at| known.paths.get(at)) {
                Some(back) => path = *back,
                None if known.proof.is_confirmed() => {}
                None => return self.send_everywhere(frame),
            }
        }
        match self.put(frame, &path) {
            Put::Full => {}
            other => return other,
        }
        // The ring is full of frames queued since the last call, or of frames that could not leave.
        self.flush();
        match self.put(frame, &path) {
            Put::Full if self.rails[path.ours].down => {
                // The frame counts as lost on the network; a wait for the interface would block all
                // peers.
                self.count.send_errors += 1;
                Put::Done
            }
            other => other,
        }
    }

    #[inline]
    fn put(&mut self, frame: &Frame<'_>, path: &Path) -> Put {
        let rail = &mut self.rails[path.ours];
        let (secure, corruptor) = (&mut self.secure, &mut self.corruptor);
        let mut head = EtherHead {
            dst: path.to.mac,
            src: rail.interface.mac,
            kind: self.kind,
            slot: path.to.slot,
            len: 0,
        };
        let room = EtherHead::ETHERNET + rail.payload_max as usize;
        let mut made = false;
        let put = rail.connections[0].put(|bytes| {
            let room = room.min(bytes.len());
            let (start, body) = bytes[..room].split_at_mut(EtherHead::LEN);
            let sealed = secure.seal_into(frame.peer, frame.header, frame.payload, body);
            let Some(len) = sealed.filter(|len| *len <= usize::from(u16::MAX)) else { return 0 };
            if let Some(corruptor) = corruptor {
                corruptor.apply(&mut body[..len]);
            }
            head.len = len as u16;
            start.copy_from_slice(&head.encode());
            made = true;
            let end = EtherHead::LEN + len;
            if end < FRAME_MIN {
                bytes[end..FRAME_MIN].fill(0);
            }
            end.max(FRAME_MIN)
        });
        match (put, made) {
            (true, true) => Put::Done,
            (true, false) => Put::Dropped,
            (false, _) => Put::Full,
        }
    }

    /// Passes the queued frames to the kernel.
    #[inline]
    pub(super) fn flush(&mut self) {
        for at in 0..self.rails.len() {
            let down = match self.rails[at].connections[0].flush() {
                Flushed::Down => true,
                Flushed::Gone => continue,
                Flushed::Some => false,
            };
            if down {
                self.mark(at, true);
            }
        }
    }

    /// Sends a HELLO over every path while no path is known to work. The first authentic answer
    /// decides.
    #[cold]
    fn send_everywhere(&mut self, frame: &Frame<'_>) -> Put {
        let paths = self.peer(frame.peer).map(|p| p.paths.clone()).unwrap_or_default();
        let mut best = Put::Dropped;
        for path in &paths {
            if self.rails[path.ours].down {
                continue;
            }
            match self.put(frame, path) {
                Put::Done => best = Put::Done,
                Put::Full if best == Put::Dropped => best = Put::Full,
                _ => {}
            }
        }
        best
    }
}

//! Windows: announced messages whose receivers pull them, and the answers on their way.

use super::unacked::copy_of;
use super::{Lent, Mac, PeerIndex};
use crate::packet::{Pull, PullReply, Refusal};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Number of windows: the announcement has a byte for it.
const WINDOWS: usize = 256;
/// Most frames that answer one request, whatever the settings: the bound of Open-MX.
const FRAMES_MAX: u64 = 64;
/// Most requests that are being answered; further ones are dropped, and asked again later.
const ANSWERS_MAX: usize = 4096;

/// A message in a window.
struct Exposed {
    peer: PeerIndex,
    data: Lent,
    context: u64,
}

impl Exposed {
    fn bytes(&self) -> &[u8] {
        (*self.data).as_ref()
    }
}

/// A window: the number of its use, and the message in it.
#[derive(Default)]
struct Slot {
    seq: u8,
    message: Option<Exposed>,
}

/// The rest of a block that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    to: Mac,
    index: u16,
    window: u8,
    seq: u8,
    handle: u32,
    magic: u32,
    frame: u32,
    offset: u32,
    /// Length of the next frame, and of all that are left.
    next: u32,
    left: u32,
}

/// A frame of an answer, with its destination and that one's index of this endpoint.
#[derive(Clone, Copy)]
pub struct Reply {
    pub to: Mac,
    pub index: u16,
    pub reply: PullReply,
    window: u8,
}

/// The windows of an endpoint.
pub struct Windows {
    slots: Vec<Slot>,
    free: VecDeque<u8>,
    answers: VecDeque<Answer>,
    /// Length of the frames of an answer.
    each: u32,
}

impl Windows {
    pub fn new(each: u16) -> Windows {
        let mut slots = Vec::new();
        slots.resize_with(WINDOWS, Slot::default);
        let free = (0..=u8::MAX).collect();
        Windows { slots, free, answers: VecDeque::new(), each: u32::from(each).max(1) }
    }

    /// True if a window is free.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Puts a message into a window; returns the window's number.
    pub fn expose(&mut self, peer: PeerIndex, data: Lent, context: u64) -> Option<u8> {
        // The window that was free for longest: late requests for its last use find none.
        let id = self.free.pop_front()?;
        let slot = &mut self.slots[usize::from(id)];
        slot.seq = slot.seq.wrapping_add(1);
        slot.message = Some(Exposed { peer, data, context });
        Some(id)
    }

    /// Returns the number of a window's use, and the length of its message.
    pub fn announcement(&self, id: u8) -> Option<(u8, u32)> {
        let slot = &self.slots[usize::from(id)];
        slot.message.as_ref().map(|message| (slot.seq, message.bytes().len() as u32))
    }

    /// Empties a window that a peer has pulled; returns the message's context and length.
    pub fn taken(&mut self, peer: PeerIndex, id: u8, seq: u8) -> Option<(u64, u32)> {
        let slot = &mut self.slots[usize::from(id)];
        let message = slot.message.take_if(|message| slot.seq == seq && message.peer == peer)?;
        self.free.push_back(id);
        Some((message.context, message.bytes().len() as u32))
    }

    /// Copies the bytes of a message that the caller has lent.
    pub fn own(&mut self, context: u64) {
        let messages = self.slots.iter_mut().filter_map(|slot| slot.message.as_mut());
        for message in messages.filter(|message| message.context == context) {
            message.data = copy_of(&message.data);
        }
    }

    /// Empties the windows of a peer.
    pub fn forget(&mut self, peer: PeerIndex) {
        for (slot, id) in self.slots.iter_mut().zip(0..=u8::MAX) {
            if slot.message.take_if(|message| message.peer == peer).is_some() {
                self.free.push_back(id);
            }
        }
    }

    /// Answers a request for a block. `None` if the request is dropped.
    ///
    /// # Errors
    /// The window does not exist, or is not the peer's.
    pub fn answer(
        &mut self,
        (peer, to, index): (PeerIndex, Mac, u16),
        pull: &Pull,
    ) -> Result<Option<()>, Refusal> {
        let id = u8::try_from(pull.window.id).map_err(|_| Refusal::BadWindow)?;
        let slot = &self.slots[usize::from(id)];
        let seq = slot.seq;
        let is_it = |message: &&Exposed| message.peer == peer && seq == pull.window.seq;
        let message = slot.message.as_ref().filter(is_it).ok_or(Refusal::BadWindow)?;
        let each = u64::from(self.each);
        let (first, len) = (u64::from(pull.first_offset), u64::from(pull.block_len));
        // Frames are counted from the frame that has the beginning of the message.
        let base = u64::from(pull.window.offset) % each;
        let at = (u64::from(pull.frame_index) * each + first).checked_sub(base);
        let offset = at.filter(|at| at + len <= message.bytes().len() as u64);
        let frames = (first + len).div_ceil(each);
        let (Some(offset), true) = (offset, len > 0 && first < each && frames <= FRAMES_MAX) else {
            return Ok(None);
        };
        let answer = Answer {
            to,
            index,
            window: id,
            seq: pull.window.seq,
            handle: pull.handle,
            magic: pull.magic,
            frame: pull.frame_index,
            offset: offset as u32,
            next: (each - first).min(len) as u32,
            left: len as u32,
        };
        let same = |of: &Answer| Answer { ..*of } == answer;
        if self.answers.len() >= ANSWERS_MAX || self.answers.iter().any(same) {
            return Ok(None);
        }
        self.answers.push_back(answer);
        Ok(Some(()))
    }

    /// True if no frame of an answer waits.
    pub fn is_quiet(&self) -> bool {
        self.answers.is_empty()
    }

    /// Takes the next frame of an answer.
    pub fn next_reply(&mut self) -> Option<Reply> {
        loop {
            let answer = self.answers.front_mut()?;
            let now = *answer;
            let slot = &self.slots[usize::from(now.window)];
            let is_there = slot.seq == now.seq && slot.message.is_some();
            answer.left -= now.next;
            answer.offset += now.next;
            answer.frame = now.frame.wrapping_add(1);
            answer.next = self.each.min(answer.left);
            if answer.left == 0 || !is_there {
                self.answers.pop_front();
            }
            if !is_there {
                continue;
            }
            let reply = PullReply {
                seq: now.frame as u8,
                len: now.next as u16,
                offset: now.offset,
                handle: now.handle,
                magic: now.magic,
            };
            return Some(Reply { to: now.to, index: now.index, reply, window: now.window });
        }
    }

    /// Returns the bytes of a frame that was just taken.
    pub fn payload_of(&self, of: &Reply) -> &[u8] {
        let message = self.slots[usize::from(of.window)].message.as_ref();
        let (at, len) = (of.reply.offset as usize, usize::from(of.reply.len));
        message.and_then(|message| message.bytes().get(at..at + len)).unwrap_or_default()
    }
}

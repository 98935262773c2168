//! Pulls: announced messages that this endpoint fetches in blocks.
//!
//! Frames have one length, and are counted from the frame that has the beginning of the message. A
//! block is asked for by one packet and answered by one packet for each frame. Some blocks are
//! asked for at a time. A block is asked for again when nothing has come for a while, and once
//! before, when a later one is whole.

use super::{Offer, PeerIndex, Settings, Sink, Time};
use crate::packet::{Pull as Request, PullReply, Window};
use crate::Ends;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Bits of the index in a handle; the others are the handle's generation.
const INDEX_BITS: u32 = 10;
const GENERATION_BITS: u32 = 32 - INDEX_BITS;
/// Most pulls at a time; further ones wait.
const PULLS_MAX: usize = 1 << INDEX_BITS;
/// The magic number of an endpoint is its number under this mask.
const MAGIC: u32 = 0x2107_1980;
/// Most frames of a block: a bit of a word each.
const BLOCK_MAX: u32 = 64;

/// Returns the magic number of the pulls of an endpoint with a number.
pub fn pull_magic(number: u8) -> u32 {
    u32::from(number) ^ MAGIC
}

/// A pull that was asked for.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    offer: Offer,
    len: u32,
    context: u64,
    /// True if the bytes are kept here.
    keeps: bool,
}

/// A block on its way.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Number of its first frame, and the number of frames.
    first: u32,
    frames: u32,
    /// Bytes, and those of the first frame that are not asked for.
    len: u32,
    skip: u32,
    /// The frames that have not come, a bit each.
    missing: u64,
}

/// A pull.
struct Pull {
    wanted: Wanted,
    /// The bytes, unless the caller places them.
    data: Vec<u8>,
    /// Bytes of the first frame that lie before the message.
    base: u32,
    /// Bytes that were not asked for, and the number of the next frame.
    left: u32,
    next_frame: u32,
    blocks: VecDeque<Block>,
    /// True if blocks were asked for again since the last timeout.
    is_hasty: bool,
    at: Time,
    tries: u32,
}

/// A place of a pull.
#[derive(Default)]
struct Slot {
    generation: u32,
    pull: Option<Pull>,
}

/// A request that is to be sent.
pub struct Ask {
    pub peer: PeerIndex,
    pub request: Request,
}

/// A pull that has ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    pub peer: PeerIndex,
    pub context: u64,
    pub window: Window,
    pub data: Vec<u8>,
    /// The bytes that were asked for.
    pub len: u32,
}

/// The result of a frame.
pub enum Came {
    /// The frame belongs to no pull, or is none of its frames.
    Nothing,
    /// The frame came before.
    Again,
    /// The bytes of the frame are in their place.
    Placed,
    /// The frame was the last one of its pull.
    Last(Ended),
}

/// The pulls of an endpoint.
pub struct Pulls {
    number: u8,
    each: u32,
    block: u32,
    depth: usize,
    again: Time,
    slots: Vec<Slot>,
    free: VecDeque<u16>,
    waiting: VecDeque<Wanted>,
    asks: VecDeque<Ask>,
    first_generation: u32,
}

impl Pulls {
    pub fn new(settings: &Settings, number: u8, session: u32) -> Pulls {
        let wide = u32::from(u16::MAX) / u32::from(settings.reply).max(1);
        let most = match settings.dialect {
            // A block's length has 16 bits.
            crate::Dialect::Compat => wide.min(BLOCK_MAX),
            crate::Dialect::Native => BLOCK_MAX,
        };
        Pulls {
            number,
            each: u32::from(settings.reply).max(1),
            block: u32::from(settings.block).clamp(1, most),
            depth: usize::from(settings.depth).max(1),
            again: settings.pull_again,
            slots: Vec::new(),
            free: VecDeque::new(),
            waiting: VecDeque::new(),
            asks: VecDeque::new(),
            // Handles of an endpoint that was open before find nothing.
            first_generation: session.wrapping_mul(0x9e37_79b9) & ((1 << GENERATION_BITS) - 1),
        }
    }

    /// Returns the magic number of this endpoint's pulls.
    pub fn magic(&self) -> u32 {
        pull_magic(self.number)
    }

    /// Begins a pull, or lets it wait until others have ended.
    pub fn begin(&mut self, now: Time, offer: Offer, len: u32, context: u64, keeps: bool) {
        self.waiting.push_back(Wanted { offer, len, context, keeps });
        self.advance(now);
    }

    fn advance(&mut self, now: Time) {
        while !self.waiting.is_empty() {
            let index = match self.free.pop_front() {
                Some(index) => index,
                None if self.slots.len() < PULLS_MAX => {
                    self.slots.push(Slot { generation: self.first_generation, pull: None });
                    self.slots.len() as u16 - 1
                }
                None => return,
            };
            let Some(wanted) = self.waiting.pop_front() else { return };
            let base = wanted.offer.window.offset % self.each;
            self.slots[usize::from(index)].pull = Some(Pull {
                wanted,
                data: vec![0; if wanted.keeps { wanted.len as usize } else { 0 }],
                base,
                left: wanted.len,
                next_frame: 0,
                blocks: VecDeque::new(),
                is_hasty: false,
                at: now + self.again,
                tries: 0,
            });
            self.fill(index);
        }
    }

    /// Asks for further blocks of a pull, as many as may be on their way.
    fn fill(&mut self, index: u16) {
        let (each, most, depth) = (self.each, self.block, self.depth);
        let mut new = Vec::new();
        let Some(pull) = self.slots[usize::from(index)].pull.as_mut() else { return };
        while pull.left > 0 && pull.blocks.len() < depth {
            let skip = if pull.next_frame == 0 { pull.base } else { 0 };
            let whole = u64::from(each) * u64::from(most) - u64::from(skip);
            let len = u64::from(pull.left).min(whole) as u32;
            let frames = (u64::from(skip) + u64::from(len)).div_ceil(each.into()) as u32;
            let missing = u64::MAX >> (BLOCK_MAX - frames);
            let block = Block { first: pull.next_frame, frames, len, skip, missing };
            pull.next_frame += frames;
            pull.left -= len;
            pull.blocks.push_back(block);
            new.push(block);
        }
        new.into_iter().for_each(|block| self.ask(index, block));
    }

    fn ask(&mut self, index: u16, block: Block) {
        let slot = &self.slots[usize::from(index)];
        let Some(pull) = &slot.pull else { return };
        let request = Request {
            ends: Ends { to: 0, from: self.number, generation: 0 },
            session: 0,
            total: pull.wanted.len,
            window: pull.wanted.offer.window,
            handle: u32::from(index) << GENERATION_BITS | slot.generation,
            magic: self.magic(),
            first_offset: block.skip,
            block_len: block.len,
            frame_index: block.first,
        };
        self.asks.push_back(Ask { peer: pull.wanted.offer.peer, request });
    }

    /// Returns the next request to send; the caller knows the peer's number and session.
    pub fn next_ask(&mut self) -> Option<Ask> {
        self.asks.pop_front()
    }

    /// Returns the index of a pull with a handle.
    fn find(&self, handle: u32, magic: u32) -> Option<u16> {
        let (index, generation) = (handle >> GENERATION_BITS, handle & (u32::MAX >> INDEX_BITS));
        let slot = self.slots.get(index as usize)?;
        let is_it = magic == self.magic() && slot.generation == generation && slot.pull.is_some();
        is_it.then_some(index as u16)
    }

    /// Returns the peer of the pull with a handle.
    pub fn peer_of(&self, handle: u32, magic: u32) -> Option<PeerIndex> {
        let slot = &self.slots[usize::from(self.find(handle, magic)?)];
        slot.pull.as_ref().map(|pull| pull.wanted.offer.peer)
    }

    /// Ends the pull with a handle.
    pub fn refused(&mut self, now: Time, handle: u32, magic: u32) -> Option<Ended> {
        let index = self.find(handle, magic)?;
        let ended = self.end(index);
        self.advance(now);
        ended
    }

    fn end(&mut self, index: u16) -> Option<Ended> {
        let slot = &mut self.slots[usize::from(index)];
        let pull = slot.pull.take()?;
        slot.generation = (slot.generation + 1) & ((1 << GENERATION_BITS) - 1);
        self.free.push_back(index);
        let Wanted { offer, context, len, .. } = pull.wanted;
        let Pull { data, .. } = pull;
        Some(Ended { peer: offer.peer, context, window: offer.window, data, len })
    }

    /// Ends all pulls from a peer.
    pub fn forget(&mut self, now: Time, peer: PeerIndex) -> Vec<u64> {
        let of_peer = |wanted: &Wanted| wanted.offer.peer == peer;
        let mut contexts = Vec::new();
        for index in 0..self.slots.len() as u16 {
            let pull = self.slots[usize::from(index)].pull.as_ref();
            if pull.is_some_and(|pull| of_peer(&pull.wanted)) {
                contexts.extend(self.end(index).map(|ended| ended.context));
            }
        }
        contexts.extend(self.waiting.iter().filter(|w| of_peer(w)).map(|w| w.context));
        self.waiting.retain(|wanted| !of_peer(wanted));
        self.asks.retain(|ask| ask.peer != peer);
        self.advance(now);
        contexts
    }

    /// Handles a frame of an answer.
    pub fn place(
        &mut self,
        now: Time,
        reply: &PullReply,
        payload: &[u8],
        sink: &mut Sink<'_>,
    ) -> Came {
        let Some(index) = self.find(reply.handle, reply.magic) else { return Came::Nothing };
        let (each, again) = (u64::from(self.each), self.again);
        let Some(pull) = self.slots[usize::from(index)].pull.as_mut() else { return Came::Nothing };
        let (base, total) = (u64::from(pull.base), u64::from(pull.wanted.len));
        let frame = (u64::from(reply.offset) + base) / each;
        let begin = (frame * each).saturating_sub(base);
        let end = ((frame + 1) * each - base).min(total);
        let is_whole = begin == reply.offset.into() && end == begin + payload.len() as u64;
        if !is_whole || payload.is_empty() || reply.seq != frame as u8 {
            return Came::Nothing;
        }
        let within = |block: &Block| {
            let ahead = frame.checked_sub(block.first.into());
            ahead.is_some_and(|ahead| ahead < block.frames.into())
        };
        let Some(at) = pull.blocks.iter().position(within) else {
            return if frame < pull.next_frame.into() { Came::Again } else { Came::Nothing };
        };
        let block = &mut pull.blocks[at];
        let bit = 1 << (frame - u64::from(block.first));
        if block.missing & bit == 0 {
            return Came::Again;
        }
        block.missing &= !bit;
        match pull.wanted.keeps {
            true => pull.data[begin as usize..end as usize].copy_from_slice(payload),
            false => sink(pull.wanted.context, begin as usize, payload),
        }
        (pull.at, pull.tries) = (now + again, 0);
        if block.missing == 0 {
            return self.whole_block(now, index, at);
        }
        Came::Placed
    }

    /// Goes on when a block is whole.
    fn whole_block(&mut self, now: Time, index: u16, at: usize) -> Came {
        let Some(pull) = self.slots[usize::from(index)].pull.as_mut() else { return Came::Nothing };
        if at > 0 {
            if !core::mem::replace(&mut pull.is_hasty, true) {
                // A frame of the blocks before was probably lost.
                let before: Vec<Block> = pull.blocks.iter().take(at).copied().collect();
                let missing = before.into_iter().filter(|block| block.missing != 0);
                missing.for_each(|block| self.ask(index, block));
            }
            return Came::Placed;
        }
        while pull.blocks.front().is_some_and(|block| block.missing == 0) {
            pull.blocks.pop_front();
        }
        pull.is_hasty = false;
        if !pull.blocks.is_empty() || pull.left > 0 {
            self.fill(index);
            return Came::Placed;
        }
        let ended = self.end(index);
        self.advance(now);
        ended.map_or(Came::Nothing, Came::Last)
    }

    pub fn next_timeout(&self) -> Option<Time> {
        let pulls = self.slots.iter().filter_map(|slot| slot.pull.as_ref());
        pulls.map(|pull| pull.at).min()
    }

    /// Asks again for blocks that have not come; returns the number of pulls that did, and the
    /// peers that did not answer so many times.
    pub fn handle_timeout(&mut self, now: Time, tries_max: u32) -> (u64, Vec<PeerIndex>) {
        let (mut asked, mut failed) = (0, Vec::new());
        for index in 0..self.slots.len() as u16 {
            let again = now + self.again;
            let pull = self.slots[usize::from(index)].pull.as_mut();
            let Some(pull) = pull.filter(|pull| pull.at <= now) else { continue };
            (pull.at, pull.tries, pull.is_hasty) = (again, pull.tries + 1, false);
            if pull.tries > tries_max {
                failed.push(pull.wanted.offer.peer);
                continue;
            }
            asked += 1;
            let blocks: Vec<Block> = pull.blocks.iter().copied().collect();
            let missing = blocks.into_iter().filter(|block| block.missing != 0);
            missing.for_each(|block| self.ask(index, block));
        }
        (asked, failed)
    }

    /// True if no pull is on its way.
    pub fn is_quiet(&self) -> bool {
        self.waiting.is_empty() && self.slots.iter().all(|slot| slot.pull.is_none())
    }
}

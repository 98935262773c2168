//! One direction of a shared-memory connection: a ring of cache lines beside a byte ring.
//!
//! A packet takes one slot, which is one cache line: a word (tag in the low half, lengths in the
//! high half) and 56 bytes. A packet that fits is stored in the slot, so a small message moves
//! exactly one line between the cores. Of a longer packet, the header is in the slot (if it fits)
//! and the rest in the data area.
//!
//! A slot is valid for position `p` when its tag is `p + 1`. The consumer never writes a slot; it
//! returns space through counters in a line of its own, a quarter of the ring at a time. The
//! lengths of all packets before determine a packet's offset in the data area: both sides compute
//! it, so no offset from the other side has to be trusted. Lengths are copied once and checked.
//!
//! The code trusts nothing of the other side: own positions are private, and an impossible value is
//! the error [`Violation`], after which the connection is dropped.

use crate::sync::{fence, AtomicU32, AtomicU64, Ordering};
use crate::Bytes;
use std::sync::atomic::compiler_fence;

/// Bytes in a slot.
pub(super) const INLINE: usize = 56;
/// Shortest and longest weft header.
pub(super) const HEADER_MIN: usize = 24;
pub(super) const HEADER_MAX: usize = 128;
/// Distance in slots from the slot being written to the slot that is prefetched: in a stream of
/// small messages, the prefetched line arrives before it is written.
const AHEAD: u32 = 16;
/// Polls of a full ring before a packet is left for later: some microseconds, in which a consumer
/// that is receiving frees a quarter of the ring.
const ROOM_ROUNDS: u32 = 128;
/// Unit of the data area: a packet there starts on a cache line.
pub(super) const UNIT: usize = 64;

/// A slot: one cache line.
#[repr(C, align(64))]
#[derive(Default)]
pub(super) struct Slot {
    /// Tag (low half), header length (8 bits) and payload length (24 bits).
    pub word: AtomicU64,
    pub body: [AtomicU64; 7],
}

/// Written by the consumer, read by the producer. Two lines, because cores fetch lines in pairs.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct ConsumerLine {
    /// Slots (low half) and data units (high half) consumed so far; both wrap.
    pub credits: AtomicU64,
    /// 1: the consumer sleeps or is about to; the side that resets it rings the doorbell.
    pub sleeping: AtomicU32,
}

/// Written by the producer, read by the consumer when it returns credits.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct ProducerLine {
    /// 1: the producer sleeps until there is space; the side that resets it rings the doorbell.
    pub blocked: AtomicU32,
    /// 1: the producer makes a direct copy from or to the consumer's own memory, outside the rings.
    pub copying: AtomicU32,
}

/// Written by the consumer at intervals, read by the producer only for
/// [`attentive`](crate::SharedMemory::attentive) and direct copies.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct HintLine {
    /// Monotonic time in nanoseconds of the consumer's last poll that found nothing; 0: it does not
    /// poll.
    pub polled_at: AtomicU64,
    /// 1: the consumer has revoked access to its own memory. The producer begins no copy from or to
    /// it, and the consumer has waited for the end of a copy in progress.
    pub taken_back: AtomicU32,
}

/// The shared memory of one direction.
pub(super) trait Area {
    /// Returns the slot of position `pos` (taken modulo the number of slots).
    fn slot(&self, pos: u32) -> &Slot;
    fn consumer(&self) -> &ConsumerLine;
    /// Prefetches the line of a slot that will be written soon.
    #[inline]
    fn own_slot(&self, _pos: u32) {}
    fn producer(&self) -> &ProducerLine;
    /// Prefetches the line of the data area in which the next longer packet will start.
    #[inline]
    fn expect_data(&self, _offset: usize) {}
    /// Copies into the data area. Panics if the range exceeds it.
    fn put(&self, offset: usize, bytes: &[u8]);
    /// Returns bytes of the data area. Panics if the range exceeds it.
    fn get(&self, offset: usize, len: usize) -> Bytes<'_>;
    /// Moves the lines of bytes that were taken into this core's cache as their owner
    /// (`docs/adr/0021-readers-own-lines.md`). Panics if the range exceeds the data area.
    fn own(&self, offset: usize, len: usize);
}

/// The error for an impossible value that the other side wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Violation(pub &'static str);

/// The sizes on which both sides agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Slots, a power of two.
    pub slots: u32,
    /// Data area in units, a power of two.
    pub units: u32,
    /// Longest packet, header included; at most a quarter of the data area.
    pub mtu: u32,
}

/// Returns the number of units for `len` bytes.
fn units(len: usize) -> u32 {
    len.div_ceil(UNIT) as u32
}

/// Returns the position for `len` units when the data area is filled up to `pos`: packets do not
/// wrap.
fn place(pos: u32, len: u32, capacity: u32) -> u32 {
    let offset = pos & (capacity - 1);
    if offset + len > capacity {
        pos.wrapping_add(capacity - offset)
    } else {
        pos
    }
}

/// Returns the number of bytes of a packet that go to the data area.
fn spilled(header: usize, payload: usize) -> usize {
    if header + payload <= INLINE {
        0
    } else if header <= INLINE {
        payload
    } else {
        header + payload
    }
}

/// Writes bytes into words; the last word is padded with zeros.
#[inline]
fn store(into: &[AtomicU64], bytes: &[u8]) {
    let (words, rest) = bytes.as_chunks::<8>();
    for (bytes, word) in words.iter().zip(into) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
    if let (Some(word), false) = (into.get(words.len()), rest.is_empty()) {
        let last = rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        word.store(last, Ordering::Relaxed);
    }
}

/// The private state of the sending side.
#[derive(Debug)]
pub(super) struct Producer {
    sizes: Sizes,
    head: u32,
    data_head: u32,
    /// The consumer's counters as last read.
    tail: u32,
    data_tail: u32,
    /// The last push found no space.
    full: bool,
    /// Number of consumed slots when the last wait for more was in vain.
    given_up: Option<u32>,
    /// The consumer issues a barrier on all cores before it sleeps, so the producer needs no fence.
    pub light: bool,
}

impl Producer {
    pub(super) fn new(sizes: Sizes) -> Producer {
        Producer {
            sizes,
            head: 0,
            data_head: 0,
            tail: 0,
            data_tail: 0,
            full: false,
            given_up: None,
            light: false,
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn start_at(&mut self, pos: u32, data: u32) {
        (self.head, self.tail, self.data_head, self.data_tail) = (pos, pos, data, data);
    }

    /// Publishes one packet. False if there is no space now.
    #[inline]
    pub(super) fn push<A: Area>(
        &mut self,
        area: &A,
        header: &[u8],
        payload: &[u8],
    ) -> Result<bool, Violation> {
        assert!(header.len() >= HEADER_MIN, "header length");
        let spill = spilled(header.len(), payload.len());
        if spill == 0 {
            if self.head.wrapping_sub(self.tail) >= self.sizes.slots && !self.refresh(area, 0)? {
                return Ok(false);
            }
            self.fill(area, header, payload);
        } else {
            assert!(header.len() + payload.len() <= self.sizes.mtu as usize, "frame over the MTU");
            if !self.spill(area, header, payload, units(spill))? {
                return Ok(false);
            }
            if header.len() <= INLINE {
                self.fill(area, header, &[]);
            }
        }
        let slot = area.slot(self.head);
        let lengths = header.len() as u32 | (payload.len() as u32) << 8;
        self.head = self.head.wrapping_add(1);
        slot.word.store(u64::from(lengths) << 32 | u64::from(self.head), Ordering::Release);
        area.own_slot(self.head.wrapping_add(AHEAD));
        Ok(true)
    }

    /// Writes a packet into the body of the next slot, word by word, because nearly all headers are
    /// whole words.
    #[inline]
    fn fill<A: Area>(&mut self, area: &A, header: &[u8], payload: &[u8]) {
        let body = &area.slot(self.head).body;
        let (words, odd) = header.as_chunks::<8>();
        if !odd.is_empty() {
            let mut gathered = [0; INLINE];
            gathered[..header.len()].copy_from_slice(header);
            gathered[header.len()..][..payload.len()].copy_from_slice(payload);
            return store(body, &gathered);
        }
        let (head, rest) = body.split_at(words.len());
        for (bytes, word) in words.iter().zip(head) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        store(rest, payload);
    }

    /// Copies the bytes that do not fit the slot into the data area. False if there is no space
    /// now.
    fn spill<A: Area>(
        &mut self,
        area: &A,
        header: &[u8],
        payload: &[u8],
        len: u32,
    ) -> Result<bool, Violation> {
        assert!(header.len() <= HEADER_MAX, "header length");
        if !self.fits(len) && !self.refresh(area, len)? {
            return Ok(false);
        }
        let start = place(self.data_head, len, self.sizes.units);
        let offset = (start & (self.sizes.units - 1)) as usize * UNIT;
        if header.len() <= INLINE {
            area.put(offset, payload);
        } else {
            area.put(offset, header);
            area.put(offset + header.len(), payload);
        }
        self.data_head = start.wrapping_add(len);
        Ok(true)
    }

    fn fits(&self, len: u32) -> bool {
        let end = place(self.data_head, len, self.sizes.units).wrapping_add(len);
        self.head.wrapping_sub(self.tail) < self.sizes.slots
            && (len == 0 || end.wrapping_sub(self.data_tail) <= self.sizes.units)
    }

    /// Reads the consumer's counters again; true if `len` units and a slot fit now.
    #[cold]
    fn refresh<A: Area>(&mut self, area: &A, len: u32) -> Result<bool, Violation> {
        let credits = area.consumer().credits.load(Ordering::Acquire);
        let (tail, data_tail) = (credits as u32, (credits >> 32) as u32);
        if self.head.wrapping_sub(tail) > self.sizes.slots {
            return Err(Violation("slot credits"));
        }
        if self.data_head.wrapping_sub(data_tail) > self.sizes.units {
            return Err(Violation("data credits"));
        }
        (self.tail, self.data_tail) = (tail, data_tail);
        self.full = !self.fits(len);
        Ok(!self.full)
    }

    /// Waits a short time for a free slot, unless the last wait was in vain and no slot was freed
    /// since.
    pub(super) fn room_soon<A: Area>(&mut self, area: &A) -> Result<bool, Violation> {
        for round in 0..ROOM_ROUNDS {
            if self.refresh(area, 0)? {
                self.given_up = None;
                return Ok(true);
            }
            if round == 0 && self.given_up == Some(self.tail) {
                return Ok(false);
            }
            std::hint::spin_loop();
        }
        self.given_up = Some(self.tail);
        Ok(false)
    }

    /// True if the consumer must be woken by its doorbell; called after publishing.
    #[inline]
    pub(super) fn must_ring<A: Area>(&self, area: &A) -> bool {
        if self.light && cfg!(not(loom)) {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        let sleeping = &area.consumer().sleeping;
        sleeping.load(Ordering::Relaxed) != 0 && sleeping.swap(0, Ordering::SeqCst) != 0
    }

    /// Called before this side sleeps: if the last push found no space, asks for a doorbell when
    /// there is space. False if there is space already: do not sleep.
    pub(super) fn prepare_wait<A: Area>(&mut self, area: &A) -> Result<bool, Violation> {
        if !self.full {
            return Ok(true);
        }
        area.producer().blocked.swap(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let before = (self.tail, self.data_tail);
        // Any new credit is enough: the length that did not fit is not known here.
        self.refresh(area, 0)?;
        self.full = true;
        if before == (self.tail, self.data_tail) {
            return Ok(true);
        }
        area.producer().blocked.swap(0, Ordering::SeqCst);
        self.full = false;
        Ok(false)
    }
}

/// The private state of the receiving side.
#[derive(Debug)]
pub(super) struct Consumer {
    sizes: Sizes,
    pos: u32,
    data_pos: u32,
    data_published: u32,
    /// Every slot was used once. Before that, the tag of an empty slot is 0.
    lapped: bool,
    /// Credits were returned since the last call of `must_ring`.
    gave: bool,
}

/// The checked lengths of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameLengths {
    pub header: usize,
    pub payload: usize,
}

impl Consumer {
    pub(super) fn new(sizes: Sizes) -> Consumer {
        Consumer { sizes, pos: 0, data_pos: 0, data_published: 0, lapped: false, gave: false }
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn start_at(&mut self, pos: u32, data: u32) {
        (self.pos, self.data_pos, self.data_published, self.lapped) = (pos, data, data, true);
    }

    /// True if no packet was ever received.
    pub(super) fn untouched(&self) -> bool {
        self.pos == 0 && !self.lapped
    }

    fn stale(&self) -> u32 {
        if self.lapped {
            self.pos.wrapping_sub(self.sizes.slots).wrapping_add(1)
        } else {
            0
        }
    }

    /// Returns the lengths of the next packet, if there is one.
    #[inline]
    pub(super) fn peek<A: Area>(&self, area: &A) -> Result<Option<FrameLengths>, Violation> {
        let word = area.slot(self.pos).word.load(Ordering::Acquire);
        let tag = word as u32;
        if tag != self.pos.wrapping_add(1) {
            // Prefetched at each poll of the slot, so that both lines move between the cores at the
            // same time.
            area.expect_data((self.data_pos & (self.sizes.units - 1)) as usize * UNIT);
            return if tag == self.stale() { Ok(None) } else { Err(Violation("slot tag")) };
        }
        let lengths = (word >> 32) as u32;
        let (header, payload) = ((lengths & 0xff) as usize, (lengths >> 8) as usize);
        if !(HEADER_MIN..=HEADER_MAX).contains(&header) {
            return Err(Violation("header length"));
        }
        if header + payload > self.sizes.mtu as usize {
            return Err(Violation("packet length"));
        }
        Ok(Some(FrameLengths { header, payload }))
    }

    /// Passes the packet that `peek` found to `take`, then frees its space.
    #[inline]
    pub(super) fn pop<A: Area, F>(&mut self, area: &A, len: FrameLengths, take: F)
    where
        F: FnOnce(&[u8], Bytes<'_>),
    {
        let body = &area.slot(self.pos).body;
        let words: [_; INLINE / 8] =
            std::array::from_fn(|i| body[i].load(Ordering::Relaxed).to_le_bytes());
        let line = words.as_flattened();
        if len.header + len.payload <= INLINE {
            let (header, rest) = line.split_at(len.header);
            take(header, Bytes::from_slice(&rest[..len.payload]));
        } else {
            self.pop_spilled(area, len, line, take);
        }
        self.pos = self.pos.wrapping_add(1);
        self.lapped |= self.pos == self.sizes.slots;
        let quarter = self.sizes.slots / 4;
        if self.pos & (quarter - 1) == 0
            || self.data_pos.wrapping_sub(self.data_published) >= self.sizes.units / 4
        {
            let credits = u64::from(self.data_pos) << 32 | u64::from(self.pos);
            area.consumer().credits.store(credits, Ordering::Release);
            self.data_published = self.data_pos;
            self.gave = true;
        }
    }

    fn pop_spilled<A: Area, F>(&mut self, area: &A, len: FrameLengths, line: &[u8], take: F)
    where
        F: FnOnce(&[u8], Bytes<'_>),
    {
        let spill = spilled(len.header, len.payload);
        let start = place(self.data_pos, units(spill), self.sizes.units);
        let offset = (start & (self.sizes.units - 1)) as usize * UNIT;
        if len.header <= INLINE {
            take(&line[..len.header], area.get(offset, len.payload));
        } else {
            let mut header = [0u8; HEADER_MAX];
            area.get(offset, len.header).copy_to(&mut header[..len.header]);
            take(&header[..len.header], area.get(offset + len.header, len.payload));
        }
        area.own(offset, spill);
        self.data_pos = start.wrapping_add(units(spill));
    }

    /// Called after packets were taken: true if the producer sleeps for space and may not have seen
    /// the credits returned since, so that its doorbell must be rung.
    pub(super) fn must_ring<A: Area>(&mut self, area: &A) -> bool {
        if !std::mem::take(&mut self.gave) {
            return false;
        }
        fence(Ordering::SeqCst);
        let blocked = &area.producer().blocked;
        blocked.load(Ordering::Relaxed) != 0 && blocked.swap(0, Ordering::SeqCst) != 0
    }

    /// The first step before sleeping; a barrier (of the type promised to the producer) and a
    /// `peek` must follow.
    pub(super) fn announce_sleep<A: Area>(&self, area: &A) {
        area.consumer().sleeping.swap(1, Ordering::SeqCst);
    }

    /// Ends the sleep: no doorbell needed. An exchange, as in `announce_sleep`: all exchanges of
    /// this word have one order, so a late reset of an earlier sleep never hides a new sleep.
    pub(super) fn awake<A: Area>(&self, area: &A) {
        area.consumer().sleeping.swap(0, Ordering::SeqCst);
    }
}

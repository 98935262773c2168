//! The receiver's side of a large message: requested and received parts.

/// A part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

/// Parts that two sides copy begin at multiples of this, so that no page is looked up twice.
const PAGE: u64 = 4096;
/// Shortest part of a direct copy: for less, the system call costs more than the copy.
const PART_MIN: u64 = 32 << 10;
/// First part while the sender cannot copy yet; each further part is as long as all before.
const PART_ALONE: u64 = 64 << 10;

/// Progress of a pull. Parts are claimed from the front by the receiver and, when the sender helps
/// with direct copies, from the back; the two meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pull {
    /// Bytes wanted (the shorter of message and buffer).
    want: u64,
    /// Bytes that arrived.
    received: u64,
    /// Claimed from the front up to here.
    front: u64,
    /// Claimed from the back down to here.
    back: u64,
    /// Bytes claimed by packets that have not arrived.
    outstanding: u64,
    /// Parts claimed from the back that have not arrived, and their bytes.
    back_parts: u32,
    back_bytes: u64,
    /// Bytes of the last direct copy from the front.
    copying: u64,
    /// True if parts are claimed when the window shared by all pulls has room.
    paced: bool,
}

impl Pull {
    /// Makes a pull of `want` bytes.
    pub fn new(want: u64) -> Pull {
        Pull { want, back: want, ..Pull::default() }
    }

    /// Makes a pull whose parts are claimed by [`Pull::claim_paced`].
    pub fn paced(want: u64) -> Pull {
        Pull { paced: true, ..Pull::new(want) }
    }

    /// Returns true if it was made by [`Pull::paced`].
    #[inline]
    pub fn is_paced(&self) -> bool {
        self.paced
    }

    /// Returns true if a part is left to be claimed.
    pub fn wants_more(&self) -> bool {
        self.front < self.back
    }

    /// Claims the next part by packets, at most `most` long; the caller bounds outstanding bytes.
    pub fn claim_paced(&mut self, most: u64) -> Option<Part> {
        let part = self.claim_front(most)?;
        self.outstanding += part.len;
        Some(part)
    }

    /// Claims the next part from the front, at most `block` long.
    pub fn claim_front(&mut self, block: u64) -> Option<Part> {
        let len = block.min(self.back - self.front);
        if len == 0 {
            return None;
        }
        let part = Part { offset: self.front, len };
        self.front += len;
        Some(part)
    }

    /// Returns true if [`Pull::claim_packets`] would claim a part.
    #[inline]
    pub fn wants_packets(&self, block: u64, depth: u64) -> bool {
        self.front < self.back && self.outstanding + block <= block * depth.max(1)
    }

    /// Claims the next part by packets while fewer than `depth` blocks are outstanding.
    pub fn claim_packets(&mut self, block: u64, depth: u64) -> Option<Part> {
        if !self.wants_packets(block, depth) {
            return None;
        }
        let part = self.claim_front(block)?;
        self.outstanding += part.len;
        Some(part)
    }

    /// Claims the next part from the front for a direct copy, at most `block` long: so much that
    /// both sides end at the same time if the sender copies too; else little at first, so that a
    /// part is left for a sender that joins.
    pub fn claim_direct(&mut self, block: u64) -> Option<Part> {
        let left = self.back - self.front;
        let fair = match self.back_parts {
            0 => self.front.max(PART_ALONE),
            _ => (left + self.back_bytes).div_ceil(2).next_multiple_of(PAGE),
        };
        let fair = fair.clamp(PART_MIN, block.max(PART_MIN));
        let part = self.claim_front(if left < fair + PART_MIN { left } else { fair })?;
        self.copying = part.len;
        Some(part)
    }

    /// Returns the last part from [`Pull::claim_direct`], which will be shared with the sender.
    pub fn unclaim(&mut self, part: Part) {
        if part.len == self.copying && part.offset + part.len == self.front {
            self.front -= part.len;
            self.copying = 0;
        }
    }

    /// Claims a part from the back for the sender to copy, at most `block` long, while fewer than
    /// `most` are outstanding: so much that both sides end at the same time.
    pub fn claim_back(&mut self, block: u64, most: u32) -> Option<Part> {
        let left = self.back - self.front;
        let fair = ((left + self.copying + self.back_bytes) / 2).saturating_sub(self.back_bytes);
        let start = self.back - fair.min(block.max(PART_MIN)).min(left);
        let start = start.next_multiple_of(PAGE).min(self.back);
        let len = self.back - start;
        if self.back_parts >= most || len < PART_MIN {
            return None;
        }
        self.back = start;
        self.back_parts += 1;
        self.back_bytes += len;
        Some(Part { offset: start, len })
    }

    /// Changes a part claimed for direct copying to one by packets.
    pub fn reclaim_as_packets(&mut self, part: Part) {
        self.outstanding += part.len;
    }

    /// Notes bytes that arrived by packet. False if they are not within the wanted bytes.
    pub fn arrived(&mut self, offset: u64, len: u64) -> bool {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.want);
        if !fits || len > self.want - self.received {
            return false;
        }
        self.received += len;
        self.outstanding = self.outstanding.saturating_sub(len);
        true
    }

    /// Notes the arrival of a part that the sender copied.
    pub fn arrived_back(&mut self, offset: u64, len: u64) -> bool {
        if self.back_parts == 0 || len > self.back_bytes || !self.arrived(offset, len) {
            return false;
        }
        self.back_parts -= 1;
        self.back_bytes -= len;
        true
    }

    /// Returns the number of parts the sender is copying now.
    pub fn back_parts(&self) -> u32 {
        self.back_parts
    }

    /// Returns true if everything wanted has arrived.
    pub fn complete(&self) -> bool {
        self.received == self.want
    }

    /// Returns the number of bytes wanted.
    pub fn want(&self) -> u64 {
        self.want
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const BLOCK: u64 = 512 << 10;

    #[test]
    fn claims__front_and_back_meet_and_cover_once() {
        let sizes = [0, 1, PART_MIN, 3 * PART_MIN + 5, BLOCK, 2 * BLOCK, 5 * BLOCK + 77];
        for (want, helped) in sizes.into_iter().flat_map(|want| (0..9).map(move |h| (want, h))) {
            let mut p = Pull::new(want);
            let (mut front, mut sides) = (0, [0, 0]);
            let mut theirs = alloc::collections::VecDeque::new();
            for turn in 0.. {
                let Some(part) = p.claim_direct(BLOCK) else { break };
                let mut part = part;
                if turn >= helped {
                    p.unclaim(part);
                    while let Some(part) = p.claim_back(BLOCK, 2) {
                        assert!(part.len >= PART_MIN && part.len <= BLOCK);
                        assert_eq!(part.offset % PAGE, 0);
                        theirs.push_back(part);
                    }
                    part = p.claim_direct(BLOCK).expect("some is left to the front");
                }
                assert!(part.offset == front && part.len <= BLOCK + PART_MIN, "{want} {part:?}");
                front += part.len;
                assert!(p.arrived(part.offset, part.len));
                sides[0] += part.len;
                // The sender copies at the same rate.
                while theirs.front().is_some_and(|part| sides[1] + part.len <= sides[0]) {
                    let Some(part) = theirs.pop_front() else { break };
                    assert!(p.arrived_back(part.offset, part.len));
                    sides[1] += part.len;
                }
            }
            for part in theirs {
                assert!(p.arrived_back(part.offset, part.len));
                sides[1] += part.len;
            }
            assert!(p.complete() && sides[0] + sides[1] == want, "{want} {sides:?}");
            if helped == 0 && want >= 2 * PART_MIN {
                assert!(
                    sides[0].abs_diff(sides[1]) <= (want / 4).max(2 * PART_MIN),
                    "{want} {sides:?}"
                );
            }
        }
    }

    #[test]
    fn claims__a_sender_that_is_not_at_hand_leaves_all_to_the_receiver() {
        let mut p = Pull::new(2 * BLOCK);
        let lens: alloc::vec::Vec<u64> =
            core::iter::from_fn(|| p.claim_direct(BLOCK)).map(|part| part.len).collect();
        assert_eq!(lens, [64 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10]);
    }

    #[test]
    fn arrived__refuses_what_was_not_wanted() {
        let mut p = Pull::new(10);
        assert!(!p.arrived(8, 3));
        assert!(!p.arrived(u64::MAX, 2));
        assert!(p.arrived(0, 10));
        assert!(!p.arrived(0, 1));
    }

    #[test]
    fn claim_packets__bounded_by_depth() {
        let mut p = Pull::new(1000);
        assert!(p.claim_packets(100, 2).is_some());
        assert!(p.claim_packets(100, 2).is_some());
        assert!(p.claim_packets(100, 2).is_none());
        assert!(p.arrived(0, 50));
        assert!(p.claim_packets(100, 2).is_none());
        assert!(p.arrived(50, 50));
        assert!(p.claim_packets(100, 2).is_some());
    }
}

//! The receiver's side of a large message: which parts were asked for and which arrived.

/// A part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

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
    /// Parts claimed from the back that have not arrived.
    back_parts: u32,
    /// Parts are claimed when the window shared by all pulls has room.
    paced: bool,
}

impl Pull {
    /// A pull of `want` bytes.
    pub fn new(want: u64) -> Pull {
        Pull { want, back: want, ..Pull::default() }
    }

    /// A pull whose parts are claimed by [`Pull::claim_paced`].
    pub fn paced(want: u64) -> Pull {
        Pull { paced: true, ..Pull::new(want) }
    }

    /// Whether it was made by [`Pull::paced`].
    #[inline]
    pub fn is_paced(&self) -> bool {
        self.paced
    }

    /// Whether a part is left to be claimed.
    pub fn wants_more(&self) -> bool {
        self.front < self.back
    }

    /// Claims the next part by packets, at most `most` long; the caller bounds what is outstanding.
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

    /// Whether [`Pull::claim_packets`] would claim a part.
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

    /// Claims a part from the back for the sender to copy, leaving one block to the front.
    pub fn claim_back(&mut self, block: u64, most: u32) -> Option<Part> {
        if self.back_parts >= most || self.back - self.front < 2 * block {
            return None;
        }
        self.back -= block;
        self.back_parts += 1;
        Some(Part { offset: self.back, len: block })
    }

    /// A part claimed for direct copying is to come by packets instead.
    pub fn reclaim_as_packets(&mut self, part: Part) {
        self.outstanding += part.len;
    }

    /// Bytes arrived by packet. False when they are not within what is wanted.
    pub fn arrived(&mut self, offset: u64, len: u64) -> bool {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.want);
        if !fits || len > self.want - self.received {
            return false;
        }
        self.received += len;
        self.outstanding = self.outstanding.saturating_sub(len);
        true
    }

    /// A part the sender copied is there.
    pub fn arrived_back(&mut self, offset: u64, len: u64) -> bool {
        if self.back_parts == 0 || !self.arrived(offset, len) {
            return false;
        }
        self.back_parts -= 1;
        true
    }

    /// Parts the sender is copying now.
    pub fn back_parts(&self) -> u32 {
        self.back_parts
    }

    /// Everything wanted is there.
    pub fn complete(&self) -> bool {
        self.received == self.want
    }

    /// Bytes wanted.
    pub fn want(&self) -> u64 {
        self.want
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn claims__front_and_back_meet_and_cover_once() {
        for want in [0u64, 1, 99, 100, 101, 1000, 1234] {
            let mut p = Pull::new(want);
            let mut seen = alloc::vec![0u8; want as usize];
            let mut parts = alloc::vec::Vec::new();
            loop {
                let before = parts.len();
                parts.extend(p.claim_back(100, 8));
                parts.extend(p.claim_front(100));
                if parts.len() == before {
                    break;
                }
            }
            for Part { offset, len } in parts {
                for b in &mut seen[offset as usize..(offset + len) as usize] {
                    *b += 1;
                }
                assert!(p.arrived(offset, len));
            }
            assert!(seen.iter().all(|&b| b == 1));
            assert!(p.complete());
        }
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

//! Memory of copies and of stored messages, kept for reuse.

/// Most bytes that are kept, and that are copied ahead of one peer: as many as stay in a core's
/// caches.
pub(crate) const MOST: usize = 1 << 20;
/// Longest piece that is kept: one long piece would leave no room for others.
const LONGEST: usize = 64 << 10;
/// Most pieces: after a flood of tiny messages the list itself would take much memory.
const PIECES: usize = 4096;

/// Spare memory of messages. Without it the allocator returns the pages of each message to the
/// system and gets others, which costs a page fault for every 4 KiB: 5 us for a message of 16 KiB.
#[derive(Default)]
pub(super) struct Pool {
    all: Vec<Vec<u8>>,
    bytes: usize,
}

impl Pool {
    /// Takes memory for a message, of any capacity.
    pub fn take(&mut self) -> Vec<u8> {
        let memory = self.all.pop().unwrap_or_default();
        self.bytes -= memory.capacity();
        memory
    }

    /// Keeps the memory of a message that is no longer needed.
    pub fn keep(&mut self, memory: Vec<u8>) {
        let len = memory.capacity();
        let fits = self.bytes + len <= MOST && self.all.len() < PIECES;
        if (1..=LONGEST).contains(&len) && fits {
            self.bytes += len;
            self.all.push(memory);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn keep__is_bounded_and_gives_back_what_it_took() {
        let mut spare = Pool::default();
        assert_eq!(spare.take().capacity(), 0);
        for _ in 0..20 {
            spare.keep(Vec::with_capacity(LONGEST));
        }
        assert_eq!((spare.all.len(), spare.bytes), (MOST / LONGEST, MOST));
        assert_eq!(spare.take().capacity(), LONGEST);
        for none in [Vec::new(), Vec::with_capacity(LONGEST + 1)] {
            spare.keep(none);
        }
        assert_eq!(spare.bytes, MOST - LONGEST);
        let mut spare = Pool::default();
        (0..2 * PIECES).for_each(|_| spare.keep(Vec::with_capacity(8)));
        assert_eq!(spare.all.len(), PIECES);
    }
}

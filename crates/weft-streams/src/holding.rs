//! The place of one process among those that hold a connection: its number, or that it is free.
//!
//! A process that ends takes nothing back, so others take its marks away and free its place. Only
//! one of them does: a second one that found the end at the same moment would take away the marks
//! of the next process that has the place.

use crate::shim::{AtomicU32, Ordering};

/// Nobody has the place.
const FREE: u32 = 0;
/// The process is being made, or its marks are being taken away.
const CHANGES: u32 = u32::MAX;

/// A place. Zeros are a free one.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Holding(AtomicU32);

impl Holding {
    /// Takes a free place for a process that is being made.
    pub fn take(&self) -> bool {
        self.0.compare_exchange(FREE, CHANGES, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The place is that of the process with this number from now on.
    pub fn is_of(&self, number: u32) {
        self.0.store(number, Ordering::Release);
    }

    /// Returns the number of the process, 0 if there is none. `None`: it is being made or ended.
    pub fn number(&self) -> Option<u32> {
        Some(self.0.load(Ordering::Acquire)).filter(|&number| number != CHANGES)
    }

    /// The process with this number has ended, or there was none: `clear` takes its marks away, and
    /// the place is free. If another one does that, or has done it, nothing happens.
    pub fn ends(&self, number: u32, clear: impl FnOnce()) {
        let mine = self.0.compare_exchange(number, CHANGES, Ordering::AcqRel, Ordering::Relaxed);
        if mine.is_ok() {
            self.fails(clear);
        }
    }

    /// The process that was being made, by the caller, was not made.
    pub fn fails(&self, clear: impl FnOnce()) {
        clear();
        self.0.store(FREE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::Holding;

    #[test]
    fn ends__clears_once_and_before_the_next_process_has_the_place() {
        let place = Holding::default();
        assert!(place.take());
        assert_eq!(place.number(), None);
        place.is_of(7);
        let mut cleared = 0;
        place.ends(7, || {
            place.ends(7, || panic!("two clear"));
            assert!(!place.take(), "the next process has a place that is being cleared");
            cleared += 1;
        });
        place.ends(7, || panic!("cleared again"));
        assert_eq!((cleared, place.number()), (1, Some(0)));
        assert!(place.take());
    }
}

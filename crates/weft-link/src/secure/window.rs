//! The replay window: the packet numbers of one sender that were already accepted.

/// Numbers less than this behind the highest are checked one by one; older ones are refused.
pub const WIDTH: u64 = 1024;

/// One word more than the width, so that a whole word can be cleared when the window moves (RFC
/// 6479).
const WORDS: u64 = WIDTH / 64 + 1;

/// The packet numbers accepted from one sender, as a bitmap below the highest. Number 0 is never
/// fresh.
#[derive(Clone, Debug)]
pub struct Window {
    top: u64,
    words: [u64; WORDS as usize],
}

impl Default for Window {
    fn default() -> Window {
        Window { top: 0, words: [1; WORDS as usize] }
    }
}

impl Window {
    /// Makes a window in which every number up to `top` was accepted.
    pub fn after(top: u64) -> Window {
        Window { top, words: [u64::MAX; WORDS as usize] }
    }

    /// Returns the highest accepted number.
    pub fn top(&self) -> u64 {
        self.top
    }

    /// True if `pn` was not accepted before and is not too old.
    #[inline]
    pub fn is_fresh(&self, pn: u64) -> bool {
        pn > self.top || (self.top - pn < WIDTH && self.words[slot(pn)] & bit(pn) == 0)
    }

    /// Marks a fresh number as accepted. Call it only for authenticated packets.
    #[inline]
    pub fn accept(&mut self, pn: u64) {
        debug_assert!(self.is_fresh(pn));
        let (old, new) = (self.top / 64, pn / 64);
        if new > old {
            for word in (old + 1..=new).rev().take(WORDS as usize) {
                self.words[(word % WORDS) as usize] = 0;
            }
        }
        self.words[slot(pn)] |= bit(pn);
        self.top = self.top.max(pn);
    }
}

#[inline]
fn slot(pn: u64) -> usize {
    (pn / 64 % WORDS) as usize
}

#[inline]
fn bit(pn: u64) -> u64 {
    1 << (pn % 64)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn is_fresh__zero_never() {
        assert!(!Window::default().is_fresh(0));
    }

    #[test]
    fn accept__once_each() {
        let mut w = Window::default();
        for pn in [1, 2, 5, 4, 1000, 3] {
            assert!(w.is_fresh(pn), "{pn}");
            w.accept(pn);
            assert!(!w.is_fresh(pn), "{pn}");
        }
        assert_eq!(w.top(), 1000);
    }

    #[test]
    fn is_fresh__older_than_the_window_is_not() {
        let mut w = Window::default();
        w.accept(5000);
        assert!(w.is_fresh(5000 - WIDTH + 1));
        assert!(!w.is_fresh(5000 - WIDTH));
    }

    #[test]
    fn after__refuses_everything_up_to_top() {
        let w = Window::after(1 << 40);
        assert!(!w.is_fresh(1 << 40) && !w.is_fresh((1 << 40) - 7) && w.is_fresh((1 << 40) + 1));
    }

    #[test]
    fn accept__agrees_with_a_set_on_random_orders() {
        let mut state = 7u64;
        let mut random = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> 33
        };
        for base in [0u64, 1 << 56, u64::MAX - (1 << 20)] {
            let (mut w, mut seen, mut top) = (Window::default(), BTreeSet::new(), base);
            for step in 0..20_000 {
                let jump = if step % 500 == 0 { random() % 5000 } else { random() % 4 };
                let pn = (top + jump).saturating_sub(random() % 1500).max(base + 1);
                let fresh = pn > top.max(w.top()) || w.top() - pn < WIDTH && !seen.contains(&pn);
                assert_eq!(w.is_fresh(pn), fresh, "{pn}");
                if fresh {
                    w.accept(pn);
                    seen.insert(pn);
                    top = top.max(pn);
                }
            }
        }
    }
}

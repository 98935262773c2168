//! Registered memory that stays where it is, for peers that write to it by its address.

use super::Memory;
use crate::endpoint::Endpoint;
use std::mem::ManuallyDrop;
use weft_core::engine::Rights;

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// Memory from half of one on lies in huge pages. The kernel looks up every page that it copies to
/// in another process: in pages of 4 KiB that takes three times as long as the copying.
const HUGE_MIN: usize = HUGE / 2;

/// Memory whose address peers have. It is not freed with this.
#[derive(Debug)]
pub(crate) struct Kept {
    vec: ManuallyDrop<Vec<u8>>,
    /// Where in it the memory begins, and its length.
    at: usize,
    len: usize,
}

impl Kept {
    /// `len` bytes, zeroed.
    fn new(len: usize) -> Kept {
        if len < HUGE_MIN {
            return Kept { vec: ManuallyDrop::new(vec![0; len]), at: 0, len };
        }
        let whole = len.next_multiple_of(HUGE);
        let mut vec = vec![0; whole + HUGE];
        let at = vec.as_ptr().align_offset(HUGE).min(HUGE);
        advise_huge(&mut vec[at..at + whole]);
        Kept { vec: ManuallyDrop::new(vec), at, len }
    }

    /// The memory, as a vector of its own. No peer writes to it any more.
    pub fn into_vec(self) -> Vec<u8> {
        let Kept { vec, at, len } = self;
        let mut vec = ManuallyDrop::into_inner(vec);
        vec.copy_within(at..at + len, 0);
        vec.truncate(len);
        vec.shrink_to_fit();
        vec
    }
}

/// Asks for huge pages where there are any; what was touched before stays as it is.
fn advise_huge(memory: &mut [u8]) {
    // SAFETY: the range is this slice; the advice changes no contents. It may fail.
    unsafe { libc::madvise(memory.as_mut_ptr().cast(), memory.len(), libc::MADV_HUGEPAGE) };
}

impl Endpoint {
    /// Registers `len` bytes of new memory, zeroed, for remote use. They stay where they are, also
    /// when they are no longer registered, until the owner of what this returns lets them go. Gives
    /// their key and address too.
    pub(crate) fn register_kept(&self, len: usize, rights: Rights) -> Option<(u64, u64, Kept)> {
        let core = &mut self.inner.borrow_mut().driver.core;
        let key = core.engine.register(len as u64, rights, weft_link::random_u64() as u32)?;
        let mut kept = Kept::new(len);
        let start = kept.vec[kept.at..].as_mut_ptr();
        // SAFETY: within the vector, which is neither moved in memory nor freed before
        // `unregister`, since nobody but the owner of the value returned can.
        let memory = unsafe { Memory::raw(start, len) };
        let addr = memory.addr();
        core.regions.insert(key, memory);
        Some((key, addr, kept))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn kept__is_zeroed_and_comes_back_whole() {
        for len in [0, 1, HUGE_MIN - 1, HUGE_MIN, HUGE, HUGE + 1, 3 * HUGE - 1] {
            let mut kept = Kept::new(len);
            let memory = &mut kept.vec[kept.at..][..len];
            assert!(memory.iter().all(|&byte| byte == 0), "{len}");
            let aligned = memory.as_ptr().addr().is_multiple_of(HUGE);
            assert!(aligned || len < HUGE_MIN, "{len}");
            memory.iter_mut().zip(0..).for_each(|(byte, i)| *byte = (i / 7) as u8);
            let vec = kept.into_vec();
            assert!(vec.len() == len && vec.iter().zip(0..).all(|(&b, i)| b == (i / 7) as u8));
        }
    }
}

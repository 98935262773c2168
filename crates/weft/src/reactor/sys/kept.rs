//! Registered memory that keeps its address, for peers that write to it by address.

use super::Memory;
use crate::memory::{fits, zeroed};
use crate::reactor::Handle;
use std::mem::ManuallyDrop;
use weft_core::engine::Rights;
use weft_link::shm::Block;

/// Memory of this size and more can be mapped by peers of this host, each block for one descriptor.
const BLOCK_MIN: usize = 64 << 10;

/// Memory whose address peers have. Dropping this does not free it.
#[derive(Debug)]
pub enum Kept {
    /// Reached by peers that map it, and through the kernel.
    #[doc(hidden)]
    Block(ManuallyDrop<Block>, usize),
    /// Reached only through the kernel.
    #[doc(hidden)]
    Plain(ManuallyDrop<Vec<u8>>),
}

impl Kept {
    /// Allocates `len` zeroed bytes. `None` if this machine does not have so many.
    fn new(len: usize) -> Option<Kept> {
        if len >= BLOCK_MIN && fits(len) {
            match Block::new(len) {
                Ok(block) => return Some(Kept::Block(ManuallyDrop::new(block), len)),
                Err(e) => log::debug!("exported memory is not for mapping: {e}"),
            }
        }
        Some(Kept::Plain(ManuallyDrop::new(zeroed(len)?)))
    }

    fn start(&mut self) -> *mut u8 {
        match self {
            Kept::Block(block, _) => block.start(),
            Kept::Plain(vec) => vec.as_mut_ptr(),
        }
    }

    /// Returns the block that peers can map, if there is one.
    pub fn block(&self) -> Option<&Block> {
        match self {
            Kept::Block(block, _) => Some(block),
            Kept::Plain(_) => None,
        }
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// No peer may write to it any more.
    pub unsafe fn free(self) {
        match self {
            Kept::Block(block, _) => drop(ManuallyDrop::into_inner(block)),
            Kept::Plain(vec) => drop(ManuallyDrop::into_inner(vec)),
        }
    }

    /// Returns the memory as a vector.
    ///
    /// # Safety
    /// No peer may write to it any more.
    pub unsafe fn into_vec(self) -> Vec<u8> {
        match self {
            Kept::Block(block, len) => ManuallyDrop::into_inner(block).bytes(len).to_vec(),
            Kept::Plain(vec) => ManuallyDrop::into_inner(vec),
        }
    }
}

impl Handle {
    /// Registers `len` bytes of new zeroed memory for remote use, and returns key, address and
    /// memory. The bytes keep their address, also after the end of the registration, until the
    /// owner of the returned value frees them.
    pub fn register_kept(&self, len: usize, rights: Rights) -> Option<(u64, u64, Kept)> {
        let mut kept = Kept::new(len)?;
        let core = &mut self.borrow_mut().receiver;
        let random = core.random_for_key();
        let key = core.engine.regions_mut().register(len as u64, rights, random);
        let Some(key) = key else {
            // SAFETY: no peer has heard of it.
            unsafe { kept.free() };
            return None;
        };
        // SAFETY: the whole memory, which is neither moved nor freed before `unregister`, since
        // only the owner of the returned value can.
        let memory = unsafe { Memory::raw(kept.start(), len) };
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
    fn kept__of_more_bytes_than_any_machine_has_is_none() {
        for len in [1 << 46, 1 << 60, isize::MAX as usize, usize::MAX] {
            assert!(Kept::new(len).is_none(), "{len}");
        }
    }

    #[test]
    fn kept__is_zeroed_and_comes_back_whole() {
        for len in [0, 1, BLOCK_MIN - 1, BLOCK_MIN, BLOCK_MIN + 1, (3 << 20) - 1] {
            let mut kept = Kept::new(len).unwrap();
            assert_eq!(kept.block().is_some(), len >= BLOCK_MIN, "{len}");
            // SAFETY: the memory has no other user.
            let memory = unsafe { std::slice::from_raw_parts_mut(kept.start(), len) };
            assert!(memory.iter().all(|&byte| byte == 0), "{len}");
            memory.iter_mut().zip(0..).for_each(|(byte, i)| *byte = (i / 7) as u8);
            // SAFETY: the memory has no other user.
            let vec = unsafe { kept.into_vec() };
            assert!(vec.len() == len && vec.iter().zip(0..).all(|(&b, i)| b == (i / 7) as u8));
        }
    }
}

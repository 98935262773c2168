//! Registered memory that stays where it is, for peers that write to it by its address.

use super::Memory;
use crate::endpoint::Endpoint;
use std::mem::ManuallyDrop;
use weft_core::engine::Rights;
use weft_link::shm::Block;

/// Memory of this size and more can be mapped by peers of this host, each block for one descriptor.
const BLOCK_MIN: usize = 64 << 10;

/// Memory whose address peers have. It is not freed with this.
#[derive(Debug)]
pub enum Kept {
    /// Of a peer that maps it, too, and of one that writes to it through the kernel.
    #[doc(hidden)]
    Block(ManuallyDrop<Block>, usize),
    /// Reached through the kernel alone.
    #[doc(hidden)]
    Plain(ManuallyDrop<Vec<u8>>),
}

impl Kept {
    /// `len` bytes, zeroed.
    fn new(len: usize) -> Kept {
        if len >= BLOCK_MIN {
            match Block::new(len) {
                Ok(block) => return Kept::Block(ManuallyDrop::new(block), len),
                Err(e) => log::debug!("exported memory is not for mapping: {e}"),
            }
        }
        Kept::Plain(ManuallyDrop::new(vec![0; len]))
    }

    fn start(&mut self) -> *mut u8 {
        match self {
            Kept::Block(block, _) => block.start(),
            Kept::Plain(vec) => vec.as_mut_ptr(),
        }
    }

    /// What peers can map.
    pub fn block(&self) -> Option<&Block> {
        match self {
            Kept::Block(block, _) => Some(block),
            Kept::Plain(_) => None,
        }
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// No peer writes to it any more.
    pub unsafe fn free(self) {
        match self {
            Kept::Block(block, _) => drop(ManuallyDrop::into_inner(block)),
            Kept::Plain(vec) => drop(ManuallyDrop::into_inner(vec)),
        }
    }

    /// The memory, as a vector of its own.
    ///
    /// # Safety
    /// No peer writes to it any more.
    pub unsafe fn into_vec(self) -> Vec<u8> {
        match self {
            Kept::Block(block, len) => ManuallyDrop::into_inner(block).bytes(len).to_vec(),
            Kept::Plain(vec) => ManuallyDrop::into_inner(vec),
        }
    }
}

impl Endpoint {
    /// Registers `len` bytes of new memory, zeroed, for remote use. They stay where they are, also
    /// when they are no longer registered, until the owner of what this returns lets them go. Gives
    /// their key and address too.
    pub(crate) fn register_kept(&self, len: usize, rights: Rights) -> Option<(u64, u64, Kept)> {
        let core = &mut self.inner.borrow_mut().driver.intake;
        let key = core.engine.register(len as u64, rights, weft_link::random_u64() as u32)?;
        let mut kept = Kept::new(len);
        // SAFETY: all of it, which is neither moved in memory nor freed before `unregister`, since
        // nobody but the owner of the value returned can.
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
    fn kept__is_zeroed_and_comes_back_whole() {
        for len in [0, 1, BLOCK_MIN - 1, BLOCK_MIN, BLOCK_MIN + 1, (3 << 20) - 1] {
            let mut kept = Kept::new(len);
            assert_eq!(kept.block().is_some(), len >= BLOCK_MIN, "{len}");
            // SAFETY: nobody else has the memory.
            let memory = unsafe { std::slice::from_raw_parts_mut(kept.start(), len) };
            assert!(memory.iter().all(|&byte| byte == 0), "{len}");
            memory.iter_mut().zip(0..).for_each(|(byte, i)| *byte = (i / 7) as u8);
            // SAFETY: nobody else has the memory.
            let vec = unsafe { kept.into_vec() };
            assert!(vec.len() == len && vec.iter().zip(0..).all(|(&b, i)| b == (i / 7) as u8));
        }
    }
}

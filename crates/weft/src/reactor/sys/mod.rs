//! Memory that operations read and write while they are in progress.

pub(crate) mod awaited;
pub(crate) mod epoll;
pub(crate) mod kept;
pub(crate) mod vanishing;

use std::ops::Range;
use std::rc::Rc;
use vanishing::Vanishing;
use weft_link::Bytes;

/// The buffer of an operation, or a registered region.
#[derive(Debug, Default)]
pub(crate) enum Memory {
    /// No memory.
    #[default]
    None,
    /// Owned until the operation has ended.
    Owned(Vec<u8>),
    /// The caller's memory: the caller promised, by an `unsafe` call, that it outlives the
    /// operation and is not used meanwhile; or a guard of the caller takes the operation back
    /// before.
    Raw(*mut u8, usize),
    /// A part of shared immutable memory: start and length.
    Shared(Rc<[u8]>, u32, u32),
    /// A region that only puts use, and that the caller may unmap.
    Vanishing(Vanishing),
}

impl Memory {
    /// The caller's memory.
    ///
    /// # Safety
    /// `ptr..ptr+len` stays valid for reads (and writes, where the operation writes) until the
    /// operation has completed and was released.
    pub unsafe fn raw(ptr: *const u8, len: usize) -> Memory {
        match len {
            0 => Memory::None,
            _ => Memory::Raw(ptr.cast_mut(), len),
        }
    }

    /// Takes a part of memory that the caller shares. `None` if there is no such part.
    pub fn shared(all: &Rc<[u8]>, part: Range<usize>) -> Option<Memory> {
        let len = u32::try_from(all.get(part.clone())?.len()).ok()?;
        let start = u32::try_from(part.start).ok()?;
        Some(if len == 0 { Memory::None } else { Memory::Shared(Rc::clone(all), start, len) })
    }

    pub fn len(&self) -> usize {
        match self {
            Memory::None => 0,
            Memory::Owned(v) => v.len(),
            Memory::Raw(_, len) => *len,
            Memory::Shared(_, _, len) => *len as usize,
            Memory::Vanishing(region) => region.len(),
        }
    }

    /// Returns the address of the first byte; 0 without memory.
    pub fn addr(&self) -> u64 {
        match self {
            Memory::None => 0,
            Memory::Owned(v) => v.as_ptr() as u64,
            Memory::Raw(ptr, _) => *ptr as u64,
            Memory::Shared(all, start, _) => all.as_ptr() as u64 + u64::from(*start),
            Memory::Vanishing(region) => region.addr() as u64,
        }
    }

    /// Returns `len` bytes at `offset`, to be read at once; none if out of bounds.
    #[inline]
    pub fn read(&self, offset: u64, len: usize) -> &[u8] {
        let start = offset as usize;
        let Some(end) = start.checked_add(len).filter(|&e| e <= self.len()) else { return &[] };
        if len == 0 {
            return &[];
        }
        match self {
            Memory::None | Memory::Vanishing(_) => &[],
            Memory::Owned(v) => &v[start..end],
            // SAFETY: within the memory promised to `raw`, which lives until the operation is
            // released.
            Memory::Raw(ptr, _) => unsafe {
                std::slice::from_raw_parts(ptr.wrapping_add(start), len)
            },
            Memory::Shared(all, first, _) => &all[*first as usize + start..][..len],
        }
    }

    /// Returns `len` bytes at `offset`, to be written at once. `None` if out of bounds.
    #[inline]
    pub fn write(&mut self, offset: u64, len: usize) -> Option<&mut [u8]> {
        let start = offset as usize;
        let end = start.checked_add(len).filter(|&e| e <= self.len())?;
        if len == 0 {
            return Some(&mut []);
        }
        match self {
            Memory::None => Some(&mut []),
            // Shared memory is only sent from, never written; a vanishing region has `place` alone.
            Memory::Shared(..) | Memory::Vanishing(_) => None,
            Memory::Owned(v) => Some(&mut v[start..end]),
            Memory::Raw(ptr, _) => {
                // SAFETY: within the memory promised to `raw`; only the reactor uses it now.
                Some(unsafe { std::slice::from_raw_parts_mut(ptr.wrapping_add(start), len) })
            }
        }
    }

    /// Copies `bytes` to `offset`. False if out of bounds.
    #[inline]
    pub fn place(&mut self, offset: u64, bytes: Bytes<'_>) -> bool {
        match self.write(offset, bytes.len()) {
            Some(dst) => {
                bytes.copy_to(dst);
                true
            }
            None => false,
        }
    }
}

impl Memory {
    /// Returns the buffer, if it is owned.
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Memory::Owned(v) => v,
            _ => Vec::new(),
        }
    }
}

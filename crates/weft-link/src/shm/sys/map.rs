//! Sealed memory files and their mapping.

use crate::shm::ring::{Area, ConsumerLine, HintLine, ProducerLine, Sizes, Slot, UNIT};
use crate::shm::segment::{CONSUMER, HINT, PRODUCER, SLOTS};
use crate::Bytes;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Creates a memory file of `len` zero bytes that can neither shrink nor grow.
pub(in crate::shm) fn create(len: usize) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string; no other memory is passed.
    let fd = unsafe {
        libc::memfd_create(c"weft".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is a new descriptor that nothing else owns.
    let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(len as u64)?;
    // SAFETY: no memory is passed.
    if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file.into())
}

/// A mapped file.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: memory of the process, belongs to no thread; the address alone gives no access.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference offers nothing else.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapped range; code that points into it holds a reference or a
        // documented contract.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Maps memory at an address of the kernel's choice, or over the mapping at `at`.
fn mmap(at: *mut u8, len: usize, file: Option<&OwnedFd>) -> io::Result<NonNull<u8>> {
    let (rights, kind, fd) = match file {
        Some(file) => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd()),
        None => (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    let over = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let kind = kind | libc::MAP_NORESERVE | over;
    // SAFETY: a new mapping at an address that the kernel chooses, or over a mapping that the
    // caller has just made and no code uses.
    let base = unsafe { libc::mmap(at.cast(), len, rights, kind, fd, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory.into())
}

impl Mapping {
    /// Maps `len` bytes of a file at a multiple of `unit`, a power of two; in pages of that size if
    /// the kernel has them.
    pub(super) fn aligned(file: &OwnedFd, len: usize, unit: usize) -> io::Result<Mapping> {
        let room = len.checked_add(unit).ok_or(io::ErrorKind::OutOfMemory)?;
        let around = Mapping { base: mmap(std::ptr::null_mut(), room, None)?, len: room };
        let before = around.base.align_offset(unit).min(unit);
        // SAFETY: within the mapping around, as `before` is at most `unit`.
        let (start, end) = unsafe { (around.base.add(before), around.base.add(before + len)) };
        let base = mmap(start.as_ptr(), len, Some(file))?;
        // Unmap the unused edges around it.
        let edges = [(around.base, before), (end, unit - before)];
        std::mem::forget(around);
        drop(edges.map(|(base, len)| (len > 0).then_some(Mapping { base, len })));
        // SAFETY: advice on this mapping alone; it changes no contents, and may fail.
        unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        Ok(Mapping { base, len })
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// Maps a segment that `memory::is_steady` accepted (or `create` made) with these checked sizes;
/// returns its two directions.
pub(in crate::shm) fn map(fd: &OwnedFd, sizes: Sizes) -> io::Result<[Half; 2]> {
    let len = sizes.segment_len();
    let base = mmap(std::ptr::null_mut(), len, Some(fd))?;
    let mapping = Arc::new(Mapping { base, len });
    Ok([0, 1].map(|direction| Half::new(mapping.clone(), sizes, direction)))
}

/// One direction of a mapped segment.
#[derive(Debug)]
pub(in crate::shm) struct Half {
    slots: NonNull<Slot>,
    slot_mask: u32,
    data_len: usize,
    base: NonNull<u8>,
    data: NonNull<u8>,
    _mapping: Arc<Mapping>,
}

// SAFETY: the pointers lead into the mapping, which lives as long as this does and belongs to no
// thread; the words in it are atomics, the data is guarded by them.
unsafe impl Send for Half {}

impl Half {
    fn new(mapping: Arc<Mapping>, sizes: Sizes, direction: usize) -> Half {
        assert!(mapping.len == sizes.segment_len() && direction < 2);
        let at = |offset: usize| {
            // SAFETY: every offset below is within the direction, and both directions are within
            // the mapping, whose length was computed from the same sizes.
            unsafe { mapping.base.add(direction * sizes.direction_len() + offset) }
        };
        Half {
            slots: at(SLOTS).cast(),
            slot_mask: sizes.slots - 1,
            data_len: sizes.data_len(),
            base: at(0),
            data: at(sizes.data_offset()),
            _mapping: mapping.clone(),
        }
    }

    /// Returns the line for hints.
    pub(in crate::shm) fn hint(&self) -> &HintLine {
        // SAFETY: within the direction, aligned to 128, atomics only, mapped while self lives.
        unsafe { self.base.add(HINT).cast().as_ref() }
    }
}

impl Area for Half {
    #[inline]
    fn slot(&self, pos: u32) -> &Slot {
        // SAFETY: the mask keeps the index below the number of slots; slots are atomics only and
        // stay mapped while self lives.
        unsafe { self.slots.add((pos & self.slot_mask) as usize).as_ref() }
    }

    #[inline]
    fn own_slot(&self, pos: u32) {
        #[cfg(target_arch = "x86_64")]
        {
            let slot: *const Slot = self.slot(pos);
            // SAFETY: a hint without effect on memory; `slot` is mapped. Processors without the
            // instruction take it for a no-op.
            unsafe {
                core::arch::asm!("prefetchw [{}]", in(reg) slot, options(nostack, preserves_flags));
            }
        }
    }

    #[inline]
    fn expect_data(&self, offset: usize) {
        assert!(offset < self.data_len);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint without effect on memory; the line is mapped.
        unsafe {
            use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
            _mm_prefetch::<_MM_HINT_T0>(self.data.add(offset).as_ptr().cast());
        }
    }

    #[inline]
    fn consumer(&self) -> &ConsumerLine {
        // SAFETY: within the direction, aligned to 128, atomics only, mapped while self lives.
        unsafe { self.base.add(CONSUMER).cast().as_ref() }
    }

    #[inline]
    fn producer(&self) -> &ProducerLine {
        // SAFETY: within the direction, aligned to 128, atomics only, mapped while self lives.
        unsafe { self.base.add(PRODUCER).cast().as_ref() }
    }

    #[inline]
    fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(offset <= self.data_len && bytes.len() <= self.data_len - offset);
        // SAFETY: the range is within the data area, to which no reference exists in this process;
        // a peer that writes there at the same time garbles its own packets only.
        unsafe {
            let to = self.data.add(offset).as_ptr();
            crate::sys::copy(bytes.as_ptr(), to, bytes.len());
        }
    }

    #[inline]
    fn get(&self, offset: usize, len: usize) -> Bytes<'_> {
        assert!(offset <= self.data_len && len <= self.data_len - offset);
        // SAFETY: the range is within the data area, mapped while self lives.
        unsafe { Bytes::from_raw(self.data.add(offset).as_ptr(), len) }
    }

    #[inline]
    fn own(&self, offset: usize, len: usize) {
        assert!(offset <= self.data_len && len <= self.data_len - offset);
        for at in (offset..offset + len).step_by(UNIT) {
            // SAFETY: within the data area, mapped while self lives, and taken for atomics only.
            let byte = unsafe { AtomicU8::from_ptr(self.data.add(at).as_ptr()) };
            byte.store(byte.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

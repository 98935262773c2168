//! The entries of the table, and the memory of connections.

use crate::guard;
use crate::parts::Parts;
use crate::slot::{Slot, SLOTS};
use crate::sys::memory::{map_file, map_own, unmap as unmap_all};
use crate::sys::real;
use libc::iovec;
use std::os::fd::RawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use weft_streams::words::{Words, HEAD, RING, SEGMENT, STRIDE};

/// Descriptors of a part of the table, and parts.
pub const PART: usize = 4096;
const PARTS: usize = 256;

/// Bits of an entry that are marks: slots are aligned.
pub const MARKS: usize = 3;

/// The connection or the set of a descriptor: null, the address of a slot, or a number with marks.
pub type Entry = AtomicPtr<Slot>;
type Part = [Entry; PART];

static TABLE: [AtomicPtr<Part>; PARTS] = [const { AtomicPtr::new(null_mut()) }; PARTS];

/// The shared memory of each connection, as this process has it.
static MEMORY: [AtomicPtr<u8>; SLOTS] = [const { AtomicPtr::new(null_mut()) }; SLOTS];
/// 1 if the other end, not this one, sends in the first direction.
static SECOND: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];

/// Returns the part of the table that has a descriptor. `None`: no table is so long. `Some(None)`:
/// there is none yet.
#[inline]
pub fn part(fd: i32) -> Option<Option<&'static Part>> {
    // SAFETY: a part is mapped for good before its address is stored.
    Some(unsafe { TABLE.get(fd as usize / PART)?.load(Ordering::Acquire).as_ref() })
}

/// Returns the entry of a descriptor, if there is a table for it.
#[inline]
pub fn entry(fd: i32) -> Option<&'static Entry> {
    Some(&part(fd)??[fd as usize % PART])
}

/// Returns the entry of a descriptor, and makes space for it.
pub fn place(fd: i32) -> Option<&'static Entry> {
    if let Some(entry) = entry(fd) {
        return Some(entry);
    }
    let place = TABLE.get(fd as usize / PART)?;
    let at = map_own(size_of::<Part>())?;
    let (is_set, or) = (Ordering::AcqRel, Ordering::Acquire);
    if place.compare_exchange(null_mut(), at.cast(), is_set, or).is_err() {
        // SAFETY: the mapping that this function made; nobody knows it.
        unsafe { unmap_all(at, size_of::<Part>()) };
    }
    entry(fd)
}

/// Returns the slot of an entry.
#[inline]
pub fn slot_of(entry: &Entry) -> Option<&'static Slot> {
    let value = entry.load(Ordering::SeqCst);
    if value.addr() & MARKS != 0 {
        return None;
    }
    // SAFETY: the slots stay mapped, and entries without marks are null or addresses of slots.
    unsafe { value.as_ref() }
}

/// A mapped segment of shared memory.
pub struct Mapped(*mut u8);

impl Mapped {
    /// Maps a memory file, which has the length of a segment, or is longer.
    pub fn of(file: RawFd) -> Option<Mapped> {
        map_file(file, SEGMENT).map(Mapped)
    }
}

/// Sets the shared memory of the slot at this index.
pub fn set_memory(at: usize, mapped: Mapped, first: bool) {
    SECOND[at].store(u32::from(!first), Ordering::Relaxed);
    MEMORY[at].store(mapped.0, Ordering::Release);
}

/// Unmaps the shared memory of the slot at this index, unless it `is_used`. True if there was some,
/// which is unmapped now.
pub fn unmap(at: usize, is_used: impl FnOnce() -> bool) -> bool {
    let base = MEMORY[at].swap(null_mut(), Ordering::SeqCst);
    if base.is_null() {
        return false;
    }
    if is_used() {
        MEMORY[at].store(base, Ordering::Release);
        return false;
    }
    // SAFETY: the mapping was made of this size, and no call uses it.
    unsafe { unmap_all(base, SEGMENT) };
    true
}

/// The shared memory of a connection, as this process has it.
#[derive(Clone, Copy)]
pub struct Memory {
    base: *mut u8,
    second: bool,
}

/// Returns the shared memory of the slot at this index. The slot counts the caller in `users`.
#[inline]
pub fn memory(at: usize) -> Option<Memory> {
    let base = MEMORY[at].load(Ordering::SeqCst);
    let second = SECOND[at].load(Ordering::Relaxed) != 0;
    (!base.is_null()).then_some(Memory { base, second })
}

impl Memory {
    fn words(&self, direction: bool) -> &'static Words {
        // SAFETY: the mapping has a page for the words of both directions, aligned and atomics.
        // It stays mapped while a call that uses it is counted in the slot.
        unsafe { &*self.base.add(usize::from(direction) * STRIDE).cast::<Words>() }
    }

    /// The words of the direction in which this end sends.
    #[inline]
    pub fn out(&self) -> &'static Words {
        self.words(self.second)
    }

    /// The words of the direction in which this end receives.
    #[inline]
    pub fn incoming(&self) -> &'static Words {
        self.words(!self.second)
    }

    fn ring(&self, direction: bool) -> *mut u8 {
        // SAFETY: both rings are within the mapping.
        unsafe { self.base.add(HEAD + usize::from(direction) * RING) }
    }

    /// Writes `n` bytes of a caller's parts to the ring, from this position on; `skip` bytes stand
    /// before them. At most a ring's. False: they are not the caller's to read.
    pub fn put(&self, at: u64, parts: &Parts<'_>, skip: usize, n: usize) -> bool {
        let (ring, mut at, mut is_there) = (self.ring(self.second), at as usize, true);
        parts.each(skip, n.min(RING), |from, len| {
            let place = at % RING;
            let first = len.min(RING - place);
            // SAFETY: within the ring, as the place is taken modulo its length; the caller's bytes,
            // or a fault. A peer that writes there at the same time garbles its own stream.
            is_there = unsafe {
                guard::copy(ring.add(place), from, first)
                    && (first == len || guard::copy(ring, from.add(first), len - first))
            };
            at += len;
            is_there
        });
        is_there
    }

    /// Reads `n` bytes of the ring, from this position on, to a caller's parts; `skip` bytes stand
    /// before them. At most a ring's. False: there is no space for them.
    pub fn get(&self, at: u64, parts: &Parts<'_>, skip: usize, n: usize) -> bool {
        let (ring, mut at, mut is_there) = (self.ring(!self.second), at as usize, true);
        parts.each(skip, n.min(RING), |to, len| {
            let place = at % RING;
            let first = len.min(RING - place);
            // SAFETY: within the ring, as the place is taken modulo its length; the caller's space,
            // or a fault.
            is_there = unsafe {
                guard::copy(to, ring.add(place), first)
                    && (first == len || guard::copy(to.add(first), ring, len - first))
            };
            at += len;
            is_there
        });
        is_there
    }

    /// Returns these bytes of the ring.
    pub fn span(&self, at: u64, len: usize) -> Span {
        let (ring, at) = (self.ring(!self.second), at as usize % RING);
        let first = len.min(RING - at);
        // SAFETY: within the ring.
        let base = unsafe { ring.add(at) };
        Span([
            iovec { iov_base: base.cast(), iov_len: first },
            iovec { iov_base: ring.cast(), iov_len: (len - first).min(RING) },
        ])
    }
}

/// Bytes of a ring, of a call that is counted in the slot.
pub struct Span([iovec; 2]);

impl Span {
    /// Writes them to a descriptor.
    pub fn write_to(&self, fd: RawFd) -> isize {
        // SAFETY: parts of the ring.
        unsafe { real::writev(fd, self.0.as_ptr(), 2) }
    }

    /// Copies them.
    ///
    /// # Safety
    /// There is space for as many bytes as a ring has.
    pub unsafe fn copy_to(&self, to: *mut u8) {
        let [first, rest] = &self.0;
        // SAFETY: parts of the ring, to the caller's space.
        unsafe {
            std::ptr::copy_nonoverlapping(first.iov_base.cast(), to, first.iov_len);
            let to = to.add(first.iov_len);
            std::ptr::copy_nonoverlapping(rest.iov_base.cast(), to, rest.iov_len);
        }
    }
}

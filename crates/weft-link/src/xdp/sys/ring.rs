//! The rings between an AF_XDP socket and the kernel. Each has one producer and one consumer; one
//! of the two is the kernel.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Memory mapped into the process.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: memory of the process, belongs to no thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` zero bytes of private memory, allocated at once.
    pub fn anonymous(len: usize) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        Mapping::new(len, flags, -1, 0)
    }

    /// Maps `len` bytes that a socket or map shares with processes.
    pub fn of(socket: &OwnedFd, len: usize, offset: libc::off_t) -> io::Result<Mapping> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Mapping::new(len, flags, socket.as_raw_fd(), offset)
    }

    /// Maps `len` bytes that processes may only read.
    pub fn readable(map: &OwnedFd, len: usize, offset: libc::off_t) -> io::Result<Mapping> {
        Mapping::map(len, libc::PROT_READ, libc::MAP_SHARED, (map.as_raw_fd(), offset))
    }

    fn new(len: usize, flags: i32, fd: i32, offset: libc::off_t) -> io::Result<Mapping> {
        Mapping::map(len, libc::PROT_READ | libc::PROT_WRITE, flags, (fd, offset))
    }

    fn map(
        len: usize,
        protection: i32,
        flags: i32,
        (fd, offset): (i32, libc::off_t),
    ) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address the kernel chooses.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, len })
    }

    /// Returns its first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns its length in bytes.
    pub fn size(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapped range; code that points into it holds the mapping.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A mapped ring of entries `T`.
#[derive(Debug)]
struct Ring<T> {
    /// Keeps the memory of the pointers mapped.
    _mapping: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
    life: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Maps the ring of `size` entries (a power of two) at `page` of a socket; `at` holds the
    /// offsets of its parts.
    fn map(
        socket: &OwnedFd,
        page: libc::off_t,
        at: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Ring<T>> {
        assert!(size.is_power_of_two());
        let entries_len = size as usize * size_of::<T>();
        let mapping = Mapping::of(socket, at.desc as usize + entries_len, page)?;
        let words = [at.producer, at.consumer, at.flags];
        let fits = words.iter().all(|w| w % 4 == 0 && *w as usize + 4 <= mapping.size());
        if !fits || !(at.desc as usize).is_multiple_of(align_of::<T>()) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: the offset is within the mapping, as just checked; so is the end of the entries,
        // since the mapping was made as long as that.
        let place = |offset: u64| unsafe { mapping.base().add(offset as usize) };
        Ok(Ring {
            producer: place(at.producer).cast(),
            consumer: place(at.consumer).cast(),
            flags: place(at.flags).cast(),
            entries: place(at.desc).cast(),
            mask: size - 1,
            life: PhantomData,
            _mapping: mapping,
        })
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: within the mapping, aligned, alive as long as `self`; the kernel uses it
        // atomically.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as `producer`.
        unsafe { self.consumer.as_ref() }
    }

    /// True if the kernel sleeps until it is called.
    #[inline]
    fn needs_wakeup(&self) -> bool {
        // SAFETY: as `producer`.
        let flags = unsafe { self.flags.as_ref() }.load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }

    #[inline]
    fn entry(&self, at: u32) -> *mut T {
        // SAFETY: the mask keeps the index within the entries, which are within the mapping.
        unsafe { self.entries.add((at & self.mask) as usize) }.as_ptr()
    }
}

/// A ring in which this process is the producer and the kernel the consumer.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Position of the next entry; the kernel sees entries after `publish`.
    next: u32,
    /// The kernel's position when it was last read.
    taken: u32,
}

// SAFETY: the pointers lead into the mapping it owns; the side of the ring that is ours is used
// through `&mut self` only.
unsafe impl<T: Send> Send for Producer<T> {}

impl<T: Copy> Producer<T> {
    pub fn map(
        socket: &OwnedFd,
        page: libc::off_t,
        at: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Producer<T>> {
        let ring = Ring::map(socket, page, at, size)?;
        let next = ring.producer().load(Ordering::Relaxed);
        let taken = ring.consumer().load(Ordering::Acquire);
        Ok(Producer { ring, next, taken })
    }

    /// Appends one entry; false if the ring is full.
    #[inline]
    pub fn push(&mut self, entry: T) -> bool {
        if self.next.wrapping_sub(self.taken) > self.ring.mask {
            self.taken = self.ring.consumer().load(Ordering::Acquire);
            if self.next.wrapping_sub(self.taken) > self.ring.mask {
                return false;
            }
        }
        // SAFETY: the place is within the ring and free: the kernel has taken what was there, and
        // reads it again only after `publish`.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Returns the entry at this position modulo the ring's size.
    #[inline]
    pub fn entry(&self, at: u32) -> T {
        // SAFETY: within the ring, which only this side writes; every bit pattern is a `T`.
        unsafe { self.ring.entry(at).read() }
    }

    /// Makes the appended entries visible to the kernel.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// True if the kernel has taken all entries.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.ring.consumer().load(Ordering::Acquire) == self.next
    }

    /// True if the kernel takes entries only when it is called.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring in which the kernel is the producer and this process the consumer.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// Position of the next entry to take; the kernel sees it after `publish`.
    next: u32,
    /// The kernel's position when it was last read.
    put: u32,
}

// SAFETY: as for `Producer`.
unsafe impl<T: Send> Send for Consumer<T> {}

impl<T: Copy> Consumer<T> {
    pub fn map(
        socket: &OwnedFd,
        page: libc::off_t,
        at: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Consumer<T>> {
        let ring = Ring::map(socket, page, at, size)?;
        let next = ring.consumer().load(Ordering::Relaxed);
        let put = ring.producer().load(Ordering::Acquire);
        Ok(Consumer { ring, next, put })
    }

    /// True if there is no entry to take.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.next == self.put && self.ring.producer().load(Ordering::Acquire) == self.next
    }

    /// Takes one entry.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.next == self.put {
            self.put = self.ring.producer().load(Ordering::Acquire);
            if self.next == self.put {
                return None;
            }
        }
        // SAFETY: within the ring; the kernel has put it (acquired above) and writes it again only
        // after `publish`. Every bit pattern is a `T`: rings hold numbers and `xdp_desc`.
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Returns the space of the taken entries to the kernel.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

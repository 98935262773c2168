//! Memory that peers of the same user map, to write to it without the kernel.

use super::map::{self, Mapping};
use crate::{sys, Bytes};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a huge page, and of the smallest page on any machine.
const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;
/// Bytes of a word to which peers add.
const WORD: usize = size_of::<u64>();

/// Memory of this process that peers can map: a sealed memory file, mapped here.
#[derive(Debug)]
pub struct Block {
    file: OwnedFd,
    mapping: Mapping,
}

impl Block {
    /// Allocates at least `len` bytes, zeroed. From half a huge page on, uses huge pages if the
    /// system has any for shared memory.
    ///
    /// # Errors
    /// The system refuses: no memory or no descriptor is left.
    pub fn new(len: usize) -> io::Result<Block> {
        let unit = if len >= HUGE / 2 { HUGE } else { PAGE };
        let len = len.max(1).checked_next_multiple_of(unit).ok_or(io::ErrorKind::OutOfMemory)?;
        let file = map::create(len)?;
        let mapping = Mapping::aligned(&file, len, unit)?;
        Ok(Block { file, mapping })
    }

    /// Returns the file that peers map.
    pub(in crate::shm) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the address in this process. The memory lives as long as this block, and peers may
    /// write to it at any time.
    pub fn start(&self) -> *mut u8 {
        self.mapping.start()
    }

    /// Returns its first `len` bytes.
    ///
    /// # Panics
    /// `len` exceeds the block.
    pub fn bytes(&self, len: usize) -> Bytes<'_> {
        assert!(len <= self.len());
        // SAFETY: mapped as long as this lives; that peers write to it meanwhile is allowed for.
        unsafe { Bytes::from_raw(self.start(), len) }
    }

    /// Returns the word at an offset, which peers may change at any time.
    ///
    /// # Panics
    /// The offset is not that of a whole, aligned word of the block.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(WORD) && offset < self.len());
        // SAFETY: within the mapping, which lives as long as this and begins at a page; as the
        // lengths are multiples of a page, a whole word is left. All use the word as an atomic.
        unsafe { AtomicU64::from_ptr(self.start().add(offset).cast()) }
    }

    /// Returns the number of bytes.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }
}

/// A peer's [`Block`], mapped here.
#[derive(Debug)]
pub(in crate::shm) struct Window {
    pub key: u64,
    /// Address in the peer.
    addr: u64,
    mapping: Mapping,
}

impl Window {
    /// Maps a file that holds `len` bytes of the peer's memory at `addr`, according to the peer.
    pub(in crate::shm) fn open(
        file: &OwnedFd,
        key: u64,
        addr: u64,
        len: u64,
    ) -> io::Result<Window> {
        let wrong = io::ErrorKind::InvalidInput;
        let len = usize::try_from(len).ok().filter(|&len| len > 0).ok_or(wrong)?;
        if addr.checked_add(len as u64).is_none() || !weft_sys::memory::is_steady(file, len) {
            return Err(wrong.into());
        }
        let unit = if len.is_multiple_of(HUGE) { HUGE } else { PAGE };
        Ok(Window { key, addr, mapping: Mapping::aligned(file, len, unit)? })
    }

    /// Returns the address in this process of `len` bytes at `addr` of the peer.
    fn place(&self, addr: u64, len: usize) -> Option<*mut u8> {
        let at = usize::try_from(addr.checked_sub(self.addr)?).ok()?;
        let end = at.checked_add(len)?;
        // SAFETY: within the mapping.
        (end <= self.mapping.len()).then(|| unsafe { self.mapping.start().add(at) })
    }

    /// Writes `from` to `addr` of the peer. False if the range is not within this window.
    pub(in crate::shm) fn write(&self, addr: u64, from: &[u8]) -> bool {
        let Some(place) = self.place(addr, from.len()) else { return false };
        // SAFETY: `place` is writable for as many bytes; others may access them meanwhile.
        unsafe { sys::copy(from.as_ptr(), place, from.len()) };
        true
    }

    /// Adds to the word at `addr` of the peer, and returns the value before. `None` if it is not a
    /// whole, aligned word within this window.
    pub(in crate::shm) fn add(&self, addr: u64, n: u64) -> Option<u64> {
        let place = self.place(addr, WORD)?.cast::<u64>();
        if !place.is_aligned() {
            return None;
        }
        // SAFETY: `place` is aligned and valid for 8 bytes while `self` lives; all that agree on
        // such a word use it as an atomic.
        Some(unsafe { AtomicU64::from_ptr(place) }.fetch_add(n, Ordering::SeqCst))
    }

    /// Reads from `addr` of the peer. False if the range is not within this window.
    pub(in crate::shm) fn read(&self, addr: u64, into: &mut [u8]) -> bool {
        let Some(place) = self.place(addr, into.len()) else { return false };
        // SAFETY: `place` is readable for as many bytes; others may write them meanwhile.
        unsafe { sys::copy(place, into.as_mut_ptr(), into.len()) };
        true
    }
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, FromRawFd};

    fn window(block: &Block, key: u64, addr: u64) -> io::Result<Window> {
        let file = block.file().try_clone_to_owned().unwrap();
        Window::open(&file, key, addr, block.len() as u64)
    }

    #[test]
    fn window__writes_what_the_block_has_and_nothing_beyond() {
        for len in [1, PAGE, 70_000, HUGE / 2, HUGE + 1] {
            let block = Block::new(len).unwrap();
            assert!(block.len() >= len && block.start().addr().is_multiple_of(PAGE));
            let window = window(&block, 1, 1 << 40).unwrap();
            let (last, mut got) = ((1 << 40) + len as u64 - 1, [0]);
            assert!(window.read(last, &mut got) && got == [0], "it is zeroed");
            assert!(window.write(last, &[7]));
            assert_eq!(block.bytes(len).to_vec()[len - 1], 7);
            let end = (1 << 40) + block.len() as u64;
            for (addr, len) in [(end, 1), (end - 1, 2), ((1 << 40) - 1, 1), (u64::MAX, 1), (0, 0)] {
                assert!(!window.write(addr, &vec![1; len]), "{addr:x}");
                assert!(!window.read(addr, &mut vec![1; len]), "{addr:x}");
            }
            drop(block);
            assert!(window.write(last, &[9]), "the mapping lives as long as the window");
        }
    }

    #[test]
    fn window__adds_to_words_of_the_block_alone_and_the_owner_sees_it() {
        let block = Block::new(PAGE).unwrap();
        let window = window(&block, 1, 1 << 40).unwrap();
        assert_eq!(window.add((1 << 40) + 64, 5), Some(0));
        assert_eq!(block.word(64).fetch_add(1, Ordering::SeqCst), 5);
        assert_eq!(window.add((1 << 40) + 64, u64::MAX), Some(6), "it wraps around");
        assert_eq!(block.word(64).load(Ordering::SeqCst), 5);
        let end = (1 << 40) + block.len() as u64;
        for addr in [(1 << 40) - 8, (1 << 40) + 1, (1 << 40) + 4, end - 4, end, u64::MAX, 0] {
            assert_eq!(window.add(addr, 1), None, "{addr:x}");
        }
    }

    #[test]
    fn window__of_what_could_shrink_or_is_not_that_long_is_refused() {
        let block = Block::new(PAGE).unwrap();
        let file = block.file().try_clone_to_owned().unwrap();
        for (addr, len) in [(0, 0), (0, 1), (0, 2 * PAGE as u64), (u64::MAX - 5, PAGE as u64)] {
            assert!(Window::open(&file, 1, addr, len).is_err(), "{addr:x} {len}");
        }
        let plain = std::fs::File::open("/proc/self/exe").unwrap().into();
        assert!(Window::open(&plain, 1, 0, PAGE as u64).is_err());
        assert!(window(&block, 1, 0).is_ok());
        // Pages of the pool of huge ones are taken at the first access: SIGBUS where none is left.
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | libc::MFD_HUGETLB;
        // SAFETY: the name is a C string; the file is new, and nothing else owns it.
        let huge = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"huge".as_ptr(), flags)) };
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: no memory is passed.
        unsafe {
            assert_eq!(libc::ftruncate(huge.as_raw_fd(), HUGE as libc::off_t), 0);
            assert_eq!(libc::fcntl(huge.as_raw_fd(), libc::F_ADD_SEALS, seals), 0);
        }
        assert!(Window::open(&huge, 1, 0, HUGE as u64).is_err());
    }
}

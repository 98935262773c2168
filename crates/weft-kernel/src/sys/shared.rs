//! An array that programs in the kernel and this process access at the same time.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;
use weft_link::xdp::bpf;
use weft_link::xdp::Mapping;

/// An array of entries, each of several 64-bit words.
#[derive(Debug)]
pub(crate) struct SharedArray {
    map: OwnedFd,
    memory: Mapping,
    words: usize,
}

// SAFETY: memory is accessed by atomic words and by copies only, from any thread.
unsafe impl Sync for SharedArray {}

impl SharedArray {
    /// Makes an array of `entries` entries with `words` words each, all zero.
    pub fn new(entries: u32, words: usize, name: &str) -> io::Result<SharedArray> {
        let map = bpf::mapped_array(entries, 8 * words as u32, name)?;
        let memory = Mapping::of(&map, 8 * words * entries as usize, 0)?;
        Ok(SharedArray { map, memory, words })
    }

    /// Returns a word of an entry.
    ///
    /// # Panics
    /// There is no such word.
    pub fn word(&self, entry: u32, word: usize) -> &AtomicU64 {
        let at = 8 * (entry as usize * self.words + word);
        assert!(word < self.words && at < self.memory.size(), "word {word} of entry {entry}");
        // SAFETY: inside the mapping, aligned, and only ever accessed as a whole word, here and by
        // programs.
        unsafe { &*self.memory.base().as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Copies bytes of an entry from the word `word` on.
    ///
    /// # Panics
    /// The range exceeds the entry.
    pub fn copy(&self, entry: u32, word: usize, into: &mut [u8]) {
        let at = 8 * (entry as usize * self.words + word);
        let fits = 8 * word + into.len() <= 8 * self.words && at < self.memory.size();
        assert!(fits, "{} bytes from word {word} of entry {entry}", into.len());
        // SAFETY: inside the mapping; programs do not write there while this process has it.
        unsafe {
            let from = self.memory.base().as_ptr().add(at);
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
        }
    }
}

impl AsRawFd for SharedArray {
    fn as_raw_fd(&self) -> RawFd {
        self.map.as_raw_fd()
    }
}

//! Copies between the memory of two processes.

use crate::{sys, Bytes};
use std::io;

/// Highest number of bytes in one call: the kernel cuts longer ones.
const CHUNK: usize = 1 << 30;

/// True if the kernel lets this process read the memory of `pid`: reading an address that is never
/// mapped then faults instead of being refused.
pub(in crate::shm) fn permitted(pid: i32) -> bool {
    let mut byte = [0];
    match read(pid, 0, &mut byte) {
        Ok(()) => true,
        Err(e) => e.raw_os_error() == Some(libc::EFAULT),
    }
}

/// Lets any process of this user read and write this process's memory if the Yama module restricts
/// that to ancestors (`kernel.yama.ptrace_scope` = 1). Fails without Yama, where it is not needed.
pub(in crate::shm) fn permit_peers() {
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

/// Reads `into.len()` bytes at `addr` of process `pid`.
pub(in crate::shm) fn read(pid: i32, addr: u64, into: &mut [u8]) -> io::Result<()> {
    let base = into.as_mut_ptr();
    transfer(into.len(), addr, |done, len, remote| {
        // SAFETY: `done + len` is within `into`, by `transfer`; it is exclusively ours.
        let local = libc::iovec { iov_base: unsafe { base.add(done) }.cast(), iov_len: len };
        // SAFETY: the kernel writes at most `len` bytes to `local` and checks the remote range.
        unsafe { libc::process_vm_readv(pid, &local, 1, remote, 1, 0) }
    })
}

/// Writes `from` to `addr` of process `pid`.
pub(in crate::shm) fn write(pid: i32, addr: u64, from: &[u8]) -> io::Result<()> {
    let base = from.as_ptr().cast_mut();
    transfer(from.len(), addr, |done, len, remote| {
        // SAFETY: `done + len` is within `from`, by `transfer`.
        let local = libc::iovec { iov_base: unsafe { base.add(done) }.cast(), iov_len: len };
        // SAFETY: the kernel only reads `local`, and checks the remote range.
        unsafe { libc::process_vm_writev(pid, &local, 1, remote, 1, 0) }
    })
}

/// Bytes of one step of a copy through a [`Detour`]: they stay in the nearest caches.
const PIECE: usize = 32 << 10;
/// The kernel's copies are split at pages.
const PAGE: usize = 4096;
/// A distance at which copies may be slow; two buffers from `malloc` have it.
const CLOSE: usize = 16;

/// A buffer between source and destination: a copy by the kernel that would be slow
/// ([`sys::crawls`]) is replaced by two fast copies through this buffer.
#[derive(Debug, Default)]
pub(in crate::shm) struct Detour {
    room: Vec<u8>,
    /// True if this processor is slow in that case; measured when it first matters.
    pays: Option<bool>,
}

impl Detour {
    /// Reads `into.len()` bytes at `addr` of process `pid`.
    pub(in crate::shm) fn read(&mut self, pid: i32, addr: u64, into: &mut [u8]) -> io::Result<()> {
        if !self.needed(addr as usize, into.as_ptr().addr(), into.len()) {
            return read(pid, addr, into);
        }
        for (i, piece) in into.chunks_mut(PIECE).enumerate() {
            let room = &mut self.room(addr as usize)[..piece.len()];
            read(pid, addr.saturating_add((i * PIECE) as u64), room)?;
            Bytes::from_slice(room).copy_to(piece);
        }
        Ok(())
    }

    /// Writes `from` to `addr` of process `pid`.
    pub(in crate::shm) fn write(&mut self, pid: i32, addr: u64, from: &[u8]) -> io::Result<()> {
        if !self.needed(from.as_ptr().addr(), addr as usize, from.len()) {
            return write(pid, addr, from);
        }
        for (i, piece) in from.chunks(PIECE).enumerate() {
            let room = &mut self.room(addr as usize)[..piece.len()];
            Bytes::from_slice(piece).copy_to(room);
            write(pid, addr.saturating_add((i * PIECE) as u64), room)?;
        }
        Ok(())
    }

    /// Returns a part of the buffer whose distance from `addr` is half a page, modulo pages.
    fn room(&mut self, addr: usize) -> &mut [u8] {
        self.room.resize(PIECE + PAGE, 0);
        let away = addr.wrapping_add(PAGE / 2).wrapping_sub(self.room.as_ptr().addr());
        &mut self.room[away % PAGE..]
    }

    /// True if a copy through the buffer is faster.
    fn needed(&mut self, src: usize, dst: usize, len: usize) -> bool {
        let may = len >= PAGE / 2 && sys::crawls(src, dst);
        may && *self.pays.get_or_insert_with(|| pays().unwrap_or(true))
    }
}

/// Measures if this processor copies more than twice as slowly in the case of [`sys::crawls`]:
/// within this process, the best of a few copies of each.
fn pays() -> io::Result<bool> {
    let pid = std::process::id() as i32;
    let (from, mut memory) = (vec![1; PIECE + PAGE], vec![0; PIECE + 2 * PAGE]);
    let start = from.as_ptr().addr().next_multiple_of(PAGE);
    let into = start.wrapping_sub(memory.as_ptr().addr()) % PAGE;
    let mut best = [u128::MAX; 2];
    for _ in 0..5 {
        for (best, behind) in best.iter_mut().zip([CLOSE, PAGE / 2]) {
            let began = std::time::Instant::now();
            read(pid, start as u64, &mut memory[into + behind..][..PIECE])?;
            *best = (*best).min(began.elapsed().as_nanos());
        }
    }
    Ok(best[0] > 2 * best[1])
}

/// Repeats `call(done, len, remote)` until `total` bytes are copied.
fn transfer(
    total: usize,
    addr: u64,
    mut call: impl FnMut(usize, usize, &libc::iovec) -> isize,
) -> io::Result<()> {
    let mut done = 0;
    while done < total {
        let len = (total - done).min(CHUNK);
        let at = addr.checked_add(done as u64).ok_or(io::ErrorKind::InvalidInput)?;
        let remote = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: len };
        match call(done, len, &remote) {
            n if n < 0 => return Err(io::Error::last_os_error()),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => done += (n as usize).min(len),
        }
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Returns `len` bytes of `memory` that follow `behind` by `distance`, modulo pages.
    fn after(memory: &mut [u8], behind: usize, distance: usize, len: usize) -> &mut [u8] {
        let at = memory.as_ptr().addr();
        &mut memory[behind.wrapping_add(distance).wrapping_sub(at) % PAGE..][..len]
    }

    #[test]
    fn detour__copies_the_same_bytes() {
        let pid = std::process::id() as i32;
        let source: Vec<u8> = (0..3 * PIECE + 77).map(|i| (i / 3) as u8).collect();
        let mut detour = Detour { pays: Some(true), ..Detour::default() };
        for distance in [0, 1, 16, 31, 32] {
            for len in [100, PAGE / 2, PIECE, PIECE + 1, source.len()] {
                let from = &source[..len];
                let (mut memory, at) = (vec![0; source.len() + PAGE], from.as_ptr().addr());
                let into = after(&mut memory, at, distance, len);
                detour.read(pid, at as u64, into).unwrap();
                assert!(into == from, "reading: {distance} {len}");
                into.fill(0);
                detour.write(pid, into.as_mut_ptr() as u64, from).unwrap();
                assert!(into == from, "writing: {distance} {len}");
            }
        }
        assert!(!detour.room.is_empty(), "some went by way of it");
    }

    #[test]
    fn detour__is_taken_as_the_processor_is_measured() {
        let pid = std::process::id() as i32;
        let (source, mut memory) = (vec![7; PIECE], vec![0; PIECE + PAGE]);
        let into = after(&mut memory, source.as_ptr().addr(), 16, PIECE);
        let mut detour = Detour::default();
        detour.read(pid, source.as_ptr().addr() as u64, into).unwrap();
        assert!(into == source);
        assert_eq!(detour.pays, Some(!detour.room.is_empty()));
        let mut straight = Detour { pays: Some(false), ..Detour::default() };
        into.fill(0);
        straight.write(pid, into.as_mut_ptr() as u64, &source).unwrap();
        assert!(into == source && straight.room.is_empty());
    }

    #[test]
    fn detour__fails_as_the_kernel_does() {
        let pid = std::process::id() as i32;
        let mut detour = Detour { pays: Some(true), ..Detour::default() };
        let mut memory = vec![0; PIECE + PAGE];
        for addr in [PAGE, usize::MAX - 100] {
            let bytes = after(&mut memory, addr, 1, PIECE);
            assert!(detour.read(pid, addr as u64, bytes).is_err());
            let bytes = after(&mut memory, addr, PAGE - 1, PIECE);
            assert!(detour.write(pid, addr as u64, bytes).is_err());
        }
    }
}

//! Copies between the memory of two processes.

use std::io;

/// Most bytes of one call: the kernel cuts longer ones.
const CHUNK: usize = 1 << 30;

/// Whether the kernel lets this process read the memory of `pid`: reading an address that is never
/// mapped then faults instead of being refused.
pub(in crate::shm) fn permitted(pid: i32) -> bool {
    let mut byte = [0];
    match read(pid, 0, &mut byte) {
        Ok(()) => true,
        Err(e) => e.raw_os_error() == Some(libc::EFAULT),
    }
}

/// Lets any process of this user read and write this one's memory where the Yama module restricts
/// that to ancestors (`kernel.yama.ptrace_scope` = 1). Fails where there is no Yama: not needed.
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

/// Repeats `call(done, len, remote)` until `total` bytes are through.
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

//! System calls for the checks.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// UDP's level and options of segmentation offload (linux/udp.h).
const SOL_UDP: libc::c_int = 17;
const UDP_SEGMENT: libc::c_int = 103;
const UDP_GRO: libc::c_int = 104;

fn set(fd: BorrowedFd<'_>, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `value`.
    let set =
        unsafe { libc::setsockopt(fd.as_raw_fd(), SOL_UDP, name, (&raw const value).cast(), len) };
    if set < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Checks that the kernel cuts long datagrams into segments (since Linux 4.18).
pub fn udp_gso(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, UDP_SEGMENT, 1200)
}

/// Checks that the kernel joins datagrams of a train (since Linux 5.0).
pub fn udp_gro(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, UDP_GRO, 1)
}

/// True if membarrier(2) offers the barriers that make waiting cheap.
pub fn barriers() -> bool {
    const GLOBAL_EXPEDITED: libc::c_long = 1 << 1;
    // SAFETY: the query passes no memory.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, 0, 0, 0) };
    commands >= 0 && commands & GLOBAL_EXPEDITED != 0
}

/// Checks if another process of this user may copy from this one's memory. A child tries it,
/// because this process is no descendant of the child: the same rule holds between ranks.
///
/// # Errors
/// The child could not be made, or its copy failed.
pub fn direct_copy() -> io::Result<()> {
    let word: u64 = 0x7765_6674;
    let addr = &raw const word;
    // SAFETY: no memory is passed; it fails where there is no Yama, and is not needed there.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
    // SAFETY: cannot fail.
    let parent = unsafe { libc::getpid() };
    // SAFETY: the child makes system calls only and ends with _exit.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        try_copy(parent, addr);
    }
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes one integer to `status`.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match libc::WEXITSTATUS(status) {
        _ if !libc::WIFEXITED(status) => Err(io::Error::other("the child was killed")),
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Copies a word of process `from`, and ends this process with the error number.
fn try_copy(from: libc::pid_t, addr: *const u64) -> ! {
    let mut copy: u64 = 0;
    let len = size_of::<u64>();
    let local = libc::iovec { iov_base: (&raw mut copy).cast(), iov_len: len };
    let remote = libc::iovec { iov_base: addr.cast_mut().cast(), iov_len: len };
    // SAFETY: the kernel writes at most 8 bytes to `copy` and checks the remote range.
    let got = unsafe { libc::process_vm_readv(from, &raw const local, 1, &raw const remote, 1, 0) };
    let code = if got == len as isize {
        0
    } else {
        io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
    };
    // SAFETY: ends the process at once, without the parent's exit handlers.
    unsafe { libc::_exit(code) }
}

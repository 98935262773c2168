//! Calls by their numbers: of syscall(2), and of the instruction itself.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// A result as the C library's functions return it.
fn check(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Makes a call by syscall(2). The arguments are those of the call; the caller's memory is lent.
pub fn call(number: libc::c_long, args: [usize; 6]) -> io::Result<usize> {
    let [a, b, c, d, e, f] = args;
    // SAFETY: the arguments of the tests, which name memory of theirs.
    check(unsafe { libc::syscall(number, a, b, c, d, e, f) })
}

/// Makes a call by the instruction, past every library.
#[cfg(target_arch = "aarch64")]
pub fn instruction(number: libc::c_long, args: [usize; 6]) -> io::Result<usize> {
    let [a, b, c, d, e, f] = args;
    let result: isize;
    // SAFETY: as above; the kernel keeps the registers that are not named.
    unsafe {
        std::arch::asm!(
            "svc 0",
            inlateout("x0") a as isize => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f, in("x8") number,
            options(nostack)
        );
    }
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result as i32))
}

/// Makes a call by the instruction, past every library.
#[cfg(target_arch = "x86_64")]
pub fn instruction(number: libc::c_long, args: [usize; 6]) -> io::Result<usize> {
    let [a, b, c, d, e, f] = args;
    let result: isize;
    // SAFETY: as above; the kernel keeps the registers that are not named.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result as i32))
}

/// The address of a value, as an argument.
pub fn at<T: ?Sized>(value: &mut T) -> usize {
    std::ptr::from_mut(value).cast::<u8>().addr()
}

/// The address and length of a part of memory, in the form of readv(2).
pub fn part(of: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: of.as_mut_ptr().cast(), iov_len: of.len() }
}

/// A message of one part.
pub fn message(part: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: all-zero is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (part, 1);
    message
}

/// A set of select(2) with one descriptor.
pub fn set_of(fd: RawFd) -> libc::fd_set {
    // SAFETY: all-zero is a valid value; the descriptor is a low one.
    unsafe {
        let mut set: libc::fd_set = std::mem::zeroed();
        libc::FD_SET(fd, &mut set);
        set
    }
}

/// A list of poll(2) with one descriptor.
pub fn poll_of(fd: &impl AsRawFd) -> [libc::pollfd; 1] {
    [libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }]
}

//! Control messages of a receive.

use std::io;
use std::os::fd::AsRawFd;

/// Receives into so much space; returns the bytes and the number that TCP_INQ tells.
pub fn recv_and_left(fd: &impl AsRawFd, space: usize) -> io::Result<(Vec<u8>, Option<i32>)> {
    let mut bytes = vec![0; space];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: space };
    let mut control = [0u64; 8];
    // SAFETY: all-zero is a valid value; the message names memory of this function.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let got = libc::recvmsg(fd.as_raw_fd(), &mut message, 0);
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        bytes.truncate(got);
        let head = libc::CMSG_FIRSTHDR(&message);
        let is_left = !head.is_null()
            && ((*head).cmsg_level, (*head).cmsg_type) == (libc::IPPROTO_TCP, libc::TCP_INQ);
        let left = is_left.then(|| libc::CMSG_DATA(head).cast::<i32>().read_unaligned());
        Ok((bytes, left))
    }
}

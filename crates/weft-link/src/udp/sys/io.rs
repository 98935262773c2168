//! Sending and receiving datagrams and trains of datagrams.

use super::{SockAddr, Socket};
use std::io;
use std::mem;

/// Room for control messages, aligned for the kernel.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// The result of one receive call: one datagram, or several of equal size (the last may be
/// shorter).
#[derive(Clone, Copy)]
pub struct Received {
    /// Length of all datagrams, bytes.
    pub len: usize,
    /// Size of each datagram.
    pub segment: usize,
    /// The sender.
    pub from: SockAddr,
}

impl Socket {
    /// Sends one datagram.
    #[inline]
    pub fn send_to(&self, bytes: &[u8], to: &SockAddr) -> io::Result<()> {
        self.send_one(bytes, Some(to))
    }

    /// Sends one datagram; without an address, to the address to which the socket is connected.
    #[inline]
    pub fn send_one(&self, bytes: &[u8], to: Option<&SockAddr>) -> io::Result<()> {
        let (fd, flags) = (self.raw(), libc::MSG_DONTWAIT);
        let data = bytes.as_ptr().cast();
        let (name, len) = to.map_or((std::ptr::null(), 0), |to| (to.as_ptr(), to.len()));
        // SAFETY: `bytes` and `to` are readable for their lengths.
        if unsafe { libc::sendto(fd, data, bytes.len(), flags, name, len) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Sends `bytes` in one call, as datagrams of `segment` bytes each; the last may be shorter.
    /// Without an address, sends to the address to which the socket is connected.
    pub fn send_train(&self, bytes: &[u8], segment: u16, to: Option<&SockAddr>) -> io::Result<()> {
        let data = bytes.as_ptr().cast_mut().cast();
        let mut iov = libc::iovec { iov_base: data, iov_len: bytes.len() };
        let mut control = Control([0; 64]);
        // SAFETY: all-zero is a valid msghdr.
        let mut msg: libc::msghdr = unsafe { mem::zeroed() };
        if let Some(to) = to {
            msg.msg_name = to.as_ptr().cast_mut().cast();
            msg.msg_namelen = to.len();
        }
        msg.msg_iov = &raw mut iov;
        msg.msg_iovlen = 1;
        msg.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the control buffer has room for one header with two bytes, and is aligned.
        unsafe {
            msg.msg_controllen = libc::CMSG_SPACE(mem::size_of::<u16>() as u32) as _;
            let head = libc::CMSG_FIRSTHDR(&raw const msg);
            (*head).cmsg_level = libc::SOL_UDP;
            (*head).cmsg_type = libc::UDP_SEGMENT;
            (*head).cmsg_len = libc::CMSG_LEN(mem::size_of::<u16>() as u32) as _;
            libc::CMSG_DATA(head).cast::<u16>().write_unaligned(segment);
        }
        // SAFETY: every pointer in `msg` is valid for the call; the kernel only reads.
        if unsafe { libc::sendmsg(self.raw(), &raw const msg, libc::MSG_DONTWAIT) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Receives into one buffer.
    #[inline]
    pub fn recv(&self, into: &mut [u8]) -> io::Result<Received> {
        let mut iov = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let mut from = SockAddr::empty();
        let mut control = mem::MaybeUninit::<Control>::uninit();
        // SAFETY: all-zero is a valid msghdr.
        let mut msg: libc::msghdr = unsafe { mem::zeroed() };
        msg.msg_name = from.as_mut_ptr().cast();
        msg.msg_namelen = from.len();
        msg.msg_iov = &raw mut iov;
        msg.msg_iovlen = 1;
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = mem::size_of::<Control>() as _;
        // SAFETY: every pointer in `msg` is valid and writable for the call.
        let n = unsafe { libc::recvmsg(self.raw(), &raw mut msg, libc::MSG_DONTWAIT) };
        let Ok(len) = usize::try_from(n) else { return Err(io::Error::last_os_error()) };
        let mut segment = len;
        // SAFETY: the kernel wrote `msg_controllen` bytes of control messages; the macros stay
        // within them.
        unsafe {
            let mut head = libc::CMSG_FIRSTHDR(&raw const msg);
            while !head.is_null() {
                if ((*head).cmsg_level, (*head).cmsg_type) == (libc::SOL_UDP, libc::UDP_GRO) {
                    let size = libc::CMSG_DATA(head).cast::<i32>().read_unaligned();
                    segment = usize::try_from(size).unwrap_or(0).clamp(1, len.max(1));
                }
                head = libc::CMSG_NXTHDR(&raw const msg, head);
            }
        }
        Ok(Received { len, segment, from })
    }
}

//! Messages of callers, and what stands beside their bytes.

use crate::guard::{copy, Caller};
use libc::{c_int, c_uint, iovec, mmsghdr, msghdr};

/// The parts of a message.
pub fn parts(message: &msghdr) -> Caller<iovec> {
    // SAFETY: a caller's message.
    unsafe { Caller::new(message.msg_iov) }
}

/// The length of a message of a list.
pub fn len_of(message: Caller<mmsghdr>) -> Caller<c_uint> {
    let at = message.at().cast::<u8>().wrapping_add(std::mem::offset_of!(mmsghdr, msg_len));
    // SAFETY: a part of a caller's message.
    unsafe { Caller::new(at.cast()) }
}

/// Calls `each` with the descriptors that a message carries from one process to another.
pub fn each_passed(message: &msghdr, mut each: impl FnMut(c_int)) {
    let (control, len) = (message.msg_control.cast::<u8>(), message.msg_controllen);
    // SAFETY: a caller's control messages, which can be read.
    unsafe {
        if control.is_null() || !Caller::new(control).is_readable(len) {
            return;
        }
        let mut head = libc::CMSG_FIRSTHDR(message);
        while !head.is_null() {
            let (bytes, at) = ((*head).cmsg_len as usize, head as usize - control as usize);
            // The kernel refuses the message where a length is none.
            let Some(bytes) = bytes.checked_sub(libc::CMSG_LEN(0) as usize) else { return };
            if bytes > len - at - libc::CMSG_LEN(0) as usize {
                return;
            }
            if (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(head).cast::<c_int>();
                (0..bytes / size_of::<c_int>()).for_each(|i| each(data.add(i).read_unaligned()));
            }
            head = libc::CMSG_NXTHDR(message, head);
        }
    }
}

/// Puts the number of bytes that are left (TCP_INQ) into a message with so much space for control
/// messages.
pub fn put_left(left: c_int, space: usize, message: &mut msghdr) {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Left(libc::cmsghdr, c_int);
    // SAFETY: computes lengths; all-zero is a valid value.
    let (len, all, mut head) = unsafe {
        (
            libc::CMSG_LEN(4) as usize,
            libc::CMSG_SPACE(4) as usize,
            std::mem::zeroed::<libc::cmsghdr>(),
        )
    };
    if space < len {
        message.msg_flags |= libc::MSG_CTRUNC;
        return;
    }
    head.cmsg_len = len as _;
    (head.cmsg_level, head.cmsg_type) = (libc::IPPROTO_TCP, libc::TCP_INQ);
    let both = Left(head, left);
    // SAFETY: the caller's space, which is as long.
    let is_put = unsafe { copy(message.msg_control.cast(), (&raw const both).cast(), len) };
    if is_put {
        message.msg_controllen = all.min(space) as _;
    }
}

//! Addresses of nothing, as arguments of calls.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Returns two pages of which the second is none.
pub fn half_a_map() -> usize {
    let (rights, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, of which the second page is made unreadable.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), 8192, rights, kind, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(at.add(4096), 4096, libc::PROT_NONE), 0);
        at.addr() + 4096
    }
}

/// A call with such an address.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    Recv,
    Readv,
    ReadvList,
    Recvmsg,
    Send,
    WritevList,
    Sendmsg,
    Poll,
    Select,
    Epoll(RawFd),
}

/// Makes a call with a bad address; returns its error.
pub fn error_of(call: Call, fd: RawFd, bad: usize) -> Option<i32> {
    let at = std::ptr::with_exposed_provenance_mut::<libc::c_void>(bad);
    let mut part = libc::iovec { iov_base: at, iov_len: 64 };
    // SAFETY: the addresses are bad ones, which these calls answer; else they are of this function.
    let result = unsafe {
        match call {
            Call::Recv => libc::recv(fd, at, 64, 0),
            Call::Readv => libc::readv(fd, &part, 1),
            Call::ReadvList => libc::readv(fd, at.cast(), 1),
            Call::Recvmsg => libc::recvmsg(fd, at.cast(), 0),
            Call::Send => libc::send(fd, at, 64, libc::MSG_NOSIGNAL),
            Call::WritevList => libc::writev(fd, at.cast(), 1),
            Call::Sendmsg => {
                let mut message: libc::msghdr = std::mem::zeroed();
                (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
                libc::sendmsg(fd, &message, libc::MSG_NOSIGNAL)
            }
            Call::Poll => libc::poll(at.cast(), 1, 0) as isize,
            Call::Select => {
                let none = std::ptr::null_mut();
                libc::select(fd + 1, at.cast(), none, none, none.cast()) as isize
            }
            Call::Epoll(set) => libc::epoll_wait(set, at.cast(), 1, 0) as isize,
        }
    };
    (result < 0).then(|| io::Error::last_os_error().raw_os_error()).flatten()
}

/// Holds all signals back in this thread, by the C library's function or by its number.
pub fn block_all(by_number: bool) {
    // SAFETY: all-zero is a valid set, which is filled; the kernel's sets have 8 bytes.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        let none = std::ptr::null_mut::<libc::sigset_t>();
        let failed = match by_number {
            true => libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &all, none, 8usize),
            false => libc::pthread_sigmask(libc::SIG_SETMASK, &all, none).into(),
        };
        assert_eq!(failed, 0);
    }
}

/// Passes a descriptor in a control message whose length is told so; returns the error.
pub fn pass_with_length(len: usize) -> Option<i32> {
    #[repr(C, align(8))]
    struct Control([u8; 24]);
    let (mut byte, mut control) = (0u8, Control([0; 24]));
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    // SAFETY: an all-zero message is valid; it points to live buffers.
    let result = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = size_of::<Control>() as _;
        let head = libc::CMSG_FIRSTHDR(&message);
        ((*head).cmsg_level, (*head).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        (*head).cmsg_len = len as _;
        libc::sendmsg(one.as_raw_fd(), &message, libc::MSG_NOSIGNAL)
    };
    (result < 0).then(|| io::Error::last_os_error().raw_os_error()).flatten()
}

/// Receives into the last bytes of a map and beyond; returns the number received.
pub fn recv_over_the_end(fd: RawFd, end: usize, room: usize) -> isize {
    let at = std::ptr::with_exposed_provenance_mut::<u8>(end).wrapping_sub(room);
    // SAFETY: the call answers what is no memory.
    unsafe { libc::recv(fd, at.cast(), 64, 0) }
}

/// Sets a handler of faults that ends the process with this status, by sigaction(2) or signal(2).
pub fn exit_at_a_fault(by_signal: bool) {
    extern "C" fn handler(_: i32) {
        // SAFETY: ends the process.
        unsafe { libc::_exit(7) };
    }
    let handler = handler as extern "C" fn(i32) as usize;
    // SAFETY: a handler that ends the process.
    unsafe {
        if by_signal {
            libc::signal(libc::SIGSEGV, handler);
            return;
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
        let mut seen: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGSEGV, std::ptr::null(), &mut seen);
        assert_eq!(seen.sa_sigaction, handler);
    }
}

/// Has faults end the process, as without a handler.
pub fn die_at_a_fault() {
    // SAFETY: no handler.
    unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
}

/// Reads an address.
pub fn read(at: usize) {
    let at = std::ptr::with_exposed_provenance::<u8>(at);
    // SAFETY: none; the process is to die of it.
    unsafe { at.read_volatile() };
}

/// Receives several messages with a time; returns the error, and what is left of the time.
pub fn recvmmsg(fd: RawFd, time: [i64; 2]) -> (Option<i32>, [i64; 2]) {
    let mut time = libc::timespec { tv_sec: time[0], tv_nsec: time[1] };
    let mut byte = 0u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all-zero is a valid value; a message with room for a byte.
    let got = unsafe {
        let mut one: libc::mmsghdr = std::mem::zeroed();
        (one.msg_hdr.msg_iov, one.msg_hdr.msg_iovlen) = (&mut part, 1);
        libc::recvmmsg(fd, &mut one, 1, 0, &mut time)
    };
    let error = (got < 0).then(|| io::Error::last_os_error().raw_os_error()).flatten();
    (error, [time.tv_sec, time.tv_nsec])
}

//! Calls of the C library that the standard library does not make, as safe functions.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// recv(2).
pub fn recv(fd: &impl AsRawFd, buf: &mut [u8], flags: i32) -> io::Result<usize> {
    // SAFETY: writable for its length.
    check(unsafe { libc::recv(fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len(), flags) })
}

/// read(2).
pub fn read(fd: RawFd, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: writable for its length.
    check(unsafe { libc::read(fd, buf.as_mut_ptr().cast(), buf.len()) })
}

/// write(2).
pub fn write(fd: RawFd, buf: &[u8]) -> io::Result<usize> {
    // SAFETY: readable for its length.
    check(unsafe { libc::write(fd, buf.as_ptr().cast(), buf.len()) })
}

/// send(2).
pub fn send(fd: &impl AsRawFd, buf: &[u8], flags: i32) -> io::Result<usize> {
    // SAFETY: readable for its length.
    check(unsafe { libc::send(fd.as_raw_fd(), buf.as_ptr().cast(), buf.len(), flags) })
}

/// recvmsg(2) into parts.
pub fn recvmsg(fd: &impl AsRawFd, parts: &mut [&mut [u8]], flags: i32) -> io::Result<usize> {
    let mut list: Vec<libc::iovec> = parts
        .iter_mut()
        .map(|p| libc::iovec { iov_base: p.as_mut_ptr().cast(), iov_len: p.len() })
        .collect();
    // SAFETY: all-zero is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (list.as_mut_ptr(), list.len() as _);
    // SAFETY: the message points to live, writable parts.
    check(unsafe { libc::recvmsg(fd.as_raw_fd(), &mut message, flags) })
}

/// sendmsg(2) of parts.
pub fn sendmsg(fd: &impl AsRawFd, parts: &[&[u8]], flags: i32) -> io::Result<usize> {
    let mut list: Vec<libc::iovec> = parts
        .iter()
        .map(|p| libc::iovec { iov_base: p.as_ptr().cast_mut().cast(), iov_len: p.len() })
        .collect();
    // SAFETY: all-zero is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (list.as_mut_ptr(), list.len() as _);
    // SAFETY: the message points to live parts.
    check(unsafe { libc::sendmsg(fd.as_raw_fd(), &message, flags) })
}

/// sendfile(2) of the first bytes of a file.
pub fn sendfile(to: &impl AsRawFd, from: &impl AsRawFd, len: usize) -> io::Result<usize> {
    let mut at = 0;
    // SAFETY: `at` is writable.
    check(unsafe { libc::sendfile(to.as_raw_fd(), from.as_raw_fd(), &mut at, len) })
}

/// splice(2).
pub fn splice(from: &impl AsRawFd, to: &impl AsRawFd, len: usize) -> io::Result<usize> {
    let none = std::ptr::null_mut();
    // SAFETY: null pointers: no positions.
    check(unsafe { libc::splice(from.as_raw_fd(), none, to.as_raw_fd(), none, len, 0) })
}

/// pipe(2).
pub fn pipe() -> (std::fs::File, std::fs::File) {
    use std::os::fd::FromRawFd;
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors, which nobody else has.
    unsafe {
        assert_eq!(libc::pipe(fds.as_mut_ptr()), 0);
        (std::fs::File::from_raw_fd(fds[0]), std::fs::File::from_raw_fd(fds[1]))
    }
}

/// poll(2) for something to read; the events that came.
pub fn poll_in(fd: &impl AsRawFd, timeout: i32) -> i16 {
    poll_for(fd, libc::POLLIN, timeout)
}

/// poll(2) for these events; those that came.
pub fn poll_for(fd: &impl AsRawFd, events: i16, timeout: i32) -> i16 {
    let mut one = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: one entry.
    let n = unsafe { libc::poll(&mut one, 1, timeout) };
    assert!(n >= 0 || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted);
    if n > 0 {
        one.revents
    } else {
        0
    }
}

/// select(2) for something to read.
pub fn select_in(fd: &impl AsRawFd) -> bool {
    // SAFETY: all-zero is a valid value; the descriptor is below the set's size.
    unsafe {
        let mut set: libc::fd_set = std::mem::zeroed();
        libc::FD_SET(fd.as_raw_fd(), &mut set);
        let null = std::ptr::null_mut();
        let n = libc::select(fd.as_raw_fd() + 1, &mut set, null, null, std::ptr::null_mut());
        n == 1 && libc::FD_ISSET(fd.as_raw_fd(), &set)
    }
}

/// An epoll set.
pub struct Epoll(RawFd);

impl Epoll {
    pub fn new() -> Epoll {
        // SAFETY: no memory is passed.
        Epoll(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
    }

    pub fn control(&self, what: i32, fd: RawFd, events: i32, data: u64) {
        let mut event = libc::epoll_event { events: events as u32, u64: data };
        // SAFETY: a valid event.
        let done = unsafe { libc::epoll_ctl(self.0, what, fd, &mut event) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
    }

    pub fn add(&self, fd: &impl AsRawFd, events: i32, data: u64) {
        self.control(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), events, data);
    }

    /// Waits; returns events and numbers.
    pub fn wait(&self, timeout: i32) -> Vec<(i32, u64)> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
        // SAFETY: room for 16 events.
        let n = unsafe { libc::epoll_wait(self.0, events.as_mut_ptr(), 16, timeout) };
        events[..n.max(0) as usize].iter().map(|e| (e.events as i32, e.u64)).collect()
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        // SAFETY: a descriptor of this object.
        unsafe { libc::close(self.0) };
    }
}

/// ioctl(2) with a number as the answer.
pub fn queue(fd: &impl AsRawFd, request: libc::c_ulong) -> i32 {
    let mut number = 0;
    // SAFETY: the number is writable.
    assert_eq!(unsafe { libc::ioctl(fd.as_raw_fd(), request, &mut number) }, 0);
    number
}

/// Bytes that the kernel's TCP received, as the kernel counts.
pub fn received(fd: &impl AsRawFd) -> u64 {
    let mut info = [0u8; 256];
    let mut len = info.len() as libc::socklen_t;
    let at = info.as_mut_ptr().cast();
    // SAFETY: writable for its length.
    let got = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, at, &mut len)
    };
    assert_eq!(got, 0);
    u64::from_ne_bytes(info[128..136].try_into().unwrap())
}

/// fork(2): runs `child` in the child, which ends with its result as the exit status. Returns the
/// child's number.
pub fn fork(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child of these tests calls nothing that another thread may hold a lock of.
    match unsafe { libc::fork() } {
        0 => {
            let status = child();
            // SAFETY: no memory is passed.
            unsafe { libc::_exit(status) }
        }
        child => {
            assert!(child > 0);
            child
        }
    }
}

/// Starts a program by fork(2) and an exec.
pub fn spawn(program: &str, argument: &str) -> std::process::Child {
    use std::os::unix::process::CommandExt;
    let mut command = std::process::Command::new(program);
    // SAFETY: nothing is done. With this the standard library does not use posix_spawn.
    unsafe { command.arg(argument).pre_exec(|| Ok(())) };
    command.spawn().unwrap()
}

/// waitpid(2); the exit status.
pub fn wait(child: i32) -> i32 {
    let mut status = 0;
    loop {
        // SAFETY: writable.
        let got = unsafe { libc::waitpid(child, &mut status, 0) };
        if got == child {
            return status;
        }
        assert_eq!(io::Error::last_os_error().kind(), io::ErrorKind::Interrupted);
    }
}

/// Kills a process of this test.
pub fn kill(process: i32) {
    // SAFETY: no memory is passed.
    unsafe { libc::kill(process, libc::SIGKILL) };
}

/// dup2(2).
pub fn dup2(from: RawFd, to: RawFd) {
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::dup2(from, to) }, to);
}

/// close(2); true if it worked.
pub fn close(fd: RawFd) -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::close(fd) == 0 }
}

/// Changes the mode of a descriptor.
pub fn set_nonblocking(fd: RawFd, on: bool) {
    // SAFETY: no memory is passed.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        let flags = if on { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
        assert_eq!(libc::fcntl(fd, libc::F_SETFL, flags), 0);
    }
}

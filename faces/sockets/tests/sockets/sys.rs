//! Calls of the C library that the standard library does not make, as safe functions.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

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
    splice_with(from, to, len, 0)
}

/// splice(2) with flags.
pub fn splice_with(
    from: &impl AsRawFd,
    to: &impl AsRawFd,
    len: usize,
    flags: u32,
) -> io::Result<usize> {
    let none = std::ptr::null_mut();
    // SAFETY: null pointers: no positions.
    check(unsafe { libc::splice(from.as_raw_fd(), none, to.as_raw_fd(), none, len, flags) })
}

/// pipe(2).
pub fn pipe() -> (std::fs::File, std::fs::File) {
    let mut fds = [0; 2];
    // SAFETY: space for two descriptors, which nobody else has.
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
    match try_poll(fd, events, timeout) {
        Ok(events) => events,
        Err(error) => {
            assert_eq!(error, libc::EINTR);
            0
        }
    }
}

/// poll(2) for something to read; the events that came, or the error's number.
pub fn try_poll_in(fd: &impl AsRawFd, timeout: i32) -> Result<i16, i32> {
    try_poll(fd, libc::POLLIN, timeout)
}

fn try_poll(fd: &impl AsRawFd, events: i16, timeout: i32) -> Result<i16, i32> {
    let mut one = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: one entry.
    match unsafe { libc::poll(&mut one, 1, timeout) } {
        ..0 => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        0 => Ok(0),
        _ => Ok(one.revents),
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
        self.try_wait(timeout).unwrap_or_default()
    }

    /// Waits; returns events and numbers, or the error.
    pub fn try_wait(&self, timeout: i32) -> io::Result<Vec<(i32, u64)>> {
        self.events(16, timeout)
    }

    /// Waits for at most so many events.
    pub fn wait_for(&self, most: usize) -> Vec<(i32, u64)> {
        self.events(most, -1).unwrap()
    }

    fn events(&self, most: usize, timeout: i32) -> io::Result<Vec<(i32, u64)>> {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; most];
        let (at, space) = (events.as_mut_ptr(), most as i32);
        // SAFETY: space for so many events.
        let n = check(unsafe { libc::epoll_wait(self.0, at, space, timeout) } as isize)?;
        Ok(events[..n].iter().map(|e| (e.events as i32, e.u64)).collect())
    }

    /// True if a wait without end, with no signal blocked, is interrupted.
    pub fn is_interrupted_without_mask(&self) -> bool {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: an all-zero mask is valid: none is blocked; space for an event.
        let n = unsafe {
            let mask: libc::sigset_t = std::mem::zeroed();
            libc::epoll_pwait(self.0, &mut event, 1, -1, &mask)
        };
        n < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    }

    /// Removes a descriptor, without an event.
    pub fn remove(&self, fd: RawFd) {
        let none = std::ptr::null_mut();
        // SAFETY: a removal reads no event.
        assert_eq!(unsafe { libc::epoll_ctl(self.0, libc::EPOLL_CTL_DEL, fd, none) }, 0);
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

/// Has one processor alone run this thread, and the processes that it starts.
pub fn pin() {
    // SAFETY: all-zero is an empty set, which is written and read for its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let len = size_of_val(&set);
        assert_eq!(libc::sched_getaffinity(0, len, &mut set), 0);
        let first = (0..8 * len).find(|&core| libc::CPU_ISSET(core, &set)).unwrap();
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(first, &mut set);
        assert_eq!(libc::sched_setaffinity(0, len, &set), 0);
    }
}

/// The processor time that this process has used, in milliseconds.
pub fn processor_ms() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is writable.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) }, 0);
    t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000
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

/// The thread that calls.
pub fn this_thread() -> libc::pthread_t {
    // SAFETY: no memory is passed.
    unsafe { libc::pthread_self() }
}

/// Sends a signal to a thread that lives.
pub fn signal_thread(thread: libc::pthread_t, signal: i32) {
    // SAFETY: the thread lives.
    assert_eq!(unsafe { libc::pthread_kill(thread, signal) }, 0);
}

/// Sends a signal to a process of this test.
pub fn signal_process(process: i32, signal: i32) {
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

extern "C" fn nothing(_: i32) {}

/// Handles a signal by doing nothing; calls that it interrupts are not restarted.
pub fn ignore_with_a_handler(signal: i32) {
    // SAFETY: all-zero is a valid value; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

/// Has a descriptor survive exec(2).
pub fn keep_at_exec(fd: RawFd) {
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }, 0);
}

/// Returns the stream of a descriptor that nobody else has.
pub fn stream_of(fd: RawFd) -> TcpStream {
    // SAFETY: the caller's descriptor.
    unsafe { TcpStream::from_raw_fd(fd) }
}

/// execl(3) with three words; returns if it fails.
pub fn execl(program: &str, first: &str, second: &str, third: &str) -> i32 {
    let text = |text: &str| std::ffi::CString::new(text).unwrap();
    let (path, one, two, three) = (text(program), text(first), text(second), text(third));
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: C strings, and a null pointer at the end.
    unsafe { libc::execl(path.as_ptr(), one.as_ptr(), two.as_ptr(), three.as_ptr(), none) }
}

extern "C" {
    fn dprintf(fd: RawFd, format: *const libc::c_char, ...) -> i32;
}

/// dprintf(3) of ten bytes.
pub fn dprintf_ten(fd: RawFd, bytes: &[u8]) {
    let b: [libc::c_int; 10] = std::array::from_fn(|i| bytes[i].into());
    let format = c"%c%c%c%c%c%c%c%c%c%c".as_ptr();
    // SAFETY: the format has ten bytes.
    let n =
        unsafe { dprintf(fd, format, b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9]) };
    assert_eq!(n, 10);
}

/// A stream of the C library writes bytes and is closed.
pub fn fwrite_and_close(stream: TcpStream, bytes: &[u8]) {
    use std::os::fd::IntoRawFd;
    // SAFETY: the descriptor becomes the stream's; the bytes are readable.
    unsafe {
        let file = libc::fdopen(stream.into_raw_fd(), c"w".as_ptr());
        assert!(!file.is_null());
        assert_eq!(libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), file), bytes.len());
        assert_eq!(libc::fclose(file), 0);
    }
}

/// Reads so many bytes by a stream of the C library, and closes it.
pub fn fread_and_close(stream: TcpStream, len: usize) -> Vec<u8> {
    use std::os::fd::IntoRawFd;
    let mut bytes = vec![0; len];
    // SAFETY: the descriptor becomes the stream's; the bytes are writable. Without a buffer the C
    // library reads no more than is asked for.
    unsafe {
        let file = libc::fdopen(stream.into_raw_fd(), c"r".as_ptr());
        assert!(!file.is_null());
        libc::setvbuf(file, std::ptr::null_mut(), libc::_IONBF, 0);
        assert_eq!(libc::fread(bytes.as_mut_ptr().cast(), 1, len, file), len);
        assert_eq!(libc::fclose(file), 0);
    }
    bytes
}

/// A Unix socket of a number that this process owns.
pub fn unix_of(fd: RawFd) -> std::os::unix::net::UnixStream {
    // SAFETY: the caller's descriptor.
    unsafe { std::os::unix::net::UnixStream::from_raw_fd(fd) }
}

/// readv(2).
pub fn readv(fd: &impl AsRawFd, parts: &mut [&mut [u8]]) -> io::Result<usize> {
    let list: Vec<libc::iovec> = parts
        .iter_mut()
        .map(|p| libc::iovec { iov_base: p.as_mut_ptr().cast(), iov_len: p.len() })
        .collect();
    // SAFETY: live, writable parts.
    check(unsafe { libc::readv(fd.as_raw_fd(), list.as_ptr(), list.len() as i32) })
}

/// preadv2(2) of one part, at no place.
pub fn preadv2(fd: &impl AsRawFd, to: &mut [u8]) -> io::Result<usize> {
    let part = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    // SAFETY: a live, writable part.
    check(unsafe { libc::preadv2(fd.as_raw_fd(), &part, 1, -1, 0) })
}

/// pwritev2(2) of one part, at no place.
pub fn pwritev2(fd: &impl AsRawFd, from: &[u8]) -> io::Result<usize> {
    let part = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    // SAFETY: a live part.
    check(unsafe { libc::pwritev2(fd.as_raw_fd(), &part, 1, -1, 0) })
}

/// writev(2).
pub fn writev(fd: &impl AsRawFd, parts: &[&[u8]]) -> io::Result<usize> {
    let list: Vec<libc::iovec> = parts
        .iter()
        .map(|p| libc::iovec { iov_base: p.as_ptr().cast_mut().cast(), iov_len: p.len() })
        .collect();
    // SAFETY: live parts.
    check(unsafe { libc::writev(fd.as_raw_fd(), list.as_ptr(), list.len() as i32) })
}

/// sendmmsg(2); the messages sent.
pub fn sendmmsg(fd: &impl AsRawFd, messages: &[&[u8]]) -> io::Result<usize> {
    let mut parts: Vec<libc::iovec> = messages
        .iter()
        .map(|p| libc::iovec { iov_base: p.as_ptr().cast_mut().cast(), iov_len: p.len() })
        .collect();
    let mut list = heads(&mut parts);
    // SAFETY: live parts.
    let n = unsafe { libc::sendmmsg(fd.as_raw_fd(), list.as_mut_ptr(), list.len() as u32, 0) };
    check(n as isize)
}

/// recvmmsg(2) of so many messages of at most `len` bytes; the bytes of all.
pub fn recvmmsg(fd: &impl AsRawFd, n: usize, len: usize, flags: i32) -> io::Result<Vec<u8>> {
    let mut space = vec![vec![0u8; len]; n];
    let mut parts: Vec<libc::iovec> = space
        .iter_mut()
        .map(|p| libc::iovec { iov_base: p.as_mut_ptr().cast(), iov_len: p.len() })
        .collect();
    let mut list = heads(&mut parts);
    let none = std::ptr::null_mut();
    // SAFETY: live, writable parts.
    let got = unsafe { libc::recvmmsg(fd.as_raw_fd(), list.as_mut_ptr(), n as u32, flags, none) };
    let got = check(got as isize)?;
    let each = space.iter().zip(&list[..got]).map(|(bytes, m)| &bytes[..m.msg_len as usize]);
    Ok(each.collect::<Vec<_>>().concat())
}

fn heads(parts: &mut [libc::iovec]) -> Vec<libc::mmsghdr> {
    let head = |part: &mut libc::iovec| {
        // SAFETY: all-zero is a valid value.
        let mut one: libc::mmsghdr = unsafe { std::mem::zeroed() };
        (one.msg_hdr.msg_iov, one.msg_hdr.msg_iovlen) = (part, 1);
        one
    };
    parts.iter_mut().map(head).collect()
}

/// Allows this process so many descriptors.
pub fn allow_descriptors(most: u64) {
    // SAFETY: an all-zero value is valid, and is written and read for its size.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = most.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}

/// Copies a descriptor to a number from this one on.
pub fn dup_from(fd: RawFd, from: i32) -> RawFd {
    // SAFETY: no memory is passed.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, from) };
    assert!(copy >= from, "{}", io::Error::last_os_error());
    copy
}

/// select(2) for something to read from a descriptor below 4096.
pub fn select_wide(fd: RawFd) -> bool {
    let mut bits = [0u64; 64];
    bits[fd as usize / 64] |= 1 << (fd % 64);
    let none = std::ptr::null_mut();
    // SAFETY: the set has as many bits as the call is told of.
    let n =
        unsafe { libc::select(fd + 1, bits.as_mut_ptr().cast(), none, none, std::ptr::null_mut()) };
    n == 1 && bits[fd as usize / 64] >> (fd % 64) & 1 == 1
}

/// close_range(2).
pub fn close_range(first: i32, last: i32) {
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::close_range(first as u32, last as u32, 0) }, 0);
}

extern "C" {
    fn closefrom(first: i32);
}

/// closefrom(3).
pub fn close_from(first: i32) {
    // SAFETY: no memory is passed.
    unsafe { closefrom(first) };
}

static SEEN: AtomicU64 = AtomicU64::new(0);

/// A child by vfork(2) writes to the memory of its parent, has a shell write to the descriptor, and
/// ends. Returns the child and what it wrote.
#[allow(deprecated)]
pub fn vfork_and_become(fd: RawFd, script: &str, number: u64) -> (i32, u64) {
    let text = |text: &str| std::ffi::CString::new(text).unwrap();
    let (path, flag, script) = (text("/bin/sh"), text("-c"), text(script));
    let words = [path.as_ptr(), flag.as_ptr(), script.as_ptr(), std::ptr::null()];
    // SAFETY: the child calls what it may; C strings, and a null pointer at the end.
    unsafe {
        match libc::vfork() {
            0 => {
                SEEN.store(number, Ordering::Relaxed);
                libc::dup2(fd, 1);
                libc::close(fd);
                libc::execv(path.as_ptr(), words.as_ptr());
                libc::_exit(1)
            }
            child => (child, SEEN.load(Ordering::Relaxed)),
        }
    }
}

/// A child by vfork(2) closes a descriptor and ends.
#[allow(deprecated)]
pub fn vfork_and_close(fd: RawFd) -> i32 {
    // SAFETY: the child calls what it may.
    unsafe {
        match libc::vfork() {
            0 => libc::_exit(libc::close(fd)),
            child => child,
        }
    }
}

static READER: AtomicI32 = AtomicI32::new(0);

extern "C-unwind" fn reads(fd: *mut libc::c_void) -> *mut libc::c_void {
    let mut byte = 0u8;
    // SAFETY: space for a byte.
    unsafe {
        READER.store(libc::gettid(), Ordering::Release);
        libc::read(fd as usize as i32, (&raw mut byte).cast(), 1);
    }
    std::ptr::null_mut()
}

extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> i32;
}

/// A thread begins to read, and is cancelled while it sleeps.
pub fn cancel_a_reader(fd: RawFd) {
    READER.store(0, Ordering::Release);
    type Start = extern "C" fn(*mut libc::c_void) -> *mut libc::c_void;
    // SAFETY: the thread's function may be unwound; it is joined before this one returns.
    unsafe {
        let start = std::mem::transmute::<*const (), Start>(reads as *const ());
        let mut thread = 0;
        let made =
            libc::pthread_create(&mut thread, std::ptr::null(), start, fd as usize as *mut _);
        assert_eq!(made, 0);
        loop {
            let name = format!("/proc/self/task/{}/stat", READER.load(Ordering::Acquire));
            if std::fs::read_to_string(name).is_ok_and(|stat| stat.contains(") S ")) {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(pthread_cancel(thread), 0);
        assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
    }
}

/// Space for a control message of a descriptor.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Passes a descriptor to another process.
///
/// # Errors
/// The error of the C library.
pub fn try_pass(to: &impl AsRawFd, fd: RawFd) -> Result<(), i32> {
    let (mut byte, mut control) = (0u8, Control([0; 64]));
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: an all-zero message is valid; it points to live buffers with space for a descriptor.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        let head = libc::CMSG_FIRSTHDR(&message);
        ((*head).cmsg_level, (*head).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        (*head).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(head).cast::<RawFd>().write_unaligned(fd);
        libc::sendmsg(to.as_raw_fd(), &message, 0)
    };
    match sent {
        1 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
    }
}

/// Passes a descriptor to a process that takes it.
pub fn pass(to: &impl AsRawFd, fd: RawFd) {
    assert_eq!(try_pass(to, fd), Ok(()));
}

/// Receives the descriptor of a stream.
pub fn take(from: &impl AsRawFd) -> TcpStream {
    let (mut byte, mut control) = (0u8, Control([0; 64]));
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: as above; the descriptor is new.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        assert_eq!(libc::recvmsg(from.as_raw_fd(), &mut message, 0), 1);
        let head = libc::CMSG_FIRSTHDR(&message);
        assert!(!head.is_null());
        TcpStream::from_raw_fd(libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned())
    }
}

/// Fills a pipe; the bytes that it took.
pub fn fill(pipe: &mut std::fs::File) -> usize {
    use std::io::Write;
    set_nonblocking(pipe.as_raw_fd(), true);
    let mut space = 0;
    while let Ok(n) = pipe.write(&[0; 4096]) {
        space += n;
    }
    set_nonblocking(pipe.as_raw_fd(), false);
    space
}

/// shutdown(2) of both directions.
pub fn shutdown(fd: &impl AsRawFd) {
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) }, 0);
}

/// Sets an option that is a number.
pub fn set_option(fd: RawFd, level: i32, name: i32, value: i32) {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value of this length.
    let set = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) };
    assert_eq!(set, 0);
}

fn address(port: u16) -> (libc::sockaddr_in, libc::socklen_t) {
    // SAFETY: all-zero is a valid value.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::AF_INET as libc::sa_family_t;
    address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
    address.sin_port = port.to_be();
    (address, size_of::<libc::sockaddr_in>() as libc::socklen_t)
}

/// Connects to a port of this host, after something was done with the socket.
pub fn dial_in_steps(port: u16, kind: i32, before: impl FnOnce(RawFd)) -> TcpStream {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | kind;
    // SAFETY: no memory is passed; nobody else has the descriptor.
    let stream = unsafe { TcpStream::from_raw_fd(libc::socket(libc::AF_INET, kind, 0)) };
    before(stream.as_raw_fd());
    let (to, len) = address(port);
    // SAFETY: an address of this length.
    let done = unsafe { libc::connect(stream.as_raw_fd(), (&raw const to).cast(), len) };
    if done != 0 {
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EINPROGRESS));
        assert_eq!(poll_for(&stream, libc::POLLOUT, -1), libc::POLLOUT);
    }
    stream
}

/// Connects to a port of this host, always from one port of its own.
pub fn dial_from_one_port(port: u16) -> TcpStream {
    static OWN: AtomicI32 = AtomicI32::new(0);
    let stream = dial_in_steps(port, 0, |fd| {
        set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
        let (own, len) = address(OWN.load(Ordering::Relaxed) as u16);
        // SAFETY: an address of this length.
        assert_eq!(unsafe { libc::bind(fd, (&raw const own).cast(), len) }, 0);
    });
    OWN.store(stream.local_addr().unwrap().port().into(), Ordering::Relaxed);
    stream
}

/// Returns the number of descriptors that a process may allow itself.
pub fn most_descriptors() -> u64 {
    // SAFETY: an all-zero value is valid, and is written for its size.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_max
    }
}

/// Forgets all variables of the environment.
pub fn clear_environment() {
    // SAFETY: the other thread of this program waits.
    unsafe { libc::clearenv() };
}

/// Connects two addresses of IPv4.
pub fn dial_from(from: std::net::SocketAddrV4, to: std::net::SocketAddrV4) -> TcpStream {
    let of = |one: std::net::SocketAddrV4| {
        // SAFETY: all-zero is a valid value.
        let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = one.port().to_be();
        address.sin_addr.s_addr = u32::from_ne_bytes(one.ip().octets());
        address
    };
    let ((from, to), len) = ((of(from), of(to)), size_of::<libc::sockaddr_in>() as u32);
    // SAFETY: addresses of this length; the descriptor is new.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0);
        assert_eq!(libc::bind(fd, (&raw const from).cast(), len), 0);
        assert_eq!(libc::connect(fd, (&raw const to).cast(), len), 0);
        TcpStream::from_raw_fd(fd)
    }
}

/// Shared memory that can shrink.
pub fn unsealed_memory(len: usize) -> OwnedFd {
    // SAFETY: the name is a C string; the descriptor is new.
    unsafe {
        let fd = libc::memfd_create(c"weft-sockets-test".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0 && libc::ftruncate(fd, len as libc::off_t) == 0);
        OwnedFd::from_raw_fd(fd)
    }
}

/// Shared memory of a test, which is mapped for good.
pub struct Mapped(*mut u8, usize);

impl Mapped {
    pub fn of(memory: &OwnedFd, len: usize) -> Mapped {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let (none, fd) = (std::ptr::null_mut(), memory.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(none, len, rights, libc::MAP_SHARED, fd, 0) };
        assert!(at != libc::MAP_FAILED);
        Mapped(at.cast(), len)
    }

    /// The word at this offset.
    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= self.1 && at.is_multiple_of(8));
        // SAFETY: within the mapping, which stays; all values are valid.
        unsafe { &*self.0.add(at).cast() }
    }
}

/// Blocks a signal in this thread.
pub fn block(signal: i32) {
    // SAFETY: an all-zero set is valid.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()), 0);
    }
}

/// True if a ppoll(2) without end, with no signal blocked, is interrupted.
pub fn is_poll_interrupted_without_mask(fd: &impl AsRawFd) -> bool {
    let mut one = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: an all-zero mask is valid: none is blocked; one entry.
    let n = unsafe {
        let mask: libc::sigset_t = std::mem::zeroed();
        libc::ppoll(&mut one, 1, std::ptr::null(), &mask)
    };
    n < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
}

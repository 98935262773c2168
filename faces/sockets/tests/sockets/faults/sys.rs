//! Addresses of nothing, as arguments of calls.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

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
pub fn recv_over_the_end(fd: RawFd, end: usize, space: usize) -> isize {
    let at = std::ptr::with_exposed_provenance_mut::<u8>(end).wrapping_sub(space);
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
    // SAFETY: all-zero is a valid value; a message with space for a byte.
    let got = unsafe {
        let mut one: libc::mmsghdr = std::mem::zeroed();
        (one.msg_hdr.msg_iov, one.msg_hdr.msg_iovlen) = (&mut part, 1);
        libc::recvmmsg(fd, &mut one, 1, 0, &mut time)
    };
    let error = (got < 0).then(|| io::Error::last_os_error().raw_os_error()).flatten();
    (error, [time.tv_sec, time.tv_nsec])
}

/// A way for a handler to run while the signals of faults are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InHandler {
    /// Its mask has them.
    Mask,
    /// Its mask has them, and was set by the number of the call.
    Number,
    /// The handler runs in a wait that holds them back.
    Wait,
    /// The handler is that of a fault.
    Fault,
}

static CONNECTION: AtomicI32 = AtomicI32::new(-1);
static ADDRESS: AtomicUsize = AtomicUsize::new(0);
static ERROR: AtomicI32 = AtomicI32::new(0);

extern "C" fn receives_to_nothing(signal: libc::c_int) {
    let (fd, bad) = (CONNECTION.load(Ordering::Relaxed), ADDRESS.load(Ordering::Relaxed));
    ERROR.store(error_of(Call::Recv, fd, bad).unwrap_or(0), Ordering::Relaxed);
    if signal == libc::SIGSEGV {
        // The fault is over.
        let (rights, size) = (libc::PROT_READ, 4096);
        // SAFETY: a page of a map of this test.
        unsafe { libc::mprotect(std::ptr::with_exposed_provenance_mut(bad), size, rights) };
    }
}

/// Makes a call with a bad address in a handler; returns its error.
pub fn error_in_handler(way: InHandler, fd: RawFd, bad: usize) -> Option<i32> {
    let of_fault = if way == InHandler::Fault { half_a_map() } else { bad };
    CONNECTION.store(fd, Ordering::Relaxed);
    ADDRESS.store(of_fault, Ordering::Relaxed);
    let handler = receives_to_nothing as extern "C" fn(libc::c_int) as usize;
    let signal = if way == InHandler::Fault { libc::SIGSEGV } else { libc::SIGUSR1 };
    // SAFETY: a handler that stores numbers and makes a call; all-zero is a valid value, and the
    // sets are written.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        if way == InHandler::Mask {
            action.sa_mask = all;
        }
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
        let mut seen: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, std::ptr::null(), &mut seen), 0);
        assert_eq!((seen.sa_sigaction, seen.sa_flags & libc::SA_SIGINFO), (handler, 0));
        match way {
            InHandler::Mask => assert_eq!(libc::raise(signal), 0),
            InHandler::Number => {
                // Handler, flags, the function that returns, mask: as the kernel has it.
                let mut of_kernel = [0usize; 4];
                let none = std::ptr::null_mut::<usize>();
                let number = libc::SYS_rt_sigaction;
                assert_eq!(libc::syscall(number, signal, none, &raw mut of_kernel, 8usize), 0);
                assert_eq!(of_kernel[0], handler);
                of_kernel[3] = usize::MAX;
                assert_eq!(libc::syscall(number, signal, &raw const of_kernel, none, 8usize), 0);
                assert_eq!(libc::raise(signal), 0);
            }
            InHandler::Wait => {
                let mut one: libc::sigset_t = std::mem::zeroed();
                libc::sigaddset(&mut one, signal);
                libc::pthread_sigmask(libc::SIG_BLOCK, &one, std::ptr::null_mut());
                assert_eq!(libc::raise(signal), 0);
                libc::sigdelset(&mut all, signal);
                let mut none = libc::pollfd { fd: -1, events: 0, revents: 0 };
                assert_eq!(libc::ppoll(&mut none, 1, std::ptr::null(), &all), -1);
                libc::pthread_sigmask(libc::SIG_UNBLOCK, &one, std::ptr::null_mut());
            }
            InHandler::Fault => read(of_fault),
        }
        assert_eq!(libc::signal(signal, libc::SIG_DFL), handler);
    }
    Some(ERROR.load(Ordering::Relaxed)).filter(|error| *error != 0)
}

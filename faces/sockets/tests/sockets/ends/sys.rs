//! Calls that end by a signal, by another thread, or by wrong arguments.
#![allow(unsafe_code)]

use libc::c_int;
use std::io::Error;
use std::mem::zeroed;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

extern "C" fn nothing(_: c_int) {}

/// Has SIGALRM call a function that does nothing, and end calls.
pub fn handle_alarms() {
    // SAFETY: all-zero is a valid value; a function that may be called in a handler.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()), 0);
    }
}

/// The number of this thread.
pub fn this_task() -> i32 {
    // SAFETY: no memory is passed.
    unsafe { libc::gettid() }
}

/// A thread of this process, as the kernel shows it.
pub struct Task(String);

/// Returns the state of a thread.
pub fn task(number: i32) -> Task {
    Task(std::fs::read_to_string(format!("/proc/self/task/{number}/status")).unwrap())
}

impl Task {
    fn line(&self, name: &str) -> &str {
        self.0.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim()
    }

    /// True if it sleeps, and no signal is held back.
    pub fn is_asleep(&self) -> bool {
        self.line("State:").starts_with('S') && !self.has("SigBlk:")
    }

    /// True if SIGALRM is in a set.
    fn has(&self, name: &str) -> bool {
        let set = u64::from_str_radix(self.line(name), 16).unwrap();
        set >> (libc::SIGALRM - 1) & 1 != 0
    }
}

/// The part of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The wait looks, and holds signals back.
    Look,
    /// The wait sleeps.
    Sleep,
}

/// A thread that sends this one SIGALRM in one phase of the wait that follows.
pub struct Alarm {
    has_ended: Arc<AtomicBool>,
    thread: JoinHandle<bool>,
}

impl Alarm {
    pub fn begin(phase: Phase) -> Alarm {
        // SAFETY: no memory is passed.
        let (to, number) = (unsafe { libc::pthread_self() }, this_task());
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = has_ended.clone();
        // The C library holds signals back while it makes a thread.
        let (begins, is_begun) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            is_begun.recv().unwrap();
            let mut is_known = None;
            while !ended.load(Ordering::Acquire) {
                let now = task(number);
                // One that is too late, or whose moment is not known, ends a wait for nothing.
                let looks = phase == Phase::Look && is_known.is_none() && now.has("SigBlk:");
                let is_time = looks || now.is_asleep();
                if is_time && is_known != Some(true) {
                    // SAFETY: the thread waits for this one.
                    unsafe { libc::pthread_kill(to, libc::SIGALRM) };
                    let then = task(number);
                    let is_held = then.has("SigBlk:") && then.has("SigPnd:");
                    is_known = Some(phase == Phase::Sleep || is_held);
                }
                std::thread::yield_now();
            }
            is_known == Some(true)
        });
        begins.send(()).unwrap();
        Alarm { has_ended, thread }
    }

    /// The wait has ended. True if the signal came in the phase, for certain.
    pub fn end(self) -> bool {
        self.has_ended.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

/// Ends this process after so many seconds.
pub fn end_in(seconds: u32) {
    // SAFETY: no memory is passed.
    unsafe { libc::alarm(seconds) };
}

/// The result of a call, or its error.
fn result(n: isize) -> Result<isize, i32> {
    match n {
        0.. => Ok(n),
        _ => Err(Error::last_os_error().raw_os_error().unwrap()),
    }
}

/// Time of a wait, in milliseconds.
const MS: c_int = 5000;

/// Waits for a byte, in one of several ways, for `MS` at most (a receive: for the socket's time).
pub fn wait(way: &str, fd: RawFd, set: RawFd) -> Result<isize, i32> {
    let mut byte = 0u8;
    // SAFETY: space for what the calls write; all-zero is a valid value.
    result(unsafe {
        match way {
            "recv" => libc::recv(fd, (&raw mut byte).cast(), 1, 0),
            "read" => libc::read(fd, (&raw mut byte).cast(), 1),
            "poll" => {
                let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                libc::poll(&mut one, 1, MS) as isize
            }
            "select" => select(fd, &mut libc::timeval { tv_sec: 0, tv_usec: i64::from(MS) * 1000 }),
            _ => {
                let mut event: libc::epoll_event = zeroed();
                libc::epoll_wait(set, &mut event, 1, MS) as isize
            }
        }
    })
}

/// select(2) of one descriptor.
///
/// # Safety
/// The caller keeps the rules of the C library's select.
unsafe fn select(fd: RawFd, time: &mut libc::timeval) -> isize {
    // SAFETY: all-zero is an empty set.
    unsafe {
        let mut all: libc::fd_set = zeroed();
        libc::FD_SET(fd, &mut all);
        let none = std::ptr::null_mut();
        libc::select(fd + 1, &mut all, none, none, time) as isize
    }
}

/// Waits for a byte by select(2), for 5 s at most; returns the microseconds that are left.
pub fn select_left(fd: RawFd) -> i64 {
    let mut time = libc::timeval { tv_sec: 5, tv_usec: 0 };
    // SAFETY: a valid time.
    assert_eq!(unsafe { select(fd, &mut time) }, 1);
    time.tv_sec * 1_000_000 + time.tv_usec
}

/// Waits with arguments that are wrong, while a byte is there; returns the errors.
pub fn wrong_waits(fd: RawFd, set: RawFd) -> [Result<isize, i32>; 3] {
    // SAFETY: all-zero is a valid value; the kernel refuses the rest before it writes.
    unsafe {
        let mut event: libc::epoll_event = zeroed();
        let many = libc::epoll_wait(set, &mut event, 1 << 30, 100) as isize;
        let many = result(many);
        let less = result(select(fd, &mut libc::timeval { tv_sec: 1, tv_usec: -5 }));
        let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let time = libc::timespec { tv_sec: 0, tv_nsec: 2_000_000_000 };
        [many, less, result(libc::ppoll(&mut one, 1, &time, std::ptr::null()) as isize)]
    }
}

/// TCP_NODELAY as the kernel has it.
pub fn nodelay(fd: RawFd) -> bool {
    let (mut value, mut len) = (0 as c_int, size_of::<c_int>() as libc::socklen_t);
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_NODELAY);
    let (value_at, len_at) =
        ((&raw mut value).expose_provenance(), (&raw mut len).expose_provenance());
    let args = [fd as usize, level as usize, name as usize, value_at, len_at, 0];
    // Past the library.
    let got = crate::numbers::sys::instruction(libc::SYS_getsockopt, args);
    assert_eq!(got.unwrap(), 0);
    value != 0
}

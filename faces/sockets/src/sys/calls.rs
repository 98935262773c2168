//! Calls of the kernel on descriptors, processes and signals, behind a safe interface.

use super::real;
use libc::{c_int, c_long, c_uint, c_void, pid_t};
use std::ffi::CStr;
use std::mem::zeroed;
use std::os::fd::RawFd;

/// Number of F_SETSIG on all machines that this library is built for.
const F_SETSIG: c_int = 10;

/// Returns the number of this process.
pub fn process() -> pid_t {
    // SAFETY: no memory is passed.
    unsafe { libc::getpid() }
}

/// Returns the number of the parent process; 0: it is in another namespace.
pub fn parent() -> pid_t {
    // SAFETY: no memory is passed.
    unsafe { libc::getppid() }
}

/// Returns the number of the group of this process.
pub fn group() -> pid_t {
    // SAFETY: no memory is passed.
    unsafe { libc::getpgrp() }
}

/// Returns the number of this thread.
pub fn thread() -> u32 {
    // SAFETY: no memory is passed.
    unsafe { libc::gettid() as u32 }
}

/// True if a process of this number exists.
pub fn lives(process: pid_t) -> bool {
    // SAFETY: signal 0 is only checked.
    unsafe { libc::kill(process, 0) == 0 || real::errno() != libc::ESRCH }
}

/// True if a thread of this number exists.
pub fn thread_lives(thread: u32) -> bool {
    // SAFETY: signal 0 is only checked.
    let sent = unsafe { real::syscall(libc::SYS_tkill, c_long::from(thread), 0, 0, 0, 0, 0) };
    sent == 0 || real::errno() != libc::ESRCH
}

/// Makes a call of membarrier(2). False if the kernel refuses it.
pub fn membarrier(command: c_long) -> bool {
    // SAFETY: no memory is passed.
    unsafe { real::syscall(libc::SYS_membarrier, command, 0, 0, 0, 0, 0) == 0 }
}

/// Returns the number of processors that are in use.
pub fn processors() -> c_long {
    // SAFETY: no memory is passed.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }
}

/// Returns the only processor that may run this thread. `None`: there are several.
pub fn only_processor() -> Option<u32> {
    // SAFETY: all-zero is an empty set, and written for its size; numbers are within it.
    unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        let is_known = libc::sched_getaffinity(0, size_of_val(&set), &mut set) == 0;
        if !is_known || libc::CPU_COUNT(&set) != 1 {
            return None;
        }
        (0..8 * size_of_val(&set)).find(|&core| libc::CPU_ISSET(core, &set)).map(|core| core as u32)
    }
}

/// True if the rights of this process are those of its user.
pub fn has_own_rights() -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::getuid() == libc::geteuid() && libc::getgid() == libc::getegid() }
}

/// Returns the most descriptors of this process, or 0 if that is not known.
pub fn most_descriptors() -> usize {
    // SAFETY: all-zero is a valid value, written for its size.
    unsafe {
        let mut limit: libc::rlimit = zeroed();
        match libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) {
            0 => limit.rlim_cur as usize,
            _ => 0,
        }
    }
}

/// Returns a variable of the environment. The value stays while the environment does.
pub fn text_of(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name is a C string; other threads do not change the environment meanwhile, as for
    // execvp(3).
    unsafe { libc::getenv(name.as_ptr()).as_ref().map(|at| CStr::from_ptr(at).to_bytes()) }
}

/// Returns a variable of the environment, unless it is empty.
pub fn variable(name: &CStr) -> Option<&'static [u8]> {
    text_of(name).filter(|value| !value.is_empty())
}

/// Returns the name of this library's file, as the loader knows it.
pub fn own_name() -> Option<&'static CStr> {
    // SAFETY: all-zero is a valid value; the address is one of this library. Its name stays.
    unsafe {
        let mut info: libc::Dl_info = zeroed();
        let found = libc::dladdr(own_name as *const c_void, &mut info);
        (found != 0 && !info.dli_fname.is_null()).then(|| CStr::from_ptr(info.dli_fname))
    }
}

/// Returns what the kernel knows of the file behind a descriptor.
pub fn facts(fd: RawFd) -> Option<libc::stat> {
    // SAFETY: all-zero is a valid value, written for its size.
    unsafe {
        let mut stat: libc::stat = zeroed();
        (libc::fstat(fd, &mut stat) == 0).then_some(stat)
    }
}

/// True if the file behind a descriptor has this attribute, or that is not known.
pub fn has_attribute(fd: RawFd, name: &CStr) -> bool {
    // SAFETY: the name is a C string; no space for the answer is passed.
    unsafe { libc::fgetxattr(fd, name.as_ptr(), std::ptr::null_mut(), 0) >= 0 }
}

/// Opens a file for reads.
pub fn open(folder: RawFd, path: &CStr, flags: c_int) -> Option<RawFd> {
    // SAFETY: a C string.
    let fd = unsafe { libc::openat(folder, path.as_ptr(), libc::O_RDONLY | flags) };
    (fd >= 0).then_some(fd)
}

/// True if this process may use a file in this way.
pub fn may(folder: RawFd, path: &CStr, mode: c_int) -> bool {
    // SAFETY: a C string.
    unsafe { libc::faccessat(folder, path.as_ptr(), mode, 0) == 0 }
}

/// Reads bytes of a file from this place on. Returns their number.
pub fn read_at(fd: RawFd, to: &mut [u8], at: u64) -> usize {
    // SAFETY: space for so many bytes.
    let n = unsafe { libc::pread(fd, to.as_mut_ptr().cast(), to.len(), at as libc::off_t) };
    n.max(0) as usize
}

/// Writes bytes to a descriptor, as far as it takes them.
pub fn write(fd: RawFd, bytes: &[u8]) -> isize {
    // SAFETY: so many bytes.
    unsafe { real::write(fd, bytes.as_ptr().cast(), bytes.len()) }
}

/// Closes a descriptor of this library, if there is one.
pub fn close(fd: RawFd) {
    if fd >= 0 {
        real::close(fd);
    }
}

/// Makes a command of fcntl(2) whose argument is a number.
fn control(fd: RawFd, command: c_int, number: c_int) -> c_int {
    // SAFETY: the commands of this module take no address.
    unsafe { real::fcntl(fd, command, number.into()) }
}

/// Returns the flags of a file (F_GETFL), or -1.
pub fn flags(fd: RawFd) -> c_int {
    control(fd, libc::F_GETFL, 0)
}

/// Sets the flags of a file (F_SETFL).
pub fn set_flags(fd: RawFd, flags: c_int) -> bool {
    control(fd, libc::F_SETFL, flags) == 0
}

/// True if a descriptor is in non-blocking mode.
pub fn is_nonblocking(fd: RawFd) -> bool {
    let flags = flags(fd);
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// Returns the flags of a descriptor (F_GETFD), or -1: it is not open.
pub fn descriptor_flags(fd: RawFd) -> c_int {
    control(fd, libc::F_GETFD, 0)
}

/// Sets the flags of a descriptor (F_SETFD).
pub fn set_descriptor_flags(fd: RawFd, flags: c_int) {
    control(fd, libc::F_SETFD, flags);
}

/// Moves a descriptor of this library to a number from this one on.
pub fn move_to(fd: RawFd, least: c_int) -> Option<RawFd> {
    let moved = control(fd, libc::F_DUPFD_CLOEXEC, least);
    close(fd);
    (moved >= 0).then_some(moved)
}

/// Has a socket send this signal to this process when something comes.
pub fn rings(fd: RawFd, process: c_int, signal: c_int) -> bool {
    control(fd, libc::F_SETOWN, process) == 0
        && control(fd, F_SETSIG, signal) == 0
        && set_flags(fd, libc::O_ASYNC | libc::O_NONBLOCK)
}

/// Returns what may not be done to a memory file any more.
pub fn seals(fd: RawFd) -> c_int {
    control(fd, libc::F_GET_SEALS, 0)
}

/// The seals of memory that keeps its length.
pub const LENGTH_SEALS: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Makes a memory file of this length, which it keeps from now on if `is_sealed`.
pub fn memory_file(name: &CStr, flags: c_uint, len: usize, is_sealed: bool) -> Option<RawFd> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return None;
    }
    // SAFETY: no memory is passed.
    let is_long = unsafe { libc::ftruncate(fd, len as libc::off_t) == 0 };
    if is_long && (!is_sealed || seal(fd)) {
        return Some(fd);
    }
    close(fd);
    None
}

/// Has a memory file keep its length.
pub fn seal(fd: RawFd) -> bool {
    control(fd, libc::F_ADD_SEALS, LENGTH_SEALS) == 0
}

/// Makes a descriptor that can always be read.
pub fn always_readable() -> Option<RawFd> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::eventfd(1, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    (fd >= 0).then_some(fd)
}

/// Waits until something can be done with one of these descriptors, at most so many milliseconds.
pub fn poll(list: &mut [libc::pollfd], timeout: c_int) -> c_int {
    // SAFETY: the list has so many entries.
    unsafe { real::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, timeout) }
}

/// Waits for these events of a descriptor. Returns those that came.
pub fn poll_one(fd: RawFd, events: libc::c_short, timeout: c_int) -> libc::c_short {
    let mut one = [libc::pollfd { fd, events, revents: 0 }];
    match poll(&mut one, timeout) {
        1.. => one[0].revents,
        _ => 0,
    }
}

/// Sleeps for so many milliseconds, or until a signal comes.
pub fn pause_ms(most: c_int) {
    poll(&mut [], most);
}

/// Makes a command of epoll_ctl(2).
pub fn epoll_ctl(set: RawFd, what: c_int, fd: RawFd, mut event: libc::epoll_event) -> bool {
    // SAFETY: a valid event.
    unsafe { real::epoll_ctl(set, what, fd, &mut event) == 0 }
}

/// Returns a number of this thread that no other thread of this process has meanwhile.
#[inline]
pub fn thread_address() -> u64 {
    let at: u64;
    // SAFETY: reads the thread's own pointer, which the C library keeps there for good.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "mov {}, fs:[0]",
            out(reg) at,
            options(nostack, preserves_flags, readonly, pure)
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "mrs {}, tpidr_el0",
            out(reg) at,
            options(nostack, preserves_flags, nomem, pure)
        );
    }
    at
}

/// Words of a set of select that is not a large one.
pub const WORDS: usize = size_of::<libc::fd_set>() / 8;

/// True if a select of sets of these words finds something, or fails.
pub fn select_now(n: c_int, mut words: [Option<[u64; WORDS]>; 3]) -> bool {
    let mut none = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let at = words.each_mut().map(|set| match set {
        Some(words) => words.as_mut_ptr().cast(),
        None => std::ptr::null_mut(),
    });
    let was = real::errno();
    // SAFETY: sets of the largest size for which the kernel is asked, or none.
    let found = unsafe { real::select(n, at[0], at[1], at[2], &mut none) != 0 };
    real::set_errno(was);
    found
}

extern "C" {
    fn __register_atfork(
        before: extern "C" fn(),
        parent: Option<extern "C" fn()>,
        child: extern "C" fn(),
        object: *mut c_void,
    ) -> c_int;
}

/// Has these functions be called before and after each fork(3).
pub fn follow_forks(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: functions that stay.
    unsafe { __register_atfork(before, Some(parent), child, std::ptr::null_mut()) };
}

//! Clocks, users, processes and the memory barrier.

/// Returns the monotonic time in nanoseconds, the same for all processes of the host.
pub(in crate::shm) fn clock_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Returns the time since the start of the system in clock ticks, as `/proc/PID/stat` counts it.
pub(in crate::shm) fn ticks_since_boot() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut t) };
    // SAFETY: no memory is passed.
    let a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    t.tv_sec as u64 * a_second + t.tv_nsec as u64 * a_second / 1_000_000_000
}

/// True if a process of this id exists, running or ended but not yet waited for.
pub(in crate::shm) fn exists(pid: i32) -> bool {
    // SAFETY: no memory is passed; signal 0 sends nothing.
    let found = unsafe { libc::kill(pid, 0) } == 0;
    found || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Returns the effective user of this process.
pub(in crate::shm) fn effective_user() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() }
}

const MEMBARRIER_GLOBAL_EXPEDITED: libc::c_long = 1 << 1;
const MEMBARRIER_REGISTER_GLOBAL_EXPEDITED: libc::c_long = 1 << 2;

fn membarrier(command: libc::c_long) -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Registers this process for the barriers of others, and tries one. See membarrier(2).
pub(in crate::shm) fn register_barrier() -> bool {
    membarrier(MEMBARRIER_REGISTER_GLOBAL_EXPEDITED) && barrier()
}

/// Runs a full memory barrier on every core that runs a registered process; the other side then
/// needs only program order. False: the kernel refused.
pub(in crate::shm) fn barrier() -> bool {
    membarrier(MEMBARRIER_GLOBAL_EXPEDITED)
}

/// Waits until a descriptor is readable. False after the timeout.
pub(in crate::shm) fn wait_readable(fd: std::os::fd::RawFd, timeout_ms: i32) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd.
    unsafe { libc::poll(&mut poll, 1, timeout_ms) > 0 }
}

/// Returns the number of the next new descriptor, for tests.
#[cfg(all(test, not(loom)))]
pub(in crate::shm) fn next_file() -> u64 {
    // SAFETY: a copy of standard error, closed at once.
    unsafe {
        let fd = libc::dup(2);
        libc::close(fd);
        fd as u64
    }
}

/// Sets the highest number of descriptors of this process, for tests; returns the limit before.
#[cfg(all(test, not(loom)))]
pub(in crate::shm) fn limit_files(files: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable, then valid.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        let before = limit.rlim_cur;
        limit.rlim_cur = files;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        before
    }
}

//! System calls of the agent.

pub mod pairs;
pub mod passing;
pub mod refused;

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use weft_core::Instant;
use weft_link::WaitFd;

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A clock that never goes back. The kernel's may, for a process that is restored from an image or
/// whose clock is faked: deadlines would be far ahead then, and this one counts on from there.
struct Clock {
    /// Nanoseconds by which the kernel's clock has gone back so far.
    behind: AtomicU64,
    last: AtomicU64,
}

/// Steps back that only show that another thread read the clock in between.
const CLOCK_SLACK: u64 = 1_000_000;

impl Clock {
    const fn new() -> Clock {
        Clock { behind: AtomicU64::new(0), last: AtomicU64::new(0) }
    }

    /// Returns the time of this clock when the kernel's shows `ns`.
    fn at(&self, ns: u64) -> Instant {
        let ours = ns.saturating_add(self.behind.load(Ordering::Relaxed));
        let last = self.last.fetch_max(ours, Ordering::Relaxed);
        let back = last.saturating_sub(ours);
        if back > CLOCK_SLACK {
            self.behind.fetch_add(back, Ordering::Relaxed);
        }
        Instant(ours.max(last))
    }
}

/// Returns the monotonic time, which also goes on where the kernel's clock goes back.
pub fn now() -> Instant {
    static CLOCK: Clock = Clock::new();
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    CLOCK.at(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// Returns the effective user of this process.
pub fn effective_user() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() }
}

/// True if this process runs as root.
pub fn is_root() -> bool {
    effective_user() == 0
}

/// Sleeps until a descriptor is readable, a signal comes or the time is up.
pub fn wait(fds: &[WaitFd], most: Duration) {
    let mut polls: Vec<libc::pollfd> = fds
        .iter()
        .map(|one| libc::pollfd { fd: one.fd, events: libc::POLLIN, revents: 0 })
        .collect();
    let time = libc::timespec {
        tv_sec: most.as_secs() as libc::time_t,
        tv_nsec: most.subsec_nanos().into(),
    };
    // SAFETY: `polls` is writable for its length; no signal mask is given.
    unsafe {
        libc::ppoll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, &time, std::ptr::null())
    };
}

/// Prepares the path of a socket: makes its folder, and removes a socket where nobody listens any
/// more.
pub fn prepare_socket_path(name: &str) {
    if name.starts_with('@') {
        return;
    }
    let path = Path::new(name);
    if let Some(folder) = path.parent().filter(|f| !f.exists()) {
        // If this fails, listening fails too and reports the reason.
        let _ = std::fs::create_dir_all(folder);
    }
    remove_deserted_socket(name);
}

/// Removes the socket at a path if nobody listens there any more. A file of another kind stays:
/// the kernel refuses connections to it as well.
pub fn remove_deserted_socket(path: &str) {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    let stale = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && try_connection(path).is_err_and(stale) {
        let _ = std::fs::remove_file(path);
    }
}

/// Connects and closes: an error shows that nobody listens.
fn try_connection(name: &str) -> io::Result<()> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
    check(fd)?;
    // SAFETY: all-zero is a valid value.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let room = address.sun_path.len() - 1;
    for (to, from) in address.sun_path[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: `address` is valid for `len` bytes.
    let connected = check(unsafe { libc::connect(fd, (&raw const address).cast(), len) });
    // SAFETY: a descriptor of this function.
    unsafe { libc::close(fd) };
    match connected {
        // A stream socket is there: it is deserted if it refuses a connection too.
        Err(e) if e.raw_os_error() == Some(libc::EPROTOTYPE) => {
            UnixStream::connect(name).map(|_| ())
        }
        other => other,
    }
}

/// Allows any user to connect to the socket at `name`, if it has a path; quotas depend on the user.
pub fn let_all_connect(name: &str) {
    if !name.starts_with('@') {
        let _ = std::fs::set_permissions(name, std::fs::Permissions::from_mode(0o666));
    }
}

/// Raises the limit on open files as far as this process may: each rank takes a descriptor, and
/// each socket passed on counts until it is read. If that fails, the limit stays.
pub fn raise_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable, then valid.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max.min(65_536).max(limit.rlim_cur);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// Becomes another user and group for good, without further groups.
pub fn become_user(user: u32, group: u32) -> io::Result<()> {
    // SAFETY: no group is passed; the others pass no memory.
    unsafe {
        check(libc::setgroups(0, std::ptr::null()))?;
        check(libc::setresgid(group, group, group))?;
        check(libc::setresuid(user, user, user))
    }
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// _LINUX_CAPABILITY_VERSION_3 of capget(2).
const CAP_VERSION: u32 = 0x2008_0522;

/// Drops every capability and the right to gain any.
pub fn drop_capabilities() -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    let header = CapHeader { version: CAP_VERSION, pid: 0 };
    let none = [CapData::default(); 2];
    // SAFETY: header and data of version 3, which has two parts.
    let done = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    check(done as libc::c_int)
}

/// Returns the effective capabilities, one bit each.
pub fn capabilities() -> io::Result<u64> {
    let mut header = CapHeader { version: CAP_VERSION, pid: 0 };
    let mut data = [CapData::default(); 2];
    // SAFETY: header and data of version 3, which has two parts, writable.
    let done = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    check(done as libc::c_int)?;
    Ok(u64::from(data[0].effective) | u64::from(data[1].effective) << 32)
}

static ENDS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_end(_: libc::c_int) {
    ENDS.fetch_add(1, Ordering::Relaxed);
}

/// Counts SIGTERM and SIGINT from now on; see [`ends`].
pub fn catch_ends() -> io::Result<()> {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: all-zero is a valid value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_end as extern "C" fn(libc::c_int) as usize;
        // SAFETY: the handler only counts, which is safe in a handler.
        check(unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) })?;
    }
    Ok(())
}

/// Returns the number of requests to end so far.
pub fn ends() -> u32 {
    ENDS.load(Ordering::Relaxed)
}

/// Makes this process end when its parent ends.
pub fn end_with_parent() {
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM, 0, 0, 0) };
}

/// Returns a descriptor that is readable once the process has ended. `None`: there is no such
/// process in this process's namespace.
pub fn process_fd(process: u32) -> Option<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process as libc::pid_t, 0) };
    let fd = libc::c_int::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the call made the descriptor, and nobody else has it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until a process has ended, at most so long. Returns at once where this process's namespace
/// has none of that number.
pub fn await_end(process: u32, most: Duration) {
    if let Some(end) = process_fd(process) {
        wait(&[WaitFd { fd: end.as_raw_fd() }], most);
    }
}

/// Has multicasts of a socket leave by the interface with this address.
pub fn send_multicast_from(socket: &UdpSocket, address: Ipv4Addr) -> io::Result<()> {
    let address = libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) };
    // SAFETY: the option takes an address of this length.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MULTICAST_IF,
            (&raw const address).cast(),
            size_of::<libc::in_addr>() as libc::socklen_t,
        )
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn clock__that_goes_back_counts_on_from_there() {
        const SECOND: u64 = 1_000_000_000;
        let clock = Clock::new();
        assert_eq!(clock.at(90_000 * SECOND), Instant(90_000 * SECOND));
        // A deadline a second later comes a second later.
        assert_eq!(clock.at(10 * SECOND), Instant(90_000 * SECOND));
        assert_eq!(clock.at(11 * SECOND), Instant(90_001 * SECOND));
        assert_eq!(clock.at(0), Instant(90_001 * SECOND));
        assert_eq!(clock.at(SECOND), Instant(90_002 * SECOND));
        // Another thread was a little earlier.
        assert_eq!(clock.at(SECOND - 100), Instant(90_002 * SECOND));
        assert_eq!(clock.at(2 * SECOND), Instant(90_003 * SECOND));
    }
}

//! System calls that the measurements need and no safe library offers.
#![allow(unsafe_code)]

use rustix::io::FdFlags;
use rustix::process::{getppid, set_parent_process_death_signal, Pid, Signal};
use rustix::thread::{move_into_thread_name_spaces, CpuSet, ThreadNameSpaceType};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// How a rank's process starts.
pub struct Setup {
    /// Descriptors it keeps over exec, at the same numbers.
    pub inherited: Vec<RawFd>,
    /// Cores it runs on.
    pub cpus: Option<CpuSet>,
    /// A process whose network namespace it enters: its pidfd, and the kinds of namespaces to enter
    /// for that.
    pub network: Option<(RawFd, ThreadNameSpaceType)>,
}

/// Makes the process that `command` will start die with this process, and start as `setup` says.
/// The descriptors, also that of `network`, must be open when the command is spawned.
pub fn prepare(command: &mut Command, setup: Setup) {
    let parent = rustix::process::getpid();
    // SAFETY: `child` only makes system calls; it allocates nothing and takes no lock, so it may
    // run in the forked copy of a process whose other threads are gone.
    unsafe {
        command.pre_exec(move || child(parent, &setup));
    }
}

fn child(parent: Pid, setup: &Setup) -> io::Result<()> {
    if let Some((process, kinds)) = setup.network {
        // SAFETY: the caller of `prepare` keeps this descriptor open until the spawn is done.
        let process = unsafe { BorrowedFd::borrow_raw(process) };
        // First: entering a user namespace may reset the death signal.
        move_into_thread_name_spaces(process, kinds)?;
    }
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the line above took effect.
    if getppid() != Some(parent) {
        return Err(io::Error::from(rustix::io::Errno::SRCH));
    }
    if let Some(cpus) = &setup.cpus {
        rustix::thread::sched_setaffinity(None, cpus)?;
    }
    for &fd in &setup.inherited {
        // SAFETY: the caller of `prepare` keeps this descriptor open until the spawn is done.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        rustix::io::fcntl_setfd(fd, FdFlags::empty())?;
    }
    Ok(())
}

fn check(result: libc::c_int) -> io::Result<()> {
    (result >= 0).then_some(()).ok_or_else(io::Error::last_os_error)
}

/// Takes a descriptor that was inherited at a known number; each number is taken once.
pub fn inherit(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD only asks about the number.
    check(unsafe { libc::fcntl(number, libc::F_GETFD) })?;
    // SAFETY: it is open (checked above), and the parent gave it to this process to own.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    Ok(fd)
}

/// A pipe (reader, writer) of `capacity` bytes where that is allowed; closed on exec.
pub fn pipe(capacity: usize) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: pipe2 just made both, and nobody else knows them.
    let (reader, writer) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
    // SAFETY: changes a property of our own pipe. The default capacity serves too.
    unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, capacity as libc::c_int) };
    Ok((reader, writer))
}

/// Bytes of the memory that both ranks map.
pub const SHARED_LEN: usize = 1 << 20;
/// Bytes from one word of it to the next: two cache lines, since some processors fetch pairs.
const STRIDE: usize = 128;

/// Memory that both ranks map, used as atomic words only, each on a cache line of its own.
pub struct Shared {
    base: *mut libc::c_void,
}

impl Shared {
    /// Words there are.
    pub const WORDS: usize = SHARED_LEN / STRIDE;

    /// Maps a memfd of at least [`SHARED_LEN`] bytes.
    pub fn map(fd: &OwnedFd) -> io::Result<Shared> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                SHARED_LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        (base != libc::MAP_FAILED).then_some(Shared { base }).ok_or_else(io::Error::last_os_error)
    }

    /// The word on line `index`.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < Shared::WORDS);
        // SAFETY: inside the mapping (checked above) and aligned; the mapping lives as long as
        // `self`; both processes touch it only by atomic operations.
        unsafe { &*self.base.cast::<u8>().add(index * STRIDE).cast::<AtomicU64>() }
    }

    /// A 32-bit word for a futex, on the same line as `word(index)` but behind it.
    pub fn futex(&self, index: usize) -> &AtomicU32 {
        assert!(index < Shared::WORDS);
        // SAFETY: as in `word`; bytes 64..68 of the stride belong to no `AtomicU64`.
        unsafe { &*self.base.cast::<u8>().add(index * STRIDE + 64).cast::<AtomicU32>() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: maps exactly this range, and references into it cannot outlive `self`.
        unsafe { libc::munmap(self.base, SHARED_LEN) };
    }
}

/// Lets any process of this user read this one's memory, where the Yama module would refuse.
pub fn allow_readers() {
    // SAFETY: sets a property of this process; kernels without Yama answer with an error.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

/// Copies from `address` in process `pid` into `into`; whole or error.
pub fn read_process(pid: i32, address: u64, into: &mut [u8]) -> io::Result<()> {
    let len = into.len();
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: len };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: len };
    // SAFETY: the kernel writes to `into` only, and checks the address in the other process.
    let got = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    match got {
        n if n == len as isize => Ok(()),
        n if n >= 0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Nanoseconds on the clock that all processes of the machine share.
pub fn monotonic_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Processor time this process has used, all threads, user and system.
pub fn cpu_time() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// An integer socket option of this module's use.
#[derive(Clone, Copy, Debug)]
pub enum SocketOption {
    /// The kernel cuts what is sent into datagrams of so many bytes (`UDP_SEGMENT`).
    Segment,
    /// The kernel may hand over several datagrams of equal length at once (`UDP_GRO`).
    Coalesce,
    /// Receive buffer, beyond the system's limit where that is allowed.
    ReceiveBuffer,
    /// Send buffer, beyond the system's limit where that is allowed.
    SendBuffer,
}

/// Sets a socket option.
pub fn set(socket: &impl AsRawFd, option: SocketOption, value: i32) -> io::Result<()> {
    const UDP_SEGMENT: i32 = 103;
    const UDP_GRO: i32 = 104;
    let names: &[(i32, i32)] = match option {
        SocketOption::Segment => &[(libc::SOL_UDP, UDP_SEGMENT)],
        SocketOption::Coalesce => &[(libc::SOL_UDP, UDP_GRO)],
        SocketOption::ReceiveBuffer => {
            &[(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE), (libc::SOL_SOCKET, libc::SO_RCVBUF)]
        }
        SocketOption::SendBuffer => {
            &[(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE), (libc::SOL_SOCKET, libc::SO_SNDBUF)]
        }
    };
    let mut result = Ok(());
    for &(level, name) in names {
        let len = size_of::<i32>() as libc::socklen_t;
        let at = std::ptr::from_ref(&value).cast();
        // SAFETY: the kernel reads the four bytes of `value`.
        result = check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, at, len) });
        if result.is_ok() {
            break;
        }
    }
    result
}

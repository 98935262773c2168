//! The steps of a rank's process between fork and exec.
#![allow(unsafe_code)]

use crate::sys::end_with;
use rustix::io::FdFlags;
use rustix::process::{setrlimit, Pid, Resource, Rlimit, Signal};
use rustix::thread::CpuSet;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Prepares the process that `command` will start: it keeps `inherited` open over exec, dies with
/// this process, runs on `cpus` only, and has this limit on open files.
///
/// `inherited` must all be open when the command is spawned. `apart`: the process has a name space
/// of process numbers of its own, and sees no parent.
pub fn prepare(
    command: &mut Command,
    inherited: [RawFd; 2],
    (cpus, apart): (Option<CpuSet>, bool),
    files: Rlimit,
) {
    let parent = (!apart).then(rustix::process::getpid);
    let setup = move || child(parent, inherited, cpus, &files);
    // SAFETY: `child` only makes system calls; it allocates nothing and takes no lock, so it may
    // run in the forked copy of a process whose other threads are gone.
    unsafe {
        command.pre_exec(setup);
    }
}

/// Makes the command's process the leader of a session of its own: a copy of it is restored with
/// its session, which must not be one of this host.
pub fn as_leader(command: &mut Command) -> &mut Command {
    // SAFETY: a system call, and nothing else.
    unsafe { command.pre_exec(|| rustix::process::setsid().map(|_| ()).map_err(Into::into)) }
}

/// Calls `spawn`, whose process is the first of a name space of process numbers of its own.
///
/// # Errors
/// The system refuses the name space, or those of `spawn`.
pub fn in_own_processes<R>(spawn: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    let own = std::fs::File::open("/proc/self/ns/pid")?;
    // SAFETY: only children started from now on are in the new name space.
    if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let spawned = spawn();
    // SAFETY: children are in this process's own name space again.
    if unsafe { libc::setns(own.as_raw_fd(), libc::CLONE_NEWPID) } != 0 {
        return Err(io::Error::last_os_error());
    }
    spawned
}

/// Keeps descriptors open over the command's exec. They must be open when the command is spawned.
pub fn keep_open<'a>(command: &mut Command, fds: impl Iterator<Item = BorrowedFd<'a>>) {
    let numbers: Vec<RawFd> = fds.map(|fd| fd.as_raw_fd()).collect();
    let keep = move || {
        for &fd in &numbers {
            // SAFETY: the caller keeps this descriptor open until the spawn is done.
            rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(fd) }, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: it only makes system calls.
    unsafe {
        command.pre_exec(keep);
    }
}

/// Returns a copy of a descriptor of another process.
///
/// # Errors
/// The descriptor is not open there, or this process may not have it.
pub fn descriptor_of(process: BorrowedFd<'_>, fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call touches no memory.
    let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy as RawFd) })
}

/// Splits this process, which must have one thread, in two. Returns the child's number in the
/// parent and `None` in the child, which ends with its parent.
///
/// # Errors
/// The system has no room for another process.
pub fn split() -> io::Result<Option<Pid>> {
    let parent = rustix::process::getpid();
    // SAFETY: there is one thread, so that the child has all of the process, no lock held.
    match unsafe { libc::fork() } {
        ..0 => Err(io::Error::last_os_error()),
        0 => end_with(parent, Signal::KILL).map(|()| None),
        child => Ok(Pid::from_raw(child)),
    }
}

/// Has all descriptors but the standard streams closed at exec: one that the launcher's own caller
/// left open would keep the process on this host.
fn keep_nothing() -> io::Result<()> {
    // SAFETY: the call touches no memory.
    let closed = unsafe {
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
    if closed < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn child(
    parent: Option<Pid>,
    inherited: [RawFd; 2],
    cpus: Option<CpuSet>,
    files: &Rlimit,
) -> io::Result<()> {
    match parent {
        Some(parent) => end_with(parent, Signal::KILL)?,
        None => {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            keep_nothing()?;
        }
    }
    if let Some(cpus) = cpus {
        rustix::thread::sched_setaffinity(None, &cpus)?;
    }
    setrlimit(Resource::Nofile, *files)?;
    for fd in inherited {
        // SAFETY: the caller of `prepare` keeps this descriptor open until the spawn is done.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        rustix::io::fcntl_setfd(fd, FdFlags::empty())?;
    }
    Ok(())
}

//! The steps of a rank's process between fork and exec.
#![allow(unsafe_code)]

use crate::sys::end_with;
use rustix::io::FdFlags;
use rustix::process::{setrlimit, Pid, Resource, Rlimit, Signal};
use rustix::thread::CpuSet;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Prepares the process that `command` will start: it keeps `inherited` open over exec, dies with
/// this process, runs on `cpus` only, and has this limit on open files.
///
/// `inherited` must all be open when the command is spawned.
pub fn prepare(command: &mut Command, inherited: [RawFd; 2], cpus: Option<CpuSet>, files: Rlimit) {
    let parent = rustix::process::getpid();
    let setup = move || child(parent, inherited, cpus, &files);
    // SAFETY: `child` only makes system calls; it allocates nothing and takes no lock, so it may
    // run in the forked copy of a process whose other threads are gone.
    unsafe {
        command.pre_exec(setup);
    }
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

fn child(
    parent: Pid,
    inherited: [RawFd; 2],
    cpus: Option<CpuSet>,
    files: &Rlimit,
) -> io::Result<()> {
    end_with(parent, Signal::KILL)?;
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

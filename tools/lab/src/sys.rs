//! System calls of the lab that no safe library offers.
#![allow(unsafe_code)]

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{set_parent_process_death_signal, Pid, Signal};
use rustix::thread::{unshare_unsafe, UnshareFlags};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use weft_run::sys::vanish;

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    (result >= 0).then_some(result).ok_or_else(io::Error::last_os_error)
}

/// Moves this process into new namespaces.
pub fn unshare(flags: UnshareFlags) -> io::Result<()> {
    assert!(!flags.contains(UnshareFlags::FILES), "the table of descriptors stays one");
    // SAFETY: unshare is unsafe only if it unshares the table of descriptors, ruled out above.
    unsafe { unshare_unsafe(flags) }.map_err(Into::into)
}

/// Runs `command` in a new process in new namespaces of every kind that a host has. The process
/// dies with this thread. The caller must have no other threads.
pub fn spawn_host(command: &mut Command) -> io::Result<Pid> {
    let flags = libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::SIGCHLD;
    // SAFETY: without CLONE_VM and with no stack given this is a fork; all other arguments are
    // null for these flags. This process has one thread, so its copy holds no lock of another.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone, flags as libc::c_long, 0, 0, 0, 0) })?;
    if let Some(pid) = Pid::from_raw(pid as i32) {
        return Ok(pid);
    }
    // Nobody may be left to read an error; the parent sees the end of this process on its socket.
    let why = match set_parent_process_death_signal(Some(Signal::KILL)) {
        Ok(()) => command.exec(),
        Err(e) => e.into(),
    };
    eprintln!("weft lab: starting a host: {why}");
    // SAFETY: ends this copy at once, without the exit handlers that its original registered.
    unsafe { libc::_exit(127) }
}

/// Makes the process that `command` will start die with this process. `own` is the pidfd of this
/// process and stays open until then.
pub fn die_together(command: &mut Command, own: &OwnedFd) {
    let own = own.as_raw_fd();
    let setup = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // SAFETY: the caller keeps the descriptor open until the spawn is done.
        let own = unsafe { BorrowedFd::borrow_raw(own) };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // The parent may have ended before the first line took effect. Its number has no meaning in
        // another PID namespace, so its pidfd is polled.
        match poll(&mut [PollFd::from_borrowed_fd(own, PollFlags::IN)], Some(&now))? {
            0 => Ok(()),
            _ => vanish(),
        }
    };
    // SAFETY: `setup` only makes system calls, so it may run in the forked copy of a process.
    unsafe {
        command.pre_exec(setup);
    }
}

/// Lets the kernel reap children as they end, also those inherited from others.
pub fn ignore_children() {
    // SAFETY: sets the disposition of a signal for which there is no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Opens a packet socket that receives every frame that arrives at an interface of this namespace
/// and sends frames out of it. Each frame has a virtio-net header, so that trains of segments pass
/// whole.
pub fn tap(interface: &str) -> io::Result<OwnedFd> {
    const PACKET_IGNORE_OUTGOING: i32 = 23;
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: makes a new descriptor.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) }.into())?;
    // SAFETY: the call above just made it, and no other code knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    for (level, name, value) in [
        (libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1),
        (libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1),
        (libc::SOL_SOCKET, libc::SO_RCVBUF, 32 << 20),
        (libc::SOL_SOCKET, libc::SO_SNDBUF, 32 << 20),
    ] {
        let at = std::ptr::from_ref::<i32>(&value).cast();
        let len = size_of::<i32>() as libc::socklen_t;
        // SAFETY: the kernel reads the four bytes of `value`.
        check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, at, len) }.into())?;
    }
    let index = rustix::net::netdevice::name_to_index(&fd, interface)?;
    // SAFETY: all zeros is a valid value of this plain structure.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let at = std::ptr::from_ref(&address).cast();
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `address`.
    check(unsafe { libc::bind(fd.as_raw_fd(), at, len) }.into())?;
    Ok(fd)
}

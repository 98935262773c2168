//! Calls of the kernel by their numbers.

use crate::guard::Caller;
use crate::{table, tipc};
use libc::{c_int, c_long, c_uint};

/// Calls of the kernel that have something in common.
pub enum Kind {
    /// Calls that move bytes of one file, or between two.
    Moves,
    /// Calls that may carry descriptors.
    Messages,
    /// Calls that make, copy and close descriptors.
    Descriptors,
    /// Calls that change a socket, or ask about it.
    Changes,
    /// Calls that wait.
    Waits,
    /// Calls that concern processes.
    Processes,
    /// All others.
    Other,
}

/// Returns the kind of a call.
pub fn kind_of(number: c_long) -> Kind {
    match number {
        libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_preadv2
        | libc::SYS_recvfrom
        | libc::SYS_recvmmsg
        | libc::SYS_write
        | libc::SYS_writev
        | libc::SYS_pwritev2
        | libc::SYS_sendto
        | libc::SYS_sendfile
        | libc::SYS_splice => Kind::Moves,
        libc::SYS_recvmsg | libc::SYS_sendmsg | libc::SYS_sendmmsg => Kind::Messages,
        libc::SYS_socket
        | libc::SYS_connect
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_close
        | libc::SYS_close_range
        | libc::SYS_dup
        | libc::SYS_dup3
        | libc::SYS_pidfd_getfd => Kind::Descriptors,
        libc::SYS_bind
        | libc::SYS_listen
        | libc::SYS_getsockname
        | libc::SYS_getpeername
        | libc::SYS_fcntl
        | libc::SYS_ioctl
        | libc::SYS_shutdown
        | libc::SYS_setsockopt
        | libc::SYS_getsockopt => Kind::Changes,
        libc::SYS_ppoll
        | libc::SYS_pselect6
        | libc::SYS_epoll_create1
        | libc::SYS_epoll_ctl
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2 => Kind::Waits,
        libc::SYS_clone
        | libc::SYS_clone3
        | libc::SYS_execve
        | libc::SYS_execveat
        | libc::SYS_prctl
        | libc::SYS_seccomp
        | libc::SYS_rt_sigaction
        | libc::SYS_rt_sigprocmask
        | libc::SYS_rt_sigqueueinfo
        | libc::SYS_kill
        | libc::SYS_io_uring_setup => Kind::Processes,
        _ => Kind::Other,
    }
}

/// True if this library has something of a descriptor.
pub fn knows(fd: c_long) -> bool {
    table::knows(fd as c_int) || tipc::is(fd as c_int)
}

/// True for a command of seccomp(2) that confines a program.
pub fn confines(command: c_uint) -> bool {
    matches!(command, libc::SECCOMP_SET_MODE_STRICT | libc::SECCOMP_SET_MODE_FILTER)
}

/// Returns the flags and the stack of a clone3(2).
pub fn flags_of(args: Caller<u64>, len: usize) -> (u64, u64) {
    const STACK: usize = 5;
    match args.list(STACK + 1).filter(|_| len > 8 * STACK) {
        Some(args) => (args[0], args[STACK]),
        // The kernel refuses them.
        None => (libc::CLONE_THREAD as u64, 0),
    }
}

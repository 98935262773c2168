//! A filter of system calls.

use libc::{c_long, sock_filter, sock_fprog};

/// Calls that the process is ended for: those by which the library would look for the other end, or
/// would look at a socket otherwise than the program does.
const DENIED: [c_long; 13] = [
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_socketpair,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_ioctl,
    libc::SYS_ppoll,
    libc::SYS_fcntl,
    libc::SYS_memfd_create,
    libc::SYS_sched_getaffinity,
];

/// Confines this thread for good.
pub fn confine() {
    let step = |code: u32, k: u32, jt: u8, jf: u8| sock_filter { code: code as u16, jt, jf, k };
    let give = |value| step(libc::BPF_RET | libc::BPF_K, value, 0, 0);
    // The number of the call is the first word.
    let mut steps = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for number in DENIED {
        steps.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number as u32, 0, 1));
        steps.push(give(libc::SECCOMP_RET_KILL_PROCESS));
    }
    steps.push(give(libc::SECCOMP_RET_ALLOW));
    let program = sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: a valid program of this length; it lives until the kernel has copied it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let (mode, at) = (libc::SECCOMP_MODE_FILTER, &raw const program);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, at, 0, 0), 0);
    }
}

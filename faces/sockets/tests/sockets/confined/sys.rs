//! A filter of system calls.

use libc::{c_long, sock_filter, sock_fprog};
use std::sync::atomic::{AtomicUsize, Ordering};

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
    confine_from(&DENIED);
}

/// Confines this thread for good: it is ended if it makes or connects a socket.
pub fn confine_from_sockets() {
    confine_from(&[libc::SYS_socket, libc::SYS_connect, libc::SYS_socketpair]);
}

fn confine_from(calls: &[c_long]) {
    let mut steps = filter(calls, libc::SECCOMP_RET_KILL_PROCESS);
    let program = sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: a valid program of this length; it lives until the kernel has copied it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let (mode, at) = (libc::SECCOMP_MODE_FILTER, &raw const program);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, at, 0, 0), 0);
    }
}

/// Returns a filter with this action for some calls.
fn filter(calls: &[c_long], action: u32) -> Vec<sock_filter> {
    let step = |code: u32, k: u32, jt: u8, jf: u8| sock_filter { code: code as u16, jt, jf, k };
    let give = |value| step(libc::BPF_RET | libc::BPF_K, value, 0, 0);
    // The number of the call is the first word.
    let mut steps = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for &number in calls {
        steps.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number as u32, 0, 1));
        steps.push(give(action));
    }
    steps.push(give(libc::SECCOMP_RET_ALLOW));
    steps
}

static COUNTED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_call(_: libc::c_int) {
    COUNTED.fetch_add(1, Ordering::Relaxed);
}

/// Returns the calls of getsockopt(2) that this process has tried since [`count_questions`].
pub fn questions() -> usize {
    COUNTED.load(Ordering::Relaxed)
}

/// Has calls of getsockopt(2) fail, and counts them. The library does not see that: the C library
/// itself is asked.
pub fn count_questions() {
    type Control = extern "C" fn(libc::c_int, usize, usize, usize, usize) -> libc::c_int;
    let mut steps = filter(&[libc::SYS_getsockopt], libc::SECCOMP_RET_TRAP);
    let program = sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let on_call = on_call as extern "C" fn(libc::c_int);
    // SAFETY: a handler that adds a number; the C library's own function of this type; a valid
    // program of this length, which lives until the kernel has copied it.
    unsafe {
        assert_ne!(libc::signal(libc::SIGSYS, on_call as usize), libc::SIG_ERR);
        let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW);
        let at = libc::dlsym(library, c"prctl".as_ptr());
        assert!(!at.is_null());
        let prctl = std::mem::transmute::<*mut libc::c_void, Control>(at);
        assert_eq!(prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let (mode, at) = (libc::SECCOMP_MODE_FILTER as usize, (&raw const program).addr());
        assert_eq!(prctl(libc::PR_SET_SECCOMP, mode, at, 0, 0), 0);
    }
}

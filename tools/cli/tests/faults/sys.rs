//! Removes rights from a process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Forbids the program that `command` starts, and all its children, to copy between processes, as
/// the seccomp profile of a container does: the calls fail with `EPERM`.
pub fn forbid_direct_copies(command: &mut Command) {
    // SAFETY: the function in the child only makes system calls and allocates nothing.
    unsafe { command.pre_exec(install_filter) };
}

const fn statement(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Installs the filter for this process.
fn install_filter() -> io::Result<()> {
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    let mut filter = [
        // The filter's input begins with the number of the system call.
        statement(load, 0, 0, 0),
        statement(equal, libc::SYS_process_vm_readv as u32, 1, 0),
        statement(equal, libc::SYS_process_vm_writev as u32, 0, 1),
        statement(give, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0),
        statement(give, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: `program` and the filter it points to are valid during the calls.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
    };
    match failed {
        true => Err(io::Error::last_os_error()),
        false => Ok(()),
    }
}

//! Functions that make processes.

use super::data::stay_tcp;
use crate::sys::slot;
use crate::sys::table::{self, Connection};
use crate::sys::{line, lock, real, settings};
use libc::{c_char, c_int, c_long, c_void, pid_t};

extern "C" {
    fn __register_atfork(
        before: extern "C" fn(),
        parent: Option<extern "C" fn()>,
        child: extern "C" fn(),
        object: *mut c_void,
    ) -> c_int;
}

extern "C" fn before_fork() {
    table::is_forking();
}

extern "C" fn in_child() {
    let was = real::errno();
    lock::thread_is_new();
    line::is_child();
    real::set_errno(was);
}

/// Follows processes from now on, and ends this one at a fault of the library: no panic may leave
/// it.
pub fn begin() {
    // SAFETY: functions that stay.
    unsafe { __register_atfork(before_fork, None, in_child, std::ptr::null_mut()) };
    let own = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        own(info);
        std::process::abort();
    }));
}

/// fork(2) without the handlers that libraries register.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn _Fork() -> pid_t {
    before_fork();
    // SAFETY: no memory is passed.
    let child = unsafe { real::_Fork() };
    if child == 0 {
        in_child();
    }
    child
}

/// vfork(2): a child that shared the memory of its parent would change what is known of the
/// parent's descriptors.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn vfork() -> pid_t {
    // SAFETY: no memory is passed.
    unsafe { real::fork() }
}

/// The program of this process is about to be another one. Connections that survive are by TCP from
/// now on.
fn survive(all: bool) {
    let Some(region) = slot::region() else { return };
    let was = real::errno();
    let mut from = 0;
    while let Some(fd) = table::next(from, c_int::MAX) {
        from = fd + 1;
        // SAFETY: no memory is passed.
        let flags = unsafe { real::fcntl(fd, libc::F_GETFD, 0) };
        if all || flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
            table::connection(fd).iter().for_each(stay_tcp_or_leave);
        }
    }
    let _ = region;
    real::set_errno(was);
}

fn stay_tcp_or_leave(one: &Connection) {
    if one.slot.is_shared() {
        stay_tcp(one);
    }
}

/// execve(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn execve(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    survive(false);
    // SAFETY: the caller's arguments.
    unsafe { real::execve(path, argv, envp) }
}

/// execv(3).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn execv(path: *const c_char, argv: *const *const c_char) -> c_int {
    survive(false);
    // SAFETY: the caller's arguments.
    unsafe { real::execv(path, argv) }
}

/// execvp(3).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int {
    survive(false);
    // SAFETY: the caller's arguments.
    unsafe { real::execvp(file, argv) }
}

/// execvpe(3).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn execvpe(
    file: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    survive(false);
    // SAFETY: the caller's arguments.
    unsafe { real::execvpe(file, argv, envp) }
}

/// fexecve(3).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn fexecve(
    fd: c_int,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    survive(false);
    // SAFETY: the caller's arguments.
    unsafe { real::fexecve(fd, argv, envp) }
}

type Spawn = *const c_void;

/// posix_spawn(3). Its file actions may give any descriptor to the new program.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn posix_spawn(
    child: *mut pid_t,
    path: *const c_char,
    actions: Spawn,
    attributes: Spawn,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    survive(!actions.is_null());
    // SAFETY: the caller's arguments.
    unsafe { real::posix_spawn(child, path, actions, attributes, argv, envp) }
}

/// posix_spawnp(3).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn posix_spawnp(
    child: *mut pid_t,
    file: *const c_char,
    actions: Spawn,
    attributes: Spawn,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    survive(!actions.is_null());
    // SAFETY: the caller's arguments.
    unsafe { real::posix_spawnp(child, file, actions, attributes, argv, envp) }
}

/// syscall(2). Programs that are refused io_uring use the functions of the C library.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if number == libc::SYS_io_uring_setup && settings::is_on() {
        return real::fail(libc::ENOSYS).into();
    }
    // SAFETY: the caller's arguments.
    unsafe { real::syscall(number, a, b, c, d, e, f) }
}

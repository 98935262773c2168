//! The functions of the C library that this library stands before.
//!
//! All are looked up when the library is loaded: a look-up may allocate, which a function that is
//! called by an allocator must not. A function that is called before is looked up then.

use libc::{
    c_char, c_int, c_long, c_uint, c_void, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t,
    off64_t, off_t, pid_t, pollfd, sighandler_t, sigset_t, size_t, sockaddr, socklen_t, ssize_t,
    timespec, timeval, FILE,
};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Returns where errors are told.
pub fn errno() -> c_int {
    // SAFETY: the address is that of this thread's number.
    unsafe { *libc::__errno_location() }
}

/// Tells an error.
pub fn set_errno(error: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
}

/// An error as functions of the C library return it.
pub fn fail(error: c_int) -> c_int {
    set_errno(error);
    -1
}

/// The next function of a name after this library's own. Null: there is none.
fn look_up(name: &'static std::ffi::CStr) -> *mut c_void {
    // SAFETY: the name is a C string.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// Looks a function up that is called before all are.
#[cold]
fn look_up_late(name: &'static str, to: &AtomicPtr<c_void>) -> *mut c_void {
    let found = std::ffi::CStr::from_bytes_with_nul(name.as_bytes())
        .map_or_else(|_| std::ptr::null_mut(), look_up);
    to.store(found, Ordering::Relaxed);
    found
}

/// Ends a function of this library that cannot fail: a C library without the original.
extern "C" fn is_missing() -> c_int {
    fail(libc::ENOSYS)
}

/// Returns the address of the C library's own function of this name.
pub fn address_of(name: &'static std::ffi::CStr) -> *mut c_void {
    let at = look_up(name);
    match at.is_null() {
        true => is_missing as *mut c_void,
        false => at,
    }
}

macro_rules! originals {
    ($($([$unsafe:ident])? fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
        /// One place for each function.
        #[allow(non_upper_case_globals)]
        mod at {
            use super::{c_void, AtomicPtr};
            $(pub static $name: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());)*
        }

        /// Looks all up.
        pub fn look_up_all() {
            $(
                let name = concat!(stringify!($name), "\0");
                if let Ok(name) = std::ffi::CStr::from_bytes_with_nul(name.as_bytes()) {
                    at::$name.store(look_up(name), Ordering::Relaxed);
                }
            )*
        }

        $(
            /// The C library's own.
            ///
            /// # Safety
            /// The caller keeps the rules of the function, if it is marked: the others take no
            /// address.
            #[inline]
            #[allow(non_snake_case)]
            pub $($unsafe)? fn $name($($arg: $type),*) -> $ret {
                type Function = unsafe extern "C-unwind" fn($($type),*) -> $ret;
                let mut at = at::$name.load(Ordering::Relaxed);
                if at.is_null() {
                    at = look_up_late(concat!(stringify!($name), "\0"), &at::$name);
                    if at.is_null() {
                        return fail(libc::ENOSYS) as $ret;
                    }
                }
                // SAFETY: the C library has the function of this name and type there; the caller
                // keeps its rules.
                unsafe { std::mem::transmute::<*mut c_void, Function>(at)($($arg),*) }
            }
        )*
    };
}

originals! {
    [unsafe] fn sigaction(
        signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction
    ) -> c_int;
    [unsafe] fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    [unsafe] fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    [unsafe] fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t;
    [unsafe] fn pthread_sigmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int;
    [unsafe] fn sigprocmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int;
    fn kill(to: pid_t, signal: c_int) -> c_int;
    fn killpg(group: pid_t, signal: c_int) -> c_int;
    [unsafe] fn sigqueue(to: pid_t, signal: c_int, value: libc::sigval) -> c_int;
    fn siginterrupt(signal: c_int, ends: c_int) -> c_int;
    [unsafe] fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t;
    [unsafe] fn readv(fd: c_int, parts: *const iovec, n: c_int) -> ssize_t;
    [unsafe] fn preadv2(
        fd: c_int, parts: *const iovec, n: c_int, at: off64_t, flags: c_int
    ) -> ssize_t;
    [unsafe] fn pwritev2(
        fd: c_int, parts: *const iovec, n: c_int, at: off64_t, flags: c_int
    ) -> ssize_t;
    [unsafe] fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    [unsafe] fn recvfrom(
        fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr,
        from_len: *mut socklen_t
    ) -> ssize_t;
    [unsafe] fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    [unsafe] fn recvmmsg(
        fd: c_int, messages: *mut mmsghdr, n: c_uint, flags: c_int, timeout: *mut timespec
    ) -> c_int;
    [unsafe] fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t;
    [unsafe] fn writev(fd: c_int, parts: *const iovec, n: c_int) -> ssize_t;
    [unsafe] fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    [unsafe] fn sendto(
        fd: c_int, buf: *const c_void, len: size_t, flags: c_int, to: *const sockaddr,
        to_len: socklen_t
    ) -> ssize_t;
    [unsafe] fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    [unsafe] fn sendmmsg(fd: c_int, messages: *mut mmsghdr, n: c_uint, flags: c_int) -> c_int;
    [unsafe] fn sendfile(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t;
    [unsafe] fn sendfile64(to: c_int, from: c_int, offset: *mut off64_t, len: size_t) -> ssize_t;
    [unsafe] fn splice(
        from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, len: size_t,
        flags: c_uint
    ) -> ssize_t;
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    [unsafe] fn bind(fd: c_int, at: *const sockaddr, len: socklen_t) -> c_int;
    fn listen(fd: c_int, backlog: c_int) -> c_int;
    [unsafe] fn getsockname(fd: c_int, to: *mut sockaddr, len: *mut socklen_t) -> c_int;
    [unsafe] fn getpeername(fd: c_int, to: *mut sockaddr, len: *mut socklen_t) -> c_int;
    [unsafe] fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int;
    [unsafe] fn accept(fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int;
    [unsafe] fn accept4(fd: c_int, from: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn shutdown(fd: c_int, how: c_int) -> c_int;
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    [unsafe] fn fcntl(fd: c_int, command: c_int, arg: c_long) -> c_int;
    [unsafe] fn ioctl(fd: c_int, request: libc::c_ulong, arg: *mut c_void) -> c_int;
    [unsafe] fn setsockopt(
        fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t
    ) -> c_int;
    [unsafe] fn getsockopt(
        fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t
    ) -> c_int;
    [unsafe] fn poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int;
    [unsafe] fn ppoll(
        fds: *mut pollfd, n: nfds_t, timeout: *const timespec, mask: *const sigset_t
    ) -> c_int;
    [unsafe] fn select(
        n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval
    ) -> c_int;
    [unsafe] fn pselect(
        n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t
    ) -> c_int;
    fn epoll_create(size: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    [unsafe] fn epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    [unsafe] fn epoll_wait(set: c_int, events: *mut epoll_event, n: c_int, timeout: c_int) -> c_int;
    [unsafe] fn epoll_pwait(
        set: c_int, events: *mut epoll_event, n: c_int, timeout: c_int, mask: *const sigset_t
    ) -> c_int;
    [unsafe] fn epoll_pwait2(
        set: c_int, events: *mut epoll_event, n: c_int, timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int;
    [unsafe] fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    [unsafe] fn fork() -> pid_t;
    [unsafe] fn _Fork() -> pid_t;
    [unsafe] fn clone(
        function: Option<extern "C-unwind" fn(*mut c_void) -> c_int>, stack: *mut c_void,
        flags: c_int, argument: *mut c_void, parent_id: *mut pid_t, tls: *mut c_void,
        child_id: *mut pid_t
    ) -> c_int;
    [unsafe] fn execvpe(
        file: *const c_char, argv: *const *const c_char, envp: *const *const c_char
    ) -> c_int;
    [unsafe] fn posix_spawn(
        child: *mut pid_t, path: *const c_char, actions: *const c_void,
        attributes: *const c_void, argv: *const *const c_char, envp: *const *const c_char
    ) -> c_int;
    [unsafe] fn posix_spawnp(
        child: *mut pid_t, file: *const c_char, actions: *const c_void,
        attributes: *const c_void, argv: *const *const c_char, envp: *const *const c_char
    ) -> c_int;
    [unsafe] fn pidfd_spawn(
        child: *mut c_int, path: *const c_char, actions: *const c_void,
        attributes: *const c_void, argv: *const *const c_char, envp: *const *const c_char
    ) -> c_int;
    [unsafe] fn pidfd_spawnp(
        child: *mut c_int, file: *const c_char, actions: *const c_void,
        attributes: *const c_void, argv: *const *const c_char, envp: *const *const c_char
    ) -> c_int;
    [unsafe] fn execveat(
        folder: c_int, path: *const c_char, argv: *const *const c_char,
        envp: *const *const c_char, flags: c_int
    ) -> c_int;
    [unsafe] fn wordexp(words: *const c_char, to: *mut c_void, flags: c_int) -> c_int;
    [unsafe] fn vdprintf(fd: c_int, format: *const c_char, list: *mut c_void) -> c_int;
    [unsafe] fn __vdprintf_chk(
        fd: c_int, flag: c_int, format: *const c_char, list: *mut c_void
    ) -> c_int;
    [unsafe] fn system(command: *const c_char) -> c_int;
    [unsafe] fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE;
    [unsafe] fn posix_spawn_file_actions_adddup2(
        actions: *mut c_void, from: c_int, to: c_int
    ) -> c_int;
    [unsafe] fn execve(
        path: *const c_char, argv: *const *const c_char, envp: *const *const c_char
    ) -> c_int;
    [unsafe] fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    [unsafe] fn prctl(what: c_int, a: c_long, b: c_long, c: c_long, d: c_long) -> c_int;
    [unsafe] fn syscall(
        number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long
    ) -> c_long;
}

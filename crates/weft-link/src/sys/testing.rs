//! Network namespaces and missing rights, for tests.

use std::io;

/// Moves the calling thread into a new network namespace without a name. The namespace ends with
/// its last user.
pub(crate) fn new_namespace() -> io::Result<()> {
    // SAFETY: no memory is passed.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Runs `f` on a thread that has no right to open raw sockets.
pub(crate) fn without_rights<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let body = || {
            // The system call, not the C function, which would change all threads: only this thread
            // becomes another user and so loses its capabilities.
            // SAFETY: no memory is passed.
            let rc = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
            assert_eq!(rc, 0, "root may become another user");
            f()
        };
        scope.spawn(body).join().expect("no panic")
    })
}

//! Functions by which another program begins, in this process or in a child.

use crate::guard::Caller;
use crate::hooks::programs::{becomes, is_for_strangers, survive, Refused};
use crate::program::Program;
use crate::sys::real;
use crate::target::{self, environment, By, Texts};
use libc::{c_char, c_int, c_void, pid_t, FILE};
use std::ptr::null_mut;

/// This process is to become the program of a file, by this call with the environment for it.
///
/// # Safety
/// The caller's file and environment.
unsafe fn execs(
    file: *const c_char,
    by: By,
    envp: Texts,
    call: impl FnOnce(Texts) -> c_int,
) -> c_int {
    // SAFETY: the caller's.
    let (file, environment) = unsafe { (Caller::new(file), Caller::new(envp)) };
    becomes(Program { file, by, environment }, || target::starts(file, by, environment, call))
}

/// execveat(2), by a call with the environment for it.
///
/// # Safety
/// The caller's path and environment.
pub unsafe fn execveat_by(
    (folder, path): (c_int, *const c_char),
    flags: c_int,
    envp: Texts,
    call: impl FnOnce(Texts) -> c_int,
) -> c_int {
    // SAFETY: the caller's.
    let (file, environment) = unsafe { (Caller::new(path), Caller::new(envp)) };
    becomes(Program { file, by: By::In(folder), environment }, || {
        target::starts_at((folder, file), flags, environment, call)
    })
}

type Spawn = *const c_void;

/// Starts a program in a child, by this call with the environment for it.
///
/// # Safety
/// The caller's file and environment.
unsafe fn spawns(
    file: *const c_char,
    by: By,
    envp: Texts,
    call: impl FnOnce(Texts) -> c_int,
) -> c_int {
    // SAFETY: the caller's.
    let (file, environment) = unsafe { (Caller::new(file), Caller::new(envp)) };
    match survive() {
        Ok(()) => target::starts(file, by, environment, call),
        Err(_) => libc::EAGAIN,
    }
}

hooks! {
    /// execve(2).
    fn execve(path: *const c_char, argv: Texts, envp: Texts) -> c_int {
        execs(path, By::Path, envp, |envp| real::execve(path, argv, envp))
    }

    /// execveat(2).
    fn execveat(
        folder: c_int, path: *const c_char, argv: Texts, envp: Texts, flags: c_int,
    ) -> c_int {
        execveat_by((folder, path), flags, envp, |envp| {
            real::execveat(folder, path, argv, envp, flags)
        })
    }

    /// execv(3).
    fn execv(path: *const c_char, argv: Texts) -> c_int {
        execve(path, argv, environment().at())
    }

    /// execvp(3).
    fn execvp(file: *const c_char, argv: Texts) -> c_int {
        execvpe(file, argv, environment().at())
    }

    /// execvpe(3).
    fn execvpe(file: *const c_char, argv: Texts, envp: Texts) -> c_int {
        execs(file, By::Name, envp, |envp| real::execvpe(file, argv, envp))
    }

    /// fexecve(3).
    fn fexecve(fd: c_int, argv: Texts, envp: Texts) -> c_int {
        execs(c"".as_ptr(), By::In(fd), envp, |envp| real::fexecve(fd, argv, envp))
    }

    /// system(3), whose command has the descriptors of this process.
    fn system(command: *const c_char) -> c_int {
        match survive() {
            Ok(()) => real::system(command),
            Err(refused) => refused.fail(),
        }
    }

    /// popen(3), whose command has the descriptors of this process.
    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
        match survive().map_err(Refused::fail) {
            Ok(()) => real::popen(command, mode),
            Err(_) => null_mut(),
        }
    }

    /// popen(3) under its other name.
    fn _IO_popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
        popen(command, mode)
    }

    /// wordexp(3), which may start a shell.
    fn wordexp(words: *const c_char, to: *mut c_void, flags: c_int) -> c_int {
        const NO_SPACE: c_int = 1;
        match survive() {
            Ok(()) => real::wordexp(words, to, flags),
            Err(_) => NO_SPACE,
        }
    }

    /// posix_spawn_file_actions_adddup2(3): another program is to have a descriptor.
    fn posix_spawn_file_actions_adddup2(actions: *mut c_void, from: c_int, to: c_int) -> c_int {
        match is_for_strangers(from) {
            Ok(()) => real::posix_spawn_file_actions_adddup2(actions, from, to),
            Err(_) => libc::EAGAIN,
        }
    }
}

/// Defines functions that start a program in a child, and return an error.
macro_rules! spawning {
    ($($doc:literal $name:ident: $first:ty, $by:expr;)*) => {
        hooks! {
            $(
                #[doc = $doc]
                fn $name(
                    child: $first, file: *const c_char, actions: Spawn, attributes: Spawn,
                    argv: Texts, envp: Texts,
                ) -> c_int {
                    spawns(file, $by, envp, |envp| {
                        real::$name(child, file, actions, attributes, argv, envp)
                    })
                }
            )*
        }
    };
}

spawning! {
    "posix_spawn(3)." posix_spawn: *mut pid_t, By::Path;
    "posix_spawnp(3)." posix_spawnp: *mut pid_t, By::Name;
    "pidfd_spawn(3)." pidfd_spawn: *mut c_int, By::Path;
    "pidfd_spawnp(3)." pidfd_spawnp: *mut c_int, By::Name;
}

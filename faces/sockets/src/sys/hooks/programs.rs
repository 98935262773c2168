//! Functions by which another program begins, in this process or in a child.
//!
//! It reads the connections that it inherits, so the bytes that wait in their rings go back to TCP.
//! If they cannot, and a program in this process's place has this library, they go along in memory
//! ([`crate::sys::kept`]). Otherwise the program is not started (EAGAIN), and one line says why: a
//! program that began would read bytes with a gap.

use super::data::hand_over;
use super::process::each;
use crate::sys::giving::Why;
use crate::sys::holders::Look;
use crate::sys::kept::Kept;
use crate::sys::program::Program;
use crate::sys::slot::BROKEN;
use crate::sys::table::{self, Connection};
use crate::sys::target::{self, environment as own_environment, By};
use crate::sys::{guard, real, vfork};
use libc::{c_char, c_int, c_void, msghdr, pid_t, FILE};
use std::fmt::Write;
use std::sync::atomic::{AtomicU32, Ordering};

type Texts = *const *const c_char;

/// Lines about programs that were not started, at most.
const LINES: u32 = 16;
static SAID: AtomicU32 = AtomicU32::new(0);

/// A program is not to be started.
pub struct Refused;

impl Refused {
    /// The result of a function that returns -1.
    pub fn fail(self) -> c_int {
        real::fail(libc::EAGAIN)
    }
}

/// A line without allocation.
struct Line {
    bytes: [u8; 400],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, more: &str) -> std::fmt::Result {
        for (to, from) in self.bytes[self.len..].iter_mut().zip(more.bytes()) {
            *to = from;
            self.len += 1;
        }
        Ok(())
    }
}

/// Says why something is refused.
#[cold]
pub fn complain(what: &str, fd: c_int, why: &Why) {
    if SAID.fetch_add(1, Ordering::Relaxed) >= LINES {
        return;
    }
    let mut line = Line { bytes: [0; 400], len: 0 };
    let why = std::str::from_utf8(why.bytes()).unwrap_or("");
    let _ = writeln!(
        line,
        "weft sockets: {what} (EAGAIN): bytes of the connection at descriptor {fd} wait in memory \
         and cannot go back to TCP: {why}. Try again, or set FD_CLOEXEC on it."
    );
    // SAFETY: the line's bytes.
    unsafe { real::write(2, line.bytes.as_ptr().cast(), line.len) };
}

/// Another program is about to begin, which has some connections of this one and counts nothing:
/// they are by TCP from now on.
pub fn survive() -> Result<(), Refused> {
    let _look = Look::begin();
    survive_with(&mut |one| hand_over_shared(one))?;
    each(false, |one| one.slot.holders.has_strangers());
    Ok(())
}

fn hand_over_shared(one: &Connection) -> Result<(), Why> {
    // One that has ended by an error tells that to any reader.
    match one.slot.is_shared() && !one.slot.has(BROKEN) {
        true => hand_over(one),
        false => Ok(()),
    }
}

fn survive_with(act: &mut dyn FnMut(&Connection) -> Result<(), Why>) -> Result<(), Refused> {
    let mut failed = None;
    each(false, |one| {
        if failed.is_none() {
            failed = act(one).err().map(|why| (one.fd, why));
        }
    });
    match failed {
        Some((fd, why)) => {
            complain("another program was not started", fd, &why);
            Err(Refused)
        }
        None => Ok(()),
    }
}

/// A program without this library is to have a descriptor.
pub fn is_for_strangers(fd: c_int) -> Result<(), Refused> {
    let was = real::errno();
    if let Some(one) = table::connection(fd) {
        let _look = Look::begin();
        if let Err(why) = hand_over_shared(&one) {
            complain("a descriptor was not copied for another program", fd, &why);
            return Err(Refused);
        }
        one.slot.holders.has_strangers();
    }
    real::set_errno(was);
    Ok(())
}

/// This process is about to become another program. No other thread joins a connection meanwhile.
fn survive_as_another(next: &Program, kept: &mut Kept) -> Result<(), Refused> {
    survive_with(&mut |one| {
        let why = match hand_over_shared(one) {
            Ok(()) => return Ok(()),
            Err(why) => why,
        };
        // SAFETY: the name is that of the caller, whose call this is.
        match unsafe { next.loads_library() } && one.slot.holders.is_own() {
            true => kept.keep(one),
            false => Err(why),
        }
    })?;
    each(false, |one| {
        if !one.slot.holders.is_own() {
            one.slot.holders.has_strangers();
        }
    });
    Ok(())
}

/// This process is to become another program by a call, which returns if it fails.
fn becomes(next: Program, call: impl FnOnce() -> c_int) -> c_int {
    // A shell looks for a program in many folders.
    // SAFETY: the name is that of the caller, whose call this is.
    if unsafe { next.is_missing() } {
        return call();
    }
    match vfork::is_child() {
        // Its stack may be small.
        true => survive().map_or_else(Refused::fail, |()| call()),
        false => becomes_here(&next, call),
    }
}

#[inline(never)]
fn becomes_here(next: &Program, call: impl FnOnce() -> c_int) -> c_int {
    let _look = Look::begin();
    let mut kept = Kept::new();
    if let Err(refused) = survive_as_another(next, &mut kept) {
        return refused.fail();
    }
    table::is_leaving(true);
    let failed = call();
    let was = real::errno();
    table::is_leaving(false);
    drop(kept);
    real::set_errno(was);
    failed
}

/// A program by its path, which begins at this folder.
fn at(folder: c_int, file: *const c_char, environment: Texts) -> Program {
    Program { file, by: By::In(folder), environment }
}

/// A program by its name.
fn by_name(file: *const c_char, environment: Texts) -> Program {
    Program { file, by: By::Name, environment }
}

/// execve(2), by the kernel's number.
pub fn execve_by(path: *const c_char, envp: Texts, call: impl FnOnce() -> c_int) -> c_int {
    becomes(at(libc::AT_FDCWD, path, envp), call)
}

/// execveat(2), by the kernel's number.
pub fn execveat_by(
    folder: c_int,
    path: *const c_char,
    envp: Texts,
    call: impl FnOnce() -> c_int,
) -> c_int {
    becomes(at(folder, path, envp), call)
}

/// execve(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn execve(path: *const c_char, argv: Texts, envp: Texts) -> c_int {
    // SAFETY: the caller's arguments.
    execve_by(path, envp, || unsafe {
        target::starts(path, By::Path, envp, |envp| real::execve(path, argv, envp))
    })
}

/// execveat(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn execveat(
    folder: c_int,
    path: *const c_char,
    argv: Texts,
    envp: Texts,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    execveat_by(folder, path, envp, || unsafe {
        target::starts_at((folder, path), flags, envp, |envp| {
            real::execveat(folder, path, argv, envp, flags)
        })
    })
}

/// execv(3).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn execv(path: *const c_char, argv: Texts) -> c_int {
    let next = at(libc::AT_FDCWD, path, own_environment());
    // SAFETY: the caller's arguments.
    becomes(next, || unsafe {
        target::starts(path, By::Path, own_environment(), |envp| real::execve(path, argv, envp))
    })
}

/// execvp(3).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn execvp(file: *const c_char, argv: Texts) -> c_int {
    // SAFETY: the caller's arguments.
    becomes(by_name(file, own_environment()), || unsafe {
        target::starts(file, By::Name, own_environment(), |envp| real::execvpe(file, argv, envp))
    })
}

/// execvpe(3).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn execvpe(file: *const c_char, argv: Texts, envp: Texts) -> c_int {
    // SAFETY: the caller's arguments.
    becomes(by_name(file, envp), || unsafe {
        target::starts(file, By::Name, envp, |envp| real::execvpe(file, argv, envp))
    })
}

/// fexecve(3).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn fexecve(fd: c_int, argv: Texts, envp: Texts) -> c_int {
    // SAFETY: the caller's arguments.
    becomes(at(fd, c"".as_ptr(), envp), || unsafe {
        let path = target::path_of(fd);
        let path = path.as_ptr().cast();
        target::starts(path, By::Path, envp, |envp| real::fexecve(fd, argv, envp))
    })
}

/// system(3), whose command has the descriptors of this process.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn system(command: *const c_char) -> c_int {
    match survive() {
        // SAFETY: the caller's argument.
        Ok(()) => unsafe { real::system(command) },
        Err(refused) => refused.fail(),
    }
}

/// popen(3), whose command has the descriptors of this process.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    match survive() {
        // SAFETY: the caller's arguments.
        Ok(()) => unsafe { real::popen(command, mode) },
        Err(refused) => {
            refused.fail();
            std::ptr::null_mut()
        }
    }
}

/// popen(3) under its other name.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn _IO_popen(
    command: *const c_char,
    mode: *const c_char,
) -> *mut FILE {
    // SAFETY: the caller's arguments.
    unsafe { popen(command, mode) }
}

/// wordexp(3), which may start a shell.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn wordexp(
    words: *const c_char,
    to: *mut c_void,
    flags: c_int,
) -> c_int {
    const NO_SPACE: c_int = 1;
    match survive() {
        // SAFETY: the caller's arguments.
        Ok(()) => unsafe { real::wordexp(words, to, flags) },
        Err(_) => NO_SPACE,
    }
}

type Spawn = *const c_void;

/// posix_spawn_file_actions_adddup2(3): another program is to have a descriptor.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn posix_spawn_file_actions_adddup2(
    actions: *mut c_void,
    from: c_int,
    to: c_int,
) -> c_int {
    match is_for_strangers(from) {
        // SAFETY: the caller's arguments.
        Ok(()) => unsafe { real::posix_spawn_file_actions_adddup2(actions, from, to) },
        Err(_) => libc::EAGAIN,
    }
}

/// Defines functions that start a program in a child, and return an error.
macro_rules! spawns {
    ($(#[doc = $doc:literal] $name:ident: $first:ty, $by:expr;)*) => {
        $(
            #[doc = $doc]
            ///
            /// # Safety
            /// As the C library's.
            #[no_mangle]
            pub unsafe extern "C-unwind" fn $name(
                child: $first,
                file: *const c_char,
                actions: Spawn,
                attributes: Spawn,
                argv: Texts,
                envp: Texts,
            ) -> c_int {
                match survive() {
                    // SAFETY: the caller's arguments.
                    Ok(()) => unsafe {
                        target::starts(file, $by, envp, |envp| {
                            real::$name(child, file, actions, attributes, argv, envp)
                        })
                    },
                    Err(_) => libc::EAGAIN,
                }
            }
        )*
    };
}

spawns! {
    #[doc = "posix_spawn(3)."] posix_spawn: *mut pid_t, By::Path;
    #[doc = "posix_spawnp(3)."] posix_spawnp: *mut pid_t, By::Name;
    #[doc = "pidfd_spawn(3)."] pidfd_spawn: *mut c_int, By::Path;
    #[doc = "pidfd_spawnp(3)."] pidfd_spawnp: *mut c_int, By::Name;
}

/// Calls `each` with the descriptors that a message carries from one process to another.
///
/// # Safety
/// The caller's message is valid.
pub(super) unsafe fn passed(message: &msghdr, each: impl Fn(c_int)) {
    let (control, len) = (message.msg_control.cast::<u8>(), message.msg_controllen);
    // SAFETY: the caller's control messages.
    unsafe {
        if control.is_null() || !guard::is_readable(control, len) {
            return;
        }
        let mut head = libc::CMSG_FIRSTHDR(message);
        while !head.is_null() {
            let (bytes, at) = ((*head).cmsg_len as usize, head as usize - control as usize);
            // The kernel refuses the message where a length is none.
            let Some(bytes) = bytes.checked_sub(libc::CMSG_LEN(0) as usize) else { return };
            if bytes > len - at - libc::CMSG_LEN(0) as usize {
                return;
            }
            if (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(head).cast::<c_int>();
                (0..bytes / size_of::<c_int>()).for_each(|i| each(data.add(i).read_unaligned()));
            }
            head = libc::CMSG_NXTHDR(message, head);
        }
    }
}

/// Ends the rings of connections whose descriptors a message carries to another process. False: a
/// reader there would miss bytes.
///
/// # Safety
/// The caller's message is valid.
pub(super) unsafe fn hands_over(message: &msghdr) -> bool {
    let is_over = std::cell::Cell::new(true);
    // SAFETY: the caller's message.
    unsafe {
        passed(message, |fd| {
            let Some(one) = table::connection(fd) else { return };
            // A close here is no end of the connection from now on.
            one.slot.holders.has_strangers();
            if let Err(why) = hand_over(&one) {
                complain("a descriptor was not passed on", fd, &why);
                is_over.set(false);
            }
        });
    }
    is_over.get()
}

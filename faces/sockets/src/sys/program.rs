//! The program that a process is about to become: the loader puts this library before it, or not.
//!
//! The answer is yes only if that is certain: the file is one of the C library's loader, has no
//! rights of its own, is not made by a compiler whose programs make their system calls themselves,
//! the environment names this library, and no module of the system's security may take the
//! variable away.

use super::real;
use super::target::{self, By};
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::mem::{size_of, zeroed};
use weft_streams::program;

/// A program, as a function that starts it names it, and its environment. Null: that is not known.
#[derive(Clone, Copy)]
pub struct Program {
    /// The name of its file.
    pub file: *const c_char,
    /// The way in which the function looks for it.
    pub by: By,
    /// The environment.
    pub environment: *const *const c_char,
}

impl Program {
    /// True if this library will be before the program.
    ///
    /// # Safety
    /// The name and the environment are those of a call of the program.
    pub unsafe fn loads_library(&self) -> bool {
        let was = real::errno();
        // SAFETY: the caller's environment and name.
        let loads = unsafe {
            has_library(self.environment)
                && has_own_rights()
                && !is_confined()
                && target::look(self.file, self.by, |fd| !has_rights(fd))
                    == Some(program::Program::Takes)
        };
        real::set_errno(was);
        loads
    }

    /// True if there is no such file: a call that starts it fails.
    ///
    /// # Safety
    /// The name is that of a call of the program.
    pub unsafe fn is_missing(&self) -> bool {
        // SAFETY: the caller's name.
        unsafe { target::is_missing(self.file, self.by) }
    }
}

/// Returns a text of the caller.
///
/// # Safety
/// Null, or a C string.
unsafe fn text<'a>(at: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's text.
    (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) })
}

/// True if a file gives its program rights that this process does not have.
fn has_rights(fd: c_int) -> bool {
    let name = c"security.capability".as_ptr();
    // SAFETY: all-zero is a valid value, written for its size; a question without room for the
    // answer.
    unsafe {
        let mut stat: libc::stat = zeroed();
        libc::fstat(fd, &mut stat) != 0
            || stat.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0
            || libc::fgetxattr(fd, name, std::ptr::null_mut(), 0) >= 0
    }
}

/// True if a module of the system's security (AppArmor, SELinux) has rules for this process, or
/// for the program that it becomes: with a change of the rules the loader leaves libraries out.
fn is_confined() -> bool {
    let has_rules = |path: &CStr| {
        let mut label = [0u8; 16];
        // SAFETY: a C string; room for so many bytes.
        let n = unsafe {
            let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            let n = libc::read(fd, label.as_mut_ptr().cast(), label.len());
            real::close(fd);
            n.max(0) as usize
        };
        // Without a module there is no file, or nothing to be read. SELinux has rules for all.
        let label = label[..n].split(|byte| matches!(byte, b'\n' | b'\0' | b' ')).next();
        !matches!(label, None | Some(b"" | b"unconfined"))
    };
    has_rules(c"/proc/self/attr/current") || has_rules(c"/proc/self/attr/exec")
}

/// True if the next program has the rights of this one's user: otherwise the loader leaves
/// libraries out.
fn has_own_rights() -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::getuid() == libc::geteuid() && libc::getgid() == libc::getegid() }
}

/// True if an environment names this library, and does not turn it off.
///
/// # Safety
/// Null, or an environment.
unsafe fn has_library(environment: *const *const c_char) -> bool {
    if environment.is_null() {
        return false;
    }
    // SAFETY: all-zero is a valid value; the address is one of this library. Its name stays.
    let own = unsafe {
        let mut info: libc::Dl_info = zeroed();
        let at = has_own_rights as fn() -> bool as *const c_void;
        match libc::dladdr(at, &mut info) {
            0 => None,
            _ => text(info.dli_fname),
        }
    };
    let Some(own) = own.filter(|own| own.to_bytes().starts_with(b"/")) else { return false };
    let (mut loads, mut is_off, mut at) = (false, false, environment);
    // SAFETY: the environment ends with null; the path is a C string.
    unsafe {
        while let Some(variable) = text(*at) {
            let variable = variable.to_bytes();
            if let Some(list) = variable.strip_prefix(b"LD_PRELOAD=") {
                let mut names = list.split(|byte| matches!(byte, b':' | b' '));
                loads = names.any(|name| name == own.to_bytes());
            }
            is_off |= variable.strip_prefix(b"WEFT_SOCKETS=").is_some_and(|value| value == b"0");
            at = at.byte_add(size_of::<*const c_char>());
        }
        loads && !is_off && libc::access(own.as_ptr(), libc::R_OK) == 0
    }
}

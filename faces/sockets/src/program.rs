//! The program that a process is about to become: the loader puts this library before it, or not.
//!
//! The answer is yes only if that is certain: the file is one of the C library's loader, has no
//! rights of its own, is not made by a compiler whose programs make their system calls themselves,
//! the environment names this library, and no module of the system's security may take the
//! variable away.

use crate::sys::{calls, real};
use crate::target::{self, By, Env, Text};
use libc::c_int;
use std::ffi::CStr;
use weft_streams::program;

/// A program, as a function that starts it names it, and its environment.
#[derive(Clone, Copy)]
pub struct Program {
    /// The name of its file.
    pub file: Text,
    /// The way in which the function looks for it.
    pub by: By,
    /// The environment.
    pub environment: Env,
}

impl Program {
    /// True if this library will be before the program.
    pub fn loads_library(&self) -> bool {
        let was = real::errno();
        // With other rights than its user's the loader leaves libraries out.
        let loads = has_library(self.environment)
            && calls::has_own_rights()
            && !is_confined()
            && target::look(self.file, self.by, |fd| !has_rights(fd))
                == Some(program::Program::Takes);
        real::set_errno(was);
        loads
    }

    /// True if there is no such file: a call that starts it fails.
    pub fn is_missing(&self) -> bool {
        target::is_missing(self.file, self.by)
    }
}

/// True if a file gives its program rights that this process does not have.
fn has_rights(fd: c_int) -> bool {
    calls::facts(fd).is_none_or(|facts| facts.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0)
        || calls::has_attribute(fd, c"security.capability")
}

/// True if a module of the system's security (AppArmor, SELinux) has rules for this process, or
/// for the program that it becomes: with a change of the rules the loader leaves libraries out.
fn is_confined() -> bool {
    let has_rules = |path: &CStr| {
        let mut label = [0u8; 16];
        let n = calls::open(libc::AT_FDCWD, path, libc::O_CLOEXEC).map_or(0, |fd| {
            let n = calls::read_at(fd, &mut label, 0);
            calls::close(fd);
            n
        });
        // Without a module there is no file, or nothing to be read. SELinux has rules for all.
        let label = label[..n].split(|byte| matches!(byte, b'\n' | b'\0' | b' ')).next();
        !matches!(label, None | Some(b"" | b"unconfined"))
    };
    has_rules(c"/proc/self/attr/current") || has_rules(c"/proc/self/attr/exec")
}

/// True if an environment names this library, and does not turn it off.
fn has_library(environment: Env) -> bool {
    let own = target::own().filter(|own| own.to_bytes().starts_with(b"/"));
    let Some(own) = own else { return false };
    let (mut loads, mut is_off) = (false, false);
    environment.texts(|variable| {
        let variable = variable.text().map_or(&[][..], CStr::to_bytes);
        if let Some(list) = variable.strip_prefix(b"LD_PRELOAD=") {
            let mut names = list.split(|byte| matches!(byte, b':' | b' '));
            loads = names.any(|name| name == own.to_bytes());
        }
        is_off |= variable.strip_prefix(b"WEFT_SOCKETS=").is_some_and(|value| value == b"0");
        true
    });
    loads && !is_off && calls::may(libc::AT_FDCWD, own, libc::R_OK)
}

//! Programs that this library cannot be put before, such as those built with musl or with the
//! address sanitizer: they would not start. A program that this one starts inherits the loader's
//! variable, so the variable goes to such a program without this library.

use super::{guard, real, vfork};
use libc::{c_char, c_int};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};
use weft_streams::program::{self, Program};

/// A list of texts, as the environment of a program.
type Env = *const *const c_char;

/// The name of this library's file, as the loader knows it.
static OWN: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());
/// The loader's variable, up to its value.
const VARIABLE: &[u8] = b"LD_PRELOAD=";
/// Scripts whose interpreter is a script, at most.
const SCRIPTS: usize = 4;
/// Most texts of an environment that is written anew, and most bytes of the variable.
const TEXTS: usize = 1024;
const BYTES: usize = 4096;

/// Notes this library's name.
pub fn begin() {
    // SAFETY: all-zero is a valid value; the address is one of this library.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        match libc::dladdr((&raw const OWN).cast(), &mut info) {
            0 => return,
            _ => info.dli_fname,
        }
    };
    OWN.store(name.cast_mut(), Ordering::Relaxed);
}

/// The way in which a program is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By its path.
    Path,
    /// By its path, which begins at the folder of this descriptor unless it is absolute.
    In(c_int),
    /// By its path, or by its name in one of the folders of PATH.
    Name,
}

/// Makes a call that starts a program, with the environment for it.
///
/// # Safety
/// The caller's file and environment, or addresses that the kernel refuses.
pub unsafe fn starts<R>(file: *const c_char, by: By, env: Env, call: impl FnOnce(Env) -> R) -> R {
    // SAFETY: the caller's.
    match unsafe { is_ours(env) && refuses(file, by) } {
        // SAFETY: the same.
        true => unsafe { without(env, call) },
        false => call(env),
    }
}

/// The same for execveat(2), which may name the program by a descriptor.
///
/// # Safety
/// As of [`starts`].
pub unsafe fn starts_at<R>(
    (folder, path): (c_int, *const c_char),
    flags: c_int,
    env: Env,
    call: impl FnOnce(Env) -> R,
) -> R {
    let own = path_of(folder);
    // SAFETY: the caller's text, if it is there.
    let is_empty = unsafe { !path.is_null() && guard::is_readable(path, 1) && *path == 0 };
    let (file, by) = match is_empty && flags & libc::AT_EMPTY_PATH != 0 {
        true => (own.as_ptr().cast(), By::Path),
        false => (path, By::In(folder)),
    };
    // SAFETY: the caller's.
    unsafe { starts(file, by, env, call) }
}

/// The environment of this process.
pub fn environment() -> Env {
    extern "C" {
        static environ: Env;
    }
    // SAFETY: read as the C library's functions read it.
    unsafe { environ }
}

/// Returns the value of the loader's variable.
///
/// # Safety
/// The caller's environment.
unsafe fn value<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: a text of the caller's environment.
    unsafe { CStr::from_ptr(text) }.to_bytes().strip_prefix(VARIABLE)
}

/// Calls `each` with the texts of an environment. False once it returns false, or where there is
/// none.
///
/// # Safety
/// The caller's environment.
unsafe fn all(env: Env, mut each: impl FnMut(*const c_char) -> bool) -> bool {
    let mut at = env;
    // SAFETY: the caller's list, if it is there, which ends with a null.
    unsafe {
        if at.is_null() || !guard::is_readable(at, 1) {
            return false;
        }
        while !(*at).is_null() {
            if !each(*at) {
                return false;
            }
            at = at.add(1);
        }
    }
    true
}

/// True if this library is in the loader's variable.
///
/// # Safety
/// The caller's environment.
unsafe fn is_ours(env: Env) -> bool {
    let mut found = false;
    // SAFETY: the caller's environment.
    unsafe {
        all(env, |text| {
            found |= value(text).is_some_and(|list| list.split(ends).any(is_own));
            true
        });
    }
    found
}

/// True for what ends an entry of the variable.
fn ends(byte: &u8) -> bool {
    matches!(byte, b':' | b' ')
}

/// True for the entry of this library.
fn is_own(entry: &[u8]) -> bool {
    let own = OWN.load(Ordering::Relaxed);
    // SAFETY: the loader's text, which stays.
    !own.is_null() && unsafe { CStr::from_ptr(own) }.to_bytes() == entry
}

/// True if a program cannot have this library.
///
/// # Safety
/// The caller's name of a file.
pub(super) unsafe fn refuses(file: *const c_char, by: By) -> bool {
    // SAFETY: the caller's text, if it is there.
    let name = unsafe {
        if file.is_null() || !guard::is_readable(file, 1) {
            return false;
        }
        CStr::from_ptr(file).to_bytes()
    };
    let was = real::errno();
    let refuses = match by {
        By::Name if !name.contains(&b'/') => in_folders(name),
        By::In(folder) => look(folder, &[name], SCRIPTS),
        By::Name | By::Path => look(libc::AT_FDCWD, &[name], SCRIPTS),
    };
    real::set_errno(was);
    refuses == Some(true)
}

/// Looks at the first program of this name in the folders of PATH.
fn in_folders(name: &[u8]) -> Option<bool> {
    // SAFETY: the name is a C string; nobody changes the environment meanwhile, as for execvp(3).
    let folders = unsafe { libc::getenv(c"PATH".as_ptr()).as_ref() };
    // SAFETY: a text of the environment.
    let folders =
        folders.map_or(&b"/bin:/usr/bin"[..], |at| unsafe { CStr::from_ptr(at) }.to_bytes());
    folders.split(|&byte| byte == b':').find_map(|folder| match folder {
        b"" => look(libc::AT_FDCWD, &[name], SCRIPTS),
        folder => look(libc::AT_FDCWD, &[folder, b"/", name], SCRIPTS),
    })
}

/// True if a descriptor is of a file that may be run, and so of no folder.
fn is_program(fd: c_int) -> bool {
    // SAFETY: all-zero is a valid value, which is written for its size.
    let mode = unsafe {
        let mut facts: libc::stat = std::mem::zeroed();
        match libc::fstat(fd, &mut facts) {
            0 => facts.st_mode,
            _ => return false,
        }
    };
    mode & libc::S_IFMT == libc::S_IFREG && mode & 0o111 != 0
}

/// True if the program of a file cannot have this library; its path begins at this folder. `None`:
/// there is none to be read.
fn look(folder: c_int, name: &[&[u8]], scripts: usize) -> Option<bool> {
    let mut path = [0u8; libc::PATH_MAX as usize];
    let mut len = 0;
    for byte in name.iter().copied().flatten() {
        *path.get_mut(len)? = *byte;
        len += 1;
    }
    if len == path.len() {
        return None;
    }
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: a C string.
    let fd = unsafe { libc::openat(folder, path.as_ptr().cast(), flags) };
    if fd < 0 {
        return None;
    }
    let found = is_program(fd).then(|| {
        program::look(|at, to| {
            // SAFETY: room for so many bytes.
            let n = unsafe { libc::pread(fd, to.as_mut_ptr().cast(), to.len(), at as libc::off_t) };
            n.max(0) as usize
        })
    });
    // SAFETY: a descriptor of this function.
    unsafe { real::close(fd) };
    Some(match found? {
        Program::Script(name) => {
            scripts > 0 && look(libc::AT_FDCWD, &[name.bytes()], scripts - 1) == Some(true)
        }
        found => found == Program::OtherLoader || found == Program::Sanitizer,
    })
}

/// Makes a call with an environment whose loader's variable does not name this library.
///
/// # Safety
/// The caller's environment.
#[inline(never)]
unsafe fn without<R>(env: Env, call: impl FnOnce(Env) -> R) -> R {
    let (mut texts, mut bytes) = ([std::ptr::null(); TEXTS], [0u8; BYTES]);
    let mut count = 0;
    // SAFETY: the caller's environment.
    let is_whole = unsafe {
        all(env, |text| {
            let text = match value(text) {
                Some(list) => match rest(list, &mut bytes) {
                    true => bytes.as_ptr().cast(),
                    false => return true,
                },
                None => text,
            };
            texts[count] = text;
            count += 1;
            // The last one is a null.
            count < TEXTS - 1
        })
    };
    call(if is_whole { texts.as_ptr() } else { env })
}

/// Writes the variable without this library. False: nothing is left, or too much.
fn rest(list: &[u8], to: &mut [u8; BYTES]) -> bool {
    let mut len = 0;
    let mut add = |part: &[u8]| {
        let room = to.get_mut(len..len + part.len()).map(|room| room.copy_from_slice(part));
        len += part.len();
        room.is_some()
    };
    let mut others =
        list.split(ends).filter(|entry| !entry.is_empty() && !is_own(entry)).peekable();
    if others.peek().is_none() || !add(VARIABLE) {
        return false;
    }
    others.all(|entry| add(entry) && add(b":")) && add(b"\0")
}

/// This process is about to become a program that is named to a function without an environment of
/// its own: this process's loses this library if the program cannot have it.
///
/// # Safety
/// The caller's name of a file.
pub unsafe fn becomes(file: *const c_char, by: By) {
    let env = environment();
    // SAFETY: the caller's.
    if vfork::is_child() || !unsafe { is_ours(env) && refuses(file, by) } {
        return;
    }
    let mut left = [0u8; BYTES];
    // SAFETY: C strings; nobody changes the environment meanwhile, as for execl(3).
    unsafe {
        let list = libc::getenv(c"LD_PRELOAD".as_ptr());
        let is_left = !list.is_null() && rest(CStr::from_ptr(list).to_bytes(), &mut left);
        match is_left {
            true => {
                let value = left[VARIABLE.len()..].as_ptr().cast();
                libc::setenv(c"LD_PRELOAD".as_ptr(), value, 1)
            }
            false => libc::unsetenv(c"LD_PRELOAD".as_ptr()),
        };
    }
}

/// The path of a descriptor's file.
pub fn path_of(fd: c_int) -> [u8; 32] {
    let mut path = [0u8; 32];
    let start = b"/proc/self/fd/";
    path[..start.len()].copy_from_slice(start);
    let (mut digits, mut rest) = ([0u8; 10], fd.max(0) as u32);
    let mut n = 0;
    loop {
        digits[n] = b'0' + (rest % 10) as u8;
        rest /= 10;
        n += 1;
        if rest == 0 {
            break;
        }
    }
    let digits = digits[..n].iter().rev();
    path[start.len()..].iter_mut().zip(digits).for_each(|(to, from)| *to = *from);
    path
}

//! Programs that this library cannot be put before, such as those built with musl or with the
//! address sanitizer: they would not start. A program that this one starts inherits the loader's
//! variable, so the variable goes to such a program without this library.

use super::room::{self, Memory};
use super::{guard, line, real};
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
/// Room for the name of a script's program, and for a C string's end.
const NAME: usize = 192;

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
    /// By its path, which begins at the folder of this descriptor unless it is absolute; an empty
    /// path is the descriptor's own file.
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
unsafe fn refuses(file: *const c_char, by: By) -> bool {
    // SAFETY: the caller's.
    let found = unsafe { look(file, by, |_| true) };
    matches!(found, Some(Program::OtherLoader | Program::Sanitizer))
}

/// Looks at the program of a file, as a function that starts it finds it. `None`: there is none to
/// be read, or one of its files, the scripts first, is not `fine`.
///
/// # Safety
/// The caller's name of a file.
pub unsafe fn look(file: *const c_char, by: By, fine: impl Fn(c_int) -> bool) -> Option<Program> {
    let was = real::errno();
    // SAFETY: the caller's.
    let mut next = unsafe { open(file, by) };
    let mut found = None;
    for _ in 0..=SCRIPTS {
        let Some(fd) = next else { break };
        found = fine(fd).then(|| program::look(|at, to| read(fd, at, to)));
        line::close(fd);
        next = match &found {
            Some(Program::Script(name)) => open_interpreter(name.bytes()),
            _ => break,
        };
    }
    real::set_errno(was);
    found.filter(|found| !matches!(found, Program::Script(_)))
}

fn read(fd: c_int, at: u64, to: &mut [u8]) -> usize {
    // SAFETY: room for so many bytes.
    let n = unsafe { libc::pread(fd, to.as_mut_ptr().cast(), to.len(), at as libc::off_t) };
    n.max(0) as usize
}

/// Returns a text of a caller, if it is there.
///
/// # Safety
/// Null, or a C string, or an address that the kernel refuses.
unsafe fn text<'a>(at: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's text.
    unsafe { (!at.is_null() && guard::is_readable(at, 1)).then(|| CStr::from_ptr(at)) }
}

/// True if a name is looked for in the folders of PATH.
fn is_searched(name: &CStr, by: By) -> bool {
    by == By::Name && !name.to_bytes().contains(&b'/')
}

/// Opens the file of a program.
///
/// # Safety
/// The caller's name of a file.
unsafe fn open(file: *const c_char, by: By) -> Option<c_int> {
    // SAFETY: the caller's.
    let name = unsafe { text(file) }?;
    match by {
        _ if is_searched(name, by) => {
            // One that may be run and not be read ends the search too.
            let hidden = |path: &CStr| {
                // SAFETY: a C string.
                (unsafe { libc::access(path.as_ptr(), libc::R_OK) } != 0
                    && unsafe { libc::access(path.as_ptr(), libc::X_OK) } == 0)
                    .then_some(-1)
            };
            let found = |path: &CStr| {
                let fd = open_at(HERE, path).or_else(|| hidden(path))?;
                if fd >= 0 && !is_program(fd) {
                    line::close(fd);
                    return None;
                }
                Some(fd)
            };
            in_folders(name.to_bytes(), found).flatten().filter(|&fd| fd >= 0)
        }
        By::In(folder) if name.is_empty() => {
            let own = path_of(folder);
            open_at(HERE, CStr::from_bytes_until_nul(&own).ok()?)
        }
        By::In(folder) => open_at(folder, name),
        By::Name | By::Path => open_at(HERE, name),
    }
}

const HERE: c_int = libc::AT_FDCWD;

/// Opens the program of a script.
fn open_interpreter(name: &[u8]) -> Option<c_int> {
    let mut path = [0u8; NAME];
    path.get_mut(..name.len())?.copy_from_slice(name);
    open_at(HERE, CStr::from_bytes_until_nul(&path).ok()?)
}

fn open_at(folder: c_int, path: &CStr) -> Option<c_int> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: a C string.
    let fd = unsafe { libc::openat(folder, path.as_ptr(), flags) };
    (fd >= 0).then_some(fd)
}

/// Calls `each` with the paths of a name in the folders of PATH, until it returns something.
/// `None`: there is no room for paths.
fn in_folders<R>(name: &[u8], each: impl Fn(&CStr) -> Option<R>) -> Option<Option<R>> {
    // SAFETY: the name is a C string; nobody changes the environment meanwhile, as for execvp(3).
    let folders = unsafe { libc::getenv(c"PATH".as_ptr()).as_ref() };
    // SAFETY: a text of the environment.
    let folders =
        folders.map_or(&b"/bin:/usr/bin"[..], |at| unsafe { CStr::from_ptr(at) }.to_bytes());
    let mut folders = folders.split(|&byte| byte == b':');
    let in_folder = |path: &mut [u8], folder: &[u8]| {
        let slash: &[u8] = if folder.is_empty() { b"" } else { b"/" };
        let mut len = 0;
        for part in [folder, slash, name, b"\0"] {
            path.get_mut(len..len + part.len())?.copy_from_slice(part);
            len += part.len();
        }
        each(CStr::from_bytes_until_nul(path).ok()?)
    };
    room::with(|room| {
        let path = &mut room?.bytes;
        Some(folders.find_map(|folder| in_folder(path, folder)))
    })
}

/// True if there is no file of a program: a call that starts it fails.
///
/// # Safety
/// The caller's name of a file.
pub unsafe fn is_missing(file: *const c_char, by: By) -> bool {
    let was = real::errno();
    let is_nowhere = |folder, path: &CStr| {
        // SAFETY: the path is a C string.
        let found = unsafe { libc::faccessat(folder, path.as_ptr(), libc::F_OK, 0) };
        found != 0 && matches!(real::errno(), libc::ENOENT | libc::ENOTDIR)
    };
    // SAFETY: the caller's.
    let is_missing = unsafe { text(file) }.is_some_and(|name| match by {
        _ if name.is_empty() => false,
        _ if is_searched(name, by) => {
            let is_there = |path: &CStr| (!is_nowhere(HERE, path)).then_some(());
            in_folders(name.to_bytes(), is_there) == Some(None)
        }
        By::In(folder) => is_nowhere(folder, name),
        By::Name | By::Path => is_nowhere(HERE, name),
    });
    real::set_errno(was);
    is_missing
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

/// Makes a call with an environment whose loader's variable does not name this library.
///
/// # Safety
/// The caller's environment.
unsafe fn without<R>(env: Env, call: impl FnOnce(Env) -> R) -> R {
    room::with(|room| {
        // SAFETY: the caller's environment.
        let changed = room.and_then(|room| unsafe { write_anew(env, room) }.then_some(room));
        call(changed.map_or(env, |room| room.texts.as_ptr()))
    })
}

/// Writes an environment without this library. False: it is too long.
///
/// # Safety
/// The caller's environment.
unsafe fn write_anew(env: Env, room: &mut Memory) -> bool {
    let Memory { bytes, texts } = room;
    let mut count = 0;
    // SAFETY: the caller's environment.
    let is_whole = unsafe {
        all(env, |text| {
            let text = match value(text) {
                Some(list) => match rest(list, bytes) {
                    true => bytes.as_ptr().cast(),
                    false => return true,
                },
                None => text,
            };
            texts[count] = text;
            count += 1;
            count < texts.len() - 1
        })
    };
    texts[count] = std::ptr::null();
    is_whole
}

/// Writes the variable without this library. False: nothing is left, or too much.
fn rest(list: &[u8], to: &mut [u8]) -> bool {
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

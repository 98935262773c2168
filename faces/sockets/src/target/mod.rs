//! Programs that this library cannot be put before, such as those built with musl or with the
//! address sanitizer: they would not start. A program that this one starts inherits the loader's
//! variable, so the variable goes to such a program without this library.

mod sys;

pub use sys::environment;

use crate::guard::Caller;
use crate::scratch::{self, Memory};
use crate::sys::{calls, real};
use libc::{c_char, c_int};
use std::ffi::CStr;
use std::sync::OnceLock;
use weft_streams::program::{self, Program};

/// A list of texts, as a function that starts a program takes it.
pub type Texts = *const *const c_char;
/// The environment of a program, as a caller gives it.
pub type Env = Caller<*const c_char>;
/// The name of a program's file, as a caller gives it.
pub type Text = Caller<c_char>;

/// The name of this library's file, as the loader knows it.
static OWN: OnceLock<&'static CStr> = OnceLock::new();
/// The loader's variable, up to its value.
const VARIABLE: &[u8] = b"LD_PRELOAD=";
/// Scripts whose interpreter is a script, at most.
const SCRIPTS: usize = 4;
/// Space for the name of a script's program, and for a C string's end.
const NAME: usize = 192;

/// Notes this library's name.
pub fn begin() {
    calls::own_name().into_iter().for_each(|name| _ = OWN.set(name));
}

/// Returns this library's name.
pub fn own() -> Option<&'static CStr> {
    OWN.get().copied()
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
pub fn starts<R>(file: Text, by: By, env: Env, call: impl FnOnce(Texts) -> R) -> R {
    match is_ours(env) && refuses(file, by) {
        true => without(env, call),
        false => call(env.at()),
    }
}

/// Makes a call of execveat(2), which may name the program by a descriptor.
pub fn starts_at<R>(
    (folder, path): (c_int, Text),
    flags: c_int,
    env: Env,
    call: impl FnOnce(Texts) -> R,
) -> R {
    let is_empty = path.get().is_some_and(|&first| first == 0);
    let is_own = is_empty && flags & libc::AT_EMPTY_PATH != 0;
    starts(if is_own { sys::EMPTY } else { path }, By::In(folder), env, call)
}

/// Returns the value of the loader's variable.
fn value<'a>(text: Text) -> Option<&'a [u8]> {
    text.text()?.to_bytes().strip_prefix(VARIABLE)
}

/// True if this library is in the loader's variable.
fn is_ours(env: Env) -> bool {
    let mut found = false;
    env.texts(|text| {
        found |= value(text).is_some_and(|list| list.split(ends).any(is_own));
        true
    });
    found
}

/// True for what ends an entry of the variable.
fn ends(byte: &u8) -> bool {
    matches!(byte, b':' | b' ')
}

/// True for the entry of this library.
fn is_own(entry: &[u8]) -> bool {
    own().is_some_and(|own| own.to_bytes() == entry)
}

/// True if a program cannot have this library.
fn refuses(file: Text, by: By) -> bool {
    let found = look(file, by, |_| true);
    matches!(found, Some(Program::OtherLoader | Program::Sanitizer))
}

/// Looks at the program of a file, as a function that starts it finds it. `None`: there is none to
/// be read, or one of its files, the scripts first, is not `fine`.
pub fn look(file: Text, by: By, fine: impl Fn(c_int) -> bool) -> Option<Program> {
    let was = real::errno();
    let mut next = open(file, by);
    let mut found = None;
    for _ in 0..=SCRIPTS {
        let Some(fd) = next else { break };
        found = fine(fd).then(|| program::look(|at, to| calls::read_at(fd, to, at)));
        calls::close(fd);
        next = match &found {
            Some(Program::Script(name)) => open_interpreter(name.bytes()),
            _ => break,
        };
    }
    real::set_errno(was);
    found.filter(|found| !matches!(found, Program::Script(_)))
}

/// True if a name is looked for in the folders of PATH.
fn is_searched(name: &CStr, by: By) -> bool {
    by == By::Name && !name.to_bytes().contains(&b'/')
}

/// Opens the file of a program.
fn open(file: Text, by: By) -> Option<c_int> {
    let name = file.text()?;
    match by {
        _ if is_searched(name, by) => {
            // One that may be run and not be read ends the search too.
            let hidden = |path: &CStr| {
                let may = |mode| calls::may(HERE, path, mode);
                (!may(libc::R_OK) && may(libc::X_OK)).then_some(-1)
            };
            let found = |path: &CStr| {
                let fd = open_at(HERE, path).or_else(|| hidden(path))?;
                if fd >= 0 && !is_program(fd) {
                    calls::close(fd);
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
    calls::open(folder, path, libc::O_CLOEXEC | libc::O_NONBLOCK)
}

/// Calls `each` with the paths of a name in the folders of PATH, until it returns something.
/// `None`: there is no space for paths.
fn in_folders<R>(name: &[u8], each: impl Fn(&CStr) -> Option<R>) -> Option<Option<R>> {
    let folders = calls::text_of(c"PATH").unwrap_or(b"/bin:/usr/bin");
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
    scratch::with(|scratch| {
        let path = &mut scratch?.bytes;
        Some(folders.find_map(|folder| in_folder(path, folder)))
    })
}

/// True if there is no file of a program: a call that starts it fails.
pub fn is_missing(file: Text, by: By) -> bool {
    let was = real::errno();
    let is_nowhere = |folder, path: &CStr| {
        !calls::may(folder, path, libc::F_OK)
            && matches!(real::errno(), libc::ENOENT | libc::ENOTDIR)
    };
    let is_missing = file.text().is_some_and(|name| match by {
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
    let mode = calls::facts(fd).map_or(0, |facts| facts.st_mode);
    mode & libc::S_IFMT == libc::S_IFREG && mode & 0o111 != 0
}

/// Makes a call with an environment whose loader's variable does not name this library.
fn without<R>(env: Env, call: impl FnOnce(Texts) -> R) -> R {
    scratch::with(|scratch| {
        let changed = scratch.and_then(|scratch| write_anew(env, scratch).then_some(scratch));
        call(changed.map_or(env.at(), |scratch| scratch.texts.as_ptr()))
    })
}

/// Writes an environment without this library. False: it is too long.
fn write_anew(env: Env, scratch: &mut Memory) -> bool {
    let Memory { bytes, texts } = scratch;
    let mut count = 0;
    let is_whole = env.texts(|text| {
        let at = match value(text) {
            Some(list) if rest(list, bytes) => bytes.as_ptr().cast(),
            Some(_) => return true,
            None => text.at().cast_const(),
        };
        texts[count] = at;
        count += 1;
        count < texts.len() - 1
    });
    texts[count] = std::ptr::null();
    is_whole
}

/// Writes the variable without this library. False: nothing is left, or too much.
fn rest(list: &[u8], to: &mut [u8]) -> bool {
    let mut len = 0;
    let mut add = |part: &[u8]| {
        let space = to.get_mut(len..len + part.len()).map(|space| space.copy_from_slice(part));
        len += part.len();
        space.is_some()
    };
    let mut others =
        list.split(ends).filter(|entry| !entry.is_empty() && !is_own(entry)).peekable();
    if others.peek().is_none() || !add(VARIABLE) {
        return false;
    }
    others.all(|entry| add(entry) && add(b":")) && add(b"\0")
}

/// The path of a descriptor's file.
fn path_of(fd: c_int) -> [u8; 32] {
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

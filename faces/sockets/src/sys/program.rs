//! The program that a process is about to become: the loader puts this library before it, or not.
//!
//! The answer is yes only if that is certain: the file is one of the C library's loader, has no
//! rights of its own, is not made by a compiler whose programs make their system calls themselves,
//! and the environment names this library.

use super::real;
use super::target::{self, By};
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::mem::{size_of, zeroed};

/// A file with a program, as the functions that start it name it.
#[derive(Clone, Copy)]
pub enum File {
    /// By its path, relative to this descriptor of a folder; an empty path is the descriptor's own
    /// file.
    At(c_int, *const c_char),
    /// By a path, or by a name in the folders of the variable PATH.
    Search(*const c_char),
}

/// A program, and its environment. Null: that is not known.
#[derive(Clone, Copy)]
pub struct Program {
    /// The file.
    pub file: File,
    /// The environment.
    pub environment: *const *const c_char,
}

/// Scripts that name a script, at most.
const SCRIPTS: u32 = 4;
/// Bytes of a file that are looked at.
const HEAD: usize = 4096;
/// Room for a path.
const PATH: usize = 4096;

#[cfg(target_arch = "x86_64")]
const LOADER: (&[u8], u16) = (b"/lib64/ld-linux-x86-64.so.2", 62);
#[cfg(target_arch = "aarch64")]
const LOADER: (&[u8], u16) = (b"/lib/ld-linux-aarch64.so.1", 183);

/// Kinds of segments.
const INTERPRETER: u32 = 3;
const NOTE: u32 = 4;

pub use super::target::environment as own_environment;

impl Program {
    /// True if this library will be before the program.
    ///
    /// # Safety
    /// The names and the environment are those of a call of the program.
    pub unsafe fn loads_library(&self) -> bool {
        let was = real::errno();
        // SAFETY: the caller's environment and names.
        let loads = unsafe {
            has_library(self.environment) && has_own_rights() && self.is_fit() && self.takes()
        };
        real::set_errno(was);
        loads
    }

    /// True if there is no such file: a call that starts it fails.
    ///
    /// # Safety
    /// The names are those of a call of the program.
    pub unsafe fn is_missing(&self) -> bool {
        let was = real::errno();
        // SAFETY: the caller's names.
        let missing = unsafe {
            match self.file {
                File::At(folder, path) => text(path).is_some_and(|path| is_missing(folder, path)),
                File::Search(name) => text(name).is_some_and(|name| {
                    let has_folder = name.to_bytes().contains(&b'/');
                    match has_folder {
                        true => is_missing(libc::AT_FDCWD, name),
                        false => find(name.to_bytes()).is_none(),
                    }
                }),
            }
        };
        real::set_errno(was);
        missing
    }

    /// True if the program can have a library before it: the variable that names it goes to others
    /// without it ([`target`]).
    unsafe fn takes(&self) -> bool {
        // SAFETY: the caller's names.
        unsafe {
            match self.file {
                File::Search(name) => !target::refuses(name, By::Name),
                File::At(folder, path) if text(path).is_some_and(CStr::is_empty) => {
                    !target::refuses(target::path_of(folder).as_ptr().cast(), By::Path)
                }
                File::At(folder, path) => !target::refuses(path, By::In(folder)),
            }
        }
    }

    unsafe fn is_fit(&self) -> bool {
        let (folder, path, searches) = match self.file {
            File::At(folder, path) => (folder, path, false),
            File::Search(name) => (libc::AT_FDCWD, name, true),
        };
        // SAFETY: the caller's name.
        let path = unsafe { text(path) };
        let fd = path.and_then(|path| match searches && !path.to_bytes().contains(&b'/') {
            true => find(path.to_bytes()).map(|found| found.open(folder)),
            false => Some(open(folder, path)),
        });
        is_fit(fd.unwrap_or(-1), SCRIPTS)
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

/// True if there is no file of this path.
fn is_missing(folder: c_int, path: &CStr) -> bool {
    // SAFETY: the path is a C string.
    !path.is_empty()
        && unsafe { libc::faccessat(folder, path.as_ptr(), libc::F_OK, 0) } != 0
        && matches!(real::errno(), libc::ENOENT | libc::ENOTDIR)
}

fn open(folder: c_int, path: &CStr) -> c_int {
    let mut at = Path::new();
    if path.is_empty() {
        let _ = std::fmt::Write::write_fmt(&mut at, format_args!("/proc/self/fd/{folder}"));
        return at.open(libc::AT_FDCWD);
    }
    at.add(path.to_bytes());
    at.open(folder)
}

/// Returns the path of the first program of a name in the folders of the variable PATH.
fn find(name: &[u8]) -> Option<Path> {
    // SAFETY: the name is a C string.
    let folders = unsafe { text(libc::getenv(c"PATH".as_ptr())) };
    let folders = folders.map_or(&b"/bin:/usr/bin"[..], CStr::to_bytes);
    folders.split(|byte| *byte == b':').find_map(|folder| {
        let mut at = Path::new();
        at.add(if folder.is_empty() { b"." } else { folder });
        at.add(b"/");
        at.add(name);
        // SAFETY: the path is a C string.
        let is_there =
            at.fits() && unsafe { libc::access(at.bytes.as_ptr().cast(), libc::X_OK) } == 0;
        is_there.then_some(at)
    })
}

/// A path, without allocation.
struct Path {
    bytes: [u8; PATH],
    len: usize,
}

impl Path {
    fn new() -> Path {
        Path { bytes: [0; PATH], len: 0 }
    }

    fn add(&mut self, more: &[u8]) {
        let end = self.len.saturating_add(more.len());
        if let Some(to) = self.bytes.get_mut(self.len..end) {
            to.copy_from_slice(more);
        }
        self.len = end;
    }

    fn fits(&self) -> bool {
        self.len < PATH
    }

    /// Opens it, relative to a folder. -1: that failed.
    fn open(&self, folder: c_int) -> c_int {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        if !self.fits() {
            return -1;
        }
        // SAFETY: a C string, as the rest is zero.
        unsafe { libc::openat(folder, self.bytes.as_ptr().cast(), flags) }
    }
}

impl std::fmt::Write for Path {
    fn write_str(&mut self, more: &str) -> std::fmt::Result {
        self.add(more.as_bytes());
        Ok(())
    }
}

/// True if a file, which is closed, is a program of the loader.
fn is_fit(fd: c_int, scripts: u32) -> bool {
    if fd < 0 {
        return false;
    }
    let mut head = [0u8; HEAD];
    // SAFETY: all-zero is a valid value, written for its size; then room for so many bytes, and
    // a question without room for the answer.
    let (mode, n, has_rights) = unsafe {
        let mut stat: libc::stat = zeroed();
        let known = libc::fstat(fd, &mut stat) == 0;
        let n = libc::pread(fd, head.as_mut_ptr().cast(), HEAD, 0);
        let name = c"security.capability".as_ptr();
        let has_rights = libc::fgetxattr(fd, name, std::ptr::null_mut(), 0) >= 0;
        real::close(fd);
        (if known { stat.st_mode } else { u32::MAX }, n, has_rights)
    };
    if has_rights || mode & (libc::S_ISUID | libc::S_ISGID) != 0 || n <= 0 {
        return false;
    }
    let head = &head[..n as usize];
    match head.strip_prefix(b"#!") {
        Some(line) => scripts > 0 && interprets(line, scripts - 1),
        None => is_of_loader(head).unwrap_or(false),
    }
}

/// The first line of a script names its program.
fn interprets(line: &[u8], scripts: u32) -> bool {
    let line = line.trim_ascii_start();
    let end = line.iter().position(|byte| byte.is_ascii_whitespace() || *byte == 0);
    let mut at = Path::new();
    at.add(end.map_or(line, |end| &line[..end]));
    is_fit(at.open(libc::AT_FDCWD), scripts)
}

/// True if a program is of the C library's loader, and makes its system calls by the C library.
fn is_of_loader(head: &[u8]) -> Option<bool> {
    let small = |at: usize| Some(u16::from_le_bytes(*head.get(at..)?.first_chunk()?));
    let middle = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
    let large = |at: usize| Some(u64::from_le_bytes(*head.get(at..)?.first_chunk()?) as usize);
    // 64 bits, little-endian.
    if !head.starts_with(b"\x7fELF\x02\x01") || small(18)? != LOADER.1 {
        return None;
    }
    let (first, size, count) = (large(32)?, usize::from(small(54)?), small(56)?);
    let mut has_loader = false;
    for at in 0..usize::from(count) {
        let segment = first.checked_add(size.checked_mul(at)?)?;
        let (kind, from) = (middle(segment)?, large(segment.checked_add(8)?)?);
        let len = large(segment.checked_add(32)?)?;
        if kind != INTERPRETER && kind != NOTE {
            continue;
        }
        let bytes = head.get(from..from.checked_add(len)?)?;
        match kind {
            INTERPRETER => has_loader = bytes.strip_suffix(b"\0")? == LOADER.0,
            // A note of the Go compiler: its programs ask the kernel themselves.
            _ if bytes.windows(4).any(|four| four == b"Go\0\0") => return Some(false),
            _ => {}
        }
    }
    Some(has_loader)
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

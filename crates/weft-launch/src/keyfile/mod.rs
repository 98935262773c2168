//! The key of programs without a weft launcher: `WEFT_KEY`, else a file of the user.
//!
//! `weft run` hands every job a key of its own. Programs that use weft through another interface
//! (the libfabric provider under any `mpiexec`) have no connection to `weft run`. They take the key
//! from the variable `WEFT_KEY`, 64 hexadecimal digits as launchers write [`JOB_KEY`], or
//! from the file `weft/key` in the user's settings folder, which holds the same digits and is made
//! at its first use. Only its owner may read the file, since a process with the key can send to
//! every job that uses it. The hosts of a job need the same key.
//!
//! [`JOB_KEY`]: crate::JOB_KEY

use crate::wire::{from_hex, to_hex};
use crate::{random_key, KEY_LEN};
use rustix::process::geteuid;
use std::fmt;
use std::fs::{Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The variable that takes precedence over the file.
pub const VARIABLE: &str = "WEFT_KEY";

/// Longest file that is read, in bytes: the digits and surrounding white space.
const FILE_MAX: u64 = 256;

/// A key.
pub type Key = [u8; KEY_LEN];

/// The reason why there is no key.
#[non_exhaustive]
pub enum KeyError {
    /// `WEFT_KEY` holds something else than 64 hexadecimal digits, or only zeros.
    Variable,
    /// There is no file.
    Missing(PathBuf),
    /// Neither `XDG_CONFIG_HOME` nor `HOME` names a folder for the file.
    NoFolder,
    /// Others than the owner may read or write the file.
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file belongs to another user.
    Foreign {
        /// The file.
        path: PathBuf,
        /// Number of its owner.
        owner: u32,
        /// Number of this process's user.
        user: u32,
    },
    /// The file holds something else than 64 hexadecimal digits, or only zeros.
    Malformed(PathBuf),
    /// The system's refusal.
    System {
        /// The operation tried.
        what: &'static str,
        /// The file of the operation.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The message does not show the value, which may be a key with a typing error.
            KeyError::Variable => write!(
                f,
                "{VARIABLE} is not understood: a key has {} hexadecimal digits; unset it to use \
                 the key file",
                2 * KEY_LEN
            ),
            KeyError::Missing(path) => write!(
                f,
                "there is no key file {}; `weft mpi-env` makes one, or copy it from the host that \
                 starts the job",
                path.display()
            ),
            KeyError::NoFolder => write!(
                f,
                "no place for the key file: set HOME or XDG_CONFIG_HOME, or {VARIABLE} to {} \
                 hexadecimal digits",
                2 * KEY_LEN
            ),
            KeyError::Exposed { path, mode } => write!(
                f,
                "others may use the key file {path} (mode {mode:03o}): remove it for a new key, \
                 or `chmod 600 {path}` if nobody read it",
                path = path.display()
            ),
            KeyError::Foreign { path, owner, user } => write!(
                f,
                "the key file {} belongs to user {owner}, this is user {user}: set \
                 XDG_CONFIG_HOME to a folder of this user, or {VARIABLE}",
                path.display()
            ),
            KeyError::Malformed(path) => write!(
                f,
                "the key file {} holds no key ({} hexadecimal digits): remove it, a new one is \
                 made, and copy that to the other hosts",
                path.display(),
                2 * KEY_LEN
            ),
            KeyError::System { what, path, source }
                if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) =>
            {
                write!(
                    f,
                    "cannot {what} {}: {source}; raise the limit on open files (ulimit -n)",
                    path.display()
                )
            }
            KeyError::System { what, path, source } => write!(
                f,
                "cannot {what} {}: {source}; set XDG_CONFIG_HOME to a folder where that is \
                 possible, or {VARIABLE} to {} hexadecimal digits",
                path.display(),
                2 * KEY_LEN
            ),
        }
    }
}

weft_core::readable!(KeyError);

// Its text has the cause.
impl std::error::Error for KeyError {}

/// Parses a key from hexadecimal digits with optional white space around them. `None` for any other
/// text, and for all zeros, which is no random key.
pub fn parse(text: &str) -> Option<Key> {
    let key: Key = from_hex(text.trim())?.try_into().ok()?;
    key.iter().any(|&byte| byte != 0).then_some(key)
}

/// Returns the hexadecimal digits of a key.
pub fn format(key: &Key) -> String {
    to_hex(key)
}

/// Returns the key of `WEFT_KEY`, if the variable is set and not empty.
///
/// # Errors
/// [`KeyError::Variable`].
pub fn from_env() -> Result<Option<Key>, KeyError> {
    match std::env::var_os(VARIABLE).filter(|v| !v.is_empty()) {
        None => Ok(None),
        Some(text) => text.to_str().and_then(parse).map(Some).ok_or(KeyError::Variable),
    }
}

/// Returns the path of the user's key file: `weft/key` in `XDG_CONFIG_HOME`, else in `~/.config`.
///
/// # Errors
/// [`KeyError::NoFolder`].
pub fn path() -> Result<PathBuf, KeyError> {
    path_in(|name| std::env::var_os(name).map(PathBuf::from))
}

fn path_in(lookup: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, KeyError> {
    let folder = |name| lookup(name).filter(|p| p.is_absolute());
    let folder = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
    Ok(folder.ok_or(KeyError::NoFolder)?.join("weft").join("key"))
}

/// Returns the key to use: from `WEFT_KEY`, else from the user's key file, which is made if it is
/// absent.
///
/// # Errors
/// Returns the errors of [`from_env`], [`path`] and [`load_or_create`].
pub fn obtain() -> Result<Key, KeyError> {
    match from_env()? {
        Some(key) => Ok(key),
        None => load_or_create(&path()?),
    }
}

/// Reads a key file.
///
/// # Errors
/// [`KeyError::Missing`]; [`KeyError::Exposed`] or [`KeyError::Foreign`] if the key may be known
/// to others; [`KeyError::Malformed`]; [`KeyError::System`].
pub fn load(path: &Path) -> Result<Key, KeyError> {
    let failed = |source: io::Error| match source.kind() {
        ErrorKind::NotFound => KeyError::Missing(path.into()),
        _ => system("read the key file", path, source),
    };
    // Opening a pipe must not wait for its writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(failed)?;
    check(path, &file.metadata().map_err(failed)?, geteuid().as_raw())?;
    let mut text = String::new();
    match file.take(FILE_MAX + 1).read_to_string(&mut text) {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::InvalidData => {}
        Err(e) => return Err(failed(e)),
    }
    parse(&text).ok_or_else(|| KeyError::Malformed(path.into()))
}

/// Refuses a file that other users may have read or written.
fn check(path: &Path, meta: &Metadata, user: u32) -> Result<(), KeyError> {
    if !meta.is_file() || meta.len() > FILE_MAX {
        return Err(KeyError::Malformed(path.into()));
    }
    if weft_link::user::same(user, meta.uid()).is_err() {
        return Err(KeyError::Foreign { path: path.into(), owner: meta.uid(), user });
    }
    match meta.permissions().mode() & 0o777 {
        mode if mode & 0o077 != 0 => Err(KeyError::Exposed { path: path.into(), mode }),
        _ => Ok(()),
    }
}

fn system(what: &'static str, path: &Path, source: io::Error) -> KeyError {
    KeyError::System { what, path: path.into(), source }
}

/// Reads a key file, or makes it with a new random key and mode 0600 if it is absent. If several
/// processes do so at the same time, all get the same key.
///
/// # Errors
/// Returns the errors of [`load`], but never [`KeyError::Missing`]; and [`KeyError::System`] if the
/// file cannot be made.
pub fn load_or_create(path: &Path) -> Result<Key, KeyError> {
    match load(path) {
        Err(KeyError::Missing(_)) => create(path),
        other => other,
    }
}

fn create(path: &Path) -> Result<Key, KeyError> {
    const WHAT: &str = "make the key file";
    let failed = |source| system(WHAT, path, source);
    // The home folder itself is not made: a user without one has a home path that others could
    // make.
    let folders = path.parent().into_iter().flat_map(|own| [own.parent(), Some(own)]);
    for folder in folders.flatten() {
        match std::fs::DirBuilder::new().mode(0o700).create(folder) {
            Err(e) if !folder.is_dir() => return Err(failed(e)),
            _ => {}
        }
    }
    let key = random_key().map_err(|e| failed(io::Error::other(e.to_string())))?;
    let salt = random_key().map_err(|e| failed(io::Error::other(e.to_string())))?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", to_hex(&salt[..8])));
    let new = PathBuf::from(name);
    // A hard link appears whole or not at all, and never replaces an existing file.
    let linked = write(&new, &key).and_then(|()| std::fs::hard_link(&new, path));
    let _ = std::fs::remove_file(&new);
    match linked {
        Ok(()) => Ok(key),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => load(path),
        Err(e) => Err(failed(e)),
    }
}

fn write(path: &Path, key: &Key) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(format!("{}\n", format(key)).as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests;

//! The key of a cluster: its file, and keys in the course of a rotation.
//!
//! The file has one key or two. Agents accept both and use the first. A rotation puts a new key
//! before the one that was first, and drops the older one; its public number stays, so that an
//! agent which still has it is told so.

use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use weft_link::secure::JobKey;

/// Longest file that is read.
const FILE_MAX: u64 = 1 << 16;
/// Public numbers of former keys that a file keeps.
const RETIRED_MAX: usize = 16;

/// The reason why a key file is not used or made.
#[derive(Debug)]
#[non_exhaustive]
pub enum KeyError {
    /// The system refused.
    System {
        /// The action.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// There is a file of this name already.
    Exists(PathBuf),
    /// Others than its owner may read or write it.
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file belongs to another user, who could exchange it.
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The file is no key file.
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1; 0: the whole file.
        line: usize,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::System { what, source } if source.kind() == io::ErrorKind::NotFound => {
                write!(
                    f,
                    "{what}: {source}; `weft cluster init` makes a key, and each host of the \
                           cluster needs a copy of it"
                )
            }
            KeyError::System { what, source } => write!(f, "{what}: {source}"),
            KeyError::Exists(path) => write!(
                f,
                "{} exists already, and with another key its cluster would fall apart: \
                 `weft cluster rotate` changes a key, or give another file",
                path.display()
            ),
            KeyError::Open { path, mode } => write!(
                f,
                "others than its owner may use {} (mode {mode:04o}): chmod 600 {}",
                path.display(),
                path.display()
            ),
            KeyError::Foreign { path, owner } => write!(
                f,
                "{} belongs to user {owner}: it has to be root's or that of the user who starts \
                 the agent",
                path.display()
            ),
            KeyError::Malformed { path, line: 0 } => {
                write!(f, "{} has no key, or more than two", path.display())
            }
            KeyError::Malformed { path, line } => {
                write!(f, "{}, line {line}: this is no line of a key file", path.display())
            }
        }
    }
}

impl std::error::Error for KeyError {}

fn system(what: &str, path: &Path) -> impl FnOnce(io::Error) -> KeyError {
    let what = format!("{what} {}", path.display());
    move |source| KeyError::System { what, source }
}

/// The keys of a cluster: one, or two while one is rotated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterKeys {
    keys: Vec<JobKey>,
    retired: Vec<u64>,
}

impl ClusterKeys {
    /// Makes a new key.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    pub fn random() -> Result<ClusterKeys, KeyError> {
        let key = draw()?;
        Ok(ClusterKeys { keys: vec![key], retired: Vec::new() })
    }

    /// Makes the keys from bytes, for tests.
    pub fn from_key(key: JobKey) -> ClusterKeys {
        ClusterKeys { keys: vec![key], retired: Vec::new() }
    }

    /// Returns the keys; the first is used, all are accepted.
    pub fn all(&self) -> &[JobKey] {
        &self.keys
    }

    /// Returns true if a key of this public number was in use before.
    pub fn was_retired(&self, id: u64) -> bool {
        self.retired.contains(&id)
    }

    /// Puts a new key in front; the present one is accepted until the next rotation.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    pub fn rotate(&mut self) -> Result<(), KeyError> {
        self.keys.insert(0, draw()?);
        for old in self.keys.split_off(2.min(self.keys.len())) {
            self.retired.insert(0, old.public_id());
        }
        self.retired.truncate(RETIRED_MAX);
        Ok(())
    }

    fn text(&self) -> String {
        let mut out = String::from(
            "# The key of a weft cluster. Each of its hosts has a copy; nobody else may read it.\n\
             # Made by `weft cluster init`, changed by `weft cluster rotate`.\n",
        );
        for key in &self.keys {
            let hex = key.as_bytes().iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            });
            let _ = writeln!(out, "key {hex}");
        }
        for id in &self.retired {
            let _ = writeln!(out, "retired {id:016x}");
        }
        // A file that was cut off, or is being written, does not end so.
        out.push_str("end\n");
        out
    }

    fn parse(text: &str, path: &Path) -> Result<ClusterKeys, KeyError> {
        let (mut keys, mut retired) = (Vec::new(), Vec::new());
        let mut ended = false;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            let wrong = || KeyError::Malformed { path: path.into(), line: number + 1 };
            match line.split_once(' ') {
                None if line.is_empty() => {}
                None if line == "end" => ended = true,
                _ if line.starts_with('#') => {}
                Some(("key", hex)) => keys.push(key_of(hex.trim()).ok_or_else(wrong)?),
                Some(("retired", hex)) => {
                    retired.push(u64::from_str_radix(hex.trim(), 16).map_err(|_| wrong())?);
                }
                _ => return Err(wrong()),
            }
        }
        match ended && (1..=2).contains(&keys.len()) {
            true => Ok(ClusterKeys { keys, retired }),
            false => Err(KeyError::Malformed { path: path.into(), line: 0 }),
        }
    }
}

fn draw() -> Result<JobKey, KeyError> {
    JobKey::random().map_err(|e| KeyError::System {
        what: "draw a key".into(),
        source: io::Error::other(e.to_string()),
    })
}

fn key_of(hex: &str) -> Option<JobKey> {
    let mut key = [0; 32];
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    for (byte, digits) in key.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    JobKey::from_bytes(&key)
}

/// A key file that is open.
///
/// The file stays open, so that an agent that gave up its rights can read it again after a
/// rotation, which writes it in place.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    file: File,
    changed: Option<SystemTime>,
}

impl KeyFile {
    /// Returns the usual place: `/etc/weft/cluster.key` for root, otherwise `weft/cluster.key` in
    /// the user's folder for settings.
    pub fn usual(is_root: bool) -> PathBuf {
        let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let folder = match is_root {
            true => None,
            false => set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config"))),
        };
        folder.unwrap_or_else(|| "/etc".into()).join("weft/cluster.key")
    }

    /// Makes a file with a new key.
    ///
    /// # Errors
    /// There is a file already, or the system refuses.
    pub fn init(path: &Path) -> Result<ClusterKeys, KeyError> {
        let keys = ClusterKeys::random()?;
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(system("make the folder", folder))?;
        }
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut file = made.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => KeyError::Exists(path.into()),
            _ => KeyError::System { what: format!("make {}", path.display()), source },
        })?;
        file.write_all(keys.text().as_bytes()).map_err(system("write", path))?;
        file.sync_all().map_err(system("write", path))?;
        Ok(keys)
    }

    /// Opens a file, and checks that nobody but its owner may use it.
    ///
    /// # Errors
    /// The file is not there, or others may use it. `user` is the user of this process.
    pub fn open(path: &Path, user: u32) -> Result<(KeyFile, ClusterKeys), KeyError> {
        let file = File::open(path).map_err(system("open", path))?;
        let (keys, changed) = read(&file, path, user)?;
        Ok((KeyFile { path: path.into(), file, changed }, keys))
    }

    /// Reads the file again if it has changed; `None`: it has not.
    ///
    /// # Errors
    /// The changed file is no key file; the keys that were read before stay.
    pub fn reread(&mut self, user: u32) -> Option<Result<ClusterKeys, KeyError>> {
        // By its name first: it may have been exchanged for another file.
        let by_name = File::open(&self.path).ok();
        let file = by_name.as_ref().unwrap_or(&self.file);
        let changed = file.metadata().ok()?.modified().ok();
        if changed == self.changed {
            return None;
        }
        let found = read(file, &self.path, user);
        // A file that is being written is looked at again.
        if !matches!(found, Err(KeyError::Malformed { line: 0, .. })) {
            self.changed = changed;
        }
        if let Some(file) = by_name {
            self.file = file;
        }
        Some(found.map(|(keys, _)| keys))
    }

    /// Rotates the key in a file, in place.
    ///
    /// # Errors
    /// The file is none of this user's, or the system refuses.
    pub fn rotate(path: &Path, user: u32) -> Result<ClusterKeys, KeyError> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let file = opened.map_err(system("open", path))?;
        let (mut keys, _) = read(&file, path, user)?;
        keys.rotate()?;
        let text = keys.text();
        let fail = |e| system("write", path)(e);
        file.write_all_at(text.as_bytes(), 0).map_err(fail)?;
        file.set_len(text.len() as u64).map_err(fail)?;
        file.sync_all().map_err(fail)?;
        Ok(keys)
    }
}

fn read(
    mut file: &File,
    path: &Path,
    user: u32,
) -> Result<(ClusterKeys, Option<SystemTime>), KeyError> {
    let about = file.metadata().map_err(system("look at", path))?;
    let mode = about.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Open { path: path.into(), mode });
    }
    if about.uid() != user && about.uid() != 0 {
        return Err(KeyError::Foreign { path: path.into(), owner: about.uid() });
    }
    let mut text = String::new();
    file.rewind().map_err(system("read", path))?;
    file.take(FILE_MAX).read_to_string(&mut text).map_err(system("read", path))?;
    Ok((ClusterKeys::parse(&text, path)?, about.modified().ok()))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn place() -> PathBuf {
        let folder = format!("weft-key-{:016x}", weft_link::random_u64());
        std::env::temp_dir().join(folder).join("sub/cluster.key")
    }

    fn owner(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().uid()
    }

    #[test]
    fn init__makes_a_file_for_its_owner_alone_and_overwrites_none() {
        let path = place();
        let keys = KeyFile::init(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let why = KeyFile::init(&path).unwrap_err().to_string();
        assert!(why.contains("exists already") && why.contains("rotate"), "{why}");
        assert_eq!(KeyFile::open(&path, owner(&path)).unwrap().1, keys);
        std::fs::remove_dir_all(path.ancestors().nth(2).unwrap()).unwrap();
    }

    #[test]
    fn open__refuses_a_file_that_others_may_use() {
        let path = place();
        KeyFile::init(&path).unwrap();
        for mode in [0o640, 0o604, 0o620] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let why = KeyFile::open(&path, owner(&path)).unwrap_err().to_string();
            assert!(why.contains("chmod 600"), "{why}");
        }
        std::fs::remove_dir_all(path.ancestors().nth(2).unwrap()).unwrap();
    }

    #[test]
    fn rotate__keeps_the_last_key_and_names_those_before() {
        let path = place();
        let first = KeyFile::init(&path).unwrap();
        let user = owner(&path);
        let (mut file, _) = KeyFile::open(&path, user).unwrap();
        assert!(file.reread(user).is_none());
        let second = KeyFile::rotate(&path, user).unwrap();
        assert_eq!(second.all()[1], first.all()[0]);
        // The time of a change may be coarse.
        let again = loop {
            match file.reread(user) {
                Some(found) => break found.unwrap(),
                None => drop(File::options().append(true).open(&path).unwrap().write(b"\n")),
            }
        };
        assert_eq!(again, second);
        let third = KeyFile::rotate(&path, user).unwrap();
        assert_eq!((third.all().len(), &third.all()[1]), (2, &second.all()[0]));
        assert!(third.was_retired(first.all()[0].public_id()));
        std::fs::remove_dir_all(path.ancestors().nth(2).unwrap()).unwrap();
    }

    #[test]
    fn parse__wrong_lines_are_named() {
        let path = Path::new("k");
        let key = "7".repeat(64);
        for (text, named) in [
            ("".into(), "no key"),
            (format!("key {key}\n"), "no key"),
            (format!("key {key}\nkey {key}\nkey {key}\nend\n"), "more than two"),
            (format!("# x\nkey {}\nend\n", &key[1..]), "line 2"),
            (format!("key {key}\nretired zz\nend\n"), "line 2"),
            ("hello there\nend\n".into(), "line 1"),
        ] {
            let why = ClusterKeys::parse(&text, path).unwrap_err().to_string();
            assert!(why.contains(named), "{text}: {why}");
        }
    }
}

//! Archives whose bytes depend on their contents alone: fixed times and owners, sorted names.

use flate2::write::GzEncoder;
use flate2::Compression;
use sha2::{Digest, Sha256};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// 2026-01-01, in seconds since 1970: the time of every file in an archive.
const TIME: u64 = 1_767_225_600;

/// A tar archive that is being written.
pub struct Tar<W: Write>(tar::Builder<W>);

impl<W: Write> Tar<W> {
    /// Makes an archive that is written to `out`.
    pub fn new(out: W) -> Tar<W> {
        Tar(tar::Builder::new(out))
    }

    fn header(kind: tar::EntryType, len: u64, mode: u32) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(len);
        header.set_mode(mode);
        header.set_mtime(TIME);
        header.set_uid(0);
        header.set_gid(0);
        header
    }

    /// Adds a file of these bytes.
    pub fn bytes(&mut self, name: &str, data: &[u8], mode: u32) -> io::Result<()> {
        let mut header = Self::header(tar::EntryType::Regular, data.len() as u64, mode);
        self.0.append_data(&mut header, name, data)
    }

    /// Adds a copy of a file.
    pub fn file(&mut self, name: &str, from: &Path, mode: u32) -> io::Result<()> {
        self.bytes(name, &std::fs::read(from)?, mode)
    }

    /// Adds a folder.
    pub fn folder(&mut self, name: &str, mode: u32) -> io::Result<()> {
        let mut header = Self::header(tar::EntryType::Directory, 0, mode);
        self.0.append_data(&mut header, name, io::empty())
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, name: &str, to: &Path) -> io::Result<()> {
        let mut header = Self::header(tar::EntryType::Symlink, 0, 0o777);
        self.0.append_link(&mut header, name, to)
    }

    /// Ends the archive.
    pub fn finish(self) -> io::Result<W> {
        self.0.into_inner()
    }
}

/// Compresses the bytes in the format of gzip.
pub fn gzip(data: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(data)?;
    encoder.finish()
}

/// Returns SHA-256 of the bytes.
pub fn sha256(data: &[u8]) -> [u8; 32] {
    Sha256::digest(data).into()
}

/// Returns SHA-256 of the bytes, in hexadecimal digits.
pub fn sha256_hex(data: &[u8]) -> String {
    sha256(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the permissions of a file in a package: all may read it, and execute it if the owner
/// may.
pub fn mode_of(file: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(file).map_or(0, |m| m.permissions().mode());
    if mode & 0o100 != 0 {
        0o755
    } else {
        0o644
    }
}

/// Makes a file by `write`, which gets another name in the same folder: the file has its own name
/// once it is complete, in place of an older one. After an error nothing is left under either name,
/// but for the older one.
///
/// # Errors
/// The error of `write`; the file cannot be renamed.
pub fn complete(
    file: &Path,
    write: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let part = file.with_file_name(format!(".{name}.{}", std::process::id()));
    let failed = |e: io::Error| format!("{}: {e}", file.display());
    let made = write(&part).and_then(|()| std::fs::rename(&part, file).map_err(failed));
    if made.is_err() {
        let _absent = std::fs::remove_file(&part);
    }
    made.map(|()| file.to_path_buf())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::package::Scratch;

    #[test]
    fn complete__a_file_has_its_name_once_it_is_whole() {
        let folder = Scratch::new("complete").unwrap();
        let names = || std::fs::read_dir(folder.path()).unwrap().count();
        let file = folder.path().join("a.whl");
        for text in ["first", "second"] {
            let made = complete(&file, |part| {
                assert_eq!(part.parent(), file.parent());
                assert_ne!(part.extension(), file.extension());
                std::fs::write(part, &text[..2]).unwrap();
                assert_eq!(std::fs::read(&file).ok().as_deref(), before(text));
                std::fs::write(part, text).map_err(|e| e.to_string())
            });
            assert_eq!(made.as_deref(), Ok(file.as_path()));
            assert_eq!((std::fs::read_to_string(&file).unwrap(), names()), (text.into(), 1));
        }
        let stopped = complete(&file, |part| {
            std::fs::write(part, "thi").unwrap();
            Err("no space".into())
        });
        assert_eq!(stopped, Err("no space".into()));
        assert_eq!((std::fs::read_to_string(&file).unwrap(), names()), ("second".into(), 1));
    }

    /// Returns the content of the file before one with this text is complete.
    fn before(text: &str) -> Option<&'static [u8]> {
        (text == "second").then_some(b"first")
    }
}

//! Checks that results can be written, before the work that they come from.

use crate::misuse::Misuse;
use anyhow::Result;
use std::fs::{remove_file, File};
use std::io;
use std::path::Path;

/// Opens a file for writing and leaves it as it is: one that was not there is removed again.
fn probe(path: &Path) -> io::Result<()> {
    match File::options().write(true).create_new(true).open(path) {
        Ok(_) => remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            File::options().append(true).open(path).map(drop)
        }
        Err(error) => Err(error),
    }
}

/// Checks that the file of an option can be written.
///
/// # Errors
/// A [`Misuse`]: its folder is not there, or refuses.
pub fn check_file(option: &str, path: &Path) -> Result<()> {
    probe(path).map_err(|error| Misuse(format!("{option} {}: {error}", path.display())).into())
}

/// Makes the folder of an option, and checks that files in it can be written.
///
/// # Errors
/// A [`Misuse`]: the folder cannot be made, or refuses.
pub fn check_folder(option: &str, path: &Path) -> Result<()> {
    let file = path.join(format!(".weft-{}", std::process::id()));
    let made = std::fs::create_dir_all(path).and_then(|()| probe(&file));
    made.map_err(|error| Misuse(format!("{option} {}: {error}", path.display())).into())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::folder::Folder;

    #[test]
    fn check__finds_missing_folders_and_changes_nothing() {
        let folder = Folder::new().unwrap();
        let (new, old) = (folder.0.join("new.svg"), folder.0.join("old.svg"));
        std::fs::write(&old, "old").unwrap();
        for path in [&new, &old] {
            check_file("--plot", path).unwrap();
        }
        assert!(!new.exists(), "nothing is left");
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "old");
        let said = check_file("--plot", &folder.0.join("gone/a.svg")).unwrap_err();
        assert!(crate::misuse::is(&said) && said.to_string().contains("gone/a.svg"), "{said}");
        check_folder("--out", &folder.0.join("a/b")).unwrap();
        assert!(check_folder("--out", &old).is_err(), "this is a file");
        assert_eq!(std::fs::read_dir(folder.0.join("a/b")).unwrap().count(), 0);
    }
}

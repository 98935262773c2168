//! The path of the libfabric provider.

use anyhow::{bail, Context, Result};
use std::path::{Path, PathBuf};

/// File name of the provider: libfabric loads files whose name ends in `fi.so`.
pub const NAME: &str = "libweft-fi.so";
/// File name that the build gives it.
const BUILT: &str = "libweft_fi.so";
/// Name of the variable with another path.
pub const VARIABLE: &str = "WEFT_PROVIDER";

/// The provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// The file, under a name that libfabric accepts.
    pub file: PathBuf,
    /// Its folder, for `FI_PROVIDER_PATH`.
    pub folder: PathBuf,
    /// True if the file is a link in this user's cache, which other hosts may lack.
    pub cached: bool,
}

/// Finds the provider: the file in `WEFT_PROVIDER`, else one beside this program, in `../lib/weft`,
/// or just built beside this program.
///
/// # Errors
/// There is none; the error lists the paths tried.
pub fn find() -> Result<Provider> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|v| !v.is_empty()) {
        let named = PathBuf::from(named);
        let file = if named.is_dir() { named.join(NAME) } else { named };
        if !file.is_file() {
            bail!("{VARIABLE}: there is no file {}; unset it or correct it", file.display());
        }
        return usable(&file.canonicalize()?, cache);
    }
    let program = std::env::current_exe().context("finding this program's path")?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    let places = places(beside);
    let Some(file) = places.iter().find(|file| file.is_file()) else {
        let list: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
        bail!(
            "the libfabric provider {NAME} is not there (looked for {}); in the sources `cargo \
             build --release -p weft-ofi` makes it; {VARIABLE}=FILE names it elsewhere",
            list.join(", ")
        );
    };
    usable(file, cache)
}

fn places(beside: &Path) -> [PathBuf; 3] {
    let up = beside.parent().unwrap_or(beside);
    [beside.join(NAME), up.join("lib/weft").join(NAME), beside.join(BUILT)]
}

/// Returns the file at a path that libfabric accepts: through a link, if its name or folder do not
/// fit.
fn usable(file: &Path, cache: impl FnOnce() -> Result<PathBuf>) -> Result<Provider> {
    let named = file.file_name().is_some_and(|name| name == NAME);
    let folder = file.parent().unwrap_or(Path::new("/"));
    // libfabric splits its list of folders at colons.
    if named && !folder.as_os_str().as_encoded_bytes().contains(&b':') {
        return Ok(Provider { file: file.into(), folder: folder.into(), cached: false });
    }
    let file = link(file, NAME, &cache()?)?;
    let folder = file.parent().unwrap_or(Path::new("/")).into();
    Ok(Provider { file, folder, cached: true })
}

/// Returns a link of this name to a file, in the user's cache.
///
/// # Errors
/// There is no cache, or it cannot be written.
pub fn linked(file: &Path, name: &str) -> Result<PathBuf> {
    link(file, name, &cache()?)
}

/// FNV-1a, 64 bits: distinguishes files, protects nothing.
fn hash(file: &Path) -> u64 {
    let bytes = file.as_os_str().as_encoded_bytes();
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn cache() -> Result<PathBuf> {
    cache_in(|name| std::env::var_os(name).map(PathBuf::from))
}

fn cache_in(lookup: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf> {
    let folder = |name| lookup(name).filter(|p| p.is_absolute());
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    let cache = cache.context("no place for a link to the provider: set HOME or XDG_CACHE_HOME")?;
    Ok(cache.join("weft/provider"))
}

/// Makes a link to the file in a folder of its own. Other processes see the old link or the new
/// one.
fn link(file: &Path, name: &str, cache: &Path) -> Result<PathBuf> {
    let folder = cache.join(format!("{}-{:016x}", env!("CARGO_PKG_VERSION"), hash(file)));
    let at = folder.join(name);
    if std::fs::read_link(&at).is_ok_and(|target| target == file) {
        return Ok(at);
    }
    let place = || format!("making a link to {} in {}", file.display(), folder.display());
    std::fs::create_dir_all(&folder).with_context(place)?;
    let new = folder.join(format!(".{}", std::process::id()));
    let _ = std::fs::remove_file(&new);
    std::os::unix::fs::symlink(file, &new).with_context(place)?;
    std::fs::rename(&new, &at).with_context(place)?;
    Ok(at)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("weft-provider-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn usable__a_file_of_the_right_name_stays_where_it_is() {
        let dir = scratch("right");
        let file = dir.join(NAME);
        std::fs::write(&file, "").unwrap();
        let found = usable(&file, || unreachable!("no cache is needed")).unwrap();
        assert_eq!(found, Provider { file, folder: dir.clone(), cached: false });
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn usable__a_fresh_build_is_linked_once_and_follows_it() {
        let dir = scratch("built");
        for file in [dir.join(BUILT), dir.join("a:b").join(NAME)] {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "one").unwrap();
            for _ in 0..2 {
                let found = usable(&file, || Ok(dir.join("cache"))).unwrap();
                assert!(found.cached && found.file.ends_with(NAME));
                assert_eq!(found.file.canonicalize().unwrap(), file.canonicalize().unwrap());
                assert_eq!(std::fs::read_dir(&found.folder).unwrap().count(), 1);
            }
        }
        assert_eq!(std::fs::read_dir(dir.join("cache")).unwrap().count(), 2);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn link__a_wrong_link_is_replaced() {
        let dir = scratch("wrong");
        let at = link(Path::new("/new"), NAME, &dir).unwrap();
        std::fs::remove_file(&at).unwrap();
        std::os::unix::fs::symlink("/old", &at).unwrap();
        assert_eq!(link(Path::new("/new"), NAME, &dir).unwrap(), at);
        assert_eq!(std::fs::read_link(at).unwrap(), Path::new("/new"));
        std::fs::remove_dir_all(dir).unwrap();
    }
}

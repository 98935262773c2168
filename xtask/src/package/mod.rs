//! `cargo xtask package`: makes a wheel, Debian packages, a container image and a source archive
//! from one build.

mod archive;
mod deb;
mod image;
mod source;
mod suite;
mod torch;
mod wheel;

pub use suite::suite;

use crate::install::{self, Options};
use crate::run::output_of;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "\
usage: cargo xtask package --out DIR [--only wheel|deb|image|source]... [--debug]

  wheel    for pip: commands and MPI provider, for Python 3.9 and newer, with the Python package,
           for 3.11 and newer; weft_bench, the benchmarks and papers; weft_dev, the C library;
           torch_weft, the backend of torch.distributed
  deb      for Debian and its relatives: weft, weft-agent, weft-bench, libweft-dev
  image    for docker load and podman load: the commands and an example
  source   the files of the commit

--debug packs an unoptimised build, to try the packages themselves.";

const KINDS: [&str; 4] = ["wheel", "deb", "image", "source"];

/// The version of every crate and package.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The task's arguments.
struct Request {
    out: PathBuf,
    kinds: Vec<&'static str>,
    debug: bool,
}

impl Request {
    fn parse(args: &[String]) -> Result<Request, String> {
        let (mut out, mut kinds, mut debug) = (None, Vec::new(), false);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--out" => out = Some(PathBuf::from(args.next().ok_or(USAGE)?)),
                "--only" => {
                    let word = args.next().ok_or(USAGE)?;
                    kinds.push(*KINDS.iter().find(|kind| *kind == word).ok_or(USAGE)?);
                }
                "--debug" => debug = true,
                _ => return Err(USAGE.into()),
            }
        }
        if kinds.is_empty() {
            kinds = KINDS.to_vec();
        }
        Ok(Request { out: out.ok_or(USAGE)?, kinds, debug })
    }
}

/// A folder that is removed with its contents when dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes the folder, empty, below `target`.
    pub fn new(name: &str) -> Result<Scratch, String> {
        let folder = format!("target/tmp/{name}-{}", std::process::id());
        let folder = crate::root().join(folder);
        let _absent = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Scratch(folder))
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

/// The installed tree, below `prefix`, and the names of its files.
struct Staged {
    folder: Scratch,
    prefix: &'static str,
    names: Vec<String>,
    debug: bool,
}

impl Staged {
    /// Installs for `prefix` below a folder of its own.
    fn new(prefix: &'static str, debug: bool) -> Result<Staged, String> {
        let folder = Scratch::new("staged")?;
        let options = Options { prefix: prefix.into(), destdir: Some(folder.0.clone()), debug };
        if !install::install(&options)? {
            return Err("the build failed".into());
        }
        let root = options.root();
        let manifest = root.join(install::MANIFEST);
        let names = fs::read_to_string(&manifest)
            .map_err(|e| format!("{}: {e}", manifest.display()))?
            .lines()
            .filter(|name| !name.ends_with('/') && *name != install::MANIFEST)
            .map(str::to_owned)
            .collect();
        fs::remove_file(&manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
        Ok(Staged { folder, prefix, names, debug })
    }

    /// Returns the folder in place of the prefix.
    fn root(&self) -> PathBuf {
        self.folder.0.join(self.prefix.trim_start_matches('/'))
    }

    /// Returns the programs and libraries among the files.
    fn binaries(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let is_binary = |name: &&String| name.starts_with("bin/") || name.contains(".so");
        self.names.iter().filter(is_binary).map(|name| self.root().join(name))
    }

    /// Returns the newest version of glibc whose symbols the programs and libraries use, and
    /// `others`.
    fn glibc(&self, others: &[&Path]) -> Result<(u32, u32), String> {
        let mut newest = (0, 0);
        for file in self.binaries().chain(others.iter().map(PathBuf::from)) {
            let mut readelf = Command::new("readelf");
            let text = output_of(readelf.arg("--version-info").arg(&file))
                .ok_or_else(|| format!("readelf {} failed (package binutils)", file.display()))?;
            newest = newest.max(newest_glibc(&text));
        }
        Ok(newest)
    }
}

/// The programs of the benchmarks and of what reproduces papers. They are three quarters of all
/// programs, and few users want them: they are packages of their own.
const BENCHES: [&str; 2] = ["weft-bench", "weft-papers"];

/// Returns true if a file of an installation belongs to the benchmarks or papers: a program, or a
/// manual page.
fn is_of_benches(name: &str) -> bool {
    let name = name.strip_prefix("bin/").or_else(|| name.strip_prefix("share/man/man1/"));
    name.is_some_and(|name| BENCHES.iter().any(|program| name.starts_with(program)))
}

/// Returns the newest version of the form `GLIBC_2.34`.
fn newest_glibc(text: &str) -> (u32, u32) {
    let versions = text.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let mut parts = rest[..end].split('.').map(str::parse);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    });
    versions.max().unwrap_or_default()
}

/// Runs the task.
pub fn main(args: &[String]) -> Result<bool, String> {
    let request = Request::parse(args)?;
    package(&request).map(|_| true)
}

/// Makes the packages and prints name and size of each. Returns their files.
fn package(request: &Request) -> Result<Vec<PathBuf>, String> {
    let out = &request.out;
    fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    let wants = |kind: &str| request.kinds.contains(&kind);
    let mut made = Vec::new();
    if request.kinds.iter().any(|kind| *kind != "source") {
        let staged = Staged::new("/usr", request.debug)?;
        if wants("wheel") {
            made.extend(wheel::make(&staged, out)?);
            made.push(torch::make(&staged, out)?);
        }
        if wants("deb") {
            made.extend(deb::make(&staged, out)?);
        }
        if wants("image") {
            made.push(image::make(&staged, out)?);
        }
    }
    if wants("source") {
        made.push(source::make(out)?);
    }
    println!();
    for file in &made {
        println!("{:>8.1} MB  {}", megabytes(file), file.display());
    }
    Ok(made)
}

/// Returns the size of a file in units of 10^6 bytes.
fn megabytes(file: &Path) -> f64 {
    fs::metadata(file).map_or(0.0, |m| m.len() as f64 / 1e6)
}

/// The processor as Rust names it.
const ARCHITECTURE: &str = std::env::consts::ARCH;

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn newest_glibc__compares_numbers() {
        assert_eq!(newest_glibc("GLIBC_2.4 (2) GLIBC_2.34\n GLIBC_2.17 GLIBC_PRIVATE"), (2, 34));
        assert_eq!(newest_glibc("none"), (0, 0));
    }

    #[test]
    fn is_of_benches__programs_and_their_pages() {
        let names = ["bin/weft-bench", "share/man/man1/weft-bench-mpi.1", "bin/weft-papers"];
        assert!(names.into_iter().all(is_of_benches));
        let others = ["bin/weft", "share/man/man1/weft-run.1", "share/doc/weft/guide/busy.md"];
        assert!(!others.into_iter().any(is_of_benches));
    }

    #[test]
    fn parse__a_kind_that_is_unknown_is_refused() {
        let parse = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            Request::parse(&words)
        };
        assert_eq!(parse("--out d").map(|r| r.kinds.len()).ok(), Some(4));
        assert_eq!(parse("--out d --only deb").map(|r| r.kinds).ok(), Some(vec!["deb"]));
        assert!(parse("--out d --only rpm").is_err() && parse("--only deb").is_err());
    }
}

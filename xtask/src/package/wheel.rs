//! The wheels: pip installs commands, provider, library and header below the prefix of an
//! environment, and the benchmarks where they are wanted.
//!
//! Format: PEP 427 (wheels), PEP 600 (`manylinux_X_Y`). `.data/scripts` goes to `bin`, `.data/data`
//! to the prefix itself, so the commands find the provider as in an installation.

use super::archive::{complete, mode_of, sha256};
use super::{is_of_benches, Staged, ARCHITECTURE, VERSION};
use crate::install;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine;
use std::io::Write;
use std::path::{Path, PathBuf};
use zip::write::SimpleFileOptions;
use zip::ZipWriter;

/// The folder of the Python files of the package `weft`: `python -m weft` runs the command.
const MODULE: &str = "faces/python/weft";
/// The name of the library of the package: one file for all versions of Python from 3.11 on. The
/// rest of the package works from 3.9 on, so the wheel's name does not ask for more.
const EXTENSION: &str = "weft/_weft.abi3.so";

/// A wheel that is being written, with the table of its files.
struct Wheel {
    zip: ZipWriter<std::fs::File>,
    record: String,
    /// The name of the package, as names of files have it.
    name: &'static str,
    /// Effort of the compression.
    level: i64,
}

/// A level above those of zlib: Zopfli, one pass. It takes a minute, and makes programs 4 % shorter
/// than the highest level of zlib.
const SMALLEST: i64 = 10;
/// The usual level of zlib.
const QUICK: i64 = 6;

impl Wheel {
    fn new(staged: &Staged, name: &'static str, file: &Path) -> Result<Wheel, String> {
        let made = std::fs::File::create(file);
        let zip = ZipWriter::new(made.map_err(|e| format!("{}: {e}", file.display()))?);
        let level = if staged.debug { QUICK } else { SMALLEST };
        Ok(Wheel { zip, record: String::new(), name, level })
    }

    fn add(&mut self, name: &str, data: &[u8], mode: u32) -> Result<(), String> {
        let failed = |e: &dyn std::fmt::Display| format!("{name}: {e}");
        let options = SimpleFileOptions::default().compression_level(Some(self.level));
        let options = options.unix_permissions(mode);
        self.zip.start_file(name, options).map_err(|e| failed(&e))?;
        self.zip.write_all(data).map_err(|e| failed(&e))?;
        let digest = URL_SAFE_NO_PAD.encode(sha256(data));
        self.record += &format!("{name},sha256={digest},{}\n", data.len());
        Ok(())
    }

    /// Adds a file of an installation.
    fn add_installed(&mut self, path: &Path, name: &str) -> Result<(), String> {
        let data = std::fs::read(path);
        let mut data = data.map_err(|e| format!("{}: {e}", path.display()))?;
        if name == "lib/libweft.so" {
            data = LINKED.into();
        }
        if name.ends_with(".pc") {
            // The environment may be at any path: pkg-config knows where it found the file.
            let text = String::from_utf8_lossy(&data);
            let relative = text.replace("prefix=/usr\n", "prefix=${pcfiledir}/../..\n");
            data = relative.into_bytes();
        }
        let place = match name.strip_prefix("bin/") {
            Some(command) => format!("scripts/{command}"),
            None => format!("data/{name}"),
        };
        self.add(&format!("{}-{VERSION}.data/{place}", self.name), &data, mode_of(path))
    }

    /// Adds what describes the wheel, and ends it.
    fn finish(mut self, tag: &str, metadata: &str, file: &Path) -> Result<(), String> {
        let info = format!("{}-{VERSION}.dist-info", self.name);
        self.add(&format!("{info}/METADATA"), metadata.as_bytes(), 0o644)?;
        let kind = format!(
            "Wheel-Version: 1.0\nGenerator: weft-package\nRoot-Is-Purelib: false\nTag: {tag}\n"
        );
        self.add(&format!("{info}/WHEEL"), kind.as_bytes(), 0o644)?;
        let record = format!("{}{info}/RECORD,,\n", self.record);
        self.add(&format!("{info}/RECORD"), record.as_bytes(), 0o644)?;
        self.zip.finish().map(drop).map_err(|e| format!("{}: {e}", file.display()))
    }
}

/// Returns the Python files of the package by their names, sorted.
fn module() -> Result<Vec<(String, PathBuf)>, String> {
    let folder = crate::root().join(MODULE);
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut files = Vec::new();
    for file in std::fs::read_dir(&folder).map_err(failed)?.flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        if [".py", ".pyi", ".typed"].iter().any(|end| name.ends_with(end)) {
            files.push((format!("weft/{name}"), file.path()));
        }
    }
    files.sort();
    Ok(files)
}

/// The benchmarks and papers, as names of wheels have it.
const BENCHES: &str = "weft_bench";

/// Makes both wheels in `out`.
pub fn make(staged: &Staged, out: &Path) -> Result<[PathBuf; 2], String> {
    let extension = install::built("weft-python", "libweft_python.so", staged.debug)?;
    let (major, minor) = staged.glibc(&[&extension])?;
    let tag = format!("py3-none-manylinux_{major}_{minor}_{ARCHITECTURE}");
    let wheel = out.join(format!("weft-{VERSION}-{tag}.whl"));
    let wheel = complete(&wheel, |part| write(staged, &extension, &tag, part))?;
    let benches = out.join(format!("{BENCHES}-{VERSION}-{tag}.whl"));
    Ok([wheel, complete(&benches, |part| write_benches(staged, &tag, part))?])
}

/// Writes the wheel of a tag.
fn write(staged: &Staged, extension: &Path, tag: &str, file: &Path) -> Result<(), String> {
    let mut wheel = Wheel::new(staged, "weft", file)?;
    for (name, path) in module()? {
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|e| format!("{}: {e}", path.display()))?;
        wheel.add(&name, text.replace("@VERSION@", VERSION).as_bytes(), 0o644)?;
    }
    let library = std::fs::read(extension);
    let library = library.map_err(|e| format!("{}: {e}", extension.display()))?;
    wheel.add(EXTENSION, &library, 0o755)?;
    for name in staged.names.iter().filter(|name| belongs(name)) {
        wheel.add_installed(&staged.root().join(name), name)?;
    }
    let readme = crate::root().join("dist/README-wheel.md");
    let text = std::fs::read_to_string(&readme);
    let text = text.map_err(|e| format!("{}: {e}", readme.display()))?;
    let summary = "Message passing for the network people already have";
    wheel.finish(tag, &metadata("weft", summary, &text), file)
}

/// Writes the wheel of the benchmarks and papers. It declares no dependency: pip would take another
/// project's package of the name `weft`.
fn write_benches(staged: &Staged, tag: &str, file: &Path) -> Result<(), String> {
    let mut wheel = Wheel::new(staged, BENCHES, file)?;
    for name in staged.names.iter().filter(|name| is_of_benches(name)) {
        wheel.add_installed(&staged.root().join(name), name)?;
    }
    let text = "The programs behind `weft bench` and the papers' applications. Install the wheel \
                of weft with the same version beside this one.\n";
    let summary = "Benchmarks of weft, and programs that reproduce papers";
    wheel.finish(tag, &metadata("weft-bench", summary, text), file)
}

/// The text by which a linker finds the C library: a wheel holds no links, and a copy for each name
/// of the library would be large.
const LINKED: &str = "INPUT(libweft.so.0)\n";

/// Parts of the names of files of the interfaces of old.
const OLD: [&str; 8] = [
    "vipl",
    "examples/via/",
    "man3/Vip",
    "myriexpress",
    "libopen-mx",
    "include/mx_",
    "examples/mx/",
    "man3/mx_",
];

/// Returns true if a file of an installation goes into the wheel: an environment has no units, a
/// static library would be most of the wheel, and programs load the library by its short name.
/// Programs over virtual interfaces and MX are compiled on hosts that have the Debian packages.
/// Pictures of results are in the repository. Benchmarks and papers have a wheel of their own.
fn belongs(name: &str) -> bool {
    let left_out = name.ends_with(".a")
        || is_of_benches(name)
        || name.ends_with(".png")
        || name.starts_with("lib/libweft.so.0.")
        || OLD.iter().any(|part| name.contains(part));
    !left_out && !name.contains("systemd") && !name.contains("sysusers")
}

fn metadata(name: &str, summary: &str, text: &str) -> String {
    format!(
        "Metadata-Version: 2.1\nName: {name}\nVersion: {VERSION}\nSummary: {summary}\n\
         License: MIT OR Apache-2.0\nRequires-Python: >=3.9\n\
         Classifier: Operating System :: POSIX :: Linux\n\
         Classifier: Topic :: System :: Distributed Computing\n\
         Description-Content-Type: text/markdown\n\n{text}"
    )
}

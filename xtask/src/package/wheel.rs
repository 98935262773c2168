//! The wheels: pip installs commands and provider below the prefix of an environment, and the
//! benchmarks and the C library where they are wanted.
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
pub(super) struct Wheel {
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
    pub fn new(staged: &Staged, name: &'static str, file: &Path) -> Result<Wheel, String> {
        let made = std::fs::File::create(file);
        let zip = ZipWriter::new(made.map_err(|e| format!("{}: {e}", file.display()))?);
        let level = if staged.debug { QUICK } else { SMALLEST };
        Ok(Wheel { zip, record: String::new(), name, level })
    }

    pub fn add(&mut self, name: &str, data: &[u8], mode: u32) -> Result<(), String> {
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
    pub fn finish(mut self, tag: &str, metadata: &str, file: &Path) -> Result<(), String> {
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

/// Returns the Python files of a package by their names, sorted.
pub(super) fn files_of(folder: &Path, package: &str) -> Result<Vec<(String, PathBuf)>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut files = Vec::new();
    for file in std::fs::read_dir(folder).map_err(failed)?.flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        if [".py", ".pyi", ".typed"].iter().any(|end| name.ends_with(end)) {
            files.push((format!("{package}/{name}"), file.path()));
        }
    }
    files.sort();
    Ok(files)
}

/// A wheel as its users are told of it.
struct About {
    /// Its name, as names of files have it.
    name: &'static str,
    summary: &'static str,
    /// A file of the repository that describes it, or the description itself.
    text: Text,
}

enum Text {
    File(&'static str),
    Line(&'static str),
}

/// The wheels. None declares that it needs another: pip would take another project's package of the
/// name `weft`.
const WHEELS: [About; 3] = [
    About {
        name: "weft",
        summary: "Message passing for the network people already have",
        text: Text::File("dist/README-wheel.md"),
    },
    About {
        name: "weft_bench",
        summary: "Benchmarks of weft, and programs that reproduce papers",
        text: Text::Line(
            "The programs behind `weft bench` and the papers' applications. Install the wheel \
             `weft` of the same version, too.\n",
        ),
    },
    About {
        name: "weft_dev",
        summary: "The C library of weft",
        text: Text::Line(
            "`weft.h` and `crl.h`, the library, manual pages and examples. Install the wheel \
             `weft` of the same version, too; its `weft.pkgconfig_dir()` names the folder for \
             PKG_CONFIG_PATH.\n",
        ),
    },
];

/// Makes the wheels in `out`.
pub fn make(staged: &Staged, out: &Path) -> Result<Vec<PathBuf>, String> {
    let extension = install::built("weft-python", "libweft_python.so", staged.debug)?;
    let (major, minor) = staged.glibc(&[&extension])?;
    let tag = format!("py3-none-manylinux_{major}_{minor}_{ARCHITECTURE}");
    let one = |about: &About| {
        let file = out.join(format!("{}-{VERSION}-{tag}.whl", about.name));
        complete(&file, |part| write(about, staged, &extension, &tag, part))
    };
    WHEELS.iter().map(one).collect()
}

/// Writes a wheel.
fn write(
    about: &About,
    staged: &Staged,
    extension: &Path,
    tag: &str,
    file: &Path,
) -> Result<(), String> {
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path);
        text.map_err(|e| format!("{}: {e}", path.display()))
    };
    let mut wheel = Wheel::new(staged, about.name, file)?;
    if about.name == "weft" {
        for (name, path) in files_of(&crate::root().join(MODULE), about.name)? {
            let text = read(&path)?.replace("@VERSION@", VERSION);
            wheel.add(&name, text.as_bytes(), 0o644)?;
        }
        let library = std::fs::read(extension);
        let library = library.map_err(|e| format!("{}: {e}", extension.display()))?;
        wheel.add(EXTENSION, &library, 0o755)?;
    }
    for name in staged.names.iter().filter(|name| wheel_of(name) == Some(about.name)) {
        wheel.add_installed(&staged.root().join(name), name)?;
    }
    let text = match about.text {
        Text::File(name) => read(&crate::root().join(name))?,
        Text::Line(line) => line.into(),
    };
    wheel.finish(tag, &metadata(&about.name.replace('_', "-"), about.summary, &text), file)
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

/// Parts of the names of files of the C library.
const C: [&str; 6] =
    ["lib/libweft.so", "include/", "lib/pkgconfig/", "lib/cmake/", "share/man/man3/", "examples/"];

/// Returns the wheel of a file of an installation. `None`: no wheel has it. An environment has no
/// units, a static library would be most of a wheel, and programs load the library by its short
/// name. Programs over virtual interfaces and MX are compiled on hosts that have the Debian
/// packages. The results of measurements are in the repository.
fn wheel_of(name: &str) -> Option<&'static str> {
    let left_out = name.ends_with(".a")
        || name.contains("-static.pc")
        || name.starts_with("share/doc/weft/results")
        || name.starts_with("lib/libweft.so.0.")
        || OLD.iter().any(|part| name.contains(part))
        || name.contains("systemd")
        || name.contains("sysusers");
    match () {
        () if left_out => None,
        () if is_of_benches(name) => Some("weft_bench"),
        () if C.iter().any(|part| name.contains(part)) => Some("weft_dev"),
        () => Some("weft"),
    }
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

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn wheel_of__a_file_has_one_wheel_or_none() {
        for (name, wheel) in [
            ("bin/weft", Some("weft")),
            ("bin/weftd", Some("weft")),
            ("lib/weft/libweft-fi.so", Some("weft")),
            ("share/doc/weft/guide/c.md", Some("weft")),
            ("bin/weft-bench", Some("weft_bench")),
            ("share/man/man1/weft-papers-app-qr.1", Some("weft_bench")),
            ("lib/libweft.so.0", Some("weft_dev")),
            ("lib/pkgconfig/weft.pc", Some("weft_dev")),
            ("share/weft/examples/heat.c", Some("weft_dev")),
            ("lib/libweft.so.0.1.0", None),
            ("lib/libweft.a", None),
            ("include/vipl.h", None),
            ("lib/systemd/system/weftd.service", None),
        ] {
            assert_eq!(wheel_of(name), wheel, "{name}");
        }
        assert!(WHEELS.iter().any(|about| wheel_of("include/weft.h") == Some(about.name)));
    }
}

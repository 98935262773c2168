//! The wheel of `torch-weft`: the backend of torch.distributed, alone, since most of its users want
//! no commands, and its library needs a newer Python than those.

use super::archive::complete;
use super::wheel::{files_of, Wheel};
use super::{Staged, ARCHITECTURE, VERSION};
use crate::install;
use std::path::{Path, PathBuf};

/// The package's name, as names of files have it.
pub const NAME: &str = "torch_weft";
/// The folder of the package.
const FOLDER: &str = "faces/torch";
/// The name of its library: one file for all versions of Python from 3.11 on.
const EXTENSION: &str = "torch_weft/_core.abi3.so";

/// Makes the wheel in `out`.
pub fn make(staged: &Staged, out: &Path) -> Result<PathBuf, String> {
    let extension = install::built("weft-torch", "libweft_torch.so", staged.debug)?;
    let (major, minor) = staged.glibc(&[&extension])?;
    let tag = format!("cp311-abi3-manylinux_{major}_{minor}_{ARCHITECTURE}");
    let file = out.join(format!("{NAME}-{VERSION}-{tag}.whl"));
    complete(&file, |part| write(staged, &extension, &tag, part))
}

fn write(staged: &Staged, extension: &Path, tag: &str, file: &Path) -> Result<(), String> {
    let read = |path: &Path| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
    let folder = crate::root().join(FOLDER);
    let mut wheel = Wheel::new(staged, NAME, file)?;
    for (name, path) in files_of(&folder.join(NAME), NAME)? {
        wheel.add(&name, &read(&path)?, 0o644)?;
    }
    wheel.add(EXTENSION, &read(extension)?, 0o755)?;
    let points = read(&folder.join("entry_points.txt"))?;
    wheel.add(&format!("{NAME}-{VERSION}.dist-info/entry_points.txt"), &points, 0o644)?;
    let text = read(&folder.join("README.md"))?;
    wheel.finish(tag, &metadata(&String::from_utf8_lossy(&text)), file)
}

fn metadata(text: &str) -> String {
    format!(
        "Metadata-Version: 2.1\nName: torch-weft\nVersion: {VERSION}\n\
         Summary: weft as a backend of torch.distributed, for tensors on CPUs\n\
         License: MIT OR Apache-2.0\nRequires-Python: >=3.11\nRequires-Dist: torch>=2.14\n\
         Classifier: Operating System :: POSIX :: Linux\n\
         Classifier: Topic :: System :: Distributed Computing\n\
         Description-Content-Type: text/markdown\n\n{text}"
    )
}

//! The library, as programs in C over `myriexpress.h` have it.

use std::path::Path;
use weft_conformance::programs::{key, Face};

pub const FACE: Face = Face {
    name: "mx",
    sources: env!("CARGO_MANIFEST_DIR"),
    scratch: env!("CARGO_TARGET_TMPDIR"),
    built: "libweft_mx.so",
    names: &["libmyriexpress.so", "libopen-mx.so.0"],
    linked: "-lmyriexpress",
};

/// Calls `run` with the path of a file that opens when the server may go on.
pub fn with_lock<R>(run: impl FnOnce(&str) -> R) -> R {
    let lock = Path::new(FACE.scratch).join(format!("mx-lock-{}", key()));
    let result = run(&lock.display().to_string());
    let _gone = std::fs::remove_file(&lock);
    result
}

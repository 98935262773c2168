//! The library, as programs in C over `myriexpress.h` have it.

use weft_conformance::programs::Face;

pub const FACE: Face = Face {
    name: "mx",
    sources: env!("CARGO_MANIFEST_DIR"),
    scratch: env!("CARGO_TARGET_TMPDIR"),
    built: "libweft_mx.so",
    names: &["libmyriexpress.so", "libopen-mx.so.0"],
    linked: "-lmyriexpress",
};

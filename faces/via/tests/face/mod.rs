//! The library, as programs in C over `vipl.h` have it.

use weft_conformance::programs::Face;

pub const FACE: Face = Face {
    name: "via",
    sources: env!("CARGO_MANIFEST_DIR"),
    scratch: env!("CARGO_TARGET_TMPDIR"),
    built: "libweft_via.so",
    names: &["libvipl.so", "libvipl.so.0"],
    linked: "-lvipl",
};

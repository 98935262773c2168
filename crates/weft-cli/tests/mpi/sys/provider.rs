//! A libfabric provider that offers itself and nothing else, built by the tests with `rustc`.
//!
//! `--cfg crash` makes one that crashes when it is loaded, `--cfg silent` one that offers nothing.
//! The environment of the compiler names its version (`VERSION`).
#![crate_type = "cdylib"]
#![allow(dead_code)]

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};

extern "C" {
    fn calloc(count: usize, size: usize) -> *mut c_void;
    fn strdup(text: *const c_char) -> *mut c_char;
}

type GetInfo = extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const c_void,
    *mut *mut Info,
) -> c_int;

/// `struct fi_provider`.
#[repr(C)]
struct Provider {
    version: u32,
    fi_version: u32,
    context: [usize; 4],
    name: *const c_char,
    getinfo: GetInfo,
    fabric: extern "C" fn() -> c_int,
    cleanup: extern "C" fn(),
}

/// `struct fi_info`.
#[repr(C)]
struct Info {
    next: *mut Info,
    middle: [u64; 8],
    attr: [*mut c_void; 4],
    fabric_attr: *mut c_void,
    nic: *mut c_void,
}

struct Shared(UnsafeCell<Provider>);

// SAFETY: only libfabric's core writes to it, under its own lock.
unsafe impl Sync for Shared {}

static PROVIDER: Shared = Shared(UnsafeCell::new(Provider {
    version: 1,
    fi_version: 2 << 16 | 6,
    context: [0; 4],
    name: c"weft".as_ptr(),
    getinfo,
    fabric,
    cleanup,
}));

extern "C" fn getinfo(
    _version: u32,
    _node: *const c_char,
    _service: *const c_char,
    _flags: u64,
    _hints: *const c_void,
    out: *mut *mut Info,
) -> c_int {
    const NO_DATA: c_int = -61;
    if cfg!(silent) {
        return NO_DATA;
    }
    // SAFETY: the caller frees these with `free`; none of its structures is larger, and zeros are
    // values of all of them. Those of domain (the last of `attr`) and fabric begin with a pointer
    // and a name, which must be there.
    unsafe {
        let info = calloc(1, 512).cast::<Info>();
        for attr in &mut (*info).attr {
            *attr = calloc(1, 512);
        }
        (*info).fabric_attr = calloc(1, 512);
        for attr in [(*info).attr[3], (*info).fabric_attr] {
            *attr.cast::<*mut c_char>().add(1) = strdup(c"weft".as_ptr());
        }
        *out = info;
    }
    0
}

extern "C" fn fabric() -> c_int {
    const NO_SUCH_CALL: c_int = -38;
    NO_SUCH_CALL
}

extern "C" fn cleanup() {}

/// What libfabric looks for in the file.
#[no_mangle]
pub extern "C" fn fi_prov_ini() -> *mut c_void {
    if cfg!(crash) {
        std::process::abort();
    }
    PROVIDER.0.get().cast()
}

/// What weft looks for.
#[no_mangle]
pub extern "C" fn weft_provider_version() -> *const c_char {
    concat!(env!("VERSION"), "\0").as_ptr().cast()
}

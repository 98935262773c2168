//! The entry point, and the functions that libfabric calls first.

use super::abi::*;
use super::domain::Fabric;
use super::{call_int, info};
use libc::{c_char, c_int, c_void};
use std::cell::UnsafeCell;
use std::io::Write;
use std::sync::Once;

/// The newest libfabric whose interface the provider has.
const API: u32 = version(2, 6);

struct Static(UnsafeCell<Provider>);

// SAFETY: the provider writes nothing here; libfabric's core writes `context` under its own lock.
unsafe impl Sync for Static {}

static PROVIDER: Static = Static(UnsafeCell::new(Provider {
    version: version(0, 1),
    fi_version: API,
    context: [std::ptr::null_mut(); 4],
    name: c"weft".as_ptr(),
    getinfo,
    fabric,
    cleanup,
}));

/// Returns the provider: libfabric looks up this symbol in a provider's file.
#[no_mangle]
pub extern "C" fn fi_prov_ini() -> *mut Provider {
    init_log();
    show();
    PROVIDER.0.get()
}

/// Returns the version of weft this provider was built from; tools compare it with their own.
#[no_mangle]
pub extern "C" fn weft_provider_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Creates a named mapping, by which `weft mpi` sees that libfabric has asked for the provider:
/// programs that preload it (`yields.rs`) map the file in any case.
fn show() {
    static SHOWN: Once = Once::new();
    SHOWN.call_once(|| {
        // SAFETY: the system calls use no memory of the process; the mapping is never accessed, and
        // stays for as long as the process lives.
        unsafe {
            let file = libc::memfd_create(c"weft-provider".as_ptr(), libc::MFD_CLOEXEC);
            if file >= 0 {
                libc::mmap(std::ptr::null_mut(), 1, libc::PROT_READ, libc::MAP_SHARED, file, 0);
                libc::close(file);
            }
        }
    });
}

/// Sends warnings to standard error; `WEFT_LOG` (error to trace) sets the level.
fn init_log() {
    let rank = crate::who::RANKS.iter().find_map(|name| std::env::var(name).ok());
    let who = rank.map_or("weft".to_owned(), |rank| format!("weft rank {rank}"));
    let started = env_logger::Builder::new()
        .filter_level(log::LevelFilter::Warn)
        .parse_env("WEFT_LOG")
        .format(move |out, record| {
            let level = record.level().as_str().to_lowercase();
            writeln!(out, "{who}: {level}: {}", record.args())
        })
        .try_init();
    // If the provider is loaded twice, the first logger stays.
    let _ = started;
}

unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    _service: *const c_char,
    _flags: u64,
    hints: *const Info,
    out: *mut *mut Info,
) -> c_int {
    call_int(|| {
        if out.is_null() {
            return Err(err::EINVAL);
        }
        if !node.is_null() {
            // SAFETY: a string of the caller's.
            let node = unsafe { std::ffi::CStr::from_ptr(node) };
            log::debug!("no endpoint is found by the host name {node:?}: names are exchanged");
            return Err(err::ENODATA);
        }
        // SAFETY: hints are null or a whole `fi_info` of the caller's.
        let hints = unsafe { info::read(hints) };
        match crate::offer::judge(hints.as_ref(), version) {
            Ok(offer) => {
                // SAFETY: `out` was checked.
                unsafe { *out = info::build(&offer, version)? };
                Ok(0)
            }
            Err(why) => {
                log::debug!("nothing offered: {why}");
                Err(err::ENODATA)
            }
        }
    })
}

unsafe extern "C" fn fabric(
    attr: *mut FabricAttr,
    out: *mut *mut FidFabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the attributes are the caller's, `out` has room for a pointer.
    call_int(|| unsafe {
        let api = attr.as_ref().ok_or(err::EINVAL)?.api_version;
        super::give(Fabric::new(api, context), out)
    })
}

unsafe extern "C" fn cleanup() {
    super::watchdog::end();
}

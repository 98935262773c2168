//! The entry point, and the functions that libfabric calls first.

use super::{domain, info};
use crate::abi::*;
use crate::call::call;
use crate::{messages, offer, watchdog, yields};
use libc::{c_char, c_int};
use std::cell::UnsafeCell;
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
    fabric: domain::fabric,
    cleanup,
}));

/// Returns the provider: libfabric looks up this symbol in a provider's file.
#[no_mangle]
pub extern "C" fn fi_prov_ini() -> *mut Provider {
    messages::begin();
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

unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    _service: *const c_char,
    _flags: u64,
    hints: *const Info,
    out: *mut *mut Info,
) -> c_int {
    call(|| {
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
        match offer::judge(hints.as_ref(), version) {
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

unsafe extern "C" fn cleanup() {
    watchdog::end();
}

/// Stands before the function of the C library.
#[no_mangle]
pub extern "C" fn sched_yield() -> c_int {
    if yields::is_needed() {
        // SAFETY: the call takes no argument and uses no memory.
        unsafe { libc::syscall(libc::SYS_sched_yield) };
    }
    0
}

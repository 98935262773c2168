//! The library: beginning and end, texts of codes, and functions that MX never had.

use crate::address::Addr;
use crate::code::{self, Return, StatusCode};
use crate::sys::abi::{call, offer, place, Handle, READY};
use crate::sys::open::Open;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::Ordering;
use weft_ffi::endpoint;
use weft_ffi::sys::lock;

/// The version of the interface, without its last digits.
const API: c_int = 0x3;

/// Initializes the library, for a program that was built for a version of the interface. A child
/// made by `fork` of a process that has opened an endpoint cannot open any.
#[no_mangle]
pub extern "C" fn mx__init_api(api: c_int) -> Return {
    call(c"mx_init", 0, || {
        endpoint::start_log();
        if api >> 8 != API {
            return Err(code::BAD_LIB_VERSION);
        }
        if weft_sys::forks::is_child() {
            return Err(code::BUSY);
        }
        match READY.swap(true, Ordering::AcqRel) {
            true => Err(code::ALREADY_INITIALIZED),
            false => Ok(()),
        }
    })
}

/// Ends the use of the library, and closes the endpoints that are open. In a handler of one of them
/// it closes none. A child made by `fork` has none, so it only ends its own use of the library.
#[no_mangle]
pub extern "C" fn mx_finalize() -> Return {
    call(c"mx_finalize", 0, || {
        if !READY.load(Ordering::Acquire) {
            return Err(code::NOT_INITIALIZED);
        }
        lock::close_all::<Open>(Open::may_close)?;
        READY.store(false, Ordering::Release);
        Ok(())
    })
}

/// Returns the text of a function's code.
#[no_mangle]
pub extern "C" fn mx_strerror(code: Return) -> *const c_char {
    code::text_of_return(code).as_ptr()
}

/// Returns the text of a status.
#[no_mangle]
pub extern "C" fn mx_strstatus(code: StatusCode) -> *const c_char {
    code::text_of_status(code).as_ptr()
}

/// Fails: the interface declares this function, and MX and Open-MX do not have it either.
#[no_mangle]
pub extern "C" fn mx_register_unexp_callback(
    endpoint: Handle,
    _callback: *const c_void,
    _context: *mut c_void,
) -> Return {
    call(c"mx_register_unexp_callback: use mx_register_unexp_handler", endpoint, || {
        Err(code::FAILURE)
    })
}

/// Fails: the interface declares this function, and MX and Open-MX do not have it either.
#[no_mangle]
pub extern "C" fn mx_iput(
    endpoint: Handle,
    _local: *mut c_void,
    _len: u32,
    _to: Addr,
    _remote: u64,
    _context: *mut c_void,
    _request: *mut Handle,
) -> Return {
    call(c"mx_iput is not part of MX", endpoint, || Err(code::FAILURE))
}

/// Fails: the interface declares this function, and MX and Open-MX do not have it either.
#[no_mangle]
pub extern "C" fn mx_iget(
    endpoint: Handle,
    _local: *mut c_void,
    _len: u32,
    _from: Addr,
    _remote: u64,
    _context: *mut c_void,
    _request: *mut Handle,
) -> Return {
    call(c"mx_iget is not part of MX", endpoint, || Err(code::FAILURE))
}

/// Fails: the interface declares this function, and MX and Open-MX do not have it either.
#[no_mangle]
pub extern "C" fn mx_buffered(
    endpoint: Handle,
    _request: *mut Handle,
    _ms: u32,
    _result: *mut u32,
) -> Return {
    call(c"mx_buffered: use mx_ibuffered", endpoint, || Err(code::FAILURE))
}

/// `mx_mapper_state_t`.
#[repr(C)]
pub struct MapperState {
    board: u32,
    mapper: [u8; 6],
    port: u16,
    map_version: u32,
    hosts: u32,
    is_configured: u32,
    are_routes_valid: u32,
    level: u32,
    flags: u32,
}

/// Opens a board for `mx__get_mapper_state`, which Open MPI calls: there is one network.
///
/// # Safety
/// `handle` is null, misaligned or a place for a number.
#[no_mangle]
pub unsafe extern "C" fn mx_open_board(board: c_int, handle: *mut c_int) -> Return {
    // SAFETY: promised by the caller.
    unsafe { offer(handle, board) };
    code::SUCCESS
}

/// Stores the state of the mapper of the network. Hosts are in one network if its address is the
/// same.
///
/// # Safety
/// `state` is null, misaligned or a place for it.
#[no_mangle]
pub unsafe extern "C" fn mx__get_mapper_state(handle: c_int, state: *mut MapperState) -> Return {
    call(c"mx__get_mapper_state", 0, || {
        place(state, code::BAD_INFO_VAL)?;
        let of = MapperState {
            board: handle.max(0) as u32,
            mapper: [0x02, 0x57, 0, 0, 0, 0],
            port: 0,
            map_version: 1,
            hosts: 1,
            is_configured: 1,
            are_routes_valid: 1,
            level: 0,
            flags: 0,
        };
        // SAFETY: promised by the caller.
        unsafe { offer(state, of) };
        Ok(())
    })
}

/// Forgets registered memory, which this library does not keep.
#[no_mangle]
pub extern "C" fn mx__regcache_clean(_at: *mut c_void, _len: usize) -> c_int {
    0
}

//! The library: beginning and end, texts of codes, and functions that MX never had.

use crate::address::Addr;
use crate::calls::call;
use crate::calls::library::{self, MapperState};
use crate::code::{self, Return, StatusCode};
use crate::handle::Handle;
use std::ffi::{c_char, c_int};
use weft_ffi::given::Place;

/// Initializes the library, for a program that was built for a version of the interface. A child
/// made by `fork` of a process that has opened an endpoint cannot open any.
#[no_mangle]
pub extern "C" fn mx__init_api(api: c_int) -> Return {
    call(c"mx_init", 0, || library::init(api))
}

weft_ffi::exports! { call -> Return;
    /// Ends the use of the library, and closes the endpoints that are open. In a handler of one of
    /// them it closes none. A child made by `fork` has none, so it only ends its own use of the
    /// library.
    fn mx_finalize() {
        library::finalize()
    }

    /// Opens a board for `mx__get_mapper_state`, which Open MPI calls: there is one network.
    fn mx_open_board(board: c_int, handle: Place<c_int>) {
        handle.store(board);
        Ok(())
    }

    /// Stores the state of the mapper of the network. Hosts are in one network if its address is
    /// the same.
    fn mx__get_mapper_state(handle: c_int, state: Place<MapperState>) {
        library::mapper_state(handle, state)
    }
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

/// Forgets registered memory, which this library does not keep.
#[no_mangle]
pub extern "C" fn mx__regcache_clean(_at: usize, _len: usize) -> c_int {
    0
}

/// Defines functions that the interface declares, and that MX and Open-MX do not have either: they
/// fail, and the text says why.
macro_rules! absent {
    ($($text:literal: $name:ident($($arg:ident: $type:ty),*);)*) => { $(
        /// Fails: the interface declares this function, and MX and Open-MX do not have it either.
        #[no_mangle]
        pub extern "C" fn $name(endpoint: Handle, $($arg: $type),*) -> Return {
            call($text, endpoint, || Err(code::FAILURE))
        }
    )* };
}

absent! {
    c"mx_register_unexp_callback: use mx_register_unexp_handler":
        mx_register_unexp_callback(_callback: usize, _context: usize);
    c"mx_iput is not part of MX": mx_iput(
        _local: usize, _len: u32, _to: Addr, _remote: u64, _context: usize, _request: usize
    );
    c"mx_iget is not part of MX": mx_iget(
        _local: usize, _len: u32, _from: Addr, _remote: u64, _context: usize, _request: usize
    );
    c"mx_buffered: use mx_ibuffered": mx_buffered(_request: usize, _ms: u32, _result: usize);
}

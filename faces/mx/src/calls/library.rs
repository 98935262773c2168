//! The library: its beginning and its end, and the network that it shows.

use crate::code::{self, Answer};
use crate::enter::{ready, set_ready};
use crate::open::Open;
use weft_ffi::endpoint;
use weft_ffi::given::Place;
use weft_ffi::sys::lock;

/// The version of the interface, without its last digits.
const API: i32 = 0x3;

/// Initializes the library, for a program that was built for a version of the interface. A child
/// made by `fork` of a process that has opened an endpoint cannot open any.
pub fn init(api: i32) -> Answer {
    endpoint::start_log();
    if api >> 8 != API {
        return Err(code::BAD_LIB_VERSION);
    }
    if weft_sys::forks::is_child() {
        return Err(code::BUSY);
    }
    match set_ready(true) {
        true => Err(code::ALREADY_INITIALIZED),
        false => Ok(()),
    }
}

/// Ends the use of the library, and closes the endpoints that are open. In a handler of one of them
/// it closes none. A child made by `fork` has none, so it only ends its own use of the library.
pub fn finalize() -> Answer {
    ready()?;
    lock::close_all::<Open>(Open::may_close)?;
    set_ready(false);
    Ok(())
}

/// `mx_mapper_state_t`.
#[repr(C)]
#[derive(Clone, Copy)]
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

/// Stores the state of the mapper of the network. Hosts are in one network if its address is the
/// same.
pub fn mapper_state(board: i32, state: Place<'_, MapperState>) -> Answer {
    state.or(code::BAD_INFO_VAL)?;
    state.store(MapperState {
        board: board.max(0) as u32,
        mapper: [0x02, 0x57, 0, 0, 0, 0],
        port: 0,
        map_version: 1,
        hosts: 1,
        is_configured: 1,
        are_routes_valid: 1,
        level: 0,
        flags: 0,
    });
    Ok(())
}

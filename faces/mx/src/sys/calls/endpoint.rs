//! Endpoints: opening, closing, waking, progress, addresses.

use crate::address::{Addr, Local};
use crate::boards::{self, Board, ENDPOINTS};
use crate::code::{self, Answer, Return};
use crate::params;
use crate::sys::abi::{call, endpoint_handle, offer, place, ready, Handle, Param};
use crate::sys::enter::{enter, enter_local};
use crate::sys::errors;
use crate::sys::open::{Open, Parts};
use crate::sys::unexpected::run_handler;
use crate::wire::claim::Claim;
use crate::wire::setting::Setting;
use crate::wire::{Bell, Wire};
use std::io::{Error, ErrorKind};
use std::net::Ipv4Addr;
use std::rc::Rc;
use weft::Address;
use weft_ffi::address::NetAddress;
use weft_ffi::mx as environment;
use weft_ffi::rendezvous::{self, Post};
use weft_ffi::sys::lock;
use weft_link::secure::JobKey;
use weft_link::Link;

/// Wild card of a board or a number.
const ANY: u32 = u32::MAX;
/// Spinning for so long is polling for ever.
const SPIN_ALWAYS_US: u32 = 1_000_000;

/// The parameters of an endpoint.
#[derive(Default)]
struct Wanted {
    contexts: u64,
    on_error: usize,
}

/// Reads the parameters.
///
/// # Errors
/// `MX_BAD_PARAM_LIST`, `MX_BAD_PARAM_NAME`, `MX_BAD_PARAM_VAL`.
///
/// # Safety
/// `list` is null, misaligned or has `count` parameters.
unsafe fn wanted(list: *const Param, count: u32) -> Answer<Wanted> {
    let mut wanted = Wanted::default();
    if let Some(bits) = environment::contexts() {
        wanted.contexts = params::context_mask(bits)?;
    }
    if count == 0 {
        return Ok(wanted);
    }
    if list.is_null() || !list.is_aligned() {
        return Err(code::BAD_PARAM_LIST);
    }
    // SAFETY: promised by the caller.
    for param in unsafe { std::slice::from_raw_parts(list, count as usize) } {
        match param.key {
            // SAFETY: the key says which value it is; all bit patterns are numbers.
            0 => wanted.on_error = unsafe { param.value.handler },
            // The room for unexpected messages is a setting of weft (`WEFT_UNEXPECTED_MAX`).
            1 => {}
            2 => {
                // SAFETY: as before.
                let [bits, shift] = unsafe { param.value.bytes };
                wanted.contexts = params::context_mask((bits, shift))?;
            }
            _ => return Err(code::BAD_PARAM_NAME),
        }
    }
    Ok(wanted)
}

/// Returns the address at which others look for an endpoint.
pub(super) fn meeting(host: Ipv4Addr, number: u32) -> Answer<NetAddress> {
    let mut name = *b"mx\0\0\0\0";
    name[2..].copy_from_slice(&number.to_le_bytes());
    NetAddress::new(host, &name).ok_or(code::BAD_BAD_BAD)
}

/// The number of an endpoint, the name under which others find it, and its number on the interface
/// of MXoE.
type Claimed = (u32, Post, Option<(Rc<Wire>, Claim)>);

/// Claims the number, or the first free one.
fn claim(
    key: &JobKey,
    host: Ipv4Addr,
    number: Option<u32>,
    endpoint: &Address,
    wire: Option<&Rc<Wire>>,
) -> Answer<Claimed> {
    let numbers = number.map_or(0..ENDPOINTS, |number| number..number + 1);
    for number in numbers {
        let at = meeting(host, number)?;
        let post = || {
            let post = rendezvous::post(key, &at, endpoint)?;
            let wire = wire.map(|wire| Ok::<_, Error>((Rc::clone(wire), wire.claim(number)?)));
            Ok::<_, Error>((number, post, wire.transpose()?))
        };
        match post() {
            Ok(claimed) => return Ok(claimed),
            Err(why) if why.kind() == ErrorKind::AddrInUse => {}
            Err(why) => {
                log::error!("mx_open_endpoint: {why}");
                return Err(code::NO_RESOURCES);
            }
        }
    }
    Err(code::BUSY)
}

/// Opens the socket for MXoE, if the board is the interface of that.
fn wire_of(board: &Board) -> Result<Option<Rc<Wire>>, String> {
    match Setting::of_environment()? {
        Some(setting) if setting.interface == board.name => {
            let config = weft::job::config_from_env().map_err(|why| why.to_string())?;
            Wire::open(&setting, config.peer_timeout_ms).map(Some)
        }
        Some(setting) => setting.find().map(|_| None),
        None => Ok(None),
    }
}

/// Opens the endpoint of weft, and claims the number.
fn prepare(board: u32, number: Option<u32>) -> Answer<Parts> {
    let boards = boards::all();
    let board = boards.get(if board == ANY { 0 } else { board as usize });
    let board = board.ok_or(code::BOARD_UNKNOWN)?;
    let host = board.address;
    let adapt = |config: &mut weft::Config, links: &mut weft::Links| {
        links.shm &= !environment::is_without_shared_memory();
        if environment::waits_spin() {
            config.spin_us = SPIN_ALWAYS_US;
        }
    };
    let failed = |why: String| {
        log::error!("mx_open_endpoint: {why}");
        code::NO_DEV
    };
    let wire = wire_of(board).map_err(failed)?;
    let bells = wire.iter().map(|wire| Box::new(Bell(Rc::clone(wire))) as Box<dyn Link>);
    let opened = weft_ffi::endpoint::open_beside(host, "mx", adapt, bells.collect());
    let (endpoint, key) = opened.map_err(failed)?;
    let (number, post, wire) = claim(&key, host, number, &endpoint.address(), wire.as_ref())?;
    Ok(Parts { endpoint, key, name: (board.nic, number), post, wire })
}

/// Opens an endpoint.
///
/// # Safety
/// `list` is null or has `count` parameters; `endpoint` is null, misaligned or a place for a
/// handle.
#[no_mangle]
pub unsafe extern "C" fn mx_open_endpoint(
    board: u32,
    number: u32,
    key: u32,
    list: *const Param,
    count: u32,
    endpoint: *mut Handle,
) -> Return {
    call(c"mx_open_endpoint", 0, || {
        ready()?;
        place(endpoint, code::BAD_ENDPOINT)?;
        // SAFETY: promised by the caller.
        let wanted = unsafe { wanted(list, count) }?;
        let number = if number == ANY { environment::any_endpoint() } else { Some(number) };
        if number.is_some_and(|number| number >= ENDPOINTS) {
            return Err(code::BAD_ENDPOINT_ID);
        }
        let mut opened = (0, 0);
        lock::open(
            || prepare(board, number),
            |parts, slot, generation| {
                opened = (slot, generation);
                let local = Local::new(slot, generation);
                Open::new(parts, local, generation, key, wanted.contexts)
            },
        )
        // All slots are taken.
        .map_err(|why| if why == code::BUSY { busy_of(number) } else { why })?;
        errors::set_of_endpoint(opened.0, wanted.on_error);
        // SAFETY: promised by the caller.
        unsafe { offer(endpoint, endpoint_handle(opened.0, opened.1)) };
        Ok(())
    })
}

/// The number is taken, or there are too many endpoints.
fn busy_of(number: Option<u32>) -> Return {
    number.map_or(code::NO_RESOURCES, |_| code::BUSY)
}

/// Closes an endpoint: what was sent arrives, and its requests are gone.
#[no_mangle]
pub extern "C" fn mx_close_endpoint(endpoint: Handle) -> Return {
    call(c"mx_close_endpoint", endpoint, || {
        let mut inside = enter(endpoint)?;
        inside.open()?.may_close()?;
        lock::close(inside)
    })
}

/// Ends all waits of the endpoint without a result.
#[no_mangle]
pub extern "C" fn mx_wakeup(endpoint: Handle) -> Return {
    call(c"mx_wakeup", endpoint, || {
        let mut inside = enter(endpoint)?;
        let open = inside.open()?;
        open.wakeups += 1;
        open.changes += 1;
        Ok(())
    })
}

/// Nothing completes until `mx_reenable_progression`.
#[no_mangle]
pub extern "C" fn mx_disable_progression(endpoint: Handle) -> Return {
    call(c"mx_disable_progression", endpoint, || {
        let mut inside = enter(endpoint)?;
        let open = inside.open()?;
        open.settle_expected();
        open.is_disabled = true;
        Ok(())
    })
}

/// Ends `mx_disable_progression`.
#[no_mangle]
pub extern "C" fn mx_reenable_progression(endpoint: Handle) -> Return {
    call(c"mx_reenable_progression", endpoint, || {
        let mut inside = enter(endpoint)?;
        inside.open()?.is_disabled = false;
        inside.progress()?;
        run_handler(&mut inside)
    })
}

/// Makes progress.
#[no_mangle]
pub extern "C" fn mx_progress(endpoint: Handle) -> Return {
    call(c"mx_progress", endpoint, || {
        let mut inside = enter(endpoint)?;
        inside.progress()?;
        run_handler(&mut inside)
    })
}

/// Sets the handler of messages that come before their receives; none with null.
#[no_mangle]
pub extern "C" fn mx_register_unexp_handler(
    endpoint: Handle,
    handler: Option<crate::sys::unexpected::Handler>,
    context: usize,
) -> Return {
    call(c"mx_register_unexp_handler", endpoint, || {
        let handler = handler.map(|handler| (handler as *const ()).expose_provenance());
        enter(endpoint)?.open()?.set_handler(handler.map(|handler| (handler, context)));
        Ok(())
    })
}

/// Stores the endpoint's own address.
///
/// # Safety
/// `addr` is null, misaligned or a place for an address.
#[no_mangle]
pub unsafe extern "C" fn mx_get_endpoint_addr(endpoint: Handle, addr: *mut Addr) -> Return {
    call(c"mx_get_endpoint_addr", endpoint, || {
        place(addr, code::BAD_ADDR_LIST)?;
        // SAFETY: promised by the caller.
        unsafe { offer(addr, enter(endpoint)?.open()?.own) };
        Ok(())
    })
}

/// Stores the network interface and the number of an address.
///
/// # Safety
/// Both are null, misaligned or places for them.
#[no_mangle]
pub unsafe extern "C" fn mx_decompose_endpoint_addr(
    addr: Addr,
    nic: *mut u64,
    number: *mut u32,
) -> Return {
    let (of, at) = addr.endpoint();
    // SAFETY: promised by the caller.
    unsafe {
        offer(nic, of);
        offer(number, at);
    }
    code::SUCCESS
}

/// Stores the NIC, the number and the session of an endpoint's address; the session differs where
/// an endpoint was opened anew.
///
/// # Safety
/// The caller keeps the rules of `mx_decompose_endpoint_addr`.
#[no_mangle]
pub unsafe extern "C" fn mx_decompose_endpoint_addr2(
    addr: Addr,
    nic: *mut u64,
    number: *mut u32,
    session: *mut u32,
) -> Return {
    call(c"mx_decompose_endpoint_addr2", 0, || {
        let mut inside = enter_local(addr)?;
        let open = inside.open()?;
        let (peer, _) = open.key_check.peer(addr).ok_or(code::BAD_ENDPOINT)?;
        let identity = match crate::address::wired(peer) {
            Some(peer) => open.session_wired(peer).into(),
            None => open.endpoint().peer(peer).identity().map_or(0, |id| id.0),
        };
        let (of, at) = addr.endpoint();
        // SAFETY: promised by the caller.
        unsafe {
            offer(nic, of);
            offer(number, at);
            offer(session, (identity ^ identity >> 32) as u32);
        }
        Ok(())
    })
}

/// Keeps a context of the program with an address.
#[no_mangle]
pub extern "C" fn mx_set_endpoint_addr_context(addr: Addr, context: usize) -> Return {
    call(c"mx_set_endpoint_addr_context", 0, || {
        let mut inside = enter_local(addr)?;
        let open = inside.open()?;
        let (peer, _) = open.key_check.peer(addr).ok_or(code::BAD_ENDPOINT)?;
        open.key_check.with_context(peer, |of| *of = context).ok_or(code::BAD_ENDPOINT)
    })
}

/// Stores the context of an address; null if none was set.
///
/// # Safety
/// `context` is null, misaligned or a place for a pointer.
#[no_mangle]
pub unsafe extern "C" fn mx_get_endpoint_addr_context(addr: Addr, context: *mut usize) -> Return {
    call(c"mx_get_endpoint_addr_context", 0, || {
        place(context, code::BAD_INFO_VAL)?;
        let mut inside = enter_local(addr)?;
        let open = inside.open()?;
        let (peer, _) = open.key_check.peer(addr).ok_or(code::BAD_ENDPOINT)?;
        let of = open.key_check.with_context(peer, |of| *of).ok_or(code::BAD_ENDPOINT)?;
        // SAFETY: promised by the caller.
        unsafe { offer(context, of) };
        Ok(())
    })
}

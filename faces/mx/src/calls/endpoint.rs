//! Endpoints: opening, closing, waking, progress, addresses.

use crate::address::{wired, Addr, Local};
use crate::boards::{self, Board, ENDPOINTS};
use crate::code::{self, Answer, Return};
use crate::enter::{enter, enter_local, ready, Inside};
use crate::errors;
use crate::handle::{endpoint_handle, Handle};
use crate::open::{run_handler, Names, OnUnexpected, Open, Parts};
use crate::params::{Param, Wanted};
use crate::wire::setting::Setting;
use crate::wire::{Bell, Wire};
use std::io::{Error, ErrorKind};
use std::net::Ipv4Addr;
use std::rc::Rc;
use weft::{Address, PeerId};
use weft_ffi::address::NetAddress;
use weft_ffi::given::{List, Place};
use weft_ffi::mx as environment;
use weft_ffi::rendezvous;
use weft_ffi::sys::lock;
use weft_link::secure::JobKey;
use weft_link::Link;

/// Wild card of a board or a number.
const ANY: u32 = u32::MAX;
/// Spinning for so long is polling for ever.
const SPIN_ALWAYS_US: u32 = 1_000_000;

/// Returns the address at which others look for an endpoint.
pub(super) fn meeting(host: Ipv4Addr, number: u32) -> Answer<NetAddress> {
    let mut name = *b"mx\0\0\0\0";
    name[2..].copy_from_slice(&number.to_le_bytes());
    NetAddress::new(host, &name).ok_or(code::BAD_BAD_BAD)
}

/// Claims the number, or the first free one.
fn claim(
    key: &JobKey,
    host: Ipv4Addr,
    number: Option<u32>,
    endpoint: &Address,
    wire: Option<&Rc<Wire>>,
) -> Answer<(u32, Names)> {
    let numbers = number.map_or(0..ENDPOINTS, |number| number..number + 1);
    for number in numbers {
        let at = meeting(host, number)?;
        let names = || {
            let post = rendezvous::post(key, &at, endpoint)?;
            let claim = wire.map(|wire| wire.claim(number)).transpose()?;
            Ok::<_, Error>((post, claim))
        };
        match names() {
            Ok(names) => return Ok((number, names)),
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
    let (number, names) = claim(&key, host, number, &endpoint.address(), wire.as_ref())?;
    Ok(Parts { endpoint, key, name: (board.nic, number), names, wire })
}

/// Opens an endpoint with a key.
pub fn open(
    board: u32,
    number: u32,
    key: u32,
    params: List<'_, Param>,
    endpoint: Place<'_, Handle>,
) -> Answer {
    ready()?;
    endpoint.or(code::BAD_ENDPOINT)?;
    let wanted = Wanted::of(params)?;
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
    endpoint.store(endpoint_handle(opened.0, opened.1));
    Ok(())
}

/// The number is taken, or there are too many endpoints.
fn busy_of(number: Option<u32>) -> Return {
    number.map_or(code::NO_RESOURCES, |_| code::BUSY)
}

/// Closes an endpoint: what was sent arrives, and its requests are gone.
pub fn close(endpoint: Handle) -> Answer {
    let mut inside = enter(endpoint)?;
    inside.open()?.may_close()?;
    lock::close(inside)
}

/// Ends all waits of the endpoint without a result.
pub fn wake(endpoint: Handle) -> Answer {
    let mut inside = enter(endpoint)?;
    let open = inside.open()?;
    open.waits.wakeups += 1;
    open.changes += 1;
    Ok(())
}

/// Lets nothing complete until [`enable`].
pub fn disable(endpoint: Handle) -> Answer {
    enter(endpoint)?.open()?.disable(true);
    Ok(())
}

/// Ends [`disable`].
pub fn enable(endpoint: Handle) -> Answer {
    let mut inside = enter(endpoint)?;
    inside.open()?.disable(false);
    inside.progress()?;
    run_handler(&mut inside)
}

/// Makes progress.
pub fn progress(endpoint: Handle) -> Answer {
    let mut inside = enter(endpoint)?;
    inside.progress()?;
    run_handler(&mut inside)
}

/// Sets the handler of messages that come before their receives, or none.
pub fn on_unexpected(endpoint: Handle, handler: Option<OnUnexpected>) -> Answer {
    enter(endpoint)?.open()?.set_handler(handler);
    Ok(())
}

/// Stores the endpoint's own address.
pub fn address(endpoint: Handle, addr: Place<'_, Addr>) -> Answer {
    addr.or(code::BAD_ADDR_LIST)?.store(enter(endpoint)?.open()?.own);
    Ok(())
}

/// Stores the network interface and the number of an address.
pub fn take_apart(addr: Addr, nic: Place<'_, u64>, number: Place<'_, u32>) -> Answer {
    let (of, at) = addr.endpoint();
    nic.store(of);
    number.store(at);
    Ok(())
}

/// Enters the endpoint of an address; returns the peer too.
fn enter_peer(addr: Addr) -> Answer<(Inside, PeerId)> {
    let mut inside = enter_local(addr)?;
    let (peer, _) = inside.open()?.key_check.peer(addr).ok_or(code::BAD_ENDPOINT)?;
    Ok((inside, peer))
}

/// Stores the session of an endpoint's address.
pub fn session(addr: Addr, session: Place<'_, u32>) -> Answer {
    let (mut inside, peer) = enter_peer(addr)?;
    let open = inside.open()?;
    let identity = match wired(peer) {
        Some(peer) => open.session_wired(peer).into(),
        None => open.endpoint().peer(peer).identity().map_or(0, |id| id.0),
    };
    session.store((identity ^ identity >> 32) as u32);
    Ok(())
}

/// Keeps a context of the program with an address.
pub fn set_context(addr: Addr, context: usize) -> Answer {
    let (mut inside, peer) = enter_peer(addr)?;
    let key_check = &inside.open()?.key_check;
    key_check.with_context(peer, |of| *of = context).ok_or(code::BAD_ENDPOINT)
}

/// Stores the context of an address; null if none was set.
pub fn context(addr: Addr, context: Place<'_, usize>) -> Answer {
    context.or(code::BAD_INFO_VAL)?;
    let (mut inside, peer) = enter_peer(addr)?;
    let of = inside.open()?.key_check.with_context(peer, |of| *of);
    context.store(of.ok_or(code::BAD_ENDPOINT)?);
    Ok(())
}

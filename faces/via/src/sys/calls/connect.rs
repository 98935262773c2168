//! Connections.

use crate::address::NetAddress;
use crate::code::{Answer, Code};
use crate::handle::{unpack, Kind};
use crate::rendezvous::{self, Sought};
use crate::sys::abi::{self, address, call, handle, number, offer, offer_address, place, store};
use crate::sys::abi::{until_some, Handle, RawAddress};
use crate::sys::lock::{enter, Inside};
use crate::table::Key;
use crate::wire::{Offer, Turn};
use std::ffi::c_ulong;
use std::time::Instant;
use weft::PeerId;

/// Returns the attributes of the other side.
fn attributes(of: &Offer) -> abi::ViAttributes {
    abi::ViAttributes {
        level: of.level,
        max: of.max.into(),
        qos: std::ptr::null_mut(),
        tag: std::ptr::null_mut(),
        write: of.write.into(),
        read: of.read.into(),
    }
}

/// Waits until a request for a connection comes to an address.
///
/// # Safety
/// `local` is null or names an address, `remote` is null or has room for one; `wanted` is null,
/// misaligned or a place for attributes, `conn` null, misaligned or a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn VipConnectWait(
    nic: Handle,
    local: *const RawAddress,
    time: c_ulong,
    remote: *mut RawAddress,
    wanted: *mut abi::ViAttributes,
    conn: *mut Handle,
) -> Code {
    call(|| {
        place(conn)?;
        let (mut inside, _) = enter(Kind::Nic, number(nic))?;
        let open = inside.open()?;
        let own = open.state().host;
        // SAFETY: promised by the caller.
        let at = unsafe { address(local, own) }?;
        if at.host != own {
            return Err(Code::InvalidParameter);
        }
        let until = until_some(time)?;
        open.stay(&at)?;
        let waiter = open.state().wait_at(at.clone());
        let found = inside.wait(until, |i| Ok(i.open()?.state().found(waiter)));
        let open = inside.open()?;
        open.state().end_wait(waiter);
        open.go(&at);
        let key = found?;
        let state = open.state();
        let caller = state.callers.get(key).ok_or(Code::Timeout)?;
        // SAFETY: promised by the caller.
        unsafe {
            offer_address(remote, caller.from.host, caller.from.discriminator());
            offer(wanted, attributes(&caller.offer))?;
            store(conn, handle(state.handle_of(Kind::Conn, key)))
        }
    })
}

/// Accepts a request for a virtual interface.
#[no_mangle]
pub extern "C" fn VipConnectAccept(conn: Handle, vi: Handle) -> Code {
    call(|| {
        let (of, key) = unpack(Kind::Vi, number(vi)).ok_or(Code::InvalidParameter)?;
        let same = unpack(Kind::Conn, number(conn)).is_some_and(|(nic, _)| nic == of);
        if !same {
            return Err(Code::InvalidParameter);
        }
        let (mut inside, conn) = enter(Kind::Conn, number(conn))?;
        let open = inside.open()?;
        open.state().accept(&open.port, conn, key)?;
        finish(&mut inside, key, None)
    })
}

/// Waits for the answer to a request or an acceptance, and ends it.
fn finish(inside: &mut Inside, key: Key, until: Option<Instant>) -> Answer {
    let answer = inside.wait(until, |i| Ok(i.open()?.state().answer(key)));
    let open = inside.open()?;
    open.state().end_request(&open.port, key);
    answer.and_then(|answer| answer)
}

/// Rejects a request.
#[no_mangle]
pub extern "C" fn VipConnectReject(conn: Handle) -> Code {
    call(|| {
        let (mut inside, key) = enter(Kind::Conn, number(conn))?;
        let open = inside.open()?;
        let was = open.state().reject(&open.port, key);
        was.then_some(()).ok_or(Code::InvalidParameter)
    })
}

/// Looks for the process that waits at an address, without the lock of the interface.
///
/// # Errors
/// `VIP_NO_MATCH`, `VIP_NOT_REACHABLE`, `VIP_TIMEOUT`; `VIP_INVALID_PARAMETER`: the interface was
/// closed meanwhile.
fn seek(inside: &mut Inside, at: &NetAddress, until: Option<Instant>) -> Answer<PeerId> {
    let key = inside.open()?.key.clone();
    inside.unlock();
    let sought = rendezvous::seek(&key, at, until);
    if !inside.lock() {
        return Err(Code::InvalidParameter);
    }
    let address = match sought {
        Sought::Found(address) => address,
        Sought::Nobody => return Err(Code::NoMatch),
        Sought::Unreachable => return Err(Code::NotReachable),
        Sought::Late => return Err(Code::Timeout),
    };
    let open = inside.open()?;
    open.endpoint().connect(&address).map_err(|why| {
        log::info!("a request for a connection: {why}");
        Code::NotReachable
    })
}

/// Requests a connection with an address, and waits for the answer.
///
/// # Safety
/// The addresses are null or there; `wanted` is null, misaligned or a place for attributes.
#[no_mangle]
pub unsafe extern "C" fn VipConnectRequest(
    vi: Handle,
    local: *const RawAddress,
    remote: *const RawAddress,
    time: c_ulong,
    wanted: *mut abi::ViAttributes,
) -> Code {
    call(|| {
        let (mut inside, key) = enter(Kind::Vi, number(vi))?;
        let open = inside.open()?;
        let own = open.state().host;
        // SAFETY: promised by the caller.
        let (from, to) = unsafe { (address(local, own)?, address(remote, own)?) };
        let until = until_some(time)?;
        open.state().request(key)?;
        inside.progress()?;
        let asked = seek(&mut inside, &to, until).and_then(|peer| {
            let open = inside.open()?;
            open.state().ask(&open.port, key, peer, (from, to))
        });
        if let Err(code) = asked {
            let open = inside.open()?;
            open.state().end_request(&open.port, key);
            return Err(code);
        }
        finish(&mut inside, key, until)?;
        // SAFETY: promised by the caller.
        unsafe { give(&mut inside, key, wanted) }
    })
}

/// Stores the attributes of the other side of a connection.
///
/// # Safety
/// `wanted` is null, misaligned or a place for them.
unsafe fn give(inside: &mut Inside, key: Key, wanted: *mut abi::ViAttributes) -> Answer {
    let state = inside.open()?.state();
    let other = state.vis.get(key).and_then(|vi| vi.other_side());
    match other {
        // SAFETY: promised by the caller.
        Some((_, of)) => unsafe { offer(wanted, attributes(&of)) },
        // The connection has been lost already.
        None => Ok(()),
    }
}

/// Requests a connection with one that requests it, too. The call does not wait.
///
/// # Safety
/// The addresses are null or there.
#[no_mangle]
pub unsafe extern "C" fn VipConnectPeerRequest(
    vi: Handle,
    local: *const RawAddress,
    remote: *const RawAddress,
    time: c_ulong,
) -> Code {
    call(|| {
        let (mut inside, key) = enter(Kind::Vi, number(vi))?;
        let open = inside.open()?;
        let own = open.state().host;
        // SAFETY: promised by the caller.
        let (from, to) = unsafe { (address(local, own)?, address(remote, own)?) };
        if from.host != own {
            return Err(Code::InvalidParameter);
        }
        let until = until_some(time)?;
        open.state().request_peer(key, (from.clone(), to.clone()), until)?;
        // First to be found, then to look: of two that do so, one finds the other.
        open.stay_for(key, &from);
        match seek(&mut inside, &to, until) {
            Ok(peer) => {
                let open = inside.open()?;
                open.state().tell_peer(&open.port, key, peer, Turn::First);
                Ok(())
            }
            // The peer's request has not come yet, and will find this request.
            Err(Code::NoMatch | Code::NotReachable | Code::Timeout) => Ok(()),
            Err(code) => Err(code),
        }
    })
}

/// Takes the result of a request that is to meet another.
fn peer_answer(inside: &mut Inside, key: Key) -> Answer<Option<Answer>> {
    let open = inside.open()?;
    let answer = open.state().peer_answer(&open.port, key, Instant::now())?;
    if answer.is_some() {
        open.go_for(key);
    }
    Ok(answer)
}

/// Looks if a request has met another.
///
/// # Safety
/// `wanted` is null, misaligned or a place for attributes.
#[no_mangle]
pub unsafe extern "C" fn VipConnectPeerDone(vi: Handle, wanted: *mut abi::ViAttributes) -> Code {
    call(|| {
        let (mut inside, key) = enter(Kind::Vi, number(vi))?;
        inside.progress()?;
        peer_answer(&mut inside, key)?.ok_or(Code::NotDone)??;
        // SAFETY: promised by the caller.
        unsafe { give(&mut inside, key, wanted) }
    })
}

/// Waits until a request has met another, or its time is over.
///
/// # Safety
/// The caller keeps the rules of `VipConnectPeerDone`.
#[no_mangle]
pub unsafe extern "C" fn VipConnectPeerWait(vi: Handle, wanted: *mut abi::ViAttributes) -> Code {
    call(|| {
        let (mut inside, key) = enter(Kind::Vi, number(vi))?;
        let until = inside.open()?.state().peers_of(key).and_then(|(.., until)| until);
        let answer = inside.wait(until, |i| peer_answer(i, key));
        match answer {
            Ok(answer) => answer?,
            // The time of the request is over as well: this ends it.
            Err(Code::Timeout) => peer_answer(&mut inside, key)?.ok_or(Code::Timeout)??,
            Err(code) => return Err(code),
        }
        // SAFETY: promised by the caller.
        unsafe { give(&mut inside, key, wanted) }
    })
}

/// Ends a connection, or a request for one, and flushes both queues.
#[no_mangle]
pub extern "C" fn VipDisconnect(vi: Handle) -> Code {
    call(|| {
        let (mut inside, key) = enter(Kind::Vi, number(vi))?;
        let open = inside.open()?;
        if open.state().vis.get(key).is_none() {
            return Err(Code::InvalidParameter);
        }
        open.hub.reap(&open.port);
        open.state().disconnect(&open.port, key);
        open.go_for(key);
        Ok(())
    })
}

//! Connections.

use crate::address::NetAddress;
use crate::code::{Answer, Code};
use crate::handle::{beside, Handle, Kind};
use crate::open::{enter, Inside};
use crate::raw::{until_some, RawAddress, ViAttributes};
use crate::rendezvous::{self, Sought};
use crate::table::Key;
use crate::wire::{Offer, Turn};
use std::ffi::c_ulong;
use std::time::Instant;
use weft::PeerId;
use weft_ffi::given::Place;

/// Returns the attributes of the other side.
fn attributes(of: &Offer) -> ViAttributes {
    ViAttributes {
        level: of.level,
        max: of.max.into(),
        qos: 0,
        tag: 0,
        write: of.write.into(),
        read: of.read.into(),
    }
}

/// Waits until a request for a connection comes to an address.
pub fn wait(
    nic: Handle,
    local: RawAddress<'_>,
    time: c_ulong,
    (remote, wanted): (RawAddress<'_>, Place<'_, ViAttributes>),
    conn: Place<'_, Handle>,
) -> Answer {
    conn.or(Code::InvalidParameter)?;
    let mut inside = super::enter_nic(nic)?;
    let open = inside.open()?;
    let own = open.state().host;
    let at = local.read(own)?;
    if at.host != own {
        return Err(Code::InvalidParameter);
    }
    let until = until_some(time)?;
    open.stay(&at)?;
    let waiter = open.state().callers.wait_at(at.clone());
    let found = inside.wait(until, |i| Ok(i.open()?.state().callers.found(waiter)));
    let open = inside.open()?;
    open.state().callers.end_wait(waiter);
    open.go(&at);
    let key = found?;
    let state = open.state();
    let caller = state.callers.get(key).ok_or(Code::Timeout)?;
    remote.offer(caller.from.host, caller.from.discriminator());
    wanted.offer(attributes(&caller.offer), Code::InvalidParameter)?;
    conn.store(state.handle_of(Kind::Conn, key));
    Ok(())
}

/// Accepts a request for a virtual interface.
pub fn accept(conn: Handle, vi: Handle) -> Answer {
    let key = beside((Kind::Vi, vi), (Kind::Conn, conn))?;
    let (mut inside, conn) = enter(Kind::Conn, conn)?;
    let open = inside.open()?;
    open.state().accept(&open.port, conn, key)?;
    finish(&mut inside, key, None)
}

/// Waits for the answer to a request or an acceptance, and ends it.
fn finish(inside: &mut Inside, key: Key, until: Option<Instant>) -> Answer {
    let answer = inside.wait(until, |i| Ok(i.open()?.state().answer(key)));
    let open = inside.open()?;
    open.state().end_request(&open.port, key);
    answer.and_then(|answer| answer)
}

/// Rejects a request.
pub fn reject(conn: Handle) -> Answer {
    let (mut inside, key) = enter(Kind::Conn, conn)?;
    let open = inside.open()?;
    let was = open.state().reject(&open.port, key);
    was.then_some(()).ok_or(Code::InvalidParameter)
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

/// Reads the addresses of a request.
fn ends(
    inside: &mut Inside,
    (local, remote): (RawAddress<'_>, RawAddress<'_>),
) -> Answer<(NetAddress, NetAddress)> {
    let own = inside.open()?.state().host;
    Ok((local.read(own)?, remote.read(own)?))
}

/// Requests a connection between two addresses, and waits for the answer.
pub fn request(
    vi: Handle,
    ends_of: (RawAddress<'_>, RawAddress<'_>),
    time: c_ulong,
    wanted: Place<'_, ViAttributes>,
) -> Answer {
    let (mut inside, key) = enter(Kind::Vi, vi)?;
    let (from, to) = ends(&mut inside, ends_of)?;
    let until = until_some(time)?;
    inside.open()?.state().request(key)?;
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
    give(&mut inside, key, wanted)
}

/// Stores the attributes of the other side of a connection.
fn give(inside: &mut Inside, key: Key, wanted: Place<'_, ViAttributes>) -> Answer {
    let state = inside.open()?.state();
    let other = state.vis.get(key).and_then(|vi| vi.other_side());
    match other {
        Some((_, of)) => wanted.offer(attributes(&of), Code::InvalidParameter),
        // The connection has been lost already.
        None => Ok(()),
    }
}

/// Requests a connection with one that requests it, too. The call does not wait.
pub fn request_peer(
    vi: Handle,
    ends_of: (RawAddress<'_>, RawAddress<'_>),
    time: c_ulong,
) -> Answer {
    let (mut inside, key) = enter(Kind::Vi, vi)?;
    let (from, to) = ends(&mut inside, ends_of)?;
    let open = inside.open()?;
    if from.host != open.state().host {
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
pub fn peer_done(vi: Handle, wanted: Place<'_, ViAttributes>) -> Answer {
    let (mut inside, key) = enter(Kind::Vi, vi)?;
    inside.progress()?;
    peer_answer(&mut inside, key)?.ok_or(Code::NotDone)??;
    give(&mut inside, key, wanted)
}

/// Waits until a request has met another, or its time is over.
pub fn peer_wait(vi: Handle, wanted: Place<'_, ViAttributes>) -> Answer {
    let (mut inside, key) = enter(Kind::Vi, vi)?;
    let until = inside.open()?.state().peers_of(key).and_then(|(.., until)| until);
    let answer = inside.wait(until, |i| peer_answer(i, key));
    match answer {
        Ok(answer) => answer?,
        // The time of the request is over as well: this ends it.
        Err(Code::Timeout) => peer_answer(&mut inside, key)?.ok_or(Code::Timeout)??,
        Err(code) => return Err(code),
    }
    give(&mut inside, key, wanted)
}

/// Ends a connection, or a request for one, and flushes both queues.
pub fn disconnect(vi: Handle) -> Answer {
    let (mut inside, key) = enter(Kind::Vi, vi)?;
    let open = inside.open()?;
    if open.state().vis.get(key).is_none() {
        return Err(Code::InvalidParameter);
    }
    open.hub.reap(&open.port);
    open.state().disconnect(&open.port, key);
    open.go_for(key);
    Ok(())
}

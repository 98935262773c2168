//! Connections: by request and acceptance, or by two requests that meet.
//!
//! The requesting side is connected when the acceptance arrives, and confirms it; the accepting
//! side is connected then. So an acceptance that comes too late is no connection of either side.

use super::callers::Caller;
use super::vi::{Connection, Request};
use super::{State, Vi};
use crate::address::NetAddress;
use crate::code::{status, Answer, Code, Fault, Phase};
use crate::table::Key;
use crate::wire::{id_of, number, parts, Control, Kind, Offer, Reason, Turn};
use crate::wire::{CLIENT, GENERATION, VERSION};
use std::time::Instant;
use weft::port::Port;
use weft::PeerId;

const _: () = assert!(CLIENT >= weft::port::WEFT);

/// Sends a message about a connection. A peer that has failed is reported otherwise.
fn tell(port: &Port, peer: PeerId, message: &Control) {
    let _failed = port.post(peer, number(Kind::Control, 0), VERSION, &message.encode());
}

impl State {
    /// Gives a virtual interface a connection of its own number.
    fn link(&mut self, key: Key) -> Answer {
        let own = self.ways.add(key).ok_or(Code::ErrorResource)?;
        let vi = self.vis.get_mut(key).ok_or(Code::InvalidParameter)?;
        vi.connection = Some(Connection { own, peer: None, offer: None, watched: false });
        vi.phase = Phase::Pending;
        Ok(())
    }

    /// Names the other side of a connection, whose silence is noticed from now on.
    fn join(&mut self, port: &Port, key: Key, peer: PeerId, offer: Option<Offer>) {
        let Some(connection) = self.vis.get_mut(key).and_then(|vi| vi.connection.as_mut()) else {
            return;
        };
        if connection.peer != Some(peer) {
            if let (Some(old), true) = (connection.peer, connection.watched) {
                port.endpoint().peer(old).unexpect();
            }
            connection.watched = port.endpoint().peer(peer).expect();
        }
        (connection.peer, connection.offer) = (Some(peer), offer);
    }

    /// Ends the connection of a virtual interface, whatever its state.
    pub(super) fn leave(&mut self, port: &Port, key: Key) {
        let Some(connection) = self.vis.get_mut(key).and_then(|vi| vi.connection.take()) else {
            return;
        };
        self.ways.remove(connection.own);
        if let (Some(peer), true) = (connection.peer, connection.watched) {
            port.endpoint().peer(peer).unexpect();
        }
    }

    /// Returns this side of a connection, for the other one.
    fn offer(&self, key: Key) -> Option<Offer> {
        let vi = self.vis.get(key)?;
        let of = vi.attributes;
        let secret = if of.write || of.read { self.tags.secret(of.tag) } else { 0 };
        Some(Offer {
            id: id_of(vi.connection.as_ref()?.own),
            level: of.level,
            max: of.max as u32,
            write: of.write,
            read: of.read,
            secret,
        })
    }

    /// Returns the virtual interface of a connection by its number here.
    fn linked(&self, id: u32) -> Option<Key> {
        let (index, generation) = parts(id);
        self.ways.get(self.ways.key_at(index, generation, GENERATION)?).copied()
    }

    /// Begins a request of the program, which waits for its end.
    ///
    /// # Errors
    /// `VIP_INVALID_STATE`: the virtual interface is not idle; `VIP_ERROR_RESOURCE`: too many
    /// connections.
    pub fn request(&mut self, key: Key) -> Answer {
        let vi = self.vis.get(key).ok_or(Code::InvalidParameter)?;
        if vi.phase != Phase::Idle {
            return Err(Code::InvalidState);
        }
        self.link(key)?;
        self.vis.get_mut(key).into_iter().for_each(|vi| vi.request = Request::Waits(None));
        Ok(())
    }

    /// Sends the request to the endpoint that was found.
    ///
    /// # Errors
    /// `VIP_INVALID_STATE`: another thread has ended it.
    pub fn ask(
        &mut self,
        port: &Port,
        key: Key,
        peer: PeerId,
        (from, to): (NetAddress, NetAddress),
    ) -> Answer {
        self.join(port, key, peer, None);
        let offer = self.offer(key).ok_or(Code::InvalidState)?;
        tell(port, peer, &Control::Request { peers: None, offer, from, to });
        if port.endpoint().peer(peer).failure().is_some() {
            return Err(Code::NotReachable);
        }
        Ok(())
    }

    /// Returns the answer to a request of the program that waits.
    pub fn answer(&self, key: Key) -> Option<Answer> {
        match self.vis.get(key).map(|vi| &vi.request) {
            Some(Request::Waits(answer)) => *answer,
            // Another thread has disconnected or destroyed it.
            _ => Some(Err(Code::InvalidState)),
        }
    }

    /// Ends a request of the program: without a connection unless it is connected.
    pub fn end_request(&mut self, port: &Port, key: Key) {
        let Some(vi) = self.vis.get_mut(key) else { return };
        vi.request = Request::None;
        if vi.phase == Phase::Pending {
            self.cancel(port, key);
        }
    }

    /// Gives up a connection that is being made.
    fn cancel(&mut self, port: &Port, key: Key) {
        let peer = self.vis.get(key).and_then(|vi| vi.connection.as_ref()?.peer);
        if let (Some(peer), Some(offer)) = (peer, self.offer(key)) {
            tell(port, peer, &Control::Cancel { id: offer.id });
        }
        self.leave(port, key);
        self.vis.get_mut(key).into_iter().for_each(|vi| vi.phase = Phase::Idle);
    }

    /// Accepts a request for a virtual interface; the end of it is the answer.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: there is no such request; `VIP_INVALID_STATE`: the virtual
    /// interface is not idle; `VIP_INVALID_RELIABILITY_LEVEL`, `VIP_INVALID_MTU`: its attributes
    /// are others, and the request goes on; `VIP_TIMEOUT`: the other side has given up.
    pub fn accept(&mut self, port: &Port, conn: Key, key: Key) -> Answer {
        let caller = self.callers.get(conn).ok_or(Code::InvalidParameter)?;
        let vi = self.vis.get(key).ok_or(Code::InvalidParameter)?;
        if vi.phase != Phase::Idle {
            return Err(Code::InvalidState);
        }
        let (peer, offer, gone) = (caller.peer, caller.offer, caller.gone);
        if gone {
            self.callers.remove(conn);
            return Err(Code::Timeout);
        }
        agree(vi, &offer)?;
        self.request(key)?;
        self.callers.remove(conn);
        self.join(port, key, peer, Some(offer));
        let own = self.offer(key).ok_or(Code::InvalidState)?;
        tell(port, peer, &Control::Accept { to: offer.id, offer: own });
        if port.endpoint().peer(peer).failure().is_some() {
            return Err(Code::Timeout);
        }
        Ok(())
    }

    /// Rejects a request. False if there is no such request.
    pub fn reject(&mut self, port: &Port, conn: Key) -> bool {
        let Some(caller) = self.callers.remove(conn) else { return false };
        if !caller.gone {
            tell(port, caller.peer, &Control::Refuse { to: caller.offer.id, no_match: false });
        }
        true
    }

    /// Begins a request that is to meet one of the other side.
    ///
    /// # Errors
    /// Returns the errors of [`request`](State::request).
    pub fn request_peer(
        &mut self,
        key: Key,
        (local, remote): (NetAddress, NetAddress),
        until: Option<Instant>,
    ) -> Answer {
        self.request(key)?;
        if let Some(vi) = self.vis.get_mut(key) {
            vi.request = Request::Peers { local, remote, until, answer: None };
        }
        Ok(())
    }

    /// Sends the own request to an endpoint where the other side may be.
    pub fn tell_peer(&mut self, port: &Port, key: Key, peer: PeerId, turn: Turn) {
        let Some(offer) = self.offer(key) else { return };
        let Some(vi) = self.vis.get(key) else { return };
        let Request::Peers { local, remote, answer: None, .. } = &vi.request else { return };
        let (from, to) = (local.clone(), remote.clone());
        self.join(port, key, peer, None);
        tell(port, peer, &Control::Request { peers: Some(turn), offer, from, to });
    }

    /// Returns the result of requests that meet. `None` while they have not, and time is left.
    ///
    /// # Errors
    /// `VIP_INVALID_STATE`: there is no such request.
    pub fn peer_answer(&mut self, port: &Port, key: Key, now: Instant) -> Answer<Option<Answer>> {
        let vi = self.vis.get(key).ok_or(Code::InvalidParameter)?;
        let Request::Peers { until, answer, .. } = &vi.request else {
            return Err(Code::InvalidState);
        };
        let late = until.is_some_and(|until| now >= until);
        let Some(answer) = answer.or_else(|| late.then_some(Err(Code::Timeout))) else {
            return Ok(None);
        };
        self.end_request(port, key);
        Ok(Some(answer))
    }

    /// Returns the addresses of a request that is to meet one of the other side.
    pub fn peers_of(&self, key: Key) -> Option<(NetAddress, NetAddress, Option<Instant>)> {
        match &self.vis.get(key)?.request {
            Request::Peers { local, remote, until, .. } => {
                Some((local.clone(), remote.clone(), *until))
            }
            _ => None,
        }
    }

    /// Ends the connection, or the request for one, and flushes both queues.
    pub fn disconnect(&mut self, port: &Port, key: Key) {
        let Some(vi) = self.vis.get_mut(key) else { return };
        self.changes += 1;
        vi.request = Request::None;
        let phase = vi.phase;
        match phase {
            Phase::Connected => {
                if let Some((peer, offer)) = vi.other_side() {
                    let of = number(Kind::Break, offer.id);
                    let _failed = port.post(peer, of, Reason::Disconnect as u32, &[]);
                }
                self.leave(port, key);
            }
            Phase::Pending => self.cancel(port, key),
            Phase::Idle | Phase::Error => {}
        }
        self.vis.get_mut(key).into_iter().for_each(|vi| vi.phase = Phase::Idle);
        self.flush(port, key);
    }

    /// Handles a message about a connection that is being made.
    pub(super) fn control(&mut self, port: &Port, source: PeerId, version: u32, data: &[u8]) {
        let message = Control::decode(data).filter(|_| version == VERSION);
        let Some(message) = message else {
            log::warn!(
                "{}: a message about a connection of version {version}, this is {VERSION}: both \
                 sides need the same weft",
                port.endpoint().peer(source).describe()
            );
            return;
        };
        self.changes += 1;
        match message {
            Control::Request { peers: None, offer, from, to } => {
                self.called(port, source, offer, from, &to);
            }
            Control::Request { peers: Some(turn), offer, from, to } => {
                self.met(port, source, (turn, offer), &from, &to);
            }
            Control::Accept { to, offer } => self.accepted(port, source, to, offer),
            Control::Refuse { to, no_match } => {
                let code = if no_match { Code::NoMatch } else { Code::Reject };
                if let Some(vi) = self.waiting(source, to, false) {
                    vi.request = Request::Waits(Some(Err(code)));
                }
            }
            Control::Confirm { to } => {
                if let Some(vi) = self.waiting(source, to, true) {
                    vi.phase = Phase::Connected;
                    vi.request = Request::Waits(Some(Ok(())));
                }
            }
            Control::Cancel { id } => self.cancelled(port, source, id),
        }
    }

    /// Returns the virtual interface that waits for an answer of a peer: to its request or, if it
    /// `accepts`, to its acceptance.
    fn waiting(&mut self, source: PeerId, id: u32, accepts: bool) -> Option<&mut Vi> {
        let key = self.linked(id)?;
        let vi = self.vis.get_mut(key).filter(|vi| vi.phase == Phase::Pending)?;
        let of = vi.connection.as_ref()?;
        let is_it = of.peer == Some(source) && of.offer.is_some() == accepts;
        (is_it && matches!(vi.request, Request::Waits(None))).then_some(vi)
    }

    /// A request came for an address.
    fn called(
        &mut self,
        port: &Port,
        peer: PeerId,
        offer: Offer,
        from: NetAddress,
        to: &NetAddress,
    ) {
        let caller = Caller { peer, offer, from, gone: false };
        if !self.callers.give(caller, to) {
            tell(port, peer, &Control::Refuse { to: offer.id, no_match: true });
        }
    }

    /// A request is accepted.
    fn accepted(&mut self, port: &Port, source: PeerId, to: u32, offer: Offer) {
        // One that was given up has been cancelled.
        let Some(vi) = self.waiting(source, to, false) else { return };
        vi.phase = Phase::Connected;
        vi.request = Request::Waits(Some(Ok(())));
        vi.connection.iter_mut().for_each(|of| of.offer = Some(offer));
        tell(port, source, &Control::Confirm { to: offer.id });
    }

    /// A request came that is to meet one of this side.
    fn met(
        &mut self,
        port: &Port,
        source: PeerId,
        (turn, offer): (Turn, Offer),
        from: &NetAddress,
        to: &NetAddress,
    ) {
        let now = Instant::now();
        let fits = |state: &State, key: &Key| {
            let Some(vi) = state.vis.get(*key) else { return false };
            let Request::Peers { local, remote, until, answer: None, .. } = &vi.request else {
                return false;
            };
            let in_time = until.is_none_or(|until| now < until);
            // A request of this very interface may have found its way back here.
            let own = state.offer(*key).is_some_and(|own| own.id == offer.id);
            let is_self = own && state.is_self(port, source);
            local == to && remote == from && in_time && !is_self
        };
        let Some(key) = self.vis.keys().into_iter().find(|key| fits(self, key)) else { return };
        // An earlier request of this side may have come before that of the other one was made.
        if turn == Turn::First {
            self.tell_peer(port, key, source, Turn::Reply);
        }
        self.join(port, key, source, Some(offer));
        let Some(vi) = self.vis.get_mut(key) else { return };
        let agreed = agree(vi, &offer);
        if agreed.is_ok() {
            vi.phase = Phase::Connected;
        }
        if let Request::Peers { answer, .. } = &mut vi.request {
            *answer = Some(agreed);
        }
    }

    /// True if a peer is this endpoint itself.
    fn is_self(&self, port: &Port, peer: PeerId) -> bool {
        port.endpoint().peer(peer).identity() == Some(port.endpoint().address().endpoint)
    }

    /// The other side has given up.
    fn cancelled(&mut self, port: &Port, source: PeerId, id: u32) {
        self.callers.note_gone(|caller| caller.peer == source && caller.offer.id == id);
        let of = |vi: &Vi| vi.other_side().is_some_and(|(peer, o)| peer == source && o.id == id);
        for key in self.vis.keys() {
            let Some(vi) = self.vis.get_mut(key).filter(|vi| of(vi)) else { continue };
            if vi.phase == Phase::Connected {
                self.break_off(port, key, None, Some(Fault::ConnLost));
                continue;
            }
            // The other side may request again.
            if let Request::Waits(answer @ None) = &mut vi.request {
                *answer = Some(Err(Code::Timeout));
            }
        }
    }

    /// A peer has failed: its connections are lost, and its requests are gone.
    pub(super) fn peer_failed(&mut self, port: &Port, peer: PeerId) {
        self.changes += 1;
        self.callers.note_gone(|caller| caller.peer == peer);
        let of = |vi: &Vi| vi.connection.as_ref().is_some_and(|c| c.peer == Some(peer));
        for key in self.vis.keys() {
            let Some(vi) = self.vis.get_mut(key).filter(|vi| of(vi)) else { continue };
            if vi.phase == Phase::Connected {
                vi.send.fail_running(status::TRANSPORT);
                self.break_off(port, key, None, Some(Fault::ConnLost));
                continue;
            }
            // The other side may come again, in another process.
            if let Request::Waits(answer @ None) = &mut vi.request {
                *answer = Some(Err(Code::NotReachable));
            }
        }
    }
}

/// Compares the attributes of both sides.
fn agree(vi: &Vi, offer: &Offer) -> Answer {
    if vi.attributes.level != offer.level {
        return Err(Code::InvalidReliabilityLevel);
    }
    match vi.attributes.max == u64::from(offer.max) {
        true => Ok(()),
        false => Err(Code::InvalidMtu),
    }
}

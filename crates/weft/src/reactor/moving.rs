//! An endpoint that moves to another host with its process, and peers that do.
//!
//! The process is frozen, copied and goes on elsewhere; its sessions, windows and operations are
//! memory, and go on with it. Its sockets do not: they close before and open after, with packet
//! numbers that no copy of the memory contains. To peers the move is a loss of packets, which the
//! windows repair, at a new address, which a HELLO says. `docs/adr/0045-ranks-that-move.md` has the
//! reasons.

use super::Reactor;
use std::ops::Range;
use std::time::Duration;
use weft_core::PeerId;
use weft_link::{Address, LinkError, LinkEvent, PeerInfo};

/// Longest time for which a peer that said it moves may be silent.
const MOVE: Duration = Duration::from_secs(120);

/// Returns the value of [`Address::moves`] of an endpoint that holds for a move, or goes on after
/// it.
fn moves(number: u32, goes_on: bool) -> u32 {
    number.saturating_mul(2).saturating_sub(u32::from(!goes_on))
}

impl Reactor {
    /// Tells all peers that this endpoint holds, since its move of this number begins: their
    /// timeouts rest.
    pub fn hold(&mut self, number: u32) {
        self.receiver.tick();
        self.say_moves(moves(number, false));
        self.known.untold = self.routed();
        self.tell_again();
    }

    /// Closes all links. Nothing is sent or received before [`open_links`](Self::open_links).
    pub fn close_links(&mut self) {
        self.waiter.unregister_all();
        self.known.untold.clear();
        self.links.iter_mut().filter_map(|link| link.movable()).for_each(|link| link.close());
    }

    /// Opens all links on the host where this process runs now, after the move of this number, with
    /// these runs of packet numbers, and begins to tell all peers.
    ///
    /// # Errors
    /// A link cannot be opened. The endpoint stays closed; other runs may be tried.
    pub fn open_links(&mut self, number: u32, runs: Range<u64>) -> Result<(), LinkError> {
        for link in self.links.iter_mut().filter_map(|link| link.movable()) {
            link.open(runs.clone())?;
        }
        self.receiver.tick();
        self.say_moves(moves(number, true));
        for peer in self.routed() {
            self.reconnect(peer);
        }
        self.known.untold = self.routed();
        self.tell_again();
        Ok(())
    }

    /// Asks the peers that have not answered since the last change once more. Returns their number.
    pub fn tell_again(&mut self) -> usize {
        let mut untold = std::mem::take(&mut self.known.untold);
        untold.retain(|&peer| {
            let Some(question) = self.receiver.engine.peer(peer).question() else { return false };
            let Some(Some(route)) = self.paths.routes.get(peer.0 as usize) else { return false };
            let links: Vec<usize> = route.links().collect();
            links.into_iter().for_each(|link| _ = self.hello_over(link, &question));
            true
        });
        self.known.untold = untold;
        self.known.untold.len()
    }

    /// Notes that a peer has answered.
    pub(super) fn note_told(&mut self, peer: PeerId) {
        self.known.untold.retain(|&other| other != peer);
    }

    /// Handles the address that a peer says in a HELLO. True if it says a move that is news.
    pub(super) fn on_moves(&mut self, peer: PeerId, address: &Address) -> bool {
        let Some(known) = self.known.address_of(peer) else { return false };
        if known.endpoint != address.endpoint || known.moves >= address.moves {
            return false;
        }
        if address.moves % 2 == 1 {
            self.known.addresses[peer.0 as usize].iter_mut().for_each(|a| a.moves = address.moves);
            let until = self.receiver.time.now + MOVE;
            self.receiver.engine.peer_mut(peer).rest(until);
            return true;
        }
        self.known.addresses[peer.0 as usize] = Some(address.clone());
        self.reconnect(peer);
        log::debug!("after move {}: {}", address.moves / 2, self.describe(peer));
        true
    }

    /// Lists the peers that a link reaches.
    fn routed(&self) -> Vec<PeerId> {
        let routes = self.paths.routes.iter().enumerate();
        routes.filter(|(_, route)| route.is_some()).map(|(at, _)| PeerId(at as u32)).collect()
    }

    /// Makes this endpoint's own address anew, which every HELLO says from now on.
    fn say_moves(&mut self, moves: u32) {
        let Address { endpoint, rank, .. } = self.known.address;
        let mut address = Address { endpoint, rank, moves, ..Address::default() };
        self.links.iter().for_each(|link| link.advertise(&mut address));
        self.known.encoded = address.encode();
        self.known.address = address;
    }

    /// Connects the links of a peer's route to its address anew: this endpoint or the peer is on
    /// another host now.
    fn reconnect(&mut self, peer: PeerId) {
        let Some((endpoint, session, _)) = self.receiver.engine.peer(peer).info() else { return };
        let Some(address) = self.known.address_of(peer).cloned() else { return };
        let Some(Some(route)) = self.paths.routes.get(peer.0 as usize) else { return };
        let links: Vec<usize> = route.links().collect();
        let info = PeerInfo { peer, session, endpoint, address };
        for link in links {
            match self.links[link].connect(&info) {
                Ok(caps) => self.link_event(link, LinkEvent::Mtu(peer, caps.mtu)),
                Err(why) => {
                    let name = self.links[link].caps().name;
                    weft_link::warn!("{name} does not reach {peer} after a move: {why}");
                }
            }
        }
        self.receiver.engine.peer_mut(peer).handle_move(self.receiver.time.now);
    }
}

//! A connected socket for the peer that most is exchanged with.
//!
//! The kernel keeps the route with a connected socket and finds the socket of what comes by one
//! look: 0.4 us less to send and 0.3 to receive (`docs/adr/0022-connected-socket.md`). It has the
//! port of the other sockets, so the peer notices nothing. Only one peer has such a socket: each
//! further one would have to be looked at, a system call each.
//!
//! Packets stay in order: what came to the socket that a peer's packets came to before is taken
//! before anything else.
//!
//! The socket is never closed before another is open, since whoever waits knows it by its number.
//! Parked, it is connected to itself: nothing reaches it, and what it still holds is taken.

use super::sys::{self, SockAddr, Socket};
use super::UdpLink;
use std::net::SocketAddr;
use weft_core::PeerId;

/// Sends to one peer in a row after which it gets the socket.
const ROW: u32 = 64;
/// The peer loses it when of all sends more than every third goes to others: each such send counts
/// twice, each one to the peer takes one back, up to this.
const OTHERS_MAX: u32 = 64;

/// The connected socket, and who may get it.
#[derive(Default)]
pub(super) struct Connected {
    socket: Option<Socket>,
    /// Who has it, and the address it is connected to.
    to: Option<(PeerId, SockAddr)>,
    /// The peer of the last send, and of how many before it without another.
    last: Option<PeerId>,
    row: u32,
    others: u32,
    /// The system refused one.
    refused: bool,
    /// The socket that a peer's packets came to until now: all it holds is to be taken first.
    drain: Option<Drain>,
}

/// What is to be taken first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drain {
    /// What came to this one of the other sockets before the peer had the connected one.
    Other(usize),
    /// What came to the connected one before it was parked.
    Connected,
}

impl Connected {
    /// The socket, in use or parked.
    pub fn socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }

    /// Whether a peer has it.
    #[inline]
    pub fn is_in_use(&self) -> bool {
        self.to.is_some()
    }

    /// The socket, if it leads to this address of the peer.
    #[inline]
    pub fn to(&self, peer: PeerId, to: &SockAddr) -> Option<&Socket> {
        let (whose, where_to) = self.to.as_ref()?;
        self.socket.as_ref().filter(|_| *whose == peer && where_to.same(to))
    }

    /// What is to be taken before anything else.
    #[inline]
    pub fn drain(&self) -> Option<Drain> {
        self.drain
    }

    /// Nothing is left of it.
    pub fn drained(&mut self) {
        self.drain = None;
    }

    /// Takes it away from its peer.
    #[cold]
    pub fn park(&mut self) {
        if self.to.is_some() {
            self.drain = Some(Drain::Connected);
        }
        (self.to, self.row, self.others) = (None, 0, 0);
        if let Some(socket) = self.socket.take() {
            // A socket that cannot be parked would go on taking the peer's packets.
            self.refused = socket.connect(&SockAddr::new(socket.local())).is_err();
            self.socket = Some(socket).filter(|_| !self.refused);
        }
    }

    /// Takes it away from this peer.
    pub fn forget(&mut self, peer: PeerId) {
        if self.to.is_some_and(|(whose, _)| whose == peer) {
            self.park();
        }
    }

    /// Something is sent to a peer. Whether it should get the socket.
    #[inline]
    fn note(&mut self, peer: PeerId) -> bool {
        match &self.to {
            Some((whose, _)) if *whose == peer => self.others = self.others.saturating_sub(1),
            Some(_) => {
                self.others += 2;
                if self.others > OTHERS_MAX {
                    self.park();
                }
            }
            None if self.last == Some(peer) => {
                self.row += 1;
                // Who has to take something first would forget it.
                return self.row >= ROW && !self.refused && self.drain.is_none();
            }
            None => (self.last, self.row) = (Some(peer), 0),
        }
        false
    }
}

impl UdpLink {
    /// Something is sent to a peer: it may get the connected socket.
    #[inline]
    pub(super) fn note_send(&mut self, peer: PeerId) {
        if self.connected.note(peer) {
            self.connected.row = 0;
            self.give_socket(peer);
        }
    }

    #[cold]
    fn give_socket(&mut self, peer: PeerId) {
        let Some(known) = self.peers.get(peer).filter(|k| k.proof.is_confirmed()) else {
            return;
        };
        let (at, to) = (known.socket, known.to);
        let main = &self.sockets[at];
        let Ok(route) = sys::route_to(known.addr) else { return };
        let from = SocketAddr::new(route.source, main.local().port());
        let c = &mut self.connected;
        let parked = c.socket.as_ref().filter(|s| s.local() == from);
        let done = match parked {
            Some(socket) => socket.connect(&to),
            None => Socket::beside(main, from, &to, self.gro, self.buffer).map(|socket| {
                c.socket = Some(socket);
            }),
        };
        match done {
            Ok(()) => (c.to, c.others, c.drain) = (Some((peer, to)), 0, Some(Drain::Other(at))),
            Err(_) => c.refused = true,
        }
    }
}

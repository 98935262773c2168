//! A connected socket for the peer with the most traffic.
//!
//! With a connected socket the kernel keeps the route, and finds the socket of a received datagram
//! by one lookup: 0.4 us less to send and 0.3 us less to receive
//! (`docs/adr/0022-connected-socket.md`). It has the port of the other sockets, so the peer notices
//! nothing. Only one peer has such a socket, because polling each further one would cost a system
//! call.
//!
//! Packets stay in order: when a peer changes its socket, the link first takes all packets from the
//! socket that received them before.
//!
//! The socket is never closed before another one is open, since a waiter knows it by its descriptor
//! number. When no peer has it, it is parked, that is, connected to itself: it receives nothing,
//! and the packets still in it are taken.

use super::sys::{self, SockAddr, Socket};
use super::UdpLink;
use std::net::SocketAddr;
use weft_core::PeerId;

/// Number of consecutive sends to one peer after which this peer gets the socket.
const RUN: u32 = 64;
/// The peer loses the socket when a score exceeds this. A send to another peer adds 2, a send to
/// the peer subtracts 1: more than every third send goes to others.
const OTHERS_MAX: u32 = 64;

/// The connected socket and the choice of its peer.
#[derive(Default)]
pub(super) struct Connected {
    socket: Option<Socket>,
    /// The peer that has it, and the address to which it is connected.
    to: Option<(PeerId, SockAddr)>,
    /// The peer of the last send, and the number of consecutive sends to it.
    last: Option<PeerId>,
    run: u32,
    others: u32,
    /// The system refused such a socket.
    refused: bool,
    /// The socket that received the peer's packets until now: its packets are taken first.
    drain: Option<Drain>,
}

/// A socket whose packets are taken first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drain {
    /// The unconnected socket of this index: packets that came before the peer had the connected
    /// one.
    Other(usize),
    /// The connected socket: packets that came before it was parked.
    Connected,
}

impl Connected {
    /// Returns the socket, in use or parked.
    pub fn socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }

    /// True if a peer has the socket.
    #[inline]
    pub fn is_in_use(&self) -> bool {
        self.to.is_some()
    }

    /// Returns the socket, if it is connected to this address of the peer.
    #[inline]
    pub fn to(&self, peer: PeerId, to: &SockAddr) -> Option<&Socket> {
        let (whose, where_to) = self.to.as_ref()?;
        self.socket.as_ref().filter(|_| *whose == peer && where_to.same(to))
    }

    /// Returns the socket whose packets are taken before all others.
    #[inline]
    pub fn drain(&self) -> Option<Drain> {
        self.drain
    }

    /// Notes that this socket is empty.
    pub fn drained(&mut self) {
        self.drain = None;
    }

    /// Takes the socket from its peer and parks it.
    #[cold]
    pub fn park(&mut self) {
        if self.to.is_some() {
            self.drain = Some(Drain::Connected);
        }
        (self.to, self.run, self.others) = (None, 0, 0);
        if let Some(socket) = self.socket.take() {
            // A socket that cannot be parked would continue to receive the peer's packets: close
            // it.
            self.refused = socket.connect(&SockAddr::new(socket.local())).is_err();
            self.socket = Some(socket).filter(|_| !self.refused);
        }
    }

    /// Takes the socket from this peer, if the peer has it.
    pub fn forget(&mut self, peer: PeerId) {
        if self.to.is_some_and(|(whose, _)| whose == peer) {
            self.park();
        }
    }

    /// Counts a send to a peer. True if the peer should get the socket.
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
                self.run += 1;
                // While another socket must be drained first, a change would forget it.
                return self.run >= RUN && !self.refused && self.drain.is_none();
            }
            None => (self.last, self.run) = (Some(peer), 0),
        }
        false
    }
}

impl UdpLink {
    /// Counts a send to a peer, which may get the connected socket.
    #[inline]
    pub(super) fn note_send(&mut self, peer: PeerId) {
        if self.connected.note(peer) {
            self.connected.run = 0;
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
            None => {
                Socket::beside(main, from, &to, self.config.gro, self.config.buffer).map(|socket| {
                    c.socket = Some(socket);
                })
            }
        };
        match done {
            Ok(()) => (c.to, c.others, c.drain) = (Some((peer, to)), 0, Some(Drain::Other(at))),
            Err(_) => c.refused = true,
        }
    }
}

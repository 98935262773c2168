//! Receiving: take trains apart, check, deliver.

use super::connected::Drain;
use super::send::SEGMENTS_MAX;
use super::sys::{SockAddr, Socket};
use super::{same_host_port, Peer, UdpLink};
use crate::kind::Kind;
use crate::secure::{Mode, Opened, Reject, Secure};
use crate::table::PeerTable;
use crate::train::Arrived;
use crate::Sink;
use std::io::{self, ErrorKind::WouldBlock};
use weft_core::PeerId;

/// Longest train the kernel hands over.
const BUFFER: usize = 65_536;
/// A socket that had nothing last time is asked again every so many polls.
const QUIET: u32 = 16;

/// What one receive call brought: one datagram, or several of equal size (the last may be shorter).
#[derive(Clone, Copy)]
pub struct Received {
    /// Bytes in all.
    pub len: usize,
    /// Size of each datagram.
    pub segment: usize,
    /// The sender.
    pub from: SockAddr,
}

/// Receive buffers and what was received but not delivered yet.
pub struct Receiver {
    buffer: Box<[u8]>,
    /// The part of the buffer that the budget left over.
    arrived: Arrived,
    from: SockAddr,
    /// The socket that had data last: asked at every poll. Behind the last the connected one.
    busy: usize,
    polls: u32,
}

impl Receiver {
    pub fn new() -> Receiver {
        Receiver {
            buffer: vec![0; BUFFER].into(),
            arrived: Arrived::nothing(),
            from: SockAddr::empty(),
            busy: 0,
            polls: 0,
        }
    }

    /// Whether something received was not delivered yet.
    pub fn has_rest(&self) -> bool {
        !self.arrived.rest.is_empty()
    }

    /// Asks every socket at the next poll.
    pub fn poll_all(&mut self) {
        self.polls = 0;
    }
}

impl UdpLink {
    pub(super) fn recv_frames(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let mut done = self.deliver_rest(budget, sink);
        let all = self.rx.polls.is_multiple_of(QUIET);
        self.rx.polls = self.rx.polls.wrapping_add(1);
        let sockets = self.sockets.len() + usize::from(self.connected.socket().is_some());
        let drain = self.connected.drain();
        let first = match drain {
            Some(Drain::Other(at)) => at,
            Some(Drain::Connected) => self.sockets.len(),
            None => self.rx.busy,
        };
        for i in 0..sockets {
            let at = (first + i) % sockets;
            let in_use = at == self.sockets.len() && self.connected.is_in_use();
            let now = all || in_use;
            if i > 0 && (!now || drain.is_some()) {
                continue;
            }
            // Hostile datagrams bring no packet but count too, so a flood cannot keep us here.
            let mut calls = 0;
            while done < budget && calls < budget {
                calls += 1;
                match self.recv_once(at, budget - done, sink) {
                    Ok(n) => {
                        self.rx.busy = at;
                        done += n;
                        // No train: whoever waits for this one should not wait for another look.
                        // And a train that may not fit is left for the next time, as a whole.
                        if n == 1 || done + SEGMENTS_MAX > budget {
                            break;
                        }
                    }
                    Err(e) if e.kind() == WouldBlock => {
                        if drain.is_some() {
                            self.connected.drained();
                        }
                        if let Some(peer) = self.asked.take() {
                            self.secure.rehearse(peer);
                        }
                        break;
                    }
                    // An error of an earlier send (ICMP), reported here: nothing was received.
                    Err(_) => {
                        self.count.recv_errors += 1;
                        break;
                    }
                }
            }
        }
        done
    }

    /// One receive call; returns how many packets it delivered.
    #[inline]
    fn recv_once(&mut self, at: usize, budget: usize, sink: &mut dyn Sink) -> io::Result<usize> {
        let socket = self.sockets.get(at).or(self.connected.socket());
        let Some(socket): Option<&Socket> = socket else { return Err(WouldBlock.into()) };
        let got = socket.recv(&mut self.rx.buffer)?;
        self.count.received_calls += 1;
        if got.len == 0 {
            self.secure.reject(Reject::Short);
        }
        self.rx.arrived = Arrived { rest: 0..got.len, segment: got.segment.max(1) };
        self.rx.from = got.from;
        Ok(self.deliver_rest(budget, sink))
    }

    /// Opens and delivers what lies in the buffer, as far as the budget goes.
    #[inline]
    fn deliver_rest(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let mut done = 0;
        while done < budget && self.rx.has_rest() {
            let UdpLink { rx, secure, peers, count, .. } = self;
            let (mut peer, mut kind) = (None, Kind::Other);
            let Receiver { buffer, arrived, from, .. } = rx;
            let step =
                arrived.step(buffer, budget - done, secure, sink, |secure, opened, header| {
                    (peer, kind) = (opened.peer, Kind::of(header));
                    known_source(secure, peers, opened, from)
                });
            count.received += step.packets as u64;
            if step.run.is_some() {
                count.received_placed += step.packets as u64;
                peer = step.run;
            }
            done += step.packets;
            if step.packets > 0 {
                self.note_source(peer, kind);
            }
        }
        done
    }

    #[inline]
    fn note_source(&mut self, peer: Option<PeerId>, kind: Kind) {
        let Some(peer) = peer else { return };
        let Some(known) = self.peer(peer) else { return };
        let usual = known.proof.is_settled() && kind == Kind::Other;
        if usual && (known.candidates.len() == 1 || known.to.same(&self.rx.from)) {
            return;
        }
        if let Some(from) = self.rx.from.get() {
            self.confirm(peer, from, kind);
        }
    }
}

/// Without authentication, only the source address speaks for a packet.
#[inline]
fn known_source(
    secure: &mut Secure,
    peers: &PeerTable<Peer>,
    opened: &Opened,
    from: &SockAddr,
) -> bool {
    if secure.mode() != Mode::None {
        return true;
    }
    let Some(peer) = opened.peer else { return true };
    let from = from.get();
    let known = peers.get(peer);
    let listed = |p: &Peer| {
        p.candidates.iter().any(|c| from.is_some_and(|from| same_host_port(c.addr, from)))
    };
    let ok = known.is_some_and(listed);
    if !ok {
        secure.reject(Reject::Spoofed);
    }
    ok
}

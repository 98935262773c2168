//! Receives: takes trains apart, checks and delivers packets.

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

/// Longest train that the kernel delivers.
const BUFFER: usize = 65_536;
/// A socket that had no data last time is polled only once in this number of polls.
const QUIET: u32 = 16;
/// Each of this number of wake-ups asks all sockets, so that none starves behind a busy one.
const ALL_WAKES: u32 = 16;

/// The receive buffer and the packets in it that are not delivered yet.
pub struct UdpReceiver {
    buffer: Box<[u8]>,
    /// The part of the buffer that is not delivered yet.
    arrived: Arrived,
    from: SockAddr,
    /// Index of the socket that had data last, polled at every poll. The highest index is the
    /// connected socket.
    busy: usize,
    polls: u32,
    wakes: u32,
    /// True if the kernel has just reported a datagram: the sockets behind the one that has it
    /// need not be asked.
    woken: bool,
}

impl UdpReceiver {
    pub fn new() -> UdpReceiver {
        UdpReceiver {
            buffer: vec![0; BUFFER].into(),
            arrived: Arrived::nothing(),
            from: SockAddr::empty(),
            busy: 0,
            polls: 0,
            wakes: 0,
            woken: false,
        }
    }

    /// True if a received packet is not delivered yet.
    pub fn has_rest(&self) -> bool {
        !self.arrived.rest.is_empty()
    }

    /// Makes the next poll ask the sockets until one has a datagram, and now and then all of them.
    pub fn wake(&mut self) {
        self.polls = 0;
        self.wakes = self.wakes.wrapping_add(1);
        self.woken = !self.wakes.is_multiple_of(ALL_WAKES);
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
            if done > 0 && self.rx.woken {
                break;
            }
            // Hostile datagrams deliver no packet but count too, so a flood of them ends the loop.
            let mut calls = 0;
            while done < budget && calls < budget {
                calls += 1;
                match self.recv_once(at, budget - done, sink) {
                    Ok(n) => {
                        self.rx.busy = at;
                        done += n;
                        // A single datagram is delivered at once, because a waiter should not wait
                        // for another poll. A train that may exceed the budget is left whole for
                        // the next call.
                        if n == 1 || done + SEGMENTS_MAX > budget {
                            break;
                        }
                    }
                    Err(e) if e.kind() == WouldBlock => {
                        if drain.is_some() {
                            self.connected.drained();
                        }
                        if let Some(peer) = self.asked.take() {
                            self.secure.prefetch_keys(peer);
                        }
                        break;
                    }
                    // The error of an earlier send (ICMP), reported here: nothing was received.
                    Err(_) => {
                        self.count.recv_errors += 1;
                        break;
                    }
                }
            }
        }
        self.rx.woken = false;
        done
    }

    /// Makes one receive call; returns the number of packets that it delivered.
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

    /// Opens and delivers packets from the buffer, up to the budget.
    #[inline]
    fn deliver_rest(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let mut done = 0;
        while done < budget && self.rx.has_rest() {
            let UdpLink { rx, secure, peers, count, .. } = self;
            let (mut peer, mut kind) = (None, Kind::Other);
            let UdpReceiver { buffer, arrived, from, .. } = rx;
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
        let usual = known.proof.is_decided() && kind == Kind::Other;
        if usual && (known.candidates.len() == 1 || known.to.same(&self.rx.from)) {
            return;
        }
        if let Some(from) = self.rx.from.get() {
            self.confirm(peer, from, kind);
        }
    }
}

/// Names the sender by the source address, the only evidence without authentication.
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

//! Receiving: take trains apart, check, deliver.

use super::sys::{Scatter, SockAddr, Socket};
use super::{same_host_port, Peer, UdpLink};
use crate::secure::{Mode, Opened, Reject, Secure};
use crate::{Bytes, Prediction, Sink};
use std::io;
use std::ops::Range;
use weft_core::wire::{field, session_of, Data, PacketType};
use weft_core::PeerId;

/// Most predicted datagrams in one call.
const PLACES: usize = 64;
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
    rest: Range<usize>,
    segment: usize,
    from: SockAddr,
    scatter: Scatter,
    /// The socket that had data last: asked at every poll.
    busy: usize,
    polls: u32,
}

impl Receiver {
    pub fn new() -> Receiver {
        Receiver {
            buffer: vec![0; BUFFER].into(),
            rest: 0..0,
            segment: 1,
            from: SockAddr::empty(),
            scatter: Scatter::new(PLACES),
            busy: 0,
            polls: 0,
        }
    }

    /// Whether something received was not delivered yet.
    pub fn has_rest(&self) -> bool {
        !self.rest.is_empty()
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
        let first = self.rx.busy;
        for i in 0..self.sockets.len() {
            let at = (first + i) % self.sockets.len();
            if i > 0 && !all {
                break;
            }
            // Hostile datagrams bring no packet but count too, so a flood cannot keep us here.
            let mut calls = 0;
            while done < budget && calls < budget {
                calls += 1;
                match self.recv_once(at, done, budget - done, sink) {
                    Ok(n) => {
                        self.rx.busy = at;
                        done += n;
                        if n == 1 {
                            // No train: whoever waits for this one should not wait for another
                            // look.
                            break;
                        }
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
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

    /// One receive call, `done` packets having been delivered before; returns how many it
    /// delivered.
    #[inline]
    fn recv_once(
        &mut self,
        at: usize,
        done: usize,
        budget: usize,
        sink: &mut dyn Sink,
    ) -> io::Result<usize> {
        if self.secure.mode() == Mode::Auth {
            if let Some(p) = sink.predict() {
                let wanted = p.len.div_ceil(p.payload_len.max(1)).min(PLACES);
                if done > 0 && budget < wanted {
                    // What is left of the budget would cut a train; the next call takes it whole.
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                let buffer = &mut self.rx.buffer;
                let got = self.rx.scatter.recv(&self.sockets[at], &p, budget.min(PLACES), buffer);
                if let Some(got) = got {
                    return Ok(self.deliver_predicted(&p, got?, budget, sink));
                }
            }
        }
        let socket: &Socket = &self.sockets[at];
        let got = socket.recv(&mut self.rx.buffer)?;
        self.count.received_calls += 1;
        if got.len == 0 {
            self.secure.reject(Reject::Short);
        }
        Ok(self.deliver_all(got, 0..got.len, budget, sink))
    }

    fn deliver_all(
        &mut self,
        got: Received,
        range: Range<usize>,
        budget: usize,
        sink: &mut dyn Sink,
    ) -> usize {
        (self.rx.rest, self.rx.segment, self.rx.from) = (range, got.segment.max(1), got.from);
        self.deliver_rest(budget, sink)
    }

    /// Opens and delivers what lies in the buffer, as far as the budget goes.
    #[inline]
    fn deliver_rest(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let mut done = 0;
        while done < budget && !self.rx.rest.is_empty() {
            let start = self.rx.rest.start;
            let end = (start + self.rx.segment).min(self.rx.rest.end);
            self.rx.rest.start = end;
            let frame = &mut self.rx.buffer[start..end];
            let Ok(opened) = self.secure.open(frame) else { continue };
            if !known_source(&mut self.secure, &self.peers, &opened, &self.rx.from) {
                continue;
            }
            let (header, payload) = frame[..opened.packet_len].split_at(opened.header_len);
            sink.frame(None, header, Bytes::from_slice(payload));
            self.count.received += 1;
            done += 1;
            self.confirm_once(opened.peer);
        }
        done
    }

    /// After a receive into predicted places: delivers from there if everything is where it
    /// belongs, else brings it all together in the buffer first.
    fn deliver_predicted(
        &mut self,
        p: &Prediction,
        got: Received,
        budget: usize,
        sink: &mut dyn Sink,
    ) -> usize {
        self.count.received_calls += 1;
        let Some(placed) = places_hit(&self.rx.scatter, p, &got) else {
            self.count.received_repaired += 1;
            self.rx.scatter.collect(got.len, &mut self.rx.buffer);
            return self.deliver_all(got, 0..got.len, budget, sink);
        };
        self.rx.from = got.from;
        let mut done = 0;
        let mut used = 0;
        for i in 0..placed {
            let scatter = &self.rx.scatter;
            used += scatter.size(i);
            let (header, end) = (scatter.header(i), scatter.trailer(i));
            let opened = self.secure.open_parts(header, scatter.payload_slice(i), end);
            let Ok(opened) = opened else { continue };
            sink.frame(None, header, scatter.payload(i));
            done += 1;
            self.confirm_once(opened.peer);
        }
        self.count.received += done as u64;
        self.count.received_placed += done as u64;
        // Places ran out before the train did: the budget, or the prediction's memory. What is
        // beyond waits.
        done + self.deliver_all(got, 0..got.len - used, budget.saturating_sub(placed), sink)
    }

    #[inline]
    fn confirm_once(&mut self, peer: Option<PeerId>) {
        let Some(peer) = peer else { return };
        if self.peer(peer).is_some_and(|known| !known.confirmed) {
            if let Some(from) = self.rx.from.get() {
                self.confirm(peer, from);
            }
        }
    }
}

/// How many datagrams lie exactly where they belong: sizes, session, message and offsets are those
/// predicted. `None` if any differs, and then none may be used in place: delivering one could
/// overwrite another.
fn places_hit(scatter: &Scatter, p: &Prediction, got: &Received) -> Option<usize> {
    let (mut left, mut i) = (got.len, 0);
    while left > 0 && i < scatter.predicted() {
        let size = scatter.size(i);
        // A datagram shorter than its place spills its trailer into the payload; a longer one
        // shifts all.
        if got.segment.min(left) != size {
            return None;
        }
        let header = scatter.header(i);
        let offset = p.offset.checked_add((i * p.payload_len) as u64)?;
        let hit = header[field::TYPE] == PacketType::Data as u8
            && session_of(header) == Some(p.session)
            && header[field::IMM] == p.imm.to_le_bytes()
            && header.get(Data::OFFSET.range()) == Some(&offset.to_le_bytes());
        if !hit {
            return None;
        }
        (left, i) = (left - size, i + 1);
    }
    Some(i)
}

/// Without authentication, only the source address speaks for a packet.
#[inline]
fn known_source(
    secure: &mut Secure,
    peers: &[Option<Box<Peer>>],
    opened: &Opened,
    from: &SockAddr,
) -> bool {
    if secure.mode() != Mode::None {
        return true;
    }
    let Some(peer) = opened.peer else { return true };
    let from = from.get();
    let known = peers.get(peer.0 as usize).and_then(Option::as_deref);
    let listed = |p: &Peer| {
        p.candidates.iter().any(|c| from.is_some_and(|from| same_host_port(c.addr, from)))
    };
    let ok = known.is_some_and(listed);
    if !ok {
        secure.reject(Reject::Spoofed);
    }
    ok
}

//! Receiving: take trains apart, check, deliver.

use super::send::SEGMENTS_MAX;
use super::sys::{SockAddr, Socket};
use super::{same_host_port, Peer, UdpLink};
use crate::kind::Kind;
use crate::run::{is_part, Run};
use crate::secure::{Mode, Opened, Reject, Secure, TRAILER};
use crate::table::PeerTable;
use crate::{Bytes, Sink};
use std::io;
use std::ops::Range;
use weft_core::wire::Data;
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
    rest: Range<usize>,
    segment: usize,
    from: SockAddr,
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
            busy: 0,
            polls: 0,
        }
    }

    /// The next datagram in the buffer, empty at the end.
    #[inline]
    fn next(&self) -> Range<usize> {
        let start = self.rest.start;
        start..(start + self.segment).min(self.rest.end)
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
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
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
        let socket: &Socket = &self.sockets[at];
        let got = socket.recv(&mut self.rx.buffer)?;
        self.count.received_calls += 1;
        if got.len == 0 {
            self.secure.reject(Reject::Short);
        }
        (self.rx.rest, self.rx.segment, self.rx.from) = (0..got.len, got.segment.max(1), got.from);
        Ok(self.deliver_rest(budget, sink))
    }

    /// Opens and delivers what lies in the buffer, as far as the budget goes.
    #[inline]
    fn deliver_rest(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let mut done = 0;
        while done < budget && !self.rx.rest.is_empty() {
            if let Some(n) = self.deliver_run(budget - done, sink) {
                done += n;
                continue;
            }
            let range = self.rx.next();
            self.rx.rest.start = range.end;
            let frame = &mut self.rx.buffer[range];
            let Ok(opened) = self.secure.open(frame) else { continue };
            if !known_source(&mut self.secure, &self.peers, &opened, &self.rx.from) {
                continue;
            }
            let (header, payload) = frame[..opened.packet_len].split_at(opened.header_len);
            let kind = Kind::of(header);
            sink.frame(None, header, Bytes::from_slice(payload));
            self.count.received += 1;
            done += 1;
            self.note_source(opened.peer, kind);
        }
        done
    }

    /// Checks the DATA packets at the front of what was received and writes their payload to where
    /// it belongs in one pass, as long as the prediction holds; delivers them as one run. `None` if
    /// the first one is not as predicted.
    fn deliver_run(&mut self, budget: usize, sink: &mut dyn Sink) -> Option<usize> {
        let first = self.rx.next();
        if self.secure.mode() != Mode::Auth || !is_part(&self.rx.buffer[first.clone()]) {
            return None;
        }
        let prediction = sink.predict()?;
        let mut run = Run::start(&prediction, &self.rx.buffer[first.clone()])?;
        let mut next = first.clone();
        let mut peer = None;
        while !next.is_empty() && run.packets() < budget {
            let frame = &self.rx.buffer[next.clone()];
            let Some(len) = frame.len().checked_sub(Data::LEN + TRAILER) else { break };
            let Some(place) = run.place(prediction.memory, frame, len) else { break };
            self.rx.rest.start = next.end;
            let Ok(opened) = self.secure.open_into(frame, Data::LEN, place) else { break };
            peer = opened.peer;
            run.push(len);
            next = self.rx.next();
        }
        if self.rx.rest.start == first.start {
            return None;
        }
        self.count.received += run.packets() as u64;
        self.count.received_placed += run.packets() as u64;
        if !run.deliver(sink) {
            self.deliver_each(first, run.packets(), sink);
        }
        self.note_source(peer, Kind::Other);
        Some(run.packets())
    }

    /// Delivers checked DATA packets one by one.
    fn deliver_each(&self, first: Range<usize>, packets: usize, sink: &mut dyn Sink) {
        let frames = self.rx.buffer[first.start..self.rx.rest.start].chunks(self.rx.segment);
        for frame in frames.take(packets) {
            let (header, payload) = frame[..frame.len() - TRAILER].split_at(Data::LEN);
            sink.frame(None, header, Bytes::from_slice(payload));
        }
    }

    #[inline]
    fn note_source(&mut self, peer: Option<PeerId>, kind: Kind) {
        let Some(peer) = peer else { return };
        let Some(known) = self.peer(peer) else { return };
        let usual = known.confirmed && known.stray == 0 && kind == Kind::Other;
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

//! The endpoints that may send to us, the packet numbers accepted from each, and those used to
//! each.

use super::{hello_source, NumbersUsedUp, Reject, Window};
use crate::copied::Origin;
use std::collections::{BTreeMap, VecDeque};
use weft_core::wire::{session_index, session_of};
use weft_core::{EndpointId, PeerId};

/// The links of an endpoint that share one job key; each uses its own range of packet numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Lane {
    /// UDP sockets.
    Udp = 1,
    /// Packet sockets.
    Packet = 2,
    /// AF_XDP sockets.
    Xdp = 3,
    /// The simulator.
    Sim = 4,
    /// Packet sockets that carry trains.
    Gso = 5,
    /// TCP streams.
    Tcp = 6,
}

/// Bits of a packet number below the lane.
const LANE_SHIFT: u32 = 56;
/// Number of packet numbers that a peer takes at a time.
const RUN: u64 = 1 << 32;
/// Number of runs of a link under one key: each added peer takes one, and a further one after each
/// `RUN` packets.
pub const RUNS_MAX: u64 = (1 << LANE_SHIFT) / RUN;
/// Number of endpoints that are not peers (not yet, or no longer) whose highest packet number is
/// remembered.
const STRANGERS: usize = 4096;

struct Peer {
    session: u32,
    endpoint: EndpointId,
    next: u64,
    window: Window,
}

pub(super) struct Peers {
    /// A copy of the process has the same free packet numbers, so it must not use any.
    origin: Origin,
    lane: u64,
    next_run: u64,
    runs_max: u64,
    /// Peers by number.
    table: Vec<Option<Box<Peer>>>,
    /// Peer by session index.
    sessions: Vec<Option<PeerId>>,
    endpoints: BTreeMap<EndpointId, PeerId>,
    /// Highest packet number of endpoints that are not peers; `order` lists them, oldest first.
    strangers: BTreeMap<EndpointId, u64>,
    order: VecDeque<EndpointId>,
}

impl Peers {
    pub fn new(lane: Lane, runs: u64) -> Peers {
        Peers {
            origin: Origin::here(),
            lane: u64::from(lane as u8),
            next_run: 0,
            runs_max: runs.min(RUNS_MAX),
            table: Vec::new(),
            sessions: Vec::new(),
            endpoints: BTreeMap::new(),
            strangers: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Adds a peer; changes nothing if no packet numbers are left.
    pub fn add(
        &mut self,
        peer: PeerId,
        session: u32,
        endpoint: EndpointId,
    ) -> Result<(), NumbersUsedUp> {
        let next = self.take_run()?;
        self.remove(peer);
        let window =
            self.strangers.get(&endpoint).map_or(Window::default(), |&top| Window::after(top));
        let at = peer.0 as usize;
        if self.table.len() <= at {
            self.table.resize_with(at + 1, || None);
        }
        let index = session_index(session) as usize;
        if self.sessions.len() <= index {
            self.sessions.resize(index + 1, None);
        }
        self.table[at] = Some(Box::new(Peer { session, endpoint, next, window }));
        self.sessions[index] = Some(peer);
        self.endpoints.insert(endpoint, peer);
        Ok(())
    }

    /// Takes numbers from these runs alone from now on; of those in use none is used any more.
    /// False, and without effect, unless they are above all runs that were ever taken.
    pub fn renew_all(&mut self, runs: std::ops::Range<u64>) -> bool {
        let fits = runs.start >= self.next_run && runs.end <= RUNS_MAX && !runs.is_empty();
        if fits {
            (self.next_run, self.runs_max) = (runs.start, runs.end);
        }
        fits
    }

    /// Removes all peers, and leaves no run: no number is used before [`renew_all`].
    ///
    /// [`renew_all`]: Self::renew_all
    pub fn withdraw(&mut self) {
        self.runs_max = 0;
        let all = (0..self.table.len()).map(|at| PeerId(at as u32));
        all.for_each(|peer| self.remove(peer));
    }

    pub fn remove(&mut self, peer: PeerId) {
        let Some(old) = self.table.get_mut(peer.0 as usize).and_then(Option::take) else { return };
        let index = session_index(old.session) as usize;
        if self.sessions[index] == Some(peer) {
            self.sessions[index] = None;
        }
        if self.endpoints.get(&old.endpoint) == Some(&peer) {
            self.endpoints.remove(&old.endpoint);
        }
        if old.window.top() != 0 {
            self.remember(old.endpoint, old.window.top());
        }
    }

    /// Returns the peer's identity and the number for the next packet to it; `None` also in a copy
    /// of the process that opened the link.
    #[inline]
    pub fn next_number(&mut self, peer: PeerId) -> Option<(EndpointId, u64)> {
        if !self.origin.is_here() {
            return None;
        }
        let known = self.table.get_mut(peer.0 as usize)?.as_mut()?;
        let pn = known.next;
        known.next += 1;
        let endpoint = known.endpoint;
        if known.next % RUN == 0 {
            self.renew(peer);
        }
        Some((endpoint, pn))
    }

    /// Gives a peer whose run has ended another run. If none is left, no packet can be sent to it.
    #[cold]
    fn renew(&mut self, peer: PeerId) {
        match self.take_run() {
            Ok(next) => {
                let known = self.table.get_mut(peer.0 as usize).and_then(Option::as_mut);
                known.into_iter().for_each(|known| known.next = next);
            }
            Err(why) => {
                crate::error!("no more packets are sent to {peer}: {why}");
                self.remove(peer);
            }
        }
    }

    /// Returns the session number of a peer, and the packet number that it probably uses next.
    pub fn expected(&self, peer: PeerId) -> Option<(u32, u64)> {
        let first = self.lane << LANE_SHIFT;
        self.known(peer).map(|known| (known.session, known.window.top().max(first) + 1))
    }

    /// Returns the claimed sender of a packet, whose header is complete.
    #[inline]
    pub fn sender(&self, header: &[u8]) -> Result<(EndpointId, Option<PeerId>), Reject> {
        if let Some(source) = hello_source(header) {
            return Ok((source, self.endpoints.get(&source).copied()));
        }
        let session = session_of(header).ok_or(Reject::Malformed)?;
        let peer = self.sessions.get(session_index(session) as usize).copied().flatten();
        let known = peer.and_then(|p| self.known(p)).filter(|k| k.session == session);
        known.map(|k| (k.endpoint, peer)).ok_or(Reject::StaleSession)
    }

    /// True if a packet number of this sender may be accepted.
    #[inline]
    pub fn is_fresh(&self, source: EndpointId, peer: Option<PeerId>, pn: u64) -> bool {
        if pn >> LANE_SHIFT != self.lane {
            return false;
        }
        match peer.and_then(|p| self.known(p)) {
            Some(known) => known.window.is_fresh(pn),
            None => self.strangers.get(&source).is_none_or(|&top| pn > top),
        }
    }

    /// Marks the packet number of an authentic packet as used.
    #[inline]
    pub fn accept(&mut self, source: EndpointId, peer: Option<PeerId>, pn: u64) {
        let known = peer.and_then(|p| self.table.get_mut(p.0 as usize)?.as_mut());
        match known {
            Some(known) => known.window.accept(pn),
            None => self.remember(source, pn),
        }
    }

    #[inline]
    fn known(&self, peer: PeerId) -> Option<&Peer> {
        self.table.get(peer.0 as usize)?.as_deref()
    }

    fn remember(&mut self, endpoint: EndpointId, top: u64) {
        if self.strangers.insert(endpoint, top).is_some() {
            return;
        }
        self.order.push_back(endpoint);
        if self.order.len() > STRANGERS {
            let oldest = self.order.pop_front();
            oldest.map(|e| self.strangers.remove(&e));
        }
    }

    fn take_run(&mut self) -> Result<u64, NumbersUsedUp> {
        let run = self.next_run;
        if run >= self.runs_max {
            return Err(NumbersUsedUp);
        }
        self.next_run += 1;
        // Number 0 of a run is skipped: for the window, 0 was accepted already.
        Ok((self.lane << LANE_SHIFT) + run * RUN + 1)
    }
}

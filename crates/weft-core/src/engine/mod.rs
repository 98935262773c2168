//! The engine. Its public methods are of four kinds:
//!
//! - **Commands** begin what the program asks for, or choose for later: `new`, `add_peer`,
//!   `introduce`, `send`, `reserve`, `refine_timeout`, `stats_mut`, `end`, `close`, and those of
//!   the parts `peer_mut`, `matching_mut`, `ops_mut`, `regions_mut`, `memory`, `links`.
//! - **Handlers** take what came from outside: packets, time, results of what the driver did:
//!   `handle_packet`, `handle_run`, `handle_awaited`, `handle_replay`, `handle_timeout`; further
//!   ones are of the part that they concern.
//! - **Polls** give what the driver has to do, until there is none: `poll_event`, `poll_transmit`,
//!   `poll_replay`.
//! - **Getters** change nothing: `id`, `config`, `stats`, `next_timeout`, `quiet`, `check`, and
//!   those of the parts `peers`, `peer`, `matching`, `ops`, `regions`, `output`.
//!
//! A part borrows the engine for one call: `views` has them all. Beside that a [`Reservation`] is
//! committed or rolled back by itself.
//!
//! Order of a driver's step: pass received packets to [`Engine::handle_packet`] (placing each
//! payload as it says and replaying held packets while [`Engine::poll_replay`] names one), call
//! [`Engine::handle_timeout`] when [`Engine::next_timeout`] has passed, drain
//! [`Engine::poll_event`], then send the packets of [`Engine::poll_transmit`] until there is none.

mod active;
mod alive;
mod atomic;
mod awaited;
mod check;
mod choice;
mod cut;
mod eager;
mod handle;
mod matching;
mod op;
mod pacing;
mod poll;
mod put;
mod region;
mod rendezvous;
mod reserve;
mod room;
mod session;
mod stuck;
mod timer;
mod views;
mod waits;

#[cfg(test)]
mod tests;

use crate::budget::Budget;
use crate::caps::LinkCaps;
use crate::config::Config;
use crate::connection::Timers;
use crate::error::{OpError, PeerFailure};
pub use crate::event as types;
use crate::id::{EndpointId, OpId, PeerId};
use crate::matching::{Posted, Unexpected};
use crate::peer::{Item, LastWord, Peer, State};
use crate::slab::{Slab, STORED_BITS};
use crate::stats::Stats;
use crate::time::Instant;
pub use crate::transfer::select::ACTIVE_MAX;
use crate::wire::{reason, REQUESTS_MAX};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;
use op::{Kind, Op};
use pacing::Pulls;
pub use region::{Regions, Rights};
pub use reserve::Reservation;
use types::*;
pub use views::{
    LinksMut, MatchingMut, MatchingView, MemoryMut, OpsMut, OpsView, Output, PeerMut, PeerView,
    PeersView,
};
pub use waits::Wait;

/// A message that arrived before its receive.
struct Stored {
    peer: PeerId,
    tag: u64,
    data: Option<u64>,
    len: u64,
    state: StoredState,
    /// The receive that took it while fragments were still arriving.
    taker: Option<OpId>,
}

enum StoredState {
    /// Fragments are arriving.
    Arriving,
    /// All bytes are in the store.
    Here,
    /// Only announced: the sender's number and address.
    Announced { msg: u32, addr: u64 },
}

/// Peers by their identities.
struct Names {
    by_endpoint: BTreeMap<EndpointId, PeerId>,
    /// The endpoint that was introduced last, and its rank.
    introduced: (EndpointId, Option<u32>),
}

/// Receives without a message, and messages without a receive.
struct Matching {
    /// Receives of messages with tags, and of those without.
    posted: [Posted<OpId>; 2],
    unexpected: [Unexpected<u32>; 2],
    /// A message that is received without an operation.
    wanted: Option<awaited::Wanted>,
    /// Its operation, until the driver asks for it.
    posted_awaited: Option<OpId>,
    stored: Slab<Stored, STORED_BITS>,
    /// Memory for unexpected messages beyond what every peer may have.
    budget: Budget,
    /// Time at which tables may give memory back again.
    shrink_at: Instant,
}

impl Matching {
    fn new(cfg: &Config) -> Matching {
        Matching {
            posted: Default::default(),
            unexpected: Default::default(),
            wanted: None,
            posted_awaited: None,
            stored: Slab::default(),
            budget: Budget::new(cfg.unexpected_max.min(room::MAX)),
            shrink_at: Instant(0),
        }
    }
}

/// Peers with packets to send, and those whose links accept none.
struct Turns {
    ready: VecDeque<PeerId>,
    /// True if some peer is in `ready` for more than an acknowledgement that was put off.
    urgent: bool,
    quantum: u32,
    blocked: Vec<PeerId>,
    /// Number of peers whose link accepts nothing for them until it says so.
    held: usize,
}

/// The protocol state machine of one endpoint.
pub struct Engine {
    cfg: Config,
    me: EndpointId,
    peers: Vec<Peer>,
    names: Names,
    ops: Slab<Op>,
    matching: Matching,
    regions: Regions,
    turns: Turns,
    events: VecDeque<Event>,
    timers: Timers,
    replaying: Option<PeerId>,
    pulls: Pulls,
    /// The reason why no operation may start any more.
    ended: Option<PeerFailure>,
    /// True if all peers have been told that this endpoint ends.
    closing: bool,
    stats: Stats,
}

/// Index of the matching of messages with tags.
const TAGGED: usize = 0;
/// Index of the matching of messages without.
const UNTAGGED: usize = 1;

/// The peer in errors of operations that have none.
const NO_PEER: PeerId = PeerId(u32::MAX);

/// Packets to one peer before others get their turn: one GSO train.
const QUANTUM: u32 = 64;

impl Engine {
    /// Makes an engine for the endpoint of this identity.
    pub fn new(mut cfg: Config, me: EndpointId) -> Engine {
        // If one of these is zero, no message could be fetched.
        for least_one in [
            &mut cfg.pull_block,
            &mut cfg.pull_depth,
            &mut cfg.direct_block,
            &mut cfg.rendezvous_max,
        ] {
            *least_one = (*least_one).max(1);
        }
        Engine {
            matching: Matching::new(&cfg),
            pulls: Pulls::new(&cfg),
            closing: false,
            cfg,
            me,
            peers: Vec::new(),
            names: Names { by_endpoint: BTreeMap::new(), introduced: (me, None) },
            ops: Slab::default(),
            regions: Regions::default(),
            turns: Turns {
                ready: VecDeque::new(),
                urgent: false,
                quantum: QUANTUM,
                blocked: Vec::new(),
                held: 0,
            },
            events: VecDeque::new(),
            timers: Timers::default(),
            replaying: None,
            ended: None,
            stats: Stats::default(),
        }
    }

    /// Returns this endpoint's identity.
    pub fn id(&self) -> EndpointId {
        self.me
    }

    /// Returns the effective configuration.
    pub fn config(&self) -> &Config {
        &self.cfg
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the counters, for events that the driver detects (authentication, malformed
    /// packets).
    pub fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    /// Returns true if the endpoint may close: nothing is queued for or unacknowledged by any
    /// living peer, and no message that its sender believes sent still waits to be fetched. One to
    /// the endpoint itself that no receive has matched waits for nobody: who closes receives no
    /// more.
    pub fn quiet(&self) -> bool {
        let me = self.names.by_endpoint.get(&self.me);
        let to_self = |op: &Op| me.is_some() && op.peer.as_ref() == me;
        let owed = |op: &Op| match &op.kind {
            Kind::Send(send) if send.asked == 0 && to_self(op) => false,
            Kind::Send(_) | Kind::Put(_) => op.reported || op.discard,
            _ => false,
        };
        self.peers.iter().all(|p| p.failure().is_some() || p.quiet())
            && !self.ops.keys().any(|key| self.ops.get(key).is_some_and(owed))
    }

    /// Adds a peer, or returns the number it already has. `None` when the table is full.
    pub fn add_peer(&mut self, endpoint: EndpointId, caps: LinkCaps) -> Option<PeerId> {
        if let Some(&peer) = self.names.by_endpoint.get(&endpoint) {
            return Some(peer);
        }
        if self.peers.len() >= (self.cfg.peers_max as usize).min(1 << 20) {
            self.stats.peers_refused += 1;
            return None;
        }
        let id = PeerId(self.peers.len() as u32);
        let generation = ((self.me.0 & 0xfff) as u32).max(1);
        let session = crate::wire::session_number(id.0, generation);
        self.peers.push(Peer::new(&self.cfg, id, endpoint, session, caps));
        self.names.by_endpoint.insert(endpoint, id);
        if !self.cfg.exceptions.is_empty() {
            self.make_exceptions(id, endpoint);
        }
        Some(id)
    }

    /// Names the rank of an endpoint that may become a peer next, for the settings with values for
    /// some ranks.
    pub fn introduce(&mut self, endpoint: EndpointId, rank: Option<u32>) {
        self.names.introduced = (endpoint, rank);
    }

    /// Applies the settings with values for some ranks to a new peer.
    fn make_exceptions(&mut self, peer: PeerId, endpoint: EndpointId) {
        let rank = self.names.introduced.1.filter(|_| self.names.introduced.0 == endpoint);
        let special = self.cfg.for_peer(rank);
        self.peer_mut(peer).choose(special.reliability, special.mtu);
        if special.transfer != self.cfg.transfer {
            self.peer_mut(peer).choose_transfer(special.transfer);
        }
        if special.fetch_add != self.cfg.fetch_add {
            self.peer_mut(peer).choose_fetch_add(special.fetch_add);
        }
    }

    /// Starts a message. Messages to one peer are matched in the order they were started.
    ///
    /// # Errors
    /// `Busy` if too much is queued, the peer's failure, or `TooLong` for an active message.
    pub fn send(&mut self, now: Instant, a: SendArgs) -> Result<OpId, Refused> {
        if a.active && a.len > ACTIVE_MAX {
            return Err(Refused::TooLong);
        }
        let peer = self.usable(now, a.peer)?;
        let rendezvous = a.sync || (a.len > u64::from(peer.path.eager_max) && !a.active);
        let kind = Kind::Send(op::Send {
            tag: a.tag,
            len: a.len,
            flags: eager::flags(&a),
            data: a.data.unwrap_or(0),
            addr: a.addr,
            sent: 0,
            asked: 0,
            announced: false,
            receipt: a.delivered && !a.inject,
        });
        let mut op = Op::new(Some(a.peer), a.context, kind);
        op.status.len = a.len;
        let id = self.add_op(now, op)?;
        self.stats.messages_sent += 1;
        let item = if rendezvous { Item::Rts(id) } else { Item::Eager(id) };
        self.enqueue(now, a.peer, item);
        if a.inject {
            self.report(id, true);
        }
        Ok(id)
    }

    /// Adds an operation; it counts as waiting for its peer.
    fn add_op(&mut self, now: Instant, op: Op) -> Result<OpId, Refused> {
        let peer = op.peer;
        if let Some(why) = self.ended {
            return Err(Refused::Peer(peer.unwrap_or(NO_PEER), why));
        }
        let id = OpId(self.ops.insert(op).ok_or(Refused::Busy)?);
        if let Some(peer) = peer {
            self.wait_for(now, peer);
        }
        Ok(id)
    }

    fn wait_for(&mut self, now: Instant, peer: PeerId) {
        let p = &mut self.peers[peer.0 as usize];
        p.watch.waiting += 1;
        if p.watch.waiting == 1 {
            p.watch.waiting_since = now;
            p.watch.warned = false;
            let at = now + Duration::from_millis(u64::from(self.cfg.keepalive_ms));
            self.timers.arm(&mut p.conn, at);
        }
        p.queue.trimmed = false;
    }

    /// Returns the peer, if it exists and has not failed.
    fn alive(&mut self, peer: PeerId) -> Result<&mut Peer, Refused> {
        let p = self.peers.get_mut(peer.0 as usize).ok_or(Refused::UnknownPeer)?;
        match p.state {
            State::Failed(why) => Err(Refused::Peer(peer, why)),
            _ => Ok(p),
        }
    }

    /// Returns the peer, if it exists, has not failed and has room in its queue.
    fn usable(&mut self, now: Instant, peer: PeerId) -> Result<&mut Peer, Refused> {
        if self.alive(peer)?.queue.msgs.len() >= room::QUEUE_MIN && self.is_overfull(now, peer) {
            self.alive(peer)?;
            return Err(Refused::Busy);
        }
        self.alive(peer)
    }

    fn enqueue(&mut self, now: Instant, peer: PeerId, item: Item) {
        self.peers[peer.0 as usize].queue.msgs.push_back(item);
        self.wake(now, peer);
    }

    /// Puts a peer into the ready queue; opens the session first if it is not open.
    fn wake(&mut self, now: Instant, peer: PeerId) {
        let p = &mut self.peers[peer.0 as usize];
        if p.state == State::Idle {
            session::open(&self.cfg, &mut self.timers, p, now);
        }
        self.make_ready(peer);
    }

    /// Puts a peer into the ready queue.
    #[inline]
    fn make_ready(&mut self, peer: PeerId) {
        self.turns.urgent = true;
        self.make_ready_late(peer);
    }

    /// Puts a peer into the ready queue for a packet that no program waits for.
    #[inline]
    fn make_ready_late(&mut self, peer: PeerId) {
        let p = &mut self.peers[peer.0 as usize];
        if !p.queue.ready {
            p.queue.ready = true;
            self.turns.ready.push_back(peer);
        }
    }

    /// Continues a peer's queue after the event it waited for.
    fn wake_queued(&mut self, peer: PeerId) {
        if self.peers[peer.0 as usize].queue.has_work() {
            self.make_ready(peer);
        }
    }

    /// Returns the most unanswered requests of a peer for parts of messages and regions, or of this
    /// side for parts of its messages.
    fn asks_max(&self, peer: PeerId) -> usize {
        let parts = u64::from(self.cfg.pull_depth).saturating_add(4);
        let p = &self.peers[peer.0 as usize];
        let here = self.cfg.rendezvous_max.saturating_add(p.incoming.share.granted);
        let messages = u64::from(here.max(p.outgoing.rendezvous));
        (parts.saturating_mul(messages) + u64::from(REQUESTS_MAX)) as usize
    }

    /// Ends the session of a peer that broke the protocol so that an operation would wait for ever,
    /// or that wants this side to keep more than it may.
    fn offend(&mut self, peer: PeerId) {
        self.stats.violations += 1;
        let bye = LastWord::Bye(reason::PROTOCOL);
        self.end_peer(peer, PeerFailure::Protocol, Some(bye));
    }

    /// Reports the completion of an operation, once.
    fn report(&mut self, id: OpId, ok_now: bool) {
        let Some(op) = self.ops.get_mut(id.0) else { return };
        if op.reported {
            return;
        }
        op.reported = true;
        let completion = Completion {
            op: id,
            context: op.context,
            kind: op.op_kind(),
            error: op.error,
            status: op.status,
            released: !ok_now,
        };
        if !op.discard {
            self.events.push_back(Event::Complete(completion));
        }
    }

    /// Ends the protocol of an operation; completes it when the buffer is free too.
    fn finish(&mut self, id: OpId) {
        if let Some(op) = self.ops.get_mut(id.0) {
            op.finished = true;
            if op.unacked == 0 {
                self.retire(id);
            }
        }
    }

    /// Removes an operation: reports it if that is not done, else tells the driver to free the
    /// buffer.
    fn retire(&mut self, id: OpId) {
        let Some(op) = self.ops.get(id.0) else { return };
        let (peer, request, release) = (op.peer, op.request, op.reported || op.discard);
        if release {
            self.events.push_back(Event::Release(id));
        } else {
            self.report(id, false);
        }
        self.ops.discard(id.0);
        if let Some(peer) = peer {
            let p = &mut self.peers[peer.0 as usize];
            p.watch.waiting -= 1;
            if request {
                p.outgoing.requests -= 1;
                self.wake_queued(peer);
            }
        }
    }

    /// Ends an operation with an error.
    fn fail_op(&mut self, id: OpId, error: OpError) {
        let Some(op) = self.ops.remove(id.0) else { return };
        if let Some(peer) = op.peer {
            self.peers[peer.0 as usize].watch.waiting -= 1;
        }
        if op.reported || op.discard {
            self.events.push_back(Event::Release(id));
            return;
        }
        self.events.push_back(Event::Complete(Completion {
            op: id,
            context: op.context,
            kind: op.op_kind(),
            error: Some(error),
            status: op.status,
            released: true,
        }));
    }
}

#[cfg(test)]
impl Engine {
    fn kept_of(&self, peer: PeerId) -> &Peer {
        &self.peers[peer.0 as usize]
    }

    /// Sets the sequence numbers as if so many packets had passed in both directions.
    fn start_at(&mut self, peer: PeerId, seq: crate::Seq) {
        use crate::reliability::{RecvWindow, SendWindow};
        let window = self.cfg.window;
        if let Some(w) = &mut self.peers[peer.0 as usize].conn.windows {
            let mode = w.send.mode();
            w.send = SendWindow::new(mode, window, seq).parts_by(crate::peer::Desc::part);
            w.recv = RecvWindow::new(mode, seq, window);
        }
    }
}

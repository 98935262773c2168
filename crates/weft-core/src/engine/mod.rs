//! The engine. Its public methods are of four kinds:
//!
//! - **Commands** begin what the program asks for, or choose for later: `new`, `add_peer`,
//!   `introduce`, `open`, `set_path`, `set_mtu`, `set_bulk`, `choose`, `choose_transfer`,
//!   `choose_fetch_add`, `hold`, `reserve`, `commit`, `roll_back`, `send`, `recv`, `recv_claimed`,
//!   `claim`, `claim_untagged`, `put`, `get`, `atomic`, `release`, `release_kept`, `request_ack`,
//!   `has_unacked`, `await_message`, `await_active`, `end_await`, `set_context`, `cancel`,
//!   `take_back`, `discard`, `watch`, `unwatch`, `direct_share`, `register`, `register_as`,
//!   `unregister`, `ask_size`, `refine_timeout`, `stats_mut`, `end`, `close`.
//! - **Handlers** take what came from outside: packets, time, results of what the driver did:
//!   `handle_packet`, `handle_run`, `handle_awaited`, `handle_replay`, `handle_timeout`,
//!   `handle_accepted`, `handle_refused`, `handle_unblocked`, `handle_direct_read`,
//!   `handle_direct_write`, `handle_direct_declined`, `handle_atomic_done`,
//!   `handle_atomic_refused`, `handle_put_unmapped`, `handle_active_queued`,
//!   `handle_active_kept`, `handle_path_change`, `handle_pulse`, `handle_peer_failure`.
//! - **Polls** give what the driver has to do, until there is none: `poll_event`, `poll_transmit`,
//!   `poll_replay`, `poll_posted`.
//! - **Getters** change nothing: `id`, `config`, `stats`, `next_timeout`, `find_peer`,
//!   `peer_count`, `peer_info`, `peer_ready`, `peer_failure`, `end_error`, `is_stopped`, `chosen`,
//!   `transfer_of`, `fetch_add_of`, `reliability_of`, `inject_max`, `single_max`, `is_single`,
//!   `sends_trains`, `queued`, `has_output`, `has_urgent`, `has_blocked`, `has_held`, `has_room`,
//!   `room_used`, `quiet`, `op_count`, `is_fetching`, `probe`, `probe_untagged`,
//!   `has_unexpected`, `awaits`, `has_waits`, `waits`, `wait_of`, `probing`, `awaiting`,
//!   `has_region`, `permits`, `question`, `bye_pause`, `check`.
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
use crate::wire::{reason, Eager, REQUESTS_MAX};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;
use op::{Kind, Op};
use pacing::Pulls;
use region::Regions;
pub use region::Rights;
pub use reserve::Reservation;
use types::*;
pub use waits::Wait;

/// A message that arrived before its receive.
struct Stored {
    peer: PeerId,
    tag: u64,
    data: Option<u32>,
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

/// The protocol state machine of one endpoint.
pub struct Engine {
    cfg: Config,
    me: EndpointId,
    peers: Vec<Peer>,
    by_endpoint: BTreeMap<EndpointId, PeerId>,
    /// The endpoint that was introduced last, and its rank.
    introduced: (EndpointId, Option<u32>),
    ops: Slab<Op>,
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
    regions: Regions,
    ready: VecDeque<PeerId>,
    /// True if some peer is in `ready` for more than an acknowledgement that was put off.
    urgent: bool,
    quantum: u32,
    events: VecDeque<Event>,
    timers: Timers,
    replaying: Option<PeerId>,
    blocked: Vec<PeerId>,
    /// Number of peers whose link accepts nothing for them until it says so.
    held: usize,
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
            budget: Budget::new(cfg.unexpected_max.min(room::MAX)),
            pulls: Pulls::new(&cfg),
            closing: false,
            cfg,
            me,
            peers: Vec::new(),
            by_endpoint: BTreeMap::new(),
            introduced: (me, None),
            ops: Slab::default(),
            posted: Default::default(),
            unexpected: Default::default(),
            wanted: None,
            posted_awaited: None,
            stored: Slab::default(),
            shrink_at: Instant(0),
            regions: Regions::default(),
            ready: VecDeque::new(),
            urgent: false,
            quantum: QUANTUM,
            events: VecDeque::new(),
            timers: Timers::default(),
            replaying: None,
            blocked: Vec::new(),
            held: 0,
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

    /// Returns the number of known peers.
    pub fn peer_count(&self) -> usize {
        self.peers.len()
    }

    /// Returns the peer with an identity.
    pub fn find_peer(&self, endpoint: EndpointId) -> Option<PeerId> {
        self.by_endpoint.get(&endpoint).copied()
    }

    /// Returns identity, session number (in the peer's packets) and path of a peer.
    pub fn peer_info(&self, peer: PeerId) -> Option<(EndpointId, u32, LinkCaps)> {
        self.peers
            .get(peer.0 as usize)
            .map(|p| (p.conn.endpoint, p.conn.session.number_in, p.path.caps))
    }

    /// Returns true if the peer has answered and has not failed.
    pub fn peer_ready(&self, peer: PeerId) -> bool {
        self.peers.get(peer.0 as usize).is_some_and(|p| p.state == State::Ready)
    }

    /// Returns the reason why the peer failed, if it did.
    pub fn peer_failure(&self, peer: PeerId) -> Option<PeerFailure> {
        self.peers.get(peer.0 as usize)?.failure()
    }

    /// Returns the number of operations in progress.
    pub fn op_count(&self) -> usize {
        self.ops.len()
    }

    /// Returns true if there is room for one more operation, so that no receive is refused as busy.
    pub fn has_room(&self) -> bool {
        !self.ops.is_full()
    }

    /// Returns true if the endpoint may close: nothing is queued for or unacknowledged by any
    /// living peer, and no message that its sender believes sent still waits to be fetched. One to
    /// the endpoint itself that no receive has matched waits for nobody: who closes receives no
    /// more.
    pub fn quiet(&self) -> bool {
        let me = self.by_endpoint.get(&self.me);
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
        if let Some(&peer) = self.by_endpoint.get(&endpoint) {
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
        self.by_endpoint.insert(endpoint, id);
        if !self.cfg.exceptions.is_empty() {
            self.make_exceptions(id, endpoint);
        }
        Some(id)
    }

    /// Names the rank of an endpoint that may become a peer next, for the settings with values for
    /// some ranks.
    pub fn introduce(&mut self, endpoint: EndpointId, rank: Option<u32>) {
        self.introduced = (endpoint, rank);
    }

    /// Applies the settings with values for some ranks to a new peer.
    fn make_exceptions(&mut self, peer: PeerId, endpoint: EndpointId) {
        let rank = self.introduced.1.filter(|_| self.introduced.0 == endpoint);
        let special = self.cfg.for_peer(rank);
        self.choose(peer, special.reliability, special.mtu);
        if special.transfer != self.cfg.transfer {
            self.choose_transfer(peer, special.transfer);
        }
        if special.fetch_add != self.cfg.fetch_add {
            self.choose_fetch_add(peer, special.fetch_add);
        }
    }

    /// Adopts the capabilities of the path to a peer, once the link knows them.
    pub fn set_path(&mut self, peer: PeerId, caps: LinkCaps) {
        if let Some(p) = self.peers.get_mut(peer.0 as usize) {
            p.set_caps(&self.cfg, caps);
        }
    }

    /// Limits packets on the path to `mtu` bytes from now on.
    pub fn set_mtu(&mut self, peer: PeerId, mtu: u32) {
        if let Some(p) = self.peers.get_mut(peer.0 as usize) {
            p.path.carried.mtu = mtu;
            p.path.caps.mtu = p.path.chosen_mtu(mtu);
        }
    }

    /// Sets the capabilities of the bulk link: longest packet, trains, stripes, and the length from
    /// which messages take it.
    pub fn set_bulk(&mut self, peer: PeerId, caps: LinkCaps) {
        if let Some(p) = self.peers.get_mut(peer.0 as usize) {
            p.path.set_bulk(caps);
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
            imm: a.data.unwrap_or(0),
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

    /// Notes that the caller waits for messages of `peer` without an operation, by probes: until
    /// `unwatch` its silence is noticed all the same. Opens the session. False if the peer does not
    /// exist or has failed; then no `unwatch` must follow.
    pub fn watch(&mut self, now: Instant, peer: PeerId) -> bool {
        let alive = self.alive(peer).is_ok();
        if alive {
            self.wait_for(now, peer);
            self.open(now, peer);
        }
        alive
    }

    /// Ends one `watch` that was true.
    pub fn unwatch(&mut self, peer: PeerId) {
        if let Some(p) = self.peers.get_mut(peer.0 as usize) {
            p.watch.waiting = p.watch.waiting.saturating_sub(1);
        }
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

    /// Returns the number of messages queued for a peer that have not been sent.
    #[inline]
    pub fn queued(&self, peer: PeerId) -> usize {
        self.peers.get(peer.0 as usize).map_or(0, |p| p.queue.msgs.len())
    }

    /// Returns the longest message to a peer that is one packet on any link, in bytes.
    #[inline]
    pub fn single_max(&self, peer: PeerId) -> usize {
        let mtu = self.peers.get(peer.0 as usize).map_or(0, |p| p.path.mtu() as usize);
        mtu.saturating_sub(Eager::LEN)
    }

    /// Returns true if an eager message of `len` bytes to a peer is one packet.
    #[inline]
    pub fn is_single(&self, peer: PeerId, len: usize) -> bool {
        let mtu = self.peers.get(peer.0 as usize).map_or(0, |p| p.mtu_for(len as u64) as usize);
        len <= mtu.saturating_sub(Eager::LEN)
    }

    /// Returns true if `poll_event` or `poll_transmit` may return something.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.ready.is_empty() || !self.events.is_empty() || !self.blocked.is_empty()
    }

    /// Returns true if `poll_event` or `poll_transmit` may return something that a program waits
    /// for, here or at a peer.
    #[inline]
    pub fn has_urgent(&self) -> bool {
        self.urgent || !self.events.is_empty() || !self.blocked.is_empty()
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
        self.urgent = true;
        self.make_ready_late(peer);
    }

    /// Puts a peer into the ready queue for a packet that no program waits for.
    #[inline]
    fn make_ready_late(&mut self, peer: PeerId) {
        let p = &mut self.peers[peer.0 as usize];
        if !p.queue.ready {
            p.queue.ready = true;
            self.ready.push_back(peer);
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

    /// Cancels a receive that has not matched. False if it is too late: its completion will come.
    pub fn cancel(&mut self, id: OpId) -> bool {
        let cancelled = self.posted.iter_mut().any(|p| p.cancel(id));
        if cancelled {
            self.fail_op(id, OpError::Cancelled);
        }
        cancelled
    }

    /// Takes back the memory of an operation, which ends before the operation: as `discard`, and
    /// its address is given to no peer from now on. `None` if no operation needs the memory any
    /// more.
    pub fn take_back(&mut self, id: OpId) -> Option<TakenBack> {
        let op = self.ops.get_mut(id.0)?;
        let (peer, mut known) = (op.peer, false);
        let is_read = matches!(op.kind, Kind::Send(_) | Kind::Put(_));
        match &mut op.kind {
            Kind::Send(send) => {
                known = send.announced && send.addr != 0;
                send.addr = 0;
            }
            Kind::Recv(recv) => {
                recv.addr = 0;
                known = op.pull().is_some_and(|pull| pull.back_parts() > 0);
            }
            Kind::Put(_) | Kind::Get(_) | Kind::Atomic => {}
        }
        let known_to = peer.filter(|_| known);
        if let Some(peer) = known_to {
            self.peers[peer.0 as usize].path.caps.direct = false;
        }
        self.discard(id);
        Some(TakenBack { is_read, known_to })
    }

    /// Discards an operation whose result is not wanted: a posted receive is cancelled, any other
    /// continues to its end without a completion; `Event::Release` (or a cancelled completion)
    /// follows.
    pub fn discard(&mut self, id: OpId) {
        if self.cancel(id) {
            return;
        }
        if let Some(op) = self.ops.get_mut(id.0) {
            op.discard = true;
        }
    }
}

#[cfg(test)]
impl Engine {
    fn peer(&self, peer: PeerId) -> &Peer {
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

//! Opening and ending a session with a peer: HELLO, BYE, failure.

use super::types::{Event, Payload, Placement, Transmit};
use super::views::{OpsView, PeerMut, PeerView, PeersView};
use super::{Engine, Stored, StoredState};
use crate::caps::LinkCaps;
use crate::config::Config;
use crate::connection::Timers;
use crate::error::{OpError, PeerFailure};
use crate::id::{OpId, PeerId};
use crate::peer::{credit_window, LastWord, Peer, State};
use crate::reliability::{CreditOut, Reliability};
use crate::time::Instant;
use crate::wire::{self, flags, reason, Bye, Common, Hello, Packet};
use alloc::vec::Vec;
use core::time::Duration;

const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The part of the connect timeout that lies between two HELLOs at most: some still go when an
/// outage of half of that time is over.
const TRIES: u32 = 8;

/// Starts opening: the next packet to the peer is a HELLO.
pub(super) fn open(cfg: &Config, timers: &mut Timers, p: &mut Peer, now: Instant) {
    let wait = FIRST_WAIT.min(Duration::from_millis(u64::from(cfg.connect_timeout_ms)));
    p.state = State::Opening { since: now, next: now + wait, wait };
    p.greeting.hello_due = true;
    timers.arm(&mut p.conn, now + wait);
}

/// Sends HELLO again after no answer, less and less often, and looks again when the connect timeout
/// is over.
pub(super) fn again(cfg: &Config, p: &mut Peer, now: Instant) {
    if let State::Opening { since, wait, .. } = p.state {
        let limit = Duration::from_millis(u64::from(cfg.connect_timeout_ms));
        let longest = (limit / TRIES).clamp(FIRST_WAIT, LONGEST_WAIT);
        let wait = (wait * 2).min(longest);
        let (next, end) = (now + wait, since + limit);
        // A link that sees the peer's process goes on after that time.
        let next = if end > now { next.min(end) } else { next };
        p.state = State::Opening { since, next, wait };
        p.greeting.hello_due = true;
    }
}

/// Returns the HELLO that is due, if one is.
pub(super) fn poll(cfg: &Config, me: u64, p: &mut Peer) -> Option<Transmit> {
    let reply = if p.greeting.hello_reply_due {
        p.greeting.hello_reply_due = false;
        true
    } else if p.greeting.hello_due {
        p.greeting.hello_due = false;
        false
    } else {
        return None;
    };
    Some(hello(cfg, me, p, reply))
}

/// Returns the last packet to a failed peer.
pub(super) fn last_word(cfg: &Config, me: u64, p: &mut Peer, word: LastWord) -> Transmit {
    match word {
        LastWord::Versions => hello(cfg, me, p, true),
        LastWord::Bye(reason) => bye(p, reason),
    }
}

fn bye(p: &mut Peer, reason: u32) -> Transmit {
    let common = p.conn.common(0, crate::seq::Seq(0), 0);
    let header = wire::emit(&common, &Packet::Bye(Bye { reason }));
    Transmit::one(p.conn.id, header, Payload::None)
}

fn hello(cfg: &Config, me: u64, p: &Peer, reply: bool) -> Transmit {
    let common = Common {
        flags: if reply { flags::REPLY } else { 0 },
        session: if reply { p.conn.session.number_out } else { 0 },
        imm: if p.path.reliability == Reliability::None { wire::TRUSTS } else { 0 },
        ..Common::default()
    };
    let hello = Hello {
        src_eid: me,
        dst_eid: p.conn.endpoint.0,
        session_offer: p.conn.session.number_in,
        mtu: p.path.caps.mtu,
        version_min: wire::VERSION_MIN,
        version_max: wire::VERSION_MAX,
        credit: CreditOut::first(credit_window(cfg)),
    };
    let header = wire::emit(&common, &Packet::Hello(hello));
    Transmit::one(p.conn.id, header, Payload::Address)
}

impl Engine {
    /// Handles a HELLO. `caps` are those of the link it came over.
    pub(super) fn on_hello(
        &mut self,
        now: Instant,
        caps: LinkCaps,
        common: &Common,
        hello: &Hello,
    ) -> Placement {
        if hello.dst_eid != self.me.0 {
            self.stats.stale_incarnation += 1;
            return Placement::None;
        }
        if hello.session_offer == 0 {
            self.stats.violations += 1;
            return Placement::None;
        }
        let endpoint = crate::id::EndpointId(hello.src_eid);
        let known = self.peers().find(endpoint);
        let Some(peer) = known.or_else(|| self.add_peer(endpoint, caps)) else {
            return Placement::None;
        };
        let Some(moves) = self.switch_to_memory(now, peer, caps) else { return Placement::None };
        let placement = Placement::Hello { peer, new: known.is_none() || moves };
        let reply = common.flags & flags::REPLY != 0;
        if hello.version_min > wire::VERSION || hello.version_max < wire::VERSION {
            let meant = self.on_other_version(peer, hello, reply);
            return meant.map_or(Placement::None, |()| placement);
        }
        let p = &mut self.peers[peer.0 as usize];
        if p.failure().is_some() {
            return Placement::None;
        }
        if p.state == State::Ready && p.conn.session.number_out != hello.session_offer {
            self.stats.violations += 1;
            return Placement::None;
        }
        p.conn.life.heard_at = now;
        p.greeting.hello_reply_due |= !reply;
        if p.state != State::Ready {
            if let (State::Opening { since, wait, .. }, Some(w)) = (p.state, &mut p.conn.windows) {
                // HELLO was sent once, so this is its answer: a sample of the path before anything
                // fills it.
                if reply && wait <= FIRST_WAIT {
                    w.congestion.first_sample(now, now.since(since));
                }
            }
            p.state = State::Ready;
            p.conn.session.number_out = hello.session_offer;
            p.path.limit_mtu(hello.mtu);
            if p.path.reliability == Reliability::None && common.imm & wire::TRUSTS != 0 {
                p.trust();
            }
            p.watch.warned = false;
            p.watch.waiting_since = now;
            p.conn.credit.inward.on_grant(hello.credit);
            if p.watch.waiting > 0 {
                let at = now + Duration::from_millis(u64::from(self.cfg.keepalive_ms));
                self.timers.arm(&mut p.conn, at);
            }
            self.events.push_back(Event::PeerUp(peer));
        }
        self.wake(now, peer);
        placement
    }

    /// Decides whether both sides use memory or network: true if the peer, which sends HELLO over a
    /// link of `caps`, is now reached over memory, as it reaches this side. `None`: it must hear
    /// from this side over memory first, or refuse the connection.
    fn switch_to_memory(&mut self, now: Instant, peer: PeerId, caps: LinkCaps) -> Option<bool> {
        let p = &mut self.peers[peer.0 as usize];
        if p.path.caps.network == caps.network
            || !matches!(p.state, State::Idle | State::Opening { .. })
        {
            return Some(false);
        }
        if caps.network {
            self.wake(now, peer);
            return None;
        }
        p.set_caps(&self.cfg, caps);
        Some(true)
    }

    /// Handles a HELLO without a common version. A request is answered all the same, so that its
    /// sender can name the cause. `None`: it has no effect.
    fn on_other_version(&mut self, peer: PeerId, hello: &Hello, reply: bool) -> Option<()> {
        let failure = PeerFailure::Version { theirs: hello.version_max };
        let p = &mut self.peers[peer.0 as usize];
        match p.state {
            State::Idle | State::Opening { .. } => {
                p.conn.session.number_out = hello.session_offer;
                self.end_peer(peer, failure, (!reply).then_some(LastWord::Versions));
            }
            State::Failed(PeerFailure::Version { .. }) if !reply => {
                // A copy: the answer may have been lost.
                let due = p.greeting.last_word.is_some_and(|(_, due)| due);
                p.greeting.last_word = Some((LastWord::Versions, due));
                self.make_ready(peer);
            }
            _ => {
                self.stats.violations += 1;
                return None;
            }
        }
        Some(())
    }

    /// Handles a BYE: the peer ended the session.
    pub(super) fn on_bye(&mut self, peer: PeerId, bye: &Bye) -> Placement {
        let failure = match bye.reason {
            reason::PROTOCOL => PeerFailure::Protocol,
            reason::GONE => PeerFailure::Gone,
            reason::LOST => PeerFailure::Lost,
            reason::STUCK => PeerFailure::Unheard,
            reason::FLOODED => self.flooded(peer),
            _ => PeerFailure::Closed,
        };
        self.fail_peer(peer, failure);
        Placement::None
    }

    /// Closes the endpoint: returns BYE packets for all open sessions. Call when `quiet`, or after
    /// a last wait.
    pub fn close(&mut self) -> Vec<Transmit> {
        if cfg!(debug_assertions) {
            self.check();
        }
        self.closing = true;
        let mut out = Vec::new();
        for p in &mut self.peers {
            if p.state == State::Ready {
                out.push(bye(p, reason::CLOSED));
            }
        }
        out
    }

    /// Ends everything: all peers fail with `failure`, and no operation continues or starts any
    /// more.
    pub fn end(&mut self, failure: PeerFailure) {
        self.ended = Some(failure);
        for peer in 0..self.peers.len() {
            self.fail_peer(PeerId(peer as u32), failure);
        }
        self.matching_mut().end_await();
        // Receives that any peer could have matched.
        for op in self.ops.keys().map(OpId).collect::<Vec<_>>() {
            self.matching.posted.iter_mut().any(|posted| posted.cancel(op));
            self.fail_op(op, OpError::Peer { peer: super::NO_PEER, failure });
        }
    }

    /// Ends everything that has to do with a peer.
    pub(super) fn fail_peer(&mut self, peer: PeerId, failure: PeerFailure) {
        self.end_peer(peer, failure, None);
    }

    /// Ends everything that has to do with a peer; sends the peer `word` first, and reports its
    /// failure only then, because the driver cuts the connection.
    pub(super) fn end_peer(&mut self, peer: PeerId, failure: PeerFailure, word: Option<LastWord>) {
        let p = &mut self.peers[peer.0 as usize];
        if let Some(before) = p.failure() {
            if let (Some((_, true)), None) = (p.greeting.last_word, word) {
                p.greeting.last_word = None;
                self.events.push_back(Event::PeerFailed(peer, before));
            }
            return;
        }
        p.state = State::Failed(failure);
        self.forget_pulls(peer);
        self.forget_grants(peer);
        self.peer_mut(peer).hold(false);
        let p = &mut self.peers[peer.0 as usize];
        p.release_queues();
        p.greeting.hello_due = false;
        p.greeting.hello_reply_due = false;
        p.conn.windows = None;
        p.incoming.partial = None;
        p.greeting.last_word = word.map(|word| (word, true));
        self.stats.peers_failed += 1;
        self.matching_mut().end_await();
        self.end_ops(peer, failure);
        match word {
            Some(_) => self.make_ready(peer),
            None => self.events.push_back(Event::PeerFailed(peer, failure)),
        }
    }

    /// Ends the operations with a failed peer and forgets what it had begun to send.
    fn end_ops(&mut self, peer: PeerId, failure: PeerFailure) {
        let mut dead = Vec::new();
        for posted in &mut self.matching.posted {
            posted.fail_peer(peer, &mut |op: OpId| dead.push(op));
        }
        let others =
            self.ops.keys().filter(|&k| self.ops.get(k).is_some_and(|o| o.peer == Some(peer)));
        dead.extend(others.map(OpId).collect::<Vec<_>>());
        for op in dead {
            self.fail_op(op, OpError::Peer { peer, failure });
        }
        // Messages that arrived whole can still be received, up to the first that did not: that one
        // never will, and later ones must not come in its place.
        let here = |s: &Stored| matches!(s.state, StoredState::Here);
        let mut gone = Vec::new();
        for queue in &mut self.matching.unexpected {
            let mut whole = true;
            queue.retain_of(peer, &mut |id| {
                whole &= self.matching.stored.get(id).is_some_and(here);
                gone.extend((!whole).then_some(id));
                whole
            });
        }
        let left = self.matching.stored.keys().filter(|&id| {
            self.matching.stored.get(id).is_some_and(|s| s.peer == peer && !here(s))
                && !gone.contains(&id)
        });
        gone.extend(left.collect::<Vec<_>>());
        for id in gone {
            self.matching.stored.remove(id);
            self.events.push_back(Event::FreeStored(id));
        }
    }
}

impl PeersView<'_> {
    /// Returns the time after which a BYE may be considered lost: the longest retransmission
    /// timeout of the peers that are reached over paths that lose packets and have sent no BYE
    /// themselves. `None` if there is no such peer.
    pub fn bye_pause(self) -> Option<Duration> {
        let open = self.engine.peers.iter().filter(|p| p.state == State::Ready);
        open.filter_map(|p| Some(p.conn.windows.as_ref()?.rtt.rto())).max()
    }
}

impl PeerView<'_> {
    /// Returns a question to an open peer, to be sent over any path to it: the answer proves the
    /// path.
    pub fn question(self) -> Option<Transmit> {
        let p = self.kept().filter(|p| p.state == State::Ready)?;
        Some(hello(&self.engine.cfg, self.engine.me.0, p, false))
    }
}

impl PeerMut<'_> {
    /// Opens the session with a peer ahead of the first message.
    pub fn open(self, now: Instant) {
        let peer = self.peer;
        if self.engine.peers.get(peer.0 as usize).is_some_and(|p| p.state == State::Idle) {
            self.engine.wake(now, peer);
        }
    }

    /// Notes that packets to this peer now take another path: unacknowledged ones are sent again at
    /// once.
    pub fn handle_path_change(self, now: Instant) {
        let peer = self.peer;
        let Some(p) = self.engine.peers.get_mut(peer.0 as usize) else { return };
        if let State::Opening { .. } = p.state {
            p.greeting.hello_due = true;
            self.engine.make_ready(peer);
            return;
        }
        let Some(w) = &mut p.conn.windows else { return };
        w.resend(now);
        self.engine.wake(now, peer);
    }

    /// Notes that the driver or a link found that the peer failed.
    pub fn handle_failure(self, failure: PeerFailure) {
        let peer = self.peer;
        let failure = match failure {
            // A peer that closes after this side's BYE does not answer: its process just ends.
            PeerFailure::Gone | PeerFailure::AgentGone if self.engine.closing => {
                PeerFailure::Closed
            }
            _ => failure,
        };
        if (peer.0 as usize) < self.engine.peers.len() {
            self.engine.fail_peer(peer, failure);
        }
    }
}

impl OpsView<'_> {
    /// Returns the error of an operation that is started after [`Engine::end`].
    pub fn end_error(self) -> Option<OpError> {
        self.engine.ended.map(|failure| OpError::Peer { peer: super::NO_PEER, failure })
    }
}

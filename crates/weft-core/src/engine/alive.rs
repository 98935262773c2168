//! Liveness: detection of failed peers that operations wait for.
//!
//! Over a network a peer is known only by its packets: it is asked for an answer, and has failed
//! after a silence of the peer timeout. The driver may learn of its end elsewhere, and is asked for
//! that at each question ([`Event::PeerSilent`]). A link inside the host knows more: it reports the
//! end of the peer's process, and can be asked whether it runs. There a peer may compute for any
//! time without a packet. It has failed if it was not seen to run for the peer
//! timeout: a signal has stopped it, or the link cannot see it.
//!
//! The agent of a peer answers in its place. The agent's life says nothing about the peer's, so its
//! answers include the state of the peer's process, and count as the peer's own only while that
//! runs.

use super::types::Event;
use super::views::{PeerMut, PeerView};
use super::Engine;
use crate::caps::Pulse;
use crate::error::PeerFailure;
use crate::id::PeerId;
use crate::peer::{Desc, Peer, State};
use crate::time::Instant;
use crate::wire::{flags, Nop, Packet};
use core::time::Duration;

impl Peer {
    /// Notes an answer of its agent, which sees that its process does not run, or does not see it.
    #[cold]
    pub(super) fn note_still(&mut self, now: Instant, pulse: Pulse) {
        let since =
            self.watch.still_since.filter(|&at| at >= self.conn.life.heard_at).unwrap_or(now);
        (self.watch.still_since, self.watch.still) = (Some(since), pulse);
    }

    /// True if the peer has said that it moves, and the time for that is not over.
    pub(super) fn rests(&self, now: Instant) -> bool {
        now < self.watch.rests_until
    }

    /// Returns how it has failed, if its agent has answered since its own last packet.
    pub(super) fn stands_still(&self, after_ms: u32) -> Option<PeerFailure> {
        let still = self.watch.still_since.is_some_and(|at| at >= self.conn.life.heard_at);
        match self.watch.still {
            Pulse::Stopped if still => Some(PeerFailure::Stopped { after_ms }),
            Pulse::Ended if still => Some(PeerFailure::Gone),
            _ => None,
        }
    }
}

impl Engine {
    /// Handles a silence of `silent`, where `limit` is the most. True if the peer has failed by it;
    /// a link that sees the peer's process is asked instead. A peer that moves may be silent.
    pub(super) fn overdue(
        &mut self,
        (now, peer): (Instant, PeerId),
        silent: Duration,
        limit: Duration,
        failure: fn(u32) -> PeerFailure,
    ) -> bool {
        if self.peers[peer.0 as usize].rests(now) {
            return false;
        }
        let sees_end = self.peers[peer.0 as usize].path.caps.sees_end;
        if silent >= self.keepalive() && (sees_end || silent < limit) {
            self.events.push_back(Event::PeerSilent(peer));
        }
        if sees_end {
            return false;
        }
        if silent >= limit {
            let after_ms = silent.as_millis() as u32;
            let p = &self.peers[peer.0 as usize];
            self.fail_peer(peer, p.stands_still(after_ms).unwrap_or(failure(after_ms)));
        }
        silent >= limit
    }

    /// Probes a silent peer, reports it, or declares it failed.
    pub(super) fn check_alive(&mut self, now: Instant, peer: PeerId) {
        let p = &self.peers[peer.0 as usize];
        if p.state == State::Idle {
            // A receive waits for a peer that has not called: call it, so that the wait is bounded.
            self.wake(now, peer);
            return;
        }
        let quiet_since = p.conn.life.heard_at.max(p.watch.waiting_since);
        let silent = now.since(quiet_since);
        let limit = Duration::from_millis(u64::from(self.cfg.peer_timeout_ms));
        if self.overdue((now, peer), silent, limit, |after_ms| PeerFailure::Silent { after_ms }) {
            return;
        }
        if silent >= self.keepalive() {
            self.probe_silent(now, peer, quiet_since);
        }
        if !self.peers[peer.0 as usize].rests(now) {
            self.warn_slow(peer, silent);
        }
        self.shrink_tables(now);
    }

    /// Asks a silent peer for an answer.
    fn probe_silent(&mut self, now: Instant, peer: PeerId, quiet_since: Instant) {
        let p = &mut self.peers[peer.0 as usize];
        // Such a link delivers every accepted packet: one question is enough for a peer that runs,
        // and more would fill its ring while it computes for hours.
        let runs = p.path.caps.sees_end && p.watch.still_since.is_none();
        let certain = runs && p.path.caps.reliable && p.watch.probed_at > quiet_since;
        p.watch.probed_at = now;
        // A packet in flight or about to be sent serves as the question. One that waits for credit
        // or for room at the peer does not.
        let in_flight = p.conn.windows.as_ref().is_some_and(|w| !w.send.is_empty());
        if !in_flight && !certain && p.queue.ctrl.is_empty() {
            p.queue.ctrl.push_back(Desc::bare(Packet::Nop(Nop), 0).with_flags(flags::ACKNOW));
            self.wake(now, peer);
        }
    }

    /// Reports, once, the peer that is waited for.
    pub(super) fn warn_slow(&mut self, peer: PeerId, silent: Duration) {
        let p = &mut self.peers[peer.0 as usize];
        let warns = self.cfg.warn_after_ms > 0 && !p.watch.warned;
        if warns && silent >= Duration::from_millis(u64::from(self.cfg.warn_after_ms)) {
            p.watch.warned = true;
            self.events.push_back(Event::PeerSlow(peer, silent));
        }
    }

    fn keepalive(&self) -> Duration {
        Duration::from_millis(u64::from(self.cfg.keepalive_ms))
    }
}

impl PeerView<'_> {
    /// Returns true if a signal had stopped the process of a peer when its link or its agent last
    /// looked, and nothing was heard of it since.
    pub fn is_stopped(self) -> bool {
        let stopped = |p: &Peer| {
            p.watch.still == Pulse::Stopped
                && p.watch.still_since.is_some_and(|at| at >= p.conn.life.heard_at)
        };
        self.kept().is_some_and(stopped)
    }
}

impl PeerMut<'_> {
    /// Handles the word of a peer that it moves to another host: until `until` its silence means
    /// nothing.
    pub fn rest(self, until: Instant) {
        if let Some(p) = self.engine.peers.get_mut(self.peer.0 as usize) {
            p.watch.rests_until = until;
        }
    }

    /// Notes that the peer, or this endpoint, has moved: silence counts from now on, and what is
    /// unacknowledged is sent again at once.
    pub fn handle_move(self, now: Instant) {
        if let Some(p) = self.engine.peers.get_mut(self.peer.0 as usize) {
            p.watch.rests_until = Instant(0);
            p.conn.life.heard_at = now;
            p.watch.waiting_since = now;
        }
        self.handle_path_change(now);
    }

    /// Handles the answer to [`Event::PeerSilent`]: the state of the peer's process as the link
    /// sees it.
    pub fn handle_pulse(self, now: Instant, pulse: Pulse) {
        let peer = self.peer;
        let Some(p) = self.engine.peers.get_mut(peer.0 as usize) else { return };
        if pulse == Pulse::Runs || p.failure().is_some() {
            p.watch.still_since = None;
            return;
        }
        let opening = matches!(p.state, State::Opening { .. });
        // An earlier standstill, before its last packet or before this wait, does not count.
        let (quiet_since, limit) = match p.state {
            State::Opening { since, .. } => (since, self.engine.cfg.connect_timeout_ms),
            _ => (p.conn.life.heard_at.max(p.watch.waiting_since), self.engine.cfg.peer_timeout_ms),
        };
        let since = p.watch.still_since.filter(|&at| at >= quiet_since).unwrap_or(now);
        (p.watch.still_since, p.watch.still) = (Some(since), pulse);
        let still = now.since(since);
        if still < Duration::from_millis(u64::from(limit)) {
            return;
        }
        let after_ms = still.as_millis() as u32;
        let failure = match pulse {
            Pulse::Ended => PeerFailure::Gone,
            Pulse::Stopped => PeerFailure::Stopped { after_ms },
            _ if opening => PeerFailure::Unreachable { after_ms },
            _ => PeerFailure::Silent { after_ms },
        };
        self.engine.fail_peer(peer, failure);
    }
}

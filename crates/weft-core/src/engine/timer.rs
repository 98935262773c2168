//! All timers of the engine: one deadline a peer, the earliest of the causes below.

use super::types::Event;
use super::{session, Engine};
use crate::error::PeerFailure;
use crate::id::PeerId;
use crate::matching::{Posted, Unexpected};
use crate::peer::{Peer, State};
use crate::time::Instant;
use alloc::collections::BTreeSet;
use core::time::Duration;

/// The reason why a peer's timer may fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerCause {
    /// HELLO is sent again, or the peer is unreachable.
    Open,
    /// A delayed acknowledgement is due.
    Ack,
    /// The oldest unacknowledged packet is due for retransmission.
    Retransmit,
    /// The message at the head of the queue has waited long enough for credit.
    Credit,
    /// An operation waits for a silent peer: see `alive`.
    Liveness,
    /// Packets stay unacknowledged though the peer is heard: see `stuck`.
    Stuck,
    /// Its messages fill the room for unexpected messages: see `room`.
    Full,
    /// Nothing has passed between the two for a while: spare memory is given back.
    Idle,
}

impl TimerCause {
    /// All causes, in the order in which they are handled.
    pub const ALL: [TimerCause; 8] = [
        TimerCause::Open,
        TimerCause::Ack,
        TimerCause::Retransmit,
        TimerCause::Credit,
        TimerCause::Liveness,
        TimerCause::Stuck,
        TimerCause::Full,
        TimerCause::Idle,
    ];
}

/// Deadlines by time. A peer is in the set once, at `Peer::armed`, no later than its earliest
/// cause.
#[derive(Default)]
pub(super) struct Timers {
    set: BTreeSet<(Instant, PeerId)>,
}

impl Timers {
    /// Makes sure the peer's timer fires at `at` or before.
    #[inline]
    pub fn arm(&mut self, peer: &mut Peer, at: Instant) {
        if at < peer.armed {
            if peer.armed != Instant::FAR {
                self.set.remove(&(peer.armed, peer.id));
            }
            peer.armed = at;
            self.set.insert((at, peer.id));
        }
    }

    /// Returns the earliest deadline.
    pub fn first(&self) -> Option<Instant> {
        self.set.first().map(|&(at, _)| at)
    }

    /// Returns the peer of the earliest deadline.
    fn peer(&self) -> Option<PeerId> {
        self.set.first().map(|&(_, peer)| peer)
    }

    /// Returns true if the peer's timer is in the set, at the peer's time.
    pub fn has(&self, peer: &Peer) -> bool {
        self.set.contains(&(peer.armed, peer.id))
    }

    fn disarm(&mut self, peer: &mut Peer) {
        self.set.remove(&(peer.armed, peer.id));
        peer.armed = Instant::FAR;
    }

    fn pop(&mut self, now: Instant) -> Option<PeerId> {
        let &(at, peer) = self.set.first()?;
        if at > now {
            return None;
        }
        self.set.pop_first();
        Some(peer)
    }
}

/// `Peer::without_credit_since` of a peer whose credit was waited for in vain.
const LONG_AGO: Instant = Instant(0);

fn ms(n: u32) -> Duration {
    Duration::from_millis(u64::from(n))
}

impl Engine {
    /// Returns the time at which to call `handle_timeout`; may be early, never late.
    #[inline]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.first()
    }

    /// Moves the earliest deadline to its present time; call this before sleeping: a deadline for
    /// packets that were sent or acknowledged since would end the sleep in vain.
    pub fn refine_timeout(&mut self) {
        while let Some(peer) = self.timers.peer() {
            let due = self.deadline_of(peer);
            let p = &mut self.peers[peer.0 as usize];
            if due.is_some_and(|at| at <= p.armed) {
                return;
            }
            self.timers.disarm(p);
            if let Some(at) = due {
                self.timers.arm(p, at);
            }
        }
    }

    /// Handles everything that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(peer) = self.timers.pop(now) {
            self.peers[peer.0 as usize].armed = Instant::FAR;
            self.acknowledge_late(peer);
            for cause in TimerCause::ALL {
                self.fire(now, peer, cause);
            }
            let next = self.deadline_of(peer);
            if let Some(at) = next {
                // A cause that could not be served now (window full, link blocked) must not spin.
                let at = at.max(now + Duration::from_micros(50));
                self.timers.arm(&mut self.peers[peer.0 as usize], at);
            }
        }
    }

    /// Returns the earliest deadline of all causes.
    fn deadline_of(&self, peer: PeerId) -> Option<Instant> {
        TimerCause::ALL.into_iter().filter_map(|cause| self.deadline(peer, cause)).min()
    }

    /// Returns the cause of the earliest deadline, but for spare memory.
    pub(super) fn first_cause(&self, peer: PeerId) -> Option<(TimerCause, Instant)> {
        let causes = TimerCause::ALL.into_iter().filter(|cause| *cause != TimerCause::Idle);
        let due = causes.filter_map(|cause| Some((cause, self.deadline(peer, cause)?)));
        due.min_by_key(|&(_, at)| at)
    }

    fn deadline(&self, peer: PeerId, cause: TimerCause) -> Option<Instant> {
        let p = &self.peers[peer.0 as usize];
        match (cause, p.state) {
            (_, State::Failed(_)) => None,
            (TimerCause::Open, State::Opening { next, .. }) => Some(next),
            (TimerCause::Open, _) => None,
            (TimerCause::Ack, _) => p.windows.as_ref()?.recv.ack_deadline(),
            (TimerCause::Retransmit, _) => {
                let w = p.windows.as_ref()?;
                Some(w.send.oldest_sent()? + w.rtt.rto())
            }
            (TimerCause::Credit, State::Ready)
                if ![Instant::FAR, LONG_AGO].contains(&p.credit.without_credit_since) =>
            {
                let patience = u64::from(self.cfg.credit_patience_us);
                Some(p.credit.without_credit_since + Duration::from_micros(patience))
            }
            (TimerCause::Credit, _) => None,
            (TimerCause::Liveness, State::Idle | State::Ready) if p.life.waiting > 0 => {
                let last = p.life.heard_at.max(p.life.waiting_since).max(p.life.probed_at);
                Some(last + ms(self.cfg.keepalive_ms))
            }
            (TimerCause::Liveness, _) => None,
            (TimerCause::Stuck, _) => self.stuck_at(peer),
            (TimerCause::Full, _) => self.full_until(peer),
            (TimerCause::Idle, State::Ready) if p.life.waiting == 0 && !p.queue.trimmed => {
                Some(p.life.heard_at.max(p.life.waiting_since) + ms(self.cfg.keepalive_ms))
            }
            (TimerCause::Idle, _) => None,
        }
    }

    fn fire(&mut self, now: Instant, peer: PeerId, cause: TimerCause) {
        if self.deadline(peer, cause).is_none_or(|at| at > now) {
            return;
        }
        match cause {
            TimerCause::Open => self.reopen(now, peer),
            TimerCause::Ack => self.wake(now, peer),
            TimerCause::Credit => {
                // Until there is credit again, messages are announced without waiting once more.
                self.peers[peer.0 as usize].credit.without_credit_since = LONG_AGO;
                self.wake(now, peer);
            }
            TimerCause::Retransmit => self.retransmit(now, peer),
            TimerCause::Liveness => self.check_alive(now, peer),
            TimerCause::Stuck => self.check_stuck(now, peer),
            TimerCause::Full => self.check_full(now, peer),
            TimerCause::Idle => self.trim(now, peer),
        }
    }

    fn reopen(&mut self, now: Instant, peer: PeerId) {
        let State::Opening { since, .. } = self.peers[peer.0 as usize].state else { return };
        let (waited, limit) = (now.since(since), ms(self.cfg.connect_timeout_ms));
        if self.overdue(peer, waited, limit, |after_ms| PeerFailure::Unreachable { after_ms }) {
            return;
        }
        self.warn_slow(peer, waited);
        session::again(&self.cfg, &mut self.peers[peer.0 as usize], now);
        self.wake(now, peer);
    }

    fn retransmit(&mut self, now: Instant, peer: PeerId) {
        let p = &self.peers[peer.0 as usize];
        let Some(w) = &p.windows else { return };
        let silent = now.since(p.life.heard_at.max(w.send.stuck_since().unwrap_or(now)));
        let limit = ms(self.cfg.peer_timeout_ms);
        if self.overdue(peer, silent, limit, |after_ms| PeerFailure::Silent { after_ms }) {
            return;
        }
        let Some(w) = &mut self.peers[peer.0 as usize].windows else { return };
        let rto = w.rtt.rto();
        if w.send.on_timeout(now, rto) {
            self.stats.timeouts += 1;
            w.rtt.backoff();
            w.timeouts += 1;
            if w.timeouts > 1 {
                w.congestion.on_silence();
                w.send.set_congestion(w.congestion.window());
                self.events.push_back(Event::PeerStalled(peer, w.timeouts));
            }
            self.wake(now, peer);
        }
    }

    /// Gives back the memory that a burst of traffic with the peer took.
    fn trim(&mut self, now: Instant, peer: PeerId) {
        let p = &mut self.peers[peer.0 as usize];
        p.queue.trimmed = true;
        if p.quiet() {
            p.release_queues();
        }
        if let Some(w) = &mut p.windows {
            w.send.shrink();
        }
        self.posted.iter_mut().for_each(Posted::shrink);
        self.unexpected.iter_mut().for_each(Unexpected::shrink);
        self.shrink_tables(now);
    }
}

//! All timers of the engine: one deadline a peer, the earliest of the causes below.

use super::types::Event;
use super::{session, Engine};
use crate::error::PeerFailure;
use crate::id::PeerId;
use crate::matching::{Posted, Unexpected};
use crate::peer::State;
use crate::time::Instant;
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

/// `Queue::without_credit_since` of a peer whose credit was waited for in vain.
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
            if due.is_some_and(|at| at <= p.conn.armed) {
                return;
            }
            self.timers.disarm(&mut p.conn);
            if let Some(at) = due {
                self.timers.arm(&mut p.conn, at);
            }
        }
    }

    /// Handles everything that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(peer) = self.timers.pop(now) {
            self.peers[peer.0 as usize].conn.armed = Instant::FAR;
            self.acknowledge_late(peer);
            for cause in TimerCause::ALL {
                self.fire(now, peer, cause);
            }
            let next = self.deadline_of(peer);
            if let Some(at) = next {
                // A cause that could not be served now (window full, link blocked) must not spin.
                let at = at.max(now + Duration::from_micros(50));
                self.timers.arm(&mut self.peers[peer.0 as usize].conn, at);
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
            (TimerCause::Ack, _) => p.conn.windows.as_ref()?.recv.ack_deadline(),
            (TimerCause::Retransmit, _) => p.conn.windows.as_ref()?.resend_at(p.conn.life.heard_at),
            (TimerCause::Credit, State::Ready)
                if ![Instant::FAR, LONG_AGO].contains(&p.queue.without_credit_since) =>
            {
                let patience = u64::from(self.cfg.credit_patience_us);
                Some(p.queue.without_credit_since + Duration::from_micros(patience))
            }
            (TimerCause::Credit, _) => None,
            (TimerCause::Liveness, State::Idle | State::Ready) if p.watch.waiting > 0 => {
                let last = p.conn.life.heard_at.max(p.watch.waiting_since).max(p.watch.probed_at);
                Some(last + ms(self.cfg.keepalive_ms))
            }
            (TimerCause::Liveness, _) => None,
            (TimerCause::Stuck, _) => self.stuck_at(peer),
            (TimerCause::Full, _) => self.full_until(peer),
            (TimerCause::Idle, State::Ready) if p.watch.waiting == 0 && !p.queue.trimmed => {
                Some(p.conn.life.heard_at.max(p.watch.waiting_since) + ms(self.cfg.keepalive_ms))
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
                self.peers[peer.0 as usize].queue.without_credit_since = LONG_AGO;
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
        if self
            .overdue((now, peer), waited, limit, |after_ms| PeerFailure::Unreachable { after_ms })
        {
            return;
        }
        self.warn_slow(peer, waited);
        session::again(&self.cfg, &mut self.peers[peer.0 as usize], now);
        self.wake(now, peer);
    }

    fn retransmit(&mut self, now: Instant, peer: PeerId) {
        let p = &self.peers[peer.0 as usize];
        if p.conn.windows.is_none() {
            return;
        }
        let (silent, limit) = (p.conn.silence(now), ms(self.cfg.peer_timeout_ms));
        if self.overdue((now, peer), silent, limit, |after_ms| PeerFailure::Silent { after_ms }) {
            return;
        }
        let rests = self.peers[peer.0 as usize].rests(now);
        let Some(w) = &mut self.peers[peer.0 as usize].conn.windows else { return };
        if w.on_timeout(now) {
            self.stats.timeouts += 1;
            if w.timeouts > 1 && !rests {
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
        if let Some(w) = &mut p.conn.windows {
            w.send.shrink();
        }
        self.matching.posted.iter_mut().for_each(Posted::shrink);
        self.matching.unexpected.iter_mut().for_each(Unexpected::shrink);
        self.shrink_tables(now);
    }
}

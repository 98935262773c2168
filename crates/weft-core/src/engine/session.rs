//! Opening and ending a session with a peer: HELLO, BYE, failure.

use super::timer::Timers;
use super::{Engine, StoredState};
use crate::caps::LinkCaps;
use crate::config::Config;
use crate::engine::types::{Event, Payload, Placement, Transmit};
use crate::error::{OpError, PeerFailure};
use crate::id::{OpId, PeerId};
use crate::peer::{Peer, State};
use crate::reliability::UNIT;
use crate::time::Instant;
use crate::wire::{self, flags, Bye, Common, Hello, Packet};
use alloc::vec::Vec;
use core::time::Duration;

const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Starts opening: the next packet to the peer is a HELLO.
pub(super) fn open(cfg: &Config, timers: &mut Timers, p: &mut Peer, now: Instant) {
    let wait = FIRST_WAIT.min(Duration::from_millis(u64::from(cfg.connect_timeout_ms)));
    p.state = State::Opening { since: now, next: now + wait, wait };
    p.hello_due = true;
    timers.arm(p, now + wait);
}

/// No answer so far: HELLO again, less often.
pub(super) fn again(p: &mut Peer, now: Instant) {
    if let State::Opening { since, wait, .. } = p.state {
        let wait = (wait * 2).min(LONGEST_WAIT);
        p.state = State::Opening { since, next: now + wait, wait };
        p.hello_due = true;
    }
}

/// The HELLO that is due, if one is.
pub(super) fn poll(cfg: &Config, me: u64, p: &mut Peer) -> Option<Transmit> {
    let reply = if p.hello_reply_due {
        p.hello_reply_due = false;
        true
    } else if p.hello_due {
        p.hello_due = false;
        false
    } else {
        return None;
    };
    let common = Common {
        flags: if reply { flags::REPLY } else { 0 },
        session: if reply { p.session_out } else { 0 },
        ..Common::default()
    };
    let hello = Hello {
        src_eid: me,
        dst_eid: p.endpoint.0,
        session_offer: p.session_in,
        mtu: p.caps.mtu,
        version_min: wire::VERSION_MIN,
        version_max: wire::VERSION_MAX,
        credit: cfg.eager_credit / UNIT,
    };
    let header = wire::emit(&common, &Packet::Hello(hello));
    Some(Transmit { peer: p.id, header, payload: Payload::Address })
}

impl Engine {
    /// Opens the session with a peer ahead of the first message.
    pub fn open(&mut self, now: Instant, peer: PeerId) {
        if self.peers.get(peer.0 as usize).is_some_and(|p| p.state == State::Idle) {
            self.wake(now, peer);
        }
    }

    /// A HELLO. `caps` are those of the link it came over, for a peer not known before.
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
        let endpoint = crate::id::EndpointId(hello.src_eid);
        let known = self.find_peer(endpoint);
        let Some(peer) = known.or_else(|| self.add_peer(endpoint, caps)) else {
            return Placement::None;
        };
        if self.peers[peer.0 as usize].failure().is_some() {
            return Placement::None;
        }
        if hello.version_min > wire::VERSION || hello.version_max < wire::VERSION {
            self.fail_peer(peer, PeerFailure::Version { theirs: hello.version_max });
            return Placement::None;
        }
        let p = &mut self.peers[peer.0 as usize];
        p.last_heard = now;
        p.caps.mtu = p.caps.mtu.min(hello.mtu.max(512));
        p.session_out = hello.session_offer;
        p.hello_reply_due |= common.flags & flags::REPLY == 0;
        if p.state != State::Ready {
            p.state = State::Ready;
            p.warned = false;
            p.waiting_since = now;
            p.credit_in.on_grant(hello.credit);
            if p.waiting > 0 {
                let at = now + Duration::from_millis(u64::from(self.cfg.keepalive_ms));
                self.timers.arm(p, at);
            }
            self.events.push_back(Event::PeerUp(peer));
        }
        self.wake(now, peer);
        Placement::Hello { peer, new: known.is_none() }
    }

    /// The peer closed its endpoint.
    pub(super) fn on_bye(&mut self, peer: PeerId) -> Placement {
        self.fail_peer(peer, PeerFailure::Closed);
        Placement::None
    }

    /// BYE packets for all open sessions: the endpoint closes. Call when `quiet`, or when done waiting.
    pub fn close(&mut self) -> Vec<Transmit> {
        let mut out = Vec::new();
        for p in &mut self.peers {
            if p.state == State::Ready {
                let common = p.common(0, crate::seq::Seq(0), 0);
                let header = wire::emit(&common, &Packet::Bye(Bye { reason: 0 }));
                out.push(Transmit { peer: p.id, header, payload: Payload::None });
            }
        }
        out
    }

    /// The driver or a link found that the peer failed.
    pub fn peer_failed(&mut self, peer: PeerId, failure: PeerFailure) {
        if (peer.0 as usize) < self.peers.len() {
            self.fail_peer(peer, failure);
        }
    }

    /// Ends everything that has to do with a peer.
    pub(super) fn fail_peer(&mut self, peer: PeerId, failure: PeerFailure) {
        let p = &mut self.peers[peer.0 as usize];
        if p.failure().is_some() {
            return;
        }
        p.state = State::Failed(failure);
        p.ctrl.clear();
        p.msgs.clear();
        p.data.clear();
        p.stalled.clear();
        p.hello_due = false;
        p.hello_reply_due = false;
        p.windows = None;
        let partial = p.partial.take();
        self.stats.peers_failed += 1;
        let mut dead = Vec::new();
        self.posted.fail_peer(peer, &mut |op: OpId| dead.push(op));
        let others = self.ops.keys().filter(|&k| self.ops.get(k).is_some_and(|o| o.peer == Some(peer)));
        dead.extend(others.map(OpId).collect::<Vec<_>>());
        for op in dead {
            self.fail_op(op, OpError::Peer { peer, failure });
        }
        // What is completely here can still be received; what is not never will be.
        let gone: Vec<u32> = self
            .stored
            .keys()
            .filter(|&k| {
                let s = self.stored.get(k);
                s.is_some_and(|s| s.peer == peer && !matches!(s.state, StoredState::Here))
            })
            .collect();
        for id in gone {
            self.unexpected.remove(id);
            self.stored.remove(id);
            self.events.push_back(Event::FreeStored(id));
        }
        if let Some(crate::peer::Partial { target: crate::peer::Target::Upcall { id, .. }, .. }) = partial {
            self.events.push_back(Event::FreeStored(id));
        }
        self.events.push_back(Event::PeerFailed(peer, failure));
    }
}

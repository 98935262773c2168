//! Receives, probes and messages that arrived before them.

use super::op::{Kind, Op, Recv, RecvState};
use super::types::{Claimed, Probed, RecvArgs, Refused};
use super::views::{MatchingMut, MatchingView};
use super::{Engine, Stored, StoredState, TAGGED, UNTAGGED};
use crate::error::OpError;
use crate::id::OpId;
use crate::matching::RecvSpec;
use crate::time::Instant;

fn probed(s: &Stored) -> Probed {
    Probed { source: s.peer, tag: s.tag, len: s.len, data: s.data }
}

impl Engine {
    #[inline(always)]
    fn post(&mut self, now: Instant, a: &RecvArgs) -> Result<OpId, Refused> {
        let kind = Kind::Recv(Recv { len: a.len, addr: a.addr, state: RecvState::Posted });
        self.add_op(now, Op::new(a.source, a.context, kind))
    }

    /// Gives an arrived, arriving or announced message to a receive.
    fn accept(&mut self, now: Instant, stored: u32, id: OpId) {
        let Some(s) = self.matching.stored.get_mut(stored) else { return };
        let (peer, tag, len, data) = (s.peer, s.tag, s.len, s.data);
        match s.state {
            StoredState::Here => self.take_stored(stored, id),
            StoredState::Arriving => {
                s.taker = Some(id);
                self.bind(now, id, peer);
            }
            StoredState::Announced { msg, addr } => {
                self.matching.stored.remove(stored);
                self.matched(id, peer, tag, len, data);
                self.pull(now, id, peer, msg, addr);
            }
        }
    }
}

impl MatchingView<'_> {
    /// Returns the oldest matching message without receiving it.
    pub fn probe(self, source: Option<crate::PeerId>, tag: u64, ignore: u64) -> Option<Probed> {
        let id = self.engine.matching.unexpected[TAGGED].peek(&RecvSpec { source, tag, ignore })?;
        self.engine.matching.stored.get(id).map(probed)
    }

    /// Returns the oldest message without a tag from `source` (`None`: any peer) without receiving
    /// it.
    #[inline]
    pub fn probe_untagged(self, source: Option<crate::PeerId>) -> Option<Probed> {
        if self.engine.matching.unexpected[UNTAGGED].is_empty() {
            return None;
        }
        let id = self.engine.matching.unexpected[UNTAGGED].peek(&RecvSpec {
            source,
            tag: 0,
            ignore: u64::MAX,
        })?;
        self.engine.matching.stored.get(id).map(probed)
    }

    /// True if a message with a tag has arrived that no receive has matched.
    #[inline]
    pub fn has_unexpected(self) -> bool {
        !self.engine.matching.unexpected[TAGGED].is_empty()
    }
}

impl MatchingMut<'_> {
    /// Posts a receive. It takes the oldest matching message, or waits for one.
    #[inline(always)]
    pub fn recv(self, now: Instant, a: RecvArgs) -> Result<OpId, Refused> {
        let spec = RecvSpec { source: a.source, tag: a.tag, ignore: a.ignore };
        let queue = usize::from(a.untagged);
        if let Some(peer) = a.source {
            // Messages that it sent before it failed can be received; no others will come.
            let here = self.engine.matching.unexpected[queue].peek(&spec).is_some();
            match self.engine.alive(peer) {
                Err(refused) if !here => return Err(refused),
                _ => {}
            }
        }
        let id = self.engine.post(now, &a)?;
        let here = self.engine.matching.unexpected[queue].take(&spec);
        if let (None, Some(peer)) = (here, a.source) {
            // Opening finds out if the peer lives: the wait is bounded.
            self.engine.peer_mut(peer).open(now);
        }
        match here {
            Some(stored) => self.engine.accept(now, stored, id),
            None => self.engine.matching.posted[queue].post(spec, id),
        }
        Ok(id)
    }

    /// Receives a message taken by `claim`.
    pub fn recv_claimed(
        self,
        now: Instant,
        claimed: Claimed,
        a: RecvArgs,
    ) -> Result<OpId, Refused> {
        let id = self.engine.post(now, &RecvArgs { source: None, ..a })?;
        if self.engine.matching.stored.get(claimed.id).is_some() {
            self.engine.accept(now, claimed.id, id);
            return Ok(id);
        }
        // Its sender failed after it was claimed.
        let peer = claimed.source;
        let error = match self.engine.peers[peer.0 as usize].failure() {
            Some(failure) => OpError::Peer { peer, failure },
            None => OpError::Cancelled,
        };
        self.engine.fail_op(id, error);
        Ok(id)
    }

    /// Removes the oldest matching message from matching; it must be received with `recv_claimed`.
    pub fn claim(
        self,
        source: Option<crate::PeerId>,
        tag: u64,
        ignore: u64,
    ) -> Option<(Claimed, Probed)> {
        let id = self.engine.matching.unexpected[TAGGED].take(&RecvSpec { source, tag, ignore })?;
        self.engine.matching.stored.get(id).map(|s| (Claimed { id, source: s.peer }, probed(s)))
    }

    /// Removes the oldest message without a tag from `source` (`None`: any peer) from matching; it
    /// must be received with `recv_claimed`.
    pub fn claim_untagged(self, source: Option<crate::PeerId>) -> Option<(Claimed, Probed)> {
        let id = self.engine.matching.unexpected[UNTAGGED].take(&RecvSpec {
            source,
            tag: 0,
            ignore: u64::MAX,
        })?;
        self.engine.matching.stored.get(id).map(|s| (Claimed { id, source: s.peer }, probed(s)))
    }
}

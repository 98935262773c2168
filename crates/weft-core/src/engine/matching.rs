//! Receives, probes and messages that arrived before them.

use super::op::{Kind, Op, Recv, RecvState};
use super::types::{Claimed, Probed, RecvArgs, Refused};
use super::{Engine, Stored, StoredState, TAGGED, UNTAGGED};
use crate::error::OpError;
use crate::id::OpId;
use crate::matching::RecvSpec;
use crate::time::Instant;

fn probed(s: &Stored) -> Probed {
    Probed { source: s.peer, tag: s.tag, len: s.len, data: s.data }
}

impl Engine {
    /// Posts a receive. It takes the oldest matching message, or waits for one.
    #[inline(always)]
    pub fn recv(&mut self, now: Instant, a: RecvArgs) -> Result<OpId, Refused> {
        let spec = RecvSpec { source: a.source, tag: a.tag, ignore: a.ignore };
        let queue = usize::from(a.untagged);
        if let Some(peer) = a.source {
            // Messages that it sent before it failed can be received; no others will come.
            let here = self.unexpected[queue].peek(&spec).is_some();
            match self.alive(peer) {
                Err(refused) if !here => return Err(refused),
                _ => {}
            }
        }
        let id = self.post(now, &a)?;
        let here = self.unexpected[queue].take(&spec);
        if let (None, Some(peer)) = (here, a.source) {
            // Opening finds out if the peer lives: the wait is bounded.
            self.open(now, peer);
        }
        match here {
            Some(stored) => self.accept(now, stored, id),
            None => self.posted[queue].post(spec, id),
        }
        Ok(id)
    }

    /// Receives a message taken by `claim`.
    pub fn recv_claimed(
        &mut self,
        now: Instant,
        claimed: Claimed,
        a: RecvArgs,
    ) -> Result<OpId, Refused> {
        let id = self.post(now, &RecvArgs { source: None, ..a })?;
        if self.stored.get(claimed.id).is_some() {
            self.accept(now, claimed.id, id);
            return Ok(id);
        }
        // Its sender failed after it was claimed.
        let peer = claimed.source;
        let error = match self.peers[peer.0 as usize].failure() {
            Some(failure) => OpError::Peer { peer, failure },
            None => OpError::Cancelled,
        };
        self.fail_op(id, error);
        Ok(id)
    }

    #[inline(always)]
    fn post(&mut self, now: Instant, a: &RecvArgs) -> Result<OpId, Refused> {
        let kind = Kind::Recv(Recv { len: a.len, addr: a.addr, state: RecvState::Posted });
        self.add_op(now, Op::new(a.source, a.context, kind))
    }

    /// Gives an arrived, arriving or announced message to a receive.
    fn accept(&mut self, now: Instant, stored: u32, id: OpId) {
        let Some(s) = self.stored.get_mut(stored) else { return };
        let (peer, tag, len, data) = (s.peer, s.tag, s.len, s.data);
        match s.state {
            StoredState::Here => self.take_stored(stored, id),
            StoredState::Arriving => {
                s.taker = Some(id);
                self.bind(now, id, peer);
            }
            StoredState::Announced { msg, addr } => {
                self.stored.remove(stored);
                self.matched(id, peer, tag, len, data);
                self.pull(now, id, peer, msg, addr);
            }
        }
    }

    /// True if a message with a tag has arrived that no receive has matched.
    #[inline]
    pub fn has_unexpected(&self) -> bool {
        !self.unexpected[TAGGED].is_empty()
    }

    /// Returns the oldest matching message without receiving it.
    pub fn probe(&self, source: Option<crate::PeerId>, tag: u64, ignore: u64) -> Option<Probed> {
        let id = self.unexpected[TAGGED].peek(&RecvSpec { source, tag, ignore })?;
        self.stored.get(id).map(probed)
    }

    /// Removes the oldest matching message from matching; it must be received with `recv_claimed`.
    pub fn claim(
        &mut self,
        source: Option<crate::PeerId>,
        tag: u64,
        ignore: u64,
    ) -> Option<(Claimed, Probed)> {
        let id = self.unexpected[TAGGED].take(&RecvSpec { source, tag, ignore })?;
        self.stored.get(id).map(|s| (Claimed { id, source: s.peer }, probed(s)))
    }

    /// Returns the oldest message without a tag from `source` (`None`: any peer) without receiving
    /// it.
    #[inline]
    pub fn probe_untagged(&self, source: Option<crate::PeerId>) -> Option<Probed> {
        if self.unexpected[UNTAGGED].is_empty() {
            return None;
        }
        let id = self.unexpected[UNTAGGED].peek(&RecvSpec { source, tag: 0, ignore: u64::MAX })?;
        self.stored.get(id).map(probed)
    }

    /// Removes the oldest message without a tag from `source` (`None`: any peer) from matching; it
    /// must be received with `recv_claimed`.
    pub fn claim_untagged(&mut self, source: Option<crate::PeerId>) -> Option<(Claimed, Probed)> {
        let id = self.unexpected[UNTAGGED].take(&RecvSpec { source, tag: 0, ignore: u64::MAX })?;
        self.stored.get(id).map(|s| (Claimed { id, source: s.peer }, probed(s)))
    }
}

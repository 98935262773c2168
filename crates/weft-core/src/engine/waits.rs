//! Operations that the program waits for, described for people.

use super::op::{Kind, RecvState};
use super::types::OpKind;
use super::views::OpsView;
use super::{Engine, TAGGED};
use crate::id::{OpId, PeerId};
use crate::peer::State;
use alloc::vec::Vec;

/// An operation that has begun and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The peer that it waits for; `None` for any.
    pub peer: Option<PeerId>,
    /// Type of the operation.
    pub kind: OpKind,
    /// The match bits of a message, and the bits that are not compared.
    pub tag: Option<(u64, u64)>,
    /// True if the peer has not answered the first packet yet.
    pub opening: bool,
}

impl Engine {
    fn wait(&self, peer: Option<PeerId>, kind: OpKind, tag: Option<(u64, u64)>) -> Wait {
        let state = peer.and_then(|peer| self.peers.get(peer.0 as usize)).map(|p| p.state);
        Wait { peer, kind, tag, opening: matches!(state, Some(State::Opening { .. })) }
    }
}

impl OpsView<'_> {
    /// Returns operations that the program waits for, at most `most` of them, and their total
    /// number: receives first, in their order. Receives without a tag from any source are left out,
    /// because libraries keep them posted for any message.
    pub fn waits(self, most: usize) -> (Vec<Wait>, usize) {
        let (mut all, mut count) = (Vec::new(), 0);
        let mut add = |wait: Wait| {
            count += 1;
            if all.len() < most {
                all.push(wait);
            }
        };
        for (queue, posted) in self.engine.matching.posted.iter().enumerate() {
            for (spec, _) in posted.iter().filter(|(s, _)| queue == TAGGED || s.source.is_some()) {
                let tag = (queue == TAGGED).then_some((spec.tag, spec.ignore));
                add(self.engine.wait(spec.source, OpKind::Recv, tag));
            }
        }
        for op in self.engine.ops.keys().filter_map(|key| self.engine.ops.get(key)) {
            let posted =
                matches!(&op.kind, Kind::Recv(recv) if matches!(recv.state, RecvState::Posted));
            if op.reported || op.discard || posted {
                continue;
            }
            let tag = match &op.kind {
                Kind::Send(send) => Some((send.tag, 0)),
                _ => None,
            };
            add(self.engine.wait(op.peer.or(op.status.source), op.op_kind(), tag));
        }
        (all, count)
    }

    /// Returns the wait of one operation, if it waits.
    pub fn wait_of(self, id: OpId) -> Option<Wait> {
        let op = self.engine.ops.get(id.0).filter(|op| !op.reported)?;
        let mut posted = self.engine.matching.posted[TAGGED].iter();
        let spec = posted.find(|(_, posted)| *posted == id).map(|(spec, _)| spec);
        let tag = match &op.kind {
            Kind::Send(send) => Some((send.tag, 0)),
            _ => spec.map(|spec| (spec.tag, spec.ignore)),
        };
        Some(self.engine.wait(op.peer.or(op.status.source), op.op_kind(), tag))
    }

    /// Returns true if any operation has begun and not ended.
    pub fn has_waits(self) -> bool {
        !self.engine.ops.is_empty()
    }

    /// Describes a wait by probes in the same form.
    pub fn probing(self, peer: Option<PeerId>, tag: u64, ignore: u64) -> Wait {
        self.engine.wait(peer, OpKind::Recv, Some((tag, ignore)))
    }

    /// Describes a wait without operation and match bits in the same form.
    pub fn awaiting(self, peer: Option<PeerId>, kind: OpKind) -> Wait {
        self.engine.wait(peer, kind, None)
    }
}

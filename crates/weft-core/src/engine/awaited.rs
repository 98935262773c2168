//! The receive that its caller does nothing but wait for: a message of one packet that matches it
//! is placed and reported at once, without an operation.

use super::types::{Awaited, Placement};
use super::{Engine, TAGGED};
use crate::error::OpError;
use crate::event::Status;
use crate::id::PeerId;
use crate::matching::RecvSpec;
use crate::peer::State;
use crate::wire::Common;

/// What is waited for.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    spec: RecvSpec,
    /// Length of the buffer.
    len: u64,
}

impl Engine {
    /// From now on a message that `spec` accepts, if it is one packet, comes as
    /// [`Placement::Awaited`], until it came or [`Engine::end_await`]; receives posted before take
    /// theirs first, and none may be posted meanwhile. False, and nothing begun, when a message
    /// is there already, another is awaited, or the sender has not answered yet: then the receive
    /// is to be posted.
    #[inline]
    pub fn await_message(&mut self, spec: RecvSpec, len: u64) -> bool {
        let ready = |p: PeerId| {
            self.peers.get(p.0 as usize).is_some_and(|p| matches!(p.state, State::Ready))
        };
        let clear = self.wanted.is_none()
            && spec.source.is_none_or(ready)
            && self.unexpected[TAGGED].peek(&spec).is_none();
        if clear {
            self.wanted = Some(Wanted { spec, len });
        }
        clear
    }

    /// Whether a message is awaited still. It is not once it came, or when what came instead needs
    /// an operation: an announcement, a first fragment, or the failure of a peer.
    #[inline]
    pub fn awaits(&self) -> bool {
        self.wanted.is_some()
    }

    /// Ends what `await_message` began.
    #[inline]
    pub fn end_await(&mut self) {
        self.wanted = None;
    }

    /// A whole message is here: it goes to who awaits it, if it is that.
    #[inline]
    pub(super) fn for_awaiting(
        &mut self,
        peer: PeerId,
        common: &Common,
        tag: u64,
        len: u64,
    ) -> Option<Placement> {
        let wanted = self.wanted?;
        if super::eager::queue_of(common) != TAGGED || !wanted.spec.accepts(peer, tag) {
            return None;
        }
        self.wanted = None;
        self.consumed(peer, len);
        self.stats.messages_received += 1;
        let fits = len.min(wanted.len);
        let error = (len > wanted.len).then_some(OpError::Truncated { sent: len });
        let data = super::eager::data_of(common);
        let status = Status { source: Some(peer), tag, len: fits, data, value: 0 };
        Some(Placement::Awaited(Awaited { status, error }))
    }

    /// A message that must wait for a receive: if it is the awaited one, that has to be posted.
    #[inline]
    pub(super) fn not_awaited(&mut self, queue: usize, peer: PeerId, tag: u64) {
        if self.wanted.is_some_and(|w| queue == TAGGED && w.spec.accepts(peer, tag)) {
            self.wanted = None;
        }
    }
}

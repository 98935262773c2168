//! Atomic operations on a peer's memory: ATOMIC and its answer.

use super::op::{Kind, Op};
use super::region::Rights;
use super::types::{AtomicCode, AtomicRequest, Placement, Refused};
use super::views::MemoryMut;
use super::Engine;
use crate::choices::Server;
use crate::id::{OpId, PeerId};
use crate::peer::{Desc, Item};
use crate::time::Instant;
use crate::wire::{flags, Atomic, Common, Packet};

impl Engine {
    pub(super) fn on_atomic(
        &mut self,
        now: Instant,
        peer: PeerId,
        common: &Common,
        a: &Atomic,
    ) -> Placement {
        let at = self.regions.find(a.key, a.offset, 8, Rights::ALL);
        let at = at.filter(|offset| offset.is_multiple_of(8));
        match (AtomicCode::from_wire(a.code), at) {
            // `Client` is for agents.
            (Some(code), Some(offset)) if code != AtomicCode::Client => {
                Placement::Atomic(AtomicRequest {
                    peer,
                    op: common.imm,
                    key: a.key,
                    offset,
                    code,
                    operand: a.operand,
                    compare: a.compare,
                })
            }
            _ => {
                self.stats.refused += 1;
                self.reply(now, peer, common.imm, 0, false);
                Placement::None
            }
        }
    }
}

impl MemoryMut<'_> {
    /// Starts an atomic operation on the 8 bytes at `offset` (a multiple of 8) of a region of the
    /// peer. The completion carries the old value.
    #[allow(clippy::too_many_arguments)]
    pub fn atomic(
        self,
        now: Instant,
        peer: PeerId,
        key: u64,
        offset: u64,
        code: AtomicCode,
        operands: (u64, u64),
        context: u64,
    ) -> Result<OpId, Refused> {
        let past_agent = self.engine.usable(now, peer)?.path.fetch_add == Some(Server::Host);
        let (operand, compare) = operands;
        let packet = Packet::Atomic(Atomic { key, offset, operand, compare, code: code as u8 });
        let flags = if past_agent { flags::DIRECT } else { 0 };
        let op = Op::new(Some(peer), context, Kind::Atomic);
        self.begin(now, peer, op, |id| Item::Single(Desc::bare(packet, id.0).with_flags(flags)))
    }

    /// Notes that the driver has executed `Placement::Atomic`; `old` is the value before.
    pub fn handle_atomic_done(self, now: Instant, request: &AtomicRequest, old: u64) {
        self.engine.reply(now, request.peer, request.op, old, true);
    }

    /// Notes that the driver could not execute `Placement::Atomic`: the region is gone.
    pub fn handle_atomic_refused(self, now: Instant, request: &AtomicRequest) {
        self.engine.stats.refused += 1;
        self.engine.reply(now, request.peer, request.op, 0, false);
    }
}

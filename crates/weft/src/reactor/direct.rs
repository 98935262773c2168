//! Copies straight between this process's memory and a peer's.

use super::copy_choice::CopyKind;
use super::Reactor;
use weft_core::choices::Transfer;
use weft_core::engine::types::Direct;

impl Reactor {
    /// Copies a part of a message out of the sender's memory.
    pub(super) fn read_part(&mut self, d: &Direct) {
        if !self.receiver.engine.ops().is_fetching(d.op) {
            return;
        }
        let helping = self.memory_of(d.peer).is_some_and(|memory| memory.attentive(d.peer));
        if self.copy_kind(d, helping) == CopyKind::Packets {
            self.receiver.engine.memory().handle_direct_declined(self.receiver.time.now, d);
            return;
        }
        let mut d = *d;
        if helping {
            self.receiver.engine.memory().direct_share(self.receiver.time.now, &mut d);
            self.transmit();
        }
        let mut ok = false;
        let link = self.link_of(d.peer);
        let memory = link.and_then(|link| self.links[link].memory());
        let into = self.receiver.ops.write(d.op, d.offset, d.len);
        if let (Some(memory), Some(into)) = (memory, into) {
            ok = memory.read_direct(d.peer, d.addr, into).is_ok();
        }
        self.receiver.engine.memory().handle_direct_read(self.receiver.time.now, &d, ok);
    }

    /// Chooses the transfer of the rest of a message.
    fn copy_kind(&mut self, d: &Direct, at_hand: bool) -> CopyKind {
        if self.receiver.engine.peer(d.peer).transfer() == Transfer::Rcpy {
            return CopyKind::Direct;
        }
        if d.offset == 0 {
            let now = self.receiver.tick();
            self.receiver.copy_choice.start(now, d.op, d.peer, d.total);
        }
        self.receiver.copy_choice.rest(d.op, at_hand)
    }

    /// Copies a part of a message into the receiver's memory.
    pub(super) fn write_part(&mut self, d: &Direct) {
        let link = self.link_of(d.peer);
        let from = self.receiver.ops.read(d.op, d.offset, d.len as usize);
        let whole = from.len() as u64 == d.len;
        let memory = link.and_then(|link| self.links[link].memory());
        let ok =
            whole && memory.is_some_and(|memory| memory.write_direct(d.peer, d.addr, from).is_ok());
        self.receiver.engine.memory().handle_direct_write(self.receiver.time.now, d, ok);
    }
}

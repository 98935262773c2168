//! Copies straight between this process's memory and a peer's.

use super::copy_choice::CopyKind;
use super::driver::Driver;
use weft_core::choices::Transfer;
use weft_core::engine::types::Direct;

impl Driver {
    /// Copies a part of a message out of the sender's memory.
    pub(super) fn read_part(&mut self, d: &Direct) {
        if !self.intake.engine.ops().is_fetching(d.op) {
            return;
        }
        let link = self.link_of(d.peer);
        let helping = link.is_some_and(|link| self.links[link].attentive(d.peer));
        if self.copy_kind(d, helping) == CopyKind::Packets {
            self.intake.engine.memory().handle_direct_declined(self.intake.time.now, d);
            return;
        }
        let mut d = *d;
        if helping {
            self.intake.engine.memory().direct_share(self.intake.time.now, &mut d);
            self.transmit();
        }
        let mut ok = false;
        if let (Some(link), Some(into)) = (link, self.intake.ops.write(d.op, d.offset, d.len)) {
            ok = self.links[link].read_direct(d.peer, d.addr, into).is_ok();
        }
        self.intake.engine.memory().handle_direct_read(self.intake.time.now, &d, ok);
    }

    /// Chooses the transfer of the rest of a message.
    fn copy_kind(&mut self, d: &Direct, at_hand: bool) -> CopyKind {
        if self.intake.engine.peer(d.peer).transfer() == Transfer::Rcpy {
            return CopyKind::Direct;
        }
        if d.offset == 0 {
            let now = self.intake.tick();
            self.intake.copy_choice.start(now, d.op, d.peer, d.total);
        }
        self.intake.copy_choice.rest(d.op, at_hand)
    }

    /// Copies a part of a message into the receiver's memory.
    pub(super) fn write_part(&mut self, d: &Direct) {
        let link = self.link_of(d.peer);
        let from = self.intake.ops.read(d.op, d.offset, d.len as usize);
        let whole = from.len() as u64 == d.len;
        let ok =
            whole && link.is_some_and(|l| self.links[l].write_direct(d.peer, d.addr, from).is_ok());
        self.intake.engine.memory().handle_direct_write(self.intake.time.now, d, ok);
    }
}

//! Copies straight between this process's memory and a peer's.

use super::driver::Driver;
use super::ways::Way;
use weft_core::choices::Transfer;
use weft_core::engine::types::Direct;

impl Driver {
    /// Copies a part of a message out of the sender's memory.
    pub(super) fn read_part(&mut self, d: &Direct) {
        if !self.core.engine.is_fetching(d.op) {
            return;
        }
        let link = self.link_of(d.peer);
        let helping = link.is_some_and(|link| self.links[link].attentive(d.peer));
        if self.way(d, helping) == Way::Packets {
            self.core.engine.direct_declined(self.core.now, d);
            return;
        }
        let mut d = *d;
        if helping {
            self.core.engine.direct_share(self.core.now, &mut d);
            self.transmit();
        }
        let mut ok = false;
        if let (Some(link), Some(into)) = (link, self.core.ops.write(d.op, d.offset, d.len)) {
            ok = self.links[link].read_direct(d.peer, d.addr, into).is_ok();
        }
        self.core.engine.direct_read_done(self.core.now, &d, ok);
    }

    /// How the rest of a message is to come.
    fn way(&mut self, d: &Direct, at_hand: bool) -> Way {
        if self.core.engine.transfer_of(d.peer) == Transfer::Rcpy {
            return Way::Direct;
        }
        if d.offset == 0 {
            let now = self.core.tick();
            self.core.ways.start(now, d.op, d.peer, d.total);
        }
        self.core.ways.rest(d.op, at_hand)
    }

    /// Copies a part of a message into the receiver's memory.
    pub(super) fn write_part(&mut self, d: &Direct) {
        let link = self.link_of(d.peer);
        let from = self.core.ops.read(d.op, d.offset, d.len as usize);
        let whole = from.len() as u64 == d.len;
        let ok =
            whole && link.is_some_and(|l| self.links[l].write_direct(d.peer, d.addr, from).is_ok());
        self.core.engine.direct_write_done(self.core.now, d, ok);
    }
}

//! Hosts that were held for lost and say that they are there: after a partition heals they are many
//! at once, each with news for all.
//!
//! A host that passes such news on to those behind it on the ring waits a little, and sends the
//! records of all that returned meanwhile in as few messages as hold them. Everything else is
//! passed on at once.

use super::{Node, Timer};
use crate::id::HostId;
use crate::membership::{Cause, Record};
use crate::wire::{List, Members, Message, Value, HEAD_LEN};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// The hosts that get news, each with the hosts that returned; both are hosts of the table.
pub(super) type Returns = BTreeMap<HostId, BTreeSet<HostId>>;

/// True if all that a message says is that hosts have returned.
pub(super) fn are_returns(members: &Members<'_>) -> bool {
    members.items.iter().all(|record| record.cause == Cause::Returned)
}

impl Node {
    /// Has records wait for others that go to the same hosts.
    pub(super) fn keep_returns(&mut self, to: &[HostId], members: &Members<'_>) {
        if self.returns.is_empty() && !to.is_empty() {
            let at = self.timers.now() + self.config.tolerance / 10;
            self.timers.arm(Timer::Returns, at);
        }
        for host in to {
            let known = members.items.iter().map(|record| record.host);
            let known = known.filter(|host| self.members.get(*host).is_some());
            self.returns.entry(*host).or_default().extend(known);
        }
    }

    /// Sends the records that wait, as they are known now.
    pub(super) fn pass_returns(&mut self) {
        let per_message = self.room(HEAD_LEN, Record::SIZE);
        for (host, returned) in core::mem::take(&mut self.returns) {
            let record = |id: HostId| self.members.get(id).map(|m| m.record);
            let records: Vec<Record> = returned.into_iter().filter_map(record).collect();
            for chunk in records.chunks(per_message) {
                self.stats.relayed += 1;
                let items = List::Items(chunk);
                self.send_host(host, &Message::Members(Members { items }));
            }
        }
    }
}

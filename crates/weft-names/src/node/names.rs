//! The names that a node knows, those who look at them, and its decisions about unique ones.

use super::claims::Claims;
use crate::directory::unique::{Arbiter, Question, Verdict};
use crate::directory::Claim;
use crate::directory::{Binding, Directory, NameChange, Pick, Policy};
use crate::id::Owner;
use crate::subscriptions::{
    Bounds, Filter, NameEvent, SubscribeError, SubscriptionId, Subscriptions,
};
use alloc::vec::Vec;
use core::time::Duration;
use weft_core::Instant;

/// The names of all hosts and the claims of this one, the users who may see them, and the
/// subscriptions to them.
#[derive(Debug)]
pub(super) struct Names {
    pub directory: Directory,
    pub policy: Policy,
    pub subscriptions: Subscriptions,
    pub arbiter: Arbiter,
    pub claims: Claims,
}

impl Names {
    pub fn new(directory: Directory) -> Names {
        Names {
            directory,
            policy: Policy::default(),
            subscriptions: Subscriptions::default(),
            arbiter: Arbiter::default(),
            claims: Claims::default(),
        }
    }

    /// Adds a subscription, whose snapshot can be read at once.
    pub fn subscribe(
        &mut self,
        now: Instant,
        owner: Owner,
        filter: Filter,
        bounds: Bounds,
    ) -> Result<SubscriptionId, SubscribeError> {
        let id = self.subscriptions.add(now, owner, filter, (bounds, &self.policy))?;
        self.subscriptions.start(id, &self.directory, &self.policy);
        Ok(id)
    }

    /// Takes the next event of a subscription, which keeps at most `max`.
    pub fn read(&mut self, id: SubscriptionId, max: usize) -> Option<NameEvent> {
        self.subscriptions.read(id, &self.directory, &self.policy, max)
    }

    /// Finds an owner of an instance of a name, as a user of this host sees it.
    pub fn look_up(&mut self, user: u32, kind: u32, instance: u32, pick: Pick) -> Option<&Binding> {
        self.directory.look_up(&self.policy, user, (kind, instance), pick)
    }

    /// Notes a change of the names. Returns the subscriptions that can be read for it; each keeps
    /// at most `max` events.
    pub fn tell(&mut self, change: &NameChange, max: usize) -> Vec<SubscriptionId> {
        self.subscriptions.tell(change, &self.policy, max)
    }

    /// Notes that a name has no owner any more: it can be granted again.
    pub fn release(&mut self, change: &NameChange) {
        if let NameChange::Withdrawn(Binding { id, name, .. }, _) = change {
            self.arbiter.release(id.host, name.kind, name.lower, name.upper);
        }
    }

    /// Decides about a unique name as its arbiter. `is_up`: the host that asks is there. A grant is
    /// remembered for a time.
    pub fn judge(
        &mut self,
        now: Instant,
        question: Question,
        is_up: bool,
        remember: Duration,
    ) -> Verdict {
        let Question { kind, lower, upper, .. } = question;
        if lower > upper {
            return Verdict::Later;
        }
        let name = Claim::new(Owner::default(), kind, lower..=upper).unique();
        match self.directory.rival(&name, None, u64::MAX) {
            Some(rival) => Verdict::Taken(rival.id.host),
            None if is_up => self.arbiter.decide(now, question, remember),
            None => Verdict::Later,
        }
    }
}

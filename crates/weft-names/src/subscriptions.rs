//! Subscriptions: programs of this host that watch names.
//!
//! A subscriber gets the names that there are, then a marker, then each change once and in order,
//! numbered. Its queue is bounded. A subscriber that does not read loses its queue. When it reads
//! again, it gets the number of events that it missed, and then the difference between its last
//! state and the present one: its events are again complete and in order.

use crate::directory::{Binding, Directory, Gone, NameChange, Policy};
use crate::id::{BindingId, Owner};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;
use weft_core::Instant;

/// Number of a subscription on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub u64);

/// The events that a subscriber gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Each name that comes or goes.
    #[default]
    Each,
    /// The first that comes and the last that goes.
    FirstLast,
}

/// The names that a subscriber watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The type.
    pub kind: u32,
    /// First instance.
    pub lower: u32,
    /// Last instance.
    pub upper: u32,
    /// Each name, or first and last.
    pub mode: Mode,
    /// Time after which the subscription ends with [`Notice::Timeout`].
    pub timeout: Option<Duration>,
}

impl Filter {
    fn has(&self, name: &crate::directory::Claim) -> bool {
        name.kind == self.kind && name.lower <= self.upper && self.lower <= name.upper
    }
}

/// One thing that a subscriber is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A name is there.
    Published(Binding),
    /// A name is gone.
    Withdrawn(Binding, Gone),
    /// All names that there were, at the start or after [`Notice::Missed`], have been told.
    SnapshotEnd,
    /// The subscriber was slow, and its queue was given up: the differences follow.
    Missed {
        /// Events that were given up.
        events: u64,
    },
    /// The time of the subscription is over; nothing follows.
    Timeout,
}

/// A numbered event of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameEvent {
    /// Number of the event in the subscription: 1, 2, and so on, without gaps.
    pub seq: u64,
    /// The event.
    pub notice: Notice,
}

/// The reason why a subscription is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The user has as many as one may have.
    TooMany {
        /// The bound.
        bound: usize,
    },
    /// Its last instance is before its first.
    EmptyRange,
}

impl core::fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SubscribeError::TooMany { bound } => {
                write!(f, "the user has {bound} subscriptions, and more are not allowed")
            }
            SubscribeError::EmptyRange => f.write_str("the last instance is before the first"),
        }
    }
}

impl core::error::Error for SubscribeError {}

#[derive(Debug)]
struct Subscription {
    owner: Owner,
    filter: Filter,
    deadline: Option<Instant>,
    queue: VecDeque<Notice>,
    seq: u64,
    /// Names that the subscriber was told of and not told to be gone.
    told: BTreeMap<BindingId, Binding>,
    /// Names that match now, for [`Mode::FirstLast`].
    present: usize,
    /// Events given up since the subscriber read.
    missed: u64,
    /// The queue does not hold all differences.
    is_behind: bool,
    is_over: bool,
}

impl Subscription {
    /// Notes a change. Returns true if the subscriber has to be woken.
    fn note(&mut self, notice: Notice, max: usize) -> bool {
        let first = self.filter.mode == Mode::FirstLast;
        let is_shown = match notice {
            Notice::Published(_) => {
                self.present += 1;
                !first || self.present == 1
            }
            Notice::Withdrawn(..) => {
                self.present = self.present.saturating_sub(1);
                !first || self.present == 0
            }
            _ => true,
        };
        if !is_shown {
            return false;
        }
        if self.is_behind {
            // The next difference contains it; it counts if the subscriber was told of others.
            self.missed += u64::from(self.missed > 0);
            return false;
        }
        if self.queue.len() >= max {
            self.missed += self.queue.len() as u64 + 1;
            self.queue.clear();
            self.is_behind = true;
            return false;
        }
        self.queue.push_back(notice);
        self.queue.len() == 1
    }

    /// Notes in `told` what the subscriber is told now.
    fn told(&mut self, notice: &Notice) {
        match notice {
            Notice::Published(binding) => {
                self.told.insert(binding.id, binding.clone());
            }
            // Of first and last, the last to go need not be the one that came first.
            Notice::Withdrawn(..) if self.filter.mode == Mode::FirstLast => self.told.clear(),
            Notice::Withdrawn(binding, _) => {
                self.told.remove(&binding.id);
            }
            _ => {}
        }
    }

    /// Fills the queue with differences between what was told and what is.
    fn catch_up(&mut self, directory: &Directory, policy: &Policy, max: usize) {
        let Filter { kind, lower, upper, mode, .. } = self.filter;
        if self.missed > 0 {
            self.queue.push_back(Notice::Missed { events: core::mem::take(&mut self.missed) });
        }
        let now: BTreeMap<BindingId, &Binding> = directory
            .all(policy, self.owner.user, kind, lower, upper)
            .map(|binding| (binding.id, binding))
            .collect();
        if mode == Mode::FirstLast {
            match (self.told.values().next(), now.values().next()) {
                (Some(b), None) => {
                    self.queue.push_back(Notice::Withdrawn(b.clone(), Gone::Missing));
                }
                (None, Some(b)) => self.queue.push_back(Notice::Published((*b).clone())),
                _ => {}
            }
        } else {
            let gone: Vec<Notice> = self
                .told
                .values()
                .filter(|b| !now.contains_key(&b.id))
                .map(|b| Notice::Withdrawn(b.clone(), Gone::Missing))
                .collect();
            let fresh = now.values().filter(|b| !self.told.contains_key(&b.id));
            let fresh = fresh.map(|b| Notice::Published((*b).clone()));
            let mut differences = gone.into_iter().chain(fresh);
            self.queue.extend(differences.by_ref().take(max));
            if differences.next().is_some() {
                return;
            }
        }
        self.queue.push_back(Notice::SnapshotEnd);
        self.is_behind = false;
    }
}

/// The subscriptions of a host.
#[derive(Debug, Default)]
pub struct Subscriptions {
    table: BTreeMap<SubscriptionId, Subscription>,
    by_kind: BTreeMap<u32, Vec<SubscriptionId>>,
    next: u64,
}

/// The bounds of subscriptions.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Subscriptions of one user.
    pub per_user: usize,
    /// Events that wait.
    pub queue: usize,
}

/// A subscriber that does not keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slow {
    /// The subscription.
    pub id: SubscriptionId,
    /// The process that does not read.
    pub owner: Owner,
    /// Events given up since it read.
    pub missed: u64,
}

impl Subscriptions {
    /// Adds a subscription. Its snapshot is ready to be read.
    pub fn add(
        &mut self,
        now: Instant,
        owner: Owner,
        filter: Filter,
        (bounds, policy): (Bounds, &Policy),
    ) -> Result<SubscriptionId, SubscribeError> {
        if filter.lower > filter.upper {
            return Err(SubscribeError::EmptyRange);
        }
        let count = policy.count(owner.user, self.table.values().map(|s| s.owner.user));
        if count >= bounds.per_user {
            return Err(SubscribeError::TooMany { bound: bounds.per_user });
        }
        self.next += 1;
        let id = SubscriptionId(self.next);
        self.by_kind.entry(filter.kind).or_default().push(id);
        let deadline = filter.timeout.map(|t| now + t);
        let subscription = Subscription {
            owner,
            filter,
            deadline,
            queue: VecDeque::new(),
            seq: 0,
            told: BTreeMap::new(),
            present: 0,
            missed: 0,
            is_behind: true,
            is_over: false,
        };
        self.table.insert(id, subscription);
        Ok(id)
    }

    /// Counts the names that match a new subscription.
    pub fn start(&mut self, id: SubscriptionId, directory: &Directory, policy: &Policy) {
        if let Some(s) = self.table.get_mut(&id) {
            let Filter { kind, lower, upper, .. } = s.filter;
            s.present = directory.all(policy, s.owner.user, kind, lower, upper).count();
        }
    }

    /// Ends a subscription.
    pub fn remove(&mut self, id: SubscriptionId) {
        let Some(subscription) = self.table.remove(&id) else { return };
        let kind = subscription.filter.kind;
        if let Some(ids) = self.by_kind.get_mut(&kind) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_kind.remove(&kind);
            }
        }
    }

    /// Ends all subscriptions of a process.
    pub fn remove_owner(&mut self, owner: Owner) {
        let of_owner =
            |(id, s): (&SubscriptionId, &Subscription)| (s.owner == owner).then_some(*id);
        let ids: Vec<SubscriptionId> = self.table.iter().filter_map(of_owner).collect();
        ids.into_iter().for_each(|id| self.remove(id));
    }

    /// Tells all that watch it of a change. Returns those that have something to read now.
    pub fn tell(
        &mut self,
        change: &NameChange,
        policy: &Policy,
        max: usize,
    ) -> Vec<SubscriptionId> {
        let (binding, notice) = match change {
            NameChange::Published(b) => (b, Notice::Published(b.clone())),
            NameChange::Withdrawn(b, gone) => (b, Notice::Withdrawn(b.clone(), *gone)),
        };
        let name = &binding.name;
        let mut woken = Vec::new();
        for id in self.by_kind.get(&name.kind).into_iter().flatten() {
            let Some(s) = self.table.get_mut(id).filter(|s| !s.is_over) else { continue };
            let may_see = policy.may_see(s.owner.user, name.kind, name.owner.user);
            if may_see && s.filter.has(name) && s.note(notice.clone(), max) {
                woken.push(*id);
            }
        }
        woken
    }

    /// Ends the subscription if its time is over. Returns true if it has.
    pub fn expire(&mut self, now: Instant, id: SubscriptionId) -> bool {
        let due = |s: &&mut Subscription| !s.is_over && s.deadline.is_some_and(|at| at <= now);
        let Some(s) = self.table.get_mut(&id).filter(due) else { return false };
        s.is_over = true;
        true
    }

    /// Returns the time at which a subscription ends.
    pub fn deadline(&self, id: SubscriptionId) -> Option<Instant> {
        self.table.get(&id)?.deadline
    }

    /// Takes the next event of a subscription.
    pub fn read(
        &mut self,
        id: SubscriptionId,
        directory: &Directory,
        policy: &Policy,
        max: usize,
    ) -> Option<NameEvent> {
        let s = self.table.get_mut(&id)?;
        if s.queue.is_empty() && s.is_behind {
            s.catch_up(directory, policy, max);
        }
        let (notice, is_last) = match s.queue.pop_front() {
            Some(notice) => (notice, false),
            None if s.is_over => (Notice::Timeout, true),
            None => return None,
        };
        s.told(&notice);
        s.seq += 1;
        let seq = s.seq;
        if is_last {
            self.remove(id);
        }
        Some(NameEvent { seq, notice })
    }

    /// Returns the subscribers that lost their queue and have not read since.
    pub fn slow(&self) -> impl Iterator<Item = Slow> + '_ {
        let behind = self.table.iter().filter(|(_, s)| s.missed > 0);
        behind.map(|(id, s)| Slow { id: *id, owner: s.owner, missed: s.missed })
    }

    /// Returns true if there is this one.
    pub fn has(&self, id: SubscriptionId) -> bool {
        self.table.contains_key(&id)
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

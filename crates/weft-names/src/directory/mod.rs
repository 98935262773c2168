//! The directory: the names of all hosts, on every host.
//!
//! Each host numbers the changes of its own names (a claim, a withdrawal) and sends them to all;
//! nobody else changes them. A host that missed some asks for those behind the last that it has;
//! if they are forgotten, it takes the whole table of that host, in pieces. So two hosts that know
//! the same head of every origin have the same directory, whatever was lost between.

mod index;
mod name;
mod origin;
mod policy;
pub mod unique;

pub use name::{Binding, Claim, ClaimError, Gone, Pick, Scope};
pub use origin::{Origin, Pages};
pub use policy::{Policy, Rule, See};

use crate::id::{BindingId, HostId, Life};
use crate::wire::{Change, List, Publication};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use index::Index;

/// Bit of the claims that only their own host sees.
const LOCAL: u64 = 1 << 63;
/// Largest number of a change, and the latest logical time, that another host is believed.
const NUMBER_MAX: u64 = 1 << 62;

/// A change of the names that are shown on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameChange {
    /// A name appeared.
    Published(Binding),
    /// A name is gone.
    Withdrawn(Binding, Gone),
}

/// The effect of a message on an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// All of it is known now.
    Up,
    /// Something before it is missing.
    Gap,
    /// The message belongs to another life.
    Stranger,
}

/// The names of all hosts.
#[derive(Debug)]
pub struct Directory {
    me: HostId,
    origins: BTreeMap<HostId, Origin>,
    index: Index,
    changes: Vec<NameChange>,
    locals: u64,
    stamp: u64,
    log_max: usize,
    names_max: usize,
    refused: u64,
}

impl Directory {
    /// Makes an empty directory of a host. Each origin has at most `names_max` names, and
    /// `log_max` withdrawals that are remembered.
    pub fn new(me: HostId, life: Life, names_max: usize, log_max: usize) -> Directory {
        let mut origins = BTreeMap::new();
        origins.insert(me, Origin::new(me, life, true));
        Directory {
            me,
            origins,
            index: Index::default(),
            changes: Vec::new(),
            locals: LOCAL,
            stamp: 0,
            log_max,
            names_max,
            refused: 0,
        }
    }

    /// Returns the names of a host, and the numbers of its changes.
    pub fn origin(&self, host: HostId) -> Option<&Origin> {
        self.origins.get(&host)
    }

    /// Returns how many changes of a host are known in a life of it.
    pub fn head(&self, host: HostId, life: Life) -> u64 {
        self.origins.get(&host).filter(|o| o.life() == life).map_or(0, Origin::head)
    }

    /// Returns how many names there are, hidden ones included.
    pub fn len(&self) -> usize {
        self.origins.values().map(Origin::len).sum()
    }

    /// Returns the bytes of its entries: names, hidden ones included, and where they are found.
    pub fn bytes(&self) -> usize {
        let of_name = size_of::<(u64, Binding)>() + Index::ENTRY;
        let alias = |b: &Binding| 2 * b.name.alias.len();
        let of = |o: &Origin| {
            let aliases: usize = o.bindings().map(alias).sum();
            size_of::<(HostId, Origin)>() + o.len() * of_name + aliases
        };
        self.origins.values().map(of).sum()
    }

    /// Returns true if there is no name.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bindings dropped because their origin had too many.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes the changes since the last call.
    pub fn take_changes(&mut self) -> Vec<NameChange> {
        core::mem::take(&mut self.changes)
    }

    /// Returns the time of the next claim here: later than all that this host has seen.
    pub fn next_stamp(&mut self) -> u64 {
        self.stamp = self.stamp.saturating_add(1);
        self.stamp
    }

    /// Adds a name of this host. Returns its claim, and the change that others shall get.
    pub fn publish(&mut self, name: Claim, stamp: u64) -> (u64, Option<Change>) {
        let is_local = name.scope == Scope::Host;
        let Some(own) = self.origins.get_mut(&self.me) else { return (0, None) };
        let claim = match is_local {
            true => {
                self.locals += 1;
                self.locals
            }
            false => own.head() + 1,
        };
        let publication = Publication { claim, stamp, name };
        let change = (!is_local).then(|| Change::Claimed(publication.clone()));
        if !is_local {
            own.advance(1);
        }
        let binding = own.add(publication);
        show(&mut self.index, &mut self.changes, binding);
        (claim, change)
    }

    /// Ends a claim of this host. Returns the change that others shall get.
    pub fn withdraw(&mut self, claim: u64, gone: Gone) -> Option<Change> {
        let own = self.origins.get_mut(&self.me)?;
        let binding = own.remove(claim)?;
        let change = (claim & LOCAL == 0).then(|| {
            own.advance(1);
            own.log(&binding, gone, self.log_max);
            Change::Withdrawn { claim, gone }
        });
        hide(&mut self.index, &mut self.changes, binding, gone);
        change
    }

    /// Gives the names of this host to a later life of its agent.
    pub fn relive(&mut self, life: Life) {
        let Some(own) = self.origins.remove(&self.me) else { return };
        let mut next = Origin::new(self.me, life, true);
        next.advance(own.head());
        let gone = Gone::Replaced { incarnation: life.incarnation };
        for binding in own.into_bindings() {
            let Binding { id, stamp, name } = binding.clone();
            hide(&mut self.index, &mut self.changes, binding, gone);
            let binding = next.add(Publication { claim: id.claim, stamp, name });
            show(&mut self.index, &mut self.changes, binding);
        }
        // Numbers of changes go on, and none of the earlier life can be asked for.
        next.seal();
        self.origins.insert(self.me, next);
    }

    /// Prepares for the names of a life of another host; those of an earlier life go.
    pub fn expect(&mut self, host: HostId, life: Life, is_up: bool) {
        if host == self.me {
            return;
        }
        if self.origins.get(&host).is_some_and(|o| o.life() != life) {
            self.forget(host, Gone::Replaced { incarnation: life.incarnation });
        }
        self.origins.entry(host).or_insert_with(|| Origin::new(host, life, is_up));
    }

    /// Drops all names of another host.
    pub fn forget(&mut self, host: HostId, gone: Gone) {
        if host == self.me {
            return;
        }
        if let Some(origin) = self.origins.remove(&host).filter(Origin::is_shown) {
            for binding in origin.into_bindings() {
                hide(&mut self.index, &mut self.changes, binding, gone);
            }
        }
    }

    /// Shows or hides the names of another host.
    pub fn set_shown(&mut self, host: HostId, is_shown: bool, gone: Gone) {
        let Some(origin) = self.origins.get_mut(&host).filter(|_| host != self.me) else { return };
        if !origin.set_shown(is_shown) {
            return;
        }
        for binding in origin.bindings().cloned() {
            match is_shown {
                true => show(&mut self.index, &mut self.changes, binding),
                false => hide(&mut self.index, &mut self.changes, binding, gone),
            }
        }
    }

    /// Takes changes of another host, the first of which has the number `first`.
    pub fn take_ops(
        &mut self,
        host: HostId,
        life: Life,
        first: u64,
        changes: List<'_, Change>,
    ) -> Taken {
        let origin = self.origins.get(&host).filter(|o| host != self.me && o.life() == life);
        if origin.is_none() || first > NUMBER_MAX {
            return Taken::Stranger;
        }
        for (number, change) in (first..).zip(changes.iter()) {
            let Some(origin) = self.origins.get_mut(&host) else { return Taken::Stranger };
            if number > origin.head() {
                origin.keep(number, change);
            }
            while let Some((number, change)) = self.origins.get_mut(&host).and_then(Origin::due) {
                self.apply(host, number, change);
            }
        }
        match self.origins.get(&host).is_some_and(Origin::has_gap) {
            true => Taken::Gap,
            false => Taken::Up,
        }
    }

    /// Makes the next change of another host.
    fn apply(&mut self, host: HostId, number: u64, change: Change) {
        let Some(origin) = self.origins.get_mut(&host) else { return };
        origin.advance(1);
        match change {
            Change::Claimed(publication) if publication.claim == number => {
                self.stamp = self.stamp.max(publication.stamp.min(NUMBER_MAX));
                if origin.len() >= self.names_max {
                    self.refused += 1;
                    return;
                }
                // A piece of a snapshot may have brought it.
                if origin.has(number) {
                    return;
                }
                let binding = origin.add(publication);
                if origin.is_shown() {
                    show(&mut self.index, &mut self.changes, binding);
                }
            }
            Change::Withdrawn { claim, gone } => {
                let Some(binding) = origin.remove(claim) else { return };
                origin.log(&binding, gone, self.log_max);
                if origin.is_shown() {
                    hide(&mut self.index, &mut self.changes, binding, gone);
                }
            }
            Change::Claimed(_) => self.refused += 1,
        }
    }

    /// Takes a piece of the whole table of another host: the claims behind `after` up to `upto`,
    /// of a table that contains `head` changes.
    pub fn take_snapshot(
        &mut self,
        host: HostId,
        life: Life,
        (head, after, upto): (u64, u64, u64),
        items: List<'_, Publication>,
    ) -> Taken {
        let Some(origin) = self.origins.get_mut(&host).filter(|_| host != self.me) else {
            return Taken::Stranger;
        };
        if origin.life() != life || head > NUMBER_MAX {
            return Taken::Stranger;
        }
        if head <= origin.head() {
            return Taken::Up;
        }
        if !origin.may_take(head, after) || upto > head || upto < after {
            return Taken::Gap;
        }
        let is_shown = origin.is_shown();
        let within = |claim: u64| claim > after && claim <= upto;
        let gone: Vec<u64> = {
            let listed: alloc::collections::BTreeSet<u64> = items.iter().map(|p| p.claim).collect();
            origin.claims(after, upto).filter(|claim| !listed.contains(claim)).collect()
        };
        for claim in gone {
            let Some(binding) = origin.remove(claim) else { continue };
            if is_shown {
                hide(&mut self.index, &mut self.changes, binding, Gone::Missing);
            }
        }
        for publication in items.iter().filter(|p| within(p.claim)) {
            self.stamp = self.stamp.max(publication.stamp.min(NUMBER_MAX));
            if origin.has(publication.claim) {
                continue;
            }
            if origin.len() >= self.names_max {
                self.refused += 1;
                continue;
            }
            let binding = origin.add(publication);
            if is_shown {
                show(&mut self.index, &mut self.changes, binding);
            }
        }
        match origin.took(head, upto) {
            true => Taken::Up,
            false => Taken::Gap,
        }
    }

    /// Returns a binding by its number.
    pub fn get(&self, id: BindingId) -> Option<&Binding> {
        let origin = self.origins.get(&id.host).filter(|o| o.life() == id.life)?;
        origin.get(id.claim)
    }

    /// Finds the owner of an instance of a name, as seen by a user.
    pub fn look_up(
        &mut self,
        policy: &Policy,
        user: u32,
        (kind, instance): (u32, u32),
        pick: Pick,
    ) -> Option<&Binding> {
        let origins = &self.origins;
        let of = |id: &BindingId| origins.get(&id.host)?.get(id.claim);
        let may_see = |b: &Binding| policy.may_see(user, kind, b.name.owner.user);
        let (service, turn) = self.index.service(kind)?;
        let matches =
            || service.matches(instance, instance).filter(|id| of(id).is_some_and(may_see));
        // Where a unique name has two owners for a moment, all hosts answer with the older claim.
        let unique = matches().filter_map(of).filter(|b| b.name.unique);
        if let Some(owner) = unique.min_by_key(|b| b.seniority()) {
            return Some(owner);
        }
        let here = |id: &&BindingId| id.host == self.me;
        let near = pick == Pick::Nearest && matches().any(|id| here(&id));
        let chosen = || matches().filter(|id| !near || here(id));
        let count = chosen().count();
        if count == 0 {
            return None;
        }
        *turn = turn.wrapping_add(1);
        chosen().nth(*turn % count).and_then(of)
    }

    /// Returns all bindings that overlap a range of instances, as seen by a user.
    pub fn all<'a>(
        &'a self,
        policy: &'a Policy,
        user: u32,
        kind: u32,
        lower: u32,
        upper: u32,
    ) -> impl Iterator<Item = &'a Binding> + 'a {
        let service = self.index.get(kind);
        let ids = service.into_iter().flat_map(move |s| s.matches(lower, upper));
        ids.filter_map(|id| self.get(*id))
            .filter(move |b| policy.may_see(user, kind, b.name.owner.user))
    }

    /// Returns the bindings of an alias, as seen by a user.
    pub fn by_alias<'a>(
        &'a self,
        policy: &'a Policy,
        user: u32,
        alias: &str,
    ) -> impl Iterator<Item = &'a Binding> + 'a {
        let ids = self.index.alias(alias);
        ids.filter_map(|id| self.get(*id))
            .filter(move |b| policy.may_see(user, b.name.kind, b.name.owner.user))
    }

    /// Returns the shown owner that keeps a claim with this stamp of this host from a name: where
    /// one of both is unique, an older claim.
    pub fn rival(&self, name: &Claim, id: Option<BindingId>, stamp: u64) -> Option<&Binding> {
        let service = self.index.get(name.kind)?;
        service
            .matches(name.lower, name.upper)
            .filter(|other| Some(**other) != id)
            .filter_map(|other| self.get(*other))
            .filter(|other| name.unique || other.name.unique)
            .find(|other| other.seniority() < (stamp, self.me))
    }

    /// Returns all shown bindings of a type.
    pub fn types(&self) -> impl Iterator<Item = u32> + '_ {
        self.index.kinds()
    }
}

fn show(index: &mut Index, changes: &mut Vec<NameChange>, binding: Binding) {
    index.insert(&binding);
    changes.push(NameChange::Published(binding));
}

fn hide(index: &mut Index, changes: &mut Vec<NameChange>, binding: Binding, gone: Gone) {
    index.remove(&binding);
    changes.push(NameChange::Withdrawn(binding, gone));
}

//! Policy: which users may claim and see which types, on this host.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// The names of a type that a user sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum See {
    /// All.
    All,
    /// Names of owners with the same user number.
    Own,
    /// None.
    None,
}

/// One rule: it holds for these users and these types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The users.
    pub users: RangeInclusive<u32>,
    /// The types.
    pub kinds: RangeInclusive<u32>,
    /// True if they may claim.
    pub claim: bool,
    /// The names that they see.
    pub see: See,
}

/// Rules in order; the first that holds counts. And the users who count as one.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    payer: fn(u32) -> u32,
}

impl Policy {
    /// Types below are reserved for the agent itself, as TIPC reserves them.
    pub const RESERVED: u32 = 64;

    /// Puts rules before the default, by which all see all names, and types below 64 are claimed
    /// by user 0 alone.
    pub fn new(mut rules: Vec<Rule>) -> Policy {
        let reserved = 0..=Policy::RESERVED - 1;
        rules.push(Rule { users: 1..=u32::MAX, kinds: reserved, claim: false, see: See::All });
        rules.push(Rule { users: 0..=u32::MAX, kinds: 0..=u32::MAX, claim: true, see: See::All });
        Policy { rules, payer: |user| user }
    }

    /// Counts users as one for bounds of one user; `payer` returns the one who answers for what a
    /// user takes.
    pub fn counting(self, payer: fn(u32) -> u32) -> Policy {
        Policy { payer, ..self }
    }

    /// Counts those of `users` that count as `user`.
    pub fn count(&self, user: u32, users: impl Iterator<Item = u32>) -> usize {
        let payer = (self.payer)(user);
        users.filter(|other| (self.payer)(*other) == payer).count()
    }

    fn rule(&self, user: u32, kind: u32) -> Option<&Rule> {
        self.rules.iter().find(|r| r.users.contains(&user) && r.kinds.contains(&kind))
    }

    /// Returns true if the user may claim names of the type.
    pub fn may_claim(&self, user: u32, kind: u32) -> bool {
        self.rule(user, kind).is_some_and(|rule| rule.claim)
    }

    /// Returns true if the user sees names of the type that this owner has.
    pub fn may_see(&self, user: u32, kind: u32, owner: u32) -> bool {
        self.rule(user, kind).is_some_and(|rule| match rule.see {
            See::All => true,
            See::Own => user == owner,
            See::None => false,
        })
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::new(Vec::new())
    }
}

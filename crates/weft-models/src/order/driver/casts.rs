//! The casts of a member: those that wait for room, and the multicast groups of its views.

use crate::net::{Net, Unsent};
use std::cell::RefCell;
use std::collections::VecDeque;

/// Multicast groups that a member has: that of its view, and that of the view before, whose packets
/// it forwards to members that are there still.
const GROUPS_KEPT: usize = 2;

/// Casts that wait, and the groups that they go to.
pub(super) struct Casts<N: Net> {
    waiting: RefCell<VecDeque<(u8, Vec<u8>)>>,
    /// The group of the view, if it has more than one member.
    group: RefCell<Option<N::Group>>,
    /// The groups of the last views, the oldest first.
    groups: RefCell<VecDeque<N::Group>>,
}

impl<N: Net> Default for Casts<N> {
    fn default() -> Casts<N> {
        Casts { waiting: RefCell::default(), group: RefCell::default(), groups: RefCell::default() }
    }
}

impl<N: Net> Casts<N> {
    /// Returns the number of casts that wait.
    pub fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    pub fn push(&self, kind: u8, bytes: Vec<u8>) {
        self.waiting.borrow_mut().push_back((kind, bytes));
    }

    pub fn clear(&self) {
        self.waiting.borrow_mut().clear();
    }

    /// Sends the first cast that waits. `None`: there is none, or no group.
    pub fn send_next(&self, net: &N, handler: u16) -> Option<Result<(), Unsent>> {
        let sent = {
            let (waiting, group) = (self.waiting.borrow(), self.group.borrow());
            let ((kind, bytes), group) = (waiting.front()?, group.as_ref()?);
            net.try_multicast(group, handler, u32::from(*kind), bytes)
        };
        if sent.is_ok() {
            self.waiting.borrow_mut().pop_front();
        }
        Some(sent)
    }

    /// Keeps the group of a view, and ends older ones.
    pub fn keep(&self, net: &N, group: Option<&N::Group>) {
        let mut groups = self.groups.borrow_mut();
        groups.extend(group.cloned());
        while groups.len() > GROUPS_KEPT {
            if let Some(old) = groups.pop_front() {
                net.end_group(&old);
            }
        }
    }

    /// Sends casts to a group from now on.
    pub fn send_to(&self, group: Option<N::Group>) {
        self.group.replace(group);
    }

    /// Ends all groups.
    pub fn end(&self, net: &N) {
        self.groups.take().iter().for_each(|group| net.end_group(group));
    }
}

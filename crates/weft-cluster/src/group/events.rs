//! The events of a membership that wait for its program.

use super::{GroupNotice, EVENTS_MAX};
use std::collections::VecDeque;

/// Events for the program, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Messages with their number.
    waiting: VecDeque<(GroupNotice, u64)>,
    /// Number of events that are no messages, which windows bound.
    pub notices: usize,
    /// Number of events that the program was given.
    seq: u64,
}

impl Events {
    /// True if changes of the group are told still.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < EVENTS_MAX
    }

    /// True if so many changes wait that members who make more are not heard.
    pub fn is_flooded(&self) -> bool {
        self.notices >= 2 * EVENTS_MAX
    }

    /// Adds an event that is no message.
    pub fn tell(&mut self, notice: GroupNotice) {
        self.notices += 1;
        self.waiting.push_back((notice, 0));
    }

    /// Adds a message with its number.
    pub fn deliver(&mut self, message: GroupNotice, number: u64) {
        self.waiting.push_back((message, number));
    }

    /// Returns the next event.
    pub fn first(&self) -> Option<&GroupNotice> {
        self.waiting.front().map(|(notice, _)| notice)
    }

    /// Takes the next event: its number from 1, the event, and of a message the number of that.
    pub fn take(&mut self) -> Option<(u64, GroupNotice, u64)> {
        let (event, number) = self.waiting.pop_front()?;
        self.notices -= usize::from(!matches!(event, GroupNotice::Message { .. }));
        self.seq += 1;
        Some((self.seq, event, number))
    }
}

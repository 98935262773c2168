//! The way of broadcasts between ranks, and to objects.

use super::casts::{children, Debt, Kept};
use super::entry::Entry;
use super::queue::Item;
use super::runtime::{work_of, Inner};
use super::wire::{Content, Note};
use crate::net::Net;
use std::rc::Rc;

impl<N: Net> Inner<N> {
    /// Begins a broadcast to a section of an array.
    pub fn cast(&self, array: u16, section: u16, priority: i32, what: (Content, &[u8])) {
        let (content, bytes) = what;
        if self.net.rank() > 0 {
            return self.note(0, &Note::Broadcast { array, section, priority, bytes });
        }
        let Some(entry) = self.entry(array) else {
            return self.fault(None, format!("a broadcast to array {array}, which is not made"));
        };
        let number = {
            let mut casts = entry.casts.borrow_mut();
            casts.last += 1;
            casts.last
        };
        self.take_cast(&entry, array, (number, section, priority), (content, bytes));
    }

    /// Passes a broadcast on, and gives it to the objects that are here.
    pub fn take_cast(
        &self,
        entry: &Entry,
        array: u16,
        (number, section, priority): (u32, u16, i32),
        (content, bytes): (Content, &[u8]),
    ) {
        let note = Note::Cast { array, number, section, priority, content, bytes };
        children(self.net.rank(), self.net.size()).for_each(|child| self.note(child, &note));
        if !entry.has(section) {
            let text = format!("a broadcast to section {section}, which this rank has not made");
            return self.fault(None, text);
        }
        let bytes: Rc<[u8]> = bytes.into();
        if content != Content::Message {
            entry.results.borrow_mut().insert(section, Rc::clone(&bytes));
        }
        let members = entry.members(section);
        for element in entry.store.hearers(number, members.as_deref()) {
            let work = work_of(content, Rc::clone(&bytes));
            self.queue.borrow_mut().push(Item { array, element, priority, origin: None, work });
        }
        {
            let mut casts = entry.casts.borrow_mut();
            casts.heard = number;
            if !casts.debts.is_empty() {
                casts.kept.push(Kept { number, section, priority, content, bytes });
            }
        }
        self.pay(entry, array);
    }

    /// Notes how many broadcasts the new rank of an object had passed on when the object came.
    pub fn settle(&self, entry: &Entry, array: u16, (element, moves): (u32, u32), heard: u32) {
        {
            let mut casts = entry.casts.borrow_mut();
            let waits = |debt: &&mut Debt| (debt.element, debt.moves) == (element, moves);
            if let Some(debt) = casts.debts.iter_mut().find(waits) {
                debt.until = Some(heard);
            }
        }
        self.pay(entry, array);
    }

    /// Sends to objects that have left the broadcasts that they have missed.
    fn pay(&self, entry: &Entry, array: u16) {
        if entry.casts.borrow().debts.is_empty() {
            return;
        }
        let due = entry.casts.borrow_mut().due();
        for (element, at) in due {
            let item = {
                let casts = entry.casts.borrow();
                let kept = &casts.kept[at];
                let Kept { section, priority, content, .. } = *kept;
                let members = entry.members(section);
                let is_for_it = members.is_none_or(|all| all.binary_search(&element).is_ok());
                let work = work_of(content, Rc::clone(&kept.bytes));
                is_for_it.then_some(Item { array, element, priority, origin: None, work })
            };
            if let Some(item) = item {
                // The object is not here, or it is again: the queue finds the way.
                self.queue.borrow_mut().push(item);
            }
        }
        let mut casts = entry.casts.borrow_mut();
        if casts.debts.is_empty() {
            casts.kept.clear();
        }
    }
}

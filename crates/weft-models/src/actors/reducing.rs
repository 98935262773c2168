//! The way of reductions between ranks.

use super::casts::parent;
use super::entry::Entry;
use super::reduce::Sum;
use super::runtime::Inner;
use super::wire::{Content, Note};
use crate::net::Net;
use std::any::Any;

impl<N: Net> Inner<N> {
    /// Takes the contribution of an object here.
    pub fn contribute(
        &self,
        entry: &Entry,
        (array, section, round): (u16, u16, u32),
        value: Box<dyn Any>,
    ) {
        if !entry.has(section) {
            return self
                .fault(None, format!("a contribution to section {section}, which is not made"));
        }
        let mut rounds = entry.rounds.borrow_mut();
        let moves = rounds.moves;
        let combined = match rounds.open.get_mut(&(section, round)) {
            Some(sum) => {
                sum.count += 1;
                sum.passed += 1;
                entry.store.combine(&mut sum.value, value)
            }
            None => {
                let members = entry.members(section);
                let passed = entry.store.passed(section, round, members.as_deref());
                let sum = Sum { count: 1, value, passed, moves };
                rounds.open.insert((section, round), sum);
                Ok(())
            }
        };
        if let Err(text) = combined {
            return self.fault(None, text);
        }
        let complete = rounds.complete(entry, (section, round));
        drop(rounds);
        if let Some(Sum { count, value, .. }) = complete {
            self.pass_up(entry, (array, section, round), count, value);
        }
    }

    /// Takes what ranks below have combined.
    pub fn take_partial(
        &self,
        entry: &Entry,
        (array, section, round): (u16, u16, u32),
        count: u32,
        value: &[u8],
    ) {
        let value = match entry.store.decode_value(value) {
            Ok(value) => value,
            Err(text) => return self.fault(None, format!("a part of a reduction: {text}")),
        };
        let mut rounds = entry.rounds.borrow_mut();
        let combined = match rounds.open.get_mut(&(section, round)) {
            Some(sum) => {
                sum.count += count;
                entry.store.combine(&mut sum.value, value)
            }
            None => {
                drop(rounds);
                return self.pass_up(entry, (array, section, round), count, value);
            }
        };
        if let Err(text) = combined {
            self.fault(None, text);
        }
    }

    /// Sends a sum towards rank 0, which adds it to the total and broadcasts the whole.
    fn pass_up(
        &self,
        entry: &Entry,
        (array, section, round): (u16, u16, u32),
        count: u32,
        value: Box<dyn Any>,
    ) {
        let rank = self.net.rank();
        if rank > 0 {
            return match entry.store.encode_value(&*value) {
                Ok(value) => {
                    let value = &value[..];
                    self.note(parent(rank), &Note::Partial { array, section, round, count, value });
                }
                Err(text) => self.fault(None, text),
            };
        }
        let all = entry.members(section).map_or(entry.shape.len() as u32, |all| all.len() as u32);
        let mut rounds = entry.rounds.borrow_mut();
        let (sum, total) = match rounds.totals.remove(&(section, round)) {
            None => (count, Ok(value)),
            Some((before, mut total)) => {
                let combined = entry.store.combine(&mut total, value);
                (before + count, combined.map(|()| total))
            }
        };
        let total = match total {
            Ok(total) if sum < all => {
                rounds.totals.insert((section, round), (sum, total));
                return;
            }
            Ok(total) => entry.store.encode_value(&*total),
            Err(text) => Err(text),
        };
        drop(rounds);
        match total {
            Ok(bytes) => self.cast(array, section, 0, (Content::Reduced(section), &bytes)),
            Err(text) => self.fault(None, text),
        }
    }

    /// Looks for rounds that are complete here since an object has come or left.
    pub fn look_at_rounds(&self, entry: &Entry, array: u16) {
        let open: Vec<_> = entry.rounds.borrow().open.keys().copied().collect();
        for (section, round) in open {
            let complete = entry.rounds.borrow_mut().complete(entry, (section, round));
            if let Some(Sum { count, value, .. }) = complete {
                self.pass_up(entry, (array, section, round), count, value);
            }
        }
    }
}

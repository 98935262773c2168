//! Messages outside of the order of a view: those without order, and those of later views.

use super::MESSAGE_MAX;
use crate::order::wire::{cast, Control, Reader};
use std::collections::BTreeMap;

/// Begun messages without order, by sender: packets that follow, and the bytes so far.
#[derive(Default)]
pub(super) struct Loose(BTreeMap<u32, (u32, Vec<u8>)>);

impl Loose {
    /// Forgets messages of which a part is missing.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Takes a packet; returns the message that it ends. One of which packets are missing is lost.
    pub fn take(&mut self, from: u32, mut reader: Reader<'_>) -> Option<Vec<u8>> {
        let head = reader.u32()?;
        let left = head & !cast::FIRST;
        let begun = self.0.remove(&from).filter(|(follow, _)| *follow == left + 1);
        let mut whole = match (head & cast::FIRST, begun) {
            (0, begun) => begun?.1,
            _ => Vec::new(),
        };
        whole.extend_from_slice(reader.0);
        match left {
            0 => Some(whole),
            _ => {
                if whole.len() <= MESSAGE_MAX {
                    self.0.insert(from, (left, whole));
                }
                None
            }
        }
    }
}

/// A message of a later view, kept until this member has that view.
pub(super) enum Early {
    Control(u32, Control),
    Cast(u32, u8, Vec<u8>),
}

impl Early {
    /// Returns the number of the view that the message is of.
    fn epoch(&self) -> u32 {
        let view = match self {
            Early::Control(_, control) => control.view(),
            Early::Cast(_, _, bytes) => Reader(bytes).view(),
        };
        view.unwrap_or_default().epoch
    }
}

/// Messages of later views, by sender.
#[derive(Default)]
pub(super) struct Earlies(BTreeMap<u32, Vec<Early>>);

impl Earlies {
    /// Keeps a message. A sender has at most a window of slots and acknowledgements in a view; of
    /// messages without order beyond that some are missing.
    pub fn keep(&mut self, early: Early, window: u64) {
        let (from, most) = match &early {
            Early::Control(from, _) => (*from, 8),
            Early::Cast(from, cast::LOOSE, _) => (*from, 4),
            Early::Cast(from, ..) => (*from, 8),
        };
        let kept = self.0.entry(from).or_default();
        if kept.len() < most * window as usize {
            kept.push(early);
        }
    }

    /// Forgets messages of views up to a number.
    pub fn forget(&mut self, epoch: u32) {
        self.0.retain(|_, kept| {
            kept.retain(|early| early.epoch() > epoch);
            !kept.is_empty()
        });
    }

    /// Takes all messages.
    pub fn take(&mut self) -> impl Iterator<Item = Early> {
        std::mem::take(&mut self.0).into_values().flatten()
    }

    /// Returns the number of messages.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}

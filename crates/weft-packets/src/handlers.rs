//! The handlers of packets, by number.

use super::receive::Waiting;
use super::{Packet, Packets};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

pub(super) type Handler = Rc<RefCell<dyn FnMut(&Packets, Packet<'_>)>>;

/// The receiver of the packets for one handler number.
#[derive(Default)]
pub(super) enum Slot {
    /// None: the packets are dropped.
    #[default]
    Nobody,
    /// With the number of the setting.
    Upcall(Handler, u64),
    /// The packets wait for a receive. The queue is bounded by the senders' credit, which grows
    /// while there is room (`unexpected_max`), and by the credit of the trees of multicasts.
    Mailbox(VecDeque<Waiting>),
}

/// The handlers of an endpoint.
#[derive(Default)]
pub(super) struct Handlers {
    slots: Vec<Slot>,
    /// Numbers whose packets wait until their handlers are set.
    patient: Range<u16>,
    /// Settings of upcalls so far.
    settings: u64,
}

impl Handlers {
    /// Lets packets for these numbers wait until their handlers are set.
    pub fn wait_for(&mut self, numbers: Range<u16>) {
        self.patient = numbers;
    }

    /// Returns the number of a new setting of an upcall.
    pub fn next_setting(&mut self) -> u64 {
        self.settings += 1;
        self.settings
    }

    /// Sets the handler of a number; returns the one before.
    pub fn set(&mut self, number: u16, slot: Slot) -> Slot {
        std::mem::replace(self.slot(number), slot)
    }

    fn slot(&mut self, number: u16) -> &mut Slot {
        let at = usize::from(number);
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, Slot::default);
        }
        &mut self.slots[at]
    }

    /// Returns the handler of a number, if one was ever set.
    #[inline]
    pub fn get(&self, number: u16) -> Option<&Slot> {
        self.slots.get(usize::from(number))
    }

    /// Returns the handler of a number, if one was ever set.
    #[inline]
    pub fn get_mut(&mut self, number: u16) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(number))
    }

    /// Returns the upcall of a number, if it has one.
    #[inline]
    pub fn upcall(&self, number: u16) -> Option<Handler> {
        match self.get(number) {
            Some(Slot::Upcall(handler, _)) => Some(Handler::clone(handler)),
            _ => None,
        }
    }

    /// True if a number has an upcall.
    pub fn has_upcall(&self, number: u16) -> bool {
        matches!(self.get(number), Some(Slot::Upcall(..)))
    }

    /// True if the upcall of a number is that of a setting.
    pub fn is_setting(&self, number: u16, setting: u64) -> bool {
        matches!(self.get(number), Some(Slot::Upcall(_, is)) if *is == setting)
    }

    /// Returns the mailbox of a number, if it has one; a number whose packets wait for its handler
    /// has one from its first packet on.
    #[inline]
    pub fn mailbox(&mut self, number: u16) -> Option<&mut VecDeque<Waiting>> {
        if self.patient.contains(&number) {
            let slot = self.slot(number);
            if matches!(slot, Slot::Nobody) {
                *slot = Slot::Mailbox(VecDeque::new());
            }
        }
        match self.get_mut(number) {
            Some(Slot::Mailbox(waiting)) => Some(waiting),
            _ => None,
        }
    }
}

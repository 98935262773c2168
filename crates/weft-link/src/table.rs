//! Tables that every link over a network keeps: its peers, and its events for the driver.

use crate::LinkEvent;
use std::collections::VecDeque;
use weft_core::PeerId;

/// Peers by the driver's numbers, which are small and have few gaps.
pub(crate) struct PeerTable<P> {
    slots: Vec<Option<Box<P>>>,
}

impl<P> Default for PeerTable<P> {
    fn default() -> PeerTable<P> {
        PeerTable { slots: Vec::new() }
    }
}

impl<P> PeerTable<P> {
    #[inline]
    pub fn get(&self, peer: PeerId) -> Option<&P> {
        self.slots.get(peer.0 as usize)?.as_deref()
    }

    #[inline]
    pub fn get_mut(&mut self, peer: PeerId) -> Option<&mut P> {
        self.slots.get_mut(peer.0 as usize)?.as_deref_mut()
    }

    /// Adds a peer, or replaces its entry.
    pub fn insert(&mut self, peer: PeerId, known: P) {
        let at = peer.0 as usize;
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        self.slots[at] = Some(Box::new(known));
    }

    pub fn remove(&mut self, peer: PeerId) {
        if let Some(slot) = self.slots.get_mut(peer.0 as usize) {
            *slot = None;
        }
    }

    /// Lists the numbers of all peers.
    pub fn ids(&self) -> Vec<PeerId> {
        let taken = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_some());
        taken.map(|(at, _)| PeerId(at as u32)).collect()
    }
}

/// Highest number of events kept for the driver; further events are dropped (all are hints).
const NEWS_MAX: usize = 256;

/// Events that the driver has not fetched yet.
#[derive(Default)]
pub(crate) struct Events {
    events: VecDeque<LinkEvent>,
}

impl Events {
    /// Appends an event, unless it equals the last one.
    pub fn push(&mut self, event: LinkEvent) {
        if self.events.len() < NEWS_MAX && self.events.back() != Some(&event) {
            self.events.push_back(event);
        }
    }

    pub fn warn(&mut self, text: String) {
        self.push(LinkEvent::Warning(text));
    }

    #[inline]
    pub fn pop(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn insert__by_any_number_until_removed() {
        let mut table = PeerTable::default();
        assert!(table.get(PeerId(7)).is_none());
        table.remove(PeerId(7));
        table.insert(PeerId(7), 'a');
        table.insert(PeerId(2), 'b');
        assert_eq!(table.get(PeerId(7)), Some(&'a'));
        assert_eq!(table.get_mut(PeerId(2)), Some(&mut 'b'));
        assert_eq!(table.ids(), [PeerId(2), PeerId(7)]);
        table.insert(PeerId(7), 'c');
        assert_eq!(table.get(PeerId(7)), Some(&'c'));
        table.remove(PeerId(7));
        assert_eq!((table.get(PeerId(7)), table.ids()), (None, vec![PeerId(2)]));
    }

    #[test]
    fn push__bounded_and_without_repetition() {
        let mut events = Events::default();
        for n in 0..1000 {
            events.push(LinkEvent::Mtu(PeerId(1), n));
            events.push(LinkEvent::Mtu(PeerId(1), n));
        }
        let all: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        assert_eq!(all.len(), NEWS_MAX);
        assert_eq!(all[1], LinkEvent::Mtu(PeerId(1), 1));
        events.warn("once more".into());
        assert_eq!(events.pop(), Some(LinkEvent::Warning("once more".into())));
    }
}

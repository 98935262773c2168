//! The peers of a link, and the callers.

use super::peer::Peer;
use std::ops::{Deref, DerefMut};
use weft_core::PeerId;

/// Entries of `index` that are not an index.
const NEVER: u32 = u32::MAX;
const GONE: u32 = u32::MAX - 1;

/// A list of peers and callers, where peers are found by their numbers. The order changes when one
/// is removed.
#[derive(Debug, Default)]
pub(super) struct Peers {
    list: Vec<Peer>,
    /// By peer number: index in `list`, `GONE` or `NEVER`.
    index: Vec<u32>,
    /// Processes of peers that are gone, until the driver disconnects them.
    gone: Vec<(PeerId, i32)>,
    /// Index of the peer that is read first.
    first: usize,
}

impl Deref for Peers {
    type Target = [Peer];

    #[inline]
    fn deref(&self) -> &[Peer] {
        &self.list
    }
}

impl DerefMut for Peers {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Peer] {
        &mut self.list
    }
}

impl Peers {
    /// Returns a peer that is connected.
    #[inline]
    pub(super) fn find(&self, peer: PeerId) -> Option<&Peer> {
        let at = *self.index.get(peer.0 as usize)?;
        self.list.get(at as usize)
    }

    /// Returns a peer that is connected.
    #[inline]
    pub(super) fn find_mut(&mut self, peer: PeerId) -> Option<&mut Peer> {
        let at = *self.index.get(peer.0 as usize)?;
        self.list.get_mut(at as usize)
    }

    /// Returns the index of a peer that is connected.
    pub(super) fn position_of(&self, peer: PeerId) -> Option<usize> {
        let at = self.index.get(peer.0 as usize).map(|&at| at as usize);
        at.filter(|&at| at < self.list.len())
    }

    /// Returns the index of the peer that is read first now, another one each time.
    #[inline]
    pub(super) fn turn(&mut self) -> usize {
        self.first = if self.first + 1 < self.list.len() { self.first + 1 } else { 0 };
        self.first
    }

    fn set_index(&mut self, peer: PeerId, at: u32) {
        let needed = peer.0 as usize + 1;
        if self.index.len() < needed {
            self.index.resize(needed, NEVER);
        }
        self.index[peer.0 as usize] = at;
    }

    /// Adds a caller; returns its index.
    pub(super) fn add(&mut self, caller: Peer) -> usize {
        self.list.push(caller);
        self.list.len() - 1
    }

    /// Gives the caller at an index its peer number.
    pub(super) fn name(&mut self, at: usize, id: PeerId) {
        self.list[at].id = Some(id);
        self.set_index(id, at as u32);
    }

    /// Removes the connection at an index.
    pub(super) fn remove(&mut self, at: usize) -> Peer {
        let peer = self.list.swap_remove(at);
        if let Some(id) = self.list.get(at).and_then(|moved| moved.id) {
            self.set_index(id, at as u32);
        }
        peer
    }

    /// Notes that a peer is gone, and its process.
    pub(super) fn note_gone(&mut self, id: PeerId, process: i32) {
        self.set_index(id, GONE);
        self.gone.push((id, process));
    }

    /// Returns the process of a peer, also of one that is gone.
    pub(super) fn process_of(&self, id: PeerId) -> Option<i32> {
        let gone = || self.gone.iter().find(|(gone, _)| *gone == id).map(|(_, process)| *process);
        self.find(id).map(|p| p.direct.process()).or_else(gone)
    }

    /// Removes a peer that the driver disconnects.
    pub(super) fn forget(&mut self, peer: PeerId) {
        if let Some(at) = self.position_of(peer) {
            self.remove(at);
        }
        if let Some(at) = self.index.get_mut(peer.0 as usize) {
            *at = NEVER;
        }
        self.gone.retain(|(gone, _)| *gone != peer);
    }
}

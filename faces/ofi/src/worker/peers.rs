//! Peers, and their numbers in the address vector.

use super::state::State;
use super::Worker;
use crate::abi::{err, ADDR_NONE};
use libc::c_int;
use weft_core::PeerId;

impl Worker {
    /// Returns the peer with this number in the address vector.
    #[inline]
    pub(super) fn peer(&self, state: &mut State, number: u64) -> Result<PeerId, c_int> {
        state.follow_vector()?;
        match state.peers.by_number.get(number as usize) {
            Some(Some(peer)) => Ok(*peer),
            _ => self.find_peer(state, number),
        }
    }

    #[cold]
    fn find_peer(&self, state: &mut State, number: u64) -> Result<PeerId, c_int> {
        let vector = state.bound.vector.as_ref().ok_or(err::ENOAV)?;
        let vector = vector.vector.borrow();
        let address = vector.address(number).ok_or(err::EINVAL)?;
        let peer = self.endpoint.connect(&address).map_err(|why| {
            log::error!("{why}");
            err::EHOSTUNREACH
        })?;
        let at = number as usize;
        if state.peers.by_number.len() <= at {
            state.peers.by_number.resize(at + 1, None);
        }
        state.peers.by_number[at] = Some(peer);
        Ok(peer)
    }

    /// Returns the peer's number in the address vector, or `ADDR_NONE`.
    #[inline]
    pub(super) fn source(&self, state: &mut State, peer: Option<PeerId>) -> u64 {
        let (Some(peer), Ok(())) = (peer, state.follow_vector()) else { return ADDR_NONE };
        match state.peers.numbers.get(peer.0 as usize) {
            Some(&number) if number != ADDR_NONE => number,
            _ => self.find_number(state, peer),
        }
    }

    #[cold]
    fn find_number(&self, state: &mut State, peer: PeerId) -> u64 {
        let find = || {
            let id = self.endpoint.peer(peer).identity()?;
            state.bound.vector.as_ref()?.vector.borrow().find(id)
        };
        let number = find().unwrap_or(ADDR_NONE);
        let at = peer.0 as usize;
        if state.peers.numbers.len() <= at {
            state.peers.numbers.resize(at + 1, ADDR_NONE);
        }
        state.peers.numbers[at] = number;
        number
    }
}

//! Reads and writes of peers' memory in progress, and peers' messages about theirs.

use super::events::Touched;
use super::notice::{notice, parts};
use super::report::Report;
use super::requests::{Answers, Asked};
use crate::abi::{err, RmaIov};
use crate::memory::{Borrowed, Bounce, Pieces};
use crate::slab::Slab;
use libc::c_int;
use std::cell::RefCell;
use std::rc::Rc;
use weft::endpoint::Regions;
use weft::{Endpoint, OpError, PeerId, Rights};
use weft_core::engine::types::Completion;

/// Active messages that report bytes written just before.
pub const NOTICE: u32 = 0x6f_6601;

/// A read or write in progress. Its parts are gets, puts, and the notice of a write whose
/// completion includes the notice's arrival.
pub struct Transfer {
    pub report: Report,
    pub left: u32,
    pub error: Option<OpError>,
    /// The source of a write from a copy.
    pub _copy: Option<Box<Bounce>>,
    pub notice: Option<Box<Bounce>>,
    /// For a read that is reported to the peer: the peer, and the pieces read.
    pub tells: Option<(PeerId, Vec<RmaIov>)>,
}

/// Bytes were written, with data for the completion queue.
pub struct Notice {
    pub from: PeerId,
    pub data: u64,
    pub len: usize,
}

/// State of operations on remote memory.
pub struct Remote {
    pub transfers: Slab<Transfer>,
    notices: Rc<RefCell<Vec<Notice>>>,
    /// Peers' operations on memory of this endpoint, for counters.
    pub touched: Touched,
    /// Atomic operations that wait for an answer.
    pub asked: Asked,
    /// Answers of peers to atomic operations, and answers to peers.
    pub answers: Answers,
}

/// In the context of an engine's operation: it is a part of a transfer.
pub const OF_TRANSFER: u64 = 1 << 32;

/// Returns true if this completion is that of a part of a transfer.
pub fn is_part(c: &Completion) -> bool {
    c.context & OF_TRANSFER != 0
}

/// Returns the completion data of a notice and the number of bytes written; `None` if a part may
/// not be written, so was not.
fn verify(regions: &Regions<'_>, notice: &[u8]) -> Option<[u64; 2]> {
    let need = Rights { read: false, write: true };
    let (written, data) = notice.split_last_chunk::<8>()?;
    let mut total = 0u64;
    for [key, offset, len] in parts(written)? {
        regions.check(key, offset, len, need).ok()?;
        total = total.checked_add(len)?;
    }
    Some([u64::from_le_bytes(*data), total])
}

/// Encodes a notice of these pieces with completion data.
pub fn notice_with(data: u64, remote: &[RmaIov]) -> Vec<u8> {
    let mut bytes = notice(remote);
    bytes.extend_from_slice(&data.to_le_bytes());
    bytes
}

impl Remote {
    pub fn new(endpoint: &Endpoint) -> Remote {
        let notices: Rc<RefCell<Vec<Notice>>> = Rc::default();
        endpoint.active().handle_at_once(NOTICE, |regions, _, data| {
            verify(regions, &data).map(|two| two.map(u64::to_le_bytes).concat())
        });
        let heard = notices.clone();
        endpoint.active().handle(NOTICE, move |_, message| {
            let Some((data, len)) = message.data.split_first_chunk::<8>() else { return };
            let data = u64::from_le_bytes(*data);
            let len = u64::from_le_bytes(len.try_into().unwrap_or_default()) as usize;
            heard.borrow_mut().push(Notice { from: message.source, data, len });
        });
        let touched = Touched::new(endpoint);
        Remote {
            transfers: Slab::default(),
            notices,
            asked: Asked::default(),
            answers: Answers::new(endpoint, touched.clone()),
            touched,
        }
    }

    #[inline]
    pub fn has_events(&self) -> bool {
        !self.notices.borrow().is_empty() || self.touched.has_events() || self.answers.has_events()
    }

    /// Returns true if every operation of this endpoint on memory of others has ended.
    pub fn is_quiet(&self) -> bool {
        self.transfers.is_empty() && self.asked.is_empty()
    }

    /// Takes the notices that have come.
    pub fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.notices.borrow_mut())
    }

    /// Ends some parts of a transfer; returns the transfer if they were the last.
    pub fn ended(&mut self, at: u32, parts: u32, error: Option<OpError>) -> Option<Transfer> {
        let transfer = self.transfers.get_mut(at)?;
        transfer.left = transfer.left.saturating_sub(parts);
        transfer.error = transfer.error.or(error);
        match transfer.left {
            0 => self.transfers.take(at),
            _ => None,
        }
    }
}

/// Bytes of one part: local memory, remote key, remote offset.
pub type Segment = (Borrowed, u64, u64);

/// Cuts local and remote pieces into parts that are contiguous on both sides.
///
/// # Errors
/// The lengths differ, or there is no remote piece.
pub fn segments(local: &Pieces<'_>, remote: &[RmaIov]) -> Result<Vec<Segment>, c_int> {
    let local = local.list();
    let mut out = Vec::with_capacity(local.len().max(remote.len()));
    let mut here = local.iter().copied();
    let mut rest = Borrowed::NONE;
    for there in remote {
        let mut done = 0;
        while done < there.len {
            while rest.len() == 0 {
                rest = here.next().ok_or(err::EINVAL)?;
            }
            let part = rest.part(0, there.len - done);
            let offset = there.addr.checked_add(done as u64).ok_or(err::EINVAL)?;
            out.push((part, there.key, offset));
            rest = rest.part(part.len(), usize::MAX);
            done += part.len();
        }
    }
    if rest.len() > 0 || here.any(|piece| piece.len() > 0) {
        return Err(err::EINVAL);
    }
    if out.is_empty() {
        // A transfer of no bytes still checks the key and completes.
        let first = remote.first().ok_or(err::EINVAL)?;
        out.push((Borrowed::NONE, first.key, first.addr));
    }
    Ok(out)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn remote(pieces: &[(u64, usize)]) -> Vec<RmaIov> {
        pieces.iter().map(|&(addr, len)| RmaIov { addr, len, key: 7 }).collect()
    }

    #[test]
    fn segments__are_contiguous_on_both_sides() {
        let own = Bounce::new(vec![0; 10], &[]);
        let local = [own.memory().part(0, 4), Borrowed::NONE, own.memory().part(4, 6)];
        let remote = remote(&[(100, 3), (200, 0), (300, 7)]);
        let found = segments(&Pieces::Many(&local), &remote).unwrap();
        let start = |memory: Borrowed| memory.start().addr() - own.memory().start().addr();
        let found: Vec<_> = found.iter().map(|s| (start(s.0), s.0.len(), s.2)).collect();
        assert_eq!(found, [(0, 3, 100), (3, 1, 300), (4, 6, 301)]);
    }

    #[test]
    fn segments__of_different_lengths_are_refused_and_of_no_bytes_have_a_key() {
        let own = Bounce::new(vec![0; 4], &[]);
        let local = Pieces::One(own.memory());
        for bad in [&[][..], &[(0, 3)], &[(0, 5)], &[(0, 4), (9, 1)]] {
            assert_eq!(segments(&local, &remote(bad)).err(), Some(err::EINVAL), "{bad:?}");
        }
        assert!(segments(&Pieces::One(Borrowed::NONE), &[]).is_err());
        let none = segments(&Pieces::One(Borrowed::NONE), &remote(&[(5, 0)])).unwrap();
        assert_eq!((none.len(), none[0].0.len(), none[0].1, none[0].2), (1, 0, 7, 5));
    }
}

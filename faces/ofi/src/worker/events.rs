//! Counts of peers' operations on this endpoint's memory (`FI_RMA_EVENT`).
//!
//! The engine serves puts and gets without the provider. An endpoint opened with `FI_RMA_EVENT`
//! therefore sends the peer a report: after a write, in the order of the wire, and after a read,
//! when it has the bytes. The provider executes atomic operations, and counts them itself.

use super::notice::{notice, parts};
use super::Worker;
use crate::abi::RmaIov;
use crate::region::Sums;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use weft::endpoint::Regions;
use weft::{Endpoint, PeerId, Rights};

/// Active messages that report finished operations: the argument is 1 for reads, 0 for writes.
const EVENT: u32 = 0x6f_6605;

/// Reads and writes that are not counted yet, by the key of the region. No longer than the list of
/// regions.
#[derive(Default)]
struct Operations {
    by_key: BTreeMap<u64, [u64; 2]>,
    total: [u64; 2],
}

/// Peers' operations on the memory of an endpoint.
#[derive(Clone, Default)]
pub struct Touched(Rc<RefCell<Operations>>);

impl Touched {
    /// Counts the operations that peers report.
    pub fn new(endpoint: &Endpoint) -> Touched {
        let touched = Touched::default();
        let sums = touched.clone();
        endpoint.active().handle_at_once(EVENT, move |regions, read, parts| {
            sums.told(regions, read == 1, &parts);
            None
        });
        touched
    }

    fn told(&self, regions: &Regions<'_>, read: bool, bytes: &[u8]) {
        let rights = Rights { read, write: !read };
        let Some(parts) = parts(bytes) else { return };
        let parts: Vec<[u64; 3]> = parts.collect();
        // An operation without permission was not executed, so it is not counted.
        let allowed = |p: &[u64; 3]| regions.check(p[0], p[1], p[2], rights).is_ok();
        if parts.iter().all(allowed) {
            self.add(read, parts.iter().map(|p| p[0]));
        }
    }

    /// Adds one operation on these regions.
    pub fn add(&self, read: bool, keys: impl Iterator<Item = u64>) {
        let sums = &mut *self.0.borrow_mut();
        let which = usize::from(read);
        sums.total[which] += 1;
        let mut before = None;
        for key in keys {
            if before != Some(key) {
                sums.by_key.entry(key).or_default()[which] += 1;
            }
            before = Some(key);
        }
    }

    #[inline]
    pub fn has_events(&self) -> bool {
        self.0.borrow().total != [0, 0]
    }
}

impl Worker {
    /// Reports an operation to the peer on whose memory it was, if events are on.
    pub(super) fn report_event(&self, peer: PeerId, read: bool, remote: &[RmaIov]) {
        if let Err(why) = self.endpoint.active().send(peer, EVENT, read.into(), &notice(remote)) {
            log::warn!("{}: an event of remote memory: {why}", self.endpoint.peer(peer).describe());
        }
    }

    /// Moves peers' operations to the counters of the endpoint and of the regions.
    pub(super) fn count_events(&self, touched: &Touched, of_endpoint: &Sums) {
        let operations = std::mem::take(&mut *touched.0.borrow_mut());
        add_up(of_endpoint, operations.total);
        for (key, counts) in operations.by_key {
            if let Some(region) = self.domain.region(key) {
                add_up(&region.sums.borrow(), counts);
            }
        }
    }
}

/// Adds numbers of writes and reads to counters.
fn add_up(sums: &Sums, counts: [u64; 2]) {
    for (sum, count) in sums.iter().zip(counts) {
        if let Some(sum) = sum {
            sum.add_up(count);
        }
    }
}

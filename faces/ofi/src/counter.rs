//! Counters of completions.

use crate::abi::{cap, err};
use crate::domain::Domain;
use crate::members::Member;
use crate::region::{Region, Sum};
use crate::reports::Reports;
use libc::c_int;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// A counter of completions.
pub struct Counter<M> {
    pub reports: Reports<M>,
    value: AtomicU64,
    errors: AtomicU64,
    /// Errors that the caller has been informed of.
    told: AtomicU64,
}

/// Flags of operations on this endpoint's memory, in the order of the counters of a region.
pub const REMOTE: [u64; 2] = [cap::REMOTE_WRITE, cap::REMOTE_READ];

/// Puts a counter in the places whose flags are among `flags`.
pub fn put<C, const N: usize>(
    places: &mut [Option<C>; N],
    of_places: [u64; N],
    flags: u64,
    counter: impl Fn() -> C,
) {
    for (place, flag) in places.iter_mut().zip(of_places) {
        if flags & flag != 0 {
            *place = Some(counter());
        }
    }
}

impl<M: Member> Sum for Counter<M> {
    fn add_up(&self, count: u64) {
        if count > 0 {
            self.value.fetch_add(count, Ordering::Relaxed);
            self.reports.poller.news();
        }
    }
}

impl<M: Member> Counter<M> {
    /// Creates a counter, at which callers wait in a `way`.
    pub fn new(domain: Arc<Domain<M>>, way: c_int) -> Result<Counter<M>, c_int> {
        let zero = || AtomicU64::new(0);
        let reports = Reports::new(domain, way, true)?;
        Ok(Counter { reports, value: zero(), errors: zero(), told: zero() })
    }

    /// Counts an operation that ended well (`ok`) or in an error.
    #[inline]
    pub fn count(&self, ok: bool) {
        let which = if ok { &self.value } else { &self.errors };
        which.fetch_add(1, Ordering::Relaxed);
        self.reports.poller.news();
    }

    /// Makes progress and returns a number of the counter: a caller may do nothing but read it.
    fn read(&self, which: &AtomicU64) -> u64 {
        if let Ok(_inside) = self.reports.domain.lock.enter() {
            self.reports.poller.is_back();
            self.reports.progress();
            self.reports.progress_others();
        }
        which.load(Ordering::Relaxed)
    }

    /// Returns the number of operations that ended well.
    pub fn value(&self) -> u64 {
        self.read(&self.value)
    }

    /// Returns the number of errors, of which the caller is informed thereby.
    pub fn errors(&self) -> u64 {
        let errors = self.read(&self.errors);
        self.told.store(errors, Ordering::Relaxed);
        errors
    }

    /// Has operations of peers on a region counted here, as `flags` say.
    pub fn count_region(self: &Rc<Self>, region: &Region, flags: u64)
    where
        M: 'static,
    {
        put(&mut region.sums.borrow_mut(), REMOTE, flags, || self.clone());
        // A wait on the counter makes progress on all endpoints that serve the region.
        let open = self.reports.domain.members.open();
        open.iter().for_each(|member| self.reports.join(member));
    }

    /// Adds to the numbers.
    pub fn add(&self, value: u64, errors: u64) {
        self.value.fetch_add(value, Ordering::Relaxed);
        self.errors.fetch_add(errors, Ordering::Relaxed);
        self.reports.poller.wake();
    }

    /// Sets the number of operations that ended well.
    pub fn set(&self, value: u64) {
        self.value.store(value, Ordering::Relaxed);
        self.reports.poller.wake();
    }

    /// Sets the number of errors.
    pub fn set_errors(&self, errors: u64) {
        self.errors.store(errors, Ordering::Relaxed);
        self.told.store(errors, Ordering::Relaxed);
        self.reports.poller.wake();
    }

    /// Waits for the threshold. Also returns an error if an operation failed and the caller was not
    /// informed: the counter would never reach the threshold.
    pub fn wait(&self, threshold: u64, timeout: c_int) -> Result<c_int, c_int> {
        let found = self.reports.wait(timeout, || {
            if self.value.load(Ordering::Relaxed) >= threshold {
                return Some(Ok(0));
            }
            let errors = self.errors.load(Ordering::Relaxed);
            let is_new = self.told.swap(errors, Ordering::Relaxed) != errors;
            is_new.then_some(Err(err::EAVAIL))
        })?;
        found.unwrap_or(Err(err::ETIMEDOUT))
    }

    /// Prepares the descriptor for a caller that will sleep outside.
    pub fn try_wait(&self) -> Result<(), c_int> {
        let _inside = self.reports.domain.lock.enter()?;
        self.reports.lend()
    }
}

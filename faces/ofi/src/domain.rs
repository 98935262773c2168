//! Domains.

use crate::abi::{cap, err, KEY_NONE, PROGRESS_AUTO, THREAD_DOMAIN};
use crate::lock::Lock;
use crate::members::{Member, Members};
use crate::memory::Borrowed;
use crate::mover::Step;
use crate::offer::Registration;
use crate::region::Region;
use crate::watchdog::{self, Visited};
use libc::c_int;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use weft_core::engine::Rights;

/// State shared by the objects of a domain.
pub struct Domain<M> {
    pub lock: Lock,
    /// Version of the interface the caller was written for.
    pub api: u32,
    /// Its endpoints.
    pub members: Members<M>,
    /// True if the caller asked for progress without calls (`FI_PROGRESS_AUTO`).
    pub is_auto: bool,
    /// Rules of the caller's memory registration.
    memory: Registration,
    /// The next key that the provider chooses.
    next_key: Cell<u64>,
    /// Registered memory by key, for endpoints yet to be opened.
    regions: RefCell<BTreeMap<u64, Rc<Region>>>,
}

impl<M> Drop for Domain<M> {
    fn drop(&mut self) {
        watchdog::remove(self);
    }
}

impl<M: Member> Visited for Domain<M> {
    fn lock(&self) -> &Lock {
        &self.lock
    }

    fn progress_for_caller(&self) -> bool {
        self.members.open().iter().fold(false, |did, member| did | member.progress_for_caller())
    }

    fn step(&self, step: &Step) -> Result<usize, String> {
        self.members.open().iter().map(|member| member.step(step)).sum()
    }
}

impl<M: Member> Domain<M> {
    /// Creates a domain for a caller of version `api`, with its use of threads, its progress and
    /// its modes of memory registration.
    pub fn new(api: u32, threading: c_int, progress: [c_int; 2], mr_mode: c_int) -> Domain<M> {
        weft_sys::forks::watch();
        Domain {
            lock: Lock::new(threading != THREAD_DOMAIN),
            api,
            is_auto: progress.contains(&PROGRESS_AUTO),
            memory: Registration::of(mr_mode),
            next_key: Cell::new(1),
            members: Members::default(),
            regions: RefCell::default(),
        }
    }

    /// Adds an endpoint.
    pub fn join(&self, member: &Rc<M>) {
        self.members.join(member);
        self.regions.borrow().values().for_each(|region| member.expose(region));
    }

    /// Returns a key that no registered memory has.
    fn fresh_key(&self) -> u64 {
        loop {
            let key = self.next_key.get();
            self.next_key.set(key.wrapping_add(1));
            if key != KEY_NONE && self.region(key).is_none() {
                return key;
            }
        }
    }

    /// Returns the memory registered under a key.
    pub fn region(&self, key: u64) -> Option<Rc<Region>> {
        self.regions.borrow().get(&key).cloned()
    }

    /// Registers memory, any part of which that a peer uses exists until it is unregistered.
    pub fn register(
        &self,
        memory: Borrowed,
        access: u64,
        requested: u64,
    ) -> Result<Rc<Region>, c_int> {
        let rights =
            Rights { read: access & cap::REMOTE_READ != 0, write: access & cap::REMOTE_WRITE != 0 };
        let remote = rights.read || rights.write;
        // Memory registered for local use needs no key; callers give all of it the same one.
        let key = match remote {
            false => KEY_NONE,
            true if self.memory.own_keys => self.fresh_key(),
            true => requested,
        };
        if remote && key == KEY_NONE {
            return Err(err::EKEYREJECTED);
        }
        if remote && self.region(key).is_some() {
            return Err(err::ENOKEY);
        }
        let first = if self.memory.by_address { memory.start() as u64 } else { 0 };
        let region = Rc::new(Region { key, first, memory, rights, sums: RefCell::default() });
        if remote {
            self.members.open().iter().for_each(|member| member.expose(&region));
            self.regions.borrow_mut().insert(key, region.clone());
        }
        Ok(region)
    }

    /// Reverts `register`.
    pub fn unregister(&self, region: &Region) {
        if region.key != KEY_NONE {
            self.members.open().iter().for_each(|member| member.hide(region.key));
            self.regions.borrow_mut().remove(&region.key);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::abi::{mr, version};
    use crate::members::Counted;

    fn domain(mr_mode: c_int) -> (Domain<Counted>, Rc<Counted>) {
        let domain = Domain::new(version(1, 17), THREAD_DOMAIN, [0; 2], mr_mode);
        let member = Rc::new(Counted::default());
        domain.join(&member);
        (domain, member)
    }

    #[test]
    fn register__peers_may_use_it_under_its_key_until_it_is_unregistered() {
        let (domain, member) = domain(0);
        let write = cap::REMOTE_WRITE;
        let region = domain.register(Borrowed::NONE, write, 5).unwrap();
        assert_eq!((region.key, &*member.exposed.borrow()), (5, &vec![5]));
        assert_eq!(domain.register(Borrowed::NONE, write, 5).err(), Some(err::ENOKEY));
        let none = domain.register(Borrowed::NONE, write, KEY_NONE);
        assert_eq!(none.err(), Some(err::EKEYREJECTED));
        let later = Rc::new(Counted::default());
        domain.join(&later);
        assert_eq!(*later.exposed.borrow(), [5], "endpoints that are opened later have it too");
        domain.unregister(&region);
        assert!(member.exposed.borrow().is_empty() && domain.region(5).is_none());
    }

    #[test]
    fn register__the_provider_chooses_keys_where_the_caller_leaves_them_to_it() {
        let (domain, member) = domain(mr::PROV_KEY);
        let key = |access| domain.register(Borrowed::NONE, access, 9).unwrap().key;
        assert_eq!([key(cap::REMOTE_READ), key(cap::REMOTE_READ)], [1, 2]);
        assert_eq!(key(cap::SEND), KEY_NONE, "memory for local use has none");
        assert_eq!(*member.exposed.borrow(), [1, 2]);
    }
}

//! The ring of hosts, and who watches whom.
//!
//! The scheme is TIPC's overlapping ring monitoring (Linux, `net/tipc/monitor.c`; Jon Maloy's
//! description in the TIPC protocol document, section "Neighbor Supervision"). Hosts stand on a
//! ring. Of n hosts each watches the next √n - 1, its domain, and beyond them every √n-th, the head
//! of the next domain; the domain of that head covers the hosts between. So each host watches
//! about 2 √n, is watched by as many, and any host comes to any other over one head. Up to a
//! threshold all watch all. TIPC learns the domains of others from records that they send; here
//! all hosts know the whole ring, so they compute them, and a difference between two views lasts
//! no longer than the news that makes it.

use crate::id::HostId;
use alloc::vec::Vec;

/// Hosts in order of their places.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    places: Vec<(u64, HostId)>,
}

/// Returns the least number whose square is at least `n`.
fn root(n: usize) -> usize {
    let root = n.isqrt();
    root + usize::from(root * root < n)
}

/// Returns the distances of the watched hosts on a ring of `n`, each with the number of hosts
/// behind it that it covers.
fn offsets(n: usize, mesh_max: usize) -> impl Iterator<Item = (usize, usize)> {
    let domain = if n <= mesh_max { n.max(1) } else { root(n) };
    let near = (1..domain.min(n)).map(|offset| (offset, 0));
    let heads = (domain..n).step_by(domain);
    near.chain(heads.map(move |offset| (offset, (domain - 1).min(n - 1 - offset))))
}

impl Ring {
    /// Adds a host.
    pub fn insert(&mut self, host: HostId) {
        let key = (host.place(), host);
        if let Err(at) = self.places.binary_search(&key) {
            self.places.insert(at, key);
        }
    }

    /// Removes a host.
    pub fn remove(&mut self, host: HostId) {
        if let Ok(at) = self.places.binary_search(&(host.place(), host)) {
            self.places.remove(at);
        }
    }

    /// Returns how many hosts stand on it.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns true if it is empty.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the hosts.
    pub fn iter(&self) -> impl Iterator<Item = HostId> + '_ {
        self.places.iter().map(|(_, host)| *host)
    }

    fn at(&self, index: usize) -> HostId {
        self.places[index % self.places.len()].1
    }

    fn index(&self, host: HostId) -> Option<usize> {
        self.places.binary_search(&(host.place(), host)).ok()
    }

    /// Returns the hosts that `host` watches, each with the number of hosts that it covers.
    pub fn watched(&self, host: HostId, mesh_max: usize) -> Vec<(HostId, u16)> {
        let Some(index) = self.index(host) else { return Vec::new() };
        offsets(self.len(), mesh_max)
            .map(|(offset, covers)| (self.at(index + offset), covers.min(u16::MAX.into()) as u16))
            .collect()
    }

    /// Returns the hosts that watch `host`, the nearest first.
    pub fn watchers(&self, host: HostId, mesh_max: usize) -> Vec<HostId> {
        let Some(index) = self.index(host) else { return Vec::new() };
        let n = self.len();
        offsets(n, mesh_max).map(|(offset, _)| self.at(index + n - offset)).collect()
    }

    /// Returns the next `count` hosts behind `host`.
    pub fn next(&self, host: HostId, count: usize) -> Vec<HostId> {
        let Some(index) = self.index(host) else { return Vec::new() };
        (1..=count.min(self.len() - 1)).map(|offset| self.at(index + offset)).collect()
    }

    /// Returns the host that decides about something of this number: the greatest of a hash of
    /// both, so that few decisions move when a host comes or goes.
    pub fn arbiter(&self, number: u64, others: impl Iterator<Item = HostId>) -> Option<HostId> {
        let rank = |host: &HostId| crate::id::mix_all(&[number, host.0]);
        self.iter().chain(others).max_by_key(rank)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    fn ring(n: u64) -> Ring {
        let mut ring = Ring::default();
        (0..n).for_each(|h| ring.insert(HostId(h)));
        ring
    }

    #[test]
    fn watched__grows_like_the_root() {
        for n in [33, 64, 256, 1000, 4096] {
            let watched = ring(n).watched(HostId(3), 32).len() as f64;
            assert!(watched <= 2.0 * (n as f64).sqrt() + 1.0, "{n}: {watched}");
        }
        assert_eq!(ring(32).watched(HostId(3), 32).len(), 31);
        assert_eq!(ring(1).watched(HostId(0), 32).len(), 0);
    }

    #[test]
    fn watched__covers_every_other_host_once() {
        for n in [2, 3, 31, 33, 37, 100, 1000] {
            let ring = ring(n);
            let mut covered = Vec::new();
            for (host, covers) in ring.watched(HostId(1), 32) {
                covered.push(host);
                covered.extend(ring.next(host, usize::from(covers)));
            }
            let distinct: BTreeSet<_> = covered.iter().collect();
            assert_eq!((covered.len(), distinct.len()), (n as usize - 1, n as usize - 1));
            assert!(!distinct.contains(&HostId(1)));
        }
    }

    #[test]
    fn watchers__are_those_that_watch() {
        for n in [2, 33, 100, 257] {
            let ring = ring(n);
            for host in 0..n {
                for watcher in ring.watchers(HostId(host), 32) {
                    let watched = ring.watched(watcher, 32);
                    assert!(watched.iter().any(|(h, _)| *h == HostId(host)), "{n}");
                }
            }
        }
    }
}

//! The ranks that can still send to a receive from any rank.

use super::{Group, NO_LINK};
use crate::endpoint::{PeerWatch, Sleep};
use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;
use weft_core::{OpError, PeerFailure};

/// The time after which ranks are watched, if warnings about waits are off.
pub(super) const WATCH_AFTER: Duration = Duration::from_secs(5);

/// The other ranks of a group, as possible senders to one receive from any rank.
pub(super) struct Senders<'a> {
    group: &'a Group,
    /// Number of failures reported before this receive began.
    known: usize,
    /// Number of failures of the endpoint's peers at the last check.
    failures: Option<u64>,
    patience: Option<Sleep>,
    /// Set when the time of patience has passed.
    watches: Option<Vec<PeerWatch<'a>>>,
}

impl<'a> Senders<'a> {
    pub fn new(group: &'a Group) -> Senders<'a> {
        let known = group.inner.reported.borrow().len();
        Senders { group, known, failures: None, patience: None, watches: None }
    }

    /// Returns the error if waiting is hopeless. Called while there is no message; `cx` is woken
    /// when patience ends.
    pub fn failure_of_all(&mut self, cx: &mut Context<'_>) -> Option<OpError> {
        let endpoint = self.group.endpoint();
        if self.watches.is_none() {
            let patience = self.patience.get_or_insert_with(|| {
                let patience = endpoint.reactor.borrow().first_line();
                endpoint.sleep(if patience.is_zero() { WATCH_AFTER } else { patience })
            });
            if Pin::new(patience).poll(cx).is_ready() {
                // Only after a time, since it opens a session with every rank.
                let peers = self.others().filter_map(|rank| self.group.find_peer(rank).ok());
                self.watches = Some(peers.filter_map(|peer| endpoint.peer(peer).watch()).collect());
                self.patience = None;
                self.failures = None;
            }
        }
        let failures = endpoint.stats().peers_failed;
        if self.failures.replace(failures) == Some(failures) {
            return None;
        }
        self.look()
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let me = self.group.rank();
        (0..self.group.size()).filter(move |&rank| rank != me)
    }

    /// Returns the failure with which this receive ends, if any.
    fn look(&self) -> Option<OpError> {
        let (mut remain, mut gone) = (false, None);
        for rank in self.others() {
            let Some(failure) = self.failure(rank) else {
                remain = true;
                continue;
            };
            let closed = matches!(failure, OpError::Peer { failure: PeerFailure::Closed, .. });
            let mut reported = self.group.inner.reported.borrow_mut();
            let before = reported.iter().position(|&r| r == rank);
            if !closed && before.is_none_or(|at| at >= self.known) {
                if before.is_none() {
                    reported.push(rank);
                }
                return Some(failure);
            }
            gone = Some(failure);
        }
        gone.filter(|_| !remain)
    }

    /// Returns a rank's failure, if any. Before patience ends, a rank that was never used counts as
    /// alive.
    fn failure(&self, rank: usize) -> Option<OpError> {
        let Some(peer) = self.group.inner.peers.borrow()[rank] else {
            return self.watches.as_ref().map(|_| NO_LINK);
        };
        let failure = self.group.endpoint().peer(peer).failure()?;
        Some(OpError::Peer { peer, failure })
    }
}

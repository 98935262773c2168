//! The directory of a region at its home: the ranks that have copies, and those that want one.

use super::Access;
use std::collections::{BTreeSet, VecDeque};

/// Something that the directory wants sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Send {
    Grant { to: usize, access: Access, has_copy: bool },
    Revoke { to: usize, left: Option<Access> },
}

/// The copies of a region. Either one rank may write, or some may read.
#[derive(Default)]
pub(super) struct Directory {
    pub owner: Option<usize>,
    pub readers: BTreeSet<usize>,
    /// Ranks that may have mapped the region, which are told when it is deleted.
    mapped: BTreeSet<usize>,
    queue: VecDeque<(usize, Access)>,
    /// The request that is being served.
    busy: Option<(usize, Access)>,
    /// Ranks whose answer to a revocation is awaited, ascending.
    awaited: Vec<usize>,
    /// Revocations that are to be sent.
    due: VecDeque<Send>,
}

impl Directory {
    /// Makes the directory of a new region, which only its home has.
    pub fn new(home: usize) -> Directory {
        Directory { owner: Some(home), ..Directory::default() }
    }

    /// Notes that a rank knows the region.
    pub fn mapped(&mut self, rank: usize) {
        self.mapped.insert(rank);
    }

    /// Returns the ranks that know the region.
    pub fn all_mapped(&self) -> BTreeSet<usize> {
        self.mapped.clone()
    }

    /// Takes the request of a rank. A rank has one request at a time; another one is ignored.
    pub fn ask(&mut self, rank: usize, access: Access) {
        self.mapped.insert(rank);
        let is_known = self.busy.is_some_and(|(by, _)| by == rank)
            || self.queue.iter().any(|(by, _)| *by == rank);
        if !is_known {
            self.queue.push_back((rank, access));
        }
    }

    /// Takes the answer to a revocation, if it is awaited.
    pub fn acked(&mut self, rank: usize, kept: bool) {
        if self.forget_awaited(rank) {
            self.gave_up(rank);
            if kept {
                self.readers.insert(rank);
            }
        }
    }

    /// True if a rank has a copy, or is to have one.
    pub fn has_copy(&self, rank: usize) -> bool {
        self.owner == Some(rank) || self.readers.contains(&rank)
    }

    fn forget_awaited(&mut self, rank: usize) -> bool {
        let at = self.awaited.iter().position(|&awaited| awaited == rank);
        at.map(|at| self.awaited.remove(at)).is_some()
    }

    /// Notes that a rank has no copy any more. True if it was the one that may write.
    pub fn gave_up(&mut self, rank: usize) -> bool {
        self.readers.remove(&rank);
        let owned = self.owner == Some(rank);
        if owned {
            self.owner = None;
        }
        owned
    }

    /// Forgets a rank that has failed. True if it had the only copy.
    pub fn failed(&mut self, rank: usize) -> bool {
        self.queue.retain(|(by, _)| *by != rank);
        self.mapped.remove(&rank);
        self.due.retain(|send| !matches!(send, Send::Revoke { to, .. } if *to == rank));
        self.forget_awaited(rank);
        if self.busy.is_some_and(|(by, _)| by == rank) {
            // The answers that are awaited are still noted.
            self.busy = None;
        }
        self.gave_up(rank)
    }

    /// Returns the ranks that hold up the request which is being served.
    pub fn holders(&self) -> Vec<usize> {
        self.awaited.clone()
    }

    /// Takes all requests away, for a region that is lost or deleted.
    pub fn drop_requests(&mut self) {
        self.busy = None;
        self.queue.clear();
        self.awaited.clear();
    }

    /// Returns the next thing to send. `None` if nothing is due before a request or an answer
    /// comes.
    pub fn serve(&mut self) -> Option<Send> {
        loop {
            if let Some(send) = self.due.pop_front() {
                return Some(send);
            }
            if !self.awaited.is_empty() {
                return None;
            }
            if let Some((to, access)) = self.busy.take() {
                return Some(self.grant(to, access));
            }
            let (rank, access) = self.queue.pop_front()?;
            self.busy = Some((rank, access));
            let others = |other: &usize| *other != rank;
            self.awaited.extend(self.owner.into_iter().filter(others));
            if access == Access::Write {
                let more = self.readers.iter().copied().filter(others);
                self.awaited.extend(more.filter(|&rank| self.owner != Some(rank)));
                self.awaited.sort_unstable();
            }
            let left = (access == Access::Read).then_some(Access::Read);
            self.due.extend(self.awaited.iter().map(|&to| Send::Revoke { to, left }));
        }
    }

    fn grant(&mut self, to: usize, access: Access) -> Send {
        let has_copy = self.readers.contains(&to) || self.owner == Some(to);
        let access = if self.owner == Some(to) { Access::Write } else { access };
        match access {
            Access::Read => drop(self.readers.insert(to)),
            Access::Write => {
                self.readers.clear();
                self.owner = Some(to);
            }
        }
        Send::Grant { to, access, has_copy }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn serve(home: &mut Directory) -> Vec<Send> {
        std::iter::from_fn(|| home.serve()).collect()
    }

    #[test]
    fn serve__readers_share_and_a_writer_takes_all_copies() {
        let mut home = Directory::new(0);
        home.ask(1, Access::Read);
        assert_eq!(serve(&mut home), [Send::Revoke { to: 0, left: Some(Access::Read) }]);
        home.ask(2, Access::Write);
        assert_eq!(serve(&mut home), []);
        home.acked(0, true);
        home.acked(7, true);
        assert_eq!(
            serve(&mut home),
            [
                Send::Grant { to: 1, access: Access::Read, has_copy: false },
                Send::Revoke { to: 0, left: None },
                Send::Revoke { to: 1, left: None },
            ]
        );
        assert_eq!(home.holders(), [0, 1]);
        home.acked(1, false);
        home.acked(0, false);
        let write = Send::Grant { to: 2, access: Access::Write, has_copy: false };
        assert_eq!(serve(&mut home), [write]);
        assert_eq!(home.owner, Some(2));
    }

    #[test]
    fn serve__an_upgrade_sends_nothing_and_a_flush_before_the_answer_is_no_copy() {
        let mut home = Directory { readers: [1, 2].into(), ..Directory::default() };
        home.ask(1, Access::Write);
        assert_eq!(serve(&mut home), [Send::Revoke { to: 2, left: None }]);
        home.gave_up(2);
        home.acked(2, false);
        assert_eq!(
            serve(&mut home),
            [Send::Grant { to: 1, access: Access::Write, has_copy: true }]
        );
        assert!(home.failed(1), "it had the only copy");
    }
}

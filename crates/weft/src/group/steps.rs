//! The algorithms of the collective operations.

use super::call::{Call, Sent};
use std::collections::VecDeque;
use weft_core::group::tree::{self, Tree};
use weft_core::{OpError, PeerFailure};

/// Size of the parts of a broadcast; the levels of the tree forward different parts at the same
/// time.
const PART: usize = 64 << 10;
/// Parts on their way to each child: enough for any network, and a bound for the copies that this
/// rank holds.
const AHEAD: usize = 64;

/// Longest message a collective accepts from a peer.
const ANY: usize = usize::MAX;

impl Call {
    /// Barrier by dissemination, in log4(size) rounds.
    pub(super) async fn do_barrier(&self) -> Result<(), OpError> {
        for round in 0.. {
            let partners = tree::dissemination(self.rank(), self.size(), round);
            let sent: Vec<Sent> =
                partners.clone().map(|p| self.post_met(p.to)).collect::<Result<_, _>>()?;
            if sent.is_empty() {
                break;
            }
            for p in partners {
                self.take(p.from, 0).await?;
            }
            self.await_sends(sent).await?;
        }
        Ok(())
    }

    /// Broadcast in parts, so that all levels of the tree work at once.
    pub(super) async fn do_broadcast(
        &self,
        (kind, root): (Tree, usize),
        data: Vec<u8>,
    ) -> Result<Vec<u8>, OpError> {
        let parent = tree::parent(kind, root, self.rank(), self.size());
        let children: Vec<usize> = tree::children(kind, root, self.rank(), self.size()).collect();
        let mut sends = VecDeque::new();
        let forward = |part: &[u8], sends: &mut VecDeque<Sent>| -> Result<(), OpError> {
            for &child in &children {
                sends.push_back(self.post(child, part.to_vec())?);
            }
            Ok(())
        };
        let most = AHEAD * children.len();
        let out = match parent {
            None => {
                // The first part carries the length of the whole.
                let head = data.len().min(PART);
                let mut first = (data.len() as u64).to_le_bytes().to_vec();
                first.extend_from_slice(&data[..head]);
                forward(&first, &mut sends)?;
                for part in data[head..].chunks(PART) {
                    self.await_sends_to(most, &mut sends).await?;
                    forward(part, &mut sends)?;
                }
                data
            }
            Some(parent) => {
                let first = self.take(parent, PART + 8).await?;
                forward(&first, &mut sends)?;
                let (length, head) = first.split_at(first.len().min(8));
                let mut raw = [0; 8];
                raw[..length.len()].copy_from_slice(length);
                let total = u64::from_le_bytes(raw) as usize;
                let mut out = head.to_vec();
                while out.len() < total {
                    let part = self.take(parent, PART).await?;
                    self.await_sends_to(most, &mut sends).await?;
                    forward(&part, &mut sends)?;
                    out.extend_from_slice(&part);
                }
                out
            }
        };
        self.await_sends(sends).await?;
        Ok(out)
    }

    /// Waits until at most so many messages are on their way.
    async fn await_sends_to(&self, most: usize, sends: &mut VecDeque<Sent>) -> Result<(), OpError> {
        let before = sends.len().saturating_sub(most);
        self.await_sends(sends.drain(..before)).await
    }

    /// Gather over a tree: inner ranks add their message to those from below.
    pub(super) async fn do_gather(
        &self,
        (kind, root): (Tree, usize),
        data: Vec<u8>,
    ) -> Result<Option<Vec<Vec<u8>>>, OpError> {
        let children = |rank| tree::children(kind, root, rank, self.size());
        let parent = tree::parent(kind, root, self.rank(), self.size());
        let (mut all, mut packed) = (vec![Vec::new(); self.size()], Vec::new());
        let inner = parent.is_some() && children(self.rank()).next().is_some();
        if inner {
            pack(&mut packed, self.rank(), &data);
        }
        for child in children(self.rank()) {
            let theirs = self.take(child, ANY).await?;
            // A leaf sends only its message.
            match (children(child).next(), parent) {
                (None, None) => all[child] = theirs,
                (None, Some(_)) => pack(&mut packed, child, &theirs),
                (Some(_), Some(_)) => packed.extend_from_slice(&theirs),
                (Some(_), None) => {
                    let broken = |peer| OpError::Peer { peer, failure: PeerFailure::Protocol };
                    let peer = self.group.find_peer(child)?;
                    unpack(&theirs, &mut all).ok_or_else(|| broken(peer))?;
                }
            }
        }
        let Some(parent) = parent else {
            all[root] = data;
            return Ok(Some(all));
        };
        self.await_sends([self.post(parent, if inner { packed } else { data })?]).await?;
        Ok(None)
    }

    /// Scatter from the root to each other rank.
    pub(super) async fn do_scatter(
        &self,
        root: usize,
        mut data: Vec<Vec<u8>>,
    ) -> Result<Vec<u8>, OpError> {
        if self.rank() != root {
            return self.take(root, ANY).await;
        }
        let own = std::mem::take(&mut data[root]);
        let others = data.into_iter().enumerate().filter(|&(rank, _)| rank != root);
        let sent: Vec<Sent> =
            others.map(|(rank, message)| self.post(rank, message)).collect::<Result<_, _>>()?;
        self.await_sends(sent).await?;
        Ok(own)
    }

    /// Allgather in a ring: size - 1 steps, each link used once in a step.
    pub(super) async fn do_allgather(&self, data: Vec<u8>) -> Result<Vec<Vec<u8>>, OpError> {
        let size = self.size();
        let (right, left) = ((self.rank() + 1) % size, (self.rank() + size - 1) % size);
        let mut all = vec![Vec::new(); size];
        let mut at = self.rank();
        all[at] = data;
        for _ in 1..size {
            let sent = self.post(right, all[at].clone())?;
            at = (at + size - 1) % size;
            all[at] = self.take(left, ANY).await?;
            self.await_sends([sent]).await?;
        }
        Ok(all)
    }

    /// All-to-all, with another partner in each step, so that no two ranks send to the same rank.
    pub(super) async fn do_alltoall(
        &self,
        mut data: Vec<Vec<u8>>,
    ) -> Result<Vec<Vec<u8>>, OpError> {
        let size = self.size();
        let mut all = vec![Vec::new(); size];
        all[self.rank()] = std::mem::take(&mut data[self.rank()]);
        for step in 1..size {
            let to = (self.rank() + step) % size;
            let from = (self.rank() + size - step) % size;
            let sent = self.post(to, std::mem::take(&mut data[to]))?;
            all[from] = self.take(from, ANY).await?;
            self.await_sends([sent]).await?;
        }
        Ok(all)
    }
}

/// Adds a rank's message to those that go up the tree: rank (8 bytes), length (8 bytes), message.
fn pack(out: &mut Vec<u8>, rank: usize, message: &[u8]) {
    out.extend_from_slice(&(rank as u64).to_le_bytes());
    out.extend_from_slice(&(message.len() as u64).to_le_bytes());
    out.extend_from_slice(message);
}

/// Stores packed messages at their ranks. `None` if they are malformed.
fn unpack(mut packed: &[u8], all: &mut [Vec<u8>]) -> Option<()> {
    while !packed.is_empty() {
        let (rank, rest) = packed.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let rank = usize::try_from(u64::from_le_bytes(*rank)).ok()?;
        let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
        let (message, rest) = rest.split_at_checked(len)?;
        *all.get_mut(rank)? = message.to_vec();
        packed = rest;
    }
    Some(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn unpack__is_the_reverse_of_pack_and_refuses_junk() {
        let mut packed = Vec::new();
        pack(&mut packed, 2, b"two");
        pack(&mut packed, 0, b"");
        let mut all = vec![Vec::new(); 3];
        assert_eq!(unpack(&packed, &mut all), Some(()));
        assert_eq!(all, [b"".to_vec(), b"".to_vec(), b"two".to_vec()]);
        for end in 1..packed.len() {
            // Only the first message is whole at 19.
            assert_eq!(unpack(&packed[..end], &mut all).is_some(), end == 19, "{end}");
        }
        assert_eq!(unpack(&packed, &mut all[..2]), None, "a rank that is none");
        packed[8..16].fill(0xff);
        assert_eq!(unpack(&packed, &mut all), None);
    }
}

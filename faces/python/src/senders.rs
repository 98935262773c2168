//! The ranks that can still send to a receive: one rank, or any.

use crate::fault::Fault;
use crate::inside::Inside;
use std::time::{Duration, Instant};
use weft::{OpError, PeerFailure, PeerId};

/// Time after which silence of ranks is noticed, if warnings of waits are off.
const WATCH_AFTER: Duration = Duration::from_secs(5);

/// The other ranks of a group, or one of them, as possible senders to one receive.
pub struct Senders {
    group: u32,
    /// The rank that the receive names.
    rank: Option<usize>,
    begun: Instant,
    /// The peers whose silence is noticed: set when the receive has waited for some time, since
    /// that opens a session with every rank.
    expected: Option<Vec<PeerId>>,
    /// Number of failures of all peers at the last check.
    failures: Option<u64>,
}

impl Senders {
    pub fn new(group: u32, rank: Option<usize>) -> Senders {
        Senders { group, rank, begun: Instant::now(), expected: None, failures: None }
    }

    /// Checks if the receive may still wait. One that names a rank finds the failure of that rank
    /// by itself: here the silence of the rank is noticed.
    ///
    /// # Errors
    /// All other ranks have left or failed, or one has failed and no receive has reported it.
    pub fn check(&mut self, inside: &mut Inside) -> Result<(), Fault> {
        if self.expected.is_none() && self.begun.elapsed() >= watch_after(inside) {
            let peers = others(inside, self.group, self.rank)?;
            let expect = |&peer: &PeerId| inside.endpoint().peer(peer).expect();
            self.expected = Some(peers.into_iter().flatten().filter(expect).collect());
            self.failures = None;
        }
        if self.rank.is_some() {
            return Ok(());
        }
        let now = inside.endpoint().waiting().failures();
        if self.failures.replace(now) == Some(now) {
            return Ok(());
        }
        match self.failure(inside)? {
            Some(error) => Err(Fault::of_op(inside.group(self.group)?, error, None)),
            None => Ok(()),
        }
    }

    fn failure(&self, inside: &mut Inside) -> Result<Option<OpError>, Fault> {
        let (mut remain, mut gone) = (false, None);
        for peer in others(inside, self.group, None)? {
            let failed =
                peer.and_then(|peer| Some((peer, inside.endpoint().peer(peer).failure()?)));
            let Some((peer, failure)) = failed else {
                remain = true;
                continue;
            };
            let error = OpError::Peer { peer, failure };
            if failure != PeerFailure::Closed && inside.reported.insert(peer) {
                return Ok(Some(error));
            }
            gone = Some(error);
        }
        Ok(gone.filter(|_| !remain))
    }

    /// Ends the watch over the ranks.
    pub fn end(self, inside: &Inside) {
        self.expected
            .into_iter()
            .flatten()
            .for_each(|peer| inside.endpoint().peer(peer).unexpect());
    }
}

fn watch_after(inside: &Inside) -> Duration {
    match inside.endpoint().config().warn_after_ms {
        0 => WATCH_AFTER,
        ms => Duration::from_millis(ms.into()),
    }
}

/// Returns the peers of a group's other ranks, or of one; `None` for one without an address.
fn others(inside: &Inside, group: u32, one: Option<usize>) -> Result<Vec<Option<PeerId>>, Fault> {
    let group = inside.group(group)?;
    let others = (0..group.size()).filter(|&rank| rank != group.rank());
    let others = others.filter(|&rank| one.is_none_or(|one| one == rank));
    Ok(others.map(|rank| group.peer(rank).ok()).collect())
}

//! Multicast groups.

use super::tree::tree_of;
use crate::fault::{Fault, WEFT_BUSY, WEFT_PEER, WEFT_TOO_LONG, WEFT_TOO_MANY};
use crate::job::WeftJob;
use crate::object::{is_object, Head};
use crate::sys::Given;
use std::cell::RefCell;
use std::ffi::c_int;
use weft::choices::Place;
use weft::{OpError, PeerId};
use weft_packets::{Expecting, MulticastError, MulticastGroup};

/// Ranks forward a multicast.
pub const WEFT_BY_HOST: c_int = 0;
/// Agents forward a multicast.
pub const WEFT_BY_AGENT: c_int = 1;

/// A multicast group: `struct weft_group`.
pub struct WeftGroup {
    head: Head,
    group: MulticastGroup,
    members: Vec<PeerId>,
    /// Expectations by member index.
    expecting: RefCell<Vec<(usize, Expecting)>>,
}

is_object!(WeftGroup, "group", b"weft grp");

/// Makes the multicast group `id` of the given ranks, including this one. All members call it with
/// the same id and ranks. The group lasts as long as the job.
///
/// # Errors
/// This rank is not among the ranks, one is none or has failed; `WEFT_TOO_MANY`: the group exists.
pub(crate) fn make(
    job: &WeftJob,
    id: u16,
    ranks: Given<c_int>,
    count: usize,
) -> Result<Box<WeftGroup>, Fault> {
    if count == 0 || count > usize::from(u16::MAX) {
        return Err(Fault::argument("count is out of bounds"));
    }
    let ranks = ranks.values("ranks", count)?;
    let own = job.world().rank() as c_int;
    let me = ranks.as_slice().iter().position(|&rank| rank == own);
    let me = me.ok_or_else(|| Fault::argument("this rank is not among the ranks"))?;
    let members = ranks.as_slice().iter().map(|&rank| job.peer(rank));
    let members = members.collect::<Result<Vec<_>, _>>()?;
    let group = job.packets.group(id, members.clone(), me);
    let group = group.ok_or_else(|| Fault(WEFT_TOO_MANY, format!("group {id} exists")))?;
    let (head, expecting) = (Head::new::<WeftGroup>(job), RefCell::default());
    Ok(Box::new(WeftGroup { head, group, members, expecting }))
}

impl WeftGroup {
    /// Returns the index of a rank among the members.
    fn member(&self, job: &WeftJob, rank: c_int) -> Result<usize, Fault> {
        let peer = job.peer(rank)?;
        let at = self.members.iter().position(|&member| member == peer);
        at.ok_or_else(|| Fault::argument("the rank is no member of the group"))
    }

    /// Converts the failure of a multicast. The fault of a failed member has the same details as
    /// that of a packet sent to that rank alone.
    fn fault(&self, job: &WeftJob, error: MulticastError) -> Fault {
        let code = match error {
            MulticastError::Busy { .. } => WEFT_BUSY,
            MulticastError::TooLong => WEFT_TOO_LONG,
            _ => WEFT_PEER,
        };
        let MulticastError::Member { rank, failure } = error else {
            return Fault(code, error.to_string());
        };
        let Some(&peer) = self.members.get(rank) else { return Fault(code, error.to_string()) };
        Fault(
            code,
            match failure {
                Some(failure) => {
                    let why = job.world().explain(OpError::Peer { peer, failure });
                    format!("member {rank} of the multicast group: {why}")
                }
                None => format!("{error}: {}", job.describe(peer)),
            },
        )
    }

    /// Returns the longest packet to the group, in bytes.
    pub(crate) fn packet_max(&self) -> usize {
        self.group.packet_max()
    }

    /// Returns the number of members that have had no room for longer than WEFT_WARN_AFTER_MS
    /// although packets wait for them here, and stores the ranks of the first `count`.
    ///
    /// # Errors
    /// There is no place for the ranks.
    pub(crate) fn slow(
        &self,
        job: &WeftJob,
        ranks: Given<c_int>,
        count: usize,
    ) -> Result<usize, Fault> {
        let slow = self.group.slow();
        let rank_of = |member: usize| self.members.get(member).map_or(-1, |&p| job.rank_of(p));
        let found: Vec<c_int> = slow.iter().map(|&(member, _)| rank_of(member)).collect();
        ranks.values("ranks", found.len().min(count))?.put(0, &found);
        Ok(found.len())
    }

    /// Notes that this rank waits for packets of a member: until the same number of calls of
    /// [`unexpect`](Self::unexpect), or until the handle is freed, the silence of that member and
    /// of those that may forward its packets to here is noticed, and ends the group for all
    /// members. A member that leaves in good order is not reported: its packets may still be in
    /// flight.
    ///
    /// # Errors
    /// The rank is no member, or the group has failed.
    pub(crate) fn expect(&self, job: &WeftJob, rank: c_int) -> Result<(), Fault> {
        let member = self.member(job, rank)?;
        let expecting = self.group.expect(member).map_err(|error| self.fault(job, error))?;
        self.expecting.borrow_mut().push((member, expecting));
        Ok(())
    }

    /// Ends one [`expect`](Self::expect).
    ///
    /// # Errors
    /// There is none for that rank.
    pub(crate) fn unexpect(&self, job: &WeftJob, rank: c_int) -> Result<(), Fault> {
        let member = self.member(job, rank)?;
        let mut expecting = self.expecting.borrow_mut();
        let at = expecting.iter().position(|&(of, _)| of == member);
        let at = at.ok_or_else(|| Fault::argument("nothing is expected of that rank"))?;
        drop(expecting.swap_remove(at));
        Ok(())
    }

    /// # Errors
    /// A member has failed.
    pub(crate) fn failed(&self, job: &WeftJob) -> Result<(), Fault> {
        self.group.failed().map_or(Ok(()), |error| Err(self.fault(job, error)))
    }

    /// Returns the present forwarder of this rank's multicasts over a tree. With
    /// WEFT_MULTICAST=agent it is the agents once all members have joined at theirs; the first
    /// packet asks for that.
    ///
    /// # Errors
    /// There is no such tree.
    pub(crate) fn forwarded_by(&self, job: &WeftJob, tree: c_int) -> Result<c_int, Fault> {
        Ok(match self.group.forwarded_by(tree_of(job, tree)?) {
            Place::Agent => WEFT_BY_AGENT,
            Place::Host => WEFT_BY_HOST,
        })
    }

    /// Sends a packet to a handler at all other members over a tree, with an argument. Waits while
    /// a member has no room, unless an upcall runs.
    ///
    /// # Errors
    /// There is no such tree, the packet is too long, or a member has failed; `WEFT_BUSY`: a member
    /// has no room, in an upcall.
    #[inline]
    pub(crate) fn multicast(
        &self,
        job: &WeftJob,
        tree: c_int,
        (handler, argument): (u16, u32),
        data: &[u8],
    ) -> Result<(), Fault> {
        let tree = tree_of(job, tree)?;
        let sent = match job.depth.get() {
            0 => self.group.send_blocking(tree, handler, argument, data),
            _ => self.group.try_send(tree, handler, argument, data),
        };
        sent.map_err(|error| self.fault(job, error))
    }
}

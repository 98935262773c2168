//! Multicast groups as programs see them.

use super::agent::Forwarding;
use super::multicast::{code_of, Dead, Group, Refusal};
use super::wire::{group_id, GroupId, Multicast};
use super::Packets;
use std::fmt;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;
use weft::choices::{Place, Tree};
use weft::endpoint::PeerWatch;
use weft::port::Awaits;
use weft::{PeerFailure, PeerId};

/// The reason why a packet was not multicast.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MulticastError {
    /// A member failed, so the group failed too: make a new group without the member.
    Member {
        /// The member's rank.
        rank: usize,
        /// The reason, if this member noticed the failure itself; `None` if another member reported
        /// it.
        failure: Option<PeerFailure>,
    },
    /// A member has no room now: try again after progress.
    Busy {
        /// The first such member, if it is known: agents that forward name only members that have
        /// had no room for long.
        rank: Option<usize>,
    },
    /// The packet is longer than [`MulticastGroup::packet_max`].
    TooLong,
}

impl fmt::Display for MulticastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MulticastError::Member { rank, failure: Some(why) } => {
                write!(f, "member {rank} of the multicast group failed: {why}")
            }
            MulticastError::Member { rank, failure: None } => {
                write!(f, "member {rank} of the multicast group failed, as another one told")
            }
            MulticastError::Busy { rank: Some(rank) } => write!(
                f,
                "member {rank} of the multicast group has no room yet: try again after progress"
            ),
            MulticastError::Busy { rank: None } => f.write_str(
                "a member of the multicast group, or its agent, has no room yet: try again after \
                 progress",
            ),
            MulticastError::TooLong => f.write_str("longer than a packet of the multicast group"),
        }
    }
}

weft_core::readable!(MulticastError);

impl std::error::Error for MulticastError {}

impl From<Refusal> for MulticastError {
    fn from(stop: Refusal) -> MulticastError {
        match stop {
            Refusal::Dead(Dead { rank, failure }) => MulticastError::Member { rank, failure },
            Refusal::Busy(rank) => MulticastError::Busy { rank },
        }
    }
}

/// A set of endpoints, each of which can send packets to all others. Delivery is reliable and, for
/// each sender, in order.
///
/// A packet calls the upcall of its handler, or waits in its mailbox, and holds credit of the group
/// until it is received.
///
/// ```no_run
/// use std::{cell::Cell, rc::Rc};
/// use weft::Tree;
/// use weft_packets::Packets;
///
/// let job = weft::Job::init()?;
/// let (world, packets) = (job.world(), Packets::new(job.endpoint())?);
/// let got = Rc::new(Cell::new(0));
/// let count = got.clone();
/// packets.handle(3, move |_, packet| count.set(count.get() + packet.data().len()));
/// let members = (0..world.size()).map(|rank| world.peer(rank)).collect::<Result<_, _>>()?;
/// let group = packets.group(7, members, world.rank()).ok_or("the id is taken")?;
/// if world.rank() == 0 {
///     group.send_blocking(Tree::Binary, 3, 0, b"to all others")?;
/// } else {
///     let _expecting = group.expect(0)?; // the silence of rank 0 ends the group
///     while got.get() == 0 && group.failed().is_none() {
///         packets.wait(None);
///     }
/// }
/// world.barrier_blocking()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MulticastGroup {
    packets: Packets,
    id: GroupId,
    tree: Tree,
}

impl Packets {
    /// Makes a group. All members call this with the same `id` and the same order of `members`, in
    /// which this endpoint has index `me`; the entry at `me` is ignored. Packets that arrive before
    /// this call wait for it. `None` if the id is taken, or if `members` and `me` do not fit
    /// together.
    pub fn group(&self, id: u16, members: Vec<PeerId>, me: usize) -> Option<MulticastGroup> {
        self.group_again(id, 0, members, me)
    }

    /// Does what [`group`](Self::group) does, for one of several groups that follow each other
    /// under one id, as the earlier ones [end](MulticastGroup::end): all members give the same
    /// `generation`, which comes again only when nobody has packets of the group that had it.
    pub fn group_again(
        &self,
        id: u16,
        generation: u8,
        members: Vec<PeerId>,
        me: usize,
    ) -> Option<MulticastGroup> {
        let id = group_id(id, generation);
        if me >= members.len() || members.len() > usize::from(u16::MAX) {
            return None;
        }
        let tree = self.endpoint().choices().tree;
        let state = &mut *self.shared.state.borrow_mut();
        let early = state.groups.make(id, Group::new(members, me))?;
        if !early.is_empty() {
            state.again.extend(early);
            self.port.poll_each_round();
        }
        Some(MulticastGroup { packets: self.clone(), id, tree })
    }
}

impl MulticastGroup {
    /// Ends the group here, for all handles of it: nothing is sent, received or forwarded any more.
    /// Packets that are on their way by this member are lost to those behind it.
    pub fn end(&self) {
        self.packets.with(|state| state.end_group(&self.packets.port, self.id));
    }

    /// The number of members.
    pub fn size(&self) -> usize {
        self.packets.with(|state| state.groups.get(self.id).map_or(0, |g| g.members.len()))
    }

    /// The peer of a member; of this endpoint itself, the value that its list had.
    pub fn member(&self, rank: usize) -> Option<PeerId> {
        self.packets.with(|state| state.groups.get(self.id)?.members.get(rank).copied())
    }

    /// The longest packet in bytes of the program, which every member's path carries in one piece.
    pub fn packet_max(&self) -> usize {
        let state = self.packets.shared.state.borrow();
        let Some(group) = state.groups.get(self.id) else { return 0 };
        let others = group.members.iter().enumerate().filter(|&(rank, _)| rank != group.me);
        let least = others.map(|(_, &peer)| self.packets.port.packet_max(peer)).min();
        least.unwrap_or(0).saturating_sub(state.multicast_overhead())
    }

    /// Notices the silence of the other members until the result is dropped: while one of them has
    /// no room, nothing may be on its way that it would have to acknowledge.
    fn watch(&self) -> Vec<PeerWatch<'_>> {
        let others = self.packets.with(|state| {
            let group = state.groups.get(self.id)?;
            let others = group.members.iter().enumerate().filter(|&(rank, _)| rank != group.me);
            Some(others.map(|(_, &peer)| peer).collect::<Vec<_>>())
        });
        let endpoint = self.packets.endpoint();
        others.into_iter().flatten().filter_map(|peer| endpoint.peer(peer).watch()).collect()
    }

    /// Sends a packet to `handler` at all other members over the tree of `WEFT_TREE`. Waits while a
    /// member has no room; the bytes have been copied when this returns.
    ///
    /// # Errors
    /// A member failed, or the packet is too long.
    pub async fn send(
        &self,
        handler: u16,
        argument: u32,
        data: &[u8],
    ) -> Result<(), MulticastError> {
        self.send_over(self.tree, handler, argument, data).await
    }

    /// Does what [`send`](Self::send) does, over a tree of the caller's choice.
    ///
    /// # Errors
    /// Returns the errors of [`send`](Self::send).
    pub async fn send_over(
        &self,
        tree: Tree,
        handler: u16,
        argument: u32,
        data: &[u8],
    ) -> Result<(), MulticastError> {
        let mut watched = None;
        poll_fn(|cx| match self.try_send(tree, handler, argument, data) {
            Err(MulticastError::Busy { .. }) => {
                watched.get_or_insert_with(|| self.watch());
                self.packets.with(|state| state.wakers.push(cx.waker().clone()));
                Poll::Pending
            }
            other => Poll::Ready(other),
        })
        .await
    }

    /// Does what [`send_over`](Self::send_over) does, and makes progress until it is done: for
    /// programs that are not written as futures.
    ///
    /// # Errors
    /// Returns the errors of [`send`](Self::send).
    pub fn send_blocking(
        &self,
        tree: Tree,
        handler: u16,
        argument: u32,
        data: &[u8],
    ) -> Result<(), MulticastError> {
        let mut watched = None;
        loop {
            match self.try_send(tree, handler, argument, data) {
                Err(MulticastError::Busy { .. }) => {
                    watched.get_or_insert_with(|| self.watch());
                    self.packets.endpoint().waiting().wait_for(Awaits::Room(None));
                }
                other => {
                    self.packets.endpoint().waiting().attend();
                    return other;
                }
            }
        }
    }

    /// Does what [`send_over`](Self::send_over) does, without waiting.
    ///
    /// # Errors
    /// `Busy` while a child in the tree has no room; otherwise as [`send`](Self::send).
    pub fn try_send(
        &self,
        tree: Tree,
        handler: u16,
        argument: u32,
        data: &[u8],
    ) -> Result<(), MulticastError> {
        if data.len() > weft_core::engine::ACTIVE_MAX as usize - Multicast::LEN {
            return Err(MulticastError::TooLong);
        }
        let port = &self.packets.port;
        let sent = self
            .packets
            .with(|state| state.multicast(port, self.id, tree, (handler, argument), data));
        port.flush();
        sent.map_err(MulticastError::from)
    }

    /// The members that have had no room for longer than `WEFT_WARN_AFTER_MS` while packets waited
    /// for them here: rank and duration.
    pub fn slow(&self) -> Vec<(usize, Duration)> {
        let now = self.packets.endpoint().now();
        self.packets.with(|state| {
            let slow = state.groups.get(self.id).into_iter().flat_map(|g| &g.slow);
            slow.map(|(&rank, &since)| (rank, now.since(since))).collect()
        })
    }

    /// Returns the forwarders of this member's packets over a tree. With `WEFT_MULTICAST=agent`
    /// these are the agents, once all members have joined at their agents; the first packet asks
    /// them to join.
    pub fn forwarded_by(&self, tree: Tree) -> Place {
        self.packets.with(|state| {
            let group = state.groups.get(self.id);
            match group.and_then(|group| group.agents.get(&code_of(tree))) {
                Some(Forwarding::Agents { .. }) => Place::Agent,
                _ => Place::Host,
            }
        })
    }

    /// Declares that this member waits for packets of `root`. Until the returned [`Expecting`] is
    /// dropped, the silence of `root`, and of members that may forward its packets to here, counts
    /// as a failure and ends the group for all members ([`failed`](Self::failed)). Without this
    /// call a member notices only the silence of members to which it has sent packets. A member
    /// that closes in good order does not end the group: its packets may still be in flight.
    ///
    /// # Errors
    /// The group has failed.
    ///
    /// # Panics
    /// There is no such member.
    pub fn expect(&self, root: usize) -> Result<Expecting, MulticastError> {
        let port = &self.packets.port;
        let watched = self.packets.with(|state| state.expect(port, self.id, root));
        port.flush();
        let watched = watched?;
        Ok(Expecting { packets: self.packets.clone(), watched })
    }

    /// Returns the member whose failure ended the group, if one did.
    pub fn failed(&self) -> Option<MulticastError> {
        let dead = self.packets.with(|state| state.groups.get(self.id).and_then(|g| g.dead));
        dead.map(|Dead { rank, failure }| MulticastError::Member { rank, failure })
    }
}

/// A declaration made by [`MulticastGroup::expect`]; dropping it ends it.
#[must_use = "what is dropped ends at once"]
pub struct Expecting {
    pub(super) packets: Packets,
    pub(super) watched: Vec<PeerId>,
}

impl Drop for Expecting {
    fn drop(&mut self) {
        self.watched.iter().for_each(|&peer| self.packets.endpoint().peer(peer).unexpect());
    }
}

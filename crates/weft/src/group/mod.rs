//! Groups of ranks: point-to-point messages by rank, and collective operations over trees.
//!
//! Groups take an endpoint and not the port alone, since most of their messages are tagged ones,
//! whose matching and rendezvous the port does not have; a port would only lead back to its
//! endpoint. Notices about the end of an operation are messages of the port.

mod agree;
mod any;
mod call;
mod collectives;
mod element;
mod exchange;
mod hosts;
mod kept;
mod notices;
mod number;
mod over;
mod placed;
mod reduce;
mod started;
mod steps;
#[allow(unsafe_code)]
mod sys;

pub use element::{Element, Op};
pub use number::{Bf16, Complex, Number, F16};
pub use over::Over;
pub use placed::Placed;
pub use started::{GroupError, Started};
pub use sys::Kept;
pub use weft_core::group::tree::Tree;

use crate::endpoint::{Endpoint, Status};
use crate::port::Port;
use any::Senders;
use notices::{Here, Notices};
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::task::Context;
use weft_core::{OpError, PeerFailure, PeerId};
use weft_link::Address;

/// A source of the addresses of ranks, asked once for each rank at its first use.
pub trait Directory {
    /// Returns the number of ranks.
    fn size(&self) -> usize;
    /// The address of a rank.
    fn address(&self, rank: usize) -> Result<Address, String>;
    /// The address of a rank, and the name of its host if that is known.
    fn entry(&self, rank: usize) -> Result<(Address, Option<String>), String> {
        Ok((self.address(rank)?, None))
    }
}

impl Directory for Vec<Address> {
    fn size(&self) -> usize {
        self.len()
    }

    fn address(&self, rank: usize) -> Result<Address, String> {
        self.get(rank).cloned().ok_or_else(|| format!("there is no rank {rank}"))
    }
}

struct Inner {
    endpoint: Endpoint,
    directory: Rc<dyn Directory>,
    /// Ranks of this group in the directory.
    members: Vec<usize>,
    rank: usize,
    context: u16,
    peers: RefCell<Vec<Option<PeerId>>>,
    begun: Begun,
    /// Ranks whose failure a receive from any rank has reported.
    reported: RefCell<Vec<usize>>,
    tree: Cell<Tree>,
    /// Receives that claim their messages, in the order in which they were made.
    waiting: RefCell<Vec<Waiting>>,
    /// Number of such receives so far.
    waited: Cell<u64>,
    /// The reason why the address of a rank was not available, the last time.
    nowhere: RefCell<String>,
    /// Hash of the members.
    list: u32,
    notices: Rc<Notices>,
    port: Port,
}

/// The collective operations of a group so far.
#[derive(Default)]
struct Begun {
    /// Their number, which is the same on all ranks.
    count: Cell<u32>,
    /// Memory for parts of vectors, which operations use again.
    scratch: RefCell<Vec<Vec<u8>>>,
    /// The hosts of the ranks, once they are known, if they matter.
    hosts: OnceCell<Option<Rc<hosts::Hosts>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.notices.forget(&self.port, self.context);
    }
}

/// An ordered set of ranks with a tag space of its own. Clones are the same group.
///
/// All ranks of a group call the same collective operations in the same order.
///
/// ```no_run
/// use weft::{Job, Op};
///
/// let job = Job::init()?;
/// let world = job.world();
/// // Rank 0 has the parameters, and every rank gets them.
/// let data = if world.rank() == 0 { b"parameters".to_vec() } else { Vec::new() };
/// let parameters = world.broadcast_blocking(0, data)?;
/// // Messages to one rank: by number and tag.
/// if world.rank() > 0 {
///     world.send_blocking(0, 1, &parameters)?;
/// } else {
///     for _ in 1..world.size() {
///         let (rank, data) = world.recv_any(1, 1024).wait()?;
///         println!("{} bytes from rank {rank}", data.len());
///     }
/// }
/// // The even ranks as a group of their own.
/// let even: Vec<usize> = (0..world.size()).step_by(2).collect();
/// if let Some(group) = world.subset(&even, 1) {
///     let largest = group.allreduce_blocking(vec![world.rank() as u64], Op::Max)?;
///     println!("the largest even rank is {}", largest[0]);
/// }
/// world.barrier_blocking()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Group {
    inner: Rc<Inner>,
}

/// The error of a rank whose address is not available.
const NO_LINK: OpError = OpError::Peer { peer: PeerId(u32::MAX), failure: PeerFailure::NoLink };

/// Purposes of a tag, in bits 32..48 of the match bits; the context is in bits 48..64.
const USER: u64 = 0;
const COLLECTIVE: u64 = 1 << 32;
/// Messages of a collective operation that are not in one order with its others.
const RESULT: u64 = COLLECTIVE | 1 << 33;

impl Group {
    /// Makes the group of all ranks of a directory, once in an endpoint: operations of a second one
    /// would have the same numbers. Clones are the same group.
    pub fn new(endpoint: Endpoint, directory: impl Directory + 'static, rank: usize) -> Group {
        let members = (0..directory.size()).collect();
        let tree = endpoint.reactor.engine().config().tree;
        Group::of(endpoint, Rc::new(directory), members, (rank, 0), tree)
    }

    fn of(
        endpoint: Endpoint,
        directory: Rc<dyn Directory>,
        members: Vec<usize>,
        (rank, context): (usize, u16),
        tree: Tree,
    ) -> Group {
        endpoint.reactor.borrow_mut().waits.tag_text = tag_text;
        let (port, notices) = notices::client(&endpoint);
        let inner = Inner {
            endpoint,
            directory,
            peers: RefCell::new(vec![None; members.len()]),
            list: agree::hash(&members),
            members,
            rank,
            context,
            begun: Begun::default(),
            reported: RefCell::default(),
            tree: Cell::new(tree),
            waiting: RefCell::default(),
            waited: Cell::new(0),
            nowhere: RefCell::default(),
            notices,
            port,
        };
        Group { inner: Rc::new(inner) }
    }

    /// Makes a group of some of these ranks, in the order given. All named ranks pass the same list
    /// and a `context` (1 to 65535) that no other group of the job uses. `None` on ranks that are
    /// not named, or if the list names a rank that does not exist.
    pub fn subset(&self, ranks: &[usize], context: u16) -> Option<Group> {
        let rank = ranks.iter().position(|&r| r == self.rank())?;
        let member = |&rank: &usize| self.inner.members.get(rank).copied();
        let members = ranks.iter().map(member).collect::<Option<_>>()?;
        let (endpoint, directory) = (self.inner.endpoint.clone(), self.inner.directory.clone());
        let tree = self.inner.tree.get();
        Some(Group::of(endpoint, directory, members, (rank, context), tree))
    }

    /// Returns this process's rank.
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.inner.members.len()
    }

    fn here(&self) -> Here {
        let Inner { context, rank, list, .. } = *self.inner;
        Here { context, rank, size: self.size(), list }
    }

    /// Returns the endpoint of this group.
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    /// Sets the tree of broadcasts and reductions that name none, in place of the endpoint's
    /// configuration (`WEFT_TREE`). Every rank must set the same tree.
    pub fn set_tree(&self, tree: Tree) {
        self.inner.tree.set(tree);
    }

    /// Returns the peer of a rank.
    ///
    /// # Errors
    /// The group has no such rank; or no link reaches it, for the reasons in the error's text.
    pub fn peer(&self, rank: usize) -> Result<PeerId, GroupError> {
        self.find_peer(rank).map_err(|error| self.error(error, Some(rank)))
    }

    fn find_peer(&self, rank: usize) -> Result<PeerId, OpError> {
        let known = self.inner.peers.borrow().get(rank).copied();
        match known {
            Some(Some(peer)) => Ok(peer),
            Some(None) => self.find(rank),
            None => Err(self.no_rank(rank)),
        }
    }

    #[cold]
    fn no_rank(&self, rank: usize) -> OpError {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        OpError::NoRank { rank: number(rank), size: number(self.size()) }
    }

    /// Makes the peer of a rank at its first use.
    #[cold]
    fn find(&self, rank: usize) -> Result<PeerId, OpError> {
        let (endpoint, number) = (&self.inner.endpoint, self.inner.members[rank]);
        let (address, host) = self.inner.directory.entry(number).map_err(|why| {
            weft_link::error!("rank {number}: {why}");
            *self.inner.nowhere.borrow_mut() = format!("rank {number}: {why}");
            NO_LINK
        })?;
        let connected = endpoint.connect(&address);
        let known = endpoint.find_peer(address.endpoint);
        if let Some(peer) = known {
            let here = endpoint.address().host;
            endpoint.peer(peer).set_name(&rank_name(number, &address, host.as_deref(), here));
        }
        let peer = connected.map_err(|why| {
            weft_link::error!("rank {number}: {why}");
            *self.inner.nowhere.borrow_mut() = format!("rank {number}: {why}");
            known.map_or(NO_LINK, |peer| OpError::Peer { peer, failure: PeerFailure::NoLink })
        })?;
        self.inner.peers.borrow_mut()[rank] = Some(peer);
        Ok(peer)
    }

    /// Returns the whole text of an error of this group's operations: which rank on which host,
    /// over which link, interface and address, why, and what to do. The error's own `Display` knows
    /// only the number of the peer.
    pub fn explain(&self, error: OpError) -> String {
        match error {
            NO_LINK => self.inner.nowhere.borrow().clone(),
            other => self.inner.endpoint.explain(other),
        }
    }

    /// Returns the rank of a peer, if it is a rank of this group that was used before.
    pub fn rank_of(&self, peer: PeerId) -> Option<usize> {
        self.inner.peers.borrow().iter().position(|&p| p == Some(peer))
    }

    /// Returns the name of a rank's host, or an IP address of it, if that is known.
    pub fn host_of(&self, rank: usize) -> Option<String> {
        let (address, host) = self.inner.directory.entry(*self.inner.members.get(rank)?).ok()?;
        let first = || address.udp.first().or(address.tcp.first());
        host.or_else(|| first().map(|socket| socket.ip().to_string()))
    }

    /// Returns the match bits of this group's messages with a tag, for operations of the endpoint.
    pub fn match_bits(&self, tag: u32) -> u64 {
        self.tag(USER, tag)
    }

    fn tag(&self, class: u64, tag: u32) -> u64 {
        bits_of(self.inner.context, class, tag)
    }

    /// Sends to a rank; ends when the buffer is free.
    pub fn send(&self, to: usize, tag: u32, data: Vec<u8>) -> Started<()> {
        match self.find_peer(to) {
            Ok(peer) => {
                let sent = self.inner.endpoint.send(peer, self.tag(USER, tag), data);
                Started::operation(self, to, sent, |_, _| ())
            }
            Err(error) => Started::ended(self, Some(to), error),
        }
    }

    /// Sends to a rank and returns when `data` is free: at once if it is short.
    ///
    /// # Errors
    /// There is no such rank, or it failed.
    pub fn send_blocking(&self, to: usize, tag: u32, data: &[u8]) -> Result<(), GroupError> {
        let peer = self.peer(to)?;
        let sent = self.inner.endpoint.send_blocking(peer, self.tag(USER, tag), data);
        sent.map_err(|error| self.error(error, Some(to)))
    }

    /// Receives from a rank a message of at most `max_len` bytes. Messages of one rank and tag
    /// match receives of this rank and tag in the order in which both were made.
    pub fn recv(&self, from: usize, tag: u32, max_len: usize) -> Started<Vec<u8>> {
        if max_len <= POSTED_MAX {
            return self.recv_into(from, tag, vec![0; max_len]);
        }
        self.recv_sized(from, tag, max_len)
    }

    /// Receives from a rank into `buffer`, which comes back as long as the message. The buffer is
    /// posted at once, whatever its length; [`recv`](Self::recv) allocates memory for a message
    /// beyond 64 KiB only when the message has been announced.
    pub fn recv_into(&self, from: usize, tag: u32, mut buffer: Vec<u8>) -> Started<Vec<u8>> {
        let tag_bits = self.tag(USER, tag);
        if self.is_awaited(Some(from), tag_bits) {
            return self.recv_sized(from, tag, buffer.len());
        }
        match self.find_peer(from) {
            Ok(peer) => {
                let buffer = std::mem::take(&mut buffer);
                let received = self.inner.endpoint.recv(Some(peer), tag_bits, 0, buffer);
                Started::operation(self, from, received, whole)
            }
            Err(error) => Started::ended(self, Some(from), error),
        }
    }

    fn recv_sized(&self, from: usize, tag: u32, max_len: usize) -> Started<Vec<u8>> {
        let (group, tag) = (self.clone(), self.tag(USER, tag));
        let turn = ReceiveOrder::new(self, Some(from), tag);
        Started::task(self, true, async move {
            let explained = |error| group.error(error, Some(from));
            let peer = group.find_peer(from).map_err(explained)?;
            let endpoint = &group.inner.endpoint;
            let mut watch = None;
            let failure_of_all = |_: &mut Context<'_>| {
                if watch.is_none() {
                    watch = endpoint.peer(peer).watch();
                }
                endpoint.peer(peer).failure().map(|failure| OpError::Peer { peer, failure })
            };
            let of = (Some(peer), tag, 0);
            let received =
                endpoint.recv_sized_unless(of, max_len, move || turn.has_come(), failure_of_all);
            received.await.map(|(_, data)| data).map_err(explained)
        })
    }

    /// Receives from a rank into `buffer` and returns the length of the message when it is there.
    ///
    /// # Errors
    /// There is no such rank, it failed, or its message was longer.
    pub fn recv_blocking(
        &self,
        from: usize,
        tag: u32,
        buffer: &mut [u8],
    ) -> Result<usize, GroupError> {
        let bits = self.tag(USER, tag);
        if self.is_awaited(Some(from), bits) {
            let data = self.recv_sized(from, tag, buffer.len()).wait()?;
            buffer[..data.len()].copy_from_slice(&data);
            return Ok(data.len());
        }
        let peer = self.peer(from)?;
        let received = self.inner.endpoint.recv_blocking(Some(peer), bits, 0, buffer);
        received.map(|status| status.len).map_err(|error| self.error(error, Some(from)))
    }

    /// Receives from any rank a message of at most `max_len` bytes.
    ///
    /// The wait ends when no rank is left that could send: after `WEFT_WARN_AFTER_MS` without a
    /// message all other ranks are watched, and silence counts as a failure, as in any other wait.
    ///
    /// # Errors
    /// `Peer`, if there is no message and another rank failed. A failure ends, once, every
    /// `recv_any` of this group that has begun; later ones wait for the remaining ranks, so a
    /// program that can do without a rank goes on. (MPI's fault tolerance proposal, ULFM, has a
    /// call for that acknowledgement.) A rank that closed its endpoint in good order is no failure.
    /// When no other rank remains, every call fails at once.
    pub fn recv_any(&self, tag: u32, max_len: usize) -> Started<(usize, Vec<u8>)> {
        let (group, tag) = (self.clone(), self.tag(USER, tag));
        let turn = ReceiveOrder::new(self, None, tag);
        Started::task(self, true, async move {
            let mut senders = Senders::new(&group);
            let failure_of_all = |cx: &mut Context<'_>| senders.failure_of_all(cx);
            let endpoint = &group.inner.endpoint;
            let may = move || turn.has_come();
            let received = endpoint.recv_sized_unless((None, tag, 0), max_len, may, failure_of_all);
            let (status, data) = received.await.map_err(|error| group.error(error, None))?;
            let source = status.source.and_then(|peer| group.find_rank(peer));
            Ok((source.unwrap_or(usize::MAX), data))
        })
    }

    /// Receives a message from any rank by [`recv_any`](Self::recv_any), and returns rank and bytes
    /// of the message when it is there.
    ///
    /// # Errors
    /// Returns the errors of `recv_any`.
    pub fn recv_any_blocking(
        &self,
        tag: u32,
        max_len: usize,
    ) -> Result<(usize, Vec<u8>), GroupError> {
        self.recv_any(tag, max_len).wait()
    }

    /// Returns the rank of a peer, which may have connected before this rank used it. Asks for the
    /// addresses of ranks that were not used before.
    pub fn find_rank(&self, peer: PeerId) -> Option<usize> {
        if let Some(rank) = self.rank_of(peer) {
            return Some(rank);
        }
        (0..self.size()).find(|&r| self.find_peer(r) == Ok(peer))
    }

    /// True if an earlier receive that claims its message may match the same message.
    fn is_awaited(&self, from: Option<usize>, tag: u64) -> bool {
        self.inner.waiting.borrow().iter().any(|other| other.overlaps(from, tag))
    }
}

/// Returns the match bits of the messages of a group.
fn bits_of(context: u16, class: u64, tag: u32) -> u64 {
    u64::from(context) << 48 | class | u64::from(tag)
}

/// Returns the text for the match bits of a group's message, for messages to people.
fn tag_text(bits: u64, _ignore: u64) -> String {
    let (context, class, tag) = (bits >> 48, bits & COLLECTIVE, bits as u32);
    let what = match class {
        COLLECTIVE => format!("of collective operation {tag}"),
        _ => format!("with tag {tag}"),
    };
    match context {
        0 => what,
        _ => format!("{what} of group {context}"),
    }
}

/// Cuts a buffer to the length of the received message.
fn whole(status: Status, mut buffer: Vec<u8>) -> Vec<u8> {
    buffer.truncate(status.len);
    buffer
}

/// A receive that claims its message when the message has arrived.
struct Waiting {
    number: u64,
    from: Option<usize>,
    tag: u64,
}

impl Waiting {
    fn overlaps(&self, from: Option<usize>, tag: u64) -> bool {
        self.tag == tag && (self.from.is_none() || from.is_none() || self.from == from)
    }
}

/// The position of such a receive among those of its group.
struct ReceiveOrder {
    group: Group,
    number: u64,
}

impl ReceiveOrder {
    fn new(group: &Group, from: Option<usize>, tag: u64) -> ReceiveOrder {
        let number = group.inner.waited.get() + 1;
        group.inner.waited.set(number);
        group.inner.waiting.borrow_mut().push(Waiting { number, from, tag });
        ReceiveOrder { group: group.clone(), number }
    }

    /// True if no earlier receive wants the same message.
    fn has_come(&self) -> bool {
        let waiting = self.group.inner.waiting.borrow();
        let Some(me) = waiting.iter().find(|w| w.number == self.number) else { return true };
        waiting.iter().all(|w| w.number >= me.number || !w.overlaps(me.from, me.tag))
    }
}

impl Drop for ReceiveOrder {
    fn drop(&mut self) {
        self.group.inner.waiting.borrow_mut().retain(|w| w.number != self.number);
        // Later receives check again.
        self.group.inner.endpoint.reactor.wake_arrivals();
    }
}

/// Returns the name of a rank for messages to people, with its host: an IP address of it, else its
/// name.
pub(crate) fn rank_name(rank: usize, address: &Address, host: Option<&str>, here: u64) -> String {
    match (address.udp.first().or(address.tcp.first()), host) {
        _ if here != 0 && address.host == here => format!("rank {rank} on this host"),
        (Some(socket), _) => format!("rank {rank} on host {}", socket.ip()),
        (None, Some(host)) => format!("rank {rank} on host {host}"),
        (None, None) => format!("rank {rank}"),
    }
}

/// Up to this size a buffer is posted at once; beyond it, the receive first waits for the length.
const POSTED_MAX: usize = 64 << 10;

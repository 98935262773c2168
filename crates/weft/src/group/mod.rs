//! Groups of ranks: point-to-point by rank, and collective operations over trees.

mod any;
mod collectives;
mod element;

pub use element::{Element, Op};
pub use weft_core::group::tree::Tree;

use crate::endpoint::{Endpoint, Operation};
use any::Senders;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Context;
use weft_core::{OpError, PeerFailure, PeerId};
use weft_link::Address;

/// Where the addresses of ranks come from; asked once a rank, when it is first used.
pub trait Directory {
    /// Number of ranks.
    fn size(&self) -> usize;
    /// The address of a rank.
    fn address(&self, rank: usize) -> Result<Address, String>;
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
    /// Collective operations done: all ranks count alike.
    collectives: Cell<u32>,
    /// Ranks whose failure a receive from any rank has reported.
    reported: RefCell<Vec<usize>>,
    tree: Cell<Tree>,
    /// Why the address of a rank was not to be had, the last time.
    nowhere: RefCell<String>,
}

/// An ordered set of ranks with a tag space of its own. Clones are the same group.
#[derive(Clone)]
pub struct Group {
    inner: Rc<Inner>,
}

/// The error of a rank whose address nobody knows.
const NO_LINK: OpError = OpError::Peer { peer: PeerId(u32::MAX), failure: PeerFailure::NoLink };

/// What a tag is for: bits 32..48 of the match bits; the context is in bits 48..64.
const USER: u64 = 0;
const COLLECTIVE: u64 = 1 << 32;

impl Group {
    /// The group of all ranks of a directory.
    pub fn new(endpoint: Endpoint, directory: impl Directory + 'static, rank: usize) -> Group {
        let members = (0..directory.size()).collect();
        let tree = endpoint.inner.borrow().driver.core.engine.config().tree;
        Group::of(endpoint, Rc::new(directory), members, (rank, 0), tree)
    }

    fn of(
        endpoint: Endpoint,
        directory: Rc<dyn Directory>,
        members: Vec<usize>,
        (rank, context): (usize, u16),
        tree: Tree,
    ) -> Group {
        endpoint.say_tags_as(tag_text);
        let inner = Inner {
            endpoint,
            directory,
            peers: RefCell::new(vec![None; members.len()]),
            members,
            rank,
            context,
            collectives: Cell::new(0),
            reported: RefCell::default(),
            tree: Cell::new(tree),
            nowhere: RefCell::default(),
        };
        Group { inner: Rc::new(inner) }
    }

    /// A group of some of these ranks, in the order given; `None` on ranks that are not named, and
    /// where a number is that of no rank. All ranks named pass the same list and a `context` (1 to
    /// 65535) that no other group of the job uses.
    pub fn subset(&self, ranks: &[usize], context: u16) -> Option<Group> {
        let rank = ranks.iter().position(|&r| r == self.rank())?;
        let member = |&rank: &usize| self.inner.members.get(rank).copied();
        let members = ranks.iter().map(member).collect::<Option<_>>()?;
        let (endpoint, directory) = (self.inner.endpoint.clone(), self.inner.directory.clone());
        let tree = self.inner.tree.get();
        Some(Group::of(endpoint, directory, members, (rank, context), tree))
    }

    /// This process's rank.
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.inner.members.len()
    }

    /// The endpoint below.
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    /// The tree that broadcasts and reductions which name none use from now on, in place of that of
    /// the endpoint's configuration (`WEFT_TREE`); every rank sets the same.
    pub fn set_tree(&self, tree: Tree) {
        self.inner.tree.set(tree);
    }

    /// The peer of a rank.
    ///
    /// # Errors
    /// `NoRank` where the group has none of that number; `NoLink`, with the reasons logged and in
    /// what [`explain`](Self::explain) says, when no link leads there.
    pub fn peer(&self, rank: usize) -> Result<PeerId, OpError> {
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

    /// Makes a peer of a rank that is used for the first time.
    #[cold]
    fn find(&self, rank: usize) -> Result<PeerId, OpError> {
        let (endpoint, number) = (&self.inner.endpoint, self.inner.members[rank]);
        let address = self.inner.directory.address(number).map_err(|why| {
            log::error!("rank {number}: {why}");
            *self.inner.nowhere.borrow_mut() = format!("rank {number}: {why}");
            NO_LINK
        })?;
        let connected = endpoint.connect(&address);
        let known = endpoint.find_peer(address.endpoint);
        if let Some(peer) = known {
            endpoint.set_name(peer, &name(number, &address, endpoint.address().host));
        }
        let peer = connected.map_err(|why| {
            log::error!("rank {number}: {why}");
            *self.inner.nowhere.borrow_mut() = format!("rank {number}: {why}");
            known.map_or(NO_LINK, |peer| OpError::Peer { peer, failure: PeerFailure::NoLink })
        })?;
        self.inner.peers.borrow_mut()[rank] = Some(peer);
        Ok(peer)
    }

    /// The whole text of an error that an operation of this group ended with: which rank on which
    /// host, over which link, interface and address, why, and what to do. The error's own `Display`
    /// knows the number of the peer alone.
    pub fn explain(&self, error: OpError) -> String {
        match error {
            NO_LINK => self.inner.nowhere.borrow().clone(),
            other => self.inner.endpoint.explain(other),
        }
    }

    /// The rank of a peer, if it is one of this group that was used before.
    pub fn rank_of(&self, peer: PeerId) -> Option<usize> {
        self.inner.peers.borrow().iter().position(|&p| p == Some(peer))
    }

    fn tag(&self, class: u64, tag: u32) -> u64 {
        u64::from(self.inner.context) << 48 | class | u64::from(tag)
    }

    /// Starts sending to a rank; await the operation for its end.
    pub fn start_send(&self, to: usize, tag: u32, data: Vec<u8>) -> Result<Operation, OpError> {
        Ok(self.inner.endpoint.send(self.peer(to)?, self.tag(USER, tag), data))
    }

    /// Starts receiving from a rank into `buffer`; await the operation for its end.
    pub fn start_recv(&self, from: usize, tag: u32, buffer: Vec<u8>) -> Result<Operation, OpError> {
        let peer = self.peer(from)?;
        Ok(self.inner.endpoint.recv(Some(peer), self.tag(USER, tag), 0, buffer))
    }

    /// Sends to a rank; returns when the buffer is free.
    pub async fn send(&self, to: usize, tag: u32, data: Vec<u8>) -> Result<(), OpError> {
        self.start_send(to, tag, data)?.await.0.map(|_| ())
    }

    /// Receives from a rank a message of at most `max_len` bytes.
    pub async fn recv(&self, from: usize, tag: u32, max_len: usize) -> Result<Vec<u8>, OpError> {
        self.recv_class(from, self.tag(USER, tag), max_len).await
    }

    /// Receives from any rank a message of at most `max_len` bytes.
    ///
    /// The wait is bounded by the lives of the ranks that could send: after `WEFT_WARN_AFTER_MS`
    /// in vain all other ranks are watched, and silence is a failure as for any other wait.
    ///
    /// # Errors
    /// `Peer`, when there is no message and another rank failed. That failure ends every `recv_any`
    /// of this group that has begun, once; those that begin later wait for the ranks that remain,
    /// so that a program which can do without a rank goes on. (MPI's fault tolerance proposal,
    /// ULFM, has a call for that acknowledgement.) A rank that closed its endpoint in good order is
    /// no failure. When no other rank remains, every call fails at once.
    pub async fn recv_any(&self, tag: u32, max_len: usize) -> Result<(usize, Vec<u8>), OpError> {
        let tag = self.tag(USER, tag);
        let mut senders = Senders::new(self);
        let hopeless = |cx: &mut Context<'_>| senders.hopeless(cx);
        let endpoint = &self.inner.endpoint;
        let received = endpoint.recv_sized_unless(None, tag, 0, max_len, hopeless).await;
        let (status, data) = received?;
        let source = status.source.and_then(|peer| self.find_rank(peer));
        Ok((source.unwrap_or(usize::MAX), data))
    }

    /// The rank of a peer, which may have made itself known before this rank used it.
    fn find_rank(&self, peer: PeerId) -> Option<usize> {
        if let Some(rank) = self.rank_of(peer) {
            return Some(rank);
        }
        (0..self.size()).find(|&r| self.peer(r) == Ok(peer))
    }

    async fn recv_class(&self, from: usize, tag: u64, max_len: usize) -> Result<Vec<u8>, OpError> {
        let peer = self.peer(from)?;
        let endpoint = &self.inner.endpoint;
        if max_len <= POSTED_MAX {
            let (result, mut data) = endpoint.recv(Some(peer), tag, 0, vec![0; max_len]).await;
            data.truncate(result?.len);
            return Ok(data);
        }
        endpoint.recv_sized(Some(peer), tag, 0, max_len).await.map(|(_, data)| data)
    }
}

/// What people are told of the match bits of a group's message.
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

/// What people call a rank: with the host it runs on, as far as its address tells.
fn name(rank: usize, address: &Address, here: u64) -> String {
    match address.udp.first() {
        _ if here != 0 && address.host == here => format!("rank {rank} on this host"),
        Some(socket) => format!("rank {rank} on host {}", socket.ip()),
        None => format!("rank {rank}"),
    }
}

/// Up to this size a buffer is posted ahead; beyond, the length is awaited first.
const POSTED_MAX: usize = 64 << 10;

//! The trait over the packet interface of an endpoint, in real and in simulated time.

use super::{Blocking, InUpcall, Incoming, Lasting, Net, RankFailure, Unsent, PATIENT};
use crate::{Counter, MulticastError, MulticastGroup, OpenError, Packets};
use std::cell::RefCell;
use std::future::Future;
use std::ops::Range;
use std::pin::{pin, Pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use weft::choices::Server;
use weft::port::{Arrived, Client, Port, WEFT};
use weft::{Group, OpError, PeerFailure, PeerId};
use weft_core::Instant;

/// The client of the port that hears of failures. No message is sent to its number.
const CLIENT: u8 = WEFT + 2;

/// A function that lets the time of a computation pass.
pub type Compute = Rc<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()>>>>;

type Told = Box<dyn FnMut(PeerId, PeerFailure)>;

/// The callbacks for failures of an endpoint's peers.
#[derive(Default)]
struct Failures {
    told: RefCell<Vec<Told>>,
}

impl Client for Failures {
    fn arrived(self: Rc<Self>, port: &Port, message: Arrived) {
        port.release(message);
    }

    fn failed(self: Rc<Self>, _: &Port, peer: PeerId, failure: PeerFailure) {
        // A call may add others, for which this failure is in the past.
        let mut told = std::mem::take(&mut *self.told.borrow_mut());
        told.iter_mut().for_each(|call| call(peer, failure));
        let added = std::mem::replace(&mut *self.told.borrow_mut(), told);
        self.told.borrow_mut().extend(added);
    }
}

struct Inner {
    packets: Packets,
    rank: usize,
    /// The peer of each rank, or the reason why no link leads to it.
    peers: Vec<Result<PeerId, String>>,
    /// The rank of each peer.
    ranks: Rc<[u32]>,
    failures: Rc<Failures>,
    lasting: Lasting,
    compute: Option<Compute>,
    warn_after: Duration,
    peer_timeout: Duration,
}

/// The packet interface of a rank of a group of `weft`: the job's world, or a part of it.
///
/// ```no_run
/// use weft_packets::net::{Blocking, Live, Net};
///
/// let job = weft::Job::init()?;
/// let net = Live::new(job.world())?;
/// net.handle(1, |packet| println!("{} bytes from rank {}", packet.data.len(), packet.from));
/// job.world().barrier_blocking()?;
/// if net.rank() == 0 {
///     (1..net.size()).try_for_each(|rank| net.try_send(rank, 1, 0, b"hello"))?;
/// }
/// job.world().barrier_blocking()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Live {
    inner: Rc<Inner>,
}

impl Live {
    /// Returns the interface of a group, whose rank it takes. Every rank of the group is looked up.
    ///
    /// # Errors
    /// The endpoint has no packet interface: see [`Packets::new`].
    pub fn new(group: &Group) -> Result<Live, OpenError> {
        Live::with_packets(group, Packets::new(group.endpoint())?, None)
    }

    /// Returns the interface of a group over a packet interface of the same endpoint; `compute`
    /// lets the time of computations pass, in a simulator.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Live::new).
    ///
    /// # Panics
    /// The program has given the number of a client of this crate to one of its own.
    pub fn with_packets(
        group: &Group,
        packets: Packets,
        compute: Option<Compute>,
    ) -> Result<Live, OpenError> {
        let find = |rank| group.peer(rank).map_err(|why| why.to_string());
        let peers: Vec<_> = (0..group.size()).map(find).collect();
        let known = || peers.iter().flatten();
        let mut ranks = vec![u32::MAX; known().map(|p| p.0 as usize + 1).max().unwrap_or(0)];
        for (rank, peer) in peers.iter().enumerate() {
            if let Ok(peer) = peer {
                ranks[peer.0 as usize] = rank as u32;
            }
        }
        packets.wait_for_handlers(PATIENT);
        let made = packets.endpoint().port(CLIENT, Rc::<Failures>::default);
        let (_, failures) = made.unwrap_or_else(|taken| panic!("{taken}"));
        let config = packets.endpoint().config();
        let (warn_after, peer_timeout) = (config.warn_after_ms, config.peer_timeout_ms);
        let inner = Inner {
            packets,
            rank: group.rank(),
            peers,
            ranks: ranks.into(),
            failures,
            lasting: Lasting::default(),
            compute,
            warn_after: Duration::from_millis(u64::from(warn_after)),
            peer_timeout: Duration::from_millis(u64::from(peer_timeout)),
        };
        Ok(Live { inner: Rc::new(inner) })
    }

    /// Returns the packet interface below.
    pub fn packets(&self) -> &Packets {
        &self.inner.packets
    }

    fn peer(&self, rank: usize) -> Result<PeerId, RankFailure> {
        match self.inner.peers.get(rank) {
            Some(Ok(peer)) => Ok(*peer),
            Some(Err(why)) => Err(RankFailure { rank, certain: false, why: why.clone() }),
            None => {
                let why = format!("there are {} ranks, from 0", self.inner.peers.len());
                Err(RankFailure { rank, certain: true, why })
            }
        }
    }

    fn failure_of(&self, rank: usize, error: OpError) -> RankFailure {
        let certain = match error {
            OpError::Peer { failure, .. } => is_certain(failure),
            _ => false,
        };
        RankFailure { rank, certain, why: self.inner.packets.endpoint().explain(error) }
    }

    #[cold]
    fn unsent(&self, to: usize, error: OpError) -> Unsent {
        match error {
            OpError::Busy => Unsent::Busy,
            OpError::Refused => Unsent::TooLong { most: self.packet_max(to) },
            error => Unsent::Failed(self.failure_of(to, error)),
        }
    }
}

/// True if a peer that failed so has no process any more, or wants no more packets.
fn is_certain(failure: PeerFailure) -> bool {
    matches!(failure, PeerFailure::Gone | PeerFailure::Closed)
}

fn rank_of(ranks: &[u32], peer: PeerId) -> Option<usize> {
    ranks.get(peer.0 as usize).filter(|&&rank| rank != u32::MAX).map(|&rank| rank as usize)
}

impl Net for Live {
    type Group = MulticastGroup;

    fn downgrade(&self) -> impl Fn() -> Option<Live> + 'static + use<> {
        let inner = Rc::downgrade(&self.inner);
        move || inner.upgrade().map(|inner| Live { inner })
    }

    fn rank(&self) -> usize {
        self.inner.rank
    }

    fn size(&self) -> usize {
        self.inner.peers.len()
    }

    fn now(&self) -> Instant {
        self.inner.packets.endpoint().now()
    }

    fn boot_time(&self) -> Instant {
        match self.time_is_virtual() {
            true => self.now(),
            false => weft::clock::boot_time(),
        }
    }

    fn packet_max(&self, to: usize) -> usize {
        self.peer(to).map_or(0, |peer| self.inner.packets.packet_max(peer))
    }

    fn handle(&self, handler: u16, mut upcall: impl FnMut(Incoming<'_>) + 'static) -> u64 {
        let ranks = Rc::clone(&self.inner.ranks);
        if PATIENT.contains(&handler) && self.inner.packets.has_upcall(handler) {
            weft_link::warn!(
                "rank {}: a model is opened again under a number that was used (handler \
                 {handler}): messages that came for it meanwhile are lost",
                self.inner.rank
            );
        }
        self.inner.packets.set_upcall(handler, move |_, packet| {
            // A peer that is no rank of the group has no business with its handlers.
            if let Some(from) = rank_of(&ranks, packet.source()) {
                upcall(Incoming { from, argument: packet.argument(), data: packet.data() });
            }
        })
    }

    fn end_handle(&self, handler: u16, setting: u64) {
        debug_assert!(PATIENT.contains(&handler));
        self.inner.packets.end_upcall(handler, setting);
    }

    fn lasting(&self) -> &Lasting {
        &self.inner.lasting
    }

    #[inline]
    fn try_send(&self, to: usize, handler: u16, argument: u32, data: &[u8]) -> Result<(), Unsent> {
        let peer = self.peer(to).map_err(Unsent::Failed)?;
        let sent = self.inner.packets.try_send(peer, handler, argument, data);
        sent.map_err(|error| self.unsent(to, error))
    }

    fn try_gather(
        &self,
        to: usize,
        handler: u16,
        argument: u32,
        memory: &Rc<[u8]>,
        part: Range<usize>,
    ) -> Result<(), Unsent> {
        let peer = self.peer(to).map_err(Unsent::Failed)?;
        let sent = self.inner.packets.try_gather(peer, handler, argument, memory, part);
        sent.map_err(|error| self.unsent(to, error))
    }

    fn group(&self, number: u16, generation: u8, members: &[usize]) -> Option<MulticastGroup> {
        let me = members.iter().position(|&rank| rank == self.inner.rank)?;
        let peer = |&rank: &usize| match rank == self.inner.rank {
            // This rank's own entry is not used.
            true => Some(PeerId(u32::MAX)),
            false => self.peer(rank).ok(),
        };
        let peers = members.iter().map(peer).collect::<Option<Vec<_>>>()?;
        self.inner.packets.group_again(number, generation, peers, me)
    }

    fn end_group(&self, group: &MulticastGroup) {
        group.end();
    }

    fn group_max(&self, group: &MulticastGroup) -> usize {
        group.packet_max()
    }

    fn try_multicast(
        &self,
        group: &MulticastGroup,
        handler: u16,
        argument: u32,
        data: &[u8],
    ) -> Result<(), Unsent> {
        let tree = self.inner.packets.endpoint().choices().tree;
        match group.try_send(tree, handler, argument, data) {
            Ok(()) => Ok(()),
            Err(MulticastError::Busy { .. }) => Err(Unsent::Busy),
            Err(MulticastError::Member { rank: member, failure }) => {
                let peer = group.member(member);
                let rank = peer.and_then(|peer| rank_of(&self.inner.ranks, peer));
                let rank = rank.unwrap_or(self.inner.rank);
                Err(Unsent::Failed(match (peer, failure) {
                    (Some(peer), Some(failure)) => {
                        self.failure_of(rank, OpError::Peer { peer, failure })
                    }
                    _ => {
                        let why = "another member of its multicast group reports it".to_string();
                        RankFailure { rank, certain: false, why }
                    }
                }))
            }
            Err(_) => Err(Unsent::TooLong { most: group.packet_max() }),
        }
    }

    fn counter(&self, value: u64) -> Option<Counter> {
        self.inner.packets.counter(value)
    }

    fn end_counter(&self, counter: Counter) {
        self.inner.packets.end_counter(counter);
    }

    fn add_at_once(&self, at: usize, counter: Counter, n: u64) -> Option<u64> {
        let packets = &self.inner.packets;
        match (at == self.inner.rank, packets.counter_server()) {
            (false, _) => packets.add_to_word(self.peer(at).ok()?, counter.key, n),
            (true, Server::Host) => packets.add_here(counter, n),
            (true, _) => None,
        }
    }

    fn fetch_add(
        &self,
        at: usize,
        counter: Counter,
        n: u64,
    ) -> impl Future<Output = Result<u64, RankFailure>> + use<> {
        let net = self.clone();
        async move {
            let packets = &net.inner.packets;
            if at == net.inner.rank && packets.counter_server() == Server::Host {
                let before = packets.add_here(counter, n);
                return before.ok_or_else(|| net.failure_of(at, OpError::Refused));
            }
            let peer = net.peer(at)?;
            let before = packets.fetch_add(peer, counter, n).await;
            before.map_err(|error| net.failure_of(at, error))
        }
    }

    fn poll(&self) -> bool {
        self.inner.packets.poll()
    }

    #[inline]
    fn poll_attend(&self, cx: &Context<'_>) -> Poll<()> {
        self.inner.packets.endpoint().waiting().poll_attend(cx)
    }

    fn yield_now(&self) -> impl Future<Output = ()> + use<> {
        self.inner.packets.endpoint().yield_now()
    }

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + use<> {
        self.inner.packets.endpoint().sleep(time)
    }

    fn compute(&self, time: Duration) -> impl Future<Output = ()> + use<> {
        let computes = self.inner.compute.as_ref().map(|compute| compute(time));
        async move {
            if let Some(computes) = computes {
                computes.await;
            }
        }
    }

    fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        self.inner.packets.endpoint().spawn(work);
    }

    fn has_left(&self, rank: usize) -> bool {
        let failure = |peer| self.inner.packets.endpoint().peer(peer).failure();
        self.peer(rank).ok().and_then(failure) == Some(PeerFailure::Closed)
    }

    fn failure(&self, rank: usize) -> Option<RankFailure> {
        let peer = match self.peer(rank) {
            Ok(peer) => peer,
            Err(failure) => return Some(failure),
        };
        let failure = self.inner.packets.endpoint().peer(peer).failure()?;
        Some(self.failure_of(rank, OpError::Peer { peer, failure }))
    }

    fn on_failure(&self, mut call: impl FnMut(RankFailure) + 'static) {
        let ranks = Rc::clone(&self.inner.ranks);
        let inner = Rc::downgrade(&self.inner);
        let told = move |peer, failure| {
            let (Some(inner), Some(rank)) = (inner.upgrade(), rank_of(&ranks, peer)) else {
                return;
            };
            call(Live { inner }.failure_of(rank, OpError::Peer { peer, failure }));
        };
        self.inner.failures.told.borrow_mut().push(Box::new(told));
    }

    fn expect(&self, rank: usize) -> bool {
        self.peer(rank).is_ok_and(|peer| self.inner.packets.endpoint().peer(peer).expect())
    }

    fn unexpect(&self, rank: usize) {
        if let Ok(peer) = self.peer(rank) {
            self.inner.packets.endpoint().peer(peer).unexpect();
        }
    }

    fn peer_timeout(&self) -> Duration {
        self.inner.peer_timeout
    }

    fn time_is_virtual(&self) -> bool {
        self.inner.packets.endpoint().waiting().time_is_virtual()
    }

    fn warn_after(&self) -> Duration {
        self.inner.warn_after
    }
}

impl Blocking for Live {
    #[inline]
    fn attend(&self) {
        self.inner.packets.endpoint().waiting().attend();
    }

    fn wait(&self, timeout: Option<Duration>) -> bool {
        self.inner.packets.wait(timeout)
    }

    fn may_wait(&self) -> Result<(), InUpcall> {
        match self.inner.packets.is_in_upcall() {
            true => Err(InUpcall),
            false => Ok(()),
        }
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        if let Err(why) = self.may_wait() {
            let mut cx = Context::from_waker(Waker::noop());
            return match future.as_mut().poll(&mut cx) {
                Poll::Ready(done) => done,
                Poll::Pending => panic!("rank {}: {why}", self.inner.rank),
            };
        }
        self.inner.packets.endpoint().block_on(future)
    }
}

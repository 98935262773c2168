//! The packet interface as one trait.
//!
//! Programs and libraries that are written against [`Net`] run over the live packet interface
//! ([`Live`]) and in weft's simulator, whose hosts run the same code in virtual time, without a
//! change. Ranks take the place of peers, and there is one way to do each thing, the one that never
//! waits: a send that finds no room answers [`Unsent::Busy`].

mod live;

pub use live::{Compute, Live};

use crate::Counter;
use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use weft_core::Instant;

/// The numbers of handlers whose packets wait for the handler, if they arrive before it is set. The
/// modules of `weft-models` have these numbers, so that ranks may open them in any order.
pub const PATIENT: Range<u16> = 256..2304;

/// A call that would wait was made inside an upcall: a handler of packets, a service, a function
/// that is called with messages. It would wait for ever, since no packet arrives before the upcall
/// has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUpcall;

impl fmt::Display for InUpcall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a call that waits, made inside an upcall or a service: it would wait for ever, since \
             no packet arrives before the upcall has ended; wait in a task (Net::spawn), and \
             answer there",
        )
    }
}

impl std::error::Error for InUpcall {}

/// A packet that has arrived, in its upcall.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The sender; of a multicast packet, the root of its tree.
    pub from: usize,
    /// The argument that the sender gave.
    pub argument: u32,
    /// The payload.
    pub data: &'a [u8],
}

/// The failure of a rank, as this one knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankFailure {
    /// The rank.
    pub rank: usize,
    /// True if its process is known to have ended, or to have left. False if it may live and only
    /// be out of reach.
    pub certain: bool,
    /// The cause, with the way to the rank.
    pub why: String,
}

impl fmt::Display for RankFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Most causes say themselves which rank failed, with the way to it.
        match self.why.starts_with(&format!("rank {} ", self.rank)) {
            true => f.write_str(&self.why),
            false => write!(f, "rank {} failed: {}", self.rank, self.why),
        }
    }
}

impl std::error::Error for RankFailure {}

/// The reason why a packet was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsent {
    /// There is no room now: try again after progress.
    Busy,
    /// A rank has failed: the receiver, or a member of the multicast group.
    Failed(RankFailure),
    /// The packet is longer than a packet may be.
    TooLong {
        /// Longest packet, in bytes.
        most: usize,
    },
}

impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsent::Busy => f.write_str("no room now: try again after progress"),
            Unsent::Failed(failure) => failure.fmt(f),
            Unsent::TooLong { most } => write!(f, "longer than a packet of {most} bytes"),
        }
    }
}

impl std::error::Error for Unsent {}

/// Things that the modules of a handler share, also modules that follow each other: one of a type
/// for each handler.
#[derive(Default)]
pub struct Lasting(RefCell<BTreeMap<(u16, TypeId), Rc<dyn Any>>>);

impl Lasting {
    /// Returns the thing of a handler; makes it at the first call.
    pub fn of<T: Any + Default>(&self, handler: u16) -> Rc<T> {
        let mut all = self.0.borrow_mut();
        let made = all.entry((handler, TypeId::of::<T>())).or_insert_with(|| Rc::new(T::default()));
        // The key names the type.
        Rc::clone(made).downcast().unwrap_or_default()
    }
}

/// The packet interface of one rank. Clones are the same interface; it belongs to one thread.
///
/// Packets from one rank arrive once and in the order in which they were sent; multicast packets of
/// one rank and group too, but not in the order of its other packets. Upcalls and calls for
/// failures run one at a time, inside progress; they may call everything here that does not wait.
/// An upcall must not own a handle of its net, which would never be dropped: a [`Weak`] is right.
///
/// [`Weak`]: std::rc::Weak
pub trait Net: Clone + 'static {
    /// A multicast group.
    type Group: Clone + 'static;

    /// Returns a way to the net that does not own it, for upcalls that have to answer when the
    /// module that has set them is gone.
    fn downgrade(&self) -> impl Fn() -> Option<Self> + 'static + use<Self>;

    /// Returns this rank.
    fn rank(&self) -> usize;

    /// Returns the number of ranks.
    fn size(&self) -> usize;

    /// Reads the clock.
    fn now(&self) -> Instant;

    /// Reads the clock that goes on while the host is suspended.
    fn boot_time(&self) -> Instant {
        self.now()
    }

    /// Returns the longest packet to a rank, in bytes of the program.
    fn packet_max(&self, to: usize) -> usize;

    /// Sets `upcall` as handler of a number: it is called with each packet for the number. Packets
    /// for a number without a handler are dropped, unless the number is [`PATIENT`]. Returns the
    /// number of this setting.
    fn handle(&self, handler: u16, upcall: impl FnMut(Incoming<'_>) + 'static) -> u64;

    /// Ends a setting of a handler that is [`PATIENT`], unless another has replaced it: packets
    /// wait for the next one.
    fn end_handle(&self, handler: u16, setting: u64);

    /// Returns the things of modules that outlive them. They must not own the net.
    fn lasting(&self) -> &Lasting;

    /// Sends a copy of a packet to another rank.
    ///
    /// # Errors
    /// There is no room now, the rank has failed, or the packet is too long.
    fn try_send(&self, to: usize, handler: u16, argument: u32, data: &[u8]) -> Result<(), Unsent>;

    /// Sends a part of shared memory to another rank, without a copy where the choices allow that.
    ///
    /// # Errors
    /// Returns the errors of [`try_send`](Net::try_send).
    fn try_gather(
        &self,
        to: usize,
        handler: u16,
        argument: u32,
        memory: &Rc<[u8]>,
        part: Range<usize>,
    ) -> Result<(), Unsent>;

    /// Makes a multicast group. All members call this with the same number and the same list of
    /// ranks, this one among them. Groups that follow each other under one number have different
    /// generations; one comes again only when nobody has packets of the group that had it. `None`
    /// if the number is taken or the list is wrong.
    fn group(&self, number: u16, generation: u8, members: &[usize]) -> Option<Self::Group>;

    /// Ends a multicast group here: nothing of it is sent, received or forwarded any more, and its
    /// number is free.
    fn end_group(&self, group: &Self::Group);

    /// Returns the longest packet of a multicast group, in bytes of the program.
    fn group_max(&self, group: &Self::Group) -> usize;

    /// Sends a copy of a packet to all other members of a group.
    ///
    /// # Errors
    /// There is no room now, a member has failed, or the packet is too long.
    fn try_multicast(
        &self,
        group: &Self::Group,
        handler: u16,
        argument: u32,
        data: &[u8],
    ) -> Result<(), Unsent>;

    /// Makes a counter here. `None` if there are no more.
    fn counter(&self, value: u64) -> Option<Counter>;

    /// Ends a counter made here.
    fn end_counter(&self, counter: Counter);

    /// Adds to a counter at a rank, if that needs no message, and returns the value before. `None`
    /// if it does, or the rank has no such counter: then nothing was added.
    fn add_at_once(&self, _at: usize, _counter: Counter, _n: u64) -> Option<u64> {
        None
    }

    /// Adds to a counter at a rank, this one included, and returns the value before.
    ///
    /// # Errors
    /// The rank has failed, or has no such counter.
    fn fetch_add(
        &self,
        at: usize,
        counter: Counter,
        n: u64,
    ) -> impl Future<Output = Result<u64, RankFailure>> + use<Self>;

    /// Handles arrived packets. True if anything happened.
    fn poll(&self) -> bool;

    /// Polled by operations that may end at once, as futures: `Pending`, once, if a round of
    /// progress is due, so that a program whose operations all end so polls the network all the
    /// same. The future is polled again after that round.
    fn poll_attend(&self, _cx: &Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Resolves after one round of progress: call it between pieces of computing.
    fn yield_now(&self) -> impl Future<Output = ()> + use<Self>;

    /// Resolves after some time.
    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + use<Self>;

    /// Lets the time of a computation pass where the clock does not see programs compute: in a
    /// simulator, whose host meanwhile handles no packet. Live it does nothing, since the
    /// computation itself has taken its time.
    fn compute(&self, time: Duration) -> impl Future<Output = ()> + use<Self>;

    /// Begins a task, which runs at once as far as it can and goes on with progress.
    fn spawn(&self, work: impl Future<Output = ()> + 'static);

    /// True if a rank has failed by leaving: it has said so, and has not died. It may have left
    /// because of the death of another one.
    fn has_left(&self, _rank: usize) -> bool {
        false
    }

    /// Returns the failure of a rank, if it has failed.
    fn failure(&self, rank: usize) -> Option<RankFailure>;

    /// Calls `call` for each rank that fails from now on, after the rank's packets.
    fn on_failure(&self, call: impl FnMut(RankFailure) + 'static);

    /// Notices the silence of a rank from now on, until `unexpect`. False if it has failed; then no
    /// `unexpect` follows.
    fn expect(&self, rank: usize) -> bool;

    /// Ends one `expect` that was true.
    fn unexpect(&self, rank: usize);

    /// Returns the time after which a silent rank has failed (`WEFT_PEER_TIMEOUT_MS`).
    fn peer_timeout(&self) -> Duration {
        Duration::MAX
    }

    /// True if time passes only when a simulator advances it.
    fn time_is_virtual(&self) -> bool {
        true
    }

    /// Returns the time after which a wait is worth a line in the log (`WEFT_WARN_AFTER_MS`).
    fn warn_after(&self) -> Duration;
}

/// A net whose programs may wait in calls: they have a processor of their own.
pub trait Blocking: Net {
    /// Makes progress now and then, for calls that end at once: see
    /// [`poll_attend`](Net::poll_attend).
    fn attend(&self);

    /// True if a call may wait here.
    ///
    /// # Errors
    /// An upcall runs.
    fn may_wait(&self) -> Result<(), InUpcall>;

    /// Waits until something happens, at most for `timeout`. True if anything did.
    fn wait(&self, timeout: Option<Duration>) -> bool;

    /// Runs a future to its end, and makes progress meanwhile.
    ///
    /// # Panics
    /// An upcall runs, and the future does not end at once: it would never end.
    fn block_on<F: Future>(&self, future: F) -> F::Output;
}

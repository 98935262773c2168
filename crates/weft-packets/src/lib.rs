//! The packet interface, after the communication interface of paper 004 (section 2): send buffers,
//! packets, upcalls that may keep a packet, receipt by polling or sleeping, fetch-and-add,
//! multicast groups and remote-memory copy: a client of the [port](weft::port).
//!
//! Packets from one peer arrive in the order in which they were sent. A packet costs credit of its
//! sender until its upcall returns or, if that keeps it, until it is dropped: whoever keeps too
//! many packets slows down those who send them, and nothing is lost. Upcalls run inside
//! [`Packets::poll`] and whatever else makes progress, one at a time; they may send, and use the
//! `try_` forms for that, since nothing arrives while they wait.

mod agent;
mod dispatch;
mod gather;
mod group;
mod kernel;
mod multicast;
mod packet;
mod rcpy;
mod receive;
mod send;
mod shared;
#[allow(unsafe_code)]
mod sys;
pub mod wire;

pub use group::{Expecting, MulticastError, MulticastGroup};
pub use packet::{KeptPacket, Packet, SendBuffer, TooManyKept};
pub use rcpy::Exported;
pub use receive::Received;
pub use shared::{SharedPacket, SharedPackets};

use agent::Agent;
use multicast::{Delivery, Group, InFlight};
use rcpy::Copies;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;
use weft::choices::{NoAgent, Place, Server};
use weft::port::{Arrived, Port};
use weft::{AtomicCode, Config, Endpoint, OpError, PeerId, Rights};
use weft_core::slab::Slab;
use weft_link::agent::ServicesHandle;
/// Pause of a future before it tries again to send.
const BUSY: Duration = Duration::from_micros(20);

type Handler = Rc<RefCell<dyn FnMut(&Packets, Packet<'_>)>>;

macro_rules! counters {
    ($($name:ident: $what:literal,)*) => {
        /// Counters of the packet interface of an endpoint.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct PacketStats {
            $(#[doc = $what] pub $name: u64,)*
        }

        impl PacketStats {
            /// Names and meanings, in the order of [`PacketStats::values`].
            pub const NAMES: &'static [(&'static str, &'static str)] =
                &[$((stringify!($name), $what),)*];

            /// Values in the order of [`PacketStats::NAMES`].
            pub fn values(&self) -> [u64; PacketStats::NAMES.len()] {
                [$(self.$name,)*]
            }
        }
    };
}

counters! {
    upcalls: "Upcalls made.",
    no_handler: "Packets for a handler that does not exist, dropped.",
    malformed: "Packets with a bad header, dropped.",
    kept: "Packets kept after their upcall.",
    keeps_refused: "Packets that could not be kept because too many were.",
    multicasts: "Multicast packets sent as root.",
    agent_multicasts: "Of those, packets that agents forward.",
    forwarded: "Multicast packets forwarded, once for each child.",
    reordered: "Multicast packets held until those before them came by another tree.",
    credits_sent: "Credit packets of multicast trees.",
    credits_asked: "Times a parent in a multicast tree asked for credit that did not come.",
    kernel_adds: "Fetch-and-adds served by the kernel of a peer's host.",
    slow_members: "Times a member of a multicast tree was named for being slow.",
    members_failed: "Members of multicast groups that failed.",
    rcpy_hits: "Pages copied remotely with a translation at hand.",
    rcpy_misses: "Pages copied remotely without one: redirected through packets.",
    rcpy_redirects: "Packets of redirected pages placed here.",
    rcpy_evictions: "Translations that gave way to others.",
    rcpy_invalidations: "Translations forgotten because the memory is no longer exported.",
}

/// What is done with packets for a number.
#[derive(Default)]
enum Slot {
    /// They are dropped.
    #[default]
    Nobody,
    Upcall(Handler),
    /// They wait for a receive: bounded by the credit of their senders, which grows as there is
    /// room (`unexpected_max`).
    Mailbox(VecDeque<Arrived>),
}

/// The packet interface of an endpoint: a client of its port.
struct Shared {
    state: RefCell<State>,
    /// An upcall runs: packets wait.
    in_upcall: Cell<bool>,
}

struct State {
    handlers: Vec<Slot>,
    /// Messages that wait for the end of an upcall, or came before their group was made.
    again: VecDeque<Arrived>,
    /// Packets kept by the program, and their bytes; bounded by the next two.
    kept: usize,
    kept_bytes: usize,
    kept_max: usize,
    kept_bytes_max: usize,
    groups: BTreeMap<u16, Group>,
    /// Multicast packets being forwarded or delivered: bounded by the credit of the trees.
    flights: Slab<InFlight>,
    /// Those whose upcall is due.
    deliveries: VecDeque<Delivery>,
    /// Multicast packets of groups that are yet to be made here: bounded as those of a mailbox.
    orphans: VecDeque<Arrived>,
    copies: Copies,
    /// Keys of counters made here: bounded by the keys of the engine.
    counters: BTreeSet<u64>,
    /// The agent of the host, if one serves this endpoint.
    agent: Option<Agent>,
    /// How counters of peers are reached in their kernels.
    kernels: kernel::Ways,
    /// Who shall forward multicasts.
    place: Place,
    /// Of futures that wait for credit or for the end of a remote-memory copy.
    wakers: Vec<Waker>,
    credit: u32,
    patience: Duration,
    /// Peers that packets were gathered for since the last flush.
    lent_to: Vec<PeerId>,
    /// Credit packets to lose, for tests.
    lose_credits: u32,
    /// Answers of kernels count as lost, for tests.
    lose_answers: bool,
    stats: PacketStats,
}

impl State {
    fn new(config: &Config, agent: Option<ServicesHandle>) -> State {
        State {
            handlers: Vec::new(),
            again: VecDeque::new(),
            kept: 0,
            kept_bytes: 0,
            kept_max: config.packets_kept as usize,
            kept_bytes_max: (config.eager_credit / 2) as usize,
            groups: BTreeMap::new(),
            flights: Slab::default(),
            deliveries: VecDeque::new(),
            orphans: VecDeque::new(),
            copies: Copies::new(config.rcpy_tlb.max(1) as usize),
            counters: BTreeSet::new(),
            agent: agent.map(Agent::new),
            kernels: kernel::Ways::new(),
            place: config.multicast,
            wakers: Vec::new(),
            credit: config.multicast_credit.clamp(1, 1 << 16),
            patience: Duration::from_millis(u64::from(config.warn_after_ms)),
            lent_to: Vec::new(),
            lose_credits: 0,
            lose_answers: false,
            stats: PacketStats::default(),
        }
    }

    fn wake_all(&mut self) {
        self.wakers.drain(..).for_each(weft::port::wake);
    }
}

/// The packet interface of an endpoint. Clones, and further ones made of the same endpoint, are
/// the same.
#[derive(Clone)]
pub struct Packets {
    port: Port,
    shared: Rc<Shared>,
}

/// The key of a counter for fetch-and-add, at the endpoint that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// What peers name it by.
    pub key: u64,
}

impl Packets {
    /// The packet interface of an endpoint. Packets that arrived before wait for it.
    ///
    /// # Errors
    /// The endpoint's configuration chooses an agent, which does not serve this process.
    ///
    /// # Panics
    /// The program has given the number [`wire::CLIENT`] to a client of its own.
    pub fn new(endpoint: &Endpoint) -> Result<Packets, NoAgent> {
        endpoint.choices().check(endpoint.agent().is_some())?;
        let made = endpoint.port(wire::CLIENT, || {
            let state = State::new(&endpoint.config(), endpoint.agent());
            Rc::new(Shared { state: RefCell::new(state), in_upcall: Cell::new(false) })
        });
        let (port, shared) = made.unwrap_or_else(|taken| panic!("{taken}"));
        if endpoint.agent().is_some() {
            port.poll_each_round();
        }
        Ok(Packets { port, shared })
    }

    /// The endpoint below.
    pub fn endpoint(&self) -> &Endpoint {
        self.port.endpoint()
    }

    /// Counters.
    pub fn stats(&self) -> PacketStats {
        self.with(|state| state.stats)
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.shared.state.borrow_mut())
    }

    /// Has `upcall` called with each packet for handler `number` from now on. It runs inside
    /// progress. Packets for a handler that does not exist are dropped and counted: set handlers
    /// before peers learn this endpoint's address, or before progress is made.
    pub fn handle(&self, number: u16, upcall: impl FnMut(&Packets, Packet<'_>) + 'static) {
        self.set(number, Slot::Upcall(Rc::new(RefCell::new(upcall))));
    }

    fn set(&self, number: u16, slot: Slot) {
        let before = self.with(|state| {
            let at = usize::from(number);
            if state.handlers.len() <= at {
                state.handlers.resize_with(at + 1, Slot::default);
            }
            std::mem::replace(&mut state.handlers[at], slot)
        });
        match before {
            // Packets that waited for nobody are of no use.
            Slot::Mailbox(waiting) => waiting.into_iter().for_each(|m| self.port.release(m)),
            // Drops what the upcall has kept, which comes back here.
            other => drop(other),
        }
    }

    /// Longest packet to a peer, bytes of the program.
    pub fn packet_max(&self, peer: PeerId) -> usize {
        self.port.packet_max(peer)
    }

    /// Takes in what has arrived and calls upcalls; true if anything happened.
    #[inline]
    pub fn poll(&self) -> bool {
        self.endpoint().progress()
    }

    /// As [`poll`](Self::poll), but waits for something to happen, at most for `timeout`: polls
    /// for `spin_us`, then sleeps until the link's interrupt.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.endpoint().wait(timeout)
    }

    /// Makes a counter here, for [`fetch_add`](Self::fetch_add) by peers; with
    /// `WEFT_FETCH_ADD=agent`, or when that is chosen for this endpoint itself, at the agent of
    /// this host, which this waits for; with `kernel` in the kernel of this host, where peers add
    /// past the agent, which serves the others; where it cannot be there (a warning says so) at the
    /// agent. `None`: no more keys, or the agent refuses.
    pub fn counter(&self, value: u64) -> Option<Counter> {
        let key = self.endpoint().register(8, Rights::ALL)?;
        let server = self.counter_server();
        let at_agent = server != Server::Host;
        let write = |word: &mut [u8]| word.copy_from_slice(&value.to_le_bytes());
        if at_agent && !self.open_at_agent(key, value, server == Server::Kernel) {
            self.endpoint().unregister(key);
            return None;
        }
        if !at_agent {
            self.endpoint().with_region(key, write)?;
        }
        self.with(|state| state.counters.insert(key));
        Some(Counter { key })
    }

    /// Whether a counter is made here.
    pub fn counts(&self, counter: Counter) -> bool {
        self.with(|state| state.counters.contains(&counter.key))
    }

    /// Ends a counter made here: who adds to it then is refused, and what it took of the agent's
    /// quota is free for another. False: there is no such counter, or so much is to be said to the
    /// agent that this has to be tried again after progress.
    pub fn end_counter(&self, counter: Counter) -> bool {
        let Counter { key } = counter;
        if !self.counts(counter) || !self.close_at_agent(key) {
            return false;
        }
        self.with(|state| state.counters.remove(&key));
        self.endpoint().unregister(key);
        true
    }

    /// The value of a counter made here. If it is at the agent, this waits for the answer.
    pub fn counter_value(&self, counter: Counter) -> Option<u64> {
        if self.port.serves(counter.key) {
            return self.value_at_agent(counter.key);
        }
        let word = self.endpoint().with_region(counter.key, |word| word.try_into().ok());
        word.flatten().map(u64::from_le_bytes)
    }

    /// Adds to a counter at a peer (or here: an endpoint is its own peer) and gives the value
    /// before. Atomic among all who add. To a counter in the kernel of the peer's host this adds
    /// there, if `kernel` is chosen for the peer: nobody else need be scheduled on its host. One
    /// addition to it is under way at a time; others meanwhile go by the agent.
    ///
    /// # Errors
    /// The peer failed, or has no such counter.
    pub async fn fetch_add(&self, at: PeerId, counter: Counter, n: u64) -> Result<u64, OpError> {
        if let Some(before) = self.add_in_kernel(at, counter.key, n).await? {
            return Ok(before);
        }
        let code = AtomicCode::FetchAdd;
        let (result, _) = self.endpoint().atomic(at, counter.key, 0, code, n, 0).await;
        result.map(|status| status.value)
    }

    /// As [`fetch_add`](Self::fetch_add), making progress until it is done.
    ///
    /// # Errors
    /// As [`fetch_add`](Self::fetch_add).
    pub fn fetch_add_blocking(&self, at: PeerId, counter: Counter, n: u64) -> Result<u64, OpError> {
        if self.is_in_kernel(at) {
            return self.endpoint().block_on(self.fetch_add(at, counter, n));
        }
        self.port.atomic_at(at, (counter.key, 0), AtomicCode::FetchAdd, (n, 0))
    }

    /// Who serves counters that are made here from now on.
    pub fn counter_server(&self) -> Server {
        self.endpoint().own_fetch_add()
    }

    /// The port, for a program that sends what this interface never would.
    #[doc(hidden)]
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// A program that takes in its own credit packets badly: the next `count` of multicast trees
    /// are not sent, as if lost.
    #[doc(hidden)]
    pub fn lose_credits(&self, count: u32) {
        self.with(|state| state.lose_credits = count);
    }

    /// A network that loses all answers of kernels from now on.
    #[doc(hidden)]
    pub fn lose_answers(&self) {
        self.with(|state| state.lose_answers = true);
    }
}

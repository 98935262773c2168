//! The packet interface, after the communication interface of paper 004 (section 2): send buffers,
//! packets, upcalls that may keep a packet, receipt by polling or sleeping, fetch-and-add,
//! multicast groups and remote-memory copy. It is a client of the [port](weft::port).
//!
//! Packets from one peer arrive in the order in which they were sent. A packet holds credit of its
//! sender until its upcall returns or, if the upcall keeps it, until the program drops it. So a
//! program that keeps too many packets slows down their senders, and no packet is lost. Upcalls run
//! one at a time inside [`Packets::poll`] and all other calls that make progress. An upcall may
//! send, but only with the `try_` forms, since no packet arrives while it runs.

mod agent;
mod dispatch;
mod gather;
mod group;
mod groups;
mod handlers;
mod kernel;
mod multicast;
pub mod net;
mod packet;
mod rcpy;
mod receive;
mod send;
mod settings;
mod shared;
#[allow(unsafe_code)]
mod sys;
pub mod wire;
mod words;

pub use group::{Expecting, MulticastError, MulticastGroup};
pub use packet::{KeptPacket, Packet, SendBuffer, TooManyKept};
pub use rcpy::{Exported, Exports};
pub use receive::Received;
pub use settings::Settings;
pub use shared::{SharedPacket, SharedPackets};

use agent::Agent;
use groups::{Flights, Groups};
use handlers::{Handlers, Slot};
use packet::Kept;
use rcpy::Copies;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;
use weft::choices::{NoAgent, Server};
use weft::job::JobError;
use weft::port::{Arrived, Port};
use weft::{AtomicCode, Config, Endpoint, OpError, PeerId, Rights};
use weft_agent::ServicesHandle;
use words::Words;

/// Pause of a future before it tries again to send.
const BUSY: Duration = Duration::from_micros(20);

macro_rules! counters {
    ($($name:ident: $what:literal,)*) => {
        /// Statistics of the packet interface of an endpoint.
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
    memory_adds: "Fetch-and-adds done here, in memory that a peer shares.",
    slow_members: "Times a member of a multicast tree was named for being slow.",
    members_failed: "Members of multicast groups that failed.",
    rcpy_hits: "Pages copied remotely with a translation at hand.",
    rcpy_misses: "Pages copied remotely without one: redirected through packets.",
    rcpy_redirects: "Packets of redirected pages placed here.",
    rcpy_evictions: "Translations that gave way to others.",
    rcpy_invalidations: "Translations forgotten because the memory is no longer exported.",
}

/// The state of the packet interface of one endpoint, as its port's client.
struct Shared {
    state: RefCell<State>,
    /// True while an upcall runs; packets wait meanwhile.
    in_upcall: Cell<bool>,
}

/// Losses that tests ask for.
#[derive(Default)]
struct Losses {
    /// Number of credit packets to lose.
    credits: u32,
    /// True if answers of kernels count as lost.
    answers: bool,
}

struct State {
    handlers: Handlers,
    /// Messages that wait for the end of an upcall, or that arrived before their group was made.
    again: VecDeque<Arrived>,
    kept: Kept,
    groups: Groups,
    flights: Flights,
    copies: Copies,
    words: Words,
    /// The agent of the host, if one serves this endpoint.
    agent: Option<Agent>,
    /// Routes to peers' counters in the kernels of their hosts.
    kernels: kernel::Connections,
    /// Wakers of futures that wait for credit or for the end of a remote-memory copy.
    wakers: Vec<Waker>,
    /// Packets of one edge of a multicast tree whose memory is not free.
    credit: u32,
    /// Time after which a member without room is named.
    patience: Duration,
    /// Peers for which packets were gathered since the last flush.
    lent_to: Vec<PeerId>,
    losses: Losses,
    stats: PacketStats,
}

impl State {
    fn new(settings: &Settings, config: &Config, agent: Option<ServicesHandle>) -> State {
        State {
            handlers: Handlers::default(),
            again: VecDeque::new(),
            kept: Kept::new(settings.packets_kept as usize, (config.eager_credit / 2) as usize),
            groups: Groups::default(),
            flights: Flights::default(),
            copies: Copies::new(settings.rcpy_tlb.max(1) as usize),
            words: Words::default(),
            agent: agent.map(|services| Agent::new(services, config.multicast)),
            kernels: kernel::Connections::new(),
            wakers: Vec::new(),
            credit: settings.multicast_credit.clamp(1, 1 << 16),
            patience: Duration::from_millis(u64::from(config.warn_after_ms)),
            lent_to: Vec::new(),
            losses: Losses::default(),
            stats: PacketStats::default(),
        }
    }

    fn wake_all(&mut self) {
        self.wakers.drain(..).for_each(weft::port::wake);
    }
}

/// The reason why an endpoint has no packet interface.
pub enum OpenError {
    /// The endpoint's configuration chooses an agent, but no agent serves this process.
    NoAgent(NoAgent),
    /// A `WEFT_*` variable is wrong.
    Setting(JobError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::NoAgent(why) => why.fmt(f),
            OpenError::Setting(why) => why.fmt(f),
        }
    }
}

weft_core::readable!(OpenError);

impl std::error::Error for OpenError {}

/// The packet interface of an endpoint. All clones, and all made of the same endpoint, share one
/// state.
///
/// ```no_run
/// use weft_packets::Packets;
///
/// let job = weft::Job::init()?;
/// let (world, packets) = (job.world(), Packets::new(job.endpoint())?);
/// // Packets for 1 call a function, packets for 2 wait in a mailbox.
/// packets.handle(1, |_, packet| println!("{} bytes", packet.data().len()));
/// packets.mailbox(2);
/// world.barrier_blocking()?;
/// if world.rank() == 0 {
///     let peer = world.peer(1)?;
///     packets.send(peer, 1, 0, b"to the upcall")?;
///     packets.send(peer, 2, 0, b"to the mailbox")?;
/// } else if world.rank() == 1 {
///     let mut buffer = [0; 64];
///     packets.receive(Some(world.peer(0)?), 2, &mut buffer)?; // runs upcalls meanwhile
/// }
/// // A counter at rank 0, to which all ranks add.
/// let mine = packets.counter(0).ok_or("no more keys")?;
/// let keys = world.allgather_blocking(mine.key.to_le_bytes().to_vec())?;
/// let counter = weft_packets::Counter { key: u64::from_le_bytes(keys[0][..].try_into()?) };
/// let ticket = packets.fetch_add_blocking(world.peer(0)?, counter, 1)?;
/// println!("rank {} has ticket {ticket}", world.rank());
/// world.barrier_blocking()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Packets {
    port: Port,
    shared: Rc<Shared>,
}

/// The key of a counter for fetch-and-add, at the endpoint that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The key by which peers name the counter.
    pub key: u64,
}

impl Packets {
    /// Returns the packet interface of an endpoint. Packets that arrived before this call have
    /// waited for it. The first call for an endpoint reads the settings from the environment.
    ///
    /// # Errors
    /// The endpoint's configuration chooses an agent, but no agent serves this process; or a
    /// variable is wrong.
    ///
    /// # Panics
    /// The program has given the number [`wire::CLIENT`] to a client of its own.
    pub fn new(endpoint: &Endpoint) -> Result<Packets, OpenError> {
        Packets::open(endpoint, || Settings::from_env().map_err(OpenError::Setting))
    }

    /// Returns the packet interface of an endpoint; the first call for the endpoint makes it with
    /// these settings. See [`new`](Packets::new) for settings of the environment.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Packets::new).
    ///
    /// # Panics
    /// Panics if [`new`](Packets::new) would panic.
    pub fn with_settings(endpoint: &Endpoint, settings: &Settings) -> Result<Packets, OpenError> {
        Packets::open(endpoint, || Ok(settings.clone()))
    }

    fn open(
        endpoint: &Endpoint,
        settings: impl FnOnce() -> Result<Settings, OpenError>,
    ) -> Result<Packets, OpenError> {
        endpoint
            .choices()
            .check(endpoint.agent().services().is_some())
            .map_err(OpenError::NoAgent)?;
        let made = match endpoint.known_port(wire::CLIENT) {
            Ok(Some(known)) => Ok(known),
            Err(taken) => Err(taken),
            Ok(None) => {
                let state =
                    State::new(&settings()?, &endpoint.config(), endpoint.agent().services());
                endpoint.port(wire::CLIENT, || {
                    Rc::new(Shared { state: RefCell::new(state), in_upcall: Cell::new(false) })
                })
            }
        };
        let (port, shared) = made.unwrap_or_else(|taken| panic!("{taken}"));
        if endpoint.agent().services().is_some() {
            port.poll_each_round();
        }
        Ok(Packets { port, shared })
    }

    /// Returns the endpoint of this interface.
    pub fn endpoint(&self) -> &Endpoint {
        self.port.endpoint()
    }

    /// Returns the interface's statistics.
    pub fn stats(&self) -> PacketStats {
        self.with(|state| state.stats)
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.shared.state.borrow_mut())
    }

    /// Sets `upcall` as handler `number`: from now on it is called, inside progress, with each
    /// packet for that number, and first with those that wait in a mailbox of the number. Packets
    /// for a missing handler are dropped and counted, so set handlers before peers learn this
    /// endpoint's address, or before the first progress.
    pub fn handle(&self, number: u16, upcall: impl FnMut(&Packets, Packet<'_>) + 'static) {
        self.set_upcall(number, upcall);
    }

    /// Sets a handler, and returns the number of this setting.
    pub(crate) fn set_upcall(
        &self,
        number: u16,
        upcall: impl FnMut(&Packets, Packet<'_>) + 'static,
    ) -> u64 {
        let setting = self.with(|state| state.handlers.next_setting());
        self.set(number, Slot::Upcall(Rc::new(RefCell::new(upcall)), setting));
        setting
    }

    /// True while an upcall runs: no packet arrives before its end.
    pub fn is_in_upcall(&self) -> bool {
        self.shared.in_upcall.get()
    }

    /// True if a handler is set.
    pub(crate) fn has_upcall(&self, number: u16) -> bool {
        self.with(|state| state.handlers.has_upcall(number))
    }

    /// Ends a setting of a handler, unless it was replaced: packets wait for the next one.
    pub(crate) fn end_upcall(&self, number: u16, setting: u64) {
        if self.with(|state| state.handlers.is_setting(number, setting)) {
            self.mailbox(number);
        }
    }

    fn set(&self, number: u16, slot: Slot) {
        let before = self.with(|state| state.handlers.set(number, slot));
        match before {
            Slot::Mailbox(waiting) if waiting.is_empty() => {}
            // No receive can take these packets any more; an upcall can.
            Slot::Mailbox(waiting) => {
                self.with(|state| state.hand_over(&self.port, number, waiting));
                self.port.call_by(self.port.now());
            }
            // Dropping an upcall may drop packets that it has kept, which calls this interface: so
            // no borrow is held here.
            other => drop(other),
        }
    }

    /// Lets packets for these handlers wait until the handlers are set.
    pub(crate) fn wait_for_handlers(&self, numbers: Range<u16>) {
        self.with(|state| state.handlers.wait_for(numbers));
    }

    /// Returns the longest packet to a peer, in bytes of the program.
    pub fn packet_max(&self, peer: PeerId) -> usize {
        self.port.packet_max(peer)
    }

    /// Handles arrived packets and calls upcalls. True if anything happened.
    #[inline]
    pub fn poll(&self) -> bool {
        self.endpoint().progress()
    }

    /// Makes progress as [`poll`](Self::poll) does, and waits until something happens, at most for
    /// `timeout`: it polls for `spin_us`, then sleeps until the link's interrupt.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.endpoint().wait(timeout)
    }

    /// Makes a counter at this endpoint, to which peers add with [`fetch_add`](Self::fetch_add).
    /// With `WEFT_FETCH_ADD=agent`, or that choice for this endpoint itself, the counter is at the
    /// agent of this host, and the call waits for the agent. With `kernel` it is in the kernel of
    /// this host: peers add there directly, or else through the agent. If the kernel cannot hold
    /// it, it is at the agent, and a warning says so. `None` if no key is left or the agent
    /// refuses.
    pub fn counter(&self, value: u64) -> Option<Counter> {
        let key = self.endpoint().regions().register(8, Rights::ALL)?;
        let server = self.counter_server();
        let at_agent = server != Server::Host;
        let write = |word: &mut [u8]| word.copy_from_slice(&value.to_le_bytes());
        if at_agent && !self.open_at_agent(key, value, server == Server::Kernel) {
            self.endpoint().regions().unregister(key);
            return None;
        }
        if !at_agent {
            self.endpoint().regions().with(key, write)?;
        }
        self.with(|state| state.words.begin(key));
        Some(Counter { key })
    }

    /// True if the counter was made here.
    pub fn counts(&self, counter: Counter) -> bool {
        self.with(|state| state.words.is_here(counter.key))
    }

    /// Ends a counter made here: later additions are refused, and its part of the agent's quota is
    /// free for another counter. False if there is no such counter, or if the queue to the agent is
    /// full; in that case try again after progress.
    pub fn end_counter(&self, counter: Counter) -> bool {
        let Counter { key } = counter;
        if !self.counts(counter) || !self.end_word(key) && !self.close_at_agent(key) {
            return false;
        }
        self.with(|state| state.words.end(key));
        self.endpoint().regions().unregister(key);
        true
    }

    /// Returns the value of a counter made here. If it is at the agent, the call waits for the
    /// answer.
    pub fn counter_value(&self, counter: Counter) -> Option<u64> {
        if let Some(value) = self.with(|state| state.words.value(counter.key)) {
            return Some(value);
        }
        if self.port.serves(counter.key) {
            return self.value_at_agent(counter.key);
        }
        let word = self.endpoint().regions().with(counter.key, |word| word.try_into().ok());
        word.flatten().map(u64::from_le_bytes)
    }

    /// Adds to a counter at a peer (or here: an endpoint is its own peer) and returns the value
    /// before. The addition is atomic among all additions. If `kernel` is chosen for the peer and
    /// the counter is in the kernel of its host, the kernel adds, and no process there has to be
    /// scheduled. At most one addition of this endpoint to such a counter is under way at a time;
    /// further ones go through the agent meanwhile.
    ///
    /// # Errors
    /// The peer failed, or has no such counter.
    pub async fn fetch_add(&self, at: PeerId, counter: Counter, n: u64) -> Result<u64, OpError> {
        if let Some(before) = self.add_to_word(at, counter.key, n) {
            return Ok(before);
        }
        if let Some(before) = self.add_in_kernel(at, counter.key, n).await? {
            return Ok(before);
        }
        let code = AtomicCode::FetchAdd;
        let (result, _) = self.endpoint().atomic(at, counter.key, 0, code, n, 0).await;
        result.map(|status| status.value)
    }

    /// Adds to a counter by [`fetch_add`](Self::fetch_add), and makes progress until the answer is
    /// there.
    ///
    /// # Errors
    /// Returns the errors of [`fetch_add`](Self::fetch_add).
    pub fn fetch_add_blocking(&self, at: PeerId, counter: Counter, n: u64) -> Result<u64, OpError> {
        if let Some(before) = self.add_to_word(at, counter.key, n) {
            self.endpoint().waiting().attend();
            return Ok(before);
        }
        if self.is_in_kernel(at) {
            return self.endpoint().block_on(self.fetch_add(at, counter, n));
        }
        self.port.atomic_at(at, (counter.key, 0), AtomicCode::FetchAdd, (n, 0))
    }

    /// Adds to a counter that was made here and is in this process; returns the value before.
    pub(crate) fn add_here(&self, counter: Counter, n: u64) -> Option<u64> {
        if let Some(before) = self.with(|state| state.words.add(counter.key, n)) {
            return Some(before);
        }
        let add = |word: &mut [u8]| {
            let before = u64::from_le_bytes(word[..].try_into().ok()?);
            word.copy_from_slice(&before.wrapping_add(n).to_le_bytes());
            Some(before)
        };
        self.endpoint().regions().with(counter.key, add).flatten()
    }

    /// Returns the server of counters that are made here from now on.
    pub fn counter_server(&self) -> Server {
        self.endpoint().agent().own_fetch_add()
    }

    /// Returns the port, for tests that send malformed packets.
    #[doc(hidden)]
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Drops the next `count` credit packets of multicast trees instead of sending them, for tests.
    #[doc(hidden)]
    pub fn lose_credits(&self, count: u32) {
        self.with(|state| state.losses.credits = count);
    }

    /// Drops all answers of kernels from now on, for tests.
    #[doc(hidden)]
    pub fn lose_answers(&self) {
        self.with(|state| state.losses.answers = true);
    }
}

//! The shared-memory link: rings of cache lines in sealed memory files.
//!
//! No memory has a name in a file system, and none outlives the processes. Every value read from
//! shared memory is checked; a peer that writes invalid values is dropped, a peer that dies is
//! reported. See `ring` for the protocol of the rings and `rendezvous` for the connection setup.

pub mod broker;
mod direct;
mod hub;
#[cfg(all(test, loom))]
mod loom_tests;
mod peer;
mod peers;
mod process;
mod rendezvous;
mod ring;
#[cfg(all(test, not(loom)))]
mod ring_tests;
mod segment;
mod service;
mod sys;
#[cfg(all(test, not(loom)))]
mod tests;

pub use direct::DirectCopy;
pub use hub::Caller;
pub use hub::Heard;
pub use rendezvous::{check as check_hello, example as example_hello, host, is_free};
pub use sys::block::Block;

use crate::random_u64;
use crate::secure::JobKey;
use crate::sync::Ordering;
use crate::{Address, Frame, Link, LinkError, LinkEvent, PeerInfo, Sink, WaitFd};
use broker::{AgentConnection, BrokerConfig, Standing};
use peer::Peer;
use peers::Peers;
use rendezvous::{Hello, Kind};
use ring::{Sizes, UNIT};
use service::Listeners;
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use sys::misc;
use weft_core::{EndpointId, LinkCaps, PeerFailure, PeerId, Pulse};
use weft_sys::Foreign;

/// Configuration of a [`ShmLink`].
#[derive(Clone, Debug)]
pub struct ShmConfig {
    /// The endpoint this link belongs to.
    pub endpoint: EndpointId,
    /// Slots of a ring, one packet each; a power of two from 8 to 65536.
    pub slots: u32,
    /// Bytes of the data area of each direction of a connection; a power of two from 4 KiB to 1
    /// GiB. Only pages that traffic touches take memory.
    pub data_bytes: u32,
    /// Longest packet in bytes, at most a quarter of the data area: long enough to copy at full
    /// speed, short enough that sender and receiver copy at the same time.
    pub mtu: u32,
    /// Direct copies between processes.
    pub direct: DirectCopy,
    /// Highest number of connections, including connections without a peer number.
    pub max_peers: usize,
    /// True if the endpoint sleeps often, as when ranks share cores. Then the endpoint and its
    /// peers run a fence for each packet (some nanoseconds) instead of a barrier before each sleep,
    /// which interrupts all cores.
    pub sleeps_often: bool,
    /// Key of the listener, if it is free; 0 for a random one. With the endpoint's own number names
    /// of endpoints are shorter.
    pub key: u64,
    /// The agent over which peers in other network namespaces of this host are reached, if any.
    pub broker: Option<BrokerConfig>,
}

impl ShmConfig {
    /// Returns the defaults for an endpoint.
    pub fn new(endpoint: EndpointId) -> ShmConfig {
        ShmConfig {
            endpoint,
            slots: 256,
            data_bytes: 1 << 20,
            mtu: 32 * 1024 + 128,
            direct: DirectCopy::Auto,
            max_peers: 4096,
            sleeps_often: false,
            key: 0,
            broker: None,
        }
    }

    fn sizes(&self) -> Sizes {
        Sizes { slots: self.slots, units: self.data_bytes / UNIT as u32, mtu: self.mtu }
    }
}

/// Highest number of queued events up to which a warning is still added; other events are always
/// kept.
const MAX_WARNINGS: usize = 64;
/// Calls of `recv` between checks of the clock.
const TICK_CALLS: u32 = 64;
/// Calls of `recv` between checks of the clock after a packet arrived: an endpoint that now finds
/// nothing waits, and the peer should know soon.
const IDLE_CALLS: u32 = 8;
/// Time between checks of the sockets while polling, in nanoseconds; a check takes 0.3 % of it.
const SERVICE_NS: u64 = 100_000;
/// A peer that polled in vain less than this time ago counts as polling, in nanoseconds.
const POLLING_NS: u64 = 50_000;
/// Direct copies between checks of the sockets.
const DIRECT_CALLS: u64 = 32;

counters! {
    /// Counts of events.
    "shm_";
    sent, received, full, dropped, doorbells, sleeps, refused, lies, joined, unjoined, gone,
    direct, mapped
}

/// The pace of checks while polling.
#[derive(Debug, Default)]
struct Pace {
    /// Calls of `recv` since the last check of the clock.
    calls: u32,
    /// Time of the last check of the sockets, in nanoseconds.
    serviced_at: u64,
}

impl Pace {
    /// Notes a packet: the next check of the clock comes soon.
    #[inline]
    fn hasten(&mut self) {
        self.calls = self.calls.max(TICK_CALLS - IDLE_CALLS);
    }

    /// Counts a call. True if the clock is to be checked.
    #[inline]
    fn count(&mut self) -> bool {
        self.calls += 1;
        self.calls >= TICK_CALLS
    }

    /// Notes a check of the clock. True if the sockets are to be checked.
    fn tick(&mut self, now: u64) -> bool {
        self.calls = 0;
        let due = now.saturating_sub(self.serviced_at) >= SERVICE_NS;
        if due {
            self.serviced_at = now;
        }
        due
    }
}

/// The shared-memory link of one endpoint.
#[derive(Debug)]
pub struct ShmLink {
    config: ShmConfig,
    host: u64,
    user: u32,
    /// Barriers on all cores work on this machine.
    barrier: bool,
    /// The link serves processes of any user.
    is_hub: bool,
    /// Peers may share memory with it.
    takes_memory: bool,
    /// Highest number of connections of one user.
    of_user: usize,
    /// A random word that peers read to verify that direct copies reach this process.
    probe: Box<u64>,
    detour: sys::memory::Detour,
    listeners: Listeners,
    /// The connection to the agent that brokers, or the reason why there is none.
    agent: Result<AgentConnection, String>,
    peers: Peers,
    events: VecDeque<LinkEvent>,
    counters: Counters,
    pace: Pace,
}

impl ShmLink {
    /// Opens the listener.
    ///
    /// # Errors
    /// The sizes are not allowed, or the system refuses.
    pub fn new(config: ShmConfig) -> Result<ShmLink, LinkError> {
        ShmLink::open(config, None)
    }

    /// Opens the link with an agent's name or under a key.
    fn open(config: ShmConfig, name: Option<&str>) -> Result<ShmLink, LinkError> {
        if let Err(why) = config.sizes().check() {
            return Err(LinkError::Unreachable(format!("shm configuration: {why}")));
        }
        let listeners = Listeners::open(name, config.key)?;
        let agent = match &config.broker {
            Some(broker) => AgentConnection::open(broker, config.endpoint).map_err(|e| match e {
                LinkError::Unreachable(why) => why,
                other => other.to_string(),
            }),
            None => Err("this endpoint asks no agent".into()),
        };
        if let Ok(connection) = &agent {
            listeners.watch_agent(connection.socket())?;
        }
        let probe = random_u64().max(1);
        if config.direct == DirectCopy::Auto {
            sys::memory::permit_peers();
        }
        Ok(ShmLink {
            host: rendezvous::host()?,
            user: misc::effective_user(),
            barrier: !config.sleeps_often && misc::register_barrier(),
            is_hub: name.is_some(),
            takes_memory: name.is_none() && config.direct == DirectCopy::Auto,
            of_user: usize::MAX,
            probe: Box::new(probe),
            detour: sys::memory::Detour::default(),
            listeners,
            agent,
            peers: Peers::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            pace: Pace::default(),
            config,
        })
    }

    /// Returns this endpoint's position at the agent that brokers, or the reason why it has none.
    pub fn standing(&self) -> Result<&Standing, &str> {
        self.agent.as_ref().map(AgentConnection::standing).map_err(String::as_str)
    }

    fn job_key(&self) -> Option<&JobKey> {
        self.config.broker.as_ref().map(|broker| &broker.job_key)
    }

    fn hello(&self, kind: Kind, to: EndpointId, sizes: Sizes) -> Hello {
        Hello {
            kind,
            from: self.config.endpoint,
            to,
            sizes,
            barrier: self.barrier,
            probe_addr: &raw const *self.probe as u64,
            probe_word: *self.probe,
        }
    }

    /// Gives a connection its peer number; returns the capabilities of the path.
    fn name(&mut self, at: usize, id: PeerId) -> LinkCaps {
        self.peers.name(at, id);
        self.path_caps(&self.peers[at])
    }

    fn path_caps(&self, peer: &Peer) -> LinkCaps {
        let mut caps = self.caps();
        caps.mtu = peer.mtu.min(self.config.mtu);
        caps.direct = peer.direct.usable();
        caps
    }

    fn warn(&mut self, text: String) {
        if self.events.len() < MAX_WARNINGS {
            self.events.push_back(LinkEvent::Warning(text));
        }
    }

    /// Removes finished connections and reports them.
    #[cold]
    fn reap(&mut self) {
        for at in (0..self.peers.len()).rev() {
            if !self.peers[at].finished() {
                continue;
            }
            let mut peer = self.peers.remove(at);
            self.counters.gone += 1;
            let lied = peer.end.violation.is_some();
            if let Some(violation) = peer.end.violation {
                self.counters.lies += 1;
                let endpoint = peer.endpoint;
                let what = violation.0;
                self.warn(format!("endpoint {endpoint} wrote nonsense to shared memory: {what}"));
            }
            if let Some(id) = peer.id {
                self.peers.note_gone(id, peer.direct.process());
                let closed = "it closed the connection before it answered";
                let unheard = peer.ended_unheard().then(|| closed.to_string());
                self.events.push_back(match peer.end.refused.take().or(unheard) {
                    Some(why) => LinkEvent::PeerRefused(id, why),
                    // Its process may live.
                    None if lied => LinkEvent::PeerFailed(id, PeerFailure::Protocol),
                    None => LinkEvent::PeerGone(id),
                });
            }
        }
    }

    /// Counts received packets.
    #[inline]
    fn received(&mut self, packets: usize) {
        if packets > 0 {
            self.counters.received += packets as u64;
            self.pace.hasten();
        }
    }

    /// Tells peers that this side polls, and checks the sockets; called at intervals while polling.
    #[cold]
    fn tick(&mut self, idle: bool) {
        let now = misc::clock_ns();
        if idle {
            self.peers.iter().for_each(|peer| peer.rx.set_polled_at(now));
        }
        if self.pace.tick(now) {
            self.service();
        }
    }

    fn send_burst(&mut self, frames: &[Frame<'_>]) -> usize {
        let mut sent = 0;
        while let Some(first) = frames.get(sent) {
            let rest = &frames[sent..];
            let run = rest.iter().take_while(|f| f.peer == first.peer).count();
            let Some(peer) = self.peers.find_mut(first.peer) else {
                self.counters.dropped += run as u64;
                sent += run;
                continue;
            };
            let (pushed, rang) = peer.push(&rest[..run]);
            let dead = peer.end.is_near();
            self.counters.doorbells += u64::from(rang);
            self.counters.sent += pushed as u64;
            sent += pushed;
            if pushed < run {
                if !dead {
                    self.counters.full += 1;
                    break;
                }
                self.counters.dropped += (run - pushed) as u64;
                sent += run - pushed;
            }
        }
        sent
    }

    fn dial(&mut self, info: &PeerInfo) -> Result<LinkCaps, LinkError> {
        let sizes = self.config.sizes();
        let offer = self.hello(Kind::Offer, info.endpoint, sizes);
        let dialed = rendezvous::dial(info.address.shm, self.user, &offer)?;
        self.take_in(info, sizes, dialed)
    }

    /// Returns the connection to the agent that this endpoint and a peer share.
    ///
    /// # Errors
    /// The peer shares none with this endpoint; the reason.
    fn shared_agent(&self, address: &Address) -> Result<&AgentConnection, LinkError> {
        let apart = "the peer runs on another host or in another network namespace";
        let why = match (&self.agent, address.agent) {
            (Ok(connection), Some(agent)) if connection.standing().identity == agent => {
                return Ok(connection)
            }
            (Ok(_), Some(_)) => format!("{apart}, and has another agent"),
            (Ok(_), None) => format!("{apart}, and has no agent (in it: `weft doctor`)"),
            (Err(why), Some(_)) if self.config.broker.is_some() => format!("{apart}; {why}"),
            // An agent that is there and does not serve says why.
            (Err(why), None) if why.contains("the agent at ") => format!("{apart}; {why}"),
            (Err(_), None) if self.config.broker.is_some() => {
                format!("{apart} (weftd joins containers of one host: `weft doctor`)")
            }
            _ => apart.into(),
        };
        Err(LinkError::Unreachable(why))
    }

    /// Connects to a peer in other namespaces of this host. Nothing that it sends is taken before
    /// it has proven that it knows the key of the job.
    fn join(&mut self, info: &PeerInfo) -> Result<LinkCaps, LinkError> {
        let sizes = self.config.sizes();
        let offer = self.hello(Kind::Offer, info.endpoint, sizes);
        let connection = self.shared_agent(&info.address)?;
        let Some(key) = self.job_key() else { return Err(LinkError::Unsupported) };
        let (dialed, nonce) = rendezvous::join(connection, key, &offer)?;
        self.counters.joined += 1;
        let caps = self.take_in(info, sizes, dialed)?;
        if let Some(peer) = self.peers.find_mut(info.peer) {
            (peer.muted, peer.unproven, peer.socket.joined) = (true, Some(nonce), true);
        }
        Ok(caps)
    }

    /// Connects to a peer by its listener where that is in this network namespace, else, and where
    /// users have no common numbers, by the agent.
    fn reach(&mut self, info: &PeerInfo) -> Result<LinkCaps, LinkError> {
        if info.address.host != self.host {
            return self.join(info);
        }
        match self.dial(info) {
            Err(LinkError::Unreachable(why)) if self.shared_agent(&info.address).is_ok() => {
                log::debug!("endpoint {}: {why}; it is joined by the agent", info.endpoint);
                self.join(info)
            }
            other => other,
        }
    }

    fn take_in(
        &mut self,
        info: &PeerInfo,
        sizes: Sizes,
        dialed: rendezvous::Dialed,
    ) -> Result<LinkCaps, LinkError> {
        let socket = Foreign::connection(dialed.socket, dialed.cred.uid);
        let socket = self.listeners.watch(socket)?;
        let direct = direct::Direct::probe(dialed.cred.pid, self.config.direct);
        let mut peer = Peer::new(info.endpoint, socket, sizes, dialed.halves, direct);
        peer.dialed = true;
        let at = self.peers.add(peer);
        Ok(self.name(at, info.peer))
    }
}

impl Link for ShmLink {
    fn caps(&self) -> LinkCaps {
        let mut caps = LinkCaps::memory("shm", self.config.mtu);
        caps.direct = self.config.direct == DirectCopy::Auto;
        caps
    }

    fn advertise(&self, address: &mut Address) {
        address.host = self.host;
        address.shm = self.listeners.key;
        address.agent = self.standing().ok().map(|standing| standing.identity);
    }

    fn connect(&mut self, info: &PeerInfo) -> Result<LinkCaps, LinkError> {
        if info.address.shm == 0 {
            return Err(LinkError::Unreachable("the peer offers no shared memory".into()));
        }
        if info.address.host != self.host {
            self.shared_agent(&info.address)?;
        }
        if let Some(peer) = self.peers.find(info.peer) {
            return Ok(self.path_caps(peer));
        }
        self.service();
        let known = |p: &Peer| p.endpoint == info.endpoint && p.end.violation.is_none();
        match self.peers.iter().position(|p| known(p) && (p.id.is_none() || !p.end.hung_up)) {
            Some(at) if self.peers[at].id.is_none() => Ok(self.name(at, info.peer)),
            Some(_) => Err(LinkError::Unreachable("this endpoint is connected already".into())),
            None if self.peers.len() >= self.config.max_peers => {
                Err(LinkError::Unreachable("too many shared-memory peers".into()))
            }
            None => self.reach(info),
        }
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.peers.forget(peer);
    }

    #[inline]
    fn send(&mut self, frames: &[Frame<'_>]) -> usize {
        if let [frame] = frames {
            if let Some(peer) = self.peers.find_mut(frame.peer) {
                if let Some(rang) = peer.push_one(frame) {
                    self.counters.doorbells += u64::from(rang);
                    self.counters.sent += 1;
                    return 1;
                }
            }
        }
        self.send_burst(frames)
    }

    fn recv(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let mut left = budget;
        self.recv_by(|peer| {
            let popped = peer.pop(left, sink);
            left -= popped;
            popped
        })
    }

    fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    fn wait_fds(&self, out: &mut Vec<WaitFd>) {
        out.push(WaitFd { fd: self.listeners.epoll.as_raw_fd() });
    }

    fn prepare_wait(&mut self) -> bool {
        self.peers.iter().for_each(|peer| peer.rx.announce_sleep());
        crate::sync::fence(Ordering::SeqCst);
        if self.barrier && !self.peers.is_empty() {
            misc::barrier();
        }
        let mut sleep = self.events.is_empty();
        for peer in self.peers.iter_mut() {
            match peer.tx.prepare_wait() {
                Ok(wait) => sleep &= wait,
                Err(violation) => peer.end.violation = Some(violation),
            }
            sleep &= peer.idle() && !peer.end.is_near();
        }
        if sleep {
            self.counters.sleeps += 1;
        } else {
            self.awake();
        }
        sleep
    }

    fn finish_wait(&mut self, ready: bool) {
        self.awake();
        if ready {
            self.service();
        }
    }

    fn path_text(&self, peer: PeerId) -> String {
        match self.peers.process_of(peer) {
            // Zero: the process is in a PID namespace that is not visible from here.
            None | Some(0) => String::new(),
            Some(process) => format!("process {process}"),
        }
    }

    #[inline]
    fn recv_soon(&mut self, rounds: u32, budget: usize, sink: &mut dyn Sink) -> usize {
        let [peer] = &mut self.peers[..] else {
            return if self.spin(rounds) { self.recv(budget, sink) } else { 0 };
        };
        for round in 1..=rounds {
            let received = peer.pop(budget, sink);
            if received > 0 {
                self.received(received);
                return received;
            }
            if round < rounds {
                std::hint::spin_loop();
            }
        }
        if self.pace.count() {
            self.tick(true);
        }
        0
    }

    fn memory(&mut self) -> Option<&mut dyn crate::SharedMemory> {
        Some(self)
    }

    fn processes(&mut self) -> Option<&mut dyn crate::Processes> {
        Some(self)
    }

    fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.counters.each(each);
    }
}

impl crate::SharedMemory for ShmLink {
    #[cold]
    fn room_soon(&mut self, peer: PeerId) -> bool {
        let Some(peer) = self.peers.find_mut(peer) else { return false };
        match peer.tx.room_soon() {
            Ok(room) => room,
            Err(violation) => {
                peer.end.violation = Some(violation);
                false
            }
        }
    }

    /// The answer is a hint that costs a cache miss: true if the peer polled in vain a moment ago,
    /// or sleeps until a packet comes.
    fn attentive(&self, peer: PeerId) -> bool {
        self.peers.find(peer).is_some_and(|p| {
            p.tx.is_awaited() || misc::clock_ns().saturating_sub(p.tx.polled_at()) < POLLING_NS
        })
    }

    fn read_direct(&mut self, peer: PeerId, addr: u64, into: &mut [u8]) -> Result<(), LinkError> {
        let at = self.before_direct(peer)?;
        let copying = self.peers[at].begin_copy().ok_or_else(taken_back)?;
        if copying.read_mapped(addr, into) {
            self.counters.mapped += 1;
            return Ok(());
        }
        copying.direct.read(&mut self.detour, addr, into)
    }

    fn write_direct(&mut self, peer: PeerId, addr: u64, from: &[u8]) -> Result<(), LinkError> {
        let at = self.before_direct(peer)?;
        let copying = self.peers[at].begin_copy().ok_or_else(taken_back)?;
        if copying.write_mapped(addr, from) {
            self.counters.mapped += 1;
            return Ok(());
        }
        copying.direct.write(&mut self.detour, addr, from)
    }

    fn add_direct(&mut self, peer: PeerId, addr: u64, n: u64) -> Option<u64> {
        let at = self.before_direct(peer).ok()?;
        let copying = self.peers[at].begin_copy()?;
        let before = copying.add_mapped(addr, n)?;
        self.counters.mapped += 1;
        Some(before)
    }

    fn take_back_memory(&mut self, peer: PeerId) {
        self.peers.find(peer).into_iter().for_each(Peer::take_back);
    }

    fn share(&mut self, peer: PeerId, key: u64, block: &Block) -> bool {
        self.takes_memory && self.peers.find(peer).is_some_and(|p| p.share(key, block))
    }

    fn take_shared(&mut self, _peer: PeerId) {
        self.service();
    }

    fn forget_shared(&mut self, peer: PeerId, key: u64) {
        // Memory that the peer shared before this call has to be mapped first.
        self.service();
        self.peers.find_mut(peer).into_iter().for_each(|p| p.unmap(key));
    }
}

impl crate::Processes for ShmLink {
    fn reject(&mut self, endpoint: EndpointId) {
        let stranger = |p: &Peer| p.endpoint == endpoint && p.id.is_none();
        if let Some(at) = self.peers.iter().position(stranger) {
            self.peers.remove(at).socket.refuse("it has no room for another peer (WEFT_PEERS_MAX)");
            self.counters.refused += 1;
        }
    }

    fn pulse(&self, peer: PeerId) -> Pulse {
        self.peers.find(peer).map_or(Pulse::Ended, |p| p.process.pulse())
    }
}

impl ShmLink {
    /// Polls up to `rounds` times. True as soon as there is a packet.
    #[inline]
    pub fn spin(&mut self, rounds: u32) -> bool {
        for _ in 0..rounds {
            if !self.peers.iter().all(Peer::idle) {
                return true;
            }
            // A read moves the line away from the writer; with fewer reads the packet arrives
            // sooner.
            std::hint::spin_loop();
        }
        false
    }

    /// Calls `pop` for each peer, beginning with the next peer at each call; returns the number of
    /// packets.
    #[inline]
    fn recv_by(&mut self, mut pop: impl FnMut(&mut Peer) -> usize) -> usize {
        let mut received = 0;
        let mut finished = false;
        let (peers, first) = (self.peers.len(), self.peers.turn());
        for turn in 0..peers {
            let at = first + turn;
            let peer = &mut self.peers[if at < peers { at } else { at - peers }];
            received += pop(peer);
            finished |= peer.end.is_near();
        }
        if finished {
            self.reap();
        }
        self.received(received);
        if self.pace.count() {
            self.tick(received == 0);
        }
        received
    }

    /// Returns the index of the peer of a direct copy, after its hello was read if it has arrived.
    /// Also checks the sockets at intervals: a process that only copies has to learn of shared
    /// memory and of dead peers.
    fn before_direct(&mut self, id: PeerId) -> Result<usize, LinkError> {
        self.counters.direct += 1;
        let unheard = |p: &Peer| p.direct.usable() && !p.direct.verified();
        if self.counters.direct.is_multiple_of(DIRECT_CALLS)
            || self.peers.find(id).is_some_and(unheard)
        {
            self.service();
        }
        let at = self.peers.position_of(id);
        at.ok_or_else(|| LinkError::Unreachable(format!("{id} is gone")))
    }

    fn awake(&self) {
        self.peers.iter().for_each(|peer| peer.rx.awake());
    }
}

fn taken_back() -> LinkError {
    LinkError::Unreachable("the peer has taken its memory back".into())
}

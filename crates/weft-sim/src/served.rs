//! Hosts whose endpoints are served by agents: `weftd`'s part for a rank stands between endpoint
//! and network, in virtual time. It goes on while the program computes, and dies with its host.

use crate::clock::SimClock;
use crate::link::SimLink;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use weft_agent::{Control, Limits, Proxy, ServicesHandle, ToRank};
use weft_core::relay::{LinkTo, Shares};
use weft_core::wire::HeaderBuf;
use weft_core::{Config, EndpointId, Instant, LinkCaps, PeerId, Pulse};
use weft_link::{Address, Bytes, Frame, Link, LinkError, LinkEvent, PeerInfo, Sink, WaitFd};

/// Packets and messages in the ring to a rank.
const RING: usize = 256;
/// Frames taken from the network at a time.
const POLL_EVERY: usize = 64;
/// Limits of a rank: the defaults of `weftd`.
const LIMITS: Limits = Limits { bytes: 16 << 20, words: 4096, groups: 64 };

/// Counters of a relay: packets sent again, and timeouts.
pub(crate) const RESENT: &str = "relay_resent";
pub(crate) const TIMEOUTS: &str = "relay_timeouts";
/// Counters of the agent's work in the rank's place: operations, and multicast packets.
pub(crate) const COUNTED: &str = "agent_counted";
pub(crate) const MULTICAST: &str = "agent_multicast";

/// An entry of the ring to a rank.
enum Inbound {
    Packet(Option<PeerId>, HeaderBuf, Vec<u8>),
    Say(Control),
}

/// The ring to a rank.
struct Ring {
    inbound: VecDeque<Inbound>,
    /// The state of the rank's process.
    pulse: Pulse,
}

impl Ring {
    fn push(&mut self, inbound: impl FnOnce() -> Inbound) -> bool {
        let room = self.inbound.len() < RING;
        self.inbound.extend(room.then(inbound));
        room
    }
}

impl ToRank for Ring {
    fn deliver(&mut self, from: Option<PeerId>, header: &[u8], payload: &[u8]) -> bool {
        self.push(|| Inbound::Packet(from, HeaderBuf::copy_of(header), payload.to_vec()))
    }

    fn say(&mut self, message: &Control) -> bool {
        self.push(|| Inbound::Say(message.clone()))
    }

    fn pulse(&self) -> Pulse {
        self.pulse
    }
}

/// The agent of a host.
pub(crate) struct Agent {
    link: SimLink,
    clock: SimClock,
    proxy: Proxy,
    ring: Ring,
}

/// Passes frames of the network to the proxy.
struct FromWire<'a> {
    proxy: &'a mut Proxy,
    ring: &'a mut Ring,
    now: Instant,
}

impl Sink for FromWire<'_> {
    fn frame(&mut self, _: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        self.proxy.arrive(self.now, 0, header, payload, self.ring);
    }
}

impl Agent {
    /// Does everything that is possible now. True if anything happened.
    pub fn progress(&mut self) -> bool {
        if self.link.still_until(true).is_some() {
            return false;
        }
        let now = self.clock.now();
        let stopped = self.link.still_until(false).is_some();
        self.ring.pulse = if stopped { Pulse::Stopped } else { Pulse::Runs };
        if self.proxy.next_timeout().is_some_and(|at| at <= now) {
            self.proxy.on_time(now);
        }
        let (proxy, ring) = (&mut self.proxy, &mut self.ring);
        let received = self.link.recv(POLL_EVERY, &mut FromWire { proxy, ring, now });
        let forwarded = self.proxy.progress(now);
        self.flush();
        let pumped = self.proxy.pump(&mut self.ring);
        received > 0 || forwarded || pumped
    }

    /// Sends the proxy's frames.
    fn flush(&mut self) {
        let now = self.clock.now();
        while let Some(out) = self.proxy.poll_transmit(now) {
            let payload = self.proxy.bytes_of(&out);
            let frame = Frame { peer: out.peer, header: out.header.as_slice(), payload };
            // A frame that the network refuses counts as lost: it is sent again.
            self.link.send(&[frame]);
            self.proxy.sent(&out);
        }
        let link = &mut self.link;
        self.proxy.notice(|peer| link.disconnect(peer));
    }

    /// Returns the time of its next timer.
    pub fn next_timeout(&self) -> Option<Instant> {
        let still = self.link.still_until(true).map(Instant);
        still.or_else(|| self.proxy.next_timeout()).filter(|&at| at != Instant::FAR)
    }

    /// Returns the end of the rank's standstill, if it is stopped.
    pub fn rank_still_until(&self) -> Option<Instant> {
        self.link.still_until(false).map(Instant)
    }
}

/// The agent of a host, shared by its rank and the simulation.
pub(crate) type SharedAgent = Rc<RefCell<Agent>>;

/// A rank's end of the rings to its agent.
pub(crate) struct ServedLink {
    agent: SharedAgent,
    services: ServicesHandle,
    shares: Shares,
    events: VecDeque<LinkEvent>,
}

impl ServedLink {
    /// Creates the link of endpoint `me`, and its agent.
    pub fn new(link: SimLink, clock: &SimClock, me: EndpointId, config: Config) -> ServedLink {
        let proxy = Proxy::new(me, config, LIMITS);
        let ring = Ring { inbound: VecDeque::new(), pulse: Pulse::Runs };
        let agent = Agent { link, clock: clock.clone(), proxy, ring };
        ServedLink {
            agent: Rc::new(RefCell::new(agent)),
            services: ServicesHandle::default(),
            shares: Shares::default(),
            events: VecDeque::new(),
        }
    }

    /// Returns the agent.
    pub fn agent(&self) -> SharedAgent {
        Rc::clone(&self.agent)
    }

    /// Returns the interface to the agent's services.
    pub fn services(&self) -> ServicesHandle {
        Rc::clone(&self.services)
    }

    /// Sends all waiting messages.
    fn say_all(&mut self) {
        let Agent { proxy, link, .. } = &mut *self.agent.borrow_mut();
        if link.still_until(true).is_some() {
            return;
        }
        while let Some(message) = self.services.borrow_mut().say_next() {
            proxy.control(message);
        }
    }

    fn on_message(&mut self, message: Control) {
        match message {
            Control::Left(peer, left) => {
                let room = self.shares.on_left(peer, left);
                self.events.extend(room.then_some(LinkEvent::Held(peer, false)));
            }
            Control::Lost(peer, _) => {
                let room = self.shares.close(peer);
                self.events.extend(room.then_some(LinkEvent::Held(peer, false)));
                self.events.push_back(LinkEvent::PeerGone(peer));
            }
            other => self.services.borrow_mut().take(other, &mut self.events),
        }
    }
}

/// Returns the capabilities of the link through the agent.
fn caps_of(link: &SimLink) -> LinkCaps {
    let LinkCaps { mtu, latency_ns, bytes_per_us, .. } = link.caps();
    let mut caps = LinkCaps::memory("agent", mtu);
    caps.sees_end = false;
    (caps.latency_ns, caps.bytes_per_us) = (latency_ns, bytes_per_us);
    caps.small_bytes_per_us = bytes_per_us;
    caps
}

impl Link for ServedLink {
    fn caps(&self) -> LinkCaps {
        caps_of(&self.agent.borrow().link)
    }

    fn advertise(&self, address: &mut Address) {
        self.agent.borrow().link.advertise(address);
    }

    fn connect(&mut self, peer: &PeerInfo) -> Result<LinkCaps, LinkError> {
        let Agent { link, proxy, .. } = &mut *self.agent.borrow_mut();
        let LinkCaps { latency_ns, bytes_per_us, mtu, .. } = link.connect(peer)?;
        let links = [LinkTo { link: 0, latency_ns, bytes_per_us, mtu }];
        let known = (peer.session, self.shares.open(peer.peer));
        match proxy.connect(peer.peer, known, peer.endpoint, &links) {
            true => Ok(caps_of(link)),
            false => Err(LinkError::Unreachable("too many peers".into())),
        }
    }

    fn disconnect(&mut self, peer: PeerId) {
        let agent = &mut *self.agent.borrow_mut();
        agent.proxy.forget(peer);
        agent.link.disconnect(peer);
        if self.shares.close(peer) {
            self.events.push_back(LinkEvent::Held(peer, false));
        }
    }

    fn send(&mut self, frames: &[Frame<'_>]) -> usize {
        self.say_all();
        let agent = &mut *self.agent.borrow_mut();
        if agent.link.still_until(true).is_some() {
            // The result is that of a full ring.
            return 0;
        }
        let mut taken = 0;
        for frame in frames {
            if !self.shares.take(frame.peer, frame.header) {
                let news = self.shares.note_full(frame.peer);
                self.events.extend(news.then_some(LinkEvent::Held(frame.peer, true)));
                break;
            }
            taken += 1;
            let payload = Bytes::from_slice(frame.payload);
            agent.proxy.packet(frame.peer, frame.header, payload);
        }
        agent.flush();
        taken
    }

    fn recv(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        self.say_all();
        self.agent.borrow_mut().progress();
        let mut received = 0;
        while received < budget {
            let Some(next) = self.agent.borrow_mut().ring.inbound.pop_front() else { break };
            match next {
                Inbound::Packet(from, header, payload) => {
                    sink.frame(from, header.as_slice(), Bytes::from_slice(&payload));
                }
                Inbound::Say(message) => self.on_message(message),
            }
            received += 1;
        }
        received
    }

    fn poll_event(&mut self) -> Option<LinkEvent> {
        let event = self.events.pop_front();
        event.or_else(|| self.agent.borrow_mut().link.poll_event())
    }

    fn wait_fds(&self, _out: &mut Vec<WaitFd>) {}

    fn prepare_wait(&mut self) -> bool {
        let agent = &mut *self.agent.borrow_mut();
        agent.ring.inbound.is_empty()
            && self.services.borrow().is_silent()
            && agent.link.prepare_wait()
    }

    fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let agent = self.agent.borrow();
        agent.link.counters(each);
        let stats = agent.proxy.stats();
        let (counted, multicast, _) = agent.proxy.served();
        each(RESENT, stats.retransmitted);
        each(TIMEOUTS, stats.timeouts);
        each(COUNTED, counted);
        each(MULTICAST, multicast);
    }
}

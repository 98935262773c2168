//! Hosts whose endpoints are served by agents: the relay of the agent between endpoint and network,
//! as `weftd` has it, in virtual time. An agent dies with its host.

use crate::clock::SimClock;
use crate::link::SimLink;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use weft_core::relay::{Arrival, LinkTo, Relay, RelayEvent, Room, Shares};
use weft_core::wire::{field, HeaderBuf, PacketType};
use weft_core::{Config, EndpointId, Instant, LinkCaps, PeerId};
use weft_link::{Address, Bytes, Frame, Link, LinkError, LinkEvent, PeerInfo, Sink, WaitFd};

/// When an agent has something to do although nothing arrives.
pub(crate) type Due = Rc<Cell<Option<Instant>>>;

/// Counters of a relay: packets sent again, and timeouts.
pub(crate) const RESENT: &str = "relay_resent";
pub(crate) const TIMEOUTS: &str = "relay_timeouts";

/// A simulated link behind an agent.
pub(crate) struct ServedLink {
    inner: SimLink,
    clock: SimClock,
    relay: Relay,
    shares: Shares,
    events: VecDeque<LinkEvent>,
    payloads: BTreeMap<u32, Vec<u8>>,
    given: u32,
    held: BTreeMap<(u32, u32), (HeaderBuf, Vec<u8>)>,
    due: Due,
}

impl ServedLink {
    /// Of the endpoint `me`.
    pub fn new(
        inner: SimLink,
        clock: &SimClock,
        me: EndpointId,
        config: Config,
    ) -> (ServedLink, Due) {
        let due = Due::default();
        let link = ServedLink {
            inner,
            clock: clock.clone(),
            relay: Relay::new(me, config),
            shares: Shares::default(),
            events: VecDeque::new(),
            payloads: BTreeMap::new(),
            given: 0,
            held: BTreeMap::new(),
            due: Rc::clone(&due),
        };
        (link, due)
    }

    /// Sends what the relay has.
    fn flush(&mut self) {
        let now = self.clock.now();
        while let Some(out) = self.relay.poll_transmit(now) {
            let none = Vec::new();
            let payload = self.payloads.get(&out.payload).unwrap_or(&none);
            let frame = Frame { peer: out.peer, header: out.header.as_slice(), payload };
            // What the network refuses counts as lost: it is sent again.
            self.inner.send(&[frame]);
            if out.last {
                self.payloads.remove(&out.payload);
            }
        }
        while let Some(handle) = self.relay.poll_free() {
            self.payloads.remove(&handle);
        }
        self.due.set(self.relay.next_timeout());
    }
}

/// Takes packets through the relay to the endpoint.
struct Through<'a> {
    relay: &'a mut Relay,
    held: &'a mut BTreeMap<(u32, u32), (HeaderBuf, Vec<u8>)>,
    sink: &'a mut dyn Sink,
    now: Instant,
}

impl Through<'_> {
    fn give(&mut self, from: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        // The agent has answered.
        if header.get(field::TYPE) != Some(&(PacketType::Nop as u8)) {
            self.sink.frame(from, header, payload);
        }
    }
}

impl Sink for Through<'_> {
    fn frame(&mut self, _: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        match self.relay.from_wire(self.now, 0, header, Room::ANY) {
            Arrival::Drop => return,
            Arrival::Hold(peer, seq) => {
                let kept = (HeaderBuf::copy_of(header), payload.to_vec());
                self.held.insert((peer.0, seq.0), kept);
                return;
            }
            Arrival::Deliver(from) => self.give(from, header, payload),
        }
        while let Some((peer, seq)) = self.relay.next_held() {
            if let Some((header, payload)) = self.held.remove(&(peer.0, seq.0)) {
                self.give(Some(peer), header.as_slice(), Bytes::from_slice(&payload));
            }
        }
    }
}

impl Link for ServedLink {
    fn caps(&self) -> LinkCaps {
        let inner = self.inner.caps();
        let mut caps = LinkCaps::memory("agent", inner.mtu);
        caps.sees_end = false;
        (caps.latency_ns, caps.bytes_per_us) = (inner.latency_ns, inner.bytes_per_us);
        caps.small_bytes_per_us = inner.bytes_per_us;
        caps
    }

    fn advertise(&self, address: &mut Address) {
        self.inner.advertise(address);
    }

    fn connect(&mut self, peer: &PeerInfo) -> Result<LinkCaps, LinkError> {
        let caps = self.inner.connect(peer)?;
        let (latency_ns, bytes_per_us) = (caps.latency_ns, caps.bytes_per_us);
        let links = [LinkTo { link: 0, latency_ns, bytes_per_us }];
        let given = self.shares.open(peer.peer);
        match self.relay.connect(peer.peer, (peer.session, given), peer.endpoint, &links) {
            true => Ok(self.caps()),
            false => Err(LinkError::Unreachable("too many peers".into())),
        }
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.relay.disconnect(peer);
        if self.shares.close(peer) {
            self.events.push_back(LinkEvent::Held(peer, false));
        }
        self.held.retain(|(of, _), _| *of != peer.0);
        self.inner.disconnect(peer);
    }

    fn send(&mut self, frames: &[Frame<'_>]) -> usize {
        let now = self.clock.now();
        let mut taken = 0;
        for frame in frames {
            if !self.shares.take(frame.peer, frame.header) {
                let news = self.shares.note_full(frame.peer);
                self.events.extend(news.then_some(LinkEvent::Held(frame.peer, true)));
                break;
            }
            taken += 1;
            let mut handle = 0;
            if !frame.payload.is_empty() {
                self.given = self.given.wrapping_add(1).max(1);
                handle = self.given;
                self.payloads.insert(handle, frame.payload.to_vec());
            }
            if self.relay.from_rank(now, frame.peer, frame.header, handle).is_err() {
                self.payloads.remove(&handle);
            }
        }
        self.flush();
        taken
    }

    fn recv(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let now = self.clock.now();
        if self.relay.next_timeout().is_some_and(|at| at <= now) {
            self.relay.handle_timeout(now);
        }
        let (relay, held) = (&mut self.relay, &mut self.held);
        let received = self.inner.recv(budget, &mut Through { relay, held, sink, now });
        self.flush();
        received
    }

    fn poll_event(&mut self) -> Option<LinkEvent> {
        while let Some(event) = self.relay.poll_event() {
            let (peer, room, lost) = match event {
                RelayEvent::Room => continue,
                RelayEvent::Lost(peer, _) => (peer, self.shares.close(peer), true),
                RelayEvent::Left(peer, left) => (peer, self.shares.on_left(peer, left), false),
            };
            self.events.extend(room.then_some(LinkEvent::Held(peer, false)));
            self.events.extend(lost.then_some(LinkEvent::PeerGone(peer)));
        }
        self.events.pop_front().or_else(|| self.inner.poll_event())
    }

    fn wait_fds(&self, _out: &mut Vec<WaitFd>) {}

    fn prepare_wait(&mut self) -> bool {
        self.inner.prepare_wait()
    }

    fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.inner.counters(each);
        let stats = self.relay.stats();
        each(RESENT, stats.retransmitted);
        each(TIMEOUTS, stats.timeouts);
    }
}

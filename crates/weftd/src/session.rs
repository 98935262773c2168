//! The state of one rank: its links, and the proxy that acts for it.

use crate::links::Carrier;
use crate::options::Quotas;
use std::collections::VecDeque;
use weft_agent::{Attach, Caller, Control, Hub, InKernel, Limits, Proxy, ToRank};
use weft_core::relay::{LinkTo, Out};
use weft_core::wire::session_index;
use weft_core::{EndpointId, Instant, LinkCaps, PeerId, Pulse};
use weft_link::{Address, Bytes, Frame, LinkError, LinkEvent, PeerInfo, Sink};

/// Most packets sent to, and received from, a link in one call.
const BURST: usize = 16;
const LOOK: usize = 64;
/// Empty polls after which a link whose poll costs a system call is polled rarely.
const QUIET: u32 = 64;

/// Most packets that a rank sends before other ranks have their turn.
const SENDS: usize = 256;
/// Costs of messages in packets. Messages that take system calls, or that visit all state of a
/// peer, cost more.
const MESSAGE: u32 = 8;
const CONNECT: u32 = 256;
const FORGET: u32 = 64;

/// Returns the cost of a message.
fn cost_of(message: &Control) -> u32 {
    match message {
        Control::Connect(..) => CONNECT,
        Control::Disconnect(_) | Control::GroupLeave(_) => FORGET,
        Control::GroupJoin(role) => MESSAGE + role.children.len() as u32 / 4,
        Control::CounterOpen(_, words, _, kernel) => {
            let kernel = if *kernel { FORGET } else { 0 };
            MESSAGE + (*words).min(1 << 16) / 16 + kernel
        }
        Control::GroupPacket(_, _, bytes) => MESSAGE + (bytes.len() >> 10) as u32,
        _ => MESSAGE,
    }
}

/// The ring to one rank.
struct Ring<'a> {
    hub: &'a mut Hub,
    rank: u32,
}

impl ToRank for Ring<'_> {
    #[inline]
    fn deliver(&mut self, from: Option<PeerId>, header: &[u8], payload: &[u8]) -> bool {
        self.hub.deliver(self.rank, from, header, payload)
    }

    fn say(&mut self, message: &Control) -> bool {
        self.hub.say(self.rank, message)
    }

    fn pulse(&self) -> Pulse {
        self.hub.pulse(self.rank)
    }
}

/// A link of the rank, and the number of its empty polls.
struct Way {
    carrier: Carrier,
    /// True if a poll costs no system call.
    polled: bool,
    quiet: u32,
    /// Packets that the link refused.
    pending: VecDeque<Out>,
}

/// A rank that is served.
pub struct Session {
    /// The rank's process, as the kernel reports it.
    pub caller: Caller,
    /// Set when the rank has ended: its links are freed when its last packets have arrived, or at
    /// this time.
    pub leaving: Option<Instant>,
    /// True: its packets and messages stay in its ring.
    pub muted: bool,
    /// Reason why it is not served any more: it asked for more than it can have.
    pub fault: Option<String>,
    /// Cost that it may still cause in this turn; negative: cost beyond its share.
    balance: i32,
    rank: u32,
    ways: Vec<Way>,
    proxy: Proxy,
    peers_max: u32,
    burst: Vec<Out>,
}

impl Session {
    /// Returns the session of a rank that asked to be served.
    pub fn new(
        rank: u32,
        caller: Caller,
        attach: &Attach,
        carriers: Vec<Carrier>,
        quotas: Quotas,
    ) -> Session {
        let mut config = attach.config();
        config.peers_max = config.peers_max.min(quotas.peers);
        let way = |carrier: Carrier| {
            let polled = carrier.caps().polled;
            Way { carrier, polled, quiet: 0, pending: VecDeque::new() }
        };
        let limits = Limits { bytes: quotas.bytes, words: quotas.words, groups: quotas.groups };
        Session {
            caller,
            leaving: None,
            muted: false,
            fault: None,
            balance: 0,
            rank,
            ways: carriers.into_iter().map(way).collect(),
            proxy: Proxy::new(caller.endpoint, config, limits),
            peers_max: quotas.peers,
            burst: Vec::new(),
        }
    }

    /// Returns the rank's address, and the capabilities of its links: packet size, delay in
    /// nanoseconds, throughput in bytes per microsecond.
    pub fn offer(&mut self) -> (Address, u32, u32, u32) {
        let mut address = Address { endpoint: self.caller.endpoint, ..Address::default() };
        let (mut mtu, mut latency, mut rate) = (u32::MAX, u32::MAX, 0);
        for way in &mut self.ways {
            way.carrier.link().advertise(&mut address);
            let caps = way.carrier.caps();
            mtu = mtu.min(caps.mtu);
            if caps.latency_ns < latency {
                (latency, rate) = (caps.latency_ns, caps.bytes_per_us);
            }
        }
        (address, mtu, latency, rate)
    }

    /// Allows its counters to be in the kernel.
    pub fn use_kernel(&mut self, kernel: InKernel) {
        self.proxy.use_kernel(kernel);
    }

    /// Sends a message to the rank when its ring has room.
    pub fn say(&mut self, message: Control) {
        self.proxy.say(message);
    }

    /// Begins a turn: adds the rank's share to its balance.
    pub fn begin_turn(&mut self, share: u32) {
        let share = share as i32;
        self.balance = self.balance.saturating_add(share).min(share);
    }

    /// Returns the cost that the rank may still cause in this turn; 0: its ring is not read.
    pub fn share(&self) -> u32 {
        match self.leaving {
            Some(_) => 0,
            None => self.balance.max(0) as u32,
        }
    }

    fn pay(&mut self, cost: u32) -> u32 {
        self.balance = self.balance.saturating_sub_unsigned(cost);
        cost
    }

    /// Handles a packet of the rank; returns its cost.
    #[inline]
    pub fn packet(&mut self, peer: PeerId, header: &[u8], payload: Bytes<'_>) -> u32 {
        let cost = 1 + (payload.len() >> 12) as u32;
        self.proxy.packet(peer, header, payload);
        self.pay(cost)
    }

    /// Handles a message of the rank after its first; `None`: the message is invalid. Returns its
    /// cost.
    pub fn control(&mut self, message: Option<Control>) -> u32 {
        let cost = message.as_ref().map_or(MESSAGE, cost_of);
        match message {
            Some(Control::Connect(peer, session, given, endpoint, address)) => {
                self.connect(peer, (session, given), endpoint, &address);
            }
            Some(Control::Disconnect(peer)) => {
                self.proxy.forget(peer);
                self.ways.iter_mut().for_each(|way| way.carrier.link().disconnect(peer));
            }
            Some(other) => self.proxy.control(other),
            None => self.say(Control::Notice("the agent did not understand a message".into())),
        }
        self.pay(cost)
    }

    fn connect(
        &mut self,
        peer: PeerId,
        (session, given): (u32, u32),
        endpoint: EndpointId,
        address: &[u8],
    ) {
        let address = match Address::decode(address) {
            Ok(address) => address,
            Err(e) => return self.proxy.say(Control::Lost(peer, format!("its address: {e}"))),
        };
        if session_index(session) != peer.0 {
            let why = "the session number that it puts into packets is not the peer's";
            return self.proxy.say(Control::Lost(peer, why.into()));
        }
        let info = PeerInfo { peer, session, endpoint, address };
        let (mut links, mut mtu, mut reasons) = (Vec::new(), u32::MAX, Vec::new());
        if peer.0 < self.peers_max {
            for (at, way) in self.ways.iter_mut().enumerate() {
                match way.carrier.connect(&info) {
                    Ok(caps) => {
                        let LinkCaps { latency_ns, bytes_per_us, mtu: carried, .. } = caps;
                        let link = at as u8;
                        links.push(LinkTo { link, latency_ns, bytes_per_us, mtu: carried });
                        mtu = mtu.min(carried);
                    }
                    Err(e) => {
                        let why = format!("{}: {e}", way.carrier.caps().name);
                        if matches!(e, LinkError::UsedUp) {
                            self.fault.get_or_insert_with(|| why.clone());
                        }
                        reasons.push(why);
                    }
                }
            }
        } else {
            let most = self.peers_max;
            reasons.push(format!("the quota of {most} peers is used up (weftd --quota peers=N)"));
        }
        if self.proxy.connect(peer, (session, given), endpoint, &links) {
            self.proxy.say(Control::Path(peer, mtu));
        } else {
            self.proxy.say(Control::Lost(peer, reasons.join("; ")));
        }
    }

    /// Receives packets of its links. `rarely`: also polls quiet links whose poll costs a system
    /// call.
    pub fn look(&mut self, now: Instant, hub: &mut Hub, rarely: bool) -> bool {
        let mut found = false;
        for (at, way) in self.ways.iter_mut().enumerate() {
            if !(way.polled || rarely || way.quiet < QUIET) {
                continue;
            }
            let rank = Ring { hub: &mut *hub, rank: self.rank };
            let mut sink = FromWire { proxy: &mut self.proxy, rank, now, link: at as u8 };
            let got = way.carrier.link().recv(LOOK, &mut sink) > 0;
            way.quiet = if got { 0 } else { way.quiet.saturating_add(1) };
            found |= got;
        }
        found |= self.proxy.progress(now);
        found
    }

    /// Handles events of its links.
    pub fn listen(&mut self, now: Instant) {
        for at in 0..self.ways.len() {
            while let Some(event) = self.ways[at].carrier.link().poll_event() {
                match event {
                    LinkEvent::Mtu(peer, mtu) => self.proxy.set_mtu(now, peer, at as u8, mtu),
                    LinkEvent::Warning(text) => log::warn!("rank {}: {text}", self.rank),
                    _ => {}
                }
            }
        }
    }

    /// Sends packets that are due. True if there were any.
    pub fn flush(&mut self, now: Instant) -> bool {
        let mut did = false;
        for way in self.ways.iter_mut().filter(|w| !w.pending.is_empty()) {
            did |= way.send(&mut self.proxy, &mut Vec::new());
        }
        for _ in 0..SENDS / BURST {
            let blocked = self.ways.iter().any(|w| !w.pending.is_empty());
            if blocked || !self.proxy.has_output() {
                break;
            }
            let Some(first) = self.proxy.poll_transmit(now) else { break };
            did = true;
            let link = first.link;
            self.burst.push(first);
            let mut other = None;
            while self.burst.len() < BURST {
                match self.proxy.poll_transmit(now) {
                    Some(out) if out.link == link => self.burst.push(out),
                    Some(out) => {
                        other = Some(out);
                        break;
                    }
                    None => break,
                }
            }
            if let Some(way) = self.ways.get_mut(usize::from(link)) {
                way.send(&mut self.proxy, &mut self.burst);
            }
            self.burst.clear();
            if let Some(out) = other {
                self.burst.push(out);
                if let Some(way) = self.ways.get_mut(usize::from(out.link)) {
                    way.send(&mut self.proxy, &mut self.burst);
                }
                self.burst.clear();
            }
        }
        self.tell();
        did
    }

    /// Delivers packets and messages that wait for the rank. True if any were delivered.
    pub fn pump(&mut self, hub: &mut Hub) -> bool {
        self.proxy.pump(&mut Ring { hub, rank: self.rank })
    }

    /// Handles timers that are due.
    pub fn on_time(&mut self, now: Instant) {
        self.proxy.on_time(now);
        self.tell();
    }

    /// Sends the proxy's notices to the rank.
    fn tell(&mut self) {
        let ways = &mut self.ways;
        self.proxy.notice(|peer| {
            ways.iter_mut().for_each(|way| way.carrier.link().disconnect(peer));
        });
    }

    /// Returns the time by which `on_time` must be called.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.proxy.next_timeout().into_iter().chain(self.leaving).min()
    }

    /// True if the rank may send more; else only this rank waits.
    pub fn has_room(&self) -> bool {
        self.proxy.has_room()
    }

    /// Ends the rank: its peers get a notice when its packets have arrived.
    pub fn end(&mut self, until: Instant) {
        self.leaving = Some(until);
        self.proxy.end();
    }

    /// True if all packets of the rank have arrived and its peers have got all repetitions of the
    /// notice of its end.
    pub fn is_quiet(&self) -> bool {
        self.proxy.is_quiet() && self.ways.iter().all(|w| w.pending.is_empty())
    }

    /// True if all packets have arrived and its peers have got the notice once.
    pub fn has_told(&self) -> bool {
        self.proxy.sent_byes() && self.ways.iter().all(|w| w.pending.is_empty())
    }

    /// Returns its links, for the next rank.
    pub fn into_carriers(self) -> Vec<Carrier> {
        self.ways.into_iter().map(|way| way.carrier).collect()
    }

    /// Returns the number of packets that injected faults have lost.
    pub fn lost(&self) -> u64 {
        self.ways.iter().map(|way| way.carrier.lost()).sum()
    }

    /// Returns the links, to wait for them.
    pub fn carriers(&mut self) -> impl Iterator<Item = &mut Carrier> {
        self.ways.iter_mut().map(|way| &mut way.carrier)
    }

    /// Returns the work of its groups, in visits of a child.
    pub fn group_work(&self) -> u64 {
        self.proxy.group_work()
    }

    /// Returns counters and state, as name and value.
    pub fn state(&self) -> [(&'static str, u64); 14] {
        let s = self.proxy.stats();
        let (counted, multicast, refused) = self.proxy.served();
        [
            ("peers", self.proxy.peers() as u64),
            ("sent", s.sent),
            ("retransmitted", s.retransmitted),
            ("cut", self.proxy.packets_cut()),
            ("timeouts", s.timeouts),
            ("delivered", s.delivered),
            ("held", s.held),
            ("no_room", s.no_room),
            ("acks", s.acks),
            ("refused", s.refused + refused),
            ("moved", s.moved),
            ("counted", counted),
            ("multicast", multicast),
            ("group_work", self.group_work()),
        ]
    }
}

impl Way {
    /// Sends pending packets, then `outs`; packets that the link refuses stay pending. True if any
    /// were sent.
    fn send(&mut self, proxy: &mut Proxy, outs: &mut Vec<Out>) -> bool {
        self.pending.extend(outs.drain(..));
        let mut did = false;
        while !self.pending.is_empty() {
            let n = self.pending.len().min(BURST);
            let frames: [Frame<'_>; BURST] = std::array::from_fn(|i| {
                let out = &self.pending[i.min(n - 1)];
                Frame {
                    peer: out.peer,
                    header: out.header.as_slice(),
                    payload: proxy.bytes_of(out),
                }
            });
            let sent = self.carrier.send(&frames[..n]);
            self.pending.drain(..sent).for_each(|out| proxy.sent(&out));
            did |= sent > 0;
            if sent < n {
                break;
            }
        }
        did
    }
}

/// Passes frames of a link to the proxy.
struct FromWire<'a> {
    proxy: &'a mut Proxy,
    rank: Ring<'a>,
    now: Instant,
    link: u8,
}

impl Sink for FromWire<'_> {
    #[inline]
    fn frame(&mut self, _: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        self.proxy.arrive(self.now, self.link, header, payload, &mut self.rank);
    }
}

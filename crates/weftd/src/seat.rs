//! All that concerns one rank: its links, and what is done in its place.

use crate::links::Carrier;
use crate::options::Quotas;
use std::collections::VecDeque;
use weft_core::relay::{LinkTo, Out};
use weft_core::wire::session_index;
use weft_core::{EndpointId, Instant, PeerId, Pulse};
use weft_link::agent::{Attach, Caller, Control, Hub, InKernel, Limits, Proxy, ToRank};
use weft_link::{Address, Bytes, Frame, LinkError, LinkEvent, PeerInfo, Sink};

/// Packets sent, and taken from a link, at a time.
const BURST: usize = 16;
const LOOK: usize = 64;
/// Looks in vain after which a link that costs a system call is looked at rarely.
const QUIET: u32 = 64;

/// Packets sent in one go, before others get their turn.
const SENDS: usize = 256;
/// What a message costs, in packets; those that take system calls, or that look at all that is kept
/// of a peer, cost more.
const MESSAGE: u32 = 8;
const CONNECT: u32 = 256;
const FORGET: u32 = 64;

/// What a message costs.
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

/// A link of the rank, and how long it has been quiet.
struct Way {
    carrier: Carrier,
    /// Looking costs no system call.
    polled: bool,
    quiet: u32,
    /// Refused by the link.
    pending: VecDeque<Out>,
}

/// A rank that is served.
pub struct Seat {
    /// Who it is, as the kernel says.
    pub caller: Caller,
    /// Its links were given back when the rank's last words have arrived, or at this time.
    pub leaving: Option<Instant>,
    /// What it sends is left in its ring.
    pub muted: bool,
    /// It asked for more than it can have: why it is not served any more.
    pub fault: Option<String>,
    /// What it may cost until the next turn; below zero: what it has cost beyond its share.
    balance: i32,
    rank: u32,
    ways: Vec<Way>,
    proxy: Proxy,
    peers_max: u32,
    burst: Vec<Out>,
}

impl Seat {
    /// For a rank that asked to be served.
    pub fn new(
        rank: u32,
        caller: Caller,
        attach: &Attach,
        carriers: Vec<Carrier>,
        quotas: Quotas,
    ) -> Seat {
        let mut config = attach.config();
        config.peers_max = config.peers_max.min(quotas.peers);
        let way = |carrier: Carrier| {
            let polled = carrier.caps().polled;
            Way { carrier, polled, quiet: 0, pending: VecDeque::new() }
        };
        let limits = Limits { bytes: quotas.bytes, words: quotas.words, groups: quotas.groups };
        Seat {
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

    /// Where the rank is reached, and what its links can do: address, packet size, delay in
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

    /// Its counters can be in the kernel.
    pub fn use_kernel(&mut self, kernel: InKernel) {
        self.proxy.use_kernel(kernel);
    }

    /// Says something to the rank, when its ring has room.
    pub fn say(&mut self, message: Control) {
        self.proxy.say(message);
    }

    /// A new turn, of which this share is the rank's.
    pub fn begin_turn(&mut self, share: u32) {
        let share = share as i32;
        self.balance = self.balance.saturating_add(share).min(share);
    }

    /// What the rank may cost until the next turn: 0, it is not heard.
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

    /// A packet of the rank; what it costs.
    #[inline]
    pub fn packet(&mut self, peer: PeerId, header: &[u8], payload: Bytes<'_>) -> u32 {
        let cost = 1 + (payload.len() >> 12) as u32;
        self.proxy.packet(peer, header, payload);
        self.pay(cost)
    }

    /// A message of the rank, other than that it wants to be served; `None`: it is none. What it
    /// costs.
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
                        let (latency_ns, bytes_per_us) = (caps.latency_ns, caps.bytes_per_us);
                        links.push(LinkTo { link: at as u8, latency_ns, bytes_per_us });
                        mtu = mtu.min(caps.mtu);
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

    /// Takes what its links have. `rarely`: looks also at quiet ones that cost a system call.
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

    /// What its links have noticed.
    pub fn listen(&mut self) {
        for at in 0..self.ways.len() {
            while let Some(event) = self.ways[at].carrier.link().poll_event() {
                match event {
                    LinkEvent::Mtu(peer, mtu) => self.proxy.say(Control::Path(peer, mtu)),
                    LinkEvent::Warning(text) => log::warn!("rank {}: {text}", self.rank),
                    _ => {}
                }
            }
        }
    }

    /// Sends what is due. True if anything was.
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

    /// Gives the rank what waits for it. True if anything went.
    pub fn pump(&mut self, hub: &mut Hub) -> bool {
        self.proxy.pump(&mut Ring { hub, rank: self.rank })
    }

    /// Does what has become due.
    pub fn on_time(&mut self, now: Instant) {
        self.proxy.on_time(now);
        self.tell();
    }

    /// Tells the rank what was noticed.
    fn tell(&mut self) {
        let ways = &mut self.ways;
        self.proxy.notice(|peer| {
            ways.iter_mut().for_each(|way| way.carrier.link().disconnect(peer));
        });
    }

    /// When `on_time` wants to be called.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.proxy.next_timeout().into_iter().chain(self.leaving).min()
    }

    /// Whether the rank may send more: else it waits, alone.
    pub fn has_room(&self) -> bool {
        self.proxy.has_room()
    }

    /// The rank has ended: its peers are told when what it sent has arrived.
    pub fn end(&mut self, until: Instant) {
        self.leaving = Some(until);
        self.proxy.end();
    }

    /// Whether all has arrived that the rank has sent, and its peers were told of its end as often
    /// as they are.
    pub fn is_quiet(&self) -> bool {
        self.proxy.is_quiet() && self.ways.iter().all(|w| w.pending.is_empty())
    }

    /// The same, with peers that were told once.
    pub fn has_told(&self) -> bool {
        self.proxy.has_told() && self.ways.iter().all(|w| w.pending.is_empty())
    }

    /// Its links, for whoever comes next.
    pub fn into_carriers(self) -> Vec<Carrier> {
        self.ways.into_iter().map(|way| way.carrier).collect()
    }

    /// Packets that injected faults have lost.
    pub fn lost(&self) -> u64 {
        self.ways.iter().map(|way| way.carrier.lost()).sum()
    }

    /// The links, to wait on them.
    pub fn carriers(&mut self) -> impl Iterator<Item = &mut Carrier> {
        self.ways.iter_mut().map(|way| &mut way.carrier)
    }

    /// Work that its groups have taken, in visits of a child.
    pub fn group_work(&self) -> u64 {
        self.proxy.group_work()
    }

    /// Counters and state, as name and value.
    pub fn state(&self) -> [(&'static str, u64); 13] {
        let s = self.proxy.stats();
        let (counted, multicast, refused) = self.proxy.served();
        [
            ("peers", self.proxy.peers() as u64),
            ("sent", s.sent),
            ("retransmitted", s.retransmitted),
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
    /// Sends what waits, then `outs`; what is refused waits. True if anything went.
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

/// Takes frames of a link to the proxy.
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

//! All that concerns one rank: its links, its relay, what waits for it.

use crate::counters::Counters;
use crate::groups::{Groups, Port};
use crate::links::Carrier;
use crate::options::Quotas;
use crate::payloads::Payloads;
use std::collections::{HashMap, VecDeque};
use weft_core::relay::{Arrival, LinkTo, Out, Relay, RelayEvent, Room};
use weft_core::wire::{self, field, flags, status, HeaderBuf, Packet, PacketType};
use weft_core::{EndpointId, Instant, PeerId};
use weft_link::agent::{Attach, Caller, Control, Hub};
use weft_link::{Address, Bytes, Frame, LinkEvent, PeerInfo, Sink};

/// Packets sent, and taken from a link, at a time.
const BURST: usize = 16;
const LOOK: usize = 64;
/// Packets and messages that wait for room in the rank's ring.
const INBOX_MAX: usize = 1024;
/// Looks in vain after which a link that costs a system call is looked at rarely.
const QUIET: u32 = 64;

/// What waits for room in the rank's ring.
enum Inbound {
    Packet(Option<PeerId>, HeaderBuf, Vec<u8>),
    Say(Control),
}

impl Inbound {
    fn len(&self) -> usize {
        match self {
            Inbound::Packet(_, _, payload) => payload.len() + 64,
            Inbound::Say(Control::GroupPacket(_, _, bytes)) => bytes.len() + 64,
            Inbound::Say(_) => 256,
        }
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

/// What is kept of a rank, but for its links.
struct Body {
    rank: u32,
    relay: Relay,
    payloads: Payloads,
    inbox: VecDeque<Inbound>,
    inbox_bytes: usize,
    held: HashMap<(u32, u32), (HeaderBuf, Vec<u8>)>,
    held_bytes: usize,
    scratch: Vec<u8>,
    counters: Counters,
    groups: Groups,
    bytes_max: usize,
    /// The rank has ended: nothing is for it any more.
    gone: bool,
}

/// A rank that is served.
pub struct Seat {
    /// Who it is, as the kernel says.
    pub caller: Caller,
    /// Its links were given back when the rank's last words have arrived, or at this time.
    pub leaving: Option<Instant>,
    /// What it sends is left in its ring.
    pub muted: bool,
    ways: Vec<Way>,
    body: Body,
    quotas: Quotas,
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
        Seat {
            caller,
            leaving: None,
            muted: false,
            ways: carriers.into_iter().map(way).collect(),
            body: Body {
                rank,
                relay: Relay::new(caller.endpoint, config),
                payloads: Payloads::default(),
                inbox: VecDeque::new(),
                inbox_bytes: 0,
                held: HashMap::new(),
                held_bytes: 0,
                scratch: Vec::new(),
                counters: Counters::default(),
                groups: Groups::default(),
                bytes_max: quotas.bytes,
                gone: false,
            },
            quotas,
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

    /// Says something to the rank, when its ring has room.
    pub fn say(&mut self, message: Control) {
        self.body.say(message);
    }

    /// A packet of the rank.
    #[inline]
    pub fn packet(&mut self, now: Instant, peer: PeerId, header: &[u8], payload: Bytes<'_>) {
        let body = &mut self.body;
        let handle = body.payloads.keep(payload);
        if body.relay.from_rank(now, peer, header, handle).is_err() {
            body.payloads.release(handle);
        }
    }

    /// A message of the rank, other than that it wants to be served.
    pub fn control(&mut self, now: Instant, message: Control) {
        let (body, quotas) = (&mut self.body, self.quotas);
        match message {
            Control::Connect(peer, session, given, endpoint, address) => {
                self.connect(peer, (session, given), endpoint, &address);
            }
            Control::Disconnect(peer) => self.forget(peer),
            Control::CounterOpen(key, words, value) => {
                let opened = body.counters.open(key, words, value, quotas.words);
                let value = opened.then_some(value);
                body.say(Control::CounterIs(key, 0, value));
            }
            Control::CounterRead(key, word) => {
                let value = body.counters.read(key, word);
                body.say(Control::CounterIs(key, word, value));
            }
            Control::CounterClose(key) => body.counters.close(key),
            Control::CounterDo(number, atomic) => {
                let reply = body.counters.serve(&atomic).filter(|r| r.status == status::OK);
                body.say(Control::CounterDone(number, reply.map(|r| r.value)));
            }
            Control::GroupJoin(role) => {
                let group = role.group;
                let joined = body.groups.join(role, quotas.groups);
                body.say(Control::GroupJoined(group, joined));
                if !joined {
                    let most = quotas.groups;
                    body.say(Control::Notice(format!(
                        "group {group:x} is not joined: it is already, or the quota of {most} \
                         groups is used up (weftd --quota groups=N)"
                    )));
                }
            }
            Control::GroupLeave(group) => body.groups.leave(group),
            Control::GroupPacket(group, number, bytes) => {
                body.groups.root_sends(group, number, &bytes);
            }
            Control::GroupGrant(group, granted) => body.groups.rank_granted(group, granted),
            _ => body.say(Control::Notice("a message that only an agent sends".into())),
        }
        self.body.progress_groups(now);
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
            Err(e) => return self.body.say(Control::Lost(peer, format!("its address: {e}"))),
        };
        let info = PeerInfo { peer, session, endpoint, address };
        let (mut links, mut mtu, mut reasons) = (Vec::new(), u32::MAX, Vec::new());
        if peer.0 < self.quotas.peers {
            for (at, way) in self.ways.iter_mut().enumerate() {
                match way.carrier.connect(&info) {
                    Ok(caps) => {
                        let (latency_ns, bytes_per_us) = (caps.latency_ns, caps.bytes_per_us);
                        links.push(LinkTo { link: at as u8, latency_ns, bytes_per_us });
                        mtu = mtu.min(caps.mtu);
                    }
                    Err(e) => reasons.push(format!("{}: {e}", way.carrier.caps().name)),
                }
            }
        } else {
            let most = self.quotas.peers;
            reasons.push(format!("the quota of {most} peers is used up (weftd --quota peers=N)"));
        }
        if self.body.relay.connect(peer, (session, given), endpoint, &links) {
            self.body.say(Control::Path(peer, mtu));
        } else {
            self.body.say(Control::Lost(peer, reasons.join("; ")));
        }
    }

    fn forget(&mut self, peer: PeerId) {
        self.body.forget(peer);
        self.ways.iter_mut().for_each(|way| way.carrier.link().disconnect(peer));
    }

    /// Takes what its links have. `rarely`: looks also at quiet ones that cost a system call.
    pub fn look(&mut self, now: Instant, hub: &mut Hub, rarely: bool) -> bool {
        let mut found = false;
        for (at, way) in self.ways.iter_mut().enumerate() {
            if !(way.polled || rarely || way.quiet < QUIET) {
                continue;
            }
            let mut sink = FromWire { body: &mut self.body, hub, now, link: at as u8 };
            let got = way.carrier.link().recv(LOOK, &mut sink) > 0;
            way.quiet = if got { 0 } else { way.quiet.saturating_add(1) };
            found |= got;
        }
        found |= self.body.progress_groups(now);
        found
    }

    /// What its links have noticed.
    pub fn listen(&mut self) {
        for at in 0..self.ways.len() {
            while let Some(event) = self.ways[at].carrier.link().poll_event() {
                match event {
                    LinkEvent::Mtu(peer, mtu) => self.body.say(Control::Path(peer, mtu)),
                    LinkEvent::Warning(text) => log::warn!("rank {}: {text}", self.body.rank),
                    _ => {}
                }
            }
        }
    }

    /// Sends what is due. True if anything was.
    pub fn flush(&mut self, now: Instant) -> bool {
        let mut did = false;
        for way in self.ways.iter_mut().filter(|w| !w.pending.is_empty()) {
            did |= way.send(&mut self.body.payloads, &mut Vec::new());
        }
        while self.body.relay.has_output() && self.ways.iter().all(|w| w.pending.is_empty()) {
            let Some(first) = self.body.relay.poll_transmit(now) else { break };
            did = true;
            let link = first.link;
            self.burst.push(first);
            let mut other = None;
            while self.burst.len() < BURST {
                match self.body.relay.poll_transmit(now) {
                    Some(out) if out.link == link => self.burst.push(out),
                    Some(out) => {
                        other = Some(out);
                        break;
                    }
                    None => break,
                }
            }
            if let Some(way) = self.ways.get_mut(usize::from(link)) {
                way.send(&mut self.body.payloads, &mut self.burst);
            }
            self.burst.clear();
            if let Some(out) = other {
                self.burst.push(out);
                if let Some(way) = self.ways.get_mut(usize::from(out.link)) {
                    way.send(&mut self.body.payloads, &mut self.burst);
                }
                self.burst.clear();
            }
        }
        while let Some(handle) = self.body.relay.poll_free() {
            self.body.payloads.release(handle);
        }
        self.tell();
        did
    }

    /// Gives the rank what waits for it. True if anything went.
    pub fn pump(&mut self, hub: &mut Hub) -> bool {
        self.body.pump(hub)
    }

    /// Does what has become due.
    pub fn on_time(&mut self, now: Instant) {
        if self.body.relay.next_timeout().is_some_and(|at| at <= now) {
            self.body.relay.handle_timeout(now);
            self.tell();
        }
        self.body.progress_groups(now);
    }

    /// Tells the rank what the relay has noticed.
    fn tell(&mut self) {
        while let Some(event) = self.body.relay.poll_event() {
            match event {
                RelayEvent::Left(peer, left) => self.body.say(Control::Left(peer, left)),
                RelayEvent::Room => self.body.groups.look_again(),
                RelayEvent::Lost(peer, after_ms) => {
                    self.forget(peer);
                    let why =
                        format!("nothing heard for {after_ms} ms (its host, or its agent, ended)");
                    self.body.say(Control::Lost(peer, why));
                }
            }
        }
    }

    /// When `on_time` wants to be called.
    pub fn next_timeout(&self) -> Option<Instant> {
        let groups = self.body.groups.next_timeout();
        [self.body.relay.next_timeout(), groups, self.leaving].into_iter().flatten().min()
    }

    /// Whether the rank may send more: else it waits, alone.
    pub fn has_room(&self) -> bool {
        let bytes = self.body.payloads.bytes() + self.body.relay.kept_bytes();
        self.body.inbox.len() < INBOX_MAX && bytes < self.quotas.bytes
    }

    /// The rank has ended: its peers are told when what it sent has arrived.
    pub fn end(&mut self, until: Instant) {
        self.leaving = Some(until);
        self.body.gone = true;
        self.body.inbox.clear();
        self.body.inbox_bytes = 0;
        self.body.relay.rank_gone();
    }

    /// Whether all has arrived that the rank has sent, and its peers were told of its end as often
    /// as they are.
    pub fn is_quiet(&self) -> bool {
        self.body.relay.is_quiet() && self.ways.iter().all(|w| w.pending.is_empty())
    }

    /// The same, with peers that were told once.
    pub fn has_told(&self) -> bool {
        self.body.relay.has_told() && self.ways.iter().all(|w| w.pending.is_empty())
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

    /// Counters and state, as name and value.
    pub fn state(&self) -> [(&'static str, u64); 12] {
        let s = self.body.relay.stats();
        [
            ("peers", self.body.relay.peers() as u64),
            ("sent", s.sent),
            ("retransmitted", s.retransmitted),
            ("timeouts", s.timeouts),
            ("delivered", s.delivered),
            ("held", s.held),
            ("no_room", s.no_room),
            ("acks", s.acks),
            ("refused", s.refused + self.body.groups.refused),
            ("moved", s.moved),
            ("counted", self.body.counters.served),
            ("multicast", self.body.groups.packets),
        ]
    }
}

impl Way {
    /// Sends what waits, then `outs`; what is refused waits. True if anything went.
    fn send(&mut self, payloads: &mut Payloads, outs: &mut Vec<Out>) -> bool {
        self.pending.extend(outs.drain(..));
        let mut did = false;
        while !self.pending.is_empty() {
            let n = self.pending.len().min(BURST);
            let frames: [Frame<'_>; BURST] = std::array::from_fn(|i| {
                let out = &self.pending[i.min(n - 1)];
                Frame {
                    peer: out.peer,
                    header: out.header.as_slice(),
                    payload: payloads.get(out.payload),
                }
            });
            let sent = self.carrier.send(&frames[..n]);
            for out in self.pending.drain(..sent).filter(|o| o.last) {
                payloads.release(out.payload);
            }
            did |= sent > 0;
            if sent < n {
                break;
            }
        }
        did
    }
}

/// Takes frames of a link to the relay.
struct FromWire<'a> {
    body: &'a mut Body,
    hub: &'a mut Hub,
    now: Instant,
    link: u8,
}

impl Sink for FromWire<'_> {
    #[inline]
    fn frame(&mut self, _: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        self.body.arrive(self.now, self.link, header, payload, self.hub);
    }
}

impl Body {
    fn arrive(&mut self, now: Instant, link: u8, header: &[u8], payload: Bytes<'_>, hub: &mut Hub) {
        let inbox = self.inbox.len() < INBOX_MAX && self.inbox_bytes < self.bytes_max;
        let room = Room { deliver: inbox || self.gone, hold: self.held_bytes < self.bytes_max };
        match self.relay.from_wire(now, link, header, room) {
            Arrival::Drop => {}
            Arrival::Hold(peer, seq) => {
                self.held_bytes += payload.len();
                let kept = (HeaderBuf::copy_of(header), payload.to_vec());
                self.held.insert((peer.0, seq.0), kept);
            }
            Arrival::Deliver(from) => {
                let mut scratch = std::mem::take(&mut self.scratch);
                scratch.resize(payload.len(), 0);
                payload.copy_to(&mut scratch);
                self.take(now, from, header, &scratch, hub);
                self.scratch = scratch;
                while let Some((peer, seq)) = self.relay.next_held() {
                    let Some((header, payload)) = self.held.remove(&(peer.0, seq.0)) else {
                        continue;
                    };
                    self.held_bytes -= payload.len();
                    self.take(now, Some(peer), header.as_slice(), &payload, hub);
                }
            }
        }
    }

    /// A packet whose turn has come: for the agent, or for the rank.
    #[inline]
    fn take(
        &mut self,
        now: Instant,
        from: Option<PeerId>,
        header: &[u8],
        payload: &[u8],
        hub: &mut Hub,
    ) {
        const NOP: u8 = PacketType::Nop as u8;
        const ATOMIC: u8 = PacketType::Atomic as u8;
        const BYE: u8 = PacketType::Bye as u8;
        const MCAST: u8 = PacketType::Mcast as u8;
        const GRANT: u8 = PacketType::Grant as u8;
        let kind = header.get(field::TYPE).copied().unwrap_or(0);
        let Some(peer) = from else { return self.give_rank(None, header, payload, hub) };
        match kind {
            NOP => {}
            ATOMIC | MCAST | GRANT if self.serve(peer, header, payload) => {}
            BYE => {
                self.lose(now, peer);
                self.give_rank(from, header, payload, hub);
            }
            _ => self.give_rank(from, header, payload, hub),
        }
    }

    /// What the agent does in the rank's place. False: it is for the rank.
    fn serve(&mut self, peer: PeerId, header: &[u8], payload: &[u8]) -> bool {
        let Ok((common, packet, _)) = wire::parse(header) else { return true };
        match packet {
            // Its sender wants it to be done by the rank.
            Packet::Atomic(_) if common.flags & flags::DIRECT != 0 => return false,
            Packet::Atomic(atomic) => {
                let Some(reply) = self.counters.serve(&atomic) else { return false };
                self.relay.reply(peer, common.imm, &reply);
            }
            Packet::Mcast(mcast) => self.groups.on_mcast(peer, &mcast, payload),
            Packet::Grant(grant) => self.groups.on_grant(peer, &grant),
            _ => {}
        }
        true
    }

    #[inline]
    fn give_rank(&mut self, from: Option<PeerId>, header: &[u8], payload: &[u8], hub: &mut Hub) {
        if self.gone {
            return;
        }
        if self.inbox.is_empty() && hub.deliver(self.rank, from, header, payload) {
            return;
        }
        let packet = Inbound::Packet(from, HeaderBuf::copy_of(header), payload.to_vec());
        self.queue(packet);
    }

    fn queue(&mut self, inbound: Inbound) {
        self.inbox_bytes += inbound.len();
        self.inbox.push_back(inbound);
    }

    fn say(&mut self, message: Control) {
        if !self.gone {
            self.queue(Inbound::Say(message));
        }
    }

    fn pump(&mut self, hub: &mut Hub) -> bool {
        let before = self.inbox.len();
        while let Some(first) = self.inbox.front() {
            let went = match first {
                Inbound::Packet(from, header, payload) => {
                    hub.deliver(self.rank, *from, header.as_slice(), payload)
                }
                Inbound::Say(message) => hub.say(self.rank, message),
            };
            if !went {
                break;
            }
            self.inbox_bytes -= first.len();
            self.inbox.pop_front();
        }
        let did = self.inbox.len() < before;
        if did {
            self.groups.look_again();
        }
        did
    }

    fn forget(&mut self, peer: PeerId) {
        self.relay.disconnect(peer);
        self.held.retain(|(of, _), _| *of != peer.0);
        self.held_bytes = self.held.values().map(|(_, payload)| payload.len()).sum();
        self.lose(Instant(0), peer);
    }

    fn lose(&mut self, now: Instant, peer: PeerId) {
        let mut groups = std::mem::take(&mut self.groups);
        groups.on_lost(peer, &mut GroupPort { body: self, now });
        self.groups = groups;
    }

    fn progress_groups(&mut self, now: Instant) -> bool {
        if !self.groups.is_due(now) {
            return false;
        }
        let mut groups = std::mem::take(&mut self.groups);
        groups.progress(now, &mut GroupPort { body: self, now });
        self.groups = groups;
        true
    }
}

/// What groups reach the outside by.
struct GroupPort<'a> {
    body: &'a mut Body,
    now: Instant,
}

impl Port for GroupPort<'_> {
    fn send(&mut self, peer: PeerId, packet: &Packet, bytes: &[u8]) -> bool {
        let handle = self.body.payloads.keep(Bytes::from_slice(bytes));
        let taken = self.body.relay.inject(self.now, peer, packet, 0, handle);
        if !taken {
            self.body.payloads.release(handle);
        }
        taken
    }

    fn tell(&mut self, message: Control) {
        self.body.say(message);
    }

    fn has_room(&self) -> bool {
        self.body.inbox.len() < INBOX_MAX / 16
    }
}

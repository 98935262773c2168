//! The driver: owns engine, links and clock, and moves bytes between them.

use super::ops::{OpTable, Owner};
use super::sys::Memory;
use crate::clock::Clock;
use arrayvec::ArrayVec;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::task::Waker;
use weft_core::engine::types::{AtomicRequest, Completion, Event, Payload, Placement, Transmit};
use weft_core::slab::Slab;
use weft_core::wire::{self, field, session_of, Packet, PacketType};
use weft_core::{Config, EndpointId, Engine, Instant, LinkCaps, OpId, PeerFailure, PeerId};
use weft_link::{Address, Bytes, Frame, Link, LinkEvent, PeerInfo, Prediction, Sink};

/// Packets taken from a link before others are looked at.
pub(super) const RECV_BUDGET: usize = 256;
/// Packets taken from a network before acknowledgements and requests go out: one GSO train.
const TRAIN_BUDGET: usize = 64;
/// Packets offered to a link in one call: one GSO train.
const BURST: usize = 64;

/// An active message that arrived; its handler runs when the driver is not borrowed.
pub(crate) struct Upcall {
    pub handler: u32,
    pub peer: PeerId,
    pub argument: u32,
    pub data: Vec<u8>,
}

/// What the packets of a large message have in common.
#[derive(Clone, Copy)]
struct Bulk {
    op: OpId,
    session: u32,
}

struct Held {
    header: Vec<u8>,
    payload: Vec<u8>,
}

/// Everything but the links: what a link's `recv` calls into.
pub(crate) struct Core {
    pub engine: Engine,
    pub clock: Clock,
    /// One timestamp a burst.
    pub now: Instant,
    pub ops: OpTable,
    pub completions: VecDeque<Completion>,
    pub upcalls: VecDeque<Upcall>,
    pub arrivals: Vec<Waker>,
    pub failed: Vec<(PeerId, PeerFailure)>,
    stored: Vec<Vec<u8>>,
    held: BTreeMap<(PeerId, u32), Held>,
    pub regions: HashMap<u64, Memory>,
    connects: Vec<(PeerId, usize, Address)>,
    atomics: VecDeque<AtomicRequest>,
    /// Events that need a link, put off until the burst is taken in.
    deferred: VecDeque<Event>,
    /// Parts of direct copies to be done.
    copies: VecDeque<Event>,
    link: usize,
    /// Capabilities of the links, in their order.
    caps: Vec<LinkCaps>,
    /// The receive that bulk data arrived for last.
    bulk: Option<Bulk>,
}

pub(crate) struct Driver {
    pub core: Core,
    pub links: Vec<Box<dyn Link>>,
    pub address: Address,
    encoded: Vec<u8>,
    /// Link of each peer.
    routes: Vec<Option<u8>>,
    pub addresses: Vec<Option<Address>>,
    pub sleepers: BTreeMap<(Instant, u64), Waker>,
    /// Peers on each link.
    used: Vec<u32>,
    /// Links looked at in every round: those somebody talks over.
    busy: Vec<bool>,
    /// Rounds of progress done.
    rounds: u32,
    /// Time is virtual: a simulator calls only when something happened, so every round looks
    /// everywhere.
    exact: bool,
}

/// Rounds between looks at a link that no peer uses, or that costs a system call and gave nothing.
const RARELY: u32 = 64;
/// Close looks at a link between two rounds.
const CLOSE_ROUNDS: u32 = 16;
/// Rounds between readings of the clock while nothing happens.
const CLOCK_ROUNDS: u32 = 8;

impl Driver {
    pub fn new(config: Config, id: EndpointId, clock: Clock, links: Vec<Box<dyn Link>>) -> Driver {
        let mut address = Address { endpoint: id, ..Address::default() };
        for link in &links {
            link.advertise(&mut address);
        }
        let encoded = address.encode();
        let now = clock.now();
        let exact = clock.is_virtual();
        let used = vec![0; links.len()];
        let busy = vec![false; links.len()];
        Driver {
            core: Core {
                engine: Engine::new(config, id),
                clock,
                now,
                ops: OpTable::default(),
                completions: VecDeque::new(),
                upcalls: VecDeque::new(),
                arrivals: Vec::new(),
                failed: Vec::new(),
                stored: Vec::new(),
                held: BTreeMap::new(),
                regions: HashMap::new(),
                connects: Vec::new(),
                atomics: VecDeque::new(),
                deferred: VecDeque::new(),
                copies: VecDeque::new(),
                link: 0,
                caps: links.iter().map(|l| l.caps()).collect(),
                bulk: None,
            },
            links,
            address,
            encoded,
            routes: Vec::new(),
            addresses: Vec::new(),
            sleepers: BTreeMap::new(),
            used,
            busy,
            rounds: 0,
            exact,
        }
    }

    /// Makes a peer of an address. The links are tried in order of preference; the reasons of those
    /// that refuse are returned when all do.
    pub fn connect(&mut self, address: &Address) -> Result<PeerId, Vec<(&'static str, String)>> {
        if let Some(peer) = self.core.engine.find_peer(address.endpoint) {
            return Ok(peer);
        }
        let caps = LinkCaps::network("none", 512);
        let Some(peer) = self.core.engine.add_peer(address.endpoint, caps) else {
            return Err(vec![("weft", "the peer table is full (WEFT_PEERS_MAX)".to_string())]);
        };
        self.route(peer, address, None).map(|()| peer)
    }

    /// Finds a link for a peer, trying `first` before the others.
    fn route(
        &mut self,
        peer: PeerId,
        address: &Address,
        first: Option<usize>,
    ) -> Result<(), Vec<(&'static str, String)>> {
        let Some((endpoint, session, _)) = self.core.engine.peer_info(peer) else {
            return Err(Vec::new());
        };
        let info = PeerInfo { peer, session, endpoint, address: address.clone() };
        let mut reasons = Vec::new();
        let order = first.into_iter().chain((0..self.links.len()).filter(|&i| Some(i) != first));
        for i in order {
            match self.links[i].connect(&info) {
                Ok(caps) => {
                    let at = peer.0 as usize;
                    if self.routes.len() <= at {
                        self.routes.resize(at + 1, None);
                        self.addresses.resize(at + 1, None);
                    }
                    self.routes[at] = Some(i as u8);
                    self.used[i] += 1;
                    self.busy[i] = true;
                    self.addresses[at] = Some(info.address);
                    self.core.engine.set_path(peer, caps);
                    return Ok(());
                }
                Err(error) => reasons.push((self.links[i].caps().name, error.to_string())),
            }
        }
        self.core.engine.peer_failed(peer, PeerFailure::NoLink);
        Err(reasons)
    }

    /// Link index of a peer.
    #[inline]
    pub fn link_of(&self, peer: PeerId) -> Option<usize> {
        self.routes.get(peer.0 as usize).copied().flatten().map(usize::from)
    }

    /// Does everything possible now: receive, act, send. True if anything happened. At most
    /// `budget` packets are taken from each link inside the host.
    #[inline]
    pub fn progress(&mut self, budget: usize) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        let rare = self.exact || self.rounds.is_multiple_of(RARELY);
        let mut did = false;
        if rare || self.rounds.is_multiple_of(CLOCK_ROUNDS) {
            did |= self.on_time();
        }
        for i in 0..self.links.len() {
            // Strangers can wait; a look at a network costs a system call.
            if rare || self.busy[i] {
                self.core.link = i;
                let budget = if self.core.caps[i].network { TRAIN_BUDGET } else { budget };
                did |= self.links[i].recv(budget, &mut self.core) > 0;
            }
        }
        if rare || self.core.has_work() {
            did |= self.flush();
        }
        did
    }

    /// Between two rounds of a wait that found nothing: looks closely at the one link in use, if
    /// that costs no system call.
    #[inline]
    pub fn spin(&mut self) {
        let mut busy = (0..self.links.len()).filter(|&i| self.busy[i]);
        if let (Some(only), None) = (busy.next(), busy.next()) {
            if self.core.caps[only].polled {
                self.links[only].spin(CLOSE_ROUNDS);
            }
        }
    }

    /// Reads the clock and does what has become due.
    fn on_time(&mut self) -> bool {
        self.core.now = self.core.clock.now();
        let mut did = false;
        if self.core.engine.next_timeout().is_some_and(|at| at <= self.core.now) {
            self.core.engine.handle_timeout(self.core.now);
            did = true;
        }
        if !self.sleepers.is_empty() {
            did |= self.wake_sleepers();
        }
        did
    }

    /// The next round reads the clock and looks at every link: after sleeping.
    pub fn refresh(&mut self) {
        self.rounds = RARELY.wrapping_sub(1);
    }

    /// Acts on what the engine wants and sends what it has. True if anything happened.
    pub fn flush(&mut self) -> bool {
        let mut did = false;
        self.core.engine.retry_blocked();
        did |= self.settle_all();
        // One part of a large copy at a time: in between, the other side's packets are taken in and
        // what it waits for goes out, so that both sides copy.
        if let Some(copy) = self.core.copies.pop_front() {
            did = true;
            self.event(copy);
            self.settle_all();
        }
        did
    }

    fn settle_all(&mut self) -> bool {
        let mut did = false;
        loop {
            let acted = self.act();
            did |= acted | self.transmit();
            if !acted {
                return did;
            }
        }
    }

    fn wake_sleepers(&mut self) -> bool {
        let mut did = false;
        while let Some((&(at, _), _)) = self.sleepers.first_key_value() {
            if at > self.core.now {
                break;
            }
            if let Some((_, waker)) = self.sleepers.pop_first() {
                waker.wake();
                did = true;
            }
        }
        did
    }

    /// When `progress` wants to be called again although nothing arrives.
    pub fn next_timeout(&self) -> Option<Instant> {
        let sleeper = self.sleepers.first_key_value().map(|(&(at, _), _)| at);
        let engine = self.core.engine.next_timeout();
        match (sleeper, engine) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn act(&mut self) -> bool {
        let mut did = false;
        for i in 0..self.links.len() {
            while let Some(event) = self.links[i].poll_event() {
                did = true;
                self.link_event(i, event);
            }
        }
        while let Some((peer, link, address)) = self.core.connects.pop() {
            did = true;
            if self.link_of(peer).is_none() {
                if let Err(reasons) = self.route(peer, &address, Some(link)) {
                    log::warn!("{}: no way back to {peer}: {reasons:?}", self.core.engine.id());
                }
            }
        }
        while let Some(request) = self.core.atomics.pop_front() {
            did = true;
            self.core.atomic(&request);
        }
        while let Some(event) = self.core.next_event() {
            did = true;
            match event {
                Event::DirectRead(_) | Event::DirectWrite(_) => self.core.copies.push_back(event),
                _ => self.event(event),
            }
        }
        did
    }

    fn link_event(&mut self, link: usize, event: LinkEvent) {
        match event {
            LinkEvent::PeerGone(peer) if self.link_of(peer) == Some(link) => {
                self.core.engine.peer_failed(peer, PeerFailure::Gone);
            }
            LinkEvent::PeerRefused(peer) if self.link_of(peer) == Some(link) => {
                self.core.engine.peer_failed(peer, PeerFailure::Refused);
            }
            LinkEvent::Mtu(peer, mtu) => self.core.engine.set_mtu(peer, mtu),
            LinkEvent::Warning(text) => log::warn!("{}: {text}", self.links[link].caps().name),
            _ => {}
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::DirectRead(d) => {
                let link = self.link_of(d.peer);
                let (mut ok, mut helping) = (false, false);
                if let (Some(link), Some(into)) = (link, self.core.ops.write(d.op, d.offset, d.len))
                {
                    ok = self.links[link].read_direct(d.peer, d.addr, into).is_ok();
                    helping = self.links[link].attentive(d.peer);
                }
                self.core.engine.direct_read_done(self.core.now, &d, ok, helping);
            }
            Event::DirectWrite(d) => {
                let link = self.link_of(d.peer);
                let from = self.core.ops.read(d.op, d.offset, d.len as usize);
                let whole = from.len() as u64 == d.len;
                let ok = whole
                    && link
                        .is_some_and(|l| self.links[l].write_direct(d.peer, d.addr, from).is_ok());
                self.core.engine.direct_write_done(self.core.now, &d, ok);
            }
            Event::PeerFailed(peer, failure) => {
                self.report_failure(peer, failure);
                if let Some(link) = self.link_of(peer) {
                    self.links[link].disconnect(peer);
                    self.used[link] -= 1;
                    self.busy[link] = self.used[link] > 0;
                }
                self.core.forget(peer);
                self.core.failed.push((peer, failure));
            }
            Event::PeerSlow(peer, waited) => {
                let what = self.describe(peer);
                log::warn!("waiting for {what} since {:.1} s", waited.as_secs_f64());
            }
            other => self.core.event(other),
        }
    }

    fn report_failure(&self, peer: PeerId, failure: PeerFailure) {
        let what = self.describe(peer);
        match failure {
            PeerFailure::Closed => log::debug!("{what}: {failure}"),
            _ => log::warn!("{what} failed: {failure}"),
        }
    }

    /// A peer with its endpoint, link and address, for messages to people.
    pub fn describe(&self, peer: PeerId) -> String {
        let link = self.link_of(peer).map_or("no link", |l| self.links[l].caps().name);
        match self.addresses.get(peer.0 as usize).and_then(Option::as_ref) {
            Some(address) => format!("{peer} ({address}) over {link}"),
            None => format!("{peer} over {link}"),
        }
    }

    /// Expects what the peer is asked for with this packet, if it is a request.
    fn expect(&mut self, t: &Transmit) {
        let header = t.header.as_slice();
        if header.get(field::TYPE) != Some(&(PacketType::Pull as u8)) {
            return;
        }
        let Ok((_, Packet::Pull(ask), _)) = wire::parse(header) else { return };
        let core = &mut self.core;
        let busy =
            core.bulk.is_some_and(|b| core.ops.beyond(b.op).is_some_and(|b| !b.1.is_empty()));
        if ask.offset == 0 && !busy {
            if let Some((_, session, _)) = core.engine.peer_info(t.peer) {
                core.bulk = Some(Bulk { op: OpId(ask.recv), session });
            }
        }
    }

    /// Sends what the engine has. True if anything was sent.
    fn transmit(&mut self) -> bool {
        let mut did = false;
        let mut next = self.core.engine.poll_transmit(self.core.now);
        while let Some(first) = next.take() {
            let link = self.link_of(first.peer);
            if first.packets > 1 {
                did |= self.send_run(link, first);
                next = self.core.engine.poll_transmit(self.core.now);
                continue;
            }
            let mut batch = ArrayVec::<Transmit, BURST>::new();
            batch.push(first);
            while !batch.is_full() {
                match self.core.engine.poll_transmit(self.core.now) {
                    Some(t) if t.packets == 1 && self.link_of(t.peer) == link => batch.push(t),
                    other => {
                        next = other;
                        break;
                    }
                }
            }
            did |= self.send_batch(link, &batch);
            if next.is_none() {
                next = self.core.engine.poll_transmit(self.core.now);
            }
        }
        did
    }

    fn send_run(&mut self, link: Option<usize>, mut run: Transmit) -> bool {
        let taken = match link {
            Some(link) => {
                let payload = self.core.resolve(&run.payload, &self.encoded);
                let packets = run.packets as usize;
                // What it was to be read from is gone; the peer will ask again.
                if payload.len() != run.payload.len() as usize {
                    packets
                } else {
                    let header = run.header.as_slice();
                    self.links[link].send_run(run.peer, header, payload, packets)
                }
            }
            None => run.packets as usize,
        };
        if taken < run.packets as usize {
            run.skip(taken as u32);
            self.core.engine.refused(run);
        }
        taken > 0
    }

    fn send_batch(&mut self, link: Option<usize>, batch: &[Transmit]) -> bool {
        let Some(link) = link else {
            batch.iter().for_each(|t| self.core.engine.accepted(t));
            return true;
        };
        let core = &self.core;
        let frames: ArrayVec<Frame<'_>, BURST> = batch
            .iter()
            .map(|t| Frame {
                peer: t.peer,
                header: t.header.as_slice(),
                payload: core.resolve(&t.payload, &self.encoded),
            })
            .collect();
        let taken = self.links[link].send(&frames);
        drop(frames);
        for t in &batch[..taken] {
            self.core.engine.accepted(t);
            self.expect(t);
        }
        for t in &batch[taken..] {
            self.core.engine.refused(*t);
        }
        taken > 0
    }
}

impl Core {
    /// The bytes a payload descriptor names; empty if they are gone.
    #[inline]
    fn resolve<'a>(&'a self, payload: &Payload, address: &'a [u8]) -> &'a [u8] {
        match *payload {
            Payload::None => &[],
            Payload::Op { op, offset, len } => self.ops.read(op, offset, len as usize),
            Payload::Region { key, offset, len } => {
                self.regions.get(&key).map_or(&[], |m| m.read(offset, len as usize))
            }
            Payload::Address => address,
        }
    }

    #[inline]
    fn place(&mut self, placement: Placement, header: &[u8], payload: Bytes<'_>) {
        match placement {
            Placement::None => {}
            Placement::Done(completion) => {
                self.ops.place(completion.op, 0, completion.status.len, payload);
                self.complete(completion);
            }
            Placement::Recv { op, offset, len } => self.ops.place(op, offset, len, payload),
            other => self.place_other(other, header, payload),
        }
    }

    fn place_other(&mut self, placement: Placement, header: &[u8], payload: Bytes<'_>) {
        match placement {
            Placement::None | Placement::Recv { .. } | Placement::Done(_) => {}
            Placement::Store { id, offset, total } => self.store(id, offset, total, payload),
            Placement::UpcallStored { id, offset, peer, tag } => {
                self.store(id, offset, 0, payload);
                let data = std::mem::take(&mut self.stored[Slab::<()>::index(id)]);
                self.upcall(peer, tag, data);
            }
            Placement::Upcall { peer, tag } => self.upcall(peer, tag, payload.to_vec()),
            Placement::Hold { peer, seq } => {
                let held = Held { header: header.to_vec(), payload: payload.to_vec() };
                self.held.insert((peer, seq.0), held);
            }
            Placement::Region { key, offset } => {
                if let Some(m) = self.regions.get_mut(&key) {
                    m.place(offset, payload);
                }
            }
            Placement::Atomic(request) => self.atomics.push_back(request),
            Placement::Hello { peer, new } => match Address::decode(&payload.to_vec()) {
                Ok(address) if new => self.connects.push((peer, self.link, address)),
                _ => {}
            },
        }
    }

    /// Remembers where the next packet of a large message probably goes.
    #[inline]
    fn note_bulk(&mut self, placement: Placement, header: &[u8]) {
        let Placement::Recv { op, offset, len } = placement else { return };
        self.ops.placed(op, offset, len);
        if self.bulk.is_none_or(|bulk| bulk.op != op) {
            self.bulk = Some(Bulk { op, session: session_of(header).unwrap_or(0) });
        }
    }

    fn upcall(&mut self, peer: PeerId, tag: u64, data: Vec<u8>) {
        let (handler, argument) = (tag as u32, (tag >> 32) as u32);
        self.upcalls.push_back(Upcall { handler, peer, argument, data });
    }

    fn store(&mut self, id: u32, offset: u64, total: u64, payload: Bytes<'_>) {
        let at = Slab::<()>::index(id);
        if self.stored.len() <= at {
            self.stored.resize_with(at + 1, Vec::new);
        }
        let store = &mut self.stored[at];
        if offset == 0 {
            // The engine has checked the length against the credit it gave.
            store.clear();
            store.resize(total as usize, 0);
        }
        let start = offset as usize;
        if let Some(dst) = store.get_mut(start..start + payload.len()) {
            payload.copy_to(dst);
        }
    }

    /// Whether `flush` would find anything but news of links.
    #[inline]
    fn has_work(&self) -> bool {
        self.engine.has_output()
            || !self.deferred.is_empty()
            || !self.copies.is_empty()
            || !self.connects.is_empty()
            || !self.atomics.is_empty()
    }

    fn next_event(&mut self) -> Option<Event> {
        self.deferred.pop_front().or_else(|| self.engine.poll_event())
    }

    /// Acts on events between two packets of a burst: the next packet may reuse the number of a
    /// stored message that is still to be copied.
    #[inline]
    fn settle(&mut self) {
        // Whoever probes looks again: an announcement leaves no other trace than a probe's.
        if !self.arrivals.is_empty() {
            self.arrivals.drain(..).for_each(Waker::wake);
        }
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Complete(_)
                | Event::Release(_)
                | Event::CopyStored { .. }
                | Event::FreeStored(_) => self.event(event),
                other => self.deferred.push_back(other),
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Complete(c) => self.complete(c),
            Event::Release(op) => self.ops.release(op),
            Event::CopyStored { id, op, len } => {
                let data = std::mem::take(&mut self.stored[Slab::<()>::index(id)]);
                self.ops.place(op, 0, len, Bytes::from_slice(&data));
            }
            Event::FreeStored(id) => {
                if let Some(s) = self.stored.get_mut(Slab::<()>::index(id)) {
                    *s = Vec::new();
                }
            }
            _ => {}
        }
    }

    #[inline]
    fn complete(&mut self, c: Completion) {
        if self.ops.complete(&c) == Owner::Queue {
            self.completions.push_back(c);
        }
    }

    fn atomic(&mut self, a: &AtomicRequest) {
        let word = self.regions.get_mut(&a.key).and_then(|m| m.write(a.offset, 8));
        let Some(word) = word else {
            self.engine.atomic_refused(self.now, a);
            return;
        };
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        let old = u64::from_le_bytes(bytes);
        word.copy_from_slice(&a.code.apply(old, a.operand, a.compare).to_le_bytes());
        self.engine.atomic_done(self.now, a, old);
    }

    fn forget(&mut self, peer: PeerId) {
        self.held.retain(|&(p, _), _| p != peer);
        self.arrivals.drain(..).for_each(Waker::wake);
    }
}

impl Sink for Core {
    #[inline]
    fn frame(&mut self, from: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        let len = payload.len() as u64;
        let caps = &self.caps[self.link];
        let placement = self.engine.handle_packet(self.now, from, caps, header, len);
        self.place(placement, header, payload);
        if header.get(field::TYPE) == Some(&(PacketType::Data as u8)) {
            self.note_bulk(placement, header);
        }
        self.settle();
        while let Some((peer, seq)) = self.engine.next_replay() {
            let Some(held) = self.held.remove(&(peer, seq.0)) else { continue };
            let len = held.payload.len() as u64;
            let placement = self.engine.handle_replay(self.now, peer, &held.header, len);
            self.place(placement, &held.header, Bytes::from_slice(&held.payload));
            self.settle();
        }
    }

    fn run(&mut self, header: &[u8], count: u32, len: u64) -> bool {
        let Some((op, offset)) = self.engine.handle_run(self.now, header, count, len) else {
            return false;
        };
        self.ops.placed(op, offset, len);
        self.settle();
        true
    }

    fn predict(&mut self) -> Option<Prediction<'_>> {
        let Bulk { op, session } = self.bulk?;
        let (offset, memory) = self.ops.beyond(op).filter(|(_, m)| !m.is_empty())?;
        Some(Prediction { memory, session, imm: op.0, offset })
    }
}

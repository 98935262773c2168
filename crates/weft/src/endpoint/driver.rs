//! The driver: owns engine, links and clock, and moves bytes between them.

use super::away::Away;
use super::future::wake;
use super::length::Lengths;
use super::look::Close;
use super::ops::{AwaitedRecv, OpTable, Owner};
use super::paths::Route;
use super::ports::Ports;
use super::sys::Memory;
use super::waits::Waits;
use super::ways::Ways;
use crate::calibration::Calibration;
use crate::clock::Clock;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::task::Waker;
use std::time::Duration;
use weft_core::engine::types::{AtomicRequest, Awaited, Completion, Event, Payload, Placement};
use weft_core::slab::StoredKeys;
use weft_core::wire::{self, field, session_of, Hello, Packet, PacketType};
use weft_core::{Config, EndpointId, Engine, Instant, LinkCaps, OpId, PeerFailure, PeerId};
use weft_link::copied::Origin;
use weft_link::{Address, Bytes, Link, Prediction, Sink};

/// Packets taken from a link before others are looked at.
pub(super) const RECV_BUDGET: usize = 256;
/// Packets taken from a network before acknowledgements and requests go out: one GSO train.
pub(super) const TRAIN_BUDGET: usize = 64;

/// Places of stored messages that are kept although none waits.
const SPARE_PLACES: usize = 1024;

/// What the packets of a large message have in common.
#[derive(Clone, Copy)]
pub(super) struct Bulk {
    pub op: OpId,
    pub session: u32,
    /// What they name it by.
    pub imm: u32,
    /// Length of one sent at once; `None` of one that was asked for.
    pub eager: Option<u64>,
}

struct Held {
    header: Vec<u8>,
    payload: Vec<u8>,
}

/// Everything but the links: what a link's `recv` calls into.
pub(crate) struct Core {
    pub engine: Engine,
    pub clock: Clock,
    /// One timestamp a burst: see [`Core::tick`].
    pub now: Instant,
    /// `now` was read in this round of progress.
    pub(super) fresh: bool,
    pub ops: OpTable,
    pub awaited: AwaitedRecv,
    /// Something that the program waits for came to its end in this round of progress.
    pub(crate) ended: bool,
    pub completions: VecDeque<Completion>,
    pub ports: Ports,
    pub arrivals: Vec<Waker>,
    pub failed: Vec<(PeerId, PeerFailure)>,
    stored: Vec<Vec<u8>>,
    held: BTreeMap<(PeerId, u32), Held>,
    pub regions: HashMap<u64, Memory>,
    pub(super) connects: Vec<(PeerId, usize, Address)>,
    /// HELLOs that came: from whom, over which link, and whether it was an answer.
    pub(super) hellos: Vec<(PeerId, usize, bool)>,
    /// Of the length of packets.
    pub(super) lengths: Lengths,
    /// Endpoints that said HELLO in vain, and over which link.
    rejects: Vec<(EndpointId, usize)>,
    atomics: VecDeque<AtomicRequest>,
    /// Events that need a link, put off until the burst is taken in.
    deferred: VecDeque<Event>,
    /// Parts of direct copies to be done.
    copies: VecDeque<Event>,
    pub(super) ways: Ways,
    pub(super) link: usize,
    /// Capabilities of the links, in their order.
    pub(crate) caps: Vec<LinkCaps>,
    /// The receive that bulk data arrived for last.
    pub(super) bulk: Option<Bulk>,
    /// The link that DATA came over last.
    pub(super) data_over: Option<usize>,
}

pub(crate) struct Driver {
    /// Where it was opened: links are used there alone.
    pub(super) origin: Origin,
    /// Dropped first: peers may copy to memory of operations until their connections have ended.
    pub links: Vec<Box<dyn Link>>,
    pub core: Core,
    pub address: Address,
    pub(super) encoded: Vec<u8>,
    /// Paths to each peer.
    pub(super) routes: Vec<Option<Route>>,
    /// What takes the place of the links' estimates.
    pub calibration: Calibration,
    /// Peers with a path that is not proven, and when the next of them is to be asked.
    pub(super) unproven: Vec<PeerId>,
    pub(super) ask_at: Instant,
    /// Looks at each link since the last that found something.
    pub(super) quiet: Vec<u32>,
    pub addresses: Vec<Option<Address>>,
    /// What people call peers, where somebody has said it.
    pub names: HashMap<PeerId, String>,
    /// The last way to peers that are not reached any more: what failed is told later, too.
    pub(super) lost: HashMap<PeerId, String>,
    pub sleepers: BTreeMap<(Instant, u64), Waker>,
    /// Peers on each link.
    pub(super) used: Vec<u32>,
    /// Links looked at in every round: those somebody talks over.
    pub(super) busy: Vec<bool>,
    /// The links looked at closely between rounds of progress.
    pub(super) close: Close,
    /// Rounds of progress, and close looks, since the clock was read.
    pub(super) rounds: u32,
    /// The same since the start, modulo 2^32.
    pub(super) looks: u32,
    /// When every link is looked at again.
    look_at: Instant,
    rarely: Duration,
    /// The links that have something, when the system has just said so.
    woken: Option<u64>,
    /// Some peer is reached over a network that costs no system call to look at.
    pub(super) has_polled_network: bool,
    /// Something to send was left to the next round, which must come before any sleep.
    pub(super) put_off: bool,
    /// Of a program that does not look for news for long, and of one that does nothing else.
    pub(super) away: Away,
    pub(super) waits: Waits,
    /// Until when messages wait for others to leave with.
    pub(super) company_until: Instant,
    /// Time is virtual: a simulator calls only when something happened, so every round looks
    /// everywhere.
    pub(super) exact: bool,
}

/// Time between looks at a link that no peer uses, or that costs a system call and gave nothing:
/// from the first to the last, doubled by each look in vain. Not rounds: where a round costs
/// nothing, such looks would make up most of the time.
const RARELY: [Duration; 2] = [Duration::from_micros(16), Duration::from_micros(128)];
/// Rounds between readings of the clock while nothing happens.
pub(super) const CLOCK_ROUNDS: u32 = 8;

impl Driver {
    pub fn new(config: Config, id: EndpointId, clock: Clock, links: Vec<Box<dyn Link>>) -> Driver {
        let mut address = Address { endpoint: id, rank: config.rank, ..Address::default() };
        links.iter().for_each(|link| link.advertise(&mut address));
        let (now, exact, count) = (clock.now(), clock.is_virtual(), links.len());
        Driver {
            origin: Origin::here(),
            core: Core {
                engine: Engine::new(config, id),
                clock,
                now,
                fresh: true,
                ops: OpTable::default(),
                awaited: AwaitedRecv::default(),
                ended: false,
                completions: VecDeque::new(),
                ports: Ports::default(),
                arrivals: Vec::new(),
                failed: Vec::new(),
                stored: Vec::new(),
                held: BTreeMap::new(),
                regions: HashMap::new(),
                connects: Vec::new(),
                hellos: Vec::new(),
                lengths: Lengths::default(),
                rejects: Vec::new(),
                atomics: VecDeque::new(),
                deferred: VecDeque::new(),
                copies: VecDeque::new(),
                ways: Ways::default(),
                link: 0,
                caps: links.iter().map(|l| l.caps()).collect(),
                bulk: None,
                data_over: None,
            },
            links,
            encoded: address.encode(),
            address,
            routes: Vec::new(),
            calibration: Calibration::default(),
            unproven: Vec::new(),
            ask_at: Instant::FAR,
            quiet: vec![0; count],
            addresses: Vec::new(),
            names: HashMap::new(),
            lost: HashMap::new(),
            sleepers: BTreeMap::new(),
            used: vec![0; count],
            busy: vec![false; count],
            close: Close::default(),
            rounds: 0,
            looks: 0,
            look_at: now,
            rarely: RARELY[0],
            woken: None,
            has_polled_network: false,
            put_off: false,
            away: Away::new(now),
            waits: Waits::default(),
            company_until: now,
            exact,
        }
    }

    /// Does everything possible now: receive, act, send. True if anything happened. At most
    /// `budget` packets are taken from each link inside the host.
    #[inline]
    pub fn progress(&mut self, budget: usize) -> bool {
        self.leave_if_copied();
        self.rounds += 1;
        self.looks = self.looks.wrapping_add(1);
        let (mut did, mut rare) = (std::mem::take(&mut self.away.untold), self.exact);
        let woken = self.woken.take().filter(|_| !self.exact);
        self.core.fresh = false;
        self.core.ended = false;
        let timed = rare || self.rounds >= CLOCK_ROUNDS;
        if timed {
            self.rounds = 0;
            self.core.tick();
            self.choose_close();
            if self.core.now >= self.look_at || woken.is_some() {
                self.look_at = self.core.now + self.rarely;
                self.rarely = (self.rarely * 2).min(RARELY[1]);
                did |= !rare && self.look_at_wait(self.core.now);
                rare = true;
            }
        }
        let mut more = false;
        for i in 0..self.links.len() {
            // Strangers can wait; a look at a network costs a system call.
            let look = match woken {
                Some(ready) => i >= 64 || ready >> i & 1 != 0,
                None => rare || self.is_looked_at(i),
            };
            if look {
                self.core.link = i;
                let budget = if self.core.caps[i].network { TRAIN_BUDGET } else { budget };
                let found = self.links[i].recv(budget, &mut self.core) > 0;
                if found && !self.is_looked_at(i) {
                    self.rarely = RARELY[0];
                }
                self.quiet[i] = if found { 0 } else { self.quiet[i].saturating_add(1) };
                more |= found;
            }
        }
        did |= more;
        self.away.round_at = self.core.now;
        if timed {
            did |= self.on_time(more);
        }
        // A round that was put off ends here; what is held may go when its link has said so.
        let told = self.put_off || did && self.core.engine.has_held();
        if rare || told || self.core.has_work() {
            did |= self.wind_up(rare);
        }
        did
    }

    /// Ends a round: acts and sends, or leaves it to the next round.
    #[inline]
    pub(super) fn wind_up(&mut self, rare: bool) -> bool {
        self.put_off = !rare && self.may_put_off();
        self.put_off || {
            self.core.freshen();
            self.flush()
        }
    }

    /// Whether what is left can wait for the next round: something came to its end that the program
    /// waits for, nobody waits for the rest, and it has not been put off before.
    #[inline]
    fn may_put_off(&self) -> bool {
        self.core.ended && !self.put_off && !self.core.has_urgent()
    }

    /// Does what has become due; timeouts may wait while there is `more` that has arrived.
    fn on_time(&mut self, more: bool) -> bool {
        let mut did = false;
        if self.core.engine.next_timeout().is_some_and(|at| at <= self.core.now) {
            if self.away.shall_wait(more) {
                self.rounds = CLOCK_ROUNDS;
            } else {
                self.core.engine.handle_timeout(self.core.now);
                did = true;
            }
        }
        self.core.ops.shrink_on();
        if !self.sleepers.is_empty() {
            did |= self.wake_sleepers();
        }
        did |= self.ask_due();
        did
    }

    /// After sleeping: the next round reads the clock and looks at the links that have something, a
    /// bit each.
    pub fn refresh(&mut self, ready: u64) {
        self.woken = Some(ready);
        self.rounds = CLOCK_ROUNDS;
    }

    /// Acts on what the engine wants and sends what it has. True if anything happened.
    pub fn flush(&mut self) -> bool {
        self.leave_if_copied();
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
            self.route_back(peer, &address, link);
        }
        while let Some((peer, link, answer)) = self.core.hellos.pop() {
            self.on_hello(peer, link, answer);
        }
        self.take_lengths();
        while let Some((endpoint, link)) = self.core.rejects.pop() {
            self.links[link].reject(endpoint);
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

    fn event(&mut self, event: Event) {
        match event {
            Event::DirectRead(d) => self.read_part(&d),
            Event::DirectWrite(d) => self.write_part(&d),
            Event::PeerFailed(peer, failure) => {
                self.report_failure(peer, failure);
                self.unroute(peer);
                self.core.forget(peer);
                self.core.failed.push((peer, failure));
                self.core.ports.failed(peer, failure);
            }
            Event::PeerSlow(peer, waited) => self.say_silent(peer, waited),
            Event::PeerFull(peer, messages, bytes) => self.report_full(peer, messages, bytes),
            Event::PeerSilent(peer) => self.on_silent(peer),
            Event::PeerStalled(peer, times) => self.on_stalled(peer, times),
            Event::PeerStuck { peer, since, bulk, len } => self.on_stuck(peer, since, bulk, len),
            other => self.core.event(other),
        }
    }
}

impl Core {
    /// Reads the clock. Every command does before it acts: what it has sent carries this time, and
    /// the program may have computed for long since the last round of progress.
    #[inline]
    pub fn tick(&mut self) -> Instant {
        self.now = self.clock.now();
        self.fresh = true;
        self.now
    }

    /// Reads the clock unless that was done in this round.
    #[inline]
    fn freshen(&mut self) {
        if !self.fresh {
            self.tick();
        }
    }

    /// The bytes a payload descriptor names; empty if they are gone.
    #[inline]
    pub(super) fn resolve<'a>(&'a self, payload: &Payload, address: &'a [u8]) -> &'a [u8] {
        match *payload {
            Payload::None => &[],
            Payload::Op { op, offset, len } => self.ops.read(op, offset, len as usize),
            Payload::Region { key, offset, len } => {
                self.regions.get(&key).map_or(&[], |m| m.read(offset, len as usize))
            }
            Payload::Address => address,
            Payload::Padding { len } => self.lengths.padding(len),
        }
    }

    #[inline]
    fn place(&mut self, placement: Placement, header: &[u8], payload: Bytes<'_>) {
        if let Some(op) = self.engine.take_posted() {
            self.awaited.posted(op, &mut self.ops);
        }
        match placement {
            Placement::None => {}
            Placement::Done(completion) => {
                self.ops.place(completion.op, 0, completion.status.len, payload);
                self.complete(completion);
            }
            Placement::Awaited(awaited) => self.place_awaited(awaited, payload),
            Placement::Recv { op, offset, len } => self.ops.place(op, offset, len, payload),
            Placement::Active { peer, tag } => self.active(peer, tag, payload),
            other => self.place_other(other, header, payload),
        }
    }

    #[inline]
    fn place_awaited(&mut self, awaited: Awaited, payload: Bytes<'_>) {
        let len = (awaited.status.len as usize).min(payload.len());
        if let Some(into) = self.awaited.memory.write(0, len) {
            payload.copy_to(into);
        }
        self.awaited.done = Some(awaited);
        self.ended = true;
    }

    fn place_other(&mut self, placement: Placement, header: &[u8], payload: Bytes<'_>) {
        match placement {
            Placement::None | Placement::Recv { .. } => {}
            Placement::Done(_) | Placement::Awaited(_) | Placement::Active { .. } => {}
            Placement::Store { id, offset, total } => self.store(id, offset, total, payload),
            Placement::ActiveStored { id, offset, peer, tag } => {
                self.store(id, offset, 0, payload);
                let data = std::mem::take(&mut self.stored[StoredKeys::index(id)]);
                self.arrived(peer, tag, data.into());
            }
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
            Placement::Piece { peer, seq, expected, piece } => {
                self.piece((peer, seq, expected), &piece, header, payload);
            }
            Placement::Probed { peer, number, size } => self.lengths.note((peer, number, size)),
            Placement::Hello { peer, new } => {
                self.hellos.push((peer, self.link, Hello::is_answer(header)));
                match Address::decode(&payload.to_vec()) {
                    Ok(address) if new => self.connects.push((peer, self.link, address)),
                    _ => {}
                }
            }
        }
    }

    /// Tells the engine which rank says HELLO, as its address has it.
    #[cold]
    fn introduce(&mut self, payload: &Bytes<'_>) {
        if let Ok(address) = Address::decode(&payload.to_vec()) {
            self.engine.introduce(address.endpoint, address.rank);
        }
    }

    /// Remembers where the next packet of a large message probably goes.
    #[inline]
    fn note_bulk(&mut self, placement: Placement, header: &[u8]) {
        let Placement::Recv { op, offset, len } = placement else { return };
        self.ops.placed(op, offset, len);
        if self.bulk.is_none_or(|bulk| bulk.op != op) {
            let session = session_of(header).unwrap_or(0);
            self.bulk = Some(Bulk { op, session, imm: op.0, eager: None });
        }
    }

    /// Remembers where the further packets of a message sent at once go.
    #[inline]
    fn note_first(&mut self, placement: Placement, header: &[u8]) {
        let Placement::Recv { op, offset, len } = placement else { return };
        let Ok((common, Packet::EagerFirst(first), _)) = wire::parse(header) else { return };
        self.ops.placed(op, offset, len);
        let (session, imm) = (common.session, first.msg);
        self.bulk = Some(Bulk { op, session, imm, eager: Some(first.total) });
    }

    /// A HELLO of an endpoint that the link knows only from its connection.
    #[cold]
    fn note_stranger(&mut self, placement: Placement, header: &[u8]) {
        if placement != Placement::None {
            return;
        }
        if let Ok((_, Packet::Hello(hello), _)) = wire::parse(header) {
            self.rejects.push((EndpointId(hello.src_eid), self.link));
        }
    }

    fn store(&mut self, id: u32, offset: u64, total: u64, payload: Bytes<'_>) {
        let at = StoredKeys::index(id);
        if self.stored.len() <= at {
            self.stored.resize_with(at + 1, Vec::new);
        }
        let store = &mut self.stored[at];
        if offset == 0 {
            // The engine has checked the length against the credit it gave.
            let before = std::mem::replace(store, self.ops.spare.take());
            self.ops.spare.keep(before);
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
    pub fn has_work(&self) -> bool {
        self.engine.has_output()
            || !self.deferred.is_empty()
            || !self.copies.is_empty()
            || !self.connects.is_empty()
            || !self.hellos.is_empty()
            || self.lengths.has_news()
            || !self.rejects.is_empty()
            || !self.atomics.is_empty()
    }

    /// Whether `flush` would find anything that somebody waits for.
    #[inline]
    fn has_urgent(&self) -> bool {
        self.engine.has_urgent()
            || !self.deferred.is_empty()
            || !self.copies.is_empty()
            || !self.connects.is_empty()
            || !self.hellos.is_empty()
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
            self.arrivals.drain(..).for_each(wake);
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
            Event::Complete(c) => {
                if !self.ways.is_idle() {
                    self.ways.end(self.clock.now(), c.op, c.result().is_ok());
                }
                self.complete(c);
            }
            Event::Release(op) => {
                self.ways.end(self.now, op, false);
                self.ops.release(op);
            }
            Event::CopyStored { id, op, len } => {
                let data = std::mem::take(&mut self.stored[StoredKeys::index(id)]);
                self.ops.place(op, 0, len, Bytes::from_slice(&data));
                self.ops.spare.keep(data);
            }
            Event::FreeStored(id) => {
                if let Some(s) = self.stored.get_mut(StoredKeys::index(id)) {
                    self.ops.spare.keep(std::mem::take(s));
                }
            }
            Event::Shrunk { ops, stored } => {
                self.ops.shrink(ops.unwrap_or(usize::MAX));
                self.stored.truncate(stored.unwrap_or(usize::MAX));
                self.stored.shrink_to(SPARE_PLACES);
            }
            _ => {}
        }
    }

    #[inline]
    fn complete(&mut self, c: Completion) {
        let owner = self.ops.complete(&c);
        self.ended |= owner != Owner::Nobody;
        if owner == Owner::Queue {
            self.completions.push_back(c);
        }
    }

    fn forget(&mut self, peer: PeerId) {
        self.held.retain(|&(p, _), _| p != peer);
        self.arrivals.drain(..).for_each(wake);
        self.lengths.forget(peer);
    }
}

impl Sink for Core {
    #[inline]
    fn frame(&mut self, from: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        let len = payload.len() as u64;
        // Where round trips are measured.
        if self.caps[self.link].network {
            self.freshen();
        }
        if let Some(it) = self.engine.take_awaited(self.now, from, header, len) {
            self.place_awaited(it, payload);
            return;
        }
        let kind = header.get(field::TYPE).copied();
        if kind == Some(PacketType::Hello as u8) && !self.engine.config().exceptions.is_empty() {
            self.introduce(&payload);
        }
        let caps = &self.caps[self.link];
        let placement = self.engine.handle_packet(self.now, from, caps, header, len);
        self.place(placement, header, payload);
        match kind {
            Some(kind) if kind == PacketType::Data as u8 => {
                self.data_over = Some(self.link);
                self.note_bulk(placement, header);
            }
            Some(kind) if kind == PacketType::EagerFirst as u8 => {
                self.note_first(placement, header)
            }
            Some(kind) if kind == PacketType::Hello as u8 && from.is_none() => {
                self.note_stranger(placement, header)
            }
            _ => {}
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
        self.freshen();
        let Some((op, offset)) = self.engine.handle_run(self.now, header, count, len) else {
            return false;
        };
        self.data_over = Some(self.link);
        self.ops.placed(op, offset, len);
        self.settle();
        true
    }

    fn predict(&mut self) -> Option<Prediction<'_>> {
        let Bulk { op, session, imm, eager } = self.bulk?;
        let (offset, mut memory) = self.ops.beyond(op)?;
        let mut kind = PacketType::Data;
        if let Some(total) = eager {
            // Behind the end of the message, nothing would be overwritten.
            let left = usize::try_from(total.saturating_sub(offset)).ok()?;
            let left = left.min(memory.len());
            memory = &mut memory[..left];
            kind = PacketType::EagerMore;
        }
        (!memory.is_empty()).then_some(Prediction { memory, kind, session, imm, offset })
    }
}

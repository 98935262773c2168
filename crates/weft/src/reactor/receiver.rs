//! The receive path: the part of the reactor to which links deliver packets, with the engine and
//! the memory for packets. Work that needs a link is left to the reactor ([`Due`]).

mod active;
mod memory;

use super::bulk_rate::BulkRate;
use super::clients::Ports;
use super::copy_choice::CopyChoice;
use super::length::PathLengths;
use super::ops::{AwaitedRecv, OpTable, Owner};
use super::regions::Denied;
use super::sleepers::wake;
use super::sys::Memory;
use crate::clock::Clock;
use arrayvec::ArrayVec;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::task::Waker;
use weft_core::engine::types::{AtomicRequest, Awaited, Completion, Event, Payload, Placement};
use weft_core::slab::StoredKeys;
use weft_core::wire::{self, field, session_of, Hello, Packet, PacketType, Piece};
use weft_core::{Config, EndpointId, Engine, Instant, LinkCaps};
use weft_core::{OpId, PeerFailure, PeerId, Seq};
use weft_link::rng::Rng;
use weft_link::{Address, Bytes, Link, Prediction, Sink};

/// Capacity for stored messages that is kept although none waits.
const SPARE_PLACES: usize = 1024;
/// Receives of bulk data that are remembered beside the last.
const OTHERS: usize = 7;

/// The common fields of the packets of a large message.
#[derive(Clone, Copy)]
pub(crate) struct Bulk {
    pub op: OpId,
    pub session: u32,
    /// The message's number in its packets.
    pub imm: u32,
    /// Length of an eager message; `None` for a pulled one.
    pub eager: Option<u64>,
}

struct Held {
    header: Vec<u8>,
    payload: Vec<u8>,
}

/// The receiver of packets from links, and what they act on.
pub(crate) struct Receiver {
    pub engine: Engine,
    pub time: Time,
    pub ops: OpTable,
    pub awaited: AwaitedRecv,
    pub outcome: Outcome,
    pub ports: Ports,
    store: Store,
    pub regions: HashMap<u64, Memory>,
    pub(super) due: Due,
    pub(super) copy_choice: CopyChoice,
    pub(crate) arriving: Arriving,
    /// Bulk data in both directions.
    pub(super) bulk_rate: BulkRate,
}

/// The clock, and the time of this round of progress.
pub(crate) struct Time {
    pub clock: Clock,
    /// One timestamp for each burst: see [`Receiver::tick`].
    pub now: Instant,
    /// True if `now` was read in this round of progress.
    pub fresh: bool,
}

/// Results of operations, and failures.
#[derive(Default)]
pub(crate) struct Outcome {
    /// True if an operation that the program waits for ended in this round of progress.
    pub ended: bool,
    pub completions: VecDeque<Completion>,
    /// Wakers of futures that wait for any packet.
    pub arrivals: Vec<Waker>,
    pub failed: Vec<(PeerId, PeerFailure)>,
}

/// Bytes of messages without a receive, and of packets ahead of a gap.
#[derive(Default)]
struct Store {
    messages: Vec<Vec<u8>>,
    packets: BTreeMap<(PeerId, u32), Held>,
}

/// Work that needs a link, for the reactor.
#[derive(Default)]
pub(super) struct Due {
    pub connects: Vec<(PeerId, usize, Address)>,
    /// Arrived HELLOs: the sender, the link, and true for an answer.
    pub hellos: Vec<(PeerId, usize, bool)>,
    /// Answers to questions for the length of packets.
    pub lengths: PathLengths,
    /// Endpoints whose HELLO was refused, and the link.
    pub rejects: Vec<(EndpointId, usize)>,
    pub atomics: VecDeque<AtomicRequest>,
    /// Events that are handled after the burst.
    pub deferred: VecDeque<Event>,
    /// Parts of direct copies.
    pub copies: VecDeque<Event>,
}

/// The links that packets arrive over.
#[derive(Default)]
pub(crate) struct Arriving {
    /// The link that is polled now.
    pub link: usize,
    /// Capabilities of the links, in their order.
    pub caps: Vec<LinkCaps>,
    /// The receive of the last bulk data.
    pub bulk: Option<Bulk>,
    /// Other receives of bulk data before, the latest last.
    others: ArrayVec<Bulk, OTHERS>,
    /// The link of the last DATA.
    pub data_over: Option<usize>,
}

impl Arriving {
    /// Notes the receive whose data comes next.
    pub fn expect(&mut self, next: Bulk) {
        let same = |b: &Bulk| (b.session, b.imm) == (next.session, next.imm);
        self.others.retain(|b| !same(b));
        if let Some(before) = self.bulk.replace(next).filter(|b| !same(b)) {
            if self.others.is_full() {
                self.others.remove(0);
            }
            self.others.push(before);
        }
    }

    /// Returns the receive of the packet with this header.
    fn of(&self, header: &[u8]) -> Option<Bulk> {
        let (session, kind) = (session_of(header)?, *header.get(field::TYPE)?);
        let imm = u32::from_le_bytes(header.get(field::IMM)?.try_into().ok()?);
        let matches = |b: &&Bulk| {
            let wanted = if b.eager.is_some() { PacketType::EagerMore } else { PacketType::Data };
            (b.session, b.imm, wanted as u8) == (session, imm, kind)
        };
        self.bulk.iter().chain(&self.others).find(matches).copied()
    }
}

impl Receiver {
    pub fn new(config: Config, id: EndpointId, clock: Clock, links: &[Box<dyn Link>]) -> Receiver {
        let now = clock.now();
        let caps = links.iter().map(|link| link.caps()).collect();
        Receiver {
            engine: Engine::new(config, id),
            time: Time { clock, now, fresh: true },
            ops: OpTable::default(),
            awaited: AwaitedRecv::default(),
            outcome: Outcome::default(),
            ports: Ports::default(),
            store: Store::default(),
            regions: HashMap::new(),
            due: Due::default(),
            copy_choice: CopyChoice::default(),
            arriving: Arriving { caps, ..Arriving::default() },
            bulk_rate: BulkRate::default(),
        }
    }
}

impl Receiver {
    /// Reads the clock. Every command does so before it acts, since its packets carry this time,
    /// and the program may have computed for long since the last round of progress.
    #[inline]
    pub fn tick(&mut self) -> Instant {
        self.time.now = self.time.clock.now();
        self.time.fresh = true;
        self.time.now
    }

    /// Returns the random half of the next region's key. In a simulator it follows from the
    /// endpoint's identity: the lengths of messages that name the key follow from the seed then.
    pub fn random_for_key(&self) -> u32 {
        match self.time.clock.is_virtual() {
            true => Rng::new(self.engine.id().0).next_u64() as u32,
            false => weft_link::random_u64() as u32,
        }
    }

    /// Reads the clock unless that was done in this round.
    #[inline]
    pub(super) fn freshen(&mut self) {
        if !self.time.fresh {
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
            Payload::Padding { len } => self.due.lengths.padding(len),
        }
    }

    #[inline]
    fn place(&mut self, placement: Placement, header: &[u8], payload: Bytes<'_>) {
        if let Some(op) = self.engine.matching_mut().poll_posted() {
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
        self.outcome.ended = true;
    }

    fn place_other(&mut self, placement: Placement, header: &[u8], payload: Bytes<'_>) {
        match placement {
            Placement::None | Placement::Recv { .. } => {}
            Placement::Done(_) | Placement::Awaited(_) | Placement::Active { .. } => {}
            Placement::Store { id, offset, total } => self.store(id, offset, total, payload),
            Placement::ActiveStored { id, offset, peer, tag } => {
                self.store(id, offset, 0, payload);
                let data = std::mem::take(&mut self.store.messages[StoredKeys::index(id)]);
                self.arrived(peer, tag, data.into());
            }
            Placement::Hold { peer, seq } => {
                let held = Held { header: header.to_vec(), payload: payload.to_vec() };
                self.store.packets.insert((peer, seq.0), held);
            }
            Placement::Region { key, offset, peer, put } => {
                if self.write_region(key, offset, payload) == Err(Denied::Unmapped) {
                    self.engine.memory().handle_put_unmapped(peer, put);
                }
            }
            Placement::Atomic(request) => self.due.atomics.push_back(request),
            Placement::Piece { peer, seq, expected, piece } => {
                self.piece((peer, seq, expected), &piece, header, payload);
            }
            Placement::Probed { peer, number, size } => self.due.lengths.note((peer, number, size)),
            Placement::Hello { peer, new } => {
                self.due.hellos.push((peer, self.arriving.link, Hello::is_answer(header)));
                match Address::decode(&payload.to_vec()) {
                    Ok(address) if new || address.moves > 0 => {
                        self.due.connects.push((peer, self.arriving.link, address))
                    }
                    _ => {}
                }
            }
        }
    }

    /// Tells the engine the rank of a HELLO's sender, from its address.
    #[cold]
    fn introduce(&mut self, payload: &Bytes<'_>) {
        if let Ok(address) = Address::decode(&payload.to_vec()) {
            self.engine.introduce(address.endpoint, address.rank);
        }
    }

    /// Remembers the probable destination of the next packet of a large message.
    #[inline]
    fn note_bulk(&mut self, placement: Placement, header: &[u8]) {
        let Placement::Recv { op, offset, len } = placement else { return };
        let left = self.ops.placed(op, offset, len);
        self.bulk_rate.moved(self.time.now, len, left);
        if self.arriving.bulk.is_none_or(|bulk| bulk.op != op) {
            let session = session_of(header).unwrap_or(0);
            self.arriving.expect(Bulk { op, session, imm: op.0, eager: None });
        }
    }

    /// Remembers the destination of the further packets of an eager message.
    #[inline]
    fn note_first(&mut self, placement: Placement, header: &[u8]) {
        let Placement::Recv { op, offset, len } = placement else { return };
        let Ok((common, Packet::EagerFirst(first), _)) = wire::parse(header) else { return };
        self.ops.placed(op, offset, len);
        let (session, imm) = (common.session, first.msg);
        self.arriving.expect(Bulk { op, session, imm, eager: Some(first.total) });
    }

    /// Handles a HELLO of an endpoint that the link knows only from its connection.
    #[cold]
    fn note_new_peer(&mut self, placement: Placement, header: &[u8]) {
        if placement != Placement::None {
            return;
        }
        if let Ok((_, Packet::Hello(hello), _)) = wire::parse(header) {
            self.due.rejects.push((EndpointId(hello.src_eid), self.arriving.link));
        }
    }

    /// Handles a piece of a packet; with the last piece the whole packet is handled.
    #[cold]
    fn piece(&mut self, of: (PeerId, Seq, Seq), piece: &Piece, header: &[u8], body: Bytes<'_>) {
        if let Some((header, payload)) = self.due.lengths.pieces.take(of, piece, header, body) {
            self.frame(None, &header, Bytes::from_slice(&payload));
        }
    }

    fn store(&mut self, id: u32, offset: u64, total: u64, payload: Bytes<'_>) {
        let at = StoredKeys::index(id);
        if self.store.messages.len() <= at {
            self.store.messages.resize_with(at + 1, Vec::new);
        }
        let store = &mut self.store.messages[at];
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

    /// True if `flush` has work besides events of links.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.engine.output().any()
            || !self.due.deferred.is_empty()
            || !self.due.copies.is_empty()
            || !self.due.connects.is_empty()
            || !self.due.hellos.is_empty()
            || self.due.lengths.has_events()
            || !self.due.rejects.is_empty()
            || !self.due.atomics.is_empty()
    }

    /// True if `flush` has work that a peer or the program waits for.
    #[inline]
    pub(super) fn has_urgent(&self) -> bool {
        self.engine.output().urgent()
            || !self.due.deferred.is_empty()
            || !self.due.copies.is_empty()
            || !self.due.connects.is_empty()
            || !self.due.hellos.is_empty()
            || !self.due.atomics.is_empty()
    }

    pub(super) fn next_event(&mut self) -> Option<Event> {
        self.due.deferred.pop_front().or_else(|| self.engine.poll_event())
    }

    /// Handles events between two packets of a burst, since the next packet may reuse the number of
    /// a stored message that is still to be copied.
    #[inline]
    fn handle_events(&mut self) {
        // Probing futures probe again: only a probe sees an announcement.
        if !self.outcome.arrivals.is_empty() {
            self.outcome.arrivals.drain(..).for_each(wake);
        }
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Complete(_)
                | Event::Release(_)
                | Event::CopyStored { .. }
                | Event::FreeStored(_) => self.event(event),
                other => self.due.deferred.push_back(other),
            }
        }
    }

    pub(super) fn event(&mut self, event: Event) {
        match event {
            Event::Complete(c) => {
                if !self.copy_choice.is_idle() {
                    self.copy_choice.end(self.time.clock.now(), c.op, c.result().is_ok());
                }
                self.complete(c);
            }
            Event::Release(op) => {
                self.copy_choice.end(self.time.now, op, false);
                self.ops.release(op);
            }
            Event::CopyStored { id, op, len } => {
                let data = std::mem::take(&mut self.store.messages[StoredKeys::index(id)]);
                self.ops.place(op, 0, len, Bytes::from_slice(&data));
                self.ops.spare.keep(data);
            }
            Event::FreeStored(id) => {
                if let Some(s) = self.store.messages.get_mut(StoredKeys::index(id)) {
                    self.ops.spare.keep(std::mem::take(s));
                }
            }
            Event::Shrunk { ops, stored } => {
                self.ops.shrink(ops.unwrap_or(usize::MAX));
                self.store.messages.truncate(stored.unwrap_or(usize::MAX));
                self.store.messages.shrink_to(SPARE_PLACES);
            }
            _ => {}
        }
    }

    #[inline]
    fn complete(&mut self, c: Completion) {
        let owner = self.ops.complete(&c);
        self.outcome.ended |= owner != Owner::Nobody;
        if owner == Owner::Queue {
            self.outcome.completions.push_back(c);
        }
    }

    pub(super) fn forget(&mut self, peer: PeerId) {
        self.store.packets.retain(|&(p, _), _| p != peer);
        self.outcome.arrivals.drain(..).for_each(wake);
        self.due.lengths.forget(peer);
    }
}

impl Sink for Receiver {
    #[inline]
    fn frame(&mut self, from: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        let len = payload.len() as u64;
        // Only over networks, where round trips are measured.
        if self.arriving.caps[self.arriving.link].network {
            self.freshen();
        }
        if let Some(it) = self.engine.handle_awaited(self.time.now, from, header, len) {
            self.place_awaited(it, payload);
            return;
        }
        let kind = header.get(field::TYPE).copied();
        if kind == Some(PacketType::Hello as u8) && !self.engine.config().exceptions.is_empty() {
            self.introduce(&payload);
        }
        let caps = &self.arriving.caps[self.arriving.link];
        let placement = self.engine.handle_packet(self.time.now, from, caps, header, len);
        self.place(placement, header, payload);
        match kind {
            Some(kind) if kind == PacketType::Data as u8 => {
                self.arriving.data_over = Some(self.arriving.link);
                self.note_bulk(placement, header);
            }
            Some(kind) if kind == PacketType::EagerFirst as u8 => {
                self.note_first(placement, header)
            }
            Some(kind) if kind == PacketType::Hello as u8 && from.is_none() => {
                self.note_new_peer(placement, header)
            }
            _ => {}
        }
        self.handle_events();
        while let Some((peer, seq)) = self.engine.poll_replay() {
            let Some(held) = self.store.packets.remove(&(peer, seq.0)) else { continue };
            let len = held.payload.len() as u64;
            let placement = self.engine.handle_replay(self.time.now, peer, &held.header, len);
            self.place(placement, &held.header, Bytes::from_slice(&held.payload));
            self.handle_events();
        }
    }

    fn run(&mut self, header: &[u8], count: u32, len: u64) -> bool {
        self.freshen();
        let Some((op, offset)) = self.engine.handle_run(self.time.now, header, count, len) else {
            return false;
        };
        self.arriving.data_over = Some(self.arriving.link);
        let left = self.ops.placed(op, offset, len);
        self.bulk_rate.moved(self.time.now, len, left);
        self.handle_events();
        true
    }

    fn predict(&mut self) -> Option<Prediction<'_>> {
        self.predict_of(self.arriving.bulk?)
    }

    fn predict_for(&mut self, header: &[u8]) -> Option<Prediction<'_>> {
        self.predict_of(self.arriving.of(header)?)
    }
}

impl Receiver {
    fn predict_of(&mut self, of: Bulk) -> Option<Prediction<'_>> {
        let Bulk { op, session, imm, eager } = of;
        let (offset, mut memory) = self.ops.beyond(op)?;
        let mut kind = PacketType::Data;
        if let Some(total) = eager {
            // Not beyond the end of the message: bytes of a wrong prediction there would not be
            // overwritten.
            let left = usize::try_from(total.saturating_sub(offset)).ok()?;
            let left = left.min(memory.len());
            memory = &mut memory[..left];
            kind = PacketType::EagerMore;
        }
        (!memory.is_empty()).then_some(Prediction { memory, kind, session, imm, offset })
    }
}

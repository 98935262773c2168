//! Engines joined by a scripted network in virtual time. A [`Node`] is the driver: it owns real
//! bytes and follows the engine exactly as the driver of an endpoint does.
#![allow(non_snake_case)]
extern crate std;

mod awaited;
mod bounds;
mod close;
mod delivered;
mod direct;
mod eager;
mod failure;
mod flood;
mod hostile;
mod idle;
mod links;
mod matching;
mod rendezvous;
mod rma;
mod session;
mod stripes;

use super::types::*;
use super::{Engine, Rights};
use crate::caps::{LinkCaps, Pulse};
use crate::config::Config;
use crate::error::{OpError, PeerFailure};
use crate::id::{EndpointId, OpId, PeerId};
use crate::reliability::Reliability;
use crate::slab::StoredKeys;
use crate::time::Instant;
use crate::wire::{self, Packet, PacketType};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

/// A small seeded generator (SplitMix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Bytes of a payload: real, or only their number (for messages larger than memory).
#[derive(Clone)]
pub enum Body {
    Bytes(Vec<u8>),
    Fake(u64),
}

impl Body {
    fn len(&self) -> u64 {
        match self {
            Body::Bytes(b) => b.len() as u64,
            Body::Fake(n) => *n,
        }
    }

    fn part(&self, offset: u64, len: u64) -> Body {
        match self {
            Body::Bytes(b) => {
                let (from, to) = (offset as usize, (offset + len) as usize);
                Body::Bytes(b.get(from..to).map_or(Vec::new(), <[u8]>::to_vec))
            }
            Body::Fake(n) => Body::Fake(if offset + len <= *n { len } else { 0 }),
        }
    }

    /// Writes the first `len` bytes of `from` at `offset`; panics beyond the end, as memory would.
    fn write(&mut self, offset: u64, len: u64, from: &Body) {
        assert!(offset + len <= self.len(), "{len} bytes at {offset} of {}", self.len());
        if let (Body::Bytes(to), Body::Bytes(from)) = (self, from) {
            let len = (len as usize).min(from.len());
            to[offset as usize..offset as usize + len].copy_from_slice(&from[..len]);
        }
    }
}

/// A packet in flight.
#[derive(Clone)]
pub struct Flight {
    pub from: usize,
    pub to: usize,
    pub header: Vec<u8>,
    pub body: Body,
    /// 0, or one more than the stripe of the bulk link that it takes.
    pub lane: u8,
}

impl Flight {
    pub fn kind(&self) -> PacketType {
        PacketType::try_from(self.header[1]).unwrap()
    }
}

/// The network's treatment of a packet: one delay for every copy delivered.
pub type Script = Box<dyn FnMut(&Flight) -> Vec<u64>>;

/// Normal delay of a packet in nanoseconds.
pub const DELAY: u64 = 10_000;

/// One endpoint: an engine and the driver's side of it.
pub struct Node {
    pub engine: Engine,
    pub buffers: BTreeMap<OpId, Body>,
    /// Operations whose completion was seen, with the completion.
    pub done: BTreeMap<OpId, Completion>,
    pub released: BTreeSet<OpId>,
    pub stored: BTreeMap<usize, Body>,
    held: BTreeMap<(PeerId, u32), (Vec<u8>, Body)>,
    pub regions: BTreeMap<u64, Body>,
    pub upcalls: Vec<(PeerId, u64, Body)>,
    /// Active messages hold back their credit: the test releases them.
    pub keeps_active: bool,
    pub up: Vec<PeerId>,
    pub failed: Vec<(PeerId, PeerFailure)>,
    pub slow: Vec<PeerId>,
    /// Peers for whose messages there was no room, and the number of them that waited.
    pub full: Vec<(PeerId, u64)>,
    /// The link's report of silent peers.
    pub pulse: Pulse,
    pub stalled: Vec<(PeerId, u32)>,
    /// Lengths of packets sent again in vain, and whether the peer was heard meanwhile.
    pub stuck: Vec<(u32, bool)>,
    deferred: VecDeque<Event>,
    /// Start of each buffer that has an address.
    addresses: BTreeMap<u64, OpId>,
    /// The address of each operation's buffer.
    places: BTreeMap<OpId, u64>,
    next_address: u64,
    atomics: Vec<AtomicRequest>,
    /// True if a peer is ready to help with a direct copy.
    pub attentive: bool,
    /// The offset from which it takes messages in packets that it could copy directly.
    pub declines: Option<u64>,
    /// Length of the buffer for the awaited message, and its operation if it got one.
    pub await_len: u64,
    pub posted: Option<OpId>,
    /// Number of direct copies that still succeed.
    pub direct_budget: u32,
    /// True while direct copies are put off.
    pub hold_direct: bool,
    /// The message last awaited, and its bytes that fit.
    pub awaited: Option<(Awaited, Vec<u8>)>,
}

/// Nodes joined by a network.
pub struct Net {
    pub nodes: Vec<Node>,
    steps: u32,
    pub now: Instant,
    pub script: Script,
    /// Packets a node may still hand to its link; more are refused.
    pub room: Vec<u32>,
    pub caps: LinkCaps,
    /// Link of the next packet handed over, as in [`Flight`].
    lane: u8,
    /// Every packet sent, in order: sender, type.
    pub log: Vec<(usize, PacketType)>,
    /// Number of packets of each run of data that was handed over.
    pub runs: Vec<u32>,
    /// Delivered after a time, in order.
    queue: BTreeMap<(u64, u64), Flight>,
    count: u64,
}

pub fn memory() -> LinkCaps {
    LinkCaps::memory("test", 8 << 10)
}

pub fn direct() -> LinkCaps {
    LinkCaps { direct: true, ..memory() }
}

pub fn network() -> LinkCaps {
    LinkCaps::network("test", 1456)
}

pub fn go_back_n() -> Config {
    Config { reliability: Reliability::GoBackN, ..Config::default() }
}

/// Returns each combination of link and reliability.
pub fn every_kind() -> [(LinkCaps, Config); 4] {
    let trains = LinkCaps { train: 8, ..network() };
    [
        (memory(), Config::default()),
        (network(), Config::default()),
        (network(), go_back_n()),
        (trains, Config::default()),
    ]
}

pub fn pattern(seed: u64, len: u64) -> Vec<u8> {
    let mut rng = Rng(seed);
    let mut bytes = Vec::with_capacity(len as usize + 8);
    while (bytes.len() as u64) < len {
        bytes.extend_from_slice(&rng.next().to_le_bytes());
    }
    bytes.truncate(len as usize);
    bytes
}

/// Returns a script that delivers everything once, in order.
pub fn calm() -> Script {
    Box::new(|_| vec![DELAY])
}

/// Returns a script that loses, repeats and reorders `percent` of the packets each.
pub fn rough(seed: u64, percent: u64) -> Script {
    let mut rng = Rng(seed);
    Box::new(move |_| {
        if rng.chance(percent) {
            return vec![];
        }
        let mut delays = vec![DELAY];
        if rng.chance(percent) {
            delays.push(DELAY + rng.below(200_000));
        }
        if rng.chance(percent) {
            delays[0] += rng.below(200_000);
        }
        delays
    })
}

impl Node {
    fn new(config: Config, id: u64) -> Node {
        Node {
            engine: Engine::new(config, EndpointId(id)),
            buffers: BTreeMap::new(),
            done: BTreeMap::new(),
            released: BTreeSet::new(),
            stored: BTreeMap::new(),
            held: BTreeMap::new(),
            regions: BTreeMap::new(),
            upcalls: Vec::new(),
            keeps_active: false,
            up: Vec::new(),
            failed: Vec::new(),
            slow: Vec::new(),
            full: Vec::new(),
            pulse: Pulse::Runs,
            stalled: Vec::new(),
            stuck: Vec::new(),
            deferred: VecDeque::new(),
            addresses: BTreeMap::new(),
            places: BTreeMap::new(),
            next_address: 1 << 40,
            atomics: Vec::new(),
            await_len: 0,
            posted: None,
            attentive: false,
            declines: None,
            direct_budget: u32::MAX,
            hold_direct: false,
            awaited: None,
        }
    }

    fn address(&mut self, len: u64) -> u64 {
        let at = self.next_address;
        self.next_address += len + 4096;
        at
    }

    /// The generation of an operation's number may repeat in long tests.
    fn begin(&mut self, op: OpId, body: Body) {
        self.done.remove(&op);
        self.released.remove(&op);
        self.buffers.insert(op, body);
    }

    fn resolve(&self, payload: &Payload) -> Body {
        match *payload {
            Payload::None => Body::Bytes(Vec::new()),
            Payload::Address => Body::Bytes(vec![7; 40]),
            Payload::Padding { len } => Body::Bytes(vec![0; len as usize]),
            Payload::Op { op, offset, len } => match self.buffers.get(&op) {
                Some(b) => b.part(offset, len.into()),
                None => Body::Bytes(Vec::new()),
            },
            Payload::Region { key, offset, len } => match self.regions.get(&key) {
                Some(r) => r.part(offset, len.into()),
                None => Body::Bytes(Vec::new()),
            },
        }
    }

    fn receive(&mut self, now: Instant, caps: &LinkCaps, header: &[u8], body: &Body) {
        if let Some(it) = self.engine.handle_awaited(now, None, header, body.len()) {
            return self.place(Placement::Awaited(it), header, body);
        }
        let run = caps.train > 1 && header.get(1) == Some(&(PacketType::Data as u8));
        let placed = run.then(|| self.engine.handle_run(now, header, 1, body.len())).flatten();
        let placement = match placed {
            Some((op, offset)) => Placement::Recv { op, offset, len: body.len() },
            None => self.engine.handle_packet(now, None, caps, header, body.len()),
        };
        self.place(placement, header, body);
        self.settle();
        while let Some((peer, seq)) = self.engine.poll_replay() {
            let Some((header, body)) = self.held.remove(&(peer, seq.0)) else { continue };
            let placement = self.engine.handle_replay(now, peer, &header, body.len());
            self.place(placement, &header, &body);
            self.settle();
        }
    }

    fn place(&mut self, placement: Placement, header: &[u8], body: &Body) {
        if let Some(op) = self.engine.matching_mut().poll_posted() {
            self.buffers.insert(op, Body::Bytes(vec![0; self.await_len as usize]));
            self.posted = Some(op);
        }
        match placement {
            Placement::None | Placement::Hello { .. } => {}
            Placement::Recv { op, offset, len } => {
                assert!(len <= body.len(), "more than the packet carries");
                assert!(!self.released.contains(&op), "written after its release");
                let buffer = self.buffers.get_mut(&op).expect("a buffer to receive into");
                buffer.write(offset, len, body);
            }
            Placement::Awaited(awaited) => {
                let Body::Bytes(bytes) = body.part(0, awaited.status.len) else { unreachable!() };
                assert!(self.awaited.replace((awaited, bytes)).is_none(), "awaited once");
            }
            Placement::Done(c) => {
                self.place(
                    Placement::Recv { op: c.op, offset: 0, len: c.status.len },
                    header,
                    body,
                );
                self.complete(c);
            }
            Placement::Store { id, offset, total } => self.store(id, offset, total, body),
            Placement::ActiveStored { id, offset, peer, tag } => {
                if offset > 0 {
                    self.store(id, offset, 0, body);
                }
                let stored = self.stored.remove(&StoredKeys::index(id));
                self.active(peer, tag, stored.unwrap_or_else(|| body.clone()));
            }
            Placement::Active { peer, tag } => self.active(peer, tag, body.clone()),
            Placement::Hold { peer, seq } => {
                self.held.insert((peer, seq.0), (header.to_vec(), body.clone()));
            }
            Placement::Region { key, offset, peer, put } => match self.regions.get_mut(&key) {
                Some(region) => region.write(offset, body.len(), body),
                None => self.engine.memory().handle_put_unmapped(peer, put),
            },
            Placement::Atomic(request) => self.atomics.push(request),
            // Joining of pieces and probing of lengths are tested with links.
            Placement::Piece { .. } | Placement::Probed { .. } => {}
        }
    }

    fn active(&mut self, peer: PeerId, tag: u64, body: Body) {
        if !self.keeps_active {
            self.engine.peer_mut(peer).release(body.len());
        }
        self.upcalls.push((peer, tag, body));
    }

    fn store(&mut self, id: u32, offset: u64, total: u64, body: &Body) {
        let at = StoredKeys::index(id);
        if offset == 0 {
            assert!(total <= 64 << 20, "room for {total} bytes without credit");
            self.stored.insert(at, Body::Bytes(vec![0; total as usize]));
        }
        self.stored.get_mut(&at).expect("a store").write(offset, body.len(), body);
    }

    fn complete(&mut self, c: Completion) {
        if let Some(before) = self.done.insert(c.op, c) {
            panic!("completed twice: {before:?}, {c:?}");
        }
        if c.released {
            self.release(c.op);
        }
    }

    fn settle(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Complete(c) => self.complete(c),
                Event::Release(op) => self.release(op),
                Event::CopyStored { id, op, len } => {
                    let at = StoredKeys::index(id);
                    let stored = self.stored.remove(&at).expect("a stored message");
                    self.buffers.get_mut(&op).expect("a buffer").write(0, len, &stored);
                }
                Event::FreeStored(id) => {
                    self.stored.remove(&StoredKeys::index(id));
                }
                other => self.deferred.push_back(other),
            }
        }
    }

    fn release(&mut self, op: OpId) {
        assert!(self.released.insert(op), "{op:?} released twice");
        if let Some(address) = self.places.remove(&op) {
            self.addresses.remove(&address);
        }
    }

    pub fn bytes(&self, op: OpId) -> &[u8] {
        match &self.buffers[&op] {
            Body::Bytes(b) => b,
            Body::Fake(_) => panic!("no bytes"),
        }
    }

    /// Returns the completion of an operation that ended well.
    pub fn ok(&self, op: OpId) -> Status {
        let c = self.done.get(&op).unwrap_or_else(|| panic!("{op:?} is not done"));
        assert_eq!(c.error, None);
        c.status
    }

    pub fn error(&self, op: OpId) -> OpError {
        self.done.get(&op).expect("not done").error.expect("no error")
    }

    /// Returns the memory of an address, with the offset in it.
    fn at_address(&mut self, addr: u64, len: u64) -> Option<(&mut Body, u64)> {
        let (&base, &op) = self.addresses.range(..=addr).next_back()?;
        let buffer = self.buffers.get_mut(&op)?;
        (addr - base + len <= buffer.len()).then_some((buffer, addr - base))
    }

    fn atomic(&mut self, now: Instant, a: &AtomicRequest) {
        let Some(Body::Bytes(region)) = self.regions.get_mut(&a.key) else {
            self.engine.memory().handle_atomic_refused(now, a);
            return;
        };
        let word = &mut region[a.offset as usize..a.offset as usize + 8];
        let old = u64::from_le_bytes(word.try_into().unwrap());
        word.copy_from_slice(&a.code.apply(old, a.operand, a.compare).to_le_bytes());
        self.engine.memory().handle_atomic_done(now, a, old);
    }
}

impl Net {
    pub fn new(n: usize, caps: LinkCaps, config: Config) -> Net {
        let configs = vec![config; n];
        Net::of(configs, caps)
    }

    pub fn of(configs: Vec<Config>, caps: LinkCaps) -> Net {
        let n = configs.len();
        let nodes = configs.into_iter().enumerate();
        Net {
            nodes: nodes.map(|(i, c)| Node::new(c, 0x1_0000_0001 * (i as u64 + 1))).collect(),
            steps: 0,
            now: Instant(1_000_000_000),
            script: calm(),
            room: vec![u32::MAX; n],
            caps,
            lane: 0,
            log: Vec::new(),
            runs: Vec::new(),
            queue: BTreeMap::new(),
            count: 0,
        }
    }

    /// Makes two nodes.
    pub fn pair((caps, config): (LinkCaps, Config)) -> Net {
        Net::new(2, caps, config)
    }

    /// Makes two nodes with an open session.
    pub fn open(kind: (LinkCaps, Config)) -> Net {
        let mut net = Net::pair(kind);
        let to = net.peer(0, 1);
        net.nodes[0].engine.peer_mut(to).open(net.now);
        net.run(50);
        assert!(net.nodes[0].engine.peer(to).is_ready());
        net.log.clear();
        net
    }

    /// Makes two nodes on a link that loses, repeats and reorders `percent` of the packets each,
    /// unless it is reliable.
    pub fn rough((caps, config): (LinkCaps, Config), (seed, percent): (u64, u64)) -> Net {
        let mut net = Net::pair((caps, config));
        if !caps.reliable {
            net.script = rough(seed, percent);
        }
        net
    }

    /// Makes two nodes, of which the second has just received a message of the first.
    pub fn with_a_message() -> Net {
        let mut net = Net::open((network(), Config::default()));
        let recv = net.recv(1, Some(0), 1, 5);
        assert!(net.inject_now(0, 1, 1, b"12345"));
        net.run_until(|net| net.nodes[1].done.contains_key(&recv));
        net
    }

    /// Returns node `at`'s number of node `of`.
    pub fn peer(&mut self, at: usize, of: usize) -> PeerId {
        let id = self.nodes[of].engine.id();
        let caps = self.caps;
        self.nodes[at].engine.add_peer(id, caps).unwrap()
    }

    fn node_of(&self, at: usize, peer: PeerId) -> Option<usize> {
        let (id, _, _) = self.nodes[at].engine.peer(peer).info()?;
        self.nodes.iter().position(|n| n.engine.id() == id)
    }

    pub fn try_send(&mut self, from: usize, args: SendArgs, body: Body) -> Result<OpId, Refused> {
        let node = &mut self.nodes[from];
        let addr = node.address(args.len);
        let args = SendArgs { addr, ..args };
        let op = node.engine.send(self.now, args)?;
        node.begin(op, body);
        node.addresses.insert(addr, op);
        node.places.insert(op, addr);
        node.settle();
        Ok(op)
    }

    /// Injects `bytes` on the latency path if that is possible, else by an ordinary send; returns
    /// true if it was possible.
    pub fn inject_now(&mut self, from: usize, to: usize, tag: u64, bytes: &[u8]) -> bool {
        let peer = self.peer(from, to);
        let args = SendArgs { inject: true, ..send_args(peer, tag, bytes.len() as u64) };
        let node = &mut self.nodes[from];
        let mut header = wire::HeaderBuf::new();
        let mut reserved = node.engine.reserve(&args, &mut header);
        if let Some(refused) = reserved.take_if(|reserved| !reserved.is_kept()) {
            refused.roll_back(&mut node.engine);
        }
        let Some(reserved) = reserved else {
            self.try_send(from, args, Body::Bytes(bytes.to_vec())).unwrap();
            return false;
        };
        let op = reserved.commit(&mut node.engine, self.now, &args).unwrap();
        node.begin(op, Body::Bytes(bytes.to_vec()));
        let payload = Payload::Op { op, offset: 0, len: bytes.len() as u32 };
        self.offer(from, Transmit::one(peer, header, payload));
        true
    }

    /// Sends `bytes` from one node to another.
    pub fn send(&mut self, from: usize, to: usize, tag: u64, bytes: &[u8]) -> OpId {
        self.send_with(from, to, tag, bytes, |a| a)
    }

    pub fn send_with(
        &mut self,
        from: usize,
        to: usize,
        tag: u64,
        bytes: &[u8],
        change: impl Fn(SendArgs) -> SendArgs,
    ) -> OpId {
        let peer = self.peer(from, to);
        let args = change(send_args(peer, tag, bytes.len() as u64));
        self.try_send(from, args, Body::Bytes(bytes.to_vec())).expect("send")
    }

    /// Posts a receive of at most `len` bytes.
    pub fn recv(&mut self, at: usize, from: Option<usize>, tag: u64, len: u64) -> OpId {
        self.recv_masked(at, from, tag, 0, len)
    }

    pub fn recv_masked(
        &mut self,
        at: usize,
        from: Option<usize>,
        tag: u64,
        ignore: u64,
        len: u64,
    ) -> OpId {
        let source = from.map(|f| self.peer(at, f));
        let body = Body::Bytes(vec![0xee; len as usize]);
        self.try_recv(at, source, tag, ignore, body).expect("recv")
    }

    pub fn try_recv(
        &mut self,
        at: usize,
        source: Option<PeerId>,
        tag: u64,
        ignore: u64,
        body: Body,
    ) -> Result<OpId, Refused> {
        let spec = RecvArgs { source, tag, ignore, len: 0, addr: 0, context: 0, untagged: false };
        self.try_recv_with(at, spec, body)
    }

    pub fn try_recv_with(
        &mut self,
        at: usize,
        args: RecvArgs,
        body: Body,
    ) -> Result<OpId, Refused> {
        let node = &mut self.nodes[at];
        let len = body.len();
        let addr = node.address(len);
        let args = RecvArgs { len, addr, ..args };
        let op = node.engine.matching_mut().recv(self.now, args)?;
        node.begin(op, body);
        node.addresses.insert(addr, op);
        node.places.insert(op, addr);
        node.settle();
        Ok(op)
    }

    pub fn recv_claimed(&mut self, at: usize, claimed: Claimed, len: u64) -> OpId {
        let node = &mut self.nodes[at];
        let args =
            RecvArgs { source: None, tag: 0, ignore: 0, len, addr: 0, context: 0, untagged: false };
        let op =
            node.engine.matching_mut().recv_claimed(self.now, claimed, args).expect("recv_claimed");
        node.begin(op, Body::Bytes(vec![0xee; len as usize]));
        node.settle();
        op
    }

    pub fn put(&mut self, from: usize, to: usize, key: u64, offset: u64, bytes: &[u8]) -> OpId {
        let peer = self.peer(from, to);
        let node = &mut self.nodes[from];
        let op = node
            .engine
            .memory()
            .put(self.now, peer, key, offset, bytes.len() as u64, 0)
            .expect("put");
        node.begin(op, Body::Bytes(bytes.to_vec()));
        op
    }

    pub fn get(&mut self, from: usize, to: usize, key: u64, offset: u64, len: u64) -> OpId {
        let peer = self.peer(from, to);
        let node = &mut self.nodes[from];
        let op = node.engine.memory().get(self.now, peer, key, offset, len, 0).expect("get");
        node.begin(op, Body::Bytes(vec![0xee; len as usize]));
        op
    }

    pub fn fetch_add(&mut self, from: usize, to: usize, key: u64, offset: u64, n: u64) -> OpId {
        let peer = self.peer(from, to);
        let node = &mut self.nodes[from];
        let code = AtomicCode::FetchAdd;
        let op = node
            .engine
            .memory()
            .atomic(self.now, peer, key, offset, code, (n, 0), 0)
            .expect("atomic");
        node.begin(op, Body::Bytes(Vec::new()));
        op
    }

    pub fn register(&mut self, at: usize, bytes: &[u8]) -> u64 {
        let node = &mut self.nodes[at];
        let key =
            node.engine.regions_mut().register(bytes.len() as u64, Rights::ALL, 0xabcd).unwrap();
        node.regions.insert(key, Body::Bytes(bytes.to_vec()));
        key
    }

    pub fn unregister(&mut self, at: usize, key: u64) {
        self.nodes[at].engine.regions_mut().unregister(key);
        self.nodes[at].regions.remove(&key);
    }

    /// Puts a packet into the network by hand.
    pub fn inject(&mut self, from: usize, to: usize, header: &[u8], body: Body) {
        self.count += 1;
        let flight = Flight { from, to, header: header.to_vec(), body, lane: 0 };
        self.queue.insert((self.now.0, self.count), flight);
    }

    fn offer(&mut self, from: usize, mut t: Transmit) {
        self.lane = if t.bulk { 1 + t.stripe } else { 0 };
        if t.header.as_slice().get(wire::field::TYPE) == Some(&(PacketType::Data as u8)) {
            self.runs.push(t.packets);
        }
        // A run, packet by packet; the link may take only some of them.
        while t.packets > 1 && self.room[from] > 0 {
            self.room[from] =
                self.room[from].saturating_sub(u32::from(self.room[from] != u32::MAX));
            let each = u64::from(t.payload.len() / t.packets);
            let body = self.nodes[from].resolve(&t.payload).part(0, each);
            self.carry(from, t.peer, t.header.as_slice(), body);
            t.skip(1);
        }
        if self.room[from] == 0 {
            self.nodes[from].engine.links().handle_refused(t);
            return;
        }
        self.room[from] = self.room[from].saturating_sub(u32::from(self.room[from] != u32::MAX));
        let body = self.nodes[from].resolve(&t.payload);
        self.nodes[from].engine.links().handle_accepted(&t);
        self.carry(from, t.peer, t.header.as_slice(), body);
        self.lane = 0;
        self.nodes[from].settle();
    }

    /// Hands a packet to the network.
    pub fn carry(&mut self, from: usize, peer: PeerId, header: &[u8], body: Body) {
        let Some(to) = self.node_of(from, peer) else { return };
        let flight = Flight { from, to, header: header.to_vec(), body, lane: self.lane };
        self.log.push((from, flight.kind()));
        for delay in (self.script)(&flight) {
            self.count += 1;
            self.queue.insert((self.now.0 + delay, self.count), flight.clone());
        }
    }

    /// Does everything that node `at` can do now.
    pub fn flush(&mut self, at: usize) {
        self.nodes[at].engine.links().handle_unblocked();
        loop {
            let mut acted = false;
            self.nodes[at].settle();
            for request in core::mem::take(&mut self.nodes[at].atomics) {
                acted = true;
                self.nodes[at].atomic(self.now, &request);
            }
            while let Some(event) = self.next_event(at) {
                acted = true;
                self.event(at, event);
                self.nodes[at].settle();
            }
            let mut batch = Vec::new();
            while let Some(t) = self.nodes[at].engine.poll_transmit(self.now) {
                acted = true;
                batch.push(t);
                if batch.len() == 16 {
                    core::mem::take(&mut batch).into_iter().for_each(|t| self.offer(at, t));
                }
            }
            batch.into_iter().for_each(|t| self.offer(at, t));
            if !acted {
                // Each step of a short test, some of a long one: it looks at every operation.
                if self.count < 1000 || self.count.is_multiple_of(61) {
                    self.nodes[at].engine.check();
                }
                return;
            }
        }
    }

    fn next_event(&mut self, at: usize) -> Option<Event> {
        let node = &mut self.nodes[at];
        let held = |e: &Event| matches!(e, Event::DirectRead(_) | Event::DirectWrite(_));
        let hold = node.hold_direct;
        let next = node.deferred.iter().position(|e| !(hold && held(e)))?;
        node.deferred.remove(next)
    }

    fn event(&mut self, at: usize, event: Event) {
        let now = self.now;
        match event {
            Event::DirectRead(d) if self.nodes[at].declines == Some(d.offset) => {
                self.nodes[at].engine.memory().handle_direct_declined(now, &d);
            }
            Event::DirectRead(mut d) => {
                if self.nodes[at].attentive {
                    self.nodes[at].engine.memory().direct_share(now, &mut d);
                }
                let ok = self.copy(at, &d, false);
                self.nodes[at].engine.memory().handle_direct_read(now, &d, ok);
            }
            Event::DirectWrite(d) => {
                let ok = self.copy(at, &d, true);
                self.nodes[at].engine.memory().handle_direct_write(now, &d, ok);
            }
            Event::PeerUp(p) => self.nodes[at].up.push(p),
            Event::PeerStalled(p, times) => self.nodes[at].stalled.push((p, times)),
            Event::PeerStuck { len, heard, .. } => self.nodes[at].stuck.push((len, heard)),
            Event::PeerSlow(p, _) => self.nodes[at].slow.push(p),
            Event::PeerFull(p, messages, _) => self.nodes[at].full.push((p, messages)),
            Event::Shrunk { .. } => {}
            Event::PeerSilent(p) => {
                let pulse = self.nodes[at].pulse;
                self.nodes[at].engine.peer_mut(p).handle_pulse(now, pulse);
            }
            Event::PeerFailed(p, why) => {
                self.nodes[at].failed.push((p, why));
                self.nodes[at].held.retain(|&(q, _), _| q != p);
            }
            other => panic!("{other:?}"),
        }
    }

    /// Copies between processes.
    fn copy(&mut self, at: usize, d: &Direct, write: bool) -> bool {
        let Some(other) = self.node_of(at, d.peer) else { return false };
        let node = &mut self.nodes[at];
        if node.direct_budget == 0 || !node.buffers.contains_key(&d.op) {
            return false;
        }
        node.direct_budget -= u32::from(node.direct_budget != u32::MAX);
        if write {
            let part = node.buffers[&d.op].part(d.offset, d.len);
            let Some((far, start)) = self.nodes[other].at_address(d.addr, d.len) else {
                return false;
            };
            far.write(start, d.len, &part);
        } else {
            let Some((far, start)) = self.nodes[other].at_address(d.addr, d.len) else {
                return false;
            };
            let part = far.part(start, d.len);
            let near = self.nodes[at].buffers.get_mut(&d.op).unwrap();
            near.write(d.offset, d.len, &part);
        }
        true
    }

    /// Handles the next packet or timer. False if there is none before `until`.
    pub fn step(&mut self, until: Instant) -> bool {
        let packet = self.queue.first_key_value().map(|(&(at, _), _)| Instant(at));
        let timers = self.nodes.iter().filter_map(|n| n.engine.next_timeout());
        let Some(at) = packet.into_iter().chain(timers).min().filter(|&at| at <= until) else {
            self.now = until.max(self.now);
            return false;
        };
        self.now = self.now.max(at);
        if packet == Some(at) {
            let (_, f) = self.queue.pop_first().unwrap();
            let caps = self.caps;
            self.nodes[f.to].receive(self.now, &caps, &f.header, &f.body);
            self.flush(f.to);
            self.check(f.to);
            return true;
        }
        for i in 0..self.nodes.len() {
            if self.nodes[i].engine.next_timeout().is_some_and(|t| t <= self.now) {
                self.nodes[i].engine.handle_timeout(self.now);
                self.flush(i);
                self.check(i);
            }
        }
        true
    }

    /// Checks the invariants of a node, now and then: a flood has a hundred thousand operations.
    fn check(&mut self, node: usize) {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(16) {
            self.nodes[node].engine.check();
        }
    }

    /// Lets `ms` milliseconds pass.
    pub fn run(&mut self, ms: u64) {
        self.flush_all();
        let until = self.now + Duration::from_millis(ms);
        while self.step(until) {}
    }

    /// Lets `ms` milliseconds pass, after which nothing is left.
    pub fn settle(&mut self, ms: u64) {
        self.run(ms);
        self.assert_clean();
    }

    /// Runs until `done`; panics after a virtual minute.
    pub fn run_until(&mut self, mut done: impl FnMut(&Net) -> bool) {
        self.flush_all();
        let until = self.now + Duration::from_secs(60);
        while !done(self) {
            assert!(self.step(until), "not done within a minute; last packets: {:?}", self.tail());
        }
    }

    pub fn tail(&self) -> &[(usize, PacketType)] {
        &self.log[self.log.len().saturating_sub(12)..]
    }

    /// Runs until the operations are done.
    pub fn wait(&mut self, ops: &[(usize, OpId)]) {
        let mut left = ops.len();
        self.run_until(|net| {
            while left > 0 && net.nodes[ops[left - 1].0].done.contains_key(&ops[left - 1].1) {
                left -= 1;
            }
            left == 0
        });
    }

    pub fn flush_all(&mut self) {
        for i in 0..self.nodes.len() {
            self.flush(i);
        }
    }

    pub fn sent(&self, from: usize, kind: PacketType) -> usize {
        self.log.iter().filter(|&&e| e == (from, kind)).count()
    }

    /// Checks that no operation is left, everything was released, and nothing is stored.
    pub fn assert_clean(&self) {
        for (i, n) in self.nodes.iter().enumerate() {
            assert_eq!(n.engine.ops().count(), 0, "operations left at node {i}");
            assert!(n.stored.is_empty(), "messages left at node {i}");
            for op in n.done.keys() {
                assert!(n.released.contains(op), "{op:?} of node {i} not released");
            }
        }
    }
}

pub fn send_args(peer: PeerId, tag: u64, len: u64) -> SendArgs {
    SendArgs::new(peer, tag, len)
}

/// Makes a packet from node `from` to node `to` with a valid session and sequence number `seq`.
pub fn forge(net: &mut Net, from: usize, to: usize, seq: u32, packet: Packet) -> wire::HeaderBuf {
    forge_with(net, from, to, seq, packet, 0, 0)
}

pub fn forge_with(
    net: &mut Net,
    from: usize,
    to: usize,
    seq: u32,
    packet: Packet,
    imm: u32,
    flags: u16,
) -> wire::HeaderBuf {
    let peer = net.peer(to, from);
    let (_, session, _) = net.nodes[to].engine.peer(peer).info().unwrap();
    let seq = crate::Seq(seq);
    let common = wire::Common { flags, session, seq, imm, ..wire::Common::default() };
    wire::emit(&common, &packet)
}

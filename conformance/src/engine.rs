//! The engine between an honest and a hostile peer, driven by bytes: the body of the fuzz target.

use std::collections::BTreeMap;
use std::time::Duration;
use weft_core::engine::types::{
    AtomicCode, Completion, Event, Placement, RecvArgs, Refused, SendArgs,
};
use weft_core::engine::Rights;
use weft_core::wire::{field, PacketType, VERSION};
use weft_core::{Config, EndpointId, Engine, Instant, LinkCaps, OpId, PeerFailure, PeerId};

/// Bytes of the input; zeros after its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().map_or((0, self.0), |(b, r)| (*b, r));
        self.0 = rest;
        first
    }

    /// Returns a length: small, near that of a packet, or large.
    fn len(&mut self) -> u64 {
        let n = u64::from(self.byte());
        match n % 4 {
            0 => n,
            1 => n * 60,
            _ => n * 2000,
        }
    }
}

/// An engine, and a driver that has only lengths instead of bytes.
struct Side {
    engine: Engine,
    now: Instant,
    /// Operations whose buffer the engine may still use: length, completed.
    ops: BTreeMap<OpId, (u64, bool)>,
    stored: BTreeMap<u32, u64>,
    key: u64,
}

/// Bytes of the region each side registers.
const REGION: u64 = 4096;
const PEER: PeerId = PeerId(0);

impl Side {
    fn new(config: &Config, id: u64, other: u64, caps: LinkCaps) -> Side {
        let mut engine = Engine::new(config.clone(), EndpointId(id));
        engine.add_peer(EndpointId(other), caps).expect("room for one peer");
        let key =
            engine.regions_mut().register(REGION, Rights::ALL, 7).expect("room for one region");
        Side {
            engine,
            now: Instant(1_000_000_000),
            ops: BTreeMap::new(),
            stored: BTreeMap::new(),
            key,
        }
    }

    fn begun(&mut self, op: Result<OpId, Refused>, len: u64) {
        if let Ok(op) = op {
            assert!(self.ops.insert(op, (len, false)).is_none(), "a number given twice");
        }
        self.settle();
    }

    /// Starts an operation that the input chooses.
    fn start(&mut self, input: &mut Input<'_>, key: u64) {
        let now = self.now;
        let (kind, len, tag) = (input.byte(), input.len(), u64::from(input.byte() % 4));
        let flag = |bit: u8| kind & bit != 0;
        let send = SendArgs {
            peer: PEER,
            tag,
            len,
            data: None,
            context: 0,
            addr: 1 << 40,
            inject: flag(16),
            sync: flag(32),
            delivered: flag(8),
            active: flag(64),
            untagged: flag(128),
        };
        let source = flag(16).then_some(PEER);
        let recv = RecvArgs {
            source,
            tag,
            ignore: u64::from(kind >> 6),
            len,
            addr: 1 << 41,
            context: 0,
            untagged: flag(128),
        };
        let e = &mut self.engine;
        let begun = match kind % 8 {
            0..=2 => e.send(now, send),
            3 | 4 => e.matching_mut().recv(now, recv),
            5 => e.memory().put(now, PEER, key, tag, len, 0),
            6 => e.memory().get(now, PEER, key, tag, len, 0),
            _ => e.memory().atomic(now, PEER, key, 8 * tag, AtomicCode::FetchAdd, (1, 0), 0),
        };
        self.begun(begun, len);
    }

    fn receive(&mut self, caps: &LinkCaps, header: &[u8], len: u64) {
        let placement = self.engine.handle_packet(self.now, None, caps, header, len);
        self.place(placement, len);
        self.settle();
        // The driver counts held packets as lost: it only asks for their numbers.
        while self.engine.poll_replay().is_some() {}
    }

    fn place(&mut self, placement: Placement, payload: u64) {
        match placement {
            Placement::Recv { op, offset, len } => {
                let (room, _) = self.ops.get(&op).expect("placed in a buffer that was given back");
                assert!(len <= payload && offset + len <= *room, "{offset}+{len} of {room}");
            }
            Placement::Done(c) => {
                let (op, len) = (c.op, c.status.len);
                self.place(Placement::Recv { op, offset: 0, len }, payload);
                self.complete(c);
            }
            Placement::Store { id, offset, total } => {
                if offset == 0 {
                    // A peer has its credit, and as much that is reserved for active messages.
                    let most = (1 << 20) + (64 << 10);
                    assert!(total <= most, "{total} bytes beyond the credit");
                    self.stored.insert(id, total);
                }
                assert!(offset + payload <= self.stored[&id]);
            }
            Placement::ActiveStored { id, offset, peer, .. } => {
                let len = offset + payload;
                assert_eq!(Some(len), self.stored.remove(&id));
                self.engine.peer_mut(peer).release(len);
            }
            Placement::Active { peer, .. } => self.engine.peer_mut(peer).release(payload),
            Placement::Region { offset, .. } => assert!(offset + payload <= REGION),
            Placement::Atomic(request) => {
                assert!(request.offset + 8 <= REGION);
                self.engine.memory().handle_atomic_done(self.now, &request, 0);
            }
            _ => {}
        }
    }

    fn complete(&mut self, c: Completion) {
        let (_, done) = self.ops.get_mut(&c.op).expect("completed after its end");
        assert!(!core::mem::replace(done, true), "completed twice");
        if c.released {
            self.ops.remove(&c.op);
        }
    }

    fn settle(&mut self) {
        let now = self.now;
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Complete(c) => self.complete(c),
                Event::Release(op) => {
                    self.ops.remove(&op).expect("released after its end");
                }
                Event::CopyStored { id, op, len } => {
                    let stored = self.stored.remove(&id).expect("a stored message");
                    assert!(len <= stored && len <= self.ops[&op].0);
                }
                Event::FreeStored(id) => drop(self.stored.remove(&id)),
                Event::DirectRead(d) => {
                    self.engine.memory().handle_direct_read(now, &d, d.len % 2 == 0)
                }
                Event::DirectWrite(d) => {
                    self.engine.memory().handle_direct_write(now, &d, d.len % 2 == 0)
                }
                _ => {}
            }
        }
    }

    /// Takes the packets to send: header and payload length.
    fn packets(&mut self, refuse: bool) -> Vec<(Vec<u8>, u64)> {
        use weft_core::engine::types::Payload;
        let mut out = Vec::new();
        self.engine.links().handle_unblocked();
        for _ in 0..64 {
            let Some(t) = self.engine.poll_transmit(self.now) else { break };
            if refuse {
                self.engine.links().handle_refused(t);
                continue;
            }
            self.engine.links().handle_accepted(&t);
            let len = match t.payload {
                Payload::Op { len, .. } | Payload::Region { len, .. } => len.into(),
                Payload::Address => 40,
                Payload::Padding { len } => len.into(),
                Payload::None => 0,
            };
            out.push((t.header.as_slice().to_vec(), len));
        }
        self.settle();
        out
    }
}

/// Makes a packet of the input, with a valid version, type and session unless the input chooses
/// otherwise.
fn forged(input: &mut Input<'_>, session: u32) -> Vec<u8> {
    let kind = PacketType::ALL[usize::from(input.byte()) % PacketType::ALL.len()];
    let mut bytes: Vec<u8> = (0..kind.header_len()).map(|_| input.byte()).collect();
    if input.byte() != 255 {
        bytes[field::VERSION] = VERSION;
        bytes[field::TYPE] = kind as u8;
        bytes[field::SESSION].copy_from_slice(&session.to_le_bytes());
        // Sets numbers near those in use.
        for at in [field::FLAGS.start + 1, field::SEQ.start + 2, field::ACK.start + 2] {
            bytes[at] = 0;
        }
        for at in [field::SEQ.start + 3, field::ACK.start + 3, field::IMM.start + 3] {
            bytes[at] = 0;
        }
    }
    bytes
}

/// Lets two engines exchange messages as the bytes choose, while the bytes also forge packets to
/// one of them. Checks that no operation completes twice, nothing is placed outside a buffer,
/// nothing grows without limit, and the end of the session ends every operation.
pub fn engine(data: &[u8]) {
    let mut input = Input(data);
    let choice = input.byte();
    let mut caps = match choice % 3 {
        0 => LinkCaps::network("fuzz", 1456),
        _ => LinkCaps::memory("fuzz", 4096),
    };
    caps.direct = choice % 3 == 2;
    let config = Config { rendezvous_max: 8, ..Config::default() };
    let mut sides = [Side::new(&config, 11, 22, caps), Side::new(&config, 22, 11, caps)];
    let session = sides[0].engine.peer(PEER).info().map_or(0, |(_, session, _)| session);
    while !input.0.is_empty() {
        match input.byte() % 8 {
            0 | 1 => {
                let at = usize::from(input.byte() % 2);
                let key = sides[1 - at].key;
                sides[at].start(&mut input, key);
            }
            2..=4 => {
                let header = forged(&mut input, session);
                let len = input.len();
                sides[0].receive(&caps, &header, len);
            }
            5 => {
                let passed = Duration::from_micros(u64::from(input.byte()).pow(3));
                for side in &mut sides {
                    side.now = side.now + passed;
                    side.engine.handle_timeout(side.now);
                    side.settle();
                }
            }
            _ => {
                let from = usize::from(input.byte() % 2);
                let lost = input.byte() % 16 == 0 && !caps.reliable;
                for (header, len) in sides[from].packets(choice & 128 != 0 && lost) {
                    if !lost {
                        sides[1 - from].receive(&caps, &header, len);
                    }
                }
            }
        }
    }
    for side in &mut sides {
        side.engine.peer_mut(PEER).handle_failure(PeerFailure::Gone);
        side.settle();
        for op in side.ops.keys().copied().collect::<Vec<_>>() {
            side.engine.ops_mut().cancel(op);
        }
        side.settle();
        assert!(side.ops.is_empty(), "operations left: {:?}", side.ops);
        assert_eq!(side.engine.ops().count(), 0);
    }
}

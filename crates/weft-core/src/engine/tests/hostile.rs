//! Random and damaged packets between ordinary ones: no panic, no operation completed twice, no
//! byte written outside a buffer, no unbounded growth. The harness asserts the first three.

use super::*;

/// Returns a value for a field of eight bytes that is likely to cause faults.
fn nasty(rng: &mut Rng) -> u64 {
    match rng.below(8) {
        0 => u64::MAX,
        1 => u64::MAX - rng.below(100),
        2 => u64::from(u32::MAX) + rng.below(3),
        3 => 1 << rng.below(64),
        4 => rng.next(),
        _ => rng.below(3000),
    }
}

/// Returns a number that may name an operation: index and generation are small in a young engine.
fn name(rng: &mut Rng) -> u32 {
    let generation = rng.below(6) as u32;
    rng.below(24) as u32 | generation << 20
}

/// Returns a packet of a random type with a valid session and all other fields doubtful.
fn packet(net: &mut Net, rng: &mut Rng, from: usize, to: usize) -> (Vec<u8>, Body) {
    let peer = net.peer(to, from);
    let (_, session, _) = net.nodes[to].engine.peer(peer).info().unwrap();
    let mut kind = PacketType::ALL[rng.below(16) as usize];
    // Types that end the session also end the test, so they come rarely.
    while matches!(kind, PacketType::Bye | PacketType::EagerFirst) && !rng.chance(3) {
        kind = PacketType::ALL[rng.below(16) as usize];
    }
    let mut bytes = vec![0; kind.header_len()];
    bytes[0] = 1;
    bytes[1] = kind as u8;
    let flags = if rng.chance(50) { rng.below(256) as u16 } else { 0 };
    bytes[2..4].copy_from_slice(&flags.to_le_bytes());
    bytes[4..8].copy_from_slice(&session.to_le_bytes());
    let p = net.nodes[to].engine.kept_of(peer);
    let (seq, ack) =
        p.conn.windows.as_ref().map_or((0, 0), |w| (w.recv.next_expected().0, w.send.next_seq().0));
    let near = |rng: &mut Rng, n: u32| match rng.below(10) {
        0 => rng.next() as u32,
        1..=3 => n.wrapping_sub(rng.below(40) as u32).wrapping_add(rng.below(80) as u32),
        _ => n,
    };
    bytes[8..12].copy_from_slice(&near(rng, seq).to_le_bytes());
    bytes[12..16].copy_from_slice(&near(rng, ack).to_le_bytes());
    if rng.chance(1) {
        bytes[16..20].copy_from_slice(&(nasty(rng) as u32).to_le_bytes());
    }
    bytes[20..24].copy_from_slice(&name(rng).to_le_bytes());
    for field in kind.fields() {
        let value = match field.name {
            "pad" => 0,
            "msg" | "recv" => name(rng).into(),
            "session_offer" => {
                net.nodes[from].engine.kept_of(PeerId(0)).conn.session.number_in.into()
            }
            "dst_eid" => net.nodes[to].engine.id().0,
            "src_eid" => net.nodes[from].engine.id().0,
            "code" => rng.below(8),
            "key" => net.nodes[to].regions.keys().next().copied().unwrap_or(0),
            "tag" => rng.below(12),
            "total" if !rng.chance(1) => rng.below(5000),
            "version_min" | "version_max" if !rng.chance(2) => 1,
            _ => nasty(rng),
        };
        let (value, size) = (value.to_le_bytes(), field.size.min(8));
        bytes[field.offset..field.offset + size].copy_from_slice(&value[..size]);
    }
    if rng.chance(5) {
        let bit = rng.below(8 * bytes.len() as u64) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    if rng.chance(2) {
        bytes.truncate(rng.below(bytes.len() as u64) as usize);
    }
    let len = rng.below(3) * rng.below(700);
    (bytes, Body::Bytes(vec![0x66; len as usize]))
}

fn traffic(net: &mut Net, rng: &mut Rng, key: [u64; 2]) {
    let (from, to) = if rng.chance(50) { (0, 1) } else { (1, 0) };
    let len = rng.below(4) * rng.below(40_000);
    let small = rng.below(3000);
    let tag = rng.below(6);
    let peer = net.peer(from, to);
    if net.nodes[from].engine.peer(peer).failure().is_some() {
        return;
    }
    match rng.below(9) {
        0 | 1 => drop(net.send(from, to, tag, &pattern(1, len))),
        2 => drop(
            net.send_with(from, to, tag, &pattern(1, small), |a| SendArgs { inject: true, ..a }),
        ),
        3 => drop(
            net.send_with(from, to, tag, &pattern(1, small), |a| SendArgs { active: true, ..a }),
        ),
        4 => drop(net.recv(from, Some(to), tag, len)),
        5 => drop(net.recv_masked(from, None, tag, rng.below(8), small)),
        6 => drop(net.put(from, to, key[to], rng.below(100), &pattern(2, small))),
        7 => drop(net.get(from, to, key[to], rng.below(100), small)),
        _ => drop(net.fetch_add(from, to, key[to], 8 * rng.below(9), 1)),
    }
    if rng.chance(10) {
        let ops: Vec<_> = net.nodes[from].buffers.keys().copied().collect();
        let op = ops[rng.below(ops.len() as u64) as usize];
        net.nodes[from].engine.ops_mut().discard(op);
        net.nodes[from].settle();
    }
}

/// Bytes of messages beyond what every peer may have.
const ROOM: u64 = 16 << 10;

/// Checks the bounds of everything that a peer can make an engine keep.
fn assert_bounded(net: &Net) {
    for n in &net.nodes {
        let most = 3 * n.engine.asks_max(PeerId(0));
        let p = n.engine.kept_of(PeerId(0));
        assert!(
            p.queue.ctrl.len() <= most && p.queue.data.len() <= most && p.queue.stalled.len() <= 64
        );
        assert!(n.held.len() <= 1024);
        let window = (crate::peer::credit_window(&Config::default()) as u64) * 2;
        let stored: u64 = n.stored.values().map(Body::len).sum();
        assert!(stored <= window + ROOM, "{stored} bytes of unexpected messages");
        assert!(n.engine.matching().room_used() <= ROOM / 2);
        assert!(n.engine.peers().count() <= 2);
    }
}

fn attack(kind: (LinkCaps, Config), seed: u64) {
    let mut rng = Rng(seed);
    let (caps, config) = kind;
    let config = Config { rendezvous_max: 40, unexpected_max: ROOM, ..config };
    let mut net = Net::open((caps, config));
    net.nodes.iter_mut().for_each(|n| n.attentive = true);
    if !caps.reliable {
        net.script = rough(seed, 5);
    }
    let key = [net.register(0, &[0; 4000]), net.register(1, &[0; 4000])];
    for _ in 0..300 {
        if rng.chance(40) {
            traffic(&mut net, &mut rng, key);
        }
        if rng.chance(60) {
            let from = rng.below(2) as usize;
            let (header, body) = packet(&mut net, &mut rng, from, 1 - from);
            net.inject(from, 1 - from, &header, body);
        }
        net.flush_all();
        let until = net.now + Duration::from_micros(rng.below(100));
        for _ in 0..rng.below(20) {
            net.step(until);
        }
        if rng.chance(2) {
            net.run(rng.below(3000));
        }
        assert_bounded(&net);
    }
    // After any end: the end of the session ends every operation, once.
    for at in [0, 1] {
        net.nodes[at].engine.peer_mut(PeerId(0)).handle_failure(PeerFailure::Gone);
    }
    net.run(1000);
    for n in &mut net.nodes {
        for op in n.buffers.keys().copied().collect::<Vec<_>>() {
            n.engine.ops_mut().cancel(op);
        }
        n.settle();
        assert_eq!(n.engine.ops().count(), 0);
        assert!(n.done.keys().all(|op| n.released.contains(op)));
        assert!(n.engine.quiet());
    }
}

#[test]
fn attack__in_the_middle_of_traffic_breaks_nothing() {
    for seed in 0..150 {
        for kind in every_kind().into_iter().chain([(direct(), Config::default())]) {
            let named = (kind.0.reliable, kind.0.direct, kind.1.reliability);
            let result = std::panic::catch_unwind(|| attack(kind, seed));
            assert!(result.is_ok(), "seed {seed}, link {named:?}");
        }
    }
}

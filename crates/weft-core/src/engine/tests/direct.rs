//! One copy between two processes: whole, shared, failing in the middle, discarded.

use super::*;
use crate::wire::{flags, DirectDone, Pull};

const LEN: u64 = 2_000_003;

/// Returns a configuration that cuts messages into many parts.
fn small_parts() -> Config {
    Config { direct_block: 64 << 10, ..Config::default() }
}

#[test]
fn direct__read_moves_no_payload_through_packets() {
    let mut net = Net::open((direct(), Config::default()));
    let recv = net.recv(1, None, 1, LEN);
    let send = net.send(0, 1, 1, &pattern(1, LEN));
    net.wait(&[(0, send), (1, recv)]);
    assert!(net.nodes[1].bytes(recv) == pattern(1, LEN));
    assert_eq!(net.log, [(0, PacketType::Rts), (1, PacketType::Fin)]);
    assert_eq!(net.nodes[1].engine.stats().direct_bytes, LEN);
    net.settle(1000);
}

#[test]
fn direct__sender_at_hand_copies_from_the_back() {
    let mut net = Net::open((direct(), Config::default()));
    net.nodes[1].attentive = true;
    let recv = net.recv(1, None, 1, LEN);
    let send = net.send(0, 1, 1, &pattern(1, LEN));
    net.nodes[1].hold_direct = true;
    // Parts of the front are copied slowly, so that the sender gets its share.
    while !net.nodes[1].done.contains_key(&recv) {
        net.run(1);
        net.nodes[1].hold_direct = false;
        let event = net.next_event(1);
        net.nodes[1].hold_direct = true;
        if let Some(event) = event {
            net.event(1, event);
        }
    }
    net.wait(&[(0, send)]);
    assert!(net.nodes[1].bytes(recv) == pattern(1, LEN));
    let helped = net.nodes[0].engine.stats().direct_bytes;
    assert!(helped >= LEN / 4, "the sender copied {helped}");
    assert_eq!(helped + net.nodes[1].engine.stats().direct_bytes, LEN);
    net.nodes[1].hold_direct = false;
    net.settle(1000);
}

#[test]
fn direct__failure_in_the_middle_goes_on_with_packets() {
    for reads in 0..8 {
        for writes in 0..3 {
            let mut net = Net::open((direct(), small_parts()));
            net.nodes[1].attentive = true;
            net.nodes[1].direct_budget = reads;
            net.nodes[0].direct_budget = writes;
            let recv = net.recv(1, None, 1, LEN);
            let send = net.send(0, 1, 1, &pattern(2, LEN));
            net.wait(&[(0, send), (1, recv)]);
            assert!(net.nodes[1].bytes(recv) == pattern(2, LEN), "{reads} {writes}");
            net.settle(1000);
            assert!(net.nodes[1].engine.stats().direct_failures > 0);
            // The path is known not to work: the next message does not try it again.
            net.log.clear();
            let recv = net.recv(1, None, 1, LEN);
            net.send(0, 1, 1, &pattern(3, LEN));
            net.wait(&[(1, recv)]);
            assert_eq!(net.nodes[1].engine.stats().direct_failures, 1);
        }
    }
}

#[test]
fn direct__what_is_declined_comes_in_packets_and_the_next_one_directly() {
    let block = u64::from(small_parts().direct_block);
    for (len, at) in [(LEN, 0), (40_000, 0), (LEN, 2 * block), (4 * block + 1, block)] {
        let mut net = Net::open((direct(), small_parts()));
        net.nodes[1].attentive = true;
        net.nodes[1].declines = Some(at);
        let recv = net.recv(1, None, 1, LEN);
        let send = net.send(0, 1, 1, &pattern(1, len));
        net.wait(&[(0, send), (1, recv)]);
        assert!(net.nodes[1].bytes(recv)[..len as usize] == pattern(1, len));
        assert!(net.sent(0, PacketType::Data) > 0, "{len} {at}");
        let stats = net.nodes[1].engine.stats();
        assert_eq!((stats.direct_declined, stats.direct_failures), (1, 0));
        assert_eq!(stats.direct_bytes > 0, at > 0);
        net.nodes[1].declines = None;
        let recv = net.recv(1, None, 1, LEN);
        assert!(net.nodes[1].engine.ops().is_fetching(recv));
        let send = net.send(0, 1, 1, &pattern(2, LEN));
        net.wait(&[(0, send), (1, recv)]);
        assert!(!net.nodes[1].engine.ops().is_fetching(recv));
        assert!(net.nodes[1].bytes(recv) == pattern(2, LEN));
        assert_eq!(net.nodes[1].engine.stats().direct_declined, 1);
        net.settle(1000);
    }
}

/// Executes one of the copies that a side has put off.
fn copy_one(net: &mut Net, at: usize) {
    net.nodes[at].hold_direct = false;
    if let Some(event) = net.next_event(at) {
        net.event(at, event);
        net.flush(at);
    }
    net.nodes[at].hold_direct = true;
}

#[test]
fn direct__both_sides_copy_each_byte_once_in_whatever_order_they_get_to_it() {
    let mut shared = 0;
    for seed in 0..400 {
        let mut rng = Rng(seed);
        let direct_block = (16 << 10) << rng.below(6);
        let config = Config { direct_block, direct_share: rng.chance(80), ..Config::default() };
        let mut net = Net::open((direct(), config));
        let whole = rng.chance(60);
        if !whole {
            let at = rng.below(2) as usize;
            net.nodes[at].direct_budget = rng.below(8) as u32;
            net.nodes[1 - at].declines = Some(rng.below(4) * u64::from(direct_block));
        }
        let (mut sends, mut recvs, mut bytes) = (vec![], vec![], 0);
        for n in 0..1 + rng.below(4) {
            let from = rng.below(2) as usize;
            let len = [20_000, 70_001, 500_000, LEN][rng.below(4) as usize];
            let room = if rng.chance(20) { 17_000 } else { len };
            let early = rng.chance(50);
            recvs.extend(early.then(|| (1 - from, net.recv(1 - from, None, n, room), n, room)));
            sends.push((from, net.send(from, 1 - from, n, &pattern(n, len))));
            recvs.extend((!early).then(|| (1 - from, net.recv(1 - from, None, n, room), n, room)));
            bytes += room;
        }
        let mut turns = 0;
        let open = |net: &Net| {
            let mut ops = sends.iter().copied().chain(recvs.iter().map(|r| (r.0, r.1)));
            ops.any(|(at, op)| !net.nodes[at].done.contains_key(&op))
        };
        while open(&net) {
            net.nodes.iter_mut().for_each(|node| node.attentive = rng.chance(70));
            let at = rng.below(2) as usize;
            copy_one(&mut net, at);
            if rng.chance(50) {
                net.run(1);
            }
            turns += 1;
            assert!(turns < 5_000, "seed {seed}: stuck");
        }
        for (at, recv, n, room) in recvs {
            let right = net.nodes[at].bytes(recv) == pattern(n, room);
            assert!(right, "seed {seed} message {n}");
        }
        let copied = [0, 1].map(|at| net.nodes[at].engine.stats().direct_bytes);
        assert!(copied[0] + copied[1] <= bytes, "seed {seed}: {copied:?} of {bytes}");
        assert!(!whole || copied[0] + copied[1] == bytes, "seed {seed}: {copied:?} of {bytes}");
        shared += u32::from(copied.iter().all(|&n| n > 0));
        net.nodes.iter_mut().for_each(|node| node.hold_direct = false);
        net.settle(1000);
    }
    assert!(shared > 100, "{shared}");
}

#[test]
fn direct__discarded_while_the_sender_writes_keeps_the_buffer_until_the_end() {
    let mut net = Net::open((direct(), Config::default()));
    net.nodes[1].attentive = true;
    net.nodes[0].hold_direct = true;
    let recv = net.recv(1, None, 1, LEN);
    let send = net.send(0, 1, 1, &pattern(1, LEN));
    net.run(10);
    assert!(net.sent(1, PacketType::Pull) > 0, "a remote write is outstanding");
    net.nodes[1].engine.ops_mut().discard(recv);
    net.run(10);
    assert!(!net.nodes[1].released.contains(&recv));
    net.nodes[0].hold_direct = false;
    net.wait(&[(0, send)]);
    net.run(1000);
    assert!(net.nodes[1].released.contains(&recv));
    assert!(!net.nodes[1].done.contains_key(&recv));
    net.assert_clean();
}

#[test]
fn direct__peer_lost_with_copies_to_do() {
    for at in [0, 1] {
        let mut net = Net::open((direct(), Config::default()));
        net.nodes[1].attentive = true;
        net.nodes[at].hold_direct = true;
        let recv = net.recv(1, None, 1, LEN);
        let send = net.send(0, 1, 1, &pattern(1, LEN));
        net.run(10);
        for node in [0, 1] {
            net.nodes[node].engine.peer_mut(PeerId(0)).handle_failure(PeerFailure::Gone);
        }
        net.flush_all();
        net.nodes[at].hold_direct = false;
        net.run(1000);
        assert!(matches!(net.nodes[0].error(send), OpError::Peer { .. }));
        assert!(matches!(net.nodes[1].error(recv), OpError::Peer { .. }));
        net.assert_clean();
    }
}

#[test]
fn direct_done__that_was_not_asked_for_is_refused() {
    let mut net = Net::open((direct(), Config::default()));
    net.nodes[1].hold_direct = true;
    let recv = net.recv(1, None, 1, LEN);
    net.send(0, 1, 1, &pattern(1, LEN));
    net.run(5);
    for (offset, len) in [(0, LEN), (LEN, 0), (u64::MAX, 2), (5, u64::MAX)] {
        let done = Packet::DirectDone(DirectDone { offset, len });
        let header = forge_with(&mut net, 0, 1, 0, done, recv.0, 0);
        net.inject(0, 1, header.as_slice(), Body::Bytes(vec![]));
    }
    net.run(5);
    assert_eq!(net.nodes[1].engine.stats().violations, 4);
    net.nodes[1].hold_direct = false;
    net.wait(&[(1, recv)]);
    assert!(net.nodes[1].bytes(recv) == pattern(1, LEN));
}

#[test]
fn pull__direct_over_a_link_that_cannot_is_answered_with_packets() {
    let mut net = Net::open((memory(), Config::default()));
    let sync = |a| SendArgs { sync: true, ..a };
    let send = net.send_with(0, 1, 1, &pattern(1, 9000), sync);
    net.run(1);
    let pull = Packet::Pull(Pull { offset: 0, len: 9000, recv: 3, addr: 1 << 40 });
    let header = forge_with(&mut net, 1, 0, 0, pull, send.0, flags::DIRECT);
    net.inject(1, 0, header.as_slice(), Body::Bytes(vec![]));
    net.run(1);
    assert!(net.sent(0, PacketType::Data) > 0);
    assert_eq!(net.sent(0, PacketType::DirectDone), 0);
}

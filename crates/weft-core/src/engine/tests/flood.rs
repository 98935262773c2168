//! Messages that are not received must not block an awaited one.

use super::*;
use crate::reliability::UNIT;
use crate::wire::{flags, Nop, Rts};

/// Sends `n` messages of `len` bytes each that are not received yet.
fn flood(net: &mut Net, from: usize, to: usize, n: u64, len: u64) -> Vec<(usize, OpId)> {
    let peer = net.peer(from, to);
    let send = |net: &mut Net, i: u64| {
        let body = Body::Bytes(pattern(i, len));
        (from, net.try_send(from, send_args(peer, 1, len), body).expect("room in the queue"))
    };
    (0..n).map(|i| send(net, i)).collect()
}

/// Receives the messages of `flood`, in their order.
fn drain(net: &mut Net, at: usize, from: usize, n: u64, len: u64) {
    for i in 0..n {
        let recv = net.recv(at, Some(from), 1, len);
        net.wait(&[(at, recv)]);
        assert!(net.nodes[at].bytes(recv) == pattern(i, len), "message {i}");
        net.nodes[at].buffers.remove(&recv);
    }
}

/// Checks that a flood has left no room taken, and no memory of tables.
fn assert_gone(net: &mut Net) {
    net.settle(5000);
    for n in &net.nodes {
        assert_eq!(n.engine.matching().room_used(), 0);
        for p in &n.engine.peers {
            assert_eq!((p.incoming.share.granted, p.incoming.share.allowed), (0, 0));
        }
        assert!(n.engine.ops.places() <= 4096 && n.engine.matching.stored.places() <= 4096);
    }
}

/// Receives all of a flood, which then has left nothing.
fn drained(net: &mut Net, sends: &[(usize, OpId)], n: u64, len: u64) {
    drain(net, 1, 0, n, len);
    net.wait(sends);
    assert_gone(net);
}

#[test]
fn flood__a_posted_receive_gets_its_message() {
    for (n, len) in [(20_000, 4), (8_000, 5_000), (5_000, 70_000)] {
        for (caps, config) in every_kind() {
            let mut net = Net::open((caps, config));
            let awaited = net.recv(1, Some(0), 2, 4);
            let sends = flood(&mut net, 0, 1, n, len);
            net.send(0, 1, 2, b"here");
            net.wait(&[(1, awaited)]);
            assert_eq!(net.nodes[1].bytes(awaited), b"here");
            assert_eq!(net.nodes[1].full, []);
            drained(&mut net, &sends, n, len);
        }
    }
}

#[test]
fn flood__under_loss() {
    for (caps, config) in &every_kind()[1..] {
        let config = Config { rendezvous_max: 16, ..config.clone() };
        let mut net = Net::open((*caps, config));
        net.script = rough(7, 5);
        let awaited = net.recv(1, Some(0), 2, 4);
        let sends = flood(&mut net, 0, 1, 600, 4000);
        net.send(0, 1, 2, b"here");
        net.wait(&[(1, awaited)]);
        drained(&mut net, &sends, 600, 4000);
    }
}

#[test]
fn flood__hides_no_active_message() {
    for (caps, config) in every_kind() {
        let mut net = Net::open((caps, config));
        let sends = flood(&mut net, 0, 1, 2_000, 3_000);
        let data = pattern(3, 65_536);
        net.send_with(0, 1, 9, &data, |a| SendArgs { active: true, ..a });
        net.run_until(|net| !net.nodes[1].upcalls.is_empty());
        drained(&mut net, &sends, 2_000, 3_000);
    }
}

/// More messages than a client lets remote-memory operations queue behind: those behind go on, as
/// the receiver has room for announcements, and nobody receives.
#[test]
fn flood__hides_no_remote_memory_operation() {
    for (caps, config) in every_kind() {
        let mut net = Net::open((caps, config));
        let key = net.register(1, &[0; 64]);
        let sends = flood(&mut net, 0, 1, 20_000, 4);
        let data = pattern(3, 64);
        let put = net.put(0, 1, key, 0, &data);
        net.wait(&[(0, put)]);
        let get = net.get(0, 1, key, 0, 64);
        net.wait(&[(0, get)]);
        assert!(net.nodes[0].bytes(get) == data);
        drained(&mut net, &sends, 20_000, 4);
    }
}

/// Returns a configuration with little room: 16 announcements at first, and so many more.
fn little(config: Config, more: u64) -> Config {
    let (eager_credit, peer_timeout_ms) = (0, 2_000);
    let unexpected_max = 2 * more * 256;
    Config { rendezvous_max: 16, eager_credit, unexpected_max, peer_timeout_ms, ..config }
}

/// Length of a message that is announced because it is long.
const LONG: u64 = 80_000;

#[test]
fn full__a_receive_that_waits_ends_with_what_fills_the_room() {
    for (caps, config) in every_kind() {
        let mut net = Net::open((caps, little(config, 64)));
        let awaited = net.recv(1, Some(0), 2, 4);
        let sends = flood(&mut net, 0, 1, 200, LONG);
        let last = net.send(0, 1, 2, b"lost");
        net.wait(&[(1, awaited), (0, last)]);
        net.wait(&sends);
        assert_eq!(net.nodes[1].full, [(PeerId(0), 80)], "said once");
        let failure = PeerFailure::Flooded { messages: 80, bytes: 80 * LONG };
        let error = |peer, failure| OpError::Peer { peer, failure };
        assert_eq!(net.nodes[1].error(awaited), error(PeerId(0), failure));
        let OpError::Peer { failure, .. } = net.nodes[0].error(last) else { panic!() };
        assert!(matches!(failure, PeerFailure::Flooded { messages: 201, .. }), "{failure:?}");
        let text = alloc::format!("{failure}; {}", failure.advice());
        assert!(text.contains("201 messages of 16000004 bytes"), "{text}");
        assert!(text.contains("WEFT_UNEXPECTED_MAX"), "{text}");
        assert_eq!(net.nodes[1].engine.matching().room_used(), 0);
    }
}

#[test]
fn full__no_sender_waits_and_all_goes_on_when_it_is_received() {
    for (caps, config) in every_kind() {
        let mut net = Net::open((caps, little(config, 64)));
        let sends = flood(&mut net, 0, 1, 200, LONG);
        net.run(20_000);
        assert_eq!(net.nodes[1].failed, []);
        assert_eq!(net.sent(0, PacketType::Rts), 80);
        drained(&mut net, &sends, 200, LONG);
    }
}

#[test]
fn full__a_receiver_that_takes_messages_now_and_then_is_not_given_up() {
    let mut net = Net::open((memory(), little(Config::default(), 64)));
    let awaited = net.recv(1, Some(0), 2, 4);
    let sends = flood(&mut net, 0, 1, 120, LONG);
    net.send(0, 1, 2, b"late");
    for i in 0..40 {
        net.run(1500);
        assert!(!net.nodes[1].done.contains_key(&awaited), "{i}");
        let recv = net.recv(1, Some(0), 1, LONG);
        net.wait(&[(1, recv)]);
    }
    net.wait(&[(1, awaited)]);
    let left: Vec<_> = (0..80).map(|_| (1, net.recv(1, Some(0), 1, LONG))).collect();
    net.wait(&left);
    net.wait(&sends);
    assert_gone(&mut net);
}

#[test]
fn share__one_flood_leaves_room_for_others() {
    let config = little(Config::default(), 64);
    let mut net = Net::new(4, memory(), config);
    let awaited: Vec<_> = (1..4).map(|i| (0, net.recv(0, Some(i), 2, 4))).collect();
    let mut sends = flood(&mut net, 1, 0, 400, LONG);
    net.run(100);
    assert_eq!(net.nodes[0].full.len(), 1);
    // Each further flood gets half of the room that is left.
    for (from, n) in [(2, 36), (3, 25)] {
        sends.extend(flood(&mut net, from, 0, n, LONG));
        net.send(from, 0, 2, b"here");
    }
    net.wait(&awaited[1..]);
    assert_eq!(net.nodes[0].full, [(PeerId(0), 80)], "there was room for both");
    assert!(!net.nodes[0].done.contains_key(&awaited[0].1));
    net.send(1, 0, 2, b"last");
    drain(&mut net, 0, 1, 400, LONG);
    net.wait(&awaited);
    drain(&mut net, 0, 2, 36, LONG);
    drain(&mut net, 0, 3, 25, LONG);
    net.wait(&sends);
    assert_gone(&mut net);
}

#[test]
fn share__a_peer_that_was_short_gets_what_others_give_back() {
    let config = little(Config::default(), 16);
    let mut net = Net::new(3, memory(), config);
    let mut sends = flood(&mut net, 1, 0, 32, LONG);
    net.run(10);
    // Before it there is room for 8 more, with the room that the first used for 20.
    let awaited = net.recv(0, Some(2), 2, 4);
    sends.extend(flood(&mut net, 2, 0, 28, LONG));
    net.send(2, 0, 2, b"here");
    net.run(10);
    assert!(!net.nodes[0].done.contains_key(&awaited));
    drain(&mut net, 0, 1, 32, LONG);
    net.wait(&[(0, awaited)]);
    drain(&mut net, 0, 2, 28, LONG);
    net.wait(&sends);
    assert_gone(&mut net);
}

#[test]
fn share__of_a_peer_that_fails_is_free() {
    let mut net = Net::open((memory(), little(Config::default(), 64)));
    flood(&mut net, 0, 1, 70, LONG);
    net.run(10);
    assert!(net.nodes[1].engine.matching().room_used() > 0);
    net.nodes[1].engine.peer_mut(PeerId(0)).handle_failure(PeerFailure::Gone);
    assert_eq!(net.nodes[1].engine.matching().room_used(), 0);
}

#[test]
fn credit__lent_for_small_messages_is_paid_back() {
    let config = Config { eager_credit: 128 << 10, rendezvous_max: 4, ..Config::default() };
    for caps in [memory(), network()] {
        let mut net = Net::open((caps, config.clone()));
        let sends = flood(&mut net, 0, 1, 5_000, 200);
        net.wait(&sends);
        assert!(net.nodes[1].engine.matching().room_used() > 128 << 10);
        assert_eq!(net.sent(0, PacketType::Rts), 0, "they are kept, not announced");
        drain(&mut net, 1, 0, 5_000, 200);
        assert_gone(&mut net);
    }
}

#[test]
fn packets__that_are_left_do_not_hide_others() {
    for (caps, config) in every_kind() {
        let mut net = Net::open((caps, Config { eager_credit: 128 << 10, ..config }));
        let peer = net.peer(0, 1);
        net.nodes[1].keeps_active = true;
        let (n, len) = (3_000, 400);
        for i in 0..n {
            let args = SendArgs { active: true, ..send_args(peer, i, len) };
            net.try_send(0, args, Body::Bytes(pattern(i, len))).unwrap();
        }
        let mut seen = 0;
        // Does as a mailbox: keeps every message that comes.
        net.run_until(|net| net.nodes[1].upcalls.len() > 200);
        while seen < n as usize {
            let here = net.nodes[1].upcalls.len();
            assert!(here > seen, "{seen} of {n} packets came");
            for _ in seen..here {
                net.nodes[1].engine.peer_mut(PeerId(0)).handle_active_kept(net.now, len);
            }
            seen = here;
            net.run(100);
        }
        for _ in 0..n {
            net.nodes[1].engine.peer_mut(PeerId(0)).release_kept(len);
        }
        assert_gone(&mut net);
    }
}

#[test]
fn packets__that_a_client_keeps_are_counted_when_there_is_no_room() {
    let len = 400;
    let config = Config { eager_credit: 16 << 10, ..little(Config::default(), 0) };
    let mut net = Net::open((memory(), config));
    let peer = net.peer(0, 1);
    net.nodes[1].keeps_active = true;
    for i in 0..200 {
        let args = SendArgs { active: true, ..send_args(peer, i, len) };
        net.try_send(0, args, Body::Bytes(pattern(i, len))).unwrap();
    }
    let mut kept = 0;
    while net.nodes[1].full.is_empty() {
        net.run_until(|net| net.nodes[1].upcalls.len() > kept);
        kept += 1;
        net.nodes[1].engine.peer_mut(PeerId(0)).handle_active_kept(net.now, len);
    }
    // The event may have come one packet ago.
    let [(of, said)] = net.nodes[1].full[..] else { panic!("{:?}", net.nodes[1].full) };
    assert_eq!(of, PeerId(0));
    assert!(said > 10 && (kept as u64 - 1..=kept as u64).contains(&said), "{said} of {kept}");
}

#[test]
fn queue__that_does_not_move_refuses_and_ends() {
    let config = little(Config::default(), 0);
    let mut net = Net::open((memory(), config));
    let peer = net.peer(0, 1);
    let more = |net: &mut Net| net.try_send(0, send_args(peer, 1, LONG), Body::Fake(LONG));
    let mut sends: Vec<_> = (0..16).map(|_| (0, more(&mut net).unwrap())).collect();
    net.flush_all();
    sends.extend((0..1 << 16).map(|_| (0, more(&mut net).unwrap())));
    assert_eq!(more(&mut net), Err(Refused::Busy));
    net.run(1000);
    assert_eq!(more(&mut net), Err(Refused::Busy));
    // A message left: the time begins anew.
    let recv = net.recv(1, Some(0), 1, LONG);
    net.wait(&[(1, recv)]);
    net.run(1);
    sends.push((0, more(&mut net).expect("one has left")));
    assert_eq!(more(&mut net), Err(Refused::Busy));
    net.run(1900);
    assert_eq!(more(&mut net), Err(Refused::Busy));
    net.run(200);
    let Err(Refused::Peer(_, PeerFailure::Flooded { messages, .. })) = more(&mut net) else {
        panic!("a caller that tries again and again would do so for ever")
    };
    assert_eq!(messages, sends.len() as u64 - 1);
    net.wait(&sends);
}

#[test]
fn hostile__announcements_beyond_what_is_granted_end_the_session() {
    let mut net = Net::open((memory(), little(Config::default(), 64)));
    let rts = |msg| Packet::Rts(Rts { tag: 1, total: 9, msg, data: 0, addr: 0 });
    for i in 0..80 {
        let header = forge(&mut net, 0, 1, 0, rts(i));
        net.inject(0, 1, header.as_slice(), Body::Bytes(vec![]));
    }
    net.run(1);
    assert_eq!(net.nodes[1].failed, []);
    assert_eq!(net.nodes[1].engine.matching().room_used(), 64 * 256);
    let header = forge(&mut net, 0, 1, 0, rts(80));
    net.inject(0, 1, header.as_slice(), Body::Bytes(vec![]));
    net.run(1);
    assert_eq!(net.nodes[1].failed, [(PeerId(0), PeerFailure::Protocol)]);
    assert_eq!(net.nodes[1].engine.matching().room_used(), 0);
}

#[test]
fn hostile__grants_and_takings_back_are_bounded() {
    let mut net = Net::open((memory(), Config::default()));
    for (packet, imm, flags) in [
        (Packet::Nop(Nop), u32::MAX, 0),
        (Packet::Nop(Nop), u32::MAX, 0),
        (Packet::Fin(wire::Fin { status: 0 }), 7, flags::NACK),
    ] {
        let header = forge_with(&mut net, 1, 0, 0, packet, imm, flags);
        net.inject(1, 0, header.as_slice(), Body::Bytes(vec![]));
    }
    net.run(1);
    let sends = flood(&mut net, 0, 1, 10, LONG);
    drain(&mut net, 1, 0, 10, LONG);
    net.wait(&sends);
    let most = net.nodes[0].engine.asks_max(PeerId(0));
    assert_eq!(most, net.nodes[1].engine.asks_max(PeerId(0)), "by what is announced alone");
    assert_eq!(net.nodes[1].engine.matching().room_used() % u64::from(UNIT), 0);
}

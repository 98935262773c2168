//! Remote memory: put, get, atomic operations; refused, empty, unregistered meanwhile.

use super::*;
use crate::wire::{flags, Get, Nop, Put, Reply};

#[test]
fn put_get__every_size_under_loss() {
    for (caps, config) in every_kind() {
        let mut net = Net::rough((caps, config), (5, 10));
        let mtu = u64::from(caps.mtu);
        for (i, len) in super::eager::sizes(mtu, 10_000).into_iter().enumerate() {
            let data = pattern(i as u64, len);
            let key = net.register(1, &vec![1; len as usize + 20]);
            let put = net.put(0, 1, key, 10, &data);
            net.wait(&[(0, put)]);
            assert_eq!(net.nodes[0].ok(put).len, len);
            let Body::Bytes(region) = &net.nodes[1].regions[&key] else { panic!() };
            assert!(region[10..len as usize + 10] == data);
            assert!(region[..10] == [1; 10] && region[len as usize + 10..] == [1; 10]);
            let get = net.get(0, 1, key, 10, len);
            net.wait(&[(0, get)]);
            assert_eq!(net.nodes[0].ok(get).len, len);
            assert!(net.nodes[0].bytes(get) == data);
        }
        net.settle(5000);
    }
}

/// The peers' offset of the first byte can be any number: the region begins there for them.
#[test]
fn put_and_get__of_a_region_that_begins_elsewhere() {
    const FIRST: u64 = 0x7fff_1234_5008;
    for kind in every_kind() {
        let mut net = Net::open(kind);
        let key = 7;
        assert!(net.nodes[1].engine.regions_mut().register_as(key, FIRST, 64, Rights::ALL));
        net.nodes[1].regions.insert(key, Body::Bytes(vec![1; 64]));
        let done = [
            net.put(0, 1, key, FIRST + 8, &[2; 56]),
            net.get(0, 1, key, FIRST + 7, 2),
            net.fetch_add(0, 1, key, FIRST, 1),
        ];
        net.wait(&done.map(|op| (0, op)));
        assert_eq!(net.nodes[0].bytes(done[1]), [1, 2]);
        assert_eq!(net.nodes[0].ok(done[2]).value, u64::from_le_bytes([1; 8]));
        let Body::Bytes(region) = &net.nodes[1].regions[&key] else { panic!() };
        assert!(region[0] == 2 && region[1..8] == [1; 7] && region[8..] == [2; 56]);
        let refused = [
            net.put(0, 1, key, 0, b"x"),
            net.put(0, 1, key, FIRST - 1, b"xy"),
            net.get(0, 1, key, FIRST + 64, 1),
            net.get(0, 1, key, u64::MAX, 1),
            net.fetch_add(0, 1, key, 8, 1),
        ];
        net.wait(&refused.map(|op| (0, op)));
        for op in refused {
            assert_eq!(net.nodes[0].error(op), OpError::Refused);
        }
    }
}

#[test]
fn fetch_add__is_done_once_each_under_loss() {
    for (caps, config) in every_kind() {
        let mut net = Net::rough((caps, config), (6, 15));
        let key = net.register(1, &[0; 16]);
        let ops: Vec<_> = (0..200).map(|_| (0, net.fetch_add(0, 1, key, 8, 3))).collect();
        net.wait(&ops);
        for (i, (_, op)) in ops.iter().enumerate() {
            assert_eq!(net.nodes[0].ok(*op).value, 3 * i as u64);
        }
        net.settle(5000);
    }
}

#[test]
fn refused__key_bounds_rights_and_alignment() {
    for kind in every_kind() {
        let mut net = Net::open(kind);
        let key = net.register(1, &[5; 64]);
        let readable = Rights { read: true, write: false };
        let read_only = net.nodes[1].engine.regions_mut().register(64, readable, 1).unwrap();
        let data = pattern(1, 20_000);
        let ops = vec![
            net.put(0, 1, key ^ 1 << 40, 0, b"x"),
            net.put(0, 1, key, 60, b"hello"),
            net.put(0, 1, key, u64::MAX, b"hello"),
            net.put(0, 1, key, 65, b""),
            net.put(0, 1, key, 0, &data),
            net.put(0, 1, read_only, 0, b"x"),
            net.get(0, 1, key, 1, 64),
            net.get(0, 1, key, u64::MAX, 2),
            net.get(0, 1, 0, 0, 0),
            net.fetch_add(0, 1, key, 4, 1),
            net.fetch_add(0, 1, key, 64, 1),
            net.fetch_add(0, 1, key, u64::MAX - 7, 1),
            net.fetch_add(0, 1, read_only, 0, 1),
        ];
        let ops: Vec<_> = ops.into_iter().map(|op| (0, op)).collect();
        net.wait(&ops);
        for (i, (_, op)) in ops.iter().enumerate() {
            assert_eq!(net.nodes[0].error(*op), OpError::Refused, "operation {i}");
        }
        // The session continues.
        let put = net.put(0, 1, key, 0, b"fine");
        let empty = [net.put(0, 1, key, 64, b""), net.get(0, 1, key, 64, 0)];
        net.wait(&[(0, put), (0, empty[0]), (0, empty[1])]);
        assert_eq!(net.nodes[0].done[&empty[1]].error, None);
        net.settle(1000);
    }
}

#[test]
fn unregister__ends_gets_and_puts_under_way_as_refused() {
    for (caps, config) in every_kind() {
        for steps in (0..80).step_by(3) {
            let mut net = Net::open((caps, config.clone()));
            if !caps.reliable {
                net.script = rough(steps, 10);
            }
            // The link refuses packets at times: some wait when the region is unregistered.
            net.room[1] = 1 + steps as u32;
            let key = net.register(1, &pattern(1, 100_000));
            let get = net.get(0, 1, key, 0, 100_000);
            let put = net.put(0, 1, key, 0, &[0; 50_000]);
            let add = net.fetch_add(0, 1, key, 0, 1);
            net.flush_all();
            let until = net.now + Duration::from_secs(1);
            for _ in 0..steps {
                net.step(until);
            }
            net.unregister(1, key);
            net.room[1] = u32::MAX;
            net.wait(&[(0, get), (0, put), (0, add)]);
            for op in [get, put, add] {
                let error = net.nodes[0].done[&op].error;
                assert!(error.is_none() || error == Some(OpError::Refused));
            }
            net.settle(5000);
        }
    }
}

#[test]
fn atomic__of_a_region_that_is_gone_when_its_turn_comes_is_refused() {
    let mut net = Net::open((memory(), Config::default()));
    let key = net.register(1, &[0; 8]);
    let add = net.fetch_add(0, 1, key, 0, 1);
    net.flush(0);
    // The engine has handled the packet, the driver has not yet acted on it.
    let until = net.now + Duration::from_secs(1);
    net.nodes[1].regions.remove(&key);
    net.step(until);
    net.wait(&[(0, add)]);
    assert_eq!(net.nodes[0].error(add), OpError::Refused);
}

#[test]
fn requests__beyond_what_may_be_unanswered_wait_and_follow() {
    for (caps, config) in every_kind() {
        let mut net = Net::open((caps, config));
        let key = net.register(1, &[0; 8]);
        let n = 3 * u64::from(super::super::REQUESTS_MAX);
        let adds: Vec<_> = (0..n).map(|_| (0, net.fetch_add(0, 1, key, 0, 1))).collect();
        if caps.reliable {
            net.flush(0);
            assert_eq!(net.sent(0, PacketType::Atomic), n as usize / 3);
        }
        net.wait(&adds);
        assert_eq!(net.nodes[0].ok(adds[n as usize - 1].1).value, n - 1);
        net.settle(5000);
    }
}

#[test]
fn requests__flood_of_a_peer_that_takes_no_answer_ends_its_session() {
    for (caps, config) in every_kind() {
        for kind in 0..3 {
            let config = Config { rendezvous_max: 64, ..config.clone() };
            let mut net = Net::open((caps, config));
            // The attacking side neither acknowledges nor has room.
            net.script = Box::new(|f| if f.from == 1 { vec![] } else { vec![DELAY] });
            net.room[1] = 0;
            let key = net.register(1, &[0; 1 << 20]);
            let most = 4 * net.nodes[1].engine.asks_max(PeerId(0)) as u32;
            let mut largest = 0;
            for seq in 0..most {
                let packet = match kind {
                    0 => Packet::Get(Get { key, offset: 0, len: 1 << 20 }),
                    1 => Packet::Put(Put { key, offset: 0, total: 0 }),
                    _ => Packet::Nop(Nop),
                };
                let flags = flags::LAST | flags::ACKNOW;
                let header = forge_with(&mut net, 0, 1, seq, packet, seq, flags);
                net.inject(0, 1, header.as_slice(), Body::Bytes(vec![]));
                net.step(net.now);
                let p = net.nodes[1].engine.kept_of(PeerId(0));
                largest =
                    largest.max(p.queue.ctrl.len() + p.queue.data.len() + p.queue.stalled.len());
            }
            net.room[1] = u32::MAX;
            net.run(1);
            assert!(largest <= 3 * net.nodes[1].engine.asks_max(PeerId(0)));
            let failed = net.nodes[1].engine.peer(PeerId(0)).failure();
            assert_eq!(failed, (kind < 2).then_some(PeerFailure::Protocol));
        }
    }
}

#[test]
fn reply__to_what_was_not_yet_asked_is_a_violation_and_blocks_nothing() {
    let mut net = Net::open((memory(), Config::default()));
    let key = net.register(1, &[0; 8]);
    net.room[0] = 0;
    let put = net.put(0, 1, key, 0, b"");
    let get = net.get(0, 1, key, 0, 8);
    let add = net.fetch_add(0, 1, key, 0, 1);
    for op in [put, get, add] {
        for status in [0, 1] {
            let reply = Packet::Reply(Reply { value: 0, status });
            let header = forge_with(&mut net, 1, 0, 0, reply, op.0, 0);
            net.inject(1, 0, header.as_slice(), Body::Bytes(vec![]));
        }
    }
    net.step(net.now);
    net.room[0] = u32::MAX;
    let later = net.put(0, 1, key, 0, b"later");
    net.wait(&[(0, put), (0, get), (0, add), (0, later)]);
    net.settle(1000);
}

#[test]
fn put__to_memory_that_vanished_is_refused_and_says_so() {
    for (caps, config) in every_kind() {
        let mut net = Net::rough((caps, config), (5, 10));
        let (key, there) = (net.register(1, &[1; 9_000]), net.register(1, &[1; 9_000]));
        net.nodes[1].regions.remove(&key);
        let gone = [1, 8, 9_000].map(|len| net.put(0, 1, key, 0, &vec![2; len]));
        let put = net.put(0, 1, there, 0, &[2; 9_000]);
        net.wait(&[gone[0], gone[1], gone[2], put].map(|op| (0, op)));
        for op in gone {
            assert_eq!(net.nodes[0].error(op), OpError::Unmapped);
        }
        assert_eq!(net.nodes[0].ok(put).len, 9_000, "another put is not concerned");
        net.run(5000);
    }
}

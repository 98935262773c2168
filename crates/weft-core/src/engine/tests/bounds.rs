//! Violations of the protocol: refused, bounded, and no operation waits for ever.

use super::*;
use crate::reliability::{RESERVE, UNIT};
use crate::wire::{flags, Eager, EagerFirst, EagerMore};

fn inject(net: &mut Net, seq: u32, packet: Packet, imm: u32, flags: u16, len: u64) {
    let header = forge_with(net, 0, 1, seq, packet, imm, flags);
    net.inject(0, 1, header.as_slice(), Body::Bytes(vec![9; len as usize]));
    while net.step(net.now) {}
}

fn ended(net: &Net) -> bool {
    net.nodes[1].engine.peer(PeerId(0)).failure() == Some(PeerFailure::Protocol)
}

#[test]
fn eager__beyond_the_credit_ends_the_session() {
    for (caps, config) in every_kind() {
        let mut net = Net::open((caps, config));
        let mut bytes = 0;
        for seq in 0..2000 {
            inject(&mut net, seq, Packet::Eager(Eager { tag: 1 }), 0, 0, 1400);
            let stored: u64 = net.nodes[1].stored.values().map(Body::len).sum();
            bytes = bytes.max(stored);
        }
        assert!(ended(&net));
        let most = u64::from(Config::default().eager_credit + RESERVE * UNIT);
        assert!(bytes <= most, "{bytes}");
    }
}

#[test]
fn eager__beyond_the_credit_after_the_end_keeps_what_was_here() {
    let mut net = Net::open((memory(), Config::default()));
    for _ in 0..2000 {
        inject(&mut net, 0, Packet::Eager(Eager { tag: 1 }), 0, 0, 1400);
    }
    let here = net.nodes[1].stored.len();
    for _ in 0..here {
        let recv = net.recv(1, None, 1, 1400);
        assert_eq!(net.nodes[1].ok(recv).len, 1400);
    }
    net.settle(100);
}

#[test]
fn eager_first__that_lies_about_its_length_ends_the_session() {
    let first = |total| Packet::EagerFirst(EagerFirst { tag: 1, total, msg: 1, data: 0 });
    for (total, len) in [(10, 11), (u64::MAX, 5), (u64::from(u32::MAX), 5), (1 << 30, 5)] {
        for flags in [0, flags::ACTIVE] {
            let mut net = Net::open((memory(), Config::default()));
            inject(&mut net, 0, first(total), 0, flags, len);
            assert!(ended(&net), "{total} {len}");
            assert!(net.nodes[1].stored.is_empty());
        }
    }
    let mut net = Net::open((memory(), Config::default()));
    inject(&mut net, 0, first(65_537), 0, flags::ACTIVE, 5);
    assert!(ended(&net), "an active message that is too long");
    let mut net = Net::open((memory(), Config::default()));
    inject(&mut net, 0, first(20), 0, 0, 5);
    inject(&mut net, 0, first(20), 0, 0, 5);
    assert!(ended(&net), "a message within a message");
    net.assert_clean();
}

#[test]
fn eager_more__out_of_place_is_refused() {
    let mut net = Net::open((memory(), Config::default()));
    let recv = net.recv(1, None, 1, 8);
    inject(&mut net, 0, Packet::EagerMore(EagerMore { offset: 0 }), 1, 0, 5);
    let first = Packet::EagerFirst(EagerFirst { tag: 1, total: 20, msg: 1, data: 0 });
    inject(&mut net, 0, first, 0, 0, 5);
    for (offset, imm, len) in [(4, 1, 5), (6, 1, 5), (5, 2, 5), (5, 1, 16), (u64::MAX, 1, 5)] {
        inject(&mut net, 0, Packet::EagerMore(EagerMore { offset }), imm, 0, len);
    }
    assert_eq!(net.nodes[1].engine.stats().violations, 6);
    inject(&mut net, 0, Packet::EagerMore(EagerMore { offset: 5 }), 1, 0, 15);
    assert_eq!(net.nodes[1].error(recv), OpError::Truncated { sent: 20 });
    assert_eq!(net.nodes[1].bytes(recv), [9; 8]);
}

#[test]
fn active__message_in_one_first_fragment_is_whole() {
    let mut net = Net::open((memory(), Config::default()));
    let first = Packet::EagerFirst(EagerFirst { tag: 1, total: 20, msg: 1, data: 0 });
    inject(&mut net, 0, first, 0, flags::ACTIVE, 20);
    assert!(matches!(&net.nodes[1].upcalls[..], [(_, 1, Body::Bytes(b))] if *b == [9; 20]));
    inject(&mut net, 0, first, 0, flags::ACTIVE, 0);
    inject(&mut net, 0, Packet::EagerMore(EagerMore { offset: 0 }), 1, 0, 20);
    assert_eq!(net.nodes[1].upcalls.len(), 2);
    net.assert_clean();
}

#[test]
fn credit__beyond_all_reason_is_ignored() {
    let mut net = Net::open((network(), Config::default()));
    for credit in [u32::MAX, 1 << 31, 1 << 30, 0] {
        let (_, session, _) = net.nodes[1].engine.peer(PeerId(0)).info().unwrap();
        let common = wire::Common { session, credit, ..wire::Common::default() };
        let header = wire::emit(&common, &Packet::Ack(wire::Ack { sack: [!0; 4] }));
        net.inject(0, 1, header.as_slice(), Body::Bytes(vec![]));
    }
    net.run(1);
    let open = net.nodes[1].engine.kept_of(PeerId(0)).conn.credit.inward.available();
    assert_eq!(open, Config::default().eager_credit / UNIT + RESERVE);
}

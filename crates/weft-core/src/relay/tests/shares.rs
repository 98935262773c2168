//! The room of the relay, and the shares of peers in it.

use super::*;
use crate::relay::backlog::INJECTED_MAX;

#[test]
fn inject__is_in_vain_at_a_bound_until_there_is_room() {
    let mut side = Side::new(0, &Config { window: 8, ..Config::default() }, &LINKS[..1]);
    let (mut now, mut count) = (Instant(1), 0);
    while side.relay.inject(PEER, &Packet::Nop(Nop), 0, 0) {
        count += 1;
    }
    assert_eq!(count, INJECTED_MAX);
    // Other peers are served, and the rank itself.
    side.send(1);
    for seq in 0..20 {
        let mut sent = 0;
        while side.relay.poll_transmit(now).is_some() {
            sent += 1;
        }
        assert!(sent > 0);
        let room = core::iter::from_fn(|| side.relay.poll_event());
        assert_eq!(room.filter(|e| *e == RelayEvent::Room).count(), usize::from(seq == 0));
        let common = Common { session: SESSION[0], ack: Seq(seq + 8), ..Common::default() };
        let ack = wire::emit(&common, &Packet::Ack(Ack { sack: [0; 4] }));
        side.relay.from_wire(now, 0, ack.as_slice(), CallerRoom::ANY);
        now = now + Duration::from_micros(10);
    }
    assert!(side.relay.inject(PEER, &Packet::Nop(Nop), 0, 0));
}

/// A second peer, which accepts packets.
const OTHER: PeerId = PeerId(5);

/// Makes a packet of the rank: numbered data, or an acknowledgement without a number.
fn of_rank(numbered: bool) -> HeaderBuf {
    let common = Common { session: SESSION[1], ..Common::default() };
    match numbered {
        true => wire::emit(&common, &Packet::Eager(Eager { tag: 1 })),
        false => wire::emit(&common, &Packet::Ack(Ack { sack: [0; 4] })),
    }
}

#[test]
fn relay__a_peer_that_takes_nothing_uses_up_its_own_share() {
    let mut side = Side::new(0, &Config { window: 8, ..Config::default() }, &LINKS[..1]);
    let (now, data) = (Instant(1), of_rank(true));
    let session = wire::session_number(5, 7);
    let given = side.shares.open(OTHER);
    assert!(side.relay.connect(OTHER, (session, given), EndpointId(77), &LINKS[..1]));
    let mut out = [0; 2];
    for _ in 0..2_000 {
        for (at, peer) in [PEER, OTHER].into_iter().enumerate() {
            if side.shares.take(peer, data.as_slice()) {
                side.relay.from_rank(peer, data.as_slice(), 0).unwrap();
            } else {
                side.shares.note_full(peer);
            }
            while let Some(sent) = side.relay.poll_transmit(now) {
                assert_eq!(sent.peer, [PEER, OTHER][at]);
                out[at] += 1;
            }
        }
        // The other acknowledges everything that arrived.
        let common = Common { session, ack: Seq(out[1]), ..Common::default() };
        let ack = wire::emit(&common, &Packet::Ack(Ack { sack: [0; 4] }));
        side.relay.from_wire(now, 0, ack.as_slice(), CallerRoom::ANY);
        side.collect();
    }
    assert_eq!(out, [8, 2_000]);
    let waiting = side.relay.flow(PEER).unwrap().backlog.waiting.len() as u32;
    assert_eq!(waiting, SHARE - 8, "what it was told of is no more than it was given");
}

#[test]
fn relay__what_is_beyond_the_share_is_refused_and_its_payload_free() {
    let mut side = Side::new(0, &Config { window: 8, ..Config::default() }, &LINKS[..1]);
    let data = of_rank(true);
    let hello = side.relay.flow(PEER).unwrap().conn.session.number_in;
    for i in 0..SHARE {
        side.relay.from_rank(PEER, data.as_slice(), i + 1).unwrap();
    }
    for _ in 0..10 {
        let refused = side.relay.from_rank(PEER, data.as_slice(), 9_999);
        assert_eq!(refused, Err(WireError::Field));
    }
    // The number of waiting packets without numbers is bounded too.
    for _ in 0..1_000 {
        side.relay.from_rank(PEER, of_rank(false).as_slice(), 0).unwrap();
        let common = Common { session: hello, ..Common::default() };
        let bye = wire::emit(&common, &Packet::Bye(Bye { reason: reason::CLOSED }));
        side.relay.from_rank(PEER, bye.as_slice(), 0).unwrap();
    }
    assert_eq!(side.relay.kept.len() as u32, SHARE + 1);
    side.relay.disconnect(PEER);
    assert_eq!(side.relay.kept.len(), 0);
    side.collect();
    assert_eq!(side.back, SHARE);
}

#[test]
fn relay__the_rank_learns_now_and_then_of_a_peer_that_is_slow() {
    let cfg = Config { window: 8, peer_timeout_ms: 1_600, ..Config::default() };
    let (mut sides, mut net) = (pair(&cfg), Net::new(5, 0));
    let mut now = Instant(1);
    // Its rank accepts nothing: the other side gets only acknowledgements without news.
    sides[1].room = false;
    (0..40).for_each(|tag| sides[0].send(tag));
    run_for(&mut sides, &mut net, &mut now, 3_200_000_000);
    assert!((3..=32).contains(&sides[0].acks), "{}", sides[0].acks);
    assert_eq!(sides[0].relay.peers(), 1);
}

#[test]
fn shares__what_the_agent_says_is_believed_only_if_it_can_be() {
    let (mut shares, data) = (Shares::default(), of_rank(true));
    shares.open(PEER);
    shares.start_at(PEER, u32::MAX - 100);
    assert_eq!(shares.open(PEER), u32::MAX - 100);
    let send = |shares: &mut Shares| shares.take(PEER, data.as_slice());
    for _ in 0..SHARE {
        assert!(send(&mut shares));
    }
    assert!(!send(&mut shares) && shares.take(PEER, of_rank(false).as_slice()));
    assert!(shares.note_full(PEER) && !shares.note_full(PEER), "said once");
    let first = u32::MAX - 100;
    for none in [first, first.wrapping_add(SHARE + 1), first - 1, first.wrapping_add(1 << 31)] {
        assert!(!shares.on_left(PEER, none), "{none}");
    }
    assert!(!send(&mut shares));
    assert!(shares.on_left(PEER, first.wrapping_add(64)));
    assert!(!shares.on_left(PEER, first.wrapping_add(70)), "it has room already");
    assert_eq!((0..SHARE).filter(|_| send(&mut shares)).count(), 70);
    // A packet that is not handed over does not count.
    shares.give_back(PEER, data.as_slice());
    assert!(send(&mut shares) && !send(&mut shares));
    // A packet to a forgotten peer waits for nothing, and does not count.
    assert!(shares.note_full(PEER) && shares.close(PEER) && !shares.close(PEER));
    assert!((0..1_000).all(|_| send(&mut shares)) && !shares.note_full(PEER));
    shares.give_back(PEER, data.as_slice());
    assert!(!shares.on_left(PEER, first.wrapping_add(SHARE)));
    // After opening again nothing waits, and earlier reports are stale.
    let given = shares.open(PEER);
    assert_eq!(given, first.wrapping_add(SHARE + 70));
    assert!(!shares.on_left(PEER, given.wrapping_sub(10)));
    assert_eq!((0..1_000).filter(|_| send(&mut shares)).count() as u32, SHARE);
    // A peer that was never opened is unknown.
    assert!(!shares.on_left(PeerId(900), 5) && shares.take(PeerId(900), data.as_slice()));
}

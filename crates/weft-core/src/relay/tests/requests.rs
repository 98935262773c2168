//! Probes and requests that the relay answers in a rank's place.

use super::*;

#[test]
fn relay__a_probe_is_answered_though_the_rank_computes() {
    let (mut sides, mut net) = (pair(&Config::default()), Net::new(3, 0));
    let mut now = Instant(1);
    let common = Common { session: SESSION[1], flags: flags::ACKNOW, ..Common::default() };
    let header = wire::emit(&common, &Packet::Nop(Nop));
    sides[0].relay.from_rank(PEER, header.as_slice(), 0).unwrap();
    // The rank of the other side accepts nothing: the caller consumes NOPs.
    while let Some(out) = sides[0].relay.poll_transmit(now) {
        let arrival = sides[1].relay.from_wire(now, 0, out.header.as_slice(), CallerRoom::ANY);
        assert_eq!(arrival, Arrival::Deliver(Some(PEER)));
    }
    run(&mut sides, &mut net, &mut now);
    assert_eq!(sides[0].acks, 1);
}

#[test]
fn relay__answers_for_a_rank_whose_answer_would_wait_behind_its_data() {
    let mut sides = pair(&Config { window: 8, ..Config::default() });
    let mut now = Instant(1_000_000);
    // The first has answered, but the answer was lost, and sent more than is accepted: the second
    // does not know its session number, and acknowledges nothing.
    sides[0].say_hello(true);
    assert!(sides[0].relay.poll_transmit(now).is_some());
    sides[1].relay.flow(PEER).unwrap().conn.session.number_out = 0;
    let (mut net, mut sent) = (Net::new(1, 0), 0);
    for _ in 0..2 {
        while sides[0].try_send(sent) {
            sent += 1;
        }
        run_for(&mut sides, &mut net, &mut now, 50_000_000);
    }
    assert_eq!((sides[1].got.len(), sides[0].back), (8, 0));
    assert!(sides[0].held && sent == u64::from(SHARE), "too few have left to tell of");
    // The second side asks again. The rank of the first would answer, but none of its packets is
    // accepted.
    sides[1].say_hello(false);
    run_for(&mut sides, &mut net, &mut now, 50_000_000);
    assert_eq!(sides[1].got.len() as u64, sent);
    sides[0].collect();
    assert_eq!(u64::from(sides[0].back), sent);
    // The relay does not answer for a rank that has sent nothing: that rank has not answered yet.
    assert!(sides[1].relay.flow(PEER).unwrap().answer().is_none());
}

/// Makes a fetch-and-add of a peer with this session number.
fn atomic(session: u32, seq: u32) -> HeaderBuf {
    let add = crate::wire::Atomic { code: wire::code::FETCH_ADD, ..Default::default() };
    let common = Common { session, seq: Seq(seq), imm: seq, ..Common::default() };
    wire::emit(&common, &Packet::Atomic(add))
}

/// Handles a request as a rank's agent does: true if it is answered.
fn ask(relay: &mut Relay, now: Instant, peer: PeerId, session: u32, seq: u32) -> bool {
    let arrival = relay.from_wire(now, 0, atomic(session, seq).as_slice(), CallerRoom::ANY);
    let taken = arrival == Arrival::Deliver(Some(peer));
    if taken {
        relay.reply(peer, seq, &Reply { value: seq.into(), status: wire::status::OK });
    }
    taken
}

#[test]
fn relay__a_request_that_overtakes_the_hello_is_answered_when_that_has_come() {
    let now = Instant(1);
    let mut relay = Relay::new(EndpointId(1), Config::default());
    assert!(relay.connect(PEER, (SESSION[0], 0), EndpointId(2), &LINKS[..1]));
    assert!(ask(&mut relay, now, PEER, SESSION[0], 0));
    let grant = Packet::Grant(wire::Grant::default());
    assert!(!relay.inject(PEER, &grant, 0, 0), "to whom?");
    assert!(relay.poll_transmit(now).is_none() && relay.poll_event().is_none());
    relay.handle_timeout(now + Duration::from_secs(1));
    assert!(relay.poll_transmit(now).is_none(), "nobody knows how the peer numbers this session");
    let hello = Hello {
        src_eid: 2,
        dst_eid: 1,
        session_offer: SESSION[1],
        mtu: 1500,
        version_min: 1,
        version_max: 1,
        credit: 0,
    };
    let common = Common { session: SESSION[0], flags: flags::REPLY, ..Common::default() };
    let header = wire::emit(&common, &Packet::Hello(hello));
    assert_eq!(
        relay.from_wire(now, 0, header.as_slice(), CallerRoom::ANY),
        Arrival::Deliver(Some(PEER))
    );
    assert_eq!(relay.poll_event(), Some(RelayEvent::Room), "the agent tries again");
    assert!(relay.inject(PEER, &grant, 0, 0));
    for kind in [PacketType::Reply, PacketType::Grant] {
        let out = relay.poll_transmit(now).unwrap();
        let (common, packet, _) = wire::parse(out.header.as_slice()).unwrap();
        assert_eq!((common.session, packet.packet_type()), (SESSION[1], kind));
    }
}

#[test]
fn relay__a_peer_that_takes_no_answers_is_not_served_alone_and_no_request_is_lost() {
    const PEERS: u32 = 300;
    let mut relay = Relay::new(EndpointId(1), Config { window: 64, ..Config::default() });
    let mut now = Instant(1);
    let session = |peer| wire::session_number(peer, 7);
    for peer in 0..=PEERS {
        let endpoint = EndpointId(100 + u64::from(peer));
        assert!(relay.connect(PeerId(peer), (session(peer), 0), endpoint, &LINKS[..1]));
        relay.flow(PeerId(peer)).unwrap().on_hello(now, 0, true, 9);
    }
    // All but the last accept nothing, and ask until their requests are refused.
    let most = ANSWERS_MAX + 64;
    let mut asked = [0; PEERS as usize];
    for _ in 0..2 * ANSWERS_MAX {
        for (peer, next) in (0..).zip(&mut asked) {
            *next += u32::from(ask(&mut relay, now, PeerId(peer), session(peer), *next));
        }
        while relay.poll_transmit(now).is_some() {}
    }
    assert!(asked.iter().all(|&n| (ANSWERS_MAX..=most).contains(&n)), "{asked:?}");
    // Answers do not count against the rank: there are no more packets than the windows hold.
    assert!(relay.kept_bytes() <= (PEERS * 64) as usize * size_of::<Kept>());
    // A peer that accepts answers is served.
    for n in 0..10_000 {
        assert!(ask(&mut relay, now, PeerId(PEERS), session(PEERS), n));
        while relay.poll_transmit(now).is_some() {}
        let common = Common { session: session(PEERS), ack: Seq(n + 1), ..Common::default() };
        let ack = wire::emit(&common, &Packet::Ack(Ack { sack: [0; 4] }));
        relay.from_wire(now, 0, ack.as_slice(), CallerRoom::ANY);
    }
    // One of the others accepts answers again, and repeats refused requests: each is answered once.
    let (mut next, mut answers) = (asked[7], 0);
    let end = 3 * ANSWERS_MAX;
    while answers < end {
        while next < end && ask(&mut relay, now, PeerId(7), session(7), next) {
            next += 1;
        }
        now = now + Duration::from_millis(5);
        relay.handle_timeout(now);
        while let Some(out) = relay.poll_transmit(now).filter(|out| out.peer == PeerId(7)) {
            let (common, packet, _) = wire::parse(out.header.as_slice()).unwrap();
            if common.seq == Seq(answers) && matches!(packet, Packet::Reply(_)) {
                assert_eq!(common.imm, answers);
                answers += 1;
            }
        }
        let common = Common { session: session(7), ack: Seq(answers), ..Common::default() };
        let ack = wire::emit(&common, &Packet::Ack(Ack { sack: [0; 4] }));
        relay.from_wire(now, 0, ack.as_slice(), CallerRoom::ANY);
    }
}

#[test]
fn relay__a_question_for_another_rank_changes_nothing() {
    let (mut sides, mut net) = (pair(&Config::default()), Net::new(3, 0));
    let mut now = Instant(1);
    let hello = Hello {
        src_eid: 1,
        dst_eid: 99,
        session_offer: wire::session_number(3, 1_000),
        mtu: 1500,
        version_min: 1,
        version_max: 1,
        credit: 0,
    };
    let header = wire::emit(&Common::default(), &Packet::Hello(hello));
    let arrival = sides[1].relay.from_wire(now, 0, header.as_slice(), CallerRoom::ANY);
    assert_eq!((arrival, sides[1].relay.has_output()), (Arrival::Drop, false));
    (0..100).for_each(|tag| sides[1].send(tag));
    run(&mut sides, &mut net, &mut now);
    assert_eq!(sides[0].got, (0..100).collect::<Vec<_>>());
}

//! Last words, and peers that are given up.

use super::*;

#[test]
fn relay__the_last_word_comes_after_everything_else() {
    for seed in 1..20 {
        let cfg = Config { window: 8, ..Config::default() };
        let (mut sides, mut net) = (pair(&cfg), Net::new(seed, 20));
        let mut now = Instant(1);
        (0..50).for_each(|tag| sides[0].send(tag));
        sides[0].relay.rank_gone();
        net.loss = 20;
        run(&mut sides, &mut net, &mut now);
        assert_eq!(sides[1].got, (0..50).collect::<Vec<_>>(), "seed {seed}");
        assert!(sides[0].relay.is_quiet());
        assert!((1..=8).contains(&sides[1].byes), "said four times; the network may repeat it");
    }
}

#[test]
fn relay__the_last_packet_is_not_repeated_to_a_peer_that_has_ended_too() {
    let (mut sides, mut net) = (pair(&Config::default()), Net::new(1, 0));
    let mut now = Instant(1);
    (0..3).for_each(|tag| sides[0].send(tag));
    run(&mut sides, &mut net, &mut now);
    sides[0].relay.rank_gone();
    assert!(!sides[0].relay.sent_byes());
    let said = sides[0].relay.poll_transmit(now);
    assert!(said.is_some_and(|out| out.header.as_slice()[1] == PacketType::Bye as u8));
    assert!(sides[0].relay.poll_transmit(now).is_none());
    assert!(!sides[0].relay.is_quiet() && sides[0].relay.sent_byes());
    let common = Common { session: SESSION[0], ..Common::default() };
    let bye = wire::emit(&common, &Packet::Bye(Bye { reason: reason::CLOSED }));
    sides[0].relay.from_wire(now, 0, bye.as_slice(), CallerRoom::ANY);
    assert!(sides[0].relay.is_quiet());
}

#[test]
fn relay__the_last_word_waits_without_a_timer_for_what_came_behind_it() {
    let (mut sides, mut net) = (pair(&Config::default()), Net::new(1, 0));
    let mut now = Instant(1);
    sides[0].send(0);
    run(&mut sides, &mut net, &mut now);
    let relay = &mut sides[0].relay;
    relay.rank_gone();
    assert!(relay.poll_transmit(now).is_some());
    // The answer of its counters; no peer accepts it.
    assert!(relay.inject(PEER, &Packet::Nop(Nop), 0, 0));
    let end = now + Duration::from_millis(500);
    let mut times = 0;
    while now < end {
        while relay.poll_transmit(now).is_some() {}
        now = relay.next_timeout().unwrap_or(end);
        relay.handle_timeout(now);
        times += 1;
    }
    assert!(times < 100, "{times} times in half a second");
}

#[test]
fn relay__a_peer_that_is_silent_is_given_up_in_time_though_the_rank_goes_on_sending() {
    let cfg = Config { peer_timeout_ms: 3000, ..Config::default() };
    let (mut sides, mut now) = (pair(&cfg), Instant(1));
    for tag in 0..7 {
        sides[0].send(tag);
        for _ in 0..50 {
            now = now + Duration::from_millis(10);
            sides[0].relay.handle_timeout(now);
            while sides[0].relay.poll_transmit(now).is_some() {}
        }
    }
    let lost = sides[0].relay.events.iter().any(|e| matches!(e, RelayEvent::Lost(PEER, _)));
    assert!(lost, "nothing was heard for 3.5 s");
}

#[test]
fn relay__a_silent_peer_is_given_up_and_named() {
    let cfg = Config { peer_timeout_ms: 2_000, ..Config::default() };
    let (mut sides, mut net) = (pair(&cfg), Net::new(1, 0));
    let mut now = Instant(1);
    net.dead_link = Some(0);
    (0..3).for_each(|tag| sides[0].send(tag));
    run(&mut sides, &mut net, &mut now);
    let Some(RelayEvent::Lost(PEER, after)) = sides[0].relay.poll_event() else {
        panic!("no event")
    };
    assert!((2_000..4_000).contains(&after), "{after}");
    assert_eq!(sides[0].relay.peers(), 0);
    assert_eq!(sides[0].back, 3);
}

/// Runs both relays for so long, a millisecond at a time; loses packets for which `drops` is true.
fn drive(sides: &mut [Side; 2], now: &mut Instant, ms: u32, drops: impl Fn(&HeaderBuf) -> bool) {
    for _ in 0..ms {
        *now = *now + Duration::from_millis(1);
        for from in [0, 1] {
            sides[from].relay.handle_timeout(*now);
            while let Some(out) = sides[from].relay.poll_transmit(*now) {
                if !drops(&out.header) {
                    sides[1 - from].arrive(*now, 0, &out.header);
                }
            }
        }
    }
}

#[test]
fn relay__a_peer_that_is_heard_is_given_up_when_packets_do_not_get_through() {
    let cfg = Config { peer_timeout_ms: 2_000, ..Config::default() };
    let (mut sides, mut now) = (pair(&cfg), Instant(1));
    let eager = |header: &HeaderBuf| header.as_slice()[1] == PacketType::Eager as u8;
    sides[0].send(7);
    for _ in 0..30 {
        // The peer is heard, but its packets acknowledge nothing of the lost one.
        let nop = wire::emit(
            &Common { session: SESSION[0], ..Common::default() },
            &Packet::Ack(Ack::default()),
        );
        sides[0].arrive(now, 0, &nop);
        drive(&mut sides, &mut now, 100, eager);
    }
    let event = sides[0].relay.events.iter().find(|e| matches!(e, RelayEvent::Stuck(..)));
    let Some(&RelayEvent::Stuck(PEER, after, PacketType::Eager, 1)) = event else {
        panic!("{event:?}")
    };
    assert!((2_000..2_200).contains(&after), "{after}");
}

#[test]
fn relay__a_packet_that_waits_for_room_at_the_other_agent_is_no_lack_of_progress() {
    let cfg = Config { peer_timeout_ms: 2_000, ..Config::default() };
    let (mut sides, mut now) = (pair(&cfg), Instant(1));
    sides[1].room = false;
    (0..3).for_each(|tag| sides[0].send(tag));
    drive(&mut sides, &mut now, 10_000, |_| false);
    let lost = |e: &RelayEvent| matches!(e, RelayEvent::Stuck(..) | RelayEvent::Lost(..));
    assert!(!sides[0].relay.events.iter().any(lost));
    sides[1].room = true;
    drive(&mut sides, &mut now, 2_000, |_| false);
    assert_eq!(sides[1].got, [0, 1, 2]);
}

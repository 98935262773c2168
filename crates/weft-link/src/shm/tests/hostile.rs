//! Peers that lie, and callers without end.

use super::*;

fn word(tag: u32, header: u32, payload: u32) -> u64 {
    u64::from(header | payload << 8) << 32 | u64::from(tag)
}

#[test]
fn recv__a_lying_slot_ends_the_connection() {
    let mtu = ShmConfig::new(EndpointId(1)).mtu;
    for (bad, what) in [
        (word(5, 32, 0), "slot tag"),
        (word(u32::MAX, 32, 0), "slot tag"),
        (word(2, 23, 0), "header length"),
        (word(2, 0, 0), "header length"),
        (word(2, 129, 0), "header length"),
        (word(2, 32, mtu - 31), "packet length"),
        (word(2, 255, 0xff_ffff), "header length"),
        (word(2, 24, 0xff_ffff), "packet length"),
    ] {
        let (mut a, mut b) = pair();
        a.send(&[frame(&header(1), b"good")]);
        use ring::Area;
        a.peers[0].tx.area.slot(1).word.store(bad, Ordering::Release);
        assert_eq!(numbers(&drain(&mut b)), [1]);
        let events = events(&mut b);
        let [LinkEvent::Warning(text), LinkEvent::PeerFailed(PEER, PeerFailure::Protocol)] =
            &events[..]
        else {
            panic!("{events:?}")
        };
        assert!(text.contains(what), "{text}");
        assert_eq!(counter(&b, "shm_lies"), 1);
        drain(&mut a);
        assert_eq!(events_gone(&mut a), 1, "the liar is told by the end of the socket");
    }
}

#[test]
fn send__lying_credits_end_the_connection() {
    use ring::Area;
    for (bad, lies) in [(u64::MAX, 1), (300, 1), (u64::from(u32::MAX), 1), (1, 0), (1 << 32, 0)] {
        let (mut a, b) = pair();
        // Stored before the packets exist; the last two values become true and do no harm.
        b.peers[0].rx.area.consumer().credits.store(bad, Ordering::Release);
        for n in 0..600 {
            a.send(&[frame(&header(n), &[0; 3000])]);
        }
        drain(&mut a);
        let failed = LinkEvent::PeerFailed(PEER, PeerFailure::Protocol);
        assert_eq!(events(&mut a).iter().filter(|&e| *e == failed).count(), lies, "{bad:#x}");
        assert_eq!(counter(&a, "shm_lies"), lies as u64);
    }
}

#[test]
fn recv__random_garbage_anywhere_never_panics() {
    use ring::Area;
    for seed in 0..300 {
        let mut random = Random(seed);
        let small = |id| ShmConfig { slots: 8, data_bytes: 4096, mtu: 1024, ..config(id) };
        let (mut a, mut b) = pair_of(small(1), small(2));
        for _ in 0..60 {
            let payload = pattern(1, random.below(900));
            a.send(&[frame(&header(0), &payload)]);
            b.send(&[frame(&header(0), &payload)]);
            let value = if random.below(2) == 0 { random.next() } else { random.next() & 0xf };
            let at = random.below(8) as u32;
            if let (0, Some(p)) = (random.below(8), a.peers.first()) {
                match random.below(5) {
                    0 => p.tx.area.slot(at).word.store(value, Ordering::Release),
                    1 => p.tx.area.slot(at).body[random.below(7)].store(value, Ordering::Relaxed),
                    2 => p.rx.area.consumer().credits.store(value, Ordering::Release),
                    3 => p.rx.area.consumer().sleeping.store(value as u32, Ordering::Release),
                    _ => p.tx.area.producer().blocked.store(value as u32, Ordering::Release),
                }
            }
            drain(&mut a);
            drain(&mut b);
            b.prepare_wait();
            b.finish_wait(true);
        }
    }
}

#[test]
fn service__refuses_nonsense_on_the_socket() {
    use std::os::fd::{AsFd, OwnedFd};
    let mut link = ShmLink::new(config(1)).unwrap();
    let sizes = link.config.sizes();
    let offer = Hello { from: EndpointId(3), ..link.hello(Kind::Offer, EndpointId(1), sizes) };
    let sealed = sys::map::create(sizes.segment_len()).unwrap();
    let short = sys::map::create(4096).unwrap();
    let loose: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
    let wrong_target = Hello { to: EndpointId(9), ..offer }.encode();
    let answer = Hello { kind: Kind::Answer, ..offer }.encode();
    let good = offer.encode();
    let cases: [(&[u8], Option<&OwnedFd>); 8] = [
        (b"?", None),
        (&[1], None),
        (&[0; 200], None),
        (&good, None),
        (&good, Some(&short)),
        (&good, Some(&loose)),
        (&wrong_target, Some(&sealed)),
        (&answer, Some(&sealed)),
    ];
    for (n, (bytes, fd)) in cases.into_iter().enumerate() {
        let socket = dial(&link);
        sys::socket::send(&socket, bytes, fd.map(|f| f.as_fd())).unwrap();
        link.service();
        assert!(sys::socket::hung_up(&socket), "case {n}");
        assert_eq!((link.peers.len(), counter(&link, "shm_refused")), (0, n as u64 + 1));
    }
    let socket = dial(&link);
    sys::socket::send(&socket, &good, Some(sealed.as_fd())).unwrap();
    link.service();
    assert_eq!(link.peers.len(), 1);
    let again = dial(&link);
    sys::socket::send(&again, &good, Some(sealed.as_fd())).unwrap();
    link.service();
    assert!(sys::socket::hung_up(&again), "an endpoint connects once");
}

#[test]
fn service__silent_connections_are_bounded() {
    let mut link = ShmLink::new(config(1)).unwrap();
    let silent: Vec<_> = (0..200).map(|_| dial(&link)).collect();
    link.service();
    let closed = silent.iter().filter(|s| sys::socket::hung_up(s)).count();
    assert_eq!(closed, 200 - 64);
}

/// Returns a hub, and ranks of these numbers that call it.
fn hub_of(numbers: std::ops::Range<u64>) -> (ShmLink, Vec<ShmLink>) {
    let name = format!("@weft-hub-{:016x}", crate::random_u64());
    let hub = ShmLink::hub(config(100), &name, 64).unwrap();
    let rank = |n| {
        let mut rank = ShmLink::new(config(n)).unwrap();
        rank.connect_agent(&name, EndpointId(100), PEER).unwrap();
        rank
    };
    (hub, numbers.map(rank).collect())
}

#[test]
fn hub__a_rank_with_false_counters_is_ended_alone_and_no_rank_is_served_before_admission() {
    use ring::Area;
    let (mut hub, mut ranks) = hub_of(1..3);
    for rank in &mut ranks {
        assert_eq!(rank.send(&[frame(&header(1), b"early")]), 1);
    }
    hub.poll_sockets();
    assert!(drain(&mut hub).is_empty(), "nobody is admitted");
    let callers = hub.callers();
    let mut who: Vec<_> = callers.iter().map(|c| (c.endpoint.0, c.user)).collect();
    who.sort_unstable();
    let user = sys::misc::effective_user();
    assert_eq!(who, [(1, user), (2, user)]);
    for (n, endpoint) in [(0, 1), (1, 2)] {
        assert!(hub.admit_caller(EndpointId(endpoint), PeerId(n)));
        assert!(!hub.admit_caller(EndpointId(endpoint), PeerId(9)));
    }
    assert!(!hub.has_callers());
    assert_eq!(drain(&mut hub).len(), 2);
    ranks[0].peers[0].tx.area.slot(1).word.store(u64::MAX, Ordering::Release);
    assert!(drain(&mut hub).is_empty());
    let events = events(&mut hub);
    let [LinkEvent::Warning(_), LinkEvent::PeerFailed(PEER, PeerFailure::Protocol)] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(ranks[1].send(&[frame(&header(2), b"on")]), 1);
    assert_eq!(drain(&mut hub).len(), 1, "the other one is served on");
    hub.mute(PeerId(1), true);
    assert_eq!(ranks[1].send(&[frame(&header(3), b"wait")]), 1);
    assert!(drain(&mut hub).is_empty());
    hub.mute(PeerId(1), false);
    assert_eq!(drain(&mut hub).len(), 1);
}

#[test]
fn hub__callers_without_end_are_met_some_at_a_time() {
    let (mut hub, ranks) = hub_of(1..30);
    hub.service();
    assert!(!hub.has_callers(), "not while it polls");
    let mut met = 0;
    while met < ranks.len() {
        hub.poll_sockets();
        let now = hub.callers().len();
        assert!(now > met && now <= met + 8, "{met} to {now}");
        met = now;
    }
}

#[test]
fn hub__rings_of_other_sizes_than_its_own_are_refused() {
    let name = format!("@weft-hub-{:016x}", crate::random_u64());
    let mut hub = ShmLink::hub(config(100), &name, 8).unwrap();
    let own = config(1);
    let others = [
        ShmConfig { data_bytes: 2 * own.data_bytes, ..own.clone() },
        ShmConfig { slots: own.slots / 2, ..own.clone() },
        ShmConfig { mtu: 512, ..own },
    ];
    for (n, other) in (1..).zip(others) {
        let mut rank = ShmLink::new(other).unwrap();
        rank.connect_agent(&name, EndpointId(100), PEER).unwrap();
        hub.poll_sockets();
        assert!(!hub.has_callers());
        assert_eq!(counter(&hub, "shm_refused"), n);
    }
}

//! Delivery of packets, and times of acknowledgements.

use super::*;
use alloc::collections::BTreeSet;

#[test]
fn recv_window__agrees_with_a_set_of_numbers() {
    for seed in 1..60 {
        let mut rng = Rng::new(seed);
        let limit = 1 + rng.below(1300) as u32;
        let initial = Seq(u32::MAX - rng.below(1_000) as u32);
        let mut window = RecvWindow::new(Reliability::Selective, initial, limit);
        let limit = limit.min(MAX_SELECTIVE);
        // The oracle counts from the first packet, without wrapping.
        let (mut next, mut ahead) = (0u64, BTreeSet::new());
        for _ in 0..3_000 {
            let n = (next + rng.below(u64::from(limit) + 20)).saturating_sub(8);
            let seq = initial.plus(n as u32);
            let verdict = window.on_packet(seq);
            if n < next || ahead.contains(&n) {
                assert_eq!(verdict, Verdict::Duplicate);
            } else if n >= next + u64::from(limit) {
                assert_eq!(verdict, Verdict::Outside);
            } else if n > next {
                assert_eq!(verdict, Verdict::Hold);
                ahead.insert(n);
            } else {
                assert_eq!(verdict, Verdict::Deliver);
                next += 1;
                while ahead.remove(&next) {
                    assert_eq!(window.next_held(), Some(initial.plus(next as u32)));
                    next += 1;
                }
                assert_eq!(window.next_held(), None);
            }
            assert_eq!(window.next_expected(), initial.plus(next as u32));
            assert_eq!(window.has_gap(), !ahead.is_empty());
            let map: Vec<u64> = window.sack().iter().map(|i| next + 1 + u64::from(i)).collect();
            let described = ahead.range(..next + 1 + u64::from(SACK_BITS));
            assert!(map.iter().eq(described), "{map:?} {ahead:?}");
        }
    }
}

#[test]
fn recv_window__go_back_n_drops_ahead_and_asks_for_a_nack() {
    let mut window = RecvWindow::new(Reliability::GoBackN, Seq(u32::MAX), 8);
    assert_eq!(window.on_packet(Seq(1)), Verdict::Gap);
    assert!(window.has_gap() && window.ack_due(at(0)));
    window.ack_piggybacked();
    assert!(window.has_gap(), "a piggybacked acknowledgement reports no gap");
    window.ack_sent();
    assert!(!window.has_gap() && !window.ack_due(at(0)));
    assert_eq!(window.on_packet(Seq(u32::MAX)), Verdict::Deliver);
    assert_eq!(window.on_packet(Seq(u32::MAX)), Verdict::Duplicate);
    assert_eq!(window.on_packet(Seq(8)), Verdict::Outside);
    assert_eq!(window.next_expected(), Seq(0));
    assert!(window.sack().is_empty());
}

#[test]
fn recv_window__none_delivers_everything_and_never_acknowledges() {
    let mut window = RecvWindow::new(Reliability::None, Seq(0), 8);
    for seq in [0, 1, 2, 900, 5] {
        assert_eq!(window.on_packet(Seq(seq)), Verdict::Deliver);
        window.note_received(at(seq.into()), true);
    }
    assert_eq!((window.next_expected(), window.ack_deadline()), (Seq(6), None));
}

#[test]
fn ack_due__after_half_a_window_or_every_n_or_the_delay() {
    for (every, peer_window, expect) in [(16, 100, 16), (100, 100, 20), (100, 14, 7), (9, 1, 1)] {
        let mut window = RecvWindow::new(Reliability::Selective, Seq(0), 40);
        window.set_ack_policy(AckPolicy { every, delay: us(50), peer_window });
        let mut count = 0;
        while !window.ack_due(at(10)) {
            window.on_packet(Seq(count));
            window.note_received(at(10), false);
            count += 1;
        }
        assert_eq!(count, expect);
        window.ack_sent();
        assert_eq!(window.ack_deadline(), None);
    }
    let mut window = RecvWindow::new(Reliability::Selective, Seq(0), 40);
    window.set_ack_policy(AckPolicy { every: 9, delay: us(50), peer_window: 40 });
    window.note_received(at(10), false);
    window.note_received(at(30), false);
    assert_eq!(window.ack_deadline(), Some(at(60)));
    assert!(!window.ack_due(at(59)) && window.ack_due(at(60)));
    window.ack_piggybacked();
    assert!(!window.ack_due(at(99)));
    window.note_received(at(99), true);
    assert!(window.ack_due(at(99)));
}

#[test]
fn ack_due__at_once_for_disorder_and_for_the_end_of_a_gap() {
    let mut window = RecvWindow::new(Reliability::Selective, Seq(0), 40);
    assert_eq!(window.on_packet(Seq(1)), Verdict::Hold);
    assert!(window.ack_due(at(0)));
    window.ack_sent();
    assert!(!window.ack_due(at(0)), "once a batch");
    assert_eq!(window.on_packet(Seq(0)), Verdict::Deliver);
    assert_eq!(window.next_held(), Some(Seq(1)));
    assert!(window.ack_due(at(0)));
    window.ack_sent();
    assert_eq!(window.on_packet(Seq(0)), Verdict::Duplicate);
    assert!(window.ack_due(at(0)));
}

#[test]
fn recv_window__hostile_numbers_never_panic() {
    let modes = [Reliability::None, Reliability::GoBackN, Reliability::Selective];
    let mut rng = Rng::new(5);
    for mode in modes {
        let mut window = RecvWindow::new(mode, Seq(rng.next() as u32), u32::MAX);
        for _ in 0..20_000 {
            let near = window.next_expected().plus(rng.below(300) as u32);
            let seq = if rng.percent(50) { near } else { Seq(rng.next() as u32) };
            window.on_packet(seq);
            while window.next_held().is_some() {}
            let map = window.sack();
            assert!(mode == Reliability::Selective || map.is_empty());
        }
    }
}

#[test]
fn hold_run__only_what_is_behind_a_new_gap_is_acknowledged_at_once() {
    let mut window = RecvWindow::new(Reliability::Selective, Seq(0), 512);
    let delay = Duration::from_micros(100);
    window.set_ack_policy(AckPolicy { every: 64, delay, peer_window: 512 });
    let now = Instant(1000);
    let mut hold = |seq: u32, count: u32, asked: bool| {
        assert!(window.can_hold(Seq(seq), count));
        window.hold_run(now, Seq(seq), count, asked);
        let due = window.ack_due(now);
        if due {
            window.ack_sent();
        }
        due
    };
    assert!(hold(5, 10, false), "the first gap");
    assert!(!hold(15, 10, false), "goes on from what is held");
    assert!(hold(25, 10, true), "the sender asks");
    assert!(!hold(35, 10, false));
    assert!(hold(50, 10, false), "another gap");
    assert!(hold(60, 64, false), "as many as are due anyway");
    assert!(!hold(124, 10, false));
    assert!(window.ack_due(now + delay), "never later than the delay");
}

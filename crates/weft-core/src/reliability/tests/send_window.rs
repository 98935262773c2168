//! Acknowledgement, loss detection and retransmission.

use super::*;
use alloc::collections::BTreeSet;

#[test]
fn on_ack__packets_beyond_the_map_are_not_judged() {
    let mut window = sent(Reliability::Selective, 1000);
    // 0 and 300 are lost; the map ends at 256.
    let first: Vec<u32> = (0..256).collect();
    let out = window.on_ack(at(10), Seq(0), Some(&sack(&first)), false, &mut |_, _| ());
    assert_eq!((out.newly_acked, out.lost), (256, 1));
    assert_eq!(resent(&mut window, at(10)), [0]);
    // The retransmission fills the first gap: packets after 556 have arrived, but are not reported.
    let out = window.on_ack(at(25), Seq(300), Some(&sack(&first)), false, &mut |_, _| ());
    assert_eq!(out.lost, 1);
    assert_eq!(resent(&mut window, at(25)), [300]);
    let out = window.on_ack(at(40), Seq(1000), None, false, &mut |_, _| ());
    assert_eq!(out.lost, 0);
    assert!(window.is_empty());
}

#[test]
fn on_ack__cumulative_returns_items_in_order() {
    let mut window = sent(Reliability::GoBackN, 5);
    let mut acked = Vec::new();
    let out = window.on_ack(at(30), Seq(3), None, false, &mut |i, _| acked.push(i));
    assert_eq!(acked, [0, 1, 2]);
    assert_eq!((out.newly_acked, out.rtt), (3, Some(us(30))));
    assert_eq!((window.in_flight(), window.next_seq()), (2, Seq(5)));
}

#[test]
fn on_ack__ahead_is_invalid_and_behind_is_stale() {
    let mut window = sent(Reliability::Selective, 4);
    let mut none = |_, _| panic!("nothing was acknowledged");
    assert!(window.on_ack(at(1), Seq(5), None, true, &mut none).invalid);
    assert!(window.on_ack(at(1), Seq(0x7fff_ffff), None, true, &mut none).invalid);
    let out = window.on_ack(at(1), Seq(u32::MAX), Some(&sack(&[0, 1])), true, &mut none);
    assert!(out.stale && !out.invalid);
    assert_eq!(window.in_flight(), 4);
}

#[test]
fn on_ack__sack_of_packets_never_sent_is_invalid() {
    let mut window = sent(Reliability::Selective, 3);
    let mut acked = Vec::new();
    let out =
        window.on_ack(at(9), Seq(0), Some(&sack(&[1, 2, 255])), false, &mut |i, _| acked.push(i));
    assert!(out.invalid);
    assert_eq!(acked, [2]);
}

#[test]
fn on_ack__three_overtakings_make_a_loss_and_two_do_not() {
    let mut window = sent(Reliability::Selective, 6);
    let mut ignore = |_, _| ();
    assert_eq!(window.on_ack(at(10), Seq(1), Some(&sack(&[0, 1])), false, &mut ignore).lost, 0);
    assert_eq!(window.on_ack(at(11), Seq(1), Some(&sack(&[0, 1, 2])), false, &mut ignore).lost, 1);
    assert_eq!(resent(&mut window, at(11)), [1]);
    let again = window.on_ack(at(12), Seq(1), Some(&sack(&[0, 1, 2, 3])), false, &mut ignore);
    assert_eq!(again.lost, 0, "at most one fast retransmission a round trip");
}

#[test]
fn on_ack__few_overtakings_long_ago_make_a_loss() {
    let mut window = SendWindow::new(Reliability::Selective, 64, Seq(0));
    window.push(at(0), 0);
    window.on_ack(at(10), Seq(1), None, false, &mut |_, _| ());
    for i in 1..3 {
        window.push(at(20), i);
    }
    let map = sack(&[0]);
    assert_eq!(window.on_ack(at(30), Seq(1), Some(&map), false, &mut |_, _| ()).lost, 0);
    assert_eq!(window.on_ack(at(32), Seq(1), Some(&map), false, &mut |_, _| ()).lost, 1);
}

#[test]
fn on_ack__lost_retransmission_is_found_from_later_packets() {
    let mut window = sent(Reliability::Selective, 5);
    let mut ignore = |_, _| ();
    window.on_ack(at(10), Seq(0), Some(&sack(&[0, 1, 2, 3])), false, &mut ignore);
    assert_eq!(resent(&mut window, at(10)), [0]);
    for i in 5..9 {
        window.push(at(11), i);
    }
    let map = sack(&[0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(window.on_ack(at(21), Seq(0), Some(&map), false, &mut ignore).lost, 1);
    assert_eq!(resent(&mut window, at(21)), [0]);
}

#[test]
fn on_ack__no_sample_from_retransmitted_packets() {
    let mut window = sent(Reliability::Selective, 3);
    assert!(window.on_timeout(at(100), us(100)));
    assert_eq!(resent(&mut window, at(100)), [0, 2]);
    window.push(at(101), 3);
    assert_eq!(window.on_ack(at(120), Seq(1), None, false, &mut |_, _| ()).rtt, None);
    assert_eq!(window.on_ack(at(121), Seq(4), None, false, &mut |_, _| ()).rtt, None);
    window.push(at(130), 4);
    assert_eq!(window.on_ack(at(150), Seq(5), None, false, &mut |_, _| ()).rtt, Some(us(20)));
}

#[test]
fn on_ack__spurious_retransmission_raises_the_threshold() {
    let mut window = sent(Reliability::Selective, 1);
    let mut ignore = |_, _| ();
    window.on_ack(at(10), Seq(1), None, false, &mut ignore);
    for i in 1..6 {
        window.push(at(20), i);
    }
    window.on_ack(at(30), Seq(1), Some(&sack(&[0, 1, 2])), false, &mut ignore);
    assert_eq!(resent(&mut window, at(30)), [1]);
    assert_eq!(window.on_ack(at(31), Seq(6), None, false, &mut ignore).rtt, None);
    for i in 6..16 {
        window.push(at(40), i);
    }
    let five = sack(&[0, 1, 2, 3, 4]);
    assert_eq!(window.on_ack(at(50), Seq(6), Some(&five), false, &mut ignore).lost, 0);
    let six = sack(&[0, 1, 2, 3, 4, 5]);
    assert_eq!(window.on_ack(at(50), Seq(6), Some(&six), false, &mut ignore).lost, 1);
}

#[test]
fn on_ack__nack_goes_back_once_per_half_round_trip() {
    let mut window = sent(Reliability::GoBackN, 6);
    let mut ignore = |_, _| ();
    let out = window.on_ack(at(20), Seq(2), None, true, &mut ignore);
    assert_eq!((out.newly_acked, out.lost), (2, 4));
    assert!(!window.can_send());
    assert_eq!(window.oldest_sent(), None);
    assert_eq!(resent(&mut window, at(20)), [2, 3, 4, 5]);
    assert_eq!(window.on_ack(at(25), Seq(2), None, true, &mut ignore).lost, 0);
    assert_eq!(window.on_ack(at(40), Seq(2), None, true, &mut ignore).lost, 4);
}

#[test]
fn on_ack__a_selective_sender_goes_back_for_a_receiver_that_drops() {
    let mut window = sent(Reliability::Selective, 6);
    let mut ignore = |_, _| ();
    assert_eq!(window.on_ack(at(20), Seq(2), Some(&sack(&[])), true, &mut ignore).lost, 4);
    assert!(!window.can_send(), "it would be dropped");
    assert_eq!(resent(&mut window, at(20)), [2, 3, 4, 5]);
    assert!(window.on_timeout(at(200), us(100)));
    assert_eq!(resent(&mut window, at(200)), [2, 3, 4, 5]);
    // A NACK of a receiver that has reported held packets does not change the mode.
    let mut window = sent(Reliability::Selective, 6);
    window.on_ack(at(10), Seq(1), Some(&sack(&[3])), false, &mut ignore);
    window.on_ack(at(20), Seq(1), None, true, &mut ignore);
    assert!(window.can_send());
}

#[test]
fn on_ack__a_sender_that_goes_back_does_so_for_a_receiver_that_holds() {
    let mut window = sent(Reliability::GoBackN, 6);
    let map = sack(&[0, 1]);
    assert_eq!(window.on_ack(at(20), Seq(1), Some(&map), false, &mut |_, _| ()).lost, 5);
}

#[test]
fn on_ack__nack_without_an_estimate_goes_back_once_per_burst() {
    let mut window = sent(Reliability::GoBackN, 6);
    let mut ignore = |_, _| ();
    assert_eq!(window.on_ack(at(20), Seq(0), None, true, &mut ignore).lost, 6);
    resent(&mut window, at(20));
    assert_eq!(window.on_ack(at(21), Seq(0), None, true, &mut ignore).lost, 0);
}

#[test]
fn on_ack__nack_goes_back_although_an_acknowledgement_came_late() {
    let mut window = SendWindow::new(Reliability::GoBackN, 64, Seq(0));
    let mut ignore = |_, _| ();
    // The acknowledgement of the first was lost; one half a second later repeats it.
    window.push(at(0), 0);
    assert!(window.on_ack(at(500_000), Seq(1), None, false, &mut ignore).rtt.is_some());
    for i in 1..6 {
        window.push(at(500_010), i);
    }
    assert!(window.on_timeout(at(1_500_010), us(1_000_000)));
    assert_eq!(resent(&mut window, at(1_500_010)), [1, 2, 3, 4, 5]);
    // In each flight the second packet is lost, and is sent again without a timeout.
    for round in 0..4u32 {
        let now = 1_500_020 + u64::from(round) * 10;
        let out = window.on_ack(at(now), Seq(2 + round), None, true, &mut ignore);
        assert_eq!((out.newly_acked, out.lost), (1, 4 - round));
        assert_eq!(window.on_ack(at(now), Seq(2 + round), None, true, &mut ignore).lost, 0);
        assert_eq!(resent(&mut window, at(now)).len() as u32, 4 - round);
        assert_eq!(window.on_ack(at(now + 2), Seq(2 + round), None, true, &mut ignore).lost, 0);
    }
}

#[test]
fn on_timeout__selective_probes_with_the_first_and_the_last_missing() {
    let mut window = sent(Reliability::Selective, 6);
    window.on_ack(at(10), Seq(1), Some(&sack(&[0, 1])), false, &mut |_, _| ());
    assert_eq!(window.oldest_sent(), Some(at(10)), "progress restarts the timer");
    assert!(!window.on_timeout(at(109), us(100)));
    assert!(window.on_timeout(at(110), us(100)));
    assert!(!window.on_timeout(at(110), us(100)), "already waiting");
    assert_eq!(resent(&mut window, at(110)), [1, 5]);
    assert_eq!(window.oldest_sent(), Some(at(110)));
}

#[test]
fn on_timeout__answer_to_the_probe_finds_the_rest() {
    let mut window = sent(Reliability::Selective, 12);
    window.on_ack(at(10), Seq(1), None, false, &mut |_, _| ());
    assert!(window.on_timeout(at(110), us(100)));
    assert_eq!(resent(&mut window, at(110)), [1, 11]);
    let out = window.on_ack(at(125), Seq(2), None, false, &mut |_, _| ());
    assert_eq!((out.newly_acked, out.lost), (1, 9));
    assert_eq!(resent(&mut window, at(125)), [2, 3, 4, 5, 6, 7, 8, 9, 10]);
}

#[test]
fn next_retransmit__interrupted_by_an_ack_goes_on_after_it() {
    let mut window = sent(Reliability::GoBackN, 8);
    assert!(window.on_timeout(at(50), us(50)));
    assert_eq!(window.next_retransmit(at(50)), Some((Seq(0), 0)));
    window.on_ack(at(51), Seq(5), None, false, &mut |_, _| ());
    assert_eq!(window.awaiting_retransmit(), 3);
    assert_eq!(resent(&mut window, at(51)), [5, 6, 7]);
    assert_eq!(window.next_retransmit(at(51)), None);
}

#[test]
fn drain__gives_back_what_sack_has_not() {
    let mut window = sent(Reliability::Selective, 5);
    window.on_ack(at(1), Seq(1), Some(&sack(&[1])), false, &mut |_, _| ());
    let mut left = Vec::new();
    window.drain(&mut |i, _| left.push(i));
    assert_eq!(left, [1, 2, 4]);
    assert!(window.is_empty() && window.in_flight() == 0);
    assert_eq!(window.push(at(2), 9), Seq(5));
}

#[test]
fn send_window__none_keeps_nothing() {
    let mut window = sent(Reliability::None, 500);
    assert!(window.is_empty() && window.can_send());
    assert_eq!(window.next_seq(), Seq(500));
    let out = window.on_ack(at(1), Seq(77), Some(&SackMap([!0; 4])), true, &mut |_, _| panic!());
    assert_eq!(out, AckOutcome::default());
    assert!(!window.on_timeout(at(1 << 30), us(1)));
}

#[test]
fn send_window__hostile_acks_free_nothing_twice() {
    for mode in [Reliability::GoBackN, Reliability::Selective] {
        for seed in 1..60 {
            hostile_acks(mode, &mut Rng::new(seed));
        }
    }
}

fn hostile_acks(mode: Reliability, rng: &mut Rng) {
    let mut window = SendWindow::new(mode, 200, Seq(u32::MAX - rng.below(400) as u32));
    let mut back = BTreeSet::new();
    let (mut pushed, mut now) = (0u32, at(0));
    for _ in 0..600 {
        now.0 += rng.below(30 * US);
        match rng.below(8) {
            0..=3 => {
                for _ in 0..rng.below(20) {
                    if window.can_send() {
                        window.push(now, pushed);
                        pushed += 1;
                    }
                }
            }
            4..=5 => {
                let next = window.next_seq().0;
                let ack = match rng.below(4) {
                    0 => rng.next() as u32,
                    1 => next,
                    _ => next.wrapping_sub(rng.below(220) as u32).wrapping_add(3),
                };
                let mask = rng.next() | rng.next() << 40;
                let map = SackMap(core::array::from_fn(|_| mask & rng.next() << rng.below(64)));
                let nack = rng.percent(50);
                window.on_ack(now, Seq(ack), Some(&map), nack, &mut |i, _| assert!(back.insert(i)));
            }
            6 => {
                window.on_timeout(now, us(rng.below(60)));
            }
            _ => {
                for _ in 0..rng.below(30) {
                    if let Some((_, item)) = window.next_retransmit(now) {
                        assert!(!back.contains(&item), "retransmitted after its return");
                    }
                }
            }
        }
        assert_eq!(window.in_flight() as usize + back.len(), pushed as usize);
        assert!(window.awaiting_retransmit() <= window.in_flight());
    }
    let waiting = window.awaiting_retransmit() as usize;
    assert_eq!(core::iter::from_fn(|| window.next_retransmit(now)).count(), waiting);
    window.drain(&mut |i, _| assert!(back.insert(i)));
    assert_eq!(back.len(), pushed as usize);
}

#[test]
fn push_run__its_packets_are_acknowledged_and_sent_again_one_by_one() {
    let window = SendWindow::new(Reliability::Selective, 64, Seq(u32::MAX - 2));
    let mut window = window.parts_by(|item, at, of| item + at * 10 + of);
    window.push(at(0), 1);
    assert_eq!(window.push_run(at(0), 100, 8, 1), Seq(u32::MAX - 1));
    window.push_run(at(0), 1000, 2, 0);
    assert_eq!((window.in_flight(), window.next_seq()), (11, Seq(8)));
    let mut acked = Vec::new();
    // The first two arrived, then the third to the fifth of the run, then the last packet.
    let map = sack(&[0, 1, 2, 6]);
    window.on_ack(at(10), Seq(0), Some(&map), false, &mut |i, n| acked.push((i, n)));
    assert_eq!(acked, [(1, 1), (100, 2), (100, 3), (1000, 1)]);
    let again: Vec<_> = core::iter::from_fn(|| window.next_retransmit(at(11))).collect();
    assert_eq!(again[0], (Seq(0), 100 + 2 * 10 + 8));
    acked.clear();
    window.on_ack(at(20), Seq(5), None, false, &mut |i, n| acked.push((i, n)));
    assert_eq!(acked, [(100, 2)], "the first sent again, and the seventh");
    window.drain(&mut |i, n| acked.push((i, n)));
    assert_eq!(acked[1..], [(100, 1), (1000, 1)]);
    assert_eq!((window.in_flight(), window.heap_bytes()), (0, 0));
}

#[test]
fn on_ack__without_a_map_says_nothing_of_what_is_behind_a_known_gap() {
    let mut window = SendWindow::new(Reliability::Selective, 64, Seq(0));
    let mut ignore = |_, _| ();
    window.push_run(at(0), 0, 30, 0);
    // Of 0 to 10, packets 0, 5 and 6 are missing.
    let map = sack(&[0, 1, 2, 3, 6, 7, 8, 9]);
    assert_eq!(window.on_ack(at(10), Seq(0), Some(&map), false, &mut ignore).lost, 3);
    assert_eq!(core::iter::from_fn(|| window.next_retransmit(at(11))).count(), 3);
    // The rest arrived, but that acknowledgement was lost. Now a message acknowledges 0 too.
    assert_eq!(window.on_ack(at(20), Seq(5), None, false, &mut ignore).lost, 0);
    // The map follows: packets that arrived before the retransmitted one are not in it.
    let map = sack(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
    let out = window.on_ack(at(21), Seq(5), Some(&map), false, &mut ignore);
    assert_eq!((out.newly_acked, out.lost), (10, 9));
}

#[test]
fn on_ack__packets_of_different_paths_overtake_without_loss() {
    let mut window = SendWindow::new(Reliability::Selective, 64, Seq(0));
    let mut ignore = |_, _| ();
    window.push_run(at(0), 0, 8, 1);
    window.push_run(at(0), 0, 8, 0);
    // The second path is quicker: all of its packets arrive first, and long before.
    let quick = sack(&[7, 8, 9, 10, 11, 12, 13, 14]);
    assert_eq!(window.on_ack(at(10), Seq(0), Some(&quick), false, &mut ignore).lost, 0);
    assert_eq!(window.on_ack(at(500), Seq(0), Some(&quick), false, &mut ignore).lost, 0);
    // The fifth packet of the first path is evidence for the first, resent over the same path.
    let fifth = sack(&[0, 1, 2, 3, 7, 8, 9, 10, 11, 12, 13, 14]);
    assert_eq!(window.on_ack(at(510), Seq(0), Some(&fifth), false, &mut ignore).lost, 1);
    assert_eq!(window.next_retransmit(at(511)), Some((Seq(0), 0)));
    // Then the rest of that path, which it cannot overtake, is lost as well.
    let out = window.on_ack(at(1500), Seq(5), Some(&sack(&[2, 3, 4, 5, 6])), false, &mut ignore);
    assert_eq!((out.lost, window.in_flight()), (3, 3));
}

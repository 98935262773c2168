//! The congestion window under delay and loss.

use super::*;
use crate::reliability::{Congestion, DelayWindow, Signal};

const TARGET: u64 = 100_000;

fn window(initial: u32) -> DelayWindow {
    DelayWindow::new(Duration::from_nanos(TARGET), initial, 512)
}

/// Simulates `n` round trips of `rtt` nanoseconds, each with this delay and loss.
fn rounds(w: &mut DelayWindow, from: u64, n: u64, delay: u64, lost: u32) -> u64 {
    let rtt = 20_000 + delay;
    for i in 1..=n {
        let (arrived, delay) = (w.packets(), Some((rtt, delay)));
        w.on_signal(Instant(from + i * rtt), Signal { arrived, lost, delay, limited: true });
    }
    from + n * rtt
}

#[test]
fn window__doubles_without_delay_up_to_its_most() {
    let mut w = window(10);
    rounds(&mut w, 0, 3, 0, 0);
    assert_eq!(w.packets(), 80);
    rounds(&mut w, 1_000_000, 10, 0, 0);
    assert_eq!(w.packets(), 512);
}

#[test]
fn window__does_not_grow_unused() {
    let mut w = window(10);
    for i in 1..50 {
        let signal = Signal { arrived: 2, lost: 0, delay: Some((20_000, 0)), limited: false };
        w.on_signal(Instant(i * 20_000), signal);
    }
    assert_eq!(w.packets(), 10);
}

#[test]
fn window__shrinks_while_delay_falls_with_it() {
    let mut w = window(400);
    let (mut at, mut delay) = (0, 800_000);
    for _ in 0..40 {
        at = rounds(&mut w, at, 2, delay, 0);
        delay = u64::from(w.packets()) * 2_000;
    }
    assert!(w.packets() < 80, "{}", w.packets());
    assert!(w.packets() >= 2);
}

#[test]
fn window__random_loss_without_delay_is_borne() {
    let mut w = window(400);
    rounds(&mut w, 0, 100, 10_000, 4);
    assert!(w.packets() >= 400, "{}", w.packets());
}

#[test]
fn window__loss_with_delay_or_of_an_eighth_cuts() {
    for (delay, lost) in [(TARGET * 3 / 4, 1), (0, 80)] {
        let mut w = window(400);
        rounds(&mut w, 0, 1, delay, lost);
        assert!(w.packets() < 400, "{delay} {lost}: {}", w.packets());
    }
}

#[test]
fn window__losses_without_a_sample_cut_in_the_end() {
    let mut w = window(256);
    let now = rounds(&mut w, 0, 1, 0, 0);
    let before = w.packets();
    let resent = |w: &mut DelayWindow, at: u64| {
        w.on_signal(Instant(at), Signal { lost: before, limited: true, ..Signal::default() });
    };
    resent(&mut w, now);
    assert_eq!(w.packets(), before, "one round of it is borne");
    (1..40).for_each(|n| resent(&mut w, now + n * 5 * 20_000));
    assert_eq!(w.packets(), 2);
}

#[test]
fn window__one_late_answer_is_no_queue() {
    let mut w = window(400);
    let at = rounds(&mut w, 0, 1, 0, 0);
    let at = rounds(&mut w, at, 1, 4_000_000, 0);
    rounds(&mut w, at, 1, 0, 0);
    assert!(w.packets() >= 400, "{}", w.packets());
}

#[test]
fn window__delay_that_cuts_do_not_change_is_ignored() {
    let mut w = window(400);
    let mut at = 0;
    for _ in 0..200 {
        at = rounds(&mut w, at, 1, 3_000_000, 0);
    }
    let mut largest = 0;
    for _ in 0..60 {
        at = rounds(&mut w, at, 1, 3_000_000, 0);
        largest = largest.max(w.packets());
    }
    assert!(largest >= 400, "{largest}");
}

#[test]
fn congestion__without_target_is_the_whole_window() {
    let mut c = Congestion::new(Duration::ZERO, 512);
    c.on_ack(Instant(1), 1, 100, Some(Duration::from_secs(1)), true);
    c.on_silence();
    assert_eq!((c.window(), c.adapts()), (512, false));
}

#[test]
fn congestion__looks_for_the_smallest_delay() {
    let mut c = Congestion::new(Duration::from_nanos(TARGET), 512);
    c.first_sample(Instant(1), Duration::from_micros(20));
    let mut dipped = false;
    for i in 1..300u64 {
        let rtt = Duration::from_micros(100);
        c.on_ack(Instant(i * 100_000), c.window(), 0, Some(rtt), true);
        dipped |= i > 10 && c.window() == 2;
    }
    assert!(dipped);
    assert!(c.window() > 2);
}

#[test]
fn send_window__congestion_bounds_the_network_but_never_the_oldest() {
    let mut w = sent(Reliability::Selective, 10);
    w.set_congestion(4);
    assert!(!w.can_send());
    assert_eq!(w.room(), 0);
    let lost: Vec<u32> = (5..9).collect();
    w.on_ack(at(10), Seq(0), Some(&sack(&lost)), false, &mut |_, _| ());
    assert!(w.awaiting_retransmit() > 0);
    w.set_congestion(1);
    let again = resent(&mut w, at(10));
    assert_eq!(again.first(), Some(&0));
    assert!(w.in_network() <= 2, "{}", w.in_network());
}

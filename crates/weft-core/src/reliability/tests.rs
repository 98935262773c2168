#![allow(non_snake_case)]

use super::*;
use crate::{Instant, Seq};
use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap};
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

const US: u64 = 1_000;

struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn percent(&mut self, p: u64) -> bool {
        self.below(100) < p
    }
}

fn at(us: u64) -> Instant {
    Instant(us * US)
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// A window with packets 0..n sent at time 0 under the given mode.
fn sent(mode: Reliability, n: u32) -> SendWindow<u32> {
    let mut window = SendWindow::new(mode, MAX_SELECTIVE, Seq(0));
    for i in 0..n {
        window.push(at(0), i);
    }
    window
}

fn sack(bits: &[u32]) -> SackMap {
    let mut map = SackMap::default();
    for &bit in bits {
        map.0[bit as usize / 64] |= 1 << (bit % 64);
    }
    map
}

fn resent(window: &mut SendWindow<u32>, now: Instant) -> Vec<u32> {
    core::iter::from_fn(|| window.next_retransmit(now)).map(|(_, item)| item).collect()
}

// ---- a lossy, reordering, duplicating channel between the two windows ----

#[derive(Clone, Copy)]
struct Channel {
    mode: Reliability,
    limit: u32,
    initial: Seq,
    packets: u32,
    loss: u64,
    dup: u64,
    /// Delay beyond 20 us is uniform below this many microseconds.
    jitter: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Frame {
    Data { seq: u32, value: u32 },
    Ack { ack: u32, sack: [u64; 4], nack: bool },
}

struct World {
    channel: Channel,
    rng: Rng,
    now: Instant,
    frames: BinaryHeap<Reverse<(Instant, u64, Frame)>>,
    frame_count: u64,
    out: SendWindow<u32>,
    into: RecvWindow,
    rtt: Rtt,
    pushed: u32,
    resent: u32,
    timeouts: u32,
    acked: Vec<u32>,
    held: BTreeMap<u32, u32>,
    delivered: Vec<u32>,
}

impl World {
    fn new(channel: Channel, seed: u64) -> World {
        let Channel { mode, limit, initial, .. } = channel;
        let mut into = RecvWindow::new(mode, initial, limit);
        into.set_ack_policy(AckPolicy { every: 8, delay: us(50), peer_window: limit });
        World {
            channel,
            rng: Rng::new(seed),
            now: at(1),
            frames: BinaryHeap::new(),
            frame_count: 0,
            out: SendWindow::new(mode, limit, initial),
            into,
            rtt: Rtt::new(us(2_000), us(400), us(20_000)),
            pushed: 0,
            resent: 0,
            timeouts: 0,
            acked: Vec::new(),
            held: BTreeMap::new(),
            delivered: Vec::new(),
        }
    }

    fn transmit(&mut self, frame: Frame) {
        let copies = 1 + u32::from(self.rng.percent(self.channel.dup));
        for _ in 0..copies {
            if self.rng.percent(self.channel.loss) {
                continue;
            }
            let jitter = self.rng.below(self.channel.jitter * US + 1);
            self.frame_count += 1;
            let due = Instant(self.now.0 + 20 * US + jitter);
            self.frames.push(Reverse((due, self.frame_count, frame)));
        }
    }

    fn send(&mut self) {
        if self.out.on_timeout(self.now, self.rtt.rto()) {
            self.timeouts += 1;
            self.rtt.backoff();
        }
        while let Some((seq, value)) = self.out.next_retransmit(self.now) {
            self.resent += 1;
            self.transmit(Frame::Data { seq: seq.0, value });
        }
        while self.pushed < self.channel.packets && self.out.can_send() {
            let value = self.pushed;
            let seq = self.out.push(self.now, value);
            self.pushed += 1;
            self.transmit(Frame::Data { seq: seq.0, value });
        }
        if self.into.ack_due(self.now) {
            let nack = self.channel.mode == Reliability::GoBackN && self.into.has_gap();
            let ack = self.into.next_expected().0;
            self.transmit(Frame::Ack { ack, sack: self.into.sack().0, nack });
            self.into.ack_sent();
        }
    }

    fn receive(&mut self, frame: Frame) {
        match frame {
            Frame::Data { seq, value } => {
                self.into.note_received(self.now, false);
                match self.into.on_packet(Seq(seq)) {
                    Verdict::Deliver => {
                        self.delivered.push(value);
                        while let Some(held) = self.into.next_held() {
                            self.delivered.push(self.held.remove(&held.0).unwrap());
                        }
                    }
                    Verdict::Hold => assert!(self.held.insert(seq, value).is_none()),
                    Verdict::Outside => panic!("the sender overran the window"),
                    Verdict::Duplicate | Verdict::Gap => {}
                }
            }
            Frame::Ack { ack, sack, nack } => {
                let acked = &mut self.acked;
                let outcome =
                    self.out.on_ack(self.now, Seq(ack), Some(&SackMap(sack)), nack, &mut |v| {
                        acked.push(v)
                    });
                assert!(!outcome.invalid);
                if let Some(sample) = outcome.rtt {
                    assert!(sample >= us(40));
                    self.rtt.sample(sample);
                }
            }
        }
    }

    fn run(mut self) -> World {
        let total = self.channel.packets as usize;
        for _ in 0..2_000_000 {
            self.send();
            if self.acked.len() == total && self.out.is_empty() {
                break;
            }
            let frame = self.frames.peek().map(|Reverse((due, ..))| *due);
            let timeout = self.out.oldest_sent().map(|t| t + self.rtt.rto());
            let wake = [frame, timeout, self.into.ack_deadline()].into_iter().flatten().min();
            self.now = self.now.max(wake.expect("deadlock: nothing left to wait for"));
            while self.frames.peek().is_some_and(|Reverse((due, ..))| *due <= self.now) {
                let Reverse((_, _, frame)) = self.frames.pop().unwrap();
                self.receive(frame);
            }
        }
        let all: Vec<u32> = (0..self.channel.packets).collect();
        assert_eq!(self.delivered, all, "in order, exactly once");
        assert!(self.held.is_empty());
        self.acked.sort_unstable();
        assert_eq!(self.acked, all, "each descriptor came back exactly once");
        assert_eq!((self.out.in_flight(), self.out.awaiting_retransmit()), (0, 0));
        self
    }
}

fn channel(mode: Reliability, limit: u32) -> Channel {
    let initial = Seq(u32::MAX - 700);
    Channel { mode, limit, initial, packets: 2_000, loss: 0, dup: 0, jitter: 0 }
}

#[test]
fn windows__deliver_exactly_once_in_order_over_a_bad_channel() {
    for mode in [Reliability::GoBackN, Reliability::Selective] {
        for seed in 0..40 {
            let mut rng = Rng::new(seed + 1);
            let channel = Channel {
                limit: 1 + rng.below(1024) as u32,
                loss: rng.below(25),
                dup: rng.below(20),
                jitter: rng.below(200),
                initial: Seq(u32::MAX - rng.below(2_500) as u32),
                packets: 600,
                ..channel(mode, 0)
            };
            World::new(channel, seed).run();
        }
    }
}

#[test]
fn windows__clean_channel_sends_nothing_twice() {
    for mode in [Reliability::GoBackN, Reliability::Selective] {
        for limit in [1, 2, 7, 64, 256, 1024] {
            let world = World::new(channel(mode, limit), 1).run();
            assert_eq!((world.resent, world.timeouts), (0, 0), "{mode} {limit}");
        }
    }
}

#[test]
fn windows__selective_resends_little_more_than_was_lost() {
    let world = World::new(Channel { loss: 2, ..channel(Reliability::Selective, 64) }, 3).run();
    assert!(world.resent >= 20, "{}", world.resent);
    assert!(world.resent <= 90, "{}", world.resent);
}

#[test]
fn windows__wider_than_a_map_resend_little_more_than_was_lost() {
    // 1024 packets under way, of which a map describes 256.
    for seed in 1..5 {
        let wide = Channel { loss: 2, packets: 10_000, ..channel(Reliability::Selective, 1024) };
        let world = World::new(wide, seed).run();
        assert!((150..350).contains(&world.resent), "{}", world.resent);
    }
}

#[test]
fn on_ack__packets_beyond_the_map_are_not_judged() {
    let mut window = sent(Reliability::Selective, 1000);
    // 0 and 300 are lost; the map ends at 256.
    let first: Vec<u32> = (0..256).collect();
    let out = window.on_ack(at(10), Seq(0), Some(&sack(&first)), false, &mut |_| ());
    assert_eq!((out.newly_acked, out.lost), (256, 1));
    assert_eq!(resent(&mut window, at(10)), [0]);
    // The retransmission fills the first gap: what follows 556 has arrived, but is not reported.
    let out = window.on_ack(at(25), Seq(300), Some(&sack(&first)), false, &mut |_| ());
    assert_eq!(out.lost, 1);
    assert_eq!(resent(&mut window, at(25)), [300]);
    let out = window.on_ack(at(40), Seq(1000), None, false, &mut |_| ());
    assert_eq!(out.lost, 0);
    assert!(window.is_empty());
}

#[test]
fn windows__selective_learns_the_extent_of_reordering() {
    let jitter = Channel { jitter: 15, packets: 20_000, ..channel(Reliability::Selective, 64) };
    let world = World::new(jitter, 3).run();
    assert_eq!(world.timeouts, 0);
    assert!(world.resent < 400, "{}", world.resent);
}

// ---- send window ----

#[test]
fn on_ack__cumulative_returns_items_in_order() {
    let mut window = sent(Reliability::GoBackN, 5);
    let mut acked = Vec::new();
    let out = window.on_ack(at(30), Seq(3), None, false, &mut |i| acked.push(i));
    assert_eq!(acked, [0, 1, 2]);
    assert_eq!((out.newly_acked, out.rtt), (3, Some(us(30))));
    assert_eq!((window.in_flight(), window.next_seq()), (2, Seq(5)));
}

#[test]
fn on_ack__ahead_is_invalid_and_behind_is_stale() {
    let mut window = sent(Reliability::Selective, 4);
    let mut none = |_| panic!("nothing was acknowledged");
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
        window.on_ack(at(9), Seq(0), Some(&sack(&[1, 2, 255])), false, &mut |i| acked.push(i));
    assert!(out.invalid);
    assert_eq!(acked, [2]);
}

#[test]
fn on_ack__three_overtakings_make_a_loss_and_two_do_not() {
    let mut window = sent(Reliability::Selective, 6);
    let mut ignore = |_| ();
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
    window.on_ack(at(10), Seq(1), None, false, &mut |_| ());
    for i in 1..3 {
        window.push(at(20), i);
    }
    let map = sack(&[0]);
    assert_eq!(window.on_ack(at(30), Seq(1), Some(&map), false, &mut |_| ()).lost, 0);
    assert_eq!(window.on_ack(at(32), Seq(1), Some(&map), false, &mut |_| ()).lost, 1);
}

#[test]
fn on_ack__lost_retransmission_is_found_from_later_packets() {
    let mut window = sent(Reliability::Selective, 5);
    let mut ignore = |_| ();
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
    assert_eq!(window.on_ack(at(120), Seq(1), None, false, &mut |_| ()).rtt, None);
    assert_eq!(window.on_ack(at(121), Seq(4), None, false, &mut |_| ()).rtt, None);
    window.push(at(130), 4);
    assert_eq!(window.on_ack(at(150), Seq(5), None, false, &mut |_| ()).rtt, Some(us(20)));
}

#[test]
fn on_ack__spurious_retransmission_raises_the_threshold() {
    let mut window = sent(Reliability::Selective, 1);
    let mut ignore = |_| ();
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
    let mut ignore = |_| ();
    let out = window.on_ack(at(20), Seq(2), None, true, &mut ignore);
    assert_eq!((out.newly_acked, out.lost), (2, 4));
    assert!(!window.can_send());
    assert_eq!(window.oldest_sent(), None);
    assert_eq!(resent(&mut window, at(20)), [2, 3, 4, 5]);
    assert_eq!(window.on_ack(at(25), Seq(2), None, true, &mut ignore).lost, 0);
    assert_eq!(window.on_ack(at(40), Seq(2), None, true, &mut ignore).lost, 4);
}

#[test]
fn on_ack__nack_without_an_estimate_goes_back_once_per_burst() {
    let mut window = sent(Reliability::GoBackN, 6);
    let mut ignore = |_| ();
    assert_eq!(window.on_ack(at(20), Seq(0), None, true, &mut ignore).lost, 6);
    resent(&mut window, at(20));
    assert_eq!(window.on_ack(at(21), Seq(0), None, true, &mut ignore).lost, 0);
}

#[test]
fn on_timeout__selective_probes_with_the_first_and_the_last_missing() {
    let mut window = sent(Reliability::Selective, 6);
    window.on_ack(at(10), Seq(1), Some(&sack(&[0, 1])), false, &mut |_| ());
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
    window.on_ack(at(10), Seq(1), None, false, &mut |_| ());
    assert!(window.on_timeout(at(110), us(100)));
    assert_eq!(resent(&mut window, at(110)), [1, 11]);
    let out = window.on_ack(at(125), Seq(2), None, false, &mut |_| ());
    assert_eq!((out.newly_acked, out.lost), (1, 9));
    assert_eq!(resent(&mut window, at(125)), [2, 3, 4, 5, 6, 7, 8, 9, 10]);
}

#[test]
fn next_retransmit__interrupted_by_an_ack_goes_on_after_it() {
    let mut window = sent(Reliability::GoBackN, 8);
    assert!(window.on_timeout(at(50), us(50)));
    assert_eq!(window.next_retransmit(at(50)), Some((Seq(0), 0)));
    window.on_ack(at(51), Seq(5), None, false, &mut |_| ());
    assert_eq!(window.awaiting_retransmit(), 3);
    assert_eq!(resent(&mut window, at(51)), [5, 6, 7]);
    assert_eq!(window.next_retransmit(at(51)), None);
}

#[test]
fn drain__gives_back_what_sack_has_not() {
    let mut window = sent(Reliability::Selective, 5);
    window.on_ack(at(1), Seq(1), Some(&sack(&[1])), false, &mut |_| ());
    let mut left = Vec::new();
    window.drain(&mut |i| left.push(i));
    assert_eq!(left, [1, 2, 4]);
    assert!(window.is_empty() && window.in_flight() == 0);
    assert_eq!(window.push(at(2), 9), Seq(5));
}

#[test]
fn send_window__none_keeps_nothing() {
    let mut window = sent(Reliability::None, 500);
    assert!(window.is_empty() && window.can_send());
    assert_eq!(window.next_seq(), Seq(500));
    let out = window.on_ack(at(1), Seq(77), Some(&SackMap([!0; 4])), true, &mut |_| panic!());
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
                window.on_ack(now, Seq(ack), Some(&map), nack, &mut |i| assert!(back.insert(i)));
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
    window.drain(&mut |i| assert!(back.insert(i)));
    assert_eq!(back.len(), pushed as usize);
}

#[test]
fn windows__are_small_and_own_no_heap_when_idle() {
    let size = size_of::<SendWindow<[u8; 32]>>() + size_of::<RecvWindow>();
    assert!(size <= 300, "{size}");
    assert!(!core::mem::needs_drop::<RecvWindow>());
    let mut window: SendWindow<[u8; 32]> = SendWindow::new(Reliability::Selective, 256, Seq(0));
    assert_eq!(window.capacity(), 0);
    window.push(at(0), [0; 32]);
    assert!(window.capacity() > 0);
    window.shrink();
    assert!(window.capacity() > 0, "still in use");
    window.on_ack(at(1), Seq(1), None, false, &mut |_| ());
    window.shrink();
    assert_eq!(window.capacity(), 0);
}

// ---- receive window ----

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

// ---- round trips ----

#[test]
fn rtt__follows_rfc_6298() {
    let mut rtt = Rtt::new(us(1_000), us(10), us(4_000));
    assert_eq!((rtt.rto(), rtt.smoothed(), rtt.min()), (us(1_000), None, None));
    rtt.sample(us(80));
    assert_eq!((rtt.rto(), rtt.smoothed()), (us(80 + 4 * 40), Some(us(80))));
    rtt.sample(us(160));
    // var = 3/4 * 40 + 1/4 * 80, srtt = 7/8 * 80 + 1/8 * 160.
    assert_eq!((rtt.rto(), rtt.smoothed(), rtt.min()), (us(290), Some(us(90)), Some(us(80))));
    for _ in 0..5 {
        rtt.backoff();
    }
    assert_eq!(rtt.rto(), us(4_000));
    rtt.sample(us(90));
    assert!(rtt.rto() < us(290), "a sample ends the backoff");
    for _ in 0..200 {
        rtt.sample(Duration::ZERO);
    }
    assert_eq!(rtt.rto(), us(10));
}

#[test]
fn rtt__extreme_values_saturate() {
    let mut rtt = Rtt::new(Duration::MAX, Duration::ZERO, Duration::MAX);
    rtt.sample(Duration::MAX);
    rtt.sample(Duration::ZERO);
    rtt.sample(Duration::MAX);
    rtt.backoff();
    assert!(rtt.rto() > us(1));
    let odd = Rtt::new(us(1), us(100), us(10));
    assert_eq!(odd.rto(), us(100), "limits the wrong way round: the smaller one rules");
}

// ---- credit ----

#[test]
fn cost__counts_payload_and_descriptor() {
    let costs = [0, 1, 64, 65, 4096].map(cost);
    assert_eq!(costs, [1, 2, 2, 3, 65]);
    assert_eq!(cost(usize::MAX), u32::MAX);
}

#[test]
fn credit__bounds_what_is_outstanding_across_the_wrap() {
    let mut rng = Rng::new(9);
    let mut out = CreditOut::new(16 * 1024);
    let mut sender = CreditIn::default();
    sender.on_grant(out.grant());
    let mut outstanding: Vec<usize> = Vec::new();
    let mut moved = 0u64;
    while moved < 3 << 32 {
        // Large consumption without a message moves both counters towards their wrap quickly.
        let skip = 1 << 27;
        sender.skip(skip);
        out.skip(skip);
        moved += u64::from(skip);
        for _ in 0..50 {
            let len = rng.below(3_000) as usize;
            if sender.try_take(len) {
                assert!(out.arrived(len));
                outstanding.push(len);
            } else if !outstanding.is_empty() {
                let at = rng.below(outstanding.len() as u64) as usize;
                out.consumed(outstanding.swap_remove(at));
            }
            let units: u32 = outstanding.iter().map(|&len| cost(len)).sum();
            assert!(units <= 256);
            let old = out.grant().wrapping_sub(rng.below(500) as u32);
            sender.on_grant(if rng.percent(50) { old } else { out.grant() });
            assert!(sender.available() <= out.grant().wrapping_sub(sender.used()));
        }
    }
}

#[test]
fn on_grant__ignores_old_and_hostile_ones() {
    let mut sender = CreditIn::default();
    assert!(!sender.try_take(0));
    assert!(sender.on_grant(100));
    assert!(sender.try_take(50 * 64));
    for hostile in [99, 40, 0, u32::MAX, 1 << 31, (1 << 29) + 52] {
        assert!(!sender.on_grant(hostile), "{hostile}");
        assert_eq!(sender.available(), 49);
    }
    assert!(!sender.try_take(usize::MAX));
    assert!(sender.on_grant(101));
}

#[test]
fn arrived__refuses_an_overdrawn_grant() {
    let mut out = CreditOut::new(10 * 64);
    assert!(out.arrived(8 * 64));
    assert!(!out.arrived(64));
    assert!(out.arrived(0));
    assert!(!out.arrived(0));
    out.consumed(0);
    assert!(out.arrived(0));
}

#[test]
fn worth_announcing__after_a_quarter_of_the_window() {
    let mut out = CreditOut::new(16 * 64);
    assert!(!out.worth_announcing());
    out.consumed(2 * 64);
    assert!(!out.worth_announcing());
    out.consumed(0);
    assert!(out.worth_announcing());
    out.announced();
    assert!(!out.worth_announcing());
    assert_eq!(out.grant(), 20);
}

// ---- names ----

#[test]
fn reliability__names_round_trip() {
    for mode in [Reliability::None, Reliability::GoBackN, Reliability::Selective] {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    assert!("GBN".parse::<Reliability>().is_err());
}

#[test]
fn sack_map__iterates_what_it_contains() {
    let bits = [0, 1, 63, 64, 130, 255];
    let map = sack(&bits);
    assert!(map.iter().eq(bits));
    assert!((0..300).filter(|&i| map.contains(i)).eq(bits));
}

//! Both windows over a lossy, reordering, duplicating channel.

use super::*;
use alloc::collections::{BTreeMap, BinaryHeap};
use core::cmp::Reverse;

#[derive(Clone, Copy)]
struct Channel {
    mode: Reliability,
    /// The receiver's mode.
    into: Reliability,
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
        let mut into = RecvWindow::new(channel.into, initial, limit);
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
            let nack = self.channel.into == Reliability::GoBackN && self.into.has_gap();
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
                    self.out.on_ack(self.now, Seq(ack), Some(&SackMap(sack)), nack, &mut |v, _| {
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
    Channel { mode, into: mode, limit, initial, packets: 2_000, loss: 0, dup: 0, jitter: 0 }
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
fn windows__two_sides_that_chose_otherwise_lose_no_more_time_than_two_that_go_back() {
    use Reliability::{GoBackN, Selective};
    for seed in 0..20 {
        let run = |mode, into| {
            let channel = Channel { into, loss: 5, jitter: 30, ..channel(mode, 256) };
            World::new(channel, seed).run()
        };
        let alike = run(GoBackN, GoBackN);
        for (mode, into) in [(Selective, GoBackN), (GoBackN, Selective)] {
            let world = run(mode, into);
            let (took, most) = (world.now.0, 2 * alike.now.0);
            assert!(took <= most, "{mode} to {into}: {took} ns, alike {} ns", alike.now.0);
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
    // 1024 packets in flight, of which a map describes 256.
    for seed in 1..5 {
        let wide = Channel { loss: 2, packets: 10_000, ..channel(Reliability::Selective, 1024) };
        let world = World::new(wide, seed).run();
        assert!((150..350).contains(&world.resent), "{}", world.resent);
    }
}

#[test]
fn windows__selective_learns_the_extent_of_reordering() {
    let jitter = Channel { jitter: 15, packets: 20_000, ..channel(Reliability::Selective, 64) };
    let world = World::new(jitter, 3).run();
    assert_eq!(world.timeouts, 0);
    assert!(world.resent < 400, "{}", world.resent);
}

#[test]
fn windows__are_small_and_own_no_heap_when_idle() {
    let size = size_of::<SendWindow<[u8; 32]>>() + size_of::<RecvWindow>();
    assert!(size <= 384, "{size}");
    assert!(!core::mem::needs_drop::<RecvWindow>());
    let mut window: SendWindow<[u8; 32]> = SendWindow::new(Reliability::Selective, 256, Seq(0));
    assert_eq!(window.capacity(), 0);
    window.push(at(0), [0; 32]);
    assert!(window.capacity() > 0);
    window.shrink();
    assert!(window.capacity() > 0, "still in use");
    window.on_ack(at(1), Seq(1), None, false, &mut |_, _| ());
    window.shrink();
    assert_eq!(window.capacity(), 0);
}

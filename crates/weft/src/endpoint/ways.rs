//! The way of a large message inside a host: copied by the receiver, and the sender if it is at
//! hand, between the two memories by a system call; or in packets, which both copy, one after the
//! other. Which is faster depends on processor, kernel and size by up to four times in either
//! direction, so both are measured.

use std::time::Duration;
use weft_core::{Instant, OpId, PeerId};

/// The way of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Direct,
    Packets,
}

impl Way {
    fn other(self) -> Way {
        match self {
            Way::Direct => Way::Packets,
            Way::Packets => Way::Direct,
        }
    }
}

/// Messages are measured by size: up to the first, up to the second and so on, and above.
const BOUNDS: [u64; 3] = [32 << 10, 128 << 10, 1 << 20];
/// What is measured at a time: so many bytes, and so many messages.
const TRIAL_BYTES: u64 = 4 << 20;
const TRIAL_MESSAGES: u32 = 4;
/// What is not measured after a change: until the ring's memory is in the caches again, packets
/// seem up to twice as slow as they are.
const WARM_BYTES: u64 = 2 << 20;
/// A trial ends with so many bytes even if they were fewer messages.
const TRIAL_BYTES_MAX: u64 = 32 << 20;
/// Most trials of the faster way until the other is tried again. There is one at first, when memory
/// and caches are cold, then twice as many each time, or 8 times as many if it is faster by
/// `CLEARLY`, in percent.
const AGAIN_MAX: u32 = 256;
const CLEARLY: u128 = 150;
/// Packets have to be faster by this, in percent: a direct copy leaves the sender's core alone.
const ADVANTAGE: u128 = 125;

/// Messages of one size.
#[derive(Debug)]
struct Class {
    /// The present way, and the number of the trial that began with it.
    way: Way,
    trial: u32,
    /// Messages under way: of this way, and earlier ones. It is measured once there are none of
    /// those.
    flying: u32,
    stale: u32,
    /// Since when messages are under way that count, and for how long there were before.
    since: Option<Instant>,
    busy: Duration,
    messages: u32,
    bytes: u64,
    /// Bytes that end before it is measured.
    cold: u64,
    /// Bytes a second of each way, 0: not measured. Slower results count less: much slows a copy
    /// down, nothing speeds it up.
    rates: [u64; 2],
    faster: Way,
    /// Trials of the faster way until the other's turn, and how many there were before the last.
    left: u32,
    again: u32,
}

impl Default for Class {
    fn default() -> Class {
        Class {
            way: Way::Direct,
            trial: 0,
            flying: 0,
            stale: 0,
            since: None,
            busy: Duration::ZERO,
            messages: 0,
            bytes: 0,
            cold: 0,
            rates: [0; 2],
            faster: Way::Direct,
            left: 0,
            again: 1,
        }
    }
}

impl Class {
    fn start(&mut self, now: Instant) {
        self.flying += 1;
        if self.stale == 0 && self.since.is_none() {
            self.since = Some(now);
        }
    }

    /// A message of an earlier trial ended.
    fn drained(&mut self, now: Instant) {
        self.stale -= 1;
        if self.stale == 0 && self.flying > 0 {
            self.since = Some(now);
        }
    }

    fn end(&mut self, now: Instant, len: u64) {
        self.flying -= 1;
        let Some(since) = self.since else { return };
        if self.cold > 0 {
            self.cold = self.cold.saturating_sub(len);
            self.since = (self.flying > 0).then_some(now);
            return;
        }
        self.bytes += len;
        self.messages += 1;
        let busy = self.busy + now.since(since);
        let enough = self.bytes >= TRIAL_BYTES && self.messages >= TRIAL_MESSAGES;
        if enough || self.bytes >= TRIAL_BYTES_MAX {
            self.judge(now, busy);
        } else if self.flying == 0 {
            self.busy = busy;
            self.since = None;
        }
    }

    /// A trial has ended: chooses the way of the next one.
    fn judge(&mut self, now: Instant, busy: Duration) {
        let ns = busy.as_nanos().max(1);
        let measured = (u128::from(self.bytes) * 1_000_000_000 / ns).min(u64::MAX.into()) as u64;
        let rate = &mut self.rates[self.way as usize];
        *rate = measured.max(*rate - rate.saturating_sub(measured) / 8);
        let [direct, packets] = self.rates.map(u128::from);
        let faster = match packets * 100 > direct * ADVANTAGE {
            true => Way::Packets,
            false => Way::Direct,
        };
        if faster != self.faster {
            let [direct, packets] = [direct, packets].map(|rate| rate / 1_000_000);
            log::debug!("MB/s by direct copies {direct}, by packets {packets}");
            self.faster = faster;
        }
        let untried = self.rates[faster.other() as usize] == 0;
        let next = if untried || self.left == 0 { faster.other() } else { faster };
        if next == faster {
            self.left = self.left.saturating_sub(1);
        } else {
            self.left = self.again;
            let clearly = direct.max(packets) * 100 > direct.min(packets) * CLEARLY;
            self.again = (if clearly { 8 } else { 2 } * self.again).min(AGAIN_MAX);
        }
        if next != self.way {
            self.way = next;
            self.trial = self.trial.wrapping_add(1);
            self.cold = WARM_BYTES;
            self.stale += std::mem::take(&mut self.flying);
        }
        self.since = (self.flying > 0).then_some(now);
        (self.busy, self.bytes, self.messages) = (Duration::ZERO, 0, 0);
    }
}

#[derive(Debug)]
struct Flying {
    op: OpId,
    peer: PeerId,
    way: Way,
    len: u64,
    class: usize,
    trial: u32,
    /// What was left of it comes in packets.
    handed_over: bool,
}

/// What is known of both ways, of all peers in this host together.
#[derive(Debug, Default)]
pub(super) struct Ways {
    classes: [Class; BOUNDS.len() + 1],
    flying: Vec<Flying>,
}

impl Ways {
    /// A message of `len` bytes is fetched from now on. [`Ways::end`] is to be told its end.
    pub fn start(&mut self, now: Instant, op: OpId, peer: PeerId, len: u64) {
        let at = BOUNDS.iter().filter(|&&bound| len > bound).count();
        let class = &mut self.classes[at];
        class.start(now);
        let (way, trial) = (class.way, class.trial);
        self.flying.push(Flying { op, peer, way, len, class: at, trial, handed_over: false });
    }

    /// The way of the rest of a message. A sender that computes hands nothing over, but can be
    /// copied from: packets have to wait until it is at hand. One that hands over another message
    /// is.
    pub fn rest(&mut self, op: OpId, at_hand: bool) -> Way {
        let Some(at) = self.flying.iter().position(|f| f.op == op) else { return Way::Direct };
        let Flying { peer, way, .. } = self.flying[at];
        let hands_over = |f: &Flying| f.peer == peer && f.handed_over;
        if way == Way::Packets && (at_hand || self.flying.iter().any(hands_over)) {
            self.flying[at].handed_over = true;
            return Way::Packets;
        }
        Way::Direct
    }

    /// Whether no message is under way.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.flying.is_empty()
    }

    /// An operation ended, well or not.
    pub fn end(&mut self, now: Instant, op: OpId, well: bool) {
        let Some(at) = self.flying.iter().position(|f| f.op == op) else { return };
        let ended = self.flying.swap_remove(at);
        let class = &mut self.classes[ended.class];
        match ended.trial == class.trial {
            true => class.end(now, if well { ended.len } else { 0 }),
            false => class.drained(now),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const PEER: PeerId = PeerId(3);
    const LEN: u64 = 1 << 20;

    /// Sends messages one after the other, `window` at a time, over ways that take so many
    /// nanoseconds for a message, and counts the messages of each.
    fn run(ways: &mut Ways, messages: u32, window: u32, len: u64, ns: [u64; 2]) -> [u32; 2] {
        let (mut now, mut counts) = (Instant(1), [0; 2]);
        let mut under_way = std::collections::VecDeque::new();
        for n in 1..=messages {
            ways.start(now, OpId(n), PEER, len);
            let way = ways.rest(OpId(n), true);
            counts[way as usize] += 1;
            under_way.push_back((OpId(n), way));
            if under_way.len() as u32 >= window || n == messages {
                let (op, way) = under_way.pop_front().unwrap();
                now = now + Duration::from_nanos(ns[way as usize]);
                ways.end(now, op, true);
                // Time between messages is nobody's.
                if under_way.is_empty() {
                    now = now + Duration::from_millis(3);
                }
            }
        }
        under_way.drain(..).for_each(|(op, _)| ways.end(now, op, true));
        assert!(ways.is_idle());
        counts
    }

    #[test]
    fn ways__the_faster_one_is_taken_whatever_is_under_way_at_a_time() {
        for window in [1, 2, 7, 32] {
            for (ns, best) in [([100_000, 60_000], Way::Packets), ([60_000, 100_000], Way::Direct)]
            {
                let mut ways = Ways::default();
                run(&mut ways, 50_000, window, LEN, ns);
                let counts = run(&mut ways, 5000, window, LEN, ns);
                assert!(counts[best as usize] > 4500, "{window} {best:?} {counts:?}");
                assert!(counts[best.other() as usize] > 0, "the other one is tried again");
            }
        }
    }

    #[test]
    fn ways__the_first_messages_after_a_change_do_not_count() {
        let (mut ways, mut now, mut before) = (Ways::default(), Instant(1), Way::Direct);
        let (mut cold, mut packets) = (0, 0);
        for n in 1..=2000 {
            ways.start(now, OpId(n), PEER, LEN);
            let way = ways.rest(OpId(n), true);
            cold = if way == before { cold + 1 } else { 0 };
            before = way;
            let us = match (way, cold) {
                (Way::Direct, _) => 100,
                (Way::Packets, 0 | 1) => 250,
                (Way::Packets, _) => 60,
            };
            now = now + Duration::from_micros(us);
            ways.end(now, OpId(n), true);
            packets += u32::from(way == Way::Packets);
        }
        assert!(packets > 1800, "{packets}");
    }

    #[test]
    fn ways__packets_have_to_be_faster_by_far() {
        let mut ways = Ways::default();
        let counts = run(&mut ways, 500, 1, LEN, [110_000, 100_000]);
        assert!(counts[Way::Direct as usize] > 450, "{counts:?}");
    }

    #[test]
    fn ways__starts_with_direct_copies() {
        let counts = run(&mut Ways::default(), 4, 1, LEN, [1; 2]);
        assert_eq!(counts, [4, 0]);
    }

    #[test]
    fn ways__a_change_is_noticed_and_sizes_are_apart() {
        let mut ways = Ways::default();
        run(&mut ways, 500, 1, LEN, [100_000, 50_000]);
        for (op, len) in [(1, LEN), (2, LEN), (3, LEN + 1), (4, 100)] {
            ways.start(Instant(1), OpId(op), PEER, len);
        }
        assert_eq!(ways.rest(OpId(1), false), Way::Direct, "the sender computes");
        assert_eq!(ways.rest(OpId(2), true), Way::Packets);
        assert_eq!(ways.rest(OpId(1), false), Way::Packets, "it hands over another message");
        assert_eq!(ways.rest(OpId(3), true), Way::Direct);
        assert_eq!(ways.rest(OpId(4), true), Way::Direct);
        (1..=4).for_each(|op| ways.end(Instant(2), OpId(op), false));
        run(&mut ways, 5000, 1, LEN, [50_000, 200_000]);
        let counts = run(&mut ways, 1000, 1, LEN, [50_000, 200_000]);
        assert!(counts[Way::Direct as usize] > 900, "{counts:?}");
    }

    #[test]
    fn ways__messages_that_fail_are_forgotten() {
        let mut ways = Ways::default();
        for op in 1..=100 {
            ways.start(Instant(1), OpId(op), PEER, LEN);
        }
        (1..=100).for_each(|op| ways.end(Instant(5), OpId(op), false));
        ways.end(Instant(5), OpId(200), true);
        assert!(ways.is_idle());
        assert_eq!(run(&mut ways, 4, 1, LEN, [1; 2]), [4, 0]);
    }
}

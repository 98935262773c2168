//! The choice of copy for a large message inside a host. Either a system call copies straight
//! between the two memories (the receiver calls it, and the sender too if it is in a call of weft);
//! or the message goes in packets, which both copy, one after the other. Each can be up to four
//! times as fast as the other, by processor, kernel and size, so both are measured.

use std::time::Duration;
use weft_core::{Instant, OpId, PeerId};

/// The kind of copy of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyKind {
    Direct,
    Packets,
}

impl CopyKind {
    fn other(self) -> CopyKind {
        match self {
            CopyKind::Direct => CopyKind::Packets,
            CopyKind::Packets => CopyKind::Direct,
        }
    }
}

/// Upper bounds of the classes of message sizes that are measured apart; the last class is above
/// all bounds.
const BOUNDS: [u64; 3] = [32 << 10, 128 << 10, 1 << 20];
/// A trial measures at least so many bytes and so many messages.
const TRIAL_BYTES: u64 = 4 << 20;
const TRIAL_MESSAGES: u32 = 4;
/// Bytes that are not measured after a change: until the ring's memory is in the caches again,
/// packets seem up to twice as slow as they are.
const WARM_BYTES: u64 = 2 << 20;
/// A trial ends after so many bytes even with fewer messages.
const TRIAL_BYTES_MAX: u64 = 32 << 20;
/// Most trials of the faster copy until the slower is tried again. It is 1 at first, when memory
/// and caches are cold; then it doubles each time, or grows 8 times if the faster one is faster by
/// `CLEARLY`, in percent.
const AGAIN_MAX: u32 = 256;
const CLEARLY: u128 = 150;
/// Packets must be faster by this, in percent, since a direct copy does not use the sender's core.
const ADVANTAGE: u128 = 125;

/// The measurements of one class of sizes.
#[derive(Debug)]
struct Class {
    /// The current copy, and the number of its trial.
    copy_kind: CopyKind,
    trial: u32,
    /// Messages in flight of this trial (`flying`) and of earlier ones (`stale`). Measuring begins
    /// when `stale` is 0.
    flying: u32,
    stale: u32,
    /// Start of the current time with measured messages in flight, and the sum of earlier such
    /// times.
    since: Option<Instant>,
    busy: Duration,
    messages: u32,
    bytes: u64,
    /// Bytes that must end before measuring begins.
    cold: u64,
    /// Bytes per second of each copy; 0: not measured. Slower results have less weight, since many
    /// causes slow a copy down and none speeds it up.
    rates: [u64; 2],
    faster: CopyKind,
    /// Trials of the faster copy until the slower is tried, and their number before the last such
    /// try.
    left: u32,
    again: u32,
}

impl Default for Class {
    fn default() -> Class {
        Class {
            copy_kind: CopyKind::Direct,
            trial: 0,
            flying: 0,
            stale: 0,
            since: None,
            busy: Duration::ZERO,
            messages: 0,
            bytes: 0,
            cold: 0,
            rates: [0; 2],
            faster: CopyKind::Direct,
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

    /// Counts the end of a message of an earlier trial.
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

    /// Ends a trial, and chooses the copy of the next one.
    fn judge(&mut self, now: Instant, busy: Duration) {
        let ns = busy.as_nanos().max(1);
        let measured = (u128::from(self.bytes) * 1_000_000_000 / ns).min(u64::MAX.into()) as u64;
        let rate = &mut self.rates[self.copy_kind as usize];
        *rate = measured.max(*rate - rate.saturating_sub(measured) / 8);
        let [direct, packets] = self.rates.map(u128::from);
        let faster = match packets * 100 > direct * ADVANTAGE {
            true => CopyKind::Packets,
            false => CopyKind::Direct,
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
        if next != self.copy_kind {
            self.copy_kind = next;
            self.trial = self.trial.wrapping_add(1);
            self.cold = WARM_BYTES;
            self.stale += std::mem::take(&mut self.flying);
        }
        self.since = (self.flying > 0).then_some(now);
        (self.busy, self.bytes, self.messages) = (Duration::ZERO, 0, 0);
    }
}

#[derive(Debug)]
struct InFlight {
    op: OpId,
    peer: PeerId,
    copy_kind: CopyKind,
    len: u64,
    class: usize,
    trial: u32,
    /// True if its rest comes in packets.
    handed_over: bool,
}

/// The measurements of both copies, for all peers of this host together.
#[derive(Debug, Default)]
pub(super) struct CopyChoice {
    classes: [Class; BOUNDS.len() + 1],
    flying: Vec<InFlight>,
}

impl CopyChoice {
    /// Begins a message of `len` bytes. [`CopyChoice::end`] must be called at its end.
    pub fn start(&mut self, now: Instant, op: OpId, peer: PeerId, len: u64) {
        let at = BOUNDS.iter().filter(|&&bound| len > bound).count();
        let class = &mut self.classes[at];
        class.start(now);
        let (copy_kind, trial) = (class.copy_kind, class.trial);
        self.flying.push(InFlight {
            op,
            peer,
            copy_kind,
            len,
            class: at,
            trial,
            handed_over: false,
        });
    }

    /// Chooses the copy of the rest of a message. A sender that computes sends no packets, but its
    /// memory can be copied: packets need a sender that is in a call of weft (`at_hand`). A sender
    /// that sends packets of another message is.
    pub fn rest(&mut self, op: OpId, at_hand: bool) -> CopyKind {
        let Some(at) = self.flying.iter().position(|f| f.op == op) else { return CopyKind::Direct };
        let InFlight { peer, copy_kind, .. } = self.flying[at];
        let hands_over = |f: &InFlight| f.peer == peer && f.handed_over;
        if copy_kind == CopyKind::Packets && (at_hand || self.flying.iter().any(hands_over)) {
            self.flying[at].handed_over = true;
            return CopyKind::Packets;
        }
        CopyKind::Direct
    }

    /// True if no message is in flight.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.flying.is_empty()
    }

    /// Records the end of an operation, successful (`well`) or not.
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

    /// Sends messages one after the other, `window` at a time, by copies that take `ns` nanoseconds
    /// for a message, and counts the messages of each copy.
    fn run(
        copy_choice: &mut CopyChoice,
        messages: u32,
        window: u32,
        len: u64,
        ns: [u64; 2],
    ) -> [u32; 2] {
        let (mut now, mut counts) = (Instant(1), [0; 2]);
        let mut under_way = std::collections::VecDeque::new();
        for n in 1..=messages {
            copy_choice.start(now, OpId(n), PEER, len);
            let copy_kind = copy_choice.rest(OpId(n), true);
            counts[copy_kind as usize] += 1;
            under_way.push_back((OpId(n), copy_kind));
            if under_way.len() as u32 >= window || n == messages {
                let (op, copy_kind) = under_way.pop_front().unwrap();
                now = now + Duration::from_nanos(ns[copy_kind as usize]);
                copy_choice.end(now, op, true);
                // The time between messages belongs to neither copy.
                if under_way.is_empty() {
                    now = now + Duration::from_millis(3);
                }
            }
        }
        under_way.drain(..).for_each(|(op, _)| copy_choice.end(now, op, true));
        assert!(copy_choice.is_idle());
        counts
    }

    #[test]
    fn ways__the_faster_one_is_taken_whatever_is_under_way_at_a_time() {
        for window in [1, 2, 7, 32] {
            for (ns, best) in
                [([100_000, 60_000], CopyKind::Packets), ([60_000, 100_000], CopyKind::Direct)]
            {
                let mut copy_choice = CopyChoice::default();
                run(&mut copy_choice, 50_000, window, LEN, ns);
                let counts = run(&mut copy_choice, 5000, window, LEN, ns);
                assert!(counts[best as usize] > 4500, "{window} {best:?} {counts:?}");
                assert!(counts[best.other() as usize] > 0, "the other one is tried again");
            }
        }
    }

    #[test]
    fn ways__the_first_messages_after_a_change_do_not_count() {
        let (mut copy_choice, mut now, mut before) =
            (CopyChoice::default(), Instant(1), CopyKind::Direct);
        let (mut cold, mut packets) = (0, 0);
        for n in 1..=2000 {
            copy_choice.start(now, OpId(n), PEER, LEN);
            let copy_kind = copy_choice.rest(OpId(n), true);
            cold = if copy_kind == before { cold + 1 } else { 0 };
            before = copy_kind;
            let us = match (copy_kind, cold) {
                (CopyKind::Direct, _) => 100,
                (CopyKind::Packets, 0 | 1) => 250,
                (CopyKind::Packets, _) => 60,
            };
            now = now + Duration::from_micros(us);
            copy_choice.end(now, OpId(n), true);
            packets += u32::from(copy_kind == CopyKind::Packets);
        }
        assert!(packets > 1800, "{packets}");
    }

    #[test]
    fn ways__packets_have_to_be_faster_by_far() {
        let mut copy_choice = CopyChoice::default();
        let counts = run(&mut copy_choice, 500, 1, LEN, [110_000, 100_000]);
        assert!(counts[CopyKind::Direct as usize] > 450, "{counts:?}");
    }

    #[test]
    fn ways__starts_with_direct_copies() {
        let counts = run(&mut CopyChoice::default(), 4, 1, LEN, [1; 2]);
        assert_eq!(counts, [4, 0]);
    }

    #[test]
    fn ways__a_change_is_noticed_and_sizes_are_apart() {
        let mut copy_choice = CopyChoice::default();
        run(&mut copy_choice, 500, 1, LEN, [100_000, 50_000]);
        for (op, len) in [(1, LEN), (2, LEN), (3, LEN + 1), (4, 100)] {
            copy_choice.start(Instant(1), OpId(op), PEER, len);
        }
        assert_eq!(copy_choice.rest(OpId(1), false), CopyKind::Direct, "the sender computes");
        assert_eq!(copy_choice.rest(OpId(2), true), CopyKind::Packets);
        assert_eq!(
            copy_choice.rest(OpId(1), false),
            CopyKind::Packets,
            "it hands over another message"
        );
        assert_eq!(copy_choice.rest(OpId(3), true), CopyKind::Direct);
        assert_eq!(copy_choice.rest(OpId(4), true), CopyKind::Direct);
        (1..=4).for_each(|op| copy_choice.end(Instant(2), OpId(op), false));
        run(&mut copy_choice, 5000, 1, LEN, [50_000, 200_000]);
        let counts = run(&mut copy_choice, 1000, 1, LEN, [50_000, 200_000]);
        assert!(counts[CopyKind::Direct as usize] > 900, "{counts:?}");
    }

    #[test]
    fn ways__messages_that_fail_are_forgotten() {
        let mut copy_choice = CopyChoice::default();
        for op in 1..=100 {
            copy_choice.start(Instant(1), OpId(op), PEER, LEN);
        }
        (1..=100).for_each(|op| copy_choice.end(Instant(5), OpId(op), false));
        copy_choice.end(Instant(5), OpId(200), true);
        assert!(copy_choice.is_idle());
        assert_eq!(run(&mut copy_choice, 4, 1, LEN, [1; 2]), [4, 0]);
    }
}

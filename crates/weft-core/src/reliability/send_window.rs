//! The sender's side: unacknowledged packets and the handling of acknowledgements; `losses.rs`:
//! detection and retransmission of lost packets.

mod losses;

use super::{Reliability, SackMap, MAX_SELECTIVE, SACK_BITS};
use crate::{Instant, Seq};
use alloc::collections::VecDeque;
use core::time::Duration;

/// Later transmissions that must arrive before an earlier packet counts as lost (RFC 9002 section
/// 6.1.1); raised up to [`REORDER_MAX`], for good, when that proves wrong: paths that reorder keep
/// doing so.
const REORDER_MIN: u8 = 3;
const REORDER_MAX: u8 = 32;

/// Reported received in a [`SackMap`]: its descriptor went back to the caller.
const SACKED: u8 = 1;
/// Waits for [`SendWindow::next_retransmit`].
const LOST: u8 = 2;
/// Sent more than once: no round-trip sample may come from it (Karn).
const RESENT: u8 = 4;
/// Judged lost from the order of acknowledgements, not from a timeout.
const FAST: u8 = 8;
/// Answered at once by the receiver: its round trip includes no delay of an acknowledgement.
const PROMPT: u8 = 16;

/// Paths that packets of one window may take at the same time. Packets of different paths overtake
/// each other without any being lost, so each path has an order of its own.
pub const LANES: usize = 4;

/// Consecutive packets lost over a path, none of which arrived, after which it counts as silent.
const SILENT: u16 = 32;

/// Packets pushed together share one item: a run of equal packets uses one.
#[derive(Clone, Copy)]
struct Run<T> {
    item: T,
    first: Seq,
    count: u32,
}

#[derive(Clone, Copy)]
struct Slot {
    /// Time of the last transmission.
    sent: Instant,
    /// Number of the last transmission among all transmissions of this window over its path.
    order: u32,
    flags: u8,
    /// The path of the last transmission.
    lane: u8,
}

impl Slot {
    fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn lane(&self) -> usize {
        usize::from(self.lane) % LANES
    }
}

/// The effects of an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckOutcome {
    /// Packets acknowledged for the first time, cumulatively or selectively.
    pub newly_acked: u32,
    /// Round-trip sample, never taken from a retransmitted packet.
    pub rtt: Option<Duration>,
    /// Round-trip sample, if it is of a packet that was marked by [`SendWindow::mark_prompt`].
    pub prompt: Option<Duration>,
    /// The acknowledgement named packets never sent; such parts were ignored.
    pub invalid: bool,
    /// The acknowledgement was older than one already seen (reordered on the way) and was ignored.
    pub stale: bool,
    /// Packets judged lost now and waiting for [`SendWindow::next_retransmit`].
    pub lost: u32,
}

/// Unacknowledged packets of one peer, as descriptors `T` of the engine.
///
/// Under [`Reliability::None`] it only hands out sequence numbers: nothing is kept, everything may
/// be sent, and the caller must not wait for acknowledgements. It owns no memory until the first
/// packet and gives it back on [`SendWindow::shrink`] or [`SendWindow::drain`].
pub struct SendWindow<T: Copy> {
    slots: VecDeque<Slot>,
    /// Runs cover the slots, in order; the front one may have lost its first packets.
    runs: VecDeque<Run<T>>,
    /// Makes the item for a retransmission, from the run's item, the packet's index in it and the
    /// count.
    part: fn(&T, u32, u32) -> T,
    /// Time of the last cumulative progress, from which the retransmission timer counts (RFC 6298,
    /// 5.3).
    progress: Instant,
    next: Seq,
    limit: u32,
    /// Most packets that may be in the network.
    congestion: u32,
    marks: Marks,
    reports: Reports,
    lanes: Lanes,
    trip: Trip,
    reorder: u8,
    /// Number of retransmissions of the oldest packet since it became the oldest.
    tries: u8,
    mode: Reliability,
    /// True if the receiver has reported that it drops packets after a gap, whatever this side's
    /// mode is.
    drops: bool,
}

/// The marks of the packets in the window, counted.
struct Marks {
    sacked: u32,
    lost: u32,
    /// Packets of the window that were sent more than once.
    resent: u32,
    /// True if one of them has arrived since the last search for losses.
    overtook: bool,
    /// No packet before this one is marked lost.
    cursor: Seq,
    /// Packets that may be sent again beyond the congestion window.
    probes: u8,
}

/// The receiver's reports of packets that it holds.
struct Reports {
    /// Number and map of the last acknowledgement with a map: its contents are handled already.
    mapped: Seq,
    map: SackMap,
    /// An acknowledgement has described every packet before this one: those that had arrived by
    /// then are marked.
    described: Seq,
}

/// The order of transmissions over each path.
#[derive(Default)]
struct Lanes {
    /// Number of the next transmission over each path.
    order: [u32; LANES],
    /// Transmissions before this number have been overtaken: one past the latest known to have
    /// arrived over this path.
    arrived: [u32; LANES],
    /// Packets lost over each path since one arrived.
    fails: [u16; LANES],
    /// Time of transmission of the latest packet that arrived, over any path.
    latest: Instant,
}

impl Lanes {
    /// Numbers `count` transmissions over a path; returns the first number.
    #[inline]
    fn send(&mut self, lane: u8, count: u32) -> u32 {
        let next = &mut self.order[usize::from(lane) % LANES];
        let first = *next;
        *next = first.wrapping_add(count);
        first
    }

    /// Notes that this transmission arrived over a path: it has overtaken all before it on that
    /// path that have not arrived.
    fn note_order(&mut self, lane: usize, order: u32) {
        let past = order.wrapping_add(1);
        if precedes(self.arrived[lane], past) {
            self.arrived[lane] = past;
        }
    }

    /// Notes that a packet was lost over a path.
    fn note_lost(&mut self, lane: usize) {
        self.fails[lane] = self.fails[lane].saturating_add(1);
    }

    /// Returns true, once, if a path other than the first two, which always exist, loses all
    /// packets.
    fn has_silent(&mut self) -> bool {
        let mut silent = false;
        for fails in &mut self.fails[2..] {
            silent |= *fails >= SILENT;
            *fails = if *fails >= SILENT { 0 } else { *fails };
        }
        silent
    }
}

/// Smoothed and smallest round trip in nanoseconds, saturating; 0 when unknown.
#[derive(Default)]
struct Trip {
    smoothed: u32,
    least: u32,
}

impl Trip {
    fn sample(&mut self, rtt: Duration) {
        let rtt = u32::try_from(rtt.as_nanos()).unwrap_or(u32::MAX).max(1);
        if self.smoothed == 0 {
            (self.smoothed, self.least) = (rtt, rtt);
        } else {
            self.smoothed = ((u64::from(self.smoothed) * 7 + u64::from(rtt)) / 8) as u32;
            self.least = if self.least == 0 { rtt } else { self.least.min(rtt) };
        }
    }
}

impl<T: Copy> SendWindow<T> {
    /// Makes a window of at most `limit` unacknowledged packets whose first packet is number
    /// `initial`. The limit is held to 1..=[`MAX_SELECTIVE`] under [`Reliability::Selective`].
    pub fn new(mode: Reliability, limit: u32, initial: Seq) -> Self {
        SendWindow {
            slots: VecDeque::new(),
            runs: VecDeque::new(),
            part: |item, _, _| *item,
            progress: Instant(0),
            next: initial,
            limit: clamp_limit(mode, limit),
            congestion: u32::MAX,
            marks: Marks {
                sacked: 0,
                lost: 0,
                resent: 0,
                overtook: false,
                cursor: initial,
                probes: 0,
            },
            reports: Reports { mapped: initial, map: SackMap::default(), described: initial },
            lanes: Lanes::default(),
            trip: Trip::default(),
            reorder: REORDER_MIN,
            tries: 0,
            mode,
            drops: false,
        }
    }

    /// Sets the function that makes the item for the retransmission of one packet of a run: from
    /// the run's item, the packet's index in it and the count of packets.
    pub fn parts_by(mut self, part: fn(&T, u32, u32) -> T) -> Self {
        self.part = part;
        self
    }

    /// Returns the mode given to [`SendWindow::new`].
    pub fn mode(&self) -> Reliability {
        self.mode
    }

    /// Returns the most unacknowledged packets.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Changes the limit; packets already sent beyond a smaller one stay.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = clamp_limit(self.mode, limit);
    }

    /// Sets the most packets that may be in the network, at least 1; no bound until then.
    #[inline]
    pub fn set_congestion(&mut self, packets: u32) {
        self.congestion = packets.max(1);
    }

    /// Returns the packets believed to be in the network: neither reported received nor judged
    /// lost.
    #[inline]
    pub fn in_network(&self) -> u32 {
        self.span() - self.marks.sacked - self.marks.lost
    }

    /// Returns the packets sent and acknowledged neither cumulatively nor selectively.
    pub fn in_flight(&self) -> u32 {
        self.span() - self.marks.sacked
    }

    /// Returns true if one more packet may be sent now. Under [`Reliability::GoBackN`] none may
    /// while packets wait for retransmission: the receiver would drop it.
    #[inline]
    pub fn can_send(&self) -> bool {
        self.span() < self.limit
            && self.in_network() < self.congestion
            && (self.marks.lost == 0 || !self.goes_back())
    }

    /// Returns true if all packets after a lost one are sent again, because of the mode of this
    /// side or of the receiver.
    fn goes_back(&self) -> bool {
        self.drops || self.mode == Reliability::GoBackN
    }

    /// Returns the number of packets that may be sent now.
    #[inline]
    pub fn room(&self) -> u32 {
        let room = self.limit.saturating_sub(self.span());
        room.min(self.congestion.saturating_sub(self.in_network()))
    }

    /// Returns true if no packet awaits acknowledgement.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns true if a packet is known to be missing at the receiver, which holds later ones.
    pub fn has_gap(&self) -> bool {
        self.marks.sacked > 0 || self.marks.lost > 0
    }

    /// Returns true, once, if a path other than the first two, which always exist, loses all
    /// packets.
    pub fn has_silent_lane(&mut self) -> bool {
        self.lanes.has_silent()
    }

    /// Returns the number of the next packet.
    pub fn next_seq(&self) -> Seq {
        self.next
    }

    /// Returns the number of packets waiting for [`SendWindow::next_retransmit`].
    pub fn awaiting_retransmit(&self) -> u32 {
        self.marks.lost
    }

    fn span(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns the oldest packet not acknowledged cumulatively, or the next.
    #[inline]
    pub fn oldest(&self) -> Seq {
        Seq(self.next.0.wrapping_sub(self.span()))
    }

    /// Records a first transmission and returns its number. [`SendWindow::can_send`] must be true
    /// before.
    #[inline]
    pub fn push(&mut self, now: Instant, item: T) -> Seq {
        self.push_run(now, item, 1, 0)
    }

    /// Records a first transmission of `count` packets (at least one) that are sent together over
    /// path `lane`, a number below [`LANES`]; returns the number of the first. [`SendWindow::room`]
    /// must allow them.
    #[inline]
    pub fn push_run(&mut self, now: Instant, item: T, count: u32, lane: u8) -> Seq {
        let seq = self.next;
        self.next = seq.plus(count);
        if self.mode == Reliability::None {
            return seq;
        }
        debug_assert!(self.span() + count <= self.limit, "push beyond the window");
        if self.slots.is_empty() {
            self.marks.cursor = seq;
            (self.progress, self.tries) = (now, 0);
        }
        self.runs.push_back(Run { item, first: seq, count });
        let first = self.lanes.send(lane, count);
        let slot = |i| Slot { sent: now, order: first.wrapping_add(i), flags: 0, lane };
        self.slots.extend((0..count).map(slot));
        seq
    }

    /// Returns the run of the packet with this index in the window, and the packet's index in the
    /// run.
    fn run_of(&self, index: u32) -> Option<(&Run<T>, u32)> {
        let base = self.runs.front()?.first;
        let at = self.oldest().plus(index).distance_from(base);
        let past = self.runs.partition_point(|run| run.first.distance_from(base) <= at);
        let run = self.runs.get(past.checked_sub(1)?)?;
        Some((run, at - run.first.distance_from(base)))
    }

    /// Forgets the runs of which no packet is left in the window.
    fn trim_runs(&mut self) {
        let oldest = self.oldest();
        while self.runs.front().is_some_and(|run| !oldest.before(run.first.plus(run.count))) {
            self.runs.pop_front();
        }
    }

    /// Notes that the packet pushed last will be answered at once.
    #[inline]
    pub fn mark_prompt(&mut self) {
        if let Some(slot) = self.slots.back_mut() {
            slot.flags |= PROMPT;
        }
    }

    /// Handles an acknowledgement: all packets before `ack`, the packets in `sack` (only under
    /// [`Reliability::Selective`]), and with `nack` a demand to go back ([`Reliability::GoBackN`]).
    /// Calls `acked` exactly once for each packet, with the item it was pushed with, the cumulative
    /// part in order.
    pub fn on_ack(
        &mut self,
        now: Instant,
        ack: Seq,
        sack: Option<&SackMap>,
        nack: bool,
        acked: &mut dyn FnMut(T, u32),
    ) -> AckOutcome {
        let mut out = AckOutcome::default();
        if self.mode == Reliability::None {
            return out;
        }
        let una = self.oldest();
        let advance = ack.distance_from(una);
        if advance > self.span() {
            out.stale = ack.before(una);
            out.invalid = !out.stale;
            return out;
        }
        let mut evidence = Evidence::default();
        if advance > 0 {
            self.pop_acked(now, advance, &mut out, &mut evidence, acked);
        }
        if !self.goes_back() {
            // Without a map the receiver holds nothing after `ack`, or the map has come before.
            let described = ack.plus(1 + SACK_BITS);
            if self.reports.described.before(described) {
                self.reports.described = described;
            }
            if let Some(sack) = sack {
                let Reports { mapped: before, map: known, .. } = self.reports;
                let news = if before == ack { sack.without(&known) } else { *sack };
                self.mark_sacked(now, &news, &mut out, &mut evidence, acked);
                if !out.invalid {
                    (self.reports.mapped, self.reports.map) = (ack, *sack);
                }
            }
        }
        // An honest peer never reports the packet it expects as received, so the front is never a
        // reported one.
        while let Some(slot) = self.slots.front().filter(|slot| slot.is(SACKED)) {
            self.marks.resent -= u32::from(slot.is(RESENT));
            self.slots.pop_front();
            self.marks.sacked -= 1;
        }
        self.trim_runs();
        if let Some(sample) = evidence.rtt {
            self.trip.sample(sample);
            out.rtt = Some(sample);
            out.prompt = evidence.prompt.then_some(sample);
        }
        if evidence.spurious {
            self.reorder = (self.reorder * 2).min(REORDER_MAX);
        }
        let mut overtook = false;
        for lane in 0..LANES {
            if let Some(order) = evidence.overtook(lane) {
                self.lanes.note_order(lane, order);
                overtook = true;
            }
        }
        out.lost = self.losses(now, sack, nack, overtook);
        out
    }

    fn pop_acked(
        &mut self,
        now: Instant,
        count: u32,
        out: &mut AckOutcome,
        evidence: &mut Evidence,
        acked: &mut dyn FnMut(T, u32),
    ) {
        let mut resent = false;
        let mut left = count;
        while left > 0 {
            let oldest = self.oldest();
            let Some(&Run { item, first, count }) = self.runs.front() else { break };
            let of_run = first.plus(count).distance_from(oldest).min(left);
            let mut fresh = of_run;
            // If no packet was lost, resent or reported, the ends of a run give all its evidence.
            let untouched =
                self.marks.sacked == 0 && self.marks.lost == 0 && self.marks.resent == 0;
            let ends = [self.slots.front(), self.slots.get(of_run as usize - 1)];
            if let (true, [Some(&front), Some(&back)]) = (untouched, ends) {
                self.slots.drain(..of_run as usize);
                self.note_arrival(now, &front, evidence);
                self.note_arrival(now, &back, evidence);
            } else {
                fresh = self.pop_each(now, of_run, &mut resent, evidence);
            }
            if fresh > 0 {
                out.newly_acked += fresh;
                acked(item, fresh);
            }
            left -= of_run;
            self.trim_runs();
        }
        // The packets after a retransmitted one arrived long before this acknowledgement was sent.
        if resent {
            evidence.rtt = None;
        }
        (self.progress, self.tries) = (now, 0);
    }

    /// Removes the first `count` packets of the window one by one. Returns the number of those
    /// acknowledged for the first time.
    fn pop_each(
        &mut self,
        now: Instant,
        count: u32,
        resent: &mut bool,
        evidence: &mut Evidence,
    ) -> u32 {
        let mut fresh = 0;
        for _ in 0..count {
            let Some(slot) = self.slots.pop_front() else { break };
            self.marks.resent -= u32::from(slot.is(RESENT));
            if slot.is(SACKED) {
                self.marks.sacked -= 1;
                continue;
            }
            *resent |= slot.is(RESENT);
            self.note_arrival(now, &slot, evidence);
            fresh += 1;
        }
        fresh
    }

    fn mark_sacked(
        &mut self,
        now: Instant,
        sack: &SackMap,
        out: &mut AckOutcome,
        evidence: &mut Evidence,
        acked: &mut dyn FnMut(T, u32),
    ) {
        // Adjacent packets mostly share a run.
        let (mut run, mut until, mut count): (Option<T>, u32, u32) = (None, 0, 0);
        for bit in sack.iter() {
            let index = bit + 1;
            let Some(slot) = self.slots.get_mut(index as usize) else {
                out.invalid = true;
                break;
            };
            if slot.is(SACKED) {
                continue;
            }
            let before = *slot;
            slot.flags = (slot.flags | SACKED) & !LOST;
            self.marks.sacked += 1;
            self.note_arrival(now, &before, evidence);
            out.newly_acked += 1;
            if index >= until {
                if let Some(item) = run.take() {
                    acked(item, count);
                }
                if let Some((found, at)) = self.run_of(index) {
                    (run, until, count) = (Some(found.item), index + found.count - at, 0);
                }
            }
            count += 1;
        }
        if let Some(item) = run {
            acked(item, count);
        }
    }

    /// Evaluates the first acknowledgement of a packet.
    fn note_arrival(&mut self, now: Instant, slot: &Slot, evidence: &mut Evidence) {
        if slot.is(LOST) {
            self.marks.lost -= 1;
        }
        let elapsed = now.since(slot.sent);
        self.lanes.latest = self.lanes.latest.max(slot.sent);
        if slot.is(RESENT) {
            // Acknowledged sooner than a round trip after a fast retransmission: an earlier copy
            // arrived, so the packet was late, not lost, and this is no evidence of the last
            // transmission. The answer to a probe after a timeout is not delayed as others are, and
            // may well be faster than the fastest measured round trip.
            if slot.is(FAST) && elapsed < Duration::from_nanos(u64::from(self.trip.least) / 4) {
                evidence.spurious = true;
                return;
            }
            let resent = &mut evidence.resent[slot.lane()];
            if resent.is_none_or(|order| precedes(order, slot.order)) {
                *resent = Some(slot.order);
            }
            return;
        }
        evidence.spurious |= slot.is(LOST) && slot.is(FAST);
        evidence.rtt = Some(elapsed);
        evidence.prompt |= slot.is(PROMPT);
        self.lanes.fails[slot.lane()] = 0;
        let first = &mut evidence.first[slot.lane()];
        if first.is_none_or(|order| precedes(slot.order, order)) {
            *first = Some(slot.order);
        }
        self.lanes.note_order(slot.lane(), slot.order);
    }

    /// Returns the time at which the retransmission timer was (re)started: the last transmission of
    /// the oldest unacknowledged packet or later progress. None if nothing is unacknowledged or the
    /// oldest already waits for retransmission.
    #[inline]
    pub fn oldest_sent(&self) -> Option<Instant> {
        let front = self.slots.front()?;
        (!front.is(LOST)).then(|| front.sent.max(self.progress))
    }

    /// Returns the time since when packets wait for an acknowledgement without progress; None if
    /// none do.
    pub fn stuck_since(&self) -> Option<Instant> {
        (!self.slots.is_empty()).then_some(self.progress)
    }

    /// Notes the receiver's report that the oldest packet arrived and waits for room: it counts as
    /// progress.
    pub fn note_waiting(&mut self, now: Instant) {
        (self.progress, self.tries) = (now, 0);
    }

    /// Returns the oldest unacknowledged packet, and the number of its retransmissions since it
    /// became the oldest.
    pub fn oldest_item(&self) -> Option<(T, u8)> {
        let (run, at) = self.run_of(0)?;
        Some(((self.part)(&run.item, at, run.count), self.tries))
    }

    /// Returns every packet not yet acknowledged, in order, as items and the number of packets of
    /// each, and frees the memory: the peer failed.
    pub fn drain(&mut self, each: &mut dyn FnMut(T, u32)) {
        let mut seq = self.oldest();
        let mut slots = core::mem::take(&mut self.slots).into_iter();
        for run in core::mem::take(&mut self.runs) {
            let of_run = run.first.plus(run.count).distance_from(seq);
            seq = seq.plus(of_run);
            let slots = slots.by_ref().take(of_run as usize);
            let left = slots.filter(|slot| !slot.is(SACKED)).count() as u32;
            if left > 0 {
                each(run.item, left);
            }
        }
        (self.marks.sacked, self.marks.lost, self.marks.resent) = (0, 0, 0);
    }

    /// Frees the memory if nothing is unacknowledged; for peers that fell silent.
    pub fn shrink(&mut self) {
        if self.slots.is_empty() {
            self.slots = VecDeque::new();
            self.runs = VecDeque::new();
        }
    }
}

/// The evidence in one acknowledgement.
#[derive(Default)]
struct Evidence {
    rtt: Option<Duration>,
    /// True if one of the packets was answered at once, and with it those that arrived together.
    prompt: bool,
    /// The latest retransmission that arrived, over each path.
    resent: [Option<u32>; LANES],
    /// The earliest first transmission that arrived.
    first: [Option<u32>; LANES],
    /// A packet judged lost from reordering had arrived after all.
    spurious: bool,
}

impl Evidence {
    /// Returns the retransmission that overtook packets numbered after it. None if first
    /// transmissions from before it arrive only now: then the peer was slow, and no packet need be
    /// lost.
    fn overtook(&self, lane: usize) -> Option<u32> {
        let resent = self.resent[lane]?;
        self.first[lane].is_none_or(|first| !precedes(first, resent)).then_some(resent)
    }
}

fn clamp_limit(mode: Reliability, limit: u32) -> u32 {
    let max = if mode == Reliability::Selective { MAX_SELECTIVE } else { u32::MAX / 4 };
    limit.clamp(1, max)
}

/// Compares transmission numbers in serial-number order.
fn precedes(a: u32, b: u32) -> bool {
    Seq(a).before(Seq(b))
}

#[cfg(test)]
impl<T: Copy> SendWindow<T> {
    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Returns the bytes of memory beside the window itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * core::mem::size_of::<Slot>()
            + self.runs.capacity() * core::mem::size_of::<Run<T>>()
    }
}

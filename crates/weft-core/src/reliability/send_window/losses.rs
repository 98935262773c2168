//! Detection of lost packets, by the order of arrivals or by a timeout, and their retransmission.

use super::{precedes, SendWindow, FAST, LOST, RESENT, SACKED};
use crate::reliability::SackMap;
use crate::{Instant, Seq};
use core::time::Duration;

/// A packet sent this long, and four round trips, before one that arrived over any path is lost.
const STRANDED: Duration = Duration::from_millis(1);

/// Packets that a timeout may send again beyond the congestion window.
const PROBES: u8 = 2;

impl<T: Copy> SendWindow<T> {
    /// Evaluates an acknowledgement for losses; returns the number of packets judged lost.
    pub(super) fn losses(
        &mut self,
        now: Instant,
        sack: Option<&SackMap>,
        nack: bool,
        overtook: bool,
    ) -> u32 {
        // A receiver that has reported held packets does not drop them.
        self.drops |= nack && self.marks.sacked == 0;
        if !self.goes_back() {
            return self.judge(now, sack.is_some(), overtook);
        }
        // The receiver may be selective although this side is not.
        let holds = sack.is_some_and(|sack| !sack.is_empty());
        if nack || holds {
            self.go_back(now)
        } else {
            0
        }
    }

    /// Searches for losses if the acknowledgement gives evidence; `overtook`: a retransmission has
    /// arrived.
    fn judge(&mut self, now: Instant, has_map: bool, overtook: bool) -> u32 {
        // A gap is known; the report of packets that arrived after it lately is still to come, or
        // was in an acknowledgement that was lost.
        if self.marks.sacked > 0 && !has_map {
            self.marks.overtook |= overtook;
            return 0;
        }
        let everywhere = overtook | core::mem::take(&mut self.marks.overtook);
        if self.marks.sacked == 0 && !everywhere {
            return 0;
        }
        self.detect_losses(now, everywhere)
    }

    /// Marks packets overtaken by `REORDER_MIN` or more later transmissions, or by any later one
    /// and sent longer ago than 9/8 of a round trip (RFC 9002 section 6.1); both bounds widen with
    /// `reorder`. A transmission that overtakes a retransmission was sent after it, so each packet
    /// is judged at most once a round trip. A path over which nothing arrives is judged by time
    /// alone. First transmissions overtake only packets before them, so that without `everywhere`
    /// the search ends at the last packet reported received. It never goes beyond the packets that
    /// acknowledgements have described: later ones may have arrived unreported.
    fn detect_losses(&mut self, now: Instant, everywhere: bool) -> u32 {
        let srtt = u64::from(self.trip.smoothed);
        let late = Duration::from_nanos(srtt + srtt * u64::from(self.reorder) / 24);
        let stranded = Duration::from_nanos(srtt * 4).max(STRANDED);
        let una = self.oldest();
        let known = match self.reports.described.before(una) {
            true => 0,
            false => self.reports.described.distance_from(una) as usize,
        };
        let (mut seen, mut marked) = (0, 0);
        for i in 0..self.slots.len().min(known) {
            if seen == self.marks.sacked && !everywhere {
                break;
            }
            let slot = &mut self.slots[i];
            if slot.is(SACKED) {
                seen += 1;
                continue;
            }
            let arrived = self.lanes.arrived[slot.lane()];
            let is_stranded = self.lanes.latest.since(slot.sent) >= stranded;
            if slot.is(LOST) || !(precedes(slot.order, arrived) || is_stranded) {
                continue;
            }
            let overtaken = match precedes(slot.order, arrived) {
                true => arrived.wrapping_sub(slot.order) - 1,
                false => 0,
            };
            let is_late = srtt > 0 && overtaken > 0 && now.since(slot.sent) >= late;
            if overtaken >= self.reorder.into() || is_late || is_stranded {
                slot.flags |= LOST | FAST;
                self.lanes.note_lost(slot.lane());
                self.note_lost(i);
                marked += 1;
            }
        }
        marked
    }

    fn note_lost(&mut self, index: usize) {
        let seq = self.oldest().plus(index as u32);
        if self.marks.lost == 0 || seq.before(self.marks.cursor) {
            self.marks.cursor = seq;
        }
        self.marks.lost += 1;
    }

    /// Handles a reported gap: everything is resent, unless the front was (re)sent within half a
    /// round trip.
    fn go_back(&mut self, now: Instant) -> u32 {
        let Some(front) = self.slots.front() else { return 0 };
        let age = now.since(front.sent);
        if front.is(LOST) || age < Duration::from_nanos(u64::from(self.trip.smoothed) / 2) {
            return 0;
        }
        if self.trip.smoothed == 0 {
            // A later packet made the round trip within this time; without any estimate every
            // further NACK of the same burst would cause another go-back.
            self.trip.smoothed = u32::try_from(age.as_nanos()).unwrap_or(u32::MAX);
        }
        self.mark_all_lost()
    }

    fn mark_all_lost(&mut self) -> u32 {
        let before = self.marks.lost;
        for slot in &mut self.slots {
            slot.flags = (slot.flags | LOST) & !FAST;
        }
        self.marks.lost = self.span();
        self.marks.cursor = self.oldest();
        self.marks.lost - before
    }

    /// Returns the next packet due for retransmission, if the network has room; it counts as sent
    /// `now`, over its previous path, or over path 1 instead of the stripes of data. (Over a
    /// quicker path it would arrive, and the death of its own path would not be noticed.) The
    /// oldest never waits for room: the timer watches it once it is sent.
    #[inline]
    pub fn next_retransmit(&mut self, now: Instant) -> Option<(Seq, T)> {
        if self.marks.lost == 0 {
            return None;
        }
        let una = self.oldest();
        let full = self.in_network() >= self.congestion;
        let start =
            if self.marks.cursor.before(una) { 0 } else { self.marks.cursor.distance_from(una) };
        for i in start..self.span() {
            let slot = &mut self.slots[i as usize];
            if !slot.is(LOST) {
                continue;
            }
            if i > 0 && full && self.marks.probes == 0 {
                self.marks.cursor = una.plus(i);
                return None;
            }
            self.marks.probes = self.marks.probes.saturating_sub(1);
            self.marks.resent += u32::from(!slot.is(RESENT));
            self.tries = self.tries.saturating_add(u8::from(i == 0));
            slot.flags = (slot.flags | RESENT) & !LOST;
            slot.sent = now;
            slot.lane = slot.lane.min(1);
            slot.order = self.lanes.send(slot.lane, 1);
            self.marks.lost -= 1;
            let seq = una.plus(i);
            self.marks.cursor = seq.next();
            let (run, at) = self.run_of(i)?;
            return Some((seq, (self.part)(&run.item, at, run.count)));
        }
        None
    }

    /// Handles the retransmission timeout, if it has fired. Go-back-N resends everything. Selective
    /// retransmission only probes with the first and the last missing packet, since often just the
    /// acknowledgement was lost; the answer shows the other missing packets (RFC 9002 section
    /// 6.2.4). The sender should ask for an immediate acknowledgement of each retransmission.
    /// Returns true if any packet was marked; the caller then backs its timeout off.
    pub fn on_timeout(&mut self, now: Instant, rto: Duration) -> bool {
        match self.oldest_sent() {
            Some(oldest) if now.since(oldest) >= rto => {}
            _ => return false,
        }
        self.marks.probes = PROBES;
        if self.goes_back() {
            // The estimate may include the delay of a lost acknowledgement, and while everything is
            // sent again there is no better one. No old packet is in flight now: the next NACK is
            // reliable.
            self.trip.smoothed = 0;
            return self.mark_all_lost() > 0;
        }
        let last = self.slots.iter().rposition(|slot| !slot.is(SACKED)).unwrap_or(0);
        for i in [0, last] {
            let slot = &mut self.slots[i];
            if !slot.is(LOST) {
                slot.flags = (slot.flags | LOST) & !FAST;
                self.note_lost(i);
            }
        }
        true
    }
}

//! The congestion window: it follows delay and, if delay agrees, loss.
//!
//! The delay of a packet beyond the smallest seen is time in queues. While it stays below a target
//! the window grows; above, it shrinks in proportion to the excess, once a round trip (Swift,
//! SIGCOMM 2020, section 3.1; the smaller of two round trips counts, so that a single late answer
//! of a busy processor does not). Loss alone is no evidence of a queue: it counts if delay shows
//! one or if a large part of the packets is lost.

use crate::Instant;
use core::time::Duration;

/// Fractional bits of the window.
const FRACTION: u32 = 8;
/// Smallest window, packets: one in flight while the other is answered.
const WINDOW_MIN: u32 = 2;
/// Window of an unknown path, packets: TCP's (RFC 6928).
const WINDOW_INITIAL: u32 = 10;
/// Packets lost in a round trip that count without delay: at least so many, and this part of the
/// window.
const LOSS_MIN: u32 = 4;
const LOSS_PART: u32 = 8;
/// Interval after which the window is nearly closed to measure the smallest delay, unless that
/// delay was seen meanwhile: at first, doubled each time, and at most (as BBR's ProbeRTT).
const DIP_FIRST: u64 = 10_000_000;
const DIP_LAST: u64 = 200_000_000;
/// Age at which a smallest delay is replaced by a larger one: the path has changed.
const BASE_AGE: u64 = 10_000_000_000;
/// Consecutive cuts, to a quarter of the window and without loss, that do not change the delay: its
/// cause is not this path, but a processor shared with others.
const FUTILE_CUTS: u32 = 6;
const FUTILE_PART: u32 = 4;
/// Round trips without a sample after which losses alone end a round: retransmissions give no
/// sample (Karn), so while a window is sent again and again there is none.
const UNMEASURED: u64 = 4;
const RTT_GUESS: u64 = 1_000_000;
/// Time for which delay is then ignored, unless packets are lost.
const DEAF: u64 = 100_000_000;

/// Observations of the network since the last call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signal {
    /// Packets that arrived.
    pub arrived: u32,
    /// Packets judged lost.
    pub lost: u32,
    /// A round trip, and the part of it spent in queues, nanoseconds.
    pub delay: Option<(u64, u64)>,
    /// True if the window was used up or nearly so: only then does it grow.
    pub limited: bool,
}

/// A number of packets that follows delay and loss.
#[derive(Clone, Debug)]
pub struct DelayWindow {
    /// Queueing delay aimed at, nanoseconds; 0: the window is always `most`.
    target: u64,
    most: u32,
    /// The window, with [`FRACTION`] bits of fraction.
    window: u32,
    /// True while it doubles each round trip, until delay or loss appear.
    slow_start: bool,
    round: Round,
    /// The smallest delay of the round before.
    before: u64,
    cuts: Option<Cuts>,
    deaf_until: Instant,
    /// The last round trip, an estimate until one is known, and the time of its measurement.
    rtt: u64,
    sampled: Instant,
}

/// Observations of the present round trip.
#[derive(Clone, Copy, Debug)]
struct Round {
    end: Instant,
    /// Smallest delay; `u64::MAX` without a sample.
    delay: u64,
    lost: u32,
    limited: bool,
}

impl Round {
    fn until(end: Instant) -> Round {
        Round { end, delay: u64::MAX, lost: 0, limited: false }
    }
}

/// Consecutive cuts: window and delay before the first, and their number.
#[derive(Clone, Copy, Debug)]
struct Cuts {
    window: u32,
    delay: u64,
    count: u32,
    lost: bool,
}

impl DelayWindow {
    /// Makes a window that starts at `initial` packets, doubles each round trip, never exceeds
    /// `most` and aims at `target` of queueing delay; with a target of zero it is always `most`.
    pub fn new(target: Duration, initial: u32, most: u32) -> DelayWindow {
        let most = most.clamp(1, 1 << 20);
        DelayWindow {
            target: nanos(target),
            most,
            window: initial.clamp(1, most) << FRACTION,
            slow_start: true,
            round: Round::until(Instant(0)),
            before: u64::MAX,
            cuts: None,
            deaf_until: Instant(0),
            rtt: RTT_GUESS,
            sampled: Instant(0),
        }
    }

    /// Returns true if it ever changes.
    pub fn adapts(&self) -> bool {
        self.target > 0
    }

    /// Returns the number of packets that may be in the network.
    #[inline]
    pub fn packets(&self) -> u32 {
        match self.target {
            0 => self.most,
            _ => self.window >> FRACTION,
        }
    }

    /// Returns its largest size.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Handles a signal. At the end of a round trip, returns the delay that this round trip and the
    /// one before had throughout.
    pub fn on_signal(&mut self, now: Instant, signal: Signal) -> Option<u64> {
        if self.target == 0 {
            return None;
        }
        self.round.limited |= signal.limited;
        self.round.lost = self.round.lost.saturating_add(signal.lost);
        if self.slow_start && self.round.limited {
            self.grow(signal.arrived << FRACTION);
        }
        let Some((rtt, delay)) = signal.delay else {
            let due = Instant(self.sampled.0.saturating_add(self.rtt.saturating_mul(UNMEASURED)));
            if self.round.lost > 0 && now >= due.max(self.round.end) {
                self.end_unmeasured(now);
            }
            return None;
        };
        (self.rtt, self.sampled) = (rtt, now);
        self.round.delay = self.round.delay.min(delay);
        self.slow_start &= delay <= self.target / 4;
        (now >= self.round.end).then(|| self.end_round(now, rtt))
    }

    /// Ends a round of which only losses are known.
    fn end_unmeasured(&mut self, now: Instant) {
        let many = self.lost_many();
        let rest = self.rtt.saturating_mul(UNMEASURED);
        self.round = Round::until(Instant(now.0.saturating_add(rest)));
        if many {
            self.slow_start = false;
            let target = self.scaled_target();
            self.cut(now, target, target, true);
        }
    }

    /// Returns true if the losses count without delay.
    fn lost_many(&self) -> bool {
        self.round.lost >= LOSS_MIN && self.round.lost >= self.packets() / LOSS_PART
    }

    fn end_round(&mut self, now: Instant, rtt: u64) -> u64 {
        let (round, many) = (self.round, self.lost_many());
        self.round = Round::until(Instant(now.0.saturating_add(rtt)));
        let standing = round.delay.min(self.before);
        self.before = round.delay;
        let heard = now >= self.deaf_until;
        let lost = many || (round.lost > 0 && standing > self.target / 2);
        let target = self.scaled_target();
        if lost || (heard && standing > target) {
            self.slow_start = false;
            self.cut(now, standing, target, lost);
            return standing;
        }
        self.cuts = None;
        if round.limited && !self.slow_start {
            // Far from the target there is room for all flows that see the same queue.
            let far = round.delay <= self.target / 4;
            self.grow(if far { (self.window / 8).max(1 << FRACTION) } else { 1 << FRACTION });
        }
        standing
    }

    /// Returns the target: the smaller a window, the longer the queue it tolerates, so that flows
    /// that see the same queue, and misjudge it by a little, do not drift apart (Swift, section
    /// 3.1, flow scaling).
    fn scaled_target(&self) -> u64 {
        let root = u64::from(self.window.isqrt().max(1));
        self.target + (self.target << (FRACTION / 2)) / root
    }

    fn grow(&mut self, by: u32) {
        self.window = self.window.saturating_add(by).min(self.most << FRACTION);
    }

    /// Shrinks the window by a part that grows with the excess of delay, an eighth to a half.
    fn cut(&mut self, now: Instant, delay: u64, target: u64, lost: bool) {
        let least = WINDOW_MIN.min(self.most) << FRACTION;
        let first = Cuts { window: self.window, delay, count: 0, lost: false };
        let cuts = self.cuts.get_or_insert(first);
        cuts.count += 1;
        cuts.lost |= lost;
        let futile = !cuts.lost
            && cuts.count > FUTILE_CUTS
            && self.window <= cuts.window / FUTILE_PART
            && delay >= cuts.delay - cuts.delay / 4;
        if futile {
            self.window = cuts.window;
            self.cuts = None;
            self.deaf_until = Instant(now.0.saturating_add(DEAF));
            return;
        }
        let excess = delay.saturating_sub(target);
        let part = u64::from(self.window) * excess / delay.max(1) * 4 / 5;
        let part = (part as u32).clamp(self.window / 8, self.window / 2);
        let part = if lost { part.max(self.window / 4) } else { part };
        self.window = (self.window - part).max(least);
    }

    /// Restarts: several timeouts without an answer make the path's estimates void.
    fn restart(&mut self) {
        self.window = self.window.min(WINDOW_INITIAL.min(self.most) << FRACTION);
        self.slow_start = true;
    }
}

/// The smallest round trip of a path, and the time since when it has not been seen.
#[derive(Clone, Copy, Debug, Default)]
struct Base {
    /// Nanoseconds, 0 if unknown.
    least: u64,
    seen: Instant,
}

impl Base {
    /// Handles a round trip; returns its excess over the smallest.
    fn sample(&mut self, now: Instant, rtt: u64) -> u64 {
        if self.least == 0 || rtt <= self.least + self.least / 8 {
            self.seen = now;
        }
        if self.least == 0 || rtt < self.least {
            self.least = rtt;
        }
        rtt - self.least
    }
}

/// The congestion window of one path.
///
/// A sender that starts on a path filled by others takes their queue for the path's own delay. So
/// the window is nearly closed for two round trips at intervals, if the smallest delay was not seen
/// meanwhile: the sender's own queue drains, and every sender can measure the delay.
#[derive(Clone, Debug)]
pub struct Congestion {
    window: DelayWindow,
    base: Base,
    /// End of the dip, and the smallest round trip seen in it.
    dip: Option<(Instant, u64)>,
    dip_wait: u64,
    dipped: Instant,
}

impl Congestion {
    /// Makes a window of at most `most` packets that aims at `target` of queueing delay; with a
    /// target of zero it is always `most`.
    pub fn new(target: Duration, most: u32) -> Congestion {
        Congestion {
            window: DelayWindow::new(target, WINDOW_INITIAL, most),
            base: Base::default(),
            dip: None,
            dip_wait: DIP_FIRST,
            dipped: Instant(0),
        }
    }

    /// Returns true if the window ever changes.
    pub fn adapts(&self) -> bool {
        self.window.adapts()
    }

    /// Returns the number of packets that may be in the network.
    #[inline]
    pub fn window(&self) -> u32 {
        match self.dip {
            Some(_) => WINDOW_MIN.min(self.window.most),
            None => self.window.packets(),
        }
    }

    /// Handles a round trip measured before the first packet of the window.
    pub fn first_sample(&mut self, now: Instant, rtt: Duration) {
        self.base.sample(now, nanos(rtt).max(1));
    }

    /// Handles an acknowledgement: packets acknowledged for the first time, packets judged lost,
    /// the round trip of one that was answered at once, and true if the window was used up. Returns
    /// round trip and queueing delay in nanoseconds.
    pub fn on_ack(
        &mut self,
        now: Instant,
        arrived: u32,
        lost: u32,
        rtt: Option<Duration>,
        limited: bool,
    ) -> Option<(u64, u64)> {
        let rtt = rtt.map(|rtt| nanos(rtt).max(1));
        let delay = rtt.map(|rtt| (rtt, self.base.sample(now, rtt)));
        if let (Some((until, least)), Some(rtt)) = (&mut self.dip, rtt) {
            *least = rtt.min(*least);
            if now >= *until {
                self.end_dip(now);
            }
        } else if self.dip.is_none() {
            let signal = Signal { arrived, lost, delay, limited };
            if let (Some(standing), Some(rtt)) = (self.window.on_signal(now, signal), rtt) {
                self.consider_dip(now, rtt, standing);
            }
        }
        delay
    }

    /// Restarts after several timeouts without an answer.
    pub fn on_silence(&mut self) {
        self.window.restart();
        self.dip = None;
    }

    /// Forgets the path's estimates, since packets take another path.
    pub fn on_new_path(&mut self) {
        self.on_silence();
        self.base = Base::default();
    }

    fn consider_dip(&mut self, now: Instant, rtt: u64, standing: u64) {
        if self.dipped == Instant(0) {
            self.dipped = now;
        }
        let since = self.base.seen.max(self.dipped);
        let due = nanos(now.since(since)) > self.dip_wait;
        if due && standing > self.window.target / 4 {
            let until = Instant(now.0.saturating_add(rtt.saturating_mul(2)));
            self.dip = Some((until, u64::MAX));
        }
    }

    fn end_dip(&mut self, now: Instant) {
        let Some((_, least)) = self.dip.take() else { return };
        self.dipped = now;
        self.dip_wait = (self.dip_wait * 2).min(DIP_LAST);
        if nanos(now.since(self.base.seen)) > BASE_AGE && least > self.base.least {
            self.base = Base { least, seen: now };
        }
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

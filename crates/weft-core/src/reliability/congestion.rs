//! How much may be in the network: a window that follows delay and, where delay agrees, loss.
//!
//! The delay of a packet beyond the smallest seen is time in queues. While it stays below a target
//! the window grows; above, it shrinks by how far it is above, once a round trip (Swift, SIGCOMM
//! 2020, section 3.1; the smallest of two round trips counts, so that a single late answer of a
//! busy processor does not). Loss alone is no evidence of a queue: it counts where delay shows one
//! or where it takes a good part of what was sent.

use crate::Instant;
use core::time::Duration;

/// Fractional bits of the window.
const FRACTION: u32 = 8;
/// Smallest window, packets: one under way while the other is answered.
const WINDOW_MIN: u32 = 2;
/// Window of a path nothing is known of, packets: TCP's (RFC 6928).
const WINDOW_INITIAL: u32 = 10;
/// Packets that must be lost in a round trip, and the part of the window, to count without delay.
const LOSS_MIN: u32 = 4;
const LOSS_PART: u32 = 8;
/// Time after which the smallest delay is looked for with an all but empty window, if it has not
/// shown itself: at first, doubled each time, and at most (as BBR's ProbeRTT).
const DIP_FIRST: u64 = 10_000_000;
const DIP_LAST: u64 = 200_000_000;
/// Age at which a smallest delay is replaced by a larger one: the path has changed.
const BASE_AGE: u64 = 10_000_000_000;
/// Cuts in a row, to a quarter of the window and without loss, that leave the delay as it is: it is
/// not of this path's making, but that of a processor shared with others.
const FUTILE_CUTS: u32 = 6;
const FUTILE_PART: u32 = 4;
/// Round trips without a sample after which losses end a round alone: what is sent again gives no
/// sample (Karn), so while a window is sent again and again there is none.
const UNMEASURED: u64 = 4;
const RTT_GUESS: u64 = 1_000_000;
/// Time for which delay is then not listened to, unless packets are lost.
const DEAF: u64 = 100_000_000;

/// What has been learnt about the network since the last call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signal {
    /// Packets that arrived.
    pub arrived: u32,
    /// Packets judged lost.
    pub lost: u32,
    /// A round trip, and what of it was spent in queues, nanoseconds.
    pub delay: Option<(u64, u64)>,
    /// The window was, or all but was, used up: only then does it grow.
    pub limited: bool,
}

/// A number of packets that follows delay and loss.
#[derive(Clone, Debug)]
pub struct DelayWindow {
    /// Queueing delay aimed at, nanoseconds; 0: the window is always `most`.
    target: u64,
    most: u32,
    /// With [`FRACTION`] bits of fraction.
    window: u32,
    /// Doubles each round trip, until delay or loss show.
    slow_start: bool,
    round: Round,
    /// The smallest delay of the round before.
    before: u64,
    cuts: Option<Cuts>,
    deaf_until: Instant,
    /// The last round trip, a guess until one is known, and when it was measured.
    rtt: u64,
    sampled: Instant,
}

/// What the round trip now going on has shown.
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

/// Cuts of the window in a row: what it and the delay were before the first, and how many.
#[derive(Clone, Copy, Debug)]
struct Cuts {
    window: u32,
    delay: u64,
    count: u32,
    lost: bool,
}

impl DelayWindow {
    /// A window that starts at `initial` packets, doubling, never exceeds `most` and aims at
    /// `target` of queueing delay; with a target of zero it is always `most`.
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

    /// Whether it ever changes.
    pub fn adapts(&self) -> bool {
        self.target > 0
    }

    /// Packets that may be in the network.
    #[inline]
    pub fn packets(&self) -> u32 {
        match self.target {
            0 => self.most,
            _ => self.window >> FRACTION,
        }
    }

    /// The largest it becomes.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Takes in a signal. Returns the delay that both this round trip and the one before had all
    /// through, when a round trip has ended.
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

    /// A round of which only losses are known.
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

    /// So many that they count without delay.
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
            // Far from the target there is room for all who see the same queue.
            let far = round.delay <= self.target / 4;
            self.grow(if far { (self.window / 8).max(1 << FRACTION) } else { 1 << FRACTION });
        }
        standing
    }

    /// The smaller a window, the longer the queue it bears: so flows that see the same queue, and
    /// misjudge it by a little, do not drift apart (Swift, section 3.1, flow scaling).
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

    /// Nothing came back for several timeouts: what was known of the path is void.
    fn restart(&mut self) {
        self.window = self.window.min(WINDOW_INITIAL.min(self.most) << FRACTION);
        self.slow_start = true;
    }
}

/// The smallest round trip of a path, and since when it has not been seen.
#[derive(Clone, Copy, Debug, Default)]
struct Base {
    /// Nanoseconds, 0 when unknown.
    least: u64,
    seen: Instant,
}

impl Base {
    /// Takes in a round trip; returns what it had beyond the smallest.
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
/// Who starts on a path that others fill takes their queue for the path's own delay. So the window
/// is all but closed for two round trips now and then, if the smallest delay has not shown itself:
/// the queue of its own making drains, and everybody sees it.
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
    /// A window of at most `most` packets that aims at `target` of queueing delay; with a target of
    /// zero it is always `most`.
    pub fn new(target: Duration, most: u32) -> Congestion {
        Congestion {
            window: DelayWindow::new(target, WINDOW_INITIAL, most),
            base: Base::default(),
            dip: None,
            dip_wait: DIP_FIRST,
            dipped: Instant(0),
        }
    }

    /// Whether the window ever changes.
    pub fn adapts(&self) -> bool {
        self.window.adapts()
    }

    /// Packets that may be in the network.
    #[inline]
    pub fn window(&self) -> u32 {
        match self.dip {
            Some(_) => WINDOW_MIN.min(self.window.most),
            None => self.window.packets(),
        }
    }

    /// A round trip from before the first packet of the window.
    pub fn first_sample(&mut self, now: Instant, rtt: Duration) {
        self.base.sample(now, nanos(rtt).max(1));
    }

    /// Takes in an acknowledgement: packets acknowledged for the first time, packets judged lost,
    /// the round trip of one that was answered at once, and whether the window was used up.
    /// Returns round trip and queueing delay in nanoseconds.
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

    /// Nothing came back for several timeouts.
    pub fn on_silence(&mut self) {
        self.window.restart();
        self.dip = None;
    }

    /// What was learnt is of another path.
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

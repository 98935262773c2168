//! The longest packet of a path, found by probing (RFC 8899).
//!
//! A path is assumed to carry packets as long as its link's. When packets vanish although the peer
//! is heard, packets of several lengths probe the path: the longest that is answered is used. A
//! length counts as too long when it was probed in vain three times while a shorter one was
//! answered, so that losses alone have no effect. Longer ones are tried again later.

use crate::config::MTU_MIN;
use crate::time::Instant;
use core::time::Duration;

/// Lengths probed at a time. The first are known to get through.
pub const PROBES: usize = 8;
const KNOWN: usize = 2;
/// A search ends when the uncertain range is so many bytes.
const STEP: u32 = 8;
/// Rounds without an answer to a longer probe after which the shortest of those is too long.
const MISSES: u8 = 3;
/// Rounds without any answer after which a search ends: the peer is silent.
const SILENCE: u8 = 6;
/// Rounds without any answer after which a search begins anew from the shortest: the path may carry
/// less than it did.
const SHRUNK: u8 = 2;
/// Time for answers: at first, and at most.
const WAIT: [Duration; 2] = [Duration::from_millis(30), Duration::from_secs(1)];
/// Pause after a search without any answer, as the peer may be silent for long: at first, and at
/// most.
const QUIET: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(16)];
/// Time for which the result of a search holds.
const HOLDS: Duration = Duration::from_secs(1);
/// Time until longer packets are tried again: at first, and at most (RFC 8899, 5.1.1).
const RAISE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(600)];

/// A search between a length that gets through and one that does not.
#[derive(Clone, Copy, Debug)]
struct Search {
    low: u32,
    high: u32,
    /// True if it probes lengths above the one in use.
    raises: bool,
    /// Probed in this round.
    asked: [u32; PROBES],
    until: Instant,
    wait: Duration,
    /// Some length of this round was answered; and one longer than all before.
    heard: bool,
    grew: bool,
    /// `high` was asked for in vain.
    missed: bool,
    misses: u8,
    silent: u8,
    rounds: u16,
}

/// The state of the search for the longest packet of a path.
#[derive(Clone, Copy, Debug)]
pub struct PathMtu {
    most: u32,
    fits: u32,
    search: Option<Search>,
    /// End of the last search that confirmed the length.
    searched: Option<Instant>,
    /// End of the pause after a search without any answer.
    quiet_until: Instant,
    quiet: Duration,
    raise_at: Instant,
    raise_wait: Duration,
}

impl PathMtu {
    /// Makes the state of a path whose link carries packets of `most` bytes.
    pub fn new(most: u32) -> PathMtu {
        let (search, raise_at, raise_wait) = (None, Instant::FAR, RAISE[0]);
        let (searched, quiet_until, quiet) = (None, Instant(0), QUIET[0]);
        let fits = most;
        PathMtu { most, fits, search, searched, quiet_until, quiet, raise_at, raise_wait }
    }

    /// Returns the longest packet to send, in bytes.
    pub fn fits(&self) -> u32 {
        self.fits
    }

    /// Notes that the link carries packets of `most` bytes from now on.
    pub fn set_most(&mut self, now: Instant, most: u32) {
        let bounded = self.fits < self.most;
        self.most = most;
        self.search = None;
        self.fits = if bounded { self.fits.min(most) } else { most };
        self.raise_at = if self.fits < most { now } else { Instant::FAR };
    }

    /// Returns true if a search has found lately, and after `since`, that packets of the length in
    /// use get through.
    pub fn is_known(&self, now: Instant, since: Instant) -> bool {
        self.searched.is_some_and(|at| since <= at && now < at + HOLDS)
    }

    /// Returns true if a search has found lately that packets of no length are answered.
    pub fn is_silent(&self, now: Instant) -> bool {
        now < self.quiet_until
    }

    /// Starts a search, as a packet has vanished again and again since then, unless one is in
    /// progress or has ended lately.
    pub fn suspect(&mut self, now: Instant, since: Instant) {
        if self.search.is_none() && !self.is_known(now, since) && !self.is_silent(now) {
            self.begin(now, MTU_MIN.min(self.fits), self.fits + 1);
        }
    }

    fn begin(&mut self, now: Instant, low: u32, high: u32) {
        self.search = Some(Search {
            low,
            high,
            raises: high > self.fits + 1,
            asked: [0; PROBES],
            until: now,
            wait: WAIT[0],
            heard: false,
            grew: false,
            missed: false,
            misses: 0,
            silent: 0,
            rounds: 0,
        });
    }

    /// Returns the time at which to call [`poll`](Self::poll).
    pub fn next_timeout(&self) -> Option<Instant> {
        let raise = Some(self.raise_at).filter(|&at| at != Instant::FAR);
        self.search.map(|search| search.until).or(raise)
    }

    /// Returns the lengths to probe now, if it is time. [`fits`](Self::fits) may change.
    pub fn poll(&mut self, now: Instant) -> Option<[u32; PROBES]> {
        if self.search.is_none() && self.raise_at <= now {
            self.begin(now, self.fits, self.most + 1);
        }
        let search = self.search.as_mut().filter(|search| search.until <= now)?;
        let goes_on = search.rounds == 0 || search.end_round();
        if !goes_on || search.is_done() {
            self.end(now);
            return None;
        }
        Some(search.ask(now))
    }

    /// Notes that a packet of this length got through.
    pub fn answered(&mut self, now: Instant, size: u32) {
        if size > self.most {
            return;
        }
        (self.quiet_until, self.quiet) = (Instant(0), QUIET[0]);
        let Some(search) = &mut self.search else {
            self.fits = self.fits.max(size);
            return;
        };
        search.heard = true;
        if size > search.low {
            (search.low, search.grew) = (size, true);
            search.high = search.high.max(size + 1);
        }
        if search.asked[PROBES - 1] <= search.low {
            search.until = now;
        }
    }

    fn end(&mut self, now: Instant) {
        let Some(search) = self.search.take() else { return };
        let before = self.fits;
        // A silent peer proves nothing about lengths.
        let silent = search.silent >= SILENCE;
        if !silent {
            self.fits = search.low.min(self.most);
        }
        // If the length stays, it is not the reason why packets vanish.
        self.searched = (!silent && self.fits == before).then_some(now);
        if silent {
            self.quiet_until = now + self.quiet;
            self.quiet = (self.quiet * 2).min(QUIET[1]);
        }
        // Only longer lengths probed in vain delay the next try.
        self.raise_wait = match (self.fits == before, search.raises) {
            (true, true) => (self.raise_wait * 2).min(RAISE[1]),
            (true, false) => self.raise_wait,
            (false, _) => RAISE[0],
        };
        self.raise_at = if self.fits < self.most { now + self.raise_wait } else { Instant::FAR };
    }
}

impl Search {
    /// Evaluates a round. False if the peer answers nothing.
    fn end_round(&mut self) -> bool {
        if !self.heard {
            self.silent += 1;
            if self.silent == SHRUNK {
                self.low = self.low.min(MTU_MIN);
            }
            self.wait = (self.wait * 2).min(WAIT[1]);
            return self.silent < SILENCE;
        }
        self.silent = 0;
        self.wait = (self.wait / 2).max(WAIT[0]);
        self.misses = if self.grew { 0 } else { self.misses + 1 };
        if self.misses == MISSES {
            (self.misses, self.missed) = (0, true);
            let low = self.low;
            let longer = self.asked.into_iter().filter(|&size| size > low).min();
            self.high = longer.unwrap_or(self.high).min(self.high);
        }
        true
    }

    /// Returns true if few enough bytes are in doubt. The length in use is too long only if it was
    /// itself asked for in vain.
    fn is_done(&self) -> bool {
        self.high - self.low <= if self.missed { STEP } else { 1 }
    }

    /// Returns lengths that get through first, then some evenly spread up to the one that does not.
    fn ask(&mut self, now: Instant) -> [u32; PROBES] {
        let (span, parts) = (self.high - 1 - self.low, (PROBES - KNOWN) as u32);
        self.asked = core::array::from_fn(|i| {
            let part = (i + 1).saturating_sub(KNOWN) as u64;
            self.low + (u64::from(span) * part).div_ceil(u64::from(parts)) as u32
        });
        (self.heard, self.grew) = (false, false);
        self.rounds = self.rounds.saturating_add(1);
        self.until = now + self.wait;
        self.asked
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    /// Lets time pass over a path that carries `carries` bytes and loses `lost` of 100 packets.
    fn pass(path: &mut PathMtu, ms: core::ops::Range<u64>, carries: u32, lost: u64) -> u32 {
        let (mut asked, mut state) = (0, 9u64);
        for now in ms {
            for size in path.poll(at(now)).into_iter().flatten() {
                asked += 1;
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if size <= carries && (state >> 33) % 100 >= lost {
                    path.answered(at(now), size);
                }
            }
        }
        asked
    }

    #[test]
    fn suspect__finds_what_gets_through_and_no_more() {
        for carries in [276, 500, 1000, 1384, 1471, 1472] {
            let mut path = PathMtu::new(1472);
            assert_eq!((path.poll(at(0)), path.next_timeout()), (None, None), "no doubt");
            path.suspect(at(1), at(1));
            pass(&mut path, 1..2_000, carries, 0);
            assert!((carries.saturating_sub(STEP)..=carries).contains(&path.fits()), "{path:?}");
            let found = path.searched.is_some();
            assert_eq!(found, carries == 1472);
        }
    }

    #[test]
    fn suspect__what_is_right_stays_though_packets_are_lost() {
        let mut path = PathMtu::new(1472);
        path.suspect(at(1), at(1));
        let asked = pass(&mut path, 1..1_000, 1472, 0);
        assert_eq!((path.fits(), asked), (1472, PROBES as u32));
        path.suspect(at(900), at(1));
        assert_eq!(pass(&mut path, 900..950, 1472, 0), 0, "that is known");
        path.suspect(at(950), at(940));
        assert_eq!(pass(&mut path, 950..1_000, 1472, 0), PROBES as u32, "it was true before");
        for ms in (1_000..20_000).step_by(2_000) {
            path.suspect(at(ms), at(ms));
            pass(&mut path, ms..ms + 2_000, 1472, 20);
            assert_eq!(path.fits(), 1472, "{path:?}");
        }
    }

    #[test]
    fn suspect__a_silent_peer_changes_nothing() {
        let mut path = PathMtu::new(1472);
        path.suspect(at(0), at(0));
        let asked = pass(&mut path, 0..3_000, 0, 0);
        assert!(
            path.is_silent(at(3_000)) && !path.is_known(at(3_000), at(0)),
            "silence is no answer"
        );
        assert_eq!((path.fits(), path.search.is_none()), (1472, true));
        assert!(asked <= u32::from(SILENCE) * PROBES as u32);
        let mut asked = 0;
        for ms in (3_000..60_000).step_by(100) {
            path.suspect(at(ms), at(ms));
            asked += pass(&mut path, ms..ms + 100, 0, 0);
        }
        assert!((100..350).contains(&asked), "it is asked less and less often: {asked}");
    }

    #[test]
    fn poll__longer_ones_are_tried_again_less_and_less_often() {
        let mut path = PathMtu::new(1472);
        path.suspect(at(0), at(0));
        pass(&mut path, 0..2_000, 1000, 0);
        let asked = pass(&mut path, 2_000..200_000, 1000, 0);
        assert!((PROBES as u32..400).contains(&asked), "{asked}");
        assert!((992..=1000).contains(&path.fits()));
        pass(&mut path, 200_000..900_000, 1472, 0);
        assert_eq!((path.fits(), path.next_timeout()), (1472, None));
    }

    #[test]
    fn poll__a_path_that_carries_less_during_a_search_is_searched_anew() {
        let mut path = PathMtu::new(1472);
        path.suspect(at(0), at(0));
        pass(&mut path, 0..1, 1300, 0);
        pass(&mut path, 1..4_000, 400, 0);
        assert!((392..=400).contains(&path.fits()), "{path:?}");
        pass(&mut path, 4_000..60_000, 300, 0);
        assert!((276..=300).contains(&path.fits()), "tried again with longer ones: {path:?}");
    }

    #[test]
    fn set_most__what_the_link_says_bounds_and_what_was_found_stays() {
        let mut path = PathMtu::new(1472);
        path.set_most(at(0), 1372);
        assert_eq!(path.fits(), 1372);
        path.set_most(at(0), 1472);
        assert_eq!((path.fits(), path.next_timeout()), (1472, None));
        path.suspect(at(1), at(1));
        pass(&mut path, 1..2_000, 1000, 0);
        path.set_most(at(3_000), 8972);
        assert!(path.fits() <= 1000 && path.next_timeout() == Some(at(3_000)), "{path:?}");
        path.set_most(at(3_000), 600);
        assert_eq!(path.fits(), 600);
    }
}

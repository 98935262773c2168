//! The paths to a peer: the links that reach it, and which of them carries what.
//!
//! A peer inside the host has one path. Over networks it has one for each link that both sides
//! offer: small packets take the one with the lowest latency, DATA the one with the highest rate.
//! A path is used once it is proven: a HELLO sent over it was answered. When packets stay
//! unacknowledged, all paths are asked again; those that stay silent while another answers are
//! lost, and what they carried moves.

use arrayvec::ArrayVec;
use std::time::Duration;
use weft_core::{Instant, LinkCaps};

/// Most paths to a peer.
pub(super) const PATHS_MAX: usize = 4;
/// Between two questions over a path that never answered or is lost: at first, and at most.
const ASK_AGAIN: Duration = Duration::from_millis(250);
const ASK_AGAIN_MAX: Duration = Duration::from_secs(30);
/// What is asked within this time of another answer may still be on its way.
const GRACE: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unproven,
    Proven,
    Lost,
}

/// One way to a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub link: u8,
    caps: LinkCaps,
    state: State,
    asked: Option<Instant>,
    answered: Option<Instant>,
    wait: Duration,
}

impl Path {
    pub fn new(link: usize, caps: LinkCaps) -> Path {
        let (asked, answered) = (None, None);
        Path { link: link as u8, caps, state: State::Unproven, asked, answered, wait: ASK_AGAIN }
    }

    fn ask_at(&self) -> Option<Instant> {
        match (self.state, self.asked) {
            (State::Proven, _) => None,
            (_, None) => Some(Instant(0)),
            (_, Some(asked)) => Some(asked + self.wait),
        }
    }
}

/// All ways to a peer.
#[derive(Clone, Debug)]
pub(super) struct Route {
    paths: ArrayVec<Path, PATHS_MAX>,
    /// Link for all but DATA.
    pub small: u8,
    /// Link for DATA.
    pub bulk: u8,
    /// Link the last question came over: the answer goes back the same way.
    reply: u8,
}

impl Route {
    /// `None` without a path.
    pub fn new(paths: ArrayVec<Path, PATHS_MAX>) -> Option<Route> {
        let first = paths.first()?.link;
        let mut route = Route { paths, small: first, bulk: first, reply: first };
        route.choose();
        Some(route)
    }

    /// Links of all paths.
    pub fn links(&self) -> impl Iterator<Item = usize> + '_ {
        self.paths.iter().map(|p| usize::from(p.link))
    }

    /// Whether there is a choice.
    pub fn has_choice(&self) -> bool {
        self.paths.len() > 1
    }

    pub fn reply(&self) -> usize {
        self.reply.into()
    }

    /// A question came over this link.
    pub fn asked_over(&mut self, link: usize) {
        if self.links().any(|l| l == link) {
            self.reply = link as u8;
        }
    }

    /// What the engine has to know: packets fit every path, so that none has to be cut anew when
    /// one is lost; latency is that of the best path for small packets, the rate that of the best
    /// for data.
    pub fn caps(&self) -> LinkCaps {
        let quick = self.best(|p| u64::from(u32::MAX - p.caps.latency_ns));
        let fast = self.best(|p| u64::from(p.caps.bytes_per_us));
        let mut caps = quick;
        caps.mtu = self.paths.iter().map(|p| p.caps.mtu).min().unwrap_or(quick.mtu);
        caps.small_bytes_per_us = quick.bytes_per_us;
        (caps.bytes_per_us, caps.train) = (fast.bytes_per_us, fast.train);
        caps
    }

    /// A path now carries packets of this size; returns what all carry.
    pub fn set_mtu(&mut self, link: usize, mtu: u32) -> u32 {
        for path in self.paths.iter_mut().filter(|p| usize::from(p.link) == link) {
            path.caps.mtu = mtu;
        }
        self.caps().mtu
    }

    fn best(&self, rank: impl Fn(&Path) -> u64) -> LinkCaps {
        let best = self.paths.iter().reduce(|a, b| if rank(b) > rank(a) { b } else { a });
        best.map_or(LinkCaps::network("none", 512), |p| p.caps)
    }

    /// Chooses among the proven paths; while there are none, among those not lost. True if the
    /// choice has changed.
    fn choose(&mut self) -> bool {
        let wanted = [State::Proven, State::Unproven, State::Lost];
        let state = wanted.into_iter().find(|s| self.paths.iter().any(|p| p.state == *s));
        let candidates = || self.paths.iter().filter(|p| Some(p.state) == state);
        let small = candidates().min_by_key(|p| p.caps.latency_ns).map_or(self.small, |p| p.link);
        // Of two that are equal, the one in use for small packets.
        let rate = |p: &&Path| (p.caps.bytes_per_us, p.link == small);
        let bulk = candidates().max_by_key(rate).map_or(self.bulk, |p| p.link);
        let changed = (self.small, self.bulk) != (small, bulk);
        (self.small, self.bulk) = (small, bulk);
        changed
    }

    /// The peer answered over this link. True if another choice follows from it.
    pub fn answered(&mut self, link: usize, now: Instant) -> bool {
        for path in self.paths.iter_mut().filter(|p| usize::from(p.link) == link) {
            (path.state, path.answered, path.wait) = (State::Proven, Some(now), ASK_AGAIN);
        }
        self.choose()
    }

    /// When the next path that is not proven is to be asked.
    pub fn ask_at(&self) -> Option<Instant> {
        if !self.has_choice() {
            return None;
        }
        self.paths.iter().filter_map(Path::ask_at).min()
    }

    /// Links to ask now, because time has come.
    pub fn ask_due(&mut self, now: Instant) -> ArrayVec<usize, PATHS_MAX> {
        let mut due = ArrayVec::new();
        for path in &mut self.paths {
            if path.ask_at().is_some_and(|at| at <= now) {
                if path.asked.is_some() {
                    path.wait = (path.wait * 2).min(ASK_AGAIN_MAX);
                }
                path.asked = Some(now);
                due.push(usize::from(path.link));
            }
        }
        due
    }

    /// Links to ask now, because packets stay unacknowledged: all.
    pub fn ask_all(&mut self, now: Instant) -> ArrayVec<usize, PATHS_MAX> {
        for path in &mut self.paths {
            path.asked = Some(now);
        }
        self.links().collect()
    }

    /// Gives up proven paths that have not answered although another has. True if another choice
    /// follows from it.
    pub fn judge(&mut self, now: Instant) -> bool {
        let fresh = |p: &Path| p.asked.zip(p.answered).is_some_and(|(asked, at)| at >= asked);
        let answered = self.paths.iter().filter(|p| fresh(p)).filter_map(|p| p.answered).min();
        if answered.is_none_or(|at| now < at + GRACE) {
            return false;
        }
        for path in &mut self.paths {
            if path.state == State::Proven && !fresh(path) {
                path.state = State::Lost;
            }
        }
        self.choose()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const RAW: usize = 2;
    const UDP: usize = 3;

    fn at(us: u64) -> Instant {
        Instant(us * 1000)
    }

    fn two() -> Route {
        let mut raw = LinkCaps::network("packet", 1480);
        (raw.latency_ns, raw.bytes_per_us) = (2_500, 600);
        let mut udp = LinkCaps::network("udp", 1456);
        udp.train = 44;
        let paths = [Path::new(RAW, raw), Path::new(UDP, udp)];
        Route::new(paths.into_iter().collect()).unwrap()
    }

    fn proven() -> Route {
        let mut route = two();
        route.ask_due(at(1));
        route.answered(RAW, at(2));
        route.answered(UDP, at(3));
        route
    }

    #[test]
    fn caps__of_both_paths_together() {
        let caps = two().caps();
        assert_eq!((caps.name, caps.mtu, caps.train), ("packet", 1456, 44));
        assert_eq!((caps.latency_ns, caps.small_bytes_per_us), (2_500, 600));
        assert_eq!(caps.bytes_per_us, 3_000);
    }

    #[test]
    fn choose__small_by_latency_and_data_by_rate_once_proven() {
        let mut route = two();
        assert_eq!(route.ask_due(at(1)).as_slice(), [RAW, UDP]);
        route.answered(UDP, at(5));
        assert_eq!((route.small, route.bulk), (UDP as u8, UDP as u8), "the other is unproven");
        assert!(route.answered(RAW, at(6)));
        assert_eq!((route.small, route.bulk), (RAW as u8, UDP as u8));
        assert_eq!(route.ask_at(), None);
    }

    #[test]
    fn judge__a_silent_path_is_lost_and_comes_back() {
        for (dead, living) in [(RAW, UDP), (UDP, RAW)] {
            let mut route = proven();
            route.ask_all(at(100));
            assert!(!route.judge(at(5000)), "nobody answered: the peer may be busy");
            route.answered(living, at(110));
            assert!(!route.judge(at(500)), "the other answer may be on its way");
            assert!(route.judge(at(5000)));
            assert_eq!((route.small, route.bulk), (living as u8, living as u8));
            assert_eq!(route.ask_due(at(300_100)).as_slice(), [dead]);
            assert!(route.answered(dead, at(300_200)));
            assert_eq!((route.small, route.bulk), (RAW as u8, UDP as u8));
        }
    }

    #[test]
    fn ask_due__less_and_less_often() {
        let mut route = two();
        route.answered(RAW, at(1));
        let mut asked = Vec::new();
        for ms in 0..3_600_000u64 {
            if !route.ask_due(at(ms * 1000)).is_empty() {
                asked.push(ms);
            }
        }
        assert_eq!(asked[..4], [0, 250, 750, 1750]);
        assert!(asked.len() < 150, "{}", asked.len());
    }
}

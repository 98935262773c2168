//! The paths to a peer: the links that reach it, and the choice of link for each packet.
//!
//! A peer inside the host has one path. Over networks it has one for each link that both sides
//! offer: small packets take the one with the lowest latency, DATA the one with the highest rate. A
//! path is used once it is proven: a HELLO sent over it was answered. When packets stay
//! unacknowledged, all paths are asked again; paths that stay silent while another answers are
//! lost, and their packets move to other paths.

#[cfg(test)]
mod tests;

use super::coalescing::Coalescing;
use crate::calibration::Calibration;
use arrayvec::ArrayVec;
use std::time::Duration;
use weft_core::config::MTU_MIN;
use weft_core::reliability::LinkMtus;
use weft_core::wire::Eager;
use weft_core::{Instant, LinkCaps, PeerId};

/// Most paths to a peer.
pub(super) const PATHS_MAX: usize = 4;
/// Interval between two questions over a path that never answered or is lost: the first, and the
/// longest.
const ASK_AGAIN: Duration = Duration::from_millis(250);
const ASK_AGAIN_MAX: Duration = Duration::from_secs(30);
/// Paths for packets longer than this are asked by questions of that length. `ASK_LONG` is their
/// least interval, `ASK_LONG_AGAIN` the first interval over a path that is not proven: several
/// peers on a slow network would else fill it with questions.
const LONG: u32 = 16 << 10;
const ASK_LONG: Duration = Duration::from_millis(100);
const ASK_LONG_AGAIN: Duration = Duration::from_secs(1);
/// A path that was proven for this long is asked again soon when it is lost; an unstable path is
/// asked less and less often.
const STEADY: Duration = Duration::from_secs(10);
/// An answer to a question within this time of another answer may still be in flight.
const GRACE: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unproven,
    Proven,
    Lost,
}

fn is_long(caps: &LinkCaps) -> bool {
    caps.network && caps.mtu > LONG && !caps.cuts
}

fn ask_again(caps: &LinkCaps) -> Duration {
    if is_long(caps) {
        ASK_LONG_AGAIN
    } else {
        ASK_AGAIN
    }
}

/// One path to a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub link: u8,
    caps: LinkCaps,
    state: State,
    asked: Option<Instant>,
    answered: Option<Instant>,
    /// Time when it was proven or lost.
    since: Instant,
    /// Answers before this time do not prove it again: a path that loses most packets still answers
    /// at times.
    hold: Instant,
    wait: Duration,
    /// Time when its further interfaces, which gave no answer, are asked again, and the interval.
    again: Option<(Instant, Duration)>,
    /// The peer has asked over it: its connection is there.
    called: bool,
}

impl Path {
    pub fn new(link: usize, caps: LinkCaps) -> Path {
        let (asked, answered, never) = (None, None, Instant(0));
        let (state, wait) = (State::Unproven, ask_again(&caps));
        let (again, called) = (None, false);
        Path {
            link: link as u8,
            caps,
            state,
            asked,
            answered,
            since: never,
            hold: never,
            wait,
            again,
            called,
        }
    }

    /// Returns the rate of data over all its interfaces, in bytes per microsecond.
    fn rate(&self) -> u64 {
        u64::from(self.caps.bytes_per_us) * u64::from(self.caps.stripes.max(1))
    }

    /// True if a long question may be asked; records it as asked then.
    fn ask_long(&mut self, now: Instant) -> bool {
        let may = self.asked.is_none_or(|asked| now >= asked + ASK_LONG);
        if may {
            self.asked = Some(now);
        }
        may
    }

    fn ask_at(&self) -> Option<Instant> {
        match (self.state, self.asked) {
            (State::Proven, _) => None,
            (_, None) => Some(Instant(0)),
            (_, Some(asked)) => Some((asked + self.wait).max(self.hold)),
        }
    }
}

/// All paths to a peer.
#[derive(Clone, Debug)]
pub(super) struct Route {
    paths: ArrayVec<Path, PATHS_MAX>,
    /// The lengths of packets over each; `caps.mtu` of a path follows.
    mtus: LinkMtus<PATHS_MAX>,
    /// Link for all but DATA.
    pub small: u8,
    /// Link for DATA.
    pub bulk: u8,
    /// Longest packet of each of the two.
    fits: [u32; 2],
    /// Links over which questions came since the last answer, and the link of the last question.
    /// The answer goes back over all of them: a peer that lost its core finds questions over all
    /// paths at once.
    callers: ArrayVec<u8, PATHS_MAX>,
    last_caller: u8,
    /// The row of small messages to the peer.
    pub coalescing: Coalescing,
    /// Time of the last stall, when paths were asked.
    stalled: Instant,
    /// The paths were asked to open the session.
    tried: bool,
}

/// The paths to all peers.
pub(crate) struct Paths {
    /// Paths to each peer.
    pub(super) routes: Vec<Option<Route>>,
    /// Measured figures that replace the links' estimates.
    pub calibration: Calibration,
    /// Peers with a path that is not proven, or with interfaces that gave no answer.
    pub unproven: Vec<PeerId>,
    /// Time at which the next of them is asked.
    pub ask_at: Instant,
    /// Number of peers on each link.
    pub used: Vec<u32>,
}

impl Paths {
    pub fn new(links: usize) -> Paths {
        Paths {
            routes: Vec::new(),
            calibration: Calibration::default(),
            unproven: Vec::new(),
            ask_at: Instant::FAR,
            used: vec![0; links],
        }
    }
}

impl Route {
    /// Makes a route. `None` without a path.
    pub fn new(paths: ArrayVec<Path, PATHS_MAX>) -> Option<Route> {
        let first = paths.first()?.link;
        let (fits, callers) = ([0; 2], ArrayVec::new());
        let mut route = Route {
            mtus: LinkMtus::new(paths.iter().map(|path| path.caps.mtu)),
            paths,
            small: first,
            bulk: first,
            fits,
            callers,
            last_caller: first,
            coalescing: Coalescing::default(),
            stalled: Instant(0),
            tried: false,
        };
        route.choose();
        Some(route)
    }

    /// Returns the links of all paths.
    pub fn links(&self) -> impl Iterator<Item = usize> + '_ {
        self.paths.iter().map(|p| usize::from(p.link))
    }

    /// True if there is more than one path.
    pub fn has_choice(&self) -> bool {
        self.paths.len() > 1
    }

    /// Takes the links for an answer, which proves each of them.
    pub fn take_callers(&mut self) -> ArrayVec<usize, PATHS_MAX> {
        if self.callers.is_empty() {
            self.callers.push(self.last_caller);
        }
        self.callers.drain(..).map(usize::from).collect()
    }

    /// Records that a question came over this link.
    pub fn asked_over(&mut self, link: usize) {
        if let Some(path) = self.paths.iter_mut().find(|p| usize::from(p.link) == link) {
            path.called = true;
            self.last_caller = link as u8;
            if !self.callers.contains(&self.last_caller) {
                self.callers.push(self.last_caller);
            }
        }
    }

    /// Returns the capabilities for the engine. Packets fit every path, so that none has to be cut
    /// anew when a path is lost; only bulk data may be longer, if another path cuts long packets.
    /// Latency is that of the best path for small packets, the rate that of the best for data.
    pub fn caps(&self) -> LinkCaps {
        let quick = self.best(|p| u64::from(u32::MAX - p.caps.latency_ns));
        // While no path is proven, the best of all; longer packets only if they are known to pass.
        let proven = |p: &&Path| p.link == self.bulk && p.state == State::Proven;
        let way = self.paths.iter().find(proven).map(|p| p.caps);
        let fast = way.unwrap_or_else(|| self.best(Path::rate));
        // Eager messages have the rate of the quick path, too.
        let mut caps = quick;
        caps.mtu = self.paths.iter().map(|p| p.caps.mtu).min().unwrap_or(quick.mtu);
        (caps.bytes_per_us, caps.stripes) = (fast.bytes_per_us, fast.stripes);
        caps.sees_end = self.paths.iter().all(|p| p.caps.sees_end);
        caps.bulk_min = bulk_min(&quick, &fast, caps.mtu);
        let long = way.is_some() && fast.mtu >= 2 * caps.mtu;
        (caps.bulk_mtu, caps.train) = match long && self.paths.iter().any(|p| p.caps.cuts) {
            true => (fast.mtu, fast.train),
            false => (0, fast.train * (fast.mtu / caps.mtu.max(1)).max(1)),
        };
        caps
    }

    /// Records that a link now carries packets of this size; returns the size that all paths carry.
    pub fn set_mtu(&mut self, now: Instant, link: usize, mtu: u32) -> u32 {
        if let Some(at) = self.paths.iter().position(|p| usize::from(p.link) == link) {
            self.mtus.set_most(now, at, mtu);
        }
        self.measure_mtu();
        self.caps().mtu
    }

    /// Applies the known packet lengths. Returns the lengths that all paths carried before and
    /// carry now, if they differ.
    pub fn measure_mtu(&mut self) -> Option<(u32, u32)> {
        let before = self.caps().mtu;
        for (at, path) in self.paths.iter_mut().enumerate() {
            path.caps.mtu = self.mtus.fits(at).unwrap_or(path.caps.mtu);
        }
        self.measure();
        let now = self.caps().mtu;
        (now != before).then_some((before, now))
    }

    /// Returns the next probe of a length that is due: the link, the number of the probe, and the
    /// length.
    pub fn next_probe(&mut self, now: Instant) -> Option<(usize, u32, u32)> {
        let (at, size) = self.mtus.next_probe(now)?;
        Some((self.paths.get(at)?.link.into(), at as u32, size))
    }

    /// Records the answer to a probe.
    pub fn probed(&mut self, now: Instant, number: u32, size: u32) {
        self.mtus.answered(number as usize, now, size);
    }

    /// Returns the time of the next probe.
    pub fn probe_at(&self) -> Option<Instant> {
        self.mtus.next_timeout()
    }

    /// Doubts the path of a packet of length `len`, which is retransmitted in vain since `since`:
    /// starts a search for lengths that get through. If a recent search found length not to be the
    /// cause, or no length was answered, though the peer is `heard`, the path is left, if there is
    /// another. True if it was left.
    pub fn suspect(
        &mut self,
        (now, since): (Instant, Instant),
        link: u8,
        len: u32,
        heard: bool,
    ) -> bool {
        let others = self.paths.iter().any(|p| p.link != link && p.state != State::Lost);
        let Some(at) = self.paths.iter().position(|p| p.link == link) else { return false };
        let path = &mut self.paths[at];
        // If there is another path, links of long packets are asked with long questions, and judged
        // by the answers.
        let judged = others && is_long(&path.caps);
        let known = self.mtus.is_known(at, now, since) || others && self.mtus.is_silent(at, now);
        // A short packet cannot be too long.
        if !judged && len > MTU_MIN && !known {
            self.mtus.suspect(at, now, since);
            return false;
        }
        if !heard || !others || path.state == State::Lost {
            return false;
        }
        let steady = now.since(path.since) > STEADY;
        path.wait = if steady { ask_again(&path.caps) } else { (path.wait * 2).min(ASK_AGAIN_MAX) };
        (path.state, path.since, path.hold) = (State::Lost, now, now + path.wait);
        self.choose()
    }

    /// Records that a link spreads data over `stripes` interfaces.
    pub fn set_stripes(&mut self, link: usize, stripes: u8) {
        for path in self.paths.iter_mut().filter(|p| usize::from(p.link) == link) {
            path.caps.stripes = stripes;
        }
        self.choose();
    }

    fn best(&self, rank: impl Fn(&Path) -> u64) -> LinkCaps {
        let best = self.paths.iter().reduce(|a, b| if rank(b) > rank(a) { b } else { a });
        best.map_or(LinkCaps::network("none", 512), |p| p.caps)
    }

    /// Chooses links among the proven paths; without any, among the paths not lost. True if the
    /// choice has changed.
    fn choose(&mut self) -> bool {
        let wanted = [State::Proven, State::Unproven, State::Lost];
        let state = wanted.into_iter().find(|s| self.paths.iter().any(|p| p.state == *s));
        let candidates = || self.paths.iter().filter(|p| Some(p.state) == state);
        let small = candidates().min_by_key(|p| p.caps.latency_ns).map_or(self.small, |p| p.link);
        // Of two equal paths, the one in use for small packets.
        let rate = |p: &&Path| (p.rate(), p.link == small);
        let bulk = candidates().max_by_key(rate).map_or(self.bulk, |p| p.link);
        let changed = (self.small, self.bulk) != (small, bulk);
        (self.small, self.bulk) = (small, bulk);
        self.measure();
        changed
    }

    fn measure(&mut self) {
        self.fits = [self.small, self.bulk].map(|link| {
            let path = self.paths.iter().find(|p| p.link == link);
            path.map_or(0, |p| p.caps.mtu)
        });
    }

    /// Returns the link for a packet of this length.
    #[inline]
    pub fn link_for(&self, bulk: bool, len: u32) -> u8 {
        let link = if bulk { self.bulk } else { self.small };
        if len <= self.fits[usize::from(bulk)] {
            return link;
        }
        self.link_with_room(link, len)
    }

    /// Returns a link for a packet made before a path's MTU shrank: the packet keeps its length
    /// when it is retransmitted, so it needs a path that still carries it, or one that cuts long
    /// packets.
    #[cold]
    fn link_with_room(&self, wanted: u8, len: u32) -> u8 {
        let cost = |p: &&Path| {
            let cut = p.caps.mtu < len;
            let carries = !cut || p.caps.cuts;
            (!carries, p.state != State::Proven, cut, p.link != wanted, p.caps.latency_ns)
        };
        self.paths.iter().min_by_key(cost).map_or(wanted, |p| p.link)
    }

    /// Records an answer over this link. True if it changes the choice.
    pub fn answered(&mut self, link: usize, now: Instant) -> bool {
        for path in self.paths.iter_mut().filter(|p| usize::from(p.link) == link) {
            path.answered = Some(now);
            if path.state != State::Proven && now >= path.hold {
                (path.state, path.since) = (State::Proven, now);
            }
        }
        self.choose()
    }

    /// True if a path may be asked. A path whose question makes a connection may if it would be
    /// used, or if the others do not answer.
    fn is_wanted(&self, at: usize, now: Instant) -> bool {
        let path = &self.paths[at];
        if !path.caps.connects || path.called || path.state == State::Proven {
            return true;
        }
        let rest = self.paths.iter().enumerate().filter(|&(other, _)| other != at);
        let others = || rest.clone().map(|(_, p)| p).filter(|p| p.state != State::Lost);
        let quickest = others().all(|p| path.caps.latency_ns < p.caps.latency_ns);
        let fastest = others().all(|p| path.rate() > p.rate());
        let asked = |p: &Path| p.asked.is_some_and(|asked| asked < now);
        let silent = others().all(|p| p.state != State::Proven && (self.tried || asked(p)));
        quickest || fastest || silent
    }

    /// Returns the time to ask the next unproven path, or the next interface that gave no answer.
    pub fn ask_at(&self) -> Option<Instant> {
        let wanted =
            |&(at, _): &(usize, &Path)| self.has_choice() && self.is_wanted(at, Instant::FAR);
        let paths = self.paths.iter().enumerate().filter(wanted).filter_map(|(_, p)| p.ask_at());
        paths.chain(self.paths.iter().filter_map(|p| Some(p.again?.0))).min()
    }

    /// Asks the interfaces of a link that gave no answer again later: soon, if `soon`.
    pub fn ask_rest_later(&mut self, link: usize, now: Instant, soon: bool) {
        for path in self.paths.iter_mut().filter(|p| usize::from(p.link) == link) {
            if soon || path.again.is_none() {
                path.again = Some((now + ASK_AGAIN, ASK_AGAIN));
            }
        }
    }

    /// Returns the links whose further interfaces are to be asked now, since their time has come.
    /// `waits` tells if a link has some that gave no answer.
    pub fn rest_due(
        &mut self,
        now: Instant,
        mut waits: impl FnMut(usize) -> bool,
    ) -> ArrayVec<usize, PATHS_MAX> {
        let mut due = ArrayVec::new();
        for path in &mut self.paths {
            let Some((_, wait)) = path.again.filter(|&(at, _)| at <= now) else { continue };
            let link = usize::from(path.link);
            let next = (wait * 2).min(ASK_AGAIN_MAX);
            path.again = waits(link).then(|| (now + next, next));
            due.extend(path.again.map(|_| link));
        }
        due
    }

    /// Returns the links to ask now, since their time has come.
    pub fn ask_due(&mut self, now: Instant) -> ArrayVec<usize, PATHS_MAX> {
        let mut due = ArrayVec::new();
        let choice = self.has_choice();
        for at in 0..self.paths.len() {
            if !choice || !self.is_wanted(at, now) {
                continue;
            }
            let path = &mut self.paths[at];
            if path.ask_at().is_some_and(|at| at <= now) {
                if path.asked.is_some_and(|asked| asked >= path.hold) {
                    path.wait = (path.wait * 2).min(ASK_AGAIN_MAX);
                }
                path.asked = Some(now);
                due.push(usize::from(path.link));
            }
        }
        due
    }

    /// Returns the links to ask when the session opens: all; those that make a connection for it
    /// only when others have not answered.
    pub fn ask_first(&mut self, now: Instant) -> ArrayVec<usize, PATHS_MAX> {
        let alone = !self.has_choice();
        let mut links = ArrayVec::new();
        for at in 0..self.paths.len() {
            let wanted = alone || self.is_wanted(at, now);
            let path = &mut self.paths[at];
            if wanted && (alone || !is_long(&path.caps) || path.ask_long(now)) {
                links.push(path.link.into());
            }
        }
        self.tried = true;
        links
    }

    /// Returns the links to ask since packets stay unacknowledged: all that are in use.
    pub fn ask_all(&mut self, now: Instant) -> ArrayVec<usize, PATHS_MAX> {
        let alone = !self.has_choice();
        // Since the stall before, none has answered.
        let before = std::mem::replace(&mut self.stalled, now);
        let heard = self.paths.iter().any(|p| p.answered.is_some_and(|at| at >= before));
        let silent = before != Instant(0) && !heard;
        let mut links = ArrayVec::new();
        for path in &mut self.paths {
            if path.caps.connects && path.state != State::Proven && !silent && !alone {
                continue;
            }
            let long = is_long(&path.caps) && !alone;
            if !long || path.state == State::Proven && path.ask_long(now) {
                path.asked = Some(now);
                links.push(path.link.into());
            }
        }
        links
    }

    /// Gives up proven paths that were asked since the stall and have not answered, although
    /// another path has. True if the choice changes.
    pub fn judge(&mut self, now: Instant) -> bool {
        let stalled = self.stalled;
        // An earlier answer says nothing about the peer now, which may have lost its core.
        let in_question = |p: &Path| p.asked.is_some_and(|asked| asked >= stalled);
        let fresh = |p: &Path| p.asked.zip(p.answered).is_some_and(|(asked, at)| at >= asked);
        let alive = self.paths.iter().filter(|p| in_question(p) && fresh(p));
        let answered = alive.filter_map(|p| p.answered).min();
        if answered.is_none_or(|at| now < at + GRACE) {
            return false;
        }
        for path in &mut self.paths {
            if path.state == State::Proven && in_question(path) && !fresh(path) {
                let steady = now.since(path.since) > STEADY;
                path.wait =
                    if steady { ask_again(&path.caps) } else { (path.wait * 2).min(ASK_AGAIN_MAX) };
                (path.state, path.since, path.hold) = (State::Lost, now, now + path.wait);
            }
        }
        self.choose()
    }
}

/// Number of packets that the quick path carries in less time than a train takes to prepare,
/// measured; a train that is received without a system call pays from the second packet on.
const QUICK_PACKETS: u32 = 3;

/// Returns the least length of a message that arrives sooner over the path of the higher rate, by
/// latencies and rates; it is more than a few packets.
fn bulk_min(quick: &LinkCaps, fast: &LinkCaps, mtu: u32) -> u32 {
    let ps = |caps: &LinkCaps| 1_000_000 / u64::from(caps.bytes_per_us.max(1));
    let gain = ps(quick).saturating_sub(ps(fast));
    if gain == 0 || fast.train < 2 && fast.mtu <= mtu {
        return u32::MAX;
    }
    let later = u64::from(fast.latency_ns.saturating_sub(quick.latency_ns));
    let bytes = u32::try_from(later * 1000 / gain).unwrap_or(u32::MAX - 1);
    let single = mtu.saturating_sub(Eager::LEN as u32);
    bytes.max(if fast.polled { single + 1 } else { QUICK_PACKETS.saturating_mul(mtu) })
}

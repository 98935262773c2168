//! The links to a peer: the choice among them, and the questions that prove them and find the
//! length of packets that gets through.

use super::{LinkTo, LINKS_MAX};
use crate::config::MTU_MIN;
use crate::reliability::LinkMtus;
use crate::time::Instant;
use crate::wire::{self, flags, Common, HeaderBuf, Hello, Packet};
use core::time::Duration;

/// Packets waiting after one from which on they take the link of the highest rate.
const BULK: usize = 8;
/// Interval of questions over a link that was left, or never answered: at first and at most,
/// doubled each time.
const ASK_EVERY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// One link to the peer.
#[derive(Clone, Copy)]
struct LinkState {
    to: LinkTo,
    /// True after a HELLO over it; once the link was left, after an answer.
    proven: bool,
    left: bool,
}

/// The links to a peer.
pub(super) struct Links {
    states: [Option<LinkState>; LINKS_MAX],
    /// The link of the lowest delay, and that of the highest rate.
    quick: usize,
    wide: usize,
    /// Many packets are in flight: all take the link of the highest rate, until all have arrived.
    bulk: bool,
    /// Number of copies sent of the HELLO at the head.
    copies: usize,
    /// Links over which questions came since the last answer, one bit each.
    asked: u8,
    /// The rank's question (HELLO), without its payload: the peer knows the address.
    question: Option<HeaderBuf>,
    /// The lengths of packets over each.
    mtus: LinkMtus<LINKS_MAX>,
    /// Links over which to ask now, one bit each, and the time of the next question.
    asks: u8,
    ask_at: Instant,
    ask_every: Duration,
}

impl Links {
    pub fn new(links: &[LinkTo]) -> Links {
        let state = |&to: &LinkTo| LinkState { to, proven: false, left: false };
        let mut links = Links {
            states: core::array::from_fn(|at| links.get(at).map(state)),
            quick: 0,
            wide: 0,
            bulk: false,
            copies: 0,
            asked: 0,
            question: None,
            mtus: LinkMtus::new(links.iter().map(|link| link.mtu)),
            asks: 0,
            ask_at: Instant::FAR,
            ask_every: ASK_EVERY[0],
        };
        links.choose();
        links
    }

    /// Returns the link in use.
    #[inline]
    pub fn link(&self) -> u8 {
        self.states[self.at()].map_or(0, |w| w.to.link)
    }

    /// Returns the link in use, and the longest packet that gets through over it, in bytes.
    #[inline]
    pub fn way(&self) -> (u8, u32) {
        (self.link(), self.mtus.fits(self.at()).unwrap_or(u32::MAX))
    }

    fn at(&self) -> usize {
        if self.bulk {
            self.wide
        } else {
            self.quick
        }
    }

    fn all(&self) -> impl Iterator<Item = (usize, LinkState)> + '_ {
        self.states.iter().enumerate().filter_map(|(i, w)| Some((i, (*w)?)))
    }

    /// Chooses the links of lowest delay and highest rate, proven ones first.
    fn choose(&mut self) {
        let quick = self.all().min_by_key(|(_, w)| (!w.proven, w.to.latency_ns));
        self.quick = quick.map_or(0, |(i, _)| i);
        let rate = |w: &LinkState| core::cmp::Reverse(w.to.bytes_per_us);
        let wide = self.all().filter(|(_, w)| w.proven).min_by_key(|(_, w)| rate(w));
        self.wide = wide.map_or(self.quick, |(i, _)| i);
    }

    /// Notes that a packet is sent while `waiting` more wait and none is in flight (`idle`) or some
    /// are.
    #[inline]
    pub fn note_load(&mut self, waiting: usize, idle: bool) {
        if waiting >= BULK {
            self.bulk = true;
        } else if idle {
            // No packet is in flight that this one could overtake.
            self.bulk = false;
        }
    }

    /// Handles a HELLO over `link`, a question or an `answer`. True if another link is used now.
    pub fn on_hello(&mut self, now: Instant, link: u8, answer: bool) -> bool {
        let before = self.link();
        for (i, state) in self.states.iter_mut().enumerate() {
            if let Some(state) = state.as_mut().filter(|w| w.to.link == link) {
                state.left &= !answer;
                state.proven |= !state.left;
                self.asked |= u8::from(!answer) << i;
            }
        }
        self.choose();
        self.ask_later(now);
        self.link() != before
    }

    /// Notes the rank's HELLO.
    pub fn note_hello(&mut self, imm: u32, hello: Hello) {
        let common = Common { imm, ..Common::default() };
        self.question = Some(wire::emit(&common, &Packet::Hello(hello)));
    }

    /// Returns the answer to a question of the peer, without its payload.
    pub fn answer(&self, session: u32) -> Option<HeaderBuf> {
        let (common, packet, _) = wire::parse(self.question?.as_slice()).ok()?;
        let common = Common { flags: flags::REPLY, session, ..common };
        Some(wire::emit(&common, &packet))
    }

    /// Schedules the next questions over links that are not proven.
    fn ask_later(&mut self, now: Instant) {
        if self.all().all(|(_, state)| state.proven) {
            self.ask_at = Instant::FAR;
        } else if self.ask_at == Instant::FAR {
            self.ask_at = now + self.ask_every;
            self.ask_every = (self.ask_every * 2).min(ASK_EVERY[1]);
        }
    }

    /// Returns the time of the next question.
    pub fn ask_at(&self) -> Option<Instant> {
        Some(self.ask_at).filter(|&at| at != Instant::FAR)
    }

    /// Returns true if there are links to ask over now.
    pub fn asks(&mut self, now: Instant) -> bool {
        if self.ask_at <= now {
            self.asks = self.all().fold(0, |bits, (i, state)| bits | u8::from(!state.proven) << i);
            self.ask_at = Instant::FAR;
            self.ask_later(now);
        }
        self.asks != 0
    }

    /// Returns the next question over a link that is not proven, and the link.
    pub fn next_question(&mut self) -> Option<(u8, HeaderBuf)> {
        let at = (0..LINKS_MAX).find(|at| self.asks >> at & 1 != 0)?;
        self.asks &= !(1 << at);
        Some((self.states[at]?.to.link, self.question?))
    }

    /// Returns the link of the next copy of an answer, which goes back over each link that a
    /// question came over, and true for the last copy.
    pub fn next_answer(&mut self) -> (u8, bool) {
        let at = (0..LINKS_MAX).find(|at| self.asked >> at & 1 != 0).unwrap_or(self.at());
        self.asked &= !(1 << at);
        (self.states[at].map_or(0, |w| w.to.link), self.asked == 0)
    }

    /// Returns the link of the next copy of a question, and true for the last copy.
    pub fn next_copy(&mut self) -> (u8, bool) {
        let count = self.all().count();
        let link = self.all().nth(self.copies).map_or(0, |(_, w)| w.to.link);
        self.copies += 1;
        let last = self.copies >= count;
        if last {
            self.copies = 0;
        }
        (link, last)
    }

    /// Returns the longest packet that all links carry, in bytes.
    pub fn mtu(&self) -> u32 {
        self.mtus.least().unwrap_or(MTU_MIN)
    }

    /// Notes that a link of the caller carries packets of at most `mtu` bytes from now on.
    pub fn set_most(&mut self, now: Instant, link: u8, mtu: u32) {
        let at = self.all().find(|(_, state)| state.to.link == link).map(|(at, _)| at);
        at.into_iter().for_each(|at| self.mtus.set_most(now, at, mtu));
    }

    /// Doubts that packets over the link in use, of which none arrived `since` then, are short
    /// enough.
    pub fn doubt(&mut self, now: Instant, since: Instant) {
        self.mtus.suspect(self.at(), now, since);
    }

    /// Returns the time of the next question for a length.
    pub fn probe_at(&self) -> Option<Instant> {
        self.mtus.next_timeout()
    }

    /// Returns the next question for a length: the caller's link, its number, and the length.
    pub fn next_probe(&mut self, now: Instant) -> Option<(u8, u32, u32)> {
        let (at, size) = self.mtus.next_probe(now)?;
        Some((self.states[at]?.to.link, at as u32, size))
    }

    /// Handles the answer to a question for a length.
    pub fn on_probed(&mut self, now: Instant, number: u32, size: u32) {
        self.mtus.answered(number as usize, now, size);
    }

    /// Returns true if there is more than one link.
    pub fn has_choice(&self) -> bool {
        self.all().count() > 1
    }

    /// Changes to another link.
    pub fn move_on(&mut self, now: Instant) {
        let before = self.at();
        self.leave(now, before);
        if self.at() == before {
            // No other is proven: take any.
            let others = self.all().filter(|(i, _)| *i != before);
            let best = others.min_by_key(|(_, w)| w.to.latency_ns).map_or(before, |(i, _)| i);
            (self.quick, self.wide) = (best, best);
        }
    }

    fn leave(&mut self, now: Instant, at: usize) {
        if let Some(state) = &mut self.states[at] {
            (state.proven, state.left) = (false, true);
        }
        self.choose();
        self.ask_later(now);
    }

    /// Changes to this link of the caller, which is proven now. False if it is in use, or none.
    pub fn follow(&mut self, now: Instant, link: u8) -> bool {
        let (before, found) = (self.at(), self.all().find(|(_, w)| w.to.link == link));
        let Some((at, _)) = found.filter(|&(at, _)| at != before) else { return false };
        if let Some(state) = &mut self.states[at] {
            (state.proven, state.left) = (true, false);
        }
        self.leave(now, before);
        true
    }
}

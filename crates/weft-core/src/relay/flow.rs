//! What a relay keeps of one peer.

use super::share::{SHARE, TOLD};
use super::{Kept, LinkTo, Out, LINKS_MAX};
use crate::caps::Pulse;
use crate::config::{Config, Reliability};
use crate::id::{EndpointId, PeerId};
use crate::reliability::{
    nearly_full, should_ask, AckOutcome, AckPolicy, Congestion, RecvWindow, Rtt, SendWindow,
};
use crate::seq::Seq;
use crate::slab::Slab;
use crate::time::Instant;
use crate::wire::{self, field, flags, status, Ack, Common, HeaderBuf, Hello, Packet, Reply};
use alloc::collections::VecDeque;
use core::time::Duration;

/// Largest credit ever open, in units: larger steps are none (`reliability/credit.rs`).
const MAX_STEP: u32 = 1 << 29;

/// Packets without numbers that wait, at most: more than a rank has to say.
const PLAIN_MAX: usize = 64;
/// Packets that wait behind one from which on they take the way of the highest rate.
const BULK: usize = 8;
/// Copies in a row, nothing new between them, after which the peer's way is taken.
const COPIES: u32 = 3;
/// Without an acknowledgement for so long, the link may be dead: an agent that shares its core does
/// not run for some milliseconds.
const STUCK: Duration = Duration::from_millis(20);
/// Shortest retransmission timeout where more than [`FEW`] packets are under way, or the peer goes
/// on sending: longer than Linux leaves a core to who computes beside an agent (a slice, 3 ms). A
/// timeout that was none costs the window, and most losses show without one where others follow.
const RTO_MIN: Duration = Duration::from_millis(4);
const FEW: u32 = 4;
/// Without an acknowledgement for so long, and several timeouts, the window is what it was first.
const SILENT: Duration = Duration::from_millis(10);
/// Until a way that was left, or never answered, is asked again: at first and at most, doubled each
/// time.
const ASK_EVERY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// How often a peer is told that a rank has ended: nothing acknowledges it.
pub const BYES: u32 = 4;
/// The longest time between two of these.
pub const BYE_PAUSE_MAX: Duration = Duration::from_millis(100);

/// One way to the peer.
#[derive(Clone, Copy)]
struct Way {
    to: LinkTo,
    /// A HELLO came over it, and since it was left an answer.
    proven: bool,
    left: bool,
}

/// Something with a number that waits for the window.
#[derive(Clone, Copy)]
pub(super) enum Waiting {
    /// A packet that is kept, by its key.
    Packet(u32),
    /// An answer, which becomes a packet when it is sent: a peer may lack many.
    Answer { op: u32, value: u64, ok: bool },
}

impl Waiting {
    /// The key of a packet.
    pub fn key(self) -> Option<u32> {
        match self {
            Waiting::Packet(key) => Some(key),
            Waiting::Answer { .. } => None,
        }
    }
}

/// A peer of the rank.
pub(super) struct Flow {
    pub endpoint: EndpointId,
    /// Number the peer puts into packets to the rank.
    pub session_in: u32,
    /// Number the rank puts into packets to the peer; 0 until known.
    pub session_out: u32,
    pub send: SendWindow<u32>,
    pub recv: RecvWindow,
    pub rtt: Rtt,
    pub congestion: Congestion,
    /// Packets sent since one that asks for an acknowledgement.
    unasked: u32,
    /// What the rank has granted.
    credit: u32,
    /// What the peer has granted, as far as the rank has heard.
    heard_credit: u32,
    /// What waits for the window.
    pub backlog: VecDeque<Waiting>,
    /// Answers among them, and packets that the agent has made.
    pub answers: u32,
    pub injected: u32,
    /// One of these was refused, and there has been no room since.
    pub wants_room: bool,
    /// Those of the rank so far, those of them that do not wait any more, and of how many of these
    /// it was told.
    pub given: u32,
    left: u32,
    told: u32,
    /// Packets without numbers.
    pub plain: VecDeque<u32>,
    /// The rank's last word.
    pub bye: Option<u32>,
    /// How often it was said, and when it is said again.
    byes: u32,
    bye_at: Instant,
    pub last_heard: Instant,
    /// When the rank was last given an acknowledgement of the peer.
    pub heard_up: Instant,
    /// Timeouts since the last acknowledgement of anything new.
    pub timeouts: u32,
    pub ack_now: bool,
    /// The packet expected next has come since the last acknowledgement, and was not taken.
    pub full: bool,
    /// The rank asked whether the peer is there.
    pub ask_up: bool,
    pub ready: bool,
    pub armed: Instant,
    ways: [Option<Way>; LINKS_MAX],
    /// The quickest way, and the one of the highest rate.
    quick: usize,
    wide: usize,
    /// Many packets are under way: all take the wide way, until all have arrived.
    bulk: bool,
    /// Packets that had come before, in a row.
    repeated: u32,
    /// The peer was told what has arrived since a copy was counted.
    answered: bool,
    /// Copies of the HELLO at the head that were sent.
    copies: usize,
    /// Ways that questions came over, a bit each, since the last answer.
    asked: u8,
    /// The question of the rank, without its payload: the peer knows the address.
    question: Option<HeaderBuf>,
    /// Ways over which it goes out now, a bit each, and when it does so next.
    asks: u8,
    ask_at: Instant,
    ask_every: Duration,
}

impl Flow {
    pub fn new(
        cfg: &Config,
        (session, given): (u32, u32),
        endpoint: EndpointId,
        links: &[LinkTo],
    ) -> Flow {
        let mode = match cfg.reliability {
            Reliability::None | Reliability::Agent => Reliability::Selective,
            mode => mode,
        };
        let us = |n: u32| Duration::from_micros(u64::from(n));
        let mut recv = RecvWindow::new(mode, Seq(0), cfg.window);
        recv.set_ack_policy(AckPolicy {
            every: cfg.ack_every,
            delay: us(cfg.ack_delay_us),
            peer_window: cfg.window,
        });
        let way = |&to| Way { to, proven: false, left: false };
        let ways = core::array::from_fn(|at| links.get(at).map(way));
        let mut send = SendWindow::new(mode, cfg.window, Seq(0));
        let congestion = Congestion::new(crate::peer::target(cfg), send.limit());
        send.set_congestion(congestion.window());
        let mut flow = Flow {
            endpoint,
            session_in: session,
            session_out: 0,
            send,
            recv,
            congestion,
            unasked: 0,
            rtt: Rtt::new(us(cfg.rto_min_us) * 10, us(cfg.rto_min_us), us(cfg.rto_max_us)),
            credit: 0,
            heard_credit: 0,
            backlog: VecDeque::new(),
            answers: 0,
            injected: 0,
            wants_room: false,
            given,
            left: given,
            told: given,
            plain: VecDeque::new(),
            bye: None,
            byes: 0,
            bye_at: Instant(0),
            last_heard: Instant(0),
            heard_up: Instant(0),
            timeouts: 0,
            ack_now: false,
            full: false,
            ask_up: false,
            ready: false,
            armed: Instant::FAR,
            ways,
            quick: 0,
            wide: 0,
            bulk: false,
            repeated: 0,
            answered: false,
            copies: 0,
            asked: 0,
            question: None,
            asks: 0,
            ask_at: Instant::FAR,
            ask_every: ASK_EVERY[0],
        };
        flow.choose();
        flow
    }

    /// The link in use.
    #[inline]
    pub fn link(&self) -> u8 {
        self.ways[self.at()].map_or(0, |w| w.to.link)
    }

    fn at(&self) -> usize {
        if self.bulk {
            self.wide
        } else {
            self.quick
        }
    }

    fn ways(&self) -> impl Iterator<Item = (usize, Way)> + '_ {
        self.ways.iter().enumerate().filter_map(|(i, w)| Some((i, (*w)?)))
    }

    /// The quickest and the widest of the ways that are proven, or that may be.
    fn choose(&mut self) {
        let quick = self.ways().min_by_key(|(_, w)| (!w.proven, w.to.latency_ns));
        self.quick = quick.map_or(0, |(i, _)| i);
        let rate = |w: &Way| core::cmp::Reverse(w.to.bytes_per_us);
        let wide = self.ways().filter(|(_, w)| w.proven).min_by_key(|(_, w)| rate(w));
        self.wide = wide.map_or(self.quick, |(i, _)| i);
    }

    /// A HELLO came over `link`; the session number in it is for packets to the peer. As
    /// [`learn`](Self::learn).
    pub fn on_hello(&mut self, now: Instant, link: u8, answer: bool, session: u32) -> bool {
        let room = self.learn(session);
        let before = self.link();
        for (i, way) in self.ways.iter_mut().enumerate() {
            if let Some(way) = way.as_mut().filter(|w| w.to.link == link) {
                way.left &= !answer;
                way.proven |= !way.left;
                self.asked |= u8::from(!answer) << i;
            }
        }
        self.choose();
        if self.link() != before && !self.send.is_empty() {
            self.on_new_path();
        }
        self.ask_later(now);
        room
    }

    /// Whether as many packets of the rank wait as may.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.given.wrapping_sub(self.left) >= SHARE
    }

    /// Whether a packet of the rank is taken, one that counts against its share or one without a
    /// number. A rank that counts as it should is never refused.
    #[inline]
    pub fn takes(&self, shared: bool) -> bool {
        match shared {
            true => !self.is_full(),
            false => self.plain.len() < PLAIN_MAX,
        }
    }

    /// The session number in packets to the peer. True if the agent had packets for it before
    /// this was known, which it may send now.
    #[inline]
    pub fn learn(&mut self, session: u32) -> bool {
        let first = self.session_out == 0;
        self.session_out = session;
        first && session != 0 && core::mem::take(&mut self.wants_room)
    }

    /// The next packet to be numbered. None while there is no place to keep an answer, or while
    /// nobody knows how the peer numbers this session: its HELLO was overtaken by a request.
    #[inline]
    pub fn next_waiting(&mut self, kept: &mut Slab<Kept>) -> Option<u32> {
        let key = match *self.backlog.front()? {
            Waiting::Packet(key) => {
                let injected = kept.get(key).is_some_and(|kept| !kept.shared);
                self.injected -= u32::from(injected);
                key
            }
            Waiting::Answer { .. } if self.session_out == 0 => return None,
            Waiting::Answer { op, value, ok } => {
                let status = if ok { status::OK } else { status::REFUSED };
                let common = Common { session: self.session_out, imm: op, ..Common::default() };
                let header = wire::emit(&common, &Packet::Reply(Reply { value, status }));
                let key = kept.insert(Kept { header, payload: 0, shared: false })?;
                self.answers -= 1;
                key
            }
        };
        self.backlog.pop_front();
        Some(key)
    }

    /// Whether an answer could be sent that no place was found for.
    pub fn lacks_a_place(&self) -> bool {
        let answer = matches!(self.backlog.front(), Some(Waiting::Answer { .. }));
        answer && self.session_out != 0 && self.send.can_send()
    }

    /// A packet of the rank does not wait any more. What it is told, if anything.
    #[inline]
    pub fn note_left(&mut self) -> Option<u32> {
        self.left = self.left.wrapping_add(1);
        let due = self.left.wrapping_sub(self.told) >= TOLD;
        due.then(|| {
            self.told = self.left;
            self.left
        })
    }

    /// The rank says HELLO.
    pub fn note_hello(&mut self, imm: u32, hello: Hello) {
        let common = Common { imm, ..Common::default() };
        self.question = Some(wire::emit(&common, &Packet::Hello(hello)));
    }

    /// The answer to a question of the peer, without its payload, if the rank has begun to send:
    /// it has answered before, and none is due already.
    pub fn answer(&self) -> Option<HeaderBuf> {
        let sends = !self.send.is_empty() || !self.backlog.is_empty();
        let (common, packet, _) = wire::parse(self.question?.as_slice()).ok()?;
        let common = Common { flags: flags::REPLY, session: self.session_out, ..common };
        (sends && self.plain.is_empty()).then(|| wire::emit(&common, &packet))
    }

    /// Ways that are not proven are asked in a while.
    fn ask_later(&mut self, now: Instant) {
        if self.ways().all(|(_, way)| way.proven) {
            self.ask_at = Instant::FAR;
        } else if self.ask_at == Instant::FAR {
            self.ask_at = now + self.ask_every;
            self.ask_every = (self.ask_every * 2).min(ASK_EVERY[1]);
        }
    }

    /// Whether ways are to be asked now.
    pub fn asks(&mut self, now: Instant) -> bool {
        if self.ask_at <= now {
            self.asks = self.ways().fold(0, |bits, (i, way)| bits | u8::from(!way.proven) << i);
            self.ask_at = Instant::FAR;
            self.ask_later(now);
        }
        self.asks != 0
    }

    /// The next question over a way that is not proven.
    pub fn next_question(&mut self, peer: PeerId) -> Option<Out> {
        let at = (0..LINKS_MAX).find(|at| self.asks >> at & 1 != 0)?;
        self.asks &= !(1 << at);
        let (way, header) = (self.ways[at]?, self.question?);
        Some(Out { peer, link: way.to.link, header, payload: 0, last: false })
    }

    /// Whether nothing new has been acknowledged for long.
    fn is_stuck(&self, now: Instant, long: Duration) -> bool {
        self.send.stuck_since().is_some_and(|since| now.since(since) >= long)
    }

    /// Whether the link in use may be dead.
    pub fn looks_dead(&self, now: Instant) -> bool {
        self.timeouts > 2 && self.is_stuck(now, STUCK)
    }

    /// Packets stay unacknowledged: another link, if there is one. True if it changed.
    pub fn move_on(&mut self, now: Instant) -> bool {
        let before = self.at();
        if self.ways().count() < 2 {
            return false;
        }
        self.leave(now, before);
        if self.at() == before {
            // None is proven: any other.
            let others = self.ways().filter(|(i, _)| *i != before);
            let best = others.min_by_key(|(_, w)| w.to.latency_ns).map_or(before, |(i, _)| i);
            (self.quick, self.wide) = (best, best);
        }
        self.timeouts = 0;
        self.on_new_path();
        true
    }

    fn leave(&mut self, now: Instant, at: usize) {
        if let Some(way) = &mut self.ways[at] {
            (way.proven, way.left) = (false, true);
        }
        self.choose();
        self.ask_later(now);
    }

    /// Something came that had not come before.
    #[inline]
    pub fn note_new(&mut self) {
        self.repeated = 0;
    }

    /// Goes over to the link that the peer sends over again and again: what it is told does not
    /// arrive. Copies are counted once for each time that it was told. True if the link changed.
    pub fn follow(&mut self, now: Instant, link: u8) -> bool {
        self.repeated += u32::from(core::mem::take(&mut self.answered));
        let found = self.ways().find(|(_, w)| w.to.link == link).map(|(i, _)| i);
        let Some(at) = found.filter(|&at| at != self.at() && self.repeated >= COPIES) else {
            return false;
        };
        self.repeated = 0;
        let before = self.at();
        if let Some(way) = &mut self.ways[at] {
            (way.proven, way.left) = (true, false);
        }
        self.leave(now, before);
        self.on_new_path();
        true
    }

    /// What was learnt of delay was of another link.
    fn on_new_path(&mut self) {
        self.congestion.on_new_path();
        self.send.set_congestion(self.congestion.window());
    }

    /// When the oldest packet under way is taken for lost. Where few are, and all is silent, that
    /// costs little if it was late, and nothing else would show it.
    pub fn resend_at(&self) -> Option<Instant> {
        let (sent, rto) = (self.send.oldest_sent()?, self.rtt.rto());
        let late = sent + rto.max(RTO_MIN);
        let silent = sent.max(self.last_heard) + rto;
        Some(if self.send.in_flight() > FEW { late } else { late.min(silent) })
    }

    /// A timeout. Several in a row, and long: what was known of the path is void.
    pub fn on_timeout(&mut self, now: Instant) {
        self.rtt.backoff();
        self.timeouts += 1;
        if self.timeouts > 1 && self.is_stuck(now, SILENT) {
            self.congestion.on_silence();
            self.send.set_congestion(self.congestion.window());
        }
    }

    /// Takes in an acknowledgement: packets that arrived, packets judged lost, and the round trip
    /// of one that was answered at once.
    pub fn on_news(&mut self, now: Instant, news: &AckOutcome, limited: bool) {
        let (arrived, lost) = (news.newly_acked, news.lost);
        if arrived > 0 || lost > 0 {
            self.congestion.on_ack(now, arrived, lost, news.prompt, limited);
            self.send.set_congestion(self.congestion.window());
        }
    }

    /// Whether the window is, or all but is, used up.
    pub fn is_limited(&self) -> bool {
        self.send.in_network() >= nearly_full(self.congestion.window())
    }

    /// Numbers a packet that is sent for the first time; its flags beyond those it has.
    pub fn push(&mut self, now: Instant, key: u32, asks: bool, every: u32) -> (Seq, u16) {
        let more = !self.backlog.is_empty();
        if self.backlog.len() >= BULK {
            self.bulk = true;
        } else if self.send.is_empty() {
            // None is under way that this one could overtake.
            self.bulk = false;
        }
        let due =
            should_ask(&mut self.unasked, &self.send, &self.congestion, (1, every), more) || asks;
        let seq = self.send.push(now, key);
        if due {
            self.unasked = 0;
            self.send.mark_prompt();
        }
        (seq, if due { flags::ACKNOW } else { 0 })
    }

    /// The link of the next copy of an answer, which goes back each way that a question came, and
    /// whether it is the last.
    pub fn next_answer(&mut self) -> (u8, bool) {
        let at = (0..LINKS_MAX).find(|at| self.asked >> at & 1 != 0).unwrap_or(self.at());
        self.asked &= !(1 << at);
        (self.ways[at].map_or(0, |w| w.to.link), self.asked == 0)
    }

    /// The link of the next copy of a question, and whether it is the last.
    pub fn next_copy(&mut self) -> (u8, bool) {
        let count = self.ways().count();
        let link = self.ways().nth(self.copies).map_or(0, |(_, w)| w.to.link);
        self.copies += 1;
        let last = self.copies >= count;
        if last {
            self.copies = 0;
        }
        (link, last)
    }

    /// The rank grants the peer more credit.
    pub fn note_credit(&mut self, credit: u32) {
        if credit.wrapping_sub(self.credit) <= MAX_STEP {
            self.credit = credit;
        }
    }

    /// What the rank grants, units in all.
    pub fn credit(&self) -> u32 {
        self.credit
    }

    /// Whether the peer grants more than the rank has heard.
    pub fn grows(&mut self, credit: u32) -> bool {
        let step = credit.wrapping_sub(self.heard_credit);
        let grows = step != 0 && step <= MAX_STEP;
        if grows {
            self.heard_credit = credit;
        }
        grows
    }

    pub fn note_heard_credit(&mut self, credit: u32) {
        self.grows(credit);
    }

    /// A kept packet, as it goes out now.
    #[inline]
    pub fn emit(&mut self, peer: PeerId, kept: &Kept, seq: Seq, more: u16) -> Out {
        let mut header = kept.header;
        let bytes = header.as_mut_slice();
        bytes[field::SEQ].copy_from_slice(&seq.0.to_le_bytes());
        let flags = u16::from_le_bytes([bytes[2], bytes[3]]) | more;
        bytes[field::FLAGS].copy_from_slice(&flags.to_le_bytes());
        wire::patch_ack(&mut header, self.recv.next_expected(), self.credit);
        self.recv.ack_piggybacked();
        self.answered = true;
        Out { peer, link: self.link(), header, payload: kept.payload, last: false }
    }

    /// An acknowledgement, with what the agent sees of the rank's process.
    pub fn emit_ack(&mut self, peer: PeerId, pulse: Pulse) -> Out {
        self.answered = true;
        let nack = self.recv.has_gap() && self.send.mode() == Reliability::GoBackN;
        let sack = if nack { [0; 4] } else { self.recv.sack().0 };
        let full = core::mem::take(&mut self.full);
        let common = Common {
            flags: if nack { flags::NACK } else { 0 } | if full { flags::SYNC } else { 0 },
            session: self.session_out,
            seq: Seq(0),
            ack: self.recv.next_expected(),
            credit: self.credit,
            imm: pulse.code(),
        };
        self.recv.ack_sent();
        self.ack_now = false;
        let header = wire::emit(&common, &Packet::Ack(Ack { sack }));
        Out { peer, link: self.link(), header, payload: 0, last: false }
    }

    /// Whether the last word was said, be it once.
    pub fn said_bye(&self) -> bool {
        self.byes > 0
    }

    /// Whether the last word is due: all before it has arrived.
    pub fn bye_due(&self, now: Instant) -> bool {
        self.bye.is_some() && self.is_done() && self.bye_at <= now
    }

    /// Whether all that was to be sent has arrived.
    fn is_done(&self) -> bool {
        self.send.is_empty() && self.backlog.is_empty()
    }

    /// The last word, which is due, is said now. True if that was the last time.
    pub fn note_bye(&mut self, now: Instant) -> bool {
        self.byes += 1;
        self.bye_at = now + self.rtt.rto().clamp(RTO_MIN, BYE_PAUSE_MAX);
        self.byes >= BYES
    }

    /// When packets have been unacknowledged for too long. A peer that is not heard any more has
    /// until it has been silent for as long.
    pub fn stuck_at(&self, limit: Duration) -> Option<Instant> {
        let since = self.send.stuck_since()?;
        Some(match self.last_heard + limit / 2 >= since + limit {
            true => since + limit,
            false => self.last_heard.max(since) + limit,
        })
    }

    /// When something is due if nothing else happens.
    pub fn deadline(&self, cfg: &Config) -> Option<Instant> {
        let resend = self.resend_at();
        let give_up = self.stuck_at(Duration::from_millis(u64::from(cfg.peer_timeout_ms)));
        // Nothing can be said to a peer whose number for this one is not known yet.
        let ack = self.recv.ack_deadline().filter(|_| self.session_out != 0);
        let ask = Some(self.ask_at).filter(|&at| at != Instant::FAR);
        // Not said yet, or with something before it, it waits for others.
        let bye = self.bye.filter(|_| self.said_bye() && self.is_done()).map(|_| self.bye_at);
        [resend, give_up, ack, ask, bye].into_iter().flatten().min()
    }
}

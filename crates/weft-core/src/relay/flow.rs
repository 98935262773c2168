//! A relay's state for one peer.

use super::share::{SHARE, TOLD};
use super::{Kept, LinkTo, Out, LINKS_MAX};
use crate::caps::Pulse;
use crate::config::{Config, Reliability, MTU_MIN};
use crate::id::{EndpointId, PeerId};
use crate::reliability::{
    nearly_full, should_ask, AckOutcome, AckPolicy, Congestion, PathMtu, RecvWindow, Rtt,
    SendWindow, PROBES,
};
use crate::seq::Seq;
use crate::slab::Slab;
use crate::time::Instant;
use crate::wire::{self, field, flags, status, Ack, Common, HeaderBuf, Hello, Packet, Reply};
use alloc::collections::VecDeque;
use core::time::Duration;

/// Largest credit ever open, in units: larger steps are invalid (`reliability/credit.rs`).
const MAX_STEP: u32 = 1 << 29;

/// Most packets without numbers that wait: more than a rank ever sends at a time.
const PLAIN_MAX: usize = 64;
/// Packets waiting after one from which on they take the link of the highest rate.
const BULK: usize = 8;
/// Consecutive duplicates, with no new packet between them, after which the relay changes to the
/// link over which the peer sends them.
const COPIES: u32 = 3;
/// Time without an acknowledgement after which the link may be dead: an agent that shares its core
/// does not run for some milliseconds.
const STUCK: Duration = Duration::from_millis(20);
/// Shortest retransmission timeout if more than [`FEW`] packets are in flight, or the peer goes on
/// sending: longer than Linux leaves a core to a process that computes beside an agent (a slice, 3
/// ms). A premature timeout shrinks the window, and most losses are detected without one if other
/// packets follow.
const RTO_MIN: Duration = Duration::from_millis(4);
const FEW: u32 = 4;
/// Time without an acknowledgement, with several timeouts, after which the window restarts.
const SILENT: Duration = Duration::from_millis(10);
/// Retransmissions of the oldest packet after which the length of packets is in doubt.
const DOUBTED: u8 = 3;
/// Interval of questions over a link that was left, or never answered: at first and at most,
/// doubled each time.
const ASK_EVERY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// Number of BYEs that tell a peer of the end of a rank: no packet acknowledges them.
pub const BYES: u32 = 4;
/// The longest time between two of them.
pub const BYE_PAUSE_MAX: Duration = Duration::from_millis(100);

/// One link to the peer.
#[derive(Clone, Copy)]
struct LinkState {
    to: LinkTo,
    /// True after a HELLO over it; once the link was left, after an answer.
    proven: bool,
    left: bool,
    /// The length of packets over it.
    mtu: PathMtu,
}

/// A numbered packet that waits for the window.
#[derive(Clone, Copy)]
pub(super) enum Waiting {
    /// A kept packet, by its key.
    Packet(u32),
    /// An answer, which becomes a packet when it is sent: a peer may lack many of them.
    Answer { op: u32, value: u64, ok: bool },
}

impl Waiting {
    /// Returns the key of a packet.
    pub fn key(self) -> Option<u32> {
        match self {
            Waiting::Packet(key) => Some(key),
            Waiting::Answer { .. } => None,
        }
    }
}

/// Questions for the lengths that a link carries.
#[derive(Clone, Copy, Default)]
struct Probing {
    at: usize,
    sizes: [u32; PROBES],
    left: usize,
}

/// A peer of the rank.
pub(super) struct Flow {
    pub endpoint: EndpointId,
    /// Session number in packets from the peer to the rank.
    pub session_in: u32,
    /// Session number in packets from the rank to the peer; 0 until known.
    pub session_out: u32,
    pub send: SendWindow<u32>,
    pub recv: RecvWindow,
    pub rtt: Rtt,
    pub congestion: Congestion,
    /// Packets sent since the last one that asks for an acknowledgement.
    unasked: u32,
    /// Credit that the rank has granted.
    credit: u32,
    /// Credit that the peer has granted, as far as the rank knows.
    received_credit: u32,
    /// Packets that wait for the window.
    pub backlog: VecDeque<Waiting>,
    /// Number of answers among them, and of packets that the agent has made.
    pub answers: u32,
    pub injected: u32,
    /// True if one of these was refused, and there has been no room since.
    pub wants_room: bool,
    /// Numbers of the rank's packets so far, of those that no longer wait, and of those whose
    /// leaving was reported to the rank.
    pub given: u32,
    left: u32,
    told: u32,
    /// Packets without numbers.
    pub plain: VecDeque<u32>,
    /// The rank's BYE.
    pub bye: Option<u32>,
    /// Number of BYEs sent, and time of the next.
    byes: u32,
    bye_at: Instant,
    pub received_at: Instant,
    /// Time at which the rank last got an acknowledgement of the peer.
    pub received_up_at: Instant,
    /// Timeouts since the last acknowledgement of a new packet.
    pub timeouts: u32,
    pub ack_now: bool,
    /// True if the packet expected next has arrived since the last acknowledgement, but had no
    /// room.
    pub full: bool,
    /// True if the rank asked for a sign of life of the peer.
    pub ask_up: bool,
    pub ready: bool,
    pub armed: Instant,
    links: [Option<LinkState>; LINKS_MAX],
    /// The link of the lowest delay, and that of the highest rate.
    quick: usize,
    wide: usize,
    /// Many packets are in flight: all take the link of the highest rate, until all have arrived.
    bulk: bool,
    /// Consecutive duplicates.
    repeated: u32,
    /// True if an acknowledgement was sent since a duplicate was counted.
    answered: bool,
    /// Number of copies sent of the HELLO at the head.
    copies: usize,
    /// Links over which questions came since the last answer, one bit each.
    asked: u8,
    /// The rank's question (HELLO), without its payload: the peer knows the address.
    question: Option<HeaderBuf>,
    /// Questions for lengths to send now.
    probing: Probing,
    /// Links over which to ask now, one bit each, and the time of the next question.
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
        let state =
            |&to: &LinkTo| LinkState { to, proven: false, left: false, mtu: PathMtu::new(to.mtu) };
        let links = core::array::from_fn(|at| links.get(at).map(state));
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
            received_credit: 0,
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
            received_at: Instant(0),
            received_up_at: Instant(0),
            timeouts: 0,
            ack_now: false,
            full: false,
            ask_up: false,
            ready: false,
            armed: Instant::FAR,
            links,
            quick: 0,
            wide: 0,
            bulk: false,
            repeated: 0,
            answered: false,
            copies: 0,
            asked: 0,
            question: None,
            probing: Probing::default(),
            asks: 0,
            ask_at: Instant::FAR,
            ask_every: ASK_EVERY[0],
        };
        flow.choose();
        flow
    }

    /// Returns the link in use.
    #[inline]
    pub fn link(&self) -> u8 {
        self.links[self.at()].map_or(0, |w| w.to.link)
    }

    fn at(&self) -> usize {
        if self.bulk {
            self.wide
        } else {
            self.quick
        }
    }

    fn links(&self) -> impl Iterator<Item = (usize, LinkState)> + '_ {
        self.links.iter().enumerate().filter_map(|(i, w)| Some((i, (*w)?)))
    }

    /// Chooses the links of lowest delay and highest rate, proven ones first.
    fn choose(&mut self) {
        let quick = self.links().min_by_key(|(_, w)| (!w.proven, w.to.latency_ns));
        self.quick = quick.map_or(0, |(i, _)| i);
        let rate = |w: &LinkState| core::cmp::Reverse(w.to.bytes_per_us);
        let wide = self.links().filter(|(_, w)| w.proven).min_by_key(|(_, w)| rate(w));
        self.wide = wide.map_or(self.quick, |(i, _)| i);
    }

    /// Handles a HELLO over `link`, whose session number is for packets to the peer. Returns the
    /// same as [`learn`](Self::learn).
    pub fn on_hello(&mut self, now: Instant, link: u8, answer: bool, session: u32) -> bool {
        let room = self.learn(session);
        let before = self.link();
        for (i, state) in self.links.iter_mut().enumerate() {
            if let Some(state) = state.as_mut().filter(|w| w.to.link == link) {
                state.left &= !answer;
                state.proven |= !state.left;
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

    /// Returns true if the most packets of the rank wait that may.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.given.wrapping_sub(self.left) >= SHARE
    }

    /// Returns true if a packet of the rank is accepted: one that counts against its share
    /// (`shared`) or one without a number. A rank that counts correctly is never refused.
    #[inline]
    pub fn takes(&self, shared: bool) -> bool {
        match shared {
            true => !self.is_full(),
            false => self.plain.len() < PLAIN_MAX,
        }
    }

    /// Learns the session number in packets to the peer. True if the agent had packets for it
    /// before, which it may send now.
    #[inline]
    pub fn learn(&mut self, session: u32) -> bool {
        let first = self.session_out == 0;
        self.session_out = session;
        first && session != 0 && core::mem::take(&mut self.wants_room)
    }

    /// Returns the next packet to be numbered. None while there is no slot to keep an answer, or
    /// while the peer's session number is unknown, because a request overtook its HELLO.
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

    /// Returns true if an answer could be sent, but has no slot.
    pub fn lacks_a_place(&self) -> bool {
        let answer = matches!(self.backlog.front(), Some(Waiting::Answer { .. }));
        answer && self.session_out != 0 && self.send.can_send()
    }

    /// Notes that a packet of the rank no longer waits. Returns the number to report, if one is
    /// due.
    #[inline]
    pub fn note_left(&mut self) -> Option<u32> {
        self.left = self.left.wrapping_add(1);
        let due = self.left.wrapping_sub(self.told) >= TOLD;
        due.then(|| {
            self.told = self.left;
            self.left
        })
    }

    /// Notes the rank's HELLO.
    pub fn note_hello(&mut self, imm: u32, hello: Hello) {
        let common = Common { imm, ..Common::default() };
        self.question = Some(wire::emit(&common, &Packet::Hello(hello)));
    }

    /// Returns the answer to a question of the peer, without its payload, if the rank has begun to
    /// send: then it has answered before, and no answer waits already.
    pub fn answer(&self) -> Option<HeaderBuf> {
        let sends = !self.send.is_empty() || !self.backlog.is_empty();
        let (common, packet, _) = wire::parse(self.question?.as_slice()).ok()?;
        let common = Common { flags: flags::REPLY, session: self.session_out, ..common };
        (sends && self.plain.is_empty()).then(|| wire::emit(&common, &packet))
    }

    /// Schedules the next questions over links that are not proven.
    fn ask_later(&mut self, now: Instant) {
        if self.links().all(|(_, state)| state.proven) {
            self.ask_at = Instant::FAR;
        } else if self.ask_at == Instant::FAR {
            self.ask_at = now + self.ask_every;
            self.ask_every = (self.ask_every * 2).min(ASK_EVERY[1]);
        }
    }

    /// Returns true if there are links to ask over now.
    pub fn asks(&mut self, now: Instant) -> bool {
        if self.ask_at <= now {
            self.asks =
                self.links().fold(0, |bits, (i, state)| bits | u8::from(!state.proven) << i);
            self.ask_at = Instant::FAR;
            self.ask_later(now);
        }
        self.asks != 0
    }

    /// Returns the next question over a link that is not proven.
    pub fn next_question(&mut self, peer: PeerId) -> Option<Out> {
        let at = (0..LINKS_MAX).find(|at| self.asks >> at & 1 != 0)?;
        self.asks &= !(1 << at);
        let (state, header) = (self.links[at]?, self.question?);
        Some(Out::bare(peer, state.to.link, header))
    }

    /// Returns the longest packet that all links carry, in bytes.
    pub fn mtu(&self) -> u32 {
        self.links().map(|(_, state)| state.mtu.fits()).min().unwrap_or(MTU_MIN)
    }

    /// Returns the state of the length of packets over a link of the caller.
    pub fn mtu_of(&mut self, link: u8) -> Option<&mut PathMtu> {
        let state = self.links.iter_mut().flatten().find(|state| state.to.link == link);
        state.map(|state| &mut state.mtu)
    }

    /// Doubts that packets over the link in use are short enough.
    fn doubt(&mut self, now: Instant) {
        let since = self.send.stuck_since().unwrap_or(now);
        if let Some(state) = &mut self.links[self.at()] {
            state.mtu.suspect(now, since);
        }
    }

    /// Does so if this packet, which is sent again, is the oldest and was so several times in vain.
    pub fn doubt_if_vain(&mut self, now: Instant, seq: Seq) {
        let tries = self.send.oldest_item().map_or(0, |(_, tries)| tries);
        if tries >= DOUBTED && seq == self.send.oldest() {
            self.doubt(now);
        }
    }

    /// Returns the time of the next question for a length.
    pub fn probe_at(&self) -> Option<Instant> {
        if self.session_out == 0 {
            return None;
        }
        let at = self.links().filter_map(|(_, state)| state.mtu.next_timeout()).min();
        if self.probing.left > 0 {
            Some(Instant(0))
        } else {
            at
        }
    }

    /// Returns the next question for a length: the caller's link, its number, and the length.
    pub fn next_probe(&mut self, now: Instant) -> Option<(u8, u32, u32)> {
        if self.probing.left == 0 {
            for (at, state) in self.links.iter_mut().enumerate() {
                let Some(sizes) = state.as_mut().and_then(|state| state.mtu.poll(now)) else {
                    continue;
                };
                self.probing = Probing { at, sizes, left: PROBES };
                break;
            }
        }
        let Probing { at, sizes, left } = self.probing;
        self.probing.left = left.checked_sub(1)?;
        Some((self.links[at]?.to.link, at as u32, sizes[PROBES - left]))
    }

    /// Handles the answer to a question for a length.
    pub fn on_probed(&mut self, now: Instant, number: u32, size: u32) {
        if let Some(Some(state)) = self.links.get_mut(number as usize) {
            state.mtu.answered(now, size);
        }
    }

    /// Sends packets that are in flight again at once: they did not get through as they were.
    pub fn resend(&mut self, now: Instant) {
        self.rtt.end_backoff();
        self.timeouts = 0;
        self.on_new_path();
        self.send.on_timeout(now, Duration::ZERO);
    }

    /// Returns true if nothing new has been acknowledged for `long`.
    fn is_stuck(&self, now: Instant, long: Duration) -> bool {
        self.send.stuck_since().is_some_and(|since| now.since(since) >= long)
    }

    /// Returns true if the link in use may be dead.
    pub fn is_suspect(&self, now: Instant) -> bool {
        self.timeouts > 2 && self.is_stuck(now, STUCK)
    }

    /// Changes to another link, since packets stay unacknowledged. True if it changed.
    pub fn move_on(&mut self, now: Instant) -> bool {
        let before = self.at();
        if self.links().count() < 2 {
            return false;
        }
        self.doubt(now);
        self.leave(now, before);
        if self.at() == before {
            // No other is proven: take any.
            let others = self.links().filter(|(i, _)| *i != before);
            let best = others.min_by_key(|(_, w)| w.to.latency_ns).map_or(before, |(i, _)| i);
            (self.quick, self.wide) = (best, best);
        }
        self.timeouts = 0;
        self.on_new_path();
        true
    }

    fn leave(&mut self, now: Instant, at: usize) {
        if let Some(state) = &mut self.links[at] {
            (state.proven, state.left) = (false, true);
        }
        self.choose();
        self.ask_later(now);
    }

    /// Notes a packet that is no duplicate.
    #[inline]
    pub fn note_new(&mut self) {
        self.repeated = 0;
    }

    /// Changes to the link over which the peer sends duplicates: acknowledgements do not reach it.
    /// One duplicate is counted for each acknowledgement sent. True if the link changed.
    pub fn follow(&mut self, now: Instant, link: u8) -> bool {
        self.repeated += u32::from(core::mem::take(&mut self.answered));
        let found = self.links().find(|(_, w)| w.to.link == link).map(|(i, _)| i);
        let Some(at) = found.filter(|&at| at != self.at() && self.repeated >= COPIES) else {
            return false;
        };
        self.repeated = 0;
        let before = self.at();
        if let Some(state) = &mut self.links[at] {
            (state.proven, state.left) = (true, false);
        }
        self.leave(now, before);
        self.on_new_path();
        true
    }

    /// Forgets the delay, which was that of another link.
    fn on_new_path(&mut self) {
        self.congestion.on_new_path();
        self.send.set_congestion(self.congestion.window());
    }

    /// Returns the time at which the oldest packet in flight counts as lost. If few are in flight
    /// and the peer is silent, a premature timeout costs little, and nothing else would detect the
    /// loss.
    pub fn resend_at(&self) -> Option<Instant> {
        let (sent, rto) = (self.send.oldest_sent()?, self.rtt.rto());
        let late = sent + rto.max(RTO_MIN);
        let silent = sent.max(self.received_at) + rto;
        Some(if self.send.in_flight() > FEW { late } else { late.min(silent) })
    }

    /// Handles a timeout. After several in a row over a long time the path's estimates are void.
    pub fn on_timeout(&mut self, now: Instant) {
        self.rtt.backoff();
        self.timeouts += 1;
        if self.timeouts > 1 && self.is_stuck(now, SILENT) {
            self.congestion.on_silence();
            self.send.set_congestion(self.congestion.window());
        }
    }

    /// Handles an acknowledgement: packets that arrived, packets judged lost, and the round trip of
    /// one that was answered at once.
    pub fn on_ack_outcome(&mut self, now: Instant, acked: &AckOutcome, limited: bool) {
        let (arrived, lost) = (acked.newly_acked, acked.lost);
        if arrived > 0 || lost > 0 {
            self.congestion.on_ack(now, arrived, lost, acked.prompt, limited);
            self.send.set_congestion(self.congestion.window());
        }
    }

    /// Returns true if the window is used up or nearly so.
    pub fn is_limited(&self) -> bool {
        self.send.in_network() >= nearly_full(self.congestion.window())
    }

    /// Numbers a packet that is sent for the first time; returns flags to add to its own.
    pub fn push(&mut self, now: Instant, key: u32, asks: bool, every: u32) -> (Seq, u16) {
        let more = !self.backlog.is_empty();
        if self.backlog.len() >= BULK {
            self.bulk = true;
        } else if self.send.is_empty() {
            // No packet is in flight that this one could overtake.
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

    /// Returns the link of the next copy of an answer, which goes back over each link that a
    /// question came over, and true for the last copy.
    pub fn next_answer(&mut self) -> (u8, bool) {
        let at = (0..LINKS_MAX).find(|at| self.asked >> at & 1 != 0).unwrap_or(self.at());
        self.asked &= !(1 << at);
        (self.links[at].map_or(0, |w| w.to.link), self.asked == 0)
    }

    /// Returns the link of the next copy of a question, and true for the last copy.
    pub fn next_copy(&mut self) -> (u8, bool) {
        let count = self.links().count();
        let link = self.links().nth(self.copies).map_or(0, |(_, w)| w.to.link);
        self.copies += 1;
        let last = self.copies >= count;
        if last {
            self.copies = 0;
        }
        (link, last)
    }

    /// Notes that the rank grants the peer more credit.
    pub fn note_credit(&mut self, credit: u32) {
        if credit.wrapping_sub(self.credit) <= MAX_STEP {
            self.credit = credit;
        }
    }

    /// Returns the rank's total grant in units.
    pub fn credit(&self) -> u32 {
        self.credit
    }

    /// Returns true if the peer grants more than the rank knows.
    pub fn grows(&mut self, credit: u32) -> bool {
        let step = credit.wrapping_sub(self.received_credit);
        let grows = step != 0 && step <= MAX_STEP;
        if grows {
            self.received_credit = credit;
        }
        grows
    }

    pub fn note_peer_credit(&mut self, credit: u32) {
        self.grows(credit);
    }

    /// Returns a kept packet with the present header fields.
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
        let state = self.links[self.at()];
        let (link, fits) = state.map_or((0, u32::MAX), |w| (w.to.link, w.mtu.fits()));
        Out { payload: kept.payload, fits, ..Out::bare(peer, link, header) }
    }

    /// Returns an acknowledgement, with the state of the rank's process as the agent sees it.
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
        Out::bare(peer, self.link(), header)
    }

    /// Returns true if a BYE was sent at least once.
    pub fn said_bye(&self) -> bool {
        self.byes > 0
    }

    /// Returns true if a BYE is due: all packets before it have arrived.
    pub fn bye_due(&self, now: Instant) -> bool {
        self.bye.is_some() && self.is_done() && self.bye_at <= now
    }

    /// Returns true if all packets have arrived.
    fn is_done(&self) -> bool {
        self.send.is_empty() && self.backlog.is_empty()
    }

    /// Notes that a BYE is sent now. True if it was the last.
    pub fn note_bye(&mut self, now: Instant) -> bool {
        self.byes += 1;
        self.bye_at = now + self.rtt.rto().clamp(RTO_MIN, BYE_PAUSE_MAX);
        self.byes >= BYES
    }

    /// Returns the time at which packets will have been unacknowledged for too long. For a peer
    /// that has become silent, `limit` counts from the silence.
    pub fn stuck_at(&self, limit: Duration) -> Option<Instant> {
        let since = self.send.stuck_since()?;
        Some(match self.received_at + limit / 2 >= since + limit {
            true => since + limit,
            false => self.received_at.max(since) + limit,
        })
    }

    /// Returns the time of the next timer.
    pub fn deadline(&self, cfg: &Config) -> Option<Instant> {
        let resend = self.resend_at();
        let give_up = self.stuck_at(Duration::from_millis(u64::from(cfg.peer_timeout_ms)));
        // No acknowledgement can be sent while the peer's session number is unknown.
        let ack = self.recv.ack_deadline().filter(|_| self.session_out != 0);
        let ask = Some(self.ask_at).filter(|&at| at != Instant::FAR);
        // A BYE not sent yet, or with packets before it, waits for other events.
        let bye = self.bye.filter(|_| self.said_bye() && self.is_done()).map(|_| self.bye_at);
        [resend, give_up, ack, ask, bye, self.probe_at()].into_iter().flatten().min()
    }
}

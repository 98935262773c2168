//! The packets on their way to and from a peer, on links that lose or reorder.

use super::policy::{Policy, RepeatRule};
use crate::config::{Config, CongestionControl};
use crate::reliability::{
    asks_at, nearly_full, should_ask, AckOutcome, AckPolicy, Congestion, RecvWindow, Reliability,
    Rtt, SackMap, SendWindow, Verdict,
};
use crate::seq::Seq;
use crate::time::Instant;
use crate::wire::{flags, Ack, Common};
use alloc::boxed::Box;
use core::time::Duration;

/// Longest time for one packet on the wire (as Linux has it for TCP's, `sk_pacing_shift`).
const LONG_PACKET: Duration = Duration::from_millis(1);
/// Number of vain retransmissions of the oldest packet after which its path is doubted.
const DOUBTED: u8 = 3;

/// The windows of a connection, which may have none.
pub(crate) trait Windowed {
    /// The state that is kept of a packet.
    type Item: Copy;

    fn get(&self) -> Option<&Windows<Self::Item>>;
    fn get_mut(&mut self) -> Option<&mut Windows<Self::Item>>;
}

impl<T: Copy> Windowed for Windows<T> {
    type Item = T;

    #[inline]
    fn get(&self) -> Option<&Windows<T>> {
        Some(self)
    }

    #[inline]
    fn get_mut(&mut self) -> Option<&mut Windows<T>> {
        Some(self)
    }
}

impl<T: Copy> Windowed for Option<Box<Windows<T>>> {
    type Item = T;

    #[inline]
    fn get(&self) -> Option<&Windows<T>> {
        self.as_deref()
    }

    #[inline]
    fn get_mut(&mut self) -> Option<&mut Windows<T>> {
        self.as_deref_mut()
    }
}

/// The acknowledgement in a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    pub ack: Seq,
    /// True if the peer has dropped packets after a gap.
    pub nack: bool,
    /// True if the packet with this number has arrived and waits for room.
    pub waits: bool,
}

impl Acknowledged {
    /// Returns the acknowledgement in a packet with this header, which has a `map` or not.
    #[inline]
    pub fn of(common: &Common, map: bool) -> Acknowledged {
        Acknowledged {
            ack: common.ack,
            nack: common.flags & flags::NACK != 0,
            waits: map && common.flags & flags::SYNC != 0,
        }
    }
}

/// Returns the kind of window for a kind of reliability: a side that would keep nothing keeps
/// packets all the same if its peer, or its link, needs it.
pub(crate) fn window_mode(reliability: Reliability) -> Reliability {
    match reliability {
        Reliability::None | Reliability::Agent => Reliability::Selective,
        mode => mode,
    }
}

/// Returns the queueing delay that congestion control aims at; zero without it.
pub(crate) fn delay_target(cfg: &Config) -> Duration {
    match cfg.congestion {
        CongestionControl::None => Duration::ZERO,
        CongestionControl::Delay => Duration::from_micros(u64::from(cfg.congestion_target_us)),
    }
}

/// The packets on their way in both directions, and what is known of the time that they take. `T`
/// is what is kept of a packet until it is acknowledged.
pub(crate) struct Windows<T: Copy> {
    pub send: SendWindow<T>,
    pub recv: RecvWindow,
    pub rtt: Rtt,
    pub congestion: Congestion,
    pub policy: &'static Policy,
    /// Packets sent since one that asks for an acknowledgement.
    pub unasked: u32,
    /// Timeouts since the last acknowledgement of a new packet.
    pub timeouts: u32,
    /// Packets that the peer sends again although they have arrived.
    pub repeats: Repeats,
    /// An acknowledgement in a message and the time of its arrival, to be handled when no program
    /// waits.
    pub late_ack: Option<(Instant, Seq)>,
}

impl<T: Copy> Windows<T> {
    /// Makes windows. `part` makes what is kept of one packet from what is kept of a run: see
    /// [`SendWindow::parts_by`].
    pub fn new(
        cfg: &Config,
        mode: Reliability,
        policy: &'static Policy,
        part: fn(&T, u32, u32) -> T,
    ) -> Windows<T> {
        let us = |n: u32| Duration::from_micros(u64::from(n));
        let mut recv = RecvWindow::new(mode, Seq(0), cfg.window);
        recv.set_ack_policy(AckPolicy {
            every: cfg.ack_every,
            delay: us(cfg.ack_delay_us),
            peer_window: cfg.window,
        });
        let send = SendWindow::new(mode, cfg.window, Seq(0)).parts_by(part);
        let congestion = Congestion::new(delay_target(cfg), send.limit());
        let mut windows = Windows {
            send,
            recv,
            congestion,
            policy,
            unasked: 0,
            timeouts: 0,
            repeats: Repeats::default(),
            late_ack: None,
            rtt: Rtt::new(us(cfg.rto_min_us) * 10, us(cfg.rto_min_us), us(cfg.rto_max_us)),
        };
        windows.bound();
        windows
    }

    /// Holds the packets in the network to the congestion window.
    #[inline]
    fn bound(&mut self) {
        self.send.set_congestion(self.congestion.window());
    }

    /// Notes that `packets` are about to be sent; returns true if they should ask for an
    /// acknowledgement: see [`should_ask`].
    #[inline]
    pub fn should_ask(&mut self, packets: u32, most: u32, more: bool) -> bool {
        should_ask(&mut self.unasked, &self.send, &self.congestion, (packets, most), more)
    }

    /// Notes that the packet numbered last asks for an acknowledgement.
    #[inline]
    pub fn note_asked(&mut self) {
        self.unasked = 0;
        self.send.mark_prompt();
    }

    /// Handles an acknowledgement. Calls `acked` for each packet as [`SendWindow::on_ack`] does.
    /// Returns with its effects the round trip and queueing delay, if they were measured.
    #[inline]
    pub fn on_ack(
        &mut self,
        now: Instant,
        acknowledged: Acknowledged,
        sack: Option<&SackMap>,
        acked: &mut dyn FnMut(T, u32),
    ) -> (AckOutcome, Option<(u64, u64)>) {
        let Acknowledged { ack, nack, waits } = acknowledged;
        let limited = self.send.in_network() >= nearly_full(self.congestion.window());
        let outcome = self.send.on_ack(now, ack, sack, nack, acked);
        if let Some(rtt) = outcome.rtt {
            self.rtt.sample(rtt);
        }
        if outcome.newly_acked > 0 {
            self.timeouts = 0;
        }
        if waits && ack == self.send.oldest() {
            self.send.note_waiting(now);
        }
        let (arrived, lost) = (outcome.newly_acked, outcome.lost);
        if arrived == 0 && lost == 0 {
            return (outcome, None);
        }
        let delay = self.congestion.on_ack(now, arrived, lost, outcome.prompt, limited);
        self.bound();
        (outcome, delay)
    }

    /// Judges an arriving packet, whose sender `asks` for an acknowledgement or not, and counts it
    /// towards the next one.
    #[inline]
    pub fn on_packet(&mut self, now: Instant, seq: Seq, asks: bool) -> Verdict {
        let verdict = self.recv.on_packet(seq);
        self.recv.note_received(now, asks);
        verdict
    }

    /// Returns the contents of an acknowledgement packet and its flags; it is sent now.
    pub fn acknowledge(&mut self) -> (Ack, u16) {
        let nack = self.send.mode() == Reliability::GoBackN && self.recv.has_gap();
        let sack = self.recv.sack();
        self.recv.ack_sent();
        (Ack { sack: sack.0 }, if nack { flags::NACK } else { 0 })
    }

    /// Returns the time at which the oldest packet in flight counts as lost. If few are in flight
    /// and the peer, heard last at `heard_at`, is silent, it does so earlier.
    #[inline]
    pub fn resend_at(&self, heard_at: Instant) -> Option<Instant> {
        let (sent, rto) = (self.send.oldest_sent()?, self.rtt.rto());
        if self.policy.rto_min.is_zero() {
            return Some(sent + rto);
        }
        let late = sent + rto.max(self.policy.rto_min);
        let silent = sent.max(heard_at) + rto;
        Some(if self.send.in_flight() > self.policy.few { late } else { late.min(silent) })
    }

    /// Handles a timeout of the oldest packet. After several in a row over a long time the path's
    /// estimates are void. False if no packet is sent again.
    pub fn on_timeout(&mut self, now: Instant) -> bool {
        if !self.send.on_timeout(now, Duration::ZERO) {
            return false;
        }
        self.rtt.backoff();
        self.timeouts += 1;
        if self.timeouts > 1 && self.is_stuck(now, self.policy.silent) {
            self.congestion.on_silence();
            self.bound();
        }
        true
    }

    /// Returns true if nothing new has been acknowledged for `long`.
    pub fn is_stuck(&self, now: Instant, long: Duration) -> bool {
        self.send.stuck_since().is_some_and(|since| now.since(since) >= long)
    }

    /// Returns the time since which there is no progress, if this packet, which is sent again, is
    /// the oldest and was so several times in vain.
    pub fn doubted_since(&self, now: Instant, seq: Seq) -> Option<Instant> {
        let tries = self.send.oldest_item().map_or(0, |(_, tries)| tries);
        let vain = tries >= DOUBTED && seq == self.send.oldest();
        vain.then(|| self.send.stuck_since().unwrap_or(now))
    }

    /// Forgets the delay, which was that of another path.
    pub fn on_new_path(&mut self) {
        self.congestion.on_new_path();
        self.bound();
    }

    /// Sends packets that are in flight again at once: they did not get through as they were.
    pub fn resend(&mut self, now: Instant) {
        self.rtt.end_backoff();
        self.timeouts = 0;
        self.on_new_path();
        self.send.on_timeout(now, Duration::ZERO);
    }

    /// Counts a packet that came again. Returns the number of those that count, and true if this
    /// one does.
    pub fn note_repeat(&mut self, now: Instant) -> (u32, bool) {
        let counts = self.repeats.note(now, self.recv.next_expected(), self.policy.repeats);
        (self.repeats.count, counts)
    }

    /// Returns true if the window is so large that packets of `long` bytes are no burden on the
    /// network: in the time allowed for one packet (`LONG_PACKET`), packets of `mtu` bytes carry at
    /// least as many bytes. A sender that shares a slow network keeps a window of a few short ones.
    pub fn is_roomy(&self, mtu: u32, long: u32) -> bool {
        if !self.congestion.adapts() {
            return true;
        }
        let Some(rtt) = self.rtt.smoothed() else { return false };
        let window = u128::from(self.congestion.window()) * u128::from(mtu);
        window * LONG_PACKET.as_nanos() >= u128::from(long) * rtt.as_nanos()
    }

    /// Returns true if this is the next packet, and causes no urgent work.
    #[inline]
    pub fn is_next(&self, common: &Common) -> bool {
        self.late_ack.is_none_or(|(_, ack)| ack == common.ack)
            && self.recv.expects(common.seq)
            && !self.recv.has_gap()
            && !self.send.has_gap()
    }

    /// Returns the most packets of a message to send as one run: those before the next that has to
    /// ask for an acknowledgement.
    #[inline]
    pub fn run_max(&self, most: u32, more: bool) -> u32 {
        let room = self.send.room().max(1);
        if !self.congestion.adapts() {
            return room;
        }
        let (due, full) = asks_at(&self.send, &self.congestion, most);
        let free = if more { 0 } else { full.saturating_sub(self.send.in_network() + 1) };
        let before = due.saturating_sub(self.unasked + 1);
        room.min(free.max(before)).max(1)
    }

    /// Returns the room in the window below which data waits for more: a call of the link costs as
    /// much for a part of a train as for a whole one. At most a quarter of the window, so that
    /// small windows do not run empty.
    #[inline]
    pub fn least_run(&self, train: u32) -> u32 {
        let window = self.congestion.window().min(self.send.limit());
        train.min(window / 4).max(1)
    }
}

/// Counts packets that came again since the last new one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Repeats {
    /// Next expected packet when the first of them came.
    expected: Seq,
    count: u32,
    /// Arrival of the last one that was counted.
    at: Instant,
    /// True if an acknowledgement was sent since one was counted.
    answered: bool,
}

impl Repeats {
    /// Counts one more. Returns true if this one counts.
    fn note(&mut self, now: Instant, expected: Seq, rule: RepeatRule) -> bool {
        if self.expected != expected {
            (self.expected, self.count) = (expected, 0);
        }
        let counts = match rule {
            RepeatRule::Each(time) => self.count == 0 || now >= self.at + time,
            RepeatRule::Answered => core::mem::take(&mut self.answered),
        };
        if counts {
            (self.count, self.at) = (self.count.saturating_add(1), now);
        }
        counts
    }

    /// Notes that an acknowledgement is sent.
    #[inline]
    pub fn note_answer(&mut self) {
        self.answered = true;
    }

    /// Notes a new packet: none has come again since.
    #[inline]
    pub fn forget(&mut self) {
        self.count = 0;
    }
}

//! State that exists only on links that lose or reorder.

use super::{target, Desc};
use crate::config::Config;
use crate::reliability::{
    asks_at, should_ask, AckPolicy, Congestion, RecvWindow, Reliability, Rtt, SendWindow,
};
use crate::seq::Seq;
use crate::time::Instant;
use crate::wire::Common;
use core::time::Duration;

/// Longest time for one packet on the wire (as Linux has it for TCP's, `sk_pacing_shift`).
const LONG_PACKET: Duration = Duration::from_millis(1);

/// State that exists only on links that lose or reorder.
pub(crate) struct Windows {
    pub send: SendWindow<Desc>,
    pub recv: RecvWindow,
    pub rtt: Rtt,
    pub congestion: Congestion,
    /// Packets sent since one that asks for an acknowledgement.
    pub unasked: u32,
    /// Timeouts since the last acknowledgement of a new packet.
    pub timeouts: u32,
    /// The packet missing when bulk data last arrived out of order.
    pub gap_at: Seq,
    /// The number after the last packet that took the bulk link.
    pub bulk_end: Seq,
    /// Packets that the peer sends again although they have arrived.
    pub repeats: Repeats,
    /// An acknowledgement in a message and the time of its arrival, to be handled when no program
    /// waits.
    pub late_ack: Option<(Instant, Seq)>,
}

impl Windows {
    pub fn new(cfg: &Config, mode: Reliability) -> Windows {
        let us = |n: u32| Duration::from_micros(u64::from(n));
        let mut recv = RecvWindow::new(mode, Seq(0), cfg.window);
        recv.set_ack_policy(AckPolicy {
            every: cfg.ack_every,
            delay: us(cfg.ack_delay_us),
            peer_window: cfg.window,
        });
        let mut send = SendWindow::new(mode, cfg.window, Seq(0)).parts_by(Desc::part);
        let congestion = Congestion::new(target(cfg), send.limit());
        send.set_congestion(congestion.window());
        Windows {
            send,
            recv,
            congestion,
            unasked: 0,
            timeouts: 0,
            gap_at: Seq(0),
            bulk_end: Seq(0),
            repeats: Repeats::default(),
            late_ack: None,
            rtt: Rtt::new(us(cfg.rto_min_us) * 10, us(cfg.rto_min_us), us(cfg.rto_max_us)),
        }
    }

    /// Notes that `packets` are about to be sent; returns true if they should ask for an
    /// acknowledgement: see [`should_ask`].
    #[inline]
    pub fn should_ask(&mut self, packets: u32, most: u32, more: bool) -> bool {
        should_ask(&mut self.unasked, &self.send, &self.congestion, (packets, most), more)
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

    /// Notes that `packets` from `seq` on are about to be sent, `bulk` or not; returns true if they
    /// take the bulk link: bulk data does, and all packets that would otherwise overtake it, which
    /// the receiver could not use.
    #[inline]
    pub fn follows_bulk(&mut self, seq: Seq, packets: u32, bulk: bool) -> bool {
        if bulk {
            self.bulk_end = seq.plus(packets);
            return true;
        }
        let oldest = self.send.oldest();
        let behind = oldest.before(self.bulk_end);
        if !behind {
            self.bulk_end = oldest;
        }
        behind
    }
}

/// Least time between two repeated packets that count.
const REPEAT: Duration = Duration::from_millis(10);

/// Counts packets that came again since the last new one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Repeats {
    /// Next expected packet when the first of them came.
    expected: Seq,
    count: u32,
    /// Arrival of the last one that was counted.
    at: Instant,
}

impl Repeats {
    /// Counts one more. Returns the number if the driver has to act on it.
    pub fn note(&mut self, now: Instant, expected: Seq) -> Option<u32> {
        if self.expected != expected || self.count == 0 {
            *self = Repeats { expected, count: 1, at: now };
            return None;
        }
        if now < self.at + REPEAT {
            return None;
        }
        (self.count, self.at) = (self.count.saturating_add(1), now);
        Some(self.count)
    }
}

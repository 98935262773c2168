//! The state of one peer, composed of the mechanisms.

use crate::caps::{LinkCaps, Pulse};
use crate::choices::{Server, Transfer};
use crate::config::{Config, CongestionControl, MTU_MIN};
use crate::error::PeerFailure;
use crate::event::{Payload, Transmit};
use crate::id::{EndpointId, OpId, PeerId};
use crate::reliability::{
    asks_at, should_ask, AckPolicy, Congestion, CreditIn, CreditOut, RecvWindow, Reliability, Rtt,
    SendWindow, UNIT,
};
use crate::room::Share;
use crate::seq::Seq;
use crate::time::Instant;
use crate::transfer::select::{eager_max_of, Limits, ACTIVE_MAX};
use crate::wire::{Common, Packet};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

/// Number of small messages from which on one train costs less than a packet for each.
const MANY: usize = 8;

/// Everything needed to emit a packet, now and again when it is retransmitted.
#[derive(Clone, Copy)]
pub(crate) struct Desc {
    pub packet: Packet,
    pub flags: u16,
    pub imm: u32,
    pub payload: Payload,
    /// True if it takes the bulk link, if that is a link of its own.
    pub bulk: bool,
}

impl Desc {
    /// Makes a packet without payload.
    pub fn bare(packet: Packet, imm: u32) -> Desc {
        Desc { packet, flags: 0, imm, payload: Payload::None, bulk: false }
    }

    /// Returns the bytes of the packet, header and payload.
    pub fn len(&self) -> u32 {
        self.packet.header_len() as u32 + self.payload.len()
    }

    pub fn with_flags(self, flags: u16) -> Desc {
        Desc { flags, ..self }
    }

    /// Returns the `i`th of the `of` packets of a run's descriptor.
    #[inline]
    pub fn part(&self, i: u32, of: u32) -> Desc {
        let mut part = *self;
        if of < 2 {
            return part;
        }
        let each = self.payload.len() / of;
        let skipped = u64::from(each) * u64::from(i);
        match &mut part.packet {
            Packet::Data(data) => data.offset += skipped,
            Packet::EagerMore(more) => more.offset += skipped,
            _ => {}
        }
        if let Payload::Op { offset, len, .. } | Payload::Region { offset, len, .. } =
            &mut part.payload
        {
            *offset += skipped;
            *len = each;
        }
        part
    }
}

/// A numbered packet that is sent in pieces, from `at` on.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    pub seq: Seq,
    pub desc: Desc,
    pub at: u32,
}

/// The next step of the head of the message queue.
pub(crate) enum Step {
    /// Send packets (more than one: a run of equal ones); true if the item ends with them.
    Send(Desc, u32, bool),
    /// Nothing until the peer allows more.
    Wait,
    /// The operation has ended.
    Gone,
}

/// The last packet to a failed peer, sent once without retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastWord {
    /// An answer to its HELLO, so that it can name the cause.
    Versions,
    /// BYE with a reason.
    Bye(u32),
}

/// Longest time for one packet on the wire (as Linux has it for TCP's, `sk_pacing_shift`).
const LONG_PACKET: Duration = Duration::from_millis(1);

/// A message waiting its turn; messages to a peer leave in the order they were started.
#[derive(Clone, Copy)]
pub(crate) enum Item {
    Eager(OpId),
    Rts(OpId),
    Put(OpId),
    Single(Desc),
}

/// Data that a PULL or GET requested, being sent.
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    pub source: StreamSource,
    pub recv: u32,
    pub offset: u64,
    /// Offset on the wire minus offset in the source: a GET counts from its own start.
    pub shift: u64,
    pub end: u64,
}

#[derive(Clone, Copy)]
pub(crate) enum StreamSource {
    Op(OpId),
    Region(u64),
}

/// An eager message of several packets, arriving.
#[derive(Clone, Copy)]
pub(crate) struct Partial {
    pub msg: u32,
    pub total: u64,
    pub got: u64,
    pub target: Target,
    /// The sender's number for the answer when all of it has arrived, if it wants one.
    pub receipt: Option<u32>,
}

#[derive(Clone, Copy)]
pub(crate) enum Target {
    Recv(OpId),
    Stored(u32),
    Active { id: u32, tag: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Known, never contacted.
    Idle,
    /// HELLO sent, no answer yet.
    Opening {
        since: Instant,
        next: Instant,
        wait: Duration,
    },
    Ready,
    Failed(PeerFailure),
}

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
    pub late_ack: Option<(crate::Instant, Seq)>,
}

impl Windows {
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

/// Time for which bulk data avoids stripes that lost a whole train, at first and at most.
const ASIDE: Duration = Duration::from_secs(1);
const ASIDE_MAX: Duration = Duration::from_secs(300);

/// Turns of the stripes that share bulk data. After one of them lost everything, only the first is
/// used for a while.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stripes {
    turn: u8,
    until: Instant,
    wait: Duration,
}

impl Stripes {
    /// Returns the stripe of the next train, of `of` stripes.
    #[inline]
    pub fn next(&mut self, now: Instant, of: u8) -> u8 {
        if of < 2 || now < self.until {
            return 0;
        }
        self.turn = (self.turn + 1) % of;
        self.turn
    }

    /// Notes that a stripe lost everything sent over it. True if this is new.
    pub fn lost(&mut self, now: Instant) -> bool {
        if now < self.until {
            return false;
        }
        let steady = now.since(self.until) > self.wait + Duration::from_secs(10);
        self.wait = if steady { ASIDE } else { (self.wait * 2).clamp(ASIDE, ASIDE_MAX) };
        self.until = now + self.wait;
        true
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

/// Packets to and from a peer over a trusted network since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub sent: Seq,
    pub expected: Seq,
}

pub(crate) struct Peer {
    pub id: PeerId,
    pub endpoint: EndpointId,
    pub caps: LinkCaps,
    /// The path's own capabilities, before choices.
    pub carried: LinkCaps,
    /// The side that retransmits, and the protocol.
    pub reliability: Reliability,
    /// Longest packet chosen for it, bytes; 0: the link's longest.
    pub mtu_max: u32,
    /// The transfer of payload to and from it, and the lengths that follow from that.
    pub transfer: Transfer,
    pub limits: Limits,
    /// The server of additions to its counters, if one was chosen for it.
    pub fetch_add: Option<Server>,
    /// Set if both sides trust the network: packets are counted, and none is kept.
    pub trusted: Option<Count>,
    /// Largest packet that the peer accepts, from its HELLO.
    peer_mtu: u32,
    pub state: State,
    /// Session number in packets from the peer.
    pub session_in: u32,
    /// Session number in packets to the peer.
    pub session_out: u32,
    pub windows: Option<Box<Windows>>,
    /// Turns of the stripes of bulk data.
    pub stripes: Stripes,
    pub credit_in: CreditIn,
    pub credit_out: CreditOut,
    pub eager_max: u32,
    pub ctrl: VecDeque<Desc>,
    pub msgs: VecDeque<Item>,
    pub data: VecDeque<Stream>,
    /// Packets refused by the link, in the order in which they go out again.
    pub stalled: VecDeque<Transmit>,
    /// Number of them that came back since the link refused the first.
    pub returned: usize,
    pub blocked: bool,
    /// True while the link accepts nothing for it.
    pub held: bool,
    pub ready: bool,
    /// Time since when the message at the head of the queue has lacked credit; `FAR` if it does
    /// not.
    pub starved_since: Instant,
    /// True if data streams had the last turn: messages and data streams take turns.
    pub data_turn: bool,
    pub hello_due: bool,
    pub hello_reply_due: bool,
    /// To be sent although the peer has failed; true: its failure is reported with it.
    pub last_word: Option<(LastWord, bool)>,
    /// True if an acknowledgement is requested on a link without windows.
    pub ack_asked: bool,
    pub partial: Option<Partial>,
    /// True if a fragment of the put now arriving was refused.
    pub put_refused: bool,
    /// Number of operations that wait for this peer.
    pub waiting: u32,
    pub rendezvous_out: u32,
    pub rendezvous_in: u32,
    /// Its share of the room for unexpected messages.
    pub share: Share,
    /// Receives that have to request more, if requests are paced, in the order of their matching.
    pub pulls: VecDeque<OpId>,
    /// Bytes requested in that manner that have not arrived.
    pub pulled: u64,
    /// Puts, gets and atomic operations sent and not answered.
    pub requests_out: u32,
    /// True if the queues' spare memory was given back and nothing was queued since.
    pub trimmed: bool,
    pub last_heard: Instant,
    pub waiting_since: Instant,
    pub probed_at: Instant,
    /// Time since when the link, or its agent, sees that its process stands still.
    pub still_since: Option<Instant>,
    /// The state of its process as reported by its agent.
    pub still: Pulse,
    pub warned: bool,
    /// Time at which packets were first found to have been unacknowledged for too long.
    pub overdue_at: Instant,
    /// Time of the last report that the oldest packet does not get through.
    pub said_at: Instant,
    /// A packet that is sent in pieces, and the part of it that was sent.
    pub cut: Option<Cut>,
    /// Questions of the peer for the length that gets through: their numbers, and the longest.
    pub probes: Vec<(u32, u32)>,
    /// Time at which the timer table fires for this peer.
    pub armed: Instant,
}

/// Returns the bytes of eager messages that a peer may have here: at least one active message of
/// any length, which cannot be announced instead.
pub(crate) fn credit_window(cfg: &Config) -> usize {
    cfg.eager_credit.max(ACTIVE_MAX as u32 + UNIT) as usize
}

/// Returns the queueing delay that congestion control aims at; zero without it.
pub(crate) fn target(cfg: &Config) -> Duration {
    match cfg.congestion {
        CongestionControl::None => Duration::ZERO,
        CongestionControl::Delay => Duration::from_micros(u64::from(cfg.congestion_target_us)),
    }
}

impl Peer {
    pub fn new(
        cfg: &Config,
        id: PeerId,
        endpoint: EndpointId,
        session_in: u32,
        caps: LinkCaps,
    ) -> Peer {
        let mut peer = Peer {
            id,
            endpoint,
            caps,
            carried: caps,
            reliability: cfg.reliability,
            mtu_max: cfg.mtu,
            transfer: cfg.transfer,
            limits: Limits::of(cfg),
            fetch_add: None,
            trusted: None,
            peer_mtu: u32::MAX,
            state: State::Idle,
            session_in,
            session_out: 0,
            windows: None,
            stripes: Stripes::default(),
            credit_in: CreditIn::default(),
            credit_out: CreditOut::new(credit_window(cfg)),
            eager_max: 0,
            ctrl: VecDeque::new(),
            msgs: VecDeque::new(),
            data: VecDeque::new(),
            stalled: VecDeque::new(),
            returned: 0,
            blocked: false,
            held: false,
            ready: false,
            starved_since: Instant::FAR,
            data_turn: false,
            hello_due: false,
            hello_reply_due: false,
            last_word: None,
            ack_asked: false,
            partial: None,
            put_refused: false,
            waiting: 0,
            rendezvous_out: 0,
            rendezvous_in: 0,
            share: Share::default(),
            pulls: VecDeque::new(),
            pulled: 0,
            requests_out: 0,
            trimmed: true,
            last_heard: Instant(0),
            waiting_since: Instant(0),
            probed_at: Instant(0),
            still_since: None,
            still: Pulse::Runs,
            warned: false,
            overdue_at: Instant(0),
            said_at: Instant(0),
            cut: None,
            probes: Vec::new(),
            armed: Instant::FAR,
        };
        peer.set_caps(cfg, caps);
        peer
    }

    /// Adopts the capabilities of the path. Windows are made when the path needs them, and dropped
    /// when it does not and nothing was sent: both sides must agree on having them.
    pub fn set_caps(&mut self, cfg: &Config, caps: LinkCaps) {
        self.carried = caps;
        self.caps = caps;
        self.caps.mtu = self.chosen_mtu(caps.mtu);
        self.caps.bulk_mtu = self.chosen_mtu(caps.bulk_mtu);
        self.set_eager_max(cfg);
        let needs_windows = !(caps.reliable && caps.ordered) && self.trusted.is_none();
        if !needs_windows && matches!(self.state, State::Idle | State::Opening { .. }) {
            self.windows = None;
        }
        if needs_windows && self.windows.is_none() {
            let mode = match self.reliability {
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
            let mut send = SendWindow::new(mode, cfg.window, Seq(0)).parts_by(Desc::part);
            let congestion = Congestion::new(target(cfg), send.limit());
            send.set_congestion(congestion.window());
            self.windows = Some(Box::new(Windows {
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
            }));
        }
    }

    fn set_eager_max(&mut self, cfg: &Config) {
        self.eager_max = eager_max_of(self.limits.eager_max, cfg.eager_credit, &self.carried);
    }

    /// Takes another transfer for messages sent to it and fetched from it from now on.
    pub fn set_transfer(&mut self, cfg: &Config, transfer: Transfer) {
        self.transfer = transfer;
        self.limits = Limits::for_peer(cfg, transfer);
        self.set_eager_max(cfg);
    }

    /// Returns the longest packet to use on a path that carries packets of `carries` bytes.
    pub fn chosen_mtu(&self, carries: u32) -> u32 {
        match self.mtu_max {
            0 => carries,
            chosen => chosen.min(carries),
        }
    }

    /// Switches to a trusted network: packets are only counted. Nothing was sent yet.
    pub fn trust(&mut self) {
        if !(self.caps.reliable && self.caps.ordered) {
            self.windows = None;
            self.trusted = Some(Count::default());
        }
    }

    /// Returns the largest packet to this peer, bytes: allowed by its HELLO and the path.
    #[inline]
    pub fn mtu(&self) -> u32 {
        self.caps.mtu.min(self.peer_mtu).max(MTU_MIN)
    }

    /// Does the same for the bulk link, if there is room.
    #[inline]
    pub fn long_mtu(&self) -> u32 {
        let mtu = self.mtu();
        match self.peer_mtu < self.caps.mtu {
            // It has chosen short ones.
            true => mtu,
            false => mtu.max(self.caps.bulk_mtu),
        }
    }

    /// Does the same for packets that are sent now.
    #[inline]
    pub fn bulk_mtu(&self) -> u32 {
        let (mtu, long) = (self.mtu(), self.long_mtu());
        let roomy = long > mtu && self.windows.as_ref().is_none_or(|w| w.is_roomy(mtu, long));
        if roomy {
            long
        } else {
            mtu
        }
    }

    /// Returns the largest packet of an eager message of this length.
    #[inline]
    pub fn mtu_for(&self, len: u64) -> u32 {
        match len >= u64::from(self.caps.bulk_min) {
            true => self.bulk_mtu(),
            false => self.mtu(),
        }
    }

    /// Sets the capabilities of the bulk link.
    pub fn set_bulk(&mut self, caps: LinkCaps) {
        let LinkCaps { bulk_mtu, bulk_min, train, stripes, .. } = caps;
        (self.caps.bulk_mtu, self.caps.bulk_min) = (self.chosen_mtu(bulk_mtu), bulk_min);
        (self.caps.train, self.caps.stripes) = (train, stripes);
    }

    /// Notes the largest packet that the peer accepts.
    pub fn limit_mtu(&mut self, mtu: u32) {
        self.peer_mtu = mtu.max(512);
    }

    /// Puts back a packet that the link refused: before those that wait, after those refused just
    /// now.
    pub fn put_back(&mut self, t: Transmit) {
        if !self.blocked {
            self.blocked = true;
            self.returned = 0;
        }
        self.stalled.insert(self.returned.min(self.stalled.len()), t);
        self.returned += 1;
    }

    /// Gives back all memory but the peer's own.
    pub fn release_queues(&mut self) {
        self.ctrl = VecDeque::new();
        self.msgs = VecDeque::new();
        self.data = VecDeque::new();
        self.stalled = VecDeque::new();
        (self.cut, self.probes) = (None, Vec::new());
        if self.pulls.is_empty() {
            self.pulls = VecDeque::new();
        }
    }

    /// Returns true if something is queued that could be sent when the window allows.
    pub fn has_work(&self) -> bool {
        !self.ctrl.is_empty() || !self.msgs.is_empty() || !self.data.is_empty()
    }

    /// Returns true if nothing is queued and nothing was refused by the link.
    #[inline]
    pub fn is_calm(&self) -> bool {
        !self.has_work() && self.stalled.is_empty()
    }

    /// Returns true if something is queued beside the message whose turn it is.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.msgs.len() > 1 || !self.data.is_empty()
    }

    /// Returns true if so many messages wait, and may go now, that they leave faster together over
    /// the bulk link than one by one over the quick link.
    #[inline]
    pub fn has_many(&self) -> bool {
        self.msgs.len() >= MANY
            && self.caps.bulk_min != u32::MAX
            && self.windows.as_ref().is_some_and(|w| w.send.room() >= MANY as u32)
    }

    /// Returns true if nothing is queued, in flight or owed.
    pub fn quiet(&self) -> bool {
        !self.has_work()
            && self.stalled.is_empty()
            && !self.hello_due
            && !self.hello_reply_due
            && !self.ack_asked
            && self
                .windows
                .as_ref()
                .is_none_or(|w| w.send.is_empty() && w.recv.ack_deadline().is_none())
    }

    /// Returns the common header of a packet to this peer.
    #[inline]
    pub fn common(&mut self, flags: u16, mut seq: Seq, imm: u32) -> Common {
        if let Some(count) = &mut self.trusted {
            seq = count.sent;
            count.sent = seq.next();
        }
        let ack = match &mut self.windows {
            Some(w) => {
                w.recv.ack_piggybacked();
                w.recv.next_expected()
            }
            None => Seq(0),
        };
        let credit = self.credit_out.grant();
        self.credit_out.announced();
        Common { flags, session: self.session_out, seq, ack, credit, imm }
    }

    pub fn failure(&self) -> Option<PeerFailure> {
        match self.state {
            State::Failed(f) => Some(f),
            _ => None,
        }
    }
}

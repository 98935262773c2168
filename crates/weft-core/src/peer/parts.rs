//! The parts of a peer.

use super::{Cut, Desc, Item, LastWord, Partial, Stream, Stripes};
use crate::budget::Share;
use crate::caps::{LinkCaps, Pulse};
use crate::choices::{Server, Transfer};
use crate::config::{Config, MTU_MIN};
use crate::event::Transmit;
use crate::id::OpId;
use crate::reliability::Reliability;
use crate::seq::Seq;
use crate::time::Instant;
use crate::transfer::select::{eager_max_of, Limits};
use alloc::collections::VecDeque;

/// The packets that begin and end a session, as far as they are to be sent.
#[derive(Default)]
pub(crate) struct Greeting {
    pub hello_due: bool,
    pub hello_reply_due: bool,
    /// The last packet to a failed peer; true if its failure is reported when that packet is sent.
    pub last_word: Option<(LastWord, bool)>,
}

impl Greeting {
    /// True if a packet that begins or ends the session is to be sent.
    #[inline]
    pub fn has_due(&self) -> bool {
        self.hello_due || self.hello_reply_due || self.last_word.is_some()
    }
}

/// The path to a peer, and the choices for it: reliability, length of packets, transfer of payload,
/// server of atomic operations.
pub(crate) struct Path {
    pub caps: LinkCaps,
    /// The capabilities of the path, apart from all choices.
    pub carried: LinkCaps,
    /// Largest packet that the peer accepts, from its HELLO.
    peer_mtu: u32,
    /// Chosen longest packet, bytes; 0: the link's maximum.
    pub mtu_max: u32,
    pub reliability: Reliability,
    pub transfer: Transfer,
    /// The lengths that follow from the transfer.
    pub limits: Limits,
    pub eager_max: u32,
    /// The server of atomic operations on the peer's words, if one was chosen.
    pub fetch_add: Option<Server>,
}

impl Path {
    pub fn new(cfg: &Config, caps: LinkCaps) -> Path {
        Path {
            caps,
            carried: caps,
            peer_mtu: u32::MAX,
            mtu_max: cfg.mtu,
            reliability: cfg.reliability,
            transfer: cfg.transfer,
            limits: Limits::of(cfg),
            eager_max: 0,
            fetch_add: None,
        }
    }

    /// Adopts the capabilities of another path.
    pub fn set_caps(&mut self, cfg: &Config, caps: LinkCaps) {
        self.carried = caps;
        self.caps = caps;
        self.caps.mtu = self.chosen_mtu(caps.mtu);
        self.caps.bulk_mtu = self.chosen_mtu(caps.bulk_mtu);
        self.set_eager_max(cfg);
    }

    fn set_eager_max(&mut self, cfg: &Config) {
        self.eager_max = eager_max_of(self.limits.eager_max, cfg.eager_credit, &self.carried);
    }

    /// Sets the transfer of later messages to the peer and fetches from it.
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

    /// Returns the largest packet to this peer, bytes: allowed by its HELLO and the path.
    #[inline]
    pub fn mtu(&self) -> u32 {
        self.caps.mtu.min(self.peer_mtu).max(MTU_MIN)
    }

    /// Returns the largest packet over the bulk link to this peer, bytes: [`mtu`](Self::mtu) if the
    /// peer's HELLO allows less than the path.
    #[inline]
    pub fn long_mtu(&self) -> u32 {
        let mtu = self.mtu();
        match self.peer_mtu < self.caps.mtu {
            // Short packets were chosen.
            true => mtu,
            false => mtu.max(self.caps.bulk_mtu),
        }
    }

    /// Sets the capabilities of the bulk link.
    pub fn set_bulk(&mut self, caps: LinkCaps) {
        let LinkCaps { bulk_mtu, bulk_min, train, stripes, .. } = caps;
        (self.caps.bulk_mtu, self.caps.bulk_min) = (self.chosen_mtu(bulk_mtu), bulk_min);
        (self.caps.train, self.caps.stripes) = (train, stripes);
    }

    /// Records the largest packet that the peer accepts.
    pub fn limit_mtu(&mut self, mtu: u32) {
        self.peer_mtu = mtu.max(512);
    }
}

/// Packets and messages that wait to be sent to a peer.
pub(crate) struct Queue {
    pub ctrl: VecDeque<Desc>,
    pub msgs: VecDeque<Item>,
    pub data: VecDeque<Stream>,
    /// Packets that the link refused, in the order of their next transmission.
    pub stalled: VecDeque<Transmit>,
    /// Number of packets put back since the link refused the first.
    returned: usize,
    pub blocked: bool,
    /// True if the link accepts no packet for the peer until it reports room.
    pub held: bool,
    /// True if the peer is in the engine's queue of peers with packets to send.
    pub ready: bool,
    /// True if data streams had the last turn: messages and data streams take turns.
    pub data_turn: bool,
    /// Turns of the stripes of bulk data.
    pub stripes: Stripes,
    /// True if the queues' spare memory was freed and nothing was queued since.
    pub trimmed: bool,
    /// Time since which the first message has lacked credit; `FAR` if it has credit.
    pub without_credit_since: Instant,
    /// The number after the last packet that took the bulk link.
    bulk_end: Seq,
    /// A packet that is sent in pieces, and the part that was sent.
    pub cut: Option<Cut>,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            ctrl: VecDeque::new(),
            msgs: VecDeque::new(),
            data: VecDeque::new(),
            stalled: VecDeque::new(),
            returned: 0,
            blocked: false,
            held: false,
            ready: false,
            data_turn: false,
            stripes: Stripes::default(),
            trimmed: true,
            without_credit_since: Instant::FAR,
            bulk_end: Seq(0),
            cut: None,
        }
    }
}

impl Queue {
    /// Puts back a packet that the link refused: before waiting packets, after those refused just
    /// now.
    pub fn put_back(&mut self, t: Transmit) {
        if !self.blocked {
            self.blocked = true;
            self.returned = 0;
        }
        self.stalled.insert(self.returned.min(self.stalled.len()), t);
        self.returned += 1;
    }

    /// Frees all memory.
    pub fn clear(&mut self) {
        self.ctrl = VecDeque::new();
        self.msgs = VecDeque::new();
        self.data = VecDeque::new();
        self.stalled = VecDeque::new();
        self.cut = None;
    }

    /// Notes that `packets` from `seq` on are about to be sent, `bulk` or not, while `oldest` is
    /// the oldest in flight; returns true if they take the bulk link: bulk data does, and all
    /// packets that would otherwise overtake it, which the receiver could not use.
    #[inline]
    pub fn follows_bulk(&mut self, oldest: Seq, seq: Seq, packets: u32, bulk: bool) -> bool {
        if bulk {
            self.bulk_end = seq.plus(packets);
            return true;
        }
        let behind = oldest.before(self.bulk_end);
        if !behind {
            self.bulk_end = oldest;
        }
        behind
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

    /// Returns true if no message is queued and nothing was refused by the link.
    #[inline]
    pub fn is_clear(&self) -> bool {
        self.msgs.is_empty() && self.stalled.is_empty()
    }

    /// Returns true if something is queued beside the message whose turn it is.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.msgs.len() > 1 || !self.data.is_empty()
    }
}

/// Messages that arrive from a peer, and requests for their data.
#[derive(Default)]
pub(crate) struct Incoming {
    pub partial: Option<Partial>,
    /// The status of the put now arriving, by its fragments so far.
    pub put_status: u32,
    /// Number of announced messages that have not ended.
    pub rendezvous: u32,
    /// Receives that have to send further requests, where requests are paced, in the order of
    /// matching.
    pub pulls: VecDeque<OpId>,
    /// Bytes of such requests that have not arrived.
    pub pulled: u64,
    /// The packet missing when bulk data last arrived out of order.
    gap_at: Seq,
    /// The peer's share of the memory for unexpected messages.
    pub share: Share,
}

impl Incoming {
    /// Notes that bulk data arrived though this packet is missing. True if it is another than last
    /// time.
    pub fn note_gap(&mut self, missing: Seq) -> bool {
        core::mem::replace(&mut self.gap_at, missing) != missing
    }
}

/// Requests to a peer and announcements that it has not answered.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub rendezvous: u32,
    /// Number of puts, gets and atomic operations.
    pub requests: u32,
}

/// The waits for a peer, and what is known of its process.
#[derive(Default)]
pub(crate) struct Watch {
    /// Number of operations that wait for this peer.
    pub waiting: u32,
    pub waiting_since: Instant,
    pub probed_at: Instant,
    /// Time since which the link, or its agent, does not see the process run.
    pub still_since: Option<Instant>,
    /// The state of its process as reported by its agent.
    pub still: Pulse,
    pub warned: bool,
    /// The peer is moving to another host, and said so: until then its silence means nothing.
    pub rests_until: Instant,
    /// Time of the last event that reported the oldest packet as stuck.
    pub said_at: Instant,
    pub vain: Vain,
}

/// Retransmissions of the oldest packet.
#[derive(Default)]
pub(crate) struct Vain {
    pub seq: Seq,
    /// Time of the last.
    pub at: Instant,
    /// The number of them that were in vain though the peer was heard after the one before.
    pub heard: u8,
}

//! The state that the engine keeps of one peer: the connection, and what is the engine's own.

mod parts;
mod stripes;

pub(crate) use parts::{Greeting, Incoming, Outgoing, Path, Queue, Vain, Watch};
pub(crate) use stripes::Stripes;

use crate::caps::LinkCaps;
use crate::config::Config;
use crate::connection::{window_mode, Connection, Count, Credit, Lengths, Policy, Windows};
use crate::error::PeerFailure;
use crate::event::Payload;
use crate::id::{EndpointId, OpId, PeerId};
use crate::reliability::{CreditOut, UNIT};
use crate::seq::Seq;
use crate::time::Instant;
use crate::transfer::select::ACTIVE_MAX;
use crate::wire::Packet;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
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

/// The windows of a peer: none on links that lose and reorder nothing.
pub(crate) type PeerWindows = Option<Box<Windows<Desc>>>;

/// The state kept of a peer, in parts.
pub(crate) struct Peer {
    pub conn: Connection<PeerWindows>,
    pub state: State,
    pub greeting: Greeting,
    pub path: Path,
    pub queue: Queue,
    pub incoming: Incoming,
    pub outgoing: Outgoing,
    pub watch: Watch,
}

/// Returns the bytes of eager messages that a peer may have here: at least one active message of
/// any length, which cannot be announced instead.
pub(crate) fn credit_window(cfg: &Config) -> usize {
    cfg.eager_credit.max(ACTIVE_MAX as u32 + UNIT) as usize
}

impl Peer {
    pub fn new(
        cfg: &Config,
        id: PeerId,
        endpoint: EndpointId,
        session_in: u32,
        caps: LinkCaps,
    ) -> Peer {
        let credit = Credit::new(CreditOut::new(credit_window(cfg)));
        let mut peer = Peer {
            conn: Connection::new((id, endpoint), session_in, None, credit),
            state: State::Idle,
            greeting: Greeting::default(),
            path: Path::new(cfg, caps),
            queue: Queue::default(),
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            watch: Watch::default(),
        };
        peer.set_caps(cfg, caps);
        peer
    }

    /// Adopts the capabilities of the path. Windows are made when the path needs them, and dropped
    /// when it does not and nothing was sent: both sides must agree on having them.
    pub fn set_caps(&mut self, cfg: &Config, caps: LinkCaps) {
        self.path.set_caps(cfg, caps);
        let needs_windows = !(caps.reliable && caps.ordered) && self.conn.session.trusted.is_none();
        if !needs_windows && matches!(self.state, State::Idle | State::Opening { .. }) {
            self.conn.windows = None;
        }
        if needs_windows && self.conn.windows.is_none() {
            let mode = window_mode(self.path.reliability);
            let windows = Windows::new(cfg, mode, &Policy::RANK, Desc::part);
            self.conn.windows = Some(Box::new(windows));
        }
    }

    /// Switches to a trusted network: packets are only counted. Nothing was sent yet.
    pub fn trust(&mut self) {
        if !(self.path.caps.reliable && self.path.caps.ordered) {
            self.conn.windows = None;
            self.conn.session.trusted = Some(Count::default());
        }
    }

    /// Returns the length of the longest bulk packet that may be sent now, in bytes.
    #[inline]
    pub fn bulk_mtu(&self) -> u32 {
        let (mtu, long) = (self.path.mtu(), self.path.long_mtu());
        let roomy = long > mtu && self.conn.windows.as_ref().is_none_or(|w| w.is_roomy(mtu, long));
        if roomy {
            long
        } else {
            mtu
        }
    }

    /// Returns the largest packet of an eager message of this length.
    #[inline]
    pub fn mtu_for(&self, len: u64) -> u32 {
        match len >= u64::from(self.path.caps.bulk_min) {
            true => self.bulk_mtu(),
            false => self.path.mtu(),
        }
    }

    /// Gives back all memory but the peer's own.
    pub fn release_queues(&mut self) {
        self.queue.clear();
        self.conn.lengths = Lengths::default();
        if self.incoming.pulls.is_empty() {
            self.incoming.pulls = VecDeque::new();
        }
    }

    /// Returns true if so many messages wait, and may go now, that they leave faster together over
    /// the bulk link than one by one over the quick link.
    #[inline]
    pub fn has_many(&self) -> bool {
        self.queue.msgs.len() >= MANY
            && self.path.caps.bulk_min != u32::MAX
            && self.conn.windows.as_ref().is_some_and(|w| w.send.room() >= MANY as u32)
    }

    /// Returns true if nothing is queued, in flight or owed.
    pub fn quiet(&self) -> bool {
        !self.queue.has_work()
            && self.queue.stalled.is_empty()
            && !self.greeting.hello_due
            && !self.greeting.hello_reply_due
            && !self.conn.credit.ack_asked
            && self
                .conn
                .windows
                .as_ref()
                .is_none_or(|w| w.send.is_empty() && w.recv.ack_deadline().is_none())
    }

    pub fn failure(&self) -> Option<PeerFailure> {
        match self.state {
            State::Failed(f) => Some(f),
            _ => None,
        }
    }
}

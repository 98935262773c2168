//! A relay's state for one peer: the connection, and what is the relay's own.

use super::backlog::Backlog;
use super::farewell::Farewell;
use super::links::Links;
use super::{Kept, LinkTo, Out};
use crate::caps::Pulse;
use crate::config::Config;
use crate::connection::{window_mode, Connection, Credit, Policy, Windows};
use crate::id::{EndpointId, PeerId};
use crate::reliability::CreditOut;
use crate::seq::Seq;
use crate::time::Instant;
use crate::wire::{self, field, flags, Common, HeaderBuf, Packet, Probe};
use core::time::Duration;

/// Consecutive duplicates, with no new packet between them, after which the relay changes to the
/// link over which the peer sends them.
const COPIES: u32 = 3;
/// Time without an acknowledgement after which the link may be dead: an agent that shares its core
/// does not run for some milliseconds.
const STUCK: Duration = Duration::from_millis(20);

/// A peer of the rank.
pub(super) struct Flow {
    /// The kept packets of the window are keys.
    pub conn: Connection<Windows<u32>>,
    pub backlog: Backlog,
    pub farewell: Farewell,
    pub links: Links,
    /// Time at which the rank last got an acknowledgement of the peer.
    pub received_up_at: Instant,
    /// True if the rank asked for a sign of life of the peer.
    pub ask_up: bool,
    /// True if the packet expected next has arrived since the last acknowledgement, but had no
    /// room.
    pub full: bool,
    pub ready: bool,
}

impl Flow {
    pub fn new(
        cfg: &Config,
        (session, given): (u32, u32),
        (peer, endpoint): (PeerId, EndpointId),
        links: &[LinkTo],
    ) -> Flow {
        let mode = window_mode(cfg.reliability);
        let windows = Windows::new(cfg, mode, &Policy::AGENT, |key, _, _| *key);
        let credit = Credit::new(CreditOut::passed_on());
        Flow {
            conn: Connection::new((peer, endpoint), session, windows, credit),
            backlog: Backlog::new(given),
            farewell: Farewell::default(),
            links: Links::new(links),
            received_up_at: Instant(0),
            ask_up: false,
            full: false,
            ready: false,
        }
    }

    /// Handles a HELLO over `link`, whose session number is for packets to the peer. Returns the
    /// same as [`learn`](Self::learn).
    pub fn on_hello(&mut self, now: Instant, link: u8, answer: bool, session: u32) -> bool {
        let room = self.learn(session);
        if self.links.on_hello(now, link, answer) && !self.conn.windows.send.is_empty() {
            self.conn.windows.on_new_path();
        }
        room
    }

    /// Returns true if the session number in packets to the peer is known: nothing can be sent
    /// before.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.conn.session.number_out != 0
    }

    /// Learns the session number in packets to the peer. True if the agent had packets for it
    /// before, which it may send now.
    #[inline]
    pub fn learn(&mut self, session: u32) -> bool {
        let first = !self.is_open();
        self.conn.session.number_out = session;
        first && session != 0 && core::mem::take(&mut self.backlog.wants_room)
    }

    /// Returns true if an answer could be sent, but has no slot.
    pub fn lacks_a_place(&self) -> bool {
        self.backlog.begins_with_answer() && self.is_open() && self.conn.windows.send.can_send()
    }

    /// Returns true if all packets with numbers have arrived.
    pub fn is_done(&self) -> bool {
        self.conn.windows.send.is_empty() && self.backlog.waiting.is_empty()
    }

    /// Returns the answer to a question of the peer, without its payload, if the rank has begun to
    /// send: then it has answered before, and no answer waits already.
    pub fn answer(&self) -> Option<HeaderBuf> {
        let answers = !self.is_done() && self.backlog.plain.is_empty();
        self.links.answer(self.conn.session.number_out).filter(|_| answers)
    }

    /// Doubts the length of packets if this one, which is sent again, is the oldest and was so
    /// several times in vain.
    pub fn doubt_if_vain(&mut self, now: Instant, seq: Seq) {
        if let Some(since) = self.conn.windows.doubted_since(now, seq) {
            self.links.doubt(now, since);
        }
    }

    /// Returns the time of the next question for a length.
    pub fn probe_at(&self) -> Option<Instant> {
        self.links.probe_at().filter(|_| self.is_open())
    }

    /// Changes to another link, if the one in use may be dead. True if it changed.
    pub fn leave_if_suspect(&mut self, now: Instant) -> bool {
        let w = &mut self.conn.windows;
        if w.timeouts <= 2 || !w.is_stuck(now, STUCK) || !self.links.has_choice() {
            return false;
        }
        self.links.doubt(now, w.send.stuck_since().unwrap_or(now));
        self.links.move_on(now);
        w.timeouts = 0;
        w.on_new_path();
        true
    }

    /// Changes to the link over which the peer sends duplicates: acknowledgements do not reach it.
    /// True if the link changed.
    pub fn follow(&mut self, now: Instant, link: u8) -> bool {
        let (repeats, _) = self.conn.windows.note_repeat(now);
        if repeats < COPIES || !self.links.follow(now, link) {
            return false;
        }
        self.conn.windows.repeats.forget();
        self.conn.windows.on_new_path();
        true
    }

    /// Numbers a packet that is sent for the first time; returns flags to add to its own.
    pub fn push(&mut self, now: Instant, key: u32, asks: bool, every: u32) -> (Seq, u16) {
        let w = &mut self.conn.windows;
        let waiting = self.backlog.waiting.len();
        self.links.note_load(waiting, w.send.is_empty());
        let due = w.should_ask(1, every, waiting > 0) || asks;
        let seq = w.send.push(now, key);
        if due {
            w.note_asked();
        }
        (seq, if due { flags::ACKNOW } else { 0 })
    }

    /// Returns a kept packet with the present header fields.
    #[inline]
    pub fn emit(&mut self, kept: &Kept, seq: Seq, more: u16) -> Out {
        let mut header = kept.header;
        let bytes = header.as_mut_slice();
        bytes[field::SEQ].copy_from_slice(&seq.0.to_le_bytes());
        let flags = u16::from_le_bytes([bytes[2], bytes[3]]) | more;
        bytes[field::FLAGS].copy_from_slice(&flags.to_le_bytes());
        let Common { ack, credit, .. } = self.conn.common(flags, seq, 0);
        wire::patch_ack(&mut header, ack, credit);
        self.conn.windows.repeats.note_answer();
        let (link, fits) = self.links.way();
        Out { payload: kept.payload, fits, ..Out::bare(self.conn.id, link, header) }
    }

    /// Returns an acknowledgement, with the state of the rank's process as the agent sees it.
    pub fn emit_ack(&mut self, pulse: Pulse) -> Out {
        let (ack, more) = self.conn.windows.acknowledge();
        self.conn.windows.repeats.note_answer();
        let full = core::mem::take(&mut self.full);
        let flags = more | if full { flags::SYNC } else { 0 };
        let common = self.conn.common(flags, Seq(0), pulse.code());
        self.conn.credit.ack_asked = false;
        Out::bare(self.conn.id, self.links.link(), wire::emit(&common, &Packet::Ack(ack)))
    }

    /// Returns the next answer to a question of the peer for a length.
    pub fn next_length(&mut self) -> Option<Out> {
        let (number, probe) = self.conn.lengths.next_answer()?;
        let common = self.conn.header(flags::REPLY, Seq(0), number);
        let header = wire::emit(&common, &Packet::Probe(probe));
        Some(Out::bare(self.conn.id, self.links.link(), header))
    }

    /// Returns the next question for a length.
    pub fn next_probe(&mut self, now: Instant) -> Option<Out> {
        let (link, number, size) = self.links.next_probe(now)?;
        let common = self.conn.header(0, Seq(0), number);
        let header = wire::emit(&common, &Packet::Probe(Probe { size }));
        let padding = size.saturating_sub(Probe::LEN as u32);
        Some(Out { padding, ..Out::bare(self.conn.id, link, header) })
    }

    /// Returns the BYE, if it is due: all packets before it have arrived.
    pub fn due_bye(&self, now: Instant) -> Option<u32> {
        self.farewell.due(now).filter(|_| self.is_done())
    }

    /// Returns the time of the next timer.
    pub fn deadline(&self, cfg: &Config) -> Option<Instant> {
        let resend = self.conn.windows.resend_at(self.conn.life.heard_at);
        let give_up = self.conn.stuck_at(Duration::from_millis(u64::from(cfg.peer_timeout_ms)));
        // No acknowledgement can be sent while the peer's session number is unknown.
        let ack = self.conn.windows.recv.ack_deadline().filter(|_| self.is_open());
        // A BYE with packets before it waits for other events.
        let bye = self.farewell.next_at().filter(|_| self.is_done());
        let times = [resend, give_up, ack, self.links.ask_at(), bye, self.probe_at()];
        times.into_iter().flatten().min()
    }
}

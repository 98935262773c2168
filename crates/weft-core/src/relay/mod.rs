//! Reliability of an agent for its rank.
//!
//! A rank that is served by an agent hands it packets without numbers, as over shared memory. The
//! [`Relay`] of that rank numbers them, keeps them until they are acknowledged, sends them again
//! when they are lost, and acknowledges and orders received packets. The wire format is the same
//! with and without an agent.
//!
//! Like the engine, it does no I/O, reads no clock and touches no payload byte: payloads are
//! numbers that the caller passes and gets back from [`Relay::poll_free`].

mod backlog;
mod farewell;
mod flow;
mod length;
mod links;
mod share;
#[cfg(test)]
mod tests;
mod types;

use crate::caps::Pulse;
use crate::config::Config;
use crate::connection::{Acknowledged, Overdue, Timers};
use crate::id::{EndpointId, PeerId};
use crate::reliability::{SackMap, Verdict};
use crate::seq::Seq;
use crate::slab::Slab;
use crate::time::Instant;
use crate::wire::{self, flags, reason, Bye, Common, HeaderBuf, Hello, Packet, Reply, WireError};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use backlog::Waiting;
use core::time::Duration;
pub use farewell::{BYES, BYE_PAUSE_MAX};
use flow::Flow;
pub use share::{Shares, SHARE};
pub use types::{Arrival, CallerRoom, Handle, LinkTo, Out, RelayEvent};

/// Most links to one peer.
pub const LINKS_MAX: usize = 4;

/// Waiting answers to a peer above which its requests are not accepted: more than a peer that obeys
/// the protocol ever lacks, because two peers that ask each other could otherwise both wait for
/// ever.
const ANSWERS_MAX: u32 = wire::REQUESTS_MAX;
/// Number of acknowledgements passed to the rank in the time after which silence counts as death.
const TELLS: u32 = 16;
/// Packets of one peer before others get their turn.
const QUANTUM: u32 = 32;
/// Most peers whose timers are handled in one call; the next call handles the others.
const TIMEOUTS_AT_ONCE: usize = 64;

/// Counters of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayStats {
    /// Packets sent for the first time.
    pub sent: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Packets given to the rank.
    pub delivered: u64,
    /// Packets held after a gap.
    pub held: u64,
    /// Duplicates received.
    pub duplicates: u64,
    /// Packets beyond the window.
    pub outside_window: u64,
    /// Packets dropped because the rank accepts none.
    pub no_room: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// Packets with a malformed header, or of an unknown session.
    pub refused: u64,
    /// Changes to another link.
    pub moved: u64,
}

/// A packet of the rank that is kept.
#[derive(Clone, Copy)]
struct Kept {
    header: HeaderBuf,
    payload: Handle,
    /// True if it counts against the rank's share.
    shared: bool,
}

/// Returns the flags of a packet.
fn common_flags(header: &HeaderBuf) -> u16 {
    let bytes = header.as_slice().get(wire::field::FLAGS);
    bytes.and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
}

/// Reliability for all peers of one rank.
pub struct Relay {
    me: EndpointId,
    cfg: Config,
    flows: Vec<Option<Box<Flow>>>,
    by_endpoint: BTreeMap<EndpointId, PeerId>,
    kept: Slab<Kept>,
    free: Vec<Handle>,
    ready: VecDeque<PeerId>,
    quantum: u32,
    timers: Timers,
    events: VecDeque<RelayEvent>,
    /// BYEs to peers that are given up, and the events that follow.
    farewells: VecDeque<(Out, RelayEvent)>,
    replaying: Option<PeerId>,
    /// The state of the rank's process.
    pulse: Pulse,
    stats: RelayStats,
}

impl Relay {
    /// Makes the relay of a rank with this identity, and this configuration of reliability.
    pub fn new(me: EndpointId, cfg: Config) -> Relay {
        Relay {
            me,
            cfg,
            flows: Vec::new(),
            by_endpoint: BTreeMap::new(),
            kept: Slab::default(),
            free: Vec::new(),
            ready: VecDeque::new(),
            quantum: QUANTUM,
            timers: Timers::default(),
            events: VecDeque::new(),
            farewells: VecDeque::new(),
            replaying: None,
            pulse: Pulse::Runs,
            stats: RelayStats::default(),
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> &RelayStats {
        &self.stats
    }

    /// Sets the state of the rank's process as the caller sees it. Acknowledgements contain it from
    /// now on, because a peer that waits for the rank has to know more than that its agent lives.
    pub fn set_pulse(&mut self, pulse: Pulse) {
        self.pulse = pulse;
    }

    /// Returns the last state that was set.
    #[inline]
    pub fn pulse(&self) -> Pulse {
        self.pulse
    }

    /// Connects a peer of the rank: the session number in its packets to the rank, the number of
    /// packets to it so far ([`Shares::open`]), and the links that reach it, at most [`LINKS_MAX`].
    /// False if the rank has too many peers.
    pub fn connect(
        &mut self,
        peer: PeerId,
        (session, given): (u32, u32),
        endpoint: EndpointId,
        links: &[LinkTo],
    ) -> bool {
        let at = peer.0 as usize;
        if at >= (self.cfg.peers_max as usize).min(1 << 20) || links.is_empty() {
            return false;
        }
        self.disconnect(peer);
        if self.flows.len() <= at {
            self.flows.resize_with(at + 1, || None);
        }
        let numbers = (session, given);
        self.flows[at] = Some(Box::new(Flow::new(&self.cfg, numbers, (peer, endpoint), links)));
        self.by_endpoint.insert(endpoint, peer);
        true
    }

    /// Returns the identity of a peer.
    pub fn endpoint(&self, peer: PeerId) -> Option<EndpointId> {
        let flow = self.flows.get(peer.0 as usize)?.as_ref()?;
        Some(flow.conn.endpoint)
    }

    /// Forgets a peer and all its packets.
    pub fn disconnect(&mut self, peer: PeerId) {
        let Some(mut flow) = self.flows.get_mut(peer.0 as usize).and_then(Option::take) else {
            return;
        };
        self.by_endpoint.remove(&flow.conn.endpoint);
        self.timers.disarm(&mut flow.conn);
        let (kept, free) = (&mut self.kept, &mut self.free);
        let mut drop_one = |key: u32| {
            free.extend(kept.remove(key).map(|k| k.payload).filter(|&p| p != 0));
        };
        flow.backlog.waiting.drain(..).filter_map(Waiting::key).for_each(&mut drop_one);
        self.farewells.retain(|(bye, _)| bye.peer != peer);
        flow.backlog.plain.drain(..).for_each(&mut drop_one);
        flow.farewell.bye.take().into_iter().for_each(&mut drop_one);
        flow.conn.windows.send.drain(&mut |key, _| drop_one(key));
    }

    /// Returns the number of peers.
    pub fn peers(&self) -> usize {
        self.by_endpoint.len()
    }

    #[inline]
    fn flow(&mut self, peer: PeerId) -> Option<&mut Flow> {
        self.flows.get_mut(peer.0 as usize)?.as_deref_mut()
    }

    /// Returns true if all packets of the rank have arrived, and none is left to send for it.
    pub fn is_quiet(&self) -> bool {
        self.flows
            .iter()
            .flatten()
            .all(|f| f.is_done() && f.backlog.plain.is_empty() && f.farewell.bye.is_none())
    }

    /// Returns true if all packets of the rank have arrived, and every flow that ends has said its
    /// BYE, which may still be repeated; see [`Relay::is_quiet`].
    pub fn sent_byes(&self) -> bool {
        self.flows.iter().flatten().all(|f| {
            let sent = f.is_done() && f.backlog.plain.is_empty();
            sent && (f.farewell.bye.is_none() || f.farewell.is_said())
        })
    }

    /// Accepts a packet of the rank to `peer`. The relay owns the payload until
    /// [`Relay::poll_free`] returns it, or an [`Out`] says that it is the last.
    ///
    /// # Errors
    /// The bytes are no packet, the peer is unknown, or too many packets wait for it: the payload
    /// is free.
    pub fn from_rank(
        &mut self,
        peer: PeerId,
        header: &[u8],
        payload: Handle,
    ) -> Result<(), WireError> {
        let (common, packet, len) = wire::parse(header)?;
        let Some(Some(flow)) = self.flows.get_mut(peer.0 as usize) else {
            return Err(WireError::Field);
        };
        let reply = common.flags & flags::REPLY != 0;
        if let Packet::Hello(hello) = packet {
            flow.links.note_hello(common.imm, hello);
        }
        match packet {
            Packet::Hello(_) if !reply => {}
            _ if flow.learn(common.session) => self.events.push_back(RelayEvent::Room),
            _ => {}
        }
        if !matches!(packet, Packet::Hello(_)) {
            flow.conn.credit.outward.pass_on(common.credit);
            flow.ask_up |= common.flags & flags::ACKNOW != 0;
        }
        if matches!(packet, Packet::Ack(_)) {
            // Credit grew, or the peer asks for a sign of life of the rank.
            flow.conn.credit.ack_asked = true;
            self.free.extend(Some(payload).filter(|&p| p != 0));
            self.make_ready(peer);
            return Ok(());
        }
        let shared = packet.is_sequenced();
        if !flow.backlog.takes(shared) {
            self.stats.refused += 1;
            return Err(WireError::Field);
        }
        let kept = Kept { header: HeaderBuf::copy_of(&header[..len]), payload, shared };
        if !self.keep(peer, kept, shared, matches!(packet, Packet::Bye(_))) {
            self.stats.refused += 1;
            return Err(WireError::Field);
        }
        Ok(())
    }

    /// Sends a packet of the agent in the rank's name, after the rank's earlier packets. The
    /// payload is as in [`Relay::from_rank`]. False if the peer is unknown, or there is no room or
    /// no session before [`RelayEvent::Room`]: the payload is free.
    pub fn inject(&mut self, peer: PeerId, packet: &Packet, imm: u32, payload: Handle) -> bool {
        let Some(flow) = self.flow(peer) else { return false };
        let open = flow.is_open();
        if !flow.backlog.takes_injected(open) {
            return false;
        }
        let common = Common { session: flow.conn.session.number_out, imm, ..Common::default() };
        let kept = Kept { header: wire::emit(&common, packet), payload, shared: false };
        self.keep(peer, kept, packet.is_sequenced(), false)
    }

    /// Answers a request of the peer with this number, in the rank's place. There is room: without
    /// it requests are not accepted.
    pub fn reply(&mut self, peer: PeerId, op: u32, reply: &Reply) {
        let Some(flow) = self.flow(peer) else { return };
        flow.backlog.push_answer(op, reply.value, reply.status == wire::status::OK);
        self.make_ready(peer);
    }

    /// Returns the bytes that packets take here, without their payloads and without waiting
    /// answers; answers take at most 64 KiB for each peer.
    pub fn kept_bytes(&self) -> usize {
        self.kept.len() * size_of::<Kept>()
    }

    /// Forgets a packet; its payload is free.
    fn drop_kept(&mut self, key: u32) {
        let payload = self.kept.remove(key).map(|kept| kept.payload);
        self.free.extend(payload.filter(|&p| p != 0));
    }

    /// Keeps a packet; false if there is no room.
    fn keep(&mut self, peer: PeerId, kept: Kept, sequenced: bool, bye: bool) -> bool {
        let Some(Some(flow)) = self.flows.get_mut(peer.0 as usize) else { return false };
        let Some(key) = self.kept.insert(kept) else { return false };
        if sequenced {
            flow.backlog.push(key, kept.shared);
        } else if bye {
            if let Some(before) = flow.farewell.bye.replace(key) {
                self.drop_kept(before);
            }
        } else {
            flow.backlog.plain.push_back(key);
        }
        self.make_ready(peer);
        true
    }

    /// Notes the end of the rank: its packets are still delivered, then its peers get BYEs.
    /// Continue until [`Relay::is_quiet`], or drop the relay.
    pub fn rank_gone(&mut self) {
        for at in 0..self.flows.len() {
            let Some(flow) = &mut self.flows[at] else { continue };
            if flow.farewell.bye.is_some() || flow.farewell.is_said() || !flow.is_open() {
                continue;
            }
            let common = Common { session: flow.conn.session.number_out, ..Common::default() };
            let header = wire::emit(&common, &Packet::Bye(Bye { reason: reason::GONE }));
            flow.farewell.bye = self.kept.insert(Kept { header, payload: 0, shared: false });
            self.make_ready(PeerId(at as u32));
        }
    }

    /// Handles a packet that arrived over `link`. Without room it counts as lost.
    #[inline]
    pub fn from_wire(
        &mut self,
        now: Instant,
        link: u8,
        header: &[u8],
        room: CallerRoom,
    ) -> Arrival {
        let Ok((common, packet, _)) = wire::parse(header) else {
            self.stats.refused += 1;
            return Arrival::Drop;
        };
        if let Packet::Hello(hello) = &packet {
            return self.on_hello(now, link, &common, hello, room.deliver);
        }
        let peer = PeerId(wire::session_index(common.session));
        let Some(flow) = self.flow(peer).filter(|f| f.conn.session.number_in == common.session)
        else {
            self.stats.refused += 1;
            return Arrival::Drop;
        };
        flow.conn.life.heard_at = now;
        let sack = match &packet {
            Packet::Ack(ack) => Some(SackMap(ack.sack)),
            _ => None,
        };
        self.acknowledged(now, peer, &common, sack.as_ref());
        match packet {
            Packet::Probe(probe) => self.on_probe(now, peer, &common, &probe),
            Packet::Piece(piece) => self.on_piece(now, peer, common.seq, piece),
            Packet::Ack(_) => self.on_ack(now, peer, common.credit, room.deliver),
            Packet::Bye(_) => {
                self.end_bye(peer);
                self.deliver(peer, room.deliver)
            }
            _ => {
                let asks = matches!(packet, Packet::Atomic(_));
                let answers =
                    !asks || self.flow(peer).is_some_and(|f| f.backlog.answers < ANSWERS_MAX);
                let deliver = room.deliver && answers;
                self.on_sequenced(now, peer, link, &common, CallerRoom { deliver, ..room })
            }
        }
    }

    fn on_hello(
        &mut self,
        now: Instant,
        link: u8,
        common: &Common,
        hello: &Hello,
        room: bool,
    ) -> Arrival {
        if hello.dst_eid != self.me.0 {
            // The packet is for a previous endpoint at this address: its offer is not for this
            // rank.
            self.stats.refused += 1;
            return Arrival::Drop;
        }
        let known = self.by_endpoint.get(&EndpointId(hello.src_eid)).copied();
        let answer = common.flags & flags::REPLY != 0;
        if let Some(flow) = known.and_then(|p| self.flow(p)) {
            flow.conn.life.heard_at = now;
            let room = flow.on_hello(now, link, answer, hello.session_offer);
            self.events.extend(room.then_some(RelayEvent::Room));
        }
        if !answer {
            known.into_iter().for_each(|peer| self.answer(peer));
        }
        known.into_iter().for_each(|peer| self.make_ready(peer));
        match room {
            true => Arrival::Deliver(known),
            false => Arrival::Drop,
        }
    }

    /// Answers a question in the rank's place, once the rank has begun to send. Its own answer may
    /// wait behind packets that the peer does not accept before others have arrived, and without an
    /// answer the peer cannot acknowledge those.
    fn answer(&mut self, peer: PeerId) {
        let Some(header) = self.flow(peer).and_then(|f| f.answer()) else { return };
        if let Some(key) = self.kept.insert(Kept { header, payload: 0, shared: false }) {
            self.flow(peer).into_iter().for_each(|f| f.backlog.plain.push_back(key));
        }
    }

    fn acknowledged(
        &mut self,
        now: Instant,
        peer: PeerId,
        common: &Common,
        sack: Option<&SackMap>,
    ) {
        let Some(Some(flow)) = self.flows.get_mut(peer.0 as usize) else { return };
        let (kept, free) = (&mut self.kept, &mut self.free);
        let acknowledged = Acknowledged::of(common, sack.is_some());
        let (outcome, _) = flow.conn.windows.on_ack(now, acknowledged, sack, &mut |key, _| {
            free.extend(kept.remove(key).map(|k| k.payload).filter(|&p| p != 0));
        });
        if outcome.newly_acked > 0 || outcome.lost > 0 {
            self.make_ready(peer);
        }
    }

    /// Handles an acknowledgement. The rank gets only those that bring credit or that it asked for,
    /// and one at intervals: its own questions may wait long for the window.
    fn on_ack(&mut self, now: Instant, peer: PeerId, credit: u32, room: bool) -> Arrival {
        let often = Duration::from_millis(u64::from(self.cfg.peer_timeout_ms)) / TELLS;
        let Some(flow) = self.flow(peer) else { return Arrival::Drop };
        let late = now.since(flow.received_up_at) >= often;
        if !room || !(flow.ask_up || flow.conn.credit.inward.pass_on(credit) || late) {
            return Arrival::Drop;
        }
        flow.ask_up = false;
        flow.received_up_at = now;
        self.deliver(peer, true)
    }

    fn on_sequenced(
        &mut self,
        now: Instant,
        peer: PeerId,
        link: u8,
        common: &Common,
        room: CallerRoom,
    ) -> Arrival {
        let Some(Some(flow)) = self.flows.get_mut(peer.0 as usize) else { return Arrival::Drop };
        let is_next = flow.conn.windows.recv.next_expected() == common.seq;
        let taken = if is_next { room.deliver } else { room.hold };
        if !taken {
            // The packet counts as lost; but the peer gets a sign of life.
            flow.conn.credit.ack_asked = true;
            flow.full |= is_next;
            self.stats.no_room += 1;
            self.make_ready(peer);
            return Arrival::Drop;
        }
        let asks = common.flags & flags::ACKNOW != 0;
        let verdict = flow.conn.windows.on_packet(now, common.seq, asks);
        flow.conn.credit.inward.pass_on(common.credit);
        // Acknowledgements do not reach the peer, but this packet arrived.
        let moved = verdict == Verdict::Duplicate && flow.follow(now, link);
        self.stats.moved += u64::from(moved);
        let arrival = match verdict {
            Verdict::Deliver => {
                if flow.conn.windows.recv.has_gap() {
                    self.replaying = Some(peer);
                }
                flow.conn.windows.repeats.forget();
                self.stats.delivered += 1;
                Arrival::Deliver(Some(peer))
            }
            Verdict::Hold => {
                flow.conn.windows.repeats.forget();
                self.stats.held += 1;
                Arrival::Hold(peer, common.seq)
            }
            Verdict::Duplicate => {
                self.stats.duplicates += 1;
                Arrival::Drop
            }
            Verdict::Gap | Verdict::Outside => {
                self.stats.outside_window += 1;
                Arrival::Drop
            }
        };
        match flow.conn.windows.recv.ack_deadline() {
            _ if moved => self.make_ready(peer),
            Some(at) if at <= now => self.make_ready(peer),
            Some(at) => self.timers.arm(&mut flow.conn, at),
            None => {}
        }
        arrival
    }

    fn deliver(&mut self, peer: PeerId, room: bool) -> Arrival {
        if !room {
            return Arrival::Drop;
        }
        self.stats.delivered += 1;
        Arrival::Deliver(Some(peer))
    }

    /// Returns the next held packet that is now in order.
    #[inline]
    pub fn next_held(&mut self) -> Option<(PeerId, Seq)> {
        let peer = self.replaying?;
        let next = self.flow(peer).and_then(|f| f.conn.windows.recv.next_held());
        match next {
            Some(_) => self.stats.delivered += 1,
            None => self.replaying = None,
        }
        next.map(|seq| (peer, seq))
    }

    /// Returns the next packet to send. The caller keeps it if the link is full.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Out> {
        if let Some((bye, event)) = self.farewells.pop_front() {
            self.events.push_back(event);
            return Some(bye);
        }
        while let Some(&peer) = self.ready.front() {
            if let Some(out) = self.next_out(now, peer) {
                self.quantum = self.quantum.saturating_sub(1);
                if self.quantum == 0 {
                    self.quantum = QUANTUM;
                    self.ready.rotate_left(1);
                }
                return Some(out);
            }
            self.quantum = QUANTUM;
            self.ready.pop_front();
            let Some(Some(flow)) = self.flows.get_mut(peer.0 as usize) else { continue };
            flow.ready = false;
            let again = flow.lacks_a_place().then(|| now + Duration::from_millis(1));
            if let Some(at) = flow.deadline(&self.cfg).into_iter().chain(again).min() {
                self.timers.arm(&mut flow.conn, at);
            }
        }
        None
    }

    fn next_out(&mut self, now: Instant, peer: PeerId) -> Option<Out> {
        let Some(Some(flow)) = self.flows.get_mut(peer.0 as usize) else { return None };
        if let Some(key) = flow.backlog.plain.front().copied() {
            return self.emit_plain(peer, key);
        }
        if let Some(answer) = flow.next_length() {
            return Some(answer);
        }
        if let Some(probe) = self.next_probe(now, peer) {
            return Some(probe);
        }
        let Some(Some(flow)) = self.flows.get_mut(peer.0 as usize) else { return None };
        let flow = &mut **flow;
        if let Some((link, question)) = flow.links.next_question() {
            return Some(Out::bare(peer, link, question));
        }
        let recv = &flow.conn.windows.recv;
        if recv.has_gap() && recv.ack_due(now) && flow.is_open() {
            self.stats.acks += 1;
            return Some(flow.emit_ack(self.pulse));
        }
        if let Some((seq, key)) = flow.conn.windows.send.next_retransmit(now) {
            self.stats.retransmitted += 1;
            flow.doubt_if_vain(now, seq);
            let kept = self.kept.get(key)?;
            return Some(flow.emit(kept, seq, flags::ACKNOW));
        }
        if flow.conn.windows.send.can_send() {
            let session = flow.conn.session.number_out;
            if let Some(key) = flow.backlog.next(session, &mut self.kept) {
                self.stats.sent += 1;
                let kept = self.kept.get(key)?;
                if kept.shared {
                    let left = flow.backlog.note_left();
                    self.events.extend(left.map(|left| RelayEvent::Left(peer, left)));
                } else if flow.backlog.has_room_again() {
                    self.events.push_back(RelayEvent::Room);
                }
                let asks = common_flags(&kept.header) & flags::ACKNOW != 0;
                let (seq, more) = flow.push(now, key, asks, self.cfg.ack_every);
                return Some(flow.emit(kept, seq, more));
            }
        }
        let asked = flow.conn.credit.ack_asked || flow.conn.windows.recv.ack_due(now);
        if asked && flow.is_open() {
            self.stats.acks += 1;
            return Some(flow.emit_ack(self.pulse));
        }
        let key = flow.due_bye(now)?;
        let kept = *self.kept.get(key)?;
        let last = flow.farewell.note_sent(now, flow.conn.windows.rtt.rto());
        let out = Out { payload: kept.payload, last, ..flow.emit(&kept, Seq(0), 0) };
        if last {
            flow.farewell.bye = None;
            self.kept.remove(key);
        }
        Some(out)
    }

    /// Notes the end of the peer: one BYE to it is enough.
    fn end_bye(&mut self, peer: PeerId) {
        let Some(Some(flow)) = self.flows.get_mut(peer.0 as usize) else { return };
        let said = flow.farewell.is_said();
        if let Some(key) = flow.farewell.bye.take_if(|_| said) {
            self.drop_kept(key);
        }
    }

    /// Sends a HELLO: a question over every link, an answer over each link that a question came
    /// over.
    fn emit_plain(&mut self, peer: PeerId, key: u32) -> Option<Out> {
        let Some(Some(flow)) = self.flows.get_mut(peer.0 as usize) else { return None };
        let kept = *self.kept.get(key)?;
        let answer = Hello::is_answer(kept.header.as_slice());
        let question = kept.header.as_slice().get(wire::field::TYPE)
            == Some(&(wire::PacketType::Hello as u8))
            && !answer;
        let (link, last) = match question {
            true => flow.links.next_copy(),
            false if answer => flow.links.next_answer(),
            false => (flow.links.link(), true),
        };
        if last {
            flow.backlog.plain.pop_front();
            self.kept.remove(key);
        }
        Some(Out { payload: kept.payload, last, ..Out::bare(peer, link, kept.header) })
    }

    /// Returns the next payload that is no longer needed.
    #[inline]
    pub fn poll_free(&mut self) -> Option<Handle> {
        self.free.pop()
    }

    /// Returns the next event to report to the rank.
    pub fn poll_event(&mut self) -> Option<RelayEvent> {
        self.events.pop_front()
    }

    /// Returns the time at which to call `handle_timeout`.
    #[inline]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.first()
    }

    /// Returns true if `poll_transmit` may have a packet.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.ready.is_empty() || !self.farewells.is_empty()
    }

    /// Does everything that is due, for some peers: [`Relay::next_timeout`] says if there are more.
    pub fn handle_timeout(&mut self, now: Instant) {
        for _ in 0..TIMEOUTS_AT_ONCE {
            let Some(peer) = self.timers.pop(now) else { return };
            let Some(Some(flow)) = self.flows.get_mut(peer.0 as usize) else { continue };
            flow.conn.armed = Instant::FAR;
            let limit = Duration::from_millis(u64::from(self.cfg.peer_timeout_ms));
            let stuck = flow.conn.stuck_at(limit).is_some_and(|at| at <= now);
            match stuck.then(|| flow.conn.judge_stuck(now, limit)).flatten() {
                Some(Overdue::Silent(silent)) => {
                    self.disconnect(peer);
                    self.events.push_back(RelayEvent::Lost(peer, silent.as_millis() as u32));
                    continue;
                }
                Some(Overdue::Stuck(time)) => {
                    self.report_stuck(peer, time);
                    continue;
                }
                None => {}
            }
            let late = flow.conn.windows.resend_at(flow.conn.life.heard_at);
            if late.is_some_and(|at| at <= now) && flow.conn.windows.on_timeout(now) {
                self.stats.timeouts += 1;
                self.stats.moved += u64::from(flow.leave_if_suspect(now));
            }
            let w = &flow.conn.windows;
            let mut due = w.recv.ack_due(now) || w.send.awaiting_retransmit() > 0;
            due |= flow.links.asks(now) || flow.due_bye(now).is_some() || flow.lacks_a_place();
            due |= flow.probe_at().is_some_and(|at| at <= now);
            match flow.deadline(&self.cfg) {
                _ if due => self.make_ready(peer),
                Some(next) => {
                    self.timers.arm(&mut flow.conn, next.max(now + Duration::from_micros(1)));
                }
                None => {}
            }
        }
    }

    #[inline]
    fn make_ready(&mut self, peer: PeerId) {
        let Some(Some(flow)) = self.flows.get_mut(peer.0 as usize) else { return };
        if !flow.ready {
            flow.ready = true;
            self.ready.push_back(peer);
        }
    }
}

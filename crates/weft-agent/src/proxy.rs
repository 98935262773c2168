//! The agent's state for one rank, without links: the agent acts on behalf of the rank.
//!
//! This module does no input or output: `weftd` runs it over its links and rings, the simulator
//! over simulated ones.

use super::counters::{Counters, InKernel};
use super::groups::{Groups, ToAgent};
use super::inbox::{Held, Inbound, Inbox};
use super::outbox::Outbox;
use super::Control;
use std::time::Duration;
use weft_core::relay::{Arrival, CallerRoom, LinkTo, Out, Relay, RelayEvent, RelayStats};
use weft_core::wire::{self, field, flags, status, HeaderBuf, Packet, PacketType};
use weft_core::{Config, EndpointId, Instant, PeerId, Pulse};
use weft_link::pieces::Pieces;
use weft_link::Bytes;

/// Interval of checks of the rank's process; shorter than the interval of a peer's questions.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// The ring to the rank.
pub trait ToRank {
    /// Delivers a packet of a peer, or of an endpoint without a peer. False if there is no room.
    fn deliver(&mut self, from: Option<PeerId>, header: &[u8], payload: &[u8]) -> bool;
    /// Sends a message. False if there is no room.
    fn say(&mut self, message: &Control) -> bool;
    /// Returns the state of the rank's process, as far as the agent sees it.
    fn pulse(&self) -> Pulse;
}

/// The limits of one rank.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes kept in each direction: sent and not acknowledged; received and not taken.
    pub bytes: usize,
    /// Words for fetch-and-add.
    pub words: usize,
    /// Multicast groups.
    pub groups: usize,
}

/// The process of a rank, as its agent sees it.
#[derive(Default)]
struct Process {
    /// Number of its packets and messages.
    heard: u64,
    /// Number of them at the last check.
    checked: u64,
    /// Time of the next check.
    check_at: Instant,
}

impl Process {
    /// Checks the process at intervals. One that the agent cannot see counts as running while it
    /// sends something. `None` between two checks.
    fn check(&mut self, now: Instant, rank: &impl ToRank) -> Option<Pulse> {
        if now < self.check_at {
            return None;
        }
        self.check_at = now + CHECK_EVERY;
        let talks = self.heard != std::mem::replace(&mut self.checked, self.heard);
        let pulse = rank.pulse();
        let unseen = talks && pulse == Pulse::Unseen;
        Some(if unseen { Pulse::Runs } else { pulse })
    }
}

/// The state of one rank in its agent.
pub struct Proxy {
    relay: Relay,
    outbox: Outbox,
    inbox: Inbox,
    held: Held,
    /// Packets of which some pieces arrived.
    pieces: Pieces,
    scratch: Vec<u8>,
    counters: Counters,
    groups: Groups,
    limits: Limits,
    peers_max: u32,
    /// The rank has ended: nothing is delivered to it any more.
    gone: bool,
    process: Process,
}

impl Proxy {
    /// Makes the state for a rank with this identity.
    pub fn new(rank: EndpointId, config: Config, limits: Limits) -> Proxy {
        Proxy {
            peers_max: config.peers_max,
            relay: Relay::new(rank, config),
            outbox: Outbox::default(),
            inbox: Inbox::default(),
            held: Held::default(),
            pieces: Pieces::default(),
            scratch: Vec::new(),
            counters: Counters::default(),
            groups: Groups::default(),
            limits,
            gone: false,
            process: Process::default(),
        }
    }

    /// Allows words for fetch-and-add in the kernel from now on.
    pub fn use_kernel(&mut self, kernel: InKernel) {
        self.counters.use_kernel(kernel);
    }

    /// Sends a message to the rank as soon as its ring has room.
    pub fn say(&mut self, message: Control) {
        if !self.gone {
            self.inbox.push(Inbound::Say(message));
        }
    }

    /// Takes a packet of the rank.
    #[inline]
    pub fn packet(&mut self, peer: PeerId, header: &[u8], payload: Bytes<'_>) {
        self.process.heard += 1;
        let handle = self.outbox.payloads.keep(payload);
        if self.relay.from_rank(peer, header, handle).is_err() {
            self.outbox.payloads.release(handle);
        }
    }

    /// Takes a message of the rank about a service; any other message is refused with a reason.
    pub fn control(&mut self, message: Control) {
        match message {
            Control::CounterOpen(key, words, value, kernel) => {
                let most = self.limits.words;
                let mut opened = kernel && self.counters.open_in_kernel(key, words, value, most);
                if kernel && !opened {
                    self.say(Control::Notice(
                        "a counter is kept by the agent: no counter is free in the kernel, or \
                         weftd serves none in the kernel (weftd --kernel)"
                            .into(),
                    ));
                }
                opened = opened || self.counters.open(key, words, value, most);
                let value = opened.then_some(value);
                self.say(Control::CounterIs(key, 0, value));
            }
            Control::CounterRead(key, word) => {
                let value = self.counters.read(key, word);
                self.say(Control::CounterIs(key, word, value));
            }
            Control::CounterClose(key) => self.counters.close(key),
            Control::CounterDo(number, atomic) => {
                let reply = self.counters.serve(&atomic, None).filter(|r| r.status == status::OK);
                self.say(Control::CounterDone(number, reply.map(|r| r.value)));
            }
            Control::GroupJoin(role) => {
                let (group, most) = (role.group, self.limits.groups);
                let peers = self.peers_max;
                let named = role.children.iter().all(|child| child.0 < peers);
                let joined = named && self.groups.join(role, most);
                self.say(Control::GroupJoined(group, joined));
                if !joined {
                    self.say(Control::Notice(format!(
                        "group {group:x} is not joined: it is joined already, or names a child \
                         twice or a child beyond the {peers} peers that this rank may have, or the \
                         quota of {most} groups is used up (weftd --quota peers=N, groups=N)"
                    )));
                }
            }
            Control::GroupLeave(group) => self.groups.leave(group),
            Control::GroupPacket(group, number, bytes) => {
                self.groups.root_sends(group, number, &bytes);
            }
            Control::GroupGrant(group, granted) => self.groups.rank_granted(group, granted),
            _ => self.say(Control::Notice("a message that only an agent sends".into())),
        }
    }

    /// Connects a peer that these links reach. `session` is the number that the peer puts into
    /// packets to the rank; then follows the count of numbered packets to it so far. False if there
    /// is no room or no link.
    pub fn connect(
        &mut self,
        peer: PeerId,
        known: (u32, u32),
        endpoint: EndpointId,
        links: &[LinkTo],
    ) -> bool {
        let connected = self.relay.connect(peer, known, endpoint, links);
        if connected {
            self.groups.retry();
        }
        connected
    }

    /// Notes that a link carries packets of at most `mtu` bytes to a peer from now on.
    pub fn set_mtu(&mut self, now: Instant, peer: PeerId, link: u8, mtu: u32) {
        self.relay.set_mtu(now, peer, link, mtu);
    }

    /// Forgets a peer.
    pub fn forget(&mut self, peer: PeerId) {
        self.relay.disconnect(peer);
        self.held.forget(peer);
        self.pieces.forget(peer);
        self.outbox.forget(peer);
        self.lose(peer);
    }

    /// Takes a frame from a link.
    pub fn arrive(
        &mut self,
        now: Instant,
        link: u8,
        header: &[u8],
        payload: Bytes<'_>,
        rank: &mut impl ToRank,
    ) {
        let bytes_max = self.limits.bytes;
        let inbox = self.inbox.has_room(bytes_max);
        if !inbox || self.relay.pulse() != Pulse::Runs {
            self.check_rank(now, rank);
        }
        let room = CallerRoom { deliver: inbox || self.gone, hold: self.held.bytes() < bytes_max };
        match self.relay.from_wire(now, link, header, room) {
            Arrival::Drop => {}
            Arrival::Piece(peer, [seq, expected], piece) => {
                let whole = self.pieces.take((peer, seq, expected), &piece, header, payload);
                if let Some((header, payload)) = whole {
                    self.arrive(now, link, &header, Bytes::from_slice(&payload), rank);
                }
            }
            Arrival::Hold(peer, seq) => {
                let header = HeaderBuf::copy_of(header);
                self.held.insert((peer.0, seq.0), header, payload.to_vec());
            }
            Arrival::Deliver(from) => {
                let mut scratch = std::mem::take(&mut self.scratch);
                scratch.resize(payload.len(), 0);
                payload.copy_to(&mut scratch);
                self.take(now, (from, header), &scratch, rank);
                self.scratch = scratch;
                while let Some((peer, seq)) = self.relay.next_held() {
                    let Some((header, payload)) = self.held.take((peer.0, seq.0)) else {
                        continue;
                    };
                    self.take(now, (Some(peer), header.as_slice()), &payload, rank);
                }
            }
        }
    }

    /// Takes a packet that is next in order: for the agent, or for the rank.
    #[inline]
    fn take(
        &mut self,
        now: Instant,
        (from, header): (Option<PeerId>, &[u8]),
        payload: &[u8],
        rank: &mut impl ToRank,
    ) {
        const NOP: u8 = PacketType::Nop as u8;
        const ATOMIC: u8 = PacketType::Atomic as u8;
        const BYE: u8 = PacketType::Bye as u8;
        const MCAST: u8 = PacketType::Mcast as u8;
        const GRANT: u8 = PacketType::Grant as u8;
        let kind = header.get(field::TYPE).copied().unwrap_or(0);
        let Some(peer) = from else { return self.give_rank(None, header, payload, rank) };
        match kind {
            // A peer waits for the rank and receives nothing from it. Its sign of life goes on to
            // the rank, which has nothing to answer.
            NOP if header.get(field::IMM) == Some(&[0; 4]) => {
                self.check_rank(now, rank);
                let mut sign = HeaderBuf::copy_of(header);
                sign.as_mut_slice()[field::FLAGS].fill(0);
                self.give_rank(from, sign.as_slice(), payload, rank);
            }
            ATOMIC | MCAST | GRANT if self.serve(peer, header, payload) => {}
            BYE => {
                self.lose(peer);
                self.give_rank(from, header, payload, rank);
            }
            _ => self.give_rank(from, header, payload, rank),
        }
    }

    /// Checks the rank's process at intervals, when a peer asks for the rank or the rank takes
    /// nothing.
    #[cold]
    fn check_rank(&mut self, now: Instant, rank: &impl ToRank) {
        if self.gone {
            return;
        }
        if let Some(pulse) = self.process.check(now, rank) {
            self.relay.set_pulse(pulse);
        }
    }

    /// Serves a packet on behalf of the rank. False if the packet is for the rank.
    fn serve(&mut self, peer: PeerId, header: &[u8], payload: &[u8]) -> bool {
        let Ok((common, packet, _)) = wire::parse(header) else { return true };
        match packet {
            // The sender wants the rank to do it.
            Packet::Atomic(_) if common.flags & flags::DIRECT != 0 => return false,
            Packet::Atomic(atomic) => {
                let from = self.relay.endpoint(peer).map(|endpoint| (peer, endpoint));
                let Some(reply) = self.counters.serve(&atomic, from) else { return false };
                self.relay.reply(peer, common.imm, &reply);
            }
            Packet::Mcast(mcast) => self.groups.on_mcast(peer, &mcast, payload),
            Packet::Grant(grant) => self.groups.on_grant(peer, &grant),
            _ => {}
        }
        true
    }

    #[inline]
    fn give_rank(
        &mut self,
        from: Option<PeerId>,
        header: &[u8],
        payload: &[u8],
        rank: &mut impl ToRank,
    ) {
        if self.gone || self.inbox.is_empty() && rank.deliver(from, header, payload) {
            return;
        }
        let packet = Inbound::Packet(from, HeaderBuf::copy_of(header), payload.to_vec());
        self.inbox.push(packet);
    }

    /// Delivers waiting packets and messages to the rank. True if one was delivered.
    pub fn pump(&mut self, rank: &mut impl ToRank) -> bool {
        let did = self.inbox.pump(rank);
        if did {
            self.groups.retry();
        }
        did
    }

    fn lose(&mut self, peer: PeerId) {
        self.counters.lost(peer);
        let mut groups = std::mem::take(&mut self.groups);
        groups.on_lost(peer, &mut OfGroups(self));
        self.groups = groups;
    }

    /// Forwards multicast packets. True if it tried.
    pub fn progress(&mut self, now: Instant) -> bool {
        if !self.groups.is_due(now) {
            return false;
        }
        let mut groups = std::mem::take(&mut self.groups);
        groups.progress(now, &mut OfGroups(self));
        self.groups = groups;
        true
    }

    /// True if there may be a packet to send.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.relay.has_output() || self.outbox.has_pieces()
    }

    /// Returns the next packet to send. [`bytes_of`](Self::bytes_of) returns its payload until
    /// [`sent`](Self::sent) is called.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Out> {
        if let Some(piece) = self.outbox.piece() {
            return Some(piece);
        }
        let out = self.relay.poll_transmit(now)?;
        Some(self.outbox.fitted(out))
    }

    /// Returns the payload of a packet.
    #[inline]
    pub fn bytes_of(&self, out: &Out) -> &[u8] {
        self.outbox.payloads.get(out.payload)
    }

    /// Notes that a link has taken a packet.
    #[inline]
    pub fn sent(&mut self, out: &Out) {
        if out.last {
            self.outbox.payloads.release(out.payload);
        }
    }

    /// Frees acknowledged packets and finds lost peers. Calls `lost` with each lost peer, which is
    /// [forgotten](Self::forget) by then.
    pub fn notice(&mut self, mut lost: impl FnMut(PeerId)) {
        while let Some(handle) = self.relay.poll_free() {
            self.outbox.payloads.release(handle);
        }
        while let Some(event) = self.relay.poll_event() {
            match event {
                RelayEvent::Left(peer, left) => self.say(Control::Left(peer, left)),
                RelayEvent::Room => self.groups.retry(),
                RelayEvent::Path(peer, mtu) => self.say(Control::Path(peer, mtu)),
                RelayEvent::Stuck(peer, after_ms, kind, payload) => {
                    let len = (kind.header_len() + self.outbox.payloads.get(payload).len()) as u32;
                    self.forget(peer);
                    self.say(Control::Stuck(peer, after_ms, kind, len));
                    lost(peer);
                }
                RelayEvent::Lost(peer, after_ms) => {
                    self.forget(peer);
                    let why =
                        format!("nothing heard for {after_ms} ms (its host, or its agent, ended)");
                    self.say(Control::Lost(peer, why));
                    lost(peer);
                }
            }
        }
    }

    /// Does the work of expired timers.
    pub fn on_time(&mut self, now: Instant) {
        if self.relay.next_timeout().is_some_and(|at| at <= now) {
            self.relay.handle_timeout(now);
        }
        self.progress(now);
    }

    /// Returns the time of the next call of `on_time`.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.relay.next_timeout().into_iter().chain(self.groups.next_timeout()).min()
    }

    /// True if the rank may send more; if not, only this rank waits.
    pub fn has_room(&self) -> bool {
        let bytes = self.outbox.payloads.bytes() + self.relay.kept_bytes();
        self.inbox.takes_more() && bytes < self.limits.bytes
    }

    /// Notes the end of the rank. Its peers are told when all its packets have arrived.
    pub fn end(&mut self) {
        self.gone = true;
        self.relay.set_pulse(Pulse::Runs);
        self.inbox.clear();
        self.relay.rank_gone();
    }

    /// True if all packets of the rank have arrived and every peer was sent the end of the rank as
    /// often as planned.
    pub fn is_quiet(&self) -> bool {
        self.relay.is_quiet()
    }

    /// True if all packets of the rank have arrived and every peer was sent the end of the rank at
    /// least once. [`is_quiet`](Self::is_quiet) also waits for the repetitions of the end.
    pub fn sent_byes(&self) -> bool {
        self.relay.sent_byes()
    }

    /// Returns the number of connected peers.
    pub fn peers(&self) -> usize {
        self.relay.peers()
    }

    /// Returns the counters of the relay.
    pub fn stats(&self) -> &RelayStats {
        self.relay.stats()
    }

    /// Returns the number of packets sent in pieces.
    pub fn packets_cut(&self) -> u64 {
        self.outbox.packets_cut()
    }

    /// Returns the work done by groups, in visits of a child.
    pub fn group_work(&self) -> u64 {
        self.groups.work
    }

    /// Returns the numbers of operations served, and of multicast packets accepted and refused.
    pub fn served(&self) -> (u64, u64, u64) {
        (self.counters.served, self.groups.packets, self.groups.refused)
    }
}

/// The interface from groups to the agent.
struct OfGroups<'a>(&'a mut Proxy);

impl ToAgent for OfGroups<'_> {
    fn send(&mut self, peer: PeerId, packet: &Packet, bytes: &[u8]) -> bool {
        let handle = self.0.outbox.payloads.keep(Bytes::from_slice(bytes));
        let taken = self.0.relay.inject(peer, packet, 0, handle);
        if !taken {
            self.0.outbox.payloads.release(handle);
        }
        taken
    }

    fn tell(&mut self, message: Control) {
        self.0.say(message);
    }

    fn has_room(&self) -> bool {
        self.0.inbox.is_short()
    }
}

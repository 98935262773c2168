//! Receiving. `None` where a frame is dropped.

use super::incoming::{Arrival, Placed, Whole};
use super::pull::Came;
use super::{
    Event, Failure, Mac, Misdirected, Node, Offer, PeerIndex, Sink, Time, BAD_KEY, NO_INDEX,
    UNACKED_MAX,
};
use crate::{
    Ack, ConnectReply, ConnectRequest, Ends, Message, NackLib, NackMcp, Packet, Pull, PullReply,
    Refusal, View,
};

/// The fields of a packet with a sequence number.
struct Sequenced {
    ends: Ends,
    session: u32,
    seq: u16,
    ack: u16,
}

impl Sequenced {
    fn of(message: &Message) -> Sequenced {
        let Message { ends, session, seq, ack, .. } = *message;
        Sequenced { ends, session, seq, ack }
    }
}

impl Node {
    /// Handles a frame, without the header of Ethernet, from an address.
    pub fn handle(&mut self, now: Time, from: Mac, bytes: &[u8]) {
        self.handle_into(now, from, bytes, &mut |_, _, _| {});
    }

    /// Handles a frame as [`handle`](Node::handle) does; `sink` gets the bytes of pulls that the
    /// caller places.
    pub fn handle_into(&mut self, now: Time, from: Mac, bytes: &[u8], sink: &mut Sink<'_>) {
        let Ok(view) = View::new_checked(self.settings.dialect, bytes) else {
            self.counters.dropped += 1;
            return;
        };
        let payload = view.payload();
        let done = match &view.frame().packet {
            Packet::ConnectRequest(request) => self.handle_request(now, from, request),
            Packet::ConnectReply(reply) => self.handle_reply(now, from, reply),
            Packet::Tiny(message) | Packet::Small(message) => {
                self.handle_part(now, from, message, (0, payload))
            }
            Packet::Medium(medium) => {
                let at = usize::from(medium.fragment) * usize::from(self.settings.fragment);
                self.handle_part(now, from, &medium.message, (at, payload))
            }
            Packet::Rendezvous(announced) => {
                let (match_bits, len) = (announced.message.match_bits, announced.len);
                let whole = Whole::Announced { match_bits, len, window: announced.window };
                let head = Sequenced::of(&announced.message);
                self.handle_sequenced(now, from, &head, Arrival::Whole(whole))
            }
            Packet::Notify(notify) => {
                let (ends, session) = (notify.ends, notify.session);
                let head = Sequenced { ends, session, seq: notify.seq, ack: notify.ack };
                let (window, seq) = (notify.window, notify.window_seq);
                let whole = Whole::Taken { total: notify.total, window, seq };
                self.handle_sequenced(now, from, &head, Arrival::Whole(whole))
            }
            Packet::Pull(pull) => self.handle_pull(now, from, pull),
            Packet::PullReply(reply) => self.handle_pull_reply(now, from, reply, (payload, sink)),
            Packet::Ack(ack) => self.handle_ack(now, from, ack),
            Packet::NackLib(nack) => self.handle_refusal(now, from, nack),
            Packet::NackMcp(nack) => self.handle_refused_pull(now, from, nack),
            Packet::HostQuery(_) | Packet::HostReply(_) => None,
        };
        self.counters.dropped += u64::from(done.is_none());
    }

    /// Handles a packet for an endpoint that is not this one.
    fn misdirected(&mut self, to: Mac, ends: Ends, seq: u16) -> Option<()> {
        let misdirected = Misdirected { number: ends.to, to, ends, seq };
        match self.settings.is_shared {
            true if self.is_full() => {}
            true => self.events.push_back(Event::Misdirected(misdirected)),
            false => self.refuse(misdirected),
        }
        self.elsewhere()
    }

    /// Drops a packet for another endpoint: where others have the address too, this is usual.
    fn elsewhere(&self) -> Option<()> {
        self.settings.is_shared.then_some(())
    }

    fn handle_request(&mut self, now: Time, from: Mac, request: &ConnectRequest) -> Option<()> {
        if request.ends.to != self.number {
            return self.misdirected(from, request.ends, request.seq);
        }
        let right = request.key == self.key;
        let (mut index, mut recv_start) = (NO_INDEX, 1);
        if right {
            let at = self.meet(from, request.ends.from)?;
            let peer = self.peer_mut(at);
            let number = request.connect_seq;
            if peer.is_late(request.session, number) {
                return None;
            }
            let ways = (request.peer_index, number);
            let lost = peer.accept(request.session, request.recv_start, ways);
            peer.hear(now);
            (index, recv_start) = (at.0, peer.incoming.next());
            if lost {
                self.lost(now, at, Failure::Closed);
            }
        }
        let reply = ConnectReply {
            ends: self.ends(request.ends.from),
            seq: 0,
            peer_index: index,
            asking_session: request.session,
            session: self.session,
            recv_start,
            connect_seq: request.connect_seq,
            status: if right { 0 } else { BAD_KEY },
        };
        self.frames.push(from, request.peer_index, Packet::ConnectReply(reply), &[]);
        Some(())
    }

    fn handle_reply(&mut self, now: Time, from: Mac, reply: &ConnectReply) -> Option<()> {
        if reply.ends.to != self.number {
            return self.elsewhere();
        }
        let index = self.find(from, reply.ends.from)?;
        let ours = reply.asking_session == self.session;
        let peer = self.peer_mut(index);
        let asked = peer.asked.filter(|asked| ours && asked.number == reply.connect_seq)?;
        peer.asked = None;
        peer.hear(now);
        if asked.is_probe {
            // A peer that connected by itself has told no key: a wrong one is an answer, too, and
            // has a session.
            let has_forgotten =
                reply.status == 0 && peer.has_forgotten(reply.session, reply.recv_start);
            if peer.session != Some(reply.session) || has_forgotten {
                self.fail(now, index, Failure::Closed);
            }
            return Some(());
        }
        if reply.status != 0 {
            self.events.push_back(Event::Refused(index, reply.status));
            return Some(());
        }
        if peer.has_forgotten(reply.session, reply.recv_start) {
            // The peer answers a connection that it knows as new: it is to be new here, too.
            self.lost_and_asked(now, index);
            return Some(());
        }
        if peer.answered(reply.session, reply.recv_start, reply.peer_index) {
            self.lost(now, index, Failure::Closed);
        }
        self.events.push_back(Event::Connected(index));
        Some(())
    }

    fn handle_part(
        &mut self,
        now: Time,
        from: Mac,
        message: &Message,
        (at, part): (usize, &[u8]),
    ) -> Option<()> {
        let Message { match_bits, len, .. } = *message;
        let arrival = Arrival::Part { match_bits, len, at, part };
        self.handle_sequenced(now, from, &Sequenced::of(message), arrival)
    }

    /// Handles a packet with a sequence number, and all whose turn has come with it.
    fn handle_sequenced(
        &mut self,
        now: Time,
        from: Mac,
        head: &Sequenced,
        arrival: Arrival<'_>,
    ) -> Option<()> {
        if head.ends.to != self.number {
            return self.misdirected(from, head.ends, head.seq);
        }
        let known = self.find(from, head.ends.from);
        let known = known.filter(|at| self.peers[usize::from(at.0)].session.is_some());
        let (Some(index), true) = (known, head.session == self.session) else {
            self.send_refusal(from, head.ends, head.seq, Refusal::BadSession);
            return None;
        };
        self.peer_mut(index).hear(now);
        self.acknowledged(now, index, head.ack);
        let takes = !self.is_full() || matches!(arrival, Arrival::Whole(Whole::Taken { .. }));
        let (fragment, ack_at) = (self.settings.fragment, now + self.settings.ack_delay);
        if !takes {
            return None;
        }
        match self.peer_mut(index).incoming.place(head.seq, arrival, fragment) {
            Placed::Nothing => return None,
            Placed::Again => {
                self.counters.duplicates += 1;
                self.send_ack(index);
            }
            Placed::Part => {}
        }
        while let Some(whole) = self.peer_mut(index).incoming.next_whole(ack_at) {
            self.take(now, index, whole);
        }
        if self.peer_mut(index).incoming.unacked() >= UNACKED_MAX {
            self.send_ack(index);
        }
        Some(())
    }

    /// Takes something whose turn has come.
    fn take(&mut self, now: Time, peer: PeerIndex, whole: Whole) {
        match whole {
            Whole::Message { match_bits, data } => {
                self.events.push_back(Event::Received { peer, match_bits, data });
            }
            Whole::Announced { match_bits, len, window } => {
                let Some(session) = self.session(peer) else { return };
                let offer = Offer { peer, len, session, window };
                self.events.push_back(Event::Announced { offer, match_bits });
            }
            Whole::Taken { total, window, seq } => {
                let Some((context, len)) = self.windows.taken(peer, window, seq) else {
                    self.counters.dropped += 1;
                    return;
                };
                let of = self.peer_mut(peer);
                of.windows = of.windows.saturating_sub(1);
                self.events.push_back(Event::Sent { peer, context, len: total.min(len) });
                self.flush_all(now);
            }
        }
    }

    fn acknowledged(&mut self, now: Time, peer: PeerIndex, before: u16) {
        let done = self.peer_mut(peer).outgoing.acknowledged(before);
        for (context, len) in done {
            self.events.push_back(Event::Sent { peer, context, len });
        }
        self.flush(now, peer);
    }

    fn handle_ack(&mut self, now: Time, from: Mac, ack: &Ack) -> Option<()> {
        if ack.ends.to != self.number {
            return self.elsewhere();
        }
        let index = self.find(from, ack.ends.from)?;
        let is_ours = ack.session == self.session;
        let peer = self.peer_mut(index);
        if !is_ours || !peer.outgoing.take_ack(ack.number) {
            return None;
        }
        peer.hear(now);
        self.acknowledged(now, index, ack.seq);
        Some(())
    }

    /// A refusal counts only if it names a message or request that waits for an answer.
    fn handle_refusal(&mut self, now: Time, from: Mac, nack: &NackLib) -> Option<()> {
        if nack.to != self.number {
            return self.elsewhere();
        }
        let index = self.find(from, nack.from)?;
        let again = now + self.settings.resend;
        let peer = self.peer_mut(index);
        match peer.asked.filter(|_| nack.seq == 0) {
            Some(asked) if !asked.is_probe => {
                peer.asked = None;
                let status = match nack.refusal {
                    Refusal::BadEndpoint => 12,
                    Refusal::Closed => 8,
                    Refusal::BadSession => 10,
                    Refusal::BadWindow => 13,
                };
                self.events.push_back(Event::Refused(index, status));
                return Some(());
            }
            Some(_) => {}
            // An endpoint that closes names the message that it expects next.
            None if nack.refusal == Refusal::Closed && peer.session.is_some() => {
                peer.outgoing.is_expected(nack.seq).then_some(())?;
            }
            // Others' frames with a wrong session bring such refusals, too, and refusals have no
            // session: a late one may be for an endpoint that was open before. The peer's answer
            // to a request has its session.
            None if nack.refusal != Refusal::Closed => {
                peer.outgoing.sent(nack.seq)?;
                if peer.asked.is_none() {
                    peer.probe(again);
                    self.send_request(index);
                }
                return Some(());
            }
            None => {
                peer.outgoing.sent(nack.seq)?;
            }
        }
        self.fail(now, index, Failure::Closed);
        Some(())
    }

    /// Answers a request for a block.
    fn handle_pull(&mut self, now: Time, from: Mac, pull: &Pull) -> Option<()> {
        if pull.ends.to != self.number {
            return self.elsewhere();
        }
        let index = self.find(from, pull.ends.from).filter(|_| pull.session == self.session);
        let answer = match index {
            Some(index) => {
                let peer = self.peer_mut(index);
                peer.hear(now);
                let to = (index, from, peer.index);
                self.windows.answer(to, pull)
            }
            None => Err(Refusal::BadSession),
        };
        let refusal = match answer {
            Ok(done) => return done,
            Err(refusal) => refusal,
        };
        let nack = NackMcp {
            from: self.number,
            generation: 0,
            refusal,
            handle: pull.handle,
            magic: pull.magic,
        };
        let to = index.map_or(NO_INDEX, |at| self.peers[usize::from(at.0)].index);
        self.frames.push(from, to, Packet::NackMcp(nack), &[]);
        None
    }

    fn handle_pull_reply(
        &mut self,
        now: Time,
        from: Mac,
        reply: &PullReply,
        (payload, sink): (&[u8], &mut Sink<'_>),
    ) -> Option<()> {
        if reply.magic != self.pulls.magic() {
            return self.elsewhere();
        }
        let index = self.pulls.peer_of(reply.handle, reply.magic)?;
        let peer = self.peer_mut(index);
        if peer.mac != from {
            return None;
        }
        peer.hear(now);
        match self.pulls.place(now, reply, payload, sink) {
            Came::Nothing => return None,
            Came::Again => self.counters.duplicates += 1,
            Came::Placed => {}
            Came::Last(ended) => self.pulled(now, ended),
        }
        self.send_asks();
        Some(())
    }

    /// A refusal counts only if it comes from the peer of the pull that it names.
    fn handle_refused_pull(&mut self, now: Time, from: Mac, nack: &NackMcp) -> Option<()> {
        if nack.magic != self.pulls.magic() {
            return self.elsewhere();
        }
        let index = self.pulls.peer_of(nack.handle, nack.magic)?;
        let peer = self.peer_mut(index);
        if (peer.mac, peer.number) != (from, nack.from) {
            return None;
        }
        let ended = self.pulls.refused(now, nack.handle, nack.magic)?;
        let event = Event::NotPulled { peer: ended.peer, context: ended.context };
        self.events.push_back(event);
        self.send_asks();
        Some(())
    }
}

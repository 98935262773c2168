//! Sending.

use super::pull::Ended;
use super::unacked::Body;
use super::{Event, Mac, Node, PeerIndex, Time, NO_INDEX};
use crate::packet::{SMALL_MAX, TINY_MAX};
use crate::{
    Ack, ConnectRequest, Dialect, Ends, Medium, Message, NackLib, Notify, Packet, Refusal,
    Rendezvous,
};
use alloc::boxed::Box;
use core::mem::replace;

/// Length of the data of an announcement.
const ANNOUNCEMENT: u32 = 8;

impl Node {
    pub(super) fn send_request(&mut self, to: PeerIndex) {
        let peer = &self.peers[usize::from(to.0)];
        let Some(asked) = peer.asked else { return };
        let request = ConnectRequest {
            ends: self.ends(peer.number),
            seq: 0,
            peer_index: to.0,
            session: self.session,
            key: asked.key,
            recv_start: peer.incoming.next(),
            connect_seq: asked.number,
        };
        let (mac, index) = (peer.mac, peer.index);
        self.frames.push(mac, index, Packet::ConnectRequest(request), &[]);
    }

    /// Sends what waits for all peers: a window has become free.
    pub(super) fn flush_all(&mut self, now: Time) {
        if self.windows.has_room() {
            (0..self.peers.len() as u16).for_each(|at| self.flush(now, PeerIndex(at)));
        }
    }

    /// Sends what waits for a peer, as far as there is room.
    pub(super) fn flush(&mut self, now: Time, to: PeerIndex) {
        let again = now + self.settings.resend;
        loop {
            let peer = &mut self.peers[usize::from(to.0)];
            let Some(next) = peer.outgoing.next_unsent() else { return };
            if let Body::Long(data) = &mut next.body {
                if !self.windows.has_room() {
                    return;
                }
                let data = replace(data, Box::new([]));
                let exposed = self.windows.expose(to, data, next.context);
                let Some(id) = exposed else { return };
                next.body = Body::Window(id);
                peer.windows += 1;
            }
            let seq = peer.outgoing.mark_sent(again);
            self.send_kept(to, seq);
        }
    }

    /// Sends the packets of something that is kept.
    pub(super) fn send_kept(&mut self, to: PeerIndex, seq: u16) {
        let (from, dialect) = (self.number, self.settings.dialect);
        let peer = &mut self.peers[usize::from(to.0)];
        let Some(session) = peer.session else { return };
        let ack = peer.incoming.acknowledge();
        let Some(kept) = peer.outgoing.sent(seq) else { return };
        let (mac, index) = (peer.mac, peer.index);
        let ends = Ends { to: peer.number, from, generation: 0 };
        let match_bits = kept.match_bits;
        let message = Message { ends, len: 0, checksum: 0, seq, ack, match_bits, session };
        match &kept.body {
            Body::Long(_) => {}
            Body::Data(data) => {
                let message = Message { len: data.len() as u32, ..message };
                let frames = &mut self.frames;
                if message.len <= u32::from(TINY_MAX) {
                    return frames.push(mac, index, Packet::Tiny(message), data);
                }
                if message.len <= u32::from(SMALL_MAX) {
                    return frames.push(mac, index, Packet::Small(message), data);
                }
                for (part, fragment) in data.chunks(usize::from(self.settings.fragment)).zip(0..) {
                    let medium = medium(message, part.len() as u16, fragment, dialect);
                    frames.push(mac, index, Packet::Medium(medium), part);
                }
            }
            &Body::Window(id) => {
                let Some((window_seq, len)) = self.windows.announcement(id) else { return };
                let message = Message { len: ANNOUNCEMENT, ..message };
                let window = crate::Window { id: id.into(), seq: window_seq, offset: 0 };
                let rendezvous = Rendezvous { message, len, window };
                self.frames.push(mac, index, Packet::Rendezvous(rendezvous), &[]);
            }
            &Body::Taken { total, window } => {
                let notify = Notify {
                    ends,
                    session,
                    total,
                    window: window.id as u8,
                    window_seq: window.seq,
                    seq,
                    ack,
                };
                self.frames.push(mac, index, Packet::Notify(notify), &[]);
            }
        }
    }

    /// Sends the requests of pulls.
    pub(super) fn send_asks(&mut self) {
        while let Some(ask) = self.pulls.next_ask() {
            let Some(peer) = self.peers.get(usize::from(ask.peer.0)) else { continue };
            let Some(session) = peer.session else { continue };
            let mut request = ask.request;
            (request.ends.to, request.session) = (peer.number, session);
            let (mac, index) = (peer.mac, peer.index);
            self.frames.push(mac, index, Packet::Pull(request), &[]);
        }
    }

    /// Tells the sender of a message that it was pulled.
    pub(super) fn pulled(&mut self, now: Time, ended: Ended) {
        let Ended { peer, context, window, data, len } = ended;
        let body = Body::Taken { total: len, window };
        // A peer that is connected no more needs none.
        let _kept = self.peer_mut(peer).keep(0, body, 0);
        self.flush(now, peer);
        self.events.push_back(Event::Pulled { peer, context, data, len });
    }

    pub(super) fn send_ack(&mut self, to: PeerIndex) {
        let from = self.number;
        let peer = &mut self.peers[usize::from(to.0)];
        let (Some(session), seq) = (peer.session, peer.incoming.acknowledge()) else { return };
        let number = peer.incoming.next_ack();
        let (mac, index) = (peer.mac, peer.index);
        let ends = Ends { to: peer.number, from, generation: 0 };
        let acked_session = session;
        let ack = Ack { ends, session, seq, acked_session, number, send_seq: seq, resent: 0 };
        self.frames.push(mac, index, Packet::Ack(ack), &[]);
    }

    pub(super) fn send_refusal(&mut self, to: Mac, ends: Ends, seq: u16, refusal: Refusal) {
        let nack = NackLib {
            from: ends.to,
            generation: 0,
            refusal,
            to: ends.from,
            peer_index: NO_INDEX,
            seq,
        };
        self.frames.push(to, NO_INDEX, Packet::NackLib(nack), &[]);
    }
}

fn medium(message: Message, fragment_len: u16, fragment: u8, dialect: Dialect) -> Medium {
    let pipeline = match dialect {
        Dialect::Compat => 12,
        Dialect::Native => 0,
    };
    Medium { message, fragment_len, fragment, pipeline, checksum: 0 }
}

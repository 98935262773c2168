//! Sending of packets in bursts, and the choice of link for each.

use super::receiver::Bulk;
use super::{Reactor, BURST};
use arrayvec::ArrayVec;
use weft_core::engine::types::{Payload, Transmit};
use weft_core::wire::{self, field, EagerMore, Hello, Packet, PacketType};
use weft_core::{OpId, PeerId};
use weft_link::{DataRun, Frame};

const HELLO: PacketType = PacketType::Hello;

#[inline]
fn is(t: &Transmit, kind: PacketType) -> bool {
    t.header.as_slice().get(field::TYPE) == Some(&(kind as u8))
}

/// Returns the headers of the packets of a run.
fn headers(run: &Transmit) -> impl Iterator<Item = [u8; EagerMore::LEN]> + '_ {
    let each = run.payload.len() / run.packets.max(1);
    (0..run.packets).map(move |i| {
        let mut header = [0; EagerMore::LEN];
        header.copy_from_slice(&run.header.as_slice()[..EagerMore::LEN]);
        wire::advance(&mut header, i, u64::from(i) * u64::from(each));
        header
    })
}

impl Reactor {
    /// Returns the link of a packet; pulled data may have a link of its own.
    #[inline]
    pub(super) fn link_for(&self, t: &Transmit) -> Option<usize> {
        self.link_by(t.peer, t.bulk, t.packet_len())
    }

    /// Returns the link of a packet of `len` bytes.
    #[inline]
    pub(super) fn link_by(&self, peer: PeerId, bulk: bool, len: u32) -> Option<usize> {
        let route = self.paths.routes.get(peer.0 as usize)?.as_ref()?;
        Some(usize::from(route.link_for(bulk, len)))
    }

    /// Sends a HELLO over every path, so that a working path is found, or its answer over each path
    /// that a question came over, so that it proves these paths. If all links are full it waits for
    /// room like other packets: a retransmission would find them full again.
    fn send_hello(&mut self, t: &Transmit) -> bool {
        let now = self.receiver.time.now;
        let Some(Some(route)) = self.paths.routes.get_mut(t.peer.0 as usize) else { return true };
        let links: ArrayVec<usize, { super::paths::PATHS_MAX }> =
            match Hello::is_answer(t.header.as_slice()) {
                true => route.take_callers(),
                false => route.ask_first(now),
            };
        let asked = !links.is_empty();
        let taken = links.into_iter().filter(|&link| self.hello_over(link, t)).count();
        if asked && taken == 0 {
            self.receiver.engine.links().handle_refused(*t);
        }
        taken > 0
    }

    /// Sends a HELLO over one link. True if the link had room.
    pub(super) fn hello_over(&mut self, link: usize, t: &Transmit) -> bool {
        let payload = self.receiver.resolve(&t.payload, &self.known.encoded);
        let frame = Frame { peer: t.peer, header: t.header.as_slice(), payload };
        self.links[link].send(&[frame]) > 0
    }

    /// Prepares the link for the data that this packet requests, if it is a request.
    fn expect(&mut self, t: &Transmit) {
        if !is(t, PacketType::Pull) {
            return;
        }
        self.poll_for_data();
        let Ok((_, Packet::Pull(ask), _)) = wire::parse(t.header.as_slice()) else { return };
        let core = &mut self.receiver;
        let busy = core
            .arriving
            .bulk
            .is_some_and(|b| core.ops.beyond(b.op).is_some_and(|b| !b.1.is_empty()));
        if ask.offset == 0 && !busy {
            if let Some((_, session, _)) = core.engine.peer(t.peer).info() {
                let op = OpId(ask.recv);
                core.arriving.expect(Bulk { op, session, imm: op.0, eager: None });
            }
        }
    }

    /// Sends the engine's packets. True if any was sent.
    pub(super) fn transmit(&mut self) -> bool {
        let mut did = false;
        let mut next = self.receiver.engine.poll_transmit(self.receiver.time.now);
        while let Some(first) = next.take() {
            let link = self.link_for(&first);
            if is(&first, HELLO) {
                did |= self.send_hello(&first);
                next = self.receiver.engine.poll_transmit(self.receiver.time.now);
                continue;
            }
            if first.piece.is_some() {
                did |= self.send_piece(link, first);
                next = self.receiver.engine.poll_transmit(self.receiver.time.now);
                continue;
            }
            if (first.packets > 1 || first.stripe > 0) && is(&first, PacketType::Data) {
                did |= self.send_run(link, first);
                next = self.receiver.engine.poll_transmit(self.receiver.time.now);
                continue;
            }
            let mut batch = ArrayVec::<Transmit, BURST>::new();
            let mut room = BURST.saturating_sub(first.packets as usize);
            batch.push(first);
            while room > 0 {
                match self.receiver.engine.poll_transmit(self.receiver.time.now) {
                    Some(t) if self.fits(&t, link, room) => {
                        room -= t.packets as usize;
                        batch.push(t)
                    }
                    other => {
                        next = other;
                        break;
                    }
                }
            }
            did |= self.send_batch(link, &batch);
            if next.is_none() {
                next = self.receiver.engine.poll_transmit(self.receiver.time.now);
            }
        }
        did
    }

    /// Notes that the link took so many packets of bulk data.
    #[inline]
    fn note_bulk(&mut self, t: &Transmit, taken: usize) {
        let Payload::Op { op, offset, len } = t.payload else { return };
        if t.bulk && taken > 0 {
            let moved = u64::from(len) * taken as u64 / u64::from(t.packets.max(1));
            let left = self.receiver.ops.beyond_of(op, offset + moved);
            self.receiver.bulk_rate.moved(self.receiver.time.now, moved, left);
        }
    }

    /// Sends a message of `len` bytes just started to `peer`. If it is one packet and no packet is
    /// queued before it, it leaves at once, and all other work is left to the next round of
    /// progress.
    #[inline]
    pub(crate) fn send_started(&mut self, peer: PeerId, len: usize) {
        self.leave_if_copied();
        self.send_first(peer, len);
        if self.receiver.engine.peer(peer).queued() > 0
            && self.absence.is_long(self.receiver.time.now)
        {
            self.poll_for_room();
        }
    }

    #[inline]
    fn send_first(&mut self, peer: PeerId, len: usize) {
        if self.receiver.engine.peer(peer).queued() != 1
            || !self.receiver.engine.peer(peer).is_single(len)
        {
            self.flush();
            return;
        }
        let Some(t) = self.receiver.engine.poll_transmit(self.receiver.time.now) else { return };
        let link = self.link_for(&t);
        let alone = t.packets == 1 && t.piece.is_none() && !is(&t, HELLO);
        let Some(at) = link.filter(|_| alone) else {
            self.receiver.engine.links().handle_refused(t);
            self.flush();
            return;
        };
        let payload = self.receiver.resolve(&t.payload, &self.known.encoded);
        let frame = Frame { peer: t.peer, header: t.header.as_slice(), payload };
        if self.links[at].send(&[frame]) == 1 {
            self.receiver.engine.links().handle_accepted(&t);
            self.expect(&t);
        } else {
            self.receiver.engine.links().handle_refused(t);
        }
        if self.receiver.engine.peer(peer).queued() > 0 {
            self.flush();
        }
    }

    /// Sends a piece of a packet that is longer than its path's current MTU.
    #[cold]
    fn send_piece(&mut self, link: Option<usize>, t: Transmit) -> bool {
        let (Some(link), Some(piece)) = (link, t.piece) else { return true };
        let payload = self.receiver.resolve(&t.payload, &self.known.encoded);
        // Its memory is gone: the whole is sent again, or refused.
        if payload.len() != t.payload.len() as usize {
            return true;
        }
        let (header, body) = (piece.header_of(&t.header), [t.header.as_slice(), payload].concat());
        let frame = Frame { peer: t.peer, header: header.as_slice(), payload: &body };
        let taken = self.links[link].send(&[frame]) > 0;
        if !taken {
            self.receiver.engine.links().handle_refused(t);
        }
        taken
    }

    fn send_run(&mut self, link: Option<usize>, mut run: Transmit) -> bool {
        let taken = match link {
            Some(link) => {
                let payload = self.receiver.resolve(&run.payload, &self.known.encoded);
                let packets = run.packets as usize;
                // Its memory is gone; the peer will ask again.
                if payload.len() != run.payload.len() as usize {
                    packets
                } else {
                    let (peer, stripe, header) = (run.peer, run.stripe, run.header.as_slice());
                    let run = DataRun { peer, stripe, header, payload, packets };
                    weft_link::link::send_run(&mut *self.links[link], &run)
                }
            }
            None => run.packets as usize,
        };
        self.note_bulk(&run, taken);
        if taken < run.packets as usize {
            run.skip(taken as u32);
            self.receiver.engine.links().handle_refused(run);
        }
        taken > 0
    }

    fn send_batch(&mut self, link: Option<usize>, batch: &[Transmit]) -> bool {
        let Some(link) = link else {
            batch.iter().for_each(|t| self.receiver.engine.links().handle_accepted(t));
            return true;
        };
        let core = &self.receiver;
        // Headers of packets in runs, except the first of each run.
        let mut further = ArrayVec::<[u8; EagerMore::LEN], BURST>::new();
        for t in batch.iter().filter(|t| t.packets > 1) {
            further.extend(headers(t).skip(1));
        }
        let mut further = further.iter();
        let mut frames = ArrayVec::<Frame<'_>, BURST>::new();
        for t in batch {
            let payload = core.resolve(&t.payload, &self.known.encoded);
            let each = if t.packets > 1 { payload.len() / t.packets as usize } else { 0 };
            let (first, mut rest) =
                if each > 0 { payload.split_at(each) } else { (payload, &[][..]) };
            let peer = t.peer;
            frames.push(Frame { peer, header: t.header.as_slice(), payload: first });
            for header in further.by_ref().take(t.packets as usize - 1) {
                let (payload, behind) = rest.split_at(each.min(rest.len()));
                frames.push(Frame { peer, header, payload });
                rest = behind;
            }
        }
        let taken = self.links[link].send(&frames);
        drop(frames);
        self.note_taken(batch, taken);
        taken > 0
    }

    /// Tells the engine which packets of a batch the link took.
    fn note_taken(&mut self, batch: &[Transmit], mut taken: usize) {
        for t in batch {
            let packets = t.packets as usize;
            self.note_bulk(t, taken.min(packets));
            if taken >= packets {
                taken -= packets;
                self.receiver.engine.links().handle_accepted(t);
                self.expect(t);
                continue;
            }
            let mut left = *t;
            left.skip(taken as u32);
            taken = 0;
            self.receiver.engine.links().handle_refused(left);
        }
    }

    /// True if a packet or run may go with others over a link that has room for `room` more.
    fn fits(&self, t: &Transmit, link: Option<usize>, room: usize) -> bool {
        t.packets as usize <= room
            && (t.packets == 1 || is(t, PacketType::EagerMore))
            && t.stripe == 0
            && t.piece.is_none()
            && self.link_for(t) == link
            && !is(t, HELLO)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use weft_core::wire::HeaderBuf;
    use weft_core::{Config, EndpointId, LinkCaps};
    use weft_link::{Address, Link, LinkError, PeerInfo, Sink, WaitFd};

    /// A link that has room or not, and counts the HELLOs it took.
    #[derive(Clone, Default)]
    struct LimitedLink {
        room: Rc<Cell<bool>>,
        hellos: Rc<Cell<u32>>,
    }

    impl Link for LimitedLink {
        fn caps(&self) -> LinkCaps {
            LinkCaps::network("narrow", 1456)
        }
        fn advertise(&self, _: &mut Address) {}
        fn connect(&mut self, _: &PeerInfo) -> Result<LinkCaps, LinkError> {
            Ok(self.caps())
        }
        fn disconnect(&mut self, _: PeerId) {}
        fn send(&mut self, frames: &[Frame<'_>]) -> usize {
            if !self.room.get() {
                return 0;
            }
            let hello = |f: &&Frame<'_>| f.header[field::TYPE] == HELLO as u8;
            let hellos = frames.iter().filter(hello).count() as u32;
            self.hellos.set(self.hellos.get() + hellos);
            frames.len()
        }
        fn recv(&mut self, _: usize, _: &mut dyn Sink) -> usize {
            0
        }
        fn wait_fds(&self, _: &mut Vec<WaitFd>) {}
    }

    #[test]
    fn send_hello__waits_for_room_and_leaves_once() {
        let link = LimitedLink::default();
        let links: Vec<Box<dyn Link>> = vec![Box::new(link.clone())];
        let clock = crate::Clock::system();
        let mut reactor = Reactor::new(Config::default(), EndpointId(9), clock, links);
        let address = Address { endpoint: EndpointId(1), ..Address::default() };
        let peer = reactor.connect(&address).unwrap();
        let now = reactor.receiver.tick();
        reactor.receiver.engine.peer_mut(peer).open(now);
        for _ in 0..3 {
            reactor.flush();
        }
        assert_eq!(link.hellos.get(), 0);
        assert!(reactor.receiver.engine.output().blocked());
        link.room.set(true);
        reactor.flush();
        reactor.flush();
        assert_eq!(link.hellos.get(), 1, "no timer has sent it anew");
        assert!(!reactor.receiver.engine.output().blocked());
    }

    #[test]
    fn note_taken__counts_the_bytes_of_every_packet() {
        let links: Vec<Box<dyn Link>> = vec![Box::new(LimitedLink::default())];
        let clock = crate::Clock::system();
        let mut reactor = Reactor::new(Config::default(), EndpointId(9), clock, links);
        let address = Address { endpoint: EndpointId(1), ..Address::default() };
        let peer = reactor.connect(&address).unwrap();
        reactor.receiver.tick();
        let packet = |n: u64| {
            let payload = Payload::Op { op: OpId(0), offset: n * 1000, len: 1000 };
            let (header, bulk) = (HeaderBuf::new(), true);
            Transmit { peer, header, payload, packets: 1, bulk, stripe: 0, piece: None }
        };
        reactor.note_taken(&[packet(0)], 1);
        let before = reactor.receiver.bulk_rate.bytes();
        reactor.note_taken(&[packet(1), packet(2), packet(3)], 3);
        assert_eq!(reactor.receiver.bulk_rate.bytes(), before + 3000);
    }
}

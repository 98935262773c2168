//! Receives: takes frames off the ring, checks and delivers them.

use super::sys::Carries;
use super::{source, trains, Counters, PacketLink, Peer, Port, Source};
use crate::ether::{EtherFrame, EtherHead, EtherType};
use crate::kind::Kind;
use crate::secure::{Mode, Opened, Reject, Secure};
use crate::table::PeerTable;
use crate::{Bytes, Sink};
use weft_core::wire::{field, Hello, PacketType};
use weft_core::{EndpointId, PeerId};

/// Polls without a frame before the interfaces are checked: some milliseconds of polling.
const CHECK_EVERY: u32 = 1 << 16;

/// The evidence that a frame gives of the path to its sender.
pub(super) enum PathEvidence {
    /// Authentic, from this peer, and one of: over another path than the one in use; over a path in
    /// use that is not confirmed; a question; an answer.
    Peer(PeerId, Source, Kind),
    /// A HELLO of an endpoint that is not a peer.
    Caller(EndpointId, Source),
}

impl PacketLink {
    #[inline]
    pub(super) fn has_frames(&mut self) -> bool {
        self.ports.iter_mut().any(|p| p.membership.ring.ready())
    }

    #[inline]
    pub(super) fn recv_frames(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let (mut done, mut seen) = (0, 0);
        let (mut empty, all) = (0, self.ports.len());
        // The rings take turns, so that data which a peer spreads over several rings is roughly in
        // order. Hostile frames deliver no packet but count too, so a flood of them ends the loop.
        while seen < budget && empty < all {
            let PacketLink { carries, ports, secure, peers, count, .. } = self;
            let (at, left) = (self.turn, budget - seen);
            let port = &mut ports[at];
            self.turn = if at + 1 == all { 0 } else { at + 1 };
            let taken = match *carries {
                Carries::Packets(kind) => take(kind, at, port, secure, peers, count, sink),
                Carries::Trains => trains::take(at, port, secure, peers, count, left, sink),
            };
            let Some((delivered, evidence)) = taken else {
                empty += 1;
                continue;
            };
            empty = 0;
            seen += delivered.max(1);
            done += delivered;
            if let Some(evidence) = evidence {
                self.note_evidence(evidence);
            }
        }
        if seen == 0 {
            self.idle = self.idle.wrapping_add(1);
            if self.idle.is_multiple_of(CHECK_EVERY) {
                self.check_interfaces();
            }
        }
        done
    }

    #[cold]
    fn note_evidence(&mut self, evidence: PathEvidence) {
        match evidence {
            PathEvidence::Peer(peer, from, kind) => self.came_from(peer, from, kind),
            PathEvidence::Caller(endpoint, from) => self.remember_source(endpoint, from),
        }
    }
}

/// Takes one frame out of a ring. Returns the number of packets delivered and the evidence about
/// the path to the sender. `None` if there is no frame.
#[inline]
fn take(
    kind: EtherType,
    at: usize,
    port: &mut Port,
    secure: &mut Secure,
    peers: &PeerTable<Peer>,
    count: &mut Counters,
    sink: &mut dyn Sink,
) -> Option<(usize, Option<PathEvidence>)> {
    let seen = port.membership.ring.peek()?;
    let result = if seen.station != libc::PACKET_HOST {
        count.other_station += 1;
        None
    } else if !seen.whole {
        count.cut_off += 1;
        None
    } else {
        match EtherFrame::new_checked(seen.bytes, Some(kind)) {
            Ok(frame) if frame.slot() == port.membership.slot => Some(frame.frame().len()),
            Ok(_) => {
                count.other_slot += 1;
                None
            }
            Err(_) => {
                secure.reject(Reject::Short);
                None
            }
        }
    };
    let mut outcome = (0, None);
    if let Some(len) = result {
        let from = source(at, &seen.bytes[6..12]);
        let frame = &mut seen.bytes[EtherHead::LEN..][..len];
        if let Ok(opened) = secure.open(frame) {
            if known_source(secure, peers, &opened, from) {
                let (header, payload) = frame[..opened.packet_len].split_at(opened.header_len);
                let evidence = evidence(peers, opened.peer, header, from);
                sink.frame(None, header, Bytes::from_slice(payload));
                count.received += 1;
                outcome = (1, evidence);
            }
        }
    }
    port.membership.ring.release();
    Some(outcome)
}

/// Returns the evidence of an authentic packet with this header.
#[inline]
pub(super) fn evidence(
    peers: &PeerTable<Peer>,
    peer: Option<PeerId>,
    header: &[u8],
    from: Source,
) -> Option<PathEvidence> {
    match peer {
        Some(peer) => evidence_of(peers, peer, Kind::of(header), from),
        None if header[field::TYPE] == PacketType::Hello as u8 => {
            let id = header.get(Hello::SRC_EID.range())?.try_into().ok()?;
            Some(PathEvidence::Caller(EndpointId(u64::from_le_bytes(id)), from))
        }
        None => None,
    }
}

/// Returns the evidence of an authentic packet of a peer, if it is not the expected one.
#[inline]
pub(super) fn evidence_of(
    peers: &PeerTable<Peer>,
    peer: PeerId,
    kind: Kind,
    from: Source,
) -> Option<PathEvidence> {
    let known = peers.get(peer)?;
    let usual = known.source == from && known.proof.is_decided();
    let expected = usual && kind == Kind::Other;
    (!expected).then_some(PathEvidence::Peer(peer, from, kind))
}

/// Names the sender by the source address, the only evidence without authentication.
#[inline]
pub(super) fn known_source(
    secure: &mut Secure,
    peers: &PeerTable<Peer>,
    opened: &Opened,
    from: Source,
) -> bool {
    if secure.mode() != Mode::None {
        return true;
    }
    let Some(peer) = opened.peer else { return true };
    let known = peers.get(peer);
    let listed = |p: &Peer| p.paths.iter().any(|path| source(path.ours, &path.to.mac.0) == from);
    let ok = known.is_some_and(listed);
    if !ok {
        secure.reject(Reject::Spoofed);
    }
    ok
}

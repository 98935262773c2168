//! Trains: several packets in one frame longer than the MTU.

use super::recv::{evidence as evidence_in, evidence_of, known_source, PathEvidence};
use super::send::is_hello;
use super::sys::{offload, Geometry, Seen, OFFLOAD};
use super::{source, Counters, Outlet, PacketLink, Peer, Port};
use crate::ether::{EtherAddr, TrainFrame, TrainHead};
use crate::kind::Kind;
use crate::secure::{Mode, Reject, Secure};
use crate::table::PeerTable;
use crate::train::{Arrived, Sealed, Sealer};
use crate::{Address, Frame, Sink};
use std::io;
use weft_core::PeerId;

/// Highest length of a train, and of a packet with its trailer: 64 KiB minus all headers before it.
pub(super) const TRAIN: usize = 65_360;
/// Largest Ethernet payload, bytes.
pub(super) const FRAME: u32 = (TRAIN + TrainHead::SHIM + TrainHead::IP_AND_UDP) as u32;
/// Position of the packets in the outbox.
const START: usize = OFFLOAD + TrainHead::LEN;
/// Default size of a ring in bytes: 64 trains.
const RING: usize = 4 << 20;
/// Highest number of packets in a train: the number that the driver handles in one call.
const PACKETS: usize = 64;
/// From this payload size on, a packet that is sent alone is not copied before the kernel copies
/// it. Below it, an additional part of a message costs more: as much as a copy of some KiB.
const BORROWED: usize = 4 << 10;
const NOTHING: [&[u8]; 2] = [&[]; 2];

const _: () = assert!(TRAIN <= TrainHead::TRAIN_MAX);

/// Returns the sizes of the ring for trains.
pub(super) fn ring(bytes: usize) -> Geometry {
    Geometry::new(FRAME, if bytes == 0 { RING } else { bytes })
}

/// Adds the slot for trains to the address: to the entry of this interface, if there is one.
pub(super) fn advertise(own: EtherAddr, address: &mut Address) {
    match address.ether.iter_mut().find(|e| e.mac == own.mac && e.train == EtherAddr::NONE) {
        Some(known) => known.train = own.slot,
        None => address.ether.push(EtherAddr { slot: EtherAddr::NONE, train: own.slot, ..own }),
    }
}

impl PacketLink {
    /// Sends the first frames that fit into one train; returns their number. A HELLO is sent alone
    /// and padded to the longest train. `None` if the first frame cannot be sent at all.
    pub(super) fn send_train(&mut self, frames: &[Frame<'_>]) -> Option<io::Result<usize>> {
        let first = &frames[0];
        let peer = first.peer;
        self.peer(peer)?;
        if is_hello(first) {
            let train = self.sealer(1).frames(frames)?;
            return self.hand_over_train(peer, &train, TRAIN - train.len, NOTHING);
        }
        let long = first.payload.len() > TRAIN / 2;
        let alone = long || frames.get(1).is_none_or(|next| next.peer != peer);
        if alone && first.payload.len() >= BORROWED && self.may_borrow() {
            let (header, payload) = (first.header, first.payload);
            let trailer = self.secure.seal(peer, header, payload)?;
            let len = header.len() + payload.len() + trailer.len();
            if len > TRAIN {
                return None;
            }
            self.tx.bytes.get_mut(START..START + header.len())?.copy_from_slice(header);
            let train = Sealed { packets: 1, segment: len, len };
            return self.hand_over_train(peer, &train, 0, [payload, &trailer]);
        }
        let train = self.sealer(PACKETS).frames(frames)?;
        self.hand_over_train(peer, &train, 0, NOTHING)
    }

    /// True if payloads are sent unchanged, so that no copy is needed.
    fn may_borrow(&self) -> bool {
        self.secure.mode() == Mode::Auth && self.corruptor.is_none()
    }

    fn sealer(&mut self, most: usize) -> Sealer<'_> {
        let PacketLink { secure, corruptor, tx, .. } = self;
        Sealer { secure, corruptor, out: &mut tx.bytes[START..START + TRAIN], most }
    }

    /// Sends a train from the outbox; its last parts are in `borrowed`.
    fn hand_over_train(
        &mut self,
        peer: PeerId,
        train: &Sealed,
        padding: usize,
        borrowed: [&[u8]; 2],
    ) -> Option<io::Result<usize>> {
        let Outlet { port, mtu, train: head, .. } = self.peers.get(peer)?.outlet;
        let (each, len) = (train.segment as u16, train.len as u16);
        let head = TrainHead { each, len, padding: padding as u16, ..head };
        let all = START + train.len + padding;
        let here = START + train.len - borrowed[0].len() - borrowed[1].len();
        let out = &mut self.tx.bytes[..here + padding];
        out[here..].fill(0);
        out[OFFLOAD..START].copy_from_slice(&head.encode());
        let whole = all - OFFLOAD - TrainHead::ETHERNET <= mtu as usize;
        let told = if whole { [0; OFFLOAD] } else { offload(mtu, all - OFFLOAD) };
        out[..OFFLOAD].copy_from_slice(&told);
        self.count.sent_calls += 1;
        self.count.sent_trains += u64::from(!whole);
        let socket = &mut self.ports[port].membership.socket;
        let sent = match borrowed {
            NOTHING => socket.send(out),
            [payload, trailer] => socket.send_parts([out, payload, trailer]),
        };
        Some(sent.map(|()| train.packets))
    }
}

/// Takes packets off the train at the head of a ring.
#[inline]
pub(super) fn take(
    at: usize,
    port: &mut Port,
    secure: &mut Secure,
    peers: &PeerTable<Peer>,
    count: &mut Counters,
    budget: usize,
    sink: &mut dyn Sink,
) -> Option<(usize, Option<PathEvidence>)> {
    let slot = port.membership.slot;
    let seen = port.membership.ring.peek()?;
    if port.arrived.rest.is_empty() {
        port.arrived = begin(slot, &seen, secure, count);
    }
    let from = source(at, &seen.bytes[6..12]);
    let (mut done, mut evidence) = (0, None);
    while done < budget && evidence.is_none() && !port.arrived.rest.is_empty() {
        let left = budget - done;
        let step = port.arrived.step(seen.bytes, left, secure, sink, |secure, opened, header| {
            let known = known_source(secure, peers, opened, from);
            evidence = known.then(|| evidence_in(peers, opened.peer, header, from)).flatten();
            known
        });
        if let Some(peer) = step.run {
            count.received_placed += step.packets as u64;
            evidence = evidence_of(peers, peer, Kind::Other, from);
        }
        count.received += step.packets as u64;
        done += step.packets;
    }
    if port.arrived.rest.is_empty() {
        port.membership.ring.release();
    }
    Some((done, evidence))
}

/// Returns the position of the packets in a received frame; empty if it is not a train for this
/// slot.
fn begin(slot: u16, seen: &Seen<'_>, secure: &mut Secure, count: &mut Counters) -> Arrived {
    if seen.station != libc::PACKET_HOST {
        count.other_station += 1;
        return Arrived::nothing();
    }
    if !seen.whole {
        count.cut_off += 1;
        return Arrived::nothing();
    }
    match TrainFrame::new_checked(seen.bytes) {
        Ok(train) if train.slot() == slot => {
            let rest = TrainHead::LEN..TrainHead::LEN + train.train().len();
            Arrived { rest, segment: train.each() }
        }
        Ok(_) => {
            count.other_slot += 1;
            Arrived::nothing()
        }
        Err(_) => {
            secure.reject(Reject::Short);
            Arrived::nothing()
        }
    }
}

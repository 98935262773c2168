//! Messages of the other side of a connection.

use super::queue::{Direction, End, Stage};
use super::transfer::{has_immediate, span};
use super::{State, Vi};
use crate::code::{status, Fault, Phase};
use crate::region::Regions;
use crate::table::Key;
use crate::wire::{self, number, parts, Kind, Reason, Wrote, GENERATION};
use weft::port::{Arrived, Port};
use weft::{OpError, PeerId, Status};

/// Longest place for which a message is awaited by way of other memory.
const AWAITED_MAX: usize = 4 << 10;

/// Copies a message to the segments of a descriptor; returns bits of its status.
fn scatter(regions: &Regions, vi: &Vi, index: usize, data: &[u8]) -> Option<u32> {
    let work = &vi.recv.items[index];
    let posted = regions.descriptor(work.at, work.handle)?;
    let control = posted.control();
    let tag = vi.attributes.tag;
    if !control.is_receive() {
        return Some(status::FORMAT);
    }
    if posted.tag != tag {
        return Some(status::PROTECTION);
    }
    let mut room = 0;
    for i in 0..control.segments {
        let found = posted.segment(i).map(|segment| span(regions, &segment, tag));
        match found {
            Some(Ok(piece)) => room += piece.len(),
            _ => return Some(status::PROTECTION),
        }
    }
    if room < data.len() {
        return Some(status::LENGTH);
    }
    let mut rest = data;
    for segment in (0..control.segments).map_while(|i| posted.segment(i)) {
        if let Ok(piece) = span(regions, &segment, tag) {
            rest = &rest[piece.fill(rest)..];
        }
    }
    Some(0)
}

impl State {
    /// Returns the virtual interface that a message of a connected peer is for.
    #[inline]
    fn receiver(&self, source: PeerId, id: u32) -> Option<Key> {
        let (index, generation) = parts(id);
        let key = *self.ways.get(self.ways.key_at(index, generation, GENERATION)?)?;
        let vi = self.vis.get(key)?;
        let is_its = vi.connection.as_ref().is_some_and(|of| of.peer == Some(source));
        (is_its && vi.phase == Phase::Connected).then_some(key)
    }

    /// Handles a message.
    #[inline]
    pub(super) fn arrived(&mut self, port: &Port, message: &Arrived) {
        let Some((kind, id)) = wire::kind(message.number) else { return };
        if kind == Kind::Control {
            return self.control(port, message.source, message.argument, &message.data);
        }
        let Some(key) = self.receiver(message.source, id) else { return };
        match kind {
            Kind::Send | Kind::SendImmediate => {
                let immediate = has_immediate(kind).then_some(message.argument);
                self.deliver(port, key, immediate, &message.data);
            }
            Kind::Wrote => self.wrote(port, key, message.argument, &message.data),
            Kind::Receipt => self.receipt(port, key, message.argument),
            Kind::Break => {
                let fault = match Reason::from_wire(message.argument) {
                    Some(Reason::Write) => Fault::RdmawProt,
                    Some(Reason::Read) => Fault::RdmarProt,
                    _ => Fault::ConnLost,
                };
                self.break_off(port, key, None, Some(fault));
            }
            Kind::Notice => {
                let fault = match Reason::from_wire(message.argument) {
                    Some(Reason::Read) => Fault::RdmarProt,
                    _ => Fault::RdmawProt,
                };
                self.report(key, fault, (0, 0));
            }
            Kind::Control => {}
        }
    }

    /// Puts a message into the next posted descriptor.
    fn deliver(&mut self, port: &Port, key: Key, immediate: Option<u32>, data: &[u8]) {
        let Some(vi) = self.vis.get_mut(key) else { return };
        let index = vi.recv.done;
        if index >= vi.recv.items.len() {
            return self.none_posted(port, key);
        }
        let too_long = data.len() as u64 > vi.attributes.max;
        let bits = match scatter(&self.regions, vi, index, data) {
            Some(_) if too_long => status::LENGTH,
            Some(bits) => bits,
            None => return self.none_readable(port, key, index),
        };
        let end = End {
            status: bits | status::OP_RECEIVE | flag(immediate),
            length: if bits == 0 { data.len() as u32 } else { 0 },
            immediate,
        };
        self.received(port, key, index, end);
    }

    /// Polls briefly for the message of the first posted descriptor, if the next message can only
    /// go there: to one piece of memory, without a handler or a completion queue. `None` if it did
    /// not come.
    #[inline]
    pub fn await_message(
        &self,
        port: &Port,
        key: Key,
        by: &mut Vec<u8>,
    ) -> Option<Result<Status, OpError>> {
        let vi = self.vis.get(key).filter(|vi| vi.phase == Phase::Connected)?;
        let (connection, recv) = (vi.connection.as_ref()?, &vi.recv);
        let work = recv.items.front().filter(|_| recv.done == 0)?;
        if recv.cq.is_some() || !recv.notifies.is_empty() {
            return None;
        }
        let posted = self.regions.descriptor(work.at, work.handle)?;
        let (control, tag) = (posted.control(), vi.attributes.tag);
        if !control.is_receive() || control.segments != 1 || posted.tag != tag {
            return None;
        }
        let place = span(&self.regions, &posted.segment(0)?, tag).ok()?;
        let of = (connection.peer?, number(Kind::Send, wire::id_of(connection.own)));
        let max = vi.attributes.max as usize;
        match place.len() {
            // Nothing of a message that is too long for the descriptor may be stored.
            len if len < max && len > AWAITED_MAX => None,
            len if len < max => place.poll_for(port, of, Some(by)),
            _ => place.first(max).poll_for(port, of, None),
        }
    }

    /// Takes the first posted descriptor after [`await_message`](State::await_message).
    #[inline]
    pub fn came(
        &mut self,
        port: &Port,
        key: Key,
        came: &Result<Status, OpError>,
    ) -> Option<(u64, bool)> {
        let vi = self.vis.get_mut(key)?;
        match came {
            Ok(message) if !vi.waits_for_receipts() => {
                let work = vi.recv.take_first()?;
                let posted = self.regions.descriptor(work.at, work.handle)?;
                posted.finish(status::OP_RECEIVE | status::DONE, message.len as u32, None);
                return Some((work.at, false));
            }
            Ok(message) => {
                let (status, length) = (status::OP_RECEIVE, message.len as u32);
                self.received(port, key, 0, End { status, length, immediate: None });
            }
            Err(OpError::Truncated { .. }) => {
                let status = status::LENGTH | status::OP_RECEIVE;
                self.received(port, key, 0, End { status, ..End::default() });
            }
            // The failure of the peer is reported.
            Err(_) => return None,
        }
        self.vis.get_mut(key)?.recv.take_done()
    }

    /// Ends a descriptor of the receive queue.
    fn received(&mut self, port: &Port, key: Key, index: usize, end: End) {
        let Some(vi) = self.vis.get_mut(key) else { return };
        vi.recv.items[index].stage = Stage::Ended(end);
        let failed = end.status & status::ERRORS != 0;
        self.receipt_of(port, key, if failed { status::REMOTE_DESC } else { 0 });
        self.settle(key, Direction::Recv);
        self.failed(port, key, end.status);
    }

    /// Tells the other side that a message is in memory, or why it is not.
    fn receipt_of(&mut self, port: &Port, key: Key, bits: u32) {
        let Some(vi) = self.vis.get(key).filter(|vi| vi.waits_for_receipts()) else { return };
        let Some((peer, offer)) = vi.other_side() else { return };
        // Its failure is reported.
        let _failed = port.post(peer, number(Kind::Receipt, offer.id), bits, &[]);
    }

    /// A message came, and no descriptor is posted.
    #[cold]
    fn none_posted(&mut self, port: &Port, key: Key) {
        if self.vis.get(key).is_some_and(Vi::is_reliable) {
            self.receipt_of(port, key, status::REMOTE_DESC);
            self.break_off(port, key, Some(Reason::RecvqEmpty), Some(Fault::RecvqEmpty));
        }
    }

    /// A message came, and the memory of the next descriptor is not registered any more.
    #[cold]
    fn none_readable(&mut self, port: &Port, key: Key, index: usize) {
        let Some(vi) = self.vis.get(key) else { return };
        let at = vi.recv.items[index].at;
        self.report(key, Fault::PostDesc, (at, status::OP_RECEIVE));
        self.receipt_of(port, key, status::REMOTE_DESC);
        self.drop_gone(port, key, Direction::Recv, index);
    }

    /// Handles the immediate data of a write: its bytes came before.
    fn wrote(&mut self, port: &Port, key: Key, immediate: u32, data: &[u8]) {
        let Some(vi) = self.vis.get(key) else { return };
        let Some(wrote) = Wrote::decode(data) else { return };
        let writable = self.regions.get(wrote.handle).is_some_and(|of| of.attributes.write);
        let place = self.regions.span(wrote.at, wrote.len.into(), wrote.handle, vi.attributes.tag);
        if !writable || !vi.attributes.write || place.is_err() {
            // The other side learns of it by its write, and ends the connection.
            return self.receipt_of(port, key, status::RDMA_PROT);
        }
        let index = vi.recv.done;
        if index >= vi.recv.items.len() {
            return self.none_posted(port, key);
        }
        let status = status::OP_REMOTE_RDMA_WRITE | flag(Some(immediate));
        let end = End { status, length: wrote.len, immediate: Some(immediate) };
        self.received(port, key, index, end);
    }
}

/// The bit of the status that tells of immediate data.
fn flag(immediate: Option<u32>) -> u32 {
    immediate.map_or(0, |_| status::IMMEDIATE)
}

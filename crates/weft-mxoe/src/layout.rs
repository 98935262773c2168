//! One list of fields for each packet type, which reading and writing follow alike.

use crate::packet::{
    Ack, ConnectReply, ConnectRequest, Ends, Host, Medium, Message, NackLib, NackMcp, Notify,
    Packet, Pull, PullReply, Refusal, Rendezvous, Window,
};
use crate::{Dialect, Header, Malformed, TooWide, HEADER_MAX};

/// Length of a connect packet's data, in its own length field.
const CONNECT_DATA: u8 = 16;
/// Length of an acknowledgement's data, in its own length field, and its kind.
const ACK_DATA: u8 = 16;
const ACK_KIND: u8 = 0x55;
/// Offset of the byte that tells a connect reply from a request.
const IS_REPLY_AT: usize = 2 + 26;

/// One step through the fields of a header.
pub trait Walk {
    fn u8(&mut self, value: &mut u8);
    fn u16(&mut self, value: &mut u16);
    fn u32(&mut self, value: &mut u32);
    /// A number that has `N` bytes on the wire.
    fn narrow<const N: usize>(&mut self, value: &mut u32);
    /// Bytes without a meaning: written as zero, not looked at when read.
    fn pad(&mut self, len: usize);
    /// A byte that has one value only.
    fn fixed(&mut self, value: u8);
    fn refusal(&mut self, value: &mut Refusal);
}

/// Reads fields; remembers the first fault.
pub struct Reader<'a> {
    rest: &'a [u8],
    fault: Option<Malformed>,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, fault: None }
    }

    /// Returns what follows the header.
    pub fn finish(self) -> Result<&'a [u8], Malformed> {
        self.fault.map_or(Ok(self.rest), Err)
    }

    fn blame(&mut self, fault: Malformed) {
        self.fault.get_or_insert(fault);
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.rest.split_first_chunk() {
            Some((head, rest)) => {
                self.rest = rest;
                *head
            }
            None => {
                self.blame(Malformed::Short);
                [0; N]
            }
        }
    }
}

impl Walk for Reader<'_> {
    fn u8(&mut self, value: &mut u8) {
        [*value] = self.take();
    }

    fn u16(&mut self, value: &mut u16) {
        *value = u16::from_be_bytes(self.take());
    }

    fn u32(&mut self, value: &mut u32) {
        *value = u32::from_be_bytes(self.take());
    }

    fn narrow<const N: usize>(&mut self, value: &mut u32) {
        *value = self.take::<N>().iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    }

    fn pad(&mut self, len: usize) {
        match self.rest.get(len..) {
            Some(rest) => self.rest = rest,
            None => self.blame(Malformed::Short),
        }
    }

    fn fixed(&mut self, value: u8) {
        let [found] = self.take();
        if found != value {
            self.blame(Malformed::Content(found));
        }
    }

    fn refusal(&mut self, value: &mut Refusal) {
        let [code] = self.take();
        match Refusal::of(code) {
            Some(refusal) => *value = refusal,
            None => self.blame(Malformed::Content(code)),
        }
    }
}

/// Writes fields; remembers a number that did not fit.
pub struct Writer {
    header: Header,
    fits: bool,
}

impl Writer {
    pub fn new() -> Writer {
        Writer { header: Header { bytes: [0; HEADER_MAX], len: 0 }, fits: true }
    }

    pub fn finish(self) -> Result<Header, TooWide> {
        match self.fits {
            true => Ok(self.header),
            false => Err(TooWide),
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.header.len + bytes.len();
        self.header.bytes[self.header.len..end].copy_from_slice(bytes);
        self.header.len = end;
    }
}

impl Walk for Writer {
    fn u8(&mut self, value: &mut u8) {
        self.put(&[*value]);
    }

    fn u16(&mut self, value: &mut u16) {
        self.put(&value.to_be_bytes());
    }

    fn u32(&mut self, value: &mut u32) {
        self.put(&value.to_be_bytes());
    }

    fn narrow<const N: usize>(&mut self, value: &mut u32) {
        let bytes = value.to_be_bytes();
        let (high, low) = bytes.split_at(4 - N);
        self.fits &= high.iter().all(|byte| *byte == 0);
        self.put(low);
    }

    fn pad(&mut self, len: usize) {
        self.header.len += len;
    }

    fn fixed(&mut self, value: u8) {
        self.put(&[value]);
    }

    fn refusal(&mut self, value: &mut Refusal) {
        self.put(&[*value as u8]);
    }
}

/// Returns the packet of a type with all fields empty.
pub fn empty(code: u8, bytes: &[u8]) -> Result<Packet, Malformed> {
    Ok(match code {
        3 => Packet::HostQuery(Host::default()),
        4 => Packet::HostReply(Host::default()),
        35 => Packet::Ack(Ack::default()),
        36 => match bytes.get(IS_REPLY_AT) {
            Some(0) => Packet::ConnectRequest(ConnectRequest::default()),
            Some(1) => Packet::ConnectReply(ConnectReply::default()),
            Some(&other) => return Err(Malformed::Content(other)),
            None => return Err(Malformed::Short),
        },
        37 => Packet::Tiny(Message::default()),
        38 => Packet::Small(Message::default()),
        39 => Packet::Medium(Medium::default()),
        40 => Packet::Rendezvous(Rendezvous::default()),
        41 => Packet::Pull(Pull::default()),
        42 => Packet::PullReply(PullReply::default()),
        43 => Packet::Notify(Notify::default()),
        44 => Packet::NackLib(NackLib::default()),
        45 => Packet::NackMcp(NackMcp::default()),
        other => return Err(Malformed::Type(other)),
    })
}

/// Walks the fields after the packet's type.
pub fn packet(packet: &mut Packet, dialect: Dialect, walk: &mut impl Walk) {
    match packet {
        Packet::HostQuery(host) => {
            walk.pad(1);
            host_rest(host, walk);
        }
        Packet::HostReply(host) => {
            walk.u8(&mut host.name_len);
            host_rest(host, walk);
        }
        Packet::Ack(ack) => ack_fields(ack, walk),
        Packet::ConnectRequest(request) => connect_request(request, walk),
        Packet::ConnectReply(reply) => connect_reply(reply, walk),
        Packet::Tiny(message) | Packet::Small(message) => message_fields(message, walk),
        Packet::Medium(medium) => medium_fields(medium, dialect, walk),
        Packet::Rendezvous(rendezvous) => {
            message_fields(&mut rendezvous.message, walk);
            walk.u32(&mut rendezvous.len);
            window(&mut rendezvous.window, walk);
        }
        Packet::Pull(pull) => pull_fields(pull, dialect, walk),
        Packet::PullReply(reply) => {
            walk.u8(&mut reply.seq);
            walk.u16(&mut reply.len);
            walk.u32(&mut reply.offset);
            walk.u32(&mut reply.handle);
            walk.u32(&mut reply.magic);
        }
        Packet::Notify(notify) => notify_fields(notify, walk),
        Packet::NackLib(nack) => {
            walk.u8(&mut nack.from);
            walk.u8(&mut nack.generation);
            walk.refusal(&mut nack.refusal);
            walk.pad(5);
            walk.u8(&mut nack.to);
            walk.u16(&mut nack.peer_index);
            walk.u16(&mut nack.seq);
            walk.pad(2);
        }
        Packet::NackMcp(nack) => {
            walk.u8(&mut nack.from);
            walk.u8(&mut nack.generation);
            walk.refusal(&mut nack.refusal);
            walk.pad(4);
            walk.u32(&mut nack.handle);
            walk.u32(&mut nack.magic);
        }
    }
}

fn host_rest(host: &mut Host, walk: &mut impl Walk) {
    walk.u16(&mut host.peer_index);
    walk.pad(4);
    walk.u32(&mut host.magic);
    walk.pad(4);
}

fn ends(ends: &mut Ends, walk: &mut impl Walk) {
    walk.u8(&mut ends.to);
    walk.u8(&mut ends.from);
    walk.u8(&mut ends.generation);
}

fn ack_fields(ack: &mut Ack, walk: &mut impl Walk) {
    ends(&mut ack.ends, walk);
    walk.fixed(ACK_DATA);
    walk.pad(3);
    walk.u32(&mut ack.session);
    walk.fixed(ACK_KIND);
    walk.pad(1);
    walk.u16(&mut ack.seq);
    walk.u32(&mut ack.acked_session);
    walk.u32(&mut ack.number);
    walk.u16(&mut ack.send_seq);
    walk.u8(&mut ack.resent);
    walk.pad(1);
}

fn connect_request(request: &mut ConnectRequest, walk: &mut impl Walk) {
    ends(&mut request.ends, walk);
    walk.fixed(CONNECT_DATA);
    walk.pad(3);
    walk.u16(&mut request.seq);
    walk.u16(&mut request.peer_index);
    walk.pad(4);
    walk.u32(&mut request.session);
    walk.u32(&mut request.key);
    walk.u16(&mut request.recv_start);
    walk.fixed(0);
    walk.u8(&mut request.connect_seq);
    walk.pad(4);
}

fn connect_reply(reply: &mut ConnectReply, walk: &mut impl Walk) {
    ends(&mut reply.ends, walk);
    walk.fixed(CONNECT_DATA);
    walk.pad(3);
    walk.u16(&mut reply.seq);
    walk.u16(&mut reply.peer_index);
    walk.pad(4);
    walk.u32(&mut reply.asking_session);
    walk.u32(&mut reply.session);
    walk.u16(&mut reply.recv_start);
    walk.fixed(1);
    walk.u8(&mut reply.connect_seq);
    walk.u8(&mut reply.status);
    walk.pad(3);
}

fn message_fields(message: &mut Message, walk: &mut impl Walk) {
    ends(&mut message.ends, walk);
    walk.narrow::<2>(&mut message.len);
    walk.u16(&mut message.checksum);
    message_rest(message, walk);
}

/// The fields after the length.
fn message_rest(message: &mut Message, walk: &mut impl Walk) {
    walk.u16(&mut message.seq);
    walk.u16(&mut message.ack);
    let (mut high, mut low) = ((message.match_bits >> 32) as u32, message.match_bits as u32);
    walk.u32(&mut high);
    walk.u32(&mut low);
    message.match_bits = u64::from(high) << 32 | u64::from(low);
    walk.u32(&mut message.session);
}

fn medium_fields(medium: &mut Medium, dialect: Dialect, walk: &mut impl Walk) {
    ends(&mut medium.message.ends, walk);
    match dialect {
        Dialect::Compat => {
            walk.narrow::<2>(&mut medium.message.len);
            walk.pad(2);
        }
        Dialect::Native => walk.u32(&mut medium.message.len),
    }
    message_rest(&mut medium.message, walk);
    walk.u16(&mut medium.fragment_len);
    walk.u8(&mut medium.fragment);
    match dialect {
        Dialect::Compat => walk.u8(&mut medium.pipeline),
        Dialect::Native => walk.pad(1),
    }
    walk.u16(&mut medium.checksum);
    walk.pad(2);
}

fn window(window: &mut Window, walk: &mut impl Walk) {
    walk.narrow::<1>(&mut window.id);
    walk.u8(&mut window.seq);
    walk.narrow::<2>(&mut window.offset);
}

fn pull_fields(pull: &mut Pull, dialect: Dialect, walk: &mut impl Walk) {
    ends(&mut pull.ends, walk);
    walk.u32(&mut pull.session);
    walk.u32(&mut pull.total);
    match dialect {
        Dialect::Compat => window(&mut pull.window, walk),
        Dialect::Native => {
            walk.u32(&mut pull.window.id);
            walk.u8(&mut pull.window.seq);
            walk.pad(3);
            walk.u32(&mut pull.window.offset);
        }
    }
    walk.u32(&mut pull.handle);
    walk.u32(&mut pull.magic);
    match dialect {
        Dialect::Compat => {
            walk.narrow::<2>(&mut pull.first_offset);
            walk.narrow::<2>(&mut pull.block_len);
        }
        Dialect::Native => {
            walk.u32(&mut pull.first_offset);
            walk.u32(&mut pull.block_len);
        }
    }
    walk.u32(&mut pull.frame_index);
}

fn notify_fields(notify: &mut Notify, walk: &mut impl Walk) {
    ends(&mut notify.ends, walk);
    walk.u32(&mut notify.session);
    walk.u32(&mut notify.total);
    walk.u8(&mut notify.window);
    walk.u8(&mut notify.window_seq);
    walk.pad(4);
    walk.u16(&mut notify.seq);
    walk.u16(&mut notify.ack);
    walk.pad(2);
}

//! Messages in frames of MX over Ethernet (MXoE), on an interface that the user has declared
//! trusted: the frames have no authentication. Off unless `WEFT_MXOE` names an interface.
//!
//! [`Wire`] is a packet socket and a node that speaks the format. It is a client of the port that
//! is polled in each round, and a link of the endpoint that carries no frame of weft, so that waits
//! of the endpoint end when a frame of MXoE has come. The engine matches here, too: messages that
//! came are sent on to the endpoint itself (`open::wired`).

pub mod claim;
pub mod faults;
pub mod names;
pub mod out;
pub mod setting;

use crate::copier::{self, Copier};
use crate::memory::Target;
use claim::Claim;
use faults::Faults;
use out::{Out, HEAD};
use setting::{Setting, Tuning};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use weft::port::{Arrived, Client, Port};
use weft::PeerId;
use weft_core::{Instant, LinkCaps};
use weft_link::ether::{EtherType, Interface};
use weft_link::{Address, BarePacket, Frame, Keep, Link, LinkError, PeerInfo, Sink, Value, WaitFd};
use weft_mxoe::node::{
    pull_magic, Counters, Event, Lent, Mac, Misdirected, Node, NotSent, Offer, Outgoing, PeerIndex,
    Settings, Time,
};
use weft_mxoe::{Dialect, ETHERTYPE, HEADER_MAX, SMALL_MAX};

/// The client's number.
pub const CLIENT: u8 = weft::port::WEFT + 5;
/// Receive ring in bytes.
const RING: usize = 2 << 20;
/// Frames that are taken in one round.
const BUDGET: usize = 256;
/// Time until frames are sent again for which the system had no room.
const RETRY: Time = 1000;
/// Time between looks if the endpoint that speaks for the host has ended.
const SUCCEED: Time = 1_000_000;
/// The byte of a frame that has the type of its packet, and the bits of it.
const KIND: (u32, u8) = (HEAD as u32 + 2, 0x7f);
/// Context of a pull without a request.
const NOBODY: u64 = u64::MAX;

struct Inner {
    socket: BarePacket,
    node: Option<Node>,
    out: Out,
    /// The places of messages that are being pulled, by the contexts of the pulls.
    places: HashMap<u64, Target>,
    /// The thread that copies what was received.
    copier: Option<Copier>,
    /// The right to speak for the host, and the time of the next look if it is free.
    speaker: Option<Claim>,
    succeed_at: Time,
}

/// Bytes of a frame that are to be stored: the pull's context, the offset in its message, and their
/// place in the frame.
struct Part {
    context: u64,
    at: usize,
    from: usize,
    len: usize,
}

impl Inner {
    /// Handles the next frame, and stores what it brings for a pull. False if there is none.
    fn take(&mut self, mac: Mac, now: Time) -> bool {
        let Inner { socket, node: Some(node), places, copier, .. } = self else { return false };
        let Some(copier) = copier else {
            return socket.take_with(|frame| handle(node, places, mac, now, frame)).is_some();
        };
        let Some(held) = socket.hold() else { return false };
        let Some(part) = look(node, mac, now, held.bytes()) else { return true };
        let Some(place) = places.get_mut(&part.context) else { return true };
        let is_long = part.len >= copier::FRAME_MIN && place.len() >= copier::MESSAGE_MIN;
        let held = match is_long {
            true => match place.job(part.at, held, (part.from, part.len)) {
                Ok(job) => {
                    copier.give(job);
                    return true;
                }
                Err(held) => held,
            },
            false => held,
        };
        let bytes = held.bytes().get(part.from..part.from + part.len);
        bytes.into_iter().for_each(|bytes| place.put(part.at, bytes));
        true
    }
}

/// Returns the sender and the content of a frame for an address.
fn open(frame: &[u8], mac: Mac) -> Option<(Mac, &[u8])> {
    let (head, rest) = frame.split_at_checked(HEAD)?;
    let from = Mac::try_from(&head[6..12]).ok()?;
    (head[..6] == mac).then_some((from, rest))
}

/// Handles a frame, and stores what it brings for a pull.
fn handle(node: &mut Node, places: &mut HashMap<u64, Target>, mac: Mac, now: Time, frame: &[u8]) {
    let Some((from, rest)) = open(frame, mac) else { return };
    node.handle_into(now, from, rest, &mut |context, at, bytes| {
        places.get_mut(&context).into_iter().for_each(|place| place.put(at, bytes));
    });
}

/// Handles a frame; returns the part of it that is to be stored.
fn look(node: &mut Node, mac: Mac, now: Time, frame: &[u8]) -> Option<Part> {
    let (from, rest) = open(frame, mac)?;
    let mut part = None;
    node.handle_into(now, from, rest, &mut |context, at, bytes| {
        let from = bytes.as_ptr() as usize - frame.as_ptr() as usize;
        part = Some(Part { context, at, from, len: bytes.len() });
    });
    part
}

/// A socket and a node.
pub struct Wire {
    interface: u32,
    mac: Mac,
    settings: Settings,
    tuning: Tuning,
    inner: RefCell<Inner>,
}

impl Wire {
    /// Opens the socket.
    ///
    /// # Errors
    /// The text says what to do.
    pub fn open(setting: &Setting, silence_ms: u32) -> Result<Rc<Wire>, String> {
        let interface = setting.find()?;
        let name = &interface.name;
        let least = least_mtu(setting.dialect);
        if interface.mtu < least {
            let mtu = interface.mtu;
            return Err(format!(
                "WEFT_MXOE: frames of native MX have 4 KiB, and the MTU of {name} is {mtu}: \
                 `ip link set {name} mtu {least}` or more, on all its hosts"
            ));
        }
        let kind = EtherType::new(ETHERTYPE).ok_or("the type of frames")?;
        let socket = BarePacket::open(&interface, kind, RING).map_err(|why| {
            format!("WEFT_MXOE: a packet socket on {name}: {why}; it needs CAP_NET_RAW")
        })?;
        log::info!(
            "frames of MX over Ethernet on {name}: no authentication, all hosts are trusted"
        );
        let settings = settings_of(setting, &interface, silence_ms);
        let longest = settings.reply.max(settings.fragment).max(SMALL_MAX);
        let Setting { tuning, .. } = *setting;
        let copier = if tuning.overlaps { Copier::start() } else { None };
        Ok(Rc::new(Wire {
            interface: interface.index,
            mac: interface.mac.0,
            settings,
            tuning,
            inner: RefCell::new(Inner {
                socket,
                node: None,
                out: Out::new(
                    interface.mac.0,
                    HEAD + HEADER_MAX + usize::from(longest),
                    !tuning.copies,
                    Faults::of_environment()?,
                ),
                places: HashMap::new(),
                copier,
                speaker: None,
                succeed_at: 0,
            }),
        }))
    }

    /// Takes the number of an endpoint on the interface.
    ///
    /// # Errors
    /// Returns the errors of [`Claim::number`].
    pub fn claim(&self, number: u32) -> io::Result<Claim> {
        let number = u8::try_from(number).map_err(|_| ErrorKind::InvalidInput)?;
        Claim::number(self.interface, number)
    }

    /// Begins to speak for an endpoint with a number and a key.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(&self, number: u32, key: u32) -> io::Result<()> {
        let session = weft_link::random_u64() as u32;
        let node = Node::new(self.settings, number as u8, key, session);
        let inner = &mut *self.inner.borrow_mut();
        inner.node = Some(node);
        inner.speaker = Claim::speaker(self.interface);
        match &inner.speaker {
            Some(_) => Ok(()),
            // The socket of each endpoint on the interface gets a copy of every frame.
            None => inner.socket.keep(KIND, &rules_of(number as u8)),
        }
    }

    /// Speaks for the host from now on, if the endpoint that did has ended.
    fn succeed(&self, now: Time) {
        let inner = &mut *self.inner.borrow_mut();
        if inner.speaker.is_some() || now < inner.succeed_at {
            return;
        }
        inner.succeed_at = now + SUCCEED;
        inner.speaker = Claim::speaker(self.interface);
        if inner.speaker.is_some() {
            if let Err(why) = inner.socket.keep(KIND, &[]) {
                log::warn!("requests for endpoints that are not open stay unanswered: {why}");
            }
        }
    }

    /// Returns the interface's address.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Calls `f` with the node, and sends what it wants to send.
    fn with<R>(&self, port: &Port, f: impl FnOnce(&mut Node, Time) -> R) -> Option<R> {
        let now = time_of(port.now());
        let result = self.inner.borrow_mut().node.as_mut().map(|node| f(node, now));
        self.flush(port, now);
        result
    }

    /// Asks an endpoint to connect. `None` if there are too many peers.
    pub fn connect(&self, port: &Port, to: Mac, number: u8, key: u32) -> Option<PeerIndex> {
        self.with(port, |node, now| node.connect(now, to, number, key))?
    }

    /// Ends the connection to a peer.
    pub fn disconnect(&self, port: &Port, peer: PeerIndex) {
        self.with(port, |node, now| node.disconnect(now, peer));
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The peer is not connected, or too many messages wait.
    pub fn send(&self, port: &Port, to: PeerIndex, message: Outgoing) -> Result<(), NotSent> {
        let sent = self.with(port, |node, now| node.send(now, to, message));
        sent.unwrap_or(Err(NotSent::NotConnected))
    }

    /// True if bytes of long messages stay where they are until they leave.
    pub fn lends(&self) -> bool {
        !self.tuning.copies
    }

    /// Sends a message whose bytes stay where they are, until its end or [`own`](Wire::own).
    ///
    /// # Errors
    /// Returns the errors of [`send`](Wire::send).
    pub fn send_lent(
        &self,
        port: &Port,
        to: PeerIndex,
        names: (u64, u64),
        data: Lent,
    ) -> Result<(), NotSent> {
        let sent = self.with(port, |node, now| node.send_lent(now, to, names, data));
        sent.unwrap_or(Err(NotSent::NotConnected))
    }

    /// Copies what a message has lent.
    pub fn own(&self, context: u64) {
        self.inner.borrow_mut().node.iter_mut().for_each(|node| node.own(context));
    }

    /// Pulls the beginning of an announced message to a place.
    pub fn pull(&self, port: &Port, offer: Offer, len: u32, (context, to): (u64, Target)) {
        self.inner.borrow_mut().places.insert(context, to);
        self.with(port, |node, now| node.pull_into(now, offer, len, context));
    }

    /// Drops an announced message.
    pub fn refuse_offer(&self, port: &Port, offer: Offer) {
        self.with(port, |node, now| node.pull(now, offer, 0, NOBODY));
    }

    /// Stores no more at the place of a pull.
    pub fn forget_place(&self, context: u64) {
        self.inner.borrow_mut().places.remove(&context);
    }

    /// While it is full, no further messages are taken.
    pub fn set_full(&self, is_full: bool) {
        self.inner.borrow_mut().node.iter_mut().for_each(|node| node.set_full(is_full));
    }

    /// Returns the next event, except for those that this handles itself.
    pub fn event(&self, port: &Port) -> Option<Event> {
        loop {
            let event = self.inner.borrow_mut().node.as_mut()?.poll_event()?;
            match event {
                Event::Misdirected(misdirected) => self.refuse(port, misdirected),
                Event::Pulled { context, .. } | Event::NotPulled { context, .. } => {
                    self.forget_place(context);
                    return Some(event);
                }
                event => return Some(event),
            }
        }
    }

    /// Refuses a packet for a number that no endpoint of this host has, if this endpoint speaks for
    /// the host.
    fn refuse(&self, port: &Port, misdirected: Misdirected) {
        let speaks = self.inner.borrow().speaker.is_some();
        if speaks && !claim::is_taken(self.interface, misdirected.number) {
            self.with(port, |node, _| node.refuse(misdirected));
        }
    }

    /// Returns address and number of a peer.
    pub fn peer(&self, peer: PeerIndex) -> Option<(Mac, u8)> {
        self.inner.borrow().node.as_ref()?.peer(peer)
    }

    /// Returns the session of a connected peer.
    pub fn session(&self, peer: PeerIndex) -> Option<u32> {
        self.inner.borrow().node.as_ref()?.session(peer)
    }

    /// Tells the peers that the endpoint is closed.
    pub fn close(&self, port: &Port) {
        self.with(port, |node, _| node.close());
    }

    /// True if all that was sent is acknowledged.
    pub fn is_quiet(&self) -> bool {
        self.inner.borrow().node.as_ref().is_none_or(Node::is_quiet)
    }

    /// Takes the frames that have come, and does what is due.
    pub fn progress(&self, port: &Port) {
        let now = time_of(port.now());
        self.succeed(now);
        {
            let inner = &mut *self.inner.borrow_mut();
            let mut budget = BUDGET;
            while budget > 0 && inner.take(self.mac, now) {
                budget -= 1;
            }
            let Some(node) = &mut inner.node else { return };
            if node.next_timeout().is_some_and(|at| at <= now) {
                node.handle_timeout(now);
            }
        }
        self.flush(port, now);
    }

    /// Sends what the node wants to send, as far as the system has room.
    fn flush(&self, port: &Port, now: Time) {
        let Inner { socket, node, out, .. } = &mut *self.inner.borrow_mut();
        let Some(node) = node else { return };
        if !out.flush(socket, node) {
            return port.call_by(instant_of(now + RETRY));
        }
        if let Some(at) = node.next_timeout() {
            port.call_by(instant_of(at));
        }
    }

    fn has_frame(&self) -> bool {
        self.inner.borrow_mut().socket.has_frame()
    }
}

/// Returns the least MTU of an interface: fragments of native MX have one length.
fn least_mtu(dialect: Dialect) -> u32 {
    match dialect {
        Dialect::Compat => 4096 + HEADER_MAX as u32,
        Dialect::Native => 0,
    }
}

fn settings_of(setting: &Setting, interface: &Interface, silence_ms: u32) -> Settings {
    let settings = Settings::of(setting.dialect, interface.mtu.min(9000) as u16);
    let silence = u64::from(silence_ms).max(1) * 1000;
    let resend = settings.resend.min(silence / 3).max(1000);
    let probe = settings.probe.min(silence);
    let pull_again = settings.pull_again.min(silence);
    let resends_max = (silence / resend) as u32;
    let settings = setting.tuning.apply(settings);
    Settings { resend, probe, pull_again, resends_max, is_shared: true, ..settings }
}

/// The frames that an endpoint with a number takes: answers to its pulls name its magic number, and
/// others its number.
fn rules_of(number: u8) -> [Keep; 4] {
    let rule = |kind, at: usize, value| Keep { kind, at: (HEAD + at) as u32, value };
    let magic = Value::Word(pull_magic(number));
    let byte = Value::Byte(number);
    [
        rule(Some(42), 14, magic),
        rule(Some(45), 14, magic),
        rule(Some(44), 11, byte),
        rule(None, 3, byte),
    ]
}

fn time_of(now: Instant) -> Time {
    now.0 / 1000
}

fn instant_of(at: Time) -> Instant {
    // A moment later, so that its time has come by the coarser clock, too.
    Instant((at + 1) * 1000)
}

impl Client for Wire {
    fn arrived(self: Rc<Self>, port: &Port, message: Arrived) {
        // No endpoint sends such messages.
        port.release(message);
    }

    fn due(self: Rc<Self>, port: &Port) {
        self.progress(port);
    }

    fn has_events(&self) -> bool {
        self.has_frame()
    }

    fn poll(self: Rc<Self>, port: &Port) {
        self.progress(port);
    }
}

/// The link of an endpoint that ends its waits when a frame of MXoE has come.
pub struct Bell(pub Rc<Wire>);

impl Link for Bell {
    fn caps(&self) -> LinkCaps {
        let mut caps = LinkCaps::network("mxoe", 1500);
        caps.polled = true;
        caps
    }

    fn advertise(&self, _address: &mut Address) {}

    fn connect(&mut self, _peer: &PeerInfo) -> Result<LinkCaps, LinkError> {
        Err(LinkError::Unreachable("it carries messages of MX alone".into()))
    }

    fn disconnect(&mut self, _peer: PeerId) {}

    fn send(&mut self, frames: &[Frame<'_>]) -> usize {
        frames.len()
    }

    fn recv(&mut self, _budget: usize, _sink: &mut dyn Sink) -> usize {
        0
    }

    fn wait_fds(&self, out: &mut Vec<WaitFd>) {
        out.push(WaitFd { fd: self.0.inner.borrow().socket.as_fd().as_raw_fd() });
    }

    fn prepare_wait(&mut self) -> bool {
        !self.0.has_frame()
    }

    fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let inner = self.0.inner.borrow();
        let counters = inner.node.as_ref().map_or(Counters::default(), Node::counters);
        each("sent", inner.out.sent);
        each("send_errors", inner.out.errors);
        each("dropped", counters.dropped);
        each("duplicates", counters.duplicates);
        each("resent", counters.resent);
    }
}

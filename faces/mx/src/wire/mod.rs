//! Messages in frames of MX over Ethernet (MXoE), on an interface that the user has declared
//! trusted: the frames have no authentication. Off unless `WEFT_MXOE` names an interface.
//!
//! [`Wire`] is a packet socket and a node that speaks the format. It is a client of the port that
//! is polled in each round, and a link of the endpoint that carries no frame of weft, so that waits
//! of the endpoint end when a frame of MXoE has come. The engine matches here, too: messages that
//! came are sent on to the endpoint itself (`sys::wired`).

pub mod claim;
mod faults;
pub mod names;
pub mod setting;

use claim::Claim;
use faults::{Fate, Faults};
use setting::Setting;
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use weft::port::{Arrived, Client, Port};
use weft::PeerId;
use weft_core::{Instant, LinkCaps};
use weft_link::ether::{EtherType, Interface};
use weft_link::{Address, BarePacket, Frame, Keep, Link, LinkError, PeerInfo, Sink, Value, WaitFd};
use weft_mxoe::node::{
    pull_magic, Counters, Event, Mac, Misdirected, Node, NotSent, Offer, Outgoing, PeerIndex,
    Settings, Time,
};
use weft_mxoe::{Dialect, ETHERTYPE, HEADER_MAX};

/// The client's number.
pub const CLIENT: u8 = weft::port::WEFT + 5;
/// Receive ring in bytes.
const RING: usize = 2 << 20;
/// Length of Ethernet's header, and of the shortest frame.
const HEAD: usize = 14;
const SHORTEST: usize = 60;
/// Frames that are taken in one round.
const BUDGET: usize = 256;
/// Time until frames are sent again for which the system had no room.
const RETRY: Time = 1000;
/// Time between looks if the endpoint that speaks for the host has ended.
const SUCCEED: Time = 1_000_000;
/// The byte of a frame that has the type of its packet, and the bits of it.
const KIND: (u32, u8) = (HEAD as u32 + 2, 0x7f);
/// The bit of a peer's number that says that it is reached by MXoE.
const WIRED: u32 = 1 << 31;

/// Returns the number of a peer that is reached by MXoE.
pub fn peer_id(peer: PeerIndex) -> PeerId {
    PeerId(WIRED | u32::from(peer.0))
}

/// Returns the peer, if it is reached by MXoE.
pub fn wired(peer: PeerId) -> Option<PeerIndex> {
    (peer.0 & WIRED != 0).then_some(PeerIndex(peer.0 as u16))
}

struct Inner {
    socket: BarePacket,
    node: Option<Node>,
    /// The frame that was received, and the one that is sent next.
    received: Vec<u8>,
    sending: Vec<u8>,
    faults: Option<Faults>,
    /// Frames that the next one overtakes.
    overtaken: Vec<Vec<u8>>,
    /// The right to speak for the host, and the time of the next look if it is free.
    speaker: Option<Claim>,
    succeed_at: Time,
    sent: u64,
    errors: u64,
}

/// True if a fault takes a frame; frames that come later are kept.
fn suffers(faults: &mut Option<Faults>, frame: &[u8], overtaken: &mut Vec<Vec<u8>>) -> bool {
    let fate = faults.as_mut().map_or(Fate::Sent, Faults::next);
    if matches!(fate, Fate::Doubled | Fate::Overtaken) {
        overtaken.push(frame.to_vec());
    }
    matches!(fate, Fate::Lost | Fate::Overtaken)
}

/// A socket and a node.
pub struct Wire {
    interface: u32,
    mac: Mac,
    settings: Settings,
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
        Ok(Rc::new(Wire {
            interface: interface.index,
            mac: interface.mac.0,
            settings: settings_of(setting, &interface, silence_ms),
            inner: RefCell::new(Inner {
                socket,
                node: None,
                received: vec![0; 1 << 16],
                sending: Vec::new(),
                faults: Faults::of_environment()?,
                overtaken: Vec::new(),
                speaker: None,
                succeed_at: 0,
                sent: 0,
                errors: 0,
            }),
        }))
    }

    /// Takes the number of an endpoint on the interface.
    ///
    /// # Errors
    /// As of [`Claim::number`].
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

    /// Pulls an announced message.
    pub fn pull(&self, port: &Port, offer: Offer, len: u32, context: u64) {
        self.with(port, |node, now| node.pull(now, offer, len, context));
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
            let Inner { socket, node, received, .. } = &mut *self.inner.borrow_mut();
            let Some(node) = node else { return };
            for _ in 0..BUDGET {
                let Some(len) = socket.take_into(received) else { break };
                let frame = &received[..len.min(received.len())];
                let Some((head, rest)) = frame.split_at_checked(HEAD) else { continue };
                let from = head.get(6..12).and_then(|from| Mac::try_from(from).ok());
                let Some(from) = from.filter(|_| head[..6] == self.mac) else { continue };
                node.handle(now, from, rest);
            }
            if node.next_timeout().is_some_and(|at| at <= now) {
                node.handle_timeout(now);
            }
        }
        self.flush(port, now);
    }

    /// Sends what the node wants to send, as far as the system has room.
    fn flush(&self, port: &Port, now: Time) {
        let Inner { socket, node, sending, faults, overtaken, sent, errors, .. } =
            &mut *self.inner.borrow_mut();
        let Some(node) = node else { return };
        loop {
            if sending.is_empty() {
                sending.extend_from_slice(&[0; HEAD]);
                let Some(to) = node.poll_transmit(sending) else {
                    sending.clear();
                    break;
                };
                sending[..6].copy_from_slice(&to);
                sending[6..12].copy_from_slice(&self.mac);
                sending[12..HEAD].copy_from_slice(&ETHERTYPE.to_be_bytes());
                sending.resize(sending.len().max(SHORTEST), 0);
                if suffers(faults, sending, overtaken) {
                    sending.clear();
                    continue;
                }
            }
            match socket.send(sending) {
                Ok(()) => {
                    *sent += 1;
                    overtaken.drain(..).for_each(|frame| drop(socket.send(&frame)));
                }
                Err(why) if has_no_room(&why) => return port.call_by(instant_of(now + RETRY)),
                // Such as a path that is down: the frame is lost, as on the way.
                Err(_) => *errors += 1,
            }
            sending.clear();
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

fn has_no_room(why: &io::Error) -> bool {
    why.kind() == ErrorKind::WouldBlock || why.raw_os_error() == Some(libc::ENOBUFS)
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
        each("sent", inner.sent);
        each("send_errors", inner.errors);
        each("dropped", counters.dropped);
        each("duplicates", counters.duplicates);
        each("resent", counters.resent);
    }
}

impl weft_link::DirectMemory for Bell {}

impl weft_link::Trains for Bell {}

impl weft_link::ClosePoll for Bell {}

impl weft_link::Reach for Bell {}

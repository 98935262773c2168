//! The rank's end: a link that sends and receives all packets through the agent of its host.

use super::hub::ring_config;
use super::services::ServicesHandle;
use super::{Attach, Control, Served, AGENT, CONTROL, HEADER_MIN, NOBODY, PACKET, PREFIX, VERSION};
use crate::control::version_text;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};
use weft_core::relay::Shares;
use weft_core::wire::HEADER_MAX;
use weft_core::{Config, LinkCaps, PeerId, Pulse};
use weft_link::secure::Security;
use weft_link::shm::ShmLink;
use weft_link::{
    Address, Bytes, Frame, Link, LinkError, LinkEvent, PeerInfo, Processes, Sink, WaitFd,
};

/// Settings of an [`AgentLink`].
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Addresses of agents: each a path, or `@` and an abstract name. The first that answers is
    /// used.
    pub names: Vec<String>,
    /// Longest wait for the agent's answer.
    pub patience: Duration,
}

impl Default for AgentConfig {
    fn default() -> AgentConfig {
        AgentConfig { names: super::usual_names(), patience: Duration::from_secs(10) }
    }
}

/// The remedy where agent and rank are of different builds.
const OTHER_BUILD: &str = "end it (`weftd --stop`) and start the weftd of this program's build";

/// The agent: the only peer on the ring.
const AGENT_PEER: PeerId = PeerId(0);
/// Highest number of packets for one ring of the doorbell.
const AT_ONCE: usize = 16;
/// Cost of the two additional hops inside the host, in nanoseconds.
const HOPS_NS: u32 = 1_500;
#[derive(Default)]
struct Counters {
    sent: u64,
    received: u64,
    full: u64,
    held: u64,
    refused: u64,
}

/// The link of a rank that an agent serves.
pub struct AgentLink {
    shm: ShmLink,
    name: String,
    pid: i32,
    served: Served,
    address: Address,
    mtu: u32,
    services: ServicesHandle,
    peers: BTreeSet<PeerId>,
    shares: Shares,
    events: VecDeque<LinkEvent>,
    dead: bool,
    count: Counters,
}

/// Separates packets for the driver from messages for the link.
struct Unwrap<'a> {
    sink: &'a mut dyn Sink,
    messages: Vec<Control>,
    refused: u64,
}

impl Sink for Unwrap<'_> {
    #[inline]
    fn frame(&mut self, _: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        let Some((prefix, rest)) = header.split_first_chunk::<PREFIX>() else { return };
        let peer = u32::from_le_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]);
        if prefix[4] == PACKET {
            self.sink.frame(Some(PeerId(peer)).filter(|p| p.0 != NOBODY), rest, payload);
            return;
        }
        match Control::decode(&payload.to_vec()) {
            Ok(message) if prefix[4] == CONTROL => self.messages.push(message),
            _ => self.refused += 1,
        }
    }
}

/// Drops packets: an agent sends none before it serves the rank.
struct Nothing;

impl Sink for Nothing {
    fn frame(&mut self, _: Option<PeerId>, _: &[u8], _: Bytes<'_>) {}
}

impl AgentLink {
    /// Finds the agent and asks it to serve this rank.
    ///
    /// # Errors
    /// [`LinkError::Unreachable`]: no agent listens, the agent belongs to another user, or it
    /// refuses (a quota, another version), with the reason.
    pub fn attach(
        config: &AgentConfig,
        security: &Security,
        engine: &Config,
    ) -> Result<AgentLink, LinkError> {
        let mut shm = ShmLink::new(ring_config(security.me, 1))?;
        let (name, pid) = find(&mut shm, config)?;
        let mtu = shm.caps().mtu;
        let mut link = AgentLink {
            shm,
            name,
            pid,
            served: Served {
                version: 0,
                pid: 0,
                mtu: 0,
                latency_ns: 0,
                bytes_per_us: 0,
                address: Vec::new(),
            },
            address: Address::default(),
            mtu,
            services: ServicesHandle::default(),
            peers: BTreeSet::new(),
            shares: Shares::default(),
            events: VecDeque::new(),
            dead: false,
            count: Counters::default(),
        };
        let key = *security.job_key.as_bytes();
        link.say(&Control::Attach(Attach::new(security.me, security.mode, key, engine)));
        let served = link.await_answer(config.patience)?;
        link.address = Address::decode(&served.address).map_err(|e| link.broken(&e.to_string()))?;
        link.mtu = served.mtu.min(mtu - PREFIX as u32);
        link.served = served;
        Ok(link)
    }

    fn broken(&self, what: &str) -> LinkError {
        LinkError::Unreachable(format!(
            "{} sends invalid messages ({what}): {OTHER_BUILD}",
            self.agent()
        ))
    }

    fn agent(&self) -> String {
        format!("the agent at {} (process {})", self.name, self.pid)
    }

    fn await_answer(&mut self, patience: Duration) -> Result<Served, LinkError> {
        let end = Instant::now() + patience;
        loop {
            let mut unwrap = Unwrap { sink: &mut Nothing, messages: Vec::new(), refused: 0 };
            self.shm.recv(8, &mut unwrap);
            let mut foreign = unwrap.refused > 0;
            for message in unwrap.messages {
                match message {
                    Control::Attached(served) if served.version == VERSION => return Ok(served),
                    Control::Attached(other) => {
                        return Err(LinkError::Unreachable(format!(
                            "{} speaks version {} of the agent's protocol, this program {}: \
                             {OTHER_BUILD}",
                            self.agent(),
                            version_text(other.version),
                            version_text(VERSION)
                        )));
                    }
                    Control::Refused(why) => {
                        let agent = self.agent();
                        return Err(LinkError::Unreachable(format!("{agent} refuses: {why}")));
                    }
                    _ => foreign = true,
                }
            }
            if foreign {
                return Err(LinkError::Unreachable(format!(
                    "{} sends an answer that this program does not understand: {OTHER_BUILD}",
                    self.agent()
                )));
            }
            self.shm.poll_sockets();
            let why = match self.shm.poll_event() {
                Some(LinkEvent::PeerRefused(_, why)) => {
                    let agent = self.agent();
                    return Err(LinkError::Unreachable(format!("{agent} refuses: {why}")));
                }
                Some(_) => "closed the connection; its log has the reason",
                None if Instant::now() > end => "does not answer",
                None => {
                    // The agent may need this core, and can get it only if this process sleeps.
                    std::thread::sleep(Duration::from_micros(50));
                    continue;
                }
            };
            return Err(LinkError::Unreachable(format!("{} {why}", self.agent())));
        }
    }

    /// Returns the services of the agent beside carrying packets.
    pub fn services(&self) -> ServicesHandle {
        Rc::clone(&self.services)
    }

    /// Returns the address of the agent's socket and its process id.
    pub fn serving(&self) -> (&str, i32) {
        (&self.name, self.pid)
    }

    /// Returns the agent's description of its links.
    pub fn served(&self) -> &Served {
        &self.served
    }

    /// Puts a message into the ring. False if the ring is full.
    fn say(&mut self, message: &Control) -> bool {
        let mut header = [0; HEADER_MIN];
        header[4] = CONTROL;
        let payload = message.encode();
        if payload.len() + header.len() > self.shm.caps().mtu as usize {
            self.count.refused += 1;
            return true;
        }
        self.shm.send(&[Frame { peer: AGENT_PEER, header: &header, payload: &payload }]) == 1
    }

    /// Sends the queued messages in order. False if the ring is full.
    fn say_all(&mut self) -> bool {
        loop {
            let Some(next) = self.services.borrow_mut().say_next() else { return true };
            if !self.say(&next) {
                self.services.borrow_mut().say_again(next);
                return false;
            }
        }
    }

    /// Puts up to `N` packets into the ring, then rings the doorbell if the agent sleeps.
    #[inline]
    fn send_some<const N: usize>(&mut self, frames: &[Frame<'_>]) -> usize {
        let mut headers = [[0; PREFIX + HEADER_MAX]; N];
        for (all, frame) in headers.iter_mut().zip(frames) {
            all[..4].copy_from_slice(&frame.peer.0.to_le_bytes());
            all[PREFIX..PREFIX + frame.header.len()].copy_from_slice(frame.header);
        }
        let packed: [Frame<'_>; N] = std::array::from_fn(|i| {
            let frame = &frames[i.min(frames.len() - 1)];
            let header = &headers[i][..PREFIX + frame.header.len()];
            Frame { peer: AGENT_PEER, header, payload: frame.payload }
        });
        self.shm.send(&packed[..frames.len()])
    }

    /// Counts the first frames whose peers still have a share of the ring.
    #[inline]
    fn shared(&mut self, frames: &[Frame<'_>]) -> usize {
        let taken = frames.iter().position(|frame| !self.shares.take(frame.peer, frame.header));
        let Some(at) = taken else { return frames.len() };
        let peer = frames[at].peer;
        self.count.held += 1;
        if self.shares.note_full(peer) {
            self.events.push_back(LinkEvent::Held(peer, true));
        }
        at
    }

    fn on_end(&mut self, why: &str) {
        if self.dead {
            return;
        }
        self.dead = true;
        let text = format!("{} {why}; the peers that it reached are lost", self.agent());
        self.services.borrow_mut().end(text.clone());
        self.events.push_back(LinkEvent::Warning(text));
        let peers = std::mem::take(&mut self.peers);
        self.events.extend(peers.into_iter().map(LinkEvent::AgentGone));
    }

    fn listen(&mut self) {
        while let Some(event) = self.shm.poll_event() {
            match event {
                LinkEvent::PeerGone(_) => self.on_end("has ended: start it again for new programs"),
                LinkEvent::PeerRefused(..) => self.on_end("refuses the connection"),
                LinkEvent::PeerFailed(..) => self.on_end("broke the protocol between them"),
                other => self.events.push_back(other),
            }
        }
    }
}

fn find(shm: &mut ShmLink, config: &AgentConfig) -> Result<(String, i32), LinkError> {
    let mut reasons = Vec::new();
    for name in &config.names {
        match shm.connect_agent(name, AGENT, AGENT_PEER) {
            Ok(pid) => return Ok((name.clone(), pid)),
            Err(LinkError::Unreachable(why)) => reasons.push(why),
            Err(e) => reasons.push(e.to_string()),
        }
    }
    Err(LinkError::Unreachable(reasons.join("; ")))
}

impl Link for AgentLink {
    fn caps(&self) -> LinkCaps {
        // Reliable and in order, and no network for this process: the agent provides both.
        let mut caps = LinkCaps::memory("agent", self.mtu);
        // The end of a peer's process is not visible from here.
        caps.sees_end = false;
        caps.latency_ns = self.served.latency_ns + HOPS_NS;
        caps.bytes_per_us = self.served.bytes_per_us;
        caps.small_bytes_per_us = caps.bytes_per_us;
        caps
    }

    fn advertise(&self, address: &mut Address) {
        address.udp.extend(&self.address.udp);
        address.ether.extend(&self.address.ether);
    }

    fn connect(&mut self, info: &PeerInfo) -> Result<LinkCaps, LinkError> {
        if self.dead {
            return Err(LinkError::Unreachable(format!("{} has ended", self.agent())));
        }
        if info.address.udp.is_empty() && info.address.ether.is_empty() {
            let why = "the peer offers no network address, and has no agent that has one";
            return Err(LinkError::Unreachable(why.into()));
        }
        if self.peers.insert(info.peer) {
            let address = info.address.encode();
            let given = self.shares.open(info.peer);
            let connect = Control::Connect(info.peer, info.session, given, info.endpoint, address);
            self.services.borrow_mut().say(connect);
        }
        Ok(self.caps())
    }

    fn disconnect(&mut self, peer: PeerId) {
        if self.peers.remove(&peer) {
            self.services.borrow_mut().say(Control::Disconnect(peer));
            if self.shares.close(peer) {
                self.events.push_back(LinkEvent::Held(peer, false));
            }
        }
    }

    #[inline]
    fn send(&mut self, frames: &[Frame<'_>]) -> usize {
        if self.dead {
            return frames.len();
        }
        // Messages queued before these frames have to arrive before them.
        if !self.services.borrow().is_silent() && !self.say_all() {
            return 0;
        }
        let mut done = 0;
        for some in frames.chunks(AT_ONCE) {
            let shared = self.shared(some);
            let sent = match &some[..shared] {
                [] => 0,
                [one] => self.send_some::<1>(std::slice::from_ref(one)),
                several => self.send_some::<AT_ONCE>(several),
            };
            done += sent;
            if sent < shared {
                self.count.full += 1;
                let back = &some[sent..shared];
                back.iter().for_each(|frame| self.shares.give_back(frame.peer, frame.header));
            }
            if sent < some.len() {
                break;
            }
        }
        self.count.sent += done as u64;
        done
    }

    fn recv(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        if !self.services.borrow().is_silent() {
            self.say_all();
        }
        let mut unwrap = Unwrap { sink, messages: Vec::new(), refused: 0 };
        let received = self.shm.recv(budget, &mut unwrap);
        let (messages, refused) = (unwrap.messages, unwrap.refused);
        self.count.refused += refused;
        self.count.received += received as u64;
        for message in messages {
            match message {
                Control::Left(peer, left) => {
                    let room = self.shares.on_left(peer, left);
                    self.events.extend(room.then_some(LinkEvent::Held(peer, false)));
                }
                Control::Refused(why) => {
                    self.on_end(&format!("no longer serves this program: {why}"))
                }
                other => {
                    if let Control::Lost(peer, _) | Control::Stuck(peer, ..) = other {
                        // The agent keeps nothing for this peer any more, so no frame may wait for
                        // it here.
                        self.disconnect(peer);
                    }
                    self.services.borrow_mut().take(other, &mut self.events);
                }
            }
        }
        received
    }

    fn poll_event(&mut self) -> Option<LinkEvent> {
        self.listen();
        self.events.pop_front()
    }

    fn wait_fds(&self, out: &mut Vec<WaitFd>) {
        self.shm.wait_fds(out);
    }

    fn prepare_wait(&mut self) -> bool {
        let said = self.services.borrow().is_silent() || self.say_all();
        self.shm.prepare_wait() && (said || self.dead)
    }

    fn finish_wait(&mut self, ready: bool) {
        self.shm.finish_wait(ready);
    }

    fn path_text(&self, _peer: PeerId) -> String {
        match self.shm.pulse(AGENT_PEER) {
            Pulse::Stopped => {
                format!("by {}, which a signal has stopped: SIGCONT lets it go on", self.agent())
            }
            _ => format!("by {}", self.agent()),
        }
    }

    #[inline]
    fn recv_soon(&mut self, rounds: u32, budget: usize, sink: &mut dyn Sink) -> usize {
        match self.shm.spin(rounds) {
            true => self.recv(budget, sink),
            false => 0,
        }
    }

    fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let c = &self.count;
        for (name, value) in [
            ("agent_sent", c.sent),
            ("agent_received", c.received),
            ("agent_full", c.full),
            ("agent_held", c.held),
            ("agent_refused", c.refused),
        ] {
            each(name, value);
        }
    }
}

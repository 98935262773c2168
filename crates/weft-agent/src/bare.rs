//! A bare end of the rings, for tests of agents: it can send what a faulty or hostile rank would.

use super::hub::ring_config;
use super::{Control, AGENT, CONTROL, HEADER_MIN, PREFIX};
use weft_core::{EndpointId, PeerId};
use weft_link::shm::{ShmConfig, ShmLink};
use weft_link::{Bytes, Frame, Link, LinkError, Sink};

const AGENT_PEER: PeerId = PeerId(0);

/// The ways to write invalid data to the rings of a [`BareRank`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonsense {
    /// Slots with impossible packets.
    Slots,
    /// Credits for more packets than were ever sent.
    Credits,
}

/// A process that is connected to an agent and sends any bytes, for tests of agents.
#[derive(Debug)]
pub struct BareRank {
    shm: ShmLink,
    ended: bool,
}

/// Collects the messages of the agent.
struct Messages(Vec<Control>);

impl Sink for Messages {
    fn frame(&mut self, _: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        if header.get(PREFIX - 4) == Some(&CONTROL) {
            self.0.extend(Control::decode(&payload.to_vec()));
        }
    }
}

impl BareRank {
    /// Connects to the agent at `name`; sends no request.
    ///
    /// # Errors
    /// No agent listens there.
    pub fn connect(name: &str, me: EndpointId) -> Result<BareRank, LinkError> {
        BareRank::connect_by(name, me, |_| {})
    }

    /// Connects to the agent at `name` over rings whose configuration `change` has changed; sends
    /// no request. See [`connect`](Self::connect) for the usual rings.
    ///
    /// # Errors
    /// No agent listens there, or the rings cannot be made.
    pub fn connect_by(
        name: &str,
        me: EndpointId,
        change: impl FnOnce(&mut ShmConfig),
    ) -> Result<BareRank, LinkError> {
        let mut config = ring_config(me, 1);
        change(&mut config);
        let mut shm = ShmLink::new(config)?;
        shm.connect_agent(name, AGENT, AGENT_PEER)?;
        Ok(BareRank { shm, ended: false })
    }

    /// Sends this header and payload to the agent, as a packet to a peer. False if the ring is
    /// full.
    pub fn send(&mut self, peer: PeerId, header: &[u8], payload: &[u8]) -> bool {
        let all = [&peer.0.to_le_bytes()[..], &[0; PREFIX - 4], header].concat();
        self.shm.send(&[Frame { peer: AGENT_PEER, header: &all, payload }]) == 1
    }

    /// Sends these bytes as a message. False if the ring is full.
    pub fn say(&mut self, bytes: &[u8]) -> bool {
        let mut header = [0; HEADER_MIN];
        header[4] = CONTROL;
        self.shm.send(&[Frame { peer: AGENT_PEER, header: &header, payload: bytes }]) == 1
    }

    /// Receives the messages that the agent has sent since the last call.
    pub fn heard(&mut self) -> Vec<Control> {
        let mut messages = Messages(Vec::new());
        self.shm.poll_sockets();
        self.shm.recv(64, &mut messages);
        self.ended |= self.shm.poll_event().is_some();
        messages.0
    }

    /// True if an end of the connection by the agent has been seen.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Breaks the protocol of the rings.
    pub fn spoil(&mut self, nonsense: Nonsense) {
        self.shm.spoil(AGENT_PEER, nonsense == Nonsense::Credits);
    }
}

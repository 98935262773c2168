//! A rank's end of the rings with nothing around it: what an agent has to expect of a program.

use super::hub::ring_config;
use super::{Control, AGENT, CONTROL, HEADER_MIN, PREFIX};
use crate::shm::{ShmConfig, ShmLink};
use crate::{Bytes, Frame, Link, LinkError, Sink};
use weft_core::{EndpointId, PeerId};

const AGENT_PEER: PeerId = PeerId(0);

/// What writes nonsense to the rings of a [`BareRank`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonsense {
    /// Slots of packets that cannot be.
    Slots,
    /// More packets taken than were ever sent.
    Credits,
}

/// A process that is connected to an agent and says whatever it likes, for tests of agents.
#[derive(Debug)]
pub struct BareRank {
    shm: ShmLink,
    ended: bool,
}

/// Keeps the messages of the agent.
struct Messages(Vec<Control>);

impl Sink for Messages {
    fn frame(&mut self, _: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        if header.get(PREFIX - 4) == Some(&CONTROL) {
            self.0.extend(Control::decode(&payload.to_vec()));
        }
    }
}

impl BareRank {
    /// Connects to the agent at `name`, and asks for nothing.
    ///
    /// # Errors
    /// None listens there.
    pub fn connect(name: &str, me: EndpointId) -> Result<BareRank, LinkError> {
        BareRank::connect_by(name, me, |_| {})
    }

    /// The same with other rings.
    ///
    /// # Errors
    /// None listens there, or there are no such rings.
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

    /// Gives the agent this header and payload as a packet to a peer. False: the ring is full.
    pub fn send(&mut self, peer: PeerId, header: &[u8], payload: &[u8]) -> bool {
        let all = [&peer.0.to_le_bytes()[..], &[0; PREFIX - 4], header].concat();
        self.shm.send(&[Frame { peer: AGENT_PEER, header: &all, payload }]) == 1
    }

    /// Says these bytes, as if they were a message. False: the ring is full.
    pub fn say(&mut self, bytes: &[u8]) -> bool {
        let mut header = [0; HEADER_MIN];
        header[4] = CONTROL;
        self.shm.send(&[Frame { peer: AGENT_PEER, header: &header, payload: bytes }]) == 1
    }

    /// What the agent has said since.
    pub fn heard(&mut self) -> Vec<Control> {
        let mut messages = Messages(Vec::new());
        self.shm.look_at_sockets();
        self.shm.recv(64, &mut messages);
        self.ended |= self.shm.poll_event().is_some();
        messages.0
    }

    /// Whether the agent has ended the connection, as far as was heard.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Breaks the protocol of the rings.
    pub fn spoil(&mut self, nonsense: Nonsense) {
        self.shm.spoil(AGENT_PEER, nonsense == Nonsense::Credits);
    }
}

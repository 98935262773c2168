//! The agent's end of the rings to all its ranks.

use super::{Control, AGENT, CONTROL, HEADER_MIN, NOBODY, PACKET, PREFIX};
use weft_core::wire::HEADER_MAX;
use weft_core::{EndpointId, PeerId, Pulse};
use weft_link::shm::{Caller, Heard, ShmConfig, ShmLink};
use weft_link::Processes;
use weft_link::{Bytes, Frame, Link, LinkError, LinkEvent, WaitFd};

/// Receives from ranks. Each rank is read until the cost of its packets reaches its share of a
/// poll.
pub trait FromRank {
    /// Returns the highest cost for this rank in this poll; 0: the rank is not read.
    fn share(&mut self, rank: u32) -> u32;
    /// Takes a packet of rank `rank` to its peer; returns the cost.
    fn packet(&mut self, rank: u32, peer: PeerId, header: &[u8], payload: Bytes<'_>) -> u32;
    /// Takes a message for the agent, `None` if it is invalid; returns the cost.
    fn control(&mut self, rank: u32, message: Option<Control>) -> u32;
}

/// The rings to all ranks of a host.
#[derive(Debug)]
pub struct Hub {
    shm: ShmLink,
    name: String,
    mtu: usize,
    too_long: u64,
}

/// Returns the configuration of the rings between ranks and their agent.
pub(super) fn ring_config(endpoint: EndpointId, ranks: usize) -> ShmConfig {
    let mut config = ShmConfig::new(endpoint);
    config.max_peers = ranks;
    config.sleeps_often = true;
    config
}

struct Route<'a>(&'a mut dyn FromRank);

impl Heard for Route<'_> {
    fn share(&mut self, from: PeerId) -> u32 {
        self.0.share(from.0)
    }

    #[inline]
    fn frame(&mut self, from: PeerId, header: &[u8], payload: Bytes<'_>) -> u32 {
        let Some((prefix, rest)) = header.split_first_chunk::<PREFIX>() else { return 1 };
        let peer = u32::from_le_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]);
        match prefix[4] {
            PACKET => self.0.packet(from.0, PeerId(peer), rest, payload),
            CONTROL => self.0.control(from.0, Control::decode(&payload.to_vec()).ok()),
            _ => self.0.control(from.0, None),
        }
    }
}

impl Hub {
    /// Listens at `name` (a path, or `@` and an abstract name) for up to `ranks` ranks and callers,
    /// of which up to `of_user` may be of one user.
    ///
    /// # Errors
    /// The name is taken (another agent), or the system refuses.
    pub fn listen(name: &str, ranks: usize, of_user: usize) -> Result<Hub, LinkError> {
        let shm = ShmLink::hub(ring_config(AGENT, ranks), name, of_user)?;
        Ok(Hub { mtu: shm.caps().mtu as usize, shm, name: name.to_string(), too_long: 0 })
    }

    /// Returns the address of the socket.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Lists the callers: processes that connected and are neither admitted nor refused yet.
    pub fn callers(&self) -> Vec<Caller> {
        match self.shm.has_callers() {
            true => self.shm.callers(),
            false => Vec::new(),
        }
    }

    /// True if there is a caller.
    pub fn has_callers(&self) -> bool {
        self.shm.has_callers()
    }

    /// Makes a caller a rank with this number, which no other rank has.
    pub fn admit(&mut self, caller: EndpointId, rank: u32) -> bool {
        self.shm.admit_caller(caller, PeerId(rank))
    }

    /// Ends the connection of a caller.
    pub fn refuse(&mut self, caller: EndpointId) {
        self.shm.refuse(caller);
    }

    /// Ends the connection of a rank. The rank can still read the packets sent to it.
    pub fn dismiss(&mut self, rank: u32) {
        self.shm.disconnect(PeerId(rank));
    }

    /// Passes on packets and messages of ranks, up to the share of each; returns their number.
    pub fn recv(&mut self, to: &mut dyn FromRank) -> usize {
        self.shm.recv_shares(&mut Route(to))
    }

    /// Gives a rank a packet from `peer` (`None`: from an endpoint that the rank has not named).
    /// False if its ring is full. A packet longer than the ring's limit is dropped: no rank offered
    /// that size, so the sender breaks the protocol.
    #[inline]
    pub fn deliver(
        &mut self,
        rank: u32,
        peer: Option<PeerId>,
        header: &[u8],
        payload: &[u8],
    ) -> bool {
        let mut all = [0; PREFIX + HEADER_MAX];
        let len = PREFIX + header.len().min(HEADER_MAX);
        all[..4].copy_from_slice(&peer.map_or(NOBODY, |p| p.0).to_le_bytes());
        all[4] = PACKET;
        all[PREFIX..len].copy_from_slice(&header[..len - PREFIX]);
        self.put(Frame { peer: PeerId(rank), header: &all[..len], payload })
    }

    /// Puts a frame into a ring. False if the ring is full.
    #[inline]
    fn put(&mut self, frame: Frame<'_>) -> bool {
        let fits = (HEADER_MIN..=PREFIX + HEADER_MAX).contains(&frame.header.len())
            && frame.header.len() + frame.payload.len() <= self.mtu;
        if !fits {
            self.too_long += 1;
            return true;
        }
        self.shm.send(&[frame]) == 1
    }

    /// Sends a message to a rank. False if its ring is full.
    pub fn say(&mut self, rank: u32, message: &Control) -> bool {
        let mut header = [0; HEADER_MIN];
        header[4] = CONTROL;
        let payload = message.encode();
        self.put(Frame { peer: PeerId(rank), header: &header, payload: &payload })
    }

    /// Returns the state of a rank's process.
    pub fn pulse(&self, rank: u32) -> Pulse {
        self.shm.pulse(PeerId(rank))
    }

    /// Leaves the packets of a rank in its ring while `muted`, so that the rank has to wait.
    pub fn mute(&mut self, rank: u32, muted: bool) {
        self.shm.mute(PeerId(rank), muted);
    }

    /// Polls for new and for ended connections.
    pub fn poll_sockets(&mut self) {
        self.shm.poll_sockets();
    }

    /// Returns the next event: a rank whose connection has ended, or a warning.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.shm.poll_event()
    }

    /// Appends the descriptors that become readable when a rank has sent something.
    pub fn wait_fds(&self, out: &mut Vec<WaitFd>) {
        self.shm.wait_fds(out);
    }

    /// Prepares to sleep. False if there is something to receive: do not sleep.
    pub fn prepare_wait(&mut self) -> bool {
        self.shm.prepare_wait()
    }

    /// Ends the wait; called after sleeping.
    pub fn finish_wait(&mut self) {
        self.shm.finish_wait(true);
    }

    /// Lists the counters by name.
    pub fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("too_long", self.too_long);
        self.shm.counters(each);
    }
}

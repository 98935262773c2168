//! The rings of shared memory between an agent and the ranks of any user that it serves.

use super::rendezvous::{self, Kind};
use super::ring::Area as _;
use super::{DirectCopy, ShmConfig, ShmLink};
use crate::sync::Ordering;
use crate::{Address, Bytes, LinkError, PeerInfo};
use weft_core::{EndpointId, PeerId};

/// A process that connected, with the kernel's data about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The endpoint id that the process claims.
    pub endpoint: EndpointId,
    /// Its user.
    pub user: u32,
    /// Its process id; 0 when it is not visible from here.
    pub pid: i32,
}

/// Receives packets of the peers of a hub, from each until their cost reaches its share.
pub trait Heard {
    /// Returns the highest cost for the packets of a peer now; 0: the peer is not read.
    fn share(&mut self, from: PeerId) -> u32;
    /// Takes a packet; returns its cost.
    fn frame(&mut self, from: PeerId, header: &[u8], payload: Bytes<'_>) -> u32;
}

impl ShmLink {
    /// Opens a link that listens at `name` (a path, or `@` and an abstract name) for processes of
    /// any user, at most `of_user` of one user. Their rings must have the sizes in `config`. No
    /// direct copies are made.
    pub fn hub(config: ShmConfig, name: &str, of_user: usize) -> Result<ShmLink, LinkError> {
        let mut hub = ShmLink::open(ShmConfig { direct: DirectCopy::Off, ..config }, Some(name))?;
        hub.of_user = of_user;
        Ok(hub)
    }

    /// Connects to the agent that listens at `name`, whose user is root or that of this process.
    /// Returns the agent's process id.
    pub fn connect_agent(
        &mut self,
        name: &str,
        agent: EndpointId,
        peer: PeerId,
    ) -> Result<i32, LinkError> {
        let sizes = self.config.sizes();
        let offer = self.hello(Kind::Offer, agent, sizes);
        let dialed = rendezvous::dial_agent(name, &offer)?;
        let pid = dialed.cred.pid;
        let info = PeerInfo { peer, session: 0, endpoint: agent, address: Address::default() };
        self.take_in(&info, sizes, dialed)?;
        Ok(pid)
    }

    /// Lists the callers: processes that connected and have no peer number yet.
    pub fn callers(&self) -> Vec<Caller> {
        let strangers = self.peers.iter().filter(|p| p.id.is_none());
        let caller = |p: &super::Peer| {
            let cred = weft_sys::Peer::of(&p.socket.fd).ok()?;
            Some(Caller { endpoint: p.endpoint, user: cred.uid, pid: cred.pid })
        };
        strangers.filter_map(caller).collect()
    }

    /// True if there is a caller.
    #[inline]
    pub fn has_callers(&self) -> bool {
        self.peers.iter().any(|p| p.id.is_none())
    }

    /// Gives a caller its peer number.
    pub fn admit_caller(&mut self, endpoint: EndpointId, peer: PeerId) -> bool {
        let stranger = |p: &super::Peer| p.endpoint == endpoint && p.id.is_none();
        let Some(at) = self.peers.iter().position(stranger) else { return false };
        self.name(at, peer);
        self.peers[at].muted = false;
        true
    }

    /// Ends the connection of a caller.
    pub fn refuse(&mut self, endpoint: EndpointId) {
        let stranger = |p: &super::Peer| p.endpoint == endpoint && p.id.is_none();
        if let Some(at) = self.peers.iter().position(stranger) {
            self.peers.remove(at);
        }
    }

    /// Leaves the packets of a peer in its ring while `muted`, so that the peer has to wait.
    pub fn mute(&mut self, peer: PeerId, muted: bool) {
        if let Some(peer) = self.peers.find_mut(peer) {
            peer.muted = muted;
        }
    }

    /// Delivers packets of peers, up to the share of each; returns their number. Callers are not
    /// read before they are admitted.
    pub fn recv_shares(&mut self, to: &mut dyn Heard) -> usize {
        self.recv_by(|peer| {
            let Some(from) = peer.id else { return 0 };
            let mut left = to.share(from);
            if left == 0 {
                return 0;
            }
            peer.pop_while(|_, header, payload| {
                left = left.saturating_sub(to.frame(from, header, payload));
                left > 0
            })
        })
    }

    /// Breaks the protocol of the rings to a peer, for tests: writes invalid credits or slots.
    pub fn spoil(&mut self, peer: PeerId, credits: bool) {
        let slots = self.config.slots;
        let Some(peer) = self.peers.find_mut(peer) else { return };
        if credits {
            peer.rx.area.consumer().credits.store(u64::MAX, Ordering::Release);
        } else {
            (0..slots).for_each(|at| peer.tx.area.slot(at).word.store(u64::MAX, Ordering::Release));
        }
    }
}

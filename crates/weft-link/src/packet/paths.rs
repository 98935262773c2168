//! Chooses the path to a peer. The first HELLO is sent over every path that may work; the path over
//! which an authentic frame comes is used. When it breaks, another path is used.

use super::sys::Carries;
use super::{source, Outlet, PacketLink, Peer, Source};
use crate::ether::{
    speed, EtherAddr, EtherHead, EtherType, Interface, Interfaces, Mac, Path, TrainHead,
};
use crate::kind::Kind;
use crate::proof::Proof;
use crate::stripes::{Paths, Stripes};
use crate::PeerInfo;
use weft_core::{EndpointId, PeerId};

const NO_TRAIN: TrainHead =
    TrainHead { dst: Mac([0; 6]), src: Mac([0; 6]), slot: 0, each: 0, len: 0, padding: 0 };

/// Highest number of endpoints that are not peers yet and whose source is remembered.
const CALLERS_MAX: usize = 16;

impl PacketLink {
    /// Adds a peer; returns the Ethernet payload of the chosen path.
    pub(super) fn add_peer(&mut self, info: &PeerInfo) -> Result<u32, String> {
        self.check_interfaces();
        let ours: Vec<Interface> = self.ports.iter().map(|p| p.interface.clone()).collect();
        let like_us = |e: &EtherAddr| match self.carries {
            Carries::Packets(_) => e.is_packet().then_some(*e),
            Carries::Trains => e.of_trains(),
        };
        let theirs: Vec<_> = info.address.ether.iter().filter_map(like_us).collect();
        let paths = Path::find(&ours, &theirs)?;
        let called = self.callers.iter().rev().find(|(e, _)| *e == info.endpoint);
        let proven = called.and_then(|(_, from)| position(&paths, *from));
        let alive = |path: &Path| self.ports[path.ours].up;
        let Some(first) = proven.or_else(|| paths.iter().position(alive)) else {
            return Err("every interface towards the peer is down".into());
        };
        let known = Peer {
            proof: Proof::new(proven.is_some() || paths.len() == 1),
            stripes: Stripes::default(),
            at: first,
            source: 0,
            outlet: self.outlet(&paths[first]),
            paths,
        };
        self.peers.insert(info.peer, known);
        self.use_path(info.peer, first).ok_or_else(|| "no path".to_string())
    }

    /// True if one of a peer's paths leaves from an interface that is up.
    pub(super) fn usable(&self, peer: PeerId, at: usize) -> bool {
        let path = self.peer(peer).and_then(|p| p.paths.get(at));
        path.is_some_and(|p| self.ports[p.ours].up)
    }

    /// Makes the outlet of a path.
    pub(super) fn outlet(&self, path: &Path) -> Outlet {
        let interface = &self.ports[path.ours].interface;
        let (dst, src, slot) = (path.to.mac, interface.mac, path.to.slot);
        let kind = match self.carries {
            Carries::Packets(kind) => kind,
            Carries::Trains => EtherType::default(),
        };
        let head = EtherHead { dst, src, kind, slot, len: 0 }.encode();
        let train = TrainHead { dst, src, slot, ..NO_TRAIN };
        Outlet { port: path.ours, head, train, mtu: path.mtu.min(interface.mtu) }
    }

    /// Uses one of a peer's paths from now on; returns the Ethernet payload that it carries.
    pub(super) fn use_path(&mut self, peer: PeerId, at: usize) -> Option<u32> {
        let path = *self.peer(peer)?.paths.get(at)?;
        let outlet = self.outlet(&path);
        let known = self.peers.get_mut(peer)?;
        (known.at, known.outlet) = (at, outlet);
        known.source = source(path.ours, &path.to.mac.0);
        Some(outlet.mtu)
    }

    /// Sends the next frames over another of a peer's paths; with `None`, over the path in use
    /// again.
    pub(super) fn detour(&mut self, peer: PeerId, at: Option<usize>) -> Option<()> {
        let known = self.peer(peer)?;
        let outlet = self.outlet(known.paths.get(at.unwrap_or(known.at))?);
        self.peers.get_mut(peer)?.outlet = outlet;
        Some(())
    }

    pub(super) fn remember_source(&mut self, endpoint: EndpointId, from: Source) {
        self.callers.retain(|(e, _)| *e != endpoint);
        if self.callers.len() == CALLERS_MAX {
            self.callers.pop_front();
        }
        self.callers.push_back((endpoint, from));
    }

    /// Notes an authentic frame of a peer. If it came over a path of the peer's address, that path
    /// may be used. Answering any other source would let a replayed frame redirect the traffic.
    pub(super) fn came_from(&mut self, peer: PeerId, from: Source, kind: Kind) {
        let Some(known) = self.peer(peer) else { return };
        let Some(at) = position(&known.paths, from) else { return };
        let in_use = known.source == from;
        self.came_over(peer, at, in_use, kind);
    }

    /// Checks for reports of the kernel that interfaces changed.
    #[cold]
    pub(super) fn check_interfaces(&mut self) {
        if self.monitor.changed() {
            self.refresh_interfaces();
        }
    }

    /// Updates the state of all interfaces.
    #[cold]
    pub(super) fn refresh_interfaces(&mut self) {
        let Ok(all) = Interfaces::list() else { return };
        for at in 0..self.ports.len() {
            let now = all.0.iter().find(|i| i.index == self.ports[at].interface.index);
            self.refresh_port(at, now);
        }
    }

    fn refresh_port(&mut self, at: usize, now: Option<&Interface>) {
        let port = &mut self.ports[at];
        let name = port.interface.name.clone();
        let (was_up, old_mtu) = (port.up, port.interface.mtu);
        port.up = now.is_some_and(|i| i.usable().is_ok());
        if let Some(now) = now {
            port.interface.mtu = now.mtu;
        } else if !port.gone {
            port.gone = true;
            self.warn(format!("interface {name} is gone"));
        }
        let (up, mtu, gone) =
            (self.ports[at].up, self.ports[at].interface.mtu, self.ports[at].gone);
        if was_up && !up {
            self.ports[at].membership.socket.clear_error();
            if !gone {
                self.warn(format!("interface {name} is down"));
            }
            self.leave_port(at);
        }
        if !was_up && up {
            self.ports[at].membership.socket.clear_error();
            self.ports[at].speed = speed(name.as_bytes());
            self.warn(format!("interface {name} is up again"));
        }
        if mtu != old_mtu && up {
            self.warn(format!("the MTU of interface {name} changed from {old_mtu} to {mtu}"));
            if matches!(self.carries, Carries::Packets(_)) {
                self.tx.grow(mtu);
            }
            for peer in self.peers_on(at) {
                let path = self.peer(peer).map_or(0, |p| p.at);
                self.change(peer, path);
            }
        }
        if was_up != up || mtu != old_mtu {
            self.port_changed(at);
        }
    }

    fn peers_on(&self, port: usize) -> Vec<PeerId> {
        let mut all = self.peers.ids();
        all.retain(|&peer| self.peer(peer).is_some_and(|p| p.paths[p.at].ours == port));
        all
    }

    /// Moves every peer that is reached over this port to another path, if it has one; preferably
    /// to a path that is known to work.
    fn leave_port(&mut self, port: usize) {
        for peer in self.peers_on(port) {
            let Some(known) = self.peer(peer) else { continue };
            let usable = (0..known.paths.len()).filter(|&at| self.usable(peer, at));
            let Some(at) = usable.min_by_key(|&at| !known.stripes.is_proven(at)) else { continue };
            let proven = known.stripes.is_proven(at);
            self.change(peer, at);
            if let Some(known) = self.peers.get_mut(peer).filter(|_| !proven) {
                known.proof.doubt();
            }
        }
    }
}

fn position(paths: &[Path], from: Source) -> Option<usize> {
    paths.iter().position(|p| source(p.ours, &p.to.mac.0) == from)
}

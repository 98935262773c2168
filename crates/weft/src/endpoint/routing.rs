//! Ways to peers: connecting links, proving paths, moving to another when one is lost.

use super::driver::Driver;
use super::paths::{Path, Route, PATHS_MAX};
use arrayvec::ArrayVec;
use std::time::Duration;
use weft_core::{Instant, LinkCaps, PeerFailure, PeerId};
use weft_link::{Address, LinkEvent, PeerInfo};

/// Between two looks at paths that wait for the session to open.
const OPENING: Duration = Duration::from_millis(20);

impl Driver {
    /// Makes a peer of an address. The links are tried in order of preference; the reasons of those
    /// that refuse are returned when all do.
    pub fn connect(&mut self, address: &Address) -> Result<PeerId, Vec<(&'static str, String)>> {
        if let Some(peer) = self.core.engine.find_peer(address.endpoint) {
            return Ok(peer);
        }
        let caps = LinkCaps::network("none", 512);
        let Some(peer) = self.core.engine.add_peer(address.endpoint, caps) else {
            return Err(vec![("weft", "the peer table is full (WEFT_PEERS_MAX)".to_string())]);
        };
        self.route(peer, address, None).map(|()| peer)
    }

    /// Finds a link for a peer, trying `first` before the others.
    pub(super) fn route(
        &mut self,
        peer: PeerId,
        address: &Address,
        first: Option<usize>,
    ) -> Result<(), Vec<(&'static str, String)>> {
        let Some((endpoint, session, _)) = self.core.engine.peer_info(peer) else {
            return Err(Vec::new());
        };
        let info = PeerInfo { peer, session, endpoint, address: address.clone() };
        let mut reasons = Vec::new();
        let mut paths = ArrayVec::<Path, PATHS_MAX>::new();
        let order = first.into_iter().chain((0..self.links.len()).filter(|&i| Some(i) != first));
        for i in order {
            // Inside the host one path is enough; over networks, more than one is welcome.
            let network = self.core.caps[i].network;
            if paths.is_full() || !(network || paths.is_empty()) {
                continue;
            }
            match self.links[i].connect(&info) {
                Ok(caps) => {
                    paths.push(Path::new(i, caps));
                    self.used[i] += 1;
                    self.busy[i] = true;
                    self.has_polled_network |= network && caps.polled;
                    if !network {
                        break;
                    }
                }
                Err(error) => reasons.push((self.links[i].caps().name, error.to_string())),
            }
        }
        let Some(route) = Route::new(paths) else {
            self.core.engine.peer_failed(peer, PeerFailure::NoLink);
            return Err(reasons);
        };
        self.core.engine.set_path(peer, route.caps());
        let at = peer.0 as usize;
        if self.routes.len() <= at {
            self.routes.resize_with(at + 1, || None);
            self.addresses.resize(at + 1, None);
        }
        if route.has_choice() {
            self.unproven.push(peer);
            self.ask_at = self.core.now;
        }
        self.routes[at] = Some(route);
        self.addresses[at] = Some(info.address);
        Ok(())
    }

    /// Forgets the ways to a peer.
    pub(super) fn unroute(&mut self, peer: PeerId) {
        let Some(slot) = self.routes.get_mut(peer.0 as usize) else { return };
        let Some(route) = slot.take() else { return };
        for link in route.links() {
            self.links[link].disconnect(peer);
            self.used[link] -= 1;
            self.busy[link] = self.used[link] > 0;
        }
    }

    /// Link index of a peer, for all but data.
    #[inline]
    pub fn link_of(&self, peer: PeerId) -> Option<usize> {
        Some(usize::from(self.routes.get(peer.0 as usize)?.as_ref()?.small))
    }

    /// A HELLO came from a peer.
    pub(super) fn on_hello(&mut self, peer: PeerId, link: usize, answer: bool) {
        let now = self.core.now;
        let Some(Some(route)) = self.routes.get_mut(peer.0 as usize) else { return };
        if !answer {
            route.asked_over(link);
        } else if route.has_choice() && route.answered(link, now) {
            log::debug!("{}", self.describe(peer));
        }
    }

    /// Asks over paths that are not proven, as their time comes.
    #[cold]
    pub(super) fn ask_unproven(&mut self) {
        let now = self.core.now;
        let mut next = Instant::FAR;
        for peer in std::mem::take(&mut self.unproven) {
            let Some(Some(route)) = self.routes.get_mut(peer.0 as usize) else { continue };
            if self.core.engine.peer_ready(peer) {
                let due = route.ask_due(now);
                self.ask(peer, &due);
            }
            let Some(Some(route)) = self.routes.get(peer.0 as usize) else { continue };
            // While the session opens, HELLOs go over every path anyway.
            let at = route.ask_at().map(|at| at.max(now + OPENING));
            if let Some(at) = at {
                next = next.min(at);
                self.unproven.push(peer);
            }
        }
        self.ask_at = next;
    }

    fn ask(&mut self, peer: PeerId, links: &[usize]) {
        let Some(question) = self.core.engine.question(peer) else { return };
        for &link in links {
            self.hello_over(link, &question);
        }
    }

    /// Packets to a peer stay unacknowledged: is it the peer, or the path?
    #[cold]
    pub(super) fn on_stalled(&mut self, peer: PeerId, times: u32) {
        let now = self.core.now;
        let Some(Some(route)) = self.routes.get_mut(peer.0 as usize) else { return };
        if !route.has_choice() {
            return;
        }
        if times > 2 && route.judge(now) {
            self.core.engine.path_changed(now, peer);
            log::warn!("a path is lost; going on: {}", self.describe(peer));
            if !self.unproven.contains(&peer) {
                self.unproven.push(peer);
            }
            self.ask_at = now + OPENING;
            return;
        }
        let links = route.ask_all(now);
        self.ask(peer, &links);
    }

    pub(super) fn link_event(&mut self, link: usize, event: LinkEvent) {
        match event {
            LinkEvent::PeerGone(peer) if self.link_of(peer) == Some(link) => {
                self.core.engine.peer_failed(peer, PeerFailure::Gone);
            }
            LinkEvent::PeerRefused(peer) if self.link_of(peer) == Some(link) => {
                self.core.engine.peer_failed(peer, PeerFailure::Refused);
            }
            LinkEvent::Mtu(peer, mtu) => {
                if let Some(Some(route)) = self.routes.get_mut(peer.0 as usize) {
                    let mtu = route.set_mtu(link, mtu);
                    self.core.engine.set_mtu(peer, mtu);
                }
            }
            LinkEvent::Warning(text) => log::warn!("{}: {text}", self.links[link].caps().name),
            _ => {}
        }
    }

    pub(super) fn report_failure(&self, peer: PeerId, failure: PeerFailure) {
        let what = self.describe(peer);
        match failure {
            PeerFailure::Closed => log::debug!("{what}: {failure}"),
            _ => log::warn!("{what} failed: {failure}"),
        }
    }

    /// A peer with its endpoint, link and address, for messages to people.
    pub fn describe(&self, peer: PeerId) -> String {
        let name = |link: u8| self.links[usize::from(link)].caps().name;
        let link = match self.routes.get(peer.0 as usize).and_then(Option::as_ref) {
            None => "no link".to_string(),
            Some(r) if r.small == r.bulk => name(r.small).to_string(),
            Some(r) => format!("{}, data over {}", name(r.small), name(r.bulk)),
        };
        match self.addresses.get(peer.0 as usize).and_then(Option::as_ref) {
            Some(address) => format!("{peer} ({address}) over {link}"),
            None => format!("{peer} over {link}"),
        }
    }
}

//! Routes to peers: connecting links, proving paths, moving to another path when one is lost.

use super::paths::{Path, Route, PATHS_MAX};
use super::Reactor;
use crate::calibration::Calibration;
use arrayvec::ArrayVec;
use std::time::Duration;
use weft_core::{Instant, LinkCaps, PeerFailure, PeerId, Pulse};
use weft_launch::ends::End;
use weft_link::{gone, Address, LinkError, LinkEvent, PeerInfo};

/// Interval between checks of paths that wait for the session to open.
const OPENING: Duration = Duration::from_millis(20);

/// Time between two looks for the launcher's word on a rank whose sockets are gone, and the most
/// looks.
const WORD: Duration = Duration::from_millis(1);
const WORDS: u32 = 500;

/// Returns the capabilities of a route for the engine, with the switch-over from eager to
/// rendezvous.
fn together(
    route: &Route,
    calibration: &Calibration,
    name: impl Fn(u8) -> &'static str,
) -> LinkCaps {
    let mut caps = route.caps();
    caps.eager_max = calibration.eager_max(name(route.small), name(route.bulk));
    caps
}

/// The choice among several links to a peer.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Index of the link of small packets.
    pub small: usize,
    /// Index of the link of data.
    pub data: usize,
    /// The capabilities by which protocols are chosen.
    pub caps: LinkCaps,
}

/// Returns an endpoint's choice for a peer reached over links of these capabilities, of which it
/// uses the first four. `None` without a link.
pub fn choice(links: &[LinkCaps], calibration: &Calibration) -> Option<Choice> {
    let path = |(i, caps): (usize, &LinkCaps)| Path::new(i, calibration.apply(*caps));
    let route = Route::new(links.iter().enumerate().take(PATHS_MAX).map(path).collect())?;
    let caps = together(&route, calibration, |i| links[usize::from(i)].name);
    Some(Choice { small: route.small.into(), data: route.bulk.into(), caps })
}

/// The reason why no path leads to a peer.
enum Unrouted {
    /// Its process has ended.
    Ended,
    /// All links refused, each for a reason.
    Refused(Vec<(&'static str, String)>),
}

impl Reactor {
    /// Makes a peer of an address. The links are tried in order of preference; if all refuse, their
    /// reasons are returned. If its process has ended, it is a peer that has failed.
    pub fn connect(&mut self, address: &Address) -> Result<PeerId, Vec<(&'static str, String)>> {
        self.leave_if_copied();
        if let Some(peer) = self.receiver.engine.peers().find(address.endpoint) {
            return Ok(peer);
        }
        let caps = LinkCaps::network("none", 512);
        self.receiver.engine.introduce(address.endpoint, address.rank);
        let Some(peer) = self.receiver.engine.add_peer(address.endpoint, caps) else {
            return Err(vec![("weft", "the peer table is full (WEFT_PEERS_MAX)".to_string())]);
        };
        if let Some(end) = self.end_of_rank(address.rank) {
            self.name_by_address(peer, address);
            self.fail_unreached(peer, Some(end));
            return Ok(peer);
        }
        match self.route(peer, address, 0..self.links.len()) {
            Ok(()) => Ok(peer),
            // The endpoint at this address was a peer: operations with it fail, and say how it
            // ended.
            Err(Unrouted::Ended) => {
                self.name_by_address(peer, address);
                self.end_unreached(peer, address.rank);
                Ok(peer)
            }
            Err(Unrouted::Refused(reasons)) => {
                self.unreached(peer, &reasons);
                Err(reasons)
            }
        }
    }

    /// Returns the end of a rank, if the launcher has told it.
    fn end_of_rank(&self, rank: Option<u32>) -> Option<End> {
        self.known.ends.as_ref()?.of(rank?)
    }

    /// Returns the end of a rank whose sockets are gone. The launcher may tell it a moment later
    /// than they vanish, and without its word a rank that left in good order looks like one that
    /// died. Waits for that word, once for a peer that has ended, and a bounded time.
    #[cold]
    fn end_of_gone_rank(&self, rank: Option<u32>) -> Option<End> {
        self.known.ends.as_ref()?;
        (0..WORDS).find_map(|look| {
            if look > 0 {
                std::thread::sleep(WORD);
            }
            self.end_of_rank(rank)
        })
    }

    /// Fails a peer that ended before it was reached.
    fn end_unreached(&mut self, peer: PeerId, rank: Option<u32>) {
        let end = self.end_of_gone_rank(rank);
        self.fail_unreached(peer, end);
    }

    /// Names a peer whose address is not kept, since no link reaches it, by its rank.
    fn name_by_address(&mut self, peer: PeerId, address: &Address) {
        if let Some(rank) = address.rank {
            let name = || format!("rank {rank} ({address})");
            self.known.names.entry(peer).or_insert_with(name);
        }
    }

    fn fail_unreached(&mut self, peer: PeerId, end: Option<End>) {
        self.known.lost.insert(peer, String::new());
        self.fail_ended(peer, end);
    }

    /// Fails a peer whose end is known from elsewhere than a link.
    fn fail_ended(&mut self, peer: PeerId, end: Option<End>) {
        end.into_iter().for_each(|end| _ = self.known.how.insert(peer, end.to_string()));
        let failure = match end {
            Some(End::Left | End::Status(0)) => PeerFailure::Closed,
            _ => PeerFailure::Gone,
        };
        self.receiver.engine.peer_mut(peer).handle_failure(failure);
    }

    /// Fails a peer that no link reaches, for these reasons.
    fn unreached(&mut self, peer: PeerId, reasons: &[(&'static str, String)]) {
        let each: Vec<String> =
            reasons.iter().map(|(link, why)| format!("{link}: {why}")).collect();
        self.known.lost.insert(peer, format!("no link ({})", each.join("; ")));
        self.receiver.engine.peer_mut(peer).handle_failure(PeerFailure::NoLink);
    }

    /// Handles a HELLO over `link` from a peer to which this endpoint has no route, or no route by
    /// memory while the peer has one.
    pub(super) fn route_back(&mut self, peer: PeerId, address: &Address, link: usize) {
        let network = |link: usize| self.receiver.arriving.caps[link].network;
        match self.link_of(peer) {
            Some(now) if network(link) || !network(now) => return,
            Some(_) => self.unroute(peer),
            None => {}
        }
        let others = (0..self.links.len()).filter(|&other| other != link);
        match self.route(peer, address, std::iter::once(link).chain(others)) {
            Ok(()) => {}
            Err(Unrouted::Ended) => self.end_unreached(peer, address.rank),
            Err(Unrouted::Refused(reasons)) => {
                self.unreached(peer, &reasons);
                weft_link::warn!(
                    "{}: no way back to {peer}: {reasons:?}",
                    self.receiver.engine.id()
                );
            }
        }
    }

    /// Handles a peer's refusal of our connection. Only HELLO was sent so far, so another link may
    /// serve.
    fn on_refused(&mut self, peer: PeerId, link: usize, why: String) {
        let address = self.known.address_of(peer).cloned();
        let ready = self.receiver.engine.peer(peer).is_ready();
        if let Some(address) = address.filter(|_| !ready) {
            let what = self.describe(peer);
            self.unroute(peer);
            let others = (0..self.links.len()).filter(|&other| other != link);
            if self.route(peer, &address, others).is_ok() {
                let now = self.describe(peer);
                weft_link::warn!("{what} refused the connection (it says: {why}); going on: {now}");
                self.receiver.engine.peer_mut(peer).handle_path_change(self.receiver.time.now);
                return;
            }
        }
        self.known.how.insert(peer, format!("it says: {why}"));
        self.receiver.engine.peer_mut(peer).handle_failure(PeerFailure::Refused);
    }

    /// Finds a link for a peer among `links`, in this order.
    fn route(
        &mut self,
        peer: PeerId,
        address: &Address,
        links: impl Iterator<Item = usize>,
    ) -> Result<(), Unrouted> {
        let Some((endpoint, session, _)) = self.receiver.engine.peer(peer).info() else {
            return Err(Unrouted::Refused(Vec::new()));
        };
        let info = PeerInfo { peer, session, endpoint, address: address.clone() };
        let mut reasons = Vec::new();
        let mut paths = ArrayVec::<Path, PATHS_MAX>::new();
        for i in links {
            // Inside the host one path is enough; over networks several are useful.
            let network = self.receiver.arriving.caps[i].network;
            if paths.is_full() || !(network || paths.is_empty()) {
                continue;
            }
            match self.links[i].connect(&info) {
                Ok(caps) => {
                    paths.push(Path::new(i, self.paths.calibration.apply(caps)));
                    self.paths.used[i] += 1;
                    if !network {
                        break;
                    }
                }
                Err(LinkError::Ended) => return Err(Unrouted::Ended),
                Err(error) => reasons.push((self.links[i].caps().name, error.to_string())),
            }
        }
        let Some(route) = Route::new(paths) else { return Err(Unrouted::Refused(reasons)) };
        let name = |link: u8| self.links[usize::from(link)].caps().name;
        let caps = together(&route, &self.paths.calibration, name);
        self.receiver.engine.peer_mut(peer).set_path(caps);
        let at = peer.0 as usize;
        if self.paths.routes.len() <= at {
            self.paths.routes.resize_with(at + 1, || None);
            self.known.addresses.resize(at + 1, None);
        }
        if route.has_choice() {
            self.paths.unproven.push(peer);
            self.paths.ask_at = self.receiver.time.now;
        }
        self.paths.routes[at] = Some(route);
        self.known.addresses[at] = Some(info.address);
        self.note_use();
        Ok(())
    }

    /// Updates the links in use, which may have changed.
    fn note_use(&mut self) {
        self.polling.stale = true;
        for (busy, &used) in self.polling.busy.iter_mut().zip(&self.paths.used) {
            *busy = used > 0;
        }
        let mut in_use =
            self.receiver.arriving.caps.iter().zip(&self.polling.busy).filter(|(_, &busy)| busy);
        self.polling.has_polled_network = in_use.any(|(caps, _)| caps.network && caps.polled);
    }

    /// Forgets the paths to a peer.
    pub(super) fn unroute(&mut self, peer: PeerId) {
        let Some(slot) = self.paths.routes.get_mut(peer.0 as usize) else { return };
        let Some(route) = slot.take() else { return };
        self.known.lost.insert(peer, self.paths_text(peer, &route));
        for link in route.links() {
            self.links[link].disconnect(peer);
            self.paths.used[link] -= 1;
        }
        self.note_use();
    }

    /// Returns the index of a peer's link for all but data.
    #[inline]
    pub fn link_of(&self, peer: PeerId) -> Option<usize> {
        Some(usize::from(self.paths.routes.get(peer.0 as usize)?.as_ref()?.small))
    }

    fn caps_of(&self, peer: PeerId) -> Option<&LinkCaps> {
        self.link_of(peer).map(|link| &self.receiver.arriving.caps[link])
    }

    /// True if a peer is reached through the agent.
    pub fn is_served(&self, peer: PeerId) -> bool {
        self.caps_of(peer).is_some_and(|caps| caps.name == "agent")
    }

    /// True if a peer is reached without any agent, through memory.
    pub fn is_past_agent(&self, peer: PeerId) -> bool {
        self.caps_of(peer).is_some_and(|caps| caps.reliable && caps.name != "agent")
    }

    /// Handles a HELLO from a peer.
    pub(super) fn on_hello(&mut self, peer: PeerId, link: usize, answer: bool) {
        let now = self.receiver.time.now;
        if answer {
            self.note_told(peer);
        }
        let Some(Some(route)) = self.paths.routes.get_mut(peer.0 as usize) else { return };
        if !answer {
            route.asked_over(link);
        } else {
            if route.has_choice() && route.answered(link, now) {
                self.set_bulk(peer);
                log::debug!("{}", self.describe(peer));
            }
            self.ask_rest_later(peer, link, false);
        }
    }

    /// Asks the peer later over interfaces of a link that gave no answer, if there are any: a path
    /// that becomes possible shares bulk data then. It is asked soon if a path was lost.
    fn ask_rest_later(&mut self, peer: PeerId, link: usize, soon: bool) {
        let network = self.links[link].network();
        if !network.is_some_and(|network| network.has_unanswered(peer)) {
            return;
        }
        let Some(Some(route)) = self.paths.routes.get_mut(peer.0 as usize) else { return };
        route.ask_rest_later(link, self.receiver.time.now, soon);
        self.paths.ask_at = self.paths.ask_at.min(route.ask_at().unwrap_or(Instant::FAR));
        if !self.paths.unproven.contains(&peer) {
            self.paths.unproven.push(peer);
        }
    }

    /// Tells the engine the link of bulk data.
    pub(super) fn set_bulk(&mut self, peer: PeerId) {
        if let Some(Some(route)) = self.paths.routes.get(peer.0 as usize) {
            self.receiver.engine.peer_mut(peer).set_bulk(route.caps());
        }
    }

    /// Sends due questions over unproven paths.
    #[cold]
    pub(super) fn ask_unproven(&mut self) {
        let now = self.receiver.time.now;
        let mut next = Instant::FAR;
        for peer in std::mem::take(&mut self.paths.unproven) {
            let Some(Some(route)) = self.paths.routes.get_mut(peer.0 as usize) else { continue };
            if self.receiver.engine.peer(peer).is_ready() {
                let due = route.ask_due(now);
                let links = &mut self.links;
                let rest = route.rest_due(now, |link| {
                    links[link].network().is_some_and(|network| network.has_unanswered(peer))
                });
                for link in rest {
                    let network = self.links[link].network();
                    network.into_iter().for_each(|network| network.ask_unanswered(peer));
                }
                self.ask(peer, &due);
            }
            let Some(Some(route)) = self.paths.routes.get(peer.0 as usize) else { continue };
            // While the session opens, HELLOs go over every path already.
            let at = route.ask_at().map(|at| at.max(now + OPENING));
            if let Some(at) = at {
                next = next.min(at);
                self.paths.unproven.push(peer);
            }
        }
        self.paths.ask_at = next;
    }

    fn ask(&mut self, peer: PeerId, links: &[usize]) {
        let Some(question) = self.receiver.engine.peer(peer).question() else { return };
        for &link in links {
            self.hello_over(link, &question);
        }
    }

    /// Handles a stall, in which packets to a peer stay unacknowledged: asks all paths, to learn if
    /// the peer or a path has failed.
    #[cold]
    pub(super) fn on_stalled(&mut self, peer: PeerId, times: u32) {
        let now = self.receiver.time.now;
        let Some(Some(route)) = self.paths.routes.get_mut(peer.0 as usize) else { return };
        if times > 2 && route.judge(now) {
            self.receiver.engine.peer_mut(peer).handle_path_change(now);
            self.set_bulk(peer);
            weft_link::warn!("a path is lost; going on: {}", self.describe(peer));
            if !self.paths.unproven.contains(&peer) {
                self.paths.unproven.push(peer);
            }
            self.paths.ask_at = now + OPENING;
            return;
        }
        let links = route.ask_all(now);
        for &link in &links {
            self.links[link].network().into_iter().for_each(|network| network.doubt(peer));
        }
        self.ask(peer, &links);
    }

    /// Checks the process of a peer that is silent: by its link, if that sees it, else by all that
    /// the launcher and this host tell of it.
    #[cold]
    pub(super) fn on_silent(&mut self, peer: PeerId) {
        let Some(link) = self.link_of(peer) else { return };
        if self.links[link].caps().sees_end {
            let processes = self.links[link].processes();
            let pulse = processes.map_or(Pulse::Unseen, |processes| processes.pulse(peer));
            return self.receiver.engine.peer_mut(peer).handle_pulse(self.receiver.time.now, pulse);
        }
        let address = self.known.address_of(peer);
        let Some(address) = address else { return };
        let rank = address.rank;
        let end = self.end_of_rank(rank);
        if end.is_some() {
            self.fail_ended(peer, end);
        } else if gone::is_gone(address, self.known.address.host) {
            self.fail_ended(peer, self.end_of_gone_rank(rank));
        }
    }

    /// Handles the end of a peer's connection over memory, without a goodbye. One that has not
    /// answered yet may have left before it saw this endpoint.
    fn on_gone(&mut self, peer: PeerId) {
        let address = self.known.address_of(peer);
        let rank = address.and_then(|address| address.rank);
        if !self.receiver.engine.peer(peer).is_ready() {
            return self.fail_ended(peer, self.end_of_gone_rank(rank));
        }
        let end = self.end_of_rank(rank).filter(|end| *end != End::Left);
        end.into_iter().for_each(|end| _ = self.known.how.insert(peer, end.to_string()));
        self.receiver.engine.peer_mut(peer).handle_failure(PeerFailure::Gone);
    }

    pub(super) fn link_event(&mut self, link: usize, event: LinkEvent) {
        match event {
            LinkEvent::PeerGone(peer) if self.link_of(peer) == Some(link) => {
                self.on_gone(peer);
            }
            LinkEvent::AgentGone(peer) if self.link_of(peer) == Some(link) => {
                self.receiver.engine.peer_mut(peer).handle_failure(PeerFailure::AgentGone);
            }
            LinkEvent::PeerFailed(peer, failure) if self.link_of(peer) == Some(link) => {
                self.receiver.engine.peer_mut(peer).handle_failure(failure);
            }
            LinkEvent::PeerRefused(peer, why) if self.link_of(peer) == Some(link) => {
                self.on_refused(peer, link, why);
            }
            LinkEvent::Mtu(peer, mtu) => {
                if let Some(Some(route)) = self.paths.routes.get_mut(peer.0 as usize) {
                    let before = route.caps().mtu;
                    let mtu = route.set_mtu(self.receiver.time.now, link, mtu);
                    self.receiver.engine.peer_mut(peer).set_mtu(mtu);
                    self.set_bulk(peer);
                    self.search(peer);
                    // Not over a network, whose interface gives its own MTU.
                    if !self.receiver.arriving.caps[link].network {
                        self.log_agents_length(peer, before, mtu);
                    }
                }
            }
            // Packets that waited with it may go.
            LinkEvent::Held(peer, held) => {
                let holds = held && self.link_of(peer) == Some(link);
                self.receiver.engine.peer_mut(peer).hold(holds);
                self.receiver.engine.links().handle_unblocked();
            }
            LinkEvent::Stripes(peer, stripes) => {
                if let Some(Some(route)) = self.paths.routes.get_mut(peer.0 as usize) {
                    route.set_stripes(link, stripes);
                    self.set_bulk(peer);
                    self.ask_rest_later(peer, link, true);
                }
            }
            LinkEvent::Warning(text) => {
                weft_link::warn!("{}: {text}", self.links[link].caps().name)
            }
            _ => {}
        }
    }

    pub(super) fn report_failure(&self, peer: PeerId, failure: PeerFailure) {
        match failure {
            PeerFailure::Closed | PeerFailure::Copied => {
                log::debug!("{}: {failure}", self.describe(peer))
            }
            _ => weft_link::warn!("{}", self.explain(peer, failure)),
        }
    }

    /// Logs that a peer has so many unexpected messages here that there is no room for more.
    #[cold]
    pub(super) fn report_full(&self, peer: PeerId, messages: u64, bytes: u64) {
        let config = self.receiver.engine.config();
        let me = config.rank.map_or("this endpoint".into(), |rank| format!("rank {rank}"));
        weft_link::warn!(
            "{me} has no room for more messages from {}: no receive takes the {messages} of \
             {bytes} bytes that wait, and what is sent behind them waits there \
             (WEFT_UNEXPECTED_MAX={})",
            self.describe(peer),
            config.unexpected_max
        );
    }

    /// Returns the text of a failure: its object, its cause, and what to do.
    pub fn explain(&self, peer: PeerId, failure: PeerFailure) -> String {
        let how = self.known.how.get(&peer).map_or(String::new(), |how| format!(": {how}"));
        let text = format!("{} failed: {failure}{how}", self.describe(peer));
        match failure.advice() {
            "" => text,
            advice => format!("{text} ({advice})"),
        }
    }

    /// Returns a peer with its links, interfaces and addresses, for messages to people; for a
    /// failed peer, those that it had.
    pub fn describe(&self, peer: PeerId) -> String {
        let path_text = match self.paths.routes.get(peer.0 as usize).and_then(Option::as_ref) {
            Some(route) => self.paths_text(peer, route),
            None => self.known.lost.get(&peer).map_or("no link", String::as_str).to_string(),
        };
        let over = if path_text.is_empty() { path_text } else { format!(" over {path_text}") };
        if let Some(name) = self.known.names.get(&peer) {
            return format!("{name}{over}");
        }
        match self.known.address_of(peer) {
            // The number of the peer here is no rank of the job.
            Some(address) => match address.rank {
                Some(rank) => format!("rank {rank} ({address}){over}"),
                None => format!("{peer} ({address}){over}"),
            },
            None => format!("{peer}{over}"),
        }
    }

    fn paths_text(&self, peer: PeerId, route: &Route) -> String {
        let path_text = |link: u8| {
            let link = &self.links[usize::from(link)];
            match (link.caps().name, link.path_text(peer)) {
                (name, path_text) if path_text.is_empty() => name.to_string(),
                (name, path_text) => format!("{name} ({path_text})"),
            }
        };
        match route.small == route.bulk {
            true => path_text(route.small),
            false => format!("{}, data over {}", path_text(route.small), path_text(route.bulk)),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::calibration::{LinkFigures, Switch};
    use weft_core::transfer::select::eager_max;
    use weft_core::Config;
    use weft_launch::ends::Ends;
    use weft_link::{Frame, Link, Sink, WaitFd};

    #[test]
    fn end_unreached__the_word_of_the_launcher_is_awaited() {
        let shm = crate::Links::parse("shm").unwrap();
        let open = |rank| {
            let config = Config { rank: Some(rank), ..Config::default() };
            crate::job::open_endpoint(config, shm, [7; 32]).unwrap()
        };
        let here = open(0);
        let path = std::env::temp_dir().join(format!("weft-word-{:x}", weft_link::random_u64()));
        let mut options = std::fs::File::options();
        let file = options.create_new(true).read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        here.told_of(Some(Ends::of_file(file.try_clone().unwrap())));
        let left = open(1).address();
        // Late, as a launcher with much to do is.
        let word = std::thread::spawn(move || {
            // tidy-allow(sleep): it is the launcher's lateness, for which nothing else waits.
            std::thread::sleep(20 * WORD);
            weft_launch::ends::record(&file, 1, End::Left).unwrap();
        });
        let peer = here.connect(&left).unwrap();
        word.join().unwrap();
        assert_eq!(here.peer(peer).failure(), Some(PeerFailure::Closed));
        let text = here.explain(weft_core::OpError::Peer { peer, failure: PeerFailure::Closed });
        assert!(text.contains("it left the job"), "{text}");
        assert!(text.starts_with("rank 1 ("), "no name was told: {text}");
    }

    fn figures(link: &str, latency_ns: u32, rate: u32) -> LinkFigures {
        LinkFigures {
            link: link.into(),
            latency_ns,
            bytes_per_us: rate,
            small_bytes_per_us: rate,
            ..LinkFigures::default()
        }
    }

    #[test]
    fn choice__follows_what_was_measured() {
        let mut raw = LinkCaps::network("packet", 1480);
        (raw.latency_ns, raw.bytes_per_us, raw.small_bytes_per_us) = (2_500, 600, 600);
        let links = [raw, LinkCaps::network("udp", 1456)];
        let mut measured = Calibration::default();
        let by_estimate = choice(&links, &measured).unwrap();
        assert_eq!((by_estimate.small, by_estimate.data), (0, 1));
        assert_eq!(by_estimate.caps.eager_max, 0);

        measured.links = vec![figures("packet", 9_000, 4_000), figures("udp", 4_000, 900)];
        let chosen = choice(&links, &measured).unwrap();
        assert_eq!((chosen.small, chosen.data), (1, 0));
        let (small, data) = ("udp".to_string(), "packet".to_string());
        let bytes = 16 << 10;
        let config = Config::default();
        assert_ne!(eager_max(&config, &chosen.caps), bytes);
        measured.switches.push(Switch { small, data, eager_max: bytes });
        let chosen = choice(&links, &measured).unwrap();
        assert_eq!(eager_max(&config, &chosen.caps), bytes);
    }

    #[test]
    fn choice__none_without_a_link() {
        assert!(choice(&[], &Calibration::default()).is_none());
    }

    /// A link that reaches some peers, and carries no packets.
    struct Fake {
        caps: LinkCaps,
        reaches: u64,
    }

    impl Link for Fake {
        fn caps(&self) -> LinkCaps {
            self.caps
        }
        fn advertise(&self, _: &mut Address) {}
        fn connect(&mut self, peer: &PeerInfo) -> Result<LinkCaps, LinkError> {
            match peer.endpoint.0 <= self.reaches {
                true => Ok(self.caps),
                false => Err(LinkError::Unsupported),
            }
        }
        fn disconnect(&mut self, _: PeerId) {}
        fn send(&mut self, frames: &[Frame<'_>]) -> usize {
            frames.len()
        }
        fn recv(&mut self, _: usize, _: &mut dyn Sink) -> usize {
            0
        }
        fn wait_fds(&self, _: &mut Vec<WaitFd>) {}
    }

    /// Returns a reactor with such links, and three peers.
    fn with_links(links: [(LinkCaps, u64); 2]) -> (Reactor, [PeerId; 3]) {
        let links = links.map(|(caps, reaches)| Box::new(Fake { caps, reaches }) as Box<dyn Link>);
        let (id, clock) = (weft_core::EndpointId(9), crate::Clock::system());
        let mut reactor = Reactor::new(Config::default(), id, clock, links.into());
        let peers = [1, 2, 3].map(|id| {
            let endpoint = weft_core::EndpointId(id);
            reactor.connect(&Address { endpoint, ..Address::default() }).unwrap()
        });
        (reactor, peers)
    }

    #[test]
    fn is_polled__a_silent_network_only_while_the_others_are_silent_too() {
        let links = ["udp", "tcp"].map(|name| (LinkCaps::network(name, 1456), 3));
        let (mut reactor, _) = with_links(links);
        reactor.choose_close();
        assert!(reactor.is_polled(0) && reactor.is_polled(1));
        reactor.polling.quiet[1] = u32::MAX;
        reactor.choose_close();
        assert!(reactor.is_polled(0) && !reactor.is_polled(1), "packets come over udp");
        reactor.polling.quiet[0] = u32::MAX;
        reactor.choose_close();
        assert!(reactor.is_polled(0) && reactor.is_polled(1));
    }

    #[test]
    fn unroute__the_last_peer_of_a_polled_network_frees_the_others_from_it() {
        let mut raw = LinkCaps::network("packet", 1480);
        raw.polled = true;
        let (mut reactor, [one, two, _]) =
            with_links([(raw, 2), (LinkCaps::network("udp", 1456), 3)]);
        assert!(reactor.polling.has_polled_network);
        reactor.unroute(one);
        assert!(reactor.polling.has_polled_network, "another is still there");
        reactor.unroute(two);
        assert!(!reactor.polling.has_polled_network);
    }
}

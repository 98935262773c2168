//! Path MTU discovery: doubts, probes, and the use of their answers; and packets that arrive in
//! pieces, since they were too long.

use super::Reactor;
use weft_core::{Instant, PeerId};
use weft_link::pieces::Pieces;
use weft_link::Frame;

/// Bytes of a packet that every path carries: the least MTU of IPv6 (RFC 8200, section 5), less
/// headers.
const EVERY_PATH: u32 = 1180;

/// The state of path MTU discovery.
pub(crate) struct PathLengths {
    /// Answers to probes: peer, number of the probe, length.
    news: Vec<(PeerId, u32, u32)>,
    /// The padding of probes.
    padding: Vec<u8>,
    /// Packets of which some pieces have arrived.
    pub pieces: Pieces,
    /// Peers with a path whose MTU is being searched, and the time of the next step.
    searching: Vec<PeerId>,
    pub at: Instant,
}

impl Default for PathLengths {
    fn default() -> PathLengths {
        let (news, padding, searching) = (Vec::new(), Vec::new(), Vec::new());
        PathLengths { news, padding, pieces: Pieces::default(), searching, at: Instant::FAR }
    }
}

impl PathLengths {
    /// Records an answer.
    pub fn note(&mut self, answer: (PeerId, u32, u32)) {
        self.news.push(answer);
    }

    /// True if answers have arrived.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.news.is_empty()
    }

    /// Returns `len` zero bytes, at most as many as [`pad`](Self::pad) has prepared.
    pub fn padding(&self, len: u32) -> &[u8] {
        self.padding.get(..len as usize).unwrap_or_default()
    }

    fn pad(&mut self, len: u32) {
        if self.padding.len() < len as usize {
            self.padding.resize(len as usize, 0);
        }
    }

    /// Forgets the pieces of a peer.
    pub fn forget(&mut self, peer: PeerId) {
        self.pieces.forget(peer);
    }
}

impl Reactor {
    /// Handles a packet that is retransmitted in vain. To a peer that is `heard` it is too long, or
    /// of a kind that the network drops; else the peer may be absent.
    #[cold]
    pub(super) fn on_stuck(
        &mut self,
        peer: PeerId,
        since: Instant,
        (bulk, len): (bool, u32),
        heard: bool,
    ) {
        let now = self.receiver.time.now;
        let Some(Some(route)) = self.paths.routes.get_mut(peer.0 as usize) else { return };
        let link = route.link_for(bulk, len);
        if route.suspect((now, since), link, len, heard) {
            self.receiver.engine.peer_mut(peer).handle_path_change(now);
            self.set_bulk(peer);
            weft_link::warn!(
                "packets of {len} bytes do not get through, though others do; going on: {}",
                self.describe(peer)
            );
            if !self.paths.unproven.contains(&peer) {
                self.paths.unproven.push(peer);
            }
            self.paths.ask_at = now;
            return;
        }
        self.search(peer);
    }

    /// Continues the search for the MTU to a peer, if there is one.
    pub(super) fn search(&mut self, peer: PeerId) {
        let Some(Some(route)) = self.paths.routes.get(peer.0 as usize) else { return };
        let Some(at) = route.probe_at() else { return };
        self.receiver.due.lengths.at = self.receiver.due.lengths.at.min(at);
        if !self.receiver.due.lengths.searching.contains(&peer) {
            self.receiver.due.lengths.searching.push(peer);
        }
    }

    /// Sends due questions over unproven paths and due probes of packet lengths. True if there was
    /// one.
    #[inline]
    pub(super) fn ask_due(&mut self) -> bool {
        let now = self.receiver.time.now;
        let due = self.paths.ask_at.min(self.receiver.due.lengths.at) <= now;
        if self.paths.ask_at <= now {
            self.ask_unproven();
        }
        if self.receiver.due.lengths.at <= now {
            self.ask_sizes();
        }
        due
    }

    #[cold]
    fn ask_sizes(&mut self) {
        let now = self.receiver.time.now;
        self.receiver.due.lengths.at = Instant::FAR;
        for peer in std::mem::take(&mut self.receiver.due.lengths.searching) {
            let Some(Some(route)) = self.paths.routes.get_mut(peer.0 as usize) else { continue };
            let mut probes = Vec::new();
            while let Some(probe) = route.next_probe(now) {
                probes.push(probe);
            }
            for (link, number, size) in probes {
                self.ask_size(peer, link, number, size);
            }
            self.note_lengths(peer);
            self.search(peer);
        }
    }

    fn ask_size(&mut self, peer: PeerId, link: usize, number: u32, size: u32) {
        let Some(t) = self.receiver.engine.peer_mut(peer).ask_size(number, size) else { return };
        self.receiver.due.lengths.pad(size);
        let payload = self.receiver.resolve(&t.payload, &self.known.encoded);
        let frame = Frame { peer, header: t.header.as_slice(), payload };
        // A probe that finds no room counts as lost.
        self.links[link].send(&[frame]);
    }

    /// Handles arrived answers.
    pub(super) fn take_lengths(&mut self) {
        while let Some((peer, number, size)) = self.receiver.due.lengths.news.pop() {
            self.on_probed(peer, number, size);
        }
    }

    /// Records that a packet of this length reached a peer.
    fn on_probed(&mut self, peer: PeerId, number: u32, size: u32) {
        let now = self.receiver.time.now;
        let Some(Some(route)) = self.paths.routes.get_mut(peer.0 as usize) else { return };
        route.probed(now, number, size);
        self.note_lengths(peer);
        self.search(peer);
    }

    /// Applies the known MTU to a peer, if it has changed.
    fn note_lengths(&mut self, peer: PeerId) {
        let Some(Some(route)) = self.paths.routes.get_mut(peer.0 as usize) else { return };
        let Some((before, mtu)) = route.measure_mtu() else { return };
        self.receiver.engine.peer_mut(peer).set_mtu(mtu);
        self.set_bulk(peer);
        self.log_length(peer, before, mtu);
        if mtu < before {
            self.receiver.engine.peer_mut(peer).handle_path_change(self.receiver.time.now);
        }
    }

    /// Logs a length that an agent has reported. It reports the one of its path at first, and of
    /// another path that it takes: those are no fault. One below what every path carries has been
    /// found by questions.
    pub(super) fn log_agents_length(&self, peer: PeerId, before: u32, mtu: u32) {
        match mtu < EVERY_PATH || before < EVERY_PATH {
            true => self.log_length(peer, before, mtu),
            false => log::debug!("packets to {} have {mtu} bytes at most", self.describe(peer)),
        }
    }

    /// Logs that packets to a peer are now shorter or longer than `before`.
    pub(super) fn log_length(&self, peer: PeerId, before: u32, mtu: u32) {
        if mtu == before || !self.receiver.engine.peer(peer).is_ready() {
            return;
        }
        let what = self.describe(peer);
        if mtu < before {
            weft_link::warn!(
                "packets of more than {mtu} bytes vanish on the way to {what}: going on with \
                 shorter ones (the MTU of something between is less than that of both ends)"
            );
        } else {
            log::info!("packets of {mtu} bytes get through again to {what}");
        }
    }
}

//! Pacing of requests for data: one window of outstanding bulk data for all transfers over
//! networks, shared among the peers that have something to send.
//!
//! From a single peer `pull_block` times `pull_depth` is outstanding; its own window keeps the
//! network's queues short. With several peers, the window is divided, and follows the delay that
//! this side measures on their paths: senders that know nothing of each other meet in a queue that
//! only the receiver can keep short (receiver-driven as in Homa, SIGCOMM 2018).

use super::rendezvous::{block_len, train_len};
use super::Engine;
use crate::config::Config;
use crate::connection::delay_target;
use crate::id::{OpId, PeerId};
use crate::peer::Desc;
use crate::reliability::{DelayWindow, Signal};
use crate::time::Instant;
use crate::transfer::pull::Part;
use crate::wire::{self, Data, Packet};
use alloc::collections::VecDeque;

/// Unit of the window, bytes: about a packet.
const UNIT: u64 = 1 << 10;
/// Number of peers that may each owe a packet whatever the window: 100 KB in Ethernet frames.
const ASSURED: u32 = 64;

/// The state of pacing.
pub(super) struct Pulls {
    window: DelayWindow,
    /// Bytes requested that have not arrived.
    out: u64,
    /// Peers to request a part from, in turn.
    ring: VecDeque<PeerId>,
    /// Number of peers that were or will be asked.
    busy: u32,
    /// Number of peers that owe data.
    owing: u32,
}

impl Pulls {
    pub fn new(cfg: &Config) -> Pulls {
        let bytes = u64::from(cfg.pull_block) * u64::from(cfg.pull_depth);
        let most = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
        Pulls {
            window: DelayWindow::new(delay_target(cfg), most, most),
            out: 0,
            ring: VecDeque::new(),
            busy: 0,
            owing: 0,
        }
    }

    /// Returns true if requests are paced at all.
    pub fn on(&self) -> bool {
        self.window.adapts()
    }

    fn bytes(&self) -> u64 {
        u64::from(self.window.packets()) * UNIT
    }
}

impl Engine {
    /// Queues a receive, which requests its message when its turn comes.
    pub(super) fn queue_pull(&mut self, now: Instant, peer: PeerId, id: OpId) {
        let p = &mut self.peers[peer.0 as usize];
        if p.incoming.pulls.is_empty() {
            self.pulls.ring.push_back(peer);
            self.pulls.busy += u32::from(p.incoming.pulled == 0);
        }
        p.incoming.pulls.push_back(id);
        self.serve(now, peer);
    }

    /// Notes data of a paced receive: there is room for others, and for more of it.
    #[inline]
    pub(super) fn pulled(&mut self, now: Instant, peer: PeerId, len: u64) {
        let p = &mut self.peers[peer.0 as usize];
        let len = len.min(p.incoming.pulled);
        p.incoming.pulled -= len;
        self.pulls.out -= len;
        if p.incoming.pulled == 0 && len > 0 {
            self.pulls.owing -= 1;
            self.pulls.busy -= u32::from(p.incoming.pulls.is_empty());
        }
        if !self.pulls.ring.is_empty() {
            self.serve(now, peer);
        }
    }

    /// Forgets the requests to a failed peer, which sends nothing any more.
    pub(super) fn forget_pulls(&mut self, peer: PeerId) {
        let p = &mut self.peers[peer.0 as usize];
        let (owed, queued) = (p.incoming.pulled > 0, !p.incoming.pulls.is_empty());
        self.pulls.out -= p.incoming.pulled;
        self.pulls.owing -= u32::from(owed);
        self.pulls.busy -= u32::from(owed || queued);
        p.incoming.pulled = 0;
        p.incoming.pulls = VecDeque::new();
        if queued {
            self.pulls.ring.retain(|&other| other != peer);
        }
    }

    /// Handles the delay and losses that an acknowledgement of a peer that owes bulk data shows.
    #[inline]
    pub(super) fn note_delay(&mut self, now: Instant, delay: Option<(u64, u64)>, lost: u32) {
        if self.pulls.busy < 2 {
            return;
        }
        let limited = self.pulls.out * 4 >= self.pulls.bytes() * 3;
        self.pulls.window.on_signal(now, Signal { arrived: 0, lost, delay, limited });
    }

    /// Requests parts while the window has room; from `first` in any case if it owes nothing.
    fn serve(&mut self, now: Instant, first: PeerId) {
        let p = &self.peers[first.0 as usize];
        if p.incoming.pulled == 0 && !p.incoming.pulls.is_empty() && self.pulls.owing < ASSURED {
            self.ask_part(now, first, true);
        }
        let mut passed = 0;
        while passed < self.pulls.ring.len() {
            if self.pulls.busy > 1 && self.pulls.out >= self.pulls.bytes() {
                return;
            }
            let Some(&peer) = self.pulls.ring.front() else { return };
            let asked = self.ask_part(now, peer, false);
            passed = if asked { 0 } else { passed + 1 };
            if self.pulls.ring.front() == Some(&peer) {
                self.pulls.ring.rotate_left(1);
            }
        }
    }

    /// Requests a peer's next part, if its share of the window has room or `assured`.
    fn ask_part(&mut self, now: Instant, peer: PeerId, assured: bool) -> bool {
        let p = &mut self.peers[peer.0 as usize];
        let block = block_len(self.cfg.pull_block, p);
        let (window, share) = match self.pulls.busy {
            0 | 1 => {
                let all = block.saturating_mul(u64::from(self.cfg.pull_depth));
                (all, all)
            }
            n => (self.pulls.bytes(), self.pulls.bytes() / u64::from(n)),
        };
        let packet = u64::from(p.path.mtu()) - Data::LEN as u64;
        let len = part_len(block, packet, train_len(p), share);
        let fits =
            p.incoming.pulled + len <= share.max(len) && self.pulls.out + len <= window.max(len);
        if !fits && !assured {
            return false;
        }
        let len = if fits { len } else { packet };
        let mut asked = false;
        while let (false, Some(&id)) = (asked, p.incoming.pulls.front()) {
            let next = self.ops.get_mut(id.0).and_then(|op| op.claim(len));
            let Some((msg, Part { offset, len })) = next else {
                p.incoming.pulls.pop_front();
                continue;
            };
            let ask = wire::Pull { offset, len, recv: id.0, addr: 0 };
            p.queue.ctrl.push_back(Desc::bare(Packet::Pull(ask), msg));
            self.pulls.owing += u32::from(p.incoming.pulled == 0);
            p.incoming.pulled += len;
            self.pulls.out += len;
            asked = true;
            if !self.ops.get_mut(id.0).is_some_and(|op| op.wants_more()) {
                p.incoming.pulls.pop_front();
            }
        }
        if p.incoming.pulls.is_empty() {
            self.pulls.busy -= u32::from(p.incoming.pulled == 0);
            self.pulls.ring.retain(|&other| other != peer);
        }
        if asked {
            self.wake(now, peer);
        }
        asked
    }
}

/// Returns the bytes of one request: half a share, in whole trains or at least packets, at most a
/// block. Packets are the short ones: a share of a slow network is less than a long packet.
fn part_len(block: u64, packet: u64, train: u64, share: u64) -> u64 {
    let half = share / 2;
    if half >= block {
        return block;
    }
    let unit = if half >= train { train } else { packet };
    (half / unit).max(1) * unit
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::caps::LinkCaps;
    use crate::engine::tests::{calm, network, pattern, Net, DELAY};
    use crate::error::PeerFailure;
    use crate::wire::PacketType;
    use alloc::{boxed::Box, vec, vec::Vec};

    /// Lets the last of `nodes` receive a message of `len` bytes from each of the others, which it
    /// asks in turn; no data arrives.
    fn asked(nodes: usize, len: u64) -> (Net, Vec<OpId>) {
        let caps = LinkCaps { train: 8, ..network() };
        let mut net = Net::new(nodes, caps, Config::default());
        let last = nodes - 1;
        for from in 0..last {
            let to = net.peer(from, last);
            net.nodes[from].engine.peer_mut(to).open(net.now);
        }
        net.run(50);
        net.script = Box::new(|f| if f.kind() == PacketType::Data { vec![] } else { vec![DELAY] });
        let mut ops = Vec::new();
        for from in 0..last {
            ops.push(net.recv(last, Some(from), 7, len));
            net.send(from, last, 7, &pattern(from as u64, len));
            net.run(1);
        }
        (net, ops)
    }

    fn pulled(net: &mut Net, from: usize) -> u64 {
        let last = net.nodes.len() - 1;
        let peer = net.peer(last, from);
        net.nodes[last].engine.peers[peer.0 as usize].incoming.pulled
    }

    #[test]
    fn part_len__half_a_share_in_whole_trains_or_packets() {
        let (packet, train) = (1000, 8000);
        for (share, want) in [
            (1 << 20, 128_000),
            (256_000, 128_000),
            (200_000, 96_000),
            (16_000, 8_000),
            (15_999, 7_000),
            (2_000, 1_000),
            (0, 1_000),
        ] {
            assert_eq!(part_len(128_000, packet, train, share), want, "{share}");
        }
    }

    #[test]
    fn serve__one_peer_alone_is_asked_for_the_whole_depth() {
        let (mut net, _) = asked(2, 4 << 20);
        let engine = &net.nodes[1].engine;
        let block = block_len(engine.cfg.pull_block, &engine.peers[0]);
        let all = block * u64::from(engine.cfg.pull_depth);
        assert_eq!((engine.pulls.out, engine.pulls.busy, engine.pulls.owing), (all, 1, 1));
        assert_eq!(pulled(&mut net, 0), all);
    }

    #[test]
    fn serve__a_second_peer_is_asked_although_the_first_owes_the_whole_window() {
        let (mut net, ops) = asked(3, 4 << 20);
        let (first, second) = (pulled(&mut net, 0), pulled(&mut net, 1));
        let packet = u64::from(net.nodes[2].engine.peers[0].path.mtu()) - Data::LEN as u64;
        assert_eq!(second, packet);
        let pulls = &net.nodes[2].engine.pulls;
        assert_eq!((pulls.out, pulls.busy, pulls.owing), (first + second, 2, 2));
        net.script = calm();
        net.wait(&[(2, ops[0]), (2, ops[1])]);
        for (from, op) in ops.iter().enumerate() {
            assert_eq!(net.nodes[2].bytes(*op), pattern(from as u64, 4 << 20));
        }
        let pulls = &net.nodes[2].engine.pulls;
        assert_eq!((pulls.out, pulls.busy, pulls.owing, pulls.ring.len()), (0, 0, 0, 0));
    }

    #[test]
    fn serve__assures_a_packet_to_so_many_peers_and_no_more() {
        let (mut net, ops) = asked(70, 1 << 20);
        let pulls = &net.nodes[69].engine.pulls;
        assert_eq!((pulls.busy, pulls.owing), (69, ASSURED));
        net.script = calm();
        let all: Vec<_> = ops.iter().map(|&op| (69, op)).collect();
        net.wait(&all);
        let pulls = &net.nodes[69].engine.pulls;
        assert_eq!((pulls.out, pulls.busy, pulls.owing, pulls.ring.len()), (0, 0, 0, 0));
    }

    #[test]
    fn forget_pulls__a_failed_peer_gives_its_part_of_the_window_back() {
        let (mut net, ops) = asked(3, 4 << 20);
        let gone = net.peer(2, 0);
        net.nodes[2].engine.peer_mut(gone).handle_failure(PeerFailure::Gone);
        let second = pulled(&mut net, 1);
        let pulls = &net.nodes[2].engine.pulls;
        assert_eq!((pulls.out, pulls.busy, pulls.owing), (second, 1, 1));
        assert!(!pulls.ring.contains(&gone));
        net.script = calm();
        net.wait(&[(2, ops[1])]);
        assert_eq!(net.nodes[2].bytes(ops[1]), pattern(1, 4 << 20));
        assert_eq!(net.nodes[2].engine.pulls.out, 0);
    }
}

//! Striping: the link spreads bulk data to a peer over several interfaces, one train at a time.
//!
//! Paths share bulk data if each leaves from an interface of its own and leads to an interface of
//! its own, and if each is proven: the peer answered a question sent over it, or the peer, who has
//! proven it, sends data over it. All shared paths have the same speed and packet size, because
//! each carries an equal part. The first shared path is the path in use. A path is named by its
//! index among the peer's paths.

use crate::kind::Kind;
use crate::proof::Proof;
use crate::LinkEvent;
use weft_core::PeerId;

/// Highest number of interfaces that share bulk data.
const MOST: usize = 3;
/// Paths of a peer that are examined; further ones are ignored.
const PATHS: usize = u32::BITS as usize;

/// The properties of a path that decide if it can share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StripePath {
    /// Our interface; `None` if it cannot share because it is down or not known.
    pub near: Option<u32>,
    /// The peer's interface.
    pub far: u64,
    /// Speed of our interface in Mbit/s; 0 if not known.
    pub speed: u32,
    /// Packet size of the path, in bytes.
    pub len: u32,
}

/// The knowledge about the paths of a peer.
#[derive(Debug, Default)]
pub(crate) struct Stripes {
    /// One bit for each path: the path works in both directions.
    proven: u32,
    /// The paths that share bulk data; empty while there is only one.
    shared: Vec<usize>,
    /// The last question to the peer, header and payload, and the header's length.
    question: (Vec<u8>, usize),
    /// The path in use was doubted an odd number of times.
    doubted: bool,
}

impl Stripes {
    /// True if the path shares bulk data.
    pub fn has(&self, at: usize) -> bool {
        self.shared.contains(&at)
    }

    /// Returns the number of paths that share.
    pub fn count(&self) -> u8 {
        self.shared.len().max(1) as u8
    }

    /// Returns the path of a stripe.
    pub fn path(&self, stripe: u8) -> Option<usize> {
        self.shared.get(usize::from(stripe)).copied()
    }

    /// Returns the last question to the peer (header and payload), if one was kept.
    pub fn question(&self) -> Option<(&[u8], &[u8])> {
        let (bytes, header_len) = &self.question;
        (!bytes.is_empty()).then(|| bytes.split_at(*header_len))
    }

    /// Keeps a question that is sent to the peer: it may be sent over further paths.
    pub fn keep(&mut self, header: &[u8], payload: &[u8]) {
        self.question = ([header, payload].concat(), header.len());
    }

    /// Notes that packets over the path in use stay unacknowledged. Every second call returns
    /// another path that shares bulk data and is to be used instead: if the peer is not only slow,
    /// the path in use may let questions pass but drop other packets.
    pub fn doubt(&mut self) -> Option<usize> {
        self.doubted = !self.doubted;
        self.path(1).filter(|_| !self.doubted)
    }

    /// Forgets all proofs. Returns true if paths shared bulk data.
    pub fn forget(&mut self) -> bool {
        let shared = !self.shared.is_empty();
        let question = std::mem::take(&mut self.question);
        *self = Stripes { question, doubted: self.doubted, ..Stripes::default() };
        shared
    }

    /// Notes that a path works in both directions. Returns true if that was not known.
    pub fn prove(&mut self, at: usize) -> bool {
        let bit = if at < PATHS { 1 << at } else { 0 };
        let news = self.proven & bit != bit;
        self.proven |= bit;
        news
    }

    /// Notes that a path does not work any more.
    pub fn disprove(&mut self, at: usize) {
        if at < PATHS {
            self.proven &= !(1 << at);
        }
    }

    /// True if a path is known to work in both directions.
    pub fn is_proven(&self, at: usize) -> bool {
        at < PATHS && self.proven & 1 << at != 0
    }

    /// Chooses the paths that share bulk data: the path in use, and the proven paths of other
    /// interfaces with the same speed and packet size. Returns their number if it changed.
    pub fn share(&mut self, paths: &[StripePath], used: usize) -> Option<u8> {
        let before = self.count();
        self.shared.clear();
        let like = paths.get(used)?;
        self.shared.push(used);
        for (at, path) in paths.iter().enumerate() {
            let alike = (path.speed, path.len) == (like.speed, like.len);
            let apart = |&s: &usize| paths[s].near != path.near && paths[s].far != path.far;
            let others = path.near.is_some() && self.shared.iter().all(apart);
            if self.is_proven(at) && alike && others && self.shared.len() < MOST {
                self.shared.push(at);
            }
        }
        if self.shared.len() < 2 || like.near.is_none() {
            self.shared.clear();
        }
        Some(self.count()).filter(|&now| now != before)
    }

    /// Returns the paths to send the question over: those of interfaces that have no proven path.
    /// The caller limits how often they are asked.
    pub fn unanswered(&self, paths: &[StripePath]) -> Vec<usize> {
        if self.question.0.is_empty() {
            return Vec::new();
        }
        let proven = |near| (0..paths.len()).any(|at| self.is_proven(at) && paths[at].near == near);
        let open = |at: &usize| paths[*at].near.is_some() && !proven(paths[*at].near);
        (0..paths.len().min(PATHS)).filter(open).collect()
    }
}

/// A link that may reach a peer over several paths, with the decisions that are the same for each
/// such link: the path in use, and the paths that share bulk data.
pub(crate) trait Paths {
    /// Returns the knowledge about the paths of a peer, and their number.
    fn known(&mut self, peer: PeerId) -> Option<(&mut Proof, &mut Stripes, usize)>;

    /// Lists the properties of a peer's paths that decide if they share, and names the path in
    /// use, if it is one of them.
    fn listed(&self, peer: PeerId) -> Option<(Vec<StripePath>, Option<usize>)>;

    /// Sends a peer's question over these of its paths.
    fn ask(&mut self, peer: PeerId, paths: Vec<usize>);

    /// Uses one of a peer's paths from now on, and reports a change of the packet size.
    fn change(&mut self, peer: PeerId, at: usize);

    /// Reports an event of the link.
    fn report(&mut self, event: LinkEvent);

    /// Notes an authentic frame of a peer over one of its paths, which may be used from now on.
    /// `in_use`: it is the path in use.
    #[inline]
    fn came_over(&mut self, peer: PeerId, at: usize, in_use: bool, kind: Kind) {
        let Some((proof, stripes, _)) = self.known(peer) else { return };
        let moved = proof.on_frame(at, in_use, stripes.has(at), kind) && !in_use;
        if kind == Kind::Answer || kind == Kind::Other && !in_use {
            self.prove(peer, at);
        }
        if moved {
            self.change(peer, at);
        }
    }

    /// Notes that packets over the path in use stay unacknowledged.
    fn doubt_path(&mut self, peer: PeerId) {
        let Some((proof, stripes, 2..)) = self.known(peer) else { return };
        proof.doubt();
        let instead = stripes.doubt();
        if stripes.forget() {
            self.report(LinkEvent::Stripes(peer, 1));
        }
        if let Some(at) = instead {
            self.change(peer, at);
        }
    }

    /// Notes that a path works in both directions. Sends the question over paths that may share.
    fn prove(&mut self, peer: PeerId, at: usize) {
        if self.known(peer).is_some_and(|(_, stripes, _)| stripes.prove(at)) {
            self.share(peer);
            self.ask_rest(peer);
        }
    }

    /// Chooses the paths that share bulk data.
    fn share(&mut self, peer: PeerId) {
        let Some((paths, Some(used))) = self.listed(peer) else { return };
        let Some((_, stripes, _)) = self.known(peer) else { return };
        if let Some(now) = stripes.share(&paths, used) {
            self.report(LinkEvent::Stripes(peer, now));
        }
    }

    /// Returns the paths of interfaces that gave no answer yet.
    fn unanswered(&mut self, peer: PeerId) -> Vec<usize> {
        let Some((paths, _)) = self.listed(peer) else { return Vec::new() };
        self.known(peer).map_or_else(Vec::new, |(_, stripes, _)| stripes.unanswered(&paths))
    }

    /// Sends the question over the paths of interfaces that gave no answer yet.
    fn ask_rest(&mut self, peer: PeerId) {
        let open = self.unanswered(peer);
        self.ask(peer, open);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn path(near: u32, far: u64) -> StripePath {
        StripePath { near: Some(near), far, speed: 1000, len: 1500 }
    }

    fn shared(stripes: &Stripes) -> Vec<usize> {
        (0..stripes.count()).filter_map(|n| stripes.path(n)).collect()
    }

    #[test]
    fn share__proven_paths_that_are_alike_and_meet_nowhere() {
        let mut stripes = Stripes::default();
        // All pairs of two interfaces, as if no network number told which of them are connected.
        let all = [path(1, 8), path(1, 9), path(2, 8), path(2, 9)];
        assert!(stripes.prove(0) && !stripes.prove(0));
        assert_eq!(stripes.share(&all, 0), None);
        assert!(stripes.prove(2));
        assert_eq!(stripes.share(&all, 0), None, "both lead to one interface");
        assert!(stripes.prove(3));
        assert_eq!((stripes.share(&all, 0), shared(&stripes)), (Some(2), vec![0, 3]));
        assert_eq!((stripes.share(&all, 3), shared(&stripes)), (None, vec![3, 0]));
        assert!(stripes.has(0) && !stripes.has(1));
        for other in [StripePath { speed: 100, ..all[3] }, StripePath { len: 9000, ..all[3] }] {
            assert_eq!(stripes.share(&[all[0], all[1], all[2], other], 0), Some(1));
            assert_eq!(stripes.share(&all, 0), Some(2));
        }
        let down = StripePath { near: None, ..all[3] };
        assert_eq!(stripes.share(&[all[0], all[1], all[2], down], 0), Some(1));
        assert_eq!((stripes.path(0), stripes.path(1)), (None, None));
        assert_eq!(stripes.share(&all, 0), Some(2));
        stripes.disprove(3);
        assert_eq!(stripes.share(&all, 0), Some(1));
    }

    #[test]
    fn share__three_at_most_and_one_that_is_down_shares_nothing() {
        let mut all: Vec<StripePath> = (0..40).map(|n| path(n, n.into())).collect();
        let mut stripes = Stripes::default();
        (0..40).for_each(|at| assert_eq!(stripes.prove(at), at < PATHS));
        assert_eq!((stripes.share(&all, 1), shared(&stripes)), (Some(3), vec![1, 0, 2]));
        all[1].near = None;
        assert_eq!((stripes.share(&all, 1), stripes.path(0)), (Some(1), None));
        assert!(!stripes.forget() && stripes.share(&all, 0).is_none());
    }

    #[test]
    fn doubt__the_second_time_another_path_that_shares_is_used() {
        let all = [path(1, 8), path(2, 9)];
        let mut stripes = Stripes::default();
        for _ in 0..3 {
            assert_eq!((stripes.doubt(), stripes.forget()), (None, false));
            stripes.prove(0);
            stripes.prove(1);
            assert_eq!(stripes.share(&all, 0), Some(2));
            assert_eq!((stripes.doubt(), stripes.forget()), (Some(1), true));
        }
    }

    #[test]
    fn unanswered__the_paths_of_interfaces_that_gave_no_answer() {
        let all = [
            path(1, 8),
            path(1, 9),
            path(2, 8),
            path(2, 9),
            StripePath { near: None, ..path(3, 7) },
        ];
        let mut stripes = Stripes::default();
        stripes.prove(0);
        assert!(stripes.unanswered(&all).is_empty(), "nothing to ask");
        stripes.keep(b"header", b"payload");
        assert_eq!(stripes.question(), Some((&b"header"[..], &b"payload"[..])));
        assert_eq!(stripes.unanswered(&all), [2, 3]);
        assert!(!stripes.forget() && stripes.question().is_some());
        assert_eq!(stripes.unanswered(&all), [0, 1, 2, 3]);
        stripes.prove(0);
        stripes.prove(3);
        assert!(stripes.unanswered(&all).is_empty(), "each has given one");
    }
}

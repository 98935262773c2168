//! Decides from the packets of a peer which of the paths to this peer is used.

use crate::kind::Kind;

/// Number of consecutive authentic packets over another path after which that path is used: the
/// peer has moved.
const STRAYS: u8 = 8;
/// Number of such packets if both paths share bulk data.
const STRAYS_SHARED: u8 = 64;
/// Number of such packets if both paths share bulk data, and if the peer sent a HELLO over the
/// other path and only HELLOs over the path in use since.
const STRAYS_ASKED: u8 = 4;

/// The evidence from the packets of a peer. A path is named by its index among the peer's paths.
#[derive(Debug, Default)]
pub(crate) struct Proof {
    /// An authentic packet came over the path in use: the other paths need not be tried.
    confirmed: bool,
    /// Packets over the path in use stay unacknowledged: only an answer to a HELLO confirms a path.
    doubted: bool,
    /// Number of doubts about the path in use since it was confirmed.
    doubts: u32,
    /// Value of `doubts` when the first answer came over another path. If both paths work, the peer
    /// was only slow, and the answer over the path in use follows. If that answer has not come
    /// until the next doubt, an answer over any path confirms that path.
    rival: Option<u32>,
    /// The path over which the last question came: the answer is sent over it.
    question_path: Option<usize>,
    /// `question_path` is not the path in use, and only HELLOs came over the path in use since.
    asked: bool,
    /// Number of consecutive authentic packets that came over another path.
    stray: u8,
}

impl Proof {
    /// Makes the state of a peer that sent nothing yet; `confirmed` if it has only one path.
    pub fn new(confirmed: bool) -> Proof {
        Proof { confirmed, ..Proof::default() }
    }

    /// True if the path in use is known to work.
    #[inline]
    pub fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// True if the path in use is known to work and no packet came over another path since.
    #[inline]
    pub fn is_decided(&self) -> bool {
        self.confirmed && self.stray == 0
    }

    /// Returns the path over which the last question came.
    pub fn question_path(&self) -> Option<usize> {
        self.question_path
    }

    /// Withdraws the confirmation of the path in use.
    pub fn doubt(&mut self) {
        self.doubts = self.doubts.saturating_add(1);
        (self.confirmed, self.doubted) = (false, true);
    }

    /// Notes an authentic packet over path `at`. `in_use`: `at` is the path in use. `shares`: `at`
    /// shares bulk data. Returns true if `at` is to be used from now on.
    pub fn on_frame(&mut self, at: usize, in_use: bool, shares: bool, kind: Kind) -> bool {
        if kind == Kind::Question {
            (self.question_path, self.asked) = (Some(at), !in_use);
        }
        // A peer that still sends over the path in use has not left it.
        self.asked &= !in_use || kind != Kind::Other;
        self.stray = if in_use { 0 } else { self.stray.saturating_add(1) };
        let preferred = in_use || self.rival.is_some_and(|first| first < self.doubts);
        let answers = kind == Kind::Answer;
        if self.doubted && answers && self.rival.is_none() {
            self.rival = Some(self.doubts);
        }
        let proven = !self.confirmed && (!self.doubted || answers && preferred);
        // A peer that sent a HELLO over this path and now sends other packets over it has left the
        // other.
        let asked = self.asked && self.question_path == Some(at) && kind == Kind::Other;
        let strays = match (asked, shares) {
            (true, false) => 1,
            (true, true) => STRAYS_ASKED,
            (false, true) => STRAYS_SHARED,
            (false, false) => STRAYS,
        };
        let used = proven || !in_use && self.stray >= strays;
        if used {
            (self.confirmed, self.doubted, self.stray) = (true, false, 0);
            (self.doubts, self.rival) = (0, None);
        }
        used
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn hear__the_first_packet_decides_and_after_doubt_only_an_answer() {
        let mut proof = Proof::new(false);
        assert!(proof.on_frame(1, false, false, Kind::Other) && proof.is_decided());
        proof.doubt();
        assert!(!proof.on_frame(1, true, false, Kind::Other) && !proof.is_confirmed());
        assert!(!proof.on_frame(0, false, false, Kind::Question));
        assert_eq!(proof.question_path(), Some(0));
        assert!(proof.on_frame(1, true, false, Kind::Answer) && proof.is_decided());
    }

    #[test]
    fn hear__an_answer_over_another_path_does_not_outrun_the_one_in_use() {
        let mut proof = Proof::new(true);
        let answer = |proof: &mut Proof, at| proof.on_frame(at, at == 0, false, Kind::Answer);
        proof.doubt();
        assert!(!answer(&mut proof, 1) && answer(&mut proof, 0), "both work");
        proof.doubt();
        assert!(!answer(&mut proof, 1) && !answer(&mut proof, 1));
        proof.doubt();
        assert!(answer(&mut proof, 2) && proof.is_decided(), "that in use gave none");
    }

    #[test]
    fn hear__a_peer_that_moved() {
        let mut proof = Proof::new(true);
        let frame = |proof: &mut Proof| proof.on_frame(1, false, false, Kind::Other);
        assert!((1..STRAYS).all(|_| !frame(&mut proof)) && !proof.is_decided());
        assert!(!proof.on_frame(0, true, false, Kind::Other) && proof.is_decided());
        assert!((1..STRAYS).all(|_| !frame(&mut proof)));
        assert!(frame(&mut proof));
        assert!(!proof.on_frame(0, false, false, Kind::Question));
        assert!(proof.on_frame(0, false, false, Kind::Other), "asked over it, and sends over it");
    }

    #[test]
    fn hear__a_peer_that_sends_over_several_has_not_moved() {
        let mut proof = Proof::new(true);
        let frame = |proof: &mut Proof| proof.on_frame(1, false, true, Kind::Other);
        assert!(!proof.on_frame(1, false, false, Kind::Question));
        assert!(!proof.on_frame(0, true, true, Kind::Other), "it still sends over the one in use");
        for _ in 0..3 {
            assert!((1..STRAYS_SHARED).all(|_| !frame(&mut proof)));
            assert!(!proof.on_frame(0, true, true, Kind::Other));
        }
        assert!((1..STRAYS_SHARED).all(|_| !frame(&mut proof)) && frame(&mut proof));
        assert!(!proof.on_frame(2, false, true, Kind::Question));
        let mut over = |_| proof.on_frame(2, false, true, Kind::Other);
        let moves: Vec<bool> = (1..STRAYS_ASKED).map(&mut over).collect();
        assert_eq!(moves, [false, false, true], "the question was the first of the row");
    }
}

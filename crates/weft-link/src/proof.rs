//! What speaks for the path to a peer that is in use, and when another one takes its place.

use crate::kind::Kind;

/// So many authentic packets in a row over another path: the peer has moved.
const STRAYS: u8 = 8;
/// The same where both share data among several paths, and that is one of them; and if the peer
/// asked over it.
const STRAYS_SHARED: u8 = 64;
const STRAYS_ASKED: u8 = 4;

/// What the packets of a peer have proven. Paths are named by their place among the peer's.
#[derive(Debug, Default)]
pub(crate) struct Proof {
    /// An authentic packet came over the path in use: the others need not be tried.
    confirmed: bool,
    /// Packets over the path in use stay unacknowledged: only an answer confirms a path.
    doubted: bool,
    /// How often the path in use was doubted since it was confirmed.
    doubts: u32,
    /// That number when the first answer came over another path: where both work, the peer was just
    /// slow, and the answer over the path in use follows. If it does not until the next doubt, an
    /// answer over any path is good.
    rival: Option<u32>,
    /// The path the last question came over: the answer goes back there.
    caller: Option<usize>,
    /// That is another path than the one in use, and nothing but HELLOs came over that one since.
    asked: bool,
    /// Authentic packets in a row that came over another path.
    stray: u8,
}

impl Proof {
    /// Of a peer of which nothing was heard, `confirmed` if there is nothing to choose from.
    pub fn new(confirmed: bool) -> Proof {
        Proof { confirmed, ..Proof::default() }
    }

    /// Whether the path in use is known to work.
    #[inline]
    pub fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Whether it is, and nothing came over another one since.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.confirmed && self.stray == 0
    }

    /// The path the last question came over.
    pub fn caller(&self) -> Option<usize> {
        self.caller
    }

    /// Nothing says any more that the path in use works.
    pub fn doubt(&mut self) {
        self.doubts = self.doubts.saturating_add(1);
        (self.confirmed, self.doubted) = (false, true);
    }

    /// An authentic packet came over path `at`, which is the one in use or not, and shares bulk
    /// data or not. True if that one is to be used from now on.
    pub fn hear(&mut self, at: usize, in_use: bool, shares: bool, kind: Kind) -> bool {
        if kind == Kind::Question {
            (self.caller, self.asked) = (Some(at), !in_use);
        }
        // Who still sends over the way in use has not left it.
        self.asked &= !in_use || kind != Kind::Other;
        self.stray = if in_use { 0 } else { self.stray.saturating_add(1) };
        let preferred = in_use || self.rival.is_some_and(|first| first < self.doubts);
        let answers = kind == Kind::Answer;
        if self.doubted && answers && self.rival.is_none() {
            self.rival = Some(self.doubts);
        }
        let proven = !self.confirmed && (!self.doubted || answers && preferred);
        // Who asked over this way and now sends over it has left the other.
        let asked = self.asked && self.caller == Some(at) && kind == Kind::Other;
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
        assert!(proof.hear(1, false, false, Kind::Other) && proof.is_settled());
        proof.doubt();
        assert!(!proof.hear(1, true, false, Kind::Other) && !proof.is_confirmed());
        assert!(!proof.hear(0, false, false, Kind::Question));
        assert_eq!(proof.caller(), Some(0));
        assert!(proof.hear(1, true, false, Kind::Answer) && proof.is_settled());
    }

    #[test]
    fn hear__an_answer_over_another_path_does_not_outrun_the_one_in_use() {
        let mut proof = Proof::new(true);
        let answer = |proof: &mut Proof, at| proof.hear(at, at == 0, false, Kind::Answer);
        proof.doubt();
        assert!(!answer(&mut proof, 1) && answer(&mut proof, 0), "both work");
        proof.doubt();
        assert!(!answer(&mut proof, 1) && !answer(&mut proof, 1));
        proof.doubt();
        assert!(answer(&mut proof, 2) && proof.is_settled(), "that in use gave none");
    }

    #[test]
    fn hear__a_peer_that_moved() {
        let mut proof = Proof::new(true);
        let hear = |proof: &mut Proof| proof.hear(1, false, false, Kind::Other);
        assert!((1..STRAYS).all(|_| !hear(&mut proof)) && !proof.is_settled());
        assert!(!proof.hear(0, true, false, Kind::Other) && proof.is_settled());
        assert!((1..STRAYS).all(|_| !hear(&mut proof)));
        assert!(hear(&mut proof));
        assert!(!proof.hear(0, false, false, Kind::Question));
        assert!(proof.hear(0, false, false, Kind::Other), "asked over it, and sends over it");
    }

    #[test]
    fn hear__a_peer_that_sends_over_several_has_not_moved() {
        let mut proof = Proof::new(true);
        let hear = |proof: &mut Proof| proof.hear(1, false, true, Kind::Other);
        assert!(!proof.hear(1, false, false, Kind::Question));
        assert!(!proof.hear(0, true, true, Kind::Other), "it still sends over the one in use");
        for _ in 0..3 {
            assert!((1..STRAYS_SHARED).all(|_| !hear(&mut proof)));
            assert!(!proof.hear(0, true, true, Kind::Other));
        }
        assert!((1..STRAYS_SHARED).all(|_| !hear(&mut proof)) && hear(&mut proof));
        assert!(!proof.hear(2, false, true, Kind::Question));
        let mut over = |_| proof.hear(2, false, true, Kind::Other);
        let moves: Vec<bool> = (1..STRAYS_ASKED).map(&mut over).collect();
        assert_eq!(moves, [false, false, true], "the question was the first of the row");
    }
}

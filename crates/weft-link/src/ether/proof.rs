//! What speaks for the path to a peer that is in use, and when another one takes its place.

use crate::kind::Kind;

/// So many authentic packets in a row over another path: the peer has moved.
const STRAYS: u8 = 8;

/// What the packets of a peer have proven. Paths are named by their place among the peer's.
#[derive(Debug)]
pub(crate) struct Proof {
    /// An authentic packet came over the path in use: the others need not be tried.
    confirmed: bool,
    /// Packets over the path in use stay unacknowledged: only an answer confirms a path.
    doubted: bool,
    /// The path the last question came over: the answer goes back there.
    caller: Option<usize>,
    /// Authentic packets in a row that came over another path.
    stray: u8,
}

impl Proof {
    /// Of a peer of which nothing was heard, `confirmed` if there is nothing to choose from.
    pub fn new(confirmed: bool) -> Proof {
        Proof { confirmed, doubted: false, caller: None, stray: 0 }
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
        (self.confirmed, self.doubted) = (false, true);
    }

    /// An authentic packet came over path `at`, which is the one in use or not. True if that one is
    /// to be used from now on.
    pub fn hear(&mut self, at: usize, in_use: bool, kind: Kind) -> bool {
        if kind == Kind::Question {
            self.caller = Some(at);
        }
        self.stray = if in_use { 0 } else { self.stray.saturating_add(1) };
        let proven = !self.confirmed && (!self.doubted || kind == Kind::Answer);
        // Who asked over this way and now sends over it has left the other.
        let moved = self.caller == Some(at) && kind == Kind::Other;
        let used = proven || !in_use && (moved || self.stray >= STRAYS);
        if used {
            (self.confirmed, self.doubted, self.stray) = (true, false, 0);
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
        assert!(proof.hear(1, false, Kind::Other) && proof.is_settled());
        proof.doubt();
        assert!(!proof.hear(1, true, Kind::Other) && !proof.is_confirmed());
        assert!(!proof.hear(0, false, Kind::Question));
        assert_eq!(proof.caller(), Some(0));
        assert!(proof.hear(2, false, Kind::Answer) && proof.is_settled());
    }

    #[test]
    fn hear__a_peer_that_moved() {
        let mut proof = Proof::new(true);
        assert!((1..STRAYS).all(|_| !proof.hear(1, false, Kind::Other)) && !proof.is_settled());
        assert!(!proof.hear(0, true, Kind::Other) && proof.is_settled());
        assert!((1..STRAYS).all(|_| !proof.hear(1, false, Kind::Other)));
        assert!(proof.hear(1, false, Kind::Other));
        assert!(!proof.hear(0, false, Kind::Question));
        assert!(proof.hear(0, false, Kind::Other), "asked over it, and sends over it");
    }
}

//! Striping: bulk data to a peer is spread over several interfaces, by trains.
//!
//! Paths share where each leaves from an interface of its own and leads to one of its own, and each
//! is proven: a question sent over it was answered, or the peer, who has proven it, sends data over
//! it. They must be of one speed and packet size, since each gets an equal part. The first is the
//! path in use. Paths are named by their place among the peer's.

/// Interfaces that share at most.
const MOST: usize = 3;
/// Paths of a peer that are looked at.
const PATHS: usize = u32::BITS as usize;
/// Rounds of questions over paths that gave no answer.
const ASKS: u8 = 6;

/// What matters of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// Our interface; `None` where it cannot share: it is down, or not known.
    pub near: Option<u32>,
    /// The peer's interface.
    pub far: u64,
    /// Speed of ours, Mbit/s; 0 if not known.
    pub speed: u32,
    /// Bytes that it carries at a time.
    pub len: u32,
}

/// What is known of a peer's paths beside the one in use.
#[derive(Debug, Default)]
pub(crate) struct Stripes {
    /// By path, a bit each: it works in both directions.
    proven: u32,
    /// Those that share bulk data; empty while there is only one.
    shared: Vec<usize>,
    /// The last question to the peer, header and payload, and the header's length.
    question: (Vec<u8>, usize),
    asks: u8,
    /// The path in use was doubted an odd number of times.
    doubted: bool,
}

impl Stripes {
    /// Whether the peer sends bulk data over this path, too.
    pub fn has(&self, at: usize) -> bool {
        self.shared.contains(&at)
    }

    /// How many share.
    pub fn count(&self) -> u8 {
        self.shared.len().max(1) as u8
    }

    /// The path of a stripe.
    pub fn path(&self, stripe: u8) -> Option<usize> {
        self.shared.get(usize::from(stripe)).copied()
    }

    /// The last question to the peer, header and payload, if one was kept.
    pub fn question(&self) -> Option<(&[u8], &[u8])> {
        let (bytes, header_len) = &self.question;
        (!bytes.is_empty()).then(|| bytes.split_at(*header_len))
    }

    /// A question is sent to the peer: it may be asked over further paths.
    pub fn keep(&mut self, header: &[u8], payload: &[u8]) {
        self.question = ([header, payload].concat(), header.len());
    }

    /// Packets over the path in use stay unacknowledged. Every second time, this is a path that
    /// shares with it and is to be used instead: where it is not the peer that is slow, the path
    /// may still let questions pass, but nothing else.
    pub fn doubt(&mut self) -> Option<usize> {
        self.doubted = !self.doubted;
        self.path(1).filter(|_| !self.doubted)
    }

    /// Nothing is known of the paths any more. True if they shared.
    pub fn forget(&mut self) -> bool {
        let shared = !self.shared.is_empty();
        let question = std::mem::take(&mut self.question);
        *self = Stripes { question, doubted: self.doubted, ..Stripes::default() };
        shared
    }

    /// A path works in both directions. True if that is news.
    pub fn prove(&mut self, at: usize) -> bool {
        let bit = if at < PATHS { 1 << at } else { 0 };
        let news = self.proven & bit != bit;
        self.proven |= bit;
        news
    }

    /// A path does not work any more; it may be asked about again.
    pub fn disprove(&mut self, at: usize) {
        if at < PATHS {
            self.proven &= !(1 << at);
        }
        self.asks = 0;
    }

    /// Whether a path is known to work in both directions.
    pub fn is_proven(&self, at: usize) -> bool {
        at < PATHS && self.proven & 1 << at != 0
    }

    /// Finds the paths that share bulk data: the one in use, and the proven ones of other
    /// interfaces that are like it. How many, if that has changed.
    pub fn share(&mut self, ways: &[Way], used: usize) -> Option<u8> {
        let before = self.count();
        self.shared.clear();
        let like = ways.get(used)?;
        self.shared.push(used);
        for (at, way) in ways.iter().enumerate() {
            let alike = (way.speed, way.len) == (like.speed, like.len);
            let apart = |&s: &usize| ways[s].near != way.near && ways[s].far != way.far;
            let others = way.near.is_some() && self.shared.iter().all(apart);
            if self.is_proven(at) && alike && others && self.shared.len() < MOST {
                self.shared.push(at);
            }
        }
        if self.shared.len() < 2 || like.near.is_none() {
            self.shared.clear();
        }
        Some(self.count()).filter(|&now| now != before)
    }

    /// Paths to ask over now: those of interfaces over which none is proven.
    pub fn next_to_ask(&mut self, ways: &[Way]) -> Vec<usize> {
        if self.asks >= ASKS || self.question.0.is_empty() {
            return Vec::new();
        }
        let proven = |near| (0..ways.len()).any(|at| self.is_proven(at) && ways[at].near == near);
        let open = |at: &usize| ways[*at].near.is_some() && !proven(ways[*at].near);
        let all: Vec<usize> = (0..ways.len().min(PATHS)).filter(open).collect();
        self.asks += u8::from(!all.is_empty());
        all
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn way(near: u32, far: u64) -> Way {
        Way { near: Some(near), far, speed: 1000, len: 1500 }
    }

    fn shared(stripes: &Stripes) -> Vec<usize> {
        (0..stripes.count()).filter_map(|n| stripes.path(n)).collect()
    }

    #[test]
    fn share__proven_paths_that_are_alike_and_meet_nowhere() {
        let mut stripes = Stripes::default();
        // All pairs of two interfaces, as where no network tells which meet.
        let all = [way(1, 8), way(1, 9), way(2, 8), way(2, 9)];
        assert!(stripes.prove(0) && !stripes.prove(0));
        assert_eq!(stripes.share(&all, 0), None);
        assert!(stripes.prove(2));
        assert_eq!(stripes.share(&all, 0), None, "both lead to one interface");
        assert!(stripes.prove(3));
        assert_eq!((stripes.share(&all, 0), shared(&stripes)), (Some(2), vec![0, 3]));
        assert_eq!((stripes.share(&all, 3), shared(&stripes)), (None, vec![3, 0]));
        assert!(stripes.has(0) && !stripes.has(1));
        for other in [Way { speed: 100, ..all[3] }, Way { len: 9000, ..all[3] }] {
            assert_eq!(stripes.share(&[all[0], all[1], all[2], other], 0), Some(1));
            assert_eq!(stripes.share(&all, 0), Some(2));
        }
        let down = Way { near: None, ..all[3] };
        assert_eq!(stripes.share(&[all[0], all[1], all[2], down], 0), Some(1));
        assert_eq!((stripes.path(0), stripes.path(1)), (None, None));
        assert_eq!(stripes.share(&all, 0), Some(2));
        stripes.disprove(3);
        assert_eq!(stripes.share(&all, 0), Some(1));
    }

    #[test]
    fn share__three_at_most_and_one_that_is_down_shares_nothing() {
        let mut all: Vec<Way> = (0..40).map(|n| way(n, n.into())).collect();
        let mut stripes = Stripes::default();
        (0..40).for_each(|at| assert_eq!(stripes.prove(at), at < PATHS));
        assert_eq!((stripes.share(&all, 1), shared(&stripes)), (Some(3), vec![1, 0, 2]));
        all[1].near = None;
        assert_eq!((stripes.share(&all, 1), stripes.path(0)), (Some(1), None));
        assert!(!stripes.forget() && stripes.share(&all, 0).is_none());
    }

    #[test]
    fn doubt__the_second_time_another_path_that_shares_is_used() {
        let all = [way(1, 8), way(2, 9)];
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
    fn next_to_ask__interfaces_that_gave_no_answer_a_few_times() {
        let all = [way(1, 8), way(1, 9), way(2, 8), way(2, 9), Way { near: None, ..way(3, 7) }];
        let mut stripes = Stripes::default();
        stripes.prove(0);
        assert!(stripes.next_to_ask(&all).is_empty(), "nothing to ask");
        stripes.keep(b"header", b"payload");
        assert_eq!(stripes.question(), Some((&b"header"[..], &b"payload"[..])));
        for _ in 0..ASKS {
            assert_eq!(stripes.next_to_ask(&all), [2, 3]);
        }
        assert!(stripes.next_to_ask(&all).is_empty());
        assert!(!stripes.forget() && stripes.question().is_some());
        assert_eq!(stripes.next_to_ask(&all), [0, 1, 2, 3]);
        stripes.prove(0);
        stripes.prove(3);
        assert!(stripes.next_to_ask(&all).is_empty(), "each has given one");
    }
}

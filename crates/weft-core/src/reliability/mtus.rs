//! The longest packets over several links to one peer.

use super::pmtu::{PathMtu, PROBES};
use crate::time::Instant;

/// The probes of a round that are not sent yet.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    link: usize,
    sizes: [u32; PROBES],
    left: usize,
}

/// The search for the longest packet over each of at most `N` links to a peer, which have numbers
/// from 0 on.
#[derive(Clone, Copy, Debug)]
pub struct LinkMtus<const N: usize> {
    links: [PathMtu; N],
    count: usize,
    round: Round,
}

impl<const N: usize> LinkMtus<N> {
    /// Makes the state of links that carry packets of so many bytes.
    pub fn new(most: impl IntoIterator<Item = u32>) -> LinkMtus<N> {
        let (mut links, mut count) = ([PathMtu::new(0); N], 0);
        for (link, most) in links.iter_mut().zip(most) {
            *link = PathMtu::new(most);
            count += 1;
        }
        LinkMtus { links, count, round: Round::default() }
    }

    fn all(&self) -> &[PathMtu] {
        &self.links[..self.count]
    }

    /// Returns the longest packet to send over a link, in bytes.
    #[inline]
    pub fn fits(&self, link: usize) -> Option<u32> {
        self.all().get(link).map(PathMtu::fits)
    }

    /// Returns the longest packet that all links carry, in bytes.
    pub fn least(&self) -> Option<u32> {
        self.all().iter().map(PathMtu::fits).min()
    }

    /// Notes that a link carries packets of `most` bytes from now on.
    pub fn set_most(&mut self, now: Instant, link: usize, most: u32) {
        self.links[..self.count].get_mut(link).into_iter().for_each(|mtu| mtu.set_most(now, most));
    }

    /// Returns true if a search has found lately, and after `since`, that packets of the length in
    /// use get through over a link.
    pub fn is_known(&self, link: usize, now: Instant, since: Instant) -> bool {
        self.all().get(link).is_some_and(|mtu| mtu.is_known(now, since))
    }

    /// Returns true if a search has found lately that packets of no length are answered over a
    /// link.
    pub fn is_silent(&self, link: usize, now: Instant) -> bool {
        self.all().get(link).is_some_and(|mtu| mtu.is_silent(now))
    }

    /// Starts a search over a link, as a packet has vanished again and again `since` then, unless
    /// one is in progress or has ended lately.
    pub fn suspect(&mut self, link: usize, now: Instant, since: Instant) {
        self.links[..self.count].get_mut(link).into_iter().for_each(|mtu| mtu.suspect(now, since));
    }

    /// Returns the time at which to call [`next_probe`](Self::next_probe).
    pub fn next_timeout(&self) -> Option<Instant> {
        match self.round.left > 0 {
            true => Some(Instant(0)),
            false => self.all().iter().filter_map(PathMtu::next_timeout).min(),
        }
    }

    /// Returns the next probe to send now, if one is due: the link, and the length. Lengths that
    /// fit may change.
    pub fn next_probe(&mut self, now: Instant) -> Option<(usize, u32)> {
        if self.round.left == 0 {
            let links = self.links[..self.count].iter_mut().enumerate();
            let due = |(link, mtu): (usize, &mut PathMtu)| Some((link, mtu.poll(now)?));
            if let Some((link, sizes)) = links.filter_map(due).next() {
                self.round = Round { link, sizes, left: PROBES };
            }
        }
        let Round { link, sizes, left } = self.round;
        self.round.left = left.checked_sub(1)?;
        Some((link, sizes[PROBES - left]))
    }

    /// Notes that a packet of this length got through over a link.
    pub fn answered(&mut self, link: usize, now: Instant, size: u32) {
        self.links[..self.count].get_mut(link).into_iter().for_each(|mtu| mtu.answered(now, size));
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    /// Searches over a link on which packets of `true_mtu` bytes get through.
    fn search(mtus: &mut LinkMtus<4>, link: usize, true_mtu: u32) {
        mtus.suspect(link, at(1), at(0));
        for ms in 1..60_000 {
            while let Some((asked, size)) = mtus.next_probe(at(ms)) {
                assert_eq!(asked, link);
                if size <= true_mtu {
                    mtus.answered(link, at(ms), size);
                }
            }
            if mtus.fits(link) < Some(9000) {
                return;
            }
        }
    }

    #[test]
    fn next_probe__a_round_of_the_link_in_doubt_changes_it_alone() {
        let mut mtus = LinkMtus::<4>::new([9000, 9000, 1500]);
        assert_eq!((mtus.next_probe(at(0)), mtus.next_timeout()), (None, None));
        search(&mut mtus, 1, 4000);
        let found = mtus.fits(1).unwrap();
        assert!((3990..=4000).contains(&found), "{found}");
        assert_eq!((mtus.fits(0), mtus.fits(2), mtus.fits(3)), (Some(9000), Some(1500), None));
        assert_eq!(mtus.least(), Some(1500));
        mtus.set_most(at(60_000), 2, 9000);
        assert_eq!(mtus.least(), Some(found));
    }

    #[test]
    fn next_timeout__probes_that_are_left_are_due_at_once() {
        let mut mtus = LinkMtus::<2>::new([9000]);
        mtus.suspect(0, at(1), at(0));
        assert_eq!(mtus.next_timeout(), Some(at(1)));
        for _ in 0..PROBES - 1 {
            assert!(mtus.next_probe(at(1)).is_some());
            assert_eq!(mtus.next_timeout(), Some(Instant(0)));
        }
        assert!(mtus.next_probe(at(1)).is_some());
        assert!(mtus.next_timeout() > Some(at(1)) && mtus.next_probe(at(1)).is_none());
    }
}

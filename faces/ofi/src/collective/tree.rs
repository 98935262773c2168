//! The tree of a group's members.

use std::ops::Range;

/// The place of a member in the binomial tree of a group, whose top is member 0. The subtree of a
/// member is a range of members that begins with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The member.
    pub me: usize,
    /// Number of members, at least 1.
    pub members: usize,
}

impl Place {
    /// Returns the member above; `None` for the first.
    pub fn above(self) -> Option<usize> {
        (self.me != 0).then(|| self.me & (self.me - 1))
    }

    /// Returns the subtrees of the members below, in order: together they are the own subtree
    /// without its first member.
    pub fn below(self) -> impl Iterator<Item = Range<usize>> {
        let Place { me, members } = self;
        let bits = if me == 0 { usize::BITS - 1 } else { me.trailing_zeros() };
        let starts = (0..bits).map(move |bit| (me | 1 << bit, 1 << bit));
        let there = starts.take_while(move |&(start, _)| start < members);
        there.map(move |(start, len)| start..members.min(start + len))
    }

    /// Returns the own subtree.
    pub fn span(self) -> Range<usize> {
        let end = self.below().last().map_or(self.me + 1, |last| last.end);
        self.me..end
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn below__subtrees_cover_all_members_once_and_agree_with_above() {
        for members in 1..70 {
            assert_eq!(Place { me: 0, members }.span(), 0..members);
            for me in 0..members {
                let place = Place { me, members };
                let mut next = me + 1;
                for span in place.below() {
                    assert_eq!(span.start, next, "{me} of {members}");
                    let child = Place { me: span.start, members };
                    assert_eq!((child.above(), child.span()), (Some(me), span.clone()));
                    next = span.end;
                }
                assert_eq!(place.span().end, next);
            }
        }
    }
}

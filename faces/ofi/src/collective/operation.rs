//! One operation of a member: the bytes from below, and those for below.

use super::{Kind, Place};
use crate::atomic::{execute, Datatype, Operator};
use std::ops::Range;

/// Members gave different numbers of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differs;

/// The work of an operation, the same at all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The operation.
    pub kind: Kind,
    /// The member whose bytes are for all, of operations that have one.
    pub root: usize,
    /// Bytes of a member's block.
    pub block: usize,
    /// The way in which values are combined, by an operation that does that.
    pub combine: Option<(Datatype, Operator)>,
}

/// An operation of a member.
pub struct Operation {
    work: Work,
    place: Place,
    /// The bytes of the own subtree, as far as they are here.
    gathered: Vec<u8>,
    /// Number of subtrees below that have given theirs.
    taken: usize,
}

impl Work {
    /// Returns the number of bytes that a subtree gives.
    fn given_by(&self, span: &Range<usize>, members: usize) -> usize {
        let has_root = span.contains(&self.root);
        match self.kind {
            Kind::Barrier => 0,
            Kind::Broadcast if has_root => self.block,
            Kind::Scatter if has_root => self.block * members,
            Kind::Broadcast | Kind::Scatter => 0,
            Kind::AllReduce => self.block,
            Kind::AllGather => self.block * span.len(),
        }
    }

    /// Returns the number of bytes that a subtree gets.
    fn given_to(&self, span: &Range<usize>, members: usize) -> usize {
        match self.kind {
            Kind::Barrier => 0,
            Kind::Broadcast | Kind::AllReduce => self.block,
            Kind::AllGather => self.block * members,
            Kind::Scatter => self.block * span.len(),
        }
    }
}

impl Operation {
    /// Starts with the bytes that the member itself gives.
    pub fn new(work: Work, place: Place, own: Vec<u8>) -> Operation {
        Operation { work, place, gathered: own, taken: 0 }
    }

    /// Returns the member below whose subtree gives its bytes next; `None` when all have.
    pub fn next(&self) -> Option<usize> {
        self.place.below().nth(self.taken).map(|span| span.start)
    }

    /// Takes the bytes of the next subtree below.
    ///
    /// # Errors
    /// Their number is not that of this member's call.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), Differs> {
        let span = self.place.below().nth(self.taken).ok_or(Differs)?;
        if bytes.len() != self.work.given_by(&span, self.place.members) {
            return Err(Differs);
        }
        self.taken += 1;
        match self.work.combine {
            Some((datatype, operator)) => {
                execute(datatype, operator, &mut self.gathered, bytes, &[]);
            }
            None => self.gathered.extend_from_slice(bytes),
        }
        Ok(())
    }

    /// Returns the bytes of the own subtree, for the member above; at the first member, all.
    pub fn gathered(&self) -> &[u8] {
        &self.gathered
    }

    /// Returns true if the bytes from above are as many as this member's call wants.
    pub fn is_answer(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.work.given_to(&self.place.span(), self.place.members)
    }

    /// Returns the members below, each with its bytes of those that came from above.
    pub fn answers<'a>(&self, bytes: &'a [u8]) -> Vec<(usize, &'a [u8])> {
        let block = |member: usize| (member - self.place.me) * self.work.block;
        let part = |span: &Range<usize>| match self.work.kind {
            Kind::Scatter => bytes.get(block(span.start)..block(span.end)).unwrap_or_default(),
            _ => bytes,
        };
        self.place.below().map(|span| (span.start, part(&span))).collect()
    }

    /// Returns the own result, of the bytes that came from above.
    pub fn result<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        match self.work.kind {
            Kind::Scatter => bytes.get(..self.work.block).unwrap_or_default(),
            _ => bytes,
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Runs an operation at all members; returns their results.
    fn run(work: Work, members: usize, own: impl Fn(usize) -> Vec<u8>) -> Vec<Vec<u8>> {
        let place = |me| Place { me, members };
        let new = |me| Operation::new(work, place(me), own(me));
        let mut all: Vec<Operation> = (0..members).map(new).collect();
        // Members below have higher numbers.
        for me in (0..members).rev() {
            while let Some(below) = all[me].next() {
                let bytes = all[below].gathered().to_vec();
                assert_eq!(all[me].take(&bytes), Ok(()));
            }
        }
        let mut down: Vec<Vec<u8>> = vec![Vec::new(); members];
        down[0] = all[0].gathered().to_vec();
        for me in 0..members {
            let bytes = down[me].clone();
            assert!(all[me].is_answer(&bytes), "{me} of {members}");
            for (below, part) in all[me].answers(&bytes) {
                down[below] = part.to_vec();
            }
            down[me] = all[me].result(&bytes).to_vec();
        }
        down
    }

    fn work(kind: Kind, root: usize, block: usize) -> Work {
        Work { kind, root, block, combine: None }
    }

    #[test]
    fn run__every_kind_with_up_to_twenty_members_and_every_root() {
        for members in 1..20 {
            let own = |me: usize| vec![me as u8, 100 + me as u8];
            let all: Vec<u8> = (0..members).flat_map(own).collect();
            assert!(run(work(Kind::Barrier, 0, 0), members, |_| vec![]).concat().is_empty());
            let gathered = run(work(Kind::AllGather, 0, 2), members, own);
            assert!(gathered.iter().all(|one| *one == all), "{members}");
            for root in 0..members {
                let of = |bytes: &[u8], me| if me == root { bytes.to_vec() } else { vec![] };
                let sent = run(work(Kind::Broadcast, root, 2), members, |me| of(&[7, 8], me));
                assert!(sent.iter().all(|one| *one == [7, 8]), "{root} of {members}");
                let scattered = run(work(Kind::Scatter, root, 2), members, |me| of(&all, me));
                assert_eq!(scattered.concat(), all, "{root} of {members}");
            }
            let sum = Some((Datatype::Uint8, Operator::Sum));
            let reduced = Work { combine: sum, ..work(Kind::AllReduce, 0, 2) };
            let total: usize = (0..members).sum();
            let totals = [total as u8, (total + 100 * members) as u8];
            assert!(run(reduced, members, own).iter().all(|one| *one == totals), "{members}");
        }
    }

    #[test]
    fn take__another_number_of_elements_is_refused() {
        let place = Place { me: 0, members: 2 };
        let mut gather = Operation::new(work(Kind::AllGather, 0, 2), place, vec![1, 2]);
        assert_eq!(gather.take(&[3]), Err(Differs));
        assert_eq!(gather.take(&[3, 4]), Ok(()));
        assert_eq!(gather.take(&[5, 6]), Err(Differs), "there is one member below");
        assert!(gather.is_answer(&[0; 4]) && !gather.is_answer(&[0; 2]));
    }
}

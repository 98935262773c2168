//! Operations that move bytes and combine none, from and into memory of known length.

use super::call::{Call, Incoming};
use super::sys::{Field, Part};
use super::{PeerId, COLLECTIVE};
use std::collections::VecDeque;
use std::ops::Range;
use weft_core::group::tree::{self, Tree};
use weft_core::OpError;

/// Size of the parts of a broadcast that ranks pass on: the levels of the tree pass on different
/// parts at the same time.
const PART: usize = 128 << 10;
/// Parts on their way to each child, and from the parent.
const AHEAD: usize = 4;
/// Ranks with which a rank exchanges at a time.
const PARTNERS: usize = 16;

/// Messages on their way: those of the longest time first.
#[derive(Default)]
struct Window<'f> {
    sends: VecDeque<(PeerId, Part<'f>)>,
    receives: VecDeque<Incoming<'f>>,
}

impl Window<'_> {
    /// Waits until at most so many messages are on their way in each direction.
    async fn shrink(&mut self, call: &Call, most: usize) -> Result<(), OpError> {
        while self.receives.len() > most {
            let Some(incoming) = self.receives.pop_front() else { break };
            call.end_vector(incoming).await?;
        }
        while self.sends.len() > most {
            let Some(sent) = self.sends.pop_front() else { break };
            call.end_send(sent).await?;
        }
        Ok(())
    }
}

impl Call {
    /// Broadcast of a field in parts, so that all levels of the tree work at once.
    pub(super) async fn do_broadcast_into(
        &self,
        (kind, root): (Tree, usize),
        field: &Field<'_>,
    ) -> Result<(), OpError> {
        let parent = tree::parent(kind, root, self.rank(), self.size());
        let children = || tree::children(kind, root, self.rank(), self.size());
        // Two ranks have nothing to pass on.
        let size = if self.size() == 2 { field.len().max(1) } else { PART };
        let part = |at: usize| at * size..((at + 1) * size).min(field.len());
        // An empty message is one part.
        let parts = field.len().div_ceil(size).max(1);
        let mut window = Window::default();
        let mut arriving = VecDeque::new();
        let mut expected = 0;
        for at in 0..parts {
            if let Some(parent) = parent {
                while expected < parts.min(at + AHEAD) {
                    let incoming = self.incoming(field, parent, part(expected), COLLECTIVE)?;
                    arriving.push_back(incoming);
                    expected += 1;
                }
                if let Some(incoming) = arriving.pop_front() {
                    self.end_vector(incoming).await?;
                }
            }
            for child in children() {
                window.sends.push_back(self.outgoing(field, child, part(at), COLLECTIVE)?);
            }
            window.shrink(self, AHEAD * children().count()).await?;
        }
        window.shrink(self, 0).await
    }

    /// Allgather: each rank sends its block to each other one, and receives those of the others in
    /// their places.
    pub(super) async fn do_allgather_into(
        &self,
        field: &Field<'_>,
        blocks: &[Range<usize>],
    ) -> Result<(), OpError> {
        let own = &blocks[self.rank()];
        let blocks = |from: usize| blocks[from].clone();
        self.exchange((field, field), |_| own.clone(), blocks).await
    }

    /// All-to-all: a part for each rank.
    pub(super) async fn do_alltoall_into(
        &self,
        (from, into): (&Field<'_>, &Field<'_>),
        (given, taken): (&[Range<usize>], &[Range<usize>]),
    ) -> Result<(), OpError> {
        let own = self.rank();
        into.copy(taken[own].clone(), (from, given[own].clone()));
        self.exchange((from, into), |to| given[to].clone(), |from| taken[from].clone()).await
    }

    /// Sends a part to each other rank and receives one of each, with another partner in each step,
    /// so that no two ranks begin with the same rank.
    async fn exchange(
        &self,
        (from, into): (&Field<'_>, &Field<'_>),
        given: impl Fn(usize) -> Range<usize>,
        taken: impl Fn(usize) -> Range<usize>,
    ) -> Result<(), OpError> {
        let size = self.size();
        let mut window = Window::default();
        for step in 1..size {
            let to = (self.rank() + step) % size;
            let source = (self.rank() + size - step) % size;
            window.receives.push_back(self.incoming(into, source, taken(source), COLLECTIVE)?);
            window.sends.push_back(self.outgoing(from, to, given(to), COLLECTIVE)?);
            window.shrink(self, PARTNERS).await?;
        }
        window.shrink(self, 0).await
    }
}

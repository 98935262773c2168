//! Frames that the kernel refuses for want of buffers (`ENOBUFS`).
//!
//! A card that is busy takes them a little later. A virtual cable refuses them for good while they
//! are longer than the other end accepts: kept, they would be in the way of all that come behind
//! them, so after a time they are lost, as on a network.

use std::time::{Duration, Instant};

/// Time in which a card of 1 Gbit/s sends what it queues.
const BUSY_MAX: Duration = Duration::from_millis(20);

/// The refusals since a frame was taken last.
#[derive(Default)]
pub(crate) struct NoBuffers {
    since: Option<Instant>,
}

impl NoBuffers {
    /// Notes a refusal. True if nothing was taken for so long that the frame counts as lost.
    #[cold]
    pub fn is_lasting(&mut self) -> bool {
        self.since.get_or_insert_with(Instant::now).elapsed() >= BUSY_MAX
    }

    /// Notes that the kernel took a frame.
    #[inline]
    pub fn end(&mut self) {
        self.since = None;
    }
}

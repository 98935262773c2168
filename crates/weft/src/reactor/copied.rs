//! An endpoint in a copy of the process that opened it, made by `fork` or by a clone of its
//! machine. Sockets, rings, packet numbers and peers belong to the original: the copy uses none of
//! them, and all its operations fail with that cause.

use super::Reactor;
use weft_core::{LinkCaps, PeerFailure, PeerId};
use weft_link::copied::Origin;
use weft_link::{Address, Frame, Link, LinkError, PeerInfo, Sink, WaitFd};

/// A replacement of a link that belongs to the original.
struct Disowned(LinkCaps);

impl Link for Disowned {
    fn caps(&self) -> LinkCaps {
        self.0
    }

    fn advertise(&self, _: &mut Address) {}

    fn connect(&mut self, _: &PeerInfo) -> Result<LinkCaps, LinkError> {
        Err(LinkError::Unreachable(PeerFailure::Copied.to_string()))
    }

    fn disconnect(&mut self, _: PeerId) {}

    fn send(&mut self, frames: &[Frame<'_>]) -> usize {
        frames.len()
    }

    fn recv(&mut self, _: usize, _: &mut dyn Sink) -> usize {
        0
    }

    fn wait_fds(&self, _: &mut Vec<WaitFd>) {}
}

impl Reactor {
    /// Checks for a copy before any use of a link; it costs a load and a comparison.
    #[inline(always)]
    pub(crate) fn leave_if_copied(&mut self) {
        if !self.origin.is_here() {
            self.leave();
        }
    }

    /// Leaves links and peers to the original.
    #[cold]
    fn leave(&mut self) {
        self.origin = Origin::here();
        for (link, caps) in self.links.iter_mut().zip(&self.receiver.arriving.caps) {
            // Dropping it would shut down connections of the original.
            std::mem::forget(std::mem::replace(link, Box::new(Disowned(*caps))));
        }
        let id = self.receiver.engine.id();
        weft_link::error!("endpoint {id} ends here: {}", PeerFailure::Copied);
        self.receiver.engine.end(PeerFailure::Copied);
        self.flush();
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            self.links.drain(..).for_each(std::mem::forget);
        }
    }
}

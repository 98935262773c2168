//! Counters of an endpoint and its links.

use super::Endpoint;
use crate::counters::{Page, RankId};
use crate::reactor::Handle;

/// Counters besides [`Endpoint::stats`], as [`Endpoint::counters`] gives them.
#[derive(Clone, Copy)]
pub struct Counters<'a> {
    reactor: &'a Handle,
}

impl Endpoint {
    /// Returns the counters of the links and of the memory, and their publication.
    #[inline]
    pub fn counters(&self) -> Counters<'_> {
        Counters { reactor: &self.reactor }
    }
}

impl Counters<'_> {
    /// Returns the counters of the links: link, counter, value.
    pub fn links(self) -> Vec<(&'static str, &'static str, u64)> {
        let mut out = Vec::new();
        for link in &self.reactor.borrow().links {
            let of = link.caps().name;
            link.counters(&mut |name, value| out.push((of, name, value)));
        }
        out
    }

    /// Makes the counters readable from outside the process: see [`counters`](crate::counters).
    ///
    /// # Errors
    /// The system gives no memory file.
    pub fn publish(self, who: &RankId) -> std::io::Result<()> {
        self.reactor.borrow_mut().published.page = Some(Page::create(who)?);
        Ok(())
    }

    /// Returns the bytes of `unexpected_max` that peers have got for unexpected messages, beyond
    /// the share that every peer has.
    pub fn unexpected_bytes(self) -> u64 {
        self.reactor.engine().matching().room_used()
    }
}

//! An endpoint whose process moves to another host.

use super::Endpoint;
use crate::reactor::Handle;
use std::ops::Range;
use weft_link::LinkError;

/// The steps of a move, as [`Endpoint::moving`] gives them, in the order of their methods. Between
/// [`close`](Self::close) and [`open`](Self::open) nothing else of the endpoint is called, and the
/// process may be copied.
#[derive(Clone, Copy)]
pub struct Moving<'a> {
    reactor: &'a Handle,
}

impl Endpoint {
    /// Returns the steps of a move of this endpoint's process to another host.
    pub fn moving(&self) -> Moving<'_> {
        Moving { reactor: &self.reactor }
    }
}

impl Moving<'_> {
    /// Returns the names of links that stand against a move: they cannot be closed and opened.
    pub fn obstacles(self) -> Vec<&'static str> {
        let links = &mut self.reactor.borrow_mut().links;
        let fixed = links.iter_mut().filter_map(|link| match link.movable() {
            Some(_) => None,
            None => Some(link.caps().name),
        });
        fixed.collect()
    }

    /// Tells all peers to wait: this endpoint will be silent, in its move of this number.
    pub fn hold(self, number: u32) {
        self.reactor.borrow_mut().hold(number);
    }

    /// Closes the links: from now on the process has no descriptor of the network, and no packet
    /// number.
    pub fn close(self) {
        self.reactor.borrow_mut().close_links();
    }

    /// Opens the links on the host where the process runs now, and tells all peers. `runs` are
    /// packet numbers that nobody has used, see
    /// [`Secure::grant`](weft_link::secure::Secure::grant).
    ///
    /// # Errors
    /// A link cannot be opened, or the numbers were used before: the endpoint stays closed.
    pub fn open(self, number: u32, runs: Range<u64>) -> Result<(), LinkError> {
        self.reactor.borrow_mut().open_links(number, runs)
    }

    /// Tells the peers that have not answered once more. Returns their number.
    pub fn tell(self) -> usize {
        self.reactor.borrow_mut().tell_again()
    }

    /// Returns the number of peers that have not answered since [`hold`](Self::hold) or
    /// [`open`](Self::open). Progress handles their answers.
    pub fn untold(self) -> usize {
        self.reactor.borrow().known.untold.len()
    }
}

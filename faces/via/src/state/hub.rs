//! The client of the port.

use super::State;
use std::cell::RefCell;
use std::rc::Rc;
use weft::port::{Arrived, Client, Port};
use weft::{PeerFailure, PeerId};

/// A network interface as a client of the port of its endpoint.
pub struct Hub {
    /// Its state.
    pub state: RefCell<State>,
}

impl Client for Hub {
    #[inline]
    fn arrived(self: Rc<Self>, port: &Port, message: Arrived) {
        self.state.borrow_mut().arrived(port, &message);
        port.release(message);
    }

    fn failed(self: Rc<Self>, port: &Port, peer: PeerId, failure: PeerFailure) {
        log::debug!("{}: {failure:?}", port.endpoint().describe(peer));
        self.state.borrow_mut().peer_failed(port, peer);
    }
}

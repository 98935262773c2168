//! The client of the port.

use super::State;
use crate::wire;
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
        if wire::ends(message.number) {
            self.reap(port);
        }
        self.state.borrow_mut().arrived(port, &message);
        port.release(message);
    }

    fn failed(self: Rc<Self>, port: &Port, peer: PeerId, failure: PeerFailure) {
        log::debug!("{}: {failure:?}", port.endpoint().peer(peer).describe());
        self.reap(port);
        self.state.borrow_mut().peer_failed(port, peer);
    }
}

impl Hub {
    /// Handles operations that have ended. They come before the end of their connection: its
    /// message may be behind what they sent.
    #[inline]
    pub fn reap(&self, port: &Port) {
        while let Some(done) = port.endpoint().posted().poll() {
            self.state.borrow_mut().ended(port, done.context, done.op, done.error);
        }
    }
}

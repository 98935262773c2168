//! Active messages: a client of the port that calls the program's handlers.

use super::{Endpoint, Regions};
use crate::port::{Arrived, Client, Port, ACTIVE, NUMBERS};
use crate::reactor::{error_of, Handle};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use weft_core::engine::types::SendArgs;
use weft_core::{OpError, PeerId};

/// An active message, as its handler gets it.
pub struct ActiveMessage {
    /// The sender.
    pub source: PeerId,
    /// The sender's 32-bit argument.
    pub argument: u32,
    /// The message.
    pub data: Vec<u8>,
}

type Handler = Rc<RefCell<dyn FnMut(&Endpoint, ActiveMessage)>>;

/// The handlers of an endpoint, by number.
#[derive(Default)]
pub(crate) struct Handlers {
    by_number: RefCell<HashMap<u32, Handler>>,
}

impl Client for Handlers {
    fn arrived(self: Rc<Self>, port: &Port, mut message: Arrived) {
        let Arrived { source, number, argument, .. } = message;
        let data = message.data.take();
        port.release(message);
        let handler = self.by_number.borrow().get(&number).cloned();
        match handler {
            Some(handler) => {
                (handler.borrow_mut())(port.endpoint(), ActiveMessage { source, argument, data });
            }
            None => weft_link::warn!(
                "active message for handler {number} from {}: no such handler",
                port.endpoint().peer(source).describe()
            ),
        }
    }
}

/// The active messages of an endpoint, as [`Endpoint::active`] gives them.
#[derive(Clone, Copy)]
pub struct Active<'a> {
    reactor: &'a Handle,
}

impl Endpoint {
    /// Returns the active messages: handlers, and messages that have a peer call its handler.
    #[inline]
    pub fn active(&self) -> Active<'_> {
        Active { reactor: &self.reactor }
    }
}

impl Active<'_> {
    /// Registers a handler of active messages. It runs inside `progress`, one at a time, and may
    /// send. If it panics, the call that made progress unwinds: the memory that it borrowed is free
    /// again (bytes to send are sent from a copy, bytes to receive are dropped), and the
    /// endpoint serves the next call.
    ///
    /// # Panics
    /// `number` is not less than [`NUMBERS`].
    pub fn handle(self, number: u32, handler: impl FnMut(&Endpoint, ActiveMessage) + 'static) {
        assert!(number < NUMBERS, "the number of a handler has 24 bits");
        let Ok(Some((_, handlers))) = Port::known::<Handlers>(self.reactor, ACTIVE) else {
            return;
        };
        handlers.by_number.borrow_mut().insert(number, Rc::new(RefCell::new(handler)));
    }

    /// Runs `work` on each active message of a handler as it arrives, in order among all packets of
    /// the peer: after its earlier messages and puts, and before later packets are handled. `work`
    /// gets the argument, the message, and the memory registered here; the handler, which runs
    /// later, gets the value that `work` returns, if any.
    pub fn handle_at_once(
        self,
        number: u32,
        work: impl FnMut(&mut Regions<'_>, u32, Vec<u8>) -> Option<Vec<u8>> + 'static,
    ) {
        let ports = &mut self.reactor.borrow_mut().receiver.ports;
        ports.at_once.insert(number, Box::new(work));
    }

    /// Sends an active message of at most 64 KiB: the peer calls `handler` with it.
    ///
    /// # Errors
    /// The peer failed; too many packets are queued (`Busy`); the message is too long, or the
    /// number is not less than [`NUMBERS`] (`Refused`).
    pub fn send(self, to: PeerId, handler: u32, argument: u32, data: &[u8]) -> Result<(), OpError> {
        if handler >= NUMBERS {
            return Err(OpError::Refused);
        }
        let reactor = &mut *self.reactor.borrow_mut();
        let tag = u64::from(argument) << 32 | u64::from(ACTIVE) << 24 | u64::from(handler);
        reactor.inject(SendArgs::active(to, tag, data.len()), data).map_err(error_of)?;
        reactor.flush();
        Ok(())
    }
}

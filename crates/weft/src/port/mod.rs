//! The port: the interface between the endpoint and protocols above messages.
//!
//! A client of the port has a number. [`Endpoint::port`](crate::Endpoint::port) registers the
//! client; from then on it is called when a message for its number arrives, when a peer fails, and
//! at the time that it has asked for. It sends through its [`Port`]. No code below the port knows a
//! client: a new client changes no line of engine, reactor or link, and has its own settings.
//!
//! The messages of the port are active messages: a client's number (8 bits), a number of the
//! client's own (24 bits), an argument (32 bits) and at most 64 KiB of data. Messages from one peer
//! arrive in the order in which they were sent. Each holds credit of its sender until the client
//! gives it back with [`Port::release`]: a slow client slows down its senders, and no message is
//! lost.
//!
//! Clients are called inside progress, one message at a time. While a client handles a message,
//! further messages for it wait, also if the client makes progress meanwhile. A client may send,
//! with the calls that do not wait. The messages of a peer that failed come before its failure.
//! Messages for a number without a client wait until one registers.
//!
//! ```
//! use std::cell::Cell;
//! use std::rc::Rc;
//! use weft::port::{Arrived, Client, Port};
//!
//! /// Adds up the arguments of its messages.
//! #[derive(Default)]
//! struct Sum(Cell<u32>);
//!
//! impl Client for Sum {
//!     fn arrived(self: Rc<Self>, port: &Port, message: Arrived) {
//!         self.0.set(self.0.get() + message.argument);
//!         port.release(message);
//!     }
//! }
//!
//! let id = weft::EndpointId(7);
//! let links: Vec<Box<dyn weft_link::Link>> = vec![Box::new(weft::SelfLink::new(id))];
//! let (config, clock) = (weft::Config::default(), weft::Clock::system());
//! let endpoint = weft::Endpoint::with_links(config, id, clock, links);
//! let me = endpoint.connect(&endpoint.address())?;
//! let (port, sum) = endpoint.port(1, Rc::<Sum>::default)?;
//! for number in [3, 4] {
//!     port.post(me, 0, number, &[])?;
//! }
//! while sum.0.get() < 7 {
//!     endpoint.wait(None);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod memory;
mod send;
#[allow(unsafe_code)]
mod sys;

pub use crate::reactor::message::{Arrived, Buffer, NUMBERS};
pub use crate::reactor::regions::Regions;
pub use crate::reactor::sys::kept::Kept;
pub use crate::reactor::{wake, Awaits};
pub use weft_core::engine::types::AtomicRequest;

use crate::reactor::{Call, Handle, Upcalls};
use std::any::Any;
use std::fmt;
use std::rc::Rc;
use weft_core::{Instant, PeerFailure, PeerId};

/// The client number of the active messages of [`Active::handle`](crate::endpoint::Active::handle).
pub const ACTIVE: u8 = 0;
/// The first client number of the crates of weft. The numbers from 1 up to this one are for
/// programs.
pub const WEFT: u8 = 0x80;

/// A protocol above messages.
pub trait Client: Any {
    /// Handles a message, and gives it back with [`Port::release`], now or later.
    fn arrived(self: Rc<Self>, port: &Port, message: Arrived);

    /// Called when a peer has failed; all operations with it have failed too.
    fn failed(self: Rc<Self>, port: &Port, peer: PeerId, failure: PeerFailure) {
        let _ = (port, peer, failure);
    }

    /// Called at the time that [`Port::call_at`] or [`Port::call_by`] named.
    fn due(self: Rc<Self>, port: &Port) {
        let _ = port;
    }

    /// Called when a peer asks for an atomic operation on a word that this client serves
    /// ([`Port::serve`]). [`Port::atomic_done`] answers it.
    fn asked(self: Rc<Self>, port: &Port, request: AtomicRequest) {
        port.atomic_done(&request, None);
    }

    /// True if [`poll`](Client::poll) is to be called. Each round of progress asks this, for
    /// clients that called [`Port::poll_each_round`].
    fn has_events(&self) -> bool {
        false
    }

    /// Handles the events; afterwards [`has_events`](Client::has_events) returns false.
    fn poll(self: Rc<Self>, port: &Port) {
        let _ = port;
    }
}

/// Another client has the number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NumberTaken {
    /// The number.
    pub number: u8,
}

impl fmt::Display for NumberTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "another client of the port has the number {}: choose another", self.number)
    }
}

weft_core::readable!(NumberTaken);

impl std::error::Error for NumberTaken {}

impl<C: Client> Upcalls for C {
    fn upcall(self: Rc<Self>, reactor: &Handle, number: u8, call: Call) {
        let port = &Port { reactor: reactor.clone(), number };
        match call {
            Call::Arrived(message) => self.arrived(port, message),
            Call::Failed(peer, failure) => self.failed(port, peer, failure),
            Call::Asked(request) => self.asked(port, request),
            Call::Due => self.due(port),
            Call::Poll => self.poll(port),
        }
    }

    fn wants_poll(&self) -> bool {
        self.has_events()
    }
}

/// A client's handle of its endpoint.
#[derive(Clone)]
pub struct Port {
    pub(crate) reactor: Handle,
    number: u8,
}

impl Port {
    /// Returns the client of a number and its port; `make` makes the client if there is none.
    pub(crate) fn open<C: Client>(
        reactor: &Handle,
        number: u8,
        make: impl FnOnce() -> Rc<C>,
    ) -> Result<(Port, Rc<C>), NumberTaken> {
        if let Some(known) = Port::known(reactor, number)? {
            return Ok(known);
        }
        let client = make();
        reactor.borrow_mut().receiver.ports.register(number, Rc::<C>::clone(&client));
        Ok((Port { reactor: reactor.clone(), number }, client))
    }

    /// Returns the client of a number and its port, if there is one.
    pub(crate) fn known<C: Client>(
        reactor: &Handle,
        number: u8,
    ) -> Result<Option<(Port, Rc<C>)>, NumberTaken> {
        let known = reactor.borrow().receiver.ports.client(number).cloned();
        let Some(client) = known else { return Ok(None) };
        let client: Rc<dyn Any> = client;
        let client = client.downcast().map_err(|_| NumberTaken { number })?;
        Ok(Some((Port { reactor: reactor.clone(), number }, client)))
    }
}

impl Port {
    /// Reads the endpoint's clock.
    pub fn now(&self) -> Instant {
        self.reactor.borrow_mut().receiver.tick()
    }

    /// Returns the time of this round of progress, without reading the clock.
    #[inline]
    pub fn round(&self) -> Instant {
        self.reactor.borrow().receiver.time.now
    }

    /// Sets the time of the client's next call ([`Client::due`]), in place of an earlier one.
    pub fn call_at(&self, at: Instant) {
        self.reactor.borrow_mut().receiver.ports.set_due(self.number, at);
    }

    /// Sets the time of the client's next call, unless a sooner one is set.
    pub fn call_by(&self, at: Instant) {
        self.reactor.borrow_mut().receiver.ports.due_by(self.number, at);
    }

    /// Calls [`Client::has_events`] in each round of progress from now on.
    pub fn poll_each_round(&self) {
        self.reactor.borrow_mut().note_polled();
    }

    /// Gives a message back: its memory, and the credit of its sender.
    #[inline]
    pub fn release(&self, message: Arrived) {
        let receiver = &mut self.reactor.borrow_mut().receiver;
        message.repay(&mut receiver.engine);
        receiver.ports.recycle(message.data);
    }

    /// Gives back the credit of a message but keeps its memory, for clients that bound this memory
    /// in another way.
    #[inline]
    pub fn take(&self, message: Arrived) -> Buffer {
        message.repay(&mut self.reactor.engine_mut());
        message.data
    }

    /// Records that a message is kept until the program asks for it. Its peer gets more credit if
    /// there is room (`WEFT_UNEXPECTED_MAX`), since the message that the program wants may be
    /// behind it.
    pub fn note_kept(&self, message: &mut Arrived) {
        message.kept = true;
        let receiver = &mut self.reactor.borrow_mut().receiver;
        receiver
            .engine
            .peer_mut(message.source)
            .handle_active_kept(receiver.time.now, message.credit());
    }

    /// Returns memory for a message of `len` bytes, with arbitrary content.
    #[inline]
    pub fn buffer(&self, len: usize) -> Buffer {
        let mut buffer = self.reactor.borrow_mut().receiver.ports.buffer();
        buffer.resize(len);
        buffer
    }

    /// Takes memory back for the next message.
    #[inline]
    pub fn recycle(&self, buffer: Buffer) {
        self.reactor.borrow_mut().receiver.ports.recycle(buffer);
    }
}

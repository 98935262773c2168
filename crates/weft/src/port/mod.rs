//! The port: where protocols above messages meet the endpoint.
//!
//! A client of the port has a number. [`Endpoint::port`] registers it, and from then on the client
//! is called when a message for its number arrives, when a peer fails, and at the time that it has
//! asked for. It sends through its [`Port`]. Nothing below the port knows any client: a new one
//! changes no line of engine, driver or link, and its settings are its own.
//!
//! The messages of the port are active messages: a client's number (8 bits), a number of the
//! client's own (24 bits), an argument (32 bits) and at most 64 KiB of data. Messages from one peer
//! arrive in the order in which they were sent. Each costs credit of its sender until the client
//! gives it back with [`Port::release`]: a client that is slow slows down those who send to it, and
//! nothing is lost.
//!
//! Clients are called inside progress, one message at a time. While a client deals with a message
//! further ones for it wait, also when it makes progress meanwhile. A client may send, and uses the
//! calls that do not wait. Messages for a number without a client wait for one.
//!
//! ```
//! use std::cell::Cell;
//! use std::rc::Rc;
//! use weft::port::{Arrived, Client, Port};
//!
//! /// Adds up what it is sent.
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

mod buffer;
mod memory;
mod run;
mod send;

pub use crate::endpoint::sys::kept::Kept;
pub use crate::endpoint::wake;
pub use crate::endpoint::Awaits;
pub use crate::endpoint::Regions;
pub use buffer::Buffer;
pub use weft_core::engine::types::AtomicRequest;

use crate::endpoint::Endpoint;
use std::any::Any;
use std::fmt;
use std::rc::Rc;
use weft_core::{Instant, PeerFailure, PeerId};

/// The client's number of the active messages of [`Endpoint::handle`].
pub const ACTIVE: u8 = 0;
/// The first of the numbers that clients in the crates of weft have. Those between are for
/// programs.
pub const WEFT: u8 = 0x80;
/// Numbers of a client's own are less than this.
pub const NUMBERS: u32 = 1 << 24;

/// A protocol above messages.
pub trait Client: Any {
    /// Deals with a message, and gives it back with [`Port::release`], now or later.
    fn arrived(self: Rc<Self>, port: &Port, message: Arrived);

    /// A peer has failed, and with it all operations with it.
    fn failed(self: Rc<Self>, port: &Port, peer: PeerId, failure: PeerFailure) {
        let _ = (port, peer, failure);
    }

    /// The time has come that [`Port::call_at`] or [`Port::call_by`] named.
    fn due(self: Rc<Self>, port: &Port) {
        let _ = port;
    }

    /// A peer asks for an atomic operation on a word that [`Port::serve`] has given to this client.
    /// It is answered with [`Port::atomic_done`].
    fn asked(self: Rc<Self>, port: &Port, request: AtomicRequest) {
        port.atomic_done(&request, None);
    }

    /// True if [`poll`](Client::poll) is to be called. Asked in each round of progress of clients
    /// that [`Port::poll_each_round`] was called for.
    fn has_news(&self) -> bool {
        false
    }

    /// Deals with what [`has_news`](Client::has_news) has said, which says no more afterwards.
    fn poll(self: Rc<Self>, port: &Port) {
        let _ = port;
    }
}

/// A message that arrived for a client. Its credit comes back to its sender when it is given to
/// [`Port::release`].
#[must_use = "its sender's credit comes back with Port::release"]
pub struct Arrived {
    /// Who sent it.
    pub source: PeerId,
    /// The client's own number in it, less than [`NUMBERS`].
    pub number: u32,
    /// The sender's argument.
    pub argument: u32,
    /// The sender's bytes.
    pub data: Buffer,
    /// Bytes that its credit is for.
    credit: u32,
}

impl Arrived {
    #[inline]
    pub(crate) fn new(source: PeerId, tag: u64, data: Buffer) -> Arrived {
        let credit = data.len() as u32;
        let (number, argument) = (tag as u32 & (NUMBERS - 1), (tag >> 32) as u32);
        Arrived { source, number, argument, data, credit }
    }

    #[inline]
    pub(crate) fn credit(&self) -> u64 {
        u64::from(self.credit)
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

crate::readable!(NumberTaken);

impl std::error::Error for NumberTaken {}

/// An endpoint as one of its clients sees it.
#[derive(Clone)]
pub struct Port {
    pub(crate) endpoint: Endpoint,
    pub(crate) number: u8,
}

impl Endpoint {
    /// The client of a number, made by `make` if there is none, and its port.
    ///
    /// # Errors
    /// A client of another type has the number.
    pub fn port<C: Client>(
        &self,
        number: u8,
        make: impl FnOnce() -> Rc<C>,
    ) -> Result<(Port, Rc<C>), NumberTaken> {
        let port = Port { endpoint: self.clone(), number };
        let known = self.inner.borrow().driver.intake.ports.client(number).cloned();
        let client = match known {
            Some(client) => {
                let client: Rc<dyn Any> = client;
                client.downcast().map_err(|_| NumberTaken { number })?
            }
            None => {
                let client = make();
                let inner = &mut *self.inner.borrow_mut();
                inner.driver.intake.ports.register(number, Rc::<C>::clone(&client));
                client
            }
        };
        Ok((port, client))
    }
}

impl Port {
    /// The endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The time now, in the endpoint's time.
    pub fn now(&self) -> Instant {
        self.endpoint.inner.borrow_mut().driver.intake.tick()
    }

    /// The time of this round of progress: the clock is not read.
    #[inline]
    pub fn round(&self) -> Instant {
        self.endpoint.inner.borrow().driver.intake.time.now
    }

    /// Has the client called at a time ([`Client::due`]), and not at another that was named before.
    pub fn call_at(&self, at: Instant) {
        let inner = &mut *self.endpoint.inner.borrow_mut();
        inner.driver.intake.ports.set_due(self.number, at);
        inner.note_polled();
    }

    /// Has the client called at a time, or sooner if a sooner one was named before.
    pub fn call_by(&self, at: Instant) {
        let inner = &mut *self.endpoint.inner.borrow_mut();
        inner.driver.intake.ports.due_by(self.number, at);
        inner.note_polled();
    }

    /// Has [`Client::has_news`] asked in each round of progress.
    pub fn poll_each_round(&self) {
        self.endpoint.inner.borrow_mut().note_polled();
    }

    /// Gives a message back: its memory, and the credit of its sender.
    #[inline]
    pub fn release(&self, message: Arrived) {
        let core = &mut self.endpoint.inner.borrow_mut().driver.intake;
        core.engine.release(message.source, message.credit());
        core.ports.recycle(message.data);
    }

    /// Gives back the credit of a message's sender: something else bounds the memory from now on.
    #[inline]
    pub fn take(&self, message: Arrived) -> Buffer {
        let core = &mut self.endpoint.inner.borrow_mut().driver.intake;
        core.engine.release(message.source, message.credit());
        message.data
    }

    /// Notes that a message of a peer is kept until the program asks for it. The peer gets more
    /// credit, if there is room (`WEFT_UNEXPECTED_MAX`): a message that is asked for may be behind.
    pub fn note_kept(&self, peer: PeerId) {
        let core = &mut self.endpoint.inner.borrow_mut().driver.intake;
        core.engine.active_kept(core.time.now, peer);
    }

    /// Memory for a message of `len` bytes, which hold anything.
    #[inline]
    pub fn buffer(&self, len: usize) -> Buffer {
        let mut buffer = self.endpoint.inner.borrow_mut().driver.intake.ports.buffer();
        buffer.resize(len);
        buffer
    }

    /// Takes memory back for the next message.
    #[inline]
    pub fn recycle(&self, buffer: Buffer) {
        self.endpoint.inner.borrow_mut().driver.intake.ports.recycle(buffer);
    }
}

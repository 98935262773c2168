//! Keys, compared when one endpoint connects to another: a client of the port.
//!
//! | number | argument | bytes |
//! | --- | --- | --- |
//! | 0 request | the key | request u64, network interface u64, number u32, version u32 |
//! | 1 answer | a status: success, or another key | request u64 |
//!
//! All numbers are little-endian. A message of another form is dropped.

use crate::address::wired;
use crate::address::{Addr, Local};
use crate::code::{StatusCode, STATUS_BAD_KEY, STATUS_SUCCESS};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use weft::port::{Arrived, Client, Port};
use weft::{OpError, PeerFailure, PeerId};
use weft_mxoe::node::PeerIndex;

/// The client's number.
pub const CLIENT: u8 = weft::port::WEFT + 4;
const VERSION: u32 = 1;
const ASK: u32 = 0;
const ANSWER: u32 = 1;
const ASK_LEN: usize = 24;
const ANSWER_LEN: usize = 8;
/// Most news that wait to be handled; further ones are dropped.
const NEWS_MAX: usize = 1 << 16;

/// An endpoint that is known.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    nic: u64,
    number: u32,
    /// Number of the connection: it changes when the program disconnects.
    connection: u8,
    /// True from a connection on until the program disconnects.
    connected: bool,
    /// The program's context of the address.
    context: usize,
}

/// News for the requests of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// A request to connect was answered.
    Answered {
        /// The peer.
        peer: PeerId,
        /// The number of the request.
        request: u64,
        /// The result.
        status: StatusCode,
    },
    /// A peer failed.
    Failed(PeerId, PeerFailure),
}

/// The endpoints that one knows, and their news.
#[derive(Default)]
struct Inner {
    known: Vec<Known>,
    /// Endpoints that are reached by MXoE.
    wired: Vec<Known>,
    news: VecDeque<News>,
    dropped: u64,
    due: bool,
}

impl Inner {
    #[inline]
    fn known(&self, peer: PeerId) -> Option<&Known> {
        match wired(peer) {
            Some(PeerIndex(at)) => self.wired.get(usize::from(at)),
            None => self.known.get(peer.0 as usize),
        }
    }

    fn known_mut(&mut self, peer: PeerId) -> Option<&mut Known> {
        match wired(peer) {
            Some(PeerIndex(at)) => self.wired.get_mut(usize::from(at)),
            None => self.known.get_mut(peer.0 as usize),
        }
    }
}

/// One endpoint's key, and the endpoints that it knows.
pub struct KeyCheck {
    local: Local,
    nic: u64,
    number: u32,
    key: u32,
    inner: RefCell<Inner>,
}

impl KeyCheck {
    /// Makes the key check of an endpoint with a key.
    pub fn new(local: Local, (nic, number): (u64, u32), key: u32) -> Rc<KeyCheck> {
        Rc::new(KeyCheck { local, nic, number, key, inner: RefCell::default() })
    }

    /// Asks a peer to connect.
    ///
    /// # Errors
    /// The peer failed.
    pub fn ask(&self, port: &Port, peer: PeerId, request: u64, key: u32) -> Result<(), OpError> {
        let mut bytes = [0; ASK_LEN];
        bytes[..8].copy_from_slice(&request.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.nic.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.number.to_le_bytes());
        bytes[20..].copy_from_slice(&VERSION.to_le_bytes());
        port.post(peer, ASK, key, &bytes)
    }

    /// Notes the endpoint behind a peer, which is connected now; returns its address.
    pub fn meet(&self, peer: PeerId, (nic, number): (u64, u32)) -> Addr {
        let inner = &mut *self.inner.borrow_mut();
        let (table, at) = match wired(peer) {
            Some(PeerIndex(at)) => (&mut inner.wired, usize::from(at)),
            None => (&mut inner.known, peer.0 as usize),
        };
        if table.len() <= at {
            table.resize(at + 1, Known::default());
        }
        let known = &mut table[at];
        (known.nic, known.number, known.connected) = (nic, number, true);
        Addr::new(self.local, nic, number, known.connection, peer)
    }

    /// Returns the address of a peer.
    #[inline]
    pub fn address(&self, peer: PeerId) -> Addr {
        let known = self.inner.borrow().known(peer).copied().unwrap_or_default();
        Addr::new(self.local, known.nic, known.number, known.connection, peer)
    }

    /// Returns the peer of an address of this endpoint, and true while its connection lasts. `None`
    /// if it is none.
    #[inline]
    pub fn peer(&self, addr: Addr) -> Option<(PeerId, bool)> {
        let (connection, peer) = addr.peer();
        let inner = self.inner.borrow();
        let known = inner.known(peer)?;
        let is_it = addr.local() == self.local && addr.endpoint() == (known.nic, known.number);
        is_it.then_some((peer, known.connected && known.connection == connection))
    }

    /// Ends the connection of an address.
    pub fn part(&self, peer: PeerId) {
        let inner = &mut *self.inner.borrow_mut();
        if let Some(known) = inner.known_mut(peer) {
            known.connection = known.connection.wrapping_add(1);
            known.connected = false;
        }
    }

    /// Calls `f` with the program's context of a peer's address.
    pub fn with_context<R>(&self, peer: PeerId, f: impl FnOnce(&mut usize) -> R) -> Option<R> {
        let inner = &mut *self.inner.borrow_mut();
        inner.known_mut(peer).map(|known| f(&mut known.context))
    }

    /// Takes the oldest news.
    #[inline]
    pub fn news(&self) -> Option<News> {
        self.inner.borrow_mut().news.pop_front()
    }

    /// True if the time has come that the endpoint has asked for; once.
    #[inline]
    pub fn take_due(&self) -> bool {
        std::mem::take(&mut self.inner.borrow_mut().due)
    }

    fn tell(&self, news: News) {
        let inner = &mut *self.inner.borrow_mut();
        match inner.news.len() < NEWS_MAX {
            true => inner.news.push_back(news),
            false => inner.dropped += 1,
        }
    }

    /// Returns the number of dropped messages.
    pub fn dropped(&self) -> u64 {
        self.inner.borrow().dropped
    }

    /// Handles a message; returns the answer to it. `None` if it has no form or needs none.
    fn handle(&self, message: &Arrived) -> Option<(StatusCode, [u8; ANSWER_LEN])> {
        let data = &message.data[..];
        let word = |at: usize| data.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        let request = word(0).map(u64::from_le_bytes);
        match (message.number, data.len(), request) {
            (ASK, ASK_LEN, Some(request)) => {
                let right = message.argument == self.key;
                if right {
                    let rest = u64::from_le_bytes(word(16)?);
                    self.meet(message.source, (u64::from_le_bytes(word(8)?), rest as u32 & 0xffff));
                }
                let status = if right { STATUS_SUCCESS } else { STATUS_BAD_KEY };
                Some((status, request.to_le_bytes()))
            }
            (ANSWER, ANSWER_LEN, Some(request)) => {
                let status = match message.argument {
                    0 => STATUS_SUCCESS,
                    _ => STATUS_BAD_KEY,
                };
                let news = News::Answered { peer: message.source, request, status };
                self.tell(news);
                None
            }
            _ => {
                self.inner.borrow_mut().dropped += 1;
                log::debug!("a message of {} bytes at the key check is dropped", data.len());
                None
            }
        }
    }
}

impl Client for KeyCheck {
    fn arrived(self: Rc<Self>, port: &Port, message: Arrived) {
        let (answer, from) = (self.handle(&message), message.source);
        port.release(message);
        let Some((status, bytes)) = answer else { return };
        if let Err(error) = port.post(from, ANSWER, status as u32, &bytes) {
            log::debug!("an answer to a request to connect is lost: {error:?}");
        }
    }

    fn failed(self: Rc<Self>, port: &Port, peer: PeerId, failure: PeerFailure) {
        log::debug!("{}: {failure:?}", port.endpoint().peer(peer).describe());
        self.tell(News::Failed(peer, failure));
    }

    fn due(self: Rc<Self>, _port: &Port) {
        self.inner.borrow_mut().due = true;
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use weft::{Clock, Config, Endpoint, EndpointId, SelfLink};

    fn endpoint() -> (Endpoint, PeerId, Port, Rc<KeyCheck>) {
        let id = EndpointId(7);
        let links: Vec<Box<dyn weft_link::Link>> = vec![Box::new(SelfLink::new(id))];
        let endpoint = Endpoint::with_links(Config::default(), id, Clock::system(), links);
        let me = endpoint.connect(&endpoint.address()).unwrap();
        let make = || KeyCheck::new(Local::new(1, 2), (0x0257_0000_0001, 3), 0x99);
        let (port, key_check) = endpoint.port(CLIENT, make).unwrap();
        (endpoint, me, port, key_check)
    }

    fn news(endpoint: &Endpoint, key_check: &KeyCheck) -> News {
        loop {
            endpoint.wait(None);
            if let Some(news) = key_check.news() {
                return news;
            }
        }
    }

    #[test]
    fn ask__the_key_decides() {
        let (endpoint, peer, port, key_check) = endpoint();
        for (key, status) in [(0x99, STATUS_SUCCESS), (0x98, STATUS_BAD_KEY)] {
            key_check.ask(&port, peer, 5, key).unwrap();
            assert_eq!(news(&endpoint, &key_check), News::Answered { peer, request: 5, status });
        }
        let addr = key_check.address(peer);
        assert_eq!(
            (addr.endpoint(), key_check.peer(addr)),
            ((0x0257_0000_0001, 3), Some((peer, true)))
        );
        key_check.part(peer);
        assert_eq!(key_check.peer(addr), Some((peer, false)));
        assert_eq!(key_check.peer(Addr([addr.0[0] ^ 1, addr.0[1]])), None);
    }

    #[test]
    fn arrived__messages_of_another_form_are_dropped() {
        let (endpoint, peer, port, key_check) = endpoint();
        let mut sent = 0;
        for number in [ASK, ANSWER, 2, weft::port::NUMBERS - 1] {
            for len in 0..40 {
                let is_one = matches!((number, len), (ASK, ASK_LEN) | (ANSWER, ANSWER_LEN));
                if !is_one {
                    port.post(peer, number, 0x99, &vec![0xff; len]).unwrap();
                    sent += 1;
                }
            }
        }
        key_check.ask(&port, peer, 1, 0x99).unwrap();
        let answered = News::Answered { peer, request: 1, status: STATUS_SUCCESS };
        assert_eq!((news(&endpoint, &key_check), key_check.dropped()), (answered, sent));
    }

    #[test]
    fn tell__news_are_bounded() {
        let (_endpoint, peer, _port, key_check) = endpoint();
        (0..=NEWS_MAX).for_each(|_| key_check.tell(News::Failed(peer, PeerFailure::Gone)));
        assert_eq!((key_check.inner.borrow().news.len(), key_check.dropped()), (NEWS_MAX, 1));
    }
}

//! Requests to connect, and the ends of connections.

use super::request::{context_of, key_of, Kind, Request};
use super::Open;
use crate::address::{wired, Addr};
use crate::code::{self, Answer};
use crate::key_check::News;
use weft::{PeerFailure, PeerId};
use weft_ffi::rendezvous::Sought;
use weft_ffi::table::Key;

impl Open {
    /// Handles news of the key check.
    pub(super) fn handle_news(&mut self, news: News) {
        match news {
            News::Answered { peer, request, status } => {
                let key = key_of(request);
                let of = self.requests.get(key);
                let waits =
                    |of: &Request| of.kind == Kind::Connect && !of.is_done && of.peer == Some(peer);
                let Some(asked) = of.filter(|of| waits(of)) else { return };
                if status == code::STATUS_SUCCESS {
                    let name = asked.status.source.endpoint();
                    let addr = self.key_check.meet(peer, name);
                    let request = self.requests.get_mut(key);
                    request.into_iter().for_each(|request| request.status.source = addr);
                }
                self.end_with(key, status);
            }
            News::Failed(peer, failure) => self.peer_failed(peer, failure),
        }
    }

    /// Ends the requests to connect with a peer that failed.
    fn peer_failed(&mut self, peer: PeerId, failure: PeerFailure) {
        for key in self.requests.keys() {
            let of = self.requests.get(key);
            let asks = |of: &Request| of.kind == Kind::Connect && of.peer == Some(peer);
            if of.is_some_and(|of| asks(of) && !of.is_done) {
                self.end_with(key, code::status_of_failure(failure));
            }
        }
    }

    /// Goes on with a request to connect, when the search for the endpoint has a result.
    pub fn sought(&mut self, key: Key, found: &Sought) {
        let waits = |of: &&mut Request| of.kind == Kind::Connect && !of.is_done;
        let Some(request) = self.requests.get_mut(key).filter(waits) else { return };
        let secret = request.secret;
        let address = match found {
            Sought::Found(address) => address,
            Sought::Nobody => return self.end_with(key, code::STATUS_ENDPOINT_CLOSED),
            Sought::Unreachable => return self.end_with(key, code::STATUS_ENDPOINT_UNREACHABLE),
            Sought::Late => return self.end_with(key, code::STATUS_TIMEOUT),
        };
        let peer = match self.endpoint().connect(address) {
            Ok(peer) => peer,
            Err(why) => {
                log::info!("a request to connect: {why}");
                return self.end_with(key, code::STATUS_ENDPOINT_UNREACHABLE);
            }
        };
        self.requests.get_mut(key).into_iter().for_each(|request| request.peer = Some(peer));
        if let Err(error) = self.key_check.ask(&self.port, peer, context_of(key), secret) {
            self.end_with(key, code::status_of(error));
        }
    }

    /// Ends the connection of an address: what was not sent ends, what was not received is dropped.
    ///
    /// # Errors
    /// `MX_BAD_ENDPOINT`: the address is none of this endpoint.
    pub fn disconnect(&mut self, addr: Addr) -> Answer {
        let (peer, is_connected) = self.key_check.peer(addr).ok_or(code::BAD_ENDPOINT)?;
        if !is_connected {
            return Ok(());
        }
        self.key_check.part(peer);
        if let Some(peer) = wired(peer) {
            self.disconnect_wired(peer);
        }
        for key in self.requests.keys() {
            let of = self.requests.get(key);
            if of.is_some_and(|of| of.kind != Kind::Recv && of.peer == Some(peer)) {
                self.stop(key, code::STATUS_ENDPOINT_UNREACHABLE);
            }
        }
        self.forget_messages(peer);
        Ok(())
    }
}

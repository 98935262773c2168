//! Dispatch of the port's messages to upcalls.

use super::handlers::Handler;
use super::multicast::Delivery;
use super::packet::{Packet, Resource};
use super::receive::Waiting;
use super::wire::{parse_number, Join, Kind};
use super::{Packets, Shared, State};
use std::collections::VecDeque;
use std::rc::Rc;
use weft::port::{Arrived, AtomicRequest, Client, Port};
use weft::{PeerFailure, PeerId};

/// An upcall that is due, with its packet.
pub(super) struct Call {
    handler: Handler,
    source: PeerId,
    argument: u32,
    owed: Resource,
}

impl Client for Shared {
    #[inline]
    fn arrived(self: Rc<Self>, port: &Port, message: Arrived) {
        let (call, more) = {
            let state = &mut *self.state.borrow_mut();
            if self.in_upcall.get() {
                return state.again.push_back(message);
            }
            // Packets that wait for a handler which was set just now come first.
            if !state.again.is_empty() {
                state.again.push_back(message);
                (None, true)
            } else {
                let call = state.take_in(port, message);
                (call, state.has_calls())
            }
        };
        if let Some(call) = call {
            self.upcall(port, call);
        }
        if more {
            self.run(port);
        }
    }

    fn failed(self: Rc<Self>, port: &Port, peer: PeerId, failure: PeerFailure) {
        self.state.borrow_mut().on_failure(port, peer, failure);
    }

    fn due(self: Rc<Self>, port: &Port) {
        self.state.borrow_mut().on_time(port);
        self.run(port);
    }

    fn asked(self: Rc<Self>, port: &Port, request: AtomicRequest) {
        let state = &mut *self.state.borrow_mut();
        if !state.do_on_word(port, &request) {
            state.ask_counter(port, request);
        }
    }

    fn has_events(&self) -> bool {
        let state = self.state.borrow();
        state.has_calls() && !self.in_upcall.get()
            || state.agent.as_ref().is_some_and(|agent| agent.has_events())
    }

    fn poll(self: Rc<Self>, port: &Port) {
        self.state.borrow_mut().on_agent(port);
        self.run(port);
    }
}

impl Shared {
    /// Makes the upcalls that are due. An upcall that becomes due inside another waits for its end.
    fn run(self: &Rc<Self>, port: &Port) {
        while !self.in_upcall.get() {
            let call = self.state.borrow_mut().next_call(port);
            match call {
                Some(call) => self.upcall(port, call),
                None if self.state.borrow().has_calls() => {}
                None => break,
            }
        }
    }

    #[inline]
    fn upcall(self: &Rc<Self>, port: &Port, call: Call) {
        let packets = &Packets { port: port.clone(), shared: Rc::clone(self) };
        let Call { handler, source, argument, owed } = call;
        self.in_upcall.set(true);
        let running = Running(self);
        (handler.borrow_mut())(packets, Packet { packets, source, argument, owed });
        drop(running);
    }
}

/// Ends an upcall when dropped, also one that panics.
struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.in_upcall.set(false);
    }
}

impl State {
    fn has_calls(&self) -> bool {
        self.flights.has_due() || !self.again.is_empty()
    }

    /// Returns the next upcall of a multicast packet, or of a message that waited. `None` if there
    /// is none, or the message that waited leads to no upcall.
    fn next_call(&mut self, port: &Port) -> Option<Call> {
        let Some(delivery) = self.flights.next_due() else {
            let message = self.again.pop_front()?;
            return self.take_in(port, message);
        };
        let owed = Resource::Flight(delivery.id, delivery.buf);
        let (source, argument) = (delivery.source, delivery.argument);
        if let Some(waiting) = self.handlers.mailbox(delivery.handler) {
            waiting.push_back(Waiting { source, argument, owed });
            return None;
        }
        match self.handler(delivery.handler) {
            Some(handler) => Some(Call { handler, source, argument, owed }),
            None => {
                owed.settle(self, port);
                None
            }
        }
    }

    /// Handles a message, and returns its upcall if it leads to one.
    #[inline]
    fn take_in(&mut self, port: &Port, mut message: Arrived) -> Option<Call> {
        let Some((kind, number)) = parse_number(message.number) else {
            self.stats.malformed += 1;
            port.release(message);
            return None;
        };
        if kind != Kind::User {
            self.internal(port, message, kind, number);
            return None;
        }
        let (source, argument) = (message.source, message.argument);
        if let Some(waiting) = self.handlers.mailbox(number) {
            port.note_kept(&mut message);
            waiting.push_back(Waiting { source, argument, owed: Resource::Credit(message) });
            return None;
        }
        match self.handler(number) {
            Some(handler) => {
                Some(Call { handler, source, argument, owed: Resource::Credit(message) })
            }
            None => {
                port.release(message);
                None
            }
        }
    }

    fn handler(&mut self, number: u16) -> Option<Handler> {
        let found = self.handlers.upcall(number);
        if found.is_none() {
            if self.stats.no_handler == 0 {
                weft_link::warn!("a packet for handler {number}: no such handler; it is dropped");
            }
            self.stats.no_handler += 1;
        } else {
            self.stats.upcalls += 1;
        }
        found
    }

    /// Makes packets of a mailbox due for the upcall that has replaced it; gives them back if none
    /// has.
    pub(super) fn hand_over(&mut self, port: &Port, number: u16, waiting: VecDeque<Waiting>) {
        let is_upcall = self.handlers.has_upcall(number);
        for packet in waiting {
            match packet.owed {
                Resource::Credit(message) if is_upcall => self.again.push_back(message),
                Resource::Flight(id, buf) if is_upcall => self.flights.redeliver(Delivery {
                    id,
                    handler: number,
                    argument: packet.argument,
                    source: packet.source,
                    buf,
                }),
                owed => owed.settle(self, port),
            }
        }
    }

    fn internal(&mut self, port: &Port, message: Arrived, kind: Kind, handler: u16) {
        let from = message.source;
        let data = &message.data;
        let known = match kind {
            Kind::User => None,
            Kind::Multicast => return self.on_multicast(port, message, handler),
            Kind::Credit => self.on_credit(port, from, data),
            Kind::Join => match Join::parse(data) {
                Some((join, _)) if !self.groups.contains(join.id()) => {
                    return self.groups.keep_early(port, join.id(), message);
                }
                _ => self.on_join(port, from, data),
            },
            Kind::Ask => self.on_ask(port, from, data),
            Kind::Failed => self.on_failed(port, from, data),
            Kind::Redirect => self.on_redirect(port, from, data),
            Kind::Map => self.on_map(port, from, data),
            Kind::Invalidate => self.on_invalidate(port, from, data),
            Kind::Invalidated => self.on_invalidated(from, data),
            Kind::Where => self.on_where(port, from, data),
            Kind::Place => self.on_place(port, from, data),
        };
        if known.is_none() {
            self.stats.malformed += 1;
        }
        port.release(message);
    }
}

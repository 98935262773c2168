//! From what arrived to upcalls.

use super::packet::{Owed, Packet};
use super::wire::{parse_tag, Join, Kind};
use super::{Handler, Packets, Slot, State};
use crate::endpoint::driver::{Arrived, Driver};
use crate::endpoint::{Endpoint, Inner};
use weft_core::PeerId;

/// An upcall that is due.
struct Call {
    handler: Handler,
    source: PeerId,
    argument: u32,
    owed: Owed,
}

impl Inner {
    /// Whether `run_packets` would find anything.
    #[inline]
    pub(crate) fn has_packets(&self) -> bool {
        let Some(state) = &self.packets else { return false };
        let core = &self.driver.core;
        let call = !core.packets.is_empty() || !state.deliveries.is_empty();
        call && !state.in_upcall
            || self.driver.packets_due <= core.now
            || core.packet_failures.as_ref().is_some_and(|f| !f.is_empty())
            || !core.for_agent.is_empty()
            || state.agent.as_ref().is_some_and(|agent| agent.has_news())
    }

    /// The next upcall; does what comes before it.
    fn next_call(&mut self, did: &mut bool) -> Option<Call> {
        let Inner { driver, packets, .. } = self;
        let state = packets.as_mut()?;
        *did |= state.on_agent(driver);
        state.on_failures(driver);
        if driver.packets_due <= driver.core.now {
            state.on_time(driver);
        }
        while !state.in_upcall {
            if let Some(delivery) = state.deliveries.pop_front() {
                *did = true;
                let owed = Owed::Flight(delivery.id, delivery.buf);
                match state.handler(delivery.handler) {
                    Some(handler) => {
                        let (source, argument) = (delivery.source, delivery.argument);
                        return Some(Call { handler, source, argument, owed });
                    }
                    None => owed.settle(delivery.source, state, driver),
                }
                continue;
            }
            let arrived = driver.core.packets.pop_front()?;
            *did = true;
            match parse_tag(arrived.tag) {
                Some((Kind::User, number, argument)) => {
                    let slot = state.handlers.get_mut(usize::from(number));
                    if let Some(Slot::Mailbox(waiting)) = slot {
                        driver.core.engine.packet_left(driver.core.now, arrived.peer);
                        waiting.push_back(arrived);
                        continue;
                    }
                    let (source, owed) = (arrived.peer, Owed::Credit(arrived.data));
                    match state.handler(number) {
                        Some(handler) => return Some(Call { handler, source, argument, owed }),
                        None => owed.settle(source, state, driver),
                    }
                }
                Some((kind, number, argument)) => {
                    state.internal(driver, arrived, kind, number, argument);
                }
                None => {
                    state.stats.malformed += 1;
                    state.settle(driver, arrived);
                }
            }
        }
        None
    }
}

impl State {
    fn handler(&mut self, number: u16) -> Option<Handler> {
        let found = match self.handlers.get(usize::from(number)) {
            Some(Slot::Upcall(handler)) => Some(Handler::clone(handler)),
            _ => None,
        };
        if found.is_none() {
            if self.stats.no_handler == 0 {
                log::warn!("a packet for handler {number}: no such handler; it is dropped");
            }
            self.stats.no_handler += 1;
        } else {
            self.stats.upcalls += 1;
        }
        found
    }

    /// A packet is dealt with.
    pub(super) fn settle(&mut self, driver: &mut Driver, arrived: Arrived) {
        Owed::Credit(arrived.data).settle(arrived.peer, self, driver);
    }

    fn internal(
        &mut self,
        driver: &mut Driver,
        arrived: Arrived,
        kind: Kind,
        handler: u16,
        argument: u32,
    ) {
        let known = match kind {
            Kind::User => None,
            Kind::Multicast => return self.on_multicast(driver, arrived, handler, argument),
            Kind::Credit => self.on_credit(driver, arrived.peer, arrived.data.get()),
            Kind::Join => match Join::parse(arrived.data.get()) {
                Some((join, _)) if !self.groups.contains_key(&join.group) => {
                    // As a multicast packet that comes before its group.
                    driver.core.engine.packet_left(driver.core.now, arrived.peer);
                    self.orphans.push_back(arrived);
                    return;
                }
                _ => self.on_join(driver, arrived.peer, arrived.data.get()),
            },
            Kind::Ask => self.on_ask(driver, arrived.peer, arrived.data.get()),
            Kind::Failed => self.on_failed(driver, arrived.peer, arrived.data.get()),
            Kind::Redirect => self.on_redirect(driver, arrived.peer, arrived.data.get()),
            Kind::Map => self.on_map(driver, arrived.peer, arrived.data.get()),
            Kind::Invalidate => self.on_invalidate(driver, arrived.peer, arrived.data.get()),
            Kind::Invalidated => self.on_invalidated(arrived.peer, arrived.data.get()),
        };
        if known.is_none() {
            self.stats.malformed += 1;
        }
        self.settle(driver, arrived);
    }
}

/// Ends an upcall, also one that panics.
struct Running<'a>(&'a Endpoint);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(state) = &mut self.0.inner.borrow_mut().packets {
            state.in_upcall = false;
        }
    }
}

impl Endpoint {
    /// Deals with packets that arrived; true if there were any.
    pub(crate) fn run_packets(&self) -> bool {
        let mut did = false;
        let mut packets = None;
        loop {
            let call = {
                let inner = &mut *self.inner.borrow_mut();
                let Some(call) = inner.next_call(&mut did) else { break };
                if let Some(state) = &mut inner.packets {
                    state.in_upcall = true;
                }
                call
            };
            let packets = packets.get_or_insert_with(|| Packets { endpoint: self.clone() });
            let Call { handler, source, argument, owed } = call;
            let running = Running(self);
            (handler.borrow_mut())(packets, Packet { packets, source, argument, owed });
            drop(running);
        }
        let driver = &mut self.inner.borrow_mut().driver;
        if driver.core.has_work() {
            // The upcalls took their time.
            driver.core.tick();
            driver.flush();
        }
        did
    }
}

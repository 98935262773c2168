//! A host: its endpoint, and a program that sends the messages of a plan.

use super::checker::{bits_of, content, Checker, Id};
use super::plan::{host_of, mac_of, Message, MxPlan, HEAD};
use crate::clock::SimClock;
use crate::link::check;
use crate::network::{Packet, SharedNetwork, CHECK_LEN};
use crate::runner::{Host, HostEnv, Task};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use weft_core::Instant;
use weft_mxoe::node::{Event, Node, NotSent, Offer, Outgoing, PeerIndex};
use weft_mxoe::ETHERTYPE;

/// Number and key of each endpoint.
const NUMBER: u8 = 3;
const KEY: u32 = 0x77ef;
/// Time for which a program keeps an announced message, microseconds, at most.
const HELD: u64 = 3000;

/// The state of the connection to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Asked,
    Open,
    /// The host has died.
    Gone,
}

/// An endpoint on a host, and its program.
pub(super) struct Station {
    host: u32,
    incarnation: u32,
    clock: SimClock,
    net: SharedNetwork,
    checker: Rc<RefCell<Checker>>,
    plan: MxPlan,
    node: Node,
    /// Connections, by host; and hosts by their index.
    ways: BTreeMap<u32, Way>,
    hosts: BTreeMap<u16, u32>,
    /// Messages to send, and those that have begun and not ended, with their receivers.
    waiting: VecDeque<u32>,
    begun: BTreeMap<u64, u32>,
    /// Announced messages, with the time at which they are pulled.
    offers: VecDeque<(u64, Offer, u64, u32)>,
    /// A frame that the card did not take.
    unsent: Option<(u32, Vec<u8>)>,
    spare: Packet,
    done: Rc<Done>,
}

/// Tells the program's task that all messages have ended.
#[derive(Default)]
struct Done {
    is: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Station {
    /// Starts a host.
    pub fn start(env: &HostEnv, checker: &Rc<RefCell<Checker>>) -> (Station, Task) {
        let plan = checker.borrow().plan().clone();
        let session = env.host << 8 | env.incarnation << 4 | 1;
        let (waiting, done) = (plan.of_host(env.host).into(), Rc::<Done>::default());
        let mut station = Station {
            host: env.host,
            incarnation: env.incarnation,
            clock: env.clock.clone(),
            net: SharedNetwork::clone(&env.net),
            checker: Rc::clone(checker),
            node: Node::new(plan.settings, NUMBER, KEY, session),
            plan,
            ways: BTreeMap::new(),
            hosts: BTreeMap::new(),
            waiting,
            begun: BTreeMap::new(),
            offers: VecDeque::new(),
            unsent: None,
            spare: Packet::default(),
            done: Rc::clone(&done),
        };
        let receivers: Vec<u32> =
            station.waiting.iter().map(|&of| station.message(of).to).collect();
        receivers.into_iter().for_each(|to| station.ask(to));
        let task = poll_fn(move |cx| {
            if done.is.get() {
                return Poll::Ready(());
            }
            *done.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        });
        (station, Box::pin(task))
    }

    fn message(&self, number: u32) -> Message {
        self.plan.messages[number as usize]
    }

    /// Returns the time of the endpoint, in microseconds.
    fn now(&self) -> u64 {
        self.clock.now().0 / 1000
    }

    /// Asks a host to connect, unless that was done.
    fn ask(&mut self, to: u32) {
        if self.ways.contains_key(&to) {
            return;
        }
        match self.node.connect(self.now(), mac_of(to), NUMBER, KEY) {
            Some(_) => _ = self.ways.insert(to, Way::Asked),
            None => self.checker.borrow_mut().note(|| format!("no peer {to}")),
        }
    }

    /// Returns the host of a peer.
    fn host_of(&mut self, peer: PeerIndex) -> u32 {
        let node = &self.node;
        let find = || node.peer(peer).map_or(u32::MAX, |(mac, _)| host_of(mac));
        *self.hosts.entry(peer.0).or_insert_with(find)
    }

    /// Takes the frames that have come.
    fn take_frames(&mut self) -> bool {
        let cost = self.net.borrow().config().host.recv_ns;
        let mut did = false;
        loop {
            let took = self.net.borrow_mut().take(self.host, 0, &mut self.spare);
            if !took {
                return did;
            }
            did = true;
            self.clock.spend(cost);
            let Some(len) = self.spare.bytes.len().checked_sub(CHECK_LEN) else { continue };
            let (frame, trailer) = self.spare.bytes.split_at(len);
            let (head, rest) = frame.split_at(HEAD.min(len));
            // The check of Ethernet.
            if check(head, rest) != *trailer {
                self.net.borrow_mut().note_refused(&self.spare);
                continue;
            }
            let (to, from) = (&head[..6], head[6..12].try_into().unwrap_or_default());
            if to != mac_of(self.host) {
                self.checker.borrow_mut().note(|| "a frame at the wrong host".into());
            }
            self.node.handle(self.clock.now().0 / 1000, from, rest);
        }
    }

    /// Sends frames as long as the card takes them.
    fn send_frames(&mut self) -> bool {
        let cost = self.net.borrow().config().host.send_ns;
        let mut did = false;
        loop {
            let (to, frame) = match self.unsent.take() {
                Some(unsent) => unsent,
                None => {
                    let mut frame = vec![0; HEAD];
                    let Some(to) = self.node.poll_transmit(&mut frame) else { return did };
                    frame[..6].copy_from_slice(&to);
                    frame[6..12].copy_from_slice(&mac_of(self.host));
                    frame[12..HEAD].copy_from_slice(&ETHERTYPE.to_be_bytes());
                    (host_of(to), frame)
                }
            };
            let (head, rest) = frame.split_at(HEAD);
            let trailer = check(head, rest);
            let at = self.clock.now().0;
            let parts = [head, rest, &trailer];
            let sent = self.net.borrow_mut().send((self.host, to), 0, at, parts);
            if !sent {
                self.unsent = Some((to, frame));
                return did;
            }
            self.clock.spend(cost);
            did = true;
        }
    }

    /// Begins messages.
    fn send_messages(&mut self) -> bool {
        let mut did = false;
        let mut at = 0;
        while at < self.waiting.len() && self.begun.len() < self.plan.ahead {
            let number = self.waiting[at];
            let Message { to, len, is_sync, .. } = self.message(number);
            let id: Id = (self.incarnation, number);
            match self.ways.get(&to) {
                Some(Way::Open) => {}
                Some(Way::Gone) => {
                    self.waiting.remove(at);
                    self.checker.borrow_mut().lost(self.host, id);
                    did = true;
                    continue;
                }
                _ => {
                    at += 1;
                    continue;
                }
            }
            let Some(peer) = self.peer_of(to) else { return did };
            let bits = bits_of(id);
            let data = content(id, len);
            let outgoing = Outgoing { match_bits: bits, data, context: bits, is_sync };
            match self.node.send(self.now(), peer, outgoing) {
                Ok(()) => {
                    self.waiting.remove(at);
                    self.begun.insert(bits, to);
                    did = true;
                }
                Err(NotSent::Busy) => return did,
                Err(why) => {
                    self.checker.borrow_mut().note(|| format!("{id:?} was not sent: {why:?}"));
                    return did;
                }
            }
        }
        did
    }

    fn peer_of(&self, host: u32) -> Option<PeerIndex> {
        self.hosts.iter().find(|(_, of)| **of == host).map(|(peer, _)| PeerIndex(*peer))
    }

    fn event(&mut self, event: Event) {
        let (host, now) = (self.host, self.now());
        match event {
            Event::Connected(peer) => {
                let to = self.host_of(peer);
                self.ways.insert(to, Way::Open);
            }
            Event::Refused(peer, status) => {
                let to = self.host_of(peer);
                self.checker.borrow_mut().failed(host, to, &format!("refused with {status}"));
                self.ways.remove(&to);
                self.ask(to);
            }
            Event::Received { match_bits, data, .. } => {
                self.checker.borrow_mut().received(host, match_bits, &data);
            }
            Event::Announced { offer, match_bits } => {
                let room = self.checker.borrow_mut().announced(host, match_bits, offer.len);
                // The program posts its receive some time later.
                let at = now + match_bits.wrapping_mul(0x9e37_79b9) % HELD;
                self.offers.push_back((at, offer, match_bits, room));
            }
            Event::Pulled { context, data, .. } => {
                self.checker.borrow_mut().pulled(host, context, &data);
            }
            Event::NotPulled { peer, .. } => {
                let from = self.host_of(peer);
                self.checker.borrow_mut().not_pulled(host, from);
            }
            Event::Sent { context, len, .. } => {
                self.checker.borrow_mut().sent(host, context, len);
                if self.begun.remove(&context).is_none() {
                    self.checker.borrow_mut().note(|| format!("{context:#x} ended twice"));
                }
            }
            Event::Failed(peer, failure) => self.failed(peer, &format!("{failure:?}")),
            Event::Misdirected(_) => {
                self.checker.borrow_mut().note(|| "a frame for another number".into());
            }
        }
    }

    /// Gives up what was sent to a host. One that was started anew is asked to connect again.
    fn failed(&mut self, peer: PeerIndex, why: &str) {
        let to = self.host_of(peer);
        self.checker.borrow_mut().failed(self.host, to, why);
        let lost: Vec<u64> =
            self.begun.iter().filter(|(_, of)| **of == to).map(|(bits, _)| *bits).collect();
        for bits in lost {
            self.begun.remove(&bits);
            self.checker.borrow_mut().lost(self.host, ((bits >> 32) as u32, bits as u32));
        }
        match why {
            "Closed" => {
                self.ways.remove(&to);
                self.ask(to);
            }
            _ => _ = self.ways.insert(to, Way::Gone),
        }
    }

    /// Pulls the announced messages whose time has come.
    fn pull(&mut self) -> bool {
        let now = self.now();
        let mut did = false;
        for _ in 0..self.offers.len() {
            let Some((at, offer, bits, room)) = self.offers.pop_front() else { break };
            if at > now {
                self.offers.push_back((at, offer, bits, room));
                continue;
            }
            self.node.pull(now, offer, room, bits);
            did = true;
        }
        did
    }
}

impl Host for Station {
    fn progress(&mut self) -> bool {
        let mut did = self.take_frames();
        let now = self.now();
        if self.node.next_timeout().is_some_and(|at| at <= now) {
            self.node.handle_timeout(now);
            did = true;
        }
        did |= self.pull();
        // Before frames leave: the checker hears of a message before its sender does.
        while let Some(event) = self.node.poll_event() {
            self.event(event);
            did = true;
        }
        did |= self.send_messages();
        did |= self.send_frames();
        if self.waiting.is_empty() && self.begun.is_empty() && !self.done.is.replace(true) {
            self.done.waker.take().into_iter().for_each(Waker::wake);
            did = true;
        }
        did
    }

    fn next_timeout(&self) -> Option<Instant> {
        let offer = self.offers.iter().map(|(at, ..)| *at).min();
        let next = self.node.next_timeout().into_iter().chain(offer).min();
        next.map(|at| Instant(at.saturating_mul(1000).max(self.clock.now().0 + 1)))
    }

    fn describe(&self) -> String {
        let (waiting, begun) = (self.waiting.len(), self.begun.len());
        let counters = self.node.counters();
        format!("{waiting} messages to send, {begun} begun, {:?}, {counters:?}", self.ways)
    }
}

//! One agent of a cluster: membership, directory and subscriptions as a state machine.
//!
//! A driver calls commands, [`Node::handle_message`] and [`Node::handle_timeout`], and after each
//! call takes all of [`Node::poll_transmit`] and [`Node::poll_event`], then sleeps until
//! [`Node::next_timeout`].

mod claims;
mod digest;
mod handle;
mod history;
mod names;
mod outbox;
mod returns;
mod sync;
mod timer;

pub use claims::{ClaimId, Standing};
pub use timer::Timer;

use crate::config::Config;
use crate::directory::{Binding, Directory, Gone, Pick, Policy};
use crate::id::{HostId, Life, Owner};
use crate::membership::{Cause, MemberEvent, Members, Record, Watch};
use crate::stats::Stats;
use crate::subscriptions::{
    Bounds, Filter, NameEvent, SubscribeError, SubscriptionId, Subscriptions,
};
use crate::wire::{emit, Head, Message};
use alloc::vec::Vec;
use core::net::SocketAddr;
use names::Names;
use outbox::Outbox;
use timer::Timers;
use weft_core::Instant;

/// A message to be sent to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The address of the agent.
    pub to: SocketAddr,
    /// The message.
    pub bytes: Vec<u8>,
}

/// Something that the driver has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A step of a host's history.
    Member(MemberEvent),
    /// This host hears no other host: their names are hidden until [`Event::Back`].
    CutOff,
    /// This host hears others again.
    Back,
    /// A later life of this host took its place; the node does nothing more.
    Superseded {
        /// The later life.
        by: Life,
        /// Its address.
        address: SocketAddr,
    },
    /// A pending claim holds now.
    Claimed(ClaimId),
    /// A pending claim was refused: another owner has the name.
    Refused {
        /// The claim.
        claim: ClaimId,
        /// The host of that owner.
        holder: HostId,
    },
    /// No arbiter decided about a pending claim in time.
    Undecided {
        /// The claim.
        claim: ClaimId,
        /// The host that was asked last.
        arbiter: Option<HostId>,
    },
    /// A claim that held was ended by others.
    ClaimLost {
        /// The claim.
        claim: ClaimId,
        /// The cause.
        gone: Gone,
    },
    /// A subscription has something to read.
    Readable(SubscriptionId),
    /// An agent of another version wrote.
    OtherVersion {
        /// Its address.
        from: SocketAddr,
        /// The version of its messages.
        version: u8,
    },
    /// A host is not taken into the table, which is full.
    Crowded {
        /// The host.
        host: HostId,
    },
}

/// Sizes of what a node keeps and sends, for measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Hosts that it watches, each with timers and measurements.
    pub links: usize,
    /// Hosts that it knows.
    pub members: usize,
    /// Names that it knows.
    pub names: usize,
    /// Deadlines.
    pub timers: usize,
}

/// Bytes of the entries of a node's tables, without what trees and the allocator add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Watching others: links and deadlines.
    pub watching: usize,
    /// Knowing all hosts.
    pub hosts: usize,
    /// Knowing all names.
    pub names: usize,
}

impl Memory {
    /// Returns the bytes of what each host knows of all others.
    pub fn tables(&self) -> usize {
        self.hosts + self.names
    }
}

/// One agent of a cluster.
#[derive(Debug)]
pub struct Node {
    config: Config,
    me: Record,
    is_admitted: bool,
    is_over: bool,
    is_cut_off: bool,
    members: Members,
    watch: Watch,
    domain: history::Domain,
    names: Names,
    exchange: sync::Exchange,
    seeker: history::Seeker,
    returns: returns::Returns,
    timers: Timers,
    outbox: Outbox,
    stats: Stats,
}

impl Node {
    /// Makes the agent of a host. `life` is a guess of the incarnation, and a number drawn for this
    /// start; `address` is where other agents reach this one.
    pub fn new(
        config: Config,
        host: HostId,
        life: Life,
        address: SocketAddr,
        now: Instant,
    ) -> Node {
        let incarnation = life.incarnation.clamp(1, Life::INCARNATION_MAX);
        let life = Life { incarnation, ..life };
        let cause = Cause::Started;
        let me = Record { host, life, number: 1, agent: config.agent, address, cause };
        let mut node = Node {
            me,
            is_admitted: false,
            is_over: false,
            is_cut_off: false,
            members: Members::new(config.members_max.max(1)),
            watch: Watch::default(),
            domain: history::Domain::default(),
            names: Names::new(Directory::new(host, life, config.claims_per_host, config.log_max)),
            exchange: sync::Exchange::default(),
            seeker: history::Seeker::default(),
            returns: returns::Returns::new(),
            timers: Timers::new(now),
            outbox: Outbox::default(),
            stats: Stats::default(),
            config,
        };
        node.adopt(now, me, None);
        node.timers.arm(Timer::Seek, now);
        node.timers.arm(Timer::Forget, now + node.config.forget / 8);
        node
    }

    /// Sets which users may claim and see which types.
    pub fn set_policy(&mut self, policy: Policy) {
        self.names.policy = policy;
    }

    /// Names addresses at which agents of the cluster may be found; they are tried as long as no
    /// member has them.
    pub fn join(&mut self, now: Instant, addresses: impl IntoIterator<Item = SocketAddr>) {
        let now = self.timers.tick(now, &self.config, &mut self.stats);
        self.seeker.add(addresses.into_iter().filter(|a| *a != self.me.address));
        if !self.seeker.is_empty() {
            self.names.arbiter.unsettle(now + self.config.settle());
        }
        self.timers.arm(Timer::Seek, now);
    }

    /// Leaves the cluster in good order. The driver sends what is to be sent, then ends.
    pub fn leave(&mut self, now: Instant) {
        let now = self.timers.tick(now, &self.config, &mut self.stats);
        if !self.is_over {
            let number = self.me.number + 1;
            let record = Record { number, cause: Cause::Left, ..self.me };
            self.me = record;
            self.adopt(now, record, None);
            self.broadcast_record(record);
            self.end();
        }
    }

    /// Reports that the kernel of a host said that its agent has ended.
    pub fn report_ended(&mut self, now: Instant, host: HostId, status: u32) {
        let now = self.timers.tick(now, &self.config, &mut self.stats);
        self.declare(now, host, Cause::Ended { status });
        self.tidy(now);
    }

    /// Watches names for a process of this host. Its snapshot can be read at once.
    pub fn subscribe(
        &mut self,
        now: Instant,
        owner: Owner,
        filter: Filter,
    ) -> Result<SubscriptionId, SubscribeError> {
        let now = self.timers.tick(now, &self.config, &mut self.stats);
        let Config { subscriptions_per_user: per_user, queue_max: queue, .. } = self.config;
        let bounds = Bounds { per_user, queue };
        let id = self.names.subscribe(now, owner, filter, bounds)?;
        if let Some(at) = self.names.subscriptions.deadline(id) {
            self.timers.arm(Timer::Subscription(id), at);
        }
        Ok(id)
    }

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, id: SubscriptionId) {
        self.timers.disarm(Timer::Subscription(id));
        self.names.subscriptions.remove(id);
    }

    /// Takes the next event of a subscription; `None`: there is none now.
    pub fn read(&mut self, id: SubscriptionId) -> Option<NameEvent> {
        self.names.read(id, self.config.queue_max)
    }

    /// Finds an owner of an instance of a name, as a user of this host sees it. No message is sent.
    pub fn look_up(&mut self, user: u32, kind: u32, instance: u32, pick: Pick) -> Option<&Binding> {
        self.names.look_up(user, kind, instance, pick)
    }

    /// Returns the directory and the policy by which users see it.
    pub fn directory(&self) -> (&Directory, &Policy) {
        (&self.names.directory, &self.names.policy)
    }

    /// Returns the subscriptions.
    pub fn subscriptions(&self) -> &Subscriptions {
        &self.names.subscriptions
    }

    /// Returns the hosts that are known.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Returns the watched hosts with what was measured of them.
    pub fn links(&self) -> &Watch {
        &self.watch
    }

    /// Returns this host's own record.
    pub fn me(&self) -> &Record {
        &self.me
    }

    /// Returns true if this host hears no other though it watches some.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// Returns true if it has left or was replaced.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns a number that two hosts share if, and hardly otherwise than if, they know the same.
    pub fn digest(&self) -> u64 {
        self.exchange.digest.total()
    }

    /// Returns the counters.
    pub fn stats(&self) -> Stats {
        Stats { bindings_refused: self.names.directory.refused(), ..self.stats }
    }

    /// Returns the sizes of what it keeps.
    pub fn footprint(&self) -> Footprint {
        Footprint {
            links: self.watch.len(),
            members: self.members.len(),
            names: self.names.directory.len(),
            timers: self.timers.len(),
        }
    }

    /// Returns the bytes of what it keeps.
    pub fn memory(&self) -> Memory {
        let link = size_of::<(HostId, crate::membership::WatchedHost)>();
        let timer = 2 * size_of::<(Instant, Timer)>();
        let member = size_of::<(HostId, crate::membership::Member)>();
        // Each host has a place on the ring and a mark in the digest.
        let marks = 2 * size_of::<(HostId, u64)>();
        Memory {
            watching: self.watch.len() * link + self.timers.len() * timer,
            hosts: self.members.len() * (member + marks),
            names: self.names.directory.bytes(),
        }
    }

    /// Takes a message to be sent.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.outbox.next_message()
    }

    /// Takes an event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.outbox.next_event()
    }

    /// Returns the time of the next deadline.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    fn end(&mut self) {
        self.is_over = true;
        self.timers.clear();
    }

    fn event(&mut self, event: Event) {
        self.stats.events_dropped += self.outbox.tell(event, self.config.out_max);
    }

    fn send(&mut self, to: SocketAddr, relay: u16, message: &Message<'_>) {
        let head = Head { relay, host: self.me.host, life: self.me.life };
        let bytes = emit(&head, message);
        self.stats.messages_sent += 1;
        self.stats.bytes_sent += bytes.len() as u64;
        let message = Transmit { to, bytes };
        self.stats.messages_dropped += self.outbox.send(message, self.config.out_max);
    }

    fn send_host(&mut self, host: HostId, message: &Message<'_>) {
        if let Some(to) = self.members.get(host).map(|m| m.record.address) {
            self.send(to, 0, message);
        }
    }

    /// Sends a message to all hosts that are there: to those that this one watches, and by them to
    /// those that they cover. Those that a silent host covers get it from here.
    fn broadcast(&mut self, message: &Message<'_>) {
        let (now, hushed) = (self.timers.now(), self.config.hushed());
        let mut to: Vec<(HostId, u16)> = Vec::new();
        for (host, link) in self.watch.iter() {
            to.push((host, link.covers));
            if now.since(link.heard) >= hushed {
                let covered = self.members.ring().next(host, link.covers.into());
                to.extend(covered.into_iter().map(|host| (host, 0)));
            }
        }
        for (host, covers) in to {
            if let Some(address) = self.members.get(host).map(|m| m.record.address) {
                self.send(address, covers, message);
            }
        }
    }
}

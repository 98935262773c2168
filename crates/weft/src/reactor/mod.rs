//! The reactor: links, clock, routing and the receive path of an endpoint.
//!
//! A round of progress ([`rounds`]) takes packets from the links to the [`receiver`], which asks
//! the engine where their bytes belong; then it does the work that the engine asks for, and sends
//! the engine's packets ([`transmit`]). Clients have a [`Handle`] and are called through
//! [`Upcalls`]: no code here names one of them.

mod absence;
mod attend;
mod bulk_rate;
pub(crate) mod clients;
mod coalescing;
mod copied;
mod copy_choice;
mod count;
mod direct;
mod handle;
mod length;
pub(crate) mod message;
mod moving;
pub(crate) mod ops;
mod paths;
mod patience;
mod polling;
pub(crate) mod receiver;
pub(crate) mod regions;
mod rounds;
mod routing;
mod send;
mod sleepers;
mod spare;
#[allow(unsafe_code)]
pub(crate) mod sys;
mod tasks;
mod transmit;
mod waiter;
pub(crate) mod waits;
pub(crate) mod woken;

pub(crate) use clients::{Call, Upcalls};
pub(crate) use handle::Handle;
pub(crate) use ops::error_of;
pub use ops::Status;
pub use routing::{choice, Choice};
pub use sleepers::wake;
pub(crate) use spare::MOST as COPIED_MAX;
pub(crate) use sys::epoll::sleep_on;
pub(crate) use waiter::Sleeper;
pub use waits::Awaits;

use crate::clock::Clock;
use absence::Absence;
use coalescing::Coalesced;
use count::Published;
use paths::Paths;
use patience::Patience;
use polling::Polling;
use receiver::Receiver;
use sleepers::Sleepers;
use std::collections::HashMap;
use tasks::Tasks;
use waiter::Waiter;
use waits::Waits;
use weft_agent::ServicesHandle;
use weft_core::{Config, EndpointId, PeerId};
use weft_launch::ends::Ends;
use weft_link::copied::Origin;
use weft_link::secure::JobKey;
use weft_link::{Address, Link};

/// Packets taken from a link before the next link is polled.
pub(crate) const RECV_BUDGET: usize = 256;
/// Packets taken from a network before acknowledgements and requests go out: one GSO train.
const TRAIN_BUDGET: usize = 64;
/// Packets offered to a link in one call.
const BURST: usize = 64;
/// Most copies of messages queued for a peer; beyond it a blocking send waits.
pub(crate) const INJECTED_MAX: usize = 256;

/// The owner of engine, links and clock, which moves bytes between them.
pub(crate) struct Reactor {
    /// The process that opened it; only that process uses the links.
    origin: Origin,
    /// Dropped first: peers may copy to memory of operations until their connections have ended.
    pub links: Vec<Box<dyn Link>>,
    pub receiver: Receiver,
    pub known: Known,
    pub paths: Paths,
    pub polling: Polling,
    coalesced: Coalesced,
    pub sleepers: Sleepers,
    /// Absences of a program that makes no progress for long, or does nothing else.
    absence: Absence,
    pub waits: Waits,
    pub waiter: Waiter,
    patience: Patience,
    pub published: Published,
    tasks: Tasks,
    /// True if there are tasks, or clients of the port that are polled in each round.
    above: bool,
}

/// The endpoint and its peers, as they know each other.
pub(crate) struct Known {
    /// The address of this endpoint.
    pub address: Address,
    /// Its bytes, the payload of HELLO.
    pub encoded: Vec<u8>,
    /// Addresses of peers, for connections and messages to people.
    pub addresses: Vec<Option<Address>>,
    /// Names of peers for messages to people.
    pub names: HashMap<PeerId, String>,
    /// The last path to peers that no path reaches any more, for messages about failures.
    pub lost: HashMap<PeerId, String>,
    /// More about the failures of peers: how a process ended, why a peer refused.
    pub how: HashMap<PeerId, String>,
    /// The ends of the ranks of this process's job, if its launcher tells them.
    pub ends: Option<Ends>,
    /// The services of this host's agent, if it serves this endpoint.
    pub agent: Option<ServicesHandle>,
    /// The job's key, for counters in kernels.
    pub job_key: Option<JobKey>,
    /// Peers that have not answered since this endpoint began or ended a move.
    pub untold: Vec<PeerId>,
}

impl Known {
    fn new(address: Address) -> Known {
        Known {
            encoded: address.encode(),
            address,
            addresses: Vec::new(),
            names: HashMap::new(),
            lost: HashMap::new(),
            how: HashMap::new(),
            ends: None,
            agent: None,
            job_key: None,
            untold: Vec::new(),
        }
    }

    /// Returns the address of a peer.
    pub fn address_of(&self, peer: PeerId) -> Option<&Address> {
        self.addresses.get(peer.0 as usize)?.as_ref()
    }
}

impl Reactor {
    pub fn new(config: Config, id: EndpointId, clock: Clock, links: Vec<Box<dyn Link>>) -> Reactor {
        let mut address = Address { endpoint: id, rank: config.rank, ..Address::default() };
        links.iter().for_each(|link| link.advertise(&mut address));
        let now = clock.now();
        Reactor {
            origin: Origin::here(),
            polling: Polling::new(now, links.len(), clock.is_virtual()),
            paths: Paths::new(links.len()),
            patience: Patience::of(&config),
            receiver: Receiver::new(config, id, clock, &links),
            links,
            known: Known::new(address),
            coalesced: Coalesced { deferred_round: false, coalesce_until: now },
            sleepers: Sleepers::default(),
            absence: Absence::new(now),
            waits: Waits::default(),
            waiter: Waiter::new(),
            published: Published::default(),
            tasks: Tasks::default(),
            above: false,
        }
    }
}

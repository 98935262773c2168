//! Additions to counters in the kernels of their owners' hosts, without any process there.
//!
//! The word of such a counter lies in memory that the owner's agent shares with the program in its
//! kernel. A process that cannot or may not reach the program adds through the agent. So the route
//! to the kernel is tested before the first addition over it. If answers stop, the agent ends this
//! client's slot in the kernel, says if the last request was served, and serves from then on.

use super::Packets;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};
use weft::choices::Server;
use weft::job::ports_from_env;
use weft::{AtomicCode, OpError, PeerId};
use weft_core::wire::question;
use weft_kernel::counters::{client_key, CounterClient};
use weft_link::secure::JobKey;

/// Longest wait for an answer, in which a request is sent `TRIES` times. A process that waits for
/// its core meanwhile waits longer, until it has sent the request so often.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(30);
const TRIES: u32 = 6;
/// Time of polling for an answer before sleeping.
const POLL_FOR: Duration = Duration::from_micros(50);
/// A sleep between two polls lasts 1/`SLEEP_PART` of the time waited so far, so an answer is
/// noticed late by at most that fraction.
const SLEEP_PART: u32 = 8;
/// Time in which a route may still be found, while the agent serves: a host whose first request for
/// the other's Ethernet address is lost repeats it after 1 s (RFC 1122, section 2.3.2.1). Also the
/// time after which a failed route is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Most addresses of a host that are tried.
const ADDRESSES_MAX: u64 = 8;
/// Most routes that are kept, each with a socket. A further route evicts one, which is found again
/// when needed.
const CONNECTIONS_MAX: usize = 64;

/// The route to a counter in a kernel.
pub(super) enum Connection {
    /// Datagrams to the kernel.
    Client(Box<CounterClient>),
    /// The agent, and until that time whichever of these clients has the first answer: each asked
    /// at another address of the host.
    Asked(Vec<CounterClient>, Instant),
    /// The agent, at least until that time. `None`: the counter is in no kernel.
    Agent(Option<Instant>),
    /// One addition is under way there, or the route is being found: others go through the agent.
    Busy,
}

/// Routes by peer and key of the counter.
pub(super) type Connections = BTreeMap<(PeerId, u64), Connection>;

/// A route that one addition uses. Dropping this forgets the route, and the next addition finds it
/// again.
struct BusyRoute<'a> {
    packets: &'a Packets,
    counter: (PeerId, u64),
}

impl BusyRoute<'_> {
    fn give_back(self, connection: Connection) {
        let counter = self.counter;
        self.packets.with(|state| state.kernels.insert(counter, connection));
        std::mem::forget(self);
    }
}

impl Drop for BusyRoute<'_> {
    fn drop(&mut self) {
        self.packets.with(|state| state.kernels.remove(&self.counter));
    }
}

impl Packets {
    /// Adds to a counter in the kernel of a peer's host. `None` if it cannot be reached there; then
    /// nothing was added.
    pub(super) async fn add_in_kernel(
        &self,
        at: PeerId,
        key: u64,
        n: u64,
    ) -> Result<Option<u64>, OpError> {
        if !self.is_in_kernel(at) {
            return Ok(None);
        }
        let Some((taken, known)) = self.take_connection(at, key) else { return Ok(None) };
        let connection = match known {
            Some(Connection::Client(client)) => Connection::Client(client),
            Some(Connection::Asked(clients, until)) => {
                self.await_route(at, clients, until, Duration::ZERO).await
            }
            _ => self.find_connection(at, key).await?,
        };
        let Connection::Client(mut client) = connection else {
            taken.give_back(connection);
            return Ok(None);
        };
        client.add(0, n);
        let answer = self.await_answer(&mut client).await;
        if let Some(before) = answer.filter(|_| !self.with(|state| state.losses.answers)) {
            self.with(|state| state.stats.kernel_adds += 1);
            taken.give_back(Connection::Client(client));
            return Ok(Some(before));
        }
        weft_link::warn!(
            "no answer from the counters in the kernel of peer {}'s host: its agent serves them",
            at.0
        );
        // The agent refuses only if the counter is gone.
        let last = self.ask_agent(at, key, question::END).await?.ok_or(OpError::Refused)?;
        let answer = match last == client.number() {
            true => self.ask_agent(at, key, question::ANSWER).await?,
            false => None,
        };
        taken.give_back(Connection::Agent(Some(Instant::now() + RETRY_AFTER)));
        Ok(answer)
    }

    /// Takes the route to a counter; the caller finds it if none is known. `None` if the agent is
    /// the route now.
    fn take_connection(&self, at: PeerId, key: u64) -> Option<(BusyRoute<'_>, Option<Connection>)> {
        let counter = (at, key);
        let known = self.with(|state| match state.kernels.get(&counter) {
            Some(Connection::Busy | Connection::Agent(None)) => None,
            Some(Connection::Agent(Some(until))) if *until > Instant::now() => None,
            known => {
                let new = known.is_none();
                if new && state.kernels.len() >= CONNECTIONS_MAX {
                    let idle = |connection: &Connection| !matches!(connection, Connection::Busy);
                    let first = state.kernels.iter().find(|(_, connection)| idle(connection));
                    let first = first.map(|(&counter, _)| counter)?;
                    state.kernels.remove(&first);
                }
                Some(state.kernels.insert(counter, Connection::Busy))
            }
        })?;
        // Made last: where it is dropped, it forgets a route that others may have in use.
        Some((BusyRoute { packets: self, counter }, known))
    }

    /// True if a peer's counters are to be reached in its kernel, if they are there.
    pub(super) fn is_in_kernel(&self, peer: PeerId) -> bool {
        let endpoint = self.endpoint();
        endpoint.peer(peer).fetch_add() == Server::Kernel
            && endpoint.peer(peer).failure().is_none()
            && !endpoint.peer(peer).is_past_agent()
    }

    /// Asks the agent of a peer for a client's slot in its kernel, and tests it.
    async fn find_connection(&self, at: PeerId, key: u64) -> Result<Connection, OpError> {
        let Some(place) = self.ask_agent(at, key, question::PLACE).await? else {
            return Ok(Connection::Agent(None));
        };
        let nonce = self.ask_agent(at, key, question::NONCE).await?.unwrap_or(0);
        let (client, port, addresses) = (place as u16, (place >> 16) as u16, place >> 32 & 0xffff);
        let endpoint = self.endpoint();
        let of = |(job, owner): (JobKey, _)| client_key(&job, owner, endpoint.id(), nonce);
        let secret = endpoint.agent().job_key().zip(endpoint.peer(at).identity()).map(of);
        let Some(secret) = secret else { return Ok(Connection::Agent(None)) };
        // An invalid value was refused when the job began.
        let ports = ports_from_env().unwrap_or_default();
        let mut clients = Vec::new();
        for number in 0..addresses.min(ADDRESSES_MAX) {
            let ip = self.ask_agent(at, key, question::ADDRESS + number).await?;
            let Some(ip) = ip else { break };
            let server = SocketAddrV4::new(Ipv4Addr::from(ip as u32), port);
            let opened = CounterClient::open(server, client, secret, ports);
            clients.extend(opened.ok().map(|mut client| {
                client.ask();
                client
            }));
        }
        Ok(self.await_route(at, clients, Instant::now() + RETRY_AFTER, ANSWER_TIMEOUT).await)
    }

    /// Waits a time for the first answer to one of these clients; returns the route.
    async fn await_route(
        &self,
        at: PeerId,
        mut clients: Vec<CounterClient>,
        until: Instant,
        patience: Duration,
    ) -> Connection {
        loop {
            if let Some(first) = clients.iter_mut().position(|client| client.poll().is_some()) {
                log::debug!("adding to counters of peer {} in its kernel", at.0);
                return Connection::Client(Box::new(clients.swap_remove(first)));
            }
            if clients.is_empty() || Instant::now() >= until {
                weft_link::warn!(
                    "the counters in the kernel of peer {}'s host are not reached over UDP (a \
                     firewall, or no route): its agent serves them",
                    at.0
                );
                return Connection::Agent(Some(Instant::now() + RETRY_AFTER));
            }
            let longest = clients.iter().map(CounterClient::waited).max().unwrap_or_default();
            match patience.is_zero() || longest >= patience {
                true => return Connection::Asked(clients, until),
                false => self.pause(longest).await,
            }
        }
    }

    /// Asks the agent of a peer about a counter in its kernel. `None` if the counter is not there.
    async fn ask_agent(&self, at: PeerId, key: u64, what: u64) -> Result<Option<u64>, OpError> {
        let (asked, _) = self.endpoint().atomic(at, key, 0, AtomicCode::Client, what, 0).await;
        match asked {
            Ok(status) => Ok(Some(status.value)),
            Err(OpError::Refused) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Waits for the answer to a client's request. `None` if none comes.
    async fn await_answer(&self, client: &mut CounterClient) -> Option<u64> {
        loop {
            if let Some(value) = client.poll() {
                return Some(value);
            }
            let waited = client.waited();
            if waited >= ANSWER_TIMEOUT && client.sent() >= TRIES {
                return None;
            }
            self.pause(waited).await;
        }
    }

    /// Makes progress between two polls for an answer for which a request has waited so long.
    async fn pause(&self, waited: Duration) {
        match waited >= POLL_FOR {
            true => self.endpoint().sleep(waited / SLEEP_PART).await,
            false => self.endpoint().yield_now().await,
        }
    }
}

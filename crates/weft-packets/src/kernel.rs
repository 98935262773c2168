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
use weft::{AtomicCode, Endpoint, OpError, PeerId};
use weft_core::wire::question;
use weft_kernel::counters::{client_key, CounterClient};
use weft_link::secure::JobKey;

/// Longest wait for an answer; requests are sent again meanwhile.
const PATIENCE: Duration = Duration::from_millis(30);
/// Time of polling for an answer before sleeping.
const LOOK: Duration = Duration::from_micros(50);
/// A sleep between two polls lasts 1/`PART` of the time waited so far, so an answer is noticed late
/// by at most that fraction.
const PART: u32 = 8;
/// Time after which a failed route is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// Most routes that are kept, each with a socket. A further route evicts one, which is found again
/// when needed.
const CONNECTIONS_MAX: usize = 64;

/// The route to a counter in a kernel.
pub(super) enum Connection {
    /// Datagrams to the kernel.
    Client(Box<CounterClient>),
    /// The agent, at least until that time. `None`: the counter is in no kernel.
    Agent(Option<Instant>),
    /// One addition is under way there, or the route is being found: others go through the agent.
    Busy,
}

/// Routes by peer and key of the counter.
pub(super) type Connections = BTreeMap<(PeerId, u64), Connection>;

/// A route that one addition uses. Dropping this forgets the route, and the next addition finds it
/// again.
struct Taken<'a> {
    packets: &'a Packets,
    counter: (PeerId, u64),
}

impl Taken<'_> {
    fn give_back(self, connection: Connection) {
        let counter = self.counter;
        self.packets.with(|state| state.kernels.insert(counter, connection));
        std::mem::forget(self);
    }
}

impl Drop for Taken<'_> {
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
            Some(client) => Connection::Client(client),
            None => self.find_connection(at, key).await?,
        };
        let Connection::Client(mut client) = connection else {
            taken.give_back(connection);
            return Ok(None);
        };
        client.add(0, n);
        let answer = await_answer(self.endpoint(), &mut client).await;
        if let Some(before) = answer.filter(|_| !self.with(|state| state.lose_answers)) {
            self.with(|state| state.stats.kernel_adds += 1);
            taken.give_back(Connection::Client(client));
            return Ok(Some(before));
        }
        log::warn!(
            "no answer from the counters in the kernel of peer {}'s host: its agent serves them",
            at.0
        );
        // The agent refuses only if the counter is gone.
        let last = self.ask_agent(at, key, question::END).await?.ok_or(OpError::Refused)?;
        let answer = match last == client.number() {
            true => self.ask_agent(at, key, question::ANSWER).await?,
            false => None,
        };
        taken.give_back(Connection::Agent(Some(Instant::now() + AGAIN)));
        Ok(answer)
    }

    /// Takes the route to a counter; the caller finds it if none is known. `None` if the agent is
    /// the route now.
    fn take_connection(
        &self,
        at: PeerId,
        key: u64,
    ) -> Option<(Taken<'_>, Option<Box<CounterClient>>)> {
        let counter = (at, key);
        let client = self.with(|state| match state.kernels.get(&counter) {
            Some(Connection::Busy | Connection::Agent(None)) => Err(()),
            Some(Connection::Agent(Some(until))) if *until > Instant::now() => Err(()),
            known => {
                let new = known.is_none();
                if new && state.kernels.len() >= CONNECTIONS_MAX {
                    let idle = |connection: &Connection| !matches!(connection, Connection::Busy);
                    let first = state.kernels.iter().find(|(_, connection)| idle(connection));
                    let first = first.map(|(&counter, _)| counter).ok_or(())?;
                    state.kernels.remove(&first);
                }
                match state.kernels.insert(counter, Connection::Busy) {
                    Some(Connection::Client(client)) => Ok(Some(client)),
                    _ => Ok(None),
                }
            }
        });
        Some((Taken { packets: self, counter }, client.ok()?))
    }

    /// True if a peer's counters are to be reached in its kernel, if they are there.
    pub(super) fn is_in_kernel(&self, peer: PeerId) -> bool {
        let endpoint = self.endpoint();
        endpoint.fetch_add_of(peer) == Server::Kernel
            && endpoint.peer_failure(peer).is_none()
            && !endpoint.is_past_agent(peer)
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
        let secret = endpoint.job_key().zip(endpoint.identity(at)).map(of);
        let Some(secret) = secret else { return Ok(Connection::Agent(None)) };
        // An invalid value was refused when the job began.
        let ports = ports_from_env().unwrap_or_default();
        for number in 0..addresses {
            let ip = self.ask_agent(at, key, question::ADDRESS + number).await?;
            let Some(ip) = ip else { break };
            let server = SocketAddrV4::new(Ipv4Addr::from(ip as u32), port);
            let Ok(mut connection) = CounterClient::open(server, client, secret, ports) else {
                continue;
            };
            connection.ask();
            if await_answer(self.endpoint(), &mut connection).await.is_some() {
                log::debug!("adding to counters of peer {} in its kernel, at {server}", at.0);
                return Ok(Connection::Client(Box::new(connection)));
            }
        }
        log::warn!(
            "the counters in the kernel of peer {}'s host are not reached over UDP (a firewall, or \
             no route): its agent serves them",
            at.0
        );
        Ok(Connection::Agent(Some(Instant::now() + AGAIN)))
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
}

/// Waits for the answer to a client's request. `None` if none comes.
async fn await_answer(endpoint: &Endpoint, client: &mut CounterClient) -> Option<u64> {
    loop {
        if let Some(value) = client.poll() {
            return Some(value);
        }
        match client.waited() {
            waited if waited >= PATIENCE => return None,
            waited if waited >= LOOK => endpoint.sleep(waited / PART).await,
            _ => endpoint.yield_now().await,
        }
    }
}

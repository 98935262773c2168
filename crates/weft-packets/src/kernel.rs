//! Adding to counters in the kernels of their owners' hosts, past every process there.
//!
//! The word of such a counter lies in memory that the owner's agent and the program in its kernel
//! share: whoever cannot reach the program, or is not to, adds through the agent. So the way to the
//! kernel is tried before anything is added over it; and where answers stop coming, the agent ends
//! the place there, says whether the last request was served, and serves from then on.

use super::Packets;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};
use weft::choices::Server;
use weft::job::ports_from_env;
use weft::{AtomicCode, Endpoint, OpError, PeerId};
use weft_core::wire::question;
use weft_link::secure::JobKey;
use weft_link::xdp::counters::{client_key, CounterClient};

/// How long an answer may take, with requests sent again meanwhile.
const PATIENCE: Duration = Duration::from_millis(30);
/// How long to look for an answer before sleeping.
const LOOK: Duration = Duration::from_micros(50);
/// A sleep between two looks is a part of what was waited by then: an answer is late by no more.
const PART: u32 = 8;
/// After so long a way that failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// Most ways that are kept, each with a socket; another gives way and is found again when needed.
const WAYS_MAX: usize = 64;

/// How a counter in a kernel is reached.
pub(super) enum Way {
    /// By datagrams.
    Client(Box<CounterClient>),
    /// By the agent, at least until then; `None`: it is in no kernel.
    Agent(Option<Instant>),
    /// One addition is under way there, or the way is being found: others go by the agent.
    Busy,
}

/// By peer and key of the counter.
pub(super) type Ways = BTreeMap<(PeerId, u64), Way>;

/// A way that one addition uses. What is dropped with it is found again.
struct Taken<'a> {
    packets: &'a Packets,
    counter: (PeerId, u64),
}

impl Taken<'_> {
    fn give_back(self, way: Way) {
        let counter = self.counter;
        self.packets.with(|state| state.kernels.insert(counter, way));
        std::mem::forget(self);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.packets.with(|state| state.kernels.remove(&self.counter));
    }
}

impl Packets {
    /// Adds to a counter in the kernel of a peer's host. `None`: it is not to be reached there, and
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
        let Some((taken, known)) = self.take_way(at, key) else { return Ok(None) };
        let way = match known {
            Some(client) => Way::Client(client),
            None => self.find_way(at, key).await?,
        };
        let Way::Client(mut client) = way else {
            taken.give_back(way);
            return Ok(None);
        };
        client.add(0, n);
        let answer = await_answer(self.endpoint(), &mut client).await;
        if let Some(before) = answer.filter(|_| !self.with(|state| state.lose_answers)) {
            self.with(|state| state.stats.kernel_adds += 1);
            taken.give_back(Way::Client(client));
            return Ok(Some(before));
        }
        log::warn!(
            "no answer from the counters in the kernel of peer {}'s host: its agent serves them",
            at.0
        );
        // The place is gone only with the counter.
        let last = self.ask_agent(at, key, question::END).await?.ok_or(OpError::Refused)?;
        let answer = match last == client.number() {
            true => self.ask_agent(at, key, question::ANSWER).await?,
            false => None,
        };
        taken.give_back(Way::Agent(Some(Instant::now() + AGAIN)));
        Ok(answer)
    }

    /// Takes the way to a counter, to be found where none is known. `None`: it is the agent, now.
    fn take_way(&self, at: PeerId, key: u64) -> Option<(Taken<'_>, Option<Box<CounterClient>>)> {
        let counter = (at, key);
        let client = self.with(|state| match state.kernels.get(&counter) {
            Some(Way::Busy | Way::Agent(None)) => Err(()),
            Some(Way::Agent(Some(until))) if *until > Instant::now() => Err(()),
            known => {
                let new = known.is_none();
                if new && state.kernels.len() >= WAYS_MAX {
                    let idle = |way: &Way| !matches!(way, Way::Busy);
                    let first = state.kernels.iter().find(|(_, way)| idle(way));
                    let first = first.map(|(&counter, _)| counter).ok_or(())?;
                    state.kernels.remove(&first);
                }
                match state.kernels.insert(counter, Way::Busy) {
                    Some(Way::Client(client)) => Ok(Some(client)),
                    _ => Ok(None),
                }
            }
        });
        Some((Taken { packets: self, counter }, client.ok()?))
    }

    /// Whether counters of a peer are to be reached in its kernel, if they are there.
    pub(super) fn is_in_kernel(&self, peer: PeerId) -> bool {
        let endpoint = self.endpoint();
        endpoint.fetch_add_of(peer) == Server::Kernel
            && endpoint.peer_failure(peer).is_none()
            && !endpoint.is_past_agent(peer)
    }

    /// Asks the agent of a peer for a place at its kernel, and tries it.
    async fn find_way(&self, at: PeerId, key: u64) -> Result<Way, OpError> {
        let Some(place) = self.ask_agent(at, key, question::PLACE).await? else {
            return Ok(Way::Agent(None));
        };
        let nonce = self.ask_agent(at, key, question::NONCE).await?.unwrap_or(0);
        let (client, port, addresses) = (place as u16, (place >> 16) as u16, place >> 32 & 0xffff);
        let endpoint = self.endpoint();
        let of = |(job, owner): (JobKey, _)| client_key(&job, owner, endpoint.id(), nonce);
        let secret = endpoint.job_key().zip(endpoint.identity(at)).map(of);
        let Some(secret) = secret else { return Ok(Way::Agent(None)) };
        // Nonsense was refused when the job began.
        let ports = ports_from_env().unwrap_or_default();
        for number in 0..addresses {
            let ip = self.ask_agent(at, key, question::ADDRESS + number).await?;
            let Some(ip) = ip else { break };
            let server = SocketAddrV4::new(Ipv4Addr::from(ip as u32), port);
            let Ok(mut way) = CounterClient::open(server, client, secret, ports) else { continue };
            way.ask();
            if await_answer(self.endpoint(), &mut way).await.is_some() {
                log::debug!("adding to counters of peer {} in its kernel, at {server}", at.0);
                return Ok(Way::Client(Box::new(way)));
            }
        }
        log::warn!(
            "the counters in the kernel of peer {}'s host are not reached over UDP (a firewall, or \
             no route): its agent serves them",
            at.0
        );
        Ok(Way::Agent(Some(Instant::now() + AGAIN)))
    }

    /// What the agent of a peer answers about a counter in its kernel. `None`: it is not there.
    async fn ask_agent(&self, at: PeerId, key: u64, what: u64) -> Result<Option<u64>, OpError> {
        let (asked, _) = self.endpoint().atomic(at, key, 0, AtomicCode::Client, what, 0).await;
        match asked {
            Ok(status) => Ok(Some(status.value)),
            Err(OpError::Refused) => Ok(None),
            Err(why) => Err(why),
        }
    }
}

/// The answer to a client's request, if it comes.
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

//! Real agents on threads, and ranks that they serve.
// Not every test program uses all of it.
#![allow(dead_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft::{Address, Clock, Config, Endpoint, EndpointId, PeerId};
use weft_agent::{AgentConfig, AgentLink, ServicesHandle};
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::{Link, LinkError};
use weftd::options::Options;
use weftd::{status, Agent};

/// Limit of every wait; reached only by a fault.
const LIMIT: Duration = Duration::from_secs(300);

/// Opens an agent, and waits until its name is free: the name of an agent that has just ended is in
/// use while a process started by another test has a copy of its descriptors.
fn open(options: Options) -> Agent {
    let end = Instant::now() + LIMIT;
    loop {
        match Agent::open(options.clone()) {
            Ok(agent) => return agent,
            Err(e) if e.to_string().contains("listening") && Instant::now() < end => {}
            Err(e) => panic!("{e}"),
        }
    }
}

/// An agent on a thread of its own.
pub struct Served {
    pub name: String,
    pub end: Arc<AtomicBool>,
    pub thread: Option<JoinHandle<()>>,
}

pub fn options(words: &str) -> Options {
    let name = format!("@weft-test-{:016x}", weft_link::random_u64());
    let words = format!("--name {name} --links udp {words}");
    Options::parse(words.split_whitespace()).unwrap()
}

impl Served {
    pub fn start(words: &str) -> Served {
        Served::with(options(words))
    }

    pub fn with(options: Options) -> Served {
        let name = options.name.clone();
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let _ = env_logger::builder().is_test(true).try_init();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut agent = open(options);
            ready.send(()).unwrap();
            while !ended.load(Ordering::Relaxed) && !agent.is_done() {
                agent.step();
            }
        });
        is_ready.recv().unwrap();
        Served { name, end, thread: Some(thread) }
    }

    pub fn stop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// Returns a number of the agent's status.
    pub fn reports(&self, what: &str) -> u64 {
        let text = status::status(&self.name).unwrap();
        let value = |l: &str| l.strip_prefix(what)?.trim().parse().ok();
        text.lines().find_map(value).unwrap_or_else(|| panic!("{what} is not in {text}"))
    }

    pub fn rank(&self, key: u8) -> Rank {
        self.try_rank(key).unwrap()
    }

    pub fn try_rank(&self, key: u8) -> Result<Rank, LinkError> {
        self.try_rank_with(key, Config::default())
    }

    pub fn try_rank_with(&self, key: u8, config: Config) -> Result<Rank, LinkError> {
        let id = EndpointId(weft_link::random_u64());
        let config = Config { spin_us: 0, yield_us: 0, ..config };
        let (link, services) = self.link(key, id, &config)?;
        let links: Vec<Box<dyn Link>> = vec![Box::new(link)];
        let endpoint = Endpoint::with_links(config, id, Clock::system(), links);
        endpoint.agent().serve(services.clone());
        Ok(Rank { endpoint, services })
    }

    /// Returns the link of a rank, and the agent's services for it.
    pub fn link(
        &self,
        key: u8,
        me: EndpointId,
        config: &Config,
    ) -> Result<(AgentLink, ServicesHandle), LinkError> {
        let job_key = JobKey::from_bytes(&[key; 32]).unwrap();
        let security = Security { mode: Mode::Auth, job_key, me };
        let names = vec![self.name.clone()];
        let patience = LIMIT;
        let link = AgentLink::attach(&AgentConfig { names, patience }, &security, config)?;
        let services = link.services();
        Ok((link, services))
    }
}

/// Returns the reason of an agent's refusal.
pub fn refusal(result: Result<Rank, LinkError>) -> String {
    match result {
        Ok(_) => panic!("it was served"),
        Err(e) => e.to_string(),
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub struct Rank {
    pub endpoint: Endpoint,
    pub services: ServicesHandle,
}

impl Rank {
    pub fn address(&self) -> Address {
        self.endpoint.address()
    }

    pub fn connect(&self, to: &Rank) -> PeerId {
        self.endpoint.connect(&to.address()).unwrap()
    }
}

/// Makes progress on all ranks until `done`; fails after minutes.
pub fn until(ranks: &[&Rank], mut done: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !done() {
        for rank in ranks {
            rank.endpoint.progress();
        }
        // A sleeping rank is scheduled before those that compute; the others are polled soon after.
        match ranks.last() {
            Some(rank) => drop(rank.endpoint.wait(Some(Duration::from_micros(200)))),
            None => std::thread::yield_now(),
        }
        assert!(Instant::now() < end, "nothing came of it for minutes");
    }
}

/// Sends `data` from `a` to its peer, which is `b`, and checks that it arrives.
pub fn pass(a: &Rank, to_b: PeerId, b: &Rank, tag: u64, data: &[u8]) {
    let sent = a.endpoint.send(to_b, tag, data.to_vec());
    let got = b.endpoint.recv(None, tag, 0, vec![0; data.len()]);
    until(&[a, b], || sent.is_done() && got.is_done());
    let (status, bytes) = b.endpoint.block_on(got);
    assert_eq!(status.unwrap().len, data.len());
    assert!(bytes == data, "changed on the way");
    a.endpoint.block_on(sent).0.unwrap();
}

/// Returns a rank of each agent, and the peer that the second is to the first, which sends it this
/// message: the session is open.
pub fn joined(here: &Served, there: &Served, first: &[u8]) -> (Rank, Rank, PeerId) {
    let (a, b) = (here.rank(1), there.rank(1));
    let to_b = a.connect(&b);
    pass(&a, to_b, &b, 1, first);
    (a, b, to_b)
}

pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed + (i >> 9)) as u8).collect()
}

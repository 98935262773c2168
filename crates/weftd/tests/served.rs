//! Ranks served by agents: real agents on threads, real rings, UDP over loopback.
#![allow(non_snake_case)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use weft::{Address, Clock, Config, Endpoint, EndpointId, PeerId};
use weft_link::agent::{AgentConfig, AgentLink, ServicesHandle};
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::{Link, LinkError};
use weftd::options::Options;
use weftd::Agent;

/// An agent on a thread of its own.
struct Served {
    name: String,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn options(words: &str) -> Options {
    let name = format!("@weft-test-{:016x}", weft_link::random_u64());
    let words = format!("--name {name} --links udp {words}");
    Options::parse(words.split_whitespace().map(String::from)).unwrap()
}

impl Served {
    fn start(words: &str) -> Served {
        let options = options(words);
        let name = options.name.clone();
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let _ = env_logger::builder().is_test(true).try_init();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut agent = Agent::open(options).unwrap();
            ready.send(()).unwrap();
            while !ended.load(Ordering::Relaxed) && !agent.is_done() {
                agent.step();
            }
        });
        is_ready.recv().unwrap();
        Served { name, end, thread: Some(thread) }
    }

    fn stop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    fn rank(&self, key: u8) -> Rank {
        self.try_rank(key).unwrap()
    }

    fn try_rank(&self, key: u8) -> Result<Rank, LinkError> {
        let id = EndpointId(weft_link::random_u64());
        let job_key = JobKey::from_bytes(&[key; 32]).unwrap();
        let security = Security { mode: Mode::Auth, job_key, me: id };
        let config = Config { spin_us: 0, yield_us: 200, ..Config::default() };
        let names = vec![self.name.clone()];
        let patience = Duration::from_secs(20);
        let link = AgentLink::attach(&AgentConfig { names, patience }, &security, &config)?;
        let services = link.services();
        let links: Vec<Box<dyn Link>> = vec![Box::new(link)];
        let endpoint = Endpoint::with_links(config, id, Clock::system(), links);
        Ok(Rank { endpoint, services })
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

struct Rank {
    endpoint: Endpoint,
    #[allow(dead_code)]
    services: ServicesHandle,
}

impl Rank {
    fn address(&self) -> Address {
        self.endpoint.address()
    }

    fn connect(&self, to: &Rank) -> PeerId {
        self.endpoint.connect(&to.address()).unwrap()
    }
}

/// Lets both make progress until `done`, or fails after a minute.
fn until(ranks: &[&Rank], mut done: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !done() {
        for rank in ranks {
            rank.endpoint.progress();
        }
        std::thread::yield_now();
        assert!(std::time::Instant::now() < end, "nothing came of it for a minute");
    }
}

/// Sends `data` from `a` to its peer, which is `b`, and checks that it arrives.
fn pass(a: &Rank, to_b: PeerId, b: &Rank, tag: u64, data: &[u8]) {
    let sent = a.endpoint.send(to_b, tag, data.to_vec());
    let got = b.endpoint.recv(None, tag, 0, vec![0; data.len()]);
    until(&[a, b], || sent.is_done() && got.is_done());
    let (status, bytes) = b.endpoint.block_on(got);
    assert_eq!(status.unwrap().len, data.len());
    assert!(bytes == data, "changed on the way");
    a.endpoint.block_on(sent).0.unwrap();
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed + (i >> 9)) as u8).collect()
}

#[test]
fn agent__messages_of_all_sizes_between_two_agents() {
    let (here, there) = (Served::start(""), Served::start(""));
    let (a, b) = (here.rank(1), there.rank(1));
    let to_b = a.connect(&b);
    for (tag, len) in [0, 1, 16, 1400, 1500, 9_000, 70_000, 1 << 20].into_iter().enumerate() {
        pass(&a, to_b, &b, tag as u64, &pattern(tag, len));
    }
    let to_a = b.connect(&a);
    for tag in 0..200 {
        pass(&a, to_b, &b, tag, &pattern(1, 16));
        pass(&b, to_a, &a, tag, &pattern(2, 16));
    }
}

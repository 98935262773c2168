//! Ranks that are threads of this process.

use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;
use weft::group::Directory;
use weft::{Clock, Config, Endpoint, EndpointId, Group};
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::{Address, Link, ShmConfig, ShmLink, UdpConfig, UdpLink};
use weft_packets::net::Live;

/// The links that the models are tried over.
pub const LINKS: [&str; 2] = ["shm", "udp"];

struct Addresses(Vec<Address>);

impl Directory for Addresses {
    fn size(&self) -> usize {
        self.0.len()
    }

    fn address(&self, rank: usize) -> Result<Address, String> {
        self.0.get(rank).cloned().ok_or_else(|| format!("there is no rank {rank}"))
    }
}

fn link(name: &str, me: EndpointId) -> Box<dyn Link> {
    if name == "shm" {
        return Box::new(ShmLink::new(ShmConfig::new(me)).expect("shared memory"));
    }
    let job_key = JobKey::from_bytes(&[7; 32]).expect("a key of 32 bytes");
    let security = Security { mode: Mode::Auth, job_key, me };
    let v4 = Some(std::net::Ipv4Addr::LOCALHOST);
    let config = UdpConfig { v4, v6: None, host: 1, ..UdpConfig::default() };
    Box::new(UdpLink::new(config, security).expect("a socket"))
}

/// Opens the endpoint of a rank over a link.
pub fn open(name: &str, config: Config) -> Endpoint {
    let id = EndpointId(weft_link::random_u64());
    Endpoint::with_links(config, id, Clock::system(), vec![link(name, id)])
}

/// Returns the group of all ranks, which have these addresses.
pub fn group_of(endpoint: Endpoint, addresses: Vec<Address>, rank: usize) -> Group {
    Group::new(endpoint, Addresses(addresses), rank)
}

/// Runs `program` on `count` ranks over a link; all live until the last has ended.
pub fn run(name: &str, count: usize, program: impl Fn(Live, Group) + Sync) {
    let (addresses, met) = (Arc::new(Mutex::new(vec![None; count])), Arc::new(Barrier::new(count)));
    std::thread::scope(|scope| {
        for rank in 0..count {
            let (addresses, met, program) = (Arc::clone(&addresses), Arc::clone(&met), &program);
            scope.spawn(move || {
                let config = Config { rank: u32::try_from(rank).ok(), ..Config::default() };
                let endpoint = open(name, config);
                addresses.lock().expect("no panic")[rank] = Some(endpoint.address());
                met.wait();
                let all = addresses.lock().expect("no panic").iter().flatten().cloned().collect();
                let world = group_of(endpoint, all, rank);
                // The other ranks would wait for one whose thread has ended.
                let end = EndAll;
                program(Live::new(&world).expect("a packet interface"), world.clone());
                world.barrier_blocking().expect("no rank fails");
                // A rank may wait for the last packet of this one, which was lost.
                world.endpoint().close(Duration::from_secs(10));
                std::mem::forget(end);
            });
        }
    });
}

/// Ends the process when a rank panics.
struct EndAll;

impl Drop for EndAll {
    fn drop(&mut self) {
        eprintln!("a rank has panicked: run the test with --nocapture");
        std::process::exit(101);
    }
}

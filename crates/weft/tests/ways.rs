//! Endpoints with shared memory and UDP, of which one side cannot use the shared memory.
#![allow(non_snake_case)]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use weft::{Config, Endpoint, EndpointId, OpError, PeerFailure, PeerId};
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::{Address, Link, ShmConfig, ShmLink, UdpConfig, UdpLink};

/// Opens an endpoint that has room for `shm_peers` connections over shared memory.
fn endpoint(shm_peers: usize, udp: bool) -> Endpoint {
    let me = EndpointId(weft_link::random_u64());
    let shm = ShmConfig { max_peers: shm_peers, ..ShmConfig::new(me) };
    let mut links: Vec<Box<dyn Link>> = vec![Box::new(ShmLink::new(shm).unwrap())];
    if udp {
        let host = weft_link::shm::host().unwrap();
        let config = UdpConfig { host, ..UdpConfig::default() };
        let job_key = JobKey::from_bytes(&[7; 32]).unwrap();
        let security = Security { mode: Mode::Auth, job_key, me };
        links.push(Box::new(UdpLink::new(config, security).unwrap()));
    }
    Endpoint::with_links(Config::default(), me, weft::Clock::system(), links)
}

/// Returns the future's result, while both endpoints make progress.
fn run<T>(both: [&Endpoint; 2], future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let start = std::time::Instant::now();
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return answer;
        }
        both[0].progress();
        both[1].progress();
        assert!(start.elapsed().as_secs() < 120, "stuck: {:?}", both.map(Endpoint::stats));
    }
}

/// Checks that messages of all protocols arrive, first from `from`, then to it.
fn exchange(both: [&Endpoint; 2], ids: [PeerId; 2], from: usize) {
    for at in [from, 1 - from] {
        for (tag, len) in [(0, 0), (1, 100), (2, 50_000), (3, 2_000_000)] {
            let data = vec![len as u8 ^ 0x5a; len];
            let send = both[at].send(ids[at], tag, data.clone());
            let recv = both[1 - at].recv(Some(ids[1 - at]), tag, 0, vec![0; len]);
            let (status, got) = run(both, recv);
            assert_eq!(status.unwrap().len, len);
            assert!(got == data);
            run(both, send).0.unwrap();
        }
    }
}

#[test]
fn hello__over_memory_moves_a_peer_reached_over_the_network() {
    for (first, opens) in [(0, false), (1, false), (0, true), (1, true)] {
        let (a, b) = (endpoint(9, true), endpoint(9, true));
        // Descriptors seem to run out for a moment: B's connection fails, A's succeeds.
        let to_a = b.connect(&Address { shm: 0, ..a.address() }).unwrap();
        assert!(b.peer(to_a).describe().contains("udp"));
        if opens {
            b.peer(to_a).open();
            b.progress();
        }
        let to_b = a.connect(&b.address()).unwrap();
        assert!(a.peer(to_b).describe().contains("shm"));
        exchange([&a, &b], [to_b, to_a], first);
        assert!(b.peer(to_a).describe().contains("shm"), "{}", b.peer(to_a).describe());
        assert!(a.peer(to_b).describe().contains("shm"), "{}", a.peer(to_b).describe());
    }
}

#[test]
fn refused__memory_gives_way_to_the_network() {
    for first in [0, 1] {
        let (a, b) = (endpoint(9, true), endpoint(0, true));
        let to_b = a.connect(&b.address()).unwrap();
        assert!(a.peer(to_b).describe().contains("shm"));
        let to_a = b.connect(&a.address()).unwrap();
        assert!(b.peer(to_a).describe().contains("udp"));
        exchange([&a, &b], [to_b, to_a], first);
        assert!(a.peer(to_b).describe().contains("udp"), "{}", a.peer(to_b).describe());
    }
}

#[test]
fn refused__without_a_network_it_is_said() {
    let (a, b) = (endpoint(9, false), endpoint(0, false));
    let to_b = a.connect(&b.address()).unwrap();
    let (status, _) = run([&a, &b], a.recv(Some(to_b), 1, 0, vec![0; 1]));
    let failure = PeerFailure::Refused;
    assert_eq!(status, Err(OpError::Peer { peer: to_b, failure }));
}

//! The path of small messages allocates nothing once it has warmed up.
#![allow(non_snake_case)]

mod sys;

use weft::job::open_endpoint;
use weft::{Config, Endpoint, Links, PeerId};

#[global_allocator]
static COUNTING: sys::Counting = sys::Counting;

/// Messages in each direction before the count, enough for every pool and table to reach its size.
const WARM_UP: usize = 2_000;
const COUNTED: usize = 500;
/// Largest number of counts until one is zero: a thread that loses its core meanwhile sleeps or
/// retransmits, which may allocate.
const BATCHES: usize = 20;

struct Side {
    endpoint: Endpoint,
    other: PeerId,
}

fn pair(links: &str) -> [Side; 2] {
    let links = Links::parse(links).unwrap();
    let open = || open_endpoint(Config::default(), links, [1; 32]).unwrap();
    let (a, b) = (open(), open());
    let (to_b, to_a) = (a.connect(&b.address()).unwrap(), b.connect(&a.address()).unwrap());
    // The session opens while both make progress.
    a.send_blocking(to_b, 2, &[1]).unwrap();
    while b.probe(None, 2, 0).is_none() {
        a.progress();
        b.progress();
    }
    b.recv_blocking(Some(to_a), 2, 0, &mut [0]).unwrap();
    [Side { endpoint: a, other: to_b }, Side { endpoint: b, other: to_a }]
}

/// Sends several messages in each direction, of which the later ones wait and leave in bursts.
fn rows([a, b]: &[Side; 2], buffer: &mut [u8]) {
    for (from, to) in [(a, b), (b, a)] {
        for _ in 0..8 {
            from.endpoint.send_blocking(from.other, 1, buffer).unwrap();
        }
        from.endpoint.progress();
        for _ in 0..8 {
            while to.endpoint.probe(Some(to.other), 1, 0).is_none() {
                from.endpoint.progress();
                to.endpoint.progress();
            }
            to.endpoint.recv_blocking(Some(to.other), 1, 0, buffer).unwrap();
        }
    }
}

/// Sends one message in each direction.
fn exchange([a, b]: &[Side; 2], buffer: &mut [u8]) {
    for (from, to) in [(a, b), (b, a)] {
        from.endpoint.send_blocking(from.other, 1, buffer).unwrap();
        to.endpoint.recv_blocking(Some(to.other), 1, 0, buffer).unwrap();
    }
}

fn allocates_nothing(links: &str, work: fn(&[Side; 2], &mut [u8])) {
    let pair = pair(links);
    for len in [0, 8, 1000] {
        let mut buffer = vec![7; len];
        (0..WARM_UP).for_each(|_| work(&pair, &mut buffer));
        let made = |_| {
            let before = sys::allocations();
            (0..COUNTED).for_each(|_| work(&pair, &mut buffer));
            sys::allocations() - before
        };
        let allocates = !(0..BATCHES).map(made).any(|made| made == 0);
        assert!(!allocates, "{links}, {len} bytes, {COUNTED} times to and fro");
    }
}

#[test]
fn count__sees_an_allocation() {
    let before = sys::allocations();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(sys::allocations() - before, 1);
}

#[test]
fn blocking__over_shm() {
    allocates_nothing("shm", exchange);
}

#[test]
fn blocking__over_udp() {
    allocates_nothing("udp", exchange);
}

#[test]
fn rows__over_shm() {
    allocates_nothing("shm", rows);
}

#[test]
fn rows__over_udp() {
    allocates_nothing("udp", rows);
}

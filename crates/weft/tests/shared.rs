//! The locked form under many threads.
#![allow(non_snake_case)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;
use weft::choices::Receipt;
use weft::{Config, Links, SharedEndpoint};

fn open(links: &str) -> SharedEndpoint {
    SharedEndpoint::open(Config::default(), Links::parse(links).unwrap(), [3; 32]).unwrap()
}

/// Four threads a side, each with a tag of its own, small and large messages both ways.
fn exchange(links: &str) {
    let (a, b) = (open(links), open(links));
    let (to_b, to_a) = (a.connect(&b.address()).unwrap(), b.connect(&a.address()).unwrap());
    std::thread::scope(|s| {
        for tag in 0..4u64 {
            let (a, b) = (a.clone(), b.clone());
            s.spawn(move || {
                for round in 0..100usize {
                    let len = [8, 3000, 100_000][round % 3];
                    a.send(to_b, tag, &vec![round as u8; len]).unwrap();
                    let mut back = [0; 1];
                    a.recv(Some(to_b), tag, 0, &mut back).unwrap();
                    assert_eq!(back[0], round as u8 ^ tag as u8);
                }
            });
            s.spawn(move || {
                let mut buffer = vec![0; 100_000];
                for round in 0..100usize {
                    let got = b.recv(Some(to_a), tag, 0, &mut buffer).unwrap();
                    assert_eq!(got.len, [8, 3000, 100_000][round % 3]);
                    assert!(buffer[..got.len].iter().all(|&x| x == round as u8));
                    b.send(to_a, tag, &[round as u8 ^ tag as u8]).unwrap();
                }
            });
        }
    });
    a.close(Duration::from_secs(1));
    b.close(Duration::from_secs(1));
}

#[test]
fn send_recv__many_threads_over_shm() {
    exchange("shm");
}

#[test]
fn send_recv__many_threads_over_udp() {
    exchange("udp");
}

#[test]
fn watchdog__of_an_endpoint_of_one_thread_is_refused_with_the_reason() {
    let config = Config { receipt: Receipt::Watchdog, ..Config::default() };
    let links = Links::parse("shm").unwrap();
    let Err(why) = weft::job::open_endpoint(config, links, [1; 32]) else {
        panic!("nobody would poll for it")
    };
    let why = why.to_string();
    assert!(why.contains("WEFT_RECEIPT=watchdog") && why.contains("SharedEndpoint"), "{why}");
}

#[test]
fn watchdog__serves_peers_while_the_owner_computes() {
    let config = Config { receipt: Receipt::Watchdog, watchdog_us: 100, ..Config::default() };
    let links = Links { udp: false, auto: false, ..Links::AUTO };
    let owner = SharedEndpoint::open(config, links, [5; 32]).unwrap();
    let other = SharedEndpoint::open(Config::default(), links, [5; 32]).unwrap();
    let counter = owner.counter(7).unwrap();
    let (got, seen) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&got);
    owner
        .handle_packets(3, move |_, packet| {
            count.fetch_add(packet.argument(), Ordering::SeqCst);
        })
        .unwrap();
    let to = other.connect(&owner.address()).unwrap();
    let done = Arc::clone(&seen);
    let adding = std::thread::spawn(move || {
        for _ in 0..20 {
            other.fetch_add(to, counter, 1).unwrap();
            other.send_packet(to, 3, 1, &[1; 16]).unwrap();
        }
        done.store(1, Ordering::SeqCst);
        other.close(Duration::from_secs(5));
    });
    // The owner computes: it calls nothing of weft until all is served.
    let start = std::time::Instant::now();
    while seen.load(Ordering::SeqCst) == 0 || got.load(Ordering::SeqCst) < 20 {
        std::hint::spin_loop();
        assert!(start.elapsed().as_secs() < 300, "the watchdog does not serve");
    }
    adding.join().unwrap();
    assert_eq!(owner.counter_value(counter), Some(27));
}

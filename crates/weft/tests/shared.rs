//! The locked form under many threads.
#![allow(non_snake_case)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;
use weft::choices::Receipt;
use weft::{AtomicCode, Cancel, Config, Links, OpError, PeerId, Rights, SharedEndpoint};
use weft_packets::SharedPackets;

fn open(links: &str) -> SharedEndpoint {
    SharedEndpoint::open(Config::default(), Links::parse(links).unwrap(), [3; 32]).unwrap()
}

/// Runs four threads on each side, each with its own tag: small and large messages in both
/// directions.
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
    let [owned, others] = [&owner, &other].map(|shared| SharedPackets::new(shared).unwrap());
    let counter = owned.counter(7).unwrap();
    let (got, seen) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&got);
    owned.handle(3, move |packet| _ = count.fetch_add(packet.argument(), Ordering::SeqCst));
    let to = other.connect(&owner.address()).unwrap();
    let done = Arc::clone(&seen);
    let adding = std::thread::spawn(move || {
        for _ in 0..20 {
            others.fetch_add(to, counter, 1).unwrap();
            others.try_send(to, 3, 1, &[1; 16]).unwrap();
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
    assert_eq!(owned.counter_value(counter), Some(27));
}

/// Returns two endpoints that know each other, and the key of B's region of 64 words.
fn pair(links: &str) -> ([SharedEndpoint; 2], [PeerId; 2], u64) {
    let (a, b) = (open(links), open(links));
    let (to_b, to_a) = (a.connect(&b.address()).unwrap(), b.connect(&a.address()).unwrap());
    let key = b.register(64 * 8, Rights { read: true, write: true }).unwrap();
    ([a, b], [to_b, to_a], key)
}

/// Runs `work` on four threads while another makes progress for B.
fn beside(b: &SharedEndpoint, work: impl Fn(u64) + Sync) {
    let done = AtomicU32::new(0);
    std::thread::scope(|s| {
        s.spawn(|| {
            while done.load(Ordering::SeqCst) < 4 {
                b.poll();
            }
        });
        for thread in 0..4 {
            let (work, done) = (&work, &done);
            s.spawn(move || {
                work(thread);
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
}

#[test]
fn remote_memory__many_threads_at_once() {
    for links in ["shm", "udp"] {
        let ([a, b], [to_b, _], key) = pair(links);
        beside(&b, |thread| {
            let area = 64 + thread * 64;
            for round in 0..50u8 {
                let data = [round ^ thread as u8; 64];
                a.put(to_b, key, area, &data).unwrap();
                let mut back = [0; 64];
                a.get(to_b, key, area, &mut back).unwrap();
                assert_eq!(back, data, "{links}");
                a.atomic(to_b, (key, 0), AtomicCode::FetchAdd, 1, 0).unwrap();
                // The second word is a counter too, by compare-and-swap.
                let mut seen = 0;
                loop {
                    let swap = AtomicCode::CompareSwap;
                    match a.atomic(to_b, (key, 8), swap, seen + 1, seen).unwrap() {
                        old if old == seen => break,
                        old => seen = old,
                    }
                }
            }
        });
        let word = |at: usize| {
            let read = |bytes: &mut [u8]| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            b.with_region(key, read).unwrap()
        };
        assert_eq!((word(0), word(8)), (200, 200), "{links}");
        let beyond = std::sync::Mutex::new(None);
        beside(&b, |thread| {
            if thread == 0 {
                *beyond.lock().unwrap() = Some(a.put(to_b, key, 64 * 8 - 4, &[0; 8]));
            }
        });
        assert_eq!(beyond.into_inner().unwrap(), Some(Err(OpError::Refused)));
        assert_eq!(b.unregister(key).len(), 64 * 8);
    }
}

#[test]
fn probe__sees_what_another_thread_will_receive() {
    let ([a, b], [to_b, to_a], _) = pair("shm");
    let found = std::thread::scope(|s| {
        s.spawn(|| a.send(to_b, 5, &[1, 2, 3]).unwrap());
        loop {
            a.poll();
            b.poll();
            if let Some(found) = b.probe(Some(to_a), 5, 0) {
                break found;
            }
        }
    });
    assert_eq!(found.len, 3);
    let mut buffer = [0; 3];
    b.recv(Some(to_a), 5, 0, &mut buffer).unwrap();
    assert!(b.probe(Some(to_a), 5, 0).is_none() && buffer == [1, 2, 3]);
}

#[test]
fn cancel__ends_receives_that_wait_in_either_role() {
    for links in ["shm", "udp"] {
        let ([a, b], [_, to_a], _) = pair(links);
        // Of two waiting threads one makes progress for both, and sleeps.
        let cancels = [Cancel::default(), Cancel::default()];
        std::thread::scope(|s| {
            let waiting = cancels.each_ref().map(|cancel| {
                let b = b.clone();
                s.spawn(move || b.recv_or_cancel(None, 77, 0, &mut [0; 8], cancel))
            });
            // The cancel also ends a receive that has not begun yet.
            cancels.iter().for_each(|cancel| assert!(b.cancel(cancel)));
            for thread in waiting {
                assert_eq!(thread.join().unwrap(), Err(OpError::Cancelled), "{links}");
            }
        });
        // A message that comes is received as before.
        std::thread::scope(|s| {
            let (to_b, cancel) = (a.connect(&b.address()).unwrap(), &cancels[0]);
            let done = Arc::new(AtomicU32::new(0));
            let over = Arc::clone(&done);
            let a = a.clone();
            s.spawn(move || {
                a.send(to_b, 78, &[9]).unwrap();
                while over.load(Ordering::SeqCst) == 0 {
                    a.poll();
                }
            });
            let got = b.recv_or_cancel(Some(to_a), 78, 0, &mut [0; 8], cancel);
            done.store(1, Ordering::SeqCst);
            assert_eq!(got.unwrap().len, 1);
        });
    }
}

/// True if the thread of this name sleeps in the kernel.
fn sleeps(name: &str) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    stats.into_iter().any(|stat| stat.contains(&format!("({name}) S")))
}

#[test]
fn cancel__wakes_the_thread_that_sleeps_for_all() {
    let ([_a, b], _, _) = pair("udp");
    for _ in 0..20 {
        let cancel = Cancel::default();
        std::thread::scope(|s| {
            let thread = std::thread::Builder::new().name("sleeper".into());
            let receive = || b.recv_or_cancel(None, 77, 0, &mut [0; 8], &cancel);
            let waiting = thread.spawn_scoped(s, receive).unwrap();
            while !sleeps("sleeper") {
                std::thread::yield_now();
            }
            b.cancel(&cancel);
            assert_eq!(waiting.join().unwrap(), Err(OpError::Cancelled));
        });
    }
}

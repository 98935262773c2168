//! A long wait logs the awaited rank and operation, on every link and in every form of waiting, and
//! shows them to other processes.
#![allow(non_snake_case)]

mod kept;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Mutex, Once};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use weft::counters::{scan, RankId, Snapshot};
use weft::job::open_endpoint;
use weft::{Address, Config, Endpoint, Group, Links, SharedEndpoint};

/// The bound of all waits.
const LIMIT: Duration = Duration::from_secs(300);

fn config() -> Config {
    static LOGS: Once = Once::new();
    LOGS.call_once(kept::start);
    Config { warn_after_ms: 300, keepalive_ms: 50, ..Config::default() }
}

fn links(link: &str) -> Links {
    Links::parse(link).unwrap()
}

/// Returns the number of lines with all of these parts.
fn lines(parts: &[&str]) -> usize {
    kept::lines().iter().filter(|line| parts.iter().all(|part| line.contains(part))).count()
}

fn endpoint(link: &str) -> Endpoint {
    open_endpoint(config(), links(link), [5; 32]).unwrap()
}

/// Exchanges addresses with the other side of a pair.
fn meet(endpoint: &Endpoint, to: &Sender<Address>, from: &Receiver<Address>) -> weft::PeerId {
    to.send(endpoint.address()).unwrap();
    endpoint.connect(&from.recv().unwrap()).unwrap()
}

/// Makes progress until `done` is true.
fn until(endpoint: &Endpoint, what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !done() {
        endpoint.wait(Some(Duration::from_millis(5)));
        assert!(Instant::now() < end, "{what}: {:?}", kept::lines());
    }
}

/// One side waits by `wait`, and gets a message with this tag once a line with `parts` was logged.
fn told(link: &str, tag: u64, parts: &[&str], wait: impl Fn(&Endpoint, weft::PeerId) + Sync) {
    let (to_a, from_b) = channel();
    let (to_b, from_a) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (to_b, from_b) = (to_b, from_b);
            let a = endpoint(link);
            let b = meet(&a, &to_b, &from_b);
            wait(&a, b);
            a.close(LIMIT);
        });
        let b = endpoint(link);
        let a = meet(&b, &to_a, &from_a);
        until(&b, "a line about the wait", || lines(parts) > 0);
        b.send_blocking(a, tag, b"x").unwrap();
        b.close(LIMIT);
    });
}

#[test]
fn waits__a_blocking_receive_names_the_awaited_rank_on_every_link() {
    for (link, tag) in [("shm", 0xa1u64), ("udp", 0xa2)] {
        let text = format!("for a message with tag {tag:#x} from peer");
        let over = format!("over {link}");
        told(link, tag, &["waiting for ", &text, &over], |endpoint, peer| {
            endpoint.recv_blocking(Some(peer), tag, 0, &mut [0; 8]).unwrap();
        });
    }
}

#[test]
fn waits__futures_probes_and_receives_from_any_rank_say_so() {
    told("shm", 0xb1, &["with tag 0xb1 from anybody"], |endpoint, _| {
        endpoint.block_on(endpoint.recv(None, 0xb1, 0, vec![0; 8])).0.unwrap();
    });
    told("shm", 0xb2, &["with tag 0xb2 from peer"], |endpoint, peer| {
        endpoint.block_on(endpoint.recv_sized(Some(peer), 0xb2, 0, 1 << 20)).unwrap();
    });
    told("shm", 0xb3, &["with tag 0xb3 from peer"], |endpoint, peer| {
        let mut queue = weft::CompletionQueue::new(endpoint);
        queue.push(endpoint.recv(Some(peer), 0xb3, 0, vec![0; 8]), 1);
        queue.wait(None).unwrap().result.unwrap();
    });
    // A program that polls and never sleeps.
    told("shm", 0xb4, &["with tag 0xb4 from peer"], |endpoint, peer| {
        let mut recv = pin!(endpoint.recv(Some(peer), 0xb4, 0, vec![0; 8]));
        while recv.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            endpoint.progress();
        }
    });
    // Programs that poll for a message themselves, as MPI_Probe does, and leave it or receive it.
    told("shm", 0xb5, &["with tag 0xb5 from peer"], |endpoint, peer| {
        while endpoint.probe(Some(peer), 0xb5, 0).is_none() {
            endpoint.progress();
        }
    });
    told("shm", 0xb6, &["with tag 0xb6 from anybody"], |endpoint, _| {
        while endpoint.posted().claim(None, 0xb6, 0).is_none() {
            endpoint.progress();
        }
    });
}

/// Returns the ranks of a job that show a wait now, with the awaited rank.
fn shown(job: &str) -> Vec<(u64, Option<u32>)> {
    let all = scan().unwrap();
    let mine = all.iter().filter(|s| s.job == job);
    let wait = |s: &Snapshot| Some((s.rank, s.waiting.as_ref()?.awaited[0].rank));
    let mut mine: Vec<_> = mine.filter_map(wait).collect();
    mine.sort_unstable();
    mine
}

/// Waits for the other rank, which waits for this one, until both have logged and shown it; then
/// sends.
fn wait_for_each_other(rank: usize, job: &str, addresses: &Mutex<[Option<Address>; 2]>) {
    static SEEN: AtomicBool = AtomicBool::new(false);
    let config = Config { rank: Some(rank as u32), ..config() };
    let endpoint = open_endpoint(config, links("shm"), [6; 32]).unwrap();
    let who = RankId { job: job.to_string(), rank, size: 2 };
    endpoint.counters().publish(&who).unwrap();
    addresses.lock().unwrap()[rank] = Some(endpoint.address());
    let known = || addresses.lock().unwrap().iter().all(Option::is_some);
    until(&endpoint, "the other's address", known);
    let all: Vec<Address> = addresses.lock().unwrap().iter().flatten().cloned().collect();
    let group = Group::new(endpoint.clone(), all, rank);
    let got = group.recv(1 - rank, 7, 8);
    let said = |rank: usize| lines(&["waiting for ", &format!("with tag 7 from rank {rank} ")]) > 0;
    until(&endpoint, "both say it", || said(0) && said(1));
    until(&endpoint, "both show it", || {
        let seen = shown(job) == [(0, Some(1)), (1, Some(0))];
        SEEN.fetch_or(seen, Ordering::Relaxed) || seen
    });
    endpoint.block_on(group.send(1 - rank, 7, b"go".to_vec())).unwrap();
    got.wait().unwrap();
    until(&endpoint, "nobody shows it", || shown(job).iter().all(|(of, _)| *of != rank as u64));
    endpoint.close(LIMIT);
}

#[test]
fn waits__two_ranks_that_wait_for_each_other_both_say_so_and_show_it() {
    let job = format!("waits-{:016x}", weft_link::random_u64());
    let addresses = Mutex::new([None, None]);
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (job, addresses) = (&job, &addresses);
            scope.spawn(move || wait_for_each_other(rank, job, addresses));
        }
    });
}

#[test]
fn waits__each_thread_of_a_shared_endpoint_says_so_whatever_others_do() {
    let shared = || SharedEndpoint::open(config(), links("shm"), [7; 32]).unwrap();
    let (a, b) = (shared(), shared());
    let to_b = a.connect(&b.address()).unwrap();
    let to_a = b.connect(&a.address()).unwrap();
    std::thread::scope(|scope| {
        let waits = a.clone();
        scope.spawn(move || waits.recv(Some(to_b), 0xc1, 0, &mut [0; 8]).unwrap());
        // Other operations of the same endpoint make progress all the time.
        let end = Instant::now() + LIMIT;
        let echo = b.clone();
        let echoes = scope.spawn(move || loop {
            let mut one = [0; 1];
            echo.recv(Some(to_a), 1, 0, &mut one).unwrap();
            echo.send(to_a, 2, &one).unwrap();
            if one == [1] {
                return;
            }
        });
        while lines(&["with tag 0xc1 from peer"]) == 0 {
            a.send(to_b, 1, &[0]).unwrap();
            a.recv(Some(to_b), 2, 0, &mut [0]).unwrap();
            assert!(Instant::now() < end, "no line: {:?}", kept::lines());
        }
        a.send(to_b, 1, &[1]).unwrap();
        a.recv(Some(to_b), 2, 0, &mut [0]).unwrap();
        echoes.join().unwrap();
        b.send(to_a, 0xc1, b"x").unwrap();
    });
}

#[test]
fn waits__for_a_host_that_a_firewall_hides_names_it_before_the_wait_fails() {
    // A socket that receives the packets and answers none.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    let config = Config { connect_timeout_ms: 1_500, ..config() };
    let a = open_endpoint(config, links("udp"), [8; 32]).unwrap();
    let hidden = Address { endpoint: weft::EndpointId(9), udp: vec![at], ..Address::default() };
    let peer = a.connect(&hidden).unwrap();
    a.peer(peer).set_name("rank 3 on host hidden");
    let error = a.recv_blocking(Some(peer), 0xd1, 0, &mut [0; 8]).unwrap_err();
    let at = at.to_string();
    let parts = ["0xd1 from rank 3 on host hidden over udp", &at, "which has not answered yet"];
    assert_eq!(lines(&parts), 1, "{:?}", kept::lines());
    let said = a.explain(error);
    assert!(said.contains("no answer to the first packet") && said.contains(&at), "{said}");
}

//! Counters that an agent has put into the kernel: ranks add to them without any process of the
//! owner's host.
#![allow(non_snake_case)]

mod common;

use common::*;
use std::future::Future;
use std::sync::mpsc::{channel, Receiver, Sender, TryRecvError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use weft::choices::Server;
use weft::{Address, Config, OpError, PeerId};
use weft_conformance::capture::{self, Capture};
use weft_conformance::{cable, skip};
use weft_core::engine::types::AtomicCode;
use weft_link::secure::JobKey;
use weft_packets::{Counter, Packets};

const HOSTS: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const FIRST: u64 = 1000;

fn in_kernel() -> Config {
    Config { fetch_add: Server::Kernel, ..Config::default() }
}

/// Runs a rank whose counters others add to, and its agent; it only reads a counter when asked.
fn own(words: &str, say: &Sender<(Address, Counter)>, asked: &Receiver<Ask>, value: &Sender<u64>) {
    let agent = Served::start(&format!("--links packet --interfaces weft1 {words}"));
    let rank = agent.try_rank_with(1, in_kernel()).unwrap();
    let packets = Packets::new(&rank.endpoint).unwrap();
    let counter = packets.counter(FIRST).unwrap();
    assert!(packets.counter(0).is_some(), "another beside it");
    say.send((rank.address(), counter)).unwrap();
    let hello = rank.endpoint.recv(None, 1, 0, vec![0; 8]);
    until(&[&rank], || hello.is_done());
    value.send(0).unwrap();
    for ask in asked {
        let of = |kernel: bool, what: &str| if kernel { agent.reports(what) } else { 0 };
        let kernel = words.contains("--kernel");
        let (words, clients) = (of(kernel, "kernel_words"), of(kernel, "kernel_clients"));
        let answer = match ask {
            Ask::Leave => {
                drop((packets, hello, rank));
                until(&[], || agent.reports("kernel_words") == 0);
                value.send(0).unwrap();
                return;
            }
            Ask::Value => packets.counter_value(counter).unwrap(),
            Ask::Another => packets.counter(FIRST).unwrap().key,
            Ask::Words => words,
            Ask::Clients => clients,
            Ask::End => {
                assert!(packets.end_counter(counter));
                until(&[&rank], || of(kernel, "kernel_words") < words);
                of(kernel, "kernel_clients")
            }
        };
        value.send(answer).unwrap();
        if matches!(ask, Ask::End) {
            break;
        }
    }
    // Polls the network again, until nobody asks any more.
    until(&[&rank], || matches!(asked.try_recv(), Err(TryRecvError::Disconnected)));
}

/// A request to an owner.
#[derive(Clone, Copy)]
enum Ask {
    /// The value of the counter.
    Value,
    /// The key of another counter.
    Another,
    /// The number of words that its agent has in the kernel.
    Words,
    /// The number of clients of these words.
    Clients,
    /// End the counter; then the number of clients.
    End,
    /// Leave the job.
    Leave,
}

/// The rank that adds.
struct Adder<'a> {
    rank: &'a Rank,
    packets: Packets,
    owner: PeerId,
    counter: Counter,
    asks: Sender<Ask>,
    values: Receiver<u64>,
}

impl Adder<'_> {
    fn add(&self, n: u64) -> u64 {
        self.packets.fetch_add_blocking(self.owner, self.counter, n).unwrap()
    }

    /// Adds 1 so many times, each of which returns what has been added before.
    fn counts(&self, before: std::ops::Range<u64>) {
        for n in before {
            assert_eq!(self.add(1), FIRST + n);
        }
    }

    /// Adds through the agent, not the kernel.
    fn add_by_agent(&self, n: u64) -> u64 {
        let code = AtomicCode::FetchAdd;
        let add = self.rank.endpoint.atomic(self.owner, self.counter.key, 0, code, n, 0);
        self.rank.endpoint.block_on(add).0.unwrap().value
    }

    fn ask(&self, what: Ask) -> u64 {
        self.asks.send(what).unwrap();
        self.values.recv().unwrap()
    }

    /// Returns the value that the owner reads.
    fn value(&self) -> u64 {
        self.ask(Ask::Value)
    }

    fn in_kernel(&self) -> u64 {
        self.packets.stats().kernel_adds
    }
}

/// Runs a test on two hosts; one has an owner with its agent of these options.
fn with_owner(words: &str, test: impl FnOnce(&Adder<'_>)) {
    let (say, hear) = channel();
    let (asks, asked) = channel();
    let (value, values) = channel();
    let near = move || {
        let agent = Served::start("--links packet --interfaces weft0");
        let job_key = JobKey::from_bytes(&[1; 32]).unwrap();
        let rank = agent.try_rank_with(1, in_kernel()).unwrap();
        rank.endpoint.agent().set_job_key(&job_key);
        let (address, counter) = hear.recv().unwrap();
        let owner = rank.endpoint.connect(&address).unwrap();
        let hello = rank.endpoint.send(owner, 1, vec![0; 8]);
        until(&[&rank], || hello.is_done() && values.try_recv().is_ok());
        let packets = Packets::new(&rank.endpoint).unwrap();
        test(&Adder { rank: &rank, packets, owner, counter, asks, values });
    };
    if let Err(why) = cable::between(HOSTS, near, move || own(words, &say, &asked, &value)) {
        skip(&why);
    }
}

#[test]
fn kernel__counts_while_the_owner_does_nothing() {
    with_owner("--kernel", |adder| {
        for n in 0..200 {
            assert_eq!(adder.add(3), FIRST + 3 * n);
        }
        assert_eq!((adder.in_kernel(), adder.value()), (200, FIRST + 600));
    });
}

#[test]
fn kernel__its_words_are_those_of_the_agent() {
    with_owner("--kernel", |adder| {
        let mut total = FIRST;
        for n in 0..100 {
            assert_eq!(adder.add(n), total);
            assert_eq!(adder.add_by_agent(2 * n), total + n);
            total += 3 * n;
        }
        assert_eq!((adder.in_kernel(), adder.value()), (100, total));
    });
}

/// An addition that starts while another is in flight goes through the agent, and one that is
/// dropped has no effect but its possible addition.
#[test]
fn kernel__additions_at_the_same_time_count_once_each() {
    with_owner("--kernel", |adder| {
        let add = || adder.packets.fetch_add(adder.owner, adder.counter, 1);
        let mut seen: Vec<u64> = Vec::new();
        for round in 0..50 {
            let mut adds: Vec<_> = (0..8).map(|_| Some(Box::pin(add()))).collect();
            adder.rank.endpoint.block_on(std::future::poll_fn(|cx| {
                for one in &mut adds {
                    let done = one.as_mut().map(|add| add.as_mut().poll(cx));
                    if let Some(Poll::Ready(before)) = done {
                        seen.push(before.unwrap());
                        *one = None;
                    }
                }
                match adds.iter().all(Option::is_none) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            }));
            assert_eq!(seen.len(), 8 * (round + 1));
        }
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(FIRST..FIRST + 400), "{seen:?}");
        let in_kernel = adder.in_kernel();
        assert!((50..400).contains(&in_kernel), "{in_kernel}");
        let mut given_up = Box::pin(add());
        let mut cx = Context::from_waker(Waker::noop());
        let done = u64::from(given_up.as_mut().poll(&mut cx).is_ready());
        drop(given_up);
        let first = adder.add(1);
        assert!((FIRST + 400..=FIRST + 401).contains(&first), "{first}");
        assert_eq!(adder.add(1), first + 1);
        assert_eq!((adder.in_kernel(), adder.value()), (in_kernel + 2 + done, first + 2));
    });
}

#[test]
fn kernel__without_it_the_agent_counts() {
    with_owner("", |adder| {
        adder.counts(0..20);
        assert_eq!((adder.in_kernel(), adder.value()), (0, FIRST + 20));
    });
}

/// The path is gone before a request: the kernel adds nothing.
#[test]
fn kernel__that_is_not_reached_any_more_the_agent_counts() {
    with_owner("--kernel", |adder| {
        adder.counts(0..10);
        cable::address("weft0", HOSTS[0], false).unwrap();
        adder.counts(10..20);
        assert_eq!((adder.in_kernel(), adder.value()), (10, FIRST + 20));
    });
}

/// A route that has failed rests for some time, in which each addition goes to the agent without
/// a request to the kernel first.
#[test]
fn kernel__a_route_that_failed_is_not_tried_at_once() {
    with_owner("--kernel", |adder| {
        assert_eq!(adder.add(1), FIRST);
        cable::astray("weft0", HOSTS[1], true).unwrap();
        let begun = Instant::now();
        assert_eq!(adder.add(1), FIRST + 1);
        cable::astray("weft0", HOSTS[1], false).unwrap();
        adder.counts(2..10);
        let rested = begun.elapsed() < Duration::from_secs(5);
        assert!(adder.in_kernel() == 1 || !rested, "{}", adder.in_kernel());
    });
}

/// The first requests go astray (the other host's Ethernet address is asked for again after 1 s):
/// the agent serves meanwhile, and the route is found by an answer that comes later.
#[test]
fn kernel__is_found_by_a_late_answer() {
    with_owner("--kernel", |adder| {
        let mut total = FIRST;
        let mut add = || {
            assert_eq!(adder.add(1), total);
            total += 1;
        };
        cable::astray("weft0", HOSTS[1], true).unwrap();
        let begun = Instant::now();
        for _ in 0..10 {
            add();
        }
        assert_eq!(adder.in_kernel(), 0);
        cable::astray("weft0", HOSTS[1], false).unwrap();
        while adder.in_kernel() == 0 && begun.elapsed() < Duration::from_secs(60) {
            add();
        }
        let found = adder.in_kernel();
        add();
        assert!(found > 0 && adder.in_kernel() == found + 1, "{found}");
    });
}

/// The request arrives and the answer does not: it is added once, and the agent answers.
#[test]
fn kernel__an_answer_that_is_lost_comes_from_the_agent() {
    with_owner("--kernel", |adder| {
        for n in 0..10 {
            assert_eq!(adder.add(5), FIRST + 5 * n);
        }
        adder.packets.lose_answers();
        for n in 10..20 {
            assert_eq!(adder.add(5), FIRST + 5 * n);
        }
        assert_eq!((adder.in_kernel(), adder.value()), (10, FIRST + 100));
    });
}

#[test]
fn kernel__an_ended_counter_has_no_owner() {
    with_owner("--kernel", |adder| {
        assert_eq!((adder.add(1), adder.ask(Ask::Words), adder.ask(Ask::Clients)), (FIRST, 2, 1));
        assert_eq!(adder.ask(Ask::End), 0);
        let refused = adder.packets.fetch_add_blocking(adder.owner, adder.counter, 1);
        assert_eq!(refused, Err(OpError::Refused));
        assert_eq!(adder.in_kernel(), 1);
    });
}

#[test]
fn kernel__of_an_owner_that_has_left_serves_no_rank() {
    with_owner("--kernel", |adder| {
        assert_eq!((adder.add(1), adder.ask(Ask::Leave)), (FIRST, 0));
        let failed = adder.packets.fetch_add_blocking(adder.owner, adder.counter, 1);
        assert!(matches!(failed, Err(OpError::Peer { .. })), "{failed:?}");
        assert_eq!(adder.in_kernel(), 1);
    });
}

/// More counters than the paths that are kept.
#[test]
fn kernel__many_counters_of_one_owner() {
    with_owner("--kernel", |adder| {
        let more = || Counter { key: adder.ask(Ask::Another) };
        let counters: Vec<Counter> = (0..80).map(|_| more()).collect();
        for round in 0..2 {
            for &counter in &counters {
                let before = adder.packets.fetch_add_blocking(adder.owner, counter, 1).unwrap();
                assert_eq!(before, FIRST + round);
            }
        }
        assert_eq!((adder.in_kernel(), adder.ask(Ask::Clients)), (160, 80));
    });
}

#[test]
fn dissector__knows_requests_and_answers() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("counters-{}.pcapng", std::process::id()));
    with_owner("--kernel", |adder| {
        let capture = match Capture::start("weft0", &file) {
            Ok(capture) => capture,
            Err(why) => return skip(&why),
        };
        for n in 0..20 {
            assert_eq!(adder.add(2), FIRST + 2 * n);
        }
        let socket = std::net::UdpSocket::bind((HOSTS[0], 0)).unwrap();
        // Nobody has that port, so the next call may return an error.
        capture.finish(|mark| drop(socket.send_to(mark.as_bytes(), (HOSTS[1], 9))));
        let kinds =
            ["weft_counters.kind == 1", "weft_counters.kind == 2", "weft.type == 13", "udp"];
        let seen = kinds.map(|filter| capture::read(&file, filter));
        let [asked, answered, atomic, all] = match seen {
            [Ok(a), Ok(b), Ok(c), Ok(d)] => [a, b, c, d],
            _ => return skip("needs tshark"),
        };
        assert!(asked.len() >= 20 && answered.len() >= 20, "{asked:?}{answered:?}");
        assert!(atomic.iter().all(|frame| frame.has("weft_ether")), "{atomic:?}");
        let strange = all.iter().find(|frame| frame.bad || !frame.has("weft_counters"));
        assert!(strange.is_none(), "{strange:?}");
    });
    let _none = std::fs::remove_file(file);
}

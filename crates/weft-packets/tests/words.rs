//! Counters in memory that a peer maps: it adds to them without the owner.
#![allow(non_snake_case)]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use weft::port::Port;
use weft::{Clock, Config, Endpoint, EndpointId, OpError, PeerId};
use weft_link::{ShmConfig, ShmLink};
use weft_packets::wire::{name, Invalidate, Kind, Place};
use weft_packets::{Counter, Packets};

/// Counters of an endpoint that may be in memory files.
const SHARED_MAX: usize = 64;

fn open() -> Packets {
    let id = EndpointId(weft_link::random_u64());
    let link = ShmLink::new(ShmConfig::new(id)).unwrap();
    let endpoint =
        Endpoint::with_links(Config::default(), id, Clock::system(), vec![Box::new(link)]);
    Packets::new(&endpoint).unwrap()
}

fn connect(from: &Packets, to: &Packets) -> PeerId {
    from.endpoint().connect(&to.endpoint().address()).unwrap()
}

/// Some hosts of one thread.
struct All<'a>(&'a [&'a Packets]);

impl All<'_> {
    fn poll(&self) {
        self.0.iter().for_each(|packets| _ = packets.poll());
    }

    /// Adds, with progress of all.
    fn add(&self, packets: &Packets, at: PeerId, counter: Counter, n: u64) -> Result<u64, OpError> {
        let mut adding = pin!(packets.fetch_add(at, counter, n));
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(result) = adding.as_mut().poll(&mut cx) {
                return result;
            }
            self.poll();
        }
    }

    /// Makes progress until nothing is on its way.
    fn settle(&self) {
        (0..1000).for_each(|_| self.poll());
    }
}

/// The value before, if the addition is done when the call returns.
fn add_at_once(packets: &Packets, at: PeerId, counter: Counter, n: u64) -> Option<u64> {
    let mut adding = pin!(packets.fetch_add(at, counter, n));
    match adding.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result.ok(),
        Poll::Pending => None,
    }
}

#[test]
fn fetch_add__from_the_second_on_needs_no_progress_of_the_owner() {
    let (owner, a, b) = (open(), open(), open());
    let all = All(&[&owner, &a, &b]);
    let (from_a, from_b) = (connect(&a, &owner), connect(&b, &owner));
    let counter = owner.counter(5).unwrap();
    assert_eq!(all.add(&a, from_a, counter, 2), Ok(5));
    all.settle();
    assert_eq!(add_at_once(&a, from_a, counter, 10), Some(7));
    assert_eq!(owner.counter_value(counter), Some(17), "the owner sees it");
    assert_eq!(all.add(&b, from_b, counter, 1), Ok(17), "a message adds to the same word");
    all.settle();
    assert_eq!(add_at_once(&b, from_b, counter, u64::MAX), Some(18), "it wraps around");
    assert_eq!(a.fetch_add_blocking(from_a, counter, 3), Ok(17), "without progress of others");
    assert_eq!(owner.counter_value(counter), Some(20));
    assert_eq!((a.stats().memory_adds, b.stats().memory_adds), (2, 1));
}

#[test]
fn end_counter__one_that_peers_have_mapped_refuses_at_once() {
    let (owner, a) = (open(), open());
    let all = All(&[&owner, &a]);
    let at = connect(&a, &owner);
    let counter = owner.counter(0).unwrap();
    assert_eq!(all.add(&a, at, counter, 1), Ok(0));
    all.settle();
    assert_eq!(add_at_once(&a, at, counter, 1), Some(1));
    assert!(owner.end_counter(counter) && !owner.end_counter(counter));
    assert_eq!(owner.counter_value(counter), None);
    assert_eq!(add_at_once(&a, at, counter, 1), None, "before the peer has heard of the end");
    assert_eq!(all.add(&a, at, counter, 1), Err(OpError::Refused));
    all.settle();
    assert_eq!(all.add(&a, at, counter, 1), Err(OpError::Refused), "and after");
    let next = owner.counter(7).unwrap();
    assert_eq!(all.add(&a, at, next, 1), Ok(7));
}

#[test]
fn fetch_add__to_more_counters_than_memory_files_is_by_message() {
    let (owner, a) = (open(), open());
    let all = All(&[&owner, &a]);
    let at = connect(&a, &owner);
    let counters: Vec<Counter> =
        (0..SHARED_MAX as u64 + 2).map(|n| owner.counter(n).unwrap()).collect();
    for (counter, n) in counters.iter().zip(0..) {
        assert_eq!(all.add(&a, at, *counter, 1), Ok(n));
        all.settle();
    }
    let at_once = |(counter, n): (&Counter, u64)| add_at_once(&a, at, *counter, 1) == Some(n + 1);
    assert_eq!(counters.iter().zip(0..).filter(|&each| at_once(each)).count(), SHARED_MAX);
    all.settle();
    // Counters that are not in memory got the message that was dropped above, too.
    for (counter, n) in counters.iter().zip(0..) {
        assert_eq!(owner.counter_value(*counter), Some(n + 2));
    }
    // Each end makes room for another one.
    assert!(owner.end_counter(counters[0]));
    let next = owner.counter(9).unwrap();
    assert_eq!(all.add(&a, at, next, 1), Ok(9));
    all.settle();
    assert_eq!(add_at_once(&a, at, next, 1), Some(10));
}

#[test]
fn place__of_no_counter_or_not_asked_for_is_nothing() {
    let (owner, a) = (open(), open());
    let all = All(&[&owner, &a]);
    let (at, back) = (connect(&a, &owner), connect(&owner, &a));
    let counter = owner.counter(0).unwrap();
    let memory = owner.exports().make(100_000).unwrap();
    let post = |port: &Port, to, kind, bytes: &[u8]| {
        let (number, argument) = name(kind, 0, 0);
        port.post(to, number, argument, bytes).unwrap();
        all.settle();
    };
    // Places that nobody asked for, and cut headers, are counted and dropped.
    let place = |key, addr| Place { key, addr }.encode();
    post(owner.port(), back, Kind::Place, &place(counter.key, 4096));
    post(owner.port(), back, Kind::Place, &[0; 15]);
    post(a.port(), at, Kind::Where, &[0; 7]);
    assert_eq!((a.stats().malformed, owner.stats().malformed), (2, 1));
    // Neither an export nor an unknown key is a counter.
    for key in [memory.key, counter.key ^ 1] {
        post(a.port(), at, Kind::Where, &Invalidate { key }.encode());
    }
    assert_eq!(a.stats().malformed, 4, "answers to questions that `fetch_add` did not ask");
    // A place where no memory is mapped.
    assert_eq!(all.add(&a, at, counter, 1), Ok(0));
    for addr in [8, u64::MAX, u64::MAX - 7, 4097] {
        post(owner.port(), back, Kind::Place, &place(counter.key, addr));
        assert_eq!(all.add(&a, at, counter, 1).map(|_| ()), Ok(()), "{addr:x}");
    }
    assert_eq!(owner.counter_value(counter), Some(5));
}

#[test]
fn fetch_add__of_threads_and_messages_counts_each_once() {
    const EACH: u64 = 20_000;
    let owner = open();
    let counter = owner.counter(0).unwrap();
    let address = owner.endpoint().address();
    let adders: Vec<_> = (0..3)
        .map(|_| {
            let address = address.clone();
            std::thread::spawn(move || {
                let packets = open();
                let at = packets.endpoint().connect(&address).unwrap();
                let mut seen: Vec<u64> = (0..EACH)
                    .map(|_| packets.fetch_add_blocking(at, counter, 1).unwrap())
                    .collect();
                let by_memory = packets.stats().memory_adds;
                assert!(seen.is_sorted(), "each addition of a thread comes after those before");
                seen.dedup();
                assert_eq!(seen.len() as u64, EACH);
                (seen, by_memory)
            })
        })
        .collect();
    while adders.iter().any(|adder| !adder.is_finished()) {
        owner.poll();
    }
    let (seen, by_memory): (Vec<_>, Vec<_>) =
        adders.into_iter().map(|adder| adder.join().unwrap()).unzip();
    let mut all = seen.concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..3 * EACH), "every value came once");
    assert_eq!(owner.counter_value(counter), Some(3 * EACH));
    assert!(by_memory.iter().all(|&count| count > 0), "{by_memory:?}");
}

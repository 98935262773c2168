//! The completion queue, and the descriptor in an epoll of the program's own.
#![allow(non_snake_case)]

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::Timespec;
use std::sync::atomic::{AtomicU32, AtomicU8, Ordering};
use std::sync::Mutex;
use std::time::Duration;
use weft::{Clock, CompletionQueue, Config, Endpoint, EndpointId, OpError, PeerId};
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::{Address, Link, ShmConfig, ShmLink, UdpConfig, UdpLink};

/// The bound of all waits.
const LONG: Duration = Duration::from_secs(60);

fn link(name: &str, id: EndpointId) -> Box<dyn Link> {
    if name == "shm" {
        return Box::new(ShmLink::new(ShmConfig::new(id)).unwrap());
    }
    let config = UdpConfig { host: weft_link::shm::host().unwrap(), ..UdpConfig::default() };
    let job_key = JobKey::from_bytes(&[7; 32]).unwrap();
    let security = Security { mode: Mode::Auth, job_key, me: id };
    Box::new(UdpLink::new(config, security).unwrap())
}

/// A barrier of two threads. The first thread makes progress while it waits, since a send that has
/// ended for its caller may still need it.
#[derive(Default)]
struct Meeting(AtomicU32);

impl Meeting {
    fn wait(&self, endpoint: &Endpoint) {
        let both = (self.0.fetch_add(1, Ordering::AcqRel) / 2 + 1) * 2;
        while self.0.load(Ordering::Acquire) < both {
            endpoint.progress();
            std::thread::yield_now();
        }
    }
}

type Program<'a> = &'a (dyn Fn(&Endpoint, PeerId, &Meeting) + Sync);

/// Runs both programs, each with a thread and an endpoint, over every link.
fn pair(
    a: impl Fn(&Endpoint, PeerId, &Meeting) + Sync,
    b: impl Fn(&Endpoint, PeerId, &Meeting) + Sync,
) {
    let sides: [Program<'_>; 2] = [&a, &b];
    for name in ["shm", "udp"] {
        let (met, addresses) = (Meeting::default(), Mutex::new([const { None::<Address> }; 2]));
        let run = |me: usize| {
            let id = EndpointId(weft_link::random_u64());
            let links = vec![link(name, id)];
            let endpoint = Endpoint::with_links(Config::default(), id, Clock::system(), links);
            addresses.lock().unwrap()[me] = Some(endpoint.address());
            met.wait(&endpoint);
            let other = addresses.lock().unwrap()[1 - me].clone().unwrap();
            let peer = endpoint.connect(&other).unwrap();
            sides[me](&endpoint, peer, &met);
            assert!(endpoint.close(LONG));
        };
        std::thread::scope(|s| (0..2).for_each(|me| drop(s.spawn(move || run(me)))));
    }
}

#[test]
fn queue__gives_what_ends_first_with_its_context_and_buffer() {
    let receiver = |endpoint: &Endpoint, peer, met: &Meeting| {
        let mut queue = CompletionQueue::new(endpoint);
        assert!(queue.poll().is_none() && queue.wait(None).is_none(), "nothing is in it");
        for tag in 0..4 {
            queue.push(endpoint.recv(Some(peer), tag, 0, vec![9; 100]), 70 + tag);
        }
        assert_eq!((queue.len(), queue.wait(Some(Duration::ZERO)).map(|d| d.context)), (4, None));
        met.wait(endpoint);
        // The messages are sent, and so received, in the reverse order.
        for tag in [3, 2, 1, 0] {
            let done = queue.wait(Some(LONG)).expect("it was sent");
            assert_eq!(done.context, 70 + tag);
            let status = done.result.unwrap();
            assert_eq!((status.source, status.tag, status.len), (Some(peer), tag, tag as usize));
            assert_eq!(done.buffer.len(), 100);
            assert!(done.buffer[..status.len].iter().all(|&byte| byte == tag as u8));
        }
        // A failed operation completes too; a refused one completes at once.
        queue.push(endpoint.recv(Some(peer), 9, 0, vec![0; 1]), 1);
        let done = queue.wait(Some(LONG)).expect("it was sent");
        assert_eq!((done.context, done.result.is_err(), done.buffer), (1, true, vec![9]));
        assert!(queue.is_empty());
        queue.push(endpoint.put(PeerId(77), 1, 0, vec![5; 3]), 2);
        let done = queue.poll().expect("there is no such peer");
        assert_eq!((done.context, done.buffer), (2, vec![5; 3]));
        assert!(matches!(done.result, Err(OpError::Refused)), "{:?}", done.result);
        // A receive that is dropped with the queue takes no message.
        queue.push(endpoint.recv(Some(peer), 10, 0, vec![0; 1]), 3);
        drop(queue);
        met.wait(endpoint);
        let (status, got) = endpoint.block_on(endpoint.recv(Some(peer), 10, 0, vec![0; 1]));
        assert_eq!((status.unwrap().len, got), (1, vec![10]));
    };
    pair(receiver, |endpoint, peer, met| {
        met.wait(endpoint);
        let mut queue = CompletionQueue::new(endpoint);
        for tag in [3, 2, 1, 0] {
            queue.push(endpoint.send(peer, tag, vec![tag as u8; tag as usize]), tag);
        }
        queue.push(endpoint.send(peer, 9, vec![9; 2]), 9);
        let mut contexts: Vec<_> = std::iter::from_fn(|| queue.wait(Some(LONG)))
            .map(|done| (done.context, done.result.is_ok()))
            .collect();
        contexts.sort_unstable();
        assert_eq!(contexts, [0, 1, 2, 3, 9].map(|context| (context, true)));
        met.wait(endpoint);
        endpoint.block_on(endpoint.send(peer, 10, vec![10])).0.unwrap();
    });
}

#[test]
fn wait_fd__wakes_the_callers_own_epoll() {
    const ENDPOINT: u64 = 5;
    const OTHER: u64 = 6;
    // The round in which the sleeper is about to sleep, from 1.
    let asleep = AtomicU8::new(0);
    let sleeper = |endpoint: &Endpoint, peer, _: &Meeting| {
        let own = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let fd = endpoint.waiting().fd().unwrap();
        epoll::add(&own, fd, EventData::new_u64(ENDPOINT), EventFlags::IN).unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        epoll::add(&own, &read, EventData::new_u64(OTHER), EventFlags::IN).unwrap();
        // Sleeps and returns the data of readable descriptors; none after a timeout.
        let sleep = |most: Duration| {
            let mut events = Vec::with_capacity(4);
            let most = Timespec::try_from(most).unwrap();
            let room = rustix::buffer::spare_capacity(&mut events);
            epoll::wait(&own, room, Some(&most)).unwrap();
            events.iter().map(|event| event.data.u64()).collect::<Vec<_>>()
        };
        let mut queue = CompletionQueue::new(endpoint);
        for round in 0..20_u8 {
            queue.push(endpoint.recv(Some(peer), 1, 0, vec![0; 1]), 0);
            let got = loop {
                if let Some(done) = queue.poll() {
                    break done;
                }
                if !endpoint.waiting().prepare() {
                    continue;
                }
                // The message comes only after this side is about to sleep.
                asleep.store(round + 1, Ordering::Release);
                let woken = sleep(LONG);
                endpoint.waiting().finish();
                assert_eq!(woken, [ENDPOINT], "round {round}");
            };
            assert_eq!((got.result.map(|s| s.len), got.buffer), (Ok(1), vec![round]));
        }
        // The other descriptor wakes the sleeper too, and is reported as the cause.
        while !endpoint.waiting().prepare() {
            endpoint.progress();
        }
        rustix::io::write(&write, &[1]).unwrap();
        assert!(sleep(LONG).contains(&OTHER));
        endpoint.waiting().finish();
    };
    pair(sleeper, |endpoint, peer, _| {
        for round in 0..20_u8 {
            while asleep.load(Ordering::Acquire) != round + 1 {
                endpoint.progress();
                std::thread::yield_now();
            }
            endpoint.block_on(endpoint.send(peer, 1, vec![round])).0.unwrap();
        }
    });
}

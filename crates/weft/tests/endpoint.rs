//! Two endpoints in one process, over each link.
#![allow(non_snake_case)]

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use weft::Reliability;
use weft::{Clock, Config, Endpoint, EndpointId, OpError, PeerId, Rights};
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::wrap::{FaultSpec, Wrappers};
use weft_link::{Link, ShmConfig, ShmLink, UdpConfig, UdpLink};

struct Pair {
    a: Endpoint,
    b: Endpoint,
    /// A's peer for B.
    to_b: PeerId,
    /// B's peer for A.
    to_a: PeerId,
}

fn pair(config: Config, a: Box<dyn Link>, b: Box<dyn Link>, ids: (u64, u64)) -> Pair {
    pair_at(Clock::system(), config, [a, b], ids)
}

fn pair_at(clock: Clock, config: Config, links: [Box<dyn Link>; 2], ids: (u64, u64)) -> Pair {
    let [a, b] = links;
    let a = Endpoint::with_links(config.clone(), EndpointId(ids.0), clock.clone(), vec![a]);
    let b = Endpoint::with_links(config, EndpointId(ids.1), clock, vec![b]);
    let to_b = a.connect(&b.address()).unwrap();
    let to_a = b.connect(&a.address()).unwrap();
    Pair { a, b, to_b, to_a }
}

fn shm(config: Config) -> Pair {
    let ids = (weft_link::random_u64(), weft_link::random_u64());
    let link = |id| Box::new(ShmLink::new(ShmConfig::new(EndpointId(id))).unwrap());
    pair(config, link(ids.0), link(ids.1), ids)
}

fn udp_link(id: u64, faults: Option<FaultSpec>) -> Box<dyn Link> {
    let host = weft_link::shm::host().unwrap();
    let config = UdpConfig { host, faults, ..UdpConfig::default() };
    let job_key = JobKey::from_bytes(&[7; 32]).unwrap();
    let security = Security { mode: Mode::Auth, job_key, me: EndpointId(id) };
    Box::new(UdpLink::new(config, security).unwrap())
}

fn udp(config: Config) -> Pair {
    let ids = (weft_link::random_u64(), weft_link::random_u64());
    pair(config, udp_link(ids.0, None), udp_link(ids.1, None), ids)
}

/// Every link, and UDP with faults under both kinds of retransmission.
fn subjects(config: &Config) -> Vec<(&'static str, Pair)> {
    let mut out = vec![("shm", shm(config.clone())), ("udp", udp(config.clone()))];
    for (name, reliability) in
        [("selective", Reliability::Selective), ("gbn", Reliability::GoBackN)]
    {
        let config = Config { reliability, ..config.clone() };
        let ids = (weft_link::random_u64(), weft_link::random_u64());
        let faulty = |id| {
            let spec: FaultSpec =
                "loss=1%,dup=0.5%,reorder=1%,corrupt=0.1%,seed=7".parse().unwrap();
            let clock = Clock::system();
            let around = Wrappers { faults: Some(spec), ..Wrappers::default() };
            let time: weft_link::wrap::Clock = std::rc::Rc::new(move || clock.now());
            around.around(udp_link(id, Some(spec)), &time).unwrap()
        };
        out.push((name, pair(config, faulty(ids.0), faulty(ids.1), ids)));
    }
    out
}

impl Pair {
    /// Runs both futures to their end while both endpoints make progress.
    fn run<A, B>(&self, a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
        let (mut a, mut b) = (pin!(a), pin!(b));
        let mut cx = Context::from_waker(Waker::noop());
        let (mut out_a, mut out_b) = (None, None);
        let start = std::time::Instant::now();
        loop {
            if out_a.is_none() {
                if let Poll::Ready(v) = a.as_mut().poll(&mut cx) {
                    out_a = Some(v);
                }
            }
            if out_b.is_none() {
                if let Poll::Ready(v) = b.as_mut().poll(&mut cx) {
                    out_b = Some(v);
                }
            }
            self.a.progress();
            self.b.progress();
            (out_a, out_b) = match (out_a, out_b) {
                (Some(a), Some(b)) => return (a, b),
                unfinished => unfinished,
            };
            assert!(
                start.elapsed().as_secs() < 300,
                "stuck: a {:?} b {:?}",
                self.a.stats(),
                self.b.stats()
            );
        }
    }
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31).wrapping_add(seed * 7 + (i >> 8))) as u8).collect()
}

#[test]
fn send_recv__all_sizes_posted_and_unexpected() {
    for (name, p) in subjects(&Config::default()) {
        for (n, len) in [0, 1, 8, 24, 25, 100, 1400, 4096, 4097, 65536, 65537, 300_000, 5_000_000]
            .into_iter()
            .enumerate()
        {
            let tag = n as u64;
            let data = bytes(tag, len);
            // The receive is posted first.
            let recv = p.b.recv(Some(p.to_a), tag, 0, vec![0; len]);
            let send = p.a.send(p.to_b, tag, data.clone());
            let (_, (status, got)) = p.run(send, recv);
            assert_eq!(status.unwrap().len, len, "{name}");
            assert!(got == data, "{name} {len}");
            // The message is unexpected.
            let send = p.a.send(p.to_b, tag, data.clone());
            let start = std::time::Instant::now();
            while p.b.probe(None, 0, u64::MAX).is_none() {
                p.a.progress();
                p.b.progress();
                assert!(start.elapsed().as_secs() < 300, "{name}: never arrived");
            }
            let recv = p.b.recv(None, 0, u64::MAX, vec![0; len]);
            let (_, (status, got)) = p.run(send, recv);
            assert_eq!(status.unwrap().len, len, "{name}");
            assert!(got == data, "{name} {len} unexpected");
        }
    }
}

#[test]
fn send__after_a_pause_is_timed_from_its_start() {
    let at = Rc::new(Cell::new(1_000_000));
    let clock = Clock::Virtual(at.clone());
    for len in [8, 20 << 10] {
        let ids = (weft_link::random_u64(), weft_link::random_u64());
        let links = [udp_link(ids.0, None), udp_link(ids.1, None)];
        let p = pair_at(clock.clone(), Config::default(), links, ids);
        let recv = p.b.recv(Some(p.to_a), 1, 0, vec![0; len]);
        p.run(p.a.send(p.to_b, 1, vec![0; len]), recv).1 .0.unwrap();
        // No timer is due within the next 100 ms.
        let soon = |ep: &Endpoint| {
            ep.waiting().next_timeout().is_some_and(|t| t.0 < at.get() + 100_000_000)
        };
        while soon(&p.a) || soon(&p.b) {
            at.set(at.get() + 100_000);
            p.a.progress();
            p.b.progress();
        }
        at.set(at.get() + 20_000_000);
        let _running = match len {
            8 => p.a.send_blocking(p.to_b, 2, &[0; 8]).map(|()| None).unwrap(),
            _ => Some(p.a.send(p.to_b, 2, vec![0; len])),
        };
        let due = p.a.waiting().next_timeout().unwrap();
        assert!(due.0 > at.get(), "{len} B: retransmitted at {due:?}, it is {}", at.get());
    }
}

#[test]
fn inject__a_row_leaves_in_trains_and_its_end_with_the_next_look() {
    let at = Rc::new(Cell::new(1_000_000));
    let ids = (weft_link::random_u64(), weft_link::random_u64());
    let links = [udp_link(ids.0, None), udp_link(ids.1, None)];
    let p = pair_at(Clock::Virtual(at.clone()), Config::default(), links, ids);
    let tags = Cell::new(0_u64);
    let inject = |count: u64| {
        for tag in (tags.get()..).take(count as usize) {
            p.a.posted().inject(p.to_b, tag, &bytes(tag, 16), None, false).unwrap();
        }
        tags.set(tags.get() + count);
    };
    let received = Cell::new(0);
    let receive = |count: u64| {
        for tag in (received.get()..).take(count as usize) {
            let recv = p.b.recv(Some(p.to_a), tag, 0, vec![0; 16]);
            let (_, (status, got)) = p.run(async {}, recv);
            status.unwrap();
            assert_eq!(got, bytes(tag, 16));
            at.set(at.get() + 10_000);
        }
        received.set(received.get() + count);
    };
    let sent = || p.a.counters().links().iter().find(|c| c.1 == "sent").unwrap().2;
    // Open the connection, and grow the window beyond a burst.
    for _ in 0..40 {
        inject(200);
        receive(200);
    }
    let before = sent();
    inject(17);
    assert_eq!(sent() - before, 17, "the first leave at once");
    inject(63);
    assert_eq!(sent() - before, 17, "a train is not full");
    inject(1);
    assert_eq!(sent() - before, 81);
    inject(5);
    assert_eq!(sent() - before, 81);
    assert!(!p.a.waiting().prepare(), "nobody sleeps on them");
    p.a.progress();
    assert_eq!(sent() - before, 86);
    inject(1);
    assert_eq!(sent() - before, 87, "another row");
    receive(87);
}

#[test]
fn recv__too_small_a_buffer_is_an_error_with_the_sent_length() {
    for (name, p) in subjects(&Config::default()) {
        for len in [10usize, 5000, 200_000] {
            let recv = p.b.recv(None, 1, 0, vec![0xee; len - 1]);
            let send = p.a.send(p.to_b, 1, bytes(3, len));
            let (_, (status, got)) = p.run(send, recv);
            assert_eq!(status, Err(OpError::Truncated { sent: len as u64 }), "{name}");
            assert!(got == bytes(3, len)[..len - 1], "{name}");
        }
    }
}

#[test]
fn recv__cancelled_by_drop_leaves_the_message_to_the_next() {
    for (_, p) in subjects(&Config::default()) {
        drop(p.b.recv(None, 1, 0, vec![0; 8]));
        let recv = p.b.recv(None, 1, 0, vec![0; 8]);
        let (_, (status, got)) = p.run(p.a.send(p.to_b, 1, vec![7; 8]), recv);
        assert_eq!((status.unwrap().len, got), (8, vec![7; 8]));
    }
}

#[test]
fn remote_memory__put_get_atomic_bounds() {
    for (name, p) in subjects(&Config::default()) {
        let len = 1 << 20;
        let key = p.b.regions().register(len, Rights::ALL).unwrap();
        let data = bytes(9, len - 8);
        let (put, ()) = p.run(p.a.put(p.to_b, key, 8, data.clone()), async {});
        assert_eq!(put.0.unwrap().len, len - 8, "{name}");
        p.b.regions().with(key, |m| assert!(m[8..] == data[..])).unwrap();
        let (get, ()) = p.run(p.a.get(p.to_b, key, 8, vec![0; len - 8]), async {});
        assert!(get.1 == data, "{name}");
        for i in 0..3 {
            let add = p.a.atomic(p.to_b, key, 0, weft::AtomicCode::FetchAdd, 5, 0);
            let (old, ()) = p.run(add, async {});
            assert_eq!(old.0.unwrap().value, 5 * i, "{name}");
        }
        let (over, ()) = p.run(p.a.put(p.to_b, key, 9, data.clone()), async {});
        assert_eq!(over.0, Err(OpError::Refused), "{name}");
        let (wrong, ()) = p.run(p.a.get(p.to_b, key ^ 1 << 40, 0, vec![0; 8]), async {});
        assert_eq!(wrong.0, Err(OpError::Refused), "{name}");
    }
}

#[test]
fn send__more_than_credit_and_queues_hold() {
    for (name, p) in subjects(&Config::default()) {
        let sends: Vec<_> = (0..3000u64).map(|i| p.a.send(p.to_b, i, bytes(i, 3000))).collect();
        let recvs = async {
            for i in (0..3000u64).rev() {
                let (status, got) = p.b.recv(Some(p.to_a), i, 0, vec![0; 3000]).await;
                assert_eq!(status.unwrap().len, 3000);
                assert!(got == bytes(i, 3000), "{name} {i}");
            }
        };
        p.run(
            async {
                for s in sends {
                    s.await.0.unwrap();
                }
            },
            recvs,
        );
    }
}

#[test]
fn active_message__runs_its_handler_and_may_answer() {
    use std::cell::RefCell;
    use std::rc::Rc;
    for (_, p) in subjects(&Config::default()) {
        let got = Rc::new(RefCell::new(Vec::new()));
        let seen = got.clone();
        p.a.active().handle(2, move |_, m| seen.borrow_mut().push((m.argument, m.data)));
        let back = p.to_a;
        p.b.active().handle(1, move |ep, m| {
            ep.active().send(back, 2, m.argument + 1, &m.data[1..]).unwrap();
        });
        p.a.active().send(p.to_b, 1, 41, &bytes(1, 20_000)).unwrap();
        p.run(
            async {
                while got.borrow().is_empty() {
                    p.a.yield_now().await;
                }
            },
            async {},
        );
        assert!(got.borrow()[0] == (42, bytes(1, 20_000)[1..].to_vec()));
    }
}

/// A receive of unknown length sleeps until a message is there, also an announced one.
#[test]
fn recv_sized__wakes_for_eager_and_announced_messages() {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::Arc;
    struct Count(AtomicU32);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    for (name, p) in subjects(&Config::default()) {
        for len in [10, 1_000_000] {
            let count = Arc::new(Count(AtomicU32::new(0)));
            let waker = Waker::from(count.clone());
            let mut recv = pin!(p.b.recv_sized(Some(p.to_a), 5, 0, len));
            assert!(recv.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            let send = p.a.send(p.to_b, 5, bytes(1, len));
            let start = std::time::Instant::now();
            while count.0.load(Ordering::Relaxed) == 0 {
                p.a.progress();
                p.b.progress();
                assert!(start.elapsed().as_secs() < 300, "{name}: never woken for {len}");
            }
            let (_, got) = p.run(send, recv);
            assert!(got.unwrap().1 == bytes(1, len), "{name}");
        }
    }
}

#[test]
fn wait__what_is_due_is_done_while_a_rank_spins() {
    // Rounds of progress and direct polls of the link alternate: neither may keep the clock from
    // being read.
    let config = Config { spin_us: 1_000_000_000, ..Config::default() };
    let links = weft::Links::parse("shm").unwrap();
    let open = || weft::job::open_endpoint(config.clone(), links, [1; 32]).unwrap();
    let (a, b) = (open(), open());
    let to_b = a.connect(&b.address()).unwrap();
    a.send_blocking(to_b, 1, b"hello").unwrap();
    while b.probe(None, 1, 0).is_none() {
        a.progress();
        b.progress();
    }
    let to_a = b.connect(&a.address()).unwrap();
    let start = std::time::Instant::now();
    for looks in 0..4 {
        for _ in 0..looks {
            // The message is there already: a direct poll of the link receives it.
            b.send_blocking(to_a, 2, b"an odd number of them").unwrap();
            a.recv_blocking(Some(to_b), 2, 0, &mut [0; 21]).unwrap();
        }
        a.block_on(a.sleep(std::time::Duration::from_millis(1)));
        assert!(start.elapsed().as_secs() < 500, "the clock was not read for as long as it spun");
    }
}

#[test]
fn recv_blocking__a_handler_that_panics_meanwhile_leaves_nothing_awaited() {
    let Pair { a, b, to_b, to_a } = shm(Config::default());
    a.send_blocking(to_b, 2, b"hello").unwrap();
    while b.probe(None, 2, 0).is_none() {
        a.progress();
        b.progress();
    }
    b.recv_blocking(Some(to_a), 2, 0, &mut [0; 5]).unwrap();
    let first = Cell::new(true);
    b.active().handle_at_once(9, move |_, _, _| {
        assert!(!first.replace(false), "a fault of the handler");
        None
    });
    a.active().send(to_b, 9, 0, b"x").unwrap();
    a.progress();
    let waits = || b.recv_blocking(Some(to_a), 1, 0, &mut [0; 8]);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(waits)).is_err());
    // A message that arrives now must not match the dropped receive, whose buffer is gone.
    a.send_blocking(to_b, 1, b"message!").unwrap();
    let start = std::time::Instant::now();
    while b.probe(Some(to_a), 1, 0).is_none() {
        assert!(start.elapsed().as_secs() < 300, "the message was taken");
        a.progress();
        b.progress();
    }
}

#[test]
fn counters__sends_without_polls_are_counted() {
    let pair = shm(Config::default());
    let recv = pair.b.recv(None, 1, 0, vec![0]);
    pair.run(pair.a.send(pair.to_b, 1, vec![1]), recv).0 .0.unwrap();
    let job = format!("sends-{}", std::process::id());
    let who = weft::counters::RankId { job: job.clone(), rank: 0, size: 2 };
    pair.a.counters().publish(&who).unwrap();
    for _ in 0..100 {
        pair.a.posted().inject(pair.to_b, 2, &[2], None, false).unwrap();
    }
    let all = weft::counters::scan().unwrap();
    let sent = all.iter().find(|s| s.job == job).unwrap().get("messages_sent");
    assert!(sent > 10, "{sent}");
}

#[test]
fn send__beyond_what_is_copied_ahead_waits_in_its_own_buffer() {
    const COUNT: usize = 600;
    let pair = shm(Config::default());
    let sends: Vec<_> =
        (0..COUNT as u64).map(|n| pair.a.send(pair.to_b, n, bytes(n, 16 << 10))).collect();
    let ahead = sends.iter().filter(|send| send.is_done()).count();
    assert!((60..=200).contains(&ahead), "{ahead} were done before anybody received");
    let send = async {
        for send in sends {
            send.await.0.unwrap();
        }
    };
    let recv = async {
        for n in 0..COUNT as u64 {
            let (status, got) = pair.b.recv(Some(pair.to_a), n, 0, vec![0; 16 << 10]).await;
            assert_eq!(status.unwrap().len, 16 << 10);
            assert!(got == bytes(n, 16 << 10), "{n}");
        }
    };
    pair.run(send, recv);
}

/// Makes a link that delays all packets it sends.
fn delayed(link: Box<dyn Link>) -> Box<dyn Link> {
    let clock = Clock::system();
    let faults = Some("delay=1ms,jitter=1ms,seed=3".parse().unwrap());
    let around = Wrappers { faults, ..Wrappers::default() };
    around.around(link, &(Rc::new(move || clock.now()) as weft_link::wrap::Clock)).unwrap()
}

/// Sends and receives one message as the side `me` of two, closes, and ends.
fn exchange_and_end(udp: bool, me: usize, ids: [u64; 2], meet: &AddressBook) {
    let link: Box<dyn Link> = match udp {
        true => udp_link(ids[me], None),
        false => Box::new(ShmLink::new(ShmConfig::new(EndpointId(ids[me]))).unwrap()),
    };
    let (config, id) = (Config::default(), EndpointId(ids[me]));
    let endpoint = Endpoint::with_links(config, id, Clock::system(), vec![delayed(link)]);
    let (mine, met) = (endpoint.address(), &meet.1);
    meet.0.lock().unwrap()[me] = Some(mine);
    met.wait();
    let theirs = meet.0.lock().unwrap()[1 - me].clone().unwrap();
    let peer = endpoint.connect(&theirs).unwrap();
    let sent = endpoint.send(peer, 1, vec![me as u8]);
    let (status, got) = endpoint.block_on(endpoint.recv(Some(peer), 1, 0, vec![9]));
    assert_eq!(status.map(|s| s.len), Ok(1));
    assert_eq!(got, [1 - me as u8]);
    endpoint.block_on(sent).0.unwrap();
    // A close without an acknowledgement would take the whole minute.
    assert!(endpoint.close(std::time::Duration::from_secs(60)));
}

type AddressBook = (std::sync::Mutex<[Option<weft::Address>; 2]>, std::sync::Barrier);

#[test]
fn close__what_is_under_way_arrives_although_the_sender_has_ended() {
    for udp in [false, true] {
        let ids = [weft_link::random_u64(), weft_link::random_u64()];
        let meet: AddressBook = (Default::default(), std::sync::Barrier::new(2));
        std::thread::scope(|s| {
            for me in 0..2 {
                let meet = &meet;
                s.spawn(move || exchange_and_end(udp, me, ids, meet));
            }
        });
    }
}

/// A program that sends from time to time and never waits.
#[test]
fn send_blocking__a_rank_that_only_sends_sees_that_there_is_room_again() {
    const MESSAGES: u64 = 60;
    let p = udp(Config::default());
    let _ = p.run(p.a.send(p.to_b, 0, vec![1]), p.b.recv(Some(p.to_a), 0, 0, vec![0]));
    for tag in 1..=MESSAGES {
        p.a.send_blocking(p.to_b, tag, &[2]).unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_millis(1);
        while std::time::Instant::now() < until {
            p.b.progress();
        }
    }
    // The last messages may wait for an acknowledgement in flight.
    let arrived = (1..=MESSAGES).filter(|&tag| p.b.probe(Some(p.to_a), tag, 0).is_some()).count();
    assert!(arrived as u64 >= MESSAGES - 2, "{arrived} of {MESSAGES}; {:?}", p.a.stats());
}

#[test]
fn operation__kept_while_its_number_comes_again() {
    // The engine gives a number again after some 4,000 uses of a place. Receives that have ended,
    // but whose results nobody has collected, keep theirs.
    const KEPT: u64 = 9_000;
    let id = EndpointId(weft_link::random_u64());
    let links: Vec<Box<dyn Link>> = vec![Box::new(weft::SelfLink::new(id))];
    let e = Endpoint::with_links(Config::default(), id, Clock::system(), links);
    let me = e.connect(&e.address()).unwrap();
    let mut kept = Vec::new();
    for n in 0..KEPT {
        let received = e.recv(Some(me), n, 0, vec![0; 8]);
        e.send_blocking(me, n, &n.to_le_bytes()).unwrap();
        while !received.is_done() {
            e.progress();
        }
        kept.push(received);
    }
    // An operation dropped with the number of a later one does not take that one away.
    let waiting = e.recv(Some(me), KEPT, 0, vec![0; 8]);
    for (n, received) in (0..).zip(kept.drain(..)) {
        if n % 2 == 1 {
            continue;
        }
        let (result, buffer) = received.wait();
        assert_eq!(result.unwrap().tag, n);
        assert_eq!(buffer, n.to_le_bytes(), "the result of another operation");
    }
    e.send_blocking(me, KEPT, &KEPT.to_le_bytes()).unwrap();
    let (result, buffer) = waiting.wait();
    assert_eq!(result.unwrap().tag, KEPT);
    assert_eq!(buffer, KEPT.to_le_bytes());
}

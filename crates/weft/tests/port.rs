//! Clients of the port, made here: nothing below the port knows them.
#![allow(non_snake_case)]

use std::cell::{Cell, RefCell};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::time::{Duration, Instant};
use weft::port::{Arrived, AtomicRequest, Client, NumberTaken, Port, NUMBERS};
use weft::{AtomicCode, Clock, Config, Endpoint, EndpointId, OpError, PeerFailure, PeerId};
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::{Link, ShmConfig, ShmLink, UdpConfig, UdpLink};

const NUMBER: u8 = 9;
const LIMIT: Duration = Duration::from_secs(300);

/// Keeps what it is sent, and notes each call.
#[derive(Default)]
struct Keeper {
    kept: RefCell<Vec<Arrived>>,
    /// True if messages are given back at once.
    releases: Cell<bool>,
    failed: RefCell<Vec<PeerId>>,
    /// Messages that it was called for, now and at the last failure.
    called: Cell<u32>,
    before_failure: Cell<u32>,
    due: Cell<u32>,
    asked: Cell<u64>,
    news: Cell<bool>,
    polled: Cell<u32>,
    panics: Cell<bool>,
    /// Depth of calls for messages, which never exceeds 1.
    depth: Cell<u32>,
}

impl Client for Keeper {
    fn arrived(self: Rc<Self>, port: &Port, message: Arrived) {
        self.called.set(self.called.get() + 1);
        self.depth.set(self.depth.get() + 1);
        assert_eq!(self.depth.get(), 1, "one message at a time");
        // Progress inside of a call brings no further message to the same client.
        port.endpoint().progress();
        self.depth.set(0);
        if self.panics.take() {
            port.release(message);
            panic!("a fault of the client");
        }
        match self.releases.get() {
            true => port.release(message),
            false => self.kept.borrow_mut().push(message),
        }
    }

    fn failed(self: Rc<Self>, _: &Port, peer: PeerId, _: PeerFailure) {
        self.before_failure.set(self.called.get());
        self.failed.borrow_mut().push(peer);
    }

    fn due(self: Rc<Self>, _: &Port) {
        self.due.set(self.due.get() + 1);
    }

    fn asked(self: Rc<Self>, port: &Port, request: AtomicRequest) {
        let before = self.asked.replace(self.asked.get() + request.operand);
        port.atomic_done(&request, Some(before));
    }

    fn has_events(&self) -> bool {
        self.news.get()
    }

    fn poll(self: Rc<Self>, _: &Port) {
        self.news.set(false);
        self.polled.set(self.polled.get() + 1);
    }
}

fn endpoint(link: &str, config: &Config) -> Endpoint {
    let id = EndpointId(weft_link::random_u64());
    let link: Box<dyn Link> = match link {
        "shm" => Box::new(ShmLink::new(ShmConfig::new(id)).unwrap()),
        _ => {
            let host = weft_link::shm::host().unwrap();
            let job_key = JobKey::from_bytes(&[7; 32]).unwrap();
            let security = Security { mode: Mode::Auth, job_key, me: id };
            let config = UdpConfig { host, ..UdpConfig::default() };
            Box::new(UdpLink::new(config, security).unwrap())
        }
    };
    Endpoint::with_links(config.clone(), id, Clock::system(), vec![link])
}

struct Pair {
    a: (Endpoint, Port, Rc<Keeper>),
    b: (Endpoint, Port, Rc<Keeper>),
    to_b: PeerId,
    to_a: PeerId,
}

fn pair(link: &str, config: &Config) -> Pair {
    let open = || {
        let endpoint = endpoint(link, config);
        let (port, keeper) = endpoint.port(NUMBER, Rc::<Keeper>::default).unwrap();
        (endpoint, port, keeper)
    };
    let (a, b) = (open(), open());
    let to_b = a.0.connect(&b.0.address()).unwrap();
    let to_a = b.0.connect(&a.0.address()).unwrap();
    Pair { a, b, to_b, to_a }
}

impl Pair {
    fn until(&self, done: impl Fn() -> bool) {
        let start = Instant::now();
        while !done() {
            self.a.0.progress();
            self.b.0.progress();
            assert!(start.elapsed() < LIMIT, "nothing happens");
        }
    }
}

#[test]
fn arrived__in_order_with_number_argument_and_bytes() {
    for link in ["shm", "udp"] {
        let p = pair(link, &Config::default());
        let lens = [0, 1, 100, 5000, 64 << 10];
        for (i, len) in lens.into_iter().enumerate() {
            let data = vec![i as u8; len];
            p.a.1.post(p.to_b, NUMBERS - 1 - i as u32, u32::MAX - i as u32, &data).unwrap();
        }
        p.until(|| p.b.2.kept.borrow().len() == lens.len());
        for (i, message) in p.b.2.kept.take().into_iter().enumerate() {
            let i = i as u32;
            let head = (message.source, message.number, message.argument);
            assert_eq!(head, (p.to_a, NUMBERS - 1 - i, u32::MAX - i), "{link}");
            assert_eq!(message.data.len(), lens[i as usize]);
            assert!(message.data.iter().all(|&byte| byte == i as u8));
            p.b.1.release(message);
        }
        let long = vec![0; (64 << 10) + 1];
        assert_eq!(p.a.1.post(p.to_b, 0, 0, &long), Err(OpError::Refused));
    }
}

#[test]
fn arrived__what_is_kept_holds_back_its_senders_credit() {
    for link in ["shm", "udp"] {
        let p = pair(link, &Config { eager_credit: 128 << 10, ..Config::default() });
        let send = || p.a.1.try_send(p.to_b, 1, 0, &[7; 1000]);
        let mut sent = 0;
        let start = Instant::now();
        while sent < 2000 {
            match send() {
                Ok(()) => sent += 1,
                Err(OpError::Busy) if p.b.2.kept.borrow().len() < 120 => {
                    p.a.0.progress();
                    p.b.0.progress();
                }
                Err(OpError::Busy) => break,
                Err(why) => panic!("{why}"),
            }
            assert!(start.elapsed() < LIMIT);
        }
        assert!(sent < 2000, "{link}: no credit was held back");
        // Messages for others go on meanwhile.
        let heard = Rc::new(Cell::new(false));
        let hears = Rc::clone(&heard);
        p.a.0.active().handle(3, move |_, _| hears.set(true));
        p.b.0.active().send(p.to_a, 3, 0, &[]).unwrap();
        p.until(|| heard.get());
        p.b.2.releases.set(true);
        p.b.2.kept.take().into_iter().for_each(|message| p.b.1.release(message));
        p.until(|| p.a.0.peer(p.to_b).queued() == 0);
        p.until(|| send().is_ok());
    }
}

#[test]
fn arrived__before_there_is_a_client_waits_for_it() {
    let (a, b) = (endpoint("shm", &Config::default()), endpoint("shm", &Config::default()));
    let to_b = a.connect(&b.address()).unwrap();
    let (port, _) = a.port(NUMBER, Rc::<Keeper>::default).unwrap();
    port.post(to_b, 4, 5, b"early").unwrap();
    let start = Instant::now();
    while a.stats().messages_sent == 0 || b.stats().messages_received == 0 {
        a.progress();
        b.progress();
        assert!(start.elapsed() < LIMIT);
    }
    let (port, keeper) = b.port(NUMBER, Rc::<Keeper>::default).unwrap();
    b.progress();
    let message = keeper.kept.borrow_mut().pop().unwrap();
    assert_eq!((&*message.data, message.argument), (&b"early"[..], 5));
    port.release(message);
}

#[test]
fn port__of_another_type_is_refused_and_of_the_same_found() {
    struct Other;
    impl Client for Other {
        fn arrived(self: Rc<Self>, port: &Port, message: Arrived) {
            port.release(message);
        }
    }
    let endpoint = endpoint("shm", &Config::default());
    let (_, first) = endpoint.port(NUMBER, Rc::<Keeper>::default).unwrap();
    let (_, again) = endpoint.port(NUMBER, Rc::<Keeper>::default).unwrap();
    assert!(Rc::ptr_eq(&first, &again));
    let taken = endpoint.port(NUMBER, || Rc::new(Other)).err();
    assert_eq!(taken, Some(NumberTaken { number: NUMBER }));
}

#[test]
fn client__is_called_for_time_events_failures_and_atomics() {
    let p = pair("udp", &Config::default());
    let (endpoint, port, keeper) = &p.b;
    port.call_by(port.now() + Duration::from_millis(5));
    p.until(|| keeper.due.get() == 1);
    port.call_at(port.now());
    p.until(|| keeper.due.get() == 2);
    port.poll_each_round();
    keeper.news.set(true);
    p.until(|| keeper.polled.get() == 1);
    // A word that the client serves.
    let key = endpoint.regions().register(8, weft::Rights::ALL).unwrap();
    port.serve(key);
    assert!(port.serves(key));
    for before in [0, 5] {
        let add = p.a.0.atomic(p.to_b, key, 0, AtomicCode::FetchAdd, 5, 0);
        p.until(|| add.is_done());
        assert_eq!(p.a.0.block_on(add).0.unwrap().value, before);
    }
    port.end_serve(key);
    assert!(!port.serves(key));
    // The end of a peer.
    p.a.1.post(p.to_b, 1, 1, &[]).unwrap();
    p.until(|| keeper.kept.borrow().len() == 1);
    p.a.0.close(Duration::ZERO);
    p.until(|| *keeper.failed.borrow() == [p.to_a]);
    keeper.kept.take().into_iter().for_each(|message| port.release(message));
}

#[test]
fn failed__comes_after_the_messages_of_the_peer() {
    let p = pair("shm", &Config::default());
    p.a.1.post(p.to_b, 0, 0, &[]).unwrap();
    p.until(|| p.b.2.kept.borrow().len() == 1);
    for n in 1..5 {
        p.a.1.post(p.to_b, 0, n, &[]).unwrap();
    }
    p.a.0.close(Duration::ZERO);
    let start = Instant::now();
    while p.b.2.failed.borrow().is_empty() {
        p.b.0.progress();
        assert!(start.elapsed() < LIMIT);
    }
    assert_eq!(p.b.2.before_failure.get(), 5);
    p.b.2.kept.take().into_iter().for_each(|message| p.b.1.release(message));
}

#[test]
fn client__that_panics_is_called_for_the_next_message() {
    let p = pair("shm", &Config::default());
    p.b.2.panics.set(true);
    for n in 0..3 {
        p.a.1.post(p.to_b, 0, n, &[]).unwrap();
    }
    let start = Instant::now();
    while catch_unwind(AssertUnwindSafe(|| p.b.0.progress())).is_ok() {
        p.a.0.progress();
        assert!(start.elapsed() < LIMIT, "the panic was lost");
    }
    p.until(|| p.b.2.kept.borrow().len() == 2);
    let kept = p.b.2.kept.take();
    assert_eq!(kept.iter().map(|m| m.argument).collect::<Vec<_>>(), [1, 2]);
    kept.into_iter().for_each(|message| p.b.1.release(message));
}

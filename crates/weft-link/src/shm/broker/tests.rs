#![allow(non_snake_case)]

use super::*;
use crate::secure::JobKey;
use crate::shm::sys::socket::{self, Name};
use crate::shm::sys::{map, misc};
use crate::shm::{ShmConfig, ShmLink};
use crate::{random_u64, Address, Bytes, Frame, Link, LinkError, LinkEvent, PeerInfo, Sink};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft_core::PeerId;

/// Longest wait for an event.
const TIMEOUT: Duration = Duration::from_secs(120);

type May = Box<dyn Fn(u32, u32) -> Result<(), String> + Send>;

/// A broker in a thread of its own, as in an agent.
struct Agent {
    name: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Broker>>,
}

impl Agent {
    fn with(limits: BrokerLimits, may: May) -> Agent {
        let name = format!("@weft-broker-test-{:016x}", random_u64());
        let mut broker = Broker::listen(&name, limits).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut fds = Vec::new();
            broker.wait_fds(&mut fds);
            while !stopped.load(Ordering::Relaxed) {
                broker.serve(&may);
                misc::wait_readable(fds[0].fd, 5);
            }
            broker
        });
        Agent { name, stop, thread: Some(thread) }
    }

    fn start() -> Agent {
        Agent::with(BrokerLimits { ranks: 64, of_user: 48 }, Box::new(|_, _| Ok(())))
    }

    /// Ends the thread; returns its counter of this name.
    fn end(mut self, name: &str) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let broker = self.thread.take().unwrap().join().unwrap();
        let mut value = None;
        broker.counters(&mut |n, v| value = value.or((n == name).then_some(v)));
        value.unwrap()
    }

    fn broker(&self, key: u8) -> BrokerConfig {
        let key = JobKey::from_bytes(&[key; 32]).unwrap();
        BrokerConfig::new(vec![self.name.clone()], key)
    }

    /// Opens a link of a job as in a network namespace of its own: its listener and host are hidden
    /// from others.
    fn rank(&self, endpoint: u64, key: u8) -> Rank {
        let broker = Some(self.broker(key));
        Rank::of(ShmConfig { broker, ..ShmConfig::new(EndpointId(endpoint)) })
    }

    /// Registers without a link.
    fn connection(&self, endpoint: u64) -> Result<AgentConnection, LinkError> {
        AgentConnection::open(&self.broker(1), EndpointId(endpoint))
    }

    /// Connects a socket to the broker.
    fn dial(&self) -> OwnedFd {
        socket::connect(Name::Text(&Broker::socket_name(&self.name))).unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Log(Vec<Vec<u8>>);

impl Sink for Log {
    fn frame(&mut self, _: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        self.0.push([header, &payload.to_vec()].concat());
    }
}

struct Rank {
    link: ShmLink,
    address: Address,
    log: Log,
    events: Vec<LinkEvent>,
}

const PEER: PeerId = PeerId(0);
const HEADER: [u8; 24] = [7; 24];

impl Rank {
    fn of(config: ShmConfig) -> Rank {
        let endpoint = config.endpoint;
        let mut link = ShmLink::new(config).unwrap();
        link.host = random_u64();
        let mut address = Address { endpoint, ..Address::default() };
        link.advertise(&mut address);
        // The key of an abstract socket that nobody has.
        address.shm = random_u64();
        Rank { link, address, log: Log::default(), events: Vec::new() }
    }

    fn connect(&mut self, to: &Rank) -> Result<(), String> {
        let info = PeerInfo {
            peer: PEER,
            session: 0,
            endpoint: to.address.endpoint,
            address: to.address.clone(),
        };
        self.link.connect(&info).map(|caps| assert!(!caps.direct)).map_err(|e| e.to_string())
    }

    fn send(&mut self, payload: &[u8]) -> usize {
        self.link.send(&[Frame { peer: PEER, header: &HEADER, payload }])
    }

    fn turn(&mut self) {
        self.link.poll_sockets();
        self.link.recv(64, &mut self.log);
        while let Some(event) = self.link.poll_event() {
            self.events.push(event);
        }
    }

    fn count(&self, name: &str) -> u64 {
        let mut value = None;
        self.link.counters(&mut |n, v| value = value.or((n == name).then_some(v)));
        value.unwrap()
    }

    /// Runs until the condition holds.
    fn until(&mut self, what: &str, mut done: impl FnMut(&Rank) -> bool) {
        let end = Instant::now() + TIMEOUT;
        while !done(self) {
            assert!(Instant::now() < end, "{what}: {:?}", self.events);
            self.turn();
            std::thread::yield_now();
        }
    }

    fn was_refused(&self) -> bool {
        self.events.iter().any(|e| matches!(e, LinkEvent::PeerRefused(PEER, _)))
    }

    /// True if a connection was refused with this reason.
    fn warned(&self, of: &str) -> bool {
        self.events
            .iter()
            .any(|e| matches!(e, LinkEvent::PeerRefused(_, text) if text.contains(of)))
    }
}

fn message(payload: &[u8]) -> Vec<u8> {
    [&HEADER[..], payload].concat()
}

/// Sends both ways and checks what comes.
fn talk(a: &mut Rank, b: &mut Rank, text: &[u8]) {
    let (of_a, of_b) = (a.log.0.len(), b.log.0.len());
    a.until("room", |_| true);
    assert_eq!((a.send(text), b.send(text)), (1, 1));
    b.until("a's packet", |b| b.log.0.len() > of_b);
    a.until("b's packet", |a| a.log.0.len() > of_a);
    assert_eq!((a.log.0.last(), b.log.0.last()), (Some(&message(text)), Some(&message(text))));
}

/// Lets two ranks work until both have proven the job to each other.
fn both(a: &mut Rank, b: &mut Rank) {
    let end = Instant::now() + TIMEOUT;
    while a.link.peers.is_empty()
        || b.link.peers.is_empty()
        || a.link.peers[0].unproven.or(b.link.peers[0].unproven).is_some()
    {
        assert!(Instant::now() < end, "{:?} {:?}", a.events, b.events);
        a.turn();
        b.turn();
        std::thread::yield_now();
    }
}

#[test]
fn join__two_ranks_that_share_no_namespace_talk_and_go_on_without_the_agent() {
    let agent = Agent::start();
    let (mut a, mut b) = (agent.rank(1, 1), agent.rank(2, 1));
    assert_ne!(a.address.host, b.address.host);
    a.connect(&b).unwrap();
    assert_eq!(a.send(b"before the answer"), 1);
    b.until("the call", |b| !b.link.peers.is_empty());
    b.connect(&a).unwrap();
    both(&mut a, &mut b);
    b.until("the first packet", |b| !b.log.0.is_empty());
    talk(&mut a, &mut b, &[3; 20_000]);
    assert_eq!(agent.end("share_joined"), 1);
    a.until("the end of the agent", |a| a.link.standing().is_err());
    talk(&mut a, &mut b, &[4; 30_000]);
    assert_eq!((a.count("shm_joined"), b.count("shm_refused")), (1, 0));
    drop(b);
    a.until("the end of b", |a| a.events.contains(&LinkEvent::PeerGone(PEER)));
}

#[test]
fn join__both_at_once() {
    let agent = Agent::start();
    let (mut a, mut b) = (agent.rank(1, 1), agent.rank(2, 1));
    a.connect(&b).unwrap();
    b.connect(&a).unwrap();
    both(&mut a, &mut b);
    talk(&mut a, &mut b, b"crossed");
    assert!(a.events.is_empty() && b.events.is_empty(), "{:?} {:?}", a.events, b.events);
}

#[test]
fn join__a_card_of_another_agent_is_refused_and_says_so() {
    let (agent, other) = (Agent::start(), Agent::start());
    let (mut a, mut b) = (agent.rank(1, 1), other.rank(2, 1));
    let why = a.connect(&b).unwrap_err();
    assert!(why.contains("another agent"), "{why}");
    // A card that lies: the agent of the other host is said to be this one.
    b.address.agent = a.address.agent;
    a.connect(&b).unwrap();
    a.until("the refusal", |a| a.was_refused());
    assert!(a.warned("is not registered here"), "{:?}", a.events);
    assert_eq!((a.count("shm_unjoined"), agent.end("share_refused")), (1, 1));
    // No agent at all.
    let (mut c, nobody) = (agentless(3), agentless(4));
    assert!(!c.connect(&nobody).unwrap_err().contains("agent"), "nothing to say of agents");
    assert!(a.connect(&nobody).unwrap_err().contains("has no agent"));
}

fn agentless(endpoint: u64) -> Rank {
    Rank::of(ShmConfig::new(EndpointId(endpoint)))
}

#[test]
fn join__ranks_of_other_jobs_and_users_are_refused_with_the_reason() {
    let agent = Agent::start();
    let (mut a, b) = (agent.rank(1, 1), agent.rank(2, 2));
    a.connect(&b).unwrap();
    a.until("the refusal", |a| a.was_refused());
    assert!(a.warned("belongs to another job"), "{:?}", a.events);

    let limits = BrokerLimits { ranks: 8, of_user: 8 };
    let strict = Agent::with(limits, Box::new(|a, b| Err(format!("users {a} and {b} differ"))));
    let (mut a, b) = (strict.rank(1, 1), strict.rank(2, 1));
    a.connect(&b).unwrap();
    a.until("the refusal", |a| a.was_refused());
    assert!(a.warned("differ"), "{:?}", a.events);
}

#[test]
fn join__a_process_that_claims_the_job_and_does_not_know_its_key_gets_nothing() {
    let agent = Agent::start();
    let (mut a, mut b) = (agent.rank(1, 1), agent.rank(2, 1));
    // A forger has learned the public number of the job: the key that it proves is another.
    let forged = |rank: &mut Rank| {
        let other = JobKey::from_bytes(&[9; 32]).unwrap();
        rank.link.config.broker.as_mut().unwrap().job_key = other;
    };
    forged(&mut b);
    b.connect(&a).unwrap();
    a.until("the forger", |a| a.count("shm_refused") == 1);
    assert!(a.link.peers.is_empty());
    b.until("the refusal", |b| b.was_refused());

    // The other way round: nothing of an answer without proof is taken.
    a.connect(&b).unwrap();
    let info = |of: &Rank| PeerInfo {
        peer: PEER,
        session: 0,
        endpoint: of.address.endpoint,
        address: of.address.clone(),
    };
    b.link.disconnect(PEER);
    b.until("the call", |b| b.count("shm_refused") == 1);
    assert!(b.link.connect(&info(&a)).is_ok());
    a.until("the refusal", |a| a.was_refused());
    assert!(a.log.0.is_empty());
}

#[test]
fn is_proven__an_answer_for_another_offer_is_no_proof() {
    let agent = Agent::start();
    let (mut a, mut b) = (agent.rank(1, 1), agent.rank(2, 1));
    a.connect(&b).unwrap();
    a.link.peers[0].unproven = a.link.peers[0].unproven.map(|nonce| nonce ^ 1);
    b.until("the call", |b| !b.link.peers.is_empty());
    let _ = b.connect(&a);
    assert_eq!(b.send(b"forged"), 1);
    a.until("the refusal", |a| a.was_refused());
    assert!(a.log.0.is_empty());
}

#[test]
fn check_proof__a_joined_pair_needs_one_and_a_listener_takes_none() {
    let agent = Agent::start();
    let mut a = agent.rank(1, 1);
    let connection = agent.connection(2).unwrap();
    // A hello without proof by way of the agent.
    let [near, far] = socket::pair().unwrap();
    let config = ShmConfig::new(EndpointId(2));
    let segment = map::create(config.sizes().segment_len()).unwrap();
    let stranger = ShmLink::new(config).unwrap();
    let hello =
        stranger.hello(crate::shm::Kind::Offer, EndpointId(1), stranger.config.sizes()).encode();
    socket::send(&near, &hello, Some(segment.as_fd())).unwrap();
    connection.join(EndpointId(1), &far).unwrap();
    a.until("the hello", |a| a.count("shm_refused") == 1);
    // Bytes that are no hello, and a peer that ends before it says anything.
    let [near, far] = socket::pair().unwrap();
    socket::send(&near, b"nonsense", None).unwrap();
    connection.join(EndpointId(1), &far).unwrap();
    let [_, far] = socket::pair().unwrap();
    connection.join(EndpointId(1), &far).unwrap();
    a.until("the others", |a| a.count("shm_refused") == 2);
    assert!(a.link.peers.is_empty());
}

#[test]
fn join__descriptors_of_the_wrong_kind_are_refused() {
    let agent = Agent::start();
    let mut b = agent.rank(2, 1);
    let file = map::create(4096).unwrap();
    let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let listener = socket::listen(Name::Key(random_u64())).unwrap();
    for end in [file, stream.into(), listener] {
        let connection = agent.connection(1).unwrap();
        connection.join(EndpointId(2), &end).unwrap();
        let said = said(&connection);
        assert!(matches!(&said, Said::Refused(why) if why.contains("pair")), "{said:?}");
    }
    // To itself, and to nobody.
    let connection = agent.connection(3).unwrap();
    for (to, part) in [(3, "to itself"), (4, "not registered")] {
        let [near, far] = socket::pair().unwrap();
        connection.join(EndpointId(to), &far).unwrap();
        let mut buf = [0; 256];
        misc::wait_readable(near.as_raw_fd(), 60_000);
        let got = socket::recv(&near, &mut buf, weft_sys::foreign::ANYBODY).unwrap();
        let why = crate::shm::rendezvous::reason_of(&buf[..got.len]).unwrap();
        assert!(why.contains(part), "{why}");
    }
    b.turn();
    assert!(b.link.peers.is_empty() && b.events.is_empty());
}

/// Waits for the next message.
fn said(connection: &AgentConnection) -> Said {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(said) = connection.said() {
            return said;
        }
        assert!(Instant::now() < end, "nothing is said");
        misc::wait_readable(connection.socket().as_raw_fd(), 1000);
    }
}

#[test]
fn serve__nonsense_ends_a_connection_and_is_counted() {
    let agent = Agent::start();
    let bad: [Vec<u8>; 5] = [
        b"x".to_vec(),
        [b"weft\x01\x10\0\0", &[0; 15][..]].concat(),
        [b"weft\x02\x10\0\0", &[0; 16][..]].concat(),
        Message::Registered { identity: 1, user: 2 }.encode(),
        // A request without a descriptor.
        Message::Join(EndpointId(1)).encode(),
    ];
    for bytes in &bad {
        let socket = agent.dial();
        socket::send(&socket, bytes, None).unwrap();
        let end = Instant::now() + TIMEOUT;
        while !socket::hung_up(&socket) {
            assert!(Instant::now() < end);
            misc::wait_readable(socket.as_raw_fd(), 100);
        }
    }
    assert!(agent.connection(5).is_ok());
    assert_eq!(agent.end("share_nonsense"), bad.len() as u64);
}

#[test]
fn accept__one_user_has_so_many_ranks() {
    let limits = BrokerLimits { ranks: 8, of_user: 3 };
    let agent = Agent::with(limits, Box::new(|_, _| Ok(())));
    let connections: Vec<AgentConnection> =
        (1..=3).map(|id| agent.connection(id).unwrap()).collect();
    let why = agent.connection(4).unwrap_err().to_string();
    assert!(why.contains("has 3 ranks that share memory, the limit"), "{why}");
    drop(connections);
    let end = Instant::now() + TIMEOUT;
    while agent.connection(5).is_err() {
        assert!(Instant::now() < end, "the places are not free again");
    }
}

#[test]
fn register__an_endpoint_twice() {
    let agent = Agent::start();
    let _connection = agent.connection(1).unwrap();
    let why = agent.connection(1).unwrap_err().to_string();
    assert!(why.contains("registered already"), "{why}");
}

#[test]
fn decide__sockets_for_a_rank_that_does_not_read_are_kept_back() {
    let agent = Agent::start();
    let (caller, target) = (agent.connection(1).unwrap(), agent.connection(2).unwrap());
    let other = agent.connection(3).unwrap();
    let ends: Vec<_> = (0..40)
        .map(|_| {
            let [near, far] = socket::pair().unwrap();
            caller.join(EndpointId(2), &far).unwrap();
            near
        })
        .collect();
    // Others are served meanwhile.
    let [_near, far] = socket::pair().unwrap();
    other.join(EndpointId(1), &far).unwrap();
    assert!(matches!(said(&caller), Said::Joined(_)));
    for _ in &ends {
        assert!(matches!(said(&target), Said::Joined(_)));
    }
    let end = Instant::now() + TIMEOUT;
    while !ends.iter().all(socket::hung_up) {
        assert!(Instant::now() < end, "a far end stays open");
    }
    assert_eq!(agent.end("share_joined"), 41);
}

#[test]
fn decode__damaged_messages_have_one_encoding_or_none() {
    for good in example_messages() {
        check_message(&good);
        assert!(Message::decode(&good).is_ok(), "{good:?}");
        for at in 0..good.len() {
            assert!(Message::decode(&good[..at]).is_err() || good[5] == 20, "{at}");
            for value in 0..=255 {
                let mut bad = good.clone();
                bad[at] = value;
                check_message(&bad);
            }
        }
    }
    let long = Message::Refused("\u{e4}".repeat(1000)).encode();
    assert!(long.len() <= MESSAGE_MAX && Message::decode(&long).is_ok());
}

#[test]
fn open__no_agent_and_one_that_is_silent() {
    let none = BrokerConfig::new(
        vec![format!("/nowhere/{:x}.sock", random_u64())],
        JobKey::from_bytes(&[1; 32]).unwrap(),
    );
    let why = AgentConnection::open(&none, EndpointId(1)).unwrap_err().to_string();
    assert!(why.contains("no agent listens") && why.contains("mount"), "{why}");
    let name = format!("@weft-broker-test-{:016x}", random_u64());
    let _silent = socket::listen(Name::Text(&Broker::socket_name(&name))).unwrap();
    let silent = BrokerConfig { names: vec![name], patience: Duration::from_millis(50), ..none };
    let why = AgentConnection::open(&silent, EndpointId(1)).unwrap_err().to_string();
    assert!(why.contains("does not answer"), "{why}");
}

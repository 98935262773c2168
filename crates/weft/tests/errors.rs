//! The text of errors: which rank, over which link, interface and address, why, and what to do.
#![allow(non_snake_case)]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use weft::{Config, Endpoint, EndpointId, Group, OpError, PeerFailure};
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::{Address, Link, ShmConfig, ShmLink, UdpConfig, UdpLink};

fn endpoint(link: impl FnOnce(EndpointId) -> Box<dyn Link>) -> Endpoint {
    endpoint_of(Config { connect_timeout_ms: 50, ..Config::default() }, link)
}

fn endpoint_of(config: Config, link: impl FnOnce(EndpointId) -> Box<dyn Link>) -> Endpoint {
    let me = EndpointId(weft_link::random_u64());
    Endpoint::with_links(config, me, weft::Clock::system(), vec![link(me)])
}

fn shm() -> Endpoint {
    endpoint(|me| Box::new(ShmLink::new(ShmConfig::new(me)).unwrap()))
}

fn udp() -> Endpoint {
    udp_of(Config { connect_timeout_ms: 50, ..Config::default() })
}

fn udp_of(config: Config) -> Endpoint {
    endpoint_of(config, |me| {
        let config = UdpConfig { host: weft_link::shm::host().unwrap(), ..UdpConfig::default() };
        let job_key = JobKey::from_bytes(&[7; 32]).unwrap();
        let security = Security { mode: Mode::Auth, job_key, me };
        Box::new(UdpLink::new(config, security).unwrap())
    })
}

/// Returns the group of rank 0 of two; the other rank exists.
fn group(a: Endpoint, other: Address) -> Group {
    let addresses = vec![a.address(), other];
    Group::new(a, addresses, 0)
}

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text:?}");
    }
}

#[test]
fn explain__of_a_process_that_ended_names_rank_link_and_process() {
    let (a, b) = (shm(), shm());
    let world = group(a.clone(), b.address());
    b.connect(&a.address()).unwrap();
    let to_b = world.peer(1).unwrap();
    drop(b);
    let error = a.block_on(world.recv(1, 3, 8)).unwrap_err();
    assert_eq!(error.cause(), OpError::Peer { peer: to_b, failure: PeerFailure::Gone });
    assert_eq!((error.rank(), format!("{error:?}")), (Some(1), error.to_string()));
    let process = format!("over shm (process {})", std::process::id());
    let wanted = ["rank 1 on this host ", &process, "its process ended", "its launcher"];
    assert_has(&error.to_string(), &wanted);
    // A later operation gets the same error.
    let later = a.block_on(world.send(1, 3, vec![1])).unwrap_err();
    assert_has(&format!("{later:?}"), &wanted);
    assert_has(&a.peer(to_b).describe(), &wanted[..2]);
}

#[test]
fn explain__of_a_peer_that_never_answers_names_addresses_and_what_to_do() {
    let (a, b) = (udp(), udp());
    // Its process lives, and makes no progress.
    let there = b.address();
    let world = group(a.clone(), there.clone());
    let error = a.block_on(world.recv(1, 3, 8)).unwrap_err();
    let text = error.to_string();
    assert_has(&text, &["rank 1 on ", "over udp (from ", "no answer to the first packet"]);
    assert_has(&text, &["weft doctor", "WEFT_CONNECT_TIMEOUT_MS"]);
    let named = |socket: &std::net::SocketAddr| text.contains(&format!(" to {socket}"));
    assert!(there.udp.iter().any(named), "{text}");
}

#[test]
fn explain__of_a_peer_that_ended_before_it_was_reached_does_not_wait_for_it() {
    let patient = Config { connect_timeout_ms: 3_600_000, ..Config::default() };
    for (a, b) in [(shm(), shm()), (udp_of(patient), udp())] {
        let there = b.address();
        drop(b);
        let world = group(a.clone(), there);
        let error = a.block_on(world.recv(1, 3, 8)).unwrap_err();
        let failure = PeerFailure::Gone;
        assert!(matches!(error.cause(), OpError::Peer { failure: f, .. } if f == failure));
        assert_has(&error.to_string(), &["rank 1 on this host", "its process ended"]);
    }
}

#[test]
fn connect__to_one_that_runs_and_has_no_room_for_a_peer_is_refused() {
    let full = Config { peers_max: 1, ..Config::default() };
    let b = endpoint_of(full, |me| Box::new(ShmLink::new(ShmConfig::new(me)).unwrap()));
    let first = shm();
    b.connect(&first.address()).unwrap();
    let a = shm();
    let to_b = a.connect(&b.address()).unwrap();
    let mut recv = pin!(a.recv(Some(to_b), 3, 0, vec![0; 8]));
    let (mut cx, start) = (Context::from_waker(Waker::noop()), Instant::now());
    let result = loop {
        assert!(start.elapsed() < Duration::from_secs(60), "nobody tells it");
        b.progress();
        a.progress();
        if let Poll::Ready((result, _)) = recv.as_mut().poll(&mut cx) {
            break result;
        }
    };
    assert_eq!(result, Err(OpError::Peer { peer: to_b, failure: PeerFailure::Refused }));
}

#[test]
fn explain__of_a_rank_without_a_link_names_each_and_why() {
    let world = group(shm(), Address { endpoint: EndpointId(5), ..Address::default() });
    for _ in 0..2 {
        let error = world.endpoint().block_on(world.send(1, 3, vec![1])).unwrap_err();
        let no_link = |e| matches!(e, OpError::Peer { failure: PeerFailure::NoLink, .. });
        assert!(no_link(error.cause()), "{error}");
        let wanted = ["rank 1 over no link (shm: unreachable", "offers no shared memory", "doctor"];
        assert_has(&error.to_string(), &wanted);
    }
}

#[test]
fn connect__to_one_with_other_protection_of_frames_names_both_values() {
    let a = udp();
    let there = Address { security: Some(Mode::None), ..udp().address() };
    assert_eq!(a.address().security, Some(Mode::Auth));
    let error = a.connect(&there).unwrap_err().to_string();
    assert_has(&error, &["it has WEFT_SECURITY=none, this endpoint auth"]);
}

#[test]
fn peer__of_a_rank_that_is_none_is_an_error() {
    let world = group(shm(), Address::default());
    let endpoint = world.endpoint();
    let cause = OpError::NoRank { rank: 2, size: 2 };
    let ends = |error: Option<weft::GroupError>| {
        let error = error.expect("there is no such rank");
        assert_eq!(error.cause(), cause);
        assert_has(&format!("{error:?}"), &["there is no rank 2", "the group has 2"]);
    };
    ends(endpoint.block_on(world.send(2, 0, vec![])).err());
    ends(endpoint.block_on(world.recv(2, 0, 1)).err());
    ends(world.send_blocking(2, 0, &[]).err());
    ends(world.recv_blocking(2, 0, &mut [0]).err());
    ends(endpoint.block_on(world.broadcast(2, vec![])).err());
    ends(world.gather_blocking(2, vec![]).err());
    ends(endpoint.block_on(world.reduce(2, vec![1u64], weft::Op::Sum)).err());
    assert!(world.subset(&[0, 7], 1).is_none());
}

#[test]
fn alltoall__of_a_short_list_is_an_error() {
    let world = group(shm(), Address::default());
    let error = world.endpoint().block_on(world.alltoall(vec![vec![1]])).unwrap_err();
    assert_eq!(error.cause(), OpError::Count { wanted: 2, given: 1 });
    assert_has(&error.to_string(), &["1 messages given", "needs 2"]);
}

#[test]
fn scatter__of_a_short_list_is_an_error() {
    let world = group(shm(), Address::default());
    let error = world.scatter_blocking(0, vec![vec![1]]).unwrap_err();
    assert_eq!(error.cause(), OpError::Count { wanted: 2, given: 1 });
    let error = world.scatter_blocking(2, Vec::new()).unwrap_err();
    assert_eq!(error.cause(), OpError::NoRank { rank: 2, size: 2 });
}

#[test]
fn reduce__bits_of_floating_point_numbers_are_an_error() {
    let world = group(shm(), Address::default());
    for op in [weft::Op::And, weft::Op::Or, weft::Op::Xor] {
        let ends = |error: Option<weft::GroupError>| {
            assert_eq!(error.expect("no such operation").cause(), OpError::NoSuchOp);
        };
        ends(world.reduce_blocking(0, vec![1.0f32], op).err());
        ends(world.allreduce_blocking(vec![1.0f64], op).err());
        ends(world.over(weft::Tree::Flat).allreduce(vec![1.0f64], op).wait().err());
    }
}

#[test]
fn debug__of_every_error_is_its_text() {
    use weft::choices::{NoAgent, Overrun};
    use weft::endpoint::ChoiceError;
    use weft::launch::LaunchError;
    use weft_packets::{MulticastError, TooManyKept};
    let agent = NoAgent { setting: "multicast", value: "agent" };
    let peer = weft::PeerId(3);
    let errors: Vec<Box<dyn std::error::Error>> = vec![
        Box::new(weft::JobError::Launch(LaunchError::Twice)),
        Box::new(weft::JobError::NoLink(vec![("shm", weft_link::LinkError::Unsupported)])),
        Box::new(weft::ConnectError { address: "a".into(), reasons: vec![("udp", "b".into())] }),
        Box::new(LaunchError::LauncherGone { during: "a\nline".into() }),
        Box::new(weft::launch::wire::LineError::NoCommand),
        Box::new(weft::launch::keyfile::KeyError::NoFolder),
        Box::new(agent),
        Box::new(Overrun { link: "udp" }),
        Box::new(ChoiceError::NoAgent(agent)),
        Box::new(MulticastError::TooLong),
        Box::new(TooManyKept),
        Box::new(OpError::Peer { peer, failure: PeerFailure::Gone }),
    ];
    for error in errors {
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}

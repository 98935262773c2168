//! The simulated network, driven through the plain `Link` interface.
#![allow(non_snake_case)]

use std::cell::RefCell;
use std::rc::Rc;
use weft_core::wire::session_number;
use weft_core::{Instant, PeerId};
use weft_link::{Address, Bytes, Frame, Link, LinkEvent, PeerInfo, Sink};
use weft_sim::runner::{Host, HostEnv, RunError, Runner, Task};
use weft_sim::{address_of, Topology, Wire};
use weft_sim::{Fault, LinkKind, Network, SharedNetwork, SimClock, SimConfig, SimLink, Span, Step};

/// Keeps what arrives: (from, first four header bytes as a number, payload).
#[derive(Default)]
struct Kept(Vec<(Option<PeerId>, u32, Vec<u8>)>);

impl Sink for Kept {
    fn frame(&mut self, from: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        let number = u32::from_le_bytes(header[..4].try_into().unwrap());
        self.0.push((from, number, payload.to_vec()));
    }
}

fn header(number: u32) -> [u8; 24] {
    let mut h = [0; 24];
    h[..4].copy_from_slice(&number.to_le_bytes());
    h
}

fn info(net: &SharedNetwork, peer: u32, host: u32) -> PeerInfo {
    PeerInfo {
        peer: PeerId(peer),
        session: session_number(peer, 1),
        endpoint: address_of(net.borrow().config().seed, host, 0).endpoint,
        address: Address { sim: Some(host), ..Address::default() },
    }
}

/// Makes the links of all hosts; on each, peer n is host n.
fn links(net: &SharedNetwork) -> Vec<(SimLink, SimClock)> {
    let hosts = net.borrow().config().hosts;
    let one = |host| {
        let clock = SimClock::new();
        let mut link = SimLink::new(net, host, &clock);
        (0..hosts).for_each(|h| assert!(link.connect(&info(net, h, h)).is_ok()));
        (link, clock)
    };
    (0..hosts).map(one).collect()
}

/// Sends `count` numbered frames of `len` payload bytes from 0 to 1; returns those that arrive.
fn flood(config: SimConfig, count: u32, len: usize) -> (Kept, SharedNetwork) {
    let net = Network::shared(config);
    let mut links = links(&net);
    let mut kept = Kept::default();
    let payload = vec![7; len];
    let mut sent = 0;
    loop {
        while sent < count {
            let h = header(sent);
            let frame = Frame { peer: PeerId(1), header: &h, payload: &payload };
            if links[0].0.send(&[frame]) == 0 {
                break;
            }
            sent += 1;
        }
        let step = net.borrow_mut().step();
        let now = net.borrow().now();
        links.iter().for_each(|(_, clock)| clock.reach(now));
        match step {
            Step::Idle => return (kept, net),
            Step::Run(1) => drop(links[1].0.recv(64, &mut kept)),
            _ => {}
        }
    }
}

fn numbers(kept: &Kept) -> Vec<u32> {
    kept.0.iter().map(|k| k.1).collect()
}

#[test]
fn send__one_frame_arrives_after_two_hops() {
    let mut config = SimConfig::new(2, 1);
    config.host.send_ns = 0;
    let wire = config.wire;
    let (kept, net) = flood(config, 1, 1000);
    assert_eq!(kept.0, [(None, 0, vec![7; 1000])]);
    let serial = ((1024 + u64::from(wire.overhead_bytes)) * 1000).div_ceil(wire.bytes_per_us);
    assert_eq!(net.borrow().now(), 2 * (serial + wire.latency_ns));
}

#[test]
fn send__stays_in_order_with_jitter() {
    let mut config = SimConfig::new(2, 3);
    config.wire.jitter_ns = 50_000;
    let (kept, _) = flood(config, 500, 100);
    assert_eq!(numbers(&kept), (0..500).collect::<Vec<_>>());
}

#[test]
fn send__full_nic_refuses_then_wakes() {
    let mut config = SimConfig::new(2, 3);
    config.host.tx_bytes = 4096;
    let (kept, net) = flood(config, 300, 1400);
    assert_eq!(kept.0.len(), 300);
    assert!(net.borrow().counters().backpressure > 0);
}

#[test]
fn send__bandwidth_is_the_wires() {
    let config = SimConfig::new(2, 3);
    let rate = config.wire.bytes_per_us;
    let (kept, net) = flood(config, 2000, 1400);
    let bytes = kept.0.len() as u64 * (1424 + 82);
    let reached = bytes * 1000 / net.borrow().now();
    assert!(reached > rate * 95 / 100 && reached <= rate, "{reached} of {rate} MB/s");
}

#[test]
fn loss__about_the_rate_and_the_same_each_time() {
    let config = SimConfig::new(2, 9).fault(Fault::loss(100_000));
    let (kept, net) = flood(config.clone(), 2000, 64);
    let lost = net.borrow().counters().lost;
    assert!((150..250).contains(&lost), "{lost}");
    assert_eq!(kept.0.len() as u64, 2000 - lost);
    assert_eq!(numbers(&flood(config, 2000, 64).0), numbers(&kept));
}

#[test]
fn corruption__never_delivered() {
    let config = SimConfig::new(2, 9).fault(Fault::corrupt(200_000));
    let (kept, net) = flood(config, 2000, 64);
    let c = net.borrow().counters();
    assert!(c.corrupted > 300);
    // Two or three flips may hit the same bit and undo each other.
    assert!(c.refused <= c.corrupted && c.refused + 5 > c.corrupted, "{c:?}");
    assert!(kept.0.iter().all(|k| k.2 == [7; 64]));
    assert_eq!(kept.0.len() as u64, 2000 - c.refused);
}

#[test]
fn duplicate_and_reorder__each_frame_still_whole() {
    let config = SimConfig::new(2, 5).fault(Fault::duplicate(50_000));
    let (kept, net) = flood(config.fault(Fault::reorder(50_000, 100_000)), 1000, 64);
    let c = net.borrow().counters();
    assert!(c.duplicated > 20 && c.held_back > 20, "{c:?}");
    assert_eq!(kept.0.len() as u64, 1000 + c.duplicated);
    let got = numbers(&kept);
    assert!(got.windows(2).any(|w| w[0] > w[1]), "some frame was overtaken");
    let mut unique = got;
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique, (0..1000).collect::<Vec<_>>());
}

#[test]
fn duplicate__a_copy_of_what_cannot_pass_does_not_pass() {
    let stops = [
        Fault::Longer { bytes: 100, span: Span::ALWAYS },
        Fault::Loss { ppm: 1_000_000, span: Span::ALWAYS },
        Fault::Partition { side: vec![0], one_way: false, span: Span::ALWAYS },
    ];
    for stop in stops {
        let copies = Fault::Duplicate { ppm: 1_000_000, by_ns: 50_000, span: Span::ALWAYS };
        let config = SimConfig::new(2, 5).fault(copies).fault(stop);
        let (kept, net) = flood(config, 10, 200);
        assert_eq!((kept.0.len(), net.borrow().counters().duplicated), (0, 10));
    }
}

#[test]
fn switch__full_queue_drops() {
    let mut config = SimConfig::new(5, 1);
    config.wire.queue_bytes = 20_000;
    let net = Network::shared(config);
    let mut links = links(&net);
    let payload = [0; 1400];
    for (link, _) in &mut links[1..] {
        for n in 0..20 {
            let h = header(n);
            let frame = Frame { peer: PeerId(0), header: &h, payload: &payload };
            assert_eq!(link.send(&[frame]), 1);
        }
    }
    while net.borrow_mut().step() != Step::Idle {}
    let c = net.borrow().counters();
    assert!(c.queue_full > 20, "{c:?}");
    assert_eq!(c.arrived + c.queue_full, 80);
}

#[test]
fn tree__crosses_the_spine() {
    let mut config = SimConfig::new(8, 1);
    config.topology = Topology::Tree { radix: 4, uplink: 2 };
    config.wire = Wire { jitter_ns: 0, ..Wire::ethernet(10) };
    let net = Network::shared(config);
    let mut links = links(&net);
    let h = header(5);
    let to = |peer| Frame { peer: PeerId(peer), header: &h, payload: &[] };
    assert_eq!(links[0].0.send(&[to(7), to(3)]), 2);
    let mut order = Vec::new();
    loop {
        match net.borrow_mut().step() {
            Step::Idle => break,
            Step::Run(host) => order.push(host),
            _ => {}
        }
    }
    assert_eq!(order, [3, 7], "the near host first, though sent last");
    let mut kept = Kept::default();
    assert_eq!(links[7].0.recv(9, &mut kept), 1);
    assert_eq!(numbers(&kept), [5]);
}

#[test]
fn memory__reliable_under_faults_and_pressure() {
    let mut config = SimConfig::new(2, 9).fault(Fault::loss(500_000));
    config.kind = LinkKind::Memory;
    config.host.rx_frames = 8;
    let (kept, net) = flood(config, 500, 64);
    assert_eq!(numbers(&kept), (0..500).collect::<Vec<_>>());
    assert_eq!(kept.0[0].0, Some(PeerId(0)), "a memory link knows the sender");
    assert!(net.borrow().counters().backpressure > 0);
}

#[test]
fn death__frames_vanish_and_peers_get_the_event() {
    let config = SimConfig::new(2, 1).fault(Fault::Death { host: 1, at: 0, visible: true });
    let net = Network::shared(config);
    let mut links = links(&net);
    assert_eq!(net.borrow_mut().step(), Step::Died(1));
    let h = header(1);
    let frame = |peer| Frame { peer: PeerId(peer), header: &h, payload: &[] };
    assert_eq!(links[0].0.send(&[frame(1)]), 1);
    assert_eq!(links[1].0.send(&[frame(0)]), 1, "a dead host's frames are swallowed");
    while net.borrow_mut().step() != Step::Idle {}
    assert_eq!(net.borrow().counters().host_dead, 1);
    assert_eq!(net.borrow().counters().sent, 1);
    assert_eq!(links[0].0.poll_event(), Some(LinkEvent::PeerGone(PeerId(1))));
    assert_eq!(links[0].0.poll_event(), None);
}

#[test]
fn connect__unknown_address_is_named() {
    let net = Network::shared(SimConfig::new(2, 1));
    let mut link = SimLink::new(&net, 0, &SimClock::new());
    let error = link.connect(&info(&net, 0, 2)).unwrap_err().to_string();
    assert!(error.contains("host 2 is not among the 2"), "{error}");
}

/// A host that echoes: keeps received numbers and lets its future send.
struct Plain {
    link: Rc<RefCell<SimLink>>,
    inbox: Rc<RefCell<Kept>>,
    waker: Rc<RefCell<Option<std::task::Waker>>>,
}

impl Host for Plain {
    fn progress(&mut self) -> bool {
        let did = self.link.borrow_mut().recv(64, &mut *self.inbox.borrow_mut()) > 0;
        if did {
            self.waker.borrow_mut().take().into_iter().for_each(std::task::Waker::wake);
        }
        did
    }

    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    fn describe(&self) -> String {
        format!("{} frames unread", self.inbox.borrow().0.len())
    }
}

/// Sends to the next host `rounds` times, each time after the previous host's number came.
fn ring(env: &HostEnv, hosts: u32, rounds: u32) -> (Plain, Task) {
    let mut link = SimLink::new(&env.net, env.host, &env.clock);
    let next = (env.host + 1) % hosts;
    link.connect(&info(&env.net, 0, next)).unwrap();
    let link = Rc::new(RefCell::new(link));
    let (inbox, waker) = <(Rc<RefCell<Kept>>, Rc<RefCell<Option<std::task::Waker>>>)>::default();
    let host = Plain { link: Rc::clone(&link), inbox: Rc::clone(&inbox), waker: Rc::clone(&waker) };
    let first = env.host == 0;
    let task = async move {
        for round in 0..rounds {
            let h = header(round);
            let frame = Frame { peer: PeerId(0), header: &h, payload: &[] };
            if first {
                link.borrow_mut().send(&[frame]);
            }
            std::future::poll_fn(|cx| {
                if inbox.borrow_mut().0.pop().is_some() {
                    return std::task::Poll::Ready(());
                }
                *waker.borrow_mut() = Some(cx.waker().clone());
                std::task::Poll::Pending
            })
            .await;
            if !first {
                link.borrow_mut().send(&[frame]);
            }
        }
    };
    (host, Box::pin(task))
}

fn run_ring(
    config: SimConfig,
    rounds: u32,
) -> (Result<weft_sim::runner::Outcome, RunError>, SharedNetwork) {
    let hosts = config.hosts;
    let net = Network::shared(config);
    let mut runner = Runner::new(&net);
    for host in 0..hosts {
        runner.spawn(host, Box::new(move |env| ring(env, hosts, rounds)));
    }
    (runner.run(), net)
}

#[test]
fn run__token_goes_round() {
    let outcome = run_ring(SimConfig::new(5, 1), 10).0.unwrap();
    assert_eq!(outcome.counters.sent, 50);
    assert_eq!(outcome.late_timers, 0);
    let hop = outcome.at / 50;
    assert!((4_000..6_000).contains(&hop), "{hop} ns a hop: two wires and the processors");
}

#[test]
fn run__lost_token_is_a_deadlock_that_names_the_hosts() {
    let fault = Fault::Loss { ppm: 1_000_000, span: Span { from: 100_000, until: u64::MAX } };
    let error = run_ring(SimConfig::new(3, 1).fault(fault), 1000).0.unwrap_err();
    let RunError::Deadlock { waiting, .. } = &error else { panic!("{error}") };
    assert_eq!(waiting.iter().map(|w| w.host).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(error.to_string().contains("host 2 since"), "{error}");
}

#[test]
fn run__pause_delays_and_loses_nothing() {
    let fault = Fault::Pause { host: 1, span: Span::ms(0, 70) };
    let outcome = run_ring(SimConfig::new(3, 1).fault(fault), 4).0.unwrap();
    assert!(outcome.at > 70_000_000 && outcome.at < 71_000_000, "{}", outcome.at);
}

#[test]
fn run__time_limit_stops() {
    let mut config = SimConfig::new(3, 1);
    config.limit_ns = 50_000;
    let error = run_ring(config, 1_000_000).0.unwrap_err();
    assert!(matches!(error, RunError::TimeLimit { .. }), "{error}");
}

#[test]
fn run__restart_begins_anew() {
    let net =
        Network::shared(SimConfig::new(2, 1).fault(Fault::Restart { host: 1, at: 3_000_000 }));
    let mut runner = Runner::new(&net);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&seen);
    runner.spawn(
        1,
        Box::new(move |env| {
            log.borrow_mut().push((env.incarnation, env.clock.now().0));
            let (host, _) = ring(env, 2, 0);
            (host, Box::pin(async {}))
        }),
    );
    let outcome = runner.run().unwrap();
    assert_eq!(*seen.borrow(), [(0, 0), (1, 3_000_000)]);
    assert_eq!(outcome.died, []);
}

#[test]
fn run__trace_has_all_events() {
    let mut config = SimConfig::new(2, 1);
    config.trace = 100;
    let (outcome, net) = run_ring(config, 2);
    outcome.unwrap();
    let fates: Vec<_> = net.borrow().trace().events().map(|e| e.fate.word()).collect();
    assert_eq!(fates, ["send", "arrive"].repeat(4));
}

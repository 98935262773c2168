//! The packet interface over each link, in one process.
#![allow(non_snake_case)]

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use weft::choices::{NoAgent, Place, Receipt, Server, Transfer, Tree};
use weft::endpoint::ChoiceError;
use weft::{Address, Choices, Clock, Config, Endpoint, EndpointId, OpError, PeerId, Reliability};
use weft_link::rng::Rng;
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::wrap::{FaultSpec, Wrappers};
use weft_link::{Link, ShmConfig, ShmLink, UdpConfig, UdpLink};
use weft_packets::{wire, Counter, Exported, MulticastError, Packet, Packets, Settings};

fn udp_link(id: u64, faults: Option<FaultSpec>) -> Box<dyn Link> {
    let host = weft_link::shm::host().unwrap();
    let config = UdpConfig { host, faults, ..UdpConfig::default() };
    let job_key = JobKey::from_bytes(&[7; 32]).unwrap();
    let security = Security { mode: Mode::Auth, job_key, me: EndpointId(id) };
    let link: Box<dyn Link> = Box::new(UdpLink::new(config, security).unwrap());
    let clock = Clock::system();
    let around = Wrappers { faults, ..Wrappers::default() };
    let time: weft_link::wrap::Clock = Rc::new(move || clock.now());
    around.around(link, &time).unwrap()
}

/// Some endpoints that know each other: `peers[a][b]` is A's peer for B.
struct Hosts {
    name: &'static str,
    packets: Vec<Packets>,
    peers: Vec<Vec<PeerId>>,
}

/// Packets of a multicast on each edge of a tree.
const CREDIT: u32 = 6;

fn hosts(name: &'static str, count: usize, config: &Config) -> Hosts {
    let clock = Clock::system();
    let open = |rank: usize| {
        let id = weft_link::random_u64();
        let faults = "loss=1%,dup=0.5%,reorder=1%,corrupt=0.1%,seed=7".parse().unwrap();
        let link: Box<dyn Link> = match name {
            "shm" => Box::new(ShmLink::new(ShmConfig::new(EndpointId(id))).unwrap()),
            "udp" => udp_link(id, None),
            _ => udp_link(id, Some(faults)),
        };
        let mut config = Config { rank: u32::try_from(rank).ok(), ..config.clone() };
        if name == "gbn" {
            config.reliability = Reliability::GoBackN;
        }
        Endpoint::with_links(config, EndpointId(id), clock.clone(), vec![link])
    };
    let endpoints: Vec<Endpoint> = (0..count).map(open).collect();
    let peer = |a: &Endpoint, b: usize| {
        if a.address().endpoint == endpoints[b].address().endpoint {
            return PeerId(u32::MAX);
        }
        a.connect(&endpoints[b].address()).unwrap()
    };
    let peers = endpoints.iter().map(|a| (0..count).map(|b| peer(a, b)).collect()).collect();
    // Little credit, so that multicasts use it up.
    let settings = Settings { multicast_credit: CREDIT, ..Settings::default() };
    let open = |e: &Endpoint| Packets::with_settings(e, &settings).unwrap();
    let packets = endpoints.iter().map(open).collect();
    Hosts { name, packets, peers }
}

/// Every link, and UDP with faults under both kinds of retransmission.
const LINKS: [&str; 4] = ["shm", "udp", "selective", "gbn"];

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

impl Hosts {
    /// Makes progress everywhere until `done`.
    fn until(&self, done: impl FnMut() -> bool) {
        self.run(Vec::new(), done);
    }

    /// Runs tasks to their end and until `done`.
    fn run(&self, mut tasks: Vec<Task<'_>>, mut done: impl FnMut() -> bool) {
        let start = std::time::Instant::now();
        let mut cx = Context::from_waker(Waker::noop());
        while !tasks.is_empty() || !done() {
            tasks.retain_mut(|task| task.as_mut().poll(&mut cx) == Poll::Pending);
            self.packets.iter().for_each(|p| _ = p.poll());
            assert!(start.elapsed().as_secs() < 300, "{}: stuck", self.name);
        }
    }
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31).wrapping_add(seed * 7 + (i >> 8))) as u8).collect()
}

#[test]
fn send__in_order_whole_and_from_send_buffers_over_every_link() {
    for name in LINKS {
        let h = hosts(name, 2, &Config::default());
        let got = Rc::new(Cell::new(0u32));
        let heard = Rc::clone(&got);
        h.packets[1].handle(9, move |_, packet: Packet<'_>| {
            let n = packet.argument();
            assert_eq!(n, heard.get());
            assert!(packet.data() == bytes(n.into(), n as usize % 1000), "packet {n}");
            heard.set(n + 1);
        });
        let to = h.peers[0][1];
        for n in 0..3000u32 {
            let data = bytes(n.into(), n as usize % 1000);
            loop {
                let sent = if n % 2 == 0 {
                    h.packets[0].try_send(to, 9, n, &data)
                } else {
                    let mut buffer = h.packets[0].alloc(data.len());
                    buffer.copy_from_slice(&data);
                    h.packets[0].send_buffer(to, 9, n, buffer)
                };
                match sent {
                    Ok(()) => break,
                    Err(OpError::Busy) => h.packets.iter().for_each(|p| _ = p.poll()),
                    Err(error) => panic!("{name}: {error}"),
                }
            }
        }
        h.until(|| got.get() == 3000);
        let long = vec![0; h.packets[0].packet_max(to) + 1];
        assert_eq!(h.packets[0].try_send(to, 9, 0, &long), Err(OpError::Refused), "{name}");
    }
}

#[test]
fn counters__packets_sent_without_polls_are_counted() {
    let h = hosts("shm", 2, &Config::default());
    let (from, to) = (&h.packets[0], h.peers[0][1]);
    h.packets[1].handle(1, |_, _| {});
    from.send(to, 1, 0, &[0]).unwrap();
    h.until(|| h.packets[1].endpoint().stats().messages_received > 0);
    let job = format!("packets-{}", std::process::id());
    let who = weft::counters::RankId { job: job.clone(), rank: 0, size: 2 };
    from.endpoint().counters().publish(&who).unwrap();
    // The page is written once in an interval, so that the first packets may come too early for it.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let mut shown = 0;
    while shown <= 60 && std::time::Instant::now() < end {
        for n in 0..100 {
            let mut buffer = from.alloc(1);
            buffer[0] = 2;
            match n % 3 {
                0 => from.send(to, 1, n, &[2]).unwrap(),
                1 => from.gather(to, 1, n, &[2].into(), 0..1).unwrap(),
                _ => from.send_buffer(to, 1, n, buffer).unwrap(),
            }
        }
        _ = h.packets[1].poll();
        let all = weft::counters::scan().unwrap();
        shown = all.iter().find(|s| s.job == job).unwrap().get("packets_sent");
    }
    assert!(shown > 60, "{shown}");
}

#[test]
fn send__gathered_from_user_memory_is_free_when_it_returns() {
    // The receiver has to run meanwhile, so it has its own thread.
    for (name, faults) in [("udp", false), ("faulty", true)] {
        let (to_main, from_peer) = std::sync::mpsc::channel();
        let (to_peer, from_main) = std::sync::mpsc::channel();
        let config = Config { transfer: Transfer::Gather, ..Config::default() };
        let faults = faults.then(|| "loss=2%,seed=3".parse().unwrap());
        let open = move |id| {
            let links = vec![udp_link(id, faults)];
            Endpoint::with_links(config.clone(), EndpointId(id), Clock::system(), links)
        };
        let opened = open.clone();
        let thread = std::thread::spawn(move || {
            let endpoint = opened(weft_link::random_u64());
            to_main.send(endpoint.address()).unwrap();
            endpoint.connect(&from_main.recv().unwrap()).unwrap();
            let packets = Packets::new(&endpoint).unwrap();
            let got = Rc::new(Cell::new(0u32));
            let heard = Rc::clone(&got);
            packets.handle(0, move |_, packet| {
                assert_eq!(packet.argument(), heard.get());
                assert!(packet.data() == bytes(heard.get().into(), 1200));
                heard.set(heard.get() + 1);
            });
            while got.get() < 500 {
                packets.wait(Some(std::time::Duration::from_millis(100)));
            }
            endpoint.close(std::time::Duration::from_secs(5));
        });
        let endpoint = open(weft_link::random_u64());
        to_peer.send(endpoint.address()).unwrap();
        let to = endpoint.connect(&from_peer.recv().unwrap()).unwrap();
        let packets = Packets::new(&endpoint).unwrap();
        let mut data = vec![0; 1200];
        for n in 0..500 {
            data.copy_from_slice(&bytes(n.into(), 1200));
            packets.send(to, 0, n, &data).unwrap_or_else(|e| panic!("{name}: {e}"));
            data.fill(0xee);
        }
        endpoint.close(std::time::Duration::from_secs(5));
        thread.join().unwrap();
    }
}

#[test]
fn receive__in_order_from_mailboxes_beside_upcalls_over_every_link() {
    for name in LINKS {
        let h = hosts(name, 3, &Config::default());
        let (receiver, upcalls) = (&h.packets[0], Rc::new(Cell::new(0u32)));
        receiver.mailbox(3);
        let note = Rc::clone(&upcalls);
        receiver.handle(4, move |_, _| note.set(note.get() + 1));
        let mut buffer = vec![0; 2000];
        assert_eq!(receiver.try_receive(None, 3, &mut buffer), None);
        let refused = receiver.receive(None, 4, &mut buffer);
        assert_eq!(refused, Err(OpError::Refused), "{name}: not a mailbox");
        let send = |rank: usize| {
            let (packets, to) = (h.packets[rank].clone(), h.peers[rank][0]);
            Box::pin(async move {
                for n in 0..200u32 {
                    let data = bytes(n.into(), n as usize * 7 % 1200);
                    packets.send_async(to, 3, n, &data).await.unwrap();
                    packets.send_async(to, 4, n, &data).await.unwrap();
                }
            }) as Task<'_>
        };
        let peers = [h.peers[0][1], h.peers[0][2]];
        let mut next = [0u32; 2];
        let mut tasks = vec![send(1), send(2)];
        let mut cx = Context::from_waker(Waker::noop());
        let start = std::time::Instant::now();
        while next != [200; 2] || upcalls.get() < 400 {
            tasks.retain_mut(|task| task.as_mut().poll(&mut cx) == Poll::Pending);
            h.packets.iter().for_each(|p| _ = p.poll());
            // Receive from one peer, then from any peer.
            for from in [Some(peers[1]), None] {
                let Some(got) = receiver.try_receive(from, 3, &mut buffer) else { continue };
                let got = got.unwrap();
                let who = peers.iter().position(|p| *p == got.source).unwrap();
                assert!(from.is_none_or(|from| from == got.source));
                assert_eq!(got.argument, next[who], "{name}");
                let sent = bytes(next[who].into(), next[who] as usize * 7 % 1200);
                assert!(buffer[..got.len] == sent, "{name}: packet {}", next[who]);
                next[who] += 1;
            }
            assert!(start.elapsed().as_secs() < 300, "{name}: stuck at {next:?}");
        }
    }
}

#[test]
fn receive__waits_for_the_packet_itself_and_names_a_peer_that_ended() {
    // Opens an endpoint with packets, and meets the other one.
    let meet = |to: Sender<Address>, from: Receiver<Address>| {
        let id = EndpointId(weft_link::random_u64());
        let links: Vec<Box<dyn Link>> = vec![Box::new(ShmLink::new(ShmConfig::new(id)).unwrap())];
        let endpoint = Endpoint::with_links(Config::default(), id, Clock::system(), links);
        let packets = Packets::new(&endpoint).unwrap();
        packets.mailbox(1);
        to.send(endpoint.address()).unwrap();
        let peer = endpoint.connect(&from.recv().unwrap()).unwrap();
        (endpoint, packets, peer)
    };
    let (tell, told) = channel();
    let (tell_back, told_back) = channel();
    let thread = std::thread::spawn(move || {
        let (endpoint, packets, to) = meet(tell, told_back);
        let mut buffer = [0; 64];
        for n in 0..2_000u32 {
            let got = packets.receive(Some(to), 1, &mut buffer).unwrap();
            assert_eq!((got.argument, got.len), (n, 16));
            packets.send(to, 1, n, &buffer[..got.len]).unwrap();
        }
        endpoint.close(std::time::Duration::from_secs(5));
    });
    let (_endpoint, packets, to) = meet(tell_back, told);
    let mut buffer = [0; 16];
    for n in 0..2_000u32 {
        packets.send(to, 1, n, &[n as u8; 16]).unwrap();
        let got = packets.receive(Some(to), 1, &mut buffer).unwrap();
        assert_eq!((got.source, got.argument, buffer), (to, n, [n as u8; 16]));
    }
    let after = packets.receive(Some(to), 1, &mut buffer);
    assert!(matches!(after, Err(OpError::Peer { .. })), "{after:?}");
    thread.join().unwrap();
}

#[test]
fn receive__what_is_longer_than_the_buffer_is_lost_and_an_upcall_may_not_wait() {
    let h = hosts("shm", 2, &Config::default());
    let (a, b) = (&h.packets[0], &h.packets[1]);
    b.mailbox(1);
    let asked = Rc::new(Cell::new(None));
    let note = Rc::clone(&asked);
    b.handle(2, move |packets, _| note.set(Some(packets.receive(None, 1, &mut [0; 8]))));
    for (handler, len) in [(1, 100), (1, 5), (2, 0)] {
        a.try_send(h.peers[0][1], handler, 0, &vec![7; len]).unwrap();
    }
    h.until(|| asked.get().is_some());
    assert_eq!(asked.get(), Some(Err(OpError::Refused)));
    let mut buffer = [0; 8];
    let long = b.try_receive(None, 1, &mut buffer).unwrap();
    assert_eq!(long, Err(OpError::Truncated { sent: 100 }));
    assert_eq!(b.try_receive(None, 1, &mut buffer).unwrap().unwrap().len, 5);
}

#[test]
fn upcall__may_answer_and_is_not_entered_twice() {
    for name in LINKS {
        let h = hosts(name, 2, &Config::default());
        let inside = Rc::new(Cell::new(false));
        h.packets[1].handle(1, move |packets, packet| {
            assert!(!inside.replace(true), "entered twice");
            packets.poll();
            packets.try_send(packet.source(), 2, packet.argument() + 1, packet.data()).unwrap();
            inside.set(false);
        });
        let got = Rc::new(Cell::new(0));
        let heard = Rc::clone(&got);
        h.packets[0].handle(2, move |_, packet| {
            assert_eq!(packet.data(), [5; 16]);
            heard.set(heard.get() + packet.argument());
        });
        for n in 0..100 {
            h.packets[0].try_send(h.peers[0][1], 1, n, &[5; 16]).unwrap();
        }
        h.until(|| got.get() == 5050);
    }
}

#[test]
fn keep__holds_credit_until_released() {
    let config = Config { eager_credit: 128 << 10, ..Config::default() };
    let h = hosts("shm", 2, &config);
    let kept: Rc<RefCell<Vec<_>>> = Rc::default();
    let keep = Rc::clone(&kept);
    h.packets[1].handle(0, move |_, packet| {
        if let Ok(packet) = packet.keep() {
            keep.borrow_mut().push(packet);
        }
    });
    let to = h.peers[0][1];
    // The first opens the session.
    h.packets[0].try_send(to, 0, 0, &[0; 4096]).unwrap();
    h.until(|| kept.borrow().len() == 1);
    let mut sent = 1;
    for _ in 0..200 {
        sent += u32::from(h.packets[0].try_send(to, 0, sent, &[0; 4096]).is_ok());
        h.packets.iter().for_each(|p| _ = p.poll());
    }
    // Half of the credit in bytes is the bound; packets beyond it are released at once.
    assert_eq!(kept.borrow().len(), 16);
    assert!(h.packets[1].stats().keeps_refused > 0);
    kept.borrow_mut().clear();
    h.until(|| h.packets[1].stats().upcalls == u64::from(sent));
}

#[test]
fn multicast__every_tree_over_every_link() {
    for name in LINKS {
        let h = hosts(name, 5, &Config::default());
        let got: Vec<Rc<Cell<u32>>> = (0..5).map(|_| Rc::default()).collect();
        let mut groups = Vec::new();
        for (rank, packets) in h.packets.iter().enumerate() {
            let heard = Rc::clone(&got[rank]);
            packets.handle(4, move |_, packet| {
                assert_eq!(packet.argument(), heard.get(), "at {rank}");
                assert!(packet.data() == bytes(heard.get().into(), 700));
                heard.set(heard.get() + 1);
            });
            groups.push(packets.group(1, h.peers[rank].clone(), rank).unwrap());
            assert!(packets.group(1, h.peers[rank].clone(), rank).is_none(), "taken");
        }
        let root = &groups[2];
        let send = async {
            for n in 0..120u32 {
                let tree = Tree::ALL[n as usize / 7 % 4];
                root.send_over(tree, 4, n, &bytes(n.into(), 700)).await.unwrap();
            }
        };
        let all = || got.iter().enumerate().all(|(rank, n)| rank == 2 || n.get() == 120);
        h.run(vec![Box::pin(send)], all);
        let too_long = vec![0; 70_000];
        assert_eq!(root.try_send(Tree::Flat, 4, 0, &too_long), Err(MulticastError::TooLong));
    }
}

/// Members end a group while a packet of it is on its way. Generations come again after 256 groups.
#[test]
fn group_again__gets_no_packet_of_the_groups_before_under_its_number() {
    for name in LINKS {
        let h = hosts(name, 3, &Config::default());
        let got: Vec<Rc<RefCell<Vec<u32>>>> = (0..3).map(|_| Rc::default()).collect();
        for (packets, got) in h.packets.iter().zip(&got) {
            let got = Rc::clone(got);
            packets.handle(4, move |_, packet| got.borrow_mut().push(packet.argument()));
        }
        for round in 0..300u32 {
            let make = |(rank, packets): (usize, &Packets)| {
                packets.group_again(1, round as u8, h.peers[rank].clone(), rank).unwrap()
            };
            let groups: Vec<_> = h.packets.iter().enumerate().map(make).collect();
            h.until(|| groups[0].try_send(Tree::Binary, 4, 2 * round, &[0; 500]).is_ok());
            h.until(|| got[1..].iter().all(|got| got.borrow().last() == Some(&(2 * round))));
            groups[0].try_send(Tree::Binary, 4, 2 * round + 1, &[0; 500]).unwrap();
            groups.iter().for_each(|group| group.end());
        }
        for got in &got[1..] {
            let come = got.borrow().iter().copied().filter(|number| number % 2 == 0).count();
            assert_eq!(come, 300, "{name}");
        }
    }
}

#[test]
fn multicast__waits_in_mailboxes_and_holds_the_credit_of_the_group() {
    for name in LINKS {
        let h = hosts(name, 3, &Config::default());
        let join = |(rank, p): (usize, &Packets)| p.group(1, h.peers[rank].clone(), rank).unwrap();
        let groups: Vec<_> = h.packets.iter().enumerate().map(join).collect();
        h.packets.iter().skip(1).for_each(|packets| packets.mailbox(4));
        let mut sent = 0;
        h.until(|| {
            let data = bytes(sent.into(), 500);
            sent += u32::from(groups[0].try_send(Tree::Flat, 4, sent, &data).is_ok());
            h.packets.iter().for_each(|packets| _ = packets.poll());
            sent == CREDIT
        });
        let more = || groups[0].try_send(Tree::Flat, 4, sent, &bytes(sent.into(), 500));
        (0..100).for_each(|_| h.packets.iter().for_each(|packets| _ = packets.poll()));
        assert!(more().is_err(), "{name}: the mailboxes hold the credit");
        let mut buffer = [0; 500];
        for n in 0..sent {
            for packets in h.packets.iter().skip(1) {
                let mut got = None;
                h.until(|| {
                    got = packets.try_receive(None, 4, &mut buffer);
                    got.is_some()
                });
                let got = got.unwrap().unwrap();
                assert_eq!((got.argument, got.len), (n, 500), "{name}");
                assert!(buffer[..] == bytes(n.into(), 500));
            }
        }
        h.until(|| more().is_ok());
    }
}

/// Runs three members of a group, of which one falls silent and one expects packets of the first
/// member. Returns the failures that the others see in the end.
fn missed(goes: usize) -> Vec<MulticastError> {
    let soon = Config { peer_timeout_ms: 800, keepalive_ms: 50, ..Config::default() };
    let mut h = hosts("udp", 3, &soon);
    let join = |(rank, p): (usize, &Packets)| p.group(1, h.peers[rank].clone(), rank).unwrap();
    let mut groups: Vec<_> = h.packets.iter().enumerate().map(join).collect();
    let (first, second) = ((goes + 1) % 3, (goes + 2) % 3);
    let expecting = groups[first].expect(0).unwrap();
    // Two declarations, of which one ends.
    drop(groups[first].expect(0).unwrap());
    h.packets[goes].poll();
    let left = [groups[first].clone(), groups[second].clone()];
    h.packets.remove(goes);
    groups.clear();
    h.until(|| left.iter().all(|group| group.failed().is_some()));
    drop(expecting);
    left.iter().filter_map(|group| group.failed()).collect()
}

#[test]
fn expect__a_root_that_is_silent_ends_the_group_although_nothing_was_sent_to_it() {
    let told = missed(0);
    for error in told {
        assert!(matches!(error, MulticastError::Member { rank: 0, .. }), "{error:?}");
    }
}

#[test]
fn expect__what_is_on_the_way_from_the_root_is_noticed_too() {
    // In a chain, member 2 is below member 1.
    let told = missed(1);
    for error in told {
        assert!(matches!(error, MulticastError::Member { rank: 1, .. }), "{error:?}");
    }
}

#[test]
fn expect__one_that_leaves_in_good_order_is_not_missed() {
    let h = hosts("udp", 2, &Config::default());
    let group = h.packets[1].group(1, h.peers[1].clone(), 1).unwrap();
    let before = group.expect(0).unwrap();
    h.packets[1].mailbox(1);
    h.packets[0].try_send(h.peers[0][1], 1, 0, b"x").unwrap();
    h.until(|| h.packets[1].try_receive(None, 1, &mut [0; 1]).is_some());
    // No other endpoint makes progress meanwhile.
    h.packets[0].endpoint().close(Duration::from_millis(20));
    h.until(|| h.packets[1].endpoint().peer(h.peers[1][0]).failure().is_some());
    let after = group.expect(0).unwrap();
    drop((before, after));
    assert_eq!(group.failed(), None);
}

#[test]
fn fetch_add__counts_each_once_over_every_link() {
    for name in LINKS {
        let h = hosts(name, 3, &Config::default());
        let counter = h.packets[0].counter(5).unwrap();
        let adding = |rank: usize| {
            let (packets, at) = (h.packets[rank].clone(), h.peers[rank][0]);
            Box::pin(async move {
                for _ in 0..50 {
                    packets.fetch_add(at, counter, 2).await.unwrap();
                }
            }) as Task<'_>
        };
        h.run(vec![adding(1), adding(2)], || true);
        assert_eq!(h.packets[0].counter_value(counter), Some(205), "{name}");
        let wrong = Counter { key: counter.key ^ 1 };
        let refused = async {
            let got = h.packets[1].fetch_add(h.peers[1][0], wrong, 1).await;
            assert_eq!(got, Err(OpError::Refused));
        };
        h.run(vec![Box::pin(refused)], || true);
    }
}

#[test]
fn rcpy__misses_then_hits_then_is_forgotten() {
    for name in LINKS {
        let h = hosts(name, 2, &Config::default());
        let len = 500_000;
        let memory = h.packets[1].exports().make(len).unwrap();
        let (sender, to) = (&h.packets[0], h.peers[0][1]);
        let copying = async {
            for round in 0..3u64 {
                let data = bytes(round, len - 7);
                sender.rcpy_async(to, memory.key, 7, &data).await.unwrap();
                let mut got = vec![0; data.len()];
                assert!(h.packets[1].exports().read(memory, 7, &mut got));
                assert!(got == data, "{name}: round {round}");
            }
            let stats = sender.stats();
            assert_eq!((stats.rcpy_misses, stats.rcpy_hits), (8, 16), "{name}");
            let beyond = sender.rcpy_async(to, memory.key, len as u64 - 1, &[1, 2]).await;
            assert_eq!(beyond, Err(OpError::Refused), "{name}");
        };
        h.run(vec![Box::pin(copying)], || true);
        let ending = async {
            assert_eq!(h.packets[1].exports().end(memory).await.map(|v| v.len()), Some(len));
            assert_eq!(sender.stats().rcpy_invalidations, 8, "{name}");
            let gone = sender.rcpy_async(to, memory.key, 0, &[1]).await;
            assert_eq!(gone, Err(OpError::Refused), "{name}");
        };
        h.run(vec![Box::pin(ending)], || true);
    }
}

#[test]
fn rcpy__beyond_the_last_offset_is_refused() {
    let h = hosts("shm", 2, &Config::default());
    let memory = h.packets[1].exports().make(1000).unwrap();
    let data = vec![7; 200_000];
    for offset in [u64::MAX, u64::MAX - 4096] {
        let refused = h.packets[0].rcpy(h.peers[0][1], memory.key, offset, &data);
        assert_eq!(refused, Err(OpError::Refused));
    }
    let mut kept = [1; 1000];
    assert!(h.packets[1].exports().read(memory, 0, &mut kept) && kept == [0; 1000]);
}

#[test]
fn rcpy__into_memory_of_which_each_export_is_mapped_anew() {
    const LEN: usize = 300_000;
    let hosts = hosts("shm", 2, &Config::default());
    let (a, b, to) = (&hosts.packets[0], &hosts.packets[1], hosts.peers[0][1]);
    let mapped = || {
        let counters = a.endpoint().counters().links();
        counters.iter().find(|c| c.1 == "shm_mapped").map_or(0, |c| c.2)
    };
    for round in 0..20 {
        // New memory usually gets the address of the freed memory.
        let memory = b.exports().make(LEN).unwrap();
        for n in 0..4 {
            let data = bytes(round * 10 + n, LEN);
            let copy = Box::pin(async { a.rcpy_async(to, memory.key, 0, &data).await.unwrap() });
            hosts.run(vec![copy as Task<'_>], || true);
            let mut got = vec![0; LEN];
            assert!(b.exports().read(memory, 0, &mut got) && got == data, "{round} {n}");
        }
        let before = mapped();
        let back = Cell::new(None);
        let end = Box::pin(async { back.set(b.exports().end(memory).await) });
        hosts.run(vec![end as Task<'_>], || true);
        assert!(back.take().is_some_and(|vec| vec == bytes(round * 10 + 3, LEN)));
        assert!(before > 0, "nothing was written without the kernel");
    }
    assert!(mapped() >= 20, "{} writes", mapped());
}

#[test]
fn hostile__headers_of_a_member_break_nothing() {
    let h = hosts("shm", 3, &Config::default());
    for (rank, packets) in h.packets.iter().enumerate() {
        packets.handle(0, |_, _| {});
        packets.group(1, h.peers[rank].clone(), rank).unwrap();
    }
    let memory = h.packets[1].exports().make(100_000).unwrap();
    let to = h.peers[0][1];
    for seed in 0..20_000u64 {
        let mut rng = Rng::new(seed);
        let kind = rng.below(12) as u32;
        let mut data = vec![0; rng.below(60) as usize];
        rng.fill(&mut data);
        // Small numbers pass more checks, so they reach more code.
        for byte in &mut data {
            if rng.below(3) > 0 {
                *byte &= 3;
            }
        }
        if rng.below(4) == 0 && data.len() >= 8 {
            data[..8].copy_from_slice(&memory.key.to_le_bytes());
        }
        let number = kind << 16 | rng.below(3) as u32;
        let argument = rng.next_u64() as u32;
        while h.packets[0].port().try_send(to, number, argument, &data).is_err() {
            h.until(|| true);
        }
        if seed % 16 == 0 {
            h.packets.iter().for_each(|p| _ = p.poll());
        }
    }
    let got = Rc::new(Cell::new(false));
    let heard = Rc::clone(&got);
    h.packets[1].handle(7, move |_, _| heard.set(true));
    h.packets[0].try_send(to, 7, 0, &[]).unwrap();
    h.until(|| got.get());
    assert!(h.packets[1].stats().malformed > 0);
    assert_eq!(wire::parse_number(1 << 22), None);
}

/// Runs two hosts over UDP that trust the network. Returns how many of 3000 packets came, and the
/// error, if any.
fn trusting(name: &'static str) -> (u32, Option<OpError>) {
    let (reliability, eager_credit) = (Reliability::None, 32 << 10);
    let h = hosts(name, 2, &Config { reliability, eager_credit, ..Config::default() });
    let got = Rc::new(Cell::new(0));
    let heard = Rc::clone(&got);
    h.packets[1].handle(4, move |_, packet| {
        assert_eq!(packet.argument(), heard.get());
        heard.set(heard.get() + 1);
    });
    let (from, to, back) = (&h.packets[0], h.peers[0][1], h.peers[1][0]);
    let ended = || h.packets[1].endpoint().peer(back).failure().is_some();
    let mut error = None;
    for n in 0..3000u32 {
        error = loop {
            match from.try_send(to, 4, n, &bytes(1, 200)) {
                Err(OpError::Busy) => h.packets.iter().for_each(|p| _ = p.poll()),
                other => break other.err(),
            }
        };
        if error.is_some() {
            break;
        }
    }
    h.until(|| got.get() == 3000 || ended() || from.endpoint().peer(to).failure().is_some());
    for packets in &h.packets {
        let stats = packets.endpoint().stats();
        assert_eq!((stats.retransmitted, stats.held, stats.timeouts), (0, 0, 0));
    }
    let failure = from.endpoint().peer(to).failure();
    (got.get(), error.or(failure.map(|failure| OpError::Peer { peer: to, failure })))
}

#[test]
fn reliability_none__a_network_that_keeps_its_promise_and_one_that_does_not() {
    assert_eq!(trusting("udp"), (3000, None));
    let (got, error) = trusting("lossy");
    assert!(got < 3000, "{got} came although some were lost, and nothing is sent again");
    assert!(error.is_none_or(|e| matches!(e, OpError::Peer { .. })), "{error:?}");
}

#[test]
fn choose__one_peer_before_the_session_begins() {
    let h = hosts("udp", 2, &Config::default());
    let choices = Choices { mtu: 1024, reliability: Reliability::GoBackN, ..Choices::default() };
    let to = h.peers[0][1];
    h.packets[0].endpoint().peer(to).choose(&choices).unwrap();
    assert_eq!(h.packets[0].packet_max(to), 1024 - 32);
    let got = Rc::new(Cell::new(false));
    let heard = Rc::clone(&got);
    h.packets[1].handle(0, move |_, packet| heard.set(packet.data() == [1; 992]));
    h.packets[0].try_send(to, 0, 0, &[1; 992]).unwrap();
    h.until(|| got.get());
    let other = Choices { mtu: 2048, ..choices };
    assert_eq!(h.packets[0].endpoint().peer(to).choose(&other), Err(ChoiceError::Begun));
    assert_eq!(h.packets[0].endpoint().peer(to).choose(&choices), Ok(()), "as it is");
    let agent = Choices { reliability: Reliability::Agent, ..choices };
    let refused = h.packets[0].endpoint().peer(to).choose(&agent).unwrap_err();
    assert_eq!(refused, ChoiceError::NoAgent(NoAgent { setting: "reliability", value: "agent" }));
}

#[test]
fn choose__one_part_after_the_other() {
    let h = hosts("udp", 2, &Config { mtu: 4096, ..Config::default() });
    let (packets, to) = (&h.packets[0], h.peers[0][1]);
    let before = packets.endpoint().peer(to).choices().unwrap();
    assert_eq!(before, packets.endpoint().choices());
    packets
        .endpoint()
        .peer(to)
        .choose(&Choices { reliability: Reliability::GoBackN, ..before })
        .unwrap();
    packets
        .endpoint()
        .peer(to)
        .choose(&Choices { mtu: 1024, ..packets.endpoint().peer(to).choices().unwrap() })
        .unwrap();
    let chosen = packets.endpoint().peer(to).choices().unwrap();
    assert_eq!((chosen.reliability, chosen.mtu), (Reliability::GoBackN, 1024));
    assert_eq!(packets.endpoint().choices(), before, "others are chosen for as before");
    assert_eq!(packets.endpoint().peer(PeerId(77)).choices(), None);
}

#[test]
fn choose__what_holds_for_a_job_is_not_taken_for_a_peer() {
    let h = hosts("shm", 2, &Config::default());
    let (packets, to, job) = (&h.packets[0], h.peers[0][1], Choices::default());
    for (choices, setting) in [
        (Choices { tree: Tree::Flat, ..job }, "tree"),
        (Choices { receipt: Receipt::Polling, ..job }, "receipt"),
        (Choices { multicast: Place::Agent, ..job }, "multicast"),
    ] {
        let refused = packets.endpoint().peer(to).choose(&choices).unwrap_err();
        assert_eq!(refused, ChoiceError::NotForPeer { setting });
        let said = refused.to_string();
        assert!(said.contains(&format!("WEFT_{}", setting.to_uppercase())), "{said}");
    }
}

impl Hosts {
    /// Chooses a transfer at `a` for `b`; other choices stay.
    fn transfer(&self, a: usize, b: usize, transfer: Transfer) {
        let (packets, peer) = (&self.packets[a], self.peers[a][b]);
        let before = packets.endpoint().peer(peer).choices().unwrap();
        packets.endpoint().peer(peer).choose(&Choices { transfer, ..before }).unwrap();
        assert_eq!(
            packets.endpoint().peer(peer).choices().unwrap(),
            Choices { transfer, ..before }
        );
    }

    /// Returns the bytes that two hosts have copied directly.
    fn copied(&self, a: usize, b: usize) -> usize {
        let copied = |i: usize| self.packets[i].endpoint().stats().direct_bytes;
        (copied(a) + copied(b)) as usize
    }

    /// Sends a message from `a` to `b`. Returns if its buffer was free at once, and how many of its
    /// bytes were copied directly.
    fn message(&self, a: usize, b: usize, len: usize) -> (bool, usize) {
        let [from, to] = [a, b].map(|i| self.packets[i].endpoint());
        let before = self.copied(a, b);
        let data = bytes(len as u64, len);
        let send = from.send(self.peers[a][b], 5, data.clone());
        let free = send.is_done();
        let receive = async {
            let (status, got) = to.recv(Some(self.peers[b][a]), 5, 0, vec![0; len]).await;
            assert_eq!(status.unwrap().len, len);
            assert!(got == data);
        };
        let sent = async { assert!(send.await.0.is_ok()) };
        self.run(vec![Box::pin(receive), Box::pin(sent)], || true);
        (free, self.copied(a, b) - before)
    }
}

#[test]
fn choose__each_peer_in_memory_has_its_transfer() {
    let h = hosts("shm", 4, &Config::default());
    let len = 200_000;
    for (peer, transfer) in [(1, Transfer::Copy), (2, Transfer::Gather), (3, Transfer::Rcpy)] {
        h.transfer(0, peer, transfer);
    }
    h.transfer(3, 0, Transfer::Rcpy);
    // Only host 0 has chosen, for 1 and 2: `free` is true if its buffer is free at once, `direct`
    // counts bytes copied directly.
    for (peer, free, direct) in [(1, true, 0), (2, false, 0), (3, false, len)] {
        assert_eq!(h.message(0, peer, len), (free, direct), "to {peer}");
        assert_eq!(h.message(peer, 0, len).1, direct, "from {peer}");
    }
    // Direct copies begin at 4 KiB; other peers send as before.
    assert_eq!(h.message(0, 3, 5000).1, 5000);
    assert_eq!(h.message(0, 3, 4000).1, 0);
    assert_eq!(h.message(0, 1, 5000).1, 0);
    // Choices of two hosts do not change those of others.
    assert_eq!(h.message(1, 2, len).1, len);
    // A choice during the session holds for operations that begin later.
    h.transfer(0, 1, Transfer::Rcpy);
    h.transfer(1, 0, Transfer::Rcpy);
    assert_eq!(h.message(0, 1, len).1, len);
    h.transfer(0, 3, Transfer::Gather);
    assert_eq!(h.message(0, 3, len).1, 0);
    assert_eq!(h.message(0, 1, len).1, len, "it stays");
    assert_eq!(h.packets[0].endpoint().choices(), Choices::default());
}

#[test]
fn choose__a_peer_otherwise_than_the_job() {
    let config = Config {
        transfer: Transfer::Copy,
        inject_max: u32::MAX,
        direct_min: u32::MAX,
        ..Config::default()
    };
    let h = hosts("shm", 3, &config);
    for (a, b) in [(0, 2), (2, 0)] {
        h.transfer(a, b, Transfer::Rcpy);
    }
    assert_eq!(h.message(0, 1, 100_000), (true, 0));
    assert_eq!(h.message(0, 2, 100_000), (false, 100_000));
    h.transfer(0, 2, Transfer::Copy);
    assert_eq!(h.message(0, 2, 100_000), (true, 0), "as for all again");
}

#[test]
fn choose__each_peer_over_a_network_has_its_transfer() {
    let h = hosts("udp", 4, &Config::default());
    for (peer, transfer) in [(1, Transfer::Copy), (2, Transfer::Gather), (3, Transfer::Rcpy)] {
        h.transfer(0, peer, transfer);
        h.packets[peer].handle(1, |_, _| {});
    }
    // Buffers free at once: with copy all, with gather none, with rcpy those of short messages.
    for (len, free) in [(100_000, [true, false, false]), (100, [true, false, true])] {
        let got = [1, 2, 3].map(|peer| h.message(0, peer, len).0);
        assert_eq!(got, free, "{len} bytes");
    }
    // Packets are lent where gather is chosen for the peer, and copied where copy is.
    let memory: Rc<[u8]> = bytes(3, 1000).into();
    for (peer, lent) in [(1, 0), (2, 1)] {
        h.packets[0].gather(h.peers[0][peer], 1, 0, &memory, 0..1000).unwrap();
        assert_eq!((h.packets[0].lent(), Rc::strong_count(&memory)), (lent, lent + 1), "{peer}");
        h.until(|| h.packets[0].lent() == 0);
    }
    // With rcpy, an unexpected message of 4 KiB or more stays at its sender.
    let unexpected = |peer: usize| {
        let before = h.packets[peer].endpoint().stats().bytes_received;
        let send = h.packets[0].endpoint().send(h.peers[0][peer], 9, bytes(1, 8000));
        let there = || {
            let found = h.packets[peer].endpoint().probe(None, 9, 0);
            found.is_some_and(|status| status.len == 8000)
        };
        h.until(there);
        let came = h.packets[peer].endpoint().stats().bytes_received - before;
        let take = async {
            h.packets[peer].endpoint().recv(None, 9, 0, vec![0; 8000]).await.0.unwrap();
        };
        let sent = async { assert!(send.await.0.is_ok()) };
        h.run(vec![Box::pin(take), Box::pin(sent)], || true);
        came
    };
    let first = unexpected(1);
    assert!(first > 0, "a packet at least has come");
    assert_eq!(unexpected(3), 0);
}

/// Returns the configuration of a job with these settings.
fn job(set: &[(&str, &str)]) -> Config {
    let mut config = Config::default();
    set.iter().for_each(|(name, value)| config.set(name, value).unwrap());
    weft::choices::derive(&mut config, &|_| false);
    config
}

#[test]
fn exceptions__one_rank_has_another_transfer_by_the_settings_of_all() {
    let len = 100_000;
    let h = hosts("shm", 3, &job(&[("transfer", "rcpy,2=copy")]));
    for (a, b) in [(0, 1), (1, 0)] {
        assert_eq!(h.message(a, b, len), (false, len), "{a} to {b}");
    }
    for (a, b) in [(0, 2), (2, 0), (1, 2), (2, 1)] {
        assert_eq!(h.message(a, b, len), (true, 0), "{a} to {b}");
    }
    assert_eq!(h.packets[0].endpoint().choices().transfer, Transfer::Rcpy);
    // The reverse choice; a call still overrides it.
    let h = hosts("shm", 3, &job(&[("transfer", "copy,1-2=rcpy,2=copy")]));
    assert_eq!(h.message(0, 1, len), (false, len));
    assert_eq!(h.message(0, 2, len), (true, 0));
    assert_eq!(h.message(1, 2, len), (true, 0));
    h.transfer(0, 1, Transfer::Gather);
    assert_eq!(h.message(0, 1, len), (false, 0));
}

#[test]
fn exceptions__hold_for_a_peer_that_gives_its_rank() {
    let config = job(&[("reliability", "selective,0=none"), ("mtu", "0,1=600")]);
    let open = |rank: u32| {
        let id = weft_link::random_u64();
        let config = Config { rank: Some(rank), ..config.clone() };
        let links = vec![udp_link(id, None)];
        Packets::new(&Endpoint::with_links(config, EndpointId(id), Clock::system(), links)).unwrap()
    };
    let packets: Vec<Packets> = (0..3).map(open).collect();
    // Rank 2 learns of the others only by their HELLO.
    let h = Hosts { name: "udp", packets, peers: Vec::new() };
    let to = h.packets[2].endpoint();
    let mut before = 0;
    for (rank, wanted) in [(0, (Reliability::None, 0)), (1, (Reliability::Selective, 600))] {
        let from = &h.packets[rank];
        let peer = from.endpoint().connect(&to.address()).unwrap();
        let source = Cell::new(None);
        for n in 0..100 {
            let send = from.endpoint().send(peer, n, bytes(n, 4000));
            let receive = async {
                let (status, got) = to.recv(None, n, 0, vec![0; 4000]).await;
                assert!(got == bytes(n, 4000));
                source.set(status.unwrap().source);
            };
            let sent = async { assert!(send.await.0.is_ok()) };
            h.run(vec![Box::pin(receive), Box::pin(sent)], || true);
        }
        let theirs = h.packets[2].endpoint().peer(source.get().unwrap()).choices().unwrap();
        for chosen in [from.endpoint().peer(peer).choices().unwrap(), theirs] {
            assert_eq!((chosen.reliability, chosen.mtu), wanted, "rank {rank}");
        }
        let now = to.stats().packets_received;
        assert!(rank == 0 || now - before >= 700, "{} packets of 600 bytes", now - before);
        before = now;
    }
}

#[test]
fn choose__the_place_of_fetch_and_add_needs_an_agent_or_none() {
    let h = hosts("shm", 2, &Config::default());
    let own = h.packets[0].endpoint().connect(&h.packets[0].endpoint().address()).unwrap();
    let by_agent = |peer| {
        let choices = Choices { fetch_add: Server::Agent, ..Choices::default() };
        h.packets[0].endpoint().peer(peer).choose(&choices)
    };
    assert_eq!(by_agent(h.peers[0][1]), Err(ChoiceError::PastAgent));
    assert_eq!(
        by_agent(own),
        Err(ChoiceError::NoAgent(NoAgent { setting: "fetch_add", value: "agent" }))
    );
    assert_eq!(h.packets[0].counter_server(), Server::Host);
    // A rank does not know if a peer over a network has an agent.
    let h = hosts("udp", 2, &Config::default());
    let choices = Choices { fetch_add: Server::Agent, ..Choices::default() };
    assert_eq!(h.packets[0].endpoint().peer(h.peers[0][1]).choose(&choices), Ok(()));
    let counter = h.packets[1].counter(5).unwrap();
    let adding = async {
        assert_eq!(h.packets[0].fetch_add(h.peers[0][1], counter, 2).await, Ok(5));
    };
    h.run(vec![Box::pin(adding)], || true);
}

#[test]
fn unexport__what_is_not_exported_stays() {
    let h = hosts("shm", 2, &Config::default());
    let (packets, to) = (&h.packets[1], h.peers[0][1]);
    let counter = packets.counter(5).unwrap();
    for key in [counter.key, counter.key ^ 1] {
        assert!(!packets.exports().has(key));
        assert_eq!(packets.exports().end_blocking(Exported { key, len: 8 }), None);
    }
    let adding = async {
        assert_eq!(h.packets[0].fetch_add(to, counter, 2).await, Ok(5));
    };
    h.run(vec![Box::pin(adding)], || true);
    assert_eq!(packets.counter_value(counter), Some(7));
}

#[test]
fn end_counter__later_additions_are_refused() {
    let h = hosts("shm", 2, &Config::default());
    let (packets, to) = (&h.packets[1], h.peers[0][1]);
    let (counter, memory) = (packets.counter(5).unwrap(), packets.exports().make(100).unwrap());
    assert!(!packets.end_counter(Counter { key: memory.key }), "an export is none");
    assert!(packets.end_counter(counter) && !packets.end_counter(counter));
    let adding = async {
        assert_eq!(h.packets[0].fetch_add(to, counter, 2).await, Err(OpError::Refused));
        assert_eq!(h.packets[0].rcpy_async(to, memory.key, 0, &[1]).await, Ok(()));
    };
    h.run(vec![Box::pin(adding)], || true);
    assert_eq!(packets.counter_value(counter), None);
}

#[test]
fn new__an_agent_is_chosen_and_there_is_none() {
    let config = Config { multicast: Place::Agent, ..Config::default() };
    let id = weft_link::random_u64();
    let link: Box<dyn Link> = Box::new(ShmLink::new(ShmConfig::new(EndpointId(id))).unwrap());
    let endpoint = Endpoint::with_links(config, EndpointId(id), Clock::system(), vec![link]);
    let error = Packets::new(&endpoint).err().expect("refused").to_string();
    assert!(error.contains("no agent") && error.contains("WEFT_MULTICAST"), "{error}");
}

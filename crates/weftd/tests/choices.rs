//! The packet interface with services at the agent: multicast, fetch-and-add, reliability.
#![allow(non_snake_case)]

mod common;

use common::*;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use weft::choices::{Choices, Place, Server, Tree};
use weft::endpoint::ChoiceError;
use weft::{Clock, Config, Endpoint, EndpointId, OpError, PeerId, Reliability};
use weft_link::{Link, ShmConfig, ShmLink};
use weft_packets::{Counter, MulticastError, MulticastGroup, Packets};

fn by_agent() -> Config {
    Config {
        multicast: Place::Agent,
        fetch_add: Server::Agent,
        reliability: Reliability::Agent,
        ..Config::default()
    }
}

/// The packets that a member has received: argument and bytes.
type Heard = Rc<RefCell<Vec<(u32, Vec<u8>)>>>;

/// A member of group 3.
struct Member {
    rank: Rank,
    packets: Packets,
    group: MulticastGroup,
    heard: Heard,
}

const HANDLER: u16 = 4;

/// Returns one rank on each agent, all in group 3.
fn members(agents: &[Served], config: &Config) -> Vec<Member> {
    let ranks: Vec<Rank> =
        agents.iter().map(|a| a.try_rank_with(1, config.clone()).unwrap()).collect();
    let peers: Vec<Vec<PeerId>> = (0..ranks.len())
        .map(|me| {
            let peer = |(n, other): (usize, &Rank)| match n == me {
                true => PeerId(u32::MAX),
                false => ranks[me].connect(other),
            };
            ranks.iter().enumerate().map(peer).collect()
        })
        .collect();
    let join = |(me, (rank, peers)): (usize, (Rank, Vec<PeerId>))| {
        let packets = Packets::new(&rank.endpoint).unwrap();
        let heard = Heard::default();
        let note = Rc::clone(&heard);
        packets.handle(HANDLER, move |_, packet| {
            note.borrow_mut().push((packet.argument(), packet.data().to_vec()));
        });
        let group = packets.group(3, peers, me).unwrap();
        Member { rank, packets, group, heard }
    };
    ranks.into_iter().zip(peers).enumerate().map(join).collect()
}

fn all(members: &[Member]) -> Vec<&Rank> {
    members.iter().map(|m| &m.rank).collect()
}

/// Sends packets until agents forward them; returns their number.
fn go_over(members: &[Member], root: usize, tree: Tree) -> u32 {
    let ranks = all(members);
    let group = &members[root].group;
    let mut n = 0;
    until(&ranks, || {
        if group.try_send(tree, HANDLER, n, &n.to_le_bytes()).is_ok() {
            n += 1;
        }
        group.forwarded_by(tree) == Place::Agent
    });
    until(&ranks, || {
        members.iter().enumerate().all(|(m, it)| m == root || it.heard.borrow().len() as u32 == n)
    });
    n
}

/// Checks that a root's packets, from the first until agents forward and 300 more, all arrive once
/// and in order.
fn goes_over_in_order(members: &[Member], root: usize, tree: Tree) {
    let ranks = all(members);
    members.iter().for_each(|m| m.heard.borrow_mut().clear());
    let before = go_over(members, root, tree);
    // Packets use the trees in turn, one of them forwarded by ranks: the order is that of sending.
    let mut n = before;
    until(&ranks, || {
        let now = if n.is_multiple_of(3) { Tree::Flat } else { tree };
        match members[root].group.try_send(now, HANDLER, n, &vec![n as u8; 900]) {
            Ok(()) => n += 1,
            Err(MulticastError::Busy { .. }) => {}
            Err(e) => panic!("{e}"),
        }
        n == before + 300
    });
    for (m, member) in members.iter().enumerate().filter(|&(m, _)| m != root) {
        until(&ranks, || member.heard.borrow().len() as u32 == n);
        for (at, (argument, bytes)) in member.heard.borrow().iter().enumerate() {
            assert_eq!(*argument, at as u32, "member {m}");
            let long = vec![at as u8; 900];
            assert!(at < before as usize || *bytes == long, "packet {at} at member {m}");
        }
    }
    assert!(members[root].packets.stats().agent_multicasts >= 200);
}

#[test]
fn multicast__any_root_and_tree_goes_over_to_agents_in_order() {
    let agents: Vec<Served> = (0..4).map(|_| Served::start("")).collect();
    let members = members(&agents, &by_agent());
    for (root, tree) in [(0, Tree::Binomial), (2, Tree::Chain)] {
        goes_over_in_order(&members, root, tree);
    }
}

/// Fails if a network lost no packet.
#[track_caller]
fn assert_lost(agents: &[Served]) {
    let lost: u64 = agents.iter().map(|agent| agent.reports("fault_lost ")).sum();
    assert!(lost > 0, "nothing was lost");
}

/// Returns agents on a network that loses, duplicates and reorders the packets of each.
fn faulty(agents: u64) -> Vec<Served> {
    let words = |n| format!("--faults loss=3%,dup=2%,reorder=2%,seed={}", 100 * n + 1);
    (0..agents).map(|n| Served::start(&words(n))).collect()
}

#[test]
fn multicast__over_agents_under_loss_every_tree_in_order() {
    for (root, tree) in [(0, Tree::Chain), (1, Tree::Binary), (2, Tree::Binomial), (3, Tree::Flat)]
    {
        let agents = faulty(4);
        let members = members(&agents, &by_agent());
        goes_over_in_order(&members, root, tree);
        assert_lost(&agents);
    }
}

/// Adds to a counter of `b` so many times, each of which counts once.
fn counts_each(a: &Rank, b: &Rank, times: u64) -> ([Packets; 2], PeerId, Counter) {
    let to_b = a.connect(b);
    pass(a, to_b, b, 1, b"the session is open");
    let [pa, pb] = [a, b].map(|rank| Packets::new(&rank.endpoint).unwrap());
    let counter = pb.counter(1000).unwrap();
    // Only the requester makes progress.
    for n in 0..times {
        assert_eq!(pa.fetch_add_blocking(to_b, counter, 3), Ok(1000 + 3 * n));
    }
    assert_eq!(pb.counter_value(counter), Some(1000 + 3 * times));
    ([pa, pb], to_b, counter)
}

#[test]
fn fetch_add__at_an_agent_under_loss_counts_each_once() {
    let agents = faulty(2);
    let [a, b] = [0, 1].map(|n: usize| agents[n].try_rank_with(1, by_agent()).unwrap());
    let _counter = counts_each(&a, &b, 500);
    assert!(agents[1].reports("counted ") >= 500);
    assert_lost(&agents);
}

#[test]
fn multicast__agents_pass_members_that_do_nothing() {
    let agents: Vec<Served> = (0..3).map(|_| Served::start("")).collect();
    let members = members(&agents, &by_agent());
    let n = go_over(&members, 0, Tree::Chain);
    let (root, last) = (&members[0], &members[2]);
    for more in n..n + 20 {
        let ends = [&root.rank, &last.rank];
        until(&ends, || root.group.try_send(Tree::Chain, HANDLER, more, b"passes").is_ok());
        // Member 1, which is between them in the tree, makes no progress.
        until(&ends, || last.heard.borrow().len() as u32 == more + 1);
    }
    assert_eq!(members[1].heard.borrow().len() as u32, n);
    let middle = [&members[1].rank];
    until(&middle, || members[1].heard.borrow().len() as u32 == n + 20);
}

#[test]
fn multicast__a_slow_member_is_named_and_holds_up_within_bounds() {
    let agents: Vec<Served> = (0..3).map(|_| Served::start("")).collect();
    let members = members(&agents, &by_agent());
    let mut n = go_over(&members, 0, Tree::Flat);
    let (root, awake) = (&members[0], &members[1]);
    let mut busy = None;
    until(&[&root.rank, &awake.rank], || {
        match root.group.try_send(Tree::Flat, HANDLER, n, b"packet") {
            Ok(()) => n += 1,
            Err(MulticastError::Busy { rank }) => {
                let slow: Vec<usize> = root.group.slow().iter().map(|(m, _)| *m).collect();
                assert_eq!(rank, slow.first().copied(), "only who is known to be slow is named");
                busy = rank;
            }
            Err(e) => panic!("{e}"),
        }
        // On a crowded machine the other member may be slow for a while, too.
        root.group.slow().iter().any(|(member, _)| *member == 2) && busy == Some(2)
    });
    assert!(n < 1_000, "{n} packets were taken though a member takes none");
    // The member polls again: nothing is lost, and it is not slow any more.
    let ranks = all(&members);
    until(&ranks, || members[2].heard.borrow().len() as u32 == n);
    until(&ranks, || root.group.slow().is_empty());
}

#[test]
fn multicast__a_member_that_dies_ends_the_group_with_its_name() {
    let agents: Vec<Served> = (0..3).map(|_| Served::start("")).collect();
    let mut members = members(&agents, &by_agent());
    go_over(&members, 0, Tree::Chain);
    // The last member ends as if it were killed: its rings and sockets close without a message.
    drop(members.pop());
    let ranks = all(&members);
    until(&ranks, || members.iter().all(|m| m.group.failed().is_some()));
    for member in &members {
        assert!(matches!(member.group.failed(), Some(MulticastError::Member { rank: 2, .. })));
    }
    let after = members[0].group.try_send(Tree::Chain, HANDLER, 0, b"");
    assert!(matches!(after, Err(MulticastError::Member { rank: 2, .. })), "{after:?}");
}

#[test]
fn multicast__a_member_whose_agent_refuses_leaves_it_to_ranks() {
    let agents = [Served::start(""), Served::start("--quota groups=0"), Served::start("")];
    let members = members(&agents, &by_agent());
    let ranks = all(&members);
    let mut n = 0u32;
    until(&ranks, || {
        n += u32::from(members[0].group.try_send(Tree::Flat, HANDLER, n, b"by ranks").is_ok());
        n == 200
    });
    until(&ranks, || members[1..].iter().all(|m| m.heard.borrow().len() == 200));
    assert_eq!(members[0].group.forwarded_by(Tree::Flat), Place::Host);
    assert_eq!(members[0].packets.stats().agent_multicasts, 0);
}

#[test]
fn multicast__when_the_agent_ends_the_group_ends_with_an_error() {
    let mut agents: Vec<Served> = (0..2).map(|_| Served::start("")).collect();
    let members = members(&agents, &by_agent());
    go_over(&members, 0, Tree::Flat);
    agents[0].stop();
    let ranks = all(&members);
    until(&ranks[..1], || members[0].group.failed().is_some());
    let sent = members[0].group.try_send(Tree::Flat, HANDLER, 0, b"");
    assert!(matches!(sent, Err(MulticastError::Member { .. })), "{sent:?}");
}

#[test]
fn fetch_add__at_the_agent_while_the_owner_does_nothing() {
    let (here, there) = (Served::start(""), Served::start(""));
    let (a, b) =
        (here.try_rank_with(1, by_agent()).unwrap(), there.try_rank_with(1, by_agent()).unwrap());
    let ([pa, _pb], to_b, counter) = counts_each(&a, &b, 50);
    let wrong = Counter { key: counter.key ^ 1 };
    let mut refused = std::pin::pin!(pa.fetch_add(to_b, wrong, 1));
    let (mut got, mut cx) = (Poll::Pending, Context::from_waker(Waker::noop()));
    until(&[&a, &b], || {
        got = refused.as_mut().poll(&mut cx);
        got.is_ready()
    });
    assert_eq!(got, Poll::Ready(Err(OpError::Refused)));
}

#[test]
fn fetch_add__of_a_peer_past_the_agent_reaches_the_same_word() {
    let (here, there) = (Served::start(""), Served::start(""));
    let far = there.try_rank_with(1, by_agent()).unwrap();
    // The owner is reached through its agent, and through shared memory by a rank of the same host.
    let id = EndpointId(weft_link::random_u64());
    let (link, services) = here.link(1, id, &by_agent()).unwrap();
    let shm = |id| -> Box<dyn Link> { Box::new(ShmLink::new(ShmConfig::new(id)).unwrap()) };
    let links = vec![shm(id), Box::new(link)];
    let owner = Endpoint::with_links(by_agent(), id, Clock::system(), links);
    owner.agent().serve(services.clone());
    let owner = Rank { endpoint: owner, services };
    let id = EndpointId(weft_link::random_u64());
    let near = Endpoint::with_links(Config::default(), id, Clock::system(), vec![shm(id)]);
    let (far_to, near_to) = (far.connect(&owner), near.connect(&owner.address()).unwrap());
    pass(&far, far_to, &owner, 1, b"the session is open");
    let owned = Packets::new(&owner.endpoint).unwrap();
    let (from_far, from_near) =
        (Packets::new(&far.endpoint).unwrap(), Packets::new(&near).unwrap());
    let counter = owned.counter(0).unwrap();
    let total = Rc::new(Cell::new(0));
    let add = |packets: Packets, at, total: Rc<Cell<u32>>| async move {
        for _ in 0..20 {
            packets.fetch_add(at, counter, 1).await.unwrap();
            total.set(total.get() + 1);
        }
    };
    let mut tasks = [
        Box::pin(add(from_far.clone(), far_to, Rc::clone(&total))),
        Box::pin(add(from_near.clone(), near_to, Rc::clone(&total))),
    ];
    let mut cx = Context::from_waker(Waker::noop());
    let mut ready = [false; 2];
    until(&[&owner, &far], || {
        for (task, ready) in tasks.iter_mut().zip(&mut ready) {
            *ready = *ready || task.as_mut().poll(&mut cx).is_ready();
        }
        near.progress();
        total.get() == 40
    });
    assert_eq!(owned.counter_value(counter), Some(40));
}

#[test]
fn choose__the_server_of_what_one_rank_adds() {
    let (here, there) = (Served::start(""), Served::start(""));
    let config = || Config { reliability: Reliability::Agent, ..Config::default() };
    let ranks: Vec<Rank> = [&there, &here, &here]
        .map(|agent| agent.try_rank_with(1, config()).unwrap())
        .into_iter()
        .collect();
    let [owner, near, far] = [0, 1, 2].map(|i| Packets::new(&ranks[i].endpoint).unwrap());
    // The job's setting is host: only this rank has its counters at its agent, from now on.
    let at_rank = owner.counter(7).unwrap();
    let own = ranks[0].connect(&ranks[0]);
    let choose = |packets: &Packets, peer, fetch_add| {
        let before = packets.endpoint().peer(peer).choices().unwrap();
        packets.endpoint().peer(peer).choose(&Choices { fetch_add, ..before }).unwrap();
        assert_eq!(packets.endpoint().peer(peer).choices().unwrap().fetch_add, fetch_add);
    };
    choose(&owner, own, Server::Agent);
    assert_eq!((owner.counter_server(), near.counter_server()), (Server::Agent, Server::Host));
    let counter = owner.counter(1000).unwrap();
    let ids = [1, 2].map(|i| ranks[i].connect(&ranks[0]));
    for (i, id) in ids.into_iter().enumerate() {
        pass(&ranks[i + 1], id, &ranks[0], 1, b"the session is open");
    }
    // One rank uses the agent, the other the owner.
    choose(&near, ids[0], Server::Agent);
    choose(&far, ids[1], Server::Agent);
    choose(&far, ids[1], Server::Host);
    // The owner makes no progress: its agent serves the first.
    for n in 0..20 {
        assert_eq!(near.fetch_add_blocking(ids[0], counter, 1), Ok(1000 + n));
    }
    let mut by_owner = std::pin::pin!(far.fetch_add(ids[1], counter, 1));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(by_owner.as_mut().poll(&mut cx).is_pending());
    for n in 20..40 {
        assert_eq!(near.fetch_add_blocking(ids[0], counter, 1), Ok(1000 + n));
        ranks[2].endpoint.progress();
        assert!(by_owner.as_mut().poll(&mut cx).is_pending(), "nobody has served it");
    }
    // The owner polls: it is the same word.
    let mut got = Poll::Pending;
    until(&[&ranks[0], &ranks[2]], || {
        got = by_owner.as_mut().poll(&mut cx);
        got.is_ready()
    });
    assert_eq!(got, Poll::Ready(Ok(1040)));
    assert_eq!(owner.counter_value(counter), Some(1041));
    // A counter made before stays at the rank.
    let mut old = std::pin::pin!(near.fetch_add(ids[0], at_rank, 1));
    until(&[&ranks[0], &ranks[1]], || {
        got = old.as_mut().poll(&mut cx);
        got.is_ready()
    });
    assert_eq!(got, Poll::Ready(Ok(7)));
}

#[test]
fn counter__beyond_the_quota_is_none() {
    let agent = Served::start("--quota words=2");
    let rank = agent.try_rank_with(1, by_agent()).unwrap();
    let packets = Packets::new(&rank.endpoint).unwrap();
    assert!(packets.counter(0).is_some() && packets.counter(0).is_some());
    assert!(packets.counter(0).is_none());
}

#[test]
fn end_counter__its_word_is_free_for_another() {
    let agent = Served::start("--quota words=2");
    let rank = agent.try_rank_with(1, by_agent()).unwrap();
    let packets = Packets::new(&rank.endpoint).unwrap();
    let (first, second) = (packets.counter(1).unwrap(), packets.counter(2).unwrap());
    assert!(packets.counter(3).is_none());
    for n in 10..30 {
        let last = if n == 10 { first } else { packets.counter(n).unwrap() };
        assert!(packets.end_counter(last));
        assert_eq!(packets.counter_value(last), None);
    }
    assert_eq!(packets.counter_value(second), Some(2));
}

#[test]
fn choose__the_agent_for_a_peer_that_is_reached_through_it() {
    let (here, there) = (Served::start(""), Served::start(""));
    let (a, b) = (here.rank(1), there.rank(1));
    let to_b = a.connect(&b);
    let packets = Packets::new(&a.endpoint).unwrap();
    let choices = Choices { reliability: Reliability::Agent, ..Choices::default() };
    let short = Choices { mtu: 275, ..choices };
    assert_eq!(packets.endpoint().peer(to_b).choose(&short), Err(ChoiceError::Mtu { least: 276 }));
    assert_eq!(packets.endpoint().peer(to_b).choose(&choices), Ok(()));
    pass(&a, to_b, &b, 1, b"and it works");
    // A peer over shared memory is not served by the agent.
    let shm = |id| -> Box<dyn Link> { Box::new(ShmLink::new(ShmConfig::new(id)).unwrap()) };
    let open = |id: u64| {
        let links = vec![shm(EndpointId(id))];
        Endpoint::with_links(Config::default(), EndpointId(id), Clock::system(), links)
    };
    let (c, d) = (open(weft_link::random_u64()), open(weft_link::random_u64()));
    c.agent().serve(a.services.clone());
    let to_d = c.connect(&d.address()).unwrap();
    let packets = Packets::new(&c).unwrap();
    assert_eq!(packets.endpoint().peer(to_d).choose(&choices), Err(ChoiceError::PastAgent));
}

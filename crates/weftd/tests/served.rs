//! Ranks served by agents: real agents on threads, real rings, UDP over loopback.
#![allow(non_snake_case)]

mod common;
mod serving;

use common::*;
use serving::serving;
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use weft::{AtomicCode, Config, OpError, Operation, PeerId, Rights};
use weft_agent::GroupRole;
use weft_conformance::{skip, Started};
use weft_core::group::tree::{self, Tree};
use weftd::options::Options;
use weftd::{status, sys, Agent};

#[test]
fn agent__messages_of_all_sizes_between_two_agents() {
    let (here, there) = (Served::start(""), Served::start(""));
    let (a, b) = (here.rank(1), there.rank(1));
    let to_b = a.connect(&b);
    for (tag, len) in [0, 1, 16, 1400, 1500, 9_000, 70_000, 1 << 20].into_iter().enumerate() {
        pass(&a, to_b, &b, tag as u64, &pattern(tag, len));
    }
    let to_a = b.connect(&a);
    for tag in 0..200 {
        pass(&a, to_b, &b, tag, &pattern(1, 16));
        pass(&b, to_a, &a, tag, &pattern(2, 16));
    }
}

#[test]
fn agent__a_word_is_added_to_while_its_owner_does_nothing() {
    let (here, there) = (Served::start(""), Served::start(""));
    let (a, b, to_b) = joined(&here, &there, b"the session is open");
    b.services.borrow_mut().open_counter(77, 2, 0, false);
    let mut answer = None;
    until(&[&b], || {
        answer = b.services.borrow_mut().counter(77, 0);
        answer.is_some()
    });
    assert_eq!(answer, Some(Some(0)));
    // From here on only the requester makes progress.
    for round in 0..50 {
        let add = a.endpoint.atomic(to_b, 77, 8, AtomicCode::FetchAdd, 3, 0);
        until(&[&a], || add.is_done());
        assert_eq!(a.endpoint.block_on(add).0.unwrap().value, round * 3);
    }
    let beyond = a.endpoint.atomic(to_b, 77, 16, AtomicCode::FetchAdd, 3, 0);
    until(&[&a], || beyond.is_done());
    assert_eq!(a.endpoint.block_on(beyond).0, Err(OpError::Refused));
    b.services.borrow_mut().read_counter(77, 1);
    until(&[&b], || {
        answer = b.services.borrow_mut().counter(77, 1);
        answer.is_some()
    });
    assert_eq!(answer, Some(Some(150)));
}

/// Returns one rank on each agent, with open sessions along the edges of a tree, all in group 5.
fn group(tree: Tree, agents: &[Served]) -> Vec<Rank> {
    let ranks: Vec<Rank> = agents.iter().map(|agent| agent.rank(1)).collect();
    let all: Vec<&Rank> = ranks.iter().collect();
    for (me, rank) in ranks.iter().enumerate() {
        let size = ranks.len();
        let parent = tree::parent(tree, 0, me, size).map(|p| rank.connect(&ranks[p]));
        let children: Vec<PeerId> =
            tree::children(tree, 0, me, size).map(|c| rank.connect(&ranks[c])).collect();
        for &peer in children.iter().chain(&parent) {
            rank.endpoint.peer(peer).open();
        }
        until(&all, || children.iter().chain(&parent).all(|&p| rank.endpoint.peer(p).is_ready()));
        let parent = parent.unwrap_or(PeerId(u32::MAX));
        let (size, me) = (size as u32, me as u32);
        rank.services.borrow_mut().join(GroupRole { group: 5, tree, size, me, parent, children });
    }
    let asked = |rank: &Rank| rank.services.borrow().pending() == 0;
    until(&all, || ranks[0].services.borrow().granted(5) > 0 && ranks.iter().all(asked));
    ranks
}

#[test]
fn agent__multicast_passes_ranks_that_do_nothing() {
    for tree in [Tree::Chain, Tree::Binomial] {
        let agents: Vec<Served> = (0..4).map(|_| Served::start("")).collect();
        let ranks = group(tree, &agents);
        let (root, last) = (&ranks[0], &ranks[3]);
        let mut got = Vec::new();
        for n in 0..20u32 {
            // Only the root and the last member make progress: packets pass those between.
            until(&[root, last], || root.services.borrow_mut().multicast(5, n, &n.to_le_bytes()));
            until(&[root, last], || {
                got.extend(last.services.borrow_mut().poll_packet());
                got.len() as u32 == n + 1
            });
        }
        for (n, (group, number, bytes)) in got.into_iter().enumerate() {
            assert_eq!((group, number, bytes), (5, n as u32, (n as u32).to_le_bytes().to_vec()));
        }
        let middle = &ranks[1];
        let mut count = 0;
        until(&[middle], || {
            count += u32::from(middle.services.borrow_mut().poll_packet().is_some());
            count == 20
        });
    }
}

#[test]
fn agent__a_member_that_takes_nothing_is_named_and_holds_up_within_bounds() {
    let agents: Vec<Served> = (0..3).map(|_| Served::start("")).collect();
    let ranks = group(Tree::Flat, &agents);
    let (root, awake) = (&ranks[0], &ranks[1]);
    let (mut sent, mut got, mut named) = (0u32, 0u32, None);
    until(&[root, awake], || {
        sent += u32::from(root.services.borrow_mut().multicast(5, sent, b"packet"));
        got += u32::from(awake.services.borrow_mut().poll_packet().is_some());
        // On a crowded machine the other member may be slow for a while, too.
        let slow = root.services.borrow_mut().poll_member();
        named = named.or(slow.filter(|(_, member, _)| *member == 2));
        named.is_some() && got == sent
    });
    assert_eq!(named, Some((5, 2, true)), "member 2 is slow");
    assert!(sent < 1_000, "{sent} packets were taken though a member takes none");
}

#[test]
fn agent__a_rank_that_ends_gives_its_session_back_and_its_peers_learn_of_it() {
    let (here, there) = (Served::start("--sessions 1"), Served::start("--sessions 1"));
    let a = here.rank(1);
    for round in 0..3 {
        let b = there.rank(1);
        let to_b = a.connect(&b);
        pass(&a, to_b, &b, round, b"here");
        let why = refusal(there.try_rank(1));
        assert!(why.contains("sessions are taken"), "{why}");
        // Rank `b` ends as if it were killed: no message is sent, the system closes its socket.
        drop(b);
        let waiting = a.endpoint.recv(Some(to_b), 99, 0, vec![0; 8]);
        until(&[&a], || waiting.is_done());
        assert!(matches!(a.endpoint.block_on(waiting).0, Err(OpError::Peer { .. })));
        until(&[&a], || there.reports("ranks ") == 0);
    }
}

#[test]
fn agent__its_end_is_an_error_that_names_it_and_the_next_one_serves() {
    let (mut here, there) = (Served::start(""), Served::start(""));
    let (a, _b, to_b) = joined(&here, &there, b"before");
    let waiting = a.endpoint.recv(Some(to_b), 99, 0, vec![0; 8]);
    here.stop();
    until(&[&a], || waiting.is_done());
    assert!(matches!(a.endpoint.block_on(waiting).0, Err(OpError::Peer { .. })));
    let why = a.services.borrow().ended().expect("the rank knows").to_string();
    assert!(why.contains(&here.name) && why.contains("agent"), "{why}");
    assert!(a.endpoint.connect(&there.rank(1).address()).is_err(), "no way is left");
    assert!(refusal(here.try_rank(1)).contains("start weftd"));
    let again = Served::with(Options { name: here.name.clone(), ..options("") });
    joined(&again, &there, b"after");
}

#[test]
fn agent__quotas_are_kept_and_named() {
    let tight = Served::start("--quota ranks=2 --quota peers=1 --quota words=4 --quota groups=1");
    let wide = Served::start("");
    let (a, b, c) = (tight.rank(1), wide.rank(1), wide.rank(1));
    let second = tight.rank(1);
    let why = refusal(tight.try_rank(1));
    assert!(why.contains("quota") && why.contains("2 ranks"), "{why}");
    drop(second);
    let (to_b, to_c) = (a.connect(&b), a.connect(&c));
    pass(&a, to_b, &b, 1, b"the one peer");
    let waiting = a.endpoint.recv(Some(to_c), 1, 0, vec![0; 8]);
    until(&[&a], || waiting.is_done());
    assert!(matches!(a.endpoint.block_on(waiting).0, Err(OpError::Peer { .. })));
    a.services.borrow_mut().open_counter(1, 5, 0, false);
    let mut answer = None;
    until(&[&a], || {
        answer = a.services.borrow_mut().counter(1, 0);
        answer.is_some()
    });
    assert_eq!(answer, Some(None), "refused");
}

#[test]
fn agent__a_rank_that_takes_nothing_holds_up_only_the_ranks_that_send_to_it() {
    let (here, there) = (Served::start(""), Served::start("--quota bytes=1M"));
    let (a, deaf, other) = (here.rank(1), there.rank(1), there.rank(1));
    let (to_deaf, to_other) = (a.connect(&deaf), a.connect(&other));
    pass(&a, to_deaf, &deaf, 1, b"the session is open");
    let mut window = Vec::new();
    for n in 0..400u64 {
        window.push(a.endpoint.send(to_deaf, 2, pattern(n as usize, 16 << 10)));
        a.endpoint.progress();
    }
    for tag in 10..60 {
        pass(&a, to_other, &other, tag, &pattern(3, 3_000));
    }
    for n in 0..400u64 {
        let got = deaf.endpoint.recv(None, 2, 0, vec![0; 16 << 10]);
        until(&[&a, &deaf], || got.is_done());
        let (status, bytes) = deaf.endpoint.block_on(got);
        status.unwrap();
        assert!(bytes == pattern(n as usize, 16 << 10), "message {n}");
    }
    until(&[&a, &deaf], || window.iter().all(|sent| sent.is_done()));
}

/// A rank with a long put to a rank whose agent then stands still, and a third rank.
struct Standstill<'a> {
    frozen: &'a Started,
    a: &'a Rank,
    b: &'a Rank,
    to_b: PeerId,
    c: &'a Rank,
    to_c: PeerId,
}

/// Makes such ranks and calls the test with them and the put.
fn stand_still(peer_timeout_ms: u32, test: impl FnOnce(&Standstill<'_>, Operation)) {
    let name = format!("@weft-test-{:016x}", weft_link::random_u64());
    let frozen = process(&name);
    let far = Served { name, end: Arc::default(), thread: None };
    let (here, there) = (Served::start(""), Served::start(""));
    // Short packets, so that there are many.
    let short = || Config { mtu: 600, peer_timeout_ms, ..Config::default() };
    let a = here.try_rank_with(1, short()).unwrap();
    let (b, c) = (far.try_rank_with(1, short()).unwrap(), there.rank(1));
    let (to_b, to_c) = (a.connect(&b), a.connect(&c));
    pass(&a, to_b, &b, 1, b"the session is open");
    let size = 2 << 20;
    let key = b.endpoint.regions().register(size, Rights { read: false, write: true }).unwrap();
    frozen.signal("STOP");
    let put = a.endpoint.put(to_b, key, 0, pattern(5, size));
    test(&Standstill { frozen: &frozen, a: &a, b: &b, to_b, c: &c, to_c }, put);
}

#[test]
fn agent__a_peer_whose_host_stands_still_holds_up_only_what_is_for_it() {
    stand_still(Config::default().peer_timeout_ms, |still, put| {
        let &Standstill { frozen, a, b, to_b, c, to_c } = still;
        for tag in 10..60 {
            pass(a, to_c, c, tag, &pattern(3, 3_000));
        }
        assert!(!put.is_done());
        frozen.signal("CONT");
        until(&[a, b], || put.is_done());
        a.endpoint.block_on(put).0.unwrap();
        for tag in 60..70 {
            pass(a, to_b, b, tag, &pattern(4, 3_000));
        }
    });
}

#[test]
fn agent__a_peer_whose_host_stands_still_for_good_is_given_up_while_others_go_on() {
    stand_still(3_000, |&Standstill { a, c, to_c, .. }, put| {
        let mut tag = 10;
        while !put.is_done() {
            pass(a, to_c, c, tag, &pattern(3, 3_000));
            tag += 1;
        }
        assert!(matches!(a.endpoint.block_on(put).0, Err(OpError::Peer { .. })));
        pass(a, to_c, c, tag, &pattern(4, 30_000));
    });
}

#[test]
fn agent__frames_of_strangers_and_of_other_jobs_change_nothing() {
    let (here, there) = (Served::start(""), Served::start(""));
    let (a, b, foe) = (here.rank(1), there.rank(1), here.rank(2));
    let to_b = a.connect(&b);
    pass(&a, to_b, &b, 1, b"the session is open");
    // Another job on the same agent asks for a session with b, and strangers send invalid bytes.
    let at_b = foe.connect(&b);
    foe.endpoint.peer(at_b).open();
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    for n in 0..500u32 {
        let bytes: Vec<u8> = (0..n % 200).map(|i| (i * n) as u8).collect();
        for to in b.address().udp.iter().filter(|to| to.is_ipv4()) {
            // A missing address family or route does not matter.
            let _ = socket.send_to(&bytes, to);
        }
        foe.endpoint.progress();
    }
    for tag in 2..30 {
        pass(&a, to_b, &b, tag, &pattern(tag as usize, 5_000));
        foe.endpoint.progress();
    }
    assert!(!foe.endpoint.peer(at_b).is_ready(), "a rank of another job is not answered");
}

#[test]
fn agent__jobs_are_not_interrupted_by_a_polite_end() {
    let mut agent = Served::start("");
    let a = agent.rank(1);
    assert!(status::stop(&agent.name).unwrap().0.contains("1 ranks are attached"));
    assert!(refusal_of_second(&agent).contains("listening on"));
    drop(a);
    until(&[], || agent.reports("ranks ") == 0);
    assert!(status::stop(&agent.name).unwrap().0.contains("ending"));
    agent.thread.take().unwrap().join().unwrap();
}

/// Returns the error of a second agent at the same name.
fn refusal_of_second(first: &Served) -> String {
    match Agent::open(Options { name: first.name.clone(), ..options("") }) {
        Ok(_) => panic!("two agents at one name"),
        Err(e) => e.to_string(),
    }
}

/// Name of the variable set where this test program runs as another user's rank.
const CHILD: &str = "WEFT_TEST_AGENT";

#[test]
fn agent__a_rank_of_another_user_is_served_within_a_quota_of_its_own() {
    if let Ok(name) = std::env::var(CHILD) {
        let served = Served { name, end: Arc::default(), thread: None };
        let (a, b) = (served.rank(9), served.rank(9));
        let to_b = a.connect(&b);
        pass(&a, to_b, &b, 1, b"no rights needed");
        assert!(refusal(served.try_rank(9)).contains("quota"));
        // The word of another user under the same key is a different one.
        assert_eq!(word(&a, Some(1_000_000)), Some(1_000_000));
        assert!(status::stop(&served.name).unwrap().0.contains("not its owner"));
        let seen = status::status(&served.name).unwrap();
        let ranks: Vec<&str> = seen.lines().filter(|l| l.starts_with("rank ")).collect();
        assert!(ranks.len() == 2 && ranks.iter().all(|l| l.contains(" user 65534 ")), "{seen}");
        assert!(seen.contains("\nranks 4\n") && seen.contains("\nothers 2\n"), "{seen}");
        return;
    }
    if !sys::is_root() {
        return skip("only root can become another user");
    }
    let agent = Served::start("--quota ranks=2");
    let (a, b) = (agent.rank(1), agent.rank(1));
    let to_b = a.connect(&b);
    assert_eq!(word(&a, Some(5)), Some(5));
    let test = "agent__a_rank_of_another_user_is_served_within_a_quota_of_its_own";
    // Started as a copy that any user may read.
    let copy = std::env::temp_dir().join(format!("weft-agent-test-{}", std::process::id()));
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut child = Command::new(&copy);
    child.args(["--exact", test, "--nocapture"]).env(CHILD, &agent.name);
    child.uid(65_534).gid(65_534).current_dir("/");
    let child = loop {
        match child.output() {
            // A process just started by another test still has it open for writing.
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            other => break other.unwrap(),
        }
    };
    std::fs::remove_file(&copy).unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    pass(&a, to_b, &b, 1, b"undisturbed");
    assert_eq!(word(&a, None), Some(5));
    assert!(status::status(&agent.name).unwrap().contains(" user 0 process "), "root sees all");
}

/// Returns the word of a rank under a key that others use too; opens it first with a value, if one
/// is given.
fn word(rank: &Rank, open: Option<u64>) -> Option<u64> {
    const KEY: u64 = 77;
    match open {
        Some(value) => rank.services.borrow_mut().open_counter(KEY, 1, value, false),
        None => rank.services.borrow_mut().read_counter(KEY, 0),
    };
    let mut answer = None;
    until(&[rank], || {
        answer = rank.services.borrow_mut().counter(KEY, 0);
        answer.is_some()
    });
    answer.flatten()
}

/// Starts an agent as a process of its own.
fn process(name: &str) -> Started {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weftd"));
    serving(command.args(["--links", "udp", "--user", "", "--name", name])).0
}

#[test]
fn agent__killed_it_is_named_and_started_again_at_the_same_place_it_serves() {
    let folder = std::env::temp_dir().join(format!("weftd-{:016x}", weft_link::random_u64()));
    let name = folder.join("agent.sock").display().to_string();
    let served = Served { name: name.clone(), end: Arc::default(), thread: None };
    let agent = process(&name);
    let (a, _b, to_b) = joined(&served, &served, b"before");
    let waiting = a.endpoint.recv(Some(to_b), 99, 0, vec![0; 8]);
    drop(agent);
    until(&[&a], || waiting.is_done());
    // The error names the agent, because the peer lives.
    let failed = a.endpoint.block_on(waiting).0.unwrap_err();
    assert_eq!(failed, OpError::Peer { peer: to_b, failure: weft::PeerFailure::AgentGone });
    let said = a.endpoint.explain(failed);
    assert!(said.contains("the agent that reached it has ended (the rank itself may"), "{said}");
    let why = a.services.borrow().ended().expect("the rank knows").to_string();
    assert!(why.contains(&name), "{why}");
    assert!(served.try_rank(1).is_err());
    // Its socket file still exists.
    let again = process(&name);
    joined(&served, &served, b"after");
    drop(again);
    std::fs::remove_dir_all(&folder).unwrap();
}

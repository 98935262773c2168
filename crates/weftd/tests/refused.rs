//! Programs that an agent refuses or ends: the reasons that they get, and no effect on others.
#![allow(non_snake_case)]

mod common;

use common::*;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use weft::{Address, Config, EndpointId};
use weft_agent::{version_text, Attach, BareRank, Control, GroupRole, Nonsense, VERSION};
use weft_core::group::tree::Tree;
use weft_core::wire::session_number;
use weft_link::secure::Mode;
use weftd::limit::BURST;

fn caller(agent: &Served, me: EndpointId) -> BareRank {
    BareRank::connect(&agent.name, me).unwrap()
}

fn someone() -> EndpointId {
    EndpointId(weft_link::random_u64())
}

/// Returns the agent's messages to a program whose first message is this, until the agent ends the
/// connection.
fn answers(agent: &Served, me: EndpointId, words: &[u8]) -> Vec<Control> {
    let mut rank = caller(agent, me);
    assert!(rank.say(words));
    let mut heard = Vec::new();
    until(&[], || {
        heard.extend(rank.heard());
        rank.has_ended()
    });
    heard
}

fn attach(me: EndpointId, key: [u8; 32]) -> Vec<u8> {
    Control::Attach(Attach::new(me, Mode::Auth, key, &Config::default())).encode()
}

#[track_caller]
fn refused_for(heard: &[Control], what: &str) {
    let [Control::Refused(why)] = heard else { panic!("{heard:?}") };
    assert!(why.contains(what), "{why}");
}

#[test]
fn options__that_are_not_understood_end_with_2_as_those_of_weft() {
    let done = Command::new(env!("CARGO_BIN_EXE_weftd")).arg("--bogus").output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("--bogus"));
}

#[test]
fn agent__a_caller_of_another_version_learns_both_and_the_remedy() {
    let agent = Served::start("");
    let me = someone();
    for other in [VERSION + 1, VERSION - 1, 4, u16::MAX] {
        let mut words = attach(me, [1; 32]);
        words[1..3].copy_from_slice(&other.to_le_bytes());
        for len in [words.len(), words.len() - 9, 3] {
            let heard = answers(&agent, me, &words[..len]);
            let [own, other] = [VERSION, other].map(version_text);
            refused_for(&heard, &format!("version {own} of the agent's protocol"));
            refused_for(&heard, &format!("this program {other}: use the weftd of"));
        }
    }
}

#[test]
fn agent__a_request_that_is_not_understood_is_refused_with_the_reason() {
    let agent = Served::start("");
    let me = someone();
    let whole = attach(me, [1; 32]);
    let longer = [&whole[..], &[0; 4]].concat();
    let other = Control::CounterRead(1, 2).encode();
    for words in [&whole[..whole.len() - 1], &longer, &other, &[], &[200, 1, 2]] {
        refused_for(&answers(&agent, me, words), "does not understand");
    }
    refused_for(&answers(&agent, me, &attach(someone(), [1; 32])), &format!("endpoint {me}"));
}

#[test]
fn agent__that_is_not_there_is_said_once() {
    let nobody = Served { name: options("").name, end: std::sync::Arc::default(), thread: None };
    let why = refusal(nobody.try_rank(1));
    assert_eq!(why, format!("unreachable: no agent listens at {}: start weftd", nobody.name));
}

#[test]
fn agent__without_a_socket_for_a_rank_says_so_at_once() {
    let mut options = options("");
    // There is no link to serve over, as when descriptors have run out.
    options.udp = false;
    options.packet = false;
    let agent = Served::with(options);
    let why = refusal(agent.try_rank(1));
    assert!(why.contains("refuses") && why.contains("no socket left"), "{why}");
    let me = someone();
    refused_for(&answers(&agent, me, &attach(me, [1; 32])), "no socket left");
}

#[test]
fn agent__those_refused_hold_no_connection_whatever_they_do() {
    let agent = Served::start("--sessions 1");
    let first = agent.rank(1);
    let mut all = Vec::new();
    for _ in 0..100 {
        let me = someone();
        let mut rank = caller(&agent, me);
        assert!(rank.say(&attach(me, [1; 32])));
        let mut heard = Vec::new();
        until(&[], || {
            heard.extend(rank.heard());
            rank.has_ended()
        });
        refused_for(&heard, "sessions are taken");
        // The process of the refused rank continues.
        all.push(rank);
    }
    drop(first);
    until(&[], || agent.reports("ranks ") == 0);
    until(&[], || agent.try_rank(1).is_ok());
    assert_eq!(agent.reports("sessions "), 1);
    drop(all);
}

#[test]
fn agent__callers_that_ask_for_nothing_keep_no_rank_from_a_session() {
    let agent = Served::start("--sessions 4");
    let mut silent: Vec<BareRank> = (0..30).map(|_| caller(&agent, someone())).collect();
    let _served = joined(&agent, &agent, b"served");
    // More callers than may wait: the oldest get the reason, and are closed.
    silent.extend((0..30).map(|_| caller(&agent, someone())));
    let (mut told, mut first) = (Vec::new(), silent.remove(0));
    until(&[], || {
        told.extend(first.heard());
        first.has_ended()
    });
    if !told.is_empty() {
        refused_for(&told, "asked for nothing, and others wait");
    }
    let (c, d) = (agent.rank(2), agent.rank(2));
    let to_d = c.connect(&d);
    pass(&c, to_d, &d, 1, b"served too");
    assert_eq!(agent.reports("ranks "), 4);
    drop(silent);
}

#[test]
fn agent__refusals_without_end_do_not_fill_its_log() {
    const CALLERS: usize = 300;
    let name = format!("@weft-test-{:016x}", weft_link::random_u64());
    let mut command = Command::new(env!("CARGO_BIN_EXE_weftd"));
    command
        .args(["--name", &name, "--links", "udp", "--user", "", "--once"])
        .env_remove("WEFT_LOG");
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let agent = Served { name, end: std::sync::Arc::default(), thread: None };
    for _ in 0..CALLERS {
        refused_for(&answers(&agent, someone(), &[200, 1, 2]), "does not understand");
    }
    assert_eq!(agent.reports("refused "), CALLERS as u64);
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
    let (mut written, mut omitted) = (0, 0usize);
    // The agent continues, and reports how many lines it has omitted.
    while written + omitted < CALLERS {
        let line = lines.next().expect("the agent ended");
        match line.split_once(" more such lines were left out") {
            Some((before, _)) => {
                omitted += before.rsplit(' ').next().unwrap().parse::<usize>().unwrap();
            }
            None => written += usize::from(line.contains("is refused: it does not understand")),
        }
    }
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(written + omitted, CALLERS);
    // One more line per pause, if the callers took that long.
    assert!((BURST as usize..CALLERS / 2).contains(&written), "{written}");
}

#[test]
fn agent__rings_with_false_counters_end_that_rank_alone() {
    let agent = Served::start("");
    let (a, b, to_b) = joined(&agent, &agent, b"before");
    for nonsense in [Nonsense::Slots, Nonsense::Credits] {
        for asks in [false, true] {
            let me = someone();
            let mut liar = caller(&agent, me);
            if asks {
                assert!(liar.say(&attach(me, [1; 32])));
                until(&[], || matches!(liar.heard()[..], [Control::Attached(_)]));
            }
            liar.spoil(nonsense);
            until(&[], || {
                liar.heard();
                if nonsense == Nonsense::Credits {
                    // The agent checks the ring when it has sent as much as the ring holds.
                    // Receiving corrects the credits.
                    liar.say(&Control::CounterRead(1, 2).encode());
                    liar.spoil(nonsense);
                }
                liar.has_ended()
            });
            pass(&a, to_b, &b, 1, &pattern(2, 40_000));
        }
    }
    until(&[], || agent.reports("ranks ") == 2);
}

#[test]
fn agent__an_answer_that_is_not_understood_is_an_error_that_says_what_to_do() {
    use weft_agent::{FromRank, Hub};
    use weft_link::Bytes;

    struct Deaf;
    impl FromRank for Deaf {
        fn share(&mut self, _: u32) -> u32 {
            8
        }
        fn packet(&mut self, _: u32, _: weft::PeerId, _: &[u8], _: Bytes<'_>) -> u32 {
            1
        }
        fn control(&mut self, _: u32, _: Option<Control>) -> u32 {
            1
        }
    }
    let name = format!("@weft-test-{:016x}", weft_link::random_u64());
    let mut hub = Hub::listen(&name, 8, 8).unwrap();
    let served = Served { name, end: std::sync::Arc::default(), thread: None };
    std::thread::scope(|threads| {
        let asked = threads.spawn(|| refusal(served.try_rank(1)));
        until(&[], || {
            hub.poll_sockets();
            hub.callers().first().is_some_and(|caller| hub.admit(caller.endpoint, 1))
        });
        hub.recv(&mut Deaf);
        // A message that no version of this program knows.
        assert!(hub.say(1, &Control::Foreign(7, vec![1, 2, 3])));
        let why = asked.join().unwrap();
        assert!(why.contains("start the weftd of this program's build"), "{why}");
    });
}

/// Returns a rank that is served and then sends any messages.
fn served(agent: &Served, me: EndpointId) -> BareRank {
    let mut rank = caller(agent, me);
    assert!(rank.say(&attach(me, [9; 32])));
    until(&[], || rank.heard().iter().any(|m| matches!(m, Control::Attached(_))));
    rank
}

/// Sends messages as fast as they are taken, until the agent ends the connection or `done`, called
/// with the agent's messages, returns true.
fn say_until(
    rank: &mut BareRank,
    mut next: impl FnMut() -> Vec<u8>,
    mut done: impl FnMut(&Control) -> bool,
) -> Vec<Control> {
    let (mut heard, mut waiting) = (Vec::new(), None);
    until(&[], || {
        for _ in 0..64 {
            let message = waiting.take().unwrap_or_else(&mut next);
            if !rank.say(&message) {
                waiting = Some(message);
                break;
            }
        }
        let some = rank.heard();
        let enough = some.iter().any(&mut done);
        heard.extend(some);
        enough || rank.has_ended()
    });
    heard
}

/// Returns an address that every host reaches.
fn somewhere() -> Vec<u8> {
    let udp = vec!["127.0.0.1:9".parse().unwrap()];
    let host = weft_link::shm::host().unwrap();
    Address { host, udp, ..Address::default() }.encode()
}

fn connect(peer: u32) -> Vec<u8> {
    let (session, endpoint) = (session_number(peer, 1), EndpointId(u64::from(peer) + 1));
    Control::Connect(weft::PeerId(peer), session, 0, endpoint, somewhere()).encode()
}

#[test]
fn agent__a_rank_that_uses_up_its_packet_numbers_is_ended_alone() {
    let mut options = options("");
    options.connections = 200;
    let agent = Served::with(options);
    let (a, b) = (agent.rank(1), agent.rank(1));
    let to_b = a.connect(&b);
    for _ in 0..2 {
        let mut greedy = served(&agent, someone());
        let mut peer = 0;
        let next = || {
            peer = (peer + 1) % 3;
            connect(peer)
        };
        let mut heard = say_until(&mut greedy, next, |m| matches!(m, Control::Refused(_)));
        until(&[], || {
            heard.extend(greedy.heard());
            greedy.has_ended()
        });
        let why = heard.iter().find_map(|m| match m {
            Control::Refused(why) => Some(why.as_str()),
            _ => None,
        });
        assert!(why.is_some_and(|why| why.contains("packet numbers are used up")), "{why:?}");
        pass(&a, to_b, &b, 1, &pattern(3, 40_000));
    }
    until(&[], || agent.reports("ranks ") == 2);
}

#[test]
fn agent__whatever_a_rank_asks_for_ends_no_other_rank() {
    let agent = Served::start("--quota peers=8 --quota groups=4");
    let (a, b) = (agent.rank(1), agent.rank(1));
    let to_b = a.connect(&b);
    let mut rng = weft_link::rng::Rng::new(5);
    let role = |group| GroupRole {
        group,
        tree: Tree::Flat,
        size: u32::MAX,
        me: 0,
        parent: weft::PeerId(u32::MAX),
        children: (0..4096).map(weft::PeerId).collect(),
    };
    let far = weft::PeerId(u32::MAX);
    let good = [
        connect(0),
        connect(7),
        connect(8),
        Control::Connect(far, u32::MAX, u32::MAX, someone(), somewhere()).encode(),
        Control::Connect(weft::PeerId(1), u32::MAX, 0, someone(), somewhere()).encode(),
        Control::Disconnect(weft::PeerId(7)).encode(),
        Control::Disconnect(far).encode(),
        Control::CounterOpen(1, u32::MAX, 5, true).encode(),
        Control::CounterOpen(2, 9, 5, true).encode(),
        Control::CounterRead(2, u32::MAX).encode(),
        Control::CounterClose(2).encode(),
        Control::GroupJoin(role(1)).encode(),
        Control::GroupJoin(GroupRole { children: vec![weft::PeerId(0)], ..role(2) }).encode(),
        Control::GroupPacket(2, 0, vec![7; 32 << 10]).encode(),
        Control::GroupGrant(2, u32::MAX).encode(),
        Control::GroupMember(2, 1, true).encode(),
        Control::GroupLeave(2).encode(),
        attach(EndpointId(3), [1; 32]),
        Control::Refused("no".into()).encode(),
    ];
    let mut rank = served(&agent, someone());
    let mut said = 0;
    while said < 4_000 {
        let mut message = good[rng.below(good.len() as u64) as usize].clone();
        if rng.below(4) == 0 {
            let at = rng.below(message.len() as u64) as usize;
            message[at] ^= 1 << rng.below(8);
        }
        let mut header = [0; 64];
        rng.fill(&mut header);
        (header[0], header[1]) = (weft_core::wire::VERSION, header[1] % 24);
        let of = weft::PeerId(rng.below(10) as u32);
        let took = rank.say(&message) && rank.send(of, &header, &message);
        said += usize::from(took);
        rank.heard();
        assert!(!rank.has_ended(), "it has kept to the rings");
    }
    pass(&a, to_b, &b, 1, &pattern(4, 40_000));
}

#[test]
fn agent__rings_that_have_no_room_for_its_words_are_refused() {
    let agent = Served::start("");
    let me = someone();
    let small = |c: &mut weft_link::ShmConfig| c.mtu = 512;
    let mut rank = BareRank::connect_by(&agent.name, me, small).unwrap();
    // A packet for it could be longer than such a ring carries.
    rank.say(&attach(me, [1; 32]));
    let mut heard = Vec::new();
    until(&[], || {
        heard.extend(rank.heard());
        rank.has_ended()
    });
    assert!(heard.is_empty(), "{heard:?}");
    joined(&agent, &agent, b"it serves on");
}

//! Programs run by the kernel on frames of a simulated wire, and two interfaces joined by a cable.
#![allow(non_snake_case)]

use super::sender::Sender;
use super::*;
use crate::testing::{cable, interface};
use std::sync::mpsc::channel;
use weft_link::ether::EtherHead;
use weft_link::rng::Rng;

const LONG: Duration = Duration::from_secs(20);
const KEY: SipKey = SipKey(*b"a key of 16 byte");

/// Makes the two ends of a cable, the far end with the program, and the place of its only member.
/// `None` if this machine does not allow it.
fn over_a_cable() -> Option<(Interface, Interface, KernelChains, Place)> {
    if !cable() {
        return None;
    }
    let (own, far) = (interface("w0"), interface("v0"));
    let chains = KernelChains::serve(&far, EtherType::default()).unwrap();
    let place = Place { position: 1, next: None, root: own.mac };
    Some((own, far, chains, place))
}

#[test]
fn send__arrives_once_and_in_order_over_a_cable() {
    let Some((own, far, chains, place)) = over_a_cable() else { return };
    let kind = EtherType::default();
    let filter = KernelChains::serve(&own, kind).unwrap();
    for answers in [Answers::Received, Answers::Filtered(&filter)] {
        let mut member = chains.join(5, KEY, place).unwrap();
        assert!(matches!(chains.join(5, KEY, place), Err(ChainError::Group(5))));
        let mut root = ChainRoot::open(&own, kind, (5, KEY), &[far.mac], answers).unwrap();
        let mut buffer = [0; 2048];
        for n in 0..1000_usize {
            let payload = vec![n as u8; 1 + n * 7 % root.longest()];
            root.send(&payload, LONG).unwrap();
            assert_eq!(member.wait(&mut buffer, LONG).unwrap(), payload.len());
            assert_eq!(&buffer[..payload.len()], &payload[..], "packet {n}");
        }
        root.flush(LONG).unwrap();
        assert_eq!(member.counts()[3], 0, "forged");
        assert!(root.answers().is_none_or(|n| n >= 1000));
    }
}

#[test]
fn wait__sleeps_until_the_program_wakes_it() {
    let Some((own, far, chains, place)) = over_a_cable() else { return };
    let kind = EtherType::default();
    let mut members = [2, 3].map(|group| chains.join(group, KEY, place).unwrap());
    let mut roots = [2, 3].map(|group| {
        ChainRoot::open(&own, kind, (group, KEY), &[far.mac], Answers::Received).unwrap()
    });
    let (said, received) = channel();
    std::thread::scope(|scope| {
        for (member, said) in members.iter_mut().zip([said.clone(), said]) {
            scope.spawn(move || {
                let mut buffer = [0; 8];
                for n in 0..50_u64 {
                    assert_eq!(member.wait(&mut buffer, LONG).unwrap(), 8);
                    assert_eq!(u64::from_le_bytes(buffer), n);
                    said.send(()).unwrap();
                }
            });
        }
        for n in 0..50_u64 {
            // For every second packet, the members may be awake or about to sleep.
            let asleep = |group| chains.nodes.word(group, node::SLEEPS).load(Acquire) != 0;
            while n % 2 == 0 && !(asleep(2) && asleep(3)) {
                std::thread::yield_now();
            }
            for root in &mut roots {
                root.send(&n.to_le_bytes(), LONG).unwrap();
                root.flush(LONG).unwrap();
                received.recv_timeout(LONG).unwrap();
            }
        }
    });
    assert!(members.iter().all(|member| member.sleeps() > 0));
    let soon = members[0].wait(&mut [], US * 1500);
    assert!(matches!(soon, Err(ChainError::Nothing(_))));
}

/// Microseconds of simulated time.
const US: Duration = Duration::from_micros(1);
const DROP: u32 = 1;
const TX: u32 = 3;

fn mac(number: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, number as u8])
}

/// The faults of a wire, per hundred frames.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    lost: u64,
    twice: u64,
    late: u64,
}

/// Hosts on a simulated wire; the programs are run by the kernel.
struct Wire {
    /// The program of each host, the root first.
    programs: Vec<OwnedFd>,
    /// Frames in flight by arrival time, and a number that makes the keys different.
    frames: std::collections::BTreeMap<(Duration, u64), Vec<u8>>,
    sent: u64,
    faults: Faults,
    rng: Rng,
    now: Duration,
    /// All frames to and from this host are lost.
    dead: Option<usize>,
    /// Number of answers that reached the root's program or process.
    answers: u64,
}

impl Wire {
    fn put(&mut self, frame: &[u8]) {
        if self.rng.below(100) < self.faults.lost {
            return;
        }
        let copies = 1 + u64::from(self.rng.below(100) < self.faults.twice);
        for _ in 0..copies {
            let late = if self.rng.below(100) < self.faults.late { self.rng.below(400) } else { 0 };
            let at = self.now + US * (10 + late as u32);
            self.sent += 1;
            self.frames.insert((at, self.sent), frame.to_vec());
        }
    }

    /// Delivers all frames up to this time; passes frames for the root's process to `sender`.
    fn run(&mut self, until: Duration, sender: &mut Sender<'_>) {
        while let Some(first) = self.frames.first_entry() {
            if first.key().0 > until {
                break;
            }
            self.now = first.key().0;
            let frame = first.remove();
            let host = usize::from(frame[5]);
            if Some(host) == self.dead || Some(usize::from(frame[11])) == self.dead {
                continue;
            }
            self.answers += u64::from(host == 0);
            let (verdict, frame) = bpf::test_frame(&self.programs[host], &frame).unwrap();
            match verdict {
                TX => self.put(&frame),
                DROP => {}
                _ => assert!(sender.on_answer(&frame, self.now).is_some(), "a forged answer"),
            }
        }
        self.now = until;
    }
}

/// Runs a chain of a root and `members` members; packets are sent and taken at random times.
/// Returns the number of packets that arrived again or too early.
fn run_chain(members: usize, packets: u64, faults: Faults, filtered: bool, seed: u64) -> u64 {
    let kind = EtherType::default();
    let (chains, programs) = loaded(members);
    let filter = filtered.then(|| {
        chains[0].enter(3, &KEY, None).unwrap();
        &chains[0]
    });
    let mut sender = Sender::new((3, KEY), (kind, mac(0)), filter);
    let place = |position: usize| Place {
        position: position as u16,
        next: (position < members).then(|| mac(position + 1)),
        root: mac(0),
    };
    let mut ends: Vec<_> =
        (1..=members).map(|n| chains[n].join(3, KEY, place(n)).unwrap()).collect();
    let mut wire = Wire {
        programs,
        frames: Default::default(),
        sent: 0,
        faults,
        rng: Rng::new(seed),
        now: Duration::ZERO,
        dead: None,
        answers: 0,
    };
    let (mut pushed, mut taken, mut buffer) = (0, vec![0; members], [0; 64]);
    while taken.iter().any(|&t| t < packets) || !sender.window.is_empty() {
        let now = wire.now + US * (1 + wire.rng.below(20) as u32);
        wire.run(now, &mut sender);
        if pushed < packets && wire.rng.below(3) > 0 {
            let payload = u64::to_le_bytes(pushed).repeat(1 + (pushed % 7) as usize);
            pushed += u64::from(sender.push(mac(1), &payload, now));
        }
        if filtered {
            sender.on_time(now);
        }
        while let Some(frame) = sender.window.poll(now) {
            let frame = frame.to_vec();
            wire.put(&frame);
        }
        let who = wire.rng.below(members as u64) as usize;
        // One in four polls takes all packets, so that members fall behind alternately.
        if wire.rng.below(4) == 0 {
            while let Some(len) = ends[who].receive(&mut buffer).unwrap() {
                let expected = u64::to_le_bytes(taken[who]).repeat(1 + (taken[who] % 7) as usize);
                assert_eq!(buffer[..len], expected, "packet {} at {who}, seed {seed}", taken[who]);
                taken[who] += 1;
            }
        }
        assert!(wire.now < LONG, "seed {seed}: {taken:?} of {packets}, {sender:?}");
    }
    if let Some(answers) = sender.answers() {
        assert_eq!(answers, wire.answers, "all answers are noted, none is forged");
    }
    ends.iter().map(|end| end.counts()[0] + end.counts()[2]).sum()
}

#[test]
fn chain__every_packet_once_and_in_order_on_a_bad_wire() {
    if !cable() {
        return;
    }
    for (seed, filtered) in (0..6).flat_map(|seed| [(seed, false), (seed, true)]) {
        let members = 1 + seed as usize % 4;
        let good = run_chain(members, 300, Faults::default(), filtered, seed);
        assert_eq!(good, 0, "nothing has to come again on a good wire");
        for lost in [0, 2, 10] {
            let faults = Faults { lost, twice: 3, late: 3 };
            assert!(run_chain(members, 300, faults, filtered, seed) > 0, "the wire was bad");
        }
    }
}

/// Loads the programs of a root and its members, without attaching them.
fn loaded(members: usize) -> (Vec<KernelChains>, Vec<OwnedFd>) {
    let kind = EtherType::default();
    (0..=members).map(|n| KernelChains::load(kind, mac(n)).unwrap()).unzip()
}

fn at(position: u16, next: Option<usize>) -> Place {
    Place { position, next: next.map(mac), root: mac(0) }
}

/// Makes the frame of packet `number` for the member at a position.
fn packet(position: u16, number: u64, payload: &[u8]) -> Vec<u8> {
    let route = (EtherType::default(), mac(usize::from(position)), mac(0));
    frame::data(route, (3, position), &KEY, number, payload)
}

#[test]
fn program__what_is_forged_replayed_or_misplaced_changes_nothing() {
    if !cable() {
        return;
    }
    let (chains, programs) = loaded(2);
    let mut first = chains[1].join(3, KEY, at(1, Some(2))).unwrap();
    let mut last = chains[2].join(3, KEY, at(2, None)).unwrap();
    let verdict = |host: usize, frame: &[u8]| bpf::test_frame(&programs[host], frame).unwrap();
    let good = packet(1, 0, b"zero");
    for byte in 16..frame::HEAD {
        let mut bad = good.clone();
        bad[byte] ^= 0x10;
        let pass = byte == frame::GROUP || byte == frame::GROUP + 1;
        assert_eq!(verdict(1, &bad).0, if pass { 2 } else { DROP }, "byte {byte}");
    }
    let forged = first.counts()[3];
    assert!(forged > 30, "{forged} forged");
    assert_eq!(first.receive(&mut []).unwrap(), None);
    let (sent_on, second) = verdict(1, &good);
    assert_eq!(sent_on, TX);
    assert_eq!(verdict(1, &second).0, 2, "for another interface");
    // A frame for the first member is dropped by the last one, and a frame for the last by the
    // first.
    for (host, frame) in [(2, &good), (1, &second)] {
        let mut moved = frame.clone();
        moved[..6].copy_from_slice(&mac(host).0);
        assert_eq!(verdict(host, &moved).0, DROP);
    }
    assert_eq!(last.receive(&mut []).unwrap(), None);
    let (_, answer) = verdict(2, &second);
    // The good frames come again: they are forwarded and answered again, and kept once.
    assert_eq!(verdict(1, &good), (TX, second.clone()));
    assert_eq!(verdict(2, &second), (TX, answer.clone()));
    let mut buffer = [0; 8];
    assert_eq!(first.receive(&mut buffer).unwrap(), Some(4));
    assert_eq!(&buffer[..4], b"zero");
    assert_eq!(first.receive(&mut buffer).unwrap(), None);
    // An answer does not pass as data, and data does not pass as an answer.
    let filter = chains[0].enter(3, &KEY, None).unwrap();
    assert_eq!(verdict(0, &answer).0, DROP);
    assert_eq!(chains[0].nodes.word(filter, node::NEXT).load(Acquire), 1);
    for (host, frame) in [(1, &answer), (0, &good)] {
        let mut moved = frame.clone();
        moved[..6].copy_from_slice(&mac(host).0);
        assert_eq!(verdict(host, &moved).0, DROP);
    }
    assert_eq!(chains[0].nodes.word(filter, node::ANSWERS).load(Acquire), 1);
}

#[test]
fn receive__an_altered_payload_is_an_error() {
    if !cable() {
        return;
    }
    let (chains, programs) = loaded(1);
    let mut member = chains[1].join(3, KEY, at(1, None)).unwrap();
    let mut bad = packet(1, 0, b"pay 10");
    bad[frame::HEAD + 4] = b'9';
    assert_eq!(bpf::test_run(&programs[1], &bad).unwrap(), TX);
    assert!(matches!(member.receive(&mut []), Err(ChainError::Altered(0))));
    assert!(matches!(member.receive(&mut []), Err(ChainError::Altered(0))), "for good");
}

#[test]
fn program__false_lengths_and_other_frames_are_not_kept() {
    if !cable() {
        return;
    }
    let (chains, programs) = loaded(1);
    let mut member = chains[1].join(3, KEY, at(1, None)).unwrap();
    for len in [14, 59, 60, 64, 1500] {
        assert_eq!(bpf::test_run(&programs[1], &vec![0; len]).unwrap(), 2, "{len} zeros");
    }
    let resized = |len: u16| {
        let mut frame = packet(1, 0, &[7; 100]);
        frame[EtherHead::LENGTH..frame::VERSION].copy_from_slice(&len.to_le_bytes());
        let tag = KEY.hash(&[&frame[frame::TAGGED..frame::TAG]]);
        frame[frame::TAG..frame::HEAD].copy_from_slice(&tag.to_le_bytes());
        frame
    };
    let most = (frame::HEAD - EtherHead::LEN + node::SLOT_DATA) as u16;
    for len in [0, 37, 38, 139, 1000, most, most + 1, u16::MAX] {
        assert_eq!(bpf::test_run(&programs[1], &resized(len)).unwrap(), DROP, "length {len}");
    }
    assert_eq!(member.receive(&mut []).unwrap(), None);
    // The next good frame is kept: the bad ones changed no state.
    assert_eq!(bpf::test_run(&programs[1], &resized(138)).unwrap(), TX);
    assert_eq!(member.receive(&mut []).unwrap(), Some(100));
}

#[test]
fn send__waits_for_a_slow_member_and_names_it_and_the_silent_ones() {
    let Some((own, far, chains, place)) = over_a_cable() else { return };
    let kind = EtherType::default();
    let mut member = chains.join(0, KEY, place).unwrap();
    let mut root = ChainRoot::open(&own, kind, (0, KEY), &[far.mac], Answers::Received).unwrap();
    let soon = Duration::from_millis(60);
    // The member keeps one window of packets, the root another; then the root stops.
    let mut sent = 0_u64;
    let why = loop {
        match root.send(&sent.to_le_bytes(), soon) {
            Ok(()) => sent += 1,
            Err(why) => break why,
        }
    };
    assert_eq!(sent, 2 * node::RING);
    assert!(matches!(&why, ChainError::Stuck { slow: Some(1), silent, .. } if silent.is_empty()));
    assert!(why.to_string().ends_with("member 1 takes nothing"), "{why}");
    let mut buffer = [0; 8];
    for n in 0..2 * node::RING {
        while member.receive(&mut buffer).unwrap().is_none() {
            root.progress().unwrap();
        }
        assert_eq!(u64::from_le_bytes(buffer), n);
    }
    root.flush(LONG).unwrap();
    assert_eq!(root.slow(), None);
    drop(member);
    root.send(b"nobody", LONG).unwrap();
    let why = root.flush(soon).unwrap_err();
    assert!(why.to_string().ends_with("no answer from the kernel of member 1"), "{why}");
    // Invalid calls.
    assert!(matches!(root.send(&[], LONG), Err(ChainError::Empty)));
    let longest = root.longest();
    let long = root.send(&vec![0; longest + 1], LONG);
    assert!(matches!(long, Err(ChainError::TooLong(_, most)) if most == longest));
    assert!(ChainRoot::open(&own, kind, (0, KEY), &[], Answers::Received).is_err());
    assert!(matches!(chains.join(64, KEY, place), Err(ChainError::Group(64))));
    assert!(chains.join(1, KEY, Place { position: 0, ..place }).is_err());
}

#[test]
fn dissector__the_frame_matches_the_code() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/weft.lua");
    let text = std::fs::read_to_string(path).unwrap();
    let fields = [
        ("version", frame::VERSION, 1),
        ("kind", frame::KIND, 1),
        ("group", frame::GROUP, 2),
        ("place", frame::HOP, 2),
        ("number", frame::NUMBER, 8),
        ("limit", frame::LIMIT, 8),
        ("check", frame::CHECK, 8),
        ("tag", frame::TAG, 8),
    ];
    for (name, at, size) in fields {
        let at = at - EtherHead::LEN;
        assert!(text.contains(&format!("    {{ {at}, {size}, \"{name}\", ")), "{name}");
    }
    let kinds = [(frame::DATA, "DATA"), (frame::ACK, "ACK"), (frame::FULL, "FULL")];
    let kinds = kinds.map(|(kind, name)| format!("[{kind}] = \"{name}\""));
    for line in [
        format!("\nlocal CHAIN_SLOT = {SLOT:#06x}\n"),
        format!("\nlocal CHAIN_VERSION = {}\n", frame::VERSION_NOW),
        format!("\nlocal CHAIN_LEN = {}\n", frame::HEAD - EtherHead::LEN),
        format!("{}, [{}] = \"MISSING\"", kinds.join(", "), frame::MISSING),
    ] {
        assert!(text.contains(&line), "{line}");
    }
}

//! Messages: round trips from a seed, hostile bytes, and the tables of `PROTOCOL.md`.
#![allow(non_snake_case)]

mod world;

use std::fmt::Write;
use weft_names::directory::Gone;
use weft_names::groups::GroupHead;
use weft_names::wire::*;
use weft_names::*;
use world::{address, Rng};

fn life(rng: &mut Rng) -> Life {
    Life { incarnation: rng.below(Life::INCARNATION_MAX), nonce: rng.next() }
}

fn record(rng: &mut Rng) -> Record {
    let (number, cause) = match rng.below(5) {
        0 => (1, Cause::Started),
        1 => (3 + 2 * rng.below(1000) as u32, Cause::Returned),
        2 => (2, Cause::Left),
        3 => (4, Cause::Ended { status: rng.next() as u32 }),
        _ => (2 + 2 * rng.below(1000) as u32, Cause::Lost { by: HostId(rng.next()) }),
    };
    let address = match rng.below(2) {
        0 => address(rng.below(1000) as usize),
        _ => "[fd00::1:2]:99".parse().unwrap(),
    };
    Record { host: HostId(rng.next()), life: life(rng), number, agent: 7, address, cause }
}

fn publication(rng: &mut Rng) -> Publication {
    let lower = rng.below(1 << 32) as u32;
    let upper = lower.saturating_add(rng.below(100) as u32);
    let owner = Owner { user: rng.next() as u32, process: 4, serial: rng.next() };
    let mut name = Claim::new(owner, rng.next() as u32, lower..=upper).endpoint(rng.next());
    name.alias = "é".repeat(rng.below(31) as usize);
    name.unique = rng.below(2) == 0;
    name.group = rng.below(2) == 0;
    name.address = (rng.below(2) == 0).then(|| address(9));
    Publication { claim: 1 + rng.below(1 << 40), stamp: rng.next(), name }
}

fn change(rng: &mut Rng) -> Change {
    let gone = match rng.below(6) {
        0 => Gone::Withdrawn,
        1 => Gone::Exited { status: 3 },
        2 => Gone::Killed { signal: 9 },
        3 => Gone::Conflict { winner: HostId(rng.next()) },
        4 => Gone::Evicted { by: HostId(rng.next()) },
        _ => Gone::Replaced { incarnation: rng.next() },
    };
    match rng.below(2) {
        0 => Change::Claimed(publication(rng)),
        _ => Change::Withdrawn { claim: rng.next(), gone },
    }
}

fn many<T>(rng: &mut Rng, make: impl Fn(&mut Rng) -> T) -> Vec<T> {
    (0..rng.below(12)).map(|_| make(rng)).collect()
}

/// Makes a message of each type, and passes it on.
fn messages(rng: &mut Rng, mut each: impl FnMut(&Message<'_>)) {
    let records = many(rng, record);
    let items = List::Items(&records);
    let digest = rng.next();
    each(&Message::Join(Join { digest, items }));
    each(&Message::Welcome(Welcome { digest, items }));
    each(&Message::Members(Members { items }));
    each(&Message::Probe(Probe { serial: rng.next(), digest, items: NONE }));
    each(&Message::Pulse(Pulse { serial: rng.next(), digest, items: NONE }));
    let changes = many(rng, change);
    let (origin, origin_life) = (HostId(rng.next()), life(rng));
    let first = rng.next();
    each(&Message::Ops(Ops { origin, origin_life, first, items: List::Items(&changes) }));
    let buckets = many(rng, Rng::next);
    each(&Message::Sync(Sync { items: List::Items(&buckets) }));
    let entries = many(rng, |rng| Entry { record: record(rng), head: rng.next() });
    let (lo, hi) = (rng.next(), rng.next());
    each(&Message::Summary(Summary { lo, hi, items: List::Items(&entries) }));
    let haves = many(rng, |rng| Have {
        host: HostId(rng.next()),
        life: life(rng),
        head: rng.next(),
        snapshot: rng.next(),
        after: rng.next(),
    });
    each(&Message::Want(Want { items: List::Items(&haves) }));
    let names = many(rng, publication);
    let (head, after, upto, items) = (rng.next(), rng.next(), rng.next(), List::Items(&names));
    each(&Message::Snapshot(Snapshot { origin, origin_life, head, after, upto, items }));
    let (suspect, suspect_life) = (origin, origin_life);
    each(&Message::Suspect(Suspect { suspect, suspect_life, items: NONE }));
    each(&Message::Vouch(Vouch { suspect, suspect_life, items: NONE }));
    let claim = rng.next();
    each(&Message::Ask(Ask { claim, kind: 9, lower: 1, upper: 2, items: NONE }));
    let verdict = verdict::TAKEN;
    each(&Message::Answer(Answer { claim, holder: origin, verdict, items: NONE }));
    each(&Message::Evict(Evict { claim, claim_life: origin_life, user: 7, items: NONE }));
}

#[test]
fn messages__come_back_as_they_were() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let head = Head { relay: 3, host: HostId(rng.next()), life: life(&mut rng) };
        let mut seen = Vec::new();
        messages(&mut rng, |message| {
            seen.push(message.message_type());
            let bytes = emit(&head, message);
            let (head_back, back) = parse(&bytes).unwrap_or_else(|e| panic!("{message}: {e}"));
            assert_eq!((head_back, &back), (head, message), "seed {seed}");
            assert_eq!(emit(&head, &back), bytes, "seed {seed}");
        });
        seen.sort();
        assert_eq!(seen, MessageType::ALL);
    }
}

#[test]
fn parse__every_cut_and_every_longer_message_is_refused() {
    let mut rng = Rng::new(1);
    messages(&mut rng, |message| {
        let mut bytes = emit(&Head::default(), message);
        for len in 0..bytes.len() {
            assert!(parse(&bytes[..len]).is_err(), "{message} cut to {len}");
        }
        bytes.push(0);
        assert!(parse(&bytes).is_err(), "{message} with a byte more");
    });
}

#[test]
fn node__hostile_bytes_do_no_harm() {
    let mut rng = Rng::new(2);
    let now = Instant(1_000_000_000);
    let life = Life { incarnation: 5, nonce: 1 };
    let config = Config { members_max: 64, out_max: 4096, ..Config::default() };
    let mut node = Node::new(config, HostId(1), life, address(0), now);
    let mut time = now;
    for round in 0..1000u64 {
        let mut all = Vec::new();
        let head = Head {
            relay: rng.next() as u16,
            host: HostId(rng.below(100)),
            life: Life { incarnation: rng.below(4), nonce: 0 },
        };
        messages(&mut rng, |message| all.push(emit(&head, message)));
        for mut bytes in all {
            if rng.below(2) == 0 {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.next() as u8;
            }
            node.handle_message(time, address(round as usize % 70), &bytes);
        }
        time = Instant(time.0 + rng.below(20_000_000));
        if node.next_timeout().is_some_and(|at| at <= time) {
            node.handle_timeout(time);
        }
        let sizes = node.footprint();
        assert!(sizes.members <= 64 && sizes.links <= 64 && sizes.timers <= 200, "{sizes:?}");
        if round % 10 == 0 {
            while node.poll_transmit().is_some() {}
            while node.poll_event().is_some() {}
        }
    }
    let stats = node.stats();
    assert!(stats.malformed > 100 && stats.messages_received > 100);
}

#[test]
fn node__another_version_is_counted_and_reported() {
    let now = Instant(0);
    let mut node = Node::new(Config::default(), HostId(1), Life::default(), address(0), now);
    while node.poll_event().is_some() {}
    let mut bytes = emit(&Head::default(), &Message::Members(Members { items: List::Items(&[]) }));
    bytes[0] = 9;
    (0..5).for_each(|_| node.handle_message(now, address(3), &bytes));
    assert_eq!(node.stats().wrong_version, 5);
    assert_eq!(node.poll_event(), Some(Event::OtherVersion { from: address(3), version: 9 }));
    assert_eq!(node.poll_event(), None);
}

fn rows(out: &mut String, fields: &[FieldInfo]) {
    for FieldInfo { offset, size, name } in fields {
        writeln!(out, "{offset} {size} {name}").unwrap();
    }
}

/// Returns the tables of the code, each under its heading.
fn expected() -> String {
    let mut out = String::new();
    writeln!(out, "Head of names, {HEAD_LEN} bytes").unwrap();
    rows(&mut out, Head::FIELDS);
    for kind in MessageType::ALL {
        writeln!(out, "NAMES {kind} ({}), {} bytes", *kind as u8, kind.fixed_len()).unwrap();
        rows(&mut out, kind.fields());
    }
    writeln!(out, "Record, {} bytes", Record::SIZE).unwrap();
    rows(&mut out, Record::FIELDS);
    writeln!(out, "Entry, {} bytes", Entry::SIZE).unwrap();
    rows(&mut out, Entry::FIELDS);
    writeln!(out, "Have, {} bytes", Have::SIZE).unwrap();
    rows(&mut out, Have::FIELDS);
    writeln!(out, "Publication, {} bytes and the alias", Publication::SIZE).unwrap();
    rows(&mut out, Publication::FIELDS);
    writeln!(out, "Head between members, {} bytes", GroupHead::LEN).unwrap();
    rows(&mut out, GroupHead::FIELDS);
    out
}

#[test]
fn protocol_md__has_the_tables_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../PROTOCOL.md");
    let text = std::fs::read_to_string(path).expect("PROTOCOL.md");
    let section = text.split("\n## Names\n").nth(1).expect("a section Names");
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut found = String::new();
    for line in section.lines() {
        let heading = line.strip_prefix("### ").filter(|heading| heading.contains(" bytes"));
        if let Some(heading) = heading {
            writeln!(found, "{heading}").unwrap();
        } else if let Some(row) = line.strip_prefix("| ") {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            if let [offset, size, name, ..] = cells[..] {
                if offset.parse::<usize>().is_ok() && size.parse::<usize>().is_ok() {
                    writeln!(found, "{offset} {size} {name}").unwrap();
                }
            }
        }
    }
    assert_eq!(found, expected());
}

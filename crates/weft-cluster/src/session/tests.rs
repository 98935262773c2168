#![allow(non_snake_case)]
use super::*;

const MS: u64 = 1_000_000;

fn key(n: u8) -> JobKey {
    JobKey::from_bytes(&[n; 32]).unwrap()
}

fn at(n: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n as u8], 7117))
}

/// Two agents and the network between them.
struct Pair {
    now: Instant,
    sides: [Sessions; 2],
    /// All datagrams that were sent: the sender and the bytes.
    log: Vec<(usize, Vec<u8>)>,
    got: [Vec<Vec<u8>>; 2],
}

impl Pair {
    fn new(names: [&str; 2], keys: [ClusterKeys; 2]) -> Pair {
        let now = Instant(1_000 * MS);
        let [a, b] = keys;
        let sides = [Sessions::new(names[0], a, now), Sessions::new(names[1], b, now)];
        Pair { now, sides, log: Vec::new(), got: Default::default() }
    }

    fn equal() -> Pair {
        Pair::new(["c", "c"], [1, 1].map(|n| ClusterKeys::from_key(key(n))))
    }

    fn say(&mut self, side: usize, text: &str) {
        self.sides[side].send(self.now, at(1 - side as u16), class::NAMES, text.as_bytes());
    }

    fn deliver(&mut self, to: usize, bytes: &[u8]) {
        let taken = self.sides[to].receive(self.now, at(1 - to as u16), bytes);
        if let Some((_, payload)) = taken {
            self.got[to].push(payload.to_vec());
        }
    }

    /// Delivers all that `keeps` lets pass, for a time.
    fn run(&mut self, ms: u64, mut passes: impl FnMut(usize, &[u8]) -> bool) {
        let end = self.now.0 + ms * MS;
        loop {
            let sent: Vec<(usize, Vec<u8>)> = (0..2)
                .flat_map(|side| {
                    let out = std::iter::from_fn(|| self.sides[side].poll_transmit());
                    out.map(move |(_, bytes)| (side, bytes)).collect::<Vec<_>>()
                })
                .collect();
            if sent.is_empty() {
                if self.now.0 >= end {
                    return;
                }
                self.now = Instant(self.now.0 + MS);
                self.sides.iter_mut().for_each(|s| s.handle_timeout(self.now));
                continue;
            }
            for (side, bytes) in sent {
                self.log.push((side, bytes.clone()));
                if passes(side, &bytes) {
                    self.deliver(1 - side, &bytes);
                }
            }
        }
    }

    fn notices(&mut self, side: usize) -> Vec<Notice> {
        std::iter::from_fn(|| self.sides[side].poll_notice()).collect()
    }
}

#[test]
fn send__makes_a_session_and_both_sides_use_it() {
    let mut pair = Pair::equal();
    pair.say(0, "one");
    pair.run(10, |_, _| true);
    pair.say(1, "two");
    pair.run(10, |_, _| true);
    assert_eq!(
        (&pair.got[1][..], &pair.got[0][..]),
        (&[b"one".to_vec()][..], &[b"two".to_vec()][..])
    );
    assert_eq!(pair.sides.each_ref().map(|s| s.counters().made), [1, 1]);
}

#[test]
fn send__gets_through_whichever_datagram_is_lost_once() {
    for lost in 0..5 {
        let mut pair = Pair::equal();
        let mut count = 0;
        for _ in 0..100 {
            pair.say(0, "again");
            pair.run(50, |_, _| {
                count += 1;
                count - 1 != lost
            });
        }
        assert!(pair.got[1].len() > 90, "datagram {lost}: {}", pair.got[1].len());
    }
}

#[test]
fn receive__takes_no_datagram_twice_and_no_session_back() {
    let mut pair = Pair::equal();
    for _ in 0..20 {
        pair.say(0, "x");
        pair.run(1, |_, _| true);
    }
    assert_eq!(pair.got[1].len(), 20);
    let log = pair.log.clone();
    for (side, bytes) in &log {
        pair.deliver(1 - side, bytes);
        pair.run(0, |_, _| true);
    }
    assert_eq!((pair.got[1].len(), pair.got[0].len()), (20, 0));
    assert_eq!(pair.sides.each_ref().map(|s| s.len()), [1, 1]);
    // Later neither, when the numbers of ANSWER are no longer good.
    pair.now = Instant(pair.now.0 + 60_000 * MS);
    let mut other = Sessions::new("c", ClusterKeys::from_key(key(1)), pair.now);
    for (side, bytes) in &log {
        assert!(side == &1 || other.receive(pair.now, at(0), bytes).is_none());
    }
    assert_eq!(other.len(), 0, "an agent that started again takes up no session of before");
}

#[test]
fn receive__no_answer_is_longer_than_its_question() {
    let mut pair = Pair::equal();
    pair.say(0, "x");
    pair.run(10, |_, _| true);
    let log = std::mem::take(&mut pair.log);
    for (side, bytes) in log {
        for n in 0..=bytes.len() {
            for wrong in [false, true] {
                let mut bytes = bytes[..n].to_vec();
                if let Some(last) = bytes.last_mut().filter(|_| wrong) {
                    *last ^= 1;
                }
                let to = &mut pair.sides[1 - side];
                to.receive(pair.now, at(9), &bytes);
                let out = std::iter::from_fn(|| to.poll_transmit());
                let answered: usize = out.map(|(_, bytes)| bytes.len()).sum();
                assert!(answered <= n, "{answered} bytes for {n}");
            }
        }
    }
}

#[test]
fn receive__names_other_clusters_and_keys_on_both_sides() {
    let keys = |n| ClusterKeys::from_key(key(n));
    let mut rotated = keys(2);
    rotated.rotate().unwrap();
    rotated.rotate().unwrap();
    for (names, keys, why) in [
        (["c", "d"], [keys(1), keys(1)], Refusal::Cluster),
        (["c", "c"], [keys(1), keys(2)], Refusal::Key),
        (["c", "c"], [keys(2), rotated], Refusal::OldKey),
    ] {
        let mut pair = Pair::new(names, keys);
        pair.say(0, "x");
        pair.run(200, |_, _| true);
        assert!(pair.got[1].is_empty());
        assert!(pair.notices(1).contains(&Notice::Dropped(at(0), why)));
        let told = Notice::DroppedBy(at(1), why, wire::VERSION);
        assert!(pair.notices(0).contains(&told));
        assert!(pair.sides[1].counters().refused[why as usize - 1] > 0);
    }
    let mut pair = Pair::equal();
    let mut other = vec![9; 80];
    other[1] = kind::INIT;
    pair.deliver(1, &other);
    assert_eq!(pair.notices(1), [Notice::Dropped(at(0), Refusal::Version)]);
}

#[test]
fn set_keys__hosts_take_a_new_key_in_any_order() {
    for first in 0..2 {
        let mut pair = Pair::equal();
        pair.say(0, "one");
        pair.run(10, |_, _| true);
        let mut keys = ClusterKeys::from_key(key(1));
        keys.rotate().unwrap();
        pair.sides[first].set_keys(keys.clone());
        for side in [0, 1] {
            pair.say(side, "two");
            pair.run(300, |_, _| true);
        }
        assert_eq!((pair.got[1].len(), pair.got[0].len()), (2, 1), "while the keys differ");
        pair.sides[1 - first].set_keys(keys.clone());
        pair.say(0, "three");
        pair.run(2000, |_, _| true);
        pair.say(0, "four");
        pair.say(1, "five");
        pair.run(2000, |_, _| true);
        let new = keys.all()[0].public_id();
        assert_eq!(pair.sides[0].key_of(at(1)), Some(new));
        assert_eq!((pair.got[1].len(), pair.got[0].len()), (4, 2));
    }
}

#[test]
fn set_keys__a_host_without_the_new_key_yet_is_reported_once_and_counted_nowhere() {
    let mut pair = Pair::equal();
    pair.say(0, "one");
    pair.run(10, |_, _| true);
    let mut keys = ClusterKeys::from_key(key(1));
    keys.rotate().unwrap();
    pair.sides[0].set_keys(keys.clone());
    for _ in 0..100 {
        pair.say(0, "x");
        pair.say(1, "y");
        pair.run(1000, |_, _| true);
    }
    assert_eq!(pair.notices(0), [Notice::Behind(at(1))], "once");
    // An agent that starts again meanwhile is no stranger either.
    pair.sides[0] = Sessions::new("c", keys, pair.now);
    pair.say(0, "again");
    pair.run(2000, |_, _| true);
    assert_eq!((pair.got[1].len(), pair.got[0].len()), (102, 100));
    assert_eq!(pair.notices(1), []);
    for side in &pair.sides {
        let Counters { refused, replayed, forged, .. } = *side.counters();
        let strangers = refused[Refusal::Key as usize - 1];
        assert_eq!((strangers, replayed, forged), (0, 0, 0));
    }
    pair.say(0, "again");
    pair.run(1000, |_, _| true);
    assert_eq!(pair.notices(0), [Notice::Behind(at(1))]);
    assert_eq!(pair.sides[1].counters().made, 2, "one, and another for the second start");
}

#[test]
fn send__an_agent_that_started_again_is_reached() {
    let mut pair = Pair::equal();
    pair.say(0, "one");
    pair.run(10, |_, _| true);
    pair.sides[1] = Sessions::new("c", ClusterKeys::from_key(key(1)), pair.now);
    pair.say(0, "a message that is lost");
    pair.run(10, |_, _| true);
    pair.say(0, "two");
    pair.run(10, |_, _| true);
    assert_eq!(pair.got[1], [b"one".to_vec(), b"two".to_vec()]);
}

#[test]
fn call__is_answered_by_members_and_not_by_its_sender() {
    let mut pair = Pair::equal();
    let call = pair.sides[0].call();
    pair.deliver(0, &call);
    assert!(pair.sides[0].poll_transmit().is_none());
    pair.deliver(1, &call);
    pair.run(10, |_, _| true);
    assert_eq!(pair.notices(0), [Notice::Found(at(1))]);
    assert_eq!(pair.sides[1].len(), 1);
}

#![allow(non_snake_case)]

use super::*;
use weft_core::group::tree::{self, Tree};

const GROUP: u64 = 77;

/// Packets in order, each with its payload.
type Frames = VecDeque<(Packet, Vec<u8>)>;

/// Agents of all members of one group. Packets from one to another arrive in order, when the test
/// lets them.
struct World {
    members: Vec<Groups>,
    /// Packets under way, by sender and receiver.
    under_way: BTreeMap<(usize, usize), Frames>,
    /// Highest number of packets under way from one member to another.
    edge_max: usize,
    /// Messages sent to each rank.
    told: Vec<VecDeque<Control>>,
    got: Vec<Vec<u32>>,
    /// Peers to which a question was sent.
    asked: Vec<usize>,
    now: Instant,
    seed: u64,
}

/// Records the actions of one member's groups.
struct Notes<'a> {
    me: usize,
    under_way: &'a mut BTreeMap<(usize, usize), Frames>,
    edge_max: usize,
    told: &'a mut VecDeque<Control>,
    room: bool,
}

impl ToAgent for Notes<'_> {
    fn send(&mut self, peer: PeerId, packet: &Packet, bytes: &[u8]) -> bool {
        assert_ne!(peer.0 as usize, self.me);
        let edge = self.under_way.entry((self.me, peer.0 as usize)).or_default();
        let room = edge.len() < self.edge_max;
        edge.extend(room.then(|| (*packet, bytes.to_vec())));
        room
    }
    fn tell(&mut self, message: Control) {
        self.told.push_back(message);
    }
    fn has_room(&self) -> bool {
        self.room
    }
}

fn role(tree: Tree, me: usize, size: usize) -> GroupRole {
    let parent = tree::parent(tree, 0, me, size).map_or(PeerId(u32::MAX), |p| PeerId(p as u32));
    let children = tree::children(tree, 0, me, size).map(|c| PeerId(c as u32)).collect();
    GroupRole { group: GROUP, tree, size: size as u32, me: me as u32, parent, children }
}

impl World {
    fn new(tree: Tree, size: usize, seed: u64) -> World {
        let mut world = World {
            members: (0..size).map(|_| Groups::default()).collect(),
            under_way: BTreeMap::new(),
            edge_max: usize::MAX,
            told: vec![VecDeque::new(); size],
            got: vec![Vec::new(); size],
            asked: Vec::new(),
            now: Instant(1),
            seed: seed | 1,
        };
        // The last member joins first: grants arrive before their receivers have joined.
        for me in (0..size).rev() {
            assert!(world.members[me].join(role(tree, me, size), 1));
            world.progress(me);
            world.settle(&[]);
        }
        world
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed % below as u64) as usize
    }

    fn agent<T>(&mut self, me: usize, act: impl FnOnce(&mut Groups, &mut Notes<'_>) -> T) -> T {
        let (told, under_way) = (&mut self.told[me], &mut self.under_way);
        let mut notes = Notes { me, under_way, edge_max: self.edge_max, told, room: true };
        act(&mut self.members[me], &mut notes)
    }

    fn progress(&mut self, me: usize) {
        let now = self.now;
        self.agent(me, |groups, agent| groups.progress(now, agent));
    }

    /// Delivers all packets, edge by edge in random order, except packets to `deaf` members, whose
    /// ranks take nothing either.
    fn settle(&mut self, deaf: &[usize]) {
        loop {
            let edges: Vec<_> = self
                .under_way
                .iter()
                .filter(|(_, queue)| !queue.is_empty())
                .map(|(edge, _)| *edge)
                .collect();
            if edges.is_empty() {
                return;
            }
            let (from, to) = edges[self.random(edges.len())];
            let (packet, bytes) = self.under_way.get_mut(&(from, to)).unwrap().pop_front().unwrap();
            let sender = PeerId(from as u32);
            match packet {
                Packet::Mcast(m) => self.members[to].on_mcast(sender, &m, &bytes),
                Packet::Grant(g) => self.members[to].on_grant(sender, &g),
                Packet::Nop(_) => self.asked.push(to),
                other => panic!("{other}"),
            }
            self.progress(to);
            self.take(to, deaf);
            // The edge has room again.
            self.members[from].retry();
            self.progress(from);
        }
    }

    /// Takes the rank's messages and grants more; not for a deaf rank.
    fn take(&mut self, me: usize, deaf: &[usize]) {
        if deaf.contains(&me) {
            return;
        }
        let packets: Vec<_> = self.told[me].iter().filter_map(number).collect();
        self.told[me].retain(|c| number(c).is_none());
        for n in packets {
            self.got[me].push(n);
            self.members[me].rank_granted(GROUP, n + 1 + WINDOW);
        }
        self.progress(me);
    }

    fn granted(&mut self) -> u32 {
        let grants = self.told[0].iter().rev();
        let mut grants = grants.filter_map(|c| match c {
            Control::GroupGrant(GROUP, n) => Some(*n),
            _ => None,
        });
        grants.next().unwrap_or(0)
    }

    fn members_named(&self, slow: bool) -> Vec<u32> {
        let named = self.told[0].iter().filter_map(|c| match c {
            Control::GroupMember(GROUP, member, s) if *s == slow => Some(*member),
            _ => None,
        });
        named.collect()
    }

    fn send(&mut self, number: u32) {
        self.members[0].root_sends(GROUP, number, &number.to_le_bytes());
        self.progress(0);
    }
}

fn number(message: &Control) -> Option<u32> {
    match message {
        Control::GroupPacket(GROUP, n, bytes) => {
            assert_eq!(bytes, &n.to_le_bytes());
            Some(*n)
        }
        _ => None,
    }
}

#[test]
fn groups__every_tree_delivers_everything_in_order() {
    for &tree in Tree::ALL {
        for (size, edge_max) in [(2, 1), (2, 64), (3, 1), (8, 2), (8, 64), (13, 7)] {
            let mut world = World::new(tree, size, size as u64 * 31);
            world.edge_max = edge_max;
            for n in 0..1_000 {
                while world.granted() <= n {
                    world.settle(&[]);
                }
                world.send(n);
                if n % 7 == 0 {
                    world.settle(&[]);
                }
            }
            world.settle(&[]);
            for me in 1..size {
                assert_eq!(world.got[me], (0..1_000).collect::<Vec<_>>(), "{tree} of {size}: {me}");
            }
            assert!(world.members.iter().all(|m| m.refused == 0));
        }
    }
}

#[test]
fn groups__a_slow_rank_holds_up_the_root_in_bounded_room_and_is_named() {
    for &tree in Tree::ALL {
        let (mut world, slow) = (World::new(tree, 8, 5), 5);
        let mut n = 0;
        while world.granted() > n {
            world.send(n);
            world.settle(&[slow]);
            n += 1;
            assert!(n < 10 * WINDOW * 8, "{tree}: nothing holds the root up");
        }
        let queued = |m: &Groups| m.groups[&GROUP].waiting();
        assert!(world.members.iter().all(|m| queued(m) <= 2 * WINDOW as usize));
        let waiting = world.told[slow].iter().filter_map(number).count();
        assert!(waiting <= WINDOW as usize, "{tree}: {waiting}");
        world.now = world.now + SLOW + SLOW;
        for _ in 0..8 {
            (0..8).for_each(|me| world.progress(me));
            world.settle(&[slow]);
            world.now = world.now + SLOW;
        }
        assert!(world.members_named(true).contains(&(slow as u32)), "{tree}");
        world.take(slow, &[]);
        world.settle(&[]);
        assert!(world.granted() > n, "{tree}: it goes on");
        let before = n;
        while n < before + 50 {
            world.send(n);
            world.settle(&[]);
            n += 1;
        }
        assert_eq!(world.got[slow], (0..n).collect::<Vec<_>>());
    }
}

#[test]
fn groups__a_lost_member_is_named_and_the_others_go_on() {
    let mut world = World::new(Tree::Binary, 7, 3);
    // 1 is the parent of 3 and 4.
    for n in 0..10 {
        world.send(n);
    }
    world.settle(&[]);
    world.agent(0, |groups, agent| groups.on_lost(PeerId(1), agent));
    for orphan in [3, 4] {
        world.agent(orphan, |groups, agent| groups.on_lost(PeerId(1), agent));
        let lost = Control::GroupMember(GROUP, 1, false);
        assert!(world.told[orphan].contains(&lost), "{orphan} hears that its parent is gone");
    }
    world.progress(0);
    assert_eq!(world.members_named(false), [1]);
    for n in 10..500 {
        while world.granted() <= n {
            world.settle(&[]);
        }
        world.send(n);
    }
    world.settle(&[]);
    for me in [2, 5, 6] {
        assert_eq!(world.got[me], (0..500).collect::<Vec<_>>());
    }
}

#[test]
fn groups__a_loss_is_reported_whatever_events_wait_before_it() {
    let mut world = World::new(Tree::Binary, 7, 3);
    world.settle(&[]);
    let slow = |member| Grant { group: GROUP, granted: WINDOW, member, state: member::SLOW };
    for member in 100..100 + 2 * NEWS_MAX as u32 {
        world.members[1].on_grant(PeerId(3), &slow(member));
    }
    world.agent(1, |groups, agent| groups.on_lost(PeerId(4), agent));
    world.progress(1);
    world.settle(&[]);
    assert_eq!(world.members_named(false), [4]);
    assert_eq!(world.members_named(true).len(), NEWS_MAX - 1, "the others are bounded");
}

#[test]
fn groups__what_was_not_granted_or_is_from_elsewhere_is_refused() {
    let mut world = World::new(Tree::Flat, 3, 1);
    let mcast = |number| Mcast { group: GROUP, number };
    world.members[1].on_mcast(PeerId(2), &mcast(0), b"");
    world.members[1].on_mcast(PeerId(0), &mcast(1), b"");
    world.members[1].on_mcast(PeerId(0), &Mcast { group: 1, number: 0 }, b"");
    world.members[1].root_sends(GROUP, 0, b"");
    assert_eq!(world.members[1].refused, 4);
    for n in 0..5 * WINDOW {
        world.members[0].root_sends(GROUP, n, b"");
    }
    assert!(world.members[0].refused > 0, "the root is held to its grant");
    let grant = Grant { group: GROUP, granted: 5_000, ..Grant::default() };
    world.members[0].on_grant(PeerId(1), &grant);
    world.members[0].on_grant(PeerId(9), &grant);
    assert!(!world.members[0].join(role(Tree::Flat, 0, 3), 9), "it is in already");
    assert!(!world.members[0].join(GroupRole { group: 5, ..role(Tree::Flat, 0, 3) }, 1));
}

#[test]
fn groups__a_member_that_has_not_passed_on_everything_is_asked_and_others_are_not() {
    let mut world = World::new(Tree::Chain, 4, 5);
    let wait = |world: &mut World, deaf: &[usize], time: Duration| {
        let end = world.now + time;
        while let Some(at) = world.members.iter().filter_map(Groups::next_timeout).min() {
            if at > end {
                break;
            }
            world.now = world.now.max(at);
            (0..4).for_each(|me| world.progress(me));
            world.settle(deaf);
        }
        world.now = world.now.max(end);
    };
    wait(&mut world, &[], 10 * ASK_EVERY);
    assert!(world.asked.is_empty(), "nothing was sent");
    // Fewer than a step: their grants are sent late, but they are sent.
    (0..3).for_each(|n| world.send(n));
    world.settle(&[]);
    wait(&mut world, &[], 10 * ASK_EVERY);
    assert!(world.asked.is_empty() && world.members.iter().all(|m| m.next_timeout().is_none()));
    // A rank does not take its packets, and they exceed its ring.
    for n in 3..3 + WINDOW + 5 {
        while world.granted() <= n {
            wait(&mut world, &[2], LATE);
        }
        world.send(n);
    }
    world.settle(&[2]);
    wait(&mut world, &[2], 4 * ASK_EVERY);
    assert!(world.asked.len() >= 3 && world.asked.iter().all(|&who| who == 2), "{:?}", world.asked);
    world.take(2, &[]);
    world.settle(&[]);
    wait(&mut world, &[], ASK_EVERY);
    let asked = world.asked.len();
    wait(&mut world, &[], 10 * ASK_EVERY);
    assert_eq!(world.asked.len(), asked, "it owes nothing any more");
}

/// Accepts and counts all packets.
#[derive(Default)]
struct Count(u64);

impl ToAgent for Count {
    fn send(&mut self, _: PeerId, _: &Packet, _: &[u8]) -> bool {
        self.0 += 1;
        true
    }
    fn tell(&mut self, _: Control) {}
    fn has_room(&self) -> bool {
        true
    }
}

#[test]
fn progress__work_of_a_turn_is_bounded_whatever_a_rank_asks_for() {
    const CHILDREN: u32 = 1024;
    const MOST: u64 = (WORK + 2 * PACKET_COST + GROUP_COST) as u64;
    let (mut all, mut agent, mut now) = (Groups::default(), Count::default(), Instant(1));
    for id in 0..64 {
        let role = GroupRole {
            group: id,
            tree: Tree::Flat,
            size: CHILDREN + 1,
            me: 0,
            parent: PeerId(u32::MAX),
            children: (0..CHILDREN).map(PeerId).collect(),
        };
        assert!(all.join(role, 64));
    }
    let turn = |all: &mut Groups, agent: &mut Count, now| {
        let before = (all.work, agent.0);
        all.progress(now, agent);
        let (work, sent) = (all.work - before.0, agent.0 - before.1);
        assert!(work <= MOST && sent * u64::from(PACKET_COST) <= MOST, "{work}, {sent} packets");
        work
    };
    while all.is_due(now) {
        turn(&mut all, &mut agent, now);
    }
    assert_eq!(turn(&mut all, &mut agent, now), 0, "nothing has happened");
    // An event of one group causes no work for the others.
    let grant = |group| Grant { group, granted: 40, ..Grant::default() };
    all.on_grant(PeerId(5), &grant(3));
    let work = turn(&mut all, &mut agent, now);
    assert!(work <= u64::from(CHILDREN + GROUP_COST) && !all.is_due(now), "{work}");
    // The number of events within a call does not matter.
    (0..10_000).for_each(|_| all.on_grant(PeerId(5), &grant(3)));
    assert_eq!(turn(&mut all, &mut agent, now), work);
    // All groups at once: each is processed in its turn, to the end.
    (0..64).for_each(|id| (0..CHILDREN).for_each(|c| all.on_grant(PeerId(c), &grant(id))));
    (0..64).for_each(|id| all.root_sends(id, 0, b"packet"));
    let (mut turns, before) = (0, agent.0);
    while all.is_due(now) {
        turn(&mut all, &mut agent, now);
        turns += 1;
    }
    assert!(turns > 100, "{turns}");
    assert_eq!(agent.0 - before, 64 * u64::from(CHILDREN));
    // The timers do not expire all at once either.
    for _ in 0..3 {
        let Some(at) = all.next_timeout() else { panic!("they owe what they were sent") };
        now = at;
        let mut turns = 0;
        while all.is_due(now) {
            turn(&mut all, &mut agent, now);
            turns += 1;
        }
        assert!(turns >= 64 * CHILDREN / WORK, "{turns}");
    }
    // The search touches the lost child, not the other children.
    let before = all.work;
    all.on_lost(PeerId(7), &mut agent);
    assert_eq!(all.work, before);
    for id in 0..64 {
        all.leave(id);
    }
    assert!(!all.is_due(Instant::FAR) && all.next_timeout().is_none());
}

#[test]
fn join__a_child_that_is_named_twice_is_refused() {
    let mut all = Groups::default();
    let twice =
        GroupRole { children: vec![PeerId(1), PeerId(2), PeerId(1)], ..role(Tree::Flat, 0, 4) };
    assert!(!all.join(twice, 9));
    assert!(all.join(role(Tree::Flat, 0, 4), 9));
}

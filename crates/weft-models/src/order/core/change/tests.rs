//! Tests of changes of view: members by themselves, without a network.

use super::super::lives::HANDED_MAX;
use super::*;
use crate::order::{Options, Style};
use std::collections::VecDeque;

/// The life of a rank that joins.
const LIFE: u64 = 5;
const OPTIONS: Options = Options { style: Style::Sequencer, window: 16, safe: false };

/// Members without a net: posts come in the order in which they were made.
struct Cores {
    cores: BTreeMap<u32, Core>,
    /// The number of states that each rank was given.
    restored: BTreeMap<u32, u32>,
}

impl Cores {
    /// Members 0, 1 and 2, before their first view.
    fn begun() -> Cores {
        let core = |me| (me, Core::new(me, vec![0, 1, 2], OPTIONS));
        let mut cores: BTreeMap<u32, Core> = (0..3).map(core).collect();
        cores.values_mut().for_each(Core::form);
        Cores { cores, restored: BTreeMap::new() }
    }

    /// Members 0, 1 and 2 in their first view.
    fn open() -> Cores {
        let mut cores = Cores::begun();
        cores.go_on(|_, _, _| true);
        assert!(cores.cores.values().all(|core| core.view.epoch == 1 && core.is_open()));
        cores
    }

    fn of(&mut self, rank: u32) -> &mut Core {
        self.cores.get_mut(&rank).expect("it is there")
    }

    /// Does what a core wants; returns what it posts.
    fn posts_of(&mut self, rank: u32) -> Vec<(u32, Control)> {
        let mut posts = Vec::new();
        while let Some(action) = self.of(rank).actions.pop_front() {
            match action {
                Action::Post { to, control } => posts.push((to, control)),
                Action::View { view, .. } => self.of(rank).opened(view, 1000),
                Action::TakeSnapshot => self.of(rank).snapshot_taken(b"state"),
                Action::Restore { .. } => *self.restored.entry(rank).or_default() += 1,
                _ => {}
            }
        }
        posts
    }

    /// Hands over all posts that pass, and those that follow.
    fn go_on(&mut self, passes: impl Fn(u32, u32, &Control) -> bool) {
        let mut on_way = VecDeque::new();
        loop {
            for from in self.cores.keys().copied().collect::<Vec<_>>() {
                let posts = self.posts_of(from).into_iter();
                on_way.extend(posts.map(|(to, control)| (from, to, control)));
            }
            let Some((from, to, control)) = on_way.pop_front() else { return };
            if self.cores.contains_key(&to) && passes(from, to, &control) {
                self.of(to).handle(from, control);
            }
        }
    }

    /// A rank that wants to join by way of rank 0.
    fn joiner(me: u32) -> Cores {
        let mut core = Core::new(me, Vec::new(), OPTIONS);
        core.join(LIFE, vec![0]);
        Cores { cores: BTreeMap::from([(me, core)]), restored: BTreeMap::new() }
    }
}

fn view(epoch: u32) -> ViewId {
    ViewId { epoch, stamp: if epoch > 0 { stamp(1, 0) } else { 0 } }
}

/// The view of a number, of ranks 0 to 2.
fn install(epoch: u32, joined: &[u32]) -> Install {
    let (old, new, members) = (view(epoch - 1), view(epoch), vec![0, 1, 2]);
    let (joined, left) = (joined.iter().map(|&rank| (rank, LIFE)).collect(), Vec::new());
    Install { old, new, members, joined, left, base: 0, stable: 0, counter: None }
}

fn slot(data: Vec<u8>) -> Slot {
    Slot { sender: 1, number: 0, data }
}

#[test]
fn suspect__of_an_author_that_has_left_brings_a_member_of_the_old_view_up() {
    let mut cores = Cores::open();
    cores.of(0).leave();
    // The author ends after a quorum has entered its view, and before rank 2 learns of it.
    cores.go_on(|from, to, control| {
        from != 0 || to != 2 || matches!(control, Control::Flush { .. })
    });
    assert_eq!(cores.of(1).members, [1, 2]);
    assert!(cores.of(2).view.epoch == 1 && cores.of(2).change.is_frozen());
    cores.cores.remove(&0);
    cores.of(2).suspect(0, true, true);
    cores.go_on(|_, _, _| true);
    let theirs = cores.of(1).view;
    assert_eq!(cores.of(2).view, theirs);
    assert!(cores.of(2).is_open());
}

#[test]
fn join__a_rank_without_state_takes_part_in_no_change() {
    let mut cores = Cores::joiner(2);
    let (install, stamp) = (install(1, &[]), stamp(1, 0));
    let accepted = Accepted { stamp, install: install.clone() };
    let view = ViewId::default();
    let controls = [
        Control::Flush { view, stamp, next: 0, held: Vec::new(), joiners: Vec::new() },
        Control::Nack { view, promised: stamp },
        Control::Propose { accepted, slots: Vec::new() },
        Control::Enter { new: install.new },
        Control::Install { install: install.clone(), slots: Vec::new() },
    ];
    for control in controls {
        cores.of(2).handle(0, control.clone());
        let posts = cores.posts_of(2);
        let votes = |(_, post): &(u32, Control)| {
            matches!(post, Control::State { .. } | Control::Accept { .. })
        };
        assert!(!posts.iter().any(votes), "{control:?}: {posts:?}");
        let core = cores.of(2);
        assert!(core.view.epoch == 0 && !core.change.is_frozen(), "{control:?}");
    }
    let snapshot = b"state".to_vec();
    let install = self::install(2, &[2]);
    cores.of(2).handle(0, Control::Welcome { install, delivered: 0, snapshot });
    cores.posts_of(2);
    assert!(cores.of(2).is_open() && cores.restored[&2] == 1);
}

#[test]
fn join__of_a_rank_that_the_first_view_was_to_have_gets_the_state() {
    // The rank has been a member that told its end, or has never opened the group.
    for tells in [true, false] {
        let mut cores = Cores::begun();
        // The author has asked rank 2, which begins anew and has no part in that.
        let asked = cores.posts_of(0);
        let gone = cores.of(2).last_word();
        *cores.of(2) = Core::new(2, Vec::new(), OPTIONS);
        for (to, control) in asked {
            cores.of(to).handle(0, control);
        }
        for rank in [0, 1].into_iter().filter(|_| tells) {
            cores.of(rank).handle(2, Control::Gone(gone.clone()));
        }
        cores.of(2).join(LIFE, vec![0, 1]);
        cores.go_on(|_, _, _| true);
        cores.of(2).ask_to_join();
        cores.go_on(|_, _, _| true);
        assert!(cores.cores.values().all(|core| core.is_open() && core.members == [0, 1, 2]));
        assert_eq!(cores.restored, BTreeMap::from([(2, 1)]));
    }
}

#[test]
fn flush__of_a_suspect_that_falls_silent_is_followed_by_another_attempt() {
    let mut cores = Cores::open();
    cores.of(1).suspect(0, false, true);
    let is_flush = |(to, post): &(u32, Control)| *to == 2 && matches!(post, Control::Flush { .. });
    assert!(cores.posts_of(1).iter().any(is_flush));
    let (view, next) = (cores.of(1).view, cores.of(1).store.next);
    cores.of(1).handle(
        0,
        Control::Flush { view, stamp: stamp(9, 0), next, held: Vec::new(), joiners: Vec::new() },
    );
    assert!(!cores.posts_of(1).iter().any(is_flush));
    for ms in [10, 20, 60, 100] {
        cores.of(1).tick(Instant(ms * 1_000_000), Duration::ZERO);
    }
    assert!(cores.posts_of(1).iter().any(is_flush));
    assert!(cores.of(1).change.promised > stamp(9, 0));
}

#[test]
fn gone__of_a_member_that_was_there_before_a_joiner_is_heard_by_it() {
    let mut cores = Cores::joiner(2);
    let snapshot = Vec::new();
    cores.of(2).handle(0, Control::Welcome { install: install(2, &[2]), delivered: 0, snapshot });
    // Rank 1 has ended in the view before.
    let gone = Gone { life: 0, view: view(1), promised: 0, standing: None };
    cores.of(2).handle(1, Control::Gone(gone));
    assert!(cores.of(2).is_suspect(1));
}

#[test]
fn lag__of_a_later_life_leaves_the_last_state_of_the_member() {
    let mut cores = Cores::open();
    let view = cores.of(2).view;
    // Rank 2 accepts a view, and ends. Its next life has no part in that.
    let new = ViewId { epoch: 2, stamp: stamp(1, 1) };
    let install = Install { old: view, new, members: vec![1, 2], ..install(2, &[]) };
    let accepted = Accepted { stamp: new.stamp, install };
    cores.of(2).handle(1, Control::Propose { accepted: accepted.clone(), slots: Vec::new() });
    cores.posts_of(2);
    let gone = cores.of(2).last_word();
    cores.of(0).handle(2, Control::Gone(gone));
    for view in [ViewId::default(), view] {
        let lag = Control::Lag { view: ViewId::default(), next: 0, life: LIFE, asked: 1 };
        cores.of(0).handle(2, lag);
        let later = Gone { life: LIFE, view, promised: 0, standing: None };
        cores.of(0).handle(2, Control::Gone(later));
    }
    let standing = cores.of(0).change.gone[&2].standing.clone();
    assert_eq!(standing.and_then(|standing| standing.accepted), Some(accepted));
}

#[test]
fn welcome__of_a_life_before_is_not_taken_and_the_author_learns_of_it() {
    let mut cores = Cores::joiner(2);
    cores.of(2).change.joining.life = LIFE + 1;
    let install = install(2, &[2]);
    let welcome = |install| Control::Welcome { install, delivered: 0, snapshot: Vec::new() };
    cores.of(2).handle(0, welcome(install.clone()));
    let join = Control::Join { rank: 2, life: LIFE + 1 };
    assert_eq!(cores.posts_of(2).last(), Some(&(0, join.clone())));
    assert!(cores.of(2).view.epoch == 0);
    // The author has such a view.
    let author = Core::new(0, vec![0, 1, 2], OPTIONS);
    cores.cores.insert(0, author);
    cores.of(0).view = install.new;
    cores.of(0).change.last = Some(install);
    cores.of(0).handle(2, join);
    assert!(cores.of(0).is_suspect(2) && cores.of(0).change.gone.is_empty());
}

#[test]
fn gone__of_a_life_that_never_came_is_heard_and_that_of_a_life_before_is_not() {
    let mut cores = Cores::open();
    cores.of(0).view = view(2);
    cores.of(0).change.last = Some(install(2, &[2]));
    let gone = |life, view| Control::Gone(Gone { life, view, promised: 0, standing: None });
    for gone in [gone(0, view(1)), gone(LIFE - 1, ViewId::default())] {
        cores.of(0).handle(2, gone);
        assert!(!cores.of(0).is_suspect(2));
    }
    cores.of(0).handle(2, gone(LIFE, ViewId::default()));
    assert!(cores.of(0).is_suspect(2) && cores.of(0).change.gone[&2].standing.is_some());
}

#[test]
fn enter__a_rank_that_joins_again_is_suspected_no_more_by_any_member() {
    let mut cores = Cores::open();
    let gone = cores.of(2).last_word();
    for rank in [0, 1] {
        cores.of(rank).handle(2, Control::Gone(gone.clone()));
    }
    *cores.of(2) = Core::new(2, Vec::new(), OPTIONS);
    cores.go_on(|_, _, _| true);
    cores.of(2).join(LIFE, vec![0]);
    cores.go_on(|_, _, _| true);
    for core in cores.cores.values() {
        assert!(core.members == [0, 1, 2] && core.change.suspects.is_empty());
    }
}

#[test]
fn excluded__forgets_early_messages_of_no_later_view() {
    let mut cores = Cores::joiner(2);
    let submit = |epoch| Control::Submit { view: view(epoch), number: 0, data: Vec::new() };
    let kept = |core: &Core| core.early.len();
    cores.of(2).handle(1, submit(4));
    cores.of(2).handle(1, submit(6));
    cores.of(2).handle_cast(1, 1, &[7, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(kept(cores.of(2)), 3);
    for (epoch, left) in [(3, 3), (4, 2), (6, 1), (7, 0)] {
        cores.of(2).handle(0, Control::Excluded { view: view(epoch) });
        assert_eq!(kept(cores.of(2)), left, "after view {epoch}");
    }
}

#[test]
fn numbers__of_a_peer_are_bounded() {
    let mut cores = Cores::open();
    let view = cores.of(1).view;
    // A place that no member can have reached, or that all have passed.
    cores.of(0).handle(2, Control::Join { rank: 3, life: LIFE });
    let stamp_of = cores.of(0).change.promised;
    let standing = Standing { next: u64::MAX, slots: Vec::new(), spare: None, accepted: None };
    cores
        .of(0)
        .handle(2, Control::State { view, stamp: stamp_of, standing, unreachable: Vec::new() });
    assert_eq!(cores.of(0).change.attempt.as_ref().map(|a| a.states.len()), Some(1));
    let answer = Control::Answer { view, place: 0, next: u64::MAX, holds: false };
    for _ in 0..3 {
        cores.of(1).handle(2, answer.clone());
    }
    assert_eq!(cores.of(1).patience.wait.innocent, [2]);
    // The last state of a member is as short as its own rule says.
    let slots = vec![(0, slot(vec![0; HANDED_MAX]))];
    let standing = Some(Standing { next: 0, slots, spare: None, accepted: None });
    cores.of(1).handle(2, Control::Gone(Gone { life: 0, view, promised: 0, standing }));
    assert!(cores.of(1).is_suspect(2) && cores.of(1).change.gone[&2].standing.is_none());
}

#[test]
fn flush__after_the_greatest_stamp_no_attempt_has_a_lesser_one() {
    let mut cores = Cores::open();
    let (view, next) = (cores.of(1).view, cores.of(1).store.next);
    let flush =
        Control::Flush { view, stamp: u32::MAX, next, held: Vec::new(), joiners: Vec::new() };
    cores.of(1).handle(2, flush);
    cores.of(1).suspect(0, true, true);
    assert_eq!(cores.of(1).change.promised, u32::MAX);
    assert!(cores.of(1).change.attempt.is_none());
}

#[test]
fn join__beside_a_member_that_has_given_the_rank_up_is_refused_and_the_members_stay() {
    // The author of changes has given the rank up; then another member.
    for (member, contact) in [(0, 1), (2, 0)] {
        let mut cores = Cores::open();
        cores.of(member).lose(3, false);
        cores.cores.insert(3, Core::new(3, Vec::new(), OPTIONS));
        cores.of(3).join(LIFE, vec![contact]);
        let reach = |from, to| [(from, to), (to, from)].contains(&(member, 3));
        for _ in 0..3 {
            cores.go_on(|from, to, _| !reach(from, to));
            let epoch = cores.of(0).view.epoch;
            let error = OrderError::Unreachable { member: member as usize };
            assert!(cores.of(3).ended == Some(error) && epoch <= 2, "{member}: view {epoch}");
            assert_eq!(cores.of(contact).members, [0, 1, 2]);
            // The joiner asks again.
            *cores.of(3) = Core::new(3, Vec::new(), OPTIONS);
            cores.of(3).join(LIFE, vec![contact]);
        }
    }
}

#[test]
fn welcome__with_a_member_that_the_rank_has_given_up_is_refused() {
    let mut cores = Cores::joiner(2);
    cores.of(2).lose(1, false);
    let install = install(2, &[2]);
    let welcome = Control::Welcome { install, delivered: 0, snapshot: b"state".to_vec() };
    cores.of(2).handle(0, welcome);
    assert_eq!(cores.of(2).ended, Some(OrderError::Unreachable { member: 1 }));
    let gone = |(to, post): &(u32, Control)| *to == 0 && matches!(post, Control::Gone(_));
    assert!(cores.posts_of(2).iter().any(gone) && cores.restored.is_empty());
}

#[test]
fn leave__of_a_life_before_does_not_remove_the_life_that_has_joined() {
    let mut cores = Cores::open();
    cores.of(0).view = view(5);
    cores.of(0).change.last = Some(install(5, &[2]));
    for epoch in [1, 4] {
        cores.of(0).handle(1, Control::Leave { rank: 2, epoch });
        assert!(cores.of(0).change.leavers.is_empty(), "of view {epoch}");
    }
    cores.of(0).handle(2, Control::Leave { rank: 2, epoch: 5 });
    assert_eq!(cores.of(0).change.leavers.keys().copied().collect::<Vec<_>>(), [2]);
    cores.of(0).handle(1, Control::Leave { rank: 1, epoch: 4 });
    assert!(cores.of(0).change.leavers.contains_key(&1));
}

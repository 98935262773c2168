//! Views of ordered groups: one of each number whoever stops, is cut off or ends, and as many as
//! the program likes.

use crate::order::{message, one_view_a_number, options_of, record, Logs, Told};
use crate::swarm::{enough, seeds, Cluster, MS};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use weft_models::net::Net;
use weft_models::order::{Options, OrderError, OrderedGroup, Style, View};
use weft_sim::{Fault, SimConfig, Span};
use weft_swarm::cluster::Ends;

/// The places of messages that were delivered to their senders, with sender and number.
type Given = Rc<RefCell<Vec<(u64, usize, u64)>>>;

/// Checks that no place was given to two messages, and that no rank has delivered another message
/// of its own at such a place.
fn one_message_a_place(given: &[(u64, usize, u64)], logs: &BTreeMap<usize, Vec<Told>>, seed: u64) {
    let mut at = BTreeMap::new();
    for &(place, rank, number) in given {
        let before = at.insert(place, (rank, number));
        assert_eq!(before, None, "seed {seed}: place {place} was given to {rank} too");
    }
    for (rank, log) in logs {
        let messages = log.iter().filter_map(|told| match told {
            Told::Message(from, number, _) => Some((*from, *number)),
            Told::View(..) => None,
        });
        for (place, told) in messages.enumerate() {
            // One that was cut off may have delivered a message of another one that nobody else
            // has; but none of its own comes after that.
            let given = at.get(&(place as u64)).copied();
            let is_own = told.0 == *rank && given.is_some();
            assert!(!is_own || given == Some(told), "seed {seed}: {told:?} at {place}: {given:?}");
        }
    }
}

/// Members are stopped for longer than others wait, are cut off, or die. The others go on without
/// them, and end: they leave, or drop their handles, and close. Then the first ones go on.
#[test]
fn views__one_a_number_and_one_message_a_place_whoever_stops_and_ends() {
    const COUNT: u64 = 20;
    let (mut stopped, mut ended) = (0, 0);
    for seed in seeds(0..300) {
        let cluster = Cluster::stopped(seed, 2..6);
        let options = Options { safe: true, ..options_of(seed) };
        let (logs, given, lost) = (Logs::default(), Given::default(), Rc::new(Cell::new(0)));
        let (all, places, cut) = (Rc::clone(&logs), Rc::clone(&given), Rc::clone(&lost));
        let done = Rc::new(Cell::new(0));
        let count = Rc::clone(&done);
        cluster.run_to(Ends::AtOnce, "order stop", move |env, net| {
            let (logs, given) = (Rc::clone(&all), Rc::clone(&places));
            let (lost, done) = (Rc::clone(&cut), Rc::clone(&count));
            async move {
                let mut rng = env.rng();
                let (me, ranks) = (net.rank(), (0..net.size()).collect::<Vec<usize>>());
                let group = OrderedGroup::open(&net, 0, &ranks, options);
                record(&group, &logs, Some(0));
                for number in 0..COUNT {
                    match group.send(message(number, 8)).await {
                        Ok(place) => given.borrow_mut().push((place, me, number)),
                        Err(error) => {
                            env.note(error.to_string());
                            return lost.set(lost.get() + 1);
                        }
                    }
                    env.sleep(rng.below(5 * MS)).await;
                }
                done.set(done.get() + 1);
                if rng.below(2) == 0 {
                    env.note(group.describe());
                    _ = group.leave().await;
                }
            }
        });
        one_view_a_number(&logs.borrow(), seed);
        one_message_a_place(&given.borrow(), &logs.borrow(), seed);
        stopped += lost.get();
        ended += done.get();
    }
    enough(stopped > 50 && ended > 400, || format!("{stopped} stopped, {ended} went on"));
}

/// Each join and each leave is a view.
#[test]
fn views__have_no_greatest_number() {
    const ROUNDS: u32 = 300;
    let cluster = Cluster { config: SimConfig::new(3, 1), dies: None };
    cluster.run("order churn", |env, net| async move {
        let options = Options::default();
        if net.rank() < 2 {
            let group = OrderedGroup::open(&net, 0, &[0, 1], options);
            group.expect(true);
            let last = |view: &weft_models::order::View| view.number > 2 * ROUNDS;
            group.view_when(last).await.expect("the members go on");
            group.send("goes on").await.expect("the members go on");
            env.sleep(200 * MS).await;
            return;
        }
        for round in 0..ROUNDS {
            let group = OrderedGroup::join(&net, 0, &[0, 1], options, |_| ());
            let joined = group.view_when(|_| true).await;
            joined.unwrap_or_else(|error| panic!("round {round}: {error}"));
            group.send("is in").await.unwrap_or_else(|error| panic!("round {round}: {error}"));
            group.leave().await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
    });
}

#[test]
fn join__of_a_group_whose_members_have_left_is_an_error() {
    for (seed, keeps) in [(1, false), (2, true)] {
        let cluster = Cluster { config: SimConfig::new(3, seed), dies: None };
        cluster.run("order join late", move |env, net| async move {
            if net.rank() < 2 {
                let group = OrderedGroup::open(&net, 0, &[0, 1], Options::default());
                group.view_when(|_| true).await.unwrap();
                group.leave().await.unwrap();
                env.sleep(3_000 * MS).await;
                return keeps.then_some(group);
            }
            env.sleep(500 * MS).await;
            let group = OrderedGroup::join(&net, 0, &[0, 1], Options::default(), |_| ());
            let error = group.view_when(|_| true).await.unwrap_err();
            assert_eq!(error, OrderError::NobodyToJoin);
            assert!(net.now().0 < 2_000 * MS);
            None
        });
    }
}

/// A rank that joins, fails, and joins again does not change the view as fast as it can.
#[test]
fn join__of_a_rank_that_is_excluded_again_and_again_waits_longer() {
    const TIME: u64 = 20_000 * MS;
    let cluster = Cluster { config: SimConfig::new(3, 1), dies: None };
    cluster.run("order join loop", |env, net| async move {
        let options = Options::default();
        if net.rank() < 2 {
            let group = OrderedGroup::open(&net, 0, &[0, 1], options);
            group.view_when(|_| true).await.unwrap();
            env.sleep(TIME).await;
            let number = group.view().unwrap().number;
            assert!((10..40).contains(&number), "{number} views");
            group.send("goes on").await.unwrap();
            env.sleep(500 * MS).await;
            return Some(group);
        }
        while net.now().0 < TIME {
            let group = OrderedGroup::join(&net, 0, &[0, 1], options, |_| ());
            let over = Box::pin(net.sleep(std::time::Duration::from_secs(20)));
            let mut joins = Box::pin(group.view_when(|_| true));
            if let Some(joined) = crate::swarm::first(&mut joins, over).await {
                joined.unwrap();
            }
            // The handle is dropped: the others go on without this rank.
        }
        None
    });
}

/// More messages wait for a rank than there is room for when a member drops its handle. The rank
/// learns of that end all the same, and the next handle begins with whole messages.
#[test]
fn drop__of_a_member_whose_messages_wait_for_room_is_told_and_it_may_join_again() {
    for seed in seeds(0..6) {
        let mut config = Cluster::of_seed(seed, 2..3, None).config;
        config.faults = vec![Fault::Pause { host: 0, span: Span::ms(20, 220) }];
        config.limit_ns = 20_000 * MS;
        let cluster = Cluster { config, dies: None };
        let again = seed.is_multiple_of(2);
        cluster.run("order drop full", move |env, net| async move {
            let style = Style::Sequencer;
            let options = Options { style, window: 4096, ..Options::default() };
            let group = OrderedGroup::open(&net, 0, &[0, 1], options);
            group.view_when(|_| true).await.unwrap();
            if net.rank() == 0 {
                let views = Rc::new(RefCell::new(Vec::new()));
                let seen = Rc::clone(&views);
                group.on_view(move |view| seen.borrow_mut().push(view.members));
                let wanted = [vec![0], vec![0, 1]];
                let wanted = &wanted[..1 + usize::from(again)];
                let ends = |_: &View| views.borrow().starts_with(wanted);
                group.view_when(ends).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                group.send("goes on").await.unwrap();
                env.sleep(100 * MS).await;
                return Some(group);
            }
            while net.now().0 < 30 * MS {
                env.sleep(MS).await;
            }
            // Each goes to the rank that gives the places, which stands still.
            for number in 0..1_500 {
                drop(group.send(message(number, 1_200)));
            }
            drop(group);
            if !again {
                env.sleep(2_000 * MS).await;
                return None;
            }
            let group = OrderedGroup::join(&net, 0, &[0], options, |_| ());
            let joined = group.view_when(|_| true).await;
            joined.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            group.send("is in").await.unwrap();
            env.sleep(100 * MS).await;
            Some(group)
        });
    }
}

//! Ordered groups under faults: all that go on deliver the same messages in the same order, none
//! twice, and all of those that live.

use crate::swarm::{enough, first, seeds, Cluster, MS};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use weft_models::net::{Live, Net};
use weft_models::order::{Options, OrderError, OrderedGroup, Style, View};
use weft_models::MESSAGE_MAX;
use weft_sim::{Env, Fault, SimConfig};

pub const STYLES: [Style; 3] = [Style::Ticket, Style::Sequencer, Style::Broadcast];

pub fn options_of(seed: u64) -> Options {
    Options { style: STYLES[seed as usize % 3], window: 16, safe: (seed / 2).is_multiple_of(2) }
}

/// An event at a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Sender, its number, length.
    Message(usize, u64, usize),
    View(u32, Vec<usize>),
}

/// The events at each rank, in order.
pub type Logs = Rc<RefCell<BTreeMap<usize, Vec<Told>>>>;

pub fn message(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((0..len as u64).map(|i| (number + i * 3) as u8));
    bytes
}

/// Notes all that a member is told; checks content and places.
pub fn record(group: &OrderedGroup<Live>, logs: &Logs, from_place: Option<u64>) {
    let me = group.net().rank();
    let (log, next) = (Rc::clone(logs), Cell::new(from_place));
    group.on_deliver(move |m| {
        let number = u64::from_le_bytes(m.bytes[..8].try_into().unwrap());
        assert!(m.bytes == message(number, m.bytes.len() - 8), "{} from {}", number, m.from);
        let next = next.replace(Some(m.place + 1)).unwrap_or(m.place);
        assert_eq!(m.place, next, "places of rank {me}");
        let told = Told::Message(m.from, number, m.bytes.len());
        log.borrow_mut().entry(me).or_default().push(told);
    });
    let log = Rc::clone(logs);
    group.on_view(move |view: View| {
        log.borrow_mut().entry(me).or_default().push(Told::View(view.number, view.members));
    });
}

fn count_of(log: &[Told], sender: usize) -> u64 {
    log.iter().filter(|told| matches!(told, Told::Message(from, ..) if *from == sender)).count()
        as u64
}

/// Sends `count` messages of many lengths, then waits until all of each member are here.
async fn member(
    env: Env,
    group: OrderedGroup<Live>,
    logs: Logs,
    count: u64,
) -> Result<(), OrderError> {
    let mut rng = env.rng();
    let mut sent = Vec::new();
    for number in 0..count {
        let len = match rng.below(12) {
            0 => 6_000,
            1 => 0,
            _ => rng.below(200),
        };
        sent.push(group.send(message(number, len as usize)));
        if rng.below(4) == 0 {
            env.sleep(rng.below(MS)).await;
        }
    }
    let mut before = None;
    for sent in sent {
        let place = sent.await?;
        assert!(before < Some(place), "places of one sender ascend");
        before = Some(place);
    }
    let me = group.net().rank();
    group.expect(true);
    loop {
        let members = group.view().map(|view| view.members).unwrap_or_default();
        let done = {
            let logs = logs.borrow();
            let log = logs.get(&me).map(Vec::as_slice).unwrap_or_default();
            members.iter().all(|&rank| count_of(log, rank) == count)
        };
        if done && !members.is_empty() {
            env.note(format!("done: {}", group.describe()));
            return Ok(());
        }
        if let Some(error) = group.ended() {
            return Err(error);
        }
        env.note(group.describe());
        env.sleep(MS).await;
    }
}

/// Checks the logs of the ranks in `whole`, which went on to the end.
fn check(logs: &BTreeMap<usize, Vec<Told>>, whole: &[usize], count: u64, seed: u64) {
    let longest = whole.iter().map(|rank| &logs[rank]).max_by_key(|log| log.len()).unwrap();
    for rank in whole {
        let log = &logs[rank];
        assert_eq!(log[..], longest[..log.len()], "seed {seed}: rank {rank} was told other things");
        for sender in whole {
            assert_eq!(count_of(log, *sender), count, "seed {seed}: of {sender} at {rank}");
        }
    }
    let mut next = BTreeMap::<usize, u64>::new();
    for told in longest {
        if let Told::Message(from, number, _) = told {
            let next = next.entry(*from).or_default();
            assert_eq!(number, next, "seed {seed}: messages of rank {from}");
            *next += 1;
        }
    }
}

/// Returns the messages of a log.
fn messages_of<'a>(log: impl IntoIterator<Item = &'a Told>) -> Vec<Told> {
    let told = log.into_iter().filter(|told| matches!(told, Told::Message(..)));
    told.cloned().collect()
}

/// Checks the logs of the ranks that did not go on: they begin as that of the others. Of a message
/// that only such ranks know, the others have nothing that such ranks have sent after it, unless
/// the sender has sent it once more in a later view.
fn check_cut_off(logs: &BTreeMap<usize, Vec<Told>>, whole: &[usize], seed: u64) {
    let messages = |rank: usize| messages_of(logs.get(&rank).into_iter().flatten());
    let longest = whole.iter().map(|&rank| messages(rank)).max_by_key(Vec::len).unwrap();
    let last_view = |log: &[Told]| {
        let mut views = log.iter().filter_map(|told| match told {
            Told::View(number, _) => Some(*number),
            Told::Message(..) => None,
        });
        views.next_back().unwrap_or(0)
    };
    for &rank in logs.keys().filter(|rank| !whole.contains(rank)) {
        let own = messages(rank);
        let same = own.iter().zip(&longest).take_while(|(own, other)| own == other).count();
        for told in &own[same..] {
            let Told::Message(from, ..) = told else { continue };
            let at = logs[&rank].iter().position(|other| other == told).unwrap_or(0);
            let view = last_view(&logs[&rank][..at]);
            let is_later = logs.get(from).is_some_and(|log| last_view(log) > view);
            let is_lost = whole.contains(from) || is_later || !longest.contains(told);
            assert!(is_lost, "seed {seed}: {told:?} at rank {rank}, {same} before are the same");
        }
    }
}

/// Checks that all ranks which have ever been in a view of some number have been in the same one,
/// those included that were stopped, were cut off, or have ended.
pub fn one_view_a_number(logs: &BTreeMap<usize, Vec<Told>>, seed: u64) {
    let mut views = BTreeMap::new();
    for (rank, log) in logs {
        for told in log {
            let Told::View(number, members) = told else { continue };
            let (first, same) = views.entry(number).or_insert((rank, members));
            assert_eq!(
                *same, members,
                "seed {seed}: view {number} at rank {first} and rank {rank}"
            );
        }
    }
}

#[test]
fn order__same_messages_in_the_same_order_under_faults() {
    const COUNT: u64 = 25;
    let (mut views, mut dead) = (0, 0);
    for seed in seeds(0..150) {
        let cluster = Cluster::of_seed(seed, 1..6, Some(0..6));
        let style = STYLES[seed as usize % 3];
        let window = [4, 16, 256][seed as usize / 3 % 3];
        let options = Options { style, window, safe: (seed / 2).is_multiple_of(2) };
        let (logs, lost) = (Logs::default(), Rc::new(RefCell::new(Vec::new())));
        let (all, ended) = (Rc::clone(&logs), Rc::clone(&lost));
        let hosts = cluster.config.hosts as usize;
        let dies = cluster.dies.map(|host| host as usize);
        let outcome = cluster.run("order", move |env, net| {
            let (logs, ended) = (Rc::clone(&all), Rc::clone(&ended));
            async move {
                let ranks: Vec<usize> = (0..net.size()).collect();
                let group = OrderedGroup::open(&net, 0, &ranks, options);
                record(&group, &logs, Some(0));
                if let Err(error) = member(env.clone(), group.clone(), logs, COUNT).await {
                    env.note(error.to_string());
                    ended.borrow_mut().push((net.rank(), error));
                }
                group
            }
        });
        let lost = lost.borrow();
        let others: Vec<usize> = (0..hosts).filter(|&rank| Some(rank) != dies).collect();
        if others.is_empty() {
            continue;
        }
        if !lost.is_empty() {
            // Of two, the one with the lower rank is a quorum.
            assert!(hosts == 2 && dies == Some(0), "seed {seed}: {lost:?}, {outcome:?}");
            continue;
        }
        let logs = logs.borrow();
        one_view_a_number(&logs, seed);
        check(&logs, &others, COUNT, seed);
        dead += outcome.died.len();
        views += logs[&others[0]]
            .iter()
            .filter(|told| matches!(told, Told::View(..)))
            .count()
            .saturating_sub(1);
    }
    enough(views > 5 && dead > 5, || format!("{views} changes, {dead} deaths"));
}

/// Members that are cut off end with an error; all others agree, and there is one group at most.
#[test]
fn order__members_that_are_cut_off_end_and_the_others_agree() {
    const COUNT: u64 = 25;
    let (mut cut_off, mut went_on) = (0, 0);
    // In two more seeds a member that fails has delivered a message of another one that fails, and
    // sent one after it. In the last one an author learns that its attempt before has succeeded,
    // while a member has answered the next one.
    for seed in seeds(0..150).chain([744, 4737, 31_423]) {
        let cluster = Cluster::rough(seed, 3..7);
        let options = options_of(seed);
        let (logs, fine) = (Logs::default(), Rc::new(RefCell::new(Vec::new())));
        let (all, done, lost) = (Rc::clone(&logs), Rc::clone(&fine), Rc::new(Cell::new(0)));
        let ended = Rc::clone(&lost);
        cluster.run("order rough", move |env, net| {
            let (logs, done, ended) = (Rc::clone(&all), Rc::clone(&done), Rc::clone(&ended));
            async move {
                let ranks: Vec<usize> = (0..net.size()).collect();
                let group = OrderedGroup::open(&net, 0, &ranks, options);
                record(&group, &logs, Some(0));
                match member(env, group.clone(), logs, COUNT).await {
                    Ok(()) => done.borrow_mut().push((net.rank(), group.view().unwrap())),
                    Err(_) => ended.set(ended.get() + 1),
                }
                group
            }
        });
        let fine = fine.borrow();
        let logs = logs.borrow();
        one_view_a_number(&logs, seed);
        // A member that is cut off after its last message may not have noticed it.
        let newest = fine.iter().map(|(_, view)| view.number).max().unwrap_or(0);
        let is_newest = |view: &View| view.number == newest;
        let members = fine.iter().find(|(_, view)| is_newest(view)).map(|(_, view)| &view.members);
        let whole: Vec<usize> = fine
            .iter()
            .map(|(rank, _)| *rank)
            .filter(|rank| members.is_some_and(|members| members.contains(rank)))
            .collect();
        if !whole.is_empty() {
            check(&logs, &whole, COUNT, seed);
            check_cut_off(&logs, &whole, seed);
        }
        went_on += whole.len();
        cut_off += lost.get();
    }
    enough(cut_off > 3 && went_on > 40, || format!("{cut_off} were cut off, {went_on} went on"));
}

#[test]
fn order__a_holder_of_a_ticket_is_named_and_after_its_death_others_go_on() {
    for dies in [false, true] {
        let mut config = SimConfig::new(3, 1);
        config.settings = vec![("warn_after_ms", "100".to_string())];
        if dies {
            config = config.fault(Fault::Death { host: 2, at: 2_000 * MS, visible: true });
        }
        let logs = Logs::default();
        let all = Rc::clone(&logs);
        let cluster = Cluster { config, dies: dies.then_some(2) };
        cluster.run("order holder", move |env, net| {
            let logs = Rc::clone(&all);
            async move {
                let group = OrderedGroup::open(&net, 0, &[0, 1, 2], Options::default());
                record(&group, &logs, Some(0));
                group.view_when(|_| true).await.unwrap();
                if net.rank() == 2 {
                    group.hold_back(true);
                    drop(group.send(message(0, 5)));
                    env.sleep(1_000 * MS).await;
                    if !dies {
                        group.hold_back(false);
                    }
                    env.sleep(5_000 * MS).await;
                    return group;
                }
                env.sleep(10 * MS).await;
                let sent = group.send(message(0, 10));
                while group.slow().is_empty() {
                    env.sleep(MS).await;
                }
                assert_eq!(group.slow(), [2]);
                sent.await.unwrap();
                assert!(group.slow().is_empty());
                env.sleep(50 * MS).await;
                group
            }
        });
        let logs = logs.borrow();
        assert_eq!(logs[&0], logs[&1]);
        assert_eq!(count_of(&logs[&0], 0) + count_of(&logs[&0], 1), 2);
        assert_eq!(count_of(&logs[&0], 2), u64::from(!dies));
    }
}

/// Notes the state of a member now and then, for the report of a program that waits for ever.
fn note_often(env: &Env, group: &OrderedGroup<Live>) {
    let (env, group) = (env.clone(), group.clone());
    group.net().clone().spawn(async move {
        while group.ended().is_none() {
            env.note(group.describe());
            env.sleep(100 * MS).await;
        }
        env.note(group.describe());
    });
}

/// Gives joiners the messages that this member was told: they are the state of the program.
pub fn offer_state(group: &OrderedGroup<Live>, logs: &Logs) {
    let (me, told) = (group.net().rank(), Rc::clone(logs));
    group.on_snapshot(move || {
        let told = told.borrow();
        let told = told.get(&me).map(Vec::as_slice).unwrap_or_default();
        let numbers = told.iter().filter_map(|told| match told {
            Told::Message(from, number, len) => Some((*from, *number, *len)),
            Told::View(..) => None,
        });
        postcard::to_allocvec(&numbers.collect::<Vec<_>>()).unwrap()
    });
}

#[test]
fn order__ranks_join_with_a_snapshot_and_leave_also_under_loss() {
    const COUNT: u64 = 20;
    for seed in seeds(0..60) {
        let cluster = Cluster::of_seed(seed, 4..5, None);
        let options = Options { window: 32, ..options_of(seed) };
        let logs = Logs::default();
        let all = Rc::clone(&logs);
        cluster.run("order join", move |env, net| {
            let logs = Rc::clone(&all);
            async move {
                let me = net.rank();
                if me < 2 {
                    let group = OrderedGroup::open(&net, 0, &[0, 1], options);
                    note_often(&env, &group);
                    record(&group, &logs, Some(0));
                    offer_state(&group, &logs);
                    let sent: Vec<_> = (0..COUNT).map(|n| group.send(message(n, 40))).collect();
                    for sent in sent {
                        sent.await.unwrap();
                        env.sleep(MS / 2).await;
                    }
                    group.view_when(|view| view.members.ends_with(&[2, 3])).await.unwrap();
                    if me == 0 {
                        group.leave().await.unwrap();
                        assert_eq!(group.ended(), Some(OrderError::Left));
                    }
                    return group;
                }
                env.sleep(env.rng().below(5 * MS)).await;
                let log = Rc::clone(&logs);
                let group = OrderedGroup::join(&net, 0, &[1, 0], options, move |state| {
                    let told: Vec<(usize, u64, usize)> = postcard::from_bytes(&state).unwrap();
                    let told = told.into_iter().map(|(from, n, len)| Told::Message(from, n, len));
                    assert!(log.borrow_mut().insert(me, told.collect()).is_none());
                });
                record(&group, &logs, None);
                note_often(&env, &group);
                let joined = group.view_when(|_| true).await.unwrap();
                assert!(joined.members.contains(&me));
                let sent: Vec<_> = (0..COUNT).map(|n| group.send(message(n, 3_000))).collect();
                for sent in sent {
                    sent.await.unwrap();
                }
                let last = group.view_when(|view| view.members == [1, 2, 3]).await.unwrap();
                assert_eq!(last.left, [0]);
                env.sleep(600 * MS).await;
                group
            }
        });
        let logs = logs.borrow();
        one_view_a_number(&logs, seed);
        let messages = |rank: usize| messages_of(&logs[&rank]);
        let whole = messages(1);
        assert_eq!(whole.len() as u64, 4 * COUNT, "seed {seed}");
        assert!((2..4).all(|rank| messages(rank) == whole), "seed {seed}");
        let first = messages(0);
        assert_eq!(first[..], whole[..first.len()], "seed {seed}");
    }
}

#[test]
fn order__a_member_that_drops_its_handle_is_missed_at_once() {
    let cluster = Cluster { config: SimConfig::new(3, 1), dies: None };
    cluster.run("order drop", |_, net| async move {
        let group = OrderedGroup::open(&net, 0, &[0, 1, 2], Options::default());
        group.view_when(|_| true).await.unwrap();
        if net.rank() == 0 {
            return None;
        }
        let view = group.view_when(|view| view.members == [1, 2]).await.unwrap();
        assert_eq!((view.number, view.left.len()), (2, 0));
        group.send(message(0, 3)).await.unwrap();
        assert!(net.now().0 < 100 * MS);
        Some(group)
    });
}

#[test]
fn cast__messages_without_order_come_in_the_order_of_their_sender() {
    let cluster = Cluster::of_seed(3, 4..5, None);
    cluster.run("order cast", |env, net| async move {
        let group = OrderedGroup::open(&net, 0, &[0, 1, 2, 3], Options::default());
        let got = Rc::new(RefCell::new(BTreeMap::<usize, u64>::new()));
        let heard = Rc::clone(&got);
        group.on_cast(move |(from, bytes)| {
            let next = *heard.borrow().get(&from).unwrap_or(&0);
            assert!(bytes == message(next, next as usize * 100), "{next} of rank {from}");
            heard.borrow_mut().insert(from, next + 1);
        });
        assert_eq!(group.cast(b"too early"), Err(OrderError::NoView));
        group.view_when(|_| true).await.unwrap();
        for number in 0..40 {
            group.cast(&message(number, number as usize * 100)).unwrap();
            if number % 8 == 0 {
                env.sleep(MS).await;
            }
        }
        while got.borrow().len() < 3 || got.borrow().values().any(|&count| count < 40) {
            net.sleep(Duration::from_millis(1)).await;
        }
        group
    });
}

/// The joiner ends with an error, and the members go on without it.
#[test]
fn order__a_joiner_whose_state_is_too_long_is_told_so_also_under_loss() {
    for seed in seeds(0..30) {
        let cluster = Cluster::of_seed(seed, 3..4, None);
        let style = STYLES[seed as usize % 3];
        cluster.run("order join long", move |env, net| async move {
            let options = Options { style, ..Options::default() };
            if env.host == 2 {
                let group = OrderedGroup::join(&net, 0, &[1, 0], options, |_| ());
                let error = group.view_when(|_| true).await.unwrap_err();
                assert_eq!(error, OrderError::TooLong, "seed {seed}");
                return group;
            }
            let group = OrderedGroup::open(&net, 0, &[0, 1], options);
            group.on_snapshot(|| vec![0; MESSAGE_MAX]);
            let seen = Rc::new(Cell::new(0));
            let most = Rc::clone(&seen);
            group.on_view(move |view| most.set(view.members.len().max(most.get())));
            let again = |view: &View| seen.get() == 3 && view.members == [0, 1];
            group.view_when(again).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            group.send("goes on").await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            group
        });
    }
}

/// Ranks join while members, authors of views and joiners die: those that live get in, and all
/// agree from there on.
#[test]
fn order__joins_survive_the_death_of_any_rank() {
    let (mut died, mut joined) = (0, 0);
    // The last seed has an author that dies between a joiner's view and its welcome.
    for seed in seeds(0..200).chain([2373]) {
        // Ranks 0 to 2 are the members; one of all may die, also in the middle of a join.
        let cluster = Cluster::of_seed(seed, 5..6, Some(0..5));
        let dies = cluster.dies.map(|host| host as usize);
        let options = options_of(seed);
        let (logs, total) = (Logs::default(), Rc::new(Cell::new(0)));
        let (all, count) = (Rc::clone(&logs), Rc::clone(&total));
        let outcome = cluster.run("order join die", move |env, net| {
            let (logs, count) = (Rc::clone(&all), Rc::clone(&count));
            async move {
                let me = net.rank();
                let group = if me < 3 {
                    let group = OrderedGroup::open(&net, 0, &[0, 1, 2], options);
                    record(&group, &logs, Some(0));
                    group
                } else {
                    env.sleep(env.rng().below(20 * MS)).await;
                    let log = Rc::clone(&logs);
                    let group = OrderedGroup::join(&net, 0, &[1, 0, 2], options, move |state| {
                        let told: Vec<(usize, u64, usize)> = postcard::from_bytes(&state).unwrap();
                        let told = told.into_iter().map(|(from, n, l)| Told::Message(from, n, l));
                        log.borrow_mut().insert(me, told.collect());
                    });
                    record(&group, &logs, None);
                    group
                };
                offer_state(&group, &logs);
                group.expect(true);
                let living = |view: &View| {
                    (0..5).all(|rank| view.members.contains(&rank) != (Some(rank) == dies))
                };
                for number in 0..12 {
                    group.send(message(number, 40)).await.unwrap();
                    env.sleep(env.rng().below(4 * MS)).await;
                }
                // The one that dies may have been in no view.
                env.note(group.describe());
                group.view_when(living).await.unwrap();
                group.send(message(12, 0)).await.unwrap();
                count.set(count.get() + 1);
                env.sleep(1_500 * MS).await;
                group
            }
        });
        let logs = logs.borrow();
        one_view_a_number(&logs, seed);
        let messages = |rank: usize| messages_of(&logs[&rank]);
        let lives: Vec<usize> = (0..5).filter(|&rank| Some(rank) != dies).collect();
        assert_eq!(total.get(), lives.len(), "seed {seed}: {outcome:?}");
        let whole = messages(lives[0]);
        for &rank in &lives {
            assert_eq!(messages(rank), whole, "seed {seed}: rank {rank}");
            assert_eq!(count_of(&whole, rank), 13, "seed {seed}: of {rank}");
        }
        died += usize::from(dies.is_some());
        joined += lives.iter().filter(|&&rank| rank > 2).count();
    }
    enough(died > 5 && joined > 30, || format!("{died} died, {joined} joined"));
}

/// A member that receives nothing holds the others up instead of filling its memory, and is named.
#[test]
fn recv__a_member_that_does_not_receive_is_named_and_the_others_wait() {
    const COUNT: u64 = 300;
    let mut config = SimConfig::new(2, 1);
    config.settings = vec![("warn_after_ms", "100".to_string())];
    let cluster = Cluster { config, dies: None };
    cluster.run("order slow", |env, net| async move {
        let options = Options { window: 16, ..Options::default() };
        let group = OrderedGroup::open(&net, 0, &[0, 1], options);
        let received = |message: Option<u64>| assert!(message.is_some());
        if net.rank() == 0 {
            group.on_deliver(|_| {});
            let mut named = false;
            for number in 0..COUNT {
                group.room().await.unwrap();
                let mut sent = Box::pin(group.send(message(number, 100_000)));
                loop {
                    let wait = Box::pin(net.sleep(Duration::from_millis(20)));
                    named |= group.slow() == [1];
                    match first(&mut sent, wait).await {
                        Some(place) => break received(place.ok()),
                        None => continue,
                    }
                }
            }
            assert!(named);
            return group;
        }
        while group.slow().is_empty() {
            env.sleep(10 * MS).await;
        }
        assert_eq!(group.slow(), [1], "this rank knows it, too");
        env.sleep(2_000 * MS).await;
        for number in 0..COUNT {
            assert!(group.recv().await.unwrap().bytes == message(number, 100_000));
        }
        group
    });
}

/// See [`weft_swarm::churn`].
#[test]
fn order__ranks_that_come_and_go_agree_on_views_and_messages() {
    let (mut operations, mut errors) = (0, 0);
    for seed in seeds(0..100) {
        let report = weft_swarm::churn::run(&weft_swarm::churn::drawn(seed));
        (operations, errors) = (operations + report.operations, errors + report.errors);
    }
    enough(operations > 1_000 && errors > 10, || format!("{operations} messages, {errors}"));
}

//! Objects that messages drive, on simulated hosts.

use crate::swarm::{enough, seeds, totals, Cluster, MS};
use crate::together::on_all;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use weft_models::actors::balance::{Costs, Strategy};
use weft_models::actors::{Actor, ActorCause, ActorError, Actors, ArrayId, Section, Turn};
use weft_models::net::{Live, Net};
use weft_sim::{Fault, SimConfig, Span};
use weft_swarm::actors::run;
use weft_swarm::cluster::Ends;

/// An object that does what its messages say.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Doer {
    got: Vec<u64>,
    sums: Vec<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Do {
    Note(u64),
    /// Sends a note to an object.
    Tell([usize; 2], u64),
    Move(usize),
    Panic,
    Add(u64),
    AddTo(Section, u64),
    Compute(u64),
    /// Sends notes with these priorities to itself.
    Order(Vec<i32>),
    Peer(ArrayId<Peer>, usize),
}

impl Actor for Doer {
    type Message = Do;
    type Value = u64;
    type Shared = u64;

    const VERSION: u32 = 3;

    fn receive(&mut self, message: Do, turn: &mut Turn<'_, Doer>) {
        match message {
            Do::Note(number) => self.got.push(number + turn.shared()),
            Do::Tell(to, number) => turn.send(to, Do::Note(number)),
            Do::Move(rank) => turn.move_to(rank),
            Do::Panic => panic!("as it was told"),
            Do::Add(number) => turn.contribute(number),
            Do::AddTo(section, number) => turn.contribute_to(section, number),
            Do::Compute(ms) => turn.compute(Duration::from_millis(ms)),
            Do::Order(priorities) => {
                let index = turn.index();
                for (number, priority) in priorities.into_iter().enumerate() {
                    turn.send_at(priority, index, Do::Note(number as u64));
                }
            }
            Do::Peer(array, index) => turn.send_to(array, index, "from a doer".to_string()),
        }
    }

    fn combine(all: &mut u64, other: u64) {
        *all += other;
    }

    fn reduced(&mut self, section: Section, value: u64, _: &mut Turn<'_, Doer>) {
        self.sums.push(value + if section == Section::ALL { 0 } else { 1_000_000 });
    }
}

/// An object of another type.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Peer(Vec<String>);

impl Actor for Peer {
    type Message = String;
    type Value = ();
    type Shared = ();

    fn receive(&mut self, message: String, _: &mut Turn<'_, Peer>) {
        self.0.push(message);
    }
}

fn cluster(hosts: u32) -> Cluster {
    let mut config = SimConfig::new(hosts, 1);
    for key in ["peer_timeout_ms", "connect_timeout_ms"] {
        config.settings.push((key, "400".to_string()));
    }
    config.settings.push(("keepalive_ms", "20".to_string()));
    Cluster { config, dies: None }
}

/// Runs a program on hosts that have an array of 3 times 4 objects; all results come back.
fn with_doers<T: 'static, F>(hosts: u32, program: impl Fn(Doers) -> F + Clone + 'static) -> Vec<T>
where
    F: std::future::Future<Output = T> + 'static,
{
    let results = Rc::new(RefCell::new(Vec::new()));
    let all = Rc::clone(&results);
    cluster(hosts).run("actors", move |_, net| {
        let (all, program) = (Rc::clone(&all), program.clone());
        async move {
            let actors = Actors::open(&net);
            let array = actors.array_with(1, [3, 4], 100, |_| Doer::default());
            let doers = Doers { rank: net.rank(), actors: actors.clone(), array };
            let result = program(doers).await;
            all.borrow_mut().push(result);
            actors
        }
    });
    results.take()
}

#[derive(Clone)]
struct Doers {
    rank: usize,
    actors: Actors<Live>,
    array: weft_models::actors::Array<Live, Doer>,
}

impl Doers {
    /// Sends messages from rank 0, and runs until all is done.
    async fn send_from_0(&self, messages: &[([usize; 2], Do)]) -> Result<(), ActorError> {
        if self.rank == 0 {
            messages.iter().try_for_each(|(to, what)| self.array.send(*to, what.clone()))?;
        }
        self.actors.run().await
    }

    /// Returns the objects of this rank.
    fn here(&self) -> Vec<([usize; 2], Vec<u64>, Vec<u64>)> {
        let mut all = Vec::new();
        self.array.each(|index, doer| {
            all.push(([index.x(), index.y()], doer.got.clone(), doer.sums.clone()));
        });
        all
    }
}

#[test]
fn run__messages_reach_objects_of_two_dimensions_and_of_another_array() {
    let all = with_doers(2, |doers| async move {
        let peers = doers.actors.array(2, 5, |_| Peer::default());
        let tell = Do::Tell([2, 3], 7);
        let peer = Do::Peer(peers.id(), 4);
        doers.send_from_0(&[([0, 0], tell), ([2, 0], Do::Note(1)), ([1, 1], peer)]).await.unwrap();
        let mut got = Vec::new();
        peers.each(|_, peer| got.extend(peer.0.clone()));
        let doers = doers.here().into_iter().filter(|(_, got, _)| !got.is_empty());
        (doers.collect::<Vec<_>>(), got)
    });
    let doers: Vec<_> = all.iter().flat_map(|(doers, _)| doers.clone()).collect();
    assert_eq!(doers, [([2, 0], vec![101], vec![]), ([2, 3], vec![107], vec![])]);
    assert_eq!(all.iter().flat_map(|(_, got)| got).collect::<Vec<_>>(), ["from a doer"]);
}

#[test]
fn send_at__the_least_number_comes_first_and_equals_in_order() {
    let all = with_doers(1, |doers| async move {
        let order = Do::Order(vec![3, 0, -1, 0, -1, 3]);
        doers.send_from_0(&[([0, 0], order)]).await.unwrap();
        doers.here()[0].1.clone()
    });
    assert_eq!(all, [[102, 104, 101, 103, 100, 105]]);
}

#[test]
fn move_to__messages_follow_and_reductions_count_each_object_once() {
    let all = with_doers(4, |doers| async move {
        for round in 0..6 {
            if doers.rank == round % 4 {
                for at in 0..12 {
                    let index = [at / 4, at % 4];
                    doers.array.send(index, Do::Move((at + round) % 4)).unwrap();
                    doers.array.send(index, Do::Note(round as u64)).unwrap();
                    doers.array.send(index, Do::Add(at as u64)).unwrap();
                }
            }
            // Others send at the same time, to where the objects were.
            if doers.rank == (round + 1) % 4 {
                doers.array.send([2, 2], Do::Note(50)).unwrap();
                doers.array.broadcast(&Do::Note(60)).unwrap();
            }
            doers.actors.run().await.unwrap();
            assert_eq!(doers.array.result(), Some(66));
        }
        doers.here()
    });
    let mut all: Vec<_> = all.into_iter().flatten().collect();
    all.sort();
    assert_eq!(all.len(), 12, "{all:?}");
    for (index, mut got, sums) in all {
        assert_eq!(sums, [66; 6], "{index:?}");
        got.sort_unstable();
        let mut expected: Vec<u64> = (100..106).collect();
        expected.extend([150; 6].iter().filter(|_| index == [2, 2]));
        expected.extend([160; 6]);
        assert_eq!(got, expected, "{index:?}");
    }
}

#[test]
fn section__broadcasts_and_reductions_reach_its_objects_alone() {
    let all = with_doers(3, |doers| async move {
        let row = doers.array.section(1, (0..4).map(|y| [1, y])).unwrap();
        let wrong = doers.array.section(2, [[3, 0]]).unwrap_err();
        assert!(wrong.to_string().contains("[3, 0]"), "{wrong}");
        if doers.rank == 2 {
            doers.array.broadcast_to(row, &Do::Note(5)).unwrap();
            doers.array.broadcast_to(row, &Do::AddTo(row, 11)).unwrap();
        }
        doers.send_from_0(&[([1, 2], Do::Move(0)), ([1, 0], Do::Move(2))]).await.unwrap();
        assert_eq!((doers.array.result_of(row), doers.array.result()), (Some(44), None));
        doers.here()
    });
    for (index, got, sums) in all.into_iter().flatten() {
        match index[0] {
            1 => assert_eq!((got, sums), (vec![105], vec![1_000_044])),
            _ => assert_eq!((got, sums), (vec![], vec![])),
        }
    }
}

#[test]
fn run__an_object_that_panics_or_sends_nowhere_ends_the_runs_of_all_with_its_name() {
    let cases = [
        (Do::Panic, "panicked: as it was told"),
        (Do::Tell([3, 9], 1), "it sends to index [3, 9] of an array of shape [3, 4]"),
        (Do::Move(17), "it moves to rank 17, and there are 3"),
    ];
    for (what, text) in cases {
        let all = with_doers(3, move |doers| {
            let what = what.clone();
            async move {
                let error = doers.send_from_0(&[([1, 3], what)]).await.unwrap_err();
                assert_eq!(doers.actors.run().await, Err(error.clone()));
                error
            }
        });
        assert_eq!(all.len(), 3);
        for error in &all {
            assert_eq!(error, &all[0]);
            let shown = error.to_string();
            assert!(shown.contains(text) && shown.contains("object [1, 3] of "), "{shown}");
        }
    }
}

#[test]
fn send__to_an_index_that_does_not_exist_is_refused() {
    with_doers(2, |doers| async move {
        for wrong in [[3, 0], [0, 4]] {
            let error = doers.array.send(wrong, Do::Note(1)).unwrap_err();
            assert!(matches!(error.cause, ActorCause::Fault(_)), "{error}");
        }
        assert!(doers.array.send(1, Do::Note(1)).is_err());
        doers.actors.run().await.unwrap();
    });
}

#[test]
fn balance__by_measured_time_of_turns() {
    let strategies = [Strategy::Greedy, Strategy::Refine, Strategy::RefineComm(Costs::default())];
    for strategy in strategies {
        let all = with_doers(3, move |doers| async move {
            doers.actors.measure(true);
            // The objects of rank 0 compute ten times as long.
            let all =
                (0..12).map(|at| ([at / 4, at % 4], Do::Compute(if at < 4 { 10 } else { 1 })));
            doers.send_from_0(&all.collect::<Vec<_>>()).await.unwrap();
            let balanced = doers.actors.balance(&strategy).await.unwrap();
            (balanced, doers.array.here())
        });
        let here: usize = all.iter().map(|(_, here)| here).sum();
        assert_eq!(here, 12);
        for (balanced, _) in &all {
            assert_eq!(balanced, &all[0].0, "{strategy:?}");
            assert!((balanced.before - 2.5).abs() < 0.01, "{balanced:?}");
            assert!(balanced.after < 1.3 && balanced.moved > 1, "{strategy:?}: {balanced:?}");
        }
    }
}

#[test]
fn balance_by__a_plan_that_cannot_be_ends_the_runs_and_a_lopsided_one_works() {
    with_doers(3, |doers| async move {
        let lopsided = |at: usize| if at % 3 == 2 { 1 } else { 2 };
        let plan = |_: &_| (0..12).map(lopsided).collect();
        doers.actors.balance_by(plan).await.unwrap();
        assert_eq!(doers.array.here(), [0, 4, 8][doers.rank]);
        doers.send_from_0(&[([0, 0], Do::Note(1)), ([2, 3], Do::Tell([0, 1], 2))]).await.unwrap();
        let error = doers.actors.balance_by(|_| vec![0; 5]).await.unwrap_err();
        assert!(error.to_string().contains("5 places"), "{error}");
    });
}

#[test]
fn run__a_rank_that_dies_in_each_phase_of_a_balance_is_named() {
    let died = RefCell::new(0);
    for at in (0..40).map(|step| step * 250_000) {
        let death = Fault::Death { host: 1, at, visible: at % 500_000 == 0 };
        let mut cluster = cluster(3);
        cluster.config = cluster.config.fault(death);
        let outcome = cluster.run("actors die", move |_, net| async move {
            let actors = Actors::open(&net);
            let array = actors.array_with(1, [3, 4], 0, |_| Doer::default());
            let error = loop {
                array.broadcast(&Do::Compute(1)).unwrap();
                let run = actors.run().await;
                let rotated = match run {
                    Ok(()) => actors.balance(&Strategy::Rotate).await.map(drop),
                    Err(error) => Err(error),
                };
                if let Err(error) = rotated {
                    break error;
                }
            };
            assert_eq!(error.rank, 1, "at {at}: {error}");
            assert!(matches!(error.cause, ActorCause::Failed(_)), "{error}");
            (actors, array)
        });
        *died.borrow_mut() += outcome.died.len();
    }
    assert!(died.take() >= 40);
}

#[test]
fn run__ranks_that_leave_at_once_cause_no_failure() {
    // Host 2 passes the end of the run on to host 3, and stands still for a while before.
    for from in (0..1_000_000).step_by(10_000) {
        let span = Span { from, until: from + 5_000_000 };
        let config = SimConfig::new(4, 1).fault(Fault::Pause { host: 2, span });
        on_all("actors leave", config, move |env, net| async move {
            // All know each other, so that each notices the end of all.
            net.handle(1, |_| {});
            for to in (0..net.size()).filter(|&to| to != net.rank()) {
                net.try_send(to, 1, 0, b"hello").expect("there is room");
            }
            let actors = Actors::open(&net);
            let ended = actors.run().await;
            assert_eq!(ended, Ok(()), "host {}, pause {from}", env.host);
            env.endpoint.closed(Duration::from_millis(1)).await;
        });
    }
}

/// Returns the path of a file in the folder of temporary ones.
fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("weft-actors-{name}-{}", std::process::id()))
}

#[test]
fn checkpoint__is_restored_on_another_number_of_ranks_and_has_the_same_bytes() {
    let paths = [file("3"), file("5")];
    let states = |hosts: u32, restored: Option<PathBuf>, written: PathBuf| {
        let mut all: Vec<_> = with_doers(hosts, move |doers| {
            let (restored, written) = (restored.clone(), written.clone());
            async move {
                match &restored {
                    None => {
                        let notes = (0..12).map(|at| ([at / 4, at % 4], Do::Note(at as u64)));
                        doers.send_from_0(&notes.collect::<Vec<_>>()).await.unwrap();
                        doers.actors.balance(&Strategy::Rotate).await.unwrap();
                    }
                    Some(path) => {
                        doers
                            .send_from_0(&[([0, 1], Do::Note(9)), ([0, 2], Do::Move(1))])
                            .await
                            .unwrap();
                        doers.actors.restore(path).await.unwrap();
                    }
                }
                doers.actors.checkpoint(&written).await.unwrap();
                // Restored objects take messages and reductions.
                let before = doers.here();
                if doers.rank == 1 {
                    doers.array.broadcast(&Do::Add(2)).unwrap();
                }
                doers.actors.run().await.unwrap();
                assert_eq!(doers.array.result(), Some(24));
                before
            }
        })
        .into_iter()
        .flatten()
        .collect();
        all.sort();
        all
    };
    let first = states(3, None, paths[0].clone());
    let second = states(5, Some(paths[0].clone()), paths[1].clone());
    assert_eq!(first, second);
    let bytes = paths.each_ref().map(|path| std::fs::read(path).unwrap());
    assert_eq!(bytes[0], bytes[1]);
    paths.iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn restore__refuses_what_is_no_checkpoint_of_this_program_and_objects_stay() {
    let (good, bad) = (file("good"), file("bad"));
    let (to_write, to_read) = (good.clone(), bad.clone());
    with_doers(2, move |doers| {
        let (good, bad) = (to_write.clone(), to_read.clone());
        async move {
            doers.send_from_0(&[([2, 3], Do::Note(1))]).await.unwrap();
            doers.actors.checkpoint(&good).await.unwrap();
            let whole = std::fs::read(&good).unwrap();
            let mut damaged = whole.clone();
            let middle = whole.len() / 2;
            damaged[middle] ^= 1;
            let mut version = whole.clone();
            version[8] = 9;
            let cases = [
                (whole[..whole.len() - 1].to_vec(), "truncated"),
                (whole[..9].to_vec(), "truncated in its head"),
                (damaged, "damaged"),
                (version, "it has version 9"),
                (b"something else".to_vec(), "no checkpoint"),
            ];
            for (bytes, text) in cases {
                if doers.rank == 0 {
                    std::fs::write(&bad, bytes).unwrap();
                }
                let error = doers.actors.restore(&bad).await.unwrap_err();
                assert!(error.to_string().contains(text), "{error}");
            }
            let none = doers.actors.restore(&bad.with_extension("none")).await.unwrap_err();
            assert!(matches!(none.cause, ActorCause::Checkpoint(_)), "{none}");
            doers.send_from_0(&[([2, 3], Do::Note(2))]).await.unwrap();
            let got = doers.here().into_iter().find(|(index, ..)| *index == [2, 3]);
            assert!(doers.rank == 0 || got.unwrap().1 == [101, 102]);
        }
    });
    // An array of another shape, and one more array.
    let other = good.clone();
    cluster(2).run("actors of another program", move |_, net| {
        let path = other.clone();
        async move {
            let actors = Actors::open(&net);
            let array = actors.array_with(1, [4, 4], 0, |_| Doer::default());
            let error = actors.restore(&path).await.unwrap_err();
            assert!(error.to_string().contains("another program"), "{error}");
            (actors, array)
        }
    });
    [good, bad].iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn checkpoint__is_refused_while_a_reduction_is_under_way() {
    let path = file("reduction");
    with_doers(2, move |doers| {
        let path = path.clone();
        async move {
            doers.send_from_0(&[([2, 3], Do::Add(1))]).await.unwrap();
            let error = doers.actors.checkpoint(&path).await.unwrap_err();
            assert!(error.to_string().contains("reduction"), "{error}");
            assert!(!path.exists());
            doers.actors.run().await.unwrap();
        }
    });
}

#[test]
fn run__early_messages_of_the_next_run_wait_for_it() {
    for seed in seeds(0..30) {
        let cluster = Cluster::of_seed(seed, 2..6, None);
        cluster.run("actors early", move |env, net| async move {
            let actors = Actors::open(&net);
            env.sleep(env.rng().below(3 * MS)).await;
            let array = actors.array_with(1, [3, 4], 0, |_| Doer::default());
            for round in 0..5 {
                array.broadcast(&Do::Note(round)).unwrap();
                actors.run().await.unwrap();
                array.each(|index, doer| {
                    let all = net.size() * (round as usize + 1);
                    assert_eq!(doer.got.len(), all, "seed {seed}: {index} in run {round}");
                });
                env.sleep(env.rng().below(MS)).await;
            }
            (actors, array)
        });
    }
}

#[test]
fn actors__each_message_once_while_objects_move_and_ranks_are_cut_off() {
    let rough = |seed| match seed % 2 {
        0 => run(&Cluster::of_seed(seed, 2..6, Some(0..6)), Ends::Together),
        _ => run(&Cluster::rough(seed, 2..6), Ends::Together),
    };
    let (ended, failed) = totals(0..80, rough);
    enough(ended > 100 && failed > 20, || {
        format!("{ended} runs ended well, {failed} ranks had an error")
    });
}

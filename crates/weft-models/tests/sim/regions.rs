//! Regions under faults: every history is sequentially consistent, and what is lost is named.

use crate::swarm::{enough, first, seeds, Cluster, MS};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use weft_models::net::{Net, RankFailure};
use weft_models::regions::{Region, RegionCause, RegionError, RegionId, Regions};
use weft_sim::{Fault, SimConfig, Span};
use weft_swarm::cluster::Ends;
use weft_swarm::history::{History, Past};
use weft_swarm::regions::{run, User, Writes};

#[test]
fn regions__histories_are_sequentially_consistent_under_loss() {
    let mut events = 0;
    for seed in seeds(0..150) {
        let cluster = Cluster::of_seed(seed, 2..6, None);
        let (history, writes) = (History::default(), Writes::default());
        let logs = (Rc::clone(&history), Rc::clone(&writes));
        cluster.run("regions", move |env, net| {
            let logs = logs.clone();
            async move {
                // Room for one copy of 2,400 bytes without a handle.
                let regions = Regions::with_cache(&net, 3_000);
                let mut user = User::open(env, regions.clone(), logs).await.unwrap();
                for _ in 0..3 {
                    for _ in 0..15 {
                        user.step().await.expect("no rank fails");
                    }
                    assert!(regions.held().is_empty());
                    let names: Vec<RegionId> = user.all.drain(..).map(|r| r.id()).collect();
                    user.map(&names).await.expect("no rank fails");
                }
                regions.barrier().await.unwrap();
                let sum = regions.reduce(net.rank() as f64, |a, b| a + b).await;
                assert_eq!(sum, Ok((net.size() * (net.size() - 1) / 2) as f64));
                (regions, user.all)
            }
        });
        events += history.borrow().values().map(Vec::len).sum::<usize>();
        let writes = writes.borrow().clone();
        let live = writes.keys().copied().collect();
        Past { writes, live, lost: Vec::new(), seed }.explains(&history);
    }
    enough(events > 1_000, || format!("{events} operations"));
}

#[test]
fn regions__that_a_rank_drops_while_it_lives_go_back_to_their_homes_or_are_lost() {
    for seed in seeds(0..30) {
        let cluster = Cluster::of_seed(seed, 2..3, None);
        cluster.run("regions dropped", move |env, net| async move {
            let regions = Regions::open(&net);
            let mine = regions.create(vec![0u64; 1_000]).unwrap();
            let names = regions.gather(&[mine.id()]).await.unwrap();
            let other = regions.map::<u64>(names[1 - net.rank()]).await.unwrap();
            if net.rank() == 1 {
                other.write().await.unwrap()[999] = 7;
                regions.barrier().await.unwrap();
                env.sleep(env.rng().below(200_000)).await;
                return None;
            }
            regions.barrier().await.unwrap();
            env.sleep(env.rng().below(200_000)).await;
            // Its copy was written there.
            assert_eq!(mine.read().await.expect("rank 1 lives")[999], 7, "seed {seed}");
            loop {
                match other.write().await.map(drop) {
                    Ok(()) => other.flush(),
                    Err(RegionError { cause: RegionCause::Home(failure), .. }) => {
                        assert_eq!(failure.rank, 1, "seed {seed}");
                        return Some((regions, mine, other));
                    }
                    Err(error) => panic!("seed {seed}: {error}"),
                }
                env.sleep(10_000).await;
            }
        });
    }
}

#[test]
fn regions__a_home_or_a_holder_that_dies_is_named_and_other_regions_go_on() {
    let (homes, holders) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for seed in seeds(0..150) {
        let cluster = Cluster::of_seed(seed, 3..6, Some(0..6));
        let dies = cluster.dies.map(|host| host as usize);
        let (history, writes) = (History::default(), Writes::default());
        let logs = (Rc::clone(&history), Rc::clone(&writes));
        let lost = (Rc::clone(&homes), Rc::clone(&holders));
        cluster.run("regions die", move |env, net| {
            let (logs, (homes, holders)) = (logs.clone(), lost.clone());
            async move {
                let regions = Regions::open(&net);
                let mut user = match User::open(env, regions.clone(), logs).await {
                    Ok(user) => user,
                    Err(failure) => {
                        assert!(dies.is_some(), "seed {seed}: {failure}");
                        return (regions, Vec::new());
                    }
                };
                for _ in 0..60 {
                    match user.step().await.map_err(|error| error.cause) {
                        Ok(()) => {}
                        Err(RegionCause::Home(failure)) => {
                            assert_eq!(Some(failure.rank), dies, "seed {seed}: {failure}");
                            homes.set(homes.get() + 1);
                        }
                        Err(RegionCause::Holder(failure)) => {
                            assert_eq!(Some(failure.rank), dies, "seed {seed}: {failure}");
                            holders.set(holders.get() + 1);
                        }
                        Err(other) => panic!("seed {seed}: {other:?}"),
                    }
                }
                user.env.sleep(1_500 * MS).await;
                let failed = regions.barrier().await.err();
                assert_eq!(failed.map(|failure| failure.rank), dies, "seed {seed}");
                (regions, user.all)
            }
        });
        let writes = writes.borrow().clone();
        let live = writes.keys().copied().collect();
        Past { writes, live, lost: Vec::from_iter(dies), seed }.explains(&history);
    }
    enough(homes.get() > 3 && holders.get() > 3, || format!("{homes:?} {holders:?}"));
}

/// Reads and writes regions until the rank has done so often enough, and goes on after errors;

#[test]
fn regions__histories_stay_consistent_where_ranks_are_cut_off() {
    let (mut events, mut errors) = (0, 0);
    // Ranks on both sides have old copies in two more seeds. In the last one a rank that its home
    // has given up has such a copy, and hears of newer values.
    for seed in seeds(0..200).chain([3068, 44_123, 20_288]) {
        let report = run(&Cluster::rough(seed, 2..6), Ends::Together);
        (events, errors) = (events + report.operations, errors + report.errors);
    }
    enough(events > 2_000 && errors > 100, || format!("{events} operations, {errors} errors"));
}

#[test]
fn read__a_rank_that_the_home_has_given_up_reads_no_old_copy_after_newer_values_elsewhere() {
    let mut cluster = Cluster::of_seed(0, 3..4, None);
    cluster.config.limit_ns = 100_000 * MS;
    let span = Span { from: 50 * MS, until: u64::MAX };
    cluster.config.faults = vec![Fault::Cut { hosts: [0, 2], one_way: false, span }];
    let written = Rc::new(Cell::new(false));
    cluster.run("regions given up", move |env, net| {
        let written = Rc::clone(&written);
        async move {
            let regions = Regions::open(&net);
            let mine = regions.create(vec![0u64]).unwrap();
            let names = regions.gather(&[mine.id()]).await.unwrap();
            let [first, second] = [names[0], names[1]];
            let first = regions.map::<u64>(first).await.unwrap();
            let second = regions.map::<u64>(second).await.unwrap();
            assert_eq!((first.read().await.unwrap()[0], net.rank() > 2), (0, false));
            env.sleep(100 * MS).await;
            match net.rank() {
                // The home of the first waits for rank 2, and gives it up.
                0 => drop(regions.map::<u64>(names[2]).await.err().expect("it is cut off")),
                1 => {
                    env.sleep(1_000 * MS).await;
                    first.write().await.unwrap()[0] = 1;
                    second.write().await.unwrap()[0] = 1;
                    written.set(true);
                }
                _ => {
                    while !written.get() {
                        env.sleep(MS).await;
                    }
                    assert_eq!(second.read().await.unwrap()[0], 1);
                    let old = first.read().await.map(|items| items[0]);
                    let RegionCause::Home(failure) = old.unwrap_err().cause else { panic!() };
                    let text = failure.to_string();
                    assert!(text.contains("rank 0 has given this rank up"), "{text}");
                }
            }
            (regions, mine)
        }
    });
}

#[test]
fn regions__two_ranks_that_wait_for_each_other_are_reported() {
    let mut config = SimConfig::new(2, 1);
    config.settings = vec![("warn_after_ms", "100".to_string())];
    let cluster = Cluster { config, dies: None };
    cluster.run("regions deadlock", |_, net| async move {
        let regions = Regions::open(&net);
        let mine = regions.create(vec![0u8; 10]).unwrap();
        let names = regions.gather(&[mine.id()]).await.unwrap();
        let me = net.rank();
        let other = regions.map::<u8>(names[1 - me]).await.unwrap();
        regions.barrier().await.unwrap();
        {
            let _held = mine.write().await.unwrap();
            let mut waits = Box::pin(other.write());
            let wait = Box::pin(net.sleep(Duration::from_millis(500)));
            assert!(first(&mut waits, wait).await.is_none());
        }
        let text = regions.complaints().join("\n");
        let expected = format!(
            "rank {me} waits for 0.1 s to write region {0}:0, which ranks [{0}] use, and holds \
             regions [{me}:0]",
            1 - me
        );
        assert_eq!(text, expected);
        assert_eq!(other.write().await.unwrap().len(), 10);
        regions.barrier().await.unwrap();
        (regions, mine)
    });
}

#[test]
fn map__wrong_types_and_regions_that_are_not_there_are_named() {
    let cluster = Cluster { config: SimConfig::new(2, 1), dies: None };
    cluster.run("regions errors", |_, net| async move {
        let regions = Regions::open(&net);
        if net.rank() == 0 {
            let mine = regions.create(vec![[1.5f64; 3]; 4]).unwrap();
            regions.broadcast(0, Some(mine.id())).await.unwrap();
            let other = regions.create(vec![7u8; 10]).unwrap();
            regions.broadcast(0, Some(other.id())).await.unwrap();
            regions.barrier().await.unwrap();
            assert_eq!(other.write().await.unwrap().len(), 10);
            mine.delete().await.unwrap();
            regions.barrier().await.unwrap();
            assert!(regions.create(vec![0u8; 300 << 20]).is_err());
            return regions;
        }
        let name = regions.broadcast(0, None).await.unwrap();
        let wrong = regions.map::<f64>(name).await.err().map(|error| error.to_string());
        assert_eq!(
            wrong.as_deref(),
            Some("region 0:0: it has items of type [f64; 3], not items of type f64")
        );
        let region = regions.map::<[f64; 3]>(name).await.unwrap();
        assert_eq!(region.read().await.unwrap()[3], [1.5; 3]);
        let other = regions.broadcast(0, None).await.unwrap();
        let wrong = regions.map_known::<[f64; 3]>(name, 5).err().unwrap().to_string();
        assert!(wrong.contains("4 items of type [f64; 3], not 5 items"), "{wrong}");
        let longer = regions.map_known::<u8>(other, 11).unwrap();
        let wrong = longer.read().await.err().unwrap().to_string();
        assert!(wrong.contains("it has 10 bytes, not 11 bytes"), "{wrong}");
        regions.barrier().await.unwrap();
        regions.barrier().await.unwrap();
        let gone = region.read().await.err().map(|error| error.cause);
        assert_eq!(gone, Some(RegionCause::NoRegion));
        let bytes = RegionId::from_bytes(&[1; 12]);
        assert!(matches!(
            regions.map::<u8>(bytes).await.err().map(|error| error.cause),
            Some(RegionCause::Home(RankFailure { .. }))
        ));
        regions
    });
}

#[test]
fn delete__by_any_rank_refuses_later_operations() {
    let cluster = Cluster { config: SimConfig::new(3, 1), dies: None };
    cluster.run("regions deleted", |_, net| async move {
        let (regions, me) = (Regions::open(&net), net.rank());
        let mine = regions.create(vec![me as u32; 5]).unwrap();
        let names = regions.gather(&[mine.id()]).await.unwrap();
        let next = regions.map::<u32>(names[(me + 1) % 3]).await.unwrap();
        assert_eq!(next.read().await.unwrap()[4] as usize, (me + 1) % 3);
        regions.barrier().await.unwrap();
        next.clone().delete().await.unwrap();
        let again = next.delete().await.err().map(|error| error.cause);
        assert_eq!(again, Some(RegionCause::NoRegion));
        regions.barrier().await.unwrap();
        let gone = mine.read().await.err().map(|error| error.cause);
        assert_eq!(gone, Some(RegionCause::NoRegion));
        let none = regions.map::<u32>(names[(me + 2) % 3]).await.err().map(|error| error.cause);
        assert_eq!(none, Some(RegionCause::NoRegion));
        regions.barrier().await.unwrap();
        regions
    });
}

#[test]
fn map__of_a_deleted_region_is_refused_where_a_copy_lies_in_the_cache() {
    let cluster = Cluster { config: SimConfig::new(4, 1), dies: None };
    cluster.run("regions deleted and cached", |_, net| async move {
        let (regions, me) = (Regions::open(&net), net.rank());
        let mine = (me == 0).then(|| regions.create(vec![7u32; 5]).unwrap());
        let name = regions.broadcast(0, mine.as_ref().map(Region::id)).await.unwrap();
        // Ranks 1 and 2 have read it; rank 2 keeps a handle. Their copies are taken back.
        let kept = regions.map::<u32>(name).await.unwrap();
        assert_eq!(kept.read().await.unwrap()[4], 7);
        let kept = (me == 2).then_some(kept);
        regions.barrier().await.unwrap();
        if me == 3 {
            regions.map::<u32>(name).await.unwrap().write().await.unwrap().fill(8);
        }
        regions.barrier().await.unwrap();
        // A region that lives is mapped from the cache without a message, its copy valid or not.
        let now = {
            let mut maps = Box::pin(regions.map::<u32>(name));
            std::future::poll_fn(|cx| Poll::Ready(maps.as_mut().poll(cx))).await
        };
        let Poll::Ready(Ok(again)) = now else { panic!("rank {me} asks the home") };
        assert_eq!(again.check(), Ok(()));
        regions.barrier().await.unwrap();
        match me {
            3 => again.delete().await.unwrap(),
            _ => drop(again),
        }
        regions.barrier().await.unwrap();
        let cause = |error: RegionError| error.cause;
        let gone = Some(RegionCause::NoRegion);
        assert_eq!(regions.map::<u32>(name).await.err().map(cause), gone, "rank {me}");
        if let Some(kept) = &kept {
            assert_eq!(kept.check().err().map(cause), gone);
            assert_eq!(kept.read().await.err().map(cause), gone);
        }
        drop(kept);
        assert_eq!(regions.map::<u32>(name).await.err().map(cause), gone, "rank {me}");
        regions.barrier().await.unwrap();
        regions
    });
}

#[test]
fn map__that_meets_a_deletion_leaves_nothing_that_later_maps_find() {
    let refused = Rc::new(Cell::new(0));
    for seed in seeds(0..60) {
        let cluster = Cluster::of_seed(seed, 3..6, None);
        let counts = Rc::clone(&refused);
        cluster.run("regions deleted meanwhile", move |env, net| {
            let counts = Rc::clone(&counts);
            async move {
                let (regions, me) = (Regions::open(&net), net.rank());
                let mine = (me == 0).then(|| regions.create(vec![7u32; 5]).unwrap());
                let name = regions.broadcast(0, mine.as_ref().map(Region::id)).await.unwrap();
                env.sleep(env.rng().below(MS / 4)).await;
                if me == 1 {
                    regions.map::<u32>(name).await.unwrap().delete().await.unwrap();
                } else if regions.map::<u32>(name).await.is_err() {
                    counts.set(counts.get() + 1);
                }
                regions.barrier().await.unwrap();
                let gone = regions.map::<u32>(name).await.err().map(|error| error.cause);
                assert_eq!(gone, Some(RegionCause::NoRegion), "seed {seed}, rank {me}");
                regions.barrier().await.unwrap();
                (regions, mine)
            }
        });
    }
    enough(refused.get() > 3, || format!("{} maps came too late", refused.get()));
}

#[test]
fn lost__the_first_cause_is_named_when_the_home_has_failed_too() {
    let death = |host, at| Fault::Death { host, at: at * MS, visible: true };
    let config = SimConfig::new(3, 1).fault(death(2, 20)).fault(death(1, 60));
    let cluster = Cluster { config, dies: None };
    let errors: Rc<RefCell<Vec<RegionError>>> = Rc::default();
    let noted = Rc::clone(&errors);
    cluster.run("regions lost twice", move |env, net| {
        let noted = Rc::clone(&noted);
        async move {
            let (regions, me) = (Regions::open(&net), net.rank());
            let mut all = Vec::new();
            for _ in 0..2 {
                let mine = (me == 1).then(|| regions.create(vec![7u32; 5]).unwrap());
                let name = regions.broadcast(1, mine.as_ref().map(Region::id)).await.unwrap();
                all.push((regions.map::<u32>(name).await.unwrap(), mine));
            }
            regions.barrier().await.unwrap();
            if me == 2 {
                all[0].0.write().await.unwrap().fill(8);
            }
            // Rank 2 dies with the only copy of the first region, then their home.
            env.sleep(100 * MS).await;
            for (region, _) in &all {
                let error = region.read().await.err();
                noted.borrow_mut().extend(error);
            }
            (regions, all)
        }
    });
    let errors = errors.borrow();
    let [holder, home] = &errors[..] else { panic!("{errors:?}") };
    assert!(matches!(&holder.cause, RegionCause::Holder(failure) if failure.rank == 2), "{holder}");
    assert!(matches!(&home.cause, RegionCause::Home(failure) if failure.rank == 1), "{home}");
    let (holder, home) = (holder.to_string(), home.to_string());
    let text = "region 1:0: it is lost with the rank that had the only copy: rank 2 ";
    assert!(holder.starts_with(text), "{holder}");
    assert!(home.starts_with("region 1:1: its home is lost: rank 1 "), "{home}");
    assert!(home.contains("; before that, rank 2 "), "{home}");
}

//! Regions under faults: every history is sequentially consistent, and what is lost is named.

use crate::cluster::{Cluster, Ends, MS};
use crate::history::{Event, History, Past};
use crate::Report;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::task::Poll;
use weft_models::net::{Live, Net, RankFailure};
use weft_models::regions::{Region, RegionCause, RegionError, RegionId, Regions};
use weft_sim::{Env, Rng};

/// The values that each region had, in order.
pub type Writes = Rc<RefCell<BTreeMap<u64, Vec<u64>>>>;

/// A rank that does random operations on regions of all ranks.
pub struct User {
    /// The host.
    pub env: Env,
    rng: Rng,
    regions: Regions<Live>,
    /// The regions of all ranks.
    pub all: Vec<Region<Live, u64>>,
    history: History,
    writes: Writes,
    number: u64,
}

impl User {
    /// Makes a region here, and maps those of all.
    pub async fn open(
        env: Env,
        regions: Regions<Live>,
        (history, writes): (History, Writes),
    ) -> Result<User, RankFailure> {
        let mine = regions.create(vec![0u64; 300]).expect("it is small");
        let names = regions.gather(&[mine.id()]).await?;
        let mut user =
            User { rng: env.rng(), env, regions, all: Vec::new(), history, writes, number: 0 };
        user.map(&names).await.map_err(|error| match error.cause {
            RegionCause::Home(failure) | RegionCause::Holder(failure) => failure,
            other => panic!("{other:?}"),
        })?;
        Ok(user)
    }

    /// Maps regions.
    ///
    /// # Errors
    /// One is lost.
    pub async fn map(&mut self, names: &[RegionId]) -> Result<(), RegionError> {
        for name in names {
            self.all.push(self.regions.map(*name).await?);
        }
        Ok(())
    }

    fn note(&self, object: usize, read: u64, wrote: Option<u64>) {
        let event = Event { object: object as u64, read: Some(read), wrote, posted: false };
        self.history.borrow_mut().entry(self.env.host as usize).or_default().push(event);
    }

    async fn pause(&mut self) {
        if self.rng.below(2) == 0 {
            self.env.sleep(self.rng.below(MS)).await;
        }
    }

    /// Does a random operation. The items of a region are the last value written.
    pub async fn step(&mut self) -> Result<(), RegionError> {
        let at = self.rng.below(self.all.len() as u64) as usize;
        let region = self.all[at].clone();
        match self.rng.below(8) {
            0..3 => {
                let mut items = region.write().await?;
                self.pause().await;
                let old = items[0];
                assert!(items.iter().all(|&item| item == old), "a torn copy");
                self.number += 1;
                let value = (u64::from(self.env.host) + 1) << 32 | self.number;
                items.fill(value);
                self.writes.borrow_mut().entry(at as u64).or_default().push(value);
                self.note(at, old, Some(value));
            }
            3 => {
                // An operation that is given up.
                let mut gives_up = Box::pin(region.write());
                std::future::poll_fn(|cx| Poll::Ready(gives_up.as_mut().poll(cx).is_ready())).await;
            }
            4 => region.flush(),
            5 => region.prefetch_to_write(),
            _ => {
                region.prefetch();
                let items = region.read().await?;
                let read = items[0];
                assert!(items.iter().all(|&item| item == read), "a torn copy");
                self.pause().await;
                assert_eq!(items[0], read, "nobody writes meanwhile");
                self.note(at, read, None);
            }
        }
        self.pause().await;
        Ok(())
    }
}

/// returns their number. The errors name ranks that a fault concerns.
async fn use_cut_off(mut user: User, cluster: &Cluster, ends: Ends) -> u64 {
    let mut errors = 0;
    for _ in 0..80 {
        match user.step().await.map_err(|error| error.cause) {
            Ok(()) => {}
            Err(RegionCause::Home(failure) | RegionCause::Holder(failure)) => {
                assert!(ends == Ends::AtOnce || cluster.may_lose(failure.rank), "{failure}");
                errors += 1;
                user.env.sleep(user.env.rng().below(5 * MS)).await;
            }
            Err(other) => panic!("seed {}: {other:?}", cluster.config.seed),
        }
    }
    errors
}

/// Uses regions of all ranks: every rank sees values in an order that explains all, and nothing is
/// lost without an error.
///
/// # Panics
/// A promise does not hold.
pub fn run(cluster: &Cluster, ends: Ends) -> Report {
    let (seed, errors) = (cluster.config.seed, Rc::new(Cell::new(0)));
    let (history, writes) = (History::default(), Writes::default());
    let logs = (Rc::clone(&history), Rc::clone(&writes));
    let (faults, total) = (Rc::new(cluster.clone()), Rc::clone(&errors));
    let at_barrier = Rc::new(Cell::new(0));
    let outcome = cluster.run_to(ends, "regions cut off", move |env, net| {
        let (logs, faults, total) = (logs.clone(), Rc::clone(&faults), Rc::clone(&total));
        let at_barrier = Rc::clone(&at_barrier);
        async move {
            let may_lose = |rank| ends == Ends::AtOnce || faults.may_lose(rank);
            let regions = Regions::open(&net);
            let user = match User::open(env, regions.clone(), logs).await {
                Ok(user) => user,
                Err(failure) => {
                    assert!(may_lose(failure.rank), "seed {seed}: {failure}");
                    return (regions, Vec::new());
                }
            };
            let all = user.all.clone();
            total.set(total.get() + use_cut_off(user, &faults, ends).await);
            at_barrier.set(at_barrier.get() + 1);
            match regions.barrier().await {
                Ok(()) => assert_eq!(at_barrier.get(), net.size(), "seed {seed}"),
                Err(failure) => assert!(may_lose(failure.rank), "seed {seed}: {failure}"),
            }
            (regions, all)
        }
    });
    let operations = history.borrow().values().map(Vec::len).sum::<usize>() as u64;
    let writes = writes.borrow().clone();
    let live = writes.keys().copied().collect();
    Past { writes, live, lost: Vec::new(), seed }.explains(&history);
    Report { operations, errors: errors.get(), outcome }
}

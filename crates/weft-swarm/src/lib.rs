//! The models of `weft-models` on simulated hosts, under faults drawn from seeds: loss, disorder,
//! partitions, hosts that stand still for longer than others wait for them, deaths, and hosts that
//! have ended when another one comes back. Each scenario checks the promises of its model.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod actors;
pub mod calls;
pub mod churn;
pub mod cluster;
pub mod history;
pub mod jobs;
pub mod objects;
pub mod order;
pub mod regions;
pub mod together;
pub mod views;

use cluster::{Cluster, Ends};
use objects::Uses;
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use weft_sim::runner::Outcome;
use weft_sim::Rng;

/// The results of a simulation without failure.
#[derive(Clone, Debug)]
pub struct Report {
    /// Operations that were done and checked; of operations of all ranks, the ranks that have done
    /// all of theirs; of jobs, the runs.
    pub operations: u64,
    /// Operations, or ranks, that ended with an error which a fault explains.
    pub errors: u64,
    /// The end of the simulation.
    pub outcome: Outcome,
}

/// A model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Calls of other ranks.
    Calls,
    /// Ordered groups.
    Order,
    /// Ordered groups whose ranks come and go.
    Churn,
    /// Shared objects.
    Objects,
    /// Regions.
    Regions,
    /// Queues of jobs.
    Jobs,
    /// Objects that messages drive.
    Actors,
    /// Operations of all ranks.
    Together,
}

impl Model {
    /// All models.
    pub const ALL: [Model; 8] = [
        Model::Calls,
        Model::Order,
        Model::Churn,
        Model::Objects,
        Model::Regions,
        Model::Jobs,
        Model::Actors,
        Model::Together,
    ];

    /// Returns the name of the model.
    pub fn name(self) -> &'static str {
        match self {
            Model::Calls => "calls",
            Model::Order => "order",
            Model::Churn => "churn",
            Model::Objects => "objects",
            Model::Regions => "regions",
            Model::Jobs => "jobs",
            Model::Actors => "actors",
            Model::Together => "together",
        }
    }

    /// Draws a cluster from a seed, and runs the model on it.
    ///
    /// # Errors
    /// A promise does not hold, with the cluster and the cause.
    pub fn run_seed(self, seed: u64) -> Result<Report, String> {
        let (cluster, ends) = match self {
            Model::Churn => (churn::drawn(seed), Ends::Together),
            _ => drawn(seed),
        };
        cluster::replay_by(self.replay(seed));
        let run = || match self {
            Model::Calls => calls::run(&cluster, ends),
            Model::Order => order::run(&cluster, ends),
            Model::Churn => churn::run(&cluster),
            Model::Objects => {
                let uses = [Uses::Any, Uses::Moves][usize::from(seed.is_multiple_of(3))];
                objects::run(&cluster, uses, ends)
            }
            Model::Regions => regions::run(&cluster, ends),
            Model::Jobs => jobs::run(&cluster, ends),
            Model::Actors => actors::run(&cluster, ends),
            Model::Together => together::run(&cluster, ends),
        };
        catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let text = text.unwrap_or("a promise does not hold");
            format!("{text}\nin {}, hosts end {ends:?}", cluster.config)
        })
    }

    /// Returns the command that runs a seed again.
    pub fn replay(self, seed: u64) -> String {
        format!("weft sim swarm --model {self} --seed {seed}")
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Draws the cluster of a seed: some have no fault that takes a host away, and hosts of half of
/// them end as soon as they have done their part.
fn drawn(seed: u64) -> (Cluster, Ends) {
    let mut rng = Rng::stream(seed, 80);
    let ends = [Ends::Together, Ends::AtOnce][rng.below(2) as usize];
    let cluster = match rng.below(4) {
        0 => Cluster::of_seed(seed, 2..6, Some(0..6)),
        _ => Cluster::rough(seed, 2..6),
    };
    (cluster, ends)
}

//! Hosts that speak MX over Ethernet (MXoE) on the simulated network, which loses, doubles,
//! reorders and damages frames, stands still and lets hosts die.
//!
//! A [`MxPlan`] is drawn from a seed: hosts, dialect, lengths of frames and blocks, messages and
//! faults. [`run`] plays it with an endpoint of `weft_mxoe` on each host, and checks that each
//! message arrives once, whole and in order, that its sender learns of its end, and that nobody
//! waits for ever.

mod checker;
mod plan;
mod station;

use crate::network::{Counters, Network};
use crate::runner::Runner;
use checker::Checker;
pub use plan::MxPlan;
use station::Station;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// The results of a plan without failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MxReport {
    /// Messages that came as they are.
    pub received: u64,
    /// Messages that were announced and pulled.
    pub pulled: u64,
    /// Messages of which the sender learned that the receiver had failed.
    pub lost: u64,
    /// Connections that ended because a host died or was started anew.
    pub failed: u64,
    /// Totals of the network.
    pub network: Counters,
}

/// The failure of a plan.
#[derive(Clone, Debug)]
pub struct MxFailure {
    /// The plan.
    pub plan: Box<MxPlan>,
    /// The fault that was found.
    pub why: String,
}

impl fmt::Display for MxFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MxFailure { plan, why } = self;
        let seed = plan.seed();
        write!(f, "seed {seed}: {why}\n{plan}\nagain: WEFT_SEEDS={seed}..{} ", seed + 1)?;
        write!(f, "cargo test -p weft-sim --test mxoe every_seed")
    }
}

/// Plays a plan.
///
/// # Errors
/// A message came twice, damaged, out of order or not at all; or somebody waits for ever.
pub fn run(plan: &MxPlan) -> Result<MxReport, MxFailure> {
    let fail = |why: String| MxFailure { plan: Box::new(plan.clone()), why };
    let net = Network::shared(plan.sim.clone());
    let checker = Rc::new(RefCell::new(Checker::new(plan.clone())));
    let mut runner: Runner<Station> = Runner::new(&net);
    for host in 0..plan.sim.hosts {
        let checker = Rc::clone(&checker);
        runner.spawn(host, Box::new(move |env| Station::start(env, &checker)));
    }
    let outcome = runner.run();
    checker.borrow().fault().map_or(Ok(()), |why| Err(fail(why)))?;
    let outcome = outcome.map_err(|why| fail(why.to_string()))?;
    let checker = checker.borrow();
    checker.check_end().map_err(fail)?;
    let (received, pulled) = checker.arrived();
    let (lost, failed) = checker.losses();
    Ok(MxReport { received, pulled, lost, failed, network: outcome.counters })
}

/// Plays the plan of a seed.
///
/// # Errors
/// Returns the errors of [`run`].
pub fn run_seed(seed: u64) -> Result<MxReport, MxFailure> {
    run(&MxPlan::of_seed(seed))
}

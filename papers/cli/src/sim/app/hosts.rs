//! A program on all simulated hosts, of which some may die.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use weft::{GroupError, OpError};
use weft_models::net::RankFailure;
use weft_models::objects::ObjectCause;
use weft_models::regions::RegionCause;
use weft_models::rpc::Cause;
use weft_sim::{Counters, Env, Failure, Sim};

/// An error with which a program ends.
pub trait Fault: Display {
    /// Returns true if the cause is the failure of another rank.
    fn is_of_peer(&self) -> bool;
}

impl Fault for GroupError {
    fn is_of_peer(&self) -> bool {
        matches!(self.cause(), OpError::Peer { .. })
    }
}

impl Fault for RankFailure {
    fn is_of_peer(&self) -> bool {
        true
    }
}

impl Fault for weft_awari::CallsError {
    fn is_of_peer(&self) -> bool {
        match self {
            weft_awari::CallsError::Rank(_) => true,
            weft_awari::CallsError::Call(error) => matches!(error.cause, Cause::Failed(_)),
            weft_awari::CallsError::Object(error) => matches!(error.cause, ObjectCause::Group(_)),
            _ => false,
        }
    }
}

impl Fault for weft_apps::Failure {
    fn is_of_peer(&self) -> bool {
        match self {
            weft_apps::Failure::Rank(_) => true,
            weft_apps::Failure::Region(error) => {
                matches!(error.cause, RegionCause::Home(_) | RegionCause::Holder(_))
            }
        }
    }
}

impl Fault for weft_leq::RunError {
    fn is_of_peer(&self) -> bool {
        match self {
            weft_leq::RunError::Rank(_) => true,
            weft_leq::RunError::Object(error) => matches!(error.cause, ObjectCause::Group(_)),
            _ => false,
        }
    }
}

impl Fault for weft_puzzle::RunError {
    fn is_of_peer(&self) -> bool {
        matches!(self, weft_puzzle::RunError::Rank(_))
    }
}

/// Reason why hosts have no results.
pub enum Stop {
    /// The simulation failed.
    Failed(Failure),
    /// Hosts died as the options say, and others noticed: one line for each of those.
    Died(Vec<String>),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

/// The results of the hosts.
pub struct Ended<O> {
    /// Hosts with their results, in the order of their numbers.
    pub outcomes: Vec<(u32, O)>,
    /// Hosts that died before they had a result, which no other host needed them for.
    pub died: Vec<u32>,
    pub counters: Counters,
    pub retransmitted: u64,
}

/// The end of a host without a result: true if another rank failed, and the error's text.
type Ending = (bool, String);

/// Returns the hosts that died without a result, if all others have one. A run without is expected
/// if hosts die by the options and another host ended with an error of a peer.
fn without_result(
    sim: &Sim,
    mortal: &[u32],
    hosts: u32,
    ended: &[(u32, Option<Ending>)],
) -> Result<Vec<u32>, Stop> {
    let mut lines = Vec::new();
    for (host, ending) in ended {
        match ending {
            Some((true, text)) if !mortal.is_empty() => lines.push(format!("host {host}: {text}")),
            Some((_, text)) => return Err(sim.failure(format!("host {host}: {text}")).into()),
            None => {}
        }
    }
    if !lines.is_empty() {
        return Err(Stop::Died(lines));
    }
    let has_ended = |host: &u32| ended.iter().any(|(other, _)| other == host);
    let missing: Vec<u32> = (0..hosts).filter(|host| !has_ended(host)).collect();
    if missing.len() == hosts as usize && missing.iter().all(|host| mortal.contains(host)) {
        return Err(sim.failure("every host died, and none has a result".into()).into());
    }
    match missing.iter().all(|host| mortal.contains(host)) {
        true => Ok(missing),
        false => Err(sim.failure(format!("{} of {hosts} hosts have a result", ended.len())).into()),
    }
}

/// Context of the group in which hosts that have a result wait for the others. Programs use none:
/// the number of a collective operation in their groups must not meet one of this group.
const LAST: u16 = u16::MAX;

/// Interval at which a host checks if the job was ended, in virtual ns.
const POLL_EVERY_NS: u64 = 10_000_000;

/// Returns the result of `work`; `None` if the job is ended first.
async fn unless<T>(work: impl Future<Output = T>, job: Option<(Env, Rc<Cell<bool>>)>) -> Option<T> {
    let mut work = pin!(work);
    let Some((env, aborted)) = job else { return Some(work.await) };
    while !aborted.get() {
        let mut sleep = pin!(env.sleep(POLL_EVERY_NS));
        let step = poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
        });
        if let Some(done) = step.await {
            return Some(done);
        }
    }
    None
}

/// Runs a program on every host; a host without a result is an error.
pub fn simulate<O, E, F, Fut>(
    sim: &mut Sim,
    (hosts, mortal): (u32, &[u32]),
    program: F,
) -> Result<Ended<O>, Stop>
where
    O: 'static,
    E: Fault + 'static,
    F: Fn(Env) -> Fut + Clone + 'static,
    Fut: Future<Output = Result<O, E>> + 'static,
{
    let results = Rc::new(RefCell::new(Vec::new()));
    let retransmitted = Rc::new(Cell::new(0));
    let (shared, sum) = (Rc::clone(&results), Rc::clone(&retransmitted));
    // If hosts may die, the first error ends the job, as under a launcher; the others notice it at
    // their next check.
    let aborts = !mortal.is_empty();
    let aborted = Rc::new(Cell::new(false));
    sim.spawn_all(move |env| {
        let (results, sum) = (Rc::clone(&shared), Rc::clone(&sum));
        let all: Vec<usize> = (0..hosts as usize).collect();
        let last = env.world().subset(&all, LAST).expect("every host is in it");
        let aborted = Rc::clone(&aborted);
        let work = program(env.clone());
        async move {
            let job = || aborts.then(|| (env.clone(), Rc::clone(&aborted)));
            let Some(result) = unless(work, job()).await else { return };
            let result = result.map_err(|error| (error.is_of_peer(), error.to_string()));
            let failed = result.is_err();
            aborted.set(aborted.get() | failed);
            results.borrow_mut().push((env.host, result));
            if !failed {
                // This host answers until all hosts have their results.
                let _ = unless(last.barrier(), job()).await;
            }
            sum.set(sum.get() + env.endpoint.stats().retransmitted);
        }
    });
    let run = sim.run();
    let mut results = results.take();
    results.sort_by_key(|(host, _)| *host);
    let (mut outcomes, mut ended) = (Vec::new(), Vec::new());
    for (host, result) in results {
        ended.push((host, result.map(|outcome| outcomes.push((host, outcome))).err()));
    }
    let errors = ended.iter().any(|(_, ending)| ending.is_some());
    let counters = match run {
        Ok(outcome) => outcome.counters,
        Err(_) if mortal.is_empty() && errors => Counters::default(),
        Err(failure) => return Err(failure.into()),
    };
    let died = without_result(sim, mortal, hosts, &ended)?;
    Ok(Ended { outcomes, died, counters, retransmitted: retransmitted.get() })
}

//! A program on all simulated hosts, of which some may die.

use std::cell::{Cell, RefCell};
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use weft::{GroupError, OpError};
use weft_models::actors::{ActorCause, ActorError};
use weft_models::net::RankFailure;
use weft_models::objects::ObjectCause;
use weft_models::regions::RegionCause;
use weft_models::rpc::Cause;
use weft_sim::{Counters, Env, Failure, Sim};

/// The error with which a program ends.
pub struct Fault {
    /// True if the cause is the failure of another rank.
    is_of_peer: bool,
    text: String,
}

impl From<GroupError> for Fault {
    fn from(error: GroupError) -> Fault {
        let is_of_peer = matches!(error.cause(), OpError::Peer { .. });
        Fault { is_of_peer, text: error.to_string() }
    }
}

impl From<weft_dd::RunError> for Fault {
    fn from(error: weft_dd::RunError) -> Fault {
        match error {
            weft_dd::RunError::Group(error) => error.into(),
            weft_dd::RunError::Ranks(error) => Fault { is_of_peer: true, text: error.to_string() },
        }
    }
}

impl From<weft_apps::Failure> for Fault {
    fn from(failure: weft_apps::Failure) -> Fault {
        let is_of_peer = match &failure {
            weft_apps::Failure::Rank(_) => true,
            weft_apps::Failure::Region(error) => {
                matches!(error.cause, RegionCause::Home(_) | RegionCause::Holder(_))
            }
            weft_apps::Failure::Call(error) => matches!(error.cause, Cause::Failed(_)),
            weft_apps::Failure::Object(error) => matches!(error.cause, ObjectCause::Group(_)),
        };
        Fault { is_of_peer, text: failure.to_string() }
    }
}

impl From<RankFailure> for Fault {
    fn from(failure: RankFailure) -> Fault {
        weft_apps::Failure::Rank(failure).into()
    }
}

impl From<ActorError> for Fault {
    fn from(error: ActorError) -> Fault {
        let is_of_peer = matches!(error.cause, ActorCause::Failed(_));
        Fault { is_of_peer, text: error.to_string() }
    }
}

impl From<weft_puzzle::RunError> for Fault {
    fn from(error: weft_puzzle::RunError) -> Fault {
        let is_of_peer = matches!(error, weft_puzzle::RunError::Rank(_));
        Fault { is_of_peer, text: error.to_string() }
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

/// Returns the hosts that died without a result, if all others have one. A run without is expected
/// if hosts die by the options and another host ended with an error of a peer.
fn without_result(
    sim: &Sim,
    mortal: &[u32],
    hosts: u32,
    ended: &[(u32, Option<Fault>)],
) -> Result<Vec<u32>, Stop> {
    let mut lines = Vec::new();
    for (host, ending) in ended {
        match ending {
            Some(Fault { is_of_peer: true, text }) if !mortal.is_empty() => {
                lines.push(format!("host {host}: {text}"));
            }
            Some(Fault { text, .. }) => {
                return Err(sim.failure(format!("host {host}: {text}")).into());
            }
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
pub fn simulate<O, F, Fut>(
    sim: &mut Sim,
    (hosts, mortal): (u32, &[u32]),
    program: F,
) -> Result<Ended<O>, Stop>
where
    O: 'static,
    F: Fn(Env) -> Fut + Clone + 'static,
    Fut: Future<Output = Result<O, Fault>> + 'static,
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

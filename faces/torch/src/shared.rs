//! The lock of a process group, and waits.
//!
//! A call holds the lock while it works. One thread makes progress for all, the leader: a thread
//! that waits for an operation, or else the thread of the process group (`progress`). A leader that
//! has nothing to do sleeps on a descriptor, without the lock. No call enters the interpreter while
//! it has the lock.

use crate::begin::Begun;
use crate::fault::Fault;
use crate::inside::{Collected, Inside};
use crate::outcome::Outcome;
use crate::sys::{sleep_on, Owned};
use pyo3::{Py, PyAny};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weft::Group;
use weft_link::copied::Origin;
use weft_sys::lock::Lock;

/// Longest time between two looks for signals, which may have come to another thread.
pub const LOOK: Duration = Duration::from_millis(200);
/// A piece of spinning, after which other threads may have the lock.
const PIECE: Duration = Duration::from_micros(20);

/// The thread that makes progress for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leader {
    Nobody,
    /// A thread that waits for an operation.
    Caller,
    /// The thread of the process group.
    Own,
}

pub struct State {
    /// `None` after the end.
    pub job: Option<Owned>,
    pub leader: Leader,
    /// True while the leader sleeps, without the lock.
    asleep: bool,
    /// True when the process group is about to end.
    pub ending: bool,
    /// The reason of the end.
    why: Option<Fault>,
    /// Number of threads that wait for the leader.
    followers: usize,
    /// Number of calls so far.
    pub calls: u64,
    /// Operations whose ends functions of Python wait for.
    pub called: Vec<Arc<Outcome>>,
    /// True while the thread of the process group waits for work.
    pub is_idle: bool,
    /// True while it is in its sleep on the descriptor, also if another thread leads.
    own_sleeps: bool,
}

/// A process group that many threads use.
pub struct Shared {
    origin: Origin,
    state: Lock<State>,
    progressed: Condvar,
    /// Wakes the thread of the process group.
    pub work: Condvar,
    spin: Duration,
}

/// The end of a part of a wait.
pub enum Round {
    /// The operation has ended.
    Done,
    /// The time has passed.
    Late(Fault),
    /// A signal may have come.
    Look,
}

/// Returns the fault of a call in a forked process.
fn forked() -> Fault {
    Fault::failed(
        "this process is a copy, made by fork, of a rank: only the rank itself calls operations of \
         its process groups",
    )
}

impl State {
    /// Returns the job.
    ///
    /// # Errors
    /// The process group has ended.
    pub fn inside(&mut self) -> Result<&mut Inside, Fault> {
        match (&mut self.job, &self.why) {
            (Some(job), None) => Ok(job.get()),
            (_, why) => {
                let shut = || Fault::failed("the process group was shut down");
                Err(why.clone().unwrap_or_else(shut))
            }
        }
    }

    fn note(&mut self, collected: Collected) -> bool {
        self.called.extend(collected.called);
        collected.any
    }
}

impl Shared {
    pub fn new(inside: Inside) -> Shared {
        let config = inside.endpoint().config();
        let spin = u64::from(config.spin_us) + u64::from(config.yield_us);
        let state = State {
            job: Some(Owned::new(inside)),
            leader: Leader::Nobody,
            asleep: false,
            ending: false,
            why: None,
            followers: 0,
            calls: 0,
            called: Vec::new(),
            is_idle: false,
            own_sleeps: false,
        };
        Shared {
            origin: Origin::here(),
            state: Lock::new(state),
            progressed: Condvar::new(),
            work: Condvar::new(),
            spin: Duration::from_micros(spin),
        }
    }

    /// True unless this process is a copy of the rank.
    pub fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Begins an operation on tensors, which are kept until it has ended. With `is_sync` the caller
    /// waits for it next.
    ///
    /// # Errors
    /// The process group has ended, or this process is a copy.
    pub fn begin(
        &self,
        (name, limit, is_sync): (&'static str, Duration, bool),
        tensors: Py<PyAny>,
        begin: impl FnOnce(&Group) -> Begun,
    ) -> Result<Arc<Outcome>, Fault> {
        if !self.is_here() {
            return Err(forked());
        }
        let mut state = self.lock();
        state.calls += 1;
        let inside = state.inside()?;
        let outcome = inside.begin(name, (limit, tensors), begin);
        if !outcome.is_done() && !is_sync {
            self.serve(&mut state);
        }
        Ok(outcome)
    }

    /// Has somebody make progress for an operation whose caller does something else.
    fn serve(&self, state: &mut State) {
        match state.leader {
            // An operation begun here may need a retransmission before the leader would wake.
            Leader::Caller | Leader::Own if state.asleep => {
                if let Some(job) = &mut state.job {
                    job.get().endpoint().waiting().rearm(false);
                }
            }
            Leader::Nobody if state.is_idle => self.work.notify_all(),
            _ => {}
        }
    }

    /// Waits until an operation has ended, at most until a time, `limit` after the begin of the
    /// wait. The operation goes on after that.
    ///
    /// # Errors
    /// This process is a copy.
    pub fn wait(
        &self,
        outcome: &Arc<Outcome>,
        (limit, until): (Duration, Option<Instant>),
    ) -> Result<Round, Fault> {
        if outcome.is_done() {
            return Ok(Round::Done);
        }
        if !self.is_here() {
            return Err(forked());
        }
        let mut state = self.lock();
        state.calls += 1;
        let look = Instant::now() + LOOK;
        let mut leads = false;
        let round = loop {
            if outcome.is_done() {
                break Round::Done;
            }
            let now = Instant::now();
            if now >= look {
                break Round::Look;
            }
            if until.is_some_and(|until| now >= until) {
                let late = state.inside().map(|inside| inside.late_after(limit));
                break Round::Late(late.unwrap_or_else(|why| why));
            }
            let left = until.map_or(look, |until| until.min(look)).saturating_duration_since(now);
            if state.ending && std::mem::take(&mut leads) {
                self.end_of_lead(&mut state);
            }
            if state.ending || !leads && state.leader == Leader::Caller {
                state = self.follow(state, left);
                continue;
            }
            if !std::mem::replace(&mut leads, true) {
                self.take_over(&mut state);
            }
            state = self.lead(state, Leader::Caller, left);
            self.tell(&state);
        };
        if leads {
            self.end_of_lead(&mut state);
        }
        Ok(round)
    }

    /// Makes this thread the leader, in place of the thread of the process group.
    fn take_over(&self, state: &mut State) {
        let was_asleep = std::mem::replace(&mut state.asleep, false);
        if state.leader == Leader::Own && was_asleep {
            if let Some(job) = &mut state.job {
                let endpoint = job.get().endpoint();
                endpoint.waiting().finish();
                // Its sleep would not end when something comes.
                endpoint.waiting().rearm(true);
            }
        }
        state.leader = Leader::Caller;
    }

    /// Waits for the leader, at most for a time.
    fn follow<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        limit: Duration,
    ) -> MutexGuard<'a, State> {
        if state.asleep {
            self.serve(&mut state);
        }
        state.followers += 1;
        let waited = self.progressed.wait_timeout(state, limit);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.followers -= 1;
        state
    }

    /// Notifies other threads of what a part of a lead has done. A notice is a system call, also
    /// where nobody waits for it.
    fn tell(&self, state: &State) {
        if state.followers > 0 {
            self.progressed.notify_all();
        }
        if state.is_idle && !state.called.is_empty() {
            self.work.notify_all();
        }
    }

    /// Makes the place of the leader free.
    pub fn end_of_lead(&self, state: &mut State) {
        state.leader = Leader::Nobody;
        self.tell(state);
        let is_busy = state.inside().is_ok_and(|inside| inside.is_busy());
        if state.is_idle && is_busy {
            self.work.notify_all();
        }
        if state.own_sleeps && !state.ending {
            // The thread has not left the sleep that a caller took over: it sleeps on.
            let prepared = |inside: &mut Inside| inside.endpoint().waiting().prepare();
            if state.inside().is_ok_and(prepared) {
                (state.leader, state.asleep) = (Leader::Own, true);
            }
        }
    }

    /// Makes progress for all until an operation ends, and sleeps without the lock if there is
    /// nothing to do, at most for a time. The caller has set the leader.
    pub fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        own: Leader,
        limit: Duration,
    ) -> MutexGuard<'a, State> {
        let begun = Instant::now();
        loop {
            let Ok(inside) = state.inside() else { return state };
            let piece = Instant::now();
            let happened = inside.endpoint().waiting().wait_awake(PIECE);
            let would_sleep = piece.elapsed() < PIECE;
            let collected = inside.collect();
            if state.note(collected) || happened {
                return state;
            }
            if would_sleep || begun.elapsed() >= self.spin.min(limit) {
                break;
            }
            if self.state.is_awaited() {
                drop(state);
                std::thread::yield_now();
                state = self.lock();
                if state.leader != own {
                    return state;
                }
            }
        }
        let Ok(inside) = state.inside() else { return state };
        let limit = inside.patience().map_or(limit, |patience| patience.min(limit));
        let waiting = inside.endpoint().waiting();
        if !waiting.prepare() {
            return state;
        }
        let Some(fd) = waiting.fd().map(|fd| fd.as_raw_fd()) else { return state };
        state.asleep = true;
        state.own_sleeps |= own == Leader::Own;
        drop(state);
        sleep_on(fd, limit);
        let mut state = self.lock();
        state.own_sleeps &= own != Leader::Own;
        // Another thread that took over has ended this sleep.
        if state.leader == own && std::mem::replace(&mut state.asleep, false) {
            if let Some(job) = &mut state.job {
                job.get().endpoint().waiting().finish();
            }
        }
        state
    }

    /// Ends the process group: what is under way ends with `why`, what is queued leaves within
    /// `flush`. A second call does nothing.
    pub fn close(&self, why: &Fault, flush: Duration) {
        if !self.is_here() {
            return;
        }
        let mut state = self.lock();
        if state.ending {
            return;
        }
        state.ending = true;
        if let Ok(inside) = state.inside() {
            let collected = inside.end_all(why);
            state.note(collected);
        }
        state.why = Some(why.clone());
        while state.leader != Leader::Nobody {
            // The leader sleeps on a descriptor of the job.
            if let (true, Some(job)) = (state.asleep, &mut state.job) {
                job.get().endpoint().waiting().rearm(true);
            }
            self.work.notify_all();
            state = self.follow(state, LOOK);
        }
        let job = state.job.take();
        self.progressed.notify_all();
        self.work.notify_all();
        drop(state);
        if let Some(job) = job {
            job.leave(flush);
        }
    }
}

//! Runs the hosts' programs in virtual time.
//!
//! Generic over the type of host, so that it can be tested without an endpoint: a host makes
//! progress and names the time of its next timer.

use crate::clock::SimClock;
use crate::network::{Counters, SharedNetwork, Step};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use weft_core::Instant;

/// The machinery of a host that the runner drives (an endpoint).
pub trait Host {
    /// Does everything that is possible at this instant; true if anything happened.
    fn progress(&mut self) -> bool;

    /// Returns the time at which it has to be called without an event.
    fn next_timeout(&self) -> Option<Instant>;

    /// Describes the event that it waits for, in a few words.
    fn describe(&self) -> String {
        String::new()
    }
}

/// The main future of a host.
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Makes a host's machinery and its main future, at the start and at each restart.
pub type Program<H> = Box<dyn Fn(&HostEnv) -> (H, Task)>;

/// The environment of a program.
#[derive(Clone)]
pub struct HostEnv {
    /// Number of the host.
    pub host: u32,
    /// 0, and one more at each restart.
    pub incarnation: u32,
    /// The host's clock.
    pub clock: SimClock,
    /// The network.
    pub net: SharedNetwork,
}

/// A host whose future did not finish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The host.
    pub host: u32,
    /// Its last activity, virtual nanoseconds.
    pub since: u64,
    /// The program's description of the event that it waits for.
    pub what: String,
}

/// The reason why a simulation stopped before its programs finished.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunError {
    /// No event is left, and these hosts still wait.
    Deadlock {
        /// Virtual time, nanoseconds.
        at: u64,
        /// The hosts that wait.
        waiting: Vec<Waiting>,
    },
    /// The limit on virtual time was reached.
    TimeLimit {
        /// Virtual time, nanoseconds.
        at: u64,
        /// The hosts that had not finished.
        waiting: Vec<Waiting>,
    },
    /// A host was busy for ever without time passing.
    Livelock {
        /// The host.
        host: u32,
        /// Virtual time, nanoseconds.
        at: u64,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, at, waiting) = match self {
            RunError::Livelock { host, at } => {
                return write!(f, "host {host} makes progress for ever at {}", Instant(*at));
            }
            RunError::Deadlock { at, waiting } => ("nothing left to happen", at, waiting),
            RunError::TimeLimit { at, waiting } => ("limit of virtual time", at, waiting),
        };
        write!(f, "{what} at {}; {} hosts wait:", Instant(*at), waiting.len())?;
        for w in waiting.iter().take(16) {
            write!(f, "\n  host {} since {}: {}", w.host, Instant(w.since), w.what)?;
        }
        Ok(())
    }
}

impl std::error::Error for RunError {}

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Virtual time at which the last program finished, nanoseconds.
    pub at: u64,
    /// Totals of the network.
    pub counters: Counters,
    /// Hosts that died and did not come back.
    pub died: Vec<u32>,
    /// Timers that were already due when a host named them: each one is a fault of the host.
    pub late_timers: u64,
}

/// Hosts whose wakers were used since the last check. `Sync` only because a `Waker` must be.
type Woken = Arc<Mutex<Vec<u32>>>;

struct HostWaker {
    host: u32,
    due: AtomicBool,
    woken: Woken,
}

impl Wake for HostWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.due.swap(true, Ordering::Relaxed) {
            self.woken.lock().expect("no panic while held").push(self.host);
        }
    }
}

/// Makes the woken hosts run, other than `host`, which runs now.
fn run_woken(woken: &Woken, net: &SharedNetwork, host: u32) {
    for other in woken.lock().expect("no panic while held").drain(..) {
        if other != host {
            net.borrow_mut().wake(other, 0);
        }
    }
}

struct Slot<H> {
    program: Program<H>,
    /// Dropped before `machine`, which the future may use.
    task: Option<Task>,
    machine: Option<H>,
    clock: SimClock,
    waker: Arc<HostWaker>,
    last_active: u64,
    /// Consecutive calls during which no time passed.
    rounds: u32,
}

/// Calls of one host at one instant that count as a livelock.
const ROUNDS: u32 = 1_000_000;

/// Delay of a timer that is already due when it is named: a microsecond.
const LATE_TIMER_NS: u64 = 1_000;

/// The hosts of a simulation and their programs.
pub struct Runner<H> {
    net: SharedNetwork,
    slots: Vec<Option<Slot<H>>>,
    woken: Woken,
    unfinished: usize,
    died: Vec<u32>,
    late_timers: u64,
}

impl<H: Host> Runner<H> {
    /// Creates a runner over `net`, with no programs yet.
    pub fn new(net: &SharedNetwork) -> Runner<H> {
        let hosts = net.borrow().config().hosts;
        Runner {
            net: SharedNetwork::clone(net),
            slots: (0..hosts).map(|_| None).collect(),
            woken: Arc::default(),
            unfinished: 0,
            died: Vec::new(),
            late_timers: 0,
        }
    }

    /// Gives a host its program. Hosts without one stay silent.
    pub fn spawn(&mut self, host: u32, program: Program<H>) {
        let (due, woken) = (AtomicBool::new(true), Arc::clone(&self.woken));
        let waker = Arc::new(HostWaker { host, due, woken });
        let slot = Slot {
            program,
            task: None,
            machine: None,
            clock: SimClock::new(),
            waker,
            last_active: 0,
            rounds: 0,
        };
        self.slots[host as usize] = Some(slot);
        self.start(host);
    }

    fn start(&mut self, host: u32) {
        let Some(slot) = &mut self.slots[host as usize] else { return };
        slot.task = None;
        slot.machine = None;
        slot.clock = SimClock::new();
        let (now, incarnation) = {
            let net = self.net.borrow();
            (net.now(), net.generation(host))
        };
        slot.clock.reach(now);
        let clock = slot.clock.clone();
        let env = HostEnv { host, incarnation, clock, net: SharedNetwork::clone(&self.net) };
        let (machine, task) = (slot.program)(&env);
        slot.machine = Some(machine);
        slot.task = Some(task);
        slot.waker.due.store(true, Ordering::Relaxed);
        self.unfinished += 1;
        self.net.borrow_mut().wake(host, now);
    }

    /// Runs until every program has finished or its host has died.
    pub fn run(&mut self) -> Result<Outcome, RunError> {
        let limit = self.net.borrow().config().limit_ns;
        while self.unfinished > 0 || self.net.borrow().restarts_left() > 0 {
            let step = self.net.borrow_mut().step();
            let at = self.net.borrow().now();
            if at > limit {
                return Err(RunError::TimeLimit { at, waiting: self.waiting() });
            }
            match step {
                Step::Idle => return Err(RunError::Deadlock { at, waiting: self.waiting() }),
                Step::Quiet => {}
                Step::Run(host) => self.run_host(host)?,
                Step::Died(host) => {
                    self.died.push(host);
                    self.stop(host);
                }
                Step::Stopped(host) => self.leave_program(host),
                Step::Restarted(host) => {
                    self.died.retain(|&h| h != host);
                    self.stop(host);
                    self.start(host);
                }
            }
        }
        Ok(Outcome {
            at: self.net.borrow().now(),
            counters: self.net.borrow().counters(),
            died: self.died.clone(),
            late_timers: self.late_timers,
        })
    }

    fn stop(&mut self, host: u32) {
        self.leave_program(host);
        let Some(slot) = &mut self.slots[host as usize] else { return };
        slot.machine = None;
    }

    /// Stops running the program of a host; the host itself goes on.
    fn leave_program(&mut self, host: u32) {
        let Some(slot) = &mut self.slots[host as usize] else { return };
        if slot.task.take().is_some() {
            self.unfinished -= 1;
        }
    }

    /// Runs one turn of a host: until it has nothing to do, or until its clock is ahead of the
    /// network, so that it sees frames that arrive in the meantime in order.
    fn run_host(&mut self, host: u32) -> Result<(), RunError> {
        let (now, cost) = {
            let net = self.net.borrow();
            (net.now(), net.config().host.progress_ns)
        };
        let Some(slot) = &mut self.slots[host as usize] else { return Ok(()) };
        let Some(machine) = &mut slot.machine else { return Ok(()) };
        slot.clock.reach(now);
        if now > slot.last_active {
            slot.rounds = 0;
        }
        slot.last_active = now;
        loop {
            let did = machine.progress();
            if did {
                slot.clock.spend(cost);
            }
            run_woken(&self.woken, &self.net, host);
            let polled = slot.waker.due.swap(false, Ordering::Relaxed) && slot.task.is_some();
            if let (true, Some(task)) = (polled, &mut slot.task) {
                let waker = Waker::from(Arc::clone(&slot.waker));
                if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                    slot.task = None;
                    self.unfinished -= 1;
                }
                run_woken(&self.woken, &self.net, host);
            }
            if !did && !polled {
                break;
            }
            slot.rounds += 1;
            if slot.rounds > ROUNDS {
                return Err(RunError::Livelock { host, at: now });
            }
            if slot.clock.now().0 > now {
                break;
            }
        }
        let local = slot.clock.now().0;
        let due = if local > now { None } else { machine.next_timeout() };
        let mut net = self.net.borrow_mut();
        net.busy(host, local);
        if local > now {
            net.wake(host, local);
        } else if let Some(Instant(at)) = due {
            if at <= local {
                self.late_timers += 1;
                net.wake(host, local + LATE_TIMER_NS);
            } else if at < u64::MAX {
                net.wake(host, at);
            }
        }
        Ok(())
    }

    fn waiting(&self) -> Vec<Waiting> {
        let slots = (0u32..).zip(&self.slots);
        let pending = slots.filter_map(|(host, slot)| {
            let slot = slot.as_ref().filter(|s| s.task.is_some())?;
            let what = slot.machine.as_ref().map(Host::describe).unwrap_or_default();
            Some(Waiting { host, since: slot.last_active, what })
        });
        pending.collect()
    }
}

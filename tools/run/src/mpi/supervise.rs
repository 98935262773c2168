//! Running an MPI's launcher: passes signals in and the exit code out, and prints a hint if weft is
//! not used.

use super::command::Plan;
use super::detect::Mpi;
use super::needs;
use super::sys::{self, Woken};
use super::watch::{self, Sighting};
use anyhow::{Context, Result};
use rustix::process::{kill_process, Pid, Signal};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// First interval between checks of the ranks; it doubles.
const FIRST_POLL: Duration = Duration::from_millis(50);
/// Longest interval.
const LAST_POLL: Duration = Duration::from_secs(2);
/// Time that a job may run without weft before a hint says so.
const SUSPICION: Duration = Duration::from_secs(15);
/// Time for which the ranks are checked.
const INTEREST: Duration = Duration::from_secs(60);

/// Time in which a launcher must end after a signal: some wait forever for a host that did not
/// start.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the plan until the launcher ends.
///
/// The launcher stays in this process's group: keys at the terminal signal it directly, and it may
/// read from there. Signals sent to this process alone are passed on.
///
/// # Errors
/// The launcher cannot be started.
pub fn run(plan: &Plan, mpi: &Mpi) -> Result<ExitCode> {
    sys::hold();
    let mut command = plan.command();
    sys::end_with_us(&mut command);
    let mut child =
        command.spawn().with_context(|| format!("starting {}", plan.program().display()))?;
    let pid = Pid::from_child(&child);
    let mut watch = Watch::new(child.id());
    if let Some(hint) = needs::hint(&plan.runs, mpi) {
        watch.say(&hint);
    }
    let mut ending: Option<Instant> = None;
    let status = loop {
        if let Some(status) = child.try_wait().context("waiting for the launcher")? {
            break status;
        }
        let limit = watch
            .interval()
            .min(ending.map_or(FOREVER, |end| end.saturating_duration_since(Instant::now())));
        match sys::wait(limit) {
            Woken::Sent(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    // The launcher may just have ended.
                    let _ = kill_process(pid, signal);
                }
                if ![libc::SIGUSR1, libc::SIGUSR2].contains(&number) {
                    ending.get_or_insert(Instant::now() + TIMEOUT);
                }
            }
            Woken::Terminal => {
                ending.get_or_insert(Instant::now() + TIMEOUT);
            }
            Woken::Timeout if ending.is_some_and(|end| end <= Instant::now()) => {
                eprintln!("weft mpi: the launcher does not end: it and its ranks are killed");
                watch::descendants(child.id()).into_iter().for_each(kill);
                // The child is not reaped yet, so the process ID is still its own.
                kill(child.id());
                ending = Some(Instant::now() + TIMEOUT);
            }
            Woken::Timeout => watch.look(mpi, plan),
            Woken::Child => {}
        }
    };
    // A user who ends a job needs no hint.
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    if ending.is_none() {
        watch.tell(mpi, plan);
        if let Some(hint) = super::input::hint(mpi.family, code) {
            eprintln!("weft mpi: hint: {hint}");
        }
    }
    Ok(ExitCode::from(code as u8))
}

/// Longest wait if no other event is due.
const FOREVER: Duration = Duration::from_secs(3600);

fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // The process may just have ended.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Checks the ranks at growing intervals.
struct Watch {
    launcher: u32,
    start: Instant,
    seen: Sighting,
    told: bool,
    interval: Duration,
}

impl Watch {
    fn new(launcher: u32) -> Watch {
        let (start, seen) = (Instant::now(), Sighting::default());
        Watch { launcher, start, seen, told: false, interval: FIRST_POLL }
    }

    /// Returns the time until the next check.
    fn interval(&self) -> Duration {
        match self.seen.weft || self.start.elapsed() > INTEREST {
            true => FOREVER,
            false => self.interval,
        }
    }

    fn look(&mut self, mpi: &Mpi, plan: &Plan) {
        if self.interval() == FOREVER {
            return;
        }
        self.seen.look(self.launcher, mpi.family);
        self.interval = (self.interval * 2).min(LAST_POLL);
        self.tell(mpi, plan);
    }

    /// Prints a hint, once, if there is one.
    fn tell(&mut self, mpi: &Mpi, plan: &Plan) {
        if self.told {
            return;
        }
        let long = self.start.elapsed() > SUSPICION;
        if let Some(hint) = self.seen.hint(mpi, &plan.runs, long) {
            self.say(&hint);
        }
    }

    fn say(&mut self, hint: &str) {
        eprintln!("weft mpi: hint: {hint}");
        self.told = true;
    }
}

//! Running an MPI's launcher: signals in, exit code out, and a hint where weft is not used.

use super::command::Plan;
use super::detect::Mpi;
use super::sys::{self, Woken};
use super::watch::Sighting;
use anyhow::{Context, Result};
use rustix::process::{kill_process, Pid, Signal};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// First interval between looks at the ranks; it doubles.
const FIRST_LOOK: Duration = Duration::from_millis(50);
/// Longest one.
const LAST_LOOK: Duration = Duration::from_secs(2);
/// How long a job may run without weft before that is told.
const SUSPICION: Duration = Duration::from_secs(15);
/// How long the ranks are looked at.
const INTEREST: Duration = Duration::from_secs(60);

/// Runs the plan to its end.
///
/// The launcher stays in this process's group: keys at the terminal reach it directly, and it may
/// read from there. Signals that are sent to this process alone are passed on.
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
    let start = Instant::now();
    let (mut seen, mut told, mut interval) = (Sighting::default(), false, FIRST_LOOK);
    let status = loop {
        if let Some(status) = child.try_wait().context("waiting for the launcher")? {
            break status;
        }
        let watched = !seen.weft && start.elapsed() < INTEREST;
        match sys::wait(if watched { interval } else { Duration::from_secs(3600) }) {
            Woken::Sent(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    // It may just have ended.
                    let _ = kill_process(pid, signal);
                }
            }
            Woken::Timeout if watched => {
                seen.look(child.id(), mpi.family);
                interval = (interval * 2).min(LAST_LOOK);
                if !told && (seen.foreign.is_some() || start.elapsed() > SUSPICION) {
                    told = tell(&seen, mpi, plan);
                }
            }
            Woken::Timeout | Woken::Child | Woken::Terminal => {}
        }
    };
    if !told {
        tell(&seen, mpi, plan);
    }
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Ok(ExitCode::from(code.unwrap_or(1) as u8))
}

/// Prints a hint if there is one; whether there was.
fn tell(seen: &Sighting, mpi: &Mpi, plan: &Plan) -> bool {
    let hint = seen.hint(mpi, &plan.runs);
    if let Some(hint) = &hint {
        eprintln!("weft mpi: hint: {hint}");
    }
    hint.is_some()
}

//! Progress and waits of a job, and the choices for one rank.

use crate::fault::{code_of, Fault, WEFT_REFUSED};
use crate::job::WeftJob;
use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::time::Duration;
use weft::Choices;
use weft_packets::PacketStats;

/// Returns the longest wait that a program names in microseconds; none if it waits forever.
pub(crate) fn limit(timeout_us: i64) -> Option<Duration> {
    u64::try_from(timeout_us).ok().map(Duration::from_micros)
}

/// Makes progress and calls upcalls. True if anything happened.
///
/// # Errors
/// This process is a copy of the one that joined the job.
#[inline]
pub(crate) fn poll(job: &WeftJob) -> Result<bool, Fault> {
    job.is_here()?;
    Ok(job.packets.poll() | job.fresh.take())
}

/// Makes progress until something happens, or the time is over. True if anything happened.
///
/// # Errors
/// An upcall runs, or this process is a copy.
#[inline]
pub(crate) fn wait(job: &WeftJob, timeout_us: i64) -> Result<bool, Fault> {
    job.may_wait()?;
    job.is_here()?;
    Ok(job.fresh.take() || job.packets.wait(limit(timeout_us)))
}

/// Returns the descriptor that is readable when there may be work.
///
/// # Errors
/// An upcall runs, this process is a copy, a watchdog waits, or there is no descriptor.
pub(crate) fn wait_fd(job: &WeftJob) -> Result<c_int, Fault> {
    job.sleeps_itself()?;
    let fd = job.endpoint().waiting().fd().map(|fd| fd.as_raw_fd());
    fd.ok_or_else(|| Fault(WEFT_REFUSED, "the system gives no descriptor to wait on".into()))
}

/// Prepares for the program's sleep on the descriptor. False if it must not sleep, because there is
/// work.
///
/// # Errors
/// An upcall runs, this process is a copy, or a watchdog waits.
pub(crate) fn prepare_wait(job: &WeftJob) -> Result<bool, Fault> {
    job.sleeps_itself()?;
    Ok(job.endpoint().waiting().prepare())
}

/// Reverts [`prepare_wait`].
///
/// # Errors
/// Returns the errors of [`prepare_wait`].
pub(crate) fn finish_wait(job: &WeftJob) -> Result<(), Fault> {
    job.sleeps_itself()?;
    job.endpoint().waiting().finish();
    Ok(())
}

/// Returns when every rank has called it.
///
/// # Errors
/// An upcall runs, or a rank has failed.
pub(crate) fn barrier(job: &WeftJob) -> Result<(), Fault> {
    job.may_wait()?;
    let met = job.world().barrier_blocking();
    met.map_err(|error| Fault(code_of(error.cause()), error.to_string()))
}

/// Returns a counter of the packet interface by its name, one of those of [`PacketStats`].
///
/// # Errors
/// There is no counter of this name.
pub(crate) fn stat(job: &WeftJob, name: &str) -> Result<u64, Fault> {
    let at = PacketStats::NAMES.iter().position(|(known, _)| *known == name);
    let at = at.ok_or_else(|| Fault::argument(format!("there is no counter {name:?}")))?;
    Ok(job.packets.stats().values()[at])
}

/// Makes a choice for one rank: `name` is `transfer`, `reliability`, `mtu` or `fetch_add`, `value`
/// as in WEFT_TRANSFER and so on; the other choices stay. Reliability and mtu must be chosen before
/// anything is sent to the rank.
///
/// # Errors
/// There is no such rank, name or value; `WEFT_BUSY`: the session has begun with other choices.
pub(crate) fn choose(job: &WeftJob, rank: c_int, name: &str, value: &str) -> Result<(), Fault> {
    let peer = job.peer(rank)?;
    let chosen = job.endpoint().peer(peer).choices();
    let stranger = || Fault::argument(format!("rank {rank} is no peer of this one"));
    let choices = chosen_with(chosen.ok_or_else(stranger)?, name, value)?;
    Ok(job.endpoint().peer(peer).choose(&choices)?)
}

/// Returns the choices with one of them replaced.
fn chosen_with(chosen: Choices, name: &str, value: &str) -> Result<Choices, Fault> {
    if !["transfer", "reliability", "mtu", "fetch_add"].contains(&name) {
        return Err(Fault::argument(
            "chosen for one rank are transfer, reliability, mtu and fetch_add; the rest for a job \
             (WEFT_...), the tree of a multicast with the call",
        ));
    }
    let mut config = weft::Config::default();
    chosen.write(&mut config);
    config.set(name, value).map_err(|error| Fault::argument(error.to_string()))?;
    if !config.exceptions.is_empty() {
        return Err(Fault::argument("chosen for one rank is one value, and no list of ranks"));
    }
    Ok(Choices::of(&config))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use weft::choices::{Server, Transfer};
    use weft::Reliability;

    #[test]
    fn choose__what_was_chosen_before_stays() {
        let chosen = |before, name, value| chosen_with(before, name, value).ok();
        let first = chosen(Choices::default(), "reliability", "gbn").unwrap();
        let both = chosen(first, "mtu", "2K").unwrap();
        assert_eq!((both.reliability, both.mtu), (Reliability::GoBackN, 2048));
        assert_eq!(chosen(both, "reliability", "selective").map(|c| c.mtu), Some(2048));
        let all = chosen(chosen(both, "transfer", "rcpy").unwrap(), "fetch_add", "agent").unwrap();
        assert_eq!((all.transfer, all.fetch_add), (Transfer::Rcpy, Server::Agent));
        assert_eq!((all.reliability, all.mtu), (Reliability::GoBackN, 2048));
        assert_eq!(chosen(both, "transfer", "quick"), None);
        assert_eq!(chosen(both, "transfer", "copy,3=rcpy"), None);
        assert_eq!(chosen(both, "tree", "flat"), None);
        assert_eq!(chosen(both, "mtu", "much"), None);
        assert_eq!(chosen(both, "mtu", "3"), None);
    }
}

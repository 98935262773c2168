//! Checks for other work on this machine, which makes figures worse.

use std::time::Duration;

/// Duration of the check. The load average would include work that ended a minute ago.
const POLL_EVERY: Duration = Duration::from_millis(300);
/// Number of cores in use that spoils a measurement.
pub const BUSY: f64 = 0.25;

/// Time of all cores since the start of the system: time in use by any process, and all time.
#[derive(Debug, PartialEq, Eq)]
struct Times {
    used: u64,
    all: u64,
}

/// Parses the first line of `/proc/stat` (proc_stat(5)): user, nice, system, idle, iowait, irq,
/// softirq, steal; guests are counted in user.
fn times(stat: &str) -> Option<Times> {
    let numbers = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let times: Vec<u64> = numbers.take(8).map_while(|n| n.parse().ok()).collect();
    let idle = times.get(3)? + times.get(4)?;
    let all = times.iter().sum();
    Some(Times { used: all - idle, all })
}

fn now() -> Option<Times> {
    times(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// Returns the number of cores in use while this process sleeps. Time that the hypervisor gave to
/// others counts. `None` if the system does not report it.
pub fn cores_in_use() -> Option<f64> {
    let before = now()?;
    std::thread::sleep(POLL_EVERY);
    let after = now()?;
    let (used, all) = (after.used.saturating_sub(before.used), after.all.checked_sub(before.all)?);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (all > 0).then(|| used as f64 / all as f64 * cores as f64)
}

/// Returns the number of cores in use, if it is too large for good figures.
pub fn busy() -> Option<f64> {
    cores_in_use().filter(|&cores| cores > BUSY)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn times__all_but_idle_and_waiting_is_use() {
        let stat = "cpu  10 20 30 400 50 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(times(stat), Some(Times { used: 81, all: 531 }));
        for bad in ["", "cpu  1 2 3", "intr 5"] {
            assert_eq!(times(bad), None, "{bad:?}");
        }
    }
}

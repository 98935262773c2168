//! The processors of this host.

/// Returns the number of processors of this host, also those that this process may not use: a
/// launcher that gives each rank one core does not oversubscribe the host.
pub fn of_host() -> usize {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    let ranges: Option<usize> = online.trim().split(',').map(count).sum();
    ranges.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

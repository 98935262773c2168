//! The memory that a rank may use, asked for before it is taken.

use std::fmt;
use std::fs::read_to_string;
use std::path::Path;

/// The limit where the system does not say how much memory is free.
const UNKNOWN: u64 = 4 << 30;

/// The most memory that a rank may use for its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    bytes: u64,
    /// True if the user said so.
    said: bool,
}

/// The refusal of a run that needs more memory than a rank may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooLarge {
    what: String,
    bytes: u128,
    limit: Memory,
}

impl Memory {
    /// Takes a limit in bytes that the user has chosen.
    pub fn said(bytes: u64) -> Memory {
        Memory { bytes, said: true }
    }

    /// Returns the part of one of `ranks` ranks of nine tenths of the memory that is free on this
    /// host: what the kernel's file `meminfo` calls available, or what the control groups of the
    /// process leave, if that is less. 4 GiB where neither can be read.
    pub fn free(ranks: usize) -> Memory {
        let host = read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
        let least = host.into_iter().chain(room_of_groups()).min().unwrap_or(UNKNOWN);
        Memory { bytes: least / 10 * 9 / ranks.max(1) as u64, said: false }
    }

    /// Returns the limit in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns how many things of `each` bytes fit.
    pub fn most(&self, each: u64) -> usize {
        (self.bytes / each.max(1)).try_into().unwrap_or(usize::MAX)
    }

    /// Refuses data that need more bytes than the limit. `what` names the data: "the sorting of 9
    /// keys".
    ///
    /// # Errors
    /// The data do not fit; the error has the bytes that they need, and the limit.
    pub fn check(&self, what: impl fmt::Display, bytes: u128) -> Result<(), TooLarge> {
        match bytes > u128::from(self.bytes) {
            true => Err(TooLarge { what: what.to_string(), bytes, limit: *self }),
            false => Ok(()),
        }
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooLarge { what, bytes, limit } = self;
        let (need, most) = (size(*bytes), size(limit.bytes.into()));
        write!(f, "{what} takes {need} of memory on a rank, above the limit of {most}")?;
        match limit.said {
            true => Ok(()),
            false => write!(f, ", a rank's part of what is free here; --memory sets another one"),
        }
    }
}

impl std::error::Error for TooLarge {}

/// Writes a number of bytes for people.
fn size(bytes: u128) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    match value < 1024.0 {
        true => format!("{value:.1} {}", UNITS[unit]),
        false => "more than 1024 EiB".to_string(),
    }
}

/// Returns the bytes that the text of `/proc/meminfo` calls available.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the least that the control groups (version 2) of this process leave; `None` without a
/// limit.
fn room_of_groups() -> Option<u64> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let path = root.join(own);
    let rooms = path.ancestors().take_while(|group| group.starts_with(root)).filter_map(|group| {
        let read = |name: &str| read_to_string(group.join(name)).ok();
        room(&read("memory.max")?, &read("memory.current")?, &read("memory.stat")?)
    });
    rooms.min()
}

/// Returns what a control group leaves, by the texts of its files: pages of files that nobody
/// uses are given up when memory is short.
fn room(most: &str, current: &str, stat: &str) -> Option<u64> {
    let most: u64 = most.trim().parse().ok()?;
    let inactive = stat.lines().find_map(|line| line.strip_prefix("inactive_file "));
    let inactive: u64 = inactive.and_then(|pages| pages.trim().parse().ok()).unwrap_or(0);
    let used = current.trim().parse::<u64>().ok()?.saturating_sub(inactive);
    Some(most.saturating_sub(used))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn check__says_need_and_limit() {
        let memory = Memory::said(3 << 20);
        assert_eq!(memory.check("x", 3 << 20), Ok(()));
        let text = memory.check("a row of 9 doubles", (3 << 20) + 1).unwrap_err().to_string();
        let expected = "a row of 9 doubles takes 3.0 MiB of memory on a rank, above the limit of ";
        assert_eq!(text, format!("{expected}3.0 MiB"));
        let text = memory.check("x", u128::MAX).unwrap_err().to_string();
        assert!(text.contains("more than 1024 EiB"), "{text}");
        assert_eq!((memory.most(1 << 20), memory.most(0)), (3, 3 << 20));
        let free = Memory::free(1);
        assert!(free.bytes() > 0 && Memory::free(4).bytes() <= free.bytes());
        assert!(free.check("x", u128::MAX).unwrap_err().to_string().ends_with("another one"));
    }

    #[test]
    fn free__is_the_least_of_host_and_groups() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:     7 kB\n"), Some(7 << 10));
        for bad in ["", "MemAvailable: x kB", "MemAvailable: 7"] {
            assert_eq!(available(bad), None);
        }
        assert_eq!(room("100\n", "70\n", "anon 1\ninactive_file 20\n"), Some(50));
        assert_eq!(room("100", "200", ""), Some(0));
        assert_eq!(room("max\n", "70", ""), None);
    }
}

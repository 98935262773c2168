//! Options of measurements.

use super::{far, netns};
use std::time::Duration;

/// Options of a measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Message sizes in bytes: 8,1K,1M [default: depends]
    #[arg(long, value_delimiter = ',', value_parser = parse_size)]
    pub size: Vec<usize>,
    /// Repetitions; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Only check that it works: one short repetition, whose figures have no meaning; suite: coarse
    /// figures in one to two minutes
    #[arg(long)]
    pub quick: bool,
    /// Run a thread on every core that computes without pause at the same priority, as where there
    /// are more ranks than cores
    #[arg(long)]
    pub loaded: bool,
    /// Measure udp between two lab hosts instead of over loopback, and the suite on hosts of labs;
    /// packet, gso, xdp, agent and auto always use lab hosts
    #[arg(long, value_enum, default_value_t = netns::Mode::Auto)]
    pub netns: netns::Mode,
    /// Hosts of other machines.
    #[command(flatten)]
    pub reach: far::Reach,
}

impl Options {
    /// Returns the number of repetitions.
    pub fn repeat(&self) -> u32 {
        if self.quick {
            1
        } else {
            self.repeat
        }
    }

    /// Returns the time of one repetition of one subject.
    pub fn turn(&self) -> Duration {
        Duration::from_millis(if self.quick { 1 } else { 80 })
    }

    /// Returns the least number of iterations of one repetition.
    pub fn least_iters(&self) -> u64 {
        if self.quick {
            2
        } else {
            8
        }
    }
}

/// Units of a size, each with the shift of its factor. The empty unit is last, because it matches
/// everything.
const UNITS: [(&[&str], u32); 4] = [
    (&["G", "GB", "GIB"], 30),
    (&["M", "MB", "MIB"], 20),
    (&["K", "KB", "KIB"], 10),
    (&["B", ""], 0),
];

/// Parses a size, such as 64, 4K or 1MiB.
///
/// # Errors
/// The text is no size up to 1 GiB.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let plain = text.trim().to_ascii_uppercase();
    let without = |&(names, shift): &(&'static [&str], u32)| {
        names
            .iter()
            .find_map(|name| plain.strip_suffix(name)?.trim_end().parse::<usize>().ok())
            .and_then(|n| n.checked_mul(1 << shift))
    };
    let size = UNITS.iter().find_map(without).filter(|&n| n <= 1 << 30);
    size.ok_or_else(|| format!("{text:?} is no size up to 1G, such as 64, 4K or 1MiB"))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse_size__takes_the_units_people_write() {
        for (text, size) in
            [("0", 0), ("64", 64), ("8B", 8), ("4k", 4096), ("64 KiB", 65536), ("1M", 1 << 20)]
        {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        for text in ["", "K", "2G", "-1", "1iB", "4Ki", "99999999999999999999G", "1.5K"] {
            assert!(parse_size(text).unwrap_err().contains("such as"), "{text}");
        }
    }
}

//! Options that say what the simulated network is like.

use clap::ValueEnum;
use std::time::Duration;
use weft_sim::{Fault, SimConfig};

/// The network between the hosts, and what goes wrong on it.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Network")]
pub struct Network {
    /// Decides everything that is random
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Share of the frames that are lost: 1%, or 500ppm
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    loss: Option<u32>,
    /// Share of the frames that arrive twice [without a RATE: 1%]
    #[arg(long, value_name = "RATE", num_args = 0..=1, default_missing_value = "1%",
        value_parser = parse_rate)]
    dup: Option<u32>,
    /// Share of the frames that later ones overtake [without a RATE: 1%]
    #[arg(long, value_name = "RATE", num_args = 0..=1, default_missing_value = "1%",
        value_parser = parse_rate)]
    reorder: Option<u32>,
    /// Share of the frames in which bits flip [without a RATE: 1%]
    #[arg(long, value_name = "RATE", num_args = 0..=1, default_missing_value = "1%",
        value_parser = parse_rate)]
    corrupt: Option<u32>,
    /// Delay of every cable and the device behind it: 500ns, 10us, 2ms [default: 2us]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    latency: Option<Duration>,
    /// Bits a second of every cable: 100M, 10G [default: 10G]
    #[arg(long, value_name = "BITS", value_parser = parse_bandwidth)]
    bandwidth: Option<u64>,
    /// Largest weft packet, in bytes [default: 1456]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(256..=65000))]
    mtu: Option<u32>,
    /// Protocol that repairs losses [default: selective]
    #[arg(long, value_enum)]
    pub reliability: Option<Reliability>,
    /// Packets on their way at a time [default: 1024]
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    window: Option<u32>,
}

/// Names of the reliability protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reliability {
    /// Only what is lost is sent again.
    Selective,
    /// Go-back-N: all from the first loss on is sent again.
    Gbn,
}

/// Longest delay of a frame that is held back: some tens of frames at 10 Gbit/s.
const HELD_BACK_NS: u64 = 50_000;

impl Network {
    /// `config` with what was asked for.
    pub fn apply(&self, mut config: SimConfig) -> SimConfig {
        config.seed = self.seed;
        config.faults.extend(self.loss.map(Fault::loss));
        config.faults.extend(self.dup.map(Fault::duplicate));
        config.faults.extend(self.reorder.map(|ppm| Fault::reorder(ppm, HELD_BACK_NS)));
        config.faults.extend(self.corrupt.map(Fault::corrupt));
        if let Some(latency) = self.latency {
            config.wire.latency_ns = latency.as_nanos() as u64;
        }
        config.wire.bytes_per_us = self.bandwidth.unwrap_or(config.wire.bytes_per_us);
        config.mtu = self.mtu.unwrap_or(config.mtu);
        let reliability = self.reliability.map(|r| match r {
            Reliability::Selective => "selective".to_string(),
            Reliability::Gbn => "gbn".to_string(),
        });
        config.settings.extend(reliability.map(|name| ("reliability", name)));
        config.settings.extend(self.window.map(|packets| ("window", packets.to_string())));
        config
    }
}

/// A number with one of the units, each with its factor; at least 0.
fn number(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic() || c == '%').unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let (_, factor) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    let value = digits.parse::<f64>().ok()? * factor;
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// Reads `1%` or `500ppm` as parts per million.
fn parse_rate(text: &str) -> Result<u32, String> {
    match number(text, &[("%", 1e4), ("ppm", 1.0)]) {
        Some(ppm) if ppm < 1e6 => Ok(ppm.round() as u32),
        _ => Err("a rate such as 1% or 500ppm is wanted, below 100%".to_string()),
    }
}

/// Reads `500ns`, `10us`, `2ms` or `1s`; at most 10 s.
fn parse_time(text: &str) -> Result<Duration, String> {
    match number(text, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)]) {
        Some(ns) if ns <= 1e10 => Ok(Duration::from_nanos(ns as u64)),
        _ => Err("a time such as 500ns, 10us or 2ms is wanted, at most 10s".to_string()),
    }
}

/// Reads bits a second, as `100M` or `10G`, into bytes a microsecond.
fn parse_bandwidth(text: &str) -> Result<u64, String> {
    match number(text, &[("M", 1e6), ("G", 1e9), ("T", 1e12)]) {
        Some(bits) if (8e6..=1e13).contains(&bits) => Ok((bits / 8e6) as u64),
        _ => Err("bits a second such as 100M or 10G are wanted, from 8M to 10T".to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn parse_rate__percent_and_ppm() {
        assert_eq!(parse_rate("1%"), Ok(10_000));
        assert_eq!(parse_rate("0.05%"), Ok(500));
        assert_eq!(parse_rate("500ppm"), Ok(500));
        for bad in ["", "1", "%", "-1%", "100%", "nan%", "1e400%"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parse_time__all_units() {
        assert_eq!(parse_time("10us"), Ok(Duration::from_micros(10)));
        assert_eq!(parse_time("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(parse_time("0ns"), Ok(Duration::ZERO));
        for bad in ["", "10", "us", "11s", "1h"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parse_bandwidth__bits_to_bytes_a_microsecond() {
        assert_eq!(parse_bandwidth("10G"), Ok(1250));
        assert_eq!(parse_bandwidth("100m"), Ok(12));
        for bad in ["", "10", "0G", "1K", "11T"] {
            assert!(parse_bandwidth(bad).is_err(), "{bad}");
        }
    }
}

//! Options of the simulated network.

use anyhow::Result;
use clap::ValueEnum;
use std::collections::BTreeSet;
use std::time::Duration;
use weft_sim::{Fault, SimConfig, Span};

/// The network between the hosts, and its faults.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Network")]
pub struct Network {
    /// Seed of all random decisions
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Share of the frames that are lost, in place of the scenario's own: 1%, or 500ppm
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
    /// Share of the frames in which bits flip, in place of the scenario's own [without a RATE: 1%]
    #[arg(long, value_name = "RATE", num_args = 0..=1, default_missing_value = "1%",
        value_parser = parse_rate)]
    corrupt: Option<u32>,
    /// Delay of every cable and the device behind it: 500ns, 10us, 2ms [default: 2us]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    latency: Option<Duration>,
    /// Bits per second of every cable: 100M, 10G [default: 10G]
    #[arg(long, value_name = "BITS", value_parser = parse_bandwidth)]
    bandwidth: Option<u64>,
    /// Largest weft packet, in bytes [default: 1456]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(256..=65000))]
    mtu: Option<u32>,
    /// Protocol that repairs losses [default: selective]
    #[arg(long, value_enum)]
    pub reliability: Option<Reliability>,
    /// Most packets in flight [default: 1024]
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    window: Option<u32>,
}

/// Names of the reliability protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reliability {
    /// Retransmits only lost packets.
    Selective,
    /// Go-back-N: retransmits all packets from the first loss on.
    Gbn,
}

/// Longest delay of a frame that later ones overtake: some tens of frames at 10 Gbit/s.
const HELD_BACK_NS: u64 = 50_000;

impl Network {
    /// Returns `config` with these options.
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

/// Faults of hosts, and of the paths between some hosts and the others.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Hosts")]
pub struct Hosts {
    /// No frame passes between these hosts and the others for a time: 0,2-3@1ms..5ms
    #[arg(long, value_name = "HOSTS@FROM..UNTIL", value_parser = parse_partition)]
    partition: Vec<Fault>,
    /// A host does nothing for a time, except its network interface: 2@1ms..5ms
    #[arg(long, value_name = "HOST@FROM..UNTIL", value_parser = parse_pause)]
    pause: Vec<Fault>,
    /// A host stops forever without a message to others: 3@2ms
    #[arg(long, value_name = "HOST@TIME", value_parser = parse_death)]
    death: Vec<Fault>,
}

/// Timeout, in ms of virtual time, if hosts die: longer than any outage that is worth a simulation.
const PATIENCE_MS: &str = "10000";

impl Hosts {
    /// Returns `config` with these options.
    ///
    /// # Errors
    /// An option names a host that does not exist.
    pub fn apply(&self, mut config: SimConfig) -> Result<SimConfig> {
        let all = [&self.partition, &self.pause, &self.death].into_iter().flatten();
        for fault in all {
            let hosts = match fault {
                Fault::Partition { side, .. } => side.clone(),
                Fault::Pause { host, .. } | Fault::Death { host, .. } => vec![*host],
                _ => Vec::new(),
            };
            if let Some(host) = hosts.into_iter().find(|&host| host >= config.hosts) {
                misuse!(
                    "there is no host {host}: --hosts {} are 0 to {}",
                    config.hosts,
                    config.hosts - 1
                );
            }
            config.faults.push(fault.clone());
        }
        if !self.death.is_empty() {
            let patience = ["connect_timeout_ms", "peer_timeout_ms"];
            config.settings.extend(patience.map(|key| (key, PATIENCE_MS.to_string())));
        }
        Ok(config)
    }

    /// Returns the hosts that die.
    pub fn mortal(&self) -> Vec<u32> {
        let host = |fault: &Fault| match fault {
            Fault::Death { host, .. } => Some(*host),
            _ => None,
        };
        let hosts: BTreeSet<u32> = self.death.iter().filter_map(host).collect();
        hosts.into_iter().collect()
    }
}

/// Parses `HOSTS@FROM..UNTIL`, hosts as in `0,2-3`.
fn parse_partition(text: &str) -> Result<Fault, String> {
    let wrong = || "hosts and a time such as 0,2-3@1ms..5ms are wanted".to_string();
    let (hosts, span) = text.split_once('@').ok_or_else(wrong)?;
    let mut side = Vec::new();
    for part in hosts.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u16>().map(u32::from).map_err(|_| wrong());
        side.extend(number(first)?..=number(last)?);
    }
    match side.is_empty() {
        true => Err(wrong()),
        false => Ok(Fault::Partition { side, one_way: false, span: parse_span(span)? }),
    }
}

/// Parses `HOST@FROM..UNTIL`.
fn parse_pause(text: &str) -> Result<Fault, String> {
    let (host, span) = parse_host(text, "2@1ms..5ms")?;
    Ok(Fault::Pause { host, span: parse_span(span)? })
}

/// Parses `HOST@TIME`.
fn parse_death(text: &str) -> Result<Fault, String> {
    let (host, at) = parse_host(text, "3@2ms")?;
    let at = parse_time(at)?.as_nanos() as u64;
    Ok(Fault::Death { host, at, visible: false })
}

fn parse_host<'a>(text: &'a str, like: &str) -> Result<(u32, &'a str), String> {
    let split = text.split_once('@').and_then(|(host, rest)| Some((host.parse().ok()?, rest)));
    split.ok_or_else(|| format!("a host and a time such as {like} are wanted"))
}

/// Parses `1ms..5ms`.
fn parse_span(text: &str) -> Result<Span, String> {
    let wrong = "a stretch of time such as 1ms..5ms is wanted";
    let (from, until) = text.split_once("..").ok_or(wrong)?;
    let ns = |text: &str| parse_time(text).map(|time| time.as_nanos() as u64);
    let span = Span { from: ns(from)?, until: ns(until)? };
    match span.from < span.until {
        true => Ok(span),
        false => Err(wrong.to_string()),
    }
}

/// Parses a number with one of the units, each with its factor; at least 0.
fn number(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic() || c == '%').unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let (_, factor) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    let value = digits.parse::<f64>().ok()? * factor;
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// Parses `1%` or `500ppm` as parts per million.
fn parse_rate(text: &str) -> Result<u32, String> {
    match number(text, &[("%", 1e4), ("ppm", 1.0)]) {
        Some(ppm) if ppm < 1e6 => Ok(ppm.round() as u32),
        _ => Err("a rate such as 1% or 500ppm is wanted, below 100%".to_string()),
    }
}

/// Parses `500ns`, `10us`, `2ms` or `1s`; at most 10 s.
fn parse_time(text: &str) -> Result<Duration, String> {
    match number(text, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)]) {
        Some(ns) if ns <= 1e10 => Ok(Duration::from_nanos(ns as u64)),
        _ => Err("a time such as 500ns, 10us or 2ms is wanted, at most 10s".to_string()),
    }
}

/// Parses bits per second, as `100M` or `10G`; returns bytes per microsecond.
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
    fn parse_faults__hosts_and_times() {
        let span = Span::ms(1, 5);
        let side = vec![0, 2, 3];
        assert_eq!(
            parse_partition("0,2-3@1ms..5ms"),
            Ok(Fault::Partition { side, one_way: false, span })
        );
        assert_eq!(parse_pause("2@1ms..5ms"), Ok(Fault::Pause { host: 2, span }));
        let death = Fault::Death { host: 3, at: 2_000_000, visible: false };
        assert_eq!(parse_death("3@2ms"), Ok(death));
        for bad in
            ["", "2", "@1ms..5ms", "2@1ms", "2@5ms..1ms", "x@1ms..5ms", "2@..", "3-2@1ms..5ms"]
        {
            assert!(parse_partition(bad).is_err(), "{bad}");
        }
        assert!(parse_pause("1,2@1ms..5ms").is_err() && parse_death("3@1ms..5ms").is_err());
    }

    #[test]
    fn apply__refuses_a_host_that_is_none() {
        let death = vec![parse_death("8@1ms").unwrap(), parse_death("8@2ms").unwrap()];
        let hosts = Hosts { partition: Vec::new(), pause: Vec::new(), death };
        assert_eq!(hosts.mortal(), [8], "named once");
        let why = hosts.apply(SimConfig::new(8, 1)).unwrap_err().to_string();
        assert!(why.contains("no host 8") && why.contains("0 to 7"), "{why}");
        let config = hosts.apply(SimConfig::new(9, 1)).unwrap();
        assert_eq!(config.faults.len(), 2);
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

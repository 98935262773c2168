//! Storing measured figures on the two hosts between which they were measured.

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use weft::calibration::Machine;
use weft::Calibration;
use weft_measure::far::Far;

/// Store on this host the figures of `weft tune --hosts`, read from standard input
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Longest input, in bytes.
const INPUT_MAX: u64 = 1 << 20;
/// Prefix of the line with the file's name: login shells may print other lines before.
const SAID: &str = "weft stored: ";

#[derive(Serialize, Deserialize)]
struct Order {
    /// Value of `WEFT_TUNE` on the host where the command runs.
    file: Option<PathBuf>,
    /// Text of the file.
    text: String,
}

/// Returns the stored figures, replaced by new ones where there are some.
fn merged(old: Calibration, new: Calibration) -> Calibration {
    let measured = |name: &str| new.links.iter().any(|l| l.link == name);
    let links = old.links.into_iter().filter(|l| !measured(&l.link));
    let again = |s: &weft::calibration::Switch| measured(&s.small) || measured(&s.data);
    let switches = old.switches.into_iter().filter(|s| !again(s));
    let (links, switches) = (links.collect::<Vec<_>>(), switches.collect::<Vec<_>>());
    Calibration {
        links: links.into_iter().chain(new.links).collect(),
        switches: switches.into_iter().chain(new.switches).collect(),
        ..new
    }
}

fn store(path: &Path, text: &str) -> Result<()> {
    let new = Calibration::parse(text).map_err(anyhow::Error::msg)?;
    let here = Machine::here();
    let old = Calibration::read_for(path, &here).ok().flatten().unwrap_or_default();
    merged(old, Calibration { machine: here, ..new })
        .write(path)
        .with_context(|| format!("storing {}; WEFT_TUNE=FILE names another", path.display()))
}

/// Runs the subcommand.
///
/// # Errors
/// Nothing can be stored here.
pub fn run(_: &Args) -> Result<ExitCode> {
    let mut order = String::new();
    std::io::stdin().take(INPUT_MAX).read_to_string(&mut order)?;
    let order: Order = serde_json::from_str(&order).context("this is started by `weft tune`")?;
    let path = order.file.map_or_else(super::path, Ok)?;
    store(&path, &order.text)?;
    println!("{SAID}{}", path.display());
    Ok(ExitCode::SUCCESS)
}

/// Stores figures on both hosts, and prints the files.
///
/// # Errors
/// A host does not store them.
pub fn everywhere(far: &Far, made: &Calibration) -> Result<()> {
    let file = std::env::var_os("WEFT_TUNE").filter(|v| !v.is_empty()).map(PathBuf::from);
    let order = serde_json::to_vec(&Order { file, text: made.to_text() })?;
    for host in &far.hosts {
        let (mut command, _) = far.agent.command(host, &["tune-store"]);
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.with_context(|| format!("reaching {host}"))?;
        if let Some(mut input) = child.stdin.take() {
            // A process that does not read its input reports the reason itself.
            let _ = input.write_all(&order);
        }
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        match said.lines().find_map(|line| line.strip_prefix(SAID)) {
            Some(path) if output.status.success() => println!("stored on {host} in {path}"),
            _ => bail!("nothing was stored on {host} ({})", output.status),
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use weft::calibration::{LinkFigures, Switch};

    fn made(of: &[(&str, u32)], switches: &[(&str, &str)]) -> Calibration {
        let figures = |&(link, ns): &(&str, u32)| LinkFigures {
            link: link.into(),
            latency_ns: ns,
            ..LinkFigures::default()
        };
        let switch = |&(small, data): &(&str, &str)| Switch {
            small: small.into(),
            data: data.into(),
            eager_max: 1,
        };
        Calibration {
            links: of.iter().map(figures).collect(),
            switches: switches.iter().map(switch).collect(),
            ..Calibration::default()
        }
    }

    #[test]
    fn merged__what_was_not_measured_stays() {
        let old = made(&[("shm", 1), ("udp", 2)], &[("shm", "shm"), ("udp", "udp")]);
        let new = made(&[("udp", 3), ("packet", 4)], &[("packet", "udp")]);
        let both = merged(old, new);
        let links: Vec<_> = both.links.iter().map(|l| (&l.link[..], l.latency_ns)).collect();
        assert_eq!(links, [("shm", 1), ("udp", 3), ("packet", 4)]);
        let switches: Vec<_> = both.switches.iter().map(|s| (&s.small[..], &s.data[..])).collect();
        assert_eq!(switches, [("shm", "shm"), ("packet", "udp")]);
    }
}

//! The step that measures: both links beside their floors.

use super::child::Children;
use super::Line;
use anyhow::Result;
use serde::Deserialize;
use std::process::ExitCode;
use weft_measure::netns::Mode;
use weft_measure::{bandwidth, pingpong, Bench, LinkName, Options};

/// A benchmark that the demo runs.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    Pingpong,
    Bandwidth,
}

/// Measure a link for `weft demo`
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(value_enum)]
    what: What,
    #[arg(long, value_enum)]
    link: LinkName,
    #[command(flatten)]
    options: Options,
}

/// Measures one link, and prints a JSON object per line.
///
/// # Errors
/// The link cannot be measured.
pub fn run(args: &Args) -> Result<ExitCode> {
    let options = Options { netns: Mode::Off, ..args.options.clone() };
    let mut bench = Bench::start(args.link, &options)?;
    let table = match args.what {
        What::Pingpong => pingpong::table(&mut bench)?,
        What::Bandwidth => bandwidth::table(&mut bench)?,
    };
    print!("{}", table.json());
    Ok(ExitCode::SUCCESS)
}

/// The fields of a measurement that are shown.
#[derive(Deserialize)]
struct Figure {
    size: u64,
    value: f64,
    unit: String,
    #[serde(default)]
    floor: Option<f64>,
    #[serde(default)]
    floor_name: Option<String>,
    #[serde(default)]
    peer: Option<f64>,
    #[serde(default)]
    peer_name: Option<String>,
}

/// The measurements: title, benchmark, link, size.
const FIGURES: [(&str, &str, &str, &str); 4] = [
    ("shm latency", "pingpong", "shm", "8"),
    ("shm bandwidth", "bandwidth", "shm", "1M"),
    ("udp latency", "pingpong", "udp", "16"),
    ("udp bandwidth", "bandwidth", "udp", "1M"),
];

fn number(value: Option<f64>, unit: &str) -> String {
    value.map_or("-".to_string(), |value| format!("{value:.2} {unit}"))
}

fn bytes(n: u64) -> String {
    if n >= 1 << 20 && n.is_multiple_of(1 << 20) {
        format!("{} MiB", n >> 20)
    } else {
        format!("{n} B")
    }
}

fn row(figure: &Figure) -> String {
    let unit = &figure.unit;
    let named = |name: &Option<String>| name.as_ref().map_or(String::new(), |n| format!(" {n}"));
    format!(
        "{:>6} {:>13} floor {:>13}{:<18} peer {:>13}{}",
        bytes(figure.size),
        number(Some(figure.value), unit),
        number(figure.floor, unit),
        named(&figure.floor_name),
        number(figure.peer, unit),
        named(&figure.peer_name),
    )
    .trim_end()
    .to_string()
}

/// Measures latency and bandwidth of both links.
pub(super) fn links(children: &mut Children, quick: bool) -> Result<Vec<Line>> {
    println!("\n2  Latency (one way) and bandwidth, beside what this machine can do at best");
    let mut lines = Vec::new();
    for (title, bench, link, size) in FIGURES {
        let mut command = vec!["demo-link", bench, "--link", link, "--size", size];
        command.extend(if quick { &["--quick"][..] } else { &["--repeat", "3"] });
        let ended = children.run(title, &command)?;
        let figures = ended.output.lines().filter_map(|line| serde_json::from_str(line).ok());
        let figures: Vec<Figure> = figures.collect();
        let line = match (ended.success, figures.first()) {
            (true, Some(figure)) => {
                Line { pass: true, what: title.to_string(), detail: row(figure), files: Vec::new() }
            }
            _ => Line::fail(title, ended.reason()),
        };
        line.print();
        lines.push(line);
    }
    Ok(lines)
}

//! The grid as a CSV file and as a page of text.

use super::super::{date, machine, LinkName, Options};
use super::cell::{Cell, Figure, BULK, COMPUTES, DISTURBED, HEAD, MEMBERS, TRIES};
use std::fmt::Write;
use std::time::{Duration, SystemTime};
use weft::choices::{Transfer, Tree};
use weft_run::words;

/// Time and place of the measurement.
pub struct About {
    date: String,
    machine: String,
    command: String,
    repeat: String,
}

impl About {
    /// Returns the values at the start of a run.
    pub fn now(options: &Options) -> About {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let repeat = match options.quick {
            true => "one short repetition: the figures mean nothing".to_string(),
            false => {
                format!("medians of {} repetitions, or fewer to keep to the time", options.repeat)
            }
        };
        About {
            date: date(since),
            machine: machine(),
            command: format!("weft {}", words::own()),
            repeat,
        }
    }
}

/// Returns all figures as CSV.
pub fn csv(about: &About, cells: &[Cell]) -> String {
    let mut out = String::new();
    for line in about.machine.lines() {
        out.push_str(&format!("# {line}\n"));
    }
    out.push_str(&format!("# {}, {}\n{HEAD}\n", about.date, about.command));
    cells.iter().for_each(|cell| out.push_str(&format!("{}\n", cell.csv())));
    out
}

/// Formats a number with three digits.
pub fn digits(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Formats the floor of some figures: one number, or its bounds where they differ.
fn floor(cells: &[Option<&Cell>]) -> String {
    let mut all: Vec<f64> = cells.iter().flatten().filter_map(|c| c.floor).collect();
    all.sort_by(f64::total_cmp);
    match (all.first(), all.last()) {
        (Some(low), Some(high)) if *high > DISTURBED * low => {
            format!("{} to {}", digits(*low), digits(*high))
        }
        (Some(_), _) => digits(all[all.len() / 2]),
        _ => "-".into(),
    }
}

/// Writes a row: names, figures, and the floor if there is one. The best figure is bold.
fn row(out: &mut String, names: &[String], cells: &[Option<&Cell>], has_floor: bool) {
    let values = || cells.iter().flatten().filter_map(|c| c.value).map(|s| s.median);
    let compared = !cells.iter().flatten().any(|c| matches!(c.figure, Figure::FetchAdd(_)));
    let more = cells.iter().flatten().any(|c| c.figure == Figure::Throughput);
    let best = match more {
        true => values().fold(f64::MIN, f64::max),
        false => values().fold(f64::MAX, f64::min),
    };
    let show = |cell: &Option<&Cell>| match cell.and_then(|c| c.value) {
        Some(s) if s.median == best && compared && values().count() > 1 => {
            format!("**{}**", digits(s.median))
        }
        Some(s) => digits(s.median),
        None => "-".into(),
    };
    let mut all: Vec<String> = names.to_vec();
    all.extend(cells.iter().map(show));
    all.extend(has_floor.then(|| floor(cells)));
    // Writing to a string does not fail.
    let _ = writeln!(out, "| {} |", all.join(" | "));
}

fn head(out: &mut String, title: &str, names: &[&str], figures: &[&str]) {
    let rules = [vec!["---"; names.len()], vec!["---:"; figures.len()]].concat();
    let names = [names, figures].concat();
    let _ = writeln!(out, "\n## {title}\n\n| {} |\n| {} |", names.join(" | "), rules.join(" | "));
}

/// Returns the distinct values in the order in which they come.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut out = Vec::new();
    for one in all {
        if !out.contains(&one) {
            out.push(one);
        }
    }
    out
}

const TRANSFERS: [Transfer; 3] = [Transfer::Copy, Transfer::Gather, Transfer::Rcpy];

fn packets(out: &mut String, cells: &[Cell], figure: Figure) {
    let mine: Vec<&Cell> = cells.iter().filter(|c| c.figure == figure).collect();
    let rows = distinct(mine.iter().map(|c| (c.link.name(), c.reliability(), c.mtu())));
    for (link, reliability, mtu) in rows {
        let same = |c: &&&Cell| {
            (c.link.name(), c.reliability(), c.mtu()) == (link, reliability, mtu.clone())
        };
        let of = |t: Transfer| mine.iter().filter(same).find(|c| c.choices.transfer == t).copied();
        let found = TRANSFERS.map(of);
        let mut names = vec![link.to_string(), reliability.to_string()];
        if figure == Figure::Throughput {
            names.push(mtu);
        }
        row(out, &names, &found, true);
    }
}

fn multicast(out: &mut String, cells: &[Cell]) {
    for compute in [false, true] {
        let figure = Figure::Multicast(compute);
        let mine: Vec<&Cell> = cells.iter().filter(|c| c.figure == figure).collect();
        for (link, by) in distinct(mine.iter().map(|c| (c.link.name(), c.by))) {
            let of = |t: &Tree| {
                let same = |c: &&&Cell| (c.link.name(), c.by) == (link, by);
                mine.iter().filter(same).find(|c| c.choices.tree == *t).copied()
            };
            let found: Vec<Option<&Cell>> = Tree::ALL.iter().map(of).collect();
            let what = if compute { "compute" } else { "poll" };
            row(out, &[link.into(), by.into(), what.into()], &found, false);
        }
    }
}

fn fetch_add(out: &mut String, cells: &[Cell]) {
    let is = |c: &&Cell| matches!(c.figure, Figure::FetchAdd(_));
    let mine: Vec<&Cell> = cells.iter().filter(is).collect();
    for (link, by) in distinct(mine.iter().map(|c| (c.link.name(), c.by))) {
        let of = |compute| {
            let same = |c: &&&Cell| (c.link.name(), c.by) == (link, by);
            let figure = Figure::FetchAdd(compute);
            mine.iter().filter(same).find(|c| c.figure == figure).copied()
        };
        let found = [of(false), of(true)];
        row(out, &[link.into(), by.into()], &found, true);
    }
}

/// Writes the effect of agents, as ratios of figures of this run.
fn in_short(out: &mut String, cells: &[Cell]) {
    let median = |figure, by: &str, tree: Option<Tree>| {
        let found = cells.iter().find(|c| {
            let same = c.link == LinkName::Agent && c.figure == figure && c.by == by;
            same && tree.is_none_or(|t| c.choices.tree == t)
        });
        found.and_then(|c| c.value).map(|s| s.median)
    };
    let mut line = |what: &str, ours: Option<f64>, other: Option<f64>| {
        if let (Some(ours), Some(other)) = (ours, other) {
            let (a, b) = (digits(ours), digits(other));
            let _ = writeln!(
                out,
                "- {what}: {a} us at the agent, {b} us at the host: {:.2} x.",
                ours / other
            );
        }
    };
    for compute in [false, true] {
        let (m, f) = (Figure::Multicast(compute), Figure::FetchAdd(compute));
        let who = if compute { "ranks compute" } else { "ranks poll" };
        let tree = Some(Tree::Binomial);
        let what = format!("Multicast over the agent link, binomial, {who}");
        line(&what, median(m, "agent", tree), median(m, "host", tree));
        let what = format!("Fetch-and-add over the agent link, {who}");
        line(&what, median(f, "agent", None), median(f, "host", None));
    }
    let computes = Figure::FetchAdd(true);
    if let (Some(kernel), Some(agent)) =
        (median(computes, "kernel", None), median(computes, "agent", None))
    {
        let (ours, other, ratio) = (digits(kernel), digits(agent), kernel / agent);
        let _ = writeln!(
            out,
            "- The same: {ours} us in the kernel, {other} us at the agent: {ratio:.2} x."
        );
    }
}

/// Returns the page.
pub fn markdown(about: &About, cells: &[Cell], took: Duration) -> String {
    let mut out = String::from("# The choices, measured\n\n");
    let _ = writeln!(
        out,
        "`{}`, {}, {:.0} s; {}.",
        about.command,
        about.date,
        took.as_secs_f64(),
        about.repeat
    );
    let _ = writeln!(
        out,
        "Machine: {}. Links other than shm: two network namespaces joined by a veth pair of MTU \
         1500 where that is allowed, else loopback.\n\
         [The guide](../guide/choices.md) says what the choices are and when to take which; all \
         figures with their spread are in [choices.csv](choices.csv).\n\n\
         ![the choices](choices.png)\n",
        about.machine.replace('\n', "; ")
    );
    in_short(&mut out, cells);
    let transfers = ["copy", "gather", "rcpy", "floor"];
    head(&mut out, "A packet of 16 B, one way, us", &["link", "reliability"], &transfers);
    packets(&mut out, cells, Figure::HalfTrip);
    let title = format!("Messages of {} KiB in packets, GB/s", BULK >> 10);
    head(&mut out, &title, &["link", "reliability", "MTU"], &transfers);
    packets(&mut out, cells, Figure::Throughput);
    let title = format!("A multicast of 16 B to {MEMBERS} members, until the last has it, us");
    let trees: Vec<&str> = Tree::ALL.iter().map(|t| t.name()).collect();
    head(&mut out, &title, &["link", "forwarded by", "members"], &trees);
    multicast(&mut out, cells);
    let columns = ["owner polls", "owner computes", "round trip"];
    head(&mut out, "Fetch-and-add, us", &["link", "served by"], &columns);
    fetch_add(&mut out, cells);
    let _ = writeln!(
        out,
        "\nThe best of a row is bold, among what can be chosen. Floor: a cache line and \
         `process_vm_readv` (shm), bare UDP and UDP with GSO, single frames on bare sockets \
         (packet, xdp), weft's packet link (agent). Half of the members of a multicast are threads \
         of each rank. A rank that computes does so for {} us between two polls. Kernel: an XDP \
         program that the agent has attached. The floor is measured before and after each figure, \
         which is measured up to {TRIES} times while the floor is {DISTURBED} x slower than at its \
         best, as far as the time goes; bounds of a floor say that it stayed so.",
        COMPUTES / 1000
    );
    let absent = cells.iter().filter(|c| c.value.is_none());
    let absent =
        distinct(absent.map(|c| format!("{}, {}: {}", c.link.name(), c.figure.name(), c.why)));
    if !absent.is_empty() {
        let _ = writeln!(out, "\nNot measured:\n");
        absent.iter().for_each(|why| out.push_str(&format!("- {why}\n")));
    }
    out
}

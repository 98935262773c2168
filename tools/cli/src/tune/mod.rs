//! `weft tune`: measures the links of this machine and stores the figures by which endpoints
//! choose.

mod measure;
pub mod store;

use anyhow::{bail, Context, Result};
use measure::{Effort, Measured, Sighting};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weft::calibration::{LinkFigures, Machine, Switch};
use weft::endpoint::choice;
use weft::job::config_from_env;
use weft::{Calibration, Config};
use weft_app::Progress;
use weft_core::transfer::select::eager_max;
use weft_core::LinkCaps;
use weft_measure::date;
use weft_measure::far::Reach;
use weft_measure::layout::{self, hanging, Columns};
use weft_run::interrupt::Interrupt;

/// Measure this machine's links and store what messages are sent by, in under a minute
///
/// Each link that works here is measured: shared memory between two processes, the others between
/// two hosts that are made for it (as by `weft lab`). Endpoints started afterwards use the figures
/// in the place of estimates; `weft info` shows the effect. Interrupted, it stores nothing.
///
/// With --hosts, the links between two given hosts are measured, and both hosts store the figures.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft tune                                  this machine
  weft tune --hosts node1,node2              between two hosts, by ssh
  weft tune --hosts h1,h2 --launch-agent 'weft lab exec'
                                             between two hosts of a lab")]
pub struct Args {
    #[command(flatten)]
    reach: Reach,
    /// Links to measure; the others keep their estimates
    #[arg(long, value_enum, value_delimiter = ',')]
    link: Vec<LinkName>,
    /// Measure coarse figures in some 20 seconds
    #[arg(long)]
    quick: bool,
    /// Measure and print, but store nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the stored figures
    #[arg(long, conflicts_with_all = ["forget", "quick", "dry_run", "link", "hosts"])]
    show: bool,
    /// Remove the stored figures
    #[arg(long, conflicts_with_all = ["quick", "dry_run", "link", "hosts"])]
    forget: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LinkName {
    Shm,
    Xdp,
    Packet,
    Gso,
    Udp,
    Tcp,
}

impl LinkName {
    /// In the order in which endpoints prefer them.
    const ALL: [LinkName; 6] = [
        LinkName::Shm,
        LinkName::Xdp,
        LinkName::Packet,
        LinkName::Gso,
        LinkName::Udp,
        LinkName::Tcp,
    ];

    fn name(self) -> &'static str {
        match self {
            LinkName::Shm => "shm",
            LinkName::Xdp => "xdp",
            LinkName::Packet => "packet",
            LinkName::Gso => "gso",
            LinkName::Udp => "udp",
            LinkName::Tcp => "tcp",
        }
    }
}

/// Lists of links that ranks open, the most common first, because time may be up before the last.
/// With several links, small packets and data may use different ones.
const LISTS: [(&str, &[&str]); 10] = [
    ("shm", &["shm"]),
    ("packet,gso,udp,tcp", &["packet", "gso", "udp", "tcp"]),
    ("udp,tcp", &["udp", "tcp"]),
    ("udp", &["udp"]),
    ("tcp", &["tcp"]),
    ("packet,udp", &["packet", "udp"]),
    ("gso", &["gso"]),
    ("packet", &["packet"]),
    ("xdp,udp", &["xdp", "udp"]),
    ("xdp", &["xdp"]),
];
/// Time after which no more switch-overs are measured.
const BUDGET: Duration = Duration::from_secs(45);

/// A switch-over: the model's value and the measured times.
struct Turn {
    small: &'static str,
    data: &'static str,
    /// The model's value by the links' estimates, and by the measured figures.
    model: [u32; 2],
    used: u32,
    looks: Vec<Sighting>,
}

/// All results.
#[derive(Default)]
struct Findings {
    links: Vec<Measured>,
    absent: Vec<(&'static str, String)>,
    turns: Vec<Turn>,
    /// Switch-overs that were not measured, and why.
    left: Vec<String>,
}

fn off() -> bool {
    std::env::var_os("WEFT_TUNE").is_some_and(|v| v == "off")
}

fn path() -> Result<PathBuf> {
    if off() {
        bail!("WEFT_TUNE=off: nothing is stored or used; unset it, or set it to a file");
    }
    Calibration::path_from_env()
        .context("neither XDG_CONFIG_HOME nor HOME is set; name a file by WEFT_TUNE=FILE")
}

fn caps(name: &'static str) -> LinkCaps {
    match name {
        "shm" => LinkCaps::memory(name, 32 << 10),
        // Its packets are longer than those of other links.
        "gso" => {
            let mut caps = LinkCaps::network(name, 64_000);
            caps.polled = true;
            caps
        }
        "tcp" => {
            let mut caps = LinkCaps::network(name, 64_000);
            (caps.cuts, caps.connects) = (true, true);
            caps
        }
        _ => LinkCaps::network(name, 1456),
    }
}

impl Findings {
    /// Returns estimates and measured figures, each as a calibration.
    fn views(&self) -> [Calibration; 2] {
        let of = |figures: fn(&Measured) -> LinkFigures| Calibration {
            links: self.links.iter().map(figures).collect(),
            ..Calibration::default()
        };
        [of(|m| m.estimate.clone()), of(|m| m.figures.clone())]
    }

    fn has(&self, name: &str) -> bool {
        self.links.iter().any(|m| m.figures.link == name)
    }

    fn switch(
        &mut self,
        list: &'static str,
        names: &[&'static str],
        config: &Config,
        effort: &Effort<'_>,
    ) {
        let all: Vec<LinkCaps> = names.iter().map(|&name| caps(name)).collect();
        let [by_estimate, measured] = self.views().map(|view| choice(&all, &view));
        let (Some(by_estimate), Some(measured)) = (by_estimate, measured) else { return };
        let (small, data) = (names[measured.small], names[measured.data]);
        if names.len() > 1 && small == data {
            return;
        }
        let what = format!("small over {small}, data over {data}");
        if (by_estimate.small, by_estimate.data) != (measured.small, measured.data) {
            self.left.push(format!("{what}: by the model; another choice than by estimates"));
            return;
        }
        if effort.far.is_some() && names.contains(&"xdp") {
            self.left.push(format!("{what}: by the model; a queue serves one of two ranks"));
            return;
        }
        if Instant::now() > effort.until {
            self.left.push(format!("{what}: by the model; time is up"));
            return;
        }
        let model = [by_estimate, measured].map(|c| eager_max(config, &c.caps));
        let most = (config.eager_credit / 4).clamp(4096, 256 << 10);
        match measure::switch(list, model[1], (4096, most), effort) {
            Ok((used, looks)) => self.turns.push(Turn { small, data, model, used, looks }),
            Err(e) => self.left.push(format!("{what}: by the model; {e:#}")),
        }
    }

    fn calibration(&self) -> Calibration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let switch = |t: &Turn| {
            let (small, data) = (t.small.to_string(), t.data.to_string());
            Switch { small, data, eager_max: t.used }
        };
        Calibration {
            made: now.as_secs(),
            machine: Machine::here(),
            links: self.links.iter().map(|m| m.figures.clone()).collect(),
            switches: self.turns.iter().map(switch).collect(),
        }
    }
}

fn measure(wanted: &[LinkName], config: &Config, effort: &Effort<'_>) -> Findings {
    let mut found = Findings::default();
    let progress = Progress::new(0, "measuring");
    let total = wanted.len() as u64 * measure::LINK_STEPS + LISTS.len() as u64;
    let mut done = 0;
    progress.at(done, total);
    for (at, &link) in wanted.iter().enumerate() {
        let mut step = || {
            done += 1;
            progress.at(done, total);
        };
        match measure::link(link.name(), effort, &mut step) {
            Ok(measured) => found.links.push(measured),
            Err(e) => found.absent.push((link.name(), format!("{e:#}"))),
        }
        done = (at as u64 + 1) * measure::LINK_STEPS;
        progress.at(done, total);
    }
    for (list, names) in LISTS {
        if names.iter().all(|name| found.has(name)) {
            found.switch(list, names, config, effort);
        }
        done += 1;
        progress.at(done, total);
    }
    found
}

fn size(bytes: u32) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

fn us(ns: u32) -> String {
    format!("{:.2} us", f64::from(ns) / 1e3)
}

fn mb(rate: u32) -> String {
    format!("{rate} MB/s")
}

/// Returns a link's position among those between hosts, by measured figures and by estimates.
fn standing(
    found: &Findings,
    at: usize,
    what: &str,
    better: impl Fn(&LinkFigures, &LinkFigures) -> bool,
) -> String {
    let network = |m: &&Measured| m.figures.link != "shm";
    let (own, all) = (&found.links[at], found.links.iter().filter(network));
    if own.figures.link == "shm" {
        return "inside a host there is no other".into();
    }
    let of = 1 + all.clone().filter(|m| better(&m.figures, &own.figures)).count();
    let was = 1 + all.clone().filter(|m| better(&m.estimate, &own.estimate)).count();
    match all.count() {
        1 => "no other to compare with".into(),
        n if of == was => format!("no. {of} of {n} for {what}, as estimated"),
        n => format!("no. {of} of {n} for {what} (by estimate {was})"),
    }
}

fn link_rows(found: &Findings, at: usize, table: &mut Columns) {
    let (own, was) = (&found.links[at].figures, &found.links[at].estimate);
    let effect = standing(found, at, "small", |a, b| a.latency_ns < b.latency_ns);
    table.row([&own.link, "one way, 16 B", &us(was.latency_ns), &us(own.latency_ns), &effect]);
    let effect = standing(found, at, "data", |a, b| a.bytes_per_us > b.bytes_per_us);
    table.row(["", "data, 1 MiB", &mb(was.bytes_per_us), &mb(own.bytes_per_us), &effect]);
    let (was, now) = (mb(was.small_bytes_per_us), mb(own.small_bytes_per_us));
    table.row(["", "at once, 16 KiB", &was, &now, "moves the switch-over, below"]);
    let messages = format!("{:.2} M/s", f64::from(own.messages_per_ms) / 1e3);
    table.row(["", "messages, 8 B", "-", &messages, ""]);
}

fn turn_row(turn: &Turn, table: &mut Columns) {
    let name = match turn.small == turn.data {
        true => turn.small.to_string(),
        false => format!("{}, {}", turn.small, turn.data),
    };
    let [estimate, model] = turn.model.map(size);
    let look = |l: &Sighting| {
        let (eager, rendezvous) = (l.eager * 1e6, l.rendezvous * 1e6);
        format!("{}: {eager:.1} us at once, {rendezvous:.1} announced", size(l.size))
    };
    let looks = turn.looks.iter().map(look).collect::<Vec<_>>().join("; ");
    let verdict = match turn.used == turn.model[1] {
        true => format!("the model's {model} holds"),
        false => format!("the model says {model}; corrected"),
    };
    let used = size(turn.used);
    table.row([&name, "at once up to", &estimate, &used, &format!("{verdict} ({looks})")]);
}

/// Returns the results, within the width of a terminal if there is one.
fn text(found: &Findings, width: Option<usize>) -> String {
    let mut table = Columns::new("<<>><", 1);
    table.row(["link", "what", "estimate", "measured", "effect"]);
    (0..found.links.len()).for_each(|at| link_rows(found, at, &mut table));
    found.turns.iter().for_each(|turn| turn_row(turn, &mut table));
    let mut notes = found.left.clone();
    notes.extend(found.absent.iter().map(|(link, why)| {
        format!("{link}: not measured, keeps its estimates: {why}; `weft doctor` tells more")
    }));
    let looped = found.links.iter().filter(|m| m.figures.place.starts_with("loopback"));
    let place = |m: &Measured| format!("{}: measured over {}", m.figures.link, m.figures.place);
    notes.extend(looped.map(place));
    let mut text = table.text("", width);
    notes.iter().for_each(|note| text += &(hanging("", note, width) + "\n"));
    text
}

/// Returns the date of a calibration, UTC.
pub fn day(made: u64) -> String {
    date(Duration::from_secs(made))
}

fn show() -> Result<ExitCode> {
    let path = path()?;
    let Some(stored) = Calibration::read(&path).map_err(|why| unusable(&path, &why))? else {
        println!("no calibration at {}; `weft tune` makes one", path.display());
        return Ok(ExitCode::SUCCESS);
    };
    let width = layout::width();
    println!("{}, made {} UTC", path.display(), day(stored.made));
    if let Err(why) = Calibration::read_for(&path, &Machine::here()) {
        println!(
            "{}",
            hanging("NOT USED here: ", &format!("{why}; `weft tune` makes it anew"), width)
        );
    }
    for l in &stored.links {
        let figures = format!(
            "{} one way; data {}; at once {}; {:.2} M messages/s; measured: {}",
            us(l.latency_ns),
            mb(l.bytes_per_us),
            mb(l.small_bytes_per_us),
            f64::from(l.messages_per_ms) / 1e3,
            l.place
        );
        println!("{}", hanging(&format!("{:<12} ", l.link), &figures, width));
    }
    for s in &stored.switches {
        println!(
            "small over {}, data over {}: at once up to {}",
            s.small,
            s.data,
            size(s.eager_max)
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn unusable(path: &std::path::Path, why: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "{}: {why}; `weft tune` makes it anew, `weft tune --forget` removes it",
        path.display()
    )
}

fn forget() -> Result<ExitCode> {
    let path = path()?;
    match std::fs::remove_file(&path) {
        Ok(()) => println!("removed {}; links keep their estimates", path.display()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            println!("there is nothing at {}", path.display());
        }
        Err(e) => return Err(e).with_context(|| format!("removing {}", path.display())),
    }
    Ok(ExitCode::SUCCESS)
}

fn wanted(asked: &[LinkName], far: bool) -> Result<Vec<LinkName>> {
    if far && asked.contains(&LinkName::Shm) {
        misuse!("--link shm joins ranks of one host only; leave --hosts out to measure it");
    }
    let chosen = |l: &LinkName| asked.is_empty() || asked.contains(l);
    let all = LinkName::ALL.into_iter().filter(chosen);
    Ok(all.filter(|l| !far || *l != LinkName::Shm).collect())
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.show {
        return show();
    }
    if args.forget {
        return forget();
    }
    let far = args.reach.far()?;
    // Checks that the figures can be stored before a minute is spent on them.
    if !args.dry_run && (far.is_none() || off()) {
        path()?;
    }
    let config = config_from_env()?;
    let wanted = wanted(&args.link, far.is_some())?;
    let (turn, repeat) = if args.quick { (5, 4) } else { (25, 10) };
    let (turn, until) = (Duration::from_millis(turn), Instant::now() + BUDGET);
    let interrupt = Interrupt::watch("weft tune")?;
    let found = measure(&wanted, &config, &Effort { far: far.as_ref(), turn, repeat, until });
    let found = interrupt.unless(Ok(found))?;
    print!("{}", text(&found, layout::width()));
    if found.links.is_empty() {
        bail!("no link could be measured; `weft doctor` tells what is missing");
    }
    if args.dry_run {
        println!("nothing stored (--dry-run)");
    } else if let Some(far) = far {
        interrupt.leaves(|| "one of the hosts may have stored the figures".into());
        store::everywhere(&far, &found.calibration())?;
    } else {
        let path = path()?;
        found
            .calibration()
            .write(&path)
            .with_context(|| format!("storing {}; WEFT_TUNE=FILE names another", path.display()))?;
        println!("stored in {}; `weft info` shows the effect", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn text__fits_a_terminal_and_loses_no_word() {
        let figures = |name: &str| LinkFigures { link: name.into(), ..LinkFigures::default() };
        let link = |name| Measured { estimate: figures(name), figures: figures(name) };
        let sighting = |size| Sighting { size, eager: 1e-5, rendezvous: 2e-5 };
        let turn = Turn {
            small: "packet",
            data: "gso",
            model: [4096, 8192],
            used: 16384,
            looks: (12..20).map(|power| sighting(1 << power)).collect(),
        };
        let found = Findings {
            links: vec![link("packet"), link("gso")],
            absent: vec![("xdp", "a reason of many words, ".repeat(9))],
            turns: vec![turn],
            left: vec!["small over udp, data over tcp: by the model; time is up".into()],
        };
        let whole = text(&found, None);
        assert!(whole.lines().any(|line| line.len() > 300), "{whole}");
        let narrow = text(&found, Some(80));
        assert!(narrow.lines().all(|line| line.len() <= 80), "{narrow}");
        for word in whole.split_whitespace() {
            assert!(narrow.contains(word), "{word} is not in\n{narrow}");
        }
    }

    #[test]
    fn names__are_those_of_a_job_but_the_agent() {
        let of_job = weft::Links::NAMES.into_iter().filter(|name| *name != "agent");
        assert!(LinkName::ALL.into_iter().map(LinkName::name).eq(of_job));
    }

    #[test]
    fn lists__what_ranks_get_by_themselves_comes_first() {
        let order: Vec<&str> = LISTS.iter().map(|(list, _)| *list).collect();
        assert_eq!(&order[..3], ["shm", "packet,gso,udp,tcp", "udp,tcp"]);
        for (list, names) in LISTS {
            assert_eq!(list.split(',').collect::<Vec<_>>(), names);
        }
        for link in LinkName::ALL {
            assert!(order.contains(&link.name()), "{} alone", link.name());
        }
    }
}

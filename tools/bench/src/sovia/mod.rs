//! The study of paper 002, live: its layer and its ten configurations over sockets of `weft
//! sockets`, which play the part of VIA, with TCP beside them.
//!
//! Settings of the layer are the paper's (`layer::SETTINGS`). To register memory is to pin its
//! pages for the time of a send; a notify function is a thread in a receive. Polling and blocking
//! are a setting of the library.

pub mod child;
mod layer;
mod paper;
mod plot;
mod verdicts;

use crate::pair::{core, Sample};
use crate::progress::Plan;
use crate::sockets::{begin, words_of, Process, Way};
use crate::table::{figure, human, Better, Row, Table};
use crate::target::{self, Aim, Check};
use crate::Options;
use anyhow::{Context, Result};
use layer::SETTINGS;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use weft_measure::layout::{self, Columns};

/// Name of the benchmark.
const NAME: &str = "sovia";
/// The name of sockets without the layer: the part of native VIA, and TCP.
const NATIVE: &str = "native";
const TCP: &str = "TCP";
/// Bytes of a stream, and most messages.
const STREAM: u64 = 64 << 20;
const MESSAGES: u64 = 50_000;

/// The parts of the processor's time of a stream.
const SHARES: [&str; 4] = ["sender, user", "sender, kernel", "receiver, user", "receiver, kernel"];

/// A subject: name, way, setting, and the cores of client and server.
type Subject = (&'static str, Way, Option<&'static str>, [usize; 2]);

const APART: [usize; 2] = [0, 1];
const TOGETHER: [usize; 2] = [0, 0];

const fn plain(name: &'static str, way: Way) -> Subject {
    (name, way, None, APART)
}

const fn layered(name: &'static str) -> Subject {
    (name, Way::Weft, Some(name), APART)
}

/// Figures of a part, by name and size.
type Figures = BTreeMap<(&'static str, usize), Sample>;

/// Parts of the study: name, unit, better direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Latency,
    OneCore,
    Memory,
    Bandwidth,
    Asleep,
    Shares,
    Files,
}

impl Part {
    /// Returns its name for programs.
    fn name(self) -> &'static str {
        match self {
            Part::Latency => "latency",
            Part::OneCore => "latency, one core",
            Part::Memory => "memory",
            Part::Bandwidth => "bandwidth",
            Part::Asleep => "latency, asleep",
            Part::Shares => "processor use",
            Part::Files => "files",
        }
    }

    fn text(self) -> (&'static str, &'static str, Better) {
        match self {
            Part::Latency => ("Figure 5, Tables 2 and 3: latency", "us", Better::Lower),
            Part::OneCore => ("Figure 9: latency with both ends on one core", "us", Better::Lower),
            Part::Memory => ("Figure 6: pinning and copying", "us", Better::Lower),
            Part::Bandwidth => ("Figures 7 and 8: bandwidth", "Mbit/s", Better::Higher),
            Part::Asleep => ("calls that sleep: latency", "us", Better::Lower),
            Part::Shares => ("Figure 10: processor use of sleeping ends", "%", Better::Lower),
            Part::Files => ("Table 5: a file over a socket", "Mbit/s", Better::Higher),
        }
    }
}

struct Study<'a> {
    options: &'a Options,
    agent: String,
    plan: Plan,
    figures: BTreeMap<Part, Figures>,
}

impl Study<'_> {
    fn sizes(&self) -> Vec<usize> {
        match self.options.quick {
            true => vec![4, 1024, 32768],
            false => paper::LATENCY.iter().map(|(size, _)| *size).collect(),
        }
    }

    fn iters(&self, all: u64) -> String {
        (if self.options.quick { all / 100 } else { all }).max(2).to_string()
    }

    fn words(&self, way: Way, core_of: usize, words: &[&str]) -> Result<std::process::Command> {
        let program = std::env::current_exe().context("finding this program")?;
        let program = program.to_str().context("the path of this program")?;
        let all = [&["bench-sovia"], words].concat();
        words_of(way, &self.agent, core(core_of), program, &all)
    }

    /// Starts a server; returns it and its port.
    fn serve(&self, way: Way, core_of: usize, words: &[&str]) -> Result<(Process, String)> {
        Process::serving(self.words(way, core_of, words)?)
    }

    /// Runs a client; returns its figures.
    fn run(&self, way: Way, core_of: usize, words: &[&str]) -> Result<Vec<f64>> {
        let text = crate::sockets::output(self.words(way, core_of, words)?)?;
        let figures = text.split_whitespace().map(str::parse);
        figures.collect::<Result<_, _>>().with_context(|| format!("figures, not {text:?}"))
    }

    /// Runs a server and a client of a subject.
    fn both(&self, subject: Subject, roles: [&str; 2], more: &[&str]) -> Result<Vec<f64>> {
        let (_, way, setting, cores) = subject;
        let setting = setting.map_or(vec![], |label| vec!["--setting", label]);
        let server = [&[roles[0], "0"], &setting[..], more].concat();
        let (_server, port) = self.serve(way, cores[1], &server)?;
        let client = [&[roles[1], port.as_str()], &setting[..], more].concat();
        self.run(way, cores[0], &client)
    }

    /// Measures subjects in turn, and keeps the figures under names.
    fn measure(
        &mut self,
        part: Part,
        size: usize,
        subjects: &[Subject],
        one: impl Fn(&Self, Subject) -> Result<Vec<f64>>,
        names: impl Fn(&'static str) -> Vec<&'static str>,
    ) -> Result<()> {
        let mut all: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
        for _ in 0..self.options.repeat() {
            for &subject in subjects {
                self.plan.show(format!("{}, {}, {}", part.text().0, subject.0, human(size)));
                let values = one(self, subject)?;
                for (name, value) in names(subject.0).into_iter().zip(values) {
                    all.entry(name).or_default().push(value);
                }
                self.plan.at(self.plan.done() + 1);
            }
        }
        let samples = all.into_iter().filter_map(|(name, of)| Some((name, Sample::of(of)?)));
        let samples: Vec<_> = samples.collect();
        let (title, unit, _) = part.text();
        let said = samples.iter().map(|(name, of)| format!("{name} {}", figure(of.median)));
        let said: Vec<_> = said.collect();
        self.plan.tell(&format!("{title}, {unit}, {}: {}", human(size), said.join(", ")));
        let of_part = self.figures.entry(part).or_default();
        of_part.extend(samples.into_iter().map(|(name, sample)| ((name, size), sample)));
        Ok(())
    }

    fn latency(&mut self) -> Result<()> {
        let subjects = [
            plain(TCP, Way::Tcp),
            plain(NATIVE, Way::Weft),
            layered("SOVIA_NOTIFY"),
            layered("SOVIA_HANDLER"),
            layered("SOVIA_SINGLE"),
            layered("SOVIA_REG"),
            layered("SOVIA_COPY"),
            layered("SOVIA_HYBRID"),
        ];
        let iters = self.iters(3_000);
        for size in self.sizes() {
            let of = size.to_string();
            let more = ["--size", &of, "--iters", &iters];
            let one = |study: &Self, subject| study.both(subject, ["echo", "ask"], &more);
            self.measure(Part::Latency, size, &subjects, one, |name| vec![name])?;
            let together = subjects.map(|(name, way, of, _)| (name, way, of, TOGETHER));
            self.measure(Part::OneCore, size, &together[..5], one, |name| vec![name])?;
            if size == 4 {
                let asleep = ("SOVIA_HYBRID", Way::Asleep, Some("SOVIA_HYBRID"), APART);
                self.measure(Part::Asleep, size, &[asleep], one, |name| vec![name])?;
            }
        }
        Ok(())
    }

    fn memory(&mut self) -> Result<()> {
        let roles = [("pin", "pinned"), ("copy", "copied, cached"), ("copy-cold", "copied, cold")];
        let iters = self.iters(3_000);
        for size in self.sizes() {
            let of = size.to_string();
            for (role, name) in roles {
                let words = [role, "--size", &of, "--iters", &iters];
                let one = |study: &Self, _| study.run(Way::Tcp, 0, &words);
                self.measure(Part::Memory, size, &[plain(name, Way::Tcp)], one, |name| vec![name])?;
            }
        }
        Ok(())
    }

    fn bandwidth(&mut self) -> Result<()> {
        let subjects = [
            plain(TCP, Way::Tcp),
            plain(NATIVE, Way::Weft),
            layered("SOVIA_BASE"),
            layered("SOVIA_FLOWCNTL"),
            layered("SOVIA_DACKS"),
            layered("SOVIA_COMBINE"),
        ];
        let asleep = [("SOVIA_COMBINE", Way::Asleep, Some("SOVIA_COMBINE"), APART)];
        for size in self.sizes() {
            let of = size.to_string();
            let iters = self.iters((STREAM / size as u64).min(MESSAGES));
            let more = ["--size", &of, "--iters", &iters];
            let one = |study: &Self, subject| study.both(subject, ["sink", "stream"], &more);
            self.measure(Part::Bandwidth, size, &subjects, one, |name| vec![name])?;
            let names = |_| [&["rate"], &SHARES[..]].concat();
            self.measure(Part::Shares, size, &asleep, one, names)?;
        }
        Ok(())
    }

    fn files(&mut self) -> Result<()> {
        let folder = std::env::temp_dir();
        let folder = [PathBuf::from("/dev/shm"), folder].into_iter().find(|f| f.is_dir());
        let folder = folder.context("a folder for files")?;
        let random = weft_link::random_u64();
        let path = |end: &str| {
            let path = folder.join(format!("weft-sovia-{random:016x}-{end}"));
            path.to_str().map(String::from).context("a path in UTF-8")
        };
        let (from, to) = (path("from")?, path("to")?);
        let measured = self.each_file(&from, &to);
        let _ = (std::fs::remove_file(&from), std::fs::remove_file(&to));
        measured
    }

    fn each_file(&mut self, from: &str, to: &str) -> Result<()> {
        let subjects = [plain(TCP, Way::Tcp), plain(NATIVE, Way::Weft)];
        for (bytes, _) in paper::FILES {
            std::fs::write(from, vec![7; bytes as usize]).context("writing a file")?;
            let one = |study: &Self, (_, way, _, cores): Subject| {
                let (_server, port) =
                    study.serve(way, cores[1], &["serve", "0", "--file", from])?;
                study.run(way, cores[0], &["fetch", &port, "--file", to])
            };
            self.measure(Part::Files, bytes as usize, &subjects, one, |name| vec![name])?;
        }
        Ok(())
    }

    fn get(&self, part: Part, name: &'static str, size: usize) -> Option<Sample> {
        self.figures.get(&part)?.get(&(name, size)).copied()
    }

    /// Returns a part as a table: a line for each size, a column for each name.
    fn matrix(&self, part: Part, names: &[&'static str]) -> String {
        let (title, unit, _) = part.text();
        let Some(figures) = self.figures.get(&part) else { return format!("{title}, {unit}") };
        let mut sizes: Vec<usize> = figures.keys().map(|(_, size)| *size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let cell = |name, size| figures.get(&(name, size)).map_or("-".into(), |s| figure(s.median));
        by_size(&format!("{title}, {unit}"), names, &sizes, cell)
    }

    /// Returns the ratios to the native transport, with the paper's: M-VIA, then cLAN.
    fn ratios(&self) -> String {
        let names = ["SOVIA_REG", "SOVIA_COPY", "SOVIA_HYBRID"];
        let cell = |name, size| {
            let native = self.get(Part::Latency, NATIVE, size);
            let ours = self.get(Part::Latency, name, size).zip(native);
            let at = names.iter().position(|one| *one == name).unwrap_or(0);
            match (ours, paper::ratio(size, at + 1)) {
                (Some((ours, native)), Some([mvia, clan])) => {
                    let ours = ours.median / native.median;
                    format!("{ours:.2} ({mvia:.2}, {clan:.2})")
                }
                _ => "-".into(),
            }
        };
        let title = format!("Tables 2 and 3 as ratios to {NATIVE}: here (M-VIA, cLAN)");
        by_size(&title, &names, &self.sizes(), cell)
    }

    /// Returns all figures as rows without targets, for programs.
    fn rows(&self) -> Vec<Check> {
        let cells = self.figures.iter().flat_map(|(part, of)| of.iter().map(move |f| (*part, f)));
        let row = |(part, (&(name, size), &ours)): (Part, (&(&'static str, usize), &Sample))| {
            let (what, unit, better) = part.text();
            let (floors, peers) = (Vec::new(), Vec::new());
            let rows = vec![Row { what: name, size, ours, floors, peers }];
            let link = part.name();
            let table = Table { bench: NAME, link, what, unit, better, rows, notes: Vec::new() };
            Check { table, aim: Aim::default(), goal: None }
        };
        cells.map(row).collect()
    }
}

/// Returns a table: a line for each size, a column for each name.
fn by_size(
    title: &str,
    names: &[&'static str],
    sizes: &[usize],
    cell: impl Fn(&'static str, usize) -> String,
) -> String {
    let mut columns = Columns::new(&">".repeat(1 + names.len()), 1);
    columns.row(["size"].iter().chain(names).copied());
    for &size in sizes {
        let figures = names.iter().map(|&name| cell(name, size));
        columns.row([human(size)].into_iter().chain(figures));
    }
    format!("{title}\n{}", columns.text("  ", layout::width()))
}

impl Study<'_> {
    fn text(&self, out: &mut impl Write) -> Result<()> {
        let mut settings = Columns::new("<<<>>>", 1);
        settings.row(["Table 4", "handling", "outgoing", "window", "acks", "combined"]);
        SETTINGS.iter().for_each(|setting| settings.row(setting.cells()));
        write!(out, "{}", settings.text("", layout::width()))?;
        let handling = ["SOVIA_NOTIFY", "SOVIA_HANDLER", "SOVIA_SINGLE"];
        let plain = [TCP, NATIVE];
        let five = [&plain[..], &handling].concat();
        let eight = [&five[..], &["SOVIA_REG", "SOVIA_COPY", "SOVIA_HYBRID"]].concat();
        let streams = ["SOVIA_BASE", "SOVIA_FLOWCNTL", "SOVIA_DACKS", "SOVIA_COMBINE"];
        let streams = [&plain[..], &streams].concat();
        writeln!(out, "\n{}", self.matrix(Part::Latency, &eight))?;
        writeln!(out, "{}", self.ratios())?;
        let memory = ["pinned", "copied, cached", "copied, cold"];
        writeln!(out, "{}", self.matrix(Part::Memory, &memory))?;
        writeln!(out, "{}", self.matrix(Part::Bandwidth, &streams))?;
        writeln!(out, "{}", self.matrix(Part::OneCore, &five))?;
        writeln!(out, "{}", self.matrix(Part::Asleep, &["SOVIA_HYBRID"]))?;
        writeln!(out, "{}", self.matrix(Part::Shares, &SHARES))?;
        writeln!(out, "{}", self.matrix(Part::Files, &plain))?;
        Ok(())
    }
}

impl Study<'_> {
    /// Returns a curve for each name.
    fn curves(&self, part: Part, names: &[&'static str]) -> Vec<plot::Curve> {
        let of = |name: &&'static str| {
            let all = self.figures.get(&part)?;
            let mine = all.iter().filter(|((of, _), _)| of == name);
            let points: Vec<_> = mine.map(|((_, size), sample)| (*size, *sample)).collect();
            (!points.is_empty()).then_some((*name, points))
        };
        names.iter().filter_map(of).collect()
    }

    /// Returns Figures 5 to 10.
    fn plots(&self) -> Vec<plot::Figure> {
        let handling = [TCP, NATIVE, "SOVIA_NOTIFY", "SOVIA_HANDLER", "SOVIA_SINGLE"];
        let streams = [TCP, NATIVE, "SOVIA_BASE"];
        let better = ["SOVIA_BASE", "SOVIA_FLOWCNTL", "SOVIA_DACKS", "SOVIA_COMBINE", NATIVE];
        let memory = ["pinned", "copied, cached", "copied, cold"];
        let all: [(u32, &str, Part, &[&'static str]); 6] = [
            (5, "latency by who handles messages", Part::Latency, &handling),
            (6, "pinning and copying", Part::Memory, &memory),
            (7, "bandwidth without flow control", Part::Bandwidth, &streams),
            (8, "bandwidth by optimisation", Part::Bandwidth, &better),
            (9, "latency with both ends on one core", Part::OneCore, &handling),
            (10, "processor use of sleeping ends (SOVIA_COMBINE)", Part::Shares, &SHARES),
        ];
        let figure = |(number, what, part, names): (u32, &'static str, Part, &[&'static str])| {
            let (_, unit, better) = part.text();
            let better = if better == Better::Lower { "lower" } else { "higher" };
            let (unit, by_powers) = (format!("{unit}; {better} is better"), part != Part::Shares);
            plot::Figure { number, what, unit, curves: self.curves(part, names), by_powers }
        };
        all.into_iter().map(figure).collect()
    }

    /// Writes the plots, each as PNG and SVG, and a page with them, the tables and the verdicts.
    fn write(&self, folder: &Path, verdicts: &[Check], notes: &[String]) -> Result<()> {
        let put = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            std::fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))
        };
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let (mut tables, mut judged) = (Vec::new(), Vec::new());
        self.text(&mut tables)?;
        target::show_all(NAME, (verdicts, notes), false, &mut judged)?;
        let mut page = String::from("# Sockets over VIA (paper 002), measured here\n\n");
        for figure in self.plots() {
            let Some(picture) = plot::picture(&figure) else { continue };
            let (name, what) = (format!("figure-{}", figure.number), figure.what);
            put(&format!("{name}.png"), &picture.png()?)?;
            put(&format!("{name}.svg"), picture.svg(what).as_bytes())?;
            page.push_str(&format!("![Figure {}: {what}]({name}.png)\n\n", figure.number));
        }
        for text in [judged, tables] {
            page.push_str(&format!("```text\n{}```\n\n", String::from_utf8_lossy(&text)));
        }
        put("sovia.md", page.as_bytes())
    }
}

/// Measures all and prints the results.
///
/// Into `folder`, if one is named, go plots of Figures 5 to 10 and a page.
///
/// # Errors
/// No agent starts, or a program fails.
pub fn print(
    options: &Options,
    folder: Option<&Path>,
    json: bool,
    out: &mut impl Write,
) -> Result<()> {
    let (_agent, agent) = begin()?;
    let mut study = Study { options, agent, plan: Plan::of(0), figures: BTreeMap::new() };
    let sizes = study.sizes().len();
    study.plan = Plan::of(options.repeat() as usize * (sizes * (8 + 5 + 3 + 6 + 1) + 1 + 4));
    study.latency()?;
    study.memory()?;
    study.bandwidth()?;
    study.files()?;
    let (verdicts, others) = study.verdicts();
    let mut notes = vec![
        "in brackets the paper's ratios, on M-VIA and cLAN; native and the layer go by sockets \
         of weft, which share memory; met: the verdict stands here; files go from memory to memory \
         by a program of our own, in place of FTP"
            .to_string(),
    ];
    notes.extend(others.iter().map(|text| format!("not judged, nothing was counted: {text}")));
    if let Some(folder) = folder {
        study.write(folder, &verdicts, &notes)?;
    }
    if json {
        let all = study.rows().into_iter().chain(verdicts).collect::<Vec<_>>();
        return target::show_all(NAME, (&all, &[]), json, out);
    }
    study.text(out)?;
    target::show_all(NAME, (&verdicts, &notes), json, out)
}

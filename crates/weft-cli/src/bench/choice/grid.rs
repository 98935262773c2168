//! `weft bench choices`: every combination over every link, as one table and plot.

use super::super::pair::{Kind, Meter, Pair, Sample, Subject};
use super::super::rank::Probe;
use super::super::suite::draw::png;
use super::super::suite::plot::{Anchor, Colour, Shape};
use super::super::{machine, netns, pingpong, Bench, LinkName, Options};
use super::cast::Cast;
use super::{environment, label, What};
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use weft::choices::{Choices, Receipt, Transfer, Tree};
use weft::Reliability;

/// One figure.
struct Cell {
    link: &'static str,
    bench: &'static str,
    choices: Choices,
    size: usize,
    unit: &'static str,
    value: Option<Sample>,
    floor: Option<f64>,
    why: String,
}

impl Cell {
    fn csv(&self) -> String {
        let c = &self.choices;
        let number = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.4}"));
        let s = self.value;
        let figures = [
            number(s.map(|s| s.median)),
            number(s.map(|s| s.min)),
            number(s.map(|s| s.max)),
            number(self.floor),
        ];
        let mtu = if c.mtu == 0 { "link".to_string() } else { c.mtu.to_string() };
        format!(
            "{},{},{},{},{mtu},{},{},{},{},{}",
            self.link,
            self.bench,
            c.transfer,
            c.reliability,
            c.tree,
            self.size,
            self.unit,
            figures.join(","),
            self.why.replace([',', '\n', '"'], ";")
        )
    }
}

const HEAD: &str =
    "link,bench,transfer,reliability,mtu,tree,size,unit,value,min,max,floor,not_measured";
/// Bytes of the messages of the rate.
const BULK: usize = 256 << 10;

/// The combinations of a link: where the link is reliable, nobody retransmits.
fn combinations(link: LinkName) -> Vec<Choices> {
    let usual = Choices { receipt: Receipt::Polling, ..Choices::default() };
    let reliabilities: &[Reliability] = match link {
        LinkName::Shm => &[Reliability::Selective],
        _ => &[Reliability::None, Reliability::GoBackN, Reliability::Selective],
    };
    let mut out = Vec::new();
    for &reliability in reliabilities {
        for transfer in [Transfer::Copy, Transfer::Gather, Transfer::Rcpy] {
            for mtu in [1 << 10, 2 << 10, 4 << 10, 0] {
                out.push(Choices { transfer, reliability, mtu, ..usual });
            }
        }
    }
    out
}

struct Grid<'a> {
    options: &'a Options,
    bar: ProgressBar,
    cells: Vec<Cell>,
}

impl Grid<'_> {
    /// Measures subjects with ranks of their own; `None` and why where that does not work.
    fn measure(
        &self,
        kind: &Kind,
        subjects: &[(usize, Subject)],
    ) -> Result<Vec<Option<Sample>>, String> {
        let pair = Pair::start(kind).map_err(|e| format!("{e:#}"))?;
        let (options, title) = (self.options, String::new());
        let mut meter = Meter { pairs: vec![pair], options, title, absent: Vec::new() };
        let mut out = Vec::new();
        for &(size, subject) in subjects {
            let got = meter.measure(size, &[subject]).map_err(|e| format!("{e:#}"))?;
            out.push(got[0]);
        }
        match meter.absent.first() {
            Some(why) => Err(why.clone()),
            None => Ok(out),
        }
    }

    fn packets(&mut self, bench: &Bench<'_>, floor: f64, rate: Option<f64>, choices: Choices) {
        let (link, place) = (bench.link, bench.place);
        self.bar.set_message(format!("{} {}", link.name(), label(What::Logp, &choices)));
        let kind = Kind { link: link.links(), config: environment(&choices, 2), place };
        let subjects = [(16, Probe::PacketPingPong.into()), (BULK, Probe::PacketStream.into())];
        let got = self.measure(&kind, &subjects);
        let (half, stream, why) = match got {
            Ok(got) => (got[0], got[1], String::new()),
            Err(why) => (None, None, why),
        };
        let cell = |bench, size, unit, value, floor| Cell {
            link: link.name(),
            bench,
            choices,
            size,
            unit,
            value,
            floor,
            why: why.clone(),
        };
        let half = half.map(|s| s.map(|s| s * 1e6));
        let stream = stream.map(|s| s.map(|s| BULK as f64 / s / 1e9));
        self.cells.push(cell("half trip", 16, "us", half, Some(floor)));
        self.cells.push(cell("throughput", BULK, "GB/s", stream, rate));
        self.bar.inc(1);
    }

    fn multicast(&mut self, bench: &Bench<'_>, tree: Tree) {
        const MEMBERS: usize = 4;
        let choices = Choices { tree, ..Choices::default() };
        self.bar.set_message(format!("{} multicast {tree}", bench.link.name()));
        let link = match bench.link {
            LinkName::Packet => "shm,packet",
            LinkName::Xdp => "shm,xdp",
            other => other.links(),
        };
        let kind = Kind { link, config: environment(&choices, MEMBERS), place: bench.place };
        let arg = Cast { members: MEMBERS, tree, stream: false, compute: false }.pack();
        let got = self.measure(&kind, &[(16, Subject { arg, ..Probe::Multicast.into() })]);
        let (value, why) = match got {
            Ok(got) => (got[0].map(|s| s.map(|s| s * 1e6)), String::new()),
            Err(why) => (None, why),
        };
        let (link, unit) = (bench.link.name(), "us");
        let bench = "multicast to 4";
        self.cells.push(Cell { link, bench, choices, size: 16, unit, value, floor: None, why });
        self.bar.inc(1);
    }

    fn fetch_add(&mut self, bench: &Bench<'_>, floor: f64) {
        let choices = Choices { receipt: Receipt::Polling, ..Choices::default() };
        self.bar.set_message(format!("{} fetch-and-add", bench.link.name()));
        let config = environment(&choices, 2);
        let kind = Kind { link: bench.link.links(), config, place: bench.place };
        let got = self.measure(&kind, &[(8, Probe::FetchAdd.into())]);
        let (value, why) = match got {
            Ok(got) => (got[0].map(|s| s.map(|s| s * 1e6)), String::new()),
            Err(why) => (None, why),
        };
        let floor = Some(2.0 * floor);
        let (link, unit, bench) = (bench.link.name(), "us", "fetch-and-add");
        self.cells.push(Cell { link, bench, choices, size: 8, unit, value, floor, why });
        self.bar.inc(1);
    }

    fn link(&mut self, link: LinkName) -> Result<()> {
        let mut bench = Bench::start(link, self.options)?;
        let (_, half) = pingpong::floor_of(link, 16);
        let stream = match link {
            LinkName::Shm => Probe::RemoteCopy,
            _ => Probe::UdpStream,
        };
        let half = bench.measure(16, &[bench.bare(half)], |s| s * 1e6)?[0];
        let rate = bench.measure(BULK, &[bench.bare(stream)], |s| BULK as f64 / s / 1e9)?[0];
        let half = half.map_or(f64::NAN, |s| s.median);
        for choices in combinations(link) {
            self.packets(&bench, half, rate.map(|s| s.median), choices);
        }
        for &tree in Tree::ALL {
            self.multicast(&bench, tree);
        }
        self.fetch_add(&bench, half);
        Ok(())
    }
}

/// Links that can be measured here: raw Ethernet needs two lab hosts of root's.
fn links(given: &[LinkName], options: &Options) -> Vec<LinkName> {
    if !given.is_empty() {
        return given.to_vec();
    }
    let raw = options.netns != netns::Mode::Off && rustix::process::geteuid().is_root();
    let mut all = vec![LinkName::Shm, LinkName::Udp];
    if raw {
        all.extend([LinkName::Packet, LinkName::Xdp]);
    }
    all
}

const BLACK: Colour = [30, 30, 30];
const GREY: Colour = [120, 120, 120];
const COLOURS: [(&str, Colour); 3] =
    [("copy", [31, 119, 180]), ("gather", [44, 140, 44]), ("rcpy", [214, 39, 40])];

fn text(at: (f64, f64), text: &str, anchor: Anchor, colour: Colour) -> Shape {
    Shape::Text { at, text: text.into(), anchor, large: false, colour }
}

/// One panel: a row for each link, reliability and MTU, a dot for each transfer, on a logarithmic
/// axis.
fn panel(cells: &[Cell], bench: &str, unit: &str, left: f64, right: f64) -> Vec<Shape> {
    let mine: Vec<&Cell> = cells.iter().filter(|c| c.bench == bench).collect();
    let values = mine.iter().filter_map(|c| c.value).map(|s| s.median);
    let (low, high) = values.fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
    if low > high {
        return Vec::new();
    }
    let (low, high) = (low.log10().floor(), high.log10().ceil().max(low.log10().floor() + 1.0));
    let x = |v: f64| left + (v.log10() - low) / (high - low) * (right - left);
    let mut shapes = vec![text((left, 40.0), &format!("{bench}, {unit}"), Anchor::Start, BLACK)];
    for power in low as i32..=high as i32 {
        let at = x(10f64.powi(power));
        let points = vec![(at, 56.0), (at, 500.0)];
        shapes.push(Shape::Line { points, colour: [225, 225, 225], width: 1.0, dashed: false });
        let name = format!("{}", 10f64.powi(power));
        shapes.push(text((at, 514.0), &name, Anchor::Middle, GREY));
    }
    let mut rows: Vec<(&str, Reliability, u32)> = Vec::new();
    for cell in &mine {
        let row = (cell.link, cell.choices.reliability, cell.choices.mtu);
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let step = 430.0 / rows.len().max(1) as f64;
    for (i, row) in rows.iter().enumerate() {
        let y = 64.0 + step * (i as f64 + 0.5);
        if left > 100.0 && bench == "half trip" {
            let mtu = if row.2 == 0 { "link".into() } else { format!("{}K", row.2 >> 10) };
            let reliability = if row.0 == "shm" { String::new() } else { row.1.to_string() };
            let name = format!("{} {reliability} {mtu}", row.0);
            if step >= 9.0 || i % 2 == 0 {
                shapes.push(text((left - 8.0, y + 4.0), &name, Anchor::End, GREY));
            }
        }
        for cell in mine.iter().filter(|c| (c.link, c.choices.reliability, c.choices.mtu) == *row) {
            let Some(value) = cell.value else { continue };
            let name = cell.choices.transfer.name();
            let colour = COLOURS.iter().find(|c| c.0 == name).map_or(BLACK, |c| c.1);
            shapes.push(Shape::Dot { at: (x(value.median), y), radius: 3.0, colour });
        }
    }
    shapes
}

fn plot(cells: &[Cell]) -> Vec<Shape> {
    let mut shapes = panel(cells, "half trip", "us", 190.0, 520.0);
    shapes.extend(panel(cells, "throughput", "GB/s", 550.0, 870.0));
    for (i, (name, colour)) in COLOURS.into_iter().enumerate() {
        let at = 200.0 + 90.0 * i as f64;
        shapes.push(Shape::Dot { at: (at, 18.0), radius: 4.0, colour });
        shapes.push(text((at + 9.0, 22.0), name, Anchor::Start, BLACK));
    }
    shapes
}

/// Runs the grid.
pub fn run(out: Option<&Path>, given: &[LinkName], options: &Options) -> Result<ExitCode> {
    let links = links(given, options);
    let count: usize = links.iter().map(|&l| combinations(l).len() + Tree::ALL.len() + 1).sum();
    let bar = ProgressBar::new(count as u64);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {eta} {msg}")?);
    let mut grid = Grid { options, bar, cells: Vec::new() };
    for link in links {
        grid.link(link).with_context(|| format!("over {}", link.name()))?;
    }
    grid.bar.finish_and_clear();
    let mut csv = String::new();
    for line in machine().lines() {
        let _ = writeln!(csv, "# {line}");
    }
    let _ = writeln!(csv, "{HEAD}");
    for cell in &grid.cells {
        let _ = writeln!(csv, "{}", cell.csv());
    }
    let Some(folder) = out else {
        print!("{csv}");
        return Ok(ExitCode::SUCCESS);
    };
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for (name, bytes) in
        [("choices.csv", csv.into_bytes()), ("choices.png", png(&plot(&grid.cells))?)]
    {
        let path = folder.join(name);
        std::fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

//! `weft bench mpi`: the same MPIs over weft and over TCP, side by side.

mod here;
mod hpcc;
pub(crate) mod job;

use super::kept;
use super::netns::{self, Place};
use super::pair::{Kind, Pair, Sample};
use super::progress::bar;
use super::rank::{Probe, Task};
use super::table::{Better, Other, Row, Table};
use super::target::{text, Aim, Check};
use super::{Options, CONFIG, MTU};
use crate::sources::in_c;
use anyhow::{bail, Result};
use indicatif::ProgressBar;
use job::{compile, Hosts, Job, Subject};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use weft_run::folder::Folder;
use weft_run::mpi::detect::{self, Family, Mpi};
use weft_run::mpi::judge;
use weft_run::mpi::variables::{variables, Choice};

/// Message sizes of half round trips, in bytes.
const SIZES: [usize; 7] = [0, 16, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 4 << 20];
/// Seconds for one size in one turn.
const TURN: f64 = 0.15;

/// An MPI and the program compiled for it.
pub(crate) struct Installed {
    pub mpi: Mpi,
    pub program: PathBuf,
}

/// Figures of one subject: for each size the seconds of each turn.
type Figures = BTreeMap<usize, Vec<f64>>;

/// State and results of the measurements.
struct Run<'a> {
    options: &'a Options,
    folder: Folder,
    provider: PathBuf,
    mpis: Vec<Installed>,
    checks: Vec<Check>,
    notes: Vec<String>,
    bar: ProgressBar,
}

pub(crate) fn own(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns the options that every run of an MPI has here.
pub(crate) fn usual(family: Family) -> Vec<String> {
    match family.is_open_mpi() {
        // Run any number of ranks on the cores that there are.
        true => words("--oversubscribe --bind-to none"),
        false => Vec::new(),
    }
}

/// Returns a subject: an MPI over weft.
pub(crate) fn over_weft(mpi: &Mpi, provider: &Path, link: Option<&str>, all: bool) -> Subject {
    let choice = Choice { link: link.map(str::to_owned), all_through_weft: all };
    let set = variables(mpi.family, provider, &choice);
    Subject { name: "weft", mpi: mpi.clone(), set, extra: usual(mpi.family) }
}

/// Returns the subjects of an MPI over TCP, one per transport. `near`: its own shared memory inside
/// a host.
pub(crate) fn over_tcp(mpi: &Mpi, near: bool) -> Vec<Subject> {
    let subject = |name, set: &[(&str, &str)], more: &str| {
        let extra = usual(mpi.family).into_iter().chain(words(more)).collect();
        Subject { name, mpi: mpi.clone(), set: own(set), extra }
    };
    let alone = |name: &'static str| if near { name } else { "1" };
    let local = [("MPIR_CVAR_NOLOCAL", alone("0"))];
    match mpi.family {
        Family::Mpich => {
            let ofi = [("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "tcp"), local[0]];
            let ucx = [
                ("MPIR_CVAR_CH4_NETMOD", "ucx"),
                ("UCX_TLS", "tcp,self"),
                ("UCX_NET_DEVICES", "eth0"),
                local[0],
            ];
            vec![subject("mpich tcp", &ofi, ""), subject("mpich ucx tcp", &ucx, "")]
        }
        Family::OpenMpi4 | Family::OpenMpi5 => {
            let four = mpi.family == Family::OpenMpi4;
            let shared = if four { "vader" } else { "sm" };
            let btl = if near { format!("{shared},self") } else { "tcp,self".into() };
            let name = match (near, four) {
                (true, _) => "open mpi's own",
                (false, true) => "open mpi 4 tcp",
                (false, false) => "open mpi 5 tcp",
            };
            vec![subject(name, &[], &format!("--mca pml ob1 --mca btl {btl}"))]
        }
        Family::Intel => {
            let set = [("I_MPI_FABRICS", "ofi"), ("FI_PROVIDER", "tcp")];
            vec![subject("intel tcp", &set, "")]
        }
    }
}

fn names(family: Family) -> [&'static str; 3] {
    match family {
        Family::Mpich => ["mpich, half round trip", "mpich, bandwidth", "mpich, allreduce"],
        Family::OpenMpi4 => {
            ["open mpi 4, half round trip", "open mpi 4, bandwidth", "open mpi 4, allreduce"]
        }
        Family::OpenMpi5 => {
            ["open mpi 5, half round trip", "open mpi 5, bandwidth", "open mpi 5, allreduce"]
        }
        Family::Intel => ["intel, half round trip", "intel, bandwidth", "intel, allreduce"],
    }
}

fn names_without_rights(family: Family) -> [&'static str; 2] {
    match family {
        Family::Mpich => ["mpich without rights, half trip", "mpich without rights, bandwidth"],
        Family::OpenMpi4 => {
            ["open mpi 4 without rights, half trip", "open mpi 4 without rights, bandwidth"]
        }
        Family::OpenMpi5 => {
            ["open mpi 5 without rights, half trip", "open mpi 5 without rights, bandwidth"]
        }
        Family::Intel => ["intel without rights, half trip", "intel without rights, bandwidth"],
    }
}

/// Parses "weft-bench SIZE SECONDS" lines.
pub(crate) fn parse(said: &str) -> Vec<(usize, f64)> {
    let line = |line: &str| {
        let mut words = line.trim().strip_prefix("weft-bench ")?.split(' ');
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    said.lines().filter_map(line).collect()
}

impl Run<'_> {
    fn turns(&self) -> u32 {
        self.options.repeat()
    }

    fn seconds(&self) -> f64 {
        if self.options.quick {
            0.01
        } else {
            TURN
        }
    }

    fn sizes(&self, wanted: &[usize]) -> Vec<usize> {
        let chosen = &self.options.size;
        wanted.iter().copied().filter(|s| chosen.is_empty() || chosen.contains(s)).collect()
    }

    fn program(&self, mpi: &Mpi) -> Option<String> {
        let of = |i: &&Installed| i.mpi == *mpi;
        self.mpis.iter().find(of).map(|i| i.program.display().to_string())
    }

    /// Runs subjects in turn, each `repeat` times.
    fn measure(
        &mut self,
        hosts: Option<&Hosts>,
        each: usize,
        (mode, sizes): (&str, &[usize]),
        subjects: &[Subject],
    ) -> Vec<Figures> {
        let mut all = vec![Figures::new(); subjects.len()];
        let mut failed = vec![false; subjects.len()];
        for _ in 0..self.turns() {
            for (at, subject) in subjects.iter().enumerate() {
                self.bar.set_message(format!("{mode}, {} by {}", subject.name, subject.mpi));
                self.bar.inc(1);
                let Some(program) = self.program(&subject.mpi).filter(|_| !failed[at]) else {
                    continue;
                };
                let mut command = vec![program, mode.to_owned(), self.seconds().to_string()];
                command.extend(sizes.iter().map(usize::to_string));
                let folder = self.folder.0.clone();
                let job = Job { hosts, each, command: &command, folder: &folder, within: &[] };
                match job.run(subject) {
                    Ok(said) => {
                        for (size, seconds) in parse(&said) {
                            let by = format!("{} by {}", subject.name, subject.mpi);
                            kept::note(format!("{mode}, {size} B: {by}"), seconds);
                            all[at].entry(size).or_default().push(seconds);
                        }
                    }
                    Err(why) => {
                        failed[at] = true;
                        self.notes.push(format!("{mode}, {}: {why:#}", subject.mpi));
                    }
                }
            }
        }
        all
    }

    fn push(
        &mut self,
        (what, link, size): (&'static str, &'static str, usize),
        (unit, better): (&'static str, Better),
        ours: Option<Sample>,
        [floors, peers]: [Vec<Other>; 2],
        aim: Aim,
    ) {
        let Some(ours) = ours else {
            self.notes.push(format!("{what} over {link}, {size} B: not measured"));
            return;
        };
        let row = Row { what, size, ours, floors, peers };
        let (bench, rows, notes) = ("mpi", vec![row], Vec::new());
        let table = Table { bench, link, what, unit, better, rows, notes };
        self.checks.push(Check { table, aim, goal: None });
    }

    /// Measures half round trips between two hosts.
    fn between(&mut self) -> Result<()> {
        let sizes = self.sizes(&SIZES);
        if sizes.is_empty() {
            return Ok(());
        }
        let hosts = Hosts::start(2, MTU, &self.folder.0)?;
        let mpis: Vec<Mpi> = self.mpis.iter().map(|i| i.mpi.clone()).collect();
        let mut subjects: Vec<Subject> =
            mpis.iter().map(|mpi| over_weft(mpi, &self.provider, None, false)).collect();
        let unprivileged = |mpi| over_weft(mpi, &self.provider, Some("shm,udp,tcp"), false);
        subjects.extend(mpis.iter().map(unprivileged));
        subjects.extend(mpis.iter().flat_map(|mpi| over_tcp(mpi, false)));
        let got = self.measure(Some(&hosts), 1, ("pingpong", &sizes), &subjects);
        let floor = self.endpoint(sizes.contains(&16));
        for size in sizes {
            let of = |at: usize| Sample::of(got[at].get(&size).cloned().unwrap_or_default());
            let bulk = size >= 64 << 10;
            let convert = |s: Sample| match bulk {
                true => s.map(|s| size as f64 / s / 1e9),
                false => s.map(|s| s * 1e6),
            };
            let unit = if bulk { ("GB/s", Better::Higher) } else { ("us", Better::Lower) };
            let over_tcp = |of_one: Option<Family>| -> Vec<Other> {
                (2 * mpis.len()..subjects.len())
                    .filter(|&at| of_one.is_none_or(|family| subjects[at].mpi.family == family))
                    .map(|at| Other { name: subjects[at].name, sample: of(at).map(convert) })
                    .collect()
            };
            let peers = over_tcp(None);
            for (at, mpi) in mpis.iter().enumerate() {
                let what = names(mpi.family)[usize::from(bulk)];
                let near = |sample| vec![Other { name: "endpoint", sample }];
                let floors = if size == 16 { near(floor) } else { Vec::new() };
                let aim = target(size, floor.is_some());
                let ours = of(at).map(convert);
                self.push((what, "auto", size), unit, ours, [floors, peers.clone()], aim);
                if let Some((aim, beside)) = unprivileged_target(size) {
                    let ours = of(mpis.len() + at).map(convert);
                    let peers = if beside { over_tcp(Some(mpi.family)) } else { peers.clone() };
                    let aim = Aim { floor: None, peer: Some(aim) };
                    let what = names_without_rights(mpi.family)[usize::from(bulk)];
                    self.push((what, "unprivileged", size), unit, ours, [vec![], peers], aim);
                }
            }
        }
        Ok(())
    }

    /// Measures the one-way time of 8 bytes of weft's endpoint between two such hosts, in us.
    fn endpoint(&mut self, wanted: bool) -> Option<Sample> {
        if !wanted {
            return None;
        }
        let kind = Kind {
            link: super::LinkName::Auto.links(),
            config: CONFIG,
            place: Place::Between(MTU),
        };
        let mut pair = Pair::start(&kind).ok()?;
        let iters = if self.options.quick { 10 } else { 20_000 };
        let task = Task { probe: Probe::WeftPingPong, size: 8, iters, arg: 0 };
        let once = |_| match pair.run(&task).ok()? {
            super::rank::Outcome::Value(seconds) => Some(seconds * 1e6),
            _ => None,
        };
        let values: Vec<f64> = (0..self.turns()).filter_map(once).collect();
        Sample::of(values)
    }

    /// Measures inside one host, with all messages through weft, and with Open MPI's own shared
    /// memory.
    fn inside(&mut self) -> Result<()> {
        let sizes = self.sizes(&[8, 1 << 20]);
        let Some(mpi) = self.newest_open_mpi().filter(|_| !sizes.is_empty()) else {
            return Ok(());
        };
        let mut subjects = vec![over_weft(&mpi, &self.provider, None, true)];
        subjects.extend(over_tcp(&mpi, true));
        let got = self.measure(None, 2, ("pingpong", &sizes), &subjects);
        for size in sizes {
            let of = |at: usize| Sample::of(got[at].get(&size)?.clone());
            let bulk = size > 8;
            let convert = |s: Sample| match bulk {
                true => s.map(|s| size as f64 / s / 1e9),
                false => s.map(|s| s * 1e6),
            };
            let unit = if bulk { ("GB/s", Better::Higher) } else { ("us", Better::Lower) };
            let aim = Aim { floor: None, peer: Some(if bulk { 1.3 } else { 1.5 }) };
            let what = ["one host, half round trip", "one host, bandwidth"][usize::from(bulk)];
            let peers = vec![Other { name: subjects[1].name, sample: of(1).map(convert) }];
            self.push((what, "shm", size), unit, of(0).map(convert), [vec![], peers], aim);
        }
        Ok(())
    }

    /// Returns the number of jobs in all, for the progress bar.
    fn jobs(&self) -> u64 {
        let (turns, mpis) = (self.turns() as usize, self.mpis.len());
        let tcp = |mpi: &Mpi| over_tcp(mpi, false).len();
        let over_tcp: usize = self.mpis.iter().map(|i| tcp(&i.mpi)).sum();
        let wanted = |sizes: &[usize]| usize::from(!self.sizes(sizes).is_empty());
        let mut each = wanted(&SIZES) * (2 * mpis + over_tcp);
        each += usize::from(self.newest_open_mpi().is_some()) * wanted(&[8, 1 << 20]) * 2;
        each += (wanted(&[8]) + wanted(&[1024])) * (mpis + over_tcp);
        (turns * each) as u64
    }

    fn newest_open_mpi(&self) -> Option<Mpi> {
        let all = || self.mpis.iter().map(|i| &i.mpi);
        let of = |family| all().find(|m| m.family == family).cloned();
        of(Family::OpenMpi5).or_else(|| of(Family::OpenMpi4))
    }

    /// Measures sums over eight ranks on four hosts.
    fn collective(&mut self) -> Result<()> {
        if self.sizes(&[8]).is_empty() {
            return Ok(());
        }
        let hosts = Hosts::start(4, MTU, &self.folder.0)?;
        self.together(Some(&hosts), 2, ("allreduce", 8), 2, ("us", 1e6), 0.5)
    }

    /// Measures sixteen ranks on the cores that there are.
    fn load(&mut self) -> Result<()> {
        if self.sizes(&[1024]).is_empty() {
            return Ok(());
        }
        let hosts = Hosts::start(2, MTU, &self.folder.0)?;
        self.together(Some(&hosts), 8, ("ring", 1024), 3, ("ms", 1e3), 0.5)
    }

    /// Measures a mode in which all ranks take part.
    fn together(
        &mut self,
        hosts: Option<&Hosts>,
        each: usize,
        (mode, size): (&'static str, usize),
        column: usize,
        (unit, scale): (&'static str, f64),
        aim: f64,
    ) -> Result<()> {
        let mpis: Vec<Mpi> = self.mpis.iter().map(|i| i.mpi.clone()).collect();
        let mut subjects: Vec<Subject> =
            mpis.iter().map(|mpi| over_weft(mpi, &self.provider, None, true)).collect();
        subjects.extend(mpis.iter().flat_map(|mpi| over_tcp(mpi, false)));
        let got = self.measure(hosts, each, (mode, &[size]), &subjects);
        let of = |at: usize| {
            let sample = Sample::of(got[at].get(&size)?.clone())?;
            Some(sample.map(|s| s * scale))
        };
        let ours: Vec<Option<Sample>> = (0..mpis.len()).map(of).collect();
        let peers: Vec<Other> = (mpis.len()..subjects.len())
            .map(|at| Other { name: subjects[at].name, sample: of(at) })
            .collect();
        for (at, mpi) in mpis.iter().enumerate() {
            let what = match column {
                2 => names(mpi.family)[2],
                _ => match mpi.family {
                    Family::Mpich => "mpich, 16 ranks, a step",
                    Family::OpenMpi4 => "open mpi 4, 16 ranks, a step",
                    Family::OpenMpi5 => "open mpi 5, 16 ranks, a step",
                    Family::Intel => "intel, 16 ranks, a step",
                },
            };
            let aim = Aim { floor: None, peer: Some(aim) };
            let row = (what, "auto", size);
            self.push(row, (unit, Better::Lower), ours[at], [vec![], peers.clone()], aim);
        }
        Ok(())
    }

    /// Measures HPCC between two hosts.
    fn hpcc(&mut self) -> Result<()> {
        if !self.options.size.is_empty() || self.options.quick {
            return Ok(());
        }
        let Some(program) = hpcc::program() else {
            self.notes.push("hpcc is not installed (Debian: apt-get install hpcc)".into());
            return Ok(());
        };
        let of = |i: &&Installed| i.mpi.family == Family::OpenMpi4;
        let Some(mpi) = self.mpis.iter().find(of).map(|i| i.mpi.clone()) else {
            self.notes.push("hpcc: it needs Open MPI 4 (Debian: openmpi-bin)".into());
            return Ok(());
        };
        let hosts = Hosts::start(2, MTU, &self.folder.0)?;
        let mut subjects = vec![over_weft(&mpi, &self.provider, None, false)];
        subjects.extend(over_tcp(&mpi, false));
        let mut got = vec![[Vec::new(), Vec::new()]; subjects.len()];
        self.bar.inc_length(u64::from(self.turns().min(3)) * subjects.len() as u64);
        for _ in 0..self.turns().min(3) {
            for (at, subject) in subjects.iter().enumerate() {
                self.bar.set_message(format!("hpcc, {}", subject.name));
                self.bar.inc(1);
                let [rate, latency] = hpcc::run(&program, &hosts, subject)?;
                got[at][0].push(rate);
                got[at][1].push(latency * 1e6);
            }
        }
        let rows = [
            ("hpcc random access", ("Mupdates/s", Better::Higher), 2.0),
            ("hpcc ping-pong latency", ("us", Better::Lower), 0.5),
        ];
        for (at, (what, unit, aim)) in rows.into_iter().enumerate() {
            let ours = Sample::of(got[0][at].clone());
            let peers =
                vec![Other { name: subjects[1].name, sample: Sample::of(got[1][at].clone()) }];
            let aim = Aim { floor: None, peer: Some(aim) };
            self.push((what, "auto", 8), unit, ours, [vec![], peers], aim);
        }
        Ok(())
    }
}

/// Returns the target of ranks without rights: the ratio, and true if it is to the same MPI over
/// TCP, not to the best.
fn unprivileged_target(size: usize) -> Option<(f64, bool)> {
    match size {
        0 => Some((0.8, false)),
        0x2000..0x10000 => Some((1.05, true)),
        0x10000.. => Some((0.95, true)),
        _ => None,
    }
}

/// Returns the target at a size between hosts.
fn target(size: usize, endpoint: bool) -> Aim {
    let floor = Some(1.5).filter(|_| size == 16 && endpoint);
    let peer = match size {
        0..=16 => 0.45,
        17..=1024 => 0.5,
        1025..=8192 => 0.75,
        _ => 1.25,
    };
    Aim { floor, peer: Some(peer) }
}

/// Returns the MPIs that can use weft, each with the program compiled, and the reasons why others
/// are left out.
pub(crate) fn installed(folder: &Path) -> Result<(PathBuf, Vec<Installed>, Vec<String>)> {
    let source = in_c(folder, "program.c", include_str!("program.c"))?;
    let provider = judge::provider();
    let (all, mut notes) = detect::all();
    let mut mpis = Vec::new();
    for mpi in all {
        if let judge::Fit::No(fault) = judge::fit(&mpi, &provider).0 {
            notes.push(format!("{mpi} cannot use weft: {}; {}", fault.why, fault.remedy));
            continue;
        }
        match compile(&mpi, &source, folder, &["-O2"]) {
            Ok(program) => mpis.push(Installed { mpi, program }),
            Err(why) => notes.push(format!("{mpi} is left out: {why:#}")),
        }
    }
    match provider {
        Ok(provider) => Ok((provider.folder, mpis, notes)),
        Err(fault) => bail!("{}; {}", fault.why, fault.remedy),
    }
}

/// Returns the parts of the measurement, with lab hosts or without.
fn parts<'a>(lab: bool) -> Vec<fn(&mut Run<'a>) -> Result<()>> {
    match lab {
        true => vec![Run::between, Run::inside, Run::collective, Run::load, Run::hpcc],
        false => vec![Run::here],
    }
}

/// Measures and prints the results.
pub fn print(options: &Options, json: bool, out: &mut impl Write) -> Result<()> {
    let lab = rustix::process::geteuid().is_root();
    if !lab && options.netns == netns::Mode::On {
        bail!("the hosts between which MPIs are measured need root: run this with sudo");
    }
    let folder = Folder::new()?;
    let (provider, mpis, notes) = installed(&folder.0)?;
    if mpis.is_empty() {
        for note in &notes {
            eprintln!("weft bench: note: {note}");
        }
        bail!("no MPI here can use weft; `pip install mpich` is enough, `weft doctor` tells more");
    }
    if !lab {
        eprintln!("weft bench: note: {}", here::NOTE);
    }
    let bar = bar(0);
    let (checks, bar_of) = (Vec::new(), bar.clone());
    let mut run = Run { options, folder, provider, mpis, checks, notes, bar };
    bar_of.set_length(if lab { run.jobs() } else { run.jobs_here() });
    for part in parts(lab) {
        if let Err(why) = part(&mut run) {
            run.notes.push(format!("{why:#}"));
        }
    }
    bar_of.finish_and_clear();
    if json {
        for check in &run.checks {
            writeln!(out, "{}", check.json()?)?;
        }
        return Ok(());
    }
    let hosts = match lab {
        true => format!("hosts of a lab, MTU {MTU}; peers: the same MPIs over TCP"),
        false => here::NOTE.to_owned(),
    };
    run.notes.insert(0, hosts);
    writeln!(out, "{}", text("MPI programs", &run.checks, &run.notes))?;
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse__only_lines_of_the_program() {
        let said = "noise\nweft-bench 16 1.5e-06\nweft-bench x 1\n weft-bench 0 2e-6\n";
        assert_eq!(parse(said), [(16, 1.5e-6), (0, 2e-6)]);
    }

    #[test]
    fn over_tcp__no_subject_uses_weft() {
        for family in [Family::Mpich, Family::OpenMpi4, Family::OpenMpi5, Family::Intel] {
            let (version, launcher) = ("1".to_owned(), PathBuf::from("/m/bin/mpiexec"));
            let mpi = Mpi { family, version, launcher, prefix: "/m".into() };
            for near in [false, true] {
                let subjects = over_tcp(&mpi, near);
                assert!(!subjects.is_empty());
                for subject in subjects {
                    assert!(subject.set.iter().all(|(_, value)| !value.contains("weft")));
                    assert!(subject.extra.iter().all(|word| !word.contains("ofi")));
                }
            }
        }
    }
}

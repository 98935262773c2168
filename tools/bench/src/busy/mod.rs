//! `weft bench busy`: weft beside TCP on a busy host, where two others compute on each core; with
//! more ranks than cores, and in a container with half a core. Each row has the target that weft
//! takes no more than 1.1 of TCP's time.

mod container;
mod programs;

use crate::load::Load;
use crate::mpi::{self, job::Hosts};
use crate::pair::{Sample, Subject};
use crate::progress::Plan;
use crate::rank::{Channel, Probe};
use crate::table::{Better, Other, Row, Table};
use crate::target::{self, Aim, Check};
use crate::{names, sockets, Bench, LinkName, Options, MTU};
use anyhow::{Context, Result};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weft_run::folder::Folder;
use weft_run::interrupt::{hold, Interrupt};

/// Name of the benchmark.
const NAME: &str = "busy";
/// The largest part of TCP's time that weft may take.
const MOST: f64 = 1.1;
/// Threads that compute on each core.
const OTHERS: usize = 2;
/// The sizes of messages between endpoints, and between socket programs.
const SIZES: [usize; 3] = [8, 64 << 10, 1 << 20];
const ASKED: [usize; 2] = [64, 4 << 10];

/// The results of a part that is not printed yet.
#[derive(Default)]
struct Part {
    title: &'static str,
    checks: Vec<Check>,
    notes: Vec<String>,
}

/// State and results of the measurements.
struct Run<'a> {
    options: &'a Options,
    /// The reason why all is measured inside this host.
    inside: Option<String>,
    folder: Folder,
    plan: Plan,
    json: bool,
    tally: target::Tally,
    /// Locked while it is changed or printed: an interrupt prints what is there.
    part: Arc<Mutex<Part>>,
}

/// Prints a part as far as it was measured, and forgets it.
fn show(part: &mut Part, place: &str, json: bool, tally: &mut target::Tally) -> Result<()> {
    let Part { title, checks, mut notes } = std::mem::take(part);
    if checks.is_empty() && notes.is_empty() {
        return Ok(());
    }
    notes.insert(0, place.into());
    target::show_part(title, (&checks, &notes), json, tally, &mut std::io::stdout())
}

/// The name of a row, bytes of a message, and the link or place.
type Line = (&'static str, usize, &'static str);

impl Run<'_> {
    /// Adds a row of microseconds.
    fn push(&mut self, (what, size, link): Line, ours: Option<Sample>, peers: Vec<Other>) {
        let Some(ours) = ours else {
            return self.note(format!("{what}, {size} B: not measured"));
        };
        let row = Row { what, size, ours, floors: Vec::new(), peers };
        let (rows, notes, unit, better) = (vec![row], Vec::new(), "us", Better::Lower);
        let table = Table { bench: NAME, link, what, unit, better, rows, notes };
        let aim = Aim { peer: Some(MOST), floor: None };
        self.part().checks.push(Check { table, aim, goal: None });
    }

    fn part(&self) -> MutexGuard<'_, Part> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, why: String) {
        self.part().notes.push(why);
    }

    /// Says where it is measured.
    fn place(&self) -> String {
        match &self.inside {
            Some(why) => format!("inside this host: {why}"),
            None => format!("between hosts of a lab, MTU {MTU}; socket programs inside this host"),
        }
    }

    /// Measures one part and prints it.
    fn measure(
        &mut self,
        title: &'static str,
        measure: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.part().title = title;
        if let Err(why) = measure(self) {
            self.note(format!("{why:#}"));
        }
        // A signal may have ended the programs: then what there was is printed already.
        hold();
        let (place, mut tally) = (self.place(), self.tally);
        show(&mut self.part(), &place, self.json, &mut tally)?;
        self.tally = tally;
        Ok(())
    }

    fn sizes(&self, wanted: &[usize]) -> Vec<usize> {
        let chosen = &self.options.size;
        wanted.iter().copied().filter(|s| chosen.is_empty() || chosen.contains(s)).collect()
    }

    /// Starts hosts of a lab, unless all is measured inside this one.
    fn hosts(&self) -> Result<Option<Hosts>> {
        match self.inside {
            Some(_) => Ok(None),
            None => Hosts::start(2, MTU, &self.folder.0).map(Some),
        }
    }

    /// Returns the number of round trips of a repetition. It does not depend on a first try: one
    /// that fits into a turn of the scheduler is a thousand times as fast as one that does not.
    fn iters(&self, size: usize) -> u64 {
        match (self.options.quick, size) {
            (true, _) => 4,
            (_, ..=4096) => 4000,
            (_, ..=65_536) => 1000,
            _ => 100,
        }
    }

    /// The waits of endpoints, beside calls on TCP that spin and that sleep.
    fn endpoints(&mut self) -> Result<()> {
        let sizes = self.sizes(&SIZES);
        if sizes.is_empty() {
            return Ok(());
        }
        let _load = Load::start(OTHERS)?;
        let link = if self.inside.is_some() { LinkName::Udp } else { LinkName::Auto };
        let mut bench = Bench::start(link, self.options)?;
        bench.meter.plan = std::mem::take(&mut self.plan);
        for size in sizes {
            bench.meter.title = "endpoints".into();
            let iters = self.iters(size);
            let subject = |probe| Subject { iters, ..bench.bare(probe) };
            let ours = Subject { iters, ..Probe::WeftPingPong.into() };
            let spins = subject(Probe::PingPong(Channel::Tcp));
            let sleeps = subject(Probe::Exchange(Channel::Tcp));
            let subjects = [ours, spins, sleeps];
            let got = bench.measure(size, &subjects, |s| s * 1e6)?;
            let peers = vec![
                Other { name: "tcp, spinning", sample: got[1] },
                Other { name: "tcp, blocking", sample: got[2] },
            ];
            self.push(("endpoints, one way", size, link.name()), got[0], peers);
        }
        let size = 64 << 10;
        let iters = 10 * self.iters(size);
        let ours = Subject { iters, ..Probe::WeftBandwidth.into() };
        let tcp = Subject { iters, ..bench.bare(Probe::Stream(Channel::Tcp)) };
        if self.sizes(&[size]).contains(&size) {
            let got = bench.measure(size, &[ours, tcp], |s| s * 1e6)?;
            let peers = vec![Other { name: "tcp", sample: got[1] }];
            self.push(("endpoints, a message of many", size, link.name()), got[0], peers);
        }
        self.plan = std::mem::take(&mut bench.meter.plan);
        self.part().notes.append(&mut bench.meter.absent);
        Ok(())
    }

    /// Requests and answers of socket programs of this host, with the library and without.
    fn sockets(&mut self) -> Result<()> {
        let sizes = self.sizes(&ASKED);
        if sizes.is_empty() {
            return Ok(());
        }
        let _load = Load::start(OTHERS)?;
        let beside = sockets::Beside::start(self.options)?;
        for size in sizes {
            self.plan.show(format!("sockets, {size} B"));
            let [ours, tcp] = beside.one_way(size)?;
            let peers = vec![Other { name: "tcp", sample: tcp }];
            self.push(("socket programs, one way", size, "sockets"), ours, peers);
            self.plan.at(self.plan.done() + 1);
        }
        Ok(())
    }

    /// Names between hosts: the event of a claim, and a message to a name.
    fn names(&mut self) -> Result<()> {
        if self.inside.is_some() || !self.options.size.is_empty() {
            return Ok(());
        }
        let _load = Load::start(OTHERS)?;
        self.plan.show("names".into());
        let (checks, notes) = names::busy(self.options, MOST)?;
        let mut part = self.part();
        part.checks.extend(checks);
        part.notes.extend(notes);
        drop(part);
        self.plan.at(self.plan.done() + 1);
        Ok(())
    }
}

/// Returns the reason why hosts of a lab cannot be had for MPI programs.
fn why_inside(options: &Options, folder: &Folder) -> Option<String> {
    if options.netns == crate::netns::Mode::Off {
        return Some("--netns off".into());
    }
    if !rustix::process::geteuid().is_root() {
        return Some("hosts of a lab for MPI programs need root (sudo)".into());
    }
    Hosts::start(2, MTU, &folder.0).err().map(|why| format!("{why:#}"))
}

/// Measures all and prints the results, part by part. One that is interrupted prints what it has.
///
/// # Errors
/// The folder of the programs cannot be made, or nobody reads the results.
pub fn print(options: &Options, json: bool, interrupt: &Interrupt) -> Result<()> {
    let folder = Folder::new().context("the folder of the programs")?;
    let inside = why_inside(options, &folder);
    let (plan, part, tally) = (Plan::default(), Arc::default(), target::Tally::default());
    let mut run = Run { options, inside, folder, plan, json, tally, part };
    let (kept, place) = (run.part.clone(), run.place());
    interrupt.leaves(move || {
        let mut part = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = part.checks.len();
        match show(&mut part, &place, json, &mut target::Tally::default()) {
            Ok(()) => format!("{rows} rows of this part and all parts before are printed"),
            Err(why) => format!("{rows} rows lost: {why:#}"),
        }
    });
    match mpi::installed(&run.folder.0) {
        Ok((provider, mpis, notes)) => {
            run.part().notes = notes;
            let programs = programs::Programs { provider, mpis };
            for (title, part) in programs::PARTS {
                run.measure(title, |run| programs.measure(run, part))?;
            }
        }
        Err(why) => run.note(format!("MPI programs: {why:#}")),
    }
    run.measure("endpoints, two others compute on each core", Run::endpoints)?;
    run.measure("socket programs, two others compute on each core", Run::sockets)?;
    run.measure("names, two others compute on each core", Run::names)?;
    if !json {
        writeln!(std::io::stdout(), "{}", run.tally)?;
    }
    Ok(())
}

//! The applications on four ranks of this host beside one: `weft bench apps`, each target met or
//! not; ASP, QR and SOR beside the same programs over each MPI that is installed.

mod program;

pub use program::{App, Done, Way, APPS};

use crate::kept;
use crate::mpi::job::{compile, Job, Subject};
use crate::pair::Sample;
use crate::progress::Plan;
use crate::table::{Better, Other, Row, Table};
use crate::target::{self, Aim, Check};
use crate::Options;
use anyhow::{ensure, Context, Result};
use std::io::Write;
use std::path::PathBuf;
use weft_run::folder::Folder;
use weft_run::mpi::detect::{self, Family};

/// Ranks that are compared with one.
const RANKS: u32 = 4;
/// The most that the time of four ranks may be of that of one: 1.5 times the speed.
const MOST: f64 = 0.667;

/// Programs that have a form over MPI: `apps.c`.
const OVER_MPI: [&str; 3] = ["asp", "qr", "sor"];
/// The compiler's options: those of a release, without contraction, which changes bits.
const OPTIONS: [&str; 3] = ["-O3", "-ffp-contract=off", "-lm"];

/// An MPI, and the program compiled for it.
struct Installed {
    subject: Subject,
    program: PathBuf,
}

/// The MPIs of this host, over their own transports, with their programs.
struct Mpis {
    folder: Folder,
    all: Vec<Installed>,
}

impl Mpis {
    /// Finds and compiles; notes say which are left out, and why.
    fn find(notes: &mut Vec<String>) -> Result<Mpis> {
        let folder = Folder::new()?;
        let source = folder.0.join("apps.c");
        std::fs::write(&source, include_str!("../mpi/apps.c"))?;
        let (found, _) = detect::all();
        let mut all = Vec::new();
        for mpi in found {
            let name = match mpi.family {
                Family::Mpich => "mpich, 4 ranks",
                Family::OpenMpi4 => "open mpi 4, 4 ranks",
                Family::OpenMpi5 => "open mpi 5, 4 ranks",
                Family::Intel => "intel, 4 ranks",
            };
            match compile(&mpi, &source, &folder.0, &OPTIONS) {
                Ok(program) => {
                    let extra = crate::mpi::usual(mpi.family);
                    let subject = Subject { name, mpi, set: Vec::new(), extra };
                    all.push(Installed { subject, program });
                }
                Err(why) => notes.push(format!("{mpi} is left out: {why:#}")),
            }
        }
        if all.is_empty() {
            let which = OVER_MPI.join(", ");
            notes.push(format!("{which} over an MPI are left out: none is installed here"));
        }
        Ok(Mpis { folder, all })
    }

    /// Runs an application over an MPI.
    fn job(&self, one: &Installed, app: &App, options: &Options) -> Result<(f64, String)> {
        let size = app.words(options).last().context("a size")?;
        let command = [one.program.display().to_string(), app.name.into(), size.to_string()];
        let (each, folder) = (RANKS as usize, &self.folder.0);
        let said =
            Job { hosts: None, each, command: &command, folder, within: &[] }.run(&one.subject)?;
        let report = said.lines().find_map(|line| line.trim().strip_prefix("weft-app "));
        let (seconds, checksum) =
            report.and_then(|line| line.split_once(' ')).context("no report of the program")?;
        Ok((seconds.parse()?, checksum.trim().to_string()))
    }

    /// Measures an application over each MPI; its result has to be that of weft's.
    fn measure(
        &self,
        app: &App,
        options: &Options,
        expected: &str,
        notes: &mut Vec<String>,
    ) -> Vec<Other> {
        let all = self.all.iter().filter(|_| OVER_MPI.contains(&app.name));
        let one = |one: &Installed| -> Result<Vec<f64>> {
            let done = (0..options.repeat()).map(|_| self.job(one, app, options));
            let times = done.map(|done| {
                let (seconds, checksum) = done?;
                ensure!(checksum == expected, "it computed {checksum}, weft {expected}");
                Ok(seconds)
            });
            times.collect()
        };
        let figure = |installed: &Installed| {
            let name = installed.subject.name;
            let sample = match one(installed) {
                Ok(times) => Sample::of(times),
                Err(why) => {
                    notes.push(format!("{} over {}: {why:#}", app.name, installed.subject.mpi));
                    None
                }
            };
            Other { name, sample }
        };
        all.map(figure).collect()
    }
}

/// Measures one application.
fn measure(
    app: &App,
    options: &Options,
    mpis: &Mpis,
    (plan, notes): (&mut Plan, &mut Vec<String>),
) -> Result<Check> {
    let (mut four, mut one, mut result) = (Vec::new(), Vec::new(), String::new());
    for _ in 0..options.repeat() {
        plan.show(format!("{} on {RANKS} ranks and on one", app.name));
        let on = |ranks| app.run(app.words(options), &Way { ranks, ..Way::default() });
        let (many, alone) = (on(RANKS)?, on(1)?);
        let (name, a, b) = (app.name, &many.checksum, &alone.checksum);
        ensure!(a == b, "{name}: {RANKS} ranks computed {a}, one rank {b}");
        kept::note(format!("{name} on {RANKS} ranks"), many.seconds);
        kept::note(format!("{name} on 1 rank"), alone.seconds);
        four.push(many.seconds);
        one.push(alone.seconds);
        result = many.checksum;
        plan.at(plan.done() + 1);
    }
    let ours = Sample::of(four).context("no repetition")?;
    let peers = vec![Other { name: "1 rank", sample: Sample::of(one) }];
    let floors = mpis.measure(app, options, &result, notes);
    let row = Row { what: app.name, size: 0, ours, floors, peers };
    let (bench, link, what, unit) = ("apps", "shm", app.name, "s");
    let (rows, notes, better) = (vec![row], Vec::new(), Better::Lower);
    let table = Table { bench, link, what, unit, better, rows, notes };
    let aim = Aim { floor: None, peer: app.aimed.then_some(MOST) };
    Ok(Check { table, aim, goal: None })
}

/// Measures all and prints the results.
///
/// # Errors
/// The output cannot be written. An application that fails has a note.
pub fn print(options: &Options, json: bool, out: &mut impl Write) -> Result<()> {
    let mut plan = Plan::of(APPS.len() * options.repeat() as usize);
    let (mut checks, mut notes) = (Vec::new(), Vec::new());
    let mpis = Mpis::find(&mut notes)?;
    for app in &APPS {
        match measure(app, options, &mpis, (&mut plan, &mut notes)) {
            Ok(check) => checks.push(check),
            Err(why) => notes.push(format!("{why:#}")),
        }
    }
    let cores = weft::job::cores_of_host();
    notes.push(format!(
        "jobs of weft run on this host of {cores} cores, in turn; the results of four ranks and of \
         one, and of MPI programs, are the same bits; a target of {MOST} is 1.5 times the speed"
    ));
    target::show_all("apps", (&checks, &notes), json, out)
}

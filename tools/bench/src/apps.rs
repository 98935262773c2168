//! The applications on four ranks of this host beside one: `weft bench apps`, each target met or
//! not.

use crate::pair::Sample;
use crate::progress::Plan;
use crate::table::{Better, Other, Row, Table};
use crate::target::{self, Aim, Check};
use crate::Options;
use anyhow::{ensure, Context, Result};
use std::io::Write;
use std::process::{Command, Stdio};

/// Ranks that are compared with one.
const RANKS: u32 = 4;
/// A job that takes more seconds than this hangs.
const TIMEOUT: &str = "1800";
/// The most that the time of four ranks may be of that of one: 1.5 times the speed.
const MOST: f64 = 0.667;

/// An application: its name, the options of the paper's input and of a small one, and true if it
/// has a target.
struct App {
    name: &'static str,
    full: &'static [&'static str],
    small: &'static [&'static str],
    aimed: bool,
}

const APPS: [App; 8] = [
    App { name: "asp", full: &["--nodes", "1024"], small: &["--nodes", "64"], aimed: true },
    App { name: "awari", full: &["--stones", "12"], small: &["--stones", "4"], aimed: true },
    App { name: "barnes", full: &["--bodies", "16384"], small: &["--bodies", "200"], aimed: true },
    App {
        name: "leq",
        full: &["--equations", "1000"],
        small: &["--equations", "30"],
        aimed: false,
    },
    App { name: "puzzle", full: &["--korf", "80"], small: &["--korf", "79"], aimed: true },
    App { name: "qr", full: &["--size", "1024"], small: &["--size", "24"], aimed: true },
    App { name: "radix", full: &["--keys", "3000000"], small: &["--keys", "2000"], aimed: false },
    App { name: "sor", full: &["--size", "1536"], small: &["--size", "40"], aimed: false },
];

/// A run's time and result.
struct Done {
    seconds: f64,
    checksum: String,
}

/// Runs an application on so many ranks.
fn job(app: &App, ranks: u32, options: &Options) -> Result<Done> {
    let weft = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(&weft);
    command.args(["run", "--ranks", &ranks.to_string(), "--timeout", TIMEOUT]).arg(&weft);
    command.args(["app", app.name, "--json"]);
    command.args(if options.quick { app.small } else { app.full });
    let done = command.stdin(Stdio::null()).output().context("starting weft run")?;
    let errors = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{} on {ranks} ranks: {}", app.name, errors.trim());
    let text = String::from_utf8_lossy(&done.stdout);
    let line = text.lines().last().context("no report")?;
    let report: serde_json::Value = serde_json::from_str(line).context("the report of a job")?;
    let seconds = report["seconds"].as_f64().context("seconds of the report")?;
    let checksum = report["checksum"].as_str().context("checksum of the report")?.to_string();
    Ok(Done { seconds, checksum })
}

/// Measures one application.
fn measure(app: &App, options: &Options, plan: &mut Plan) -> Result<Check> {
    let (mut four, mut one) = (Vec::new(), Vec::new());
    for _ in 0..options.repeat() {
        plan.show(format!("{} on {RANKS} ranks and on one", app.name));
        let (many, alone) = (job(app, RANKS, options)?, job(app, 1, options)?);
        let (name, a, b) = (app.name, &many.checksum, &alone.checksum);
        ensure!(a == b, "{name}: {RANKS} ranks computed {a}, one rank {b}");
        four.push(many.seconds);
        one.push(alone.seconds);
        plan.at(plan.done() + 1);
    }
    let ours = Sample::of(four).context("no repetition")?;
    let peers = vec![Other { name: "1 rank", sample: Sample::of(one) }];
    let row = Row { what: app.name, size: 0, ours, floors: Vec::new(), peers };
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
    for app in &APPS {
        match measure(app, options, &mut plan) {
            Ok(check) => checks.push(check),
            Err(why) => notes.push(format!("{why:#}")),
        }
    }
    let cores = weft::job::cores_of_host();
    notes.push(format!(
        "jobs of weft run on this host of {cores} cores, in turn; the results of four ranks and of \
         one are the same bits; a target of {MOST} is 1.5 times the speed"
    ));
    target::show_all("apps", (&checks, &notes), json, out)
}

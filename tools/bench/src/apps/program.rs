//! Applications as jobs: the paper's inputs, and one run of one of them.

use crate::Options;
use anyhow::{ensure, Context, Result};
use serde::Deserialize;
use std::process::{Command, Stdio};
use weft_run::interrupt;
use weft_run::program;

/// A job that takes more seconds than this hangs.
const TIMEOUT: &str = "1800";

/// An application: its name, the options of the paper's input and of a small one, and true if four
/// ranks beside one have a target.
pub struct App {
    pub name: &'static str,
    full: &'static [&'static str],
    small: &'static [&'static str],
    pub aimed: bool,
}

/// The applications.
pub const APPS: [App; 9] = [
    App { name: "asp", full: &["--nodes", "1024"], small: &["--nodes", "64"], aimed: true },
    App { name: "awari", full: &["--stones", "13"], small: &["--stones", "4"], aimed: true },
    App {
        name: "barnes",
        full: &["--bodies", "16384", "--steps", "11"],
        small: &["--bodies", "200"],
        aimed: true,
    },
    App {
        name: "dd",
        full: &["--example", "laser"],
        small: &["--tolerance", "1e-2"],
        aimed: false,
    },
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

/// The place of the ranks of a job, and its settings.
#[derive(Clone, Debug, Default)]
pub struct Way<'a> {
    /// Number of ranks.
    pub ranks: u32,
    /// A lab, which has a host for each rank; `None` is this host.
    pub lab: Option<&'a str>,
    /// The link; `None` is the default.
    pub link: Option<&'a str>,
    /// True to start an agent on each host.
    pub agent: bool,
    /// Settings.
    pub set: Vec<(&'static str, String)>,
}

/// Packets and bytes that came to all ranks together.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Traffic {
    pub packets: u64,
    pub bytes: u64,
    pub acknowledgements: u64,
}

/// The report of a run, as far as it is read here.
#[derive(Clone, Debug, Deserialize)]
pub struct Done {
    pub seconds: f64,
    pub checksum: String,
    pub traffic: Traffic,
}

/// Returns the lines of a job's errors, without warnings if there is more.
fn errors(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let errors: Vec<&str> = said.lines().filter(|line| !line.contains(": warn: ")).collect();
    let text = if errors.is_empty() { said.into_owned() } else { errors.join("\n") };
    text.trim().to_string()
}

impl App {
    /// Returns the options of the paper's input, or in a quick run of a small one.
    pub fn words(&self, options: &Options) -> &'static [&'static str] {
        if options.quick {
            self.small
        } else {
            self.full
        }
    }

    /// Runs the application with these options.
    ///
    /// # Errors
    /// The job fails, or prints no report.
    pub fn run(&self, words: &[&str], way: &Way<'_>) -> Result<Done> {
        let weft = program::weft()?;
        let (mut command, ranks) = (Command::new(&weft), way.ranks.to_string());
        let more = |word: &str| match way.lab {
            Some(_) => format!("--with={word}"),
            None => word.to_owned(),
        };
        match way.lab {
            Some(lab) => command.args(["lab", "--name", lab, "run"]),
            None => command.arg("run"),
        };
        command.args(["--ranks", &ranks, &more(&format!("--timeout={TIMEOUT}"))]);
        command.args(way.link.into_iter().flat_map(|link| ["--link", link]));
        command.args(way.agent.then(|| more("--agent")));
        command.envs(way.set.iter().map(|(name, value)| (name, value)));
        command.arg("--").arg(&weft).args(["app", self.name, "--json"]).args(words);
        interrupt::hold();
        let done = command.stdin(Stdio::null()).output().context("starting weft run")?;
        ensure!(done.status.success(), "{} on {ranks} ranks: {}", self.name, errors(&done.stderr));
        let text = String::from_utf8_lossy(&done.stdout);
        let line = text.lines().last().context("no report")?;
        serde_json::from_str(line).context("the report of a job")
    }
}

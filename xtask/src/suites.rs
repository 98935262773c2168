//! `cargo xtask test`: every suite in order, then one table.

use crate::run::{cargo, counted, output_of, succeeds, Outcome};
use crate::{book, consumers, fuzz, install, mpi, package, programs, registry, setup, tidy, torch};
use std::process::Command;
use std::time::{Duration, Instant};

struct Suite {
    name: &'static str,
    what: &'static str,
    when: When,
    run: fn() -> Outcome,
}

/// The runs that include a suite, unless `--suite` names the suites. `--all` includes every one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Every run, `--quick` too.
    Quick,
    /// All but `--quick`: every change has to pass it.
    Change,
    /// A run with `--all` alone: it takes long.
    Long,
}
use When::{Change, Long, Quick};

impl When {
    /// Returns the remark of the list of suites.
    fn note(self) -> &'static str {
        match self {
            Quick | Change => "",
            Long => " (with --all, or by its name)",
        }
    }
}

const fn suite(name: &'static str, when: When, run: fn() -> Outcome, what: &'static str) -> Suite {
    Suite { name, what, when, run }
}

const SUITES: &[Suite] = &[
    suite("fmt", Quick, fmt, "source is formatted"),
    suite("tidy", Quick, house_rules, "house rules"),
    suite("purity", Quick, purity, "the engine needs no operating system"),
    suite("clippy", Change, clippy, "lints, warnings denied"),
    suite("test", Quick, tests, "unit and integration tests"),
    suite("mpi", Change, mpi::suite, "MPI programs, with MPICH"),
    suite("mpis", Long, mpi::whole, "MPI programs, with all MPIs"),
    suite("consumers", Long, consumers::suite, "programs and test suites of others"),
    suite("torch", Long, torch::suite, "torch.distributed over weft, with torch from PyPI"),
    suite("install", Change, install::suite, "installed, used and removed"),
    suite("doc", Change, doc, "documentation builds, links resolve"),
    suite("loom", Change, loom, "all interleavings of the rings"),
    suite("swarm", Change, swarm, "simulated clusters from a few seeds"),
    suite("seeds", Long, seeds, "simulated clusters from many seeds"),
    suite("book", Long, book::suite, "the book builds, links resolve, search finds"),
    suite("large", Long, large, "messages beyond 4 GiB, long searches"),
    suite("fuzz", Long, fuzz::smoke, "a few seconds of every fuzz target"),
    suite("registry", Long, registry::suite, "crates and documentation are ready for registries"),
    suite("package", Long, package::suite, "packages, installed in clean roots"),
];

/// Runs the task.
pub fn main(args: &[String]) -> Result<bool, String> {
    let (mut quick, mut all) = (false, false);
    let mut wanted: Vec<&str> = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => quick = true,
            "--all" => all = true,
            "--list" => {
                SUITES.iter().for_each(|s| println!("{:8} {}{}", s.name, s.what, s.when.note()));
                return Ok(true);
            }
            "--suite" => wanted.push(args.next().ok_or("--suite wants a name")?),
            word if wanted.contains(&"consumers") && consumers::takes(word) => {}
            other => return Err(format!("unknown option {other}")),
        }
    }
    if let Some(unknown) = wanted.iter().find(|w| !SUITES.iter().any(|s| s.name == **w)) {
        return Err(format!("no suite {unknown}; `cargo xtask test --list` names them"));
    }
    let chosen = |s: &&Suite| {
        if wanted.is_empty() {
            all || s.when == Quick || s.when == Change && !quick
        } else {
            wanted.contains(&s.name)
        }
    };
    let skipped = setup::install_tools().into_iter().chain(setup::install_packages());
    skipped.for_each(|line| println!("note: {line}"));
    Ok(run_all(SUITES.iter().filter(chosen)))
}

fn run_all<'a>(suites: impl Iterator<Item = &'a Suite>) -> bool {
    let mut rows = Vec::new();
    for suite in suites {
        println!("\n==== {}: {} ====", suite.name, suite.what);
        let start = Instant::now();
        let outcome = (suite.run)();
        rows.iter_mut().for_each(|(_, before, _): &mut Row| before.leave_to(&outcome));
        rows.push((suite.name, outcome, start.elapsed()));
    }
    let total = table(&rows);
    println!("\n{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    total.failed == 0
}

/// A suite, its result, and its duration.
type Row<'a> = (&'a str, Outcome, Duration);

fn table(rows: &[Row<'_>]) -> Outcome {
    println!(
        "\n{:8} {:6} {:>7} {:>7} {:>7} {:>8}",
        "suite", "", "passed", "failed", "skipped", "s"
    );
    let mut total = Outcome::default();
    for (name, o, took) in rows {
        let word = match o {
            Outcome { failed: 1.., .. } => "FAIL",
            Outcome { passed: 0, .. } => "skip",
            _ => "pass",
        };
        let seconds = took.as_secs_f64();
        println!(
            "{name:8} {word:6} {:>7} {:>7} {:>7} {seconds:>8.1}",
            o.passed, o.failed, o.skipped
        );
        o.notes.iter().for_each(|note| println!("         {note}"));
        total.add(o.clone());
    }
    total
}

fn fmt() -> Outcome {
    Outcome::one(succeeds(&mut cargo(&["fmt", "--all", "--check"])))
}

fn house_rules() -> Outcome {
    match tidy::run(&crate::root()) {
        Ok((passed, failed)) => Outcome { passed, failed, ..Outcome::default() },
        Err(why) => Outcome::one(false).note(why),
    }
}

/// Builds the engine for a target that has no operating system. Where the target is not available,
/// an empty dependency graph and `no_std` (tidy's rule `purity`) replace it.
fn purity() -> Outcome {
    if setup::bare_target() {
        let args = ["build", "--package", "weft-core", "--target", setup::BARE_TARGET];
        let note = format!("proof: weft-core builds for {}", setup::BARE_TARGET);
        return Outcome::one(succeeds(&mut cargo(&args))).note(note);
    }
    let args = ["tree", "--package", "weft-core", "--edges", "normal,build", "--prefix", "none"];
    let alone = output_of(&mut cargo(&args)).is_some_and(|tree| tree.lines().count() == 1);
    Outcome::one(alone).note("proof: weft-core is no_std and depends on no crate (no bare target)")
}

fn clippy() -> Outcome {
    let args = ["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    Outcome::one(succeeds(&mut cargo(&args)))
}

fn tests() -> Outcome {
    if !mpi::programs() {
        return Outcome::one(false).note("a library or a command does not build");
    }
    programs::run()
}

fn doc() -> Outcome {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
    Outcome::one(succeeds(command.env("RUSTDOCFLAGS", "--deny warnings")))
}

/// A target folder of its own: `--cfg loom` would otherwise rebuild everything twice.
fn loom() -> Outcome {
    let target = crate::root().join("target").join("loom");
    let mut outcome = Outcome::default();
    for package in ["weft-link", "weft-streams"] {
        let mut command = cargo(&["test", "--package", package, "--release", "--lib", "loom"]);
        let command = command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", &target);
        let of_package = counted(command);
        if of_package == Outcome::default() {
            outcome
                .add(Outcome::one(false).note("no loom tests in a package that should have some"));
        }
        outcome.add(of_package);
    }
    outcome
}

fn large() -> Outcome {
    let mut outcome = Outcome::default();
    let long = ["test", "-p", "weft-puzzle", "-p", "weft-awari", "--test", "sequential"];
    for test in [&["test", "--workspace", "--test", "large"][..], &long] {
        outcome.add(counted(cargo(test).args(["--", "--ignored"])));
    }
    outcome
}

/// Seeds of each swarm for every change.
const FEW_SEEDS: &str = "0..40";
/// Seeds of each swarm for the long run, unless `WEFT_SEEDS` names others.
const MANY_SEEDS: &str = "0..400";
const SEEDS: &str = "WEFT_SEEDS";

fn swarm() -> Outcome {
    swarms(FEW_SEEDS)
}

fn seeds() -> Outcome {
    let seeds = std::env::var(SEEDS).unwrap_or_else(|_| MANY_SEEDS.to_string());
    swarms(&seeds).note(format!("{SEEDS}=A..B for others"))
}

fn swarms(seeds: &str) -> Outcome {
    // The build of the tests, which exists already: the one with optimisation takes longer to build
    // than it saves.
    if !mpi::programs() {
        return Outcome::one(false).note("a library or a command does not build");
    }
    let weft = install::target(true).join("weft");
    let note = format!(
        "seeds {seeds}, with agents and without, with multicast and counters and without, of each \
         model"
    );
    let mut outcome = Outcome::default();
    let kinds: [&[&str]; 5] =
        [&[], &["--agents"], &["--services"], &["--agents", "--services"], &["--model", "all"]];
    for kind in kinds {
        let mut command = Command::new(&weft);
        command.args(["sim", "swarm", "--seeds", seeds]).args(kind).current_dir(crate::root());
        outcome.add(counted(&mut command));
    }
    outcome.note(note)
}

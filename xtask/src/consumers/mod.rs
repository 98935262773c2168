//! The suite `consumers`: programs and test suites of others over weft.
//!
//! `cargo xtask test --suite consumers [NAME]... [--write]` installs each consumer from Debian or
//! PyPI below `target/consumers`, runs its own tests over weft's provider, inside this host and
//! between two hosts of a lab, and prints a table. A test that fails is run up to three times over
//! the usual carrier: it counts as a failure of weft if it passes there each time. `--write`
//! writes the table in `docs/results/consumers.md`.

mod debian;
mod job;
mod named;
mod page;
mod pypi;
mod site;
mod table;
mod tally;

use crate::environment::{self, Base, Missing};
use crate::run::Outcome;
use job::{Carrier, Job, Place};
use site::Site;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use table::{Report, Row};
use tally::Tally;

/// A consumer: its name, and the function that installs it and returns its jobs.
struct Consumer {
    name: &'static str,
    prepare: fn(&Site) -> Result<Ready, Missing>,
}

const CONSUMERS: &[Consumer] = &[
    Consumer { name: "mumps", prepare: debian::mumps },
    Consumer { name: "scalapack", prepare: debian::scalapack },
    Consumer { name: "h5py", prepare: debian::h5py },
    Consumer { name: "petsc4py", prepare: debian::petsc4py },
    Consumer { name: "mpi4jax", prepare: pypi::mpi4jax },
    Consumer { name: "mpi4jax-mpich", prepare: pypi::mpi4jax_mpich },
    Consumer { name: "heat", prepare: pypi::heat },
    Consumer { name: "dask-mpi", prepare: pypi::dask },
    Consumer { name: "horovod", prepare: pypi::horovod },
    Consumer { name: "charm4py", prepare: pypi::charm4py },
    Consumer { name: "shmem4py", prepare: pypi::shmem4py },
    Consumer { name: "charm", prepare: named::charm },
    Consumer { name: "ampi", prepare: named::ampi },
    Consumer { name: "charm-smp", prepare: named::smp },
    Consumer { name: "charm-often", prepare: named::often },
    Consumer { name: "faults", prepare: named::faults },
    Consumer { name: "openshmem", prepare: named::shmem },
    Consumer { name: "gasnet", prepare: named::gasnet },
    Consumer { name: "lci", prepare: named::lci },
    Consumer { name: "lamellar", prepare: named::lamellar },
];

/// The option that writes the table in the results.
const WRITE: &str = "--write";
/// The variable with the value `all` for tests of every precision and more numbers of ranks.
const HOW_MUCH: &str = "WEFT_TEST_CONSUMERS";

/// Most runs over the usual carrier that a failure is compared with: some tests fail there in some
/// runs alone.
const COMPARISONS: usize = 3;

/// The variables of the suite.
const VARIABLES: &[&str] = &[
    HOW_MUCH,
    "WEFT_BUILT",
    "WEFT_CHARM",
    "WEFT_CHARM_SMP",
    "WEFT_AMPI",
    "WEFT_SHMEM",
    "WEFT_GASNET",
    "WEFT_LCI",
    "WEFT_LAMELLAR",
];

/// A consumer that can be run.
struct Ready {
    version: String,
    /// The MPI, or the launcher of programs without one.
    over: String,
    jobs: Vec<Job>,
    /// The reason why it is not run between hosts.
    only_host: Option<&'static str>,
    /// The places of its runs.
    places: &'static [Place],
    /// Number of runs of each job in a row.
    runs: usize,
}

impl Ready {
    fn new(version: String, over: String, jobs: Vec<Job>) -> Ready {
        let places = &[Place::Host, Place::Lab];
        Ready { version, over, jobs, only_host: None, places, runs: 1 }
    }
}

/// An environment of Python for a consumer.
struct Python {
    folder: PathBuf,
    /// The path of the interpreter.
    program: String,
}

impl Python {
    fn prepare(site: &Site, name: &str, base: Base, packages: &[&str]) -> Result<Python, Missing> {
        let folder = site.cache.join("python").join(name);
        environment::install(base, &folder, packages)?;
        let program = folder.join("bin/python").display().to_string();
        Ok(Python { folder, program })
    }
}

/// Returns the path of a program of this suite.
fn program(name: &str) -> String {
    crate::root().join("xtask/src/consumers/programs").join(name).display().to_string()
}

/// Returns true for a word behind `--suite consumers`: a consumer, or the option of the suite.
pub fn takes(word: &str) -> bool {
    word == WRITE || CONSUMERS.iter().any(|consumer| consumer.name == word)
}

/// Runs the consumers that the command line names, or all.
pub fn suite() -> Outcome {
    let site = match Site::prepare(std::env::var(HOW_MUCH).is_ok_and(|much| much == "all")) {
        Ok(site) => site,
        Err(why) => return Outcome::one(false).note(why),
    };
    let named: Vec<String> = std::env::args().filter(|word| takes(word)).collect();
    let is_wanted = |name: &str| {
        named.iter().all(|word| word == WRITE) || named.iter().any(|word| word == name)
    };
    let mut outcome = Outcome::default();
    if let Some(why) = site.no_lab() {
        outcome.add(Outcome::skip(format!("skipped consumers between two hosts: {why}")));
    }
    let mut reports = Vec::new();
    for consumer in CONSUMERS.iter().filter(|consumer| is_wanted(consumer.name)) {
        println!("\n{}", consumer.name);
        let report = run(&site, consumer);
        if let Err(why) = report.store(&site.cache) {
            outcome.add(Outcome::one(false).note(why));
        }
        outcome.add(report.outcome());
        reports.push(report);
    }
    table::print(&reports);
    if named.iter().any(|word| word == WRITE) {
        let names: Vec<&str> = CONSUMERS.iter().map(|consumer| consumer.name).collect();
        if let Err(why) = page::write(&site, &names) {
            outcome.add(Outcome::one(false).note(why));
        }
    }
    outcome
}

/// Installs and runs one consumer.
fn run(site: &Site, consumer: &Consumer) -> Report {
    let mut report = Report::of(consumer.name);
    let ready = match (consumer.prepare)(site) {
        Ok(ready) => ready,
        Err(Missing::Means(why)) => {
            println!("  skipped: {why}");
            report.skipped = Some(why);
            return report;
        }
        Err(Missing::Refused(why)) => {
            println!("  failed: {why}");
            report.failures.push(why);
            return report;
        }
    };
    for &place in ready.places {
        if place != Place::Host && site.no_lab().is_some() {
            continue;
        }
        match ready.only_host.filter(|_| place != Place::Host) {
            Some(why) => report.remarks.push(format!("{}{why}", page::OPENINGS[3])),
            None => run_at(site, &ready, place, &mut report),
        }
    }
    report
}

/// Runs the jobs of a consumer at a place; compares failures with the usual carrier.
fn run_at(site: &Site, ready: &Ready, place: Place, report: &mut Report) {
    let (mut total, mut own, mut seconds) = (Tally::default(), 0, 0.0);
    let jobs = ready.jobs.iter().filter(|job| job.ranks % place.hosts() == 0);
    for job in &jobs.flat_map(|job| job.in_a_row(ready.runs)).collect::<Vec<Job>>() {
        let (tally, took) = job.run(site, place, Carrier::Weft);
        let (tests, failed) = (tally.tests, tally.failed.len());
        println!("  {}, {}: tests {tests}, failed {failed}, {took:.1} s", job.name, place.name());
        total.add(&tally);
        seconds += took;
        if tally.failed.is_empty() {
            continue;
        }
        let compared = job.is_comparable(site, place);
        let mut usual = BTreeSet::new();
        for _ in 0..if compared { COMPARISONS } else { 0 } {
            usual.extend(job.run(site, place, Carrier::Usual).0.failed);
            if tally.failed.is_subset(&usual) {
                break;
            }
        }
        for test in tally.failed {
            let at = format!("{test} ({})", place.name());
            let is_own = usual.contains(&test);
            println!("    {at} {}", if is_own { "fails likewise without weft" } else { "FAILED" });
            if is_own {
                own += 1;
                report.remarks.push(format!("{}{at}", page::OPENINGS[2]));
            } else {
                let how = if compared { "" } else { "; the usual carrier starts no ranks here" };
                report.failures.push(format!("{at}{how}"));
            }
        }
    }
    report.rows.push(Row {
        version: ready.version.clone(),
        over: ready.over.clone(),
        place: place.name(),
        tests: total.tests,
        own,
        failed: u32::try_from(total.failed.len()).unwrap_or(u32::MAX) - own,
        skipped: total.skipped,
        took: Duration::from_secs_f64(seconds),
    });
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn takes__names_of_consumers_and_the_option() {
        assert!(takes("mumps") && takes("charm") && takes(WRITE));
        assert!(!takes("--quick") && !takes("mpi"));
    }

    #[test]
    fn programs__are_there() {
        for name in ["collective_hdf5.py", "distributed_arrays.py"] {
            assert!(std::path::Path::new(&program(name)).is_file(), "{name}");
        }
    }
}

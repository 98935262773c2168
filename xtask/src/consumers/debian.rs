//! Consumers that Debian packages for its Open MPI: ScaLAPACK, MUMPS, PETSc and HDF5.

use super::job::Job;
use super::site::Site;
use super::tally;
use super::{Python, Ready};
use crate::environment::{self, Base, Missing};
use crate::run::{output_of, succeeds};
use crate::setup;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Debian's Open MPI.
pub const MPIEXEC: &str = "/usr/bin/mpiexec.openmpi";

/// Debian's Python, for which it has packages of consumers.
pub const PYTHON: &str = "/usr/bin/python3";

/// Returns the version of an installed package.
pub fn version(package: &str) -> Option<String> {
    let mut query = Command::new("dpkg-query");
    let said = output_of(query.args(["-W", "-f", "${db:Status-Status} ${Version}", package]))?;
    said.strip_prefix("installed ").map(str::to_string)
}

/// Installs those packages that are missing.
pub fn install(packages: &[&str]) -> Result<(), Missing> {
    let missing = |packages: &[&str]| -> Vec<String> {
        packages.iter().filter(|p| version(p).is_none()).map(|p| (*p).to_string()).collect()
    };
    let wanted = missing(packages);
    if wanted.is_empty() {
        return Ok(());
    }
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    if setup::install_debian(&wanted) {
        return Ok(());
    }
    let missing = missing(packages).join(", ");
    Err(Missing::Means(format!("apt-get does not install {missing} (as root of a Debian)")))
}

/// Returns the name and version of Debian's Open MPI.
pub fn mpi() -> String {
    let version = version("openmpi-bin").unwrap_or_default();
    format!("Open MPI {}", version.split('-').next().unwrap_or_default())
}

/// Returns a version without Debian's own part.
fn upstream(package: &str) -> String {
    let version = version(package).unwrap_or_default();
    version.split(['-', '+']).next().unwrap_or_default().to_string()
}

/// Returns the entries of `/usr/lib/*/PATH`, of this processor's folder.
fn library(path: &str) -> Result<PathBuf, Missing> {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let found = folders.map(|folder| folder.path().join(path)).find(|path| path.exists());
    found.ok_or(Missing::Means(format!("there is no /usr/lib/*/{path}")))
}

/// ScaLAPACK's own test programs, with those of its BLACS and PBLAS; four ranks each, as its own
/// build runs them. All precisions where all is wanted, otherwise double.
pub fn scalapack(site: &Site) -> Result<Ready, Missing> {
    install(&["scalapack-mpi-test", "scalapack-test-common", "openmpi-bin"])?;
    let from = library("scalapack/openmpi-tests")?;
    let folder = site.cache.join("scalapack");
    let _old = std::fs::remove_dir_all(&folder);
    // The programs write beside their input, and links to it are relative.
    let mut copy = Command::new("cp");
    if !succeeds(copy.arg("-rL").arg(&from).arg(&folder)) {
        return Err(Missing::Means(format!("{} cannot be copied", from.display())));
    }
    let mut jobs = Vec::new();
    for (part, read) in [
        ("", tally::scalapack as fn(&str) -> Option<tally::Tally>),
        ("BLACS", tally::column),
        ("PBLAS", tally::pblas),
    ] {
        let folder = folder.join(part);
        for program in programs(&folder) {
            let is_blacs = program.ends_with("btest");
            let is_double = program.starts_with("xd") || program.starts_with("dp");
            // The programs of BLACS lie beside the others too, without their input.
            if is_blacs != (part == "BLACS") || !(site.whole || is_double || program == "xCbtest") {
                continue;
            }
            let words = [format!("./{program}")];
            let job = Job::mpi(&program, Path::new(MPIEXEC), 4, &[&words[0]]);
            let folder = folder.clone();
            jobs.push(Job { folder, read, aborts: part == "BLACS", ..job });
        }
    }
    Ok(Ready::new(upstream("scalapack-mpi-test"), mpi(), jobs))
}

/// Returns the names of the programs of a folder, in order.
fn programs(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.path().is_file());
    let names = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| !name.contains('.')).collect();
    names.sort();
    names
}

/// MUMPS's small systems, in four kinds of numbers.
pub fn mumps(_: &Site) -> Result<Ready, Missing> {
    install(&["mumps-test", "openmpi-bin"])?;
    let mut jobs = Vec::new();
    for (kind, input) in [("s", "real"), ("d", "real"), ("c", "cmplx"), ("z", "cmplx")] {
        for ranks in [2, 4] {
            let program = format!("exec ./{kind}simpletest < input_simpletest_{input}");
            let name = format!("{kind}simpletest on {ranks}");
            let job = Job::mpi(&name, Path::new(MPIEXEC), ranks, &["sh", "-c", &program]);
            jobs.push(Job { folder: "/usr/lib/mumps".into(), read: tally::mumps, ..job });
        }
    }
    Ok(Ready::new(upstream("mumps-test"), mpi(), jobs))
}

/// petsc4py's tests, all in one job of two ranks.
pub fn petsc4py(site: &Site) -> Result<Ready, Missing> {
    install(&["python3-petsc4py", "python3-numpy", "python3-venv", "openmpi-bin"])?;
    let version = upstream("python3-petsc4py");
    let short = version.rsplit_once('.').map_or(version.as_str(), |(short, _)| short);
    let parts = std::fs::read_dir(format!("/usr/lib/petscdir/petsc{short}"));
    let mut parts = parts.into_iter().flatten().flatten().map(|entry| entry.path());
    let petsc = parts.find(|part| part.to_string_lossy().ends_with("-real"));
    let petsc = petsc.ok_or(Missing::Means("PETSc of real numbers is not installed".into()))?;
    let petsc = petsc.display().to_string();
    let python = Python::prepare(site, "system", Base::System, &["--no-deps", "pytest-mpi==0.6"])?;
    let source = site.cache.join("petsc4py");
    let package = format!("petsc4py=={version}");
    environment::source(&python.folder, &package, &source, &[("PETSC_DIR", &petsc)])?;
    let path = format!("PYTHONPATH={petsc}/lib/python3/dist-packages");
    let words = ["env", &path, PYTHON, "test/runtests.py", "--no-builddir"];
    let job = Job::mpi("runtests.py", Path::new(MPIEXEC), 2, &words);
    let limit = Duration::from_secs(1500);
    let job = Job { folder: source, limit, read: tally::unittest, each: true, ..job };
    Ok(Ready::new(version, mpi(), vec![job]))
}

/// h5py's tests of files that ranks open together, and collective transfers of ours.
pub fn h5py(site: &Site) -> Result<Ready, Missing> {
    install(&["python3-h5py-mpi", "python3-pytest", "python3-venv", "openmpi-bin"])?;
    let python = Python::prepare(site, "system", Base::System, &["--no-deps", "pytest-mpi==0.6"])?;
    let tests = "/usr/lib/python3/dist-packages/h5py/_debian_h5py_mpi/tests/test_file.py";
    let pytest = [&python.program, "-m", "pytest", "--color=no", "-q", "-rfE"];
    let chosen =
        ["-p", "pytest_mpi", "--with-mpi", "-p", "no:cacheprovider", tests, "-k", "TestMPI"];
    let mpiexec = Path::new(MPIEXEC);
    let limit = Duration::from_secs(600);
    let mut jobs = Vec::new();
    for ranks in [2, 4] {
        let name = format!("TestMPI on {ranks}");
        let job = Job::mpi(&name, mpiexec, ranks, &[&pytest[..], &chosen].concat());
        jobs.push(Job { limit, read: tally::pytest, each: true, ..job });
        let file = site.cache.join("collective.h5").display().to_string();
        let program = super::program("collective_hdf5.py");
        let words = [python.program.as_str(), program.as_str(), &file];
        let job = Job::mpi(&format!("collective_hdf5.py on {ranks}"), mpiexec, ranks, &words);
        jobs.push(Job { limit, read: tally::ours, each: true, ..job });
    }
    Ok(Ready::new(upstream("python3-h5py-mpi"), mpi(), jobs))
}

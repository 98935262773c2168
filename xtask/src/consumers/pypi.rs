//! Consumers that PyPI has: mpi4jax, Dask and heat; and those that have no way to libfabric there.

use super::debian::{self, MPIEXEC};
use super::job::{Job, Launcher};
use super::site::Site;
use super::{tally, Python, Ready};
use crate::environment::{self, Base, Missing};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// mpi4jax and the last JAX that it works with.
const JAX: [&str; 2] = ["jax==0.4.30", "jaxlib==0.4.30"];
const MPI4JAX: &str = "mpi4jax==0.5.4";
/// The MPICH that is also that of the suite `mpi`.
const MPICH: &str = "mpich==5.0.2";
/// Dask's start by MPI.
const DASK: &str = "dask-mpi==2022.4.0";
/// heat and a SciPy for Debian's NumPy.
const HEAT: [&str; 2] = ["heat==1.3.1", "scipy==1.10.1"];

/// Returns the version in `NAME==VERSION`.
fn version(package: &str) -> String {
    package.rsplit('=').next().unwrap_or_default().to_string()
}

/// mpi4jax's tests with Debian's Open MPI.
pub fn mpi4jax(site: &Site) -> Result<Ready, Missing> {
    debian::install(&["python3-mpi4py", "python3-pytest", "python3-venv", "libopenmpi-dev"])?;
    let python = Python::prepare(site, "jax", Base::System, &JAX)?;
    mpi4jax_of(site, &python, Path::new(MPIEXEC), debian::mpi())
}

/// mpi4jax's tests with the MPICH of PyPI.
pub fn mpi4jax_mpich(site: &Site) -> Result<Ready, Missing> {
    let packages = [&[MPICH, "mpi4py", "pytest"], &JAX[..]].concat();
    let python = Python::prepare(site, "jax-mpich", Base::Alone, &packages)?;
    let mpiexec = python.folder.join("bin/mpiexec");
    mpi4jax_of(site, &python, &mpiexec, format!("MPICH {}", version(MPICH)))
}

fn mpi4jax_of(site: &Site, python: &Python, mpiexec: &Path, mpi: String) -> Result<Ready, Missing> {
    let source = site.cache.join("mpi4jax");
    let mpicc = mpiexec.to_string_lossy().replace("mpiexec", "mpicc");
    let variables = [("MPI4JAX_BUILD_MPICC", mpicc.as_str())];
    environment::compile(&python.folder, MPI4JAX, &variables)?;
    environment::source(&python.folder, MPI4JAX, &source, &[])?;
    // Its tests import the installed package: away from the source, which is not compiled.
    let folder = site.cache.join("mpi4jax-tests");
    copy(&source, &folder, &["tests", "examples"])?;
    let words = [&python.program, "-m", "pytest", "--color=no", "-q", "-rfE", "tests"];
    let mut jobs = Vec::new();
    for ranks in if site.whole { &[2, 3][..] } else { &[2] } {
        let job = Job::mpi(&format!("pytest on {ranks}"), mpiexec, *ranks, &words);
        let limit = Duration::from_secs(1200);
        jobs.push(Job { folder: folder.clone(), limit, read: tally::pytest, each: true, ..job });
    }
    Ok(Ready::new(version(MPI4JAX), mpi, jobs))
}

/// Copies these parts of a folder to an empty one.
fn copy(from: &Path, to: &Path, parts: &[&str]) -> Result<(), Missing> {
    let _old = std::fs::remove_dir_all(to);
    let made = std::fs::create_dir_all(to);
    made.map_err(|e| Missing::Means(format!("{}: {e}", to.display())))?;
    let mut copy = std::process::Command::new("cp");
    copy.arg("-r").args(parts.iter().map(|part| from.join(part))).arg(to);
    match crate::run::succeeds(&mut copy) {
        true => Ok(()),
        false => Err(Missing::Means(format!("{} cannot be copied", from.display()))),
    }
}

/// dask-mpi's tests, which start their `mpirun` themselves.
pub fn dask(site: &Site) -> Result<Ready, Missing> {
    let packages = ["python3-distributed", "python3-mpi4py", "python3-pytest", "python3-venv"];
    debian::install(&[&packages[..], &["python3-requests", "openmpi-bin"]].concat())?;
    let python = Python::prepare(site, "dask", Base::System, &["--no-deps", DASK])?;
    // The tests look for the commands that they start beside the Python that runs them.
    let mpirun = python.folder.join("bin/mpirun");
    if !mpirun.exists() {
        std::os::unix::fs::symlink("/usr/bin/mpirun.openmpi", &mpirun)
            .map_err(|e| Missing::Means(format!("{}: {e}", mpirun.display())))?;
    }
    let source = site.cache.join("dask-mpi");
    environment::source(&python.folder, DASK, &source, &[])?;
    let path = format!("PATH={}/bin:/usr/bin:/bin", python.folder.display());
    let pytest = ["-m", "pytest", "--color=no", "-q", "-rfE", "-p", "distributed.utils_test"];
    let tests = ["-p", "no:cacheprovider", "dask_mpi/tests"];
    let root = ["env", &path, "ALLOW_RUN_AS_ROOT=1", &python.program];
    let job = Job::mpi("pytest", Path::new(MPIEXEC), 1, &[&root, &pytest[..], &tests].concat());
    let launcher = Launcher::Tests(PathBuf::from(MPIEXEC));
    let limit = Duration::from_secs(900);
    let job = Job { launcher, folder: source, limit, read: tally::pytest, ..job };
    let mut ready = Ready::new(version(DASK), debian::mpi(), vec![job]);
    ready.only_host = Some("its tests start mpirun themselves, without hosts");
    Ok(ready)
}

/// A program of ours with heat: its packages come without its tests.
pub fn heat(site: &Site) -> Result<Ready, Missing> {
    let packages = ["python3-torch", "python3-torchvision", "python3-mpi4py", "python3-venv"];
    debian::install(&[&packages[..], &["openmpi-bin"]].concat())?;
    let packages = [&["--no-deps"], &HEAT[..]].concat();
    let python = Python::prepare(site, "heat", Base::System, &packages)?;
    let program = super::program("distributed_arrays.py");
    let mut jobs = Vec::new();
    for ranks in [2, 4] {
        let words = [python.program.as_str(), program.as_str()];
        let name = format!("distributed_arrays.py on {ranks}");
        let job = Job::mpi(&name, Path::new(MPIEXEC), ranks, &words);
        jobs.push(Job { read: tally::ours, each: true, ..job });
    }
    Ok(Ready::new(version(HEAT[0]), debian::mpi(), jobs))
}

/// charm4py's wheel.
pub fn charm4py(_: &Site) -> Result<Ready, Missing> {
    let why = "its wheel has Charm++ for UDP sockets (netlrts) in it, which asks no libfabric; a \
               build for MPI or libfabric comes from git";
    Err(Missing::Means(why.into()))
}

/// shmem4py.
pub fn shmem4py(_: &Site) -> Result<Ready, Missing> {
    let why = "it needs an OpenSHMEM over libfabric, which neither Debian nor PyPI has; \
               WEFT_SHMEM=DIR runs the tests of one that was built by hand";
    Err(Missing::Means(why.into()))
}

/// Horovod.
pub fn horovod(_: &Site) -> Result<Ready, Missing> {
    let why = "not tried: PyPI has its source alone, of 2023, which CMake compiles against a \
               PyTorch or a TensorFlow";
    Err(Missing::Means(why.into()))
}

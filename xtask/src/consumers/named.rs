//! Consumers that are built from git by hand: the suite runs the programs of a folder that a
//! variable names.

use super::job::{Job, Launcher};
use super::site::Site;
use super::{tally, Ready};
use crate::environment::Missing;
use crate::run::output_of;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A program, by the name of its file, its ranks and arguments.
type Program = (&'static str, &'static [usize], &'static [&'static str]);

/// Charm++'s tests and examples that check themselves. Inside a host it copies long messages
/// itself, unless an option keeps it from that.
const CHARM: &[Program] = &[
    ("megatest", &[1, 2, 4], &[]),
    ("megacon", &[2, 4], &[]),
    ("simplearrayhello", &[1, 2, 4], &[]),
    ("zerocopy_with_qd", &[2], &["200", "+cma_disable"]),
    ("direct_api", &[2], &["20000", "+cma_disable"]),
    ("large_bcast", &[2, 4], &["+cma_disable"]),
    ("lb_test", &[2, 4], &["100", "50", "10", "10", "10", "ring", "+balancer", "GreedyLB"]),
    ("jacobi2d", &[2, 4], &["200", "50"]),
];

/// Folders of AMPI's tests: each program runs with two virtual ranks for each process.
const AMPI: &[&str] = &["tests/ampi/megampi", "tests/ampi/migration"];

/// Charm++, from a folder of its build.
pub fn charm(_: &Site) -> Result<Ready, Missing> {
    let folder = folder("WEFT_CHARM", "./build charm++ ofi-linux-x86_64 simplepmi")?;
    listed(&folder, CHARM)
}

/// AMPI, from a folder of its build.
pub fn ampi(_: &Site) -> Result<Ready, Missing> {
    let folder = folder("WEFT_AMPI", "./build AMPI ofi-linux-x86_64 simplepmi")?;
    let built = AMPI.iter().flat_map(|part| executables(&folder.join(part)));
    let with = |path: PathBuf| {
        [2, 4].map(|ranks| over_charm(job(&path, ranks, &[&format!("+vp{}", 2 * ranks)])))
    };
    ready(&folder, built.flat_map(with).collect())
}

/// Gives a job the option without which Charm++ does not start over libfabric's `tcp`: it does not
/// retry a send in its exchange of addresses.
fn over_charm(job: Job) -> Job {
    Job { usual: vec!["+ofi_runtime_tcp".into()], ..job }
}

/// Sandia OpenSHMEM, from a folder with its built tests.
pub fn shmem(_: &Site) -> Result<Ready, Missing> {
    let how = "./configure --with-ofi=/usr --enable-pmi-simple --enable-ofi-manual-progress \
               --enable-manual-progress && make check TESTS=";
    every(&folder("WEFT_SHMEM", how)?.join("test/unit"), "")
}

/// GASNet-EX, from a folder with its built tests.
pub fn gasnet(_: &Site) -> Result<Ready, Missing> {
    let how = "./configure --enable-ofi && make -C ofi-conduit tests-seq";
    every(&folder("WEFT_GASNET", how)?.join("ofi-conduit"), "test")
}

/// LCI, from a folder with its built tests.
pub fn lci(_: &Site) -> Result<Ready, Missing> {
    let folder = folder("WEFT_LCI", "cmake -DLCI_NETWORK_BACKENDS=ofi && make")?;
    every(&folder, "lci_")
}

/// Lamellar, from a folder with its built examples. Its crate compiles some 200 others, libfabric
/// and MPICH's PMI among them.
pub fn lamellar(_: &Site) -> Result<Ready, Missing> {
    let how = "cargo build --examples --no-default-features --features \
               enable-libfabric,with-pmi1,vendored-pmi";
    every(&folder("WEFT_LAMELLAR", how)?, "")
}

/// Returns the folder that a variable names.
fn folder(variable: &str, how: &str) -> Result<PathBuf, Missing> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let missing = format!("it is built by hand: {variable}=DIR names a build of it (`{how}`)");
    let folder = named.ok_or(Missing::Means(missing))?;
    match folder.is_dir() {
        true => Ok(folder),
        false => Err(Missing::Refused(format!("{variable}: {} is no folder", folder.display()))),
    }
}

/// Makes the jobs of the listed programs that the build has.
fn listed(folder: &Path, programs: &[Program]) -> Result<Ready, Missing> {
    let built = executables(folder);
    let mut jobs = Vec::new();
    for (name, ranks, words) in programs {
        let Some(path) = built.iter().find(|path| path.ends_with(name)) else { continue };
        jobs.extend(ranks.iter().map(|ranks| over_charm(job(path, *ranks, words))));
    }
    ready(folder, jobs)
}

/// Makes a job of two ranks of every program of a folder.
fn every(folder: &Path, prefix: &str) -> Result<Ready, Missing> {
    let built = executables(folder);
    let named = built.iter().filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    });
    ready(folder, named.map(|path| job(path, 2, &[])).collect())
}

fn ready(folder: &Path, jobs: Vec<Job>) -> Result<Ready, Missing> {
    match jobs.is_empty() {
        true => Err(Missing::Means(format!("{} has no built tests", folder.display()))),
        false => Ok(Ready::new(described(folder), "weft run".into(), jobs)),
    }
}

/// Returns the version of the sources of a build, if git knows one.
fn described(folder: &Path) -> String {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(["describe", "--tags", "--always"]);
    output_of(&mut git).map_or("by hand".into(), |said| said.trim().to_string())
}

/// Makes a job of `weft run`. Charm++'s isomalloc needs the same addresses in all processes, and
/// LCI a word for the start by PMI-1.
fn job(path: &Path, ranks: usize, words: &[&str]) -> Job {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let program = path.display().to_string();
    let pmi = ["env", "LCT_PMI_BACKEND=pmi1", "setarch", std::env::consts::ARCH, "-R", &program];
    let job = Job::mpi(&format!("{name} on {ranks}"), path, ranks, &[&pmi, words].concat());
    let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let limit = Duration::from_secs(120);
    Job { launcher: Launcher::Run, folder, limit, read: tally::exit_code, each: true, ..job }
}

/// Returns the programs below a folder, in order, without Charm++'s launcher, which its builds put
/// beside each. Links are not followed.
fn executables(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.metadata() else { continue };
            let path = entry.path();
            if kind.is_dir() {
                folders.push(path);
            } else if path.ends_with("charmrun") || is_copy(&path) {
                continue;
            } else if kind.permissions().mode() & 0o111 != 0 && path.extension().is_none() {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns true for the file with a hash in its name that Cargo keeps beside an example.
fn is_copy(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.rsplit_once('-').is_some_and(|(_, hash)| {
        hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn listed__runs_the_programs_that_the_build_has() {
        let folder = std::env::temp_dir().join(format!("weft-named-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("tests/megatest")).unwrap();
        assert!(matches!(listed(&folder, CHARM), Err(Missing::Means(_))));
        let program = folder.join("tests/megatest/megatest");
        std::fs::write(&program, "").unwrap();
        assert!(matches!(listed(&folder, CHARM), Err(Missing::Means(_))));
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let ready = listed(&folder, CHARM).map_err(|_| ()).unwrap();
        let names: Vec<&str> = ready.jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["megatest on 1", "megatest on 2", "megatest on 4"]);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

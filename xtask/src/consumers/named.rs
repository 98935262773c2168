//! Consumers that are built from git by hand: the suite runs the programs of a folder that a
//! variable names.

use super::job::{Job, Launcher, Place};
use super::site::Site;
use super::{tally, Ready};
use crate::environment::Missing;
use crate::run::output_of;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A program, by its path in a build, its numbers of ranks and its arguments.
type Program = (&'static str, &'static [usize], &'static [&'static str]);

/// Charm++'s tests, examples and ping-pongs, with the arguments of its own `make test`. Inside a
/// host it copies long messages itself, unless an option keeps it from that. The second run of
/// `chkpt` starts from the files of the first.
const CHARM: &[Program] = &[
    ("tests/charm++/megatest/megatest", &[1, 2, 4], &[]),
    ("tests/converse/megacon/megacon", &[1, 2, 4], &[]),
    ("tests/charm++/simplearrayhello/hello", &[1, 2, 4], &["10"]),
    ("tests/charm++/startupTest/startupTest", &[2, 4], &["200", "10", "0.0001", "1"]),
    ("tests/charm++/sparse/sparse", &[4], &[]),
    ("tests/charm++/zerocopy/zerocopy_with_qd/zerocopy_with_qd", &[2, 4], &["100", CMA]),
    ("tests/charm++/zerocopy/direct_api/direct_api", &[2, 4], &["20000", CMA]),
    ("tests/charm++/zerocopy/large_bcast/large_bcast", &[2, 4], &["200000", "10", CMA]),
    ("tests/charm++/zerocopy/bcast_nonzero_root/bcast_nonzero_root", &[2, 4], &[CMA]),
    ("tests/charm++/zerocopy/zc_post_modify_size/zc_post_modify_size", &[2, 4], &[CMA]),
    ("tests/charm++/zerocopy/dereg_and_nodereg/dereg_and_nodereg", &[2, 4], &["50", CMA]),
    ("tests/charm++/zerocopy/pup_buffer/pup_buffer", &[2, 4], &["+balancer", "RotateLB", CMA]),
    (
        "tests/charm++/load_balancing/lb_test/lb_test",
        &[2, 4],
        &["100", "100", "10", "40", "10", "1000", "ring", "+balancer", "GreedyLB"],
    ),
    ("tests/charm++/chkpt/hello", &[4], &["+balancer", "GreedyLB"]),
    ("tests/charm++/chkpt/hello", &[4, 2], &["+restart", "log", "+balancer", "GreedyLB"]),
    ("examples/charm++/jacobi2d-2d-decomposition/jacobi2d", &[2, 4], &["32", "16"]),
    ("examples/charm++/leanmd/leanmd", &[4], &["3", "3", "3", "20"]),
    ("benchmarks/charm++/pingpong/pingpong", &[2], &[]),
];

/// Keeps Charm++ from copying between processes of a host itself.
const CMA: &str = "+cma_disable";

/// AMPI's tests that check themselves, each with as many virtual ranks for a process as here.
const AMPI: &[(&str, usize)] = &[
    ("tests/ampi/megampi/megampi", 1),
    ("tests/ampi/megampi/megampi", 2),
    ("tests/ampi/megampi/megampi", 4),
    ("tests/ampi/migration/migration", 1),
    ("tests/ampi/migration/migration", 2),
    ("tests/ampi/migration/migration", 4),
];

/// Charm++, from a folder of its build.
pub fn charm(_: &Site) -> Result<Ready, Missing> {
    let folder = folder("WEFT_CHARM", "./build charm++ ofi-linux-x86_64 simplepmi")?;
    listed(&folder, CHARM)
}

/// AMPI, from a folder of its build.
pub fn ampi(_: &Site) -> Result<Ready, Missing> {
    let folder = folder("WEFT_AMPI", "./build AMPI ofi-linux-x86_64 simplepmi")?;
    let mut jobs = Vec::new();
    for (path, each) in AMPI.iter().map(|(path, each)| (folder.join(path), each)) {
        for ranks in [2, 4].into_iter().filter(|_| is_program(&path)) {
            let virtual_ranks = format!("+vp{}", each * ranks);
            jobs.push(over_charm(job(&path, ranks, &[&virtual_ranks])));
        }
    }
    ready(&folder, jobs)
}

/// Programs of the SMP form, in which a process has worker threads and a thread that polls, each
/// with two workers.
const SMP: &[Program] = &[
    ("tests/charm++/megatest/megatest", &[1, 2, 4], WORKERS),
    ("tests/converse/megacon/megacon", &[1, 2, 4], WORKERS),
    ("tests/ampi/megampi/megampi", &[2, 4], &["+vp8", "+ppn", "2"]),
    ("tests/ampi/migration/migration", &[2, 4], &["+vp8", "+ppn", "2"]),
    ("benchmarks/charm++/pingpong/pingpong", &[1, 2], &["100", "200", "+ppn", "1"]),
];

/// Two worker threads a process.
const WORKERS: &[&str] = &["+ppn", "2"];

/// Charm++ and AMPI in their SMP form, from a folder of its build.
pub fn smp(_: &Site) -> Result<Ready, Missing> {
    let how = "./build AMPI ofi-linux-x86_64 simplepmi smp";
    listed(&folder("WEFT_CHARM_SMP", how)?, SMP)
}

/// Runs in a row of the programs of which none may ever hang.
const IN_A_ROW: usize = 20;

/// Charm++'s megatest and megacon and AMPI's tests, many times in a row on two and on four hosts.
pub fn often(_: &Site) -> Result<Ready, Missing> {
    let folder = folder("WEFT_AMPI", "./build AMPI ofi-linux-x86_64 simplepmi")?;
    let mut jobs = Vec::new();
    for path in CHARM.iter().map(|(path, ..)| folder.join(path)).filter(|path| is_program(path)) {
        if path.ends_with("megatest") || path.ends_with("megacon") {
            jobs.extend([2, 4].map(|ranks| over_charm(job(&path, ranks, &[]))));
        }
    }
    for (path, each) in AMPI.iter().map(|(path, each)| (folder.join(path), each)) {
        if is_program(&path) && *each == 4 {
            let virtual_ranks = |ranks| format!("+vp{}", each * ranks);
            let of = |ranks| over_charm(job(&path, ranks, &[&virtual_ranks(ranks)]));
            jobs.extend([2, 4].map(of));
        }
    }
    let ready = ready(&folder, jobs)?;
    Ok(Ready { places: &[Place::Lab, Place::Four], runs: IN_A_ROW, ..ready })
}

/// Programs that work for minutes, of the builds that variables name: one of its ranks is killed or
/// stopped meanwhile.
const LONG: &[(&str, Program)] = &[
    ("WEFT_CHARM", ("benchmarks/charm++/pingpong/pingpong", &[2], &["1000000"])),
    ("WEFT_AMPI", ("benchmarks/charm++/pingpong/pingpong", &[2], &["1000000"])),
    ("WEFT_SHMEM", ("modules/tests-sos/test/unit/bigget", &[2, 4], &["-l", "10000"])),
    ("WEFT_GASNET", ("ofi-conduit/testsmall", &[2], &["-m", "100000000"])),
];

/// Every consumer without a rank that is killed or stopped in the middle of its work.
pub fn faults(_: &Site) -> Result<Ready, Missing> {
    let mut jobs = Vec::new();
    for (variable, (program, ranks, words)) in LONG {
        let Some(folder) = std::env::var_os(variable).map(PathBuf::from) else { continue };
        let path = folder.join(program);
        for ranks in ranks.iter().filter(|_| is_program(&path)) {
            for signal in ["KILL", "STOP"] {
                let job = over_charm(job(&path, *ranks, words));
                let name = format!("{variable} {}, {signal}", job.name);
                jobs.push(Job { name, fault: Some(signal), ..job });
            }
        }
    }
    match jobs.is_empty() {
        true => Err(Missing::Means("no variable names a build of a consumer".into())),
        false => Ok(Ready::new("by hand".into(), "weft run".into(), jobs)),
    }
}

/// Gives a job the option without which Charm++ does not start over libfabric's `tcp`: it does not
/// retry a send in its exchange of addresses.
fn over_charm(job: Job) -> Job {
    Job { usual: vec!["+ofi_runtime_tcp".into()], ..job }
}

/// Sandia OpenSHMEM, from a folder with its built tests: those of the specification, and those of
/// its extensions.
pub fn shmem(_: &Site) -> Result<Ready, Missing> {
    let how = "./configure --with-ofi=/usr --enable-pmi-simple --enable-ofi-manual-progress \
               --enable-manual-progress && make check TESTS=";
    let ready = every(&folder("WEFT_SHMEM", how)?, &["modules/tests-sos/test/unit", SHMEMX], "")?;
    let jobs = ready.jobs.into_iter().map(over_shmem).collect();
    Ok(Ready { jobs, ..ready })
}

/// Gives a job the provider that Sandia OpenSHMEM knows in place of `tcp`, which it does not take
/// from libfabric 1.17, and the program of 1,000 transfers of 16 MiB fewer of them.
fn over_shmem(job: Job) -> Job {
    let mut words = job.words;
    if words
        .last()
        .is_some_and(|program| program.ends_with("/bigput") || program.ends_with("/bigget"))
    {
        words.extend(["-l".into(), "50".into()]);
    }
    Job { peer: "sockets", words, ..job }
}

/// The tests of extensions.
const SHMEMX: &str = "modules/tests-sos/test/shmemx";

/// GASNet, from a folder with its built tests.
pub fn gasnet(_: &Site) -> Result<Ready, Missing> {
    let how = "./configure --enable-ofi && make -C ofi-conduit tests-seq";
    every(&folder("WEFT_GASNET", how)?, &["ofi-conduit"], "test")
}

/// LCI, from a folder with its built tests.
pub fn lci(_: &Site) -> Result<Ready, Missing> {
    let folder = folder("WEFT_LCI", "cmake -DLCI_NETWORK_BACKENDS=ofi && make")?;
    every(&folder, &["bin"], "lci_")
}

/// Lamellar, from a folder with its built examples. Its crate compiles some 200 others, libfabric
/// and MPICH's PMI among them.
pub fn lamellar(_: &Site) -> Result<Ready, Missing> {
    let how = "cargo build --examples --no-default-features --features \
               enable-libfabric,with-pmi1,vendored-pmi";
    every(&folder("WEFT_LAMELLAR", how)?, &[""], "")
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
    let mut jobs = Vec::new();
    for (path, ranks, words) in programs.iter().map(|(at, r, w)| (folder.join(at), r, w)) {
        let there = ranks.iter().filter(|_| is_program(&path));
        jobs.extend(there.map(|ranks| over_charm(job(&path, *ranks, words))));
    }
    ready(folder, jobs)
}

/// Makes a job of two ranks of every program in these folders of a build whose name begins so.
fn every(build: &Path, folders: &[&str], prefix: &str) -> Result<Ready, Missing> {
    let mut jobs = Vec::new();
    for folder in folders {
        let entries = std::fs::read_dir(build.join(folder)).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        let named = |path: &&PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(prefix) && path.extension().is_none() && is_program(path)
        };
        jobs.extend(paths.iter().filter(named).map(|path| job(path, 2, &[])));
    }
    ready(build, jobs)
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
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let name: Vec<&str> = [&*file].into_iter().chain(words.iter().copied()).collect();
    let name = name.join(" ");
    let program = path.display().to_string();
    let pmi = ["env", "LCT_PMI_BACKEND=pmi1", "setarch", std::env::consts::ARCH, "-R", &program];
    let job = Job::mpi(&format!("{name} on {ranks}"), path, ranks, &[&pmi, words].concat());
    let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let limit = Duration::from_secs(120);
    Job { launcher: Launcher::Run, folder, limit, read: tally::exit_code, each: true, ..job }
}

/// Returns true for a program that is no link, and no copy that Cargo keeps.
fn is_program(path: &Path) -> bool {
    let is = |data: std::fs::Metadata| data.is_file() && data.permissions().mode() & 0o111 != 0;
    path.symlink_metadata().is_ok_and(is) && !is_copy(path)
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
        std::fs::create_dir_all(folder.join("tests/charm++/megatest")).unwrap();
        assert!(matches!(listed(&folder, CHARM), Err(Missing::Means(_))));
        let program = folder.join("tests/charm++/megatest/megatest");
        std::fs::write(&program, "").unwrap();
        assert!(matches!(listed(&folder, CHARM), Err(Missing::Means(_))));
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let ready = listed(&folder, CHARM).map_err(|_| ()).unwrap();
        let names: Vec<&str> = ready.jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["megatest on 1", "megatest on 2", "megatest on 4"]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn over_shmem__long_transfers_are_fewer() {
        let words = |path: &str| over_shmem(job(Path::new(path), 2, &[])).words;
        assert_eq!(words("/b/bigput").last().map(String::as_str), Some("50"));
        assert_eq!(words("/b/put1").last().map(String::as_str), Some("/b/put1"));
    }

    #[test]
    fn every__leaves_links_and_other_files_out() {
        let folder = std::env::temp_dir().join(format!("weft-every-{}", std::process::id()));
        let unit = folder.join("test/unit");
        std::fs::create_dir_all(&unit).unwrap();
        std::os::unix::fs::symlink("/bin/true", unit.join("Makefile")).unwrap();
        for (name, mode) in [("put1", 0o755), ("put1.c", 0o755), ("Makefile.in", 0o644)] {
            std::fs::write(unit.join(name), "").unwrap();
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(unit.join(name), mode).unwrap();
        }
        let ready = every(&folder, &["test/none", "test/unit"], "").map_err(|_| ()).unwrap();
        let names: Vec<&str> = ready.jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["put1 on 2"]);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

//! Programs of others: mpi4py's tests, HPCC and NetPIPE.

use super::harness::{how_much, run, scratch, whole, Ended, HowMuch, Mpi};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use weft_conformance::skip;

/// Tests of mpi4py that fail because of the MPI; `docs/mpi.md` says why.
const KNOWN: &[(Mpi, &str)] = &[
    (Mpi::Mpich, "testDistgraphcomm"),
    (Mpi::Mpich, "testGetFortranInfo"),
    (Mpi::Open, "testRevoke"),
];

/// What is run where suites of others are not.
const QUICK: &[&str] = &["test_p2p_buf", "test_cco_buf_inter", "test_spawn"];

/// Modules in which each rank works by itself, for long: where not everything is run, one does.
const ALONE: &[&str] = &["test_util_dtlib", "test_datatype", "test_pack"];
/// Modules that four ranks on two cores spend minutes in, with any provider. Where not everything
/// is run, one and two ranks do.
const LONG: &[&str] = &["test_io"];

fn mpi4py() -> Result<PathBuf, String> {
    const VARIABLE: &str = "WEFT_TEST_MPI4PY";
    let folder = std::env::var_os(VARIABLE).map(PathBuf::from);
    let beside = || Some(Path::new(&std::env::var_os("WEFT_TEST_MPIS")?).join("mpi4py"));
    let test = folder.or_else(beside).map(|folder| folder.join("test"));
    let test = test.filter(|test| test.join("main.py").is_file());
    test.ok_or(format!("needs {VARIABLE}=FOLDER with the source of mpi4py, whose tests are run"))
}

fn command(mpi: Mpi, ranks: u32) -> Result<Command, String> {
    let tests = mpi4py()?;
    let python = mpi.tool("python")?;
    let mut command = mpi.launcher(ranks)?;
    command.current_dir(tests).arg(python).args(["-u", "main.py", "--no-builddir"]);
    for (_, known) in KNOWN.iter().filter(|(of, _)| *of == mpi) {
        command.args(["-x", known]);
    }
    let (only, left_out): (&[&str], Vec<&str>) = match how_much() {
        HowMuch::All => (&[], Vec::new()),
        HowMuch::Quick => (QUICK, Vec::new()),
        HowMuch::Suites if ranks == 1 => (&[], Vec::new()),
        HowMuch::Suites if ranks == 2 => (&[], ALONE.to_vec()),
        HowMuch::Suites => (&[], [ALONE, LONG].concat()),
    };
    only.iter().for_each(|module| {
        command.args(["-i", module]);
    });
    left_out.iter().for_each(|module| {
        command.args(["-e", module]);
    });
    if !left_out.is_empty() {
        println!("mpi4py on {ranks} ranks without {left_out:?}: WEFT_TEST_MPI=all runs them");
    }
    // Its files are synchronised again and again: not on a disk.
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        command.env("TMPDIR", memory);
    }
    Ok(command)
}

fn suite(mpi: Mpi) {
    let (ranks, limit): (&[u32], _) = match how_much() {
        HowMuch::Quick => (&[2], 120),
        HowMuch::Suites | HowMuch::All => (&[1, 2, 4], 1200),
    };
    for &ranks in ranks {
        match command(mpi, ranks) {
            Ok(command) => {
                let ended = run(command, Duration::from_secs(limit));
                ended.expect("OK");
                assert!(!ended.said.contains("Ran 0 tests"), "{}", ended.said);
                let passed = ended.said.lines().filter(|line| line.starts_with("OK")).count();
                assert_eq!(passed, ranks as usize, "{}", ended.said);
            }
            Err(why) => return skip(&why),
        }
    }
}

#[test]
fn mpi4py__mpich() {
    suite(Mpi::Mpich);
}

#[test]
fn mpi4py__open_mpi() {
    suite(Mpi::Open);
}

/// A program of Debian's that was made for its Open MPI.
fn of_debian(program: &str, ranks: u32, words: &[&str], folder: &Path) -> Result<Ended, String> {
    let path = Path::new("/usr/bin").join(program);
    if !path.is_file() {
        return Err(format!("needs {}", path.display()));
    }
    let mut command = Mpi::System.launcher(ranks)?;
    command.current_dir(folder).arg(path).args(words);
    Ok(run(command, Duration::from_secs(if whole() { 600 } else { 120 })))
}

/// The input of HPCC: a problem of this size on a grid of two by half of the ranks.
fn hpcc_input(size: u32, ranks: u32) -> String {
    let rest = "1\n16\n1\n2\n1\n4\n1\n2\n1\n1\n1\n0\n2\n64\n0\n0\n1\n8\n";
    let (p, q) = (ranks / 2, 2);
    let head = "HPLinpack benchmark input file\n-\nHPL.out\n8";
    format!("{head}\n1\n{size}\n1\n32\n0\n1\n{p}\n{q}\n16.0\n{rest}")
}

#[test]
fn hpcc__its_verification_passes() {
    for ranks in if whole() { &[2, 4][..] } else { &[2][..] } {
        let folder = scratch().join(format!("hpcc-{ranks}"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let size = if whole() { 800 } else { 200 };
        std::fs::write(folder.join("hpccinf.txt"), hpcc_input(size, *ranks)).expect("the input");
        let _old = std::fs::remove_file(folder.join("hpccoutf.txt"));
        let ended = match of_debian("hpcc", *ranks, &[], &folder) {
            Ok(ended) => ended,
            Err(why) => return skip(&format!("{why} (Debian: hpcc)")),
        };
        ended.expect("");
        let result = std::fs::read_to_string(folder.join("hpccoutf.txt")).expect("its output");
        let success = result.lines().find(|line| line.starts_with("Success="));
        assert_eq!(success, Some("Success=1"), "{result}\n{}", ended.said);
        assert!(!result.contains("FAILED"), "{result}");
    }
}

#[test]
fn netpipe__its_bytes_are_right() {
    let most = if whole() { "4194304" } else { "65536" };
    // With -i it checks what comes.
    match of_debian("NPopenmpi", 2, &["-i", "-u", most], &scratch()) {
        Ok(ended) => ended.expect("Integrity check passed"),
        Err(why) => skip(&format!("{why} (Debian: netpipe-openmpi)")),
    }
}

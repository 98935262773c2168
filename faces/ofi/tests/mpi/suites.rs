//! Programs of other projects: mpi4py's tests, HPCC, NetPIPE, MUMPS and ScaLAPACK.
//!
//! More of them are run by the suite `consumers` of xtask.

use super::harness::{how_much, run, scratch, watched, whole, Bound, Ended, HowMuch, Mpi};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use weft_conformance::skip;

/// Tests of mpi4py that fail because of the MPI; `docs/results/mpi.md` says why.
const KNOWN: &[(Mpi, &str)] = &[
    (Mpi::Mpich, "testDistgraphcomm"),
    (Mpi::Mpich, "testGetFortranInfo"),
    (Mpi::Open, "testRevoke"),
    (Mpi::Intel, "testGetFortranInfo"),
    (Mpi::Intel, "*TestWinCreateDynamic*.testAttachDetach"),
    (Mpi::Intel, "*TestWinCreateDynamic*.testAttributes"),
    (Mpi::Intel, "*TestWinCreateDynamic*.testGetAttr"),
    (Mpi::Intel, "*TestWinCreateDynamic*.testMemory"),
];

/// The tests that are run where whole suites are not.
const QUICK: &[&str] = &["test_p2p_buf", "test_cco_buf_inter", "test_spawn"];

/// Bounds of a suite: in total, and for the next test of a rank. On an idle machine a suite takes a
/// few minutes, and its longest test a few seconds.
const BOUND: Bound = Bound { whole: Duration::from_secs(2400), silent: Duration::from_secs(240) };
/// Bounds of the quick tests, in total and for the next test of a rank.
const QUICK_BOUND: Bound =
    Bound { whole: Duration::from_secs(600), silent: Duration::from_secs(120) };

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
    command.current_dir(tests).arg(python).args(["-u", "main.py", "-v", "--no-builddir"]);
    for (_, known) in KNOWN.iter().filter(|(of, _)| *of == mpi) {
        command.args(["-x", known]);
    }
    if how_much() == HowMuch::Quick {
        QUICK.iter().for_each(|module| {
            command.args(["-i", module]);
        });
    }
    // The files lie in memory: the test synchronises them again and again.
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        command.env("TMPDIR", memory);
    }
    Ok(command)
}

/// Shows the progress of a suite: a line for each hundred tests, and each failure.
struct Progress {
    name: String,
    passed: usize,
    told: usize,
    /// The start of an unfinished line.
    rest: String,
}

impl Progress {
    fn hear(&mut self, more: &str) {
        self.rest.push_str(more);
        let Some((lines, rest)) = self.rest.rsplit_once('\n') else { return };
        let (lines, rest) = (lines.to_owned(), rest.to_owned());
        self.rest = rest;
        for line in lines.lines() {
            // Ranks interleave their output: "ok" may stand at the end of another rank's line.
            self.passed += usize::from(line.ends_with("ok"));
            if line.ends_with("FAIL") || line.ends_with("ERROR") {
                println!("{}: {line}", self.name);
            }
        }
        if self.passed >= self.told + 500 {
            self.told = self.passed;
            println!("{}: {} tests passed", self.name, self.passed);
        }
    }
}

/// Returns each rank's verdict after it has passed: "OK", or "OK (skipped=3)". Ranks interleave
/// their output, so a verdict may stand anywhere in a line of another rank.
fn verdicts(said: &str) -> Vec<&str> {
    const OK: &str = "OK";
    let whole = |at: usize| {
        let skipped = said[at..].split_once(')').map(|(before, _)| before);
        let skipped = skipped.filter(|it| it[OK.len()..].starts_with(" (") && !it.contains('\n'));
        &said[at..at + skipped.map_or(OK.len(), |it| it.len() + 1)]
    };
    said.match_indices(OK).map(|(at, _)| whole(at)).collect()
}

#[test]
fn verdicts__of_ranks_that_write_over_each_other() {
    assert_eq!(verdicts("ok\nRan 2 tests in 1.0s\n\nOK\n"), ["OK"]);
    assert_eq!(verdicts("ok\n\nOK (skipped=3)\n\nOK (skipped=3)\n"), ["OK (skipped=3)"; 2]);
    assert_eq!(verdicts("Ran 2 testsOK (skipped=3)OK (\n in 1.0s\n"), ["OK (skipped=3)", "OK"]);
    assert_eq!(verdicts("ok\nFAILED (failures=1)\n"), [""; 0]);
}

fn suite(mpi: Mpi, ranks: u32) {
    let quick = how_much() == HowMuch::Quick;
    let command = match command(mpi, ranks) {
        Ok(command) => command,
        Err(why) => return skip(&why),
    };
    let name = format!("mpi4py, {mpi:?}, ranks: {ranks}");
    let mut progress = Progress { name, passed: 0, told: 0, rest: String::new() };
    let start = std::time::Instant::now();
    let bound = if quick { &QUICK_BOUND } else { &BOUND };
    let ended = watched(command, bound, &mut |more| progress.hear(more));
    ended.expect("OK");
    assert!(!ended.said.contains("Ran 0 tests"), "{}", ended.said);
    let passed = verdicts(&ended.said);
    assert_eq!(passed.len(), ranks as usize, "{}", ended.said);
    let counts: BTreeSet<&str> = passed.into_iter().collect();
    println!("{}: {counts:?} in {} s", progress.name, start.elapsed().as_secs());
}

tests! { suite:
    mpi4py__mpich_on_1(Mpi::Mpich, 1);
    mpi4py__mpich_on_2(Mpi::Mpich, 2);
    mpi4py__mpich_on_4(Mpi::Mpich, 4);
    mpi4py__open_mpi_on_1(Mpi::Open, 1);
    mpi4py__open_mpi_on_2(Mpi::Open, 2);
    mpi4py__open_mpi_on_4(Mpi::Open, 4);
    mpi4py__intel_on_1(Mpi::Intel, 1);
    mpi4py__intel_on_2(Mpi::Intel, 2);
    mpi4py__intel_on_4(Mpi::Intel, 4);
}

/// Runs a program that Debian has built for its Open MPI.
fn of_debian(program: &str, ranks: u32, words: &[&str], folder: &Path) -> Result<Ended, String> {
    let path = Path::new("/usr/bin").join(program);
    if !path.is_file() {
        return Err(format!("needs {}", path.display()));
    }
    let mut command = Mpi::System.launcher(ranks)?;
    command.current_dir(folder).arg(path).args(words);
    Ok(run(command, Duration::from_secs(if whole() { 600 } else { 120 })))
}

/// Returns the input of HPCC: a problem of this size on a grid of two by half of the ranks.
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
    // With -i it checks the received bytes.
    match of_debian("NPopenmpi", 2, &["-i", "-u", most], &scratch()) {
        Ok(ended) => ended.expect("Integrity check passed"),
        Err(why) => skip(&format!("{why} (Debian: netpipe-openmpi)")),
    }
}

#[test]
fn mumps__its_small_system_has_its_solution() {
    let folder = Path::new("/usr/lib/mumps");
    // Rank 0 reads the input.
    let words = ["-c", "exec ./dsimpletest < input_simpletest_real"];
    let program = folder.join("dsimpletest");
    let done = match program.is_file() {
        true => of_debian("/bin/sh", 2, &words, folder),
        false => Err(format!("needs {}", program.display())),
    };
    match done {
        Ok(ended) => {
            ended.expect("Solution is");
            let after = ended.said.split_once("Solution is").map_or("", |(_, after)| after);
            let numbers: Vec<f64> =
                after.split_whitespace().map_while(|word| word.parse().ok()).collect();
            let wanted = [1.0, 2.0, 3.0, 4.0, 5.0];
            let near = |(number, want): (&f64, f64)| (number - want).abs() < 1e-9;
            assert!(numbers.len() == 5, "{}", ended.said);
            assert!(numbers.iter().zip(wanted).all(near), "{}", ended.said);
        }
        Err(why) => skip(&format!("{why} (Debian: mumps-test)")),
    }
}

/// Runs ScaLAPACK's test of matrix inversion, one of its short ones.
#[test]
fn scalapack__its_residual_checks_pass() {
    let folders = std::fs::read_dir("/usr/lib").expect("libraries");
    let tests = |folder: std::fs::DirEntry| folder.path().join("scalapack/openmpi-tests");
    let Some(tests) = folders.flatten().map(tests).find(|tests| tests.is_dir()) else {
        return skip("needs /usr/lib/*/scalapack/openmpi-tests (Debian: scalapack-mpi-test)");
    };
    // The program reads its input in its working folder.
    let folder = scratch().join("scalapack");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::copy(tests.join("INV.dat"), folder.join("INV.dat")).expect("the input");
    match of_debian(&tests.join("xdinv").to_string_lossy(), 4, &[], &folder) {
        Ok(ended) => {
            ended.expect("tests completed and passed residual checks.");
            ended.expect("\n    0 tests completed and failed residual checks.");
        }
        Err(why) => skip(&format!("{why} (Debian: scalapack-mpi-test)")),
    }
}

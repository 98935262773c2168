//! Results of tests of others, as their own output states them.

use std::collections::BTreeSet;

/// Counts of tests, and the names of those that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of tests, the skipped ones included.
    pub tests: u32,
    /// Number of tests that the suite itself left out.
    pub skipped: u32,
    /// The tests that failed.
    pub failed: BTreeSet<String>,
}

impl Tally {
    /// Makes the result of one test.
    pub fn one(name: &str, held: bool) -> Tally {
        let failed = (!held).then(|| name.to_string()).into_iter().collect();
        Tally { tests: 1, skipped: 0, failed }
    }

    /// Adds the result of another rank of the same job: a test failed if it failed on any rank.
    pub fn join(mut self, other: Tally) -> Tally {
        self.tests = self.tests.max(other.tests);
        // Some tests run on one rank alone; those that ran anywhere were not skipped.
        self.skipped = self.skipped.min(other.skipped);
        self.failed.extend(other.failed);
        self
    }

    /// Adds the result of another job.
    pub fn add(&mut self, other: &Tally) {
        self.tests += other.tests;
        self.skipped += other.skipped;
        self.failed.extend(other.failed.iter().cloned());
    }

    /// Adds a failure that no test reports.
    pub fn fails(&mut self, what: &str) {
        self.tests += 1;
        self.failed.insert(what.into());
    }

    /// Puts the name of a job before the names of tests.
    pub fn of(mut self, job: &str) -> Tally {
        self.failed = self.failed.into_iter().map(|test| format!("{job}: {test}")).collect();
        self
    }
}

fn number(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

/// Returns the failures of so many tests without names.
fn nameless(failed: u32) -> BTreeSet<String> {
    (1..=failed).map(|number| format!("failure {number}")).collect()
}

/// Reads the summary of ScaLAPACK's programs: `Finished 320 tests`, then a line for each result.
/// Programs without a summary have a column of results.
pub fn scalapack(said: &str) -> Option<Tally> {
    let mut tally = Tally::default();
    let Some((_, summary)) = said.split_once("Finished ") else { return column(said) };
    tally.tests = number(summary.split_whitespace().next()?)?;
    let mut failed = 0;
    for line in summary.lines().skip(1) {
        let Some((count, what)) = line.trim().split_once(" tests ") else { continue };
        let Some(count) = number(count) else { continue };
        if what.contains("failed") {
            failed += count;
        } else if what.contains("skipped") || what.contains("without checking") {
            tally.skipped += count;
        }
    }
    tally.failed = nameless(failed);
    Some(tally)
}

/// Reads lines with a result: `PASSED` or `FAILED` is a word, or the first in other letters.
pub fn column(said: &str) -> Option<Tally> {
    let has = |line: &str, word: &str| {
        let first = line.split_whitespace().next().unwrap_or_default();
        first.eq_ignore_ascii_case(word) || line.split_whitespace().any(|one| one == word)
    };
    let count = |word: &str| {
        let lines = said.lines().filter(|line| has(line, word));
        u32::try_from(lines.count()).unwrap_or(u32::MAX)
    };
    let (passed, failed) = (count("PASSED"), count("FAILED"));
    (passed + failed > 0).then(|| Tally {
        tests: passed + failed,
        skipped: 0,
        failed: nameless(failed),
    })
}

/// Reads the table of a PBLAS tester: name, then total, passed, failed and skipped.
pub fn pblas(said: &str) -> Option<Tally> {
    let (_, table) = said.split_once("Testing Summary")?;
    let mut tally = Tally::default();
    for line in table.lines() {
        let words: Vec<&str> = line.trim_start_matches([' ', '|']).split_whitespace().collect();
        let [name, counts @ ..] = &words[..] else { continue };
        let counts: Vec<u32> = counts.iter().filter_map(|word| number(word)).collect();
        if let [total, _, failed, skipped] = counts[..] {
            tally.tests += total;
            tally.skipped += skipped;
            let failures = nameless(failed).into_iter().map(|which| format!("{name}, {which}"));
            tally.failed.extend(failures);
        }
    }
    (tally.tests > 0).then_some(tally)
}

/// Reads the solution of MUMPS's small system, 1 to 5.
pub fn mumps(said: &str) -> Option<Tally> {
    let (_, solution) = said.split_once("Solution is")?;
    let numbers = solution.split(['(', ')', ',', ' ', '\n']).filter_map(|w| w.parse::<f64>().ok());
    // A complex number has an imaginary part of 0 behind it.
    let numbers: Vec<f64> = numbers.filter(|n| n.abs() > 0.5).take(5).collect();
    let right =
        numbers.iter().zip([1.0, 2.0, 3.0, 4.0, 5.0]).all(|(n, want)| (n - want).abs() < 1e-3);
    Some(Tally::one("solution", right && numbers.len() == 5))
}

/// Reads the result of Python's `unittest`.
pub fn unittest(said: &str) -> Option<Tally> {
    let ran = said.rsplit_once("\nRan ")?.1;
    let tests = number(ran.split_whitespace().next()?)?;
    let skipped = ran.split_once("skipped=").map(|(_, rest)| rest);
    let skipped = skipped.and_then(|rest| number(rest.split([',', ')']).next()?)).unwrap_or(0);
    let names = said.lines().filter_map(|line| {
        line.strip_prefix("FAIL: ").or_else(|| line.strip_prefix("ERROR: ")).map(str::to_string)
    });
    Some(Tally { tests, skipped, failed: names.collect() })
}

/// Reads the summary of `pytest -rfE`: `4 passed, 2 skipped in 3.21s`, with the names of failures
/// before it.
pub fn pytest(said: &str) -> Option<Tally> {
    let is_end = |line: &&str| {
        line.contains(" in ") && line.trim_end_matches(')').ends_with('s') || line.contains("s (0:")
    };
    let counted = |line: &&str| ["passed", "failed", "error"].iter().any(|w| line.contains(w));
    let end = said.lines().rev().filter(is_end).find(counted)?;
    let mut tally = Tally::default();
    for part in end.trim_matches(['=', ' ']).split(", ") {
        let mut words = part.split_whitespace();
        let (Some(count), Some(what)) = (words.next().and_then(number), words.next()) else {
            continue;
        };
        match what {
            "skipped" => tally.skipped += count,
            "passed" | "failed" | "error" | "errors" | "xfailed" | "xpassed" => {}
            _ => continue,
        }
        tally.tests += count;
    }
    let names = said.lines().filter_map(|line| {
        let name = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR "))?;
        Some(name.split(" - ").next().unwrap_or(name).to_string())
    });
    tally.failed = names.collect();
    Some(tally)
}

/// Reads the line with which programs of ours end.
pub fn ours(said: &str) -> Option<Tally> {
    said.lines().any(|line| line.ends_with(": passed")).then(|| Tally::one("program", true))
}

/// Counts a program as one test, which its exit code decides.
pub fn exit_code(_said: &str) -> Option<Tally> {
    Some(Tally::one("program", true))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn counts(tally: Option<Tally>) -> (u32, u32, usize) {
        let tally = tally.unwrap();
        (tally.tests, tally.skipped, tally.failed.len())
    }

    #[test]
    fn scalapack__summaries_of_two_forms() {
        let said = "WALL 3 PASSED\nFinished    36 tests, with the following results:\n   \
                    24 tests completed and passed residual checks.\n    \
                    2 tests completed and failed residual checks.\n   \
                    10 tests skipped because of illegal input values.\n";
        assert_eq!(counts(scalapack(said)), (36, 10, 2));
        let other = "Finished    9 tests, with the following results:\n  \
                     8 tests completed and passed residual checks.\n  \
                     0 tests skipped for lack of memory.\n    1 tests completed and failed.\n";
        assert_eq!(counts(scalapack(other)), (9, 0, 1));
        assert_eq!(counts(scalapack("  500  50    2    2     1.81 PASSED\n")), (1, 0, 0));
        assert_eq!(scalapack("BLACS WARNING"), None);
    }

    #[test]
    fn pblas__the_rows_of_its_table() {
        let said =
            "  Testing Summary\n\n     SUBROUTINE  TOTAL TESTS  PASSED   FAILED  SKIPPED\n  \
                    |  PDSWAP           16        15        1       0\n  |  PDSCAL    4  2  0  2\n";
        let tally = pblas(said).unwrap();
        assert_eq!((tally.tests, tally.skipped), (20, 2));
        assert_eq!(tally.failed.into_iter().collect::<Vec<_>>(), ["PDSWAP, failure 1"]);
        assert_eq!(pblas("no table"), None);
    }

    #[test]
    fn mumps__real_and_complex() {
        let real = "  Solution is   0.99999999999999878        2.0000000000000004        \
                    3.0 3.9999999999999996 4.9999999999999991\n\nEntering DMUMPS 5.5.1";
        assert_eq!(counts(mumps(real)), (1, 0, 0));
        let complex = "Solution is (1.0,0.0) (2.0,-1e-9) (3.0,0.0) (4.0,0.0) (5.0,0.0)";
        assert_eq!(counts(mumps(complex)), (1, 0, 0));
        assert_eq!(counts(mumps("Solution is 1.0 2.0 3.0 4.0 6.0")), (1, 0, 1));
        assert_eq!(mumps("Entering"), None);
    }

    #[test]
    fn unittest__the_names_of_failures() {
        let said = "FAIL: testMetric (test_dmplex.TestA.testMetric)\n-----\nTraceback\n\
                    Ran 6075 tests in 100.1s\n\nFAILED (failures=1, skipped=12)\n";
        let tally = unittest(said).unwrap();
        assert_eq!((tally.tests, tally.skipped), (6075, 12));
        let name = "testMetric (test_dmplex.TestA.testMetric)".to_string();
        assert_eq!(tally.failed, BTreeSet::from([name]));
        assert_eq!(counts(unittest("..\nRan 2 tests in 1.0s\n\nOK\n")), (2, 0, 0));
    }

    #[test]
    fn pytest__the_last_line_and_the_names() {
        let said = "FAILED tests/test_a.py::test_b[x-1] - assert 1 == 2\n\
                    1 failed, 6 passed, 2 skipped, 6 warnings in 92.45s (0:01:32)\n";
        let tally = pytest(said).unwrap();
        assert_eq!((tally.tests, tally.skipped), (9, 2));
        assert_eq!(tally.failed, BTreeSet::from(["tests/test_a.py::test_b[x-1]".to_string()]));
        assert_eq!(counts(pytest("4 passed, 65 deselected in 10.91s\n mpicc: x\n")), (4, 0, 0));
        assert_eq!(pytest("collected 3 items"), None);
    }

    #[test]
    fn join__a_test_failed_if_it_failed_on_any_rank() {
        let (a, b) = (Tally::one("a", true), Tally::one("a", false));
        assert_eq!(counts(Some(a.join(b))), (1, 0, 1));
    }
}

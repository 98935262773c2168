//! Running commands and counting what they tested.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The result of a suite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of tests that passed.
    pub passed: u32,
    /// Number of tests that failed.
    pub failed: u32,
    /// Number of tests that did not run.
    pub skipped: u32,
    /// Remarks for the reader of the table.
    pub notes: Vec<String>,
    /// Names of tests that were run, including those that then found that they cannot run here.
    pub names: BTreeSet<String>,
}

impl Outcome {
    /// Makes the result of one check.
    pub fn one(held: bool) -> Outcome {
        Outcome { passed: held.into(), failed: (!held).into(), ..Outcome::default() }
    }

    /// Makes the result of a suite that cannot run here, and the reason.
    pub fn skip(why: impl Into<String>) -> Outcome {
        Outcome { skipped: 1, notes: vec![why.into()], ..Outcome::default() }
    }

    /// Adds a remark.
    pub fn note(mut self, text: impl Into<String>) -> Outcome {
        self.notes.push(text.into());
        self
    }

    /// Adds the counts and notes of `other`.
    pub fn add(&mut self, other: Outcome) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.notes.extend(other.notes);
        self.names.extend(other.names);
    }

    /// Makes the result of what a test program has printed.
    pub fn of_output(text: &str) -> Outcome {
        let mut outcome = Outcome::default();
        text.lines().for_each(|line| outcome.read(line));
        outcome
    }

    /// Adds what a line of a test program's output says.
    fn read(&mut self, line: &str) {
        if let Some(counts) = summary(line) {
            self.add(counts);
        }
        self.names.extend(ended_test(line).map(str::to_string));
        let ignored = ignored_test(line);
        self.notes.extend(ignored.map(|(name, why)| format!("skipped {name}: {why}")));
        self.notes.extend(failed_test(line).map(|name| format!("failed {name}")));
    }

    /// Removes the skipped tests that a later suite with the necessary tools runs again: they count
    /// there.
    pub fn leave_to(&mut self, later: &Outcome) {
        let before = self.notes.len();
        let again = |name: &str| later.names.contains(name);
        self.notes.retain(|note| !skipped_test(note).is_some_and(again));
        let left = u32::try_from(before - self.notes.len()).unwrap_or(u32::MAX);
        self.skipped = self.skipped.saturating_sub(left);
    }
}

/// Returns the test that a note reports as skipped.
fn skipped_test(note: &str) -> Option<&str> {
    note.strip_prefix("skipped ")?.split_once(": ").map(|(name, _)| name)
}

/// Returns the test whose end a line of libtest reports: `test module::name ... ok`. An ignored
/// test did not run.
fn ended_test(line: &str) -> Option<&str> {
    let (name, how) = line.strip_prefix("test ")?.split_once(" ... ")?;
    (!how.starts_with("ignored")).then_some(name)
}

/// Returns the test that a line of libtest reports as failed: `test module::name ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    let (name, how) = line.strip_prefix("test ")?.split_once(" ... ")?;
    how.starts_with("FAILED").then_some(name)
}

/// Returns the test that a line of libtest reports as ignored, and the reason.
fn ignored_test(line: &str) -> Option<(&str, &str)> {
    let (name, why) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    Some((name, why.trim_start_matches(", ")))
}

/// Makes a command of the `cargo` that built this program, in the repository.
pub fn cargo(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(crate::root()).args(args);
    command
}

/// Returns true if the command ends well. Its output is not redirected.
pub fn succeeds(command: &mut Command) -> bool {
    match command.status() {
        Ok(status) => status.success(),
        Err(e) => {
            eprintln!("{}: {e}", command.get_program().to_string_lossy());
            false
        }
    }
}

/// Returns the standard output of a command that ends well.
pub fn output_of(command: &mut Command) -> Option<String> {
    let out = command.stderr(Stdio::null()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Returns true if the command ends well within the limit; it is killed at the limit.
pub fn succeeds_within(command: &mut Command, limit: Duration) -> bool {
    let Ok(mut child) = command.spawn() else { return false };
    let end = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(100)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

/// The variable that names the skip log to tests.
pub const SKIP_LOG: &str = "WEFT_SKIP_LOG";

/// Returns the file to which tests add a line when they find that they cannot run.
pub fn skip_log() -> PathBuf {
    let folder = crate::root().join("target/tests");
    let _there = std::fs::create_dir_all(&folder);
    folder.join(format!("skipped-{}.log", std::process::id()))
}

/// Runs test programs, passes their output on and adds up their summary lines. Tests that noted in
/// the skip log that they could not run count as skipped. A note names each test that failed.
pub fn counted(command: &mut Command) -> Outcome {
    let log = skip_log();
    let mut outcome = Outcome::default();
    let child = command.env(SKIP_LOG, &log).stdout(Stdio::piped()).spawn();
    let held = match child {
        Ok(mut child) => {
            let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
            for line in lines.into_iter().flatten().map_while(Result::ok) {
                println!("{line}");
                outcome.read(&line);
            }
            child.wait().is_ok_and(|status| status.success())
        }
        Err(e) => {
            eprintln!("{}: {e}", command.get_program().to_string_lossy());
            false
        }
    };
    if !held && outcome.failed == 0 {
        outcome.failed = 1;
    }
    take_skips(&log, &mut outcome);
    outcome
}

/// Counts a summary line of libtest (`test result: ok. 3 passed; 0 failed; 1 ignored; ...`) or of
/// this program (`3 passed, 0 failed, 1 skipped`).
fn summary(line: &str) -> Option<Outcome> {
    let ours = line.split(", ").count() == 3 && line.ends_with(" skipped");
    let counts = match line.strip_prefix("test result: ") {
        Some(rest) => rest.split_once(". ")?.1,
        None if ours => line,
        None => return None,
    };
    let mut outcome = Outcome::default();
    for part in counts.split([';', ',']) {
        let mut words = part.split_whitespace();
        let (Some(number), Some(what)) = (words.next(), words.next()) else { continue };
        let Ok(number) = number.parse::<u32>() else { continue };
        match what {
            "passed" => outcome.passed = number,
            "failed" => outcome.failed = number,
            "ignored" | "skipped" => outcome.skipped = number,
            _ => {}
        }
    }
    Some(outcome)
}

/// Moves tests that noted a reason in the skip log from passed to skipped.
pub fn take_skips(log: &Path, outcome: &mut Outcome) {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let _ = std::fs::remove_file(log);
    let lines: Vec<&str> = text.lines().collect();
    let skipped = u32::try_from(lines.len()).unwrap_or(u32::MAX).min(outcome.passed);
    outcome.passed -= skipped;
    outcome.skipped += skipped;
    outcome.notes.extend(lines.iter().map(|l| format!("skipped {l}")));
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn summary__reads_libtest() {
        let line = "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; \
                    3 filtered out; finished in 0.02s";
        let counts = Outcome { passed: 12, failed: 1, skipped: 2, ..Outcome::default() };
        assert_eq!(summary(line), Some(counts));
    }

    #[test]
    fn summary__reads_our_own_form() {
        let counts = Outcome { passed: 7, failed: 0, skipped: 1, ..Outcome::default() };
        assert_eq!(summary("7 passed, 0 failed, 1 skipped"), Some(counts));
    }

    #[test]
    fn summary__leaves_other_lines_alone() {
        assert_eq!(summary("running 3 tests"), None);
        assert_eq!(summary("1 passed, and that is prose"), None);
    }

    #[test]
    fn leave_to__a_later_suite_counts_what_it_runs() {
        let skips = ["skipped a::b: needs x: y", "skipped c: why", "proof: no test a::b"];
        let notes = skips.map(str::to_string).to_vec();
        let mut first = Outcome { passed: 5, skipped: 2, notes, ..Outcome::default() };
        let mut later = Outcome::default();
        let ignored = "test c ... ignored, is large";
        assert_eq!(ignored_test(ignored), Some(("c", "is large")));
        for line in ["test a::b ... ok", ignored, "test d ... FAILED", "test result: ok. 1 passed"]
        {
            later.names.extend(ended_test(line).map(str::to_string));
        }
        first.leave_to(&later);
        assert_eq!((first.passed, first.skipped), (5, 1));
        assert_eq!(first.notes, skips[1..]);
    }

    #[test]
    fn counted__notes_the_tests_that_failed() {
        let output =
            "test a::b ... FAILED\ntest c ... ok\ntest src/lib.rs - d (line 3) ... FAILED\n\
                      test e has no result\n\
                      test result: FAILED. 1 passed; 2 failed; 0 ignored\n";
        let outcome = counted(Command::new("printf").args(["%s", output]));
        assert_eq!((outcome.passed, outcome.failed), (1, 2));
        assert_eq!(outcome.notes, ["failed a::b", "failed src/lib.rs - d (line 3)"]);
    }

    #[test]
    fn counted__a_failure_without_a_summary_counts_as_one() {
        let outcome = counted(&mut Command::new("false"));
        assert_eq!((outcome.passed, outcome.failed), (0, 1));
    }

    #[test]
    fn succeeds_within__ends_what_takes_too_long() {
        assert!(succeeds_within(&mut Command::new("true"), Duration::from_secs(30)));
        let mut long = Command::new("sleep");
        assert!(!succeeds_within(long.arg("600"), Duration::ZERO));
    }
}

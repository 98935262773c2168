//! The table of the suite.

use crate::run::{output_of, Outcome};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Results of a consumer at one place.
pub struct Row {
    /// Version of the consumer.
    pub version: String,
    /// The MPI, or the launcher.
    pub over: String,
    /// The hosts.
    pub place: &'static str,
    /// Number of tests.
    pub tests: u32,
    /// Tests that fail without weft, too.
    pub own: u32,
    /// Tests that fail over weft alone.
    pub failed: u32,
    /// Tests that the suite left out itself.
    pub skipped: u32,
    /// Time of its runs over weft.
    pub took: Duration,
}

impl Row {
    fn passed(&self) -> u32 {
        self.tests.saturating_sub(self.own + self.failed + self.skipped)
    }
}

/// All results of a consumer.
pub struct Report {
    name: &'static str,
    /// The reason why it was not run.
    pub skipped: Option<String>,
    /// A row for each place.
    pub rows: Vec<Row>,
    /// Failures over weft alone, and a package that was refused.
    pub failures: Vec<String>,
    /// Other things that a reader has to know.
    pub remarks: Vec<String>,
}

impl Report {
    /// Makes an empty report.
    pub fn of(name: &'static str) -> Report {
        let (rows, failures, remarks) = (Vec::new(), Vec::new(), Vec::new());
        Report { name, skipped: None, rows, failures, remarks }
    }

    /// Returns its counts for the table of all suites. Failures of its own count as skipped.
    pub fn outcome(&self) -> Outcome {
        let mut outcome = Outcome::default();
        for row in &self.rows {
            outcome.passed += row.passed();
            outcome.failed += row.failed;
            outcome.skipped += row.skipped + row.own;
        }
        if self.rows.is_empty() && self.skipped.is_none() {
            outcome.failed += 1;
        }
        if let Some(why) = &self.skipped {
            outcome.add(Outcome::skip(format!("skipped {}: {why}", self.name)));
        }
        let failed = self.failures.iter().map(|test| format!("failed {}: {test}", self.name));
        let remarks = self.remarks.iter().map(|remark| format!("{}: {remark}", self.name));
        outcome.notes.extend(failed.chain(remarks));
        outcome
    }

    /// Returns the rows of the table in the results.
    fn table_lines(&self) -> String {
        let mut lines = String::new();
        let today = output_of(Command::new("date").arg("+%F")).unwrap_or_default();
        let today = today.trim();
        for row in &self.rows {
            let Row { version, over, place, tests, own, failed, skipped, took } = row;
            let (name, passed, seconds) = (self.name, row.passed(), took.as_secs());
            let _ = writeln!(
                lines,
                "| {name} {version} | {over} | {place} | {tests} | {passed} | {own} | {failed} | \
                 {skipped} | {seconds} | {today} |",
            );
        }
        lines
    }

    /// Returns the lines below the table in the results.
    fn list_lines(&self) -> String {
        let [not_run, failed, ..] = super::page::OPENINGS;
        let skipped = self.skipped.iter().map(|why| format!("{not_run}{why}"));
        let failed = self.failures.iter().map(|test| format!("{failed}{test}"));
        let remarks = self.remarks.iter().cloned();
        let all = skipped.chain(failed).chain(remarks);
        all.map(|line| format!("- *{}*: {line}\n", self.name)).collect()
    }

    /// Keeps the report, so that the results can be written of consumers that ran one by one.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn store(&self, cache: &Path) -> Result<(), String> {
        let folder = cache.join("reports");
        let failed = |e| format!("{}: {e}", folder.display());
        std::fs::create_dir_all(&folder).map_err(failed)?;
        std::fs::write(folder.join(format!("{}.rows", self.name)), self.table_lines())
            .map_err(failed)?;
        std::fs::write(folder.join(format!("{}.list", self.name)), self.list_lines())
            .map_err(failed)
    }
}

/// Prints the table.
pub fn print(reports: &[Report]) {
    println!(
        "\n{:14} {:9} {:18} {:10} {:>6} {:>6} {:>5} {:>6} {:>7} {:>7}",
        "consumer", "version", "over", "where", "tests", "passed", "own", "failed", "skipped", "s"
    );
    for report in reports {
        for row in &report.rows {
            let Row { version, over, place, tests, own, failed, skipped, took } = row;
            let (passed, seconds) = (row.passed(), took.as_secs_f64());
            println!(
                "{:14} {version:9} {over:18} {place:10} {tests:>6} {passed:>6} {own:>5} \
                 {failed:>6} {skipped:>7} {seconds:>7.1}",
                report.name,
            );
        }
        report.skipped.iter().for_each(|why| println!("{:14} skipped: {why}", report.name));
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::of("some");
        report.rows.push(Row {
            version: "1.2".into(),
            over: "Open MPI 4.1.4".into(),
            place: "one host",
            tests: 10,
            own: 1,
            failed: 2,
            skipped: 3,
            took: Duration::from_secs(5),
        });
        report
    }

    #[test]
    fn outcome__counts_each_test_once() {
        let outcome = report().outcome();
        assert_eq!((outcome.passed, outcome.failed, outcome.skipped), (4, 2, 4));
        let line = "| some 1.2 | Open MPI 4.1.4 | one host | 10 | 4 | 1 | 2 | 3 | 5 | 2";
        assert!(report().table_lines().starts_with(line));
    }

    #[test]
    fn outcome__a_consumer_that_cannot_be_had_is_skipped_by_name() {
        let mut report = Report::of("some");
        report.skipped = Some("why".into());
        let outcome = report.outcome();
        assert_eq!((outcome.failed, outcome.skipped), (0, 1));
        assert_eq!(outcome.notes, ["skipped some: why"]);
        assert_eq!(report.list_lines(), "- *some*: not run: why\n");
    }

    #[test]
    fn outcome__a_package_that_is_refused_is_a_failure() {
        let mut report = Report::of("some");
        report.failures.push("pip: no".into());
        assert_eq!(report.outcome().failed, 1);
    }
}

//! The test programs of the workspace: built once, and then run side by side, because most tests
//! wait for processes and for times to pass.

use crate::install;
use crate::run::{cargo, counted, skip_log, take_skips, Outcome, SKIP_LOG};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The programs that take longest, the longest first: started last, one of them would run on
/// alone.
const LONG: [&str; 9] = [
    "weft-bench bench",
    "weft-cli python",
    "weft-cli lab",
    "weft-preload sockets",
    "weft-sim swarm",
    "weft-bench choices",
    "weft-conformance links",
    "weft-models sim",
    "weft-sim networks",
];
/// The programs that count what this machine does meanwhile: they run when no other does.
const ALONE: [&str; 2] = ["weft-conformance spinning", "weftd still"];
/// The longest time that a program may take. It is killed then, and has failed.
const LIMIT: Duration = Duration::from_secs(900);
/// Time between two looks at the programs that run.
const PAUSE: Duration = Duration::from_millis(20);

/// A test program.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    /// Package and target.
    name: String,
    executable: PathBuf,
    /// The folder of its package, in which Cargo would start it.
    folder: PathBuf,
}

impl Program {
    /// Reads a message of Cargo; `None` if it is not about a test program.
    fn parse(line: &str) -> Option<Program> {
        let message: Value = serde_json::from_str(line).ok()?;
        if !message["profile"]["test"].as_bool()? {
            return None;
        }
        let executable = message["executable"].as_str()?.into();
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
        let package = message["package_id"].as_str()?;
        // `path+file:///folder#name@version`, or without a name, which is then the folder's.
        let package = match package.split_once('#')?.1.split_once('@') {
            Some((name, _)) => name,
            None => folder.file_name()?.to_str()?,
        };
        let kind = message["target"]["kind"][0].as_str()?;
        let target = match kind {
            "test" => message["target"]["name"].as_str()?,
            other => other,
        };
        Some(Program { name: format!("{package} {target}"), executable, folder })
    }

    /// Returns the place in the order of starts.
    fn rank(&self) -> usize {
        LONG.iter().position(|long| *long == self.name).unwrap_or(LONG.len())
    }

    fn is_alone(&self) -> bool {
        ALONE.contains(&self.name.as_str())
    }

    /// Runs it with so many tests at a time. Returns what it has printed, and how it has ended.
    fn run(&self, at_a_time: usize, log: &Path) -> Result<(String, Option<ExitStatus>), String> {
        let said = log.with_file_name(format!("{}.txt", self.name.replace(' ', ".")));
        let failed = |e| format!("{}: {e}", said.display());
        let out = File::create(&said).map_err(failed)?;
        let errors = out.try_clone().map_err(failed)?;
        let built = install::target(true);
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).stdin(Stdio::null()).stdout(out).stderr(errors);
        command.env("CARGO_MANIFEST_DIR", &self.folder).env(SKIP_LOG, log);
        // Cargo sets it so for the programs that it starts.
        let folders = std::env::join_paths([built.join("deps"), built]);
        command.env("LD_LIBRARY_PATH", folders.unwrap_or_default());
        if std::env::var_os(THREADS).is_none() {
            command.env(THREADS, at_a_time.to_string());
        }
        let status = ended_within(&mut command, LIMIT).map_err(failed)?;
        let said = fs::read(&said).map_err(failed)?;
        Ok((String::from_utf8_lossy(&said).into_owned(), status))
    }
}

const THREADS: &str = "RUST_TEST_THREADS";

/// Runs a command. `None` if it has not ended within the limit, and was killed.
fn ended_within(command: &mut Command, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let mut child = command.spawn()?;
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            child.kill()?;
            return child.wait().map(|_| None);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Builds all tests, and returns the programs in the order of their starts.
fn build() -> Option<Vec<Program>> {
    let args = ["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"];
    let output = cargo(&args).stderr(Stdio::inherit()).output().ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut programs: Vec<Program> = text.lines().filter_map(Program::parse).collect();
    programs.sort_by_key(Program::rank);
    Some(programs)
}

/// Runs all unit and integration tests, and those in documentation.
pub fn run() -> Outcome {
    let Some(programs) = build() else {
        return Outcome::one(false).note("tests do not build");
    };
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let log = skip_log();
    let (alone, beside): (Vec<_>, Vec<_>) = programs.iter().partition(|p| p.is_alone());
    let mut outcome = Outcome::default();
    // Twice as many tests as cores: most of them wait.
    for (programs, workers) in [(beside, cores), (alone, 1)] {
        outcome.add(side_by_side(&programs, workers, 2 * cores / workers, &log));
    }
    take_skips(&log, &mut outcome);
    outcome.add(counted(&mut cargo(&["test", "--workspace", "--doc", "--no-fail-fast"])));
    outcome
}

/// Runs programs, so many of them at a time.
fn side_by_side(programs: &[&Program], workers: usize, at_a_time: usize, log: &Path) -> Outcome {
    let next = Mutex::new(programs.iter());
    let all = Mutex::new(Outcome::default());
    let work = || loop {
        let Some(program) = next.lock().ok().and_then(|mut next| next.next()) else { return };
        let start = Instant::now();
        let outcome = judged(&program.name, program.run(at_a_time, log), start);
        if let Ok(mut all) = all.lock() {
            all.add(outcome);
        }
    };
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    all.into_inner().unwrap_or_else(|_| Outcome::one(false).note("a test could not be started"))
}

/// Counts the tests of a program, and prints a line about it; and all that it has said, if one has
/// failed.
fn judged(
    name: &str,
    ran: Result<(String, Option<ExitStatus>), String>,
    start: Instant,
) -> Outcome {
    let (said, status) = match ran {
        Ok(ran) => ran,
        Err(why) => return Outcome::one(false).note(why),
    };
    let mut outcome = Outcome::of_output(&said);
    if !status.is_some_and(|status| status.success()) && outcome.failed == 0 {
        let how = status.map_or(format!("took over {} s", LIMIT.as_secs()), |s| s.to_string());
        outcome.add(Outcome::one(false).note(format!("failed {name}: {how}")));
    }
    let (Outcome { passed, failed, skipped, .. }, seconds) = (&outcome, start.elapsed());
    let seconds = seconds.as_secs_f64();
    let said = if *failed > 0 { format!("{said}\n") } else { String::new() };
    println!("{said}{name}: {passed} passed, {failed} failed, {skipped} ignored ({seconds:.1} s)");
    outcome
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse__test_programs_alone() {
        let message = |test: bool, kind: &str, id: &str| {
            format!(
                r#"{{"package_id":"{id}","manifest_path":"/w/a-b/Cargo.toml",
                "target":{{"kind":["{kind}"],"name":"t"}},"profile":{{"test":{test}}},
                "executable":"/w/t-1"}}"#
            )
        };
        let parse = |text: String| Program::parse(&text).map(|program| program.name);
        let own = "path+file:///w/a-b#0.1.0";
        assert_eq!(parse(message(true, "test", own)).as_deref(), Some("a-b t"));
        let other = "path+file:///w/a-b#c@0.1.0";
        assert_eq!(parse(message(true, "lib", other)).as_deref(), Some("c lib"));
        assert_eq!(parse(message(false, "test", own)), None);
        assert_eq!(Program::parse("Compiling"), None);
    }

    #[test]
    fn judged__a_program_that_does_not_end_well_has_failed() {
        let ended = |status| Ok(("test result: ok. 2 passed; 0 failed".to_string(), status));
        let good = judged("a t", ended(Some(ExitStatus::default())), Instant::now());
        assert_eq!((good.passed, good.failed), (2, 0));
        let late = judged("a t", ended(None), Instant::now());
        assert_eq!((late.passed, late.failed), (2, 1));
        assert_eq!(late.notes, ["failed a t: took over 900 s"]);
        assert_eq!(judged("a t", Err("no".into()), Instant::now()).failed, 1);
    }

    #[test]
    fn ended_within__a_command_that_goes_on_is_killed() {
        let mut long = Command::new("sleep");
        assert_eq!(ended_within(long.arg("600"), Duration::ZERO).unwrap(), None);
        let long = LIMIT;
        assert!(ended_within(&mut Command::new("true"), long).unwrap().is_some());
    }

    #[test]
    fn side_by_side__counts_all() {
        let folder = std::env::temp_dir().join(format!("weft-programs-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let program = |name: &str, command: &str| Program {
            name: name.into(),
            executable: command.into(),
            folder: folder.clone(),
        };
        let programs = [program("a t", "true"), program("b t", "false"), program("c t", "true")];
        let programs: Vec<&Program> = programs.iter().collect();
        let outcome = side_by_side(&programs, 2, 1, &folder.join("log"));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((outcome.failed, outcome.notes.len()), (1, 1));
    }
}

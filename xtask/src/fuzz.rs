//! `cargo xtask fuzz`: coverage-guided fuzzing with libFuzzer through cargo-fuzz.

use crate::run::{cargo, output_of, succeeds, Outcome};
use crate::setup::has;
use std::process::Command;

/// Returns the names of the fuzz targets.
pub fn targets() -> Vec<String> {
    let folder = crate::root().join("fuzz").join("fuzz_targets");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|e| e.file_name().to_str()?.strip_suffix(".rs").map(str::to_string))
        .collect();
    names.sort();
    names
}

/// Runs the task: one target or all, each for a number of seconds.
pub fn main(args: &[String]) -> Result<bool, String> {
    let mut seconds = 60;
    let mut wanted = targets();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--seconds" {
            let value = args.next().and_then(|s| s.parse().ok());
            seconds = value.ok_or("--seconds wants a number")?;
        } else if targets().contains(arg) {
            wanted = vec![arg.clone()];
        } else {
            return Err(format!("no fuzz target {arg}; there are: {}", targets().join(" ")));
        }
    }
    if !install() {
        return Err(MISSING.into());
    }
    Ok(wanted.iter().all(|target| run(target, seconds)))
}

const MISSING: &str = "cargo-fuzz cannot be installed here; the same target bodies run on seeded \
                       inputs in `cargo test -p weft-conformance hostile`";

/// Installs cargo-fuzz, once. False if that is impossible here.
fn install() -> bool {
    installed() || {
        println!("installing cargo-fuzz");
        succeeds(&mut cargo(&["install", "cargo-fuzz", "--locked"])) && installed()
    }
}

fn installed() -> bool {
    let home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    has("cargo-fuzz") || home.is_ok_and(|h| crate::root().join(h).join("bin/cargo-fuzz").is_file())
}

fn run(target: &str, seconds: u32) -> bool {
    println!("fuzzing {target} for {seconds} s");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Coverage instrumentation is an unstable compiler option; the stable compiler has it too.
    command
        .env("RUSTC_BOOTSTRAP", "1")
        .env_remove("CARGO_TARGET_DIR")
        .current_dir(crate::root().join("fuzz"))
        .args(["fuzz", "run", "--fuzz-dir", ".", "--sanitizer", "none", target, "--"])
        .arg(format!("-max_total_time={seconds}"))
        .args(["-rss_limit_mb=1024", "-timeout=10", "-print_final_stats=1"]);
    let out = match command.output() {
        Ok(out) => out,
        Err(e) => {
            eprintln!("cargo fuzz: {e}");
            return false;
        }
    };
    let text = String::from_utf8_lossy(&out.stderr);
    if out.status.success() {
        let inputs = text.lines().find_map(|l| l.strip_prefix("stat::number_of_executed_units:"));
        println!("  {} inputs, no failure", inputs.unwrap_or("?").trim());
    } else {
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].iter().for_each(|l| eprintln!("{l}"));
    }
    out.status.success()
}

/// Fuzzes every target for a few seconds, as a test suite.
pub fn smoke() -> Outcome {
    if output_of(Command::new("c++").arg("--version")).is_none() {
        return Outcome::skip("libFuzzer needs a C++ compiler");
    }
    if !install() {
        return Outcome::skip(MISSING);
    }
    let mut outcome = Outcome::default();
    for target in targets() {
        outcome.add(Outcome::one(run(&target, 3)));
    }
    outcome
}

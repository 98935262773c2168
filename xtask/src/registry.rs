//! The suite `registry`: what crates.io and docs.rs ask of the library crates, and what may be in
//! programs: licences, sources and versions of dependencies.

use crate::package::Scratch;
use crate::publish;
use crate::run::{cargo, output_of, succeeds, Outcome};
use crate::tools;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// The commit or tag whose interfaces the crates keep, below `dist`.
const BASELINE: &str = "dist/baseline";

/// A check of the public crates.
type Check = fn(&[String]) -> Outcome;

/// Runs all checks.
pub fn suite() -> Outcome {
    let Some(crates) = public() else {
        return Outcome::one(false).note("Cargo does not read the workspace");
    };
    let mut outcome = denied();
    let checks: [(&str, Check); 4] = [
        ("the crates are packed for crates.io", packed),
        ("the crates build with the oldest versions of their dependencies", oldest),
        ("the documentation builds as docs.rs builds it", documented),
        ("the crates keep the interfaces of the baseline", kept),
    ];
    for (what, check) in checks {
        println!("-- {what}");
        let checked = check(&crates);
        outcome.notes.extend((checked.failed > 0).then(|| format!("does not hold: {what}")));
        outcome.add(checked);
    }
    outcome
}

/// Returns the names of the crates that may be published.
fn public() -> Option<Vec<String>> {
    let text = output_of(&mut cargo(&["metadata", "--no-deps", "--format-version=1"]))?;
    let metadata: Value = serde_json::from_str(&text).ok()?;
    let packages = metadata["packages"].as_array()?.iter();
    let public = packages.filter(|package| package["publish"].is_null());
    public.map(|package| package["name"].as_str().map(str::to_owned)).collect()
}

/// Returns the options of Cargo that name these crates.
fn named(crates: &[String]) -> impl Iterator<Item = &str> {
    crates.iter().flat_map(|name| ["--package", name])
}

/// Checks licences, sources and versions of all dependencies, and known faults of them where their
/// list can be had.
fn denied() -> Outcome {
    println!("-- dependencies are allowed");
    let Some(deny) = tools::program("cargo-deny") else {
        return Outcome::skip("skipped registry cargo-deny: it cannot be installed here");
    };
    let mut check = Command::new(&deny);
    check.current_dir(crate::root()).args(["check", "licenses", "bans", "sources"]);
    let mut outcome = Outcome::one(succeeds(&mut check));
    let mut faults = Command::new(deny);
    let said = faults.current_dir(crate::root()).args(["check", "advisories"]).output();
    let said = said.map(|out| (out.status, String::from_utf8_lossy(&out.stderr).into_owned()));
    outcome.add(match said {
        Ok((status, _)) if status.success() => Outcome::one(true),
        Ok((_, said)) if is_offline(&said) => {
            Outcome::skip("skipped registry advisories: their list cannot be fetched here")
        }
        Ok((_, said)) => {
            eprintln!("{said}");
            Outcome::one(false).note("a dependency has a known fault, or was withdrawn")
        }
        Err(e) => Outcome::one(false).note(format!("cargo-deny: {e}")),
    });
    outcome
}

fn is_offline(said: &str) -> bool {
    said.contains("failed to fetch advisory database")
}

fn packed(_: &[String]) -> Outcome {
    Outcome::one(publish::main(&["--no-verify".to_owned()]) == Ok(true))
}

/// Builds the crates with the oldest versions that their manifests allow.
fn oldest(crates: &[String]) -> Outcome {
    let copy = match Scratch::new("oldest") {
        Ok(copy) => copy,
        Err(why) => return Outcome::one(false).note(why),
    };
    if let Err(why) = publish::unpack(copy.path()) {
        return Outcome::one(false).note(why);
    }
    let target = own_target();
    let of_copy = |args: &[&str]| {
        let mut cargo = cargo(args);
        cargo.current_dir(copy.path()).env("CARGO_TARGET_DIR", &target);
        cargo
    };
    // An unstable option of Cargo; the stable one has it too.
    let mut update = of_copy(&["update", "--quiet", "-Z", "direct-minimal-versions"]);
    let chosen = succeeds(update.env("RUSTC_BOOTSTRAP", "1"));
    let mut check = of_copy(&["check", "--quiet", "--lib"]);
    Outcome::one(chosen && succeeds(check.args(named(crates))))
}

/// A target folder of its own: other versions and options would have the tests built anew.
fn own_target() -> PathBuf {
    crate::root().join("target/registry")
}

fn documented(crates: &[String]) -> Outcome {
    let mut doc = cargo(&["doc", "--quiet", "--no-deps", "--lib", "--all-features"]);
    doc.env("RUSTDOCFLAGS", "--cfg docsrs --deny warnings").env("CARGO_TARGET_DIR", own_target());
    Outcome::one(succeeds(doc.args(named(crates))))
}

/// Compares the interfaces with those of the baseline, if there is one.
fn kept(crates: &[String]) -> Outcome {
    let skip = |why: &str| Outcome::skip(format!("skipped registry interfaces: {why}"));
    let text = std::fs::read_to_string(crate::root().join(BASELINE)).unwrap_or_default();
    let baseline = text.trim();
    if baseline.is_empty() {
        return skip("no release yet: dist/baseline will name its commit");
    }
    let Some(checker) = tools::program("cargo-semver-checks") else {
        return skip("cargo-semver-checks cannot be installed here");
    };
    let mut check = Command::new(checker);
    check.current_dir(crate::root()).args(["semver-checks", "--baseline-rev", baseline]);
    Outcome::one(succeeds(check.args(named(crates)).env("CARGO_TARGET_DIR", own_target())))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn public__is_the_library_and_what_it_needs() {
        let crates = public().unwrap();
        let has = |name: &str| crates.iter().any(|public| public == name);
        assert!(has("weft") && has("weft-core") && has("weft-link"), "{crates:?}");
        assert!(!has("weft-cli") && !has("xtask"), "{crates:?}");
    }

    #[test]
    fn is_offline__a_list_that_was_read_may_have_faults() {
        let offline = "[ERROR] failed to fetch advisory database https://example.org";
        assert!(is_offline(offline) && !is_offline("error[vulnerability]"));
    }
}

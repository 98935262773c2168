//! Virtual environments of Python with packages from PyPI, for tests.

use crate::run::succeeds;
use std::path::Path;
use std::process::{Command, Stdio};

/// The reason why something could not be installed.
#[derive(Debug, PartialEq, Eq)]
pub enum Missing {
    /// There is no Python, or no network.
    Means(String),
    /// pip refused.
    Refused(String),
}

/// Returns the cause of pip's errors. Without a network it retries, and then finds no version.
fn cause(complaints: &str) -> Missing {
    let network = ["NewConnectionError", "ConnectTimeoutError", "NameResolutionError"];
    let network = network.iter().chain(&["ProxyError", "Network is unreachable"]);
    let network = network.chain(&["ReadTimeoutError", "Read timed out", "IncompleteRead"]);
    let network = network.chain(&["ConnectionResetError", "SSLError"]);
    let last = complaints.lines().rfind(|line| line.starts_with("ERROR:")).unwrap_or("no reason");
    if network.into_iter().any(|mark| complaints.contains(mark)) {
        return Missing::Means(format!("the package index cannot be reached: {last}"));
    }
    // For another processor or Python there may be no wheel.
    match last.contains("No matching distribution") {
        true => Missing::Means(format!("the package index does not have it: {last}")),
        false => Missing::Refused(format!("pip: {last}")),
    }
}

/// Installs an environment, once: a file with its packages marks it as complete.
pub fn install(place: &Path, packages: &[&str]) -> Result<(), Missing> {
    let stamp = place.join("installed");
    let wanted = packages.join("\n");
    if std::fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(());
    }
    println!("installing {} in {}", packages.join(" "), place.display());
    let mut venv = Command::new("python3");
    if !succeeds(venv.args(["-m", "venv", "--clear"]).arg(place).stdout(Stdio::null())) {
        let why = "python3 -m venv does not work (Debian: python3-venv)";
        return Err(Missing::Means(why.into()));
    }
    pip(place, &[&["install"], packages].concat())?;
    let failed = |e| Missing::Means(format!("{}: {e}", stamp.display()));
    std::fs::write(&stamp, wanted).map_err(failed)
}

/// Runs pip of an environment.
pub fn pip(place: &Path, words: &[&str]) -> Result<(), Missing> {
    let mut pip = Command::new(place.join("bin/pip"));
    pip.args(&words[..1]).args(["--quiet", "--disable-pip-version-check", "--retries", "2"]);
    let output = pip.args(&words[1..]).stdin(Stdio::null()).output();
    let output = output.map_err(|e| Missing::Means(format!("pip: {e}")))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(cause(&String::from_utf8_lossy(&output.stderr))),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn cause__without_a_network_it_is_not_pips_refusal() {
        let offline = "WARNING: Retrying after connection broken by 'NewConnectionError(...)'\n\
                       ERROR: Could not find a version that satisfies the requirement mpich\n\
                       ERROR: No matching distribution found for mpich==5.0.2\n";
        match cause(offline) {
            Missing::Means(why) => assert!(why.contains("No matching distribution"), "{why}"),
            other => panic!("{other:?}"),
        }
        let none = "ERROR: No matching distribution found for mpich==5.0.2\n";
        assert!(matches!(cause(none), Missing::Means(_)));
        let late = "ReadTimeoutError(...)\nERROR: Read timed out.\n";
        assert!(matches!(cause(late), Missing::Means(_)));
        let wrong = "ERROR: Hashes are not what they should be\n";
        assert!(matches!(cause(wrong), Missing::Refused(_)));
        assert_eq!(cause(""), Missing::Refused("pip: no reason".into()));
    }
}

//! Virtual environments of Python with packages from PyPI, for tests.

use crate::run::succeeds;
use std::path::Path;
use std::process::{Command, Stdio};

/// The reason why something could not be installed.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    let of_pip = complaints.lines().rfind(|line| line.starts_with("ERROR:"));
    // A package whose own set-up fails has a line of Python's.
    let of_set_up = || complaints.lines().rfind(|line| line.contains("Error: "));
    let last = of_pip.or_else(of_set_up).unwrap_or("no reason").trim();
    if network.into_iter().any(|mark| complaints.contains(mark)) {
        return Missing::Means(format!("the package index cannot be reached: {last}"));
    }
    // For another processor or Python there may be no wheel.
    match last.contains("No matching distribution") {
        true => Missing::Means(format!("the package index does not have it: {last}")),
        false => Missing::Refused(format!("pip: {last}")),
    }
}

/// The Python that an environment uses.
#[derive(Clone, Copy)]
pub enum Base {
    /// The first on `PATH`, without packages of the system.
    Alone,
    /// Debian's, with the packages that Debian has installed for it.
    System,
}

/// Installs an environment, once: a file with its packages marks it as complete. The packages may
/// stand behind options of pip.
pub fn install(base: Base, place: &Path, packages: &[&str]) -> Result<(), Missing> {
    let stamp = place.join("installed");
    let wanted = packages.join("\n");
    if std::fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(());
    }
    println!("installing {} in {}", packages.join(" "), place.display());
    let mut venv = match base {
        Base::Alone => Command::new("python3"),
        Base::System => Command::new("/usr/bin/python3"),
    };
    venv.args(["-m", "venv", "--clear"]).arg(place).stdout(Stdio::null());
    if let Base::System = base {
        venv.arg("--system-site-packages");
    }
    if !succeeds(&mut venv) {
        let why = "python3 -m venv does not work (Debian: python3-venv)";
        return Err(Missing::Means(why.into()));
    }
    pip(place, &[&["install"], packages].concat(), &[])?;
    let failed = |e| Missing::Means(format!("{}: {e}", stamp.display()));
    std::fs::write(&stamp, wanted).map_err(failed)
}

/// Adds a package that pip compiles, with these variables, to an environment, once.
pub fn compile(place: &Path, package: &str, variables: &[(&str, &str)]) -> Result<(), Missing> {
    let stamp = place.join("compiled");
    if std::fs::read_to_string(&stamp).is_ok_and(|have| have == package) {
        return Ok(());
    }
    println!("compiling {package} in {}", place.display());
    // The cache of pip may have it compiled for another MPI.
    pip(place, &["install", "--no-cache-dir", package], variables)?;
    let failed = |e| Missing::Means(format!("{}: {e}", stamp.display()));
    std::fs::write(&stamp, package).map_err(failed)
}

/// Fetches the source of a package, `NAME==VERSION`, by the pip of an environment, once.
pub fn source(
    environment: &Path,
    package: &str,
    place: &Path,
    variables: &[(&str, &str)],
) -> Result<(), Missing> {
    let stamp = place.join("installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|have| have == package) {
        return Ok(());
    }
    let failed = Missing::Means;
    println!("fetching the source of {package} to {}", place.display());
    let loads = place.with_extension("download");
    let _old = (std::fs::remove_dir_all(&loads), std::fs::remove_dir_all(place));
    let to = loads.display().to_string();
    let name = package.split('=').next().unwrap_or_default();
    // The variables belong to packages that are compiled against what the environment has.
    let isolated: &[&str] = if variables.is_empty() { &[] } else { &["--no-build-isolation"] };
    let words = [&["download", "--no-deps"], isolated, &["--no-binary", name, "--dest", &to]];
    pip(environment, &[&words.concat()[..], &[package]].concat(), variables)?;
    let entries = std::fs::read_dir(&loads).map_err(|e| failed(format!("{to}: {e}")))?;
    let archive = entries.flatten().map(|entry| entry.path()).next();
    let archive = archive.ok_or(failed(format!("pip left nothing in {to}")))?;
    let file = archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut unpack = Command::new("python3");
    unpack.args(["-m", "tarfile", "--extract"]).arg(&archive).arg(&loads).stderr(Stdio::null());
    let unpacked = loads.join(file.trim_end_matches(".tar.gz"));
    if !succeeds(&mut unpack) || std::fs::rename(&unpacked, place).is_err() {
        return Err(failed(format!("{} cannot be unpacked", archive.display())));
    }
    let _done = std::fs::remove_dir_all(&loads);
    std::fs::write(&stamp, package).map_err(|e| failed(format!("{}: {e}", stamp.display())))
}

/// Runs pip of an environment, with these variables.
fn pip(place: &Path, words: &[&str], variables: &[(&str, &str)]) -> Result<(), Missing> {
    let mut pip = Command::new(place.join("bin/pip"));
    pip.args(&words[..1]).args(["--quiet", "--disable-pip-version-check", "--retries", "2"]);
    pip.args(&words[1..]).envs(variables.iter().copied()).stdin(Stdio::null());
    let output = pip.output().map_err(|e| Missing::Means(format!("pip: {e}")))?;
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
        let set_up = "error: subprocess-exited-with-error\n  ImportError: no x\nnote: not of pip\n";
        assert_eq!(cause(set_up), Missing::Refused("pip: ImportError: no x".into()));
        assert_eq!(cause(""), Missing::Refused("pip: no reason".into()));
    }
}

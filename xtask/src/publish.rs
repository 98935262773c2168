//! `cargo xtask publish`: packs the library crates of the commit for crates.io, in the order of
//! their dependencies, and uploads them on request.
//!
//! Some names of the workspace belong to other projects there. The crates are published under
//! [`NAMES`]: a copy of the sources says so in its manifests, and keeps the names of the libraries,
//! so that no program changes.

use crate::package::Scratch;
use crate::run::{cargo, output_of, succeeds};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const USAGE: &str = "\
usage: cargo xtask publish [--upload] [CARGO OPTION]...

Packs the crates of the commit as crates.io would get them. --upload sends them there. Further
options are those of `cargo publish`, such as --no-verify, which builds nothing.";

/// Names here and on crates.io, where they differ.
const NAMES: [(&str, &str); 3] =
    [("weft", "weft-mp"), ("weft-core", "weft-mp-core"), ("weft-agent", "weft-mp-agent")];

/// Runs the task.
pub fn main(args: &[String]) -> Result<bool, String> {
    let (upload, rest): (Vec<&String>, Vec<&String>) =
        args.iter().partition(|arg| *arg == "--upload");
    if rest.iter().any(|arg| !arg.starts_with('-')) {
        return Err(USAGE.into());
    }
    let copy = Scratch::new("publish")?;
    unpack(copy.path())?;
    rename(copy.path())?;
    let target = crate::root().join("target/publish");
    let of_copy = |args: &[&str]| {
        let mut cargo = cargo(args);
        cargo.current_dir(copy.path()).env("CARGO_TARGET_DIR", &target);
        cargo
    };
    // The lock file has the names of the workspace.
    if output_of(&mut of_copy(&["metadata", "--format-version=1"])).is_none() {
        return Err("Cargo does not read the copy of the sources".into());
    }
    let mut publish = of_copy(&["publish", "--workspace", "--allow-dirty"]);
    if upload.is_empty() {
        publish.arg("--dry-run");
    }
    Ok(succeeds(publish.args(rest)))
}

/// Unpacks the files of the commit.
pub fn unpack(to: &Path) -> Result<(), String> {
    let failed = |what: &str| format!("{what} failed: the crates are those of a commit");
    let mut git = Command::new("git");
    git.current_dir(crate::root()).args(["archive", "HEAD"]).stdout(Stdio::piped());
    let mut git = git.spawn().map_err(|e| format!("git: {e}"))?;
    let archive = git.stdout.take().ok_or_else(|| failed("git archive"))?;
    let unpacked = succeeds(Command::new("tar").arg("-x").arg("-C").arg(to).stdin(archive));
    match git.wait().is_ok_and(|status| status.success()) && unpacked {
        true => Ok(()),
        false => Err(failed("git archive")),
    }
}

/// Gives the crates in `root` their names on crates.io.
fn rename(root: &Path) -> Result<(), String> {
    let edit = |name: &str, edited: &dyn Fn(&str) -> Option<String>| {
        let path = root.join(name);
        let text = fs::read_to_string(&path).map_err(|e| format!("{name}: {e}"))?;
        let text = edited(&text).ok_or_else(|| format!("{name} is not as expected"))?;
        fs::write(&path, text).map_err(|e| format!("{name}: {e}"))
    };
    for (name, public) in NAMES {
        edit("Cargo.toml", &|text| depend(text, name, public))?;
        edit(&format!("crates/{name}/Cargo.toml"), &|text| package(text, name, public))?;
    }
    Ok(())
}

/// Returns the workspace's manifest in which a dependency is on the public name.
fn depend(text: &str, name: &str, public: &str) -> Option<String> {
    let start = format!("\n{name} = {{ ");
    text.contains(&start).then(|| text.replace(&start, &format!("{start}package = \"{public}\", ")))
}

/// Returns a crate's manifest with its public name. The library keeps its own.
fn package(text: &str, name: &str, public: &str) -> Option<String> {
    let start = format!("[package]\nname = \"{name}\"\n");
    let library = format!("[lib]\nname = \"{}\"\n\n", name.replace('-', "_"));
    let renamed = format!("{library}[package]\nname = \"{public}\"\n");
    (text.starts_with(&start) && !text.contains("[lib]")).then(|| text.replace(&start, &renamed))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn rename__every_name_is_in_the_manifests() {
        let read = |name: &str| fs::read_to_string(crate::root().join(name)).expect(name);
        for (name, public) in NAMES {
            let root = depend(&read("Cargo.toml"), name, public).expect(name);
            assert!(root.contains(&format!("\n{name} = {{ package = \"{public}\", path =")));
            let own = package(&read(&format!("crates/{name}/Cargo.toml")), name, public);
            assert!(own.is_some_and(|text| text.contains(&format!("name = \"{public}\"\n"))));
        }
    }
}

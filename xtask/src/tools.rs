//! Programs of crates.io that suites need: those on the `PATH`, or installed once below
//! `target/tools`.

use crate::run::{cargo, succeeds};
use crate::setup::has;
use std::path::PathBuf;

/// Returns the program of the package with its name. `None` if it cannot be installed here.
pub fn program(name: &str) -> Option<PathBuf> {
    if has(name) {
        return Some(name.into());
    }
    let place = crate::root().join("target/tools");
    let program = place.join("bin").join(name);
    if program.is_file() {
        return Some(program);
    }
    println!("installing {name} in {}", place.display());
    let mut install = cargo(&["install", "--quiet", "--locked", name, "--root"]);
    // The build goes with the folder: nothing else is made of it.
    install.arg(&place).env("CARGO_TARGET_DIR", place.join("build"));
    let made = succeeds(&mut install);
    let _gone = std::fs::remove_dir_all(place.join("build"));
    (made && program.is_file()).then_some(program)
}

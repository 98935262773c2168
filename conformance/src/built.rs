//! Programs and libraries that a test needs beside the program that it tests: Cargo builds those of
//! other packages only on request.

use crate::skip;
use std::path::Path;

/// Returns true if these files are there beside a program. Otherwise the running test is skipped,
/// with the names of the absent files as the reason.
pub fn are_built(program: &str, files: &[&str]) -> bool {
    let is_absent = |file: &&&str| !Path::new(program).with_file_name(file).is_file();
    let absent: Vec<&str> = files.iter().filter(is_absent).copied().collect();
    if !absent.is_empty() {
        let names = absent.join(", ");
        skip(&format!("not built beside {program}: {names} (cargo build --workspace)"));
    }
    absent.is_empty()
}

//! Project tasks: `cargo xtask test`, `cargo xtask tidy`, `cargo xtask fuzz`.
#![forbid(unsafe_code)]

mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

fn main() -> ExitCode {
    match tidy::run(&root()) {
        Ok((_, 0)) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

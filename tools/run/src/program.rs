//! The programs of weft: `weft` itself, and those that have some of its commands and are installed
//! beside it.

use crate::misuse;
use anyhow::{bail, Context, Result};
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Returns the path of a program of weft: beside this program, else in `PATH`. `None` if it is at
/// neither place.
pub fn path(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(|folder| folder.join(name));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::split_paths(&path).map(|folder| folder.join(name));
    beside.into_iter().chain(named).find(|file| file.is_file())
}

/// The program of the benchmarks.
pub const BENCH: &str = "weft-bench";
/// The program of what reproduces papers.
pub const PAPERS: &str = "weft-papers";

/// Returns the path of the command `weft`: this program, unless it is one of those that have some
/// of the commands; then as [`path`] finds it.
///
/// # Errors
/// There is none.
pub fn weft() -> Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program's path")?;
    if ![BENCH, PAPERS].into_iter().any(|part| own.file_name() == Some(OsStr::new(part))) {
        return Ok(own);
    }
    path("weft").with_context(|| {
        let own = own.display();
        format!("the command weft is neither beside {own} nor in PATH: install it too")
    })
}

/// Becomes another program of weft, which has the command that was called. Returns only if it
/// cannot.
///
/// # Errors
/// The program is not there, or it does not start.
pub fn hand_over<S: AsRef<OsStr>>(
    program: &str,
    words: impl IntoIterator<Item = S>,
) -> Result<ExitCode> {
    let Some(file) = path(program) else {
        bail!(
            "this command is in the program {program}, which is neither beside weft nor in PATH; \
             the package weft-bench (a wheel, or Debian's) and `cargo xtask install` have it; in \
             the sources `cargo build --release -p {program}` makes it"
        )
    };
    let error = Command::new(&file).args(words).exec();
    Err(error).with_context(|| format!("starting {}", file.display()))
}

/// Sends warnings to standard error, with the rank in front; `WEFT_LOG` (error to trace) sets the
/// level.
pub fn init_log() {
    let rank = std::env::var("PMI_RANK").or_else(|_| std::env::var("PMIX_RANK")).ok();
    let who = rank.map_or("weft".to_owned(), |rank| format!("weft rank {rank}"));
    env_logger::Builder::new()
        .filter_level(log::LevelFilter::Warn)
        .parse_env("WEFT_LOG")
        .format(move |out, record| {
            let level = record.level().as_str().to_lowercase();
            writeln!(out, "{who}: {level}: {}", record.args())
        })
        .init();
}

/// Returns the version and the commit of this build.
pub fn version() -> &'static str {
    // The text is made once, and clap keeps it to the end of the process.
    weft_cluster::desk::version(env!("CARGO_PKG_VERSION"), option_env!("WEFT_COMMIT")).leak()
}

/// Returns the exit status of a command that has ended, after a message of its error.
pub fn status(ended: Result<ExitCode>) -> ExitCode {
    ended.unwrap_or_else(|error| {
        eprintln!("weft: {error:#}");
        misuse::status(&error)
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn hand_over__says_how_to_get_a_program_that_is_not_there() {
        let error = hand_over("weft-nowhere", ["x"]).expect_err("there is none").to_string();
        let ways = ["package weft-bench", "cargo xtask install", "-p weft-nowhere"];
        for words in ["weft-nowhere", "PATH"].into_iter().chain(ways) {
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn path__finds_what_is_beside_and_what_is_in_path() {
        let own = std::env::current_exe().expect("a path");
        let name = own.file_name().and_then(OsStr::to_str).expect("a name");
        assert_eq!(path(name), Some(own.clone()));
        assert!(path("sh").is_some() && path("weft-nowhere").is_none());
    }
}

//! Tasks of the project: `cargo xtask test`, `tidy`, `fuzz`, `install`, `package` and others.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod book;
mod commit;
mod consumers;
mod criu;
mod documents;
mod environment;
mod fuzz;
mod install;
mod manual;
mod mpi;
mod mx;
mod package;
mod programs;
mod publish;
mod registry;
mod run;
mod setup;
mod suites;
mod tidy;
mod tools;
mod torch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  test [--quick | --all]             run the suites of every change, a few or all; print a table
  test --suite NAME...               run these suites
  test --list                        name the suites
  test --suite consumers [NAME]...   programs of others over weft; --write: its page
  tidy                               check the house rules
  contents                           write the tables of ARCHITECTURE.md
  book                               build the book of the guide, by mdBook
  fuzz [TARGET] [--seconds S]        feed fuzz targets for S seconds each (default 60)
  install [--prefix DIR]             build and install all below DIR (/usr/local): the commands, the
                                     MPI provider, the C library, manual pages, completions
          [--destdir DIR] [--debug]  below another folder for now, to make a package; unoptimised
  uninstall [--prefix DIR]           remove what was installed
  package --out DIR [--only KIND]    build and pack: wheel, deb, image, source
  publish [--upload]                 pack the library crates for crates.io, and upload them
";

/// Returns the folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = match args.split_first() {
        Some((task, rest)) => (task.as_str(), rest),
        None => ("", &[][..]),
    };
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let result = match task {
        "test" => suites::main(rest),
        "tidy" => tidy::run(&root()).map(|(_, broken)| broken == 0),
        "book" => book::main(rest),
        "contents" => tidy::contents::write(&root()),
        "fuzz" => fuzz::main(rest),
        "package" => package::main(rest),
        "publish" => publish::main(rest),
        "install" | "uninstall" => install::main(task, rest),
        _ => Err(USAGE.trim_end().to_string()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

//! `weft completions` and `weft man`: the command line for shells and for `man`.

use anyhow::{ensure, Result};
use clap_complete::Shell;
use std::process::{Command, ExitCode};
use weft_run::pages::{visible, write, Man};
use weft_run::program::{self, BENCH, PAPERS};

/// Print the completion script of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  source <(weft completions bash)          in ~/.bashrc
  weft completions zsh > DIR/_weft         DIR is in $fpath
  weft completions fish | source           in config.fish")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

/// Runs `weft completions`.
pub fn completions(args: &Completions, whole: &clap::Command) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(whole), "weft", &mut script);
    print!("{}", String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}

/// Runs `weft man`: the pages of the other programs are made by those that are there.
pub fn man(args: &Man, whole: &clap::Command) -> Result<ExitCode> {
    write(args, whole)?;
    for file in [BENCH, PAPERS].into_iter().filter_map(program::path) {
        let done = Command::new(&file).arg("manual-pages").arg(&args.folder).status()?;
        ensure!(done.success(), "{} has no manual pages", file.display());
    }
    Ok(ExitCode::SUCCESS)
}

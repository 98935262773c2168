//! `weft completions` and `weft man`: the command line for shells and for `man`.

use anyhow::{Context, Result};
use clap_complete::Shell;
use std::path::PathBuf;
use std::process::ExitCode;

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

/// Write the manual pages, one for each command
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weft man ~/.local/share/man/man1         then: man weft-run")]
pub struct Man {
    /// Folder for the pages; made if it does not exist
    folder: PathBuf,
}

/// Returns the command without the hidden commands, which only weft itself calls.
fn visible(whole: &clap::Command) -> clap::Command {
    let shown = whole.get_subcommands().filter(|c| !c.is_hide_set()).map(visible);
    // Leaking is harmless, as the program ends after writing; clap needs `'static` names without
    // its feature `string`.
    let name: &str = whole.get_name().to_owned().leak();
    let mut bare = clap::Command::new(name).args(whole.get_arguments());
    bare = bare.subcommands(shown).subcommand_required(whole.is_subcommand_required_set());
    if let Some(about) = whole.get_about() {
        bare = bare.about(about.clone());
    }
    if let Some(about) = whole.get_long_about() {
        bare = bare.long_about(about.clone());
    }
    if let Some(examples) = whole.get_after_help() {
        bare = bare.after_help(examples.clone());
    }
    bare.version(env!("CARGO_PKG_VERSION")).disable_version_flag(true)
}

/// Runs `weft completions`.
pub fn completions(args: &Completions, whole: &clap::Command) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(whole), "weft", &mut script);
    print!("{}", String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}

/// Runs `weft man`.
pub fn man(args: &Man, whole: &clap::Command) -> Result<ExitCode> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    clap_mangen::generate_to(visible(whole), folder)
        .with_context(|| format!("writing to {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

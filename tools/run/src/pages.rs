//! Manual pages of the programs of weft.

use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the manual pages, one for each command
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weft man ~/.local/share/man/man1         then: man weft-run")]
pub struct Man {
    /// Folder for the pages; made if it does not exist
    pub folder: PathBuf,
}

/// Returns the command without the hidden commands, which only weft itself calls.
pub fn visible(whole: &clap::Command) -> clap::Command {
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

/// Writes the pages of a command.
///
/// # Errors
/// The folder cannot be written.
pub fn write(args: &Man, whole: &clap::Command) -> Result<ExitCode> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    clap_mangen::generate_to(visible(whole), folder)
        .with_context(|| format!("writing to {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

//! `weftd-pages`: writes the manual page of the agent and its completions for shells, below the
//! folder `share` of an installation.
#![deny(unsafe_code)]
#![warn(missing_docs)]

use clap_complete::Shell;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

/// The files for shells, below the folder.
const SCRIPTS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/weftd"),
    (Shell::Zsh, "zsh/site-functions/_weftd"),
    (Shell::Fish, "fish/vendor_completions.d/weftd.fish"),
];

fn main() -> Result<()> {
    let share = std::env::args_os().nth(1).map(PathBuf::from);
    let share = share.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "weftd-pages FOLDER"))?;
    let mut page = Vec::new();
    clap_mangen::Man::new(weftd::options::command()).section("8").render(&mut page)?;
    write(&share.join("man/man8/weftd.8"), &page)?;
    for (shell, name) in SCRIPTS {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut weftd::options::command(), "weftd", &mut script);
        write(&share.join(name), &script)?;
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    std::fs::write(path, bytes)
}

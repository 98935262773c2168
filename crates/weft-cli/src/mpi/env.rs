//! `weft mpi-env`: the variables with which an MPI uses weft, for a shell.

use super::judge::{self, Fit};
use super::variables::{contradicting, variables, Choice};
use super::{choose, job_key, Selection};
use anyhow::{bail, Result};
use clap::ValueEnum;
use serde_json::json;
use std::process::ExitCode;

/// Print the variables with which an MPI on this machine uses weft
///
/// Finds the MPI, checks that it can load weft's libfabric provider, makes sure that there is a
/// key for the frames on networks, and prints what the shell shall set.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  eval \"$(weft mpi-env)\"; mpiexec -n 4 ./a.out
  weft mpi-env --shell fish | source
  eval \"$(weft mpi-env --mpi /opt/openmpi/bin/mpiexec --link udp)\"
  weft mpi-env --shell json

The key is not printed: processes find it in ~/.config/weft/key, which every host of a job needs
(copy the file where homes are not shared), or in WEFT_KEY. `weft mpi` passes on a key by itself.")]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Whose syntax [default: the one $SHELL names, else sh]
    #[arg(long, value_enum, value_name = "SHELL")]
    shell: Option<Shell>,
}

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    /// sh, bash, zsh, ksh
    Sh,
    /// csh, tcsh
    Csh,
    /// fish
    Fish,
    /// one JSON object
    Json,
}

impl Shell {
    /// By the path of a shell.
    fn of(path: &str) -> Shell {
        match path.rsplit('/').next() {
            Some("csh" | "tcsh") => Shell::Csh,
            Some("fish") => Shell::Fish,
            _ => Shell::Sh,
        }
    }

    /// In quotes, within which nothing has a meaning.
    fn quote(self, text: &str) -> String {
        match self {
            Shell::Fish => format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'")),
            // csh replaces events even there.
            Shell::Csh => format!("'{}'", text.replace('\'', r"'\''").replace('!', r"\!")),
            Shell::Sh | Shell::Json => format!("'{}'", text.replace('\'', r"'\''")),
        }
    }

    fn set(self, name: &str, value: &str) -> String {
        let value = self.quote(value);
        match self {
            Shell::Csh => format!("setenv {name} {value};"),
            Shell::Fish => format!("set -gx {name} {value};"),
            Shell::Sh | Shell::Json => format!("export {name}={value};"),
        }
    }

    fn unset(self, name: &str) -> String {
        match self {
            Shell::Csh => format!("unsetenv {name};"),
            Shell::Fish => format!("set -e {name};"),
            Shell::Sh | Shell::Json => format!("unset {name};"),
        }
    }
}

/// A word as sh reads it, quoted only where that is needed.
pub fn sh_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+@%^".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => Shell::Sh.quote(text),
    }
}

/// The variable by which PRRTE passes others on to the ranks of other hosts, and its value.
fn passed_on(names: &[(String, String)]) -> (String, String) {
    const NAME: &str = "OMPI_MCA_mca_base_env_list";
    let own = std::env::var(NAME).unwrap_or_default();
    let mut list: Vec<&str> = own.split(';').filter(|n| !n.is_empty()).collect();
    for (name, _) in names.iter().filter(|(name, _)| !name.starts_with("OMPI_")) {
        if !list.contains(&name.as_str()) {
            list.push(name);
        }
    }
    (NAME.to_owned(), list.join(";"))
}

/// The subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mpi = choose(&args.selection)?;
    let provider = judge::provider();
    match judge::fit(&mpi, &provider).0 {
        Fit::Yes => {}
        Fit::Unknown(fault) => eprintln!("weft mpi-env: note: {}; {}", fault.why, fault.remedy),
        Fit::No(fault) => bail!(
            "{mpi} ({}) cannot use weft: {}; {}; `weft doctor --mpi` shows the others",
            mpi.launcher.display(),
            fault.why,
            fault.remedy
        ),
    }
    let Ok(provider) = provider else { bail!("no provider: `weft doctor --mpi` tells more") };
    let key = job_key()?;
    let choice = Choice::from(&args.selection);
    let mut set = variables(mpi.family, &provider.folder, &choice);
    if mpi.family == super::detect::Family::OpenMpi5 {
        set.push(passed_on(&set));
    }
    let named = std::env::var("SHELL").unwrap_or_default();
    let shell = args.shell.unwrap_or_else(|| Shell::of(&named));
    let unset: Vec<&str> = contradicting(mpi.family)
        .iter()
        .copied()
        .filter(|name| std::env::var_os(name).is_some())
        .collect();
    if shell == Shell::Json {
        let env: serde_json::Map<_, _> = set.into_iter().map(|(n, v)| (n, v.into())).collect();
        let key = key.map(|path| path.display().to_string());
        let all = json!({
            "mpi": mpi, "env": env, "unset": unset, "provider": provider.file, "key_file": key,
        });
        println!("{all}");
        return Ok(ExitCode::SUCCESS);
    }
    for (name, value) in &set {
        println!("{}", shell.set(name, value));
    }
    for name in unset {
        println!("{}", shell.unset(name));
    }
    eprintln!("weft mpi-env: {mpi} ({}) will use weft", mpi.launcher.display());
    if let Some(advice) = judge::advice(mpi.family) {
        eprintln!("weft mpi-env: note: {advice}");
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use std::process::Command;

    #[test]
    fn set__a_shell_reads_what_was_meant() {
        for value in ["/plain/path", "with space", "quote'inside", "$HOME `x` \\ \" !", "a;b&c|d"] {
            let script = format!("{}printf %s \"$NAME\"", Shell::Sh.set("NAME", value));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), value);
            let script = format!("printf %s {}", sh_word(value));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), value);
        }
        assert_eq!(Shell::Csh.set("A", "x'y!"), r"setenv A 'x'\''y\!';");
        assert_eq!(Shell::Fish.set("A", r"x'\"), r"set -gx A 'x\'\\';");
        assert_eq!(sh_word("--map-by"), "--map-by");
        assert_eq!(sh_word(""), "''");
    }

    #[test]
    fn of__the_shell_by_its_name() {
        assert_eq!(Shell::of("/bin/tcsh"), Shell::Csh);
        assert_eq!(Shell::of("/usr/bin/fish"), Shell::Fish);
        assert_eq!(Shell::of("/bin/zsh"), Shell::Sh);
        assert_eq!(Shell::of(""), Shell::Sh);
    }
}

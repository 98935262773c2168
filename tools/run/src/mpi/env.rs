//! `weft mpi-env`: the variables with which an MPI uses weft, for a shell.

use super::command::is_passed_on;
use super::judge;
use super::variables::{contradicting, keep_users, variables, Choice};
use super::{check_fit, choose, job_key, Selection};
use crate::words;
use anyhow::{bail, Result};
use clap::ValueEnum;
use serde_json::json;
use std::borrow::Cow;
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

The key is not printed: processes find it in ~/.config/weft/key, which every host of a job needs \
(copy the file where homes are not shared), or in WEFT_KEY. `weft mpi` passes on a key by itself.

Open MPI 5 passes on to other hosts the variables WEFT_... and FI_... that are set when this is \
run.")]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Shell whose syntax is used [default: the one $SHELL names, else sh]
    #[arg(long, value_enum, value_name = "SHELL")]
    shell: Option<Shell>,
}

/// Syntax of the output.
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
    /// Returns the syntax of the shell with this path.
    fn of(path: &str) -> Shell {
        match path.rsplit('/').next() {
            Some("csh" | "tcsh") => Shell::Csh,
            Some("fish") => Shell::Fish,
            _ => Shell::Sh,
        }
    }

    /// Quotes a text, so that no character has a special meaning.
    fn quote(self, text: &str) -> Cow<'_, str> {
        match self {
            // csh expands `!` even in quotes.
            Shell::Csh => format!("'{}'", text.replace('\'', r"'\''").replace('!', r"\!")).into(),
            Shell::Sh | Shell::Fish | Shell::Json => words::quote(text),
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

/// Name of the variable with the names that Open MPI passes on to ranks of other hosts.
const PASSED_ON: &str = "OMPI_MCA_mca_base_env_list";

/// Returns the names for that variable: those in `before`, those set for the ranks, and those of
/// weft and libfabric among the `inherited`. Names only: no output and no command line shows a key.
fn passed_on(
    before: &str,
    set: &[(String, String)],
    inherited: impl Iterator<Item = String>,
) -> String {
    let mut list: Vec<String> =
        before.split(';').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let mut own: Vec<String> = inherited.filter(|name| is_passed_on(name)).collect();
    own.sort();
    // Open MPI passes on its own variables anyway.
    let set = set.iter().map(|(name, _)| name).filter(|name| !name.starts_with("OMPI_")).cloned();
    for name in set.chain(own) {
        if !list.contains(&name) {
            list.push(name);
        }
    }
    list.join(";")
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mpi = choose(&args.selection)?;
    let provider = judge::provider();
    check_fit("weft mpi-env", &mpi, &provider)?;
    let Ok(provider) = provider else { bail!("no provider: `weft doctor --mpi` tells more") };
    let key = job_key()?;
    let choice = Choice::from(&args.selection);
    let mut set = variables(mpi.family, &provider.folder, &choice);
    for note in keep_users(&mut set, |name| std::env::var(name).ok()) {
        eprintln!("weft mpi-env: note: {note}");
    }
    if mpi.family == super::detect::Family::OpenMpi5 {
        let before = std::env::var(PASSED_ON).unwrap_or_default();
        let inherited = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        set.push((PASSED_ON.to_owned(), passed_on(&before, &set, inherited)));
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
        }
        assert_eq!(Shell::Csh.set("A", "x'y!"), r"setenv A 'x'\''y\!';");
        assert_eq!(Shell::Fish.set("A", r"x'\"), r#"set -gx A "x'\\";"#);
    }

    #[test]
    fn passed_on__all_that_ranks_elsewhere_need_by_name() {
        let set = [("FI_PROVIDER", "weft"), ("OMPI_MCA_pml", "cm"), ("WEFT_LINK", "udp")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let inherited = ["WEFT_WINDOW", "PATH", "WEFT_LINK", "FI_LOG_LEVEL", "WEFT_KEY"];
        let inherited = || inherited.into_iter().map(str::to_owned);
        assert_eq!(
            passed_on("MINE=1;;WEFT_WINDOW", &set, inherited()),
            "MINE=1;WEFT_WINDOW;FI_PROVIDER;WEFT_LINK;FI_LOG_LEVEL;WEFT_KEY"
        );
        let once = passed_on("", &set, inherited());
        assert_eq!(passed_on(&once, &set, inherited()), once);
    }

    #[test]
    fn of__the_shell_by_its_name() {
        assert_eq!(Shell::of("/bin/tcsh"), Shell::Csh);
        assert_eq!(Shell::of("/usr/bin/fish"), Shell::Fish);
        assert_eq!(Shell::of("/bin/zsh"), Shell::Sh);
        assert_eq!(Shell::of(""), Shell::Sh);
    }
}

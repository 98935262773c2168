//! `weft mpi --migratable`: ranks that can move to another host. The launcher of `weft run` starts
//! them, which stays in touch with a rank wherever it goes; the launcher of an MPI does not.

use super::detect::{Family, Mpi};
use super::provider::Provider;
use super::variables::{keep_users, variables, Choice};
use super::{job_name, Args, JOB};
use crate::run::{self, Bind};
use anyhow::{bail, Result};
use std::process::ExitCode;
use std::time::Duration;

/// Longest wait for a host at start-up, as `weft run` has it.
const START: Duration = Duration::from_secs(60);

/// Runs the program.
///
/// # Errors
/// The MPI is none whose ranks can move, or an option has no meaning for them.
pub fn run(args: &Args, mpi: &Mpi, provider: &Provider) -> Result<ExitCode> {
    if mpi.family != Family::Mpich {
        bail!(
            "--migratable: the ranks of {mpi} ({}) cannot move, those of MPICH can (--mpi mpich)",
            mpi.launcher.display()
        );
    }
    if args.agent || args.launcher_args.is_some() || !args.own.is_empty() {
        misuse!("--migratable: not with --agent, and not with options of MPICH's mpiexec");
    }
    let choice = Choice { link: args.selection.link.clone(), all_through_weft: true };
    let mut set = variables(mpi.family, &provider.folder, &choice);
    keep_users(&mut set, |name| std::env::var(name).ok());
    set.push((JOB.to_owned(), job_name()));
    let set = set.into_iter().map(|(name, value)| format!("{name}={value}"));
    run::run(run::Args {
        ranks: args.ranks,
        hosts: args.hosts.clone(),
        hostfile: args.hostfile.clone(),
        ppn: args.ppn,
        link: None,
        agent: false,
        tag_output: false,
        keep_going: false,
        migratable: true,
        spare: args.spare.clone(),
        bind: Bind::None,
        timeout: args.timeout,
        start_timeout: START,
        env: set.chain(args.env.iter().cloned()).collect(),
        launch_agent: args.launch_agent.clone(),
        remote_weft: None,
        verbose: args.verbose,
        command: args.command.clone(),
    })
}

//! The command line of an MPI's own launcher.

use super::detect::{Family, Mpi};
use super::provider;
use super::variables::contradicting;
use crate::run::hosts::Share;
use crate::words;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use weft::launch::keyfile;

/// The job that the user wants.
pub struct Request<'a> {
    /// The MPI whose launcher starts it.
    pub mpi: &'a Mpi,
    /// Ranks of each host, if hosts were given.
    pub shares: Option<&'a [Share]>,
    /// Number of all ranks.
    pub ranks: usize,
    /// Variables for every rank.
    pub set: Vec<(String, String)>,
    /// Program that the launcher calls in place of ssh.
    pub agent: Option<PathBuf>,
    /// Time after which the job is ended.
    pub timeout: Option<Duration>,
    /// More options of the launcher.
    pub extra: Vec<String>,
    /// Program and arguments.
    pub command: &'a [String],
    /// True if this is the superuser.
    pub root: bool,
    /// Number of cores of this machine.
    pub cores: usize,
    /// Names of the variables of this process.
    pub inherited: Vec<String>,
}

/// The command line for a job.
#[derive(Debug, Default)]
pub struct Plan {
    /// The launcher.
    program: PathBuf,
    args: Vec<String>,
    /// Variables of the launcher and, through it, of the ranks.
    pub set: Vec<(String, String)>,
    unset: Vec<String>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Number of ranks.
    pub ranks: usize,
    /// True if hosts were named.
    pub far: bool,
    /// The program that the ranks run.
    pub runs: String,
}

/// True for names of variables that every rank needs, wherever it runs.
pub fn is_passed_on(name: &str) -> bool {
    name.starts_with("WEFT_") || name.starts_with("FI_")
}

fn host_words(shares: &[Share]) -> String {
    let word = |s: &Share| match s.host.contains(':') {
        true => format!("[{}]:{}", s.host, s.count),
        false => format!("{}:{}", s.host, s.count),
    };
    shares.iter().map(word).collect::<Vec<_>>().join(",")
}

/// Adds options of Hydra, the launcher of MPICH and Intel MPI. Hydra passes on all variables unless
/// options name some; after such an option, even `-genvall`, that of MPICH 5 cannot spawn.
fn hydra(wish: &Request<'_>, plan: &mut Plan) {
    if let Some(shares) = wish.shares {
        plan.args.extend(["-hosts".into(), host_words(shares)]);
    }
    if let Some(agent) = &wish.agent {
        let agent = agent.display().to_string();
        plan.args.extend(["-launcher", "rsh", "-launcher-exec"].map(str::to_owned));
        plan.args.push(agent);
    }
    if let Some(library) = preload(wish) {
        plan.args.extend(["-genv".into(), PRELOAD.into(), library]);
    }
    if let Some(limit) = wish.timeout {
        plan.set.push(("MPIEXEC_TIMEOUT".into(), whole_seconds(limit)));
    }
}

/// Name of the variable with libraries that ranks load first.
const PRELOAD: &str = "LD_PRELOAD";

/// Returns the value of `LD_PRELOAD` for the ranks. MPICH yields its core after every poll, which
/// takes longer than many messages; a provider that is loaded first skips the yield if no other
/// process wants the core. Only the ranks need it, not the launcher's own processes. A value that
/// the user set for the ranks is kept.
fn preload(wish: &Request<'_>) -> Option<String> {
    let value = |wanted: &str| wish.set.iter().find(|(name, _)| name == wanted).map(|(_, v)| v);
    let fits = wish.mpi.family == Family::Mpich && value(PRELOAD).is_none();
    let folder = value("FI_PROVIDER_PATH").filter(|_| fits)?;
    let ours = Path::new(folder).join(provider::NAME).display().to_string();
    let users = std::env::var(PRELOAD).unwrap_or_default();
    Some(if users.is_empty() { ours } else { format!("{ours}:{users}") })
}

/// Launchers count whole seconds and read 0 as no limit, so the result is at least 1.
fn whole_seconds(limit: Duration) -> String {
    (limit.as_secs_f64().ceil().max(1.0) as u64).to_string()
}

/// Variable with the list that the user made for Open MPI, which refuses that list beside `-x`.
const OWN_LIST: &str = "OMPI_MCA_mca_base_env_list";

fn open_mpi(wish: &Request<'_>, plan: &mut Plan) {
    let five = wish.mpi.family == Family::OpenMpi5;
    if wish.root {
        plan.args.push("--allow-run-as-root".into());
        plan.notes.push("Open MPI runs as root (--allow-run-as-root)".into());
    }
    if let Some(shares) = wish.shares {
        plan.args.extend(["--host".into(), host_words(shares)]);
    }
    if let Some(agent) = &wish.agent {
        let (mca, remote) = if five { ("--prtemca", "plm_ssh") } else { ("--mca", "plm_rsh") };
        let agent = agent.display().to_string();
        plan.args.extend([mca.into(), format!("{remote}_agent"), agent]);
        // Other hosts have no agent.
        plan.args.extend([mca.into(), format!("{remote}_no_tree_spawn"), "1".into()]);
    }
    if let Some(limit) = wish.timeout {
        plan.args.extend(["--timeout".into(), whole_seconds(limit)]);
    }
    let allocated = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"];
    let allocated = allocated.iter().any(|name| wish.inherited.iter().any(|i| i == name));
    let most = wish.shares.map_or(wish.ranks, |all| all.iter().map(|s| s.count).max().unwrap_or(0));
    let chosen = wish.extra.iter().any(|a| a.contains("bind-to") || a.contains("map-by"));
    if most > wish.cores && !chosen && !allocated {
        let said = wish.extra.iter().any(|word| word.contains("oversubscribe"));
        if wish.shares.is_none() && !said {
            plan.args.push("--oversubscribe".into());
        }
        plan.args.extend(["--bind-to".into(), "none".into()]);
        plan.notes.push(format!("{most} ranks share {} cores of a host", wish.cores));
    }
    let own: Vec<String> = std::env::var(OWN_LIST)
        .unwrap_or_default()
        .split(';')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    if !own.is_empty() {
        plan.unset.push(OWN_LIST.into());
    }
    let ours = plan.set.iter().map(|(name, _)| name.clone());
    let here = wish.inherited.iter().filter(|name| is_passed_on(name)).cloned();
    let mut names: Vec<String> = ours.chain(here).chain(own).collect();
    // By name, not by value: any user can read command lines.
    names.push(keyfile::VARIABLE.into());
    names.retain(|name| !name.starts_with("OMPI_"));
    names.sort();
    names.dedup();
    plan.args.extend(names.into_iter().flat_map(|name| ["-x".to_owned(), name]));
}

/// Returns the command line for a job.
pub fn plan(wish: &Request<'_>) -> Plan {
    let unset = contradicting(wish.mpi.family).iter().copied();
    let mut plan = Plan {
        program: wish.mpi.launcher.clone(),
        set: wish.set.clone(),
        unset: unset.filter(|n| wish.inherited.iter().any(|i| i == n)).map(Into::into).collect(),
        ranks: wish.ranks,
        far: wish.shares.is_some(),
        runs: wish.command.first().cloned().unwrap_or_default(),
        ..Plan::default()
    };
    match wish.mpi.family {
        Family::Mpich | Family::Intel => hydra(wish, &mut plan),
        Family::OpenMpi4 | Family::OpenMpi5 => open_mpi(wish, &mut plan),
    }
    plan.args.extend(wish.extra.iter().cloned());
    plan.args.extend(["-n".into(), wish.ranks.to_string()]);
    plan.args.extend(wish.command.iter().cloned());
    plan
}

impl Plan {
    /// Returns the command, ready to be started.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        for name in &self.unset {
            command.env_remove(name);
        }
        command.envs(self.set.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Returns the launcher.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Returns one line for a shell, without a key.
    pub fn line(&self) -> String {
        let mut line = String::from("env");
        for name in &self.unset {
            line += &format!(" -u {}", words::quote(name));
        }
        for (name, value) in self.set.iter().filter(|(name, _)| name != keyfile::VARIABLE) {
            line += &format!(" {name}={}", words::quote(value));
        }
        let program = self.program.display().to_string();
        let command = iter::once(program.as_str()).chain(self.args.iter().map(String::as_str));
        format!("{line} {}", words::join(command))
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use crate::run::hosts::{parse_list, place};

    fn line(
        family: Family,
        ranks: usize,
        hosts: Option<&str>,
        more: impl Fn(&mut Request),
    ) -> String {
        let (version, launcher) = ("5.0".to_owned(), "/m/bin/mpiexec".into());
        let mpi = Mpi { family, version, launcher, prefix: "/m".into() };
        let shares = hosts.map(|list| place(&parse_list(list).unwrap(), ranks).0);
        let command = ["./a b".to_owned(), "-x".to_owned()];
        let mut wish = Request {
            mpi: &mpi,
            shares: shares.as_deref(),
            ranks,
            set: vec![("FI_PROVIDER".into(), "weft".into())],
            agent: None,
            timeout: None,
            extra: Vec::new(),
            command: &command,
            root: false,
            cores: 8,
            inherited: vec!["PATH".into(), "WEFT_WINDOW".into()],
        };
        more(&mut wish);
        plan(&wish).line()
    }

    #[test]
    fn plan__hydra() {
        assert_eq!(
            line(Family::Mpich, 3, Some("a:2,b"), |_| {}),
            "env FI_PROVIDER=weft /m/bin/mpiexec -hosts 'a:2,b:1' -n 3 './a b' -x"
        );
        let limited = line(Family::Intel, 20, None, |w| w.timeout = Some(Duration::from_millis(1)));
        assert!(limited.contains("MPIEXEC_TIMEOUT=1"), "{limited}");
        assert!(line(Family::Mpich, 2, Some("a"), |w| w.agent = Some("/c/agent".into()))
            .contains("-launcher rsh -launcher-exec /c/agent"));
    }

    #[test]
    fn plan__mpich_loads_the_provider_first_unless_set_otherwise() {
        let with = |family, users: &[(&str, &str)]| {
            let mut set = vec![("FI_PROVIDER_PATH".to_owned(), "/p".to_owned())];
            set.extend(users.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())));
            let ours = line(family, 2, None, |w| w.set.clone_from(&set));
            ours.split_once("-genv LD_PRELOAD ").map(|(_, rest)| rest.to_owned())
        };
        let loaded = with(Family::Mpich, &[]).expect("it is told");
        assert!(loaded.starts_with("/p/libweft-fi.so"), "{loaded}");
        assert_eq!(with(Family::Mpich, &[("LD_PRELOAD", "")]), None);
        assert_eq!(with(Family::Intel, &[]), None);
        assert_eq!(with(Family::OpenMpi5, &[]), None);
    }

    #[test]
    fn plan__open_mpi_names_every_variable_and_shows_no_key() {
        let line = |more: fn(&mut Request)| line(Family::OpenMpi5, 4, Some("a:2,b:2"), more);
        assert_eq!(
            line(|_| {}),
            "env FI_PROVIDER=weft /m/bin/mpiexec --host 'a:2,b:2' -x FI_PROVIDER -x WEFT_KEY -x \
             WEFT_WINDOW -n 4 './a b' -x"
        );
        let secret = line(|w| w.set.push(("WEFT_KEY".into(), "c0ffee".into())));
        assert!(!secret.contains("c0ffee") && secret.contains("-x WEFT_KEY"), "{secret}");
        assert!(line(|w| w.root = true).contains("--allow-run-as-root"));
        let agent = line(|w| w.agent = Some("/c/agent".into()));
        assert!(agent.contains("--prtemca plm_ssh_agent /c/agent"), "{agent}");
    }

    #[test]
    fn plan__open_mpi_with_more_ranks_than_cores() {
        let here = line(Family::OpenMpi4, 9, None, |_| {});
        assert!(here.contains("--oversubscribe --bind-to none"), "{here}");
        let chosen = line(Family::OpenMpi4, 9, None, |w| w.extra = vec!["--bind-to=core".into()]);
        assert!(!chosen.contains("oversubscribe"), "{chosen}");
        let given = line(Family::OpenMpi5, 9, None, |w| w.inherited.push("SLURM_JOB_ID".into()));
        assert!(!given.contains("oversubscribe"), "{given}");
        let hosts = line(Family::OpenMpi5, 18, Some("a:9,b:9"), |_| {});
        assert!(hosts.contains("--bind-to none") && !hosts.contains("--oversubscribe"), "{hosts}");
    }

    #[test]
    fn plan__what_contradicts_is_taken_away() {
        let with = |family| {
            let name = "OMPI_MCA_mtl_ofi_provider_exclude";
            line(family, 1, None, |w| w.inherited.push(name.into()))
        };
        assert!(with(Family::OpenMpi5).starts_with("env -u OMPI_MCA_mtl_ofi_provider_exclude "));
        assert!(!with(Family::Mpich).contains(" -u "));
        let told = line(Family::Mpich, 1, None, |w| w.inherited.push("HYDRA_ENV".into()));
        assert!(told.starts_with("env -u HYDRA_ENV "), "{told}");
    }
}

//! The launcher, as the environment describes it.

use super::LaunchError;
use std::time::Duration;

/// A route to the launcher of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// PMI-1 over an inherited descriptor (MPICH's Hydra, `weft run`, Slurm's `pmi2` plugin).
    Pmi1Fd {
        /// The descriptor.
        fd: i32,
        /// Rank of this process.
        rank: usize,
        /// Number of ranks.
        size: usize,
    },
    /// PMI-1 over TCP (Hydra with `-pmi-port`).
    Pmi1Port {
        /// `host:port` of the launcher.
        address: String,
        /// The number by which the launcher knows this process.
        id: usize,
    },
    /// PMIx (Open MPI's mpirun, prterun, `srun --mpi=pmix`).
    Pmix,
    /// None: a job of one.
    Singleton,
}

/// Default bound of every wait for the launcher or another rank's start.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

fn number(lookup: Lookup<'_>, variable: &str) -> Result<usize, LaunchError> {
    let value = lookup(variable).unwrap_or_default();
    value.trim().parse().map_err(|_| LaunchError::Environment {
        variable: variable.to_owned(),
        value,
        expected: "a number, set by the launcher",
    })
}

fn pmi1_fd(lookup: Lookup<'_>) -> Result<Launcher, LaunchError> {
    let fd = number(lookup, "PMI_FD")?;
    let (rank, size) = (number(lookup, "PMI_RANK")?, number(lookup, "PMI_SIZE")?);
    let fd = i32::try_from(fd).map_err(|_| LaunchError::Environment {
        variable: "PMI_FD".into(),
        value: fd.to_string(),
        expected: "a file descriptor",
    })?;
    if rank >= size {
        return Err(LaunchError::Environment {
            variable: "PMI_RANK".into(),
            value: rank.to_string(),
            expected: "a number below PMI_SIZE",
        });
    }
    Ok(Launcher::Pmi1Fd { fd, rank, size })
}

fn pmi1_port(lookup: Lookup<'_>) -> Result<Launcher, LaunchError> {
    let address = lookup("PMI_PORT").unwrap_or_default();
    Ok(Launcher::Pmi1Port { address, id: number(lookup, "PMI_ID")? })
}

/// Chooses the launcher from variables: `WEFT_BOOTSTRAP` (`pmi1`, `pmix`, `single`) if set, else
/// PMI-1, else PMIx, else a job of one.
///
/// # Errors
/// [`LaunchError::Environment`] names the variable whose value is invalid.
pub fn detect(lookup: Lookup<'_>) -> Result<Launcher, LaunchError> {
    let has = |name: &str| lookup(name).is_some();
    match lookup("WEFT_BOOTSTRAP").as_deref() {
        Some("single") => return Ok(Launcher::Singleton),
        Some("pmix") => return Ok(Launcher::Pmix),
        Some("pmi1") if has("PMI_PORT") && !has("PMI_FD") => return pmi1_port(lookup),
        Some("pmi1") => return pmi1_fd(lookup),
        Some(other) if other != "auto" => {
            return Err(LaunchError::Environment {
                variable: "WEFT_BOOTSTRAP".into(),
                value: other.to_owned(),
                expected: "auto, pmi1, pmix or single",
            })
        }
        _ => {}
    }
    if has("PMI_FD") {
        pmi1_fd(lookup)
    } else if has("PMI_PORT") && has("PMI_ID") {
        pmi1_port(lookup)
    } else if has("PMIX_NAMESPACE") && has("PMIX_RANK") {
        Ok(Launcher::Pmix)
    } else {
        lone(lookup)
    }
}

/// Returns a job of one, unless Slurm started several processes that cannot find each other.
fn lone(lookup: Lookup<'_>) -> Result<Launcher, LaunchError> {
    match lookup("SLURM_STEP_NUM_TASKS") {
        Some(value) if value.trim().parse().is_ok_and(|tasks: u32| tasks > 1) => {
            Err(LaunchError::Environment {
                variable: "SLURM_STEP_NUM_TASKS".into(),
                value,
                expected: "PMI_FD or PMIX_NAMESPACE with it: add --mpi=pmi2 or --mpi=pmix to srun \
                           (or set WEFT_BOOTSTRAP=single for jobs of one)",
            })
        }
        _ => Ok(Launcher::Singleton),
    }
}

/// Reads the bound of every wait: `WEFT_LAUNCH_TIMEOUT` in seconds, else [`DEFAULT_TIMEOUT`].
///
/// # Errors
/// [`LaunchError::Environment`] when the variable is not a positive number.
pub fn timeout(lookup: Lookup<'_>) -> Result<Duration, LaunchError> {
    let Some(value) = lookup("WEFT_LAUNCH_TIMEOUT") else {
        return Ok(DEFAULT_TIMEOUT);
    };
    match value.trim().parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds < 1e9 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(LaunchError::Environment {
            variable: "WEFT_LAUNCH_TIMEOUT".into(),
            value,
            expected: "a positive number of seconds",
        }),
    }
}

/// Returns the number of ranks of the job on this host, if the launcher tells it.
pub fn ranks_here(lookup: Lookup<'_>) -> Option<usize> {
    // The last one is that of torchrun.
    let counts =
        ["WEFT_LOCAL_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"];
    let said = counts.iter().find_map(|name| lookup(name)?.trim().parse().ok());
    said.or_else(|| {
        let tasks = lookup("SLURM_STEP_TASKS_PER_NODE")?;
        slurm_tasks(&tasks, lookup("SLURM_NODEID")?.trim().parse().ok()?)
    })
}

/// Returns the tasks on node `node` of a list as Slurm writes it: `4(x2),3` is 4, 4 and 3.
fn slurm_tasks(list: &str, node: usize) -> Option<usize> {
    let mut left = node;
    for part in list.trim().split(',') {
        let (tasks, nodes) = match part.split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        if left < nodes {
            return tasks.parse().ok();
        }
        left -= nodes;
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Result<Launcher, LaunchError> {
        let find = |name: &str| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        detect(&find)
    }

    #[test]
    fn detect__prefers_pmi1_over_pmix_and_falls_back_to_one() {
        let pmi = [("PMI_FD", "5"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")];
        let pmix = [("PMIX_NAMESPACE", "j"), ("PMIX_RANK", "0")];
        let both = [&pmi[..], &pmix[..]].concat();
        assert_eq!(with(&both).unwrap(), Launcher::Pmi1Fd { fd: 5, rank: 1, size: 2 });
        assert_eq!(with(&pmix).unwrap(), Launcher::Pmix);
        assert_eq!(with(&[]).unwrap(), Launcher::Singleton);
        let port = [("PMI_PORT", "h:1"), ("PMI_ID", "3")];
        assert_eq!(with(&port).unwrap(), Launcher::Pmi1Port { address: "h:1".into(), id: 3 });
        let forced = [&both[..], &[("WEFT_BOOTSTRAP", "single")]].concat();
        assert_eq!(with(&forced).unwrap(), Launcher::Singleton);
    }

    #[test]
    fn detect__names_the_variable_that_makes_no_sense() {
        for (pairs, name) in [
            (vec![("PMI_FD", "x")], "PMI_FD"),
            (vec![("PMI_FD", "3"), ("PMI_RANK", "-1"), ("PMI_SIZE", "2")], "PMI_RANK"),
            (vec![("PMI_FD", "3"), ("PMI_RANK", "2"), ("PMI_SIZE", "2")], "PMI_RANK"),
            (vec![("PMI_FD", "3"), ("PMI_RANK", "0")], "PMI_SIZE"),
            (vec![("WEFT_BOOTSTRAP", "what")], "WEFT_BOOTSTRAP"),
            (vec![("SLURM_STEP_NUM_TASKS", "4")], "--mpi=pmix"),
        ] {
            let error = with(&pairs).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn ranks_here__every_launcher_is_asked() {
        let slurm = |list: &str, node: &str| {
            let (list, node) = (list.to_owned(), node.to_owned());
            ranks_here(&move |name| match name {
                "SLURM_STEP_TASKS_PER_NODE" => Some(list.clone()),
                "SLURM_NODEID" => Some(node.clone()),
                _ => None,
            })
        };
        assert_eq!(slurm("6", "0"), Some(6));
        assert_eq!(slurm("4(x2),3", "1"), Some(4));
        assert_eq!(slurm("4(x2),3", "2"), Some(3));
        for (list, node) in [("4(x2),3", "3"), ("4(x", "0"), ("", "0"), ("4(x2", "1"), ("4", "x")] {
            assert_eq!(slurm(list, node), None, "{list} {node}");
        }
        for variable in ["MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE"] {
            assert_eq!(ranks_here(&|name| (name == variable).then(|| "3".into())), Some(3));
        }
        assert_eq!(ranks_here(&|_| None), None);
    }

    #[test]
    fn timeout__refuses_what_is_not_a_time() {
        assert_eq!(timeout(&|_| None).unwrap(), DEFAULT_TIMEOUT);
        assert_eq!(timeout(&|_| Some("2.5".into())).unwrap(), Duration::from_millis(2500));
        for bad in ["0", "-1", "NaN", "inf", "soon", ""] {
            assert!(timeout(&|_| Some(bad.into())).is_err(), "{bad}");
        }
    }
}

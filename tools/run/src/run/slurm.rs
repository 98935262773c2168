//! The hosts that Slurm has allocated to a job, and the number of tasks of each.
//!
//! Slurm writes both in short forms: `node[01-03,7],login` for hosts (hostlist expressions,
//! scontrol(1)) and `4(x3),2` for counts (`SLURM_TASKS_PER_NODE`, sbatch(1)).

use super::hosts::Host;
use anyhow::{bail, ensure, Context, Result};

/// Most hosts of a list, so that a typing error does not take all memory.
const MOST: usize = 1 << 16;

/// An allocation, as in the variables that Slurm sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Number of the job.
    pub job: String,
    /// Its hosts with their counts.
    pub hosts: Vec<Host>,
}

/// Command that reaches a host of the allocation; host and command follow. Slurm accounts its
/// processes to the job and asks for no password. `--overlap` allows all resources of the job on
/// the host; `--unbuffered` passes on output that does not end in a line.
pub const LAUNCHER: &str = "srun --overlap --nodes=1 --ntasks=1 --unbuffered --quiet --nodelist";

/// Returns the allocation that this process is in. `None` for one task of many started by srun,
/// because each of them would start all ranks.
///
/// # Errors
/// A variable of Slurm cannot be parsed.
pub fn allocation(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Allocation>> {
    let set = |name: &str| lookup(name).filter(|text| !text.is_empty());
    let list = set("SLURM_JOB_NODELIST").or_else(|| set("SLURM_NODELIST"));
    let (Some(job), Some(list)) = (set("SLURM_JOB_ID"), list) else { return Ok(None) };
    let tasks = set("SLURM_STEP_NUM_TASKS").and_then(|text| text.parse::<usize>().ok());
    if tasks.is_some_and(|tasks| tasks > 1) {
        return Ok(None);
    }
    let names = expand(&list).with_context(|| format!("SLURM_JOB_NODELIST={list}"))?;
    // Without a number of tasks the job uses the number of processors.
    let given = ["SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"];
    let given = given.into_iter().find_map(|name| Some((name, set(name)?)));
    let slots = match given {
        Some((name, text)) => {
            let said = || format!("{name}={text}");
            let counts = counts(&text).with_context(said)?;
            let many = (counts.len(), names.len());
            ensure!(many.0 == many.1, "{}: {} counts for {} hosts", said(), many.0, many.1);
            counts.into_iter().map(Some).collect()
        }
        None => vec![None; names.len()],
    };
    let hosts = names.into_iter().zip(slots).map(|(name, slots)| Host { name, slots });
    Ok(Some(Allocation { job, hosts: hosts.collect() }))
}

/// Returns the names in a hostlist expression, in its order.
fn expand(list: &str) -> Result<Vec<String>> {
    weft_cluster::hostlist::expand(list).map_err(anyhow::Error::msg)
}

/// Expands counts such as `4(x3),2`.
fn counts(text: &str) -> Result<Vec<usize>> {
    let mut all = Vec::new();
    for word in text.split(',') {
        let (count, times) = match word.strip_suffix(')').and_then(|word| word.split_once("(x")) {
            Some((count, times)) => (count, times.parse::<usize>().ok()),
            None => (word, Some(1)),
        };
        let count = count.trim().parse::<usize>().ok().filter(|&count| count > 0);
        let (Some(count), Some(times)) = (count, times) else { bail!("{word:?} is no count") };
        ensure!(all.len() + times <= MOST, "more than {MOST} hosts");
        all.extend(std::iter::repeat_n(count, times));
    }
    Ok(all)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn names(list: &str) -> String {
        expand(list).unwrap().join(" ")
    }

    #[test]
    fn expand__reads_what_slurm_writes() {
        assert_eq!(names("n1"), "n1");
        assert_eq!(names("n[1-3,7],login,m[09-11]"), "n1 n2 n3 n7 login m09 m10 m11");
        assert_eq!(names("r[0-1]n[1-2]-ib"), "r0n1-ib r0n2-ib r1n1-ib r1n2-ib");
        assert_eq!(names("a.b.c,d-[098-101]"), "a.b.c d-098 d-099 d-100 d-101");
        for bad in
            ["", ",", "n[", "n]", "n[1", "n[]", "n[a-b]", "n[3-1]", "n[[1]]", "n[1-9999999]", "-x"]
        {
            assert!(expand(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn counts__are_repeated_as_often_as_they_say() {
        assert_eq!(counts("4(x3),2").unwrap(), [4, 4, 4, 2]);
        assert_eq!(counts("1").unwrap(), [1]);
        for bad in ["", "x", "0", "2(x", "2(xx)", "2(3)", "1(x99999999)"] {
            assert!(counts(bad).is_err(), "{bad}");
        }
    }

    fn of(set: &[(&str, &str)]) -> Result<Option<Allocation>> {
        let find = |name: &str| set.iter().find(|(n, _)| *n == name);
        allocation(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn allocation__has_hosts_and_counts() {
        let list = ("SLURM_JOB_NODELIST", "n[1-2]");
        let job = ("SLURM_JOB_ID", "7");
        let counts = |set: &[(&str, &str)]| {
            let hosts = of(set).unwrap().unwrap().hosts;
            hosts.into_iter().map(|host| host.slots).collect::<Vec<_>>()
        };
        let tasks = ("SLURM_TASKS_PER_NODE", "3,1");
        let processors = ("SLURM_JOB_CPUS_PER_NODE", "8(x2)");
        assert_eq!(counts(&[list, job, processors, tasks]), [Some(3), Some(1)]);
        assert_eq!(counts(&[list, job, processors]), [Some(8), Some(8)]);
        assert_eq!(counts(&[list, job]), [None, None]);
        assert_eq!(of(&[list]).unwrap(), None, "a list alone is no allocation");
        assert_eq!(of(&[list, job, ("SLURM_STEP_NUM_TASKS", "2")]).unwrap(), None);
        assert!(of(&[list, job, ("SLURM_STEP_NUM_TASKS", "1")]).unwrap().is_some());
        let why = of(&[list, job, ("SLURM_TASKS_PER_NODE", "3")]).unwrap_err().to_string();
        assert!(why.contains("1 counts for 2 hosts"), "{why}");
    }
}

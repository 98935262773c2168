//! Introductions: endpoints exchange descriptions of their processes, for messages to people. An
//! MPI error names no process, and an address of weft says little.

/// Longest introduction, in bytes.
pub const LONGEST: usize = 128;

/// Variables in which launchers pass a rank.
pub const RANKS: [&str; 4] = ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"];

/// Variables in which launchers pass the number of ranks.
pub const SIZES: [&str; 3] = ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"];

/// Variable in which `weft mpi` passes the name of the job, the same on all hosts.
pub const JOB: &str = "WEFT_RUN_JOB";

/// Returns the name of a process's job: the launcher's name for it, or that of `weft mpi`, or,
/// where there is none, the launcher's process on this host.
pub fn job(lookup: &dyn Fn(&str) -> Option<String>, parent: u32) -> String {
    let of_slurm = || {
        let step = lookup("SLURM_STEP_ID").map_or_else(String::new, |step| format!(".{step}"));
        Some(format!("slurm-{}{step}", lookup("SLURM_JOB_ID")?))
    };
    // Hydra has a process of its own on each host. Spawned ranks are another job.
    let of_weft = || lookup(JOB).filter(|_| lookup("PMI_SPAWNED").is_none_or(|how| how == "0"));
    let named = lookup("PMIX_NAMESPACE").or_else(of_slurm).or_else(of_weft);
    named.unwrap_or_else(|| format!("mpi-{parent}"))
}

/// Builds an introduction: version of weft, a line break, and the process's description.
pub fn introduction(version: &str, rank: Option<&str>, process: u32, host: &str) -> String {
    let who = match rank {
        Some(rank) => format!("rank {rank} (process {process} on {host})"),
        None => format!("process {process} on {host}"),
    };
    let mut text = format!("{version}\n{who}");
    while text.len() > LONGEST {
        text.pop();
    }
    text
}

/// The contents of an introduction.
#[derive(Debug, PartialEq, Eq)]
pub struct Introduced<'a> {
    /// Version of weft.
    pub version: &'a str,
    /// Description of the process.
    pub name: &'a str,
}

/// Decodes an introduction; `None` unless it is plain text, because it is printed.
pub fn read(bytes: &[u8]) -> Option<Introduced<'_>> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= LONGEST)?;
    let (version, name) = text.split_once('\n')?;
    let plain = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
    (plain(version) && plain(name)).then_some(Introduced { version, name })
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn job__is_called_what_its_launcher_calls_it() {
        let with = |set: &[(&str, &str)]| {
            let of = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string());
            job(&of, 17)
        };
        assert_eq!(with(&[]), "mpi-17");
        assert_eq!(with(&[(JOB, "mpi-a-9")]), "mpi-a-9");
        assert_eq!(with(&[(JOB, "mpi-a-9"), ("PMI_SPAWNED", "1")]), "mpi-17");
        assert_eq!(with(&[("SLURM_JOB_ID", "5")]), "slurm-5");
        let slurm = [("SLURM_JOB_ID", "5"), ("SLURM_STEP_ID", "0")];
        assert_eq!(with(&slurm), "slurm-5.0");
        assert_eq!(with(&[slurm[0], ("PMIX_NAMESPACE", "prterun-a-9@1")]), "prterun-a-9@1");
    }

    #[test]
    fn read__gives_back_an_introduction() {
        let text = introduction("0.1.0", Some("3"), 17, "a");
        let expected = Introduced { version: "0.1.0", name: "rank 3 (process 17 on a)" };
        assert_eq!(read(text.as_bytes()), Some(expected));
        let text = introduction("0.1.0", None, 17, &"é".repeat(100));
        assert!(text.len() <= LONGEST && read(text.as_bytes()).is_some());
    }

    #[test]
    fn read__what_would_spoil_a_terminal_is_no_introduction() {
        for bad in ["", "0.1.0", "0.1.0\n", "\nname", "0.1.0\nna\x1b[2Jme", "0.1.0\na\nb"] {
            assert_eq!(read(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(read(&[b'1', b'\n', 0xff]), None);
        assert_eq!(read(format!("1\n{}", "x".repeat(LONGEST)).as_bytes()), None);
    }
}

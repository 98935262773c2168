//! Jobs that Slurm starts, with the variables that `weft mpi-env` prints and nothing else.

use super::harness::{provider, run, Mpi};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;
use weft_conformance::hosts::{self, Host};
use weft_conformance::skip;
use weft_conformance::slurm::Cluster;

const LIMIT: Duration = Duration::from_secs(120);

fn variables(command: &mut Command, mpi: Mpi) {
    command.env("FI_PROVIDER_PATH", provider().expect("checked")).env("FI_PROVIDER", "weft");
    let more: &[_] = match mpi {
        Mpi::Mpich => &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1")],
        _ => &[
            ("OMPI_MCA_pml", "cm"),
            ("OMPI_MCA_mtl", "ofi"),
            ("OMPI_MCA_mtl_ofi_provider_include", "weft"),
            ("OMPI_MCA_osc", "^ucx"),
        ],
    };
    command.envs(more.iter().copied());
}

fn by_srun(mpi: Mpi, plugin: &str) {
    let binary = match provider().and_then(|_| mpi.build("collectives")) {
        Ok(binary) => binary,
        Err(why) => return skip(&why),
    };
    let (done, wait) = channel::<()>();
    let on_first = |host: &Host| {
        let _until_dropped = done;
        let cluster = match Cluster::start(host) {
            Ok(cluster) => cluster,
            Err(why) => return skip(&why),
        };
        if !cluster.offers(plugin) {
            return skip(&format!("Slurm has no plugin {plugin}"));
        }
        for link in ["udp", "auto"] {
            let mut command = cluster.srun();
            variables(&mut command, mpi);
            command.env("WEFT_LINK", link);
            command.args([&format!("--mpi={plugin}"), "-n", "4"]).arg(&binary).arg("2");
            run(command, LIMIT).expect(": passed");
        }
    };
    if let Err(why) = hosts::run(1, on_first, move |_| wait.recv().is_err()) {
        skip(&why);
    }
}

#[test]
fn slurm__mpich_by_pmi2() {
    by_srun(Mpi::Mpich, "pmi2");
}

#[test]
fn slurm__system_by_pmix() {
    by_srun(Mpi::System, "pmix");
}

//! Jobs that Slurm starts, with the variables that `weft mpi-env` prints and nothing else.

use super::harness::{run, Mpi};
use std::sync::mpsc::channel;
use std::time::Duration;
use weft_conformance::hosts::{self, Host};
use weft_conformance::skip;
use weft_conformance::slurm::Cluster;

const LIMIT: Duration = Duration::from_secs(120);
const ALL: &str = "--all-through-weft";

fn by_srun(mpi: Mpi, plugin: &str) {
    let job = || Ok::<_, String>((mpi.build("collectives")?, mpi.variables(&[ALL])?));
    let (binary, variables) = match job() {
        Ok(job) => job,
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
            command.envs(variables.iter().cloned()).env("WEFT_LINK", link);
            command.args([&format!("--mpi={plugin}"), "-n", "4"]).arg(&binary).arg("2");
            run(command, LIMIT).expect(": passed");
        }
    };
    if let Err(why) = hosts::run(1, on_first, move |_| wait.recv().is_err()) {
        skip(&why);
    }
}

tests! { by_srun:
    slurm__mpich_by_pmi2(Mpi::Mpich, "pmi2");
    slurm__system_by_pmix(Mpi::System, "pmix");
}

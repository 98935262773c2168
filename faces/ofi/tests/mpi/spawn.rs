//! Ranks that start others, by the command that users run: `weft mpi` chooses the launcher's
//! options, and not every launcher can spawn with each of them.

use super::harness::{run, whole, Mpi};
use std::process::Command;
use std::time::Duration;
use weft_conformance::skip;

fn job(mpi: Mpi, ranks: u32, words: &[&str]) -> Result<Command, String> {
    let mut command = mpi.weft("mpi")?;
    command.args(["--all-through-weft", "-n", &ranks.to_string()]);
    if !mpi.is_hydra() {
        // The launcher has one slot for each core, and none for spawned ranks.
        command.arg("--launcher-args=--oversubscribe");
    }
    command.arg(mpi.build("spawn")?).args(words);
    Ok(command)
}

/// Checks that the launcher passes each rank's variables on, to spawned ranks too.
fn spawn(mpi: Mpi, how: &str) {
    let (most, times) = if whole() { (4, "4") } else { (2, "1") };
    for ranks in 2..=most {
        match job(mpi, ranks, &[times, how]) {
            Ok(command) => run(command, Duration::from_secs(150)).expect("spawn: passed"),
            Err(why) => return skip(&why),
        }
    }
}

tests! { spawn:
    spawn__mpich_children_and_ports(Mpi::Mpich, "");
    spawn__mpich_several_programs(Mpi::Mpich, "multiple");
    spawn__mpich_by_threads(Mpi::Mpich, "threads");
    spawn__open_mpi_children_and_ports(Mpi::Open, "");
    spawn__open_mpi_several_programs(Mpi::Open, "multiple");
    spawn__open_mpi_by_threads(Mpi::Open, "threads");
    spawn__system_children_and_ports(Mpi::System, "");
    spawn__system_several_programs(Mpi::System, "multiple");
    spawn__system_by_threads(Mpi::System, "threads");
    spawn__intel_children_and_ports(Mpi::Intel, "");
    spawn__intel_several_programs(Mpi::Intel, "multiple");
    spawn__intel_by_threads(Mpi::Intel, "threads");
}

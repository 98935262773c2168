//! Jobs of `weft mpi --agent`: served by an agent, and abandoned by it.

use super::harness::{run, watched, Bound, Mpi};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use weft_conformance::skip;

const LIMIT: Duration = Duration::from_secs(60);

/// Builds a job of two ranks whose only common link is an agent of this name.
fn job(mpi: Mpi, program: &str, name: &str) -> Result<Command, String> {
    let mut command = mpi.weft("mpi")?;
    // `--link` would add shared memory, so the variable names the link.
    command.args(["--agent", "--all-through-weft", "--env", "WEFT_LINK=agent"]);
    command.arg("--env").arg(format!("WEFT_AGENT={name}"));
    command.args(["-n", "2"]).arg(mpi.build(program)?);
    Ok(command)
}

fn fresh_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("@weft-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the processes of agents that have this name.
fn processes(name: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let words = |id: &str| std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let is_agent = |id: &String| {
        let words = words(id);
        let mut words = words.split(|&b| b == 0);
        words.next().is_some_and(|program| program.ends_with(b"/weftd"))
            && words.any(|word| word == name.as_bytes())
    };
    all.filter_map(|one| one.file_name().into_string().ok()).filter(is_agent).collect()
}

fn served(mpi: Mpi) {
    for reliability in ["selective", "agent"] {
        let name = fresh_name();
        let mut command = match job(mpi, "collectives", &name) {
            Ok(command) => command,
            Err(why) => return skip(&why),
        };
        command.arg("2").env("WEFT_RELIABILITY", reliability);
        run(command, LIMIT).expect("collectives: passed");
        assert!(processes(&name).is_empty(), "the agent outlives its job");
    }
}

#[test]
fn agent__serves_mpich() {
    served(Mpi::Mpich);
}

#[test]
fn agent__serves_open_mpi() {
    served(Mpi::Open);
}

fn killed(mpi: Mpi) {
    let name = fresh_name();
    let command = match job(mpi, "endless", &name) {
        Ok(command) => command,
        Err(why) => return skip(&why),
    };
    let (mut said, mut killed) = (String::new(), 0);
    let ended = watched(command, &Bound { whole: LIMIT, silent: LIMIT }, &mut |more| {
        said.push_str(more);
        if said.contains("under way") && killed == 0 {
            for id in processes(&name) {
                let done = Command::new("kill").args(["-KILL", &id]).status();
                killed += usize::from(done.is_ok_and(|status| status.success()));
            }
        }
    });
    assert_eq!(killed, 1, "agents of this name:\n{}", ended.said);
    assert!(ended.in_time, "ranks wait for an agent that is dead:\n{}", ended.said);
    assert!(!ended.ok, "{}", ended.said);
    // The ranks report it too, but Hydra may drop the last words of ranks that abort.
    let told = ended.said.contains(&format!("weft mpi: the agent {name} of host localhost has"))
        && ended.said.contains("ended (killed by signal 9): ranks lose the peers that it served");
    assert!(told, "the agent is not named:\n{}", ended.said);
    let by_rank = ended.said.contains(&format!("the agent at {name} (process "));
    assert!(by_rank || mpi.is_hydra(), "no rank names it:\n{}", ended.said);
}

#[test]
fn agent__killed_under_mpich() {
    killed(Mpi::Mpich);
}

#[test]
fn agent__killed_under_open_mpi() {
    killed(Mpi::Open);
}

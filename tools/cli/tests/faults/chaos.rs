//! Ranks and launchers that are killed, stopped and continued at random moments.

use super::{folder, WEFT};
use crate::harness::{Done, Job, Running};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weft_link::rng::Rng;

const RANKS: usize = 3;
const ROUNDS: u64 = 4;
/// Longest random moment, in checks of the process table.
const POLLS: u64 = 60;
/// Longest random moment in time.
const LONGEST: Duration = Duration::from_secs(3);

/// Returns a job that computes until it is killed, with an empty folder for its temporary files.
fn endless(link: &str, folder: &Path) -> Job {
    let sor = ["app", "sor", "--size", "200", "--tolerance", "0", "--iterations", "1000000000"];
    job(link, folder, &sor)
}

fn job(link: &str, folder: &Path, rank: &[&str]) -> Job {
    let mut command = Command::new(WEFT);
    command.args(["run", "-n", &RANKS.to_string(), "--link", link, WEFT]).args(rank);
    command.current_dir(folder).env("TMPDIR", folder);
    Job::of(command)
}

/// Waits for a random moment in the life of a job, start-up included, counted in checks of the
/// process table. Ends by time if checks are slow, before a rank counts as silent.
fn moment(job: &Running, rng: &mut Rng) {
    let start = Instant::now();
    for _ in 0..rng.below(POLLS) {
        if start.elapsed() < LONGEST {
            job.ranks();
        }
    }
}

/// Waits for the ranks, then for a random moment; returns one rank. `None`: the job ended before.
fn victim(job: &mut Running, rng: &mut Rng) -> Option<u32> {
    let ranks = job.await_ranks(RANKS);
    moment(job, rng);
    (ranks.len() == RANKS).then(|| *rng.pick(&ranks))
}

fn signal(name: &str, pid: u32) -> bool {
    let mut kill = Command::new("kill");
    kill.args(["-s", name, &pid.to_string()]).stderr(Stdio::null());
    kill.status().unwrap().success()
}

fn assert_nothing_left(done: &Done, folder: &Path) {
    done.assert_nothing_left();
    let files = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(files, 0, "in {}", folder.display());
    std::fs::remove_dir(folder).unwrap();
}

/// Runs one round for each seed, over each link in turn.
fn rounds(mut round: impl FnMut(&str, &Path, &mut Rng)) {
    for seed in 0..ROUNDS {
        println!("seed {seed}");
        let link = if seed % 2 == 0 { "shm" } else { "udp" };
        round(link, &folder(), &mut Rng::new(seed));
    }
}

#[test]
fn kill__of_a_rank_at_any_moment_ends_the_job() {
    rounds(|link, folder, rng| {
        let mut job = endless(link, folder).start();
        let victim = victim(&mut job, rng).expect("the job goes on for ever");
        assert!(signal("KILL", victim));
        let done = job.finish();
        // Another rank may have noticed it before the launcher.
        let by_launcher = done.code == Some(137) && done.err.contains("SIGKILL (signal 9)");
        let by_rank = done.code == Some(1) && done.err.contains("its process ended");
        assert!(by_launcher || by_rank, "{:?} {}", done.code, done.err);
        assert_nothing_left(&done, folder);
    });
}

#[test]
fn stop__of_a_rank_at_any_moment_is_noticed_by_the_others() {
    rounds(|link, folder, rng| {
        let mut job = endless(link, folder).env("WEFT_LAUNCH_TIMEOUT", "2");
        for limit in ["WEFT_PEER_TIMEOUT_MS", "WEFT_CONNECT_TIMEOUT_MS"] {
            job = job.env(limit, "2000");
        }
        let mut job = job.start();
        // On a crowded machine a rank may be silent as long without being stopped.
        if let Some(victim) = victim(&mut job, rng) {
            signal("STOP", victim);
        }
        let done = job.finish();
        done.assert_code(1);
        // The message depends on the state in which the rank was stopped.
        let causes =
            ["nothing heard for", "has been stopped for", "no answer to the first packet", "rank"];
        assert!(causes.iter().any(|cause| done.err.contains(cause)), "{}", done.err);
        assert_nothing_left(&done, folder);
    });
}

#[test]
fn stop__and_continue_at_any_moment_changes_nothing() {
    rounds(|link, folder, rng| {
        let sor = ["app", "sor", "--size", "200x300", "--tolerance", "0", "--iterations", "1500"];
        let mut job = job(link, folder, &[&sor[..], &["--check"]].concat()).start();
        let victim = victim(&mut job, rng);
        if let Some(victim) = victim.filter(|&victim| signal("STOP", victim)) {
            moment(&job, rng);
            signal("CONT", victim);
        }
        let done = job.finish();
        done.assert_code(0);
        assert!(done.out.contains("PASS"), "{}", done.out);
        assert_nothing_left(&done, folder);
    });
}

#[test]
fn kill__of_the_launcher_at_any_moment_takes_all_along() {
    rounds(|link, folder, rng| {
        let job = endless(link, folder).start();
        moment(&job, rng);
        job.signal("KILL");
        job.wait_until_nothing_left();
        assert_nothing_left(&job.finish(), folder);
    });
}

//! Ranks and launchers that are killed, stopped and continued at random moments.

use super::{folder, WEFT};
use crate::harness::{Done, Job, Running};
use std::path::Path;
use std::process::{Command, Stdio};
use weft_link::rng::Rng;

const RANKS: usize = 3;
const ROUNDS: u64 = 4;
/// The longest moment, in looks at the process table.
const LOOKS: u64 = 60;

/// A job that computes until it is ended, in an empty folder that its temporary files go to.
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

/// A random moment in the life of a job, start-up included: so many looks at it.
fn moment(job: &Running, rng: &mut Rng) {
    for _ in 0..rng.below(LOOKS) {
        job.ranks();
    }
}

/// Waits for the ranks, then for a random moment; one of them.
fn victim(job: &Running, rng: &mut Rng) -> u32 {
    let ranks = job.await_ranks(RANKS);
    moment(job, rng);
    *rng.pick(&ranks)
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
        let job = endless(link, folder).start();
        assert!(signal("KILL", victim(&job, rng)));
        let done = job.finish();
        // Another rank may have found out before the launcher.
        let by_launcher = done.code == Some(137) && done.err.contains("SIGKILL (signal 9)");
        let by_rank = done.code == Some(1) && done.err.contains("its process ended");
        assert!(by_launcher || by_rank, "{:?} {}", done.code, done.err);
        assert_nothing_left(&done, folder);
    });
}

#[test]
fn stop__of_a_rank_at_any_moment_is_noticed_by_the_others() {
    rounds(|link, folder, rng| {
        let mut job = endless(link, folder).env("WEFT_LAUNCH_TIMEOUT", "1");
        for limit in ["WEFT_PEER_TIMEOUT_MS", "WEFT_CONNECT_TIMEOUT_MS"] {
            job = job.env(limit, "1000");
        }
        let job = job.start();
        assert!(signal("STOP", victim(&job, rng)));
        let done = job.finish();
        done.assert_code(1);
        // What is said depends on how far the stopped rank had come.
        let causes = ["nothing heard for", "no answer to the first packet", "rank"];
        assert!(causes.iter().any(|cause| done.err.contains(cause)), "{}", done.err);
        assert_nothing_left(&done, folder);
    });
}

#[test]
fn stop__and_continue_at_any_moment_changes_nothing() {
    rounds(|link, folder, rng| {
        let sor = ["app", "sor", "--size", "200x300", "--tolerance", "0", "--iterations", "1500"];
        let job = job(link, folder, &[&sor[..], &["--check"]].concat()).start();
        let victim = victim(&job, rng);
        if signal("STOP", victim) {
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

//! Ranks that stand still while the others go on without them and end: what they do afterwards.

use crate::harness::{scratch, Done, Job, Running};
use std::path::{Path, PathBuf};
use std::process::Command;
use weft_conformance::skip;

const RANKS: usize = 3;
const COUNT: usize = 40;

/// Starts the job, and waits until rank `still` makes no progress. Returns its process as well.
fn start(link: &str, still: usize, until: &Path) -> (Running, String) {
    let (ranks, count, still) = (RANKS.to_string(), COUNT.to_string(), still.to_string());
    let mut command = vec![env!("CARGO_BIN_EXE_weft"), "selftest", "numbers"];
    command.extend(["--count", &count, "--still", &still, "--until", until.to_str().unwrap()]);
    let job = Job::new(&["-n", &ranks, "--link", link]).env("WEFT_PEER_TIMEOUT_MS", "1000");
    let mut job = job.command(command.into_iter().map(str::to_owned)).start();
    let line = job.line("stands still");
    let process = line.split(' ').nth(4).unwrap_or_else(|| panic!("{line}")).to_owned();
    (job, process)
}

/// Lets the rank go on once the others have ended, and checks that no number was given twice.
fn check(mut job: Running, still: usize, until: &Path, go_on: impl FnOnce()) {
    job.lines(RANKS - 1, " ends");
    std::fs::write(until, "").unwrap();
    go_on();
    let done = job.finish();
    done.assert_code(0);
    let numbers = numbers_of(&done);
    let all: std::collections::BTreeSet<&str> = numbers.iter().map(|(_, number)| *number).collect();
    assert_eq!(all.len(), numbers.len(), "a number was given twice: {}", done.out);
    for rank in (0..RANKS).filter(|rank| *rank != still) {
        let count = numbers.iter().filter(|(of, _)| *of == rank.to_string()).count();
        assert_eq!(count, COUNT, "numbers of rank {rank}: {}{}", done.out, done.err);
    }
    let error = format!("rank {still} has error");
    let said = done.out.lines().find(|line| line.starts_with(&error));
    let said = said.unwrap_or_else(|| panic!("no {error:?}: {}{}", done.out, done.err));
    assert!(said.contains("ordered group"), "{said}");
    done.assert_nothing_left();
}

/// Returns the numbers of all ranks, with the rank of each.
fn numbers_of(done: &Done) -> Vec<(&str, &str)> {
    let lines = done.out.lines().filter_map(|line| line.split_once(" has number "));
    lines.filter_map(|(rank, number)| Some((rank.strip_prefix("rank ")?, number))).collect()
}

/// Lets a process that was stopped go on when the test ends, also by a panic.
struct Continued<'a>(&'a str);

impl Drop for Continued<'_> {
    fn drop(&mut self) {
        _ = Command::new("sh").args(["-c", &format!("kill -s CONT {} 2>&-", self.0)]).status();
    }
}

fn signal(process: &str, name: &str) {
    let sent = Command::new("kill").args(["-s", name, process]).status().unwrap();
    assert!(sent.success(), "kill -s {name} {process}");
}

#[test]
fn numbers__none_is_given_twice_after_a_stop_by_a_signal() {
    for (link, still) in [("udp", 2), ("shm", 0), ("udp", 0)] {
        let until = scratch("still");
        let (job, process) = start(link, still, &until);
        let _continued = Continued(&process);
        signal(&process, "STOP");
        check(job, still, &until, || signal(&process, "CONT"));
    }
}

#[test]
fn numbers__none_is_given_twice_by_a_program_that_sleeps() {
    let until = scratch("still");
    let (job, _) = start("udp", 2, &until);
    check(job, 2, &until, || ());
}

/// A control group that is removed at the end.
struct Frozen {
    path: PathBuf,
    file: &'static str,
    thawed: &'static str,
}

impl Frozen {
    /// Freezes a process in a group of its own, by version 2 of control groups, or by version 1.
    fn new(process: &str) -> Option<Frozen> {
        let two = ["/sys/fs/cgroup", "cgroup.controllers", "cgroup.freeze", "1", "0"];
        let one = ["/sys/fs/cgroup/freezer", "tasks", "freezer.state", "FROZEN", "THAWED"];
        let is_here = |of: &[&'static str; 5]| Path::new(of[0]).join(of[1]).exists();
        let Some([root, _, file, frozen, thawed]) = [two, one].into_iter().find(is_here) else {
            skip("there are no control groups that can be frozen");
            return None;
        };
        let path = Path::new(root).join(format!("weft-test-{}", std::process::id()));
        if let Err(why) = std::fs::create_dir(&path) {
            skip(&format!("no control group can be made here: {why}"));
            return None;
        }
        let group = Frozen { path, file, thawed };
        let write = |file: &str, text: &str| std::fs::write(group.path.join(file), text);
        write("cgroup.procs", process).unwrap();
        write(file, frozen).unwrap();
        Some(group)
    }

    fn thaw(&self) {
        std::fs::write(self.path.join(self.file), self.thawed).unwrap();
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        _ = std::fs::write(self.path.join(self.file), self.thawed);
        _ = std::fs::remove_dir(&self.path);
    }
}

#[test]
fn numbers__none_is_given_twice_after_a_frozen_container() {
    let until = scratch("still");
    let (job, process) = start("udp", 2, &until);
    let Some(frozen) = Frozen::new(&process) else {
        // The job ends by itself.
        check(job, 2, &until, || ());
        return;
    };
    check(job, 2, &until, || frozen.thaw());
}

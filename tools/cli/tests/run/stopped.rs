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
struct Frozen(PathBuf);

impl Frozen {
    fn new(process: &str) -> Option<Frozen> {
        let name = format!("weft-test-{}", std::process::id());
        let path = Path::new("/sys/fs/cgroup").join(name);
        let write = |file: &str, text: &str| std::fs::write(path.join(file), text);
        let made = std::fs::create_dir(&path).and_then(|()| write("cgroup.procs", process));
        match made.and_then(|()| write("cgroup.freeze", "1")) {
            Ok(()) => Some(Frozen(path)),
            Err(why) => {
                skip(&format!("no control group can be frozen here: {why}"));
                _ = std::fs::remove_dir(&path);
                None
            }
        }
    }

    fn thaw(&self) {
        std::fs::write(self.0.join("cgroup.freeze"), "0").unwrap();
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        _ = std::fs::write(self.0.join("cgroup.freeze"), "0");
        _ = std::fs::remove_dir(&self.0);
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

//! Jobs that go on when a rank fails: `--keep-going`.

use crate::harness::{fake_agent, scratch, Job, Running};

/// Starts a job whose ranks end in this way, rank 0 after `go` exists.
fn start(args: &[&str], ends: &str, go: &std::path::Path) -> Running {
    let script = format!(
        "case $PMI_RANK in {ends} esac\n\
         while ! [ -e {} ]; do sleep 0.05; done; echo rank $PMI_RANK went on",
        go.display()
    );
    let args = [&["--keep-going"], args].concat();
    Job::new(&args).command(crate::shell(&script)).start()
}

#[test]
fn keep_going__survivors_end_in_good_order_and_the_dead_are_named_last() {
    let go = scratch("go");
    let mut job = start(&["-n", "4"], "1) kill -9 $$;; 2) exit 3;;", &go);
    job.error_lines(2, "; the others go on");
    std::fs::write(&go, "").unwrap();
    let done = job.finish();
    let last = done.err.lines().last().unwrap_or_default();
    assert!(last.starts_with("weft run: 2 of 4 ranks failed: rank "), "{}", done.err);
    for part in ["rank 1 (host localhost, pid ", "SIGKILL (signal 9)", "exited with status 3"] {
        assert!(last.contains(part), "{part:?}: {last}");
    }
    // The status is that of the rank that is named first.
    done.assert_code(if last.contains("failed: rank 1") { 137 } else { 3 });
    assert!(done.out.contains("rank 0 went on\n") && done.out.contains("rank 3 went on\n"));
    done.assert_nothing_left();
}

#[test]
fn keep_going__a_lost_host_takes_only_its_ranks() {
    let (go, agent) = (scratch("go"), fake_agent(""));
    let args = ["-n", "3", "--hosts", "one:1,two:2", "--launch-agent", agent.as_str()];
    let mut job = start(&args, "1) kill -9 $PPID;;", &go);
    job.error_lines(2, "was lost with its host");
    std::fs::write(&go, "").unwrap();
    let done = job.finish();
    done.assert_code(137);
    done.assert_says(&["2 of 3 ranks failed: rank 1 (host two, "]);
    assert_eq!(done.out, "rank 0 went on\n");
    done.assert_nothing_left();
}

#[test]
fn keep_going__without_a_failure_nothing_is_said() {
    let done = Job::new(&["--keep-going", "-n", "2"]).command(crate::shell("true")).finish();
    done.assert_code(0);
    assert_eq!(done.err, "");
}

#[test]
fn keep_going__an_interrupt_ends_the_job() {
    let go = scratch("go");
    let mut job = start(&["-n", "2"], "1) exit 3;;", &go);
    job.error_lines(1, "the others go on");
    job.signal("INT");
    let done = job.finish();
    done.assert_ended(130, &["1 of 2 ranks failed: rank 1 "]);
}

#[test]
fn keep_going__a_job_that_cannot_start_without_a_rank_ends() {
    let weft = env!("CARGO_BIN_EXE_weft");
    let script = format!("[ $PMI_RANK = 1 ] && exit 3; exec {weft} selftest bootstrap");
    let done = Job::new(&["--keep-going", "-n", "3"]).command(crate::shell(&script)).finish();
    done.assert_ended(1, &["ended before it joined the job", "1 of 3 ranks failed: rank 1 "]);
}

//! Ranks that leave a job, or end, before others have reached them; that refuse others, or cannot
//! understand them.

use crate::harness::{scratch, Done, Job};
use weft_conformance::skip;

/// Runs rank 0, which reaches rank 1 after `then` has begun in the place of rank 1, with the shell
/// lines `before`.
fn run(links: &str, before: &str, then: &str) -> Done {
    let (weft, file) = (env!("CARGO_BIN_EXE_weft"), scratch("left"));
    let file = file.display();
    let script = format!(
        "{before}\n{weft} selftest left --file {file} || exit\n\
         [ $PMI_RANK = 0 ] || {{ touch {file}; {then}; }}"
    );
    let job = Job::new(&["-n", "2", "--link", links]).env("WEFT_LAUNCH_TIMEOUT", "250");
    let done = job.command(crate::shell(&script)).finish();
    done.assert_code(0);
    assert!(!done.err.contains("no answer to the first packet"), "{}", done.err);
    done.assert_nothing_left();
    done
}

/// Checks the errors of both operations with rank 1.
#[track_caller]
fn assert_errors(done: &Done, parts: &[&str]) {
    for start in ["recv: rank 1 on this host", "send: rank 1 on this host"] {
        let line = done.out.lines().find(|line| line.starts_with(start));
        let line = line.unwrap_or_else(|| panic!("no {start:?} in {}", done.out));
        assert!(parts.iter().all(|part| line.contains(part)), "{parts:?}: {line}");
    }
}

#[test]
fn ended__a_rank_that_left_before_it_was_reached_is_not_waited_for() {
    for links in ["shm", "udp", "auto"] {
        let done = run(links, "", "exec sleep 1000");
        assert_errors(&done, &["it closed its endpoint", "it left the job"]);
        assert!(!done.err.contains("refused"), "{}", done.err);
    }
}

#[test]
fn ended__a_rank_whose_process_is_over_is_named_with_its_status() {
    let done = run("udp", "", "exit 0");
    // The launcher learns of both: that it left, and then that its process ended.
    for start in ["recv: rank 1 on this host", "send: rank 1 on this host"] {
        let line = done.out.lines().find(|line| line.starts_with(start)).expect("an error");
        let told = ["it left the job", "it exited with status 0"];
        assert!(told.iter().any(|how| line.contains(how)), "{line}");
    }
}

#[test]
fn ended__without_a_word_of_the_launcher_the_sockets_of_the_host_show_it() {
    for links in ["shm", "udp"] {
        let done = run(links, "unset WEFT_RUN_ENDS", "exec sleep 1000");
        assert_errors(&done, &["its process ended"]);
    }
}

#[test]
fn refused__one_in_another_user_namespace_is_reached_over_the_next_link() {
    let unshare = || std::process::Command::new("unshare").args(["-U", "true"]).status();
    if !unshare().is_ok_and(|status| status.success()) {
        return skip("no user namespaces for this user (unshare -U)");
    }
    let weft = env!("CARGO_BIN_EXE_weft");
    let asp = format!("{weft} app asp --nodes 50 --check");
    for other in 0..2 {
        let script = format!("[ $PMI_RANK = {other} ] && exec unshare -U {asp}; exec {asp}");
        let done = Job::new(&["-n", "2"]).command(crate::shell(&script)).finish();
        done.assert_code(0);
        assert!(done.out.contains("PASS"), "{}", done.out);
        assert!(!done.err.contains("process ended"), "{}", done.err);
    }
}

#[test]
fn settings__that_differ_between_ranks_are_an_error_at_start_with_both_values() {
    for (setting, values) in [
        ("WEFT_SECURITY", ["none", "auth"]),
        ("WEFT_TREE", ["flat", "chain"]),
        ("WEFT_LINK", ["udp", "tcp"]),
    ] {
        let [first, second] = values;
        let script = format!(
            "export {setting}={first}; [ $PMI_RANK = 1 ] && {setting}={second}; \
             exec {} app asp --nodes 50",
            env!("CARGO_BIN_EXE_weft")
        );
        let job = Job::new(&["-n", "2", "--link", "udp"]).env("WEFT_LAUNCH_TIMEOUT", "250");
        let done = job.command(crate::shell(&script)).finish();
        assert_ne!(done.code, Some(0), "{}", done.err);
        // Each of the two may be the first to see it.
        let by_either = [
            format!("rank 1 has {setting}={second}, rank 0 has {first}"),
            format!("rank 0 has {setting}={first}, rank 1 has {second}"),
        ];
        assert!(by_either.iter().any(|text| done.err.contains(text)), "{}", done.err);
        done.assert_nothing_left();
    }
}

#[test]
fn settings__that_have_no_effect_are_reported_once() {
    let app = |env: &[(&str, &str)]| {
        let job = Job::new(&["-n", "2"]);
        let job = env.iter().fold(job, |job, (name, value)| job.env(name, value));
        let weft = env!("CARGO_BIN_EXE_weft");
        let done = job.command([weft, "app", "asp", "--nodes", "50"].map(String::from)).finish();
        done.assert_code(0);
        done.err
    };
    let said = app(&[("WEFT_TRANSFER", "auto,1=copy,9=copy")]);
    let text = "WEFT_TRANSFER has a value for ranks that are not there, in 9=copy: the job has";
    assert_eq!(said.matches(text).count(), 1, "{said}");
    assert!(!said.contains("1=copy:"), "{said}");
    let agent = ("WEFT_AGENT", "/nowhere/agent");
    let said = app(&[agent, ("WEFT_LINK", "udp")]);
    assert!(said.contains("WEFT_AGENT=/nowhere/agent has no effect: WEFT_LINK names"), "{said}");
    let said = app(&[agent]);
    assert!(said.contains("=/nowhere/agent has no effect: no agent listens"), "{said}");
}

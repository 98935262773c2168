//! Commands that one host of a lab starts on another.

use super::harness::Job;
use super::{is_root, text, until, Lab, WEFT};
use std::os::unix::process::CommandExt;

/// Returns a command line for the shell of a host.
fn there(host: &str, script: &str) -> String {
    weft_run::words::join([WEFT, "lab", "exec", host, "sh", "-c", script])
}

#[test]
fn exec__from_a_host_reaches_the_others() {
    let Some(lab) = Lab::up(&["3"]) else { return };
    assert_eq!(lab.sh("h1", &there("h2", "hostname; echo $HOSTNAME $WEFT_LAB")).trim(), {
        format!("h2\nh2 {}", lab.name)
    });
    assert_eq!(lab.sh("h1", &there("h1", "hostname")).trim(), "h1", "itself, too");
    let onward = there("h2", &there("h3", "hostname"));
    assert_eq!(lab.sh("h1", &onward).trim(), "h3", "and from there on");
    let seen = "cat; echo \"$SOME\"; pwd; echo to errors >&2";
    let script = format!("cd /tmp; echo in | SOME='a\nb' {} 2>&1", there("h2", seen));
    assert_eq!(lab.sh("h1", &script), "in\na\nb\n/tmp\nto errors\n");
    for (script, code) in [("exit 7", "7"), ("kill -9 $$", "137"), ("exec /nonexistent", "127")] {
        let script = format!("{}; echo $?", there("h2", script));
        assert_eq!(lab.sh("h1", &script).trim(), code);
    }
    let missing = lab.weft(&["lab", "exec", "h1", WEFT, "lab", "exec", "h2", "/nonexistent"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).contains("/nonexistent"), "{}", text(&missing.stderr));
    assert_eq!(lab.code(&["h1", WEFT, "lab", "exec", "h4", "true"]), Some(1), "there is no h4");
    assert!(lab.sh("h1", &format!("{WEFT} lab status")).contains("h3"));
}

#[test]
fn exec__from_a_host_ends_with_its_caller_and_gets_its_signals() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    let on_h2 = |what: &str| lab.sh("h2", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").contains(what);
    let nested = |script: &str| {
        // With `exec` the signals of this test reach the command on h1 itself.
        let line = format!("exec {}", there("h2", script));
        Job::of_marked(lab.command(&["lab", "exec", "h1", "sh", "-c", &line]), &lab.name).start()
    };
    let mut killed = nested("echo asleep; exec sleep 1000");
    killed.lines(1, "asleep");
    assert!(on_h2("sleep 1000"));
    killed.signal("KILL");
    until(|| !on_h2("sleep 1000"), || "the command runs".into());
    let mut told = nested("trap 'exit 5' TERM; echo waiting; while :; do sleep 0.05; done");
    told.lines(1, "waiting");
    told.signal("TERM");
    told.finish().assert_code(5);
    assert!(lab.weft(&["lab", "down"]).status.success());
    lab.wait_until_nothing_left();
}

#[test]
fn run__from_a_host_starts_ranks_on_all() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    let agent = format!("{WEFT} lab exec");
    let start = ["lab", "exec", "h1", WEFT, "run", "--hosts", "h1:2,h2:2", "--launch-agent"];
    let place = ["sh", "-c", "echo $PMI_RANK on $(hostname)"];
    let done = lab.weft(&[&start[..], &[&agent], &place].concat());
    let mut lines: Vec<String> = text(&done.stdout).lines().map(String::from).collect();
    lines.sort();
    assert_eq!(lines, ["0 on h1", "1 on h1", "2 on h2", "3 on h2"], "{}", text(&done.stderr));
    let by_lab = ["lab", "exec", "h2", WEFT, "lab", "run", "-n", "2", WEFT, "selftest", "incast"];
    let done = lab.weft(&by_lab);
    assert!(done.status.success(), "{}", text(&done.stderr));
}

#[test]
fn exec__from_a_host_without_root() {
    if !is_root() {
        return weft_conformance::skip("only root can become another user; see the other tests");
    }
    let lab = Lab::unmade();
    let nobody = |words: &[&str]| {
        let mut command = lab.command(words);
        command.uid(65534).gid(65534).current_dir("/").output()
    };
    match nobody(&["lab", "up", "2"]) {
        Ok(up) if up.status.success() => {}
        Ok(up) => return weft_conformance::skip(&text(&up.stderr)),
        Err(e) => return weft_conformance::skip(&format!("{WEFT} as another user: {e}")),
    }
    let done = nobody(&["lab", "exec", "h1", WEFT, "lab", "exec", "h2", "hostname"]).unwrap();
    assert_eq!(text(&done.stdout).trim(), "h2", "{}", text(&done.stderr));
    assert!(nobody(&["lab", "down"]).unwrap().status.success());
}

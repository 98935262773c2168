//! A machine with faults: full disks, limits, no network, ranks that die or stop at any moment.
//! Every job ends by itself, reports the cause, and leaves nothing behind.
#![allow(non_snake_case)]

mod chaos;
// Each test program uses a part of it.
#[allow(dead_code)]
#[path = "../run/harness.rs"]
mod harness;
#[allow(unsafe_code)]
mod sys;

use harness::{Done, Job};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use weft_conformance::skip;

const WEFT: &str = env!("CARGO_BIN_EXE_weft");
/// A short job that checks its result.
const SOR: &str = "app sor --size 100 --check";

/// Returns a shell that runs `script`; `$WEFT` is the command.
fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("WEFT", WEFT);
    command
}

/// Returns a shell in namespaces of its own, where it is root and `$DIR` is an empty folder; `None`
/// if they cannot be made.
fn apart(namespace: &str, script: &str) -> Option<Command> {
    let user = ["--user", "--map-root-user", namespace];
    let mut probe = Command::new("unshare");
    let made = probe.args(user).arg("true").stderr(Stdio::null()).status();
    if !made.is_ok_and(|status| status.success()) {
        skip("unshare cannot make namespaces for this user");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(user).args(["sh", "-c", script]).env("WEFT", WEFT).env("DIR", folder());
    Some(command)
}

fn folder() -> PathBuf {
    let path = harness::scratch("fault");
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Runs `script` where `$DIR` is a file system of 64 KiB.
fn on_a_small_disk(script: &str) -> Option<Done> {
    let mount = "mount -t tmpfs -o size=64k none \"$DIR\" || exit 99\n";
    let done = Job::of(apart("--mount", &format!("{mount}{script}"))?).finish();
    if done.code == Some(99) {
        skip("a tmpfs cannot be mounted in a namespace here");
        return None;
    }
    done.assert_nothing_left();
    Some(done)
}

fn assert_passed(done: &Done) {
    done.assert_code(0);
    assert!(done.out.contains("PASS"), "{}{}", done.out, done.err);
    done.assert_nothing_left();
}

#[test]
fn disk__full_under_the_output_of_ranks_ends_the_job() {
    let script = "exec \"$WEFT\" run -n 2 head -c 400000 /dev/zero > \"$DIR/out\"";
    let Some(done) = on_a_small_disk(script) else { return };
    done.assert_code(1);
    done.assert_says(&["standard output", "No space left on device"]);
}

/// Runs a job with captures on a disk with this much room. The output must report the early end of
/// each capture by its file, and the files can be read.
fn captures_on_a_disk_with(room: u32) {
    let fill = 65536 - room;
    let script = format!(
        "head -c {fill} /dev/zero > \"$DIR/fill\"
         WEFT_PCAP=\"$DIR\" \"$WEFT\" run -n 2 \"$WEFT\" {SOR}
         code=$?; command -v tshark > /dev/null || exit $code
         for file in \"$DIR\"/*.pcapng; do
           test -e \"$file\" || continue
           said=$(tshark -r \"$file\" 2>&1 > /dev/null) && echo \"read $file\" || echo \"$said\" >&2
         done; exit $code"
    );
    let Some(done) = on_a_small_disk(&script) else { return };
    assert_passed(&done);
    done.assert_says(&["packet capture ended", "weft-", ".pcapng: No space left on device"]);
    assert!(!done.err.contains("cut short") && !done.err.contains("appears"), "{}", done.err);
}

#[test]
fn disk__full_under_captures_ends_the_captures() {
    captures_on_a_disk_with(65536);
}

/// All bytes to write fit into the buffers of the captures.
#[test]
fn disk__full_when_captures_end_is_said() {
    captures_on_a_disk_with(8192);
    captures_on_a_disk_with(0);
}

#[test]
fn disk__full_under_a_trace_does_not_stop_the_job() {
    let script = format!("exec \"$WEFT\" run -n 2 \"$WEFT\" {SOR} 2> \"$DIR/trace\"");
    let script = format!("export WEFT_LOG=debug WEFT_TRACE=1; {script}");
    let Some(done) = on_a_small_disk(&script) else { return };
    assert_passed(&done);
}

#[test]
fn disk__full_under_results_names_the_file() {
    let fill = "head -c 65536 /dev/zero > \"$DIR/fill\"";
    let script = format!("{fill}; exec \"$WEFT\" run -n 2 \"$WEFT\" {SOR} --out \"$DIR/out\"");
    let Some(done) = on_a_small_disk(&script) else { return };
    done.assert_code(1);
    done.assert_says(&["sor.svg", "No space left on device"]);
}

#[test]
fn disk__full_under_a_command_is_an_error_and_no_panic() {
    let fill = "head -c 65536 /dev/zero > \"$DIR/out\"";
    let Some(done) = on_a_small_disk(&format!("{fill}; exec \"$WEFT\" info >> \"$DIR/out\""))
    else {
        return;
    };
    done.assert_code(1);
    assert_eq!(done.err, "weft: standard output: No space left on device (os error 28)\n");
}

#[test]
fn output__to_a_pipe_that_closes_early_is_no_panic() {
    // A process started by another test may have a copy of the reading end for a moment.
    let codes = (0..50).map(|_| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = Command::new(WEFT).args(["info", "--config"]).stdout(writer).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stderr), "");
        done.status.code()
    });
    let codes: Vec<_> = codes.take_while(|code| *code != Some(141)).collect();
    assert!(codes.len() < 50, "{codes:?}");
}

#[test]
fn memlock__of_nothing_is_enough() {
    for link in ["shm", "udp"] {
        let script = "ulimit -l 0; exec \"$WEFT\" run -n 2 --link $LINK \"$WEFT\" ";
        let mut command = shell(&format!("{script}{SOR}"));
        command.env("LINK", link);
        assert_passed(&Job::of(command).finish());
    }
}

#[test]
fn network__none_at_all_leaves_shared_memory() {
    for link in ["auto", "shm"] {
        let script = format!("exec \"$WEFT\" run -n 2 --link {link} \"$WEFT\" {SOR}");
        let Some(command) = apart("--net", &script) else { return };
        assert_passed(&Job::of(command).finish());
    }
}

#[test]
fn network__none_at_all_is_named_where_it_is_asked_for() {
    let script = format!("exec \"$WEFT\" run -n 2 --link udp \"$WEFT\" {SOR}");
    let Some(command) = apart("--net", &script) else { return };
    let done = Job::of(command).finish();
    done.assert_ended(1, &["no network interface that is up has an address", "ip link set lo up"]);
}

#[test]
fn network__none_at_all_is_what_doctor_and_info_say() {
    let script = "\"$WEFT\" doctor --json; \"$WEFT\" info; ip link set lo up; \"$WEFT\" info >&2";
    let Some(command) = apart("--net", script) else { return };
    let done = Job::of(command).finish();
    let check = |topic: &str| {
        let topic = format!("\"topic\":\"{topic}\"");
        let line = done.out.lines().find(|line| line.contains(&topic));
        line.unwrap_or_else(|| panic!("no {topic}: {}{}", done.out, done.err)).to_owned()
    };
    let udp = check("udp link");
    assert!(udp.contains("\"fail\"") && udp.contains("has an address"), "{udp}");
    for link in ["packet link", "gso link", "xdp link"] {
        let said = check(link);
        assert!(said.contains("no link between hosts works"), "{said}");
        assert!(!said.contains("setcap") && !said.contains("work without"), "{said}");
    }
    let up = check("interfaces");
    assert!(up.contains("none is up") && !done.out.contains("\"interface\""), "{up}");
    assert!(!done.out.contains("messages between hosts"), "{}", done.out);
    assert!(done.err.contains("messages between hosts: small over udp"), "{}", done.err);
}

#[test]
fn dev_shm__of_64_kib_is_not_used() {
    let mount = "mount -t tmpfs -o size=64k none /dev/shm || exit 99";
    let look = "code=$?; ls -A /dev/shm >&2; exit $code";
    let run = format!("\"$WEFT\" run -n 2 --link shm \"$WEFT\" {SOR}");
    let Some(command) = apart("--mount", &format!("{mount}; {run}; {look}")) else { return };
    let done = Job::of(command).finish();
    if done.code == Some(99) {
        return skip("a tmpfs cannot be mounted in a namespace here");
    }
    assert_passed(&done);
    assert_eq!(done.err, "", "nothing is there");
}

/// Rows of 320 kB: long enough for direct copies between processes, if these are permitted.
const LONG_ROWS: [&str; 6] = ["app", "sor", "--size", "12x40000", "--check", "--json"];

#[test]
fn direct_copies__that_are_forbidden_are_not_missed() {
    let mut doctor = Command::new(WEFT);
    sys::forbid_direct_copies(doctor.args(["doctor", "--json"]));
    let checks = doctor.output().unwrap().stdout;
    let checks = String::from_utf8_lossy(&checks);
    let direct = checks.lines().find(|line| line.contains("direct copies")).unwrap();
    assert!(!direct.contains("\"verdict\":\"ok\""), "{direct}");

    let mut command = Command::new(WEFT);
    command.args(["run", "-n", "2", "--link", "shm", WEFT]).args(LONG_ROWS);
    sys::forbid_direct_copies(&mut command);
    let done = Job::of(command).finish();
    done.assert_code(0);
    assert!(done.out.contains("\"pass\":true"), "{}", done.out);
    done.assert_nothing_left();
}

/// Name of the variable set for the process that runs [`becomes_a_rank__without_direct_copies`] as
/// a rank.
const ROLE: &str = "WEFT_TEST_ROLE";

#[test]
fn becomes_a_rank__without_direct_copies() {
    use std::os::unix::process::CommandExt;
    if std::env::var_os(ROLE).is_some() {
        let mut command = Command::new(WEFT);
        command.args(LONG_ROWS);
        if std::env::var("PMI_RANK").as_deref() == Ok("1") {
            sys::forbid_direct_copies(&mut command);
        }
        panic!("{}", command.exec());
    }
    // Rank 0 may read and write rank 1, and not the other way around.
    let test = std::env::current_exe().unwrap();
    let name = "becomes_a_rank__without_direct_copies";
    let mut command = Command::new(WEFT);
    command.args(["run", "-n", "2", "--link", "shm"]).arg(test).args(["--exact", name]);
    let done = Job::of(command).env(ROLE, "rank").finish();
    done.assert_code(0);
    assert!(done.out.contains("\"pass\":true"), "{}", done.out);
    done.assert_nothing_left();
}

/// Checks that the job ended well, or because of the limit, which its message names.
fn assert_passed_or_names_the_limit(done: &Done, files: u32) {
    let passed = done.code == Some(0) && done.out.contains("PASS");
    let named = done.code == Some(1) && done.err.contains("ulimit -n");
    assert!(passed || named, "{files} files: {:?} {}{}", done.code, done.out, done.err);
    done.assert_nothing_left();
}

#[test]
fn descriptors__that_run_out_in_the_launcher_are_named() {
    // With fewer files the program loader fails.
    for files in (5..24).step_by(2) {
        let script = format!("ulimit -n {files}; exec \"$WEFT\" run -n 2 \"$WEFT\" {SOR}");
        assert_passed_or_names_the_limit(&Job::of(shell(&script)).finish(), files);
    }
}

#[test]
fn descriptors__that_run_out_in_the_ranks_are_named() {
    for files in (5..24).step_by(2) {
        let rank = format!("ulimit -n {files}; exec \"$WEFT\" {SOR}");
        let command = ["sh".into(), "-c".into(), rank];
        let done = Job::new(&["-n", "4"]).env("WEFT", WEFT).command(command).finish();
        assert_passed_or_names_the_limit(&done, files);
    }
}

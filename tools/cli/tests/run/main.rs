//! `weft run` called as by a user: the processes that it starts, passes signals to, reports and
//! leaves behind (none).
#![allow(non_snake_case)]

mod apps;
mod ended;
mod foreign;
mod going;
// Each test program uses a part of it.
#[allow(dead_code)]
mod harness;
mod stopped;

use harness::{bootstrap_keys, shell, Job};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_conformance::skip;

#[test]
fn bootstrap__ranks_exchange_values_and_agree_on_a_key() {
    let done = Job::new(&["-n", "4"]).selftest(&["--bytes", "3000"]).finish();
    done.assert_code(0);
    assert_eq!(bootstrap_keys(&done.out, 4, "pmi1").len(), 1, "{}", done.out);
    done.assert_nothing_left();
}

#[test]
fn bootstrap__two_hosts_through_a_launch_agent() {
    let agent = harness::fake_agent("");
    let args = ["-n", "4", "--hosts", "one:1,two", "--launch-agent", agent.as_str()];
    let done = Job::new(&args).selftest(&[]).finish();
    done.assert_code(0);
    assert_eq!(bootstrap_keys(&done.out, 4, "pmi1").len(), 1, "{}", done.out);
    done.assert_nothing_left();
}

#[test]
fn key__is_in_no_environment_and_no_command_line() {
    let agent = harness::fake_agent("");
    let script = "tr '\\0' '\\n' < /proc/self/environ; tr '\\0' ' ' < /proc/$PPID/cmdline; echo; \
                  cat /proc/$PPID/environ | tr '\\0' '\\n'";
    let args = ["--hosts", "one", "--launch-agent", agent.as_str()];
    let done = Job::new(&args).command(shell(script)).finish();
    done.assert_code(0);
    assert!(done.out.contains("PMI_RANK=0"), "{}", done.out);
    let hex = |word: &str| word.len() >= 64 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let words = done.out.split(|c: char| !c.is_ascii_alphanumeric());
    assert_eq!(words.filter(|word| hex(word)).collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn agent__login_noise_before_the_proxy_is_skipped() {
    let agent = harness::fake_agent("echo Welcome to the cluster; echo motd >&2");
    let args = ["-n", "2", "--hosts", "one,two", "--launch-agent", agent.as_str()];
    let done = Job::new(&args).selftest(&[]).finish();
    done.assert_code(0);
    assert!(!done.out.contains("Welcome"), "{}", done.out);
}

#[test]
fn agent__that_fails_is_named_with_its_words() {
    let agent = harness::fake_agent("echo no route to $1 >&2; exit 255");
    let args = ["-n", "2", "--hosts", "far", "--launch-agent", agent.as_str()];
    let done = Job::new(&args).command(shell("true")).finish();
    done.assert_code(1);
    done.assert_says(&["host far", "no route to far", "no proxy could be started"]);
}

#[test]
fn agent__that_never_answers_is_given_up() {
    let agent = harness::fake_agent("exec sleep 1000");
    let args = ["--hosts", "deaf", "--start-timeout", "0.2", "--launch-agent", agent.as_str()];
    let done = Job::new(&args).command(shell("true")).finish();
    done.assert_ended(1, &["host deaf did not answer", "true"]);
}

/// Returns a copy of this program beside an agent that reports nothing.
fn beside_silent_weftd() -> PathBuf {
    let folder = harness::scratch("silent");
    std::fs::create_dir(&folder).unwrap();
    let weft = folder.join("weft");
    let linked = std::fs::hard_link(env!("CARGO_BIN_EXE_weft"), &weft);
    linked.or_else(|_| std::fs::copy(env!("CARGO_BIN_EXE_weft"), &weft).map(drop)).unwrap();
    let weftd = folder.join("weftd");
    std::fs::write(&weftd, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    std::fs::set_permissions(&weftd, std::fs::Permissions::from_mode(0o755)).unwrap();
    weft
}

#[test]
fn weftd__that_is_silent_is_given_up_and_the_ranks_do_without() {
    let weft = beside_silent_weftd();
    let mut command = Command::new(weft);
    command.args(["run", "-n", "2", "--agent", "--start-timeout", "2"]);
    let done = Job::of(command).command(shell("echo ran")).finish();
    done.assert_code(0);
    assert_eq!(done.out, "ran\nran\n");
    done.assert_says(&["did not say within 1 s that it serves", "its ranks do without"]);
    done.assert_nothing_left();
}

#[test]
fn weftd__that_is_silent_is_reported_and_an_interrupt_ends_the_wait() {
    let weft = beside_silent_weftd();
    let mut command = Command::new(weft);
    command.args(["run", "-n", "2", "--agent", "--start-timeout", "100000"]);
    let mut job = Job::of(command).command(shell("echo ran")).start();
    job.error_lines(1, "has not said for 5 s that it serves");
    job.signal("INT");
    let done = job.finish();
    done.assert_code(130);
    done.assert_says(&["SIGINT (signal 2) during start-up"]);
    assert!(!done.err.contains("left behind"), "{}", done.err);
    assert_eq!(done.out, "");
    done.assert_nothing_left();
}

#[test]
fn weftd__that_is_silent_ends_with_the_process_that_asked_for_it() {
    let weft = beside_silent_weftd();
    let mut command = Command::new(weft);
    command.args(["mpi-serve", "@weft-silent"]);
    let mut serve = Job::of(command).input().start();
    serve.close_input();
    let done = serve.finish();
    done.assert_says(&["nobody wants the agent any more"]);
    done.assert_nothing_left();
}

#[test]
fn weftd__of_a_job_serves_its_ranks_and_ends_with_them() {
    let weft = env!("CARGO_BIN_EXE_weft");
    if !Path::new(weft).with_file_name("weftd").is_file() {
        return skip("weftd is not built beside weft (cargo build -p weftd)");
    }
    let asp = [weft, "app", "asp", "--nodes", "200", "--check"].map(String::from);
    // Without an agent both settings are errors.
    let job = Job::new(&["-n", "3", "--agent", "--link", "agent"]).env("WEFT_RELIABILITY", "agent");
    let done = job.command(asp).finish();
    done.assert_code(0);
    assert!(done.out.contains("PASS"), "{}", done.out);
    assert_eq!(done.err.matches("weftd: info: serving process").count(), 3, "{}", done.err);
    done.assert_nothing_left();
}

/// Ends a thread also when the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn weftd__carries_what_passes_inside_a_host_where_no_other_link_is_named() {
    let weft = env!("CARGO_BIN_EXE_weft");
    let name = format!("@weft-run-{:016x}", weft_link::random_u64());
    let words = ["--name", &name, "--links", "udp"].map(String::from);
    let options = weftd::options::Options::parse(words).unwrap();
    let (end, (ready, is_ready)) = (AtomicBool::new(false), std::sync::mpsc::channel());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut agent = weftd::Agent::open(options).unwrap();
            ready.send(()).unwrap();
            while !end.load(Ordering::Relaxed) {
                agent.step();
            }
        });
        let _end = End(&end);
        is_ready.recv().unwrap();
        let sent = || {
            let text = weftd::status::status(&name).unwrap();
            let value = |line: &str| line.strip_prefix("sent ")?.parse::<u64>().ok();
            text.lines().find_map(value).expect("a total")
        };
        // `--link agent` adds shared memory, which is preferred.
        for (links, carries) in [("--link=agent", false), ("--env=WEFT_LINK=agent", true)] {
            let asp = [weft, "app", "asp", "--nodes", "200", "--check"].map(String::from);
            let before = sent();
            let job = Job::new(&["-n", "3", links]).env("WEFT_AGENT", &name);
            let done = job.command(asp).finish();
            done.assert_code(0);
            assert!(done.out.contains("PASS"), "{}", done.out);
            let carried = sent() - before;
            // Each of 200 rows is sent to two ranks.
            assert_eq!(carried >= 400, carries, "{links}: {carried} packets");
        }
    });
}

#[test]
fn exit__of_a_killed_proxy_ends_all_that_its_ranks_started() {
    // One child stays in the rank's group, another has a session of its own.
    let script = "sleep 1000 & setsid sleep 1000 & [ $PMI_RANK = 0 ] && kill -9 $PPID; sleep 1000";
    for host in ["localhost", "elsewhere"] {
        let agent = harness::fake_agent("");
        let args = ["-n", "2", "--hosts", host, "--launch-agent", agent.as_str()];
        let done = Job::new(&args).command(shell(script)).finish();
        done.assert_ended(1, &[&format!("lost host {host} with its ranks"), "SIGKILL"]);
    }
}

#[test]
fn exit__status_is_that_of_the_first_rank_that_fails() {
    let script = "if [ $PMI_RANK = 1 ]; then exit 3; fi; sleep 1000";
    let done = Job::new(&["-n", "3"]).command(shell(script)).finish();
    done.assert_ended(3, &["rank 1 (host localhost, pid ", "exited with status 3"]);
}

#[test]
fn exit__by_signal_names_rank_host_pid_and_signal() {
    let script = "if [ $PMI_RANK = 2 ]; then kill -9 $$; fi; sleep 1000; true";
    let done = Job::new(&["-n", "4"]).command(shell(script)).finish();
    done.assert_ended(
        137,
        &["rank 2 (host localhost, pid ", "SIGKILL (signal 9)", "ending the job"],
    );
}

#[test]
fn exit__on_another_host_ends_the_whole_job() {
    let agent = harness::fake_agent("");
    let script = "if [ $PMI_RANK = 3 ]; then exit 9; fi; sleep 1000";
    let args = ["-n", "4", "--hosts", "one,two", "--launch-agent", agent.as_str()];
    let done = Job::new(&args).command(shell(script)).finish();
    done.assert_ended(9, &["rank 3 (host two, pid "]);
}

#[test]
fn exit__of_ranks_deaf_to_sigterm_comes_by_sigkill() {
    let script = "trap '' TERM; echo ready; if [ $PMI_RANK = 0 ]; then read x; exit 4; fi; \
                  while :; do sleep 1000; done";
    let mut job = Job::new(&["-n", "2"]).command(shell(script)).input().start();
    job.lines(2, "ready");
    job.close_input();
    let done = job.finish();
    done.assert_code(4);
    done.assert_nothing_left();
}

#[test]
fn start__of_a_missing_program_is_explained() {
    let done = Job::new(&["-n", "2"]).command(["./no-such-program".into()]).finish();
    done.assert_code(127);
    done.assert_says(&["cannot start ./no-such-program", "No such file"]);
    let done = Job::new(&[]).command(["/dev/null".into()]).finish();
    done.assert_code(126);
    done.assert_nothing_left();
}

#[test]
fn signal__interrupt_reaches_all_ranks() {
    let mut job = Job::new(&["-n", "3"]).command(shell("echo ready; sleep 1000; true")).start();
    job.lines(3, "ready");
    job.signal("INT");
    let done = job.finish();
    done.assert_code(130);
    let asked = "weft run: interrupted: the ranks are asked to end; Ctrl-C again kills them\n";
    assert_eq!(done.err, asked, "the user knows why ranks end");
    done.assert_nothing_left();
}

#[test]
fn signal__second_interrupt_kills() {
    let script = "trap '' INT; trap 'echo caught' TERM; echo ready; \
                  while :; do sleep 1000 & wait; done";
    let mut job = Job::new(&["-n", "2"]).command(shell(script)).start();
    job.lines(2, "ready");
    job.signal("INT");
    job.error_lines(1, "asked to end; Ctrl-C again kills them");
    // One that comes at once is an echo of the first, as timeout(1) makes it.
    while job.is_running() {
        job.signal("INT");
    }
    let done = job.finish();
    done.assert_ended(130, &["again: killing all ranks"]);
}

#[test]
fn signal__ranks_that_do_not_end_are_named_when_they_are_killed() {
    // A rank is ready when it is deaf: a signal before that ends it.
    let script = "[ $PMI_RANK = 1 ] && trap '' INT TERM; echo ready; \
                  [ $PMI_RANK = 1 ] || exec sleep 1000; while :; do sleep 1000 & wait; done";
    let mut job = Job::new(&["-n", "2"]).command(shell(script)).start();
    job.lines(2, "ready");
    job.signal("INT");
    let done = job.finish();
    done.assert_code(130);
    done.assert_says(&["interrupted: the ranks", "rank 1 does not end: it is killed"]);
    assert!(!done.err.contains("SIGINT"), "{}", done.err);
    done.assert_nothing_left();
}

#[test]
fn signal__usr1_is_passed_on_and_ends_nothing() {
    let script = "trap 'echo caught; exit 0' USR1; echo ready; while :; do sleep 1000 & wait; done";
    let mut job = Job::new(&["-n", "2"]).command(shell(script)).start();
    job.lines(2, "ready");
    job.signal("USR1");
    job.lines(2, "caught");
    let done = job.finish();
    done.assert_code(0);
    done.assert_nothing_left();
}

#[test]
fn launcher__killed_takes_ranks_and_their_children_along() {
    let agent = harness::fake_agent("");
    let args = ["-n", "4", "--hosts", "one,two", "--launch-agent", agent.as_str()];
    for args in [&args[..], &["-n", "2"]] {
        let script = "sleep 1000 & echo ready; sleep 1000; true";
        let mut job = Job::new(args).command(shell(script)).start();
        job.lines(args[1].parse().unwrap(), "ready");
        job.signal("KILL");
        job.wait_until_nothing_left();
        job.finish();
    }
}

#[test]
fn rank__daemons_it_leaves_end_with_the_job() {
    let script = "setsid sleep 1000 > /dev/null 2>&1 < /dev/null & echo left";
    let done = Job::new(&["-n", "2"]).command(shell(script)).finish();
    done.assert_code(0);
    assert_eq!(done.out, "left\nleft\n");
    done.assert_nothing_left();
}

#[test]
fn output__lines_stay_whole_and_tagged() {
    let script = "for i in $(seq 200); do printf 'a%s' $i; printf 'b%s\\n' $i; done; printf end";
    let done = Job::new(&["-n", "4", "--tag-output"]).command(shell(script)).finish();
    done.assert_code(0);
    for rank in 0..4 {
        for i in 1..=200 {
            let line = format!("[{rank}] a{i}b{i}");
            assert!(done.out.lines().any(|l| l == line), "{line} is missing");
        }
        assert!(done.out.lines().any(|l| l == format!("[{rank}] end")), "{}", done.out);
    }
}

#[test]
fn output__streams_stay_apart_and_exact() {
    let done = Job::new(&["-n", "1"]).command(shell("printf out; printf err >&2")).finish();
    done.assert_code(0);
    assert_eq!((done.out.as_str(), done.err.as_str()), ("out", "err"));
}

#[test]
fn input__reaches_rank_0_whole() {
    let text = "0123456789abcde\n".repeat(1 << 16);
    let mut job = Job::new(&["-n", "2"]).command(shell("wc -c")).input().start();
    // The input is longer than the pipe and the launcher may be slow: both sides must make
    // progress.
    job.input_handle().write_all(text.as_bytes()).unwrap();
    job.close_input();
    let done = job.finish();
    done.assert_code(0);
    let mut counts: Vec<usize> = done.out.lines().map(|l| l.trim().parse().unwrap()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [0, 1 << 20]);
}

#[test]
fn input__that_rank_0_does_not_read_blocks_nothing() {
    let mut job = Job::new(&["-n", "2"]).command(shell("exec <&-; echo ready")).input().start();
    job.lines(2, "ready");
    let done = job.finish();
    done.assert_code(0);
}

#[test]
fn fence__that_a_rank_never_reaches_names_it() {
    let done = Job::new(&["-n", "3"]).selftest(&["--absent", "1"]).finish();
    done.assert_code(1);
    done.assert_says(&["rank 1 (host localhost", "ended before it joined the job", "wait"]);
}

#[test]
fn abort__ends_the_job_with_its_status() {
    let done = Job::new(&["-n", "3"]).selftest(&["--aborts", "1"]).finish();
    done.assert_ended(5, &["rank 1", "aborted the job"]);
}

#[test]
fn abort__with_status_0_is_an_end_that_is_well() {
    let script =
        "if [ $PMI_RANK = 1 ]; then printf 'cmd=abort exitcode=0\\n' >&$PMI_FD; fi; sleep 1000";
    let done = Job::new(&["-n", "3"]).command(shell(script)).finish();
    done.assert_code(0);
    assert_eq!(done.err, "", "nothing went wrong");
    done.assert_nothing_left();
    let script = script.replace("exitcode=0", "exitcode=256");
    let done = Job::new(&["-n", "3"]).command(shell(&script)).finish();
    done.assert_code(1);
    done.assert_says(&["rank 1", "aborted the job with status 256"]);
}

#[test]
fn start__that_takes_long_names_the_missing_ranks() {
    let script = "if [ $PMI_RANK = 1 ]; then read x < \"$GATE\"; fi; exec \"$0\" \"$@\"";
    let gate = harness::scratch("gate");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let mut command: Vec<String> = shell(script).into();
    command.extend(harness::selftest(&[]));
    let gate_env = format!("GATE={}", gate.display());
    let mut job = Job::new(&["-n", "3", "--env", &gate_env]).command(command).start();
    job.error_lines(1, "2 of 3 ranks have joined; missing: rank 1 (host localhost");
    std::fs::write(&gate, "go\n").unwrap();
    job.finish().assert_code(0);
}

#[test]
fn timeout__ends_the_job_and_names_the_ranks_that_still_ran() {
    // On a crowded machine it may take long until both ranks run.
    for limit in ["0.2", "2", "20", "200"] {
        let args = ["-n", "2", "--timeout", limit];
        let done = Job::new(&args).command(shell("sleep 1000")).finish();
        done.assert_code(124);
        done.assert_nothing_left();
        if done.err.contains(&format!("ranks 0, 1 still ran after {limit} s")) {
            return;
        }
        done.assert_says(&[&format!(" after {limit} s")]);
    }
    panic!("the ranks never ran");
}

#[test]
fn pmi__hostile_line_ends_the_job_with_its_sender_named() {
    let script = "if [ $PMI_RANK = 1 ]; then printf 'rubbish\\n' >&$PMI_FD; fi; sleep 1000";
    let done = Job::new(&["-n", "2"]).command(shell(script)).finish();
    done.assert_ended(1, &["rank 1 (host localhost", "does not speak PMI-1"]);
}

#[test]
fn environment__carries_link_and_named_variables_but_no_foreign_pmi() {
    let script = "echo $WEFT_LINK $A $PMIX_RANK.";
    let job = Job::new(&["--link", "udp", "--env", "A=1 2"]).env("PMIX_RANK", "7");
    let done = job.command(shell(script)).finish();
    assert_eq!(done.out, "udp 1 2 .\n".repeat(done.out.lines().count()));
    done.assert_code(0);
}

#[test]
fn links__a_list_reaches_the_ranks_with_shm_beside_raw_ethernet() {
    for (links, want) in [("packet,udp", "shm,packet,udp"), ("xdp", "shm,xdp"), ("auto", "auto")] {
        let job = Job::new(&["-n", "1", "--link", links]).command(shell("echo $WEFT_LINK"));
        let done = job.finish();
        assert_eq!(done.out, format!("{want}\n"));
        done.assert_code(0);
    }
    let done = Job::new(&["--link", "packet,pigeon"]).command(shell("true")).finish();
    assert_ne!(done.code, Some(0));
    done.assert_says(&["pigeon", "packet,udp"]);
}

#[test]
fn placement__refuses_what_cannot_be() {
    let shm = ["-n", "2", "--link", "shm", "--hosts", "far1,far2"];
    let (none, many) = (["-n", "0"], ["-n", "99999999"]);
    let option = ["--hosts=-oProxyCommand=x"];
    let cases = [
        (&shm[..], "one host only"),
        (&none, "at least one"),
        (&many, "at most 65536"),
        (&option, "host"),
    ];
    for (args, words) in cases {
        let done = Job::new(args).command(shell("true")).finish();
        assert_ne!(done.code, Some(0));
        done.assert_says(&[words]);
    }
}

#[test]
fn placement__more_ranks_than_slots_run_with_a_note() {
    let done = Job::new(&["-n", "3", "--hosts", "localhost:1"]).command(shell("echo x")).finish();
    done.assert_code(0);
    done.assert_says(&["note: 3 ranks in 1 slots"]);
    assert_eq!(done.out, "x\nx\nx\n");
}

#[test]
fn watchdog__serves_the_others_while_a_rank_computes() {
    for link in ["shm", "udp"] {
        let program = [env!("CARGO_BIN_EXE_weft"), "selftest", "watchdog"].map(String::from);
        let job = Job::new(&["-n", "3", "--link", link]).command(program.to_vec());
        let done = job.env("WEFT_RECEIPT", "watchdog").finish();
        done.assert_code(0);
        assert!(done.out.contains("served 40"), "{link}: {}", done.out);
    }
}

#[test]
fn waits__ranks_that_wait_in_a_circle_say_so_and_top_calls_it_a_deadlock() {
    let weft = env!("CARGO_BIN_EXE_weft");
    let circle = [weft, "selftest", "circle"].map(String::from);
    let job = Job::new(&["-n", "3"]).env("WEFT_WARN_AFTER_MS", "500").env("WEFT_LOG", "warn");
    let mut job = job.command(circle).start();
    job.error_lines(3, "with tag 7 from rank ");
    let looks = std::time::Instant::now();
    loop {
        let seen = Command::new(weft).args(["top", "--once"]).output().unwrap();
        let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
        let all = "all 3 ranks wait: 0 for 1 (tag 0x7), 1 for 2 (tag 0x7), 2 for 0 (tag 0x7)";
        if seen.contains("DEADLOCK in weft-") && seen.contains(all) && seen.contains("WAITING") {
            break;
        }
        assert!(looks.elapsed().as_secs() < 300, "{seen}");
    }
    job.signal("INT");
    job.finish().assert_nothing_left();
}

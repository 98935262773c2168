//! The commands `app`, `info`, `doctor`, `top` and `demo`, called as by a user.
#![allow(non_snake_case)]

use serde_json::Value;
use std::os::linux::net::SocketAddrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use weft_conformance::commands::{Called, Folder};
use weft_conformance::Started;

/// Longer than any command here takes on a working machine.
const LIMIT: Duration = Duration::from_secs(300);
const WEFT: &str = env!("CARGO_BIN_EXE_weft");

fn weft(args: &[&str]) -> Output {
    Command::new(WEFT).args(args).stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns an empty directory of this test.
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

fn app(ranks: &str, args: &[&str]) -> Output {
    let mut all = vec!["run", "-n", ranks, "--timeout", "300", WEFT, "app"];
    all.extend(args);
    weft(&all)
}

#[test]
fn app_sor__equals_the_sequential_program() {
    for ranks in ["1", "4"] {
        let out = scratch(&format!("sor-{ranks}"));
        let args = ["sor", "--size", "66x50", "--check", "--json", "--out", out.to_str().unwrap()];
        let report = &objects(&stdout(&app(ranks, &args)))[0];
        assert_eq!(report["check"]["pass"], true);
        assert_eq!(report["ranks"].to_string(), ranks);
        assert!(std::fs::read(out.join("sor.svg")).unwrap().starts_with(b"<svg "));
        std::fs::remove_dir_all(out).unwrap();
    }
}

#[test]
fn app__writes_a_picture_with_title_and_unit() {
    let out = Folder::new(env!("CARGO_TARGET_TMPDIR"), "pictures");
    let app = Called { program: WEFT, first: "app", without: &[] };
    let all: [(&str, &[&str], [&str; 2]); 2] = [
        ("sor", &["--size", "20"], ["SOR: the plate", "degrees"]),
        ("asp", &["--nodes", "40"], ["ASP: shortest paths of 40 nodes", "pairs of nodes"]),
    ];
    app.assert_pictures(&out, &all);
}

/// The commands of other programs pass on their words, their status, and where they are not there
/// say so.
#[test]
fn parts__are_found_beside_or_told_how_to_get() {
    let alone = Folder::new(env!("CARGO_TARGET_TMPDIR"), "alone");
    let copy = alone.file("weft");
    // No file is written and then executed: a fork of another test could still have it open.
    std::fs::hard_link(WEFT, &copy).unwrap();
    let called = |words: &[&str]| {
        let mut command = Command::new(&copy);
        let done = command.args(words).env("PATH", "/usr/bin:/bin").output().unwrap();
        let both = [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap());
        (done.status.code(), both.concat())
    };
    let calls: [(&str, &[&str], &str); 5] = [
        ("weft-bench", &["bench", "pingpong", "--quick"], "bench pingpong --quick"),
        ("weft-papers", &["app", "radix", "--keys", "9"], "app radix --keys 9"),
        ("weft-papers", &["sim", "app", "sor", "--help"], "sim app sor --help"),
        ("weft-papers", &["sim", "paper000", "--out", "x"], "sim paper000 --out x"),
        ("weft-papers", &["sim", "paper004", "--json"], "sim paper004 --json"),
    ];
    for (part, words, _) in calls {
        let (code, said) = called(words);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(part) && said.contains("cargo xtask install"), "{said}");
    }
    let become_one = |part: &str, program: &str| {
        let _before = std::fs::remove_file(alone.file(part));
        std::os::unix::fs::symlink(program, alone.file(part)).unwrap();
    };
    for (part, words, passed) in calls {
        become_one(part, "/bin/echo");
        assert_eq!(called(words), (Some(0), format!("{passed}\n")));
        become_one(part, "/bin/false");
        assert_eq!(called(words), (Some(1), String::new()));
    }
}

#[test]
fn app_asp__reads_a_graph_and_writes_distances() {
    let out = Folder::new(env!("CARGO_TARGET_TMPDIR"), "asp");
    let graph = out.file("ring.gr");
    std::fs::write(&graph, "p sp 4 4\na 1 2 5\na 2 3 1\na 3 4 2\na 4 1 1\n").unwrap();
    let (graph, dir) = (graph.to_str().unwrap(), out.path());
    let text =
        stdout(&app("4", &["asp", "--graph", graph, "--keep", "all", "--check", "--out", dir]));
    assert!(text.contains("PASS"), "{text}");
    let distances = std::fs::read_to_string(out.file("asp-distances.csv")).unwrap();
    assert_eq!(distances, "from,1,2,3,4\n1,0,5,6,8\n2,4,0,1,3\n3,3,8,0,2\n4,1,6,7,0\n");
}

#[test]
fn app_asp__large_rows_on_more_ranks_than_cores() {
    let text = stdout(&app("4", &["asp", "--nodes", "600", "--degree", "3", "--check", "--json"]));
    assert_eq!(objects(&text)[0]["check"]["pass"], true);
}

#[test]
fn app__an_error_ends_all_ranks_and_names_the_cause() {
    let output = app("3", &["asp", "--graph", "/nonexistent.gr"]);
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("/nonexistent.gr"), "{errors}");
}

#[test]
fn info__json() {
    let info = &objects(&stdout(&weft(&["info", "--json"])))[0];
    let links: Vec<&str> =
        info["links"].as_array().unwrap().iter().map(|l| l["name"].as_str().unwrap()).collect();
    assert_eq!(links, ["shm", "agent", "xdp", "packet", "gso", "udp", "tcp"]);
    assert_eq!(info["links"][0]["caps"]["reliable"], true);
    assert!(info["config"].as_array().unwrap().iter().any(|c| c["variable"] == "WEFT_WINDOW"));
}

#[test]
fn info__shows_what_the_environment_sets() {
    let output =
        Command::new(WEFT).args(["info", "--json"]).env("WEFT_WINDOW", "77").output().unwrap();
    let info = &objects(&stdout(&output))[0];
    let config = info["config"].as_array().unwrap();
    let window = config.iter().find(|c| c["name"] == "window").unwrap();
    assert_eq!((&window["value"], &window["is_default"]), (&"77".into(), &false.into()));
}

#[test]
fn info__shows_what_holds_otherwise_for_some_ranks() {
    let info = |args: &[&str]| {
        let mut command = Command::new(WEFT);
        command.args(args).env("WEFT_TRANSFER", "copy,2=gather,5-6=rcpy").env("WEFT_MTU", "5=2K");
        stdout(&command.output().unwrap())
    };
    let all = &objects(&info(&["info", "--json"]))[0];
    let config = all["config"].as_array().unwrap();
    for (name, value) in [("transfer", "copy,2=gather,5-6=rcpy"), ("mtu", "0,5=2048")] {
        let shown = config.iter().find(|c| c["name"] == name).unwrap();
        assert_eq!((&shown["value"], &shown["is_default"]), (&value.into(), &false.into()));
    }
    let text = info(&["info"]);
    assert!(text.contains("copy,2=gather,5-6=rcpy") && text.contains("for some ranks"), "{text}");
    assert!(!stdout(&weft(&["info"])).contains("for some ranks"), "there are none");
}

#[test]
fn info__is_of_jobs_and_says_what_a_job_would_do() {
    let output = weft(&["info", "--json"]);
    let info = &objects(&stdout(&output))[0];
    let config = info["config"].as_array().unwrap();
    assert!(config.iter().all(|c| c["is_default"] == true), "nothing is set: {config:?}");
    // Between hosts a job uses packet sockets if it may.
    let may = info["links"].as_array().unwrap().iter();
    let may = may.filter(|l| l["name"] == "packet").any(|l| !l["caps"].is_null());
    let messages = info["messages"].as_array().unwrap();
    let between = messages.iter().find(|m| m["place"] == "between hosts").expect("udp at least");
    assert_eq!(between["small_over"] == "packet", may, "{between}");
    let text = stdout(&weft(&["info", "--config"]));
    for name in ["WEFT_WINDOW", "WEFT_LINK", "WEFT_SECURITY", "WEFT_KEY", "WEFT_RCPY_TLB"] {
        assert!(text.contains(name), "{name} is not in {text}");
    }
    let mut secret = Command::new(WEFT);
    secret.args(["info", "--json"]).env("WEFT_KEY", "5ec2e7");
    assert!(!stdout(&secret.output().unwrap()).contains("5ec2e7"), "a key is shown");
}

#[test]
fn info__refuses_what_a_job_would_refuse() {
    for (name, value) in [
        ("WEFT_LINK", "bogus"),
        ("WEFT_PACKETS_KEPT", "many"),
        ("WEFT_FAULTS", "bogus"),
        ("WEFT_XDP_QUEUE", "x"),
        ("WEFT_TRANSFER", "auto,node3=copy"),
        ("WEFT_RECEIPT", "adaptive,3=polling"),
    ] {
        for command in ["info", "doctor"] {
            let output = Command::new(WEFT).arg(command).env(name, value).output().unwrap();
            assert!(!output.status.success(), "{command} accepts {name}={value}");
            let said = [output.stdout, output.stderr].concat();
            assert!(String::from_utf8_lossy(&said).contains(name), "{command}: {name}");
        }
    }
}

#[test]
fn commands__say_once_that_nothing_is_authenticated() {
    for args in [
        &["info"][..],
        &["info", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["app", "sor", "--size", "20"],
    ] {
        let mut command = Command::new(WEFT);
        command.args(args).env("WEFT_SECURITY", "none").env_remove("WEFT_LOG");
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(said.matches("WEFT_SECURITY=none").count(), 1, "{args:?}: {said}");
    }
}

#[test]
fn run__each_rank_says_once_that_nothing_is_authenticated() {
    // Every link that this machine can have: anybody can forge frames on each.
    for link in ["udp", "auto"] {
        let mut command = Command::new(WEFT);
        command.args(["run", "-n", "2", "--link", link, WEFT, "app", "sor", "--size", "20"]);
        let output = command.env("WEFT_SECURITY", "none").env_remove("WEFT_LOG").output().unwrap();
        assert!(output.status.success());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said.matches("authenticated").count(), 2, "{said}");
    }
}

#[test]
fn doctor__names_variables_that_nothing_reads() {
    let output = Command::new(WEFT).arg("doctor").env("WEFT_LINKS", "shm").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("nothing reads WEFT_LINKS"), "{said}");
}

#[test]
fn doctor__every_line_has_a_verdict_and_faults_a_remedy() {
    let output = weft(&["doctor", "--json"]);
    let checks = objects(&String::from_utf8_lossy(&output.stdout));
    assert!(checks.len() > 10);
    let failed = checks.iter().filter(|check| check["verdict"] == "fail").count();
    assert!(checks.iter().all(|check| check["verdict"] == "ok" || check["remedy"].is_string()));
    assert_eq!(output.status.success(), failed == 0);
}

#[test]
fn mtu__shorter_than_any_packet_is_refused() {
    let said = |output: Output| {
        assert!(!output.status.success());
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let set = |value| {
        let mut command = Command::new(WEFT);
        command.args(["info", "--config"]).env("WEFT_MTU", value).output().unwrap()
    };
    for value in ["3", "275"] {
        let why = said(set(value));
        assert!(why.contains(&format!("WEFT_MTU={value:?} is out of range")), "{why}");
        assert!(why.contains("276 to 4294967295, or 0 (the link's longest)"), "{why}");
    }
    assert!(stdout(&set("276")).contains("276"));
    assert!(set("0").status.success());
}

#[test]
fn info__shows_the_range_of_each_setting_and_a_time_without_meaning_is_refused() {
    let all = &objects(&stdout(&weft(&["info", "--config", "--json"])))[0];
    let settings = all["config"].as_array().unwrap();
    let times = settings.iter().filter(|s| s["unit"] == "us" || s["unit"] == "ms");
    assert!(times.clone().count() > 10 && times.clone().all(|s| s["range"].is_string()));
    let table = stdout(&weft(&["info", "--config"]));
    assert!(table.contains("ms: 100 to 4294967295 "), "{table}");
    assert!(table.contains("ms: 1 to 4294967295, or 0 (never)"), "{table}");
    for (name, says) in [
        ("WEFT_PEER_TIMEOUT_MS", "100 to 4294967295; unit: ms"),
        ("WEFT_CONNECT_TIMEOUT_MS", "100 to 4294967295; unit: ms"),
        ("WEFT_KEEPALIVE_MS", "10 to 60000; unit: ms"),
    ] {
        let output = Command::new(WEFT).arg("info").env(name, "0").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(name) && said.contains(says), "{said}");
    }
}

#[test]
fn run__a_word_that_is_no_option_is_not_taken_for_the_program() {
    for command in [&["run"][..], &["mpi"], &["lab", "run"], &["lab", "exec", "h1"]] {
        let output = weft(&[command, &["--lnk", "udp", "true"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
        assert!(said.contains("--lnk"), "{command:?}: {said}");
    }
    // Options of the program are its own.
    assert!(stdout(&weft(&["run", "-n", "1", "echo", "--lnk", "-n"])).contains("--lnk -n"));
}

#[test]
fn doctor__bad_configuration_fails() {
    let output = Command::new(WEFT).args(["doctor"]).env("WEFT_WINDOW", "many").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("WEFT_WINDOW"));
}

#[test]
fn doctor__says_if_a_lab_can_be_made() {
    let checks = objects(&String::from_utf8_lossy(&weft(&["doctor", "--json"]).stdout));
    let lab = checks.iter().find(|check| check["topic"] == "lab").expect("a line about it");
    let name = format!("doctored-{}", std::process::id());
    let up = weft(&["lab", "up", "2", "--loss", "1%", "--name", &name]);
    let why = String::from_utf8_lossy(&up.stderr);
    assert_eq!(lab["verdict"] == "ok", up.status.success(), "{lab} {why}");
    if up.status.success() {
        stdout(&weft(&["lab", "down", "--name", &name]));
    }
}

#[test]
fn top__an_interval_that_is_none_is_refused() {
    for interval in ["0", "-1", "nan", "1e9", "soon"] {
        let output = weft(&["top", &format!("--interval={interval}")]);
        assert_eq!(output.status.code(), Some(2), "{interval}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("0.05 to 3600"), "{interval}");
    }
}

/// Returns the ranks of the job whose `weft run` is process `launcher`, as listed by `weft top`.
fn seen(launcher: u32) -> Vec<Value> {
    let job = format!("weft-{launcher}-");
    let all = objects(&stdout(&weft(&["top", "--once", "--json"])));
    all.into_iter().filter(|row| row["job"].as_str().unwrap().starts_with(&job)).collect()
}

#[test]
fn top__sees_a_running_job_and_nothing_after_it() {
    // Computes until it is killed.
    let args = ["run", "-n", "2", WEFT, "app", "sor", "--size", "200", "--tolerance", "0"];
    let mut command = Command::new(WEFT);
    command.args(args).args(["--iterations", "1000000000"]).stdout(Stdio::null());
    let mut job = Started(command.spawn().unwrap());
    let start = Instant::now();
    let rows = loop {
        let rows = seen(job.id());
        let sent = |row: &Value| row["counters"]["messages_sent"].as_u64().unwrap_or(0);
        if rows.len() == 2 && rows.iter().all(|row| sent(row) > 10) {
            break rows;
        }
        assert!(start.elapsed() < LIMIT, "{rows:?}");
        assert!(job.try_wait().unwrap().is_none(), "the job ended");
    };
    for (rank, row) in rows.iter().enumerate() {
        assert_eq!((row["rank"].as_u64(), row["size"].as_u64()), (Some(rank as u64), Some(2)));
        assert_eq!(row["peers"], 1);
    }
    let text = stdout(&weft(&["top", "--prometheus"]));
    assert!(text.contains("# TYPE weft_messages_sent_total counter"), "{text}");
    let metrics = weft_conformance::exposition::check(&text).unwrap();
    assert!(metrics["weft_messages_sent_total"] >= 2, "{text}");
    let table = stdout(&weft(&["top", "--once"]));
    assert!(table.contains("0/2") && table.contains("1/2"), "{table}");

    let launcher = job.id();
    drop(job);
    while !seen(launcher).is_empty() {
        assert!(start.elapsed() < LIMIT, "ranks outlived their launcher");
    }
}

/// Runs `weft top` on a terminal of 80 columns and 12 rows, and sends keys after its first page;
/// returns its output. `None`, with a note, if no terminal can be made.
fn drawn(keys: &str) -> Option<String> {
    let line = format!("stty cols 80 rows 12; exec {WEFT} top --interval=0.05");
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("SHELL", "/bin/sh").env("TERM", "xterm");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut shell) = command.spawn() else {
        weft_conformance::skip("no script (util-linux) to make a terminal");
        return None;
    };
    let (mut input, mut output) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
    let (mut drawn, mut bytes) = (String::new(), [0; 4096]);
    let mut keys = Some(keys);
    while let Ok(read @ 1..) = std::io::Read::read(&mut output, &mut bytes) {
        drawn += &String::from_utf8_lossy(&bytes[..read]);
        if drawn.contains("q ends") {
            let keys = keys.take().unwrap_or_default();
            let _ended = std::io::Write::write_all(&mut input, keys.as_bytes());
        }
    }
    assert!(shell.wait().unwrap().success(), "{drawn}");
    Some(drawn)
}

#[test]
fn top__stays_within_its_terminal_and_ends_by_a_key() {
    // More ranks than rows.
    let args = ["run", "-n", "16", WEFT, "app", "sor", "--size", "200", "--tolerance", "0"];
    let mut command = Command::new(WEFT);
    command.args(args).args(["--iterations", "1000000000"]).stdout(Stdio::null());
    let job = Started(command.spawn().unwrap());
    let start = Instant::now();
    while seen(job.id()).len() < 16 {
        assert!(start.elapsed() < LIMIT, "ranks do not start");
    }
    // Down, a page down, the next order, and a key without function.
    let Some(drawn) = drawn("\x1b[B\x1b[6~s\x1b[15~q") else { return };
    let pages: Vec<&str> = drawn.split("\x1b[H\x1b[J").skip(1).collect();
    for page in &pages {
        let page = page.split("\x1b[?25h").next().unwrap_or_default().replace("\x1b[K", "");
        let lines: Vec<&str> = page.lines().map(|line| line.trim_end_matches('\r')).collect();
        assert!(lines.len() <= 12, "{lines:#?}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    }
    assert!(drawn.contains("MSGS/S") && drawn.contains("arrows and pages move"), "{drawn}");
    assert!(drawn.ends_with("\x1b[?25h\x1b[?1049l"), "the terminal comes back: {drawn:?}");
}

/// Returns the standard output of a command, whatever its status.
fn said(args: &[&str]) -> String {
    String::from_utf8_lossy(&weft(args).stdout).into_owned()
}

#[test]
fn json__is_nothing_but_json() {
    for args in [
        &["info"][..],
        &["doctor"],
        &["top", "--once"],
        &["app", "sor", "--size", "20"],
        &["app", "asp", "--nodes", "16", "--check"],
        &["sim", "loss"],
        &["sim", "scaling", "--hosts", "8"],
        &["sim", "death"],
        &["sim", "fairness"],
        &["sim", "swarm", "--seeds", "1..3"],
        &["sim", "swarm", "--seed", "1"],
    ] {
        let text = said(&[args, &["--json"]].concat());
        for line in text.lines() {
            let value: Value = serde_json::from_str(line)
                .unwrap_or_else(|e| panic!("{args:?}: {e} in {line}: {text}"));
            assert!(value.is_object(), "{args:?}: {line}");
        }
        assert!(!text.is_empty() || args[0] == "top", "{args:?} says nothing");
    }
}

#[test]
fn arguments__that_make_no_sense_end_every_command_with_2() {
    for args in [
        &["nothing"][..],
        &["run"],
        &["run", "-n", "0", "true"],
        &["run", "--hosts", "a b", "true"],
        &["run", "--hosts", "a,,b:0", "true"],
        &["run", "--hostfile", "/nonexistent", "true"],
        &["run", "--env", "=1", "true"],
        &["run", "--env", "WEFT_NO_SUCH_VARIABLE", "true"],
        &["run", "--link", "shm", "--hosts", "a,b", "true"],
        &["mpi", "--mpi", "/nonexistent/mpiexec", "true"],
        &["tune", "--dry-run", "--hosts", "a"],
        &["tune", "--dry-run", "--hosts", "a,b", "--link", "shm"],
        &["lab", "up", "0"],
        &["lab", "up", "2", "--name", "no/name"],
        &["lab", "up", "3", "--direct"],
        &["sim", "nothing"],
        &["sim", "reliability", "--reliability", "gbn"],
        &["app", "sor", "--size", "1"],
        &["top", "--interval=0"],
        &["demo", "-n", "many"],
    ] {
        let output = weft(args);
        let why = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {why}");
        assert!(!why.is_empty(), "{args:?}");
    }
}

#[test]
fn output__to_a_closed_pipe_ends_every_command_quietly() {
    for args in [
        &["info"][..],
        &["doctor"],
        &["top"],
        &["top", "--prometheus"],
        &["sim", "list"],
        &["sim", "scaling", "--hosts", "4"],
        &["sim", "loss", "--json"],
        &["app", "sor", "--size", "20"],
        &["run", "-n", "2", "--timeout", "300", "yes"],
        &["completions", "bash"],
    ] {
        // A process started by another test may have a copy of the reading end for a moment: then
        // the pipe only fills, or the command ends normally.
        let ended = (0..50).map(|_| {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let mut command = Command::new(WEFT);
            let done = command.args(args).stdin(Stdio::null()).stdout(writer).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&done.stderr), "", "{args:?}");
            done.status.code()
        });
        let codes: Vec<_> = ended.take_while(|code| *code != Some(141)).collect();
        assert!(codes.len() < 50, "{args:?}: {codes:?}");
    }
}

#[test]
fn errors__to_a_closed_pipe_are_no_panic() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(WEFT);
    let done = command.args(["run", "--hosts", "a b", "true"]).stderr(writer).output().unwrap();
    assert_eq!(done.status.code(), Some(2));
}

#[test]
fn demo__names_why_nothing_can_be_written() {
    for out in ["/proc/nowhere/demo", "/dev/null/demo"] {
        let output = weft(&["demo", "--quick", "--out", out]);
        let why = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{why}");
        assert!(why.contains("--out") && why.contains(out) && why.contains("os error"), "{why}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("FAIL"));
    }
}

/// Words that are wrong are refused before a program starts, and one that is not there ends as with
/// env(1).
#[test]
fn sockets_run__says_what_is_wrong() {
    let library = scratch("library");
    std::fs::write(&library, "").unwrap();
    let run = |program: &str, (name, value): (&str, &str)| {
        let mut weft = Command::new(WEFT);
        weft.args(["sockets", "run", program]).env("WEFT_AGENT", "@weft-nobody").env(name, value);
        let output = weft.env("WEFT_SOCKETS_LIBRARY", &library).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (name, value) in [("WEFT_SOCKETS", "2"), ("WEFT_SOCKETS", "maybe")] {
        let (code, said) = run("true", (name, value));
        assert!(code == Some(1) && said.contains(name) && said.contains(value), "{said}");
    }
    let right = ("WEFT_SOCKETS", "0");
    let (code, said) = run("/no/such/program", right);
    assert!(code == Some(127) && said.contains("/no/such/program"), "{code:?}: {said}");
    assert_eq!(run("/etc/passwd", right).0, Some(126));
    let (code, said) = run("true", right);
    assert!(code == Some(0) && said.contains("no agent serves at @weft-nobody"), "{said}");
    // An agent that is stopped: it does not answer.
    let name = std::os::unix::net::SocketAddr::from_abstract_name("weft-nobody-desk").unwrap();
    let _agent = std::os::unix::net::UnixListener::bind_addr(&name).unwrap();
    let (code, said) = run("true", right);
    assert!(code == Some(0) && !said.contains("no agent serves"), "{said}");
    std::fs::remove_file(library).unwrap();
}

/// Programs that would not start with the library start without it, and that is said.
#[test]
fn sockets_run__starts_programs_that_take_no_library() {
    let dir = scratch("refuses");
    std::fs::create_dir_all(&dir).unwrap();
    let library = dir.join("library");
    std::fs::write(&library, "").unwrap();
    let source = dir.join("program.c");
    let text = "#include <stdio.h>\n#include <stdlib.h>\n\
                int main() { puts(getenv(\"LD_PRELOAD\") ? \"with\" : \"ran\"); return 0; }\n";
    std::fs::write(&source, text).unwrap();
    let kinds: [(&str, &[&str], &str); 2] = [
        ("cc", &["-fsanitize=address"], "the address sanitizer"),
        ("musl-gcc", &[], "another C library"),
    ];
    for (compiler, more, why) in kinds {
        let program = dir.join(compiler);
        let built = Command::new(compiler).args(more).arg("-o").args([&program, &source]).output();
        if !built.is_ok_and(|output| output.status.success()) {
            weft_conformance::skip(&format!("{compiler} {more:?} builds nothing here"));
            continue;
        }
        let script = dir.join("script");
        std::fs::write(&script, format!("#!{}\n", program.display())).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, mode).unwrap();
        for named in [&program, &script] {
            let mut weft = Command::new(WEFT);
            weft.args(["sockets", "run"]).arg(named).env("WEFT_AGENT", "@weft-nobody");
            let output = weft.env("WEFT_SOCKETS_LIBRARY", &library).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("runs without weft") && said.contains(why), "{said}");
            assert_eq!(String::from_utf8_lossy(&output.stdout), "ran\n", "{said}");
        }
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn demo__quick_passes() {
    let out = scratch("demo");
    let text = stdout(&weft(&["demo", "--quick", "--out", out.to_str().unwrap()]));
    assert!(!text.contains("FAIL"), "{text}");
    assert!(out.join("sor.svg").is_file() && out.join("asp.csv").is_file());
    std::fs::remove_dir_all(out).unwrap();
}

/// The subcommands that the help of a command lists.
fn subcommands(help: &str) -> Vec<String> {
    let list = help.split_once("Commands:\n").map_or("", |(_, rest)| rest);
    let list = list.lines().take_while(|line| !line.is_empty());
    let name = |line: &str| line.strip_prefix("  ")?.split_whitespace().next().map(str::to_owned);
    let starts = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    list.filter(starts).filter_map(name).filter(|name| name != "help").collect()
}

#[test]
fn help__breaks_lines_between_words_at_80_columns() {
    let help = |words: &[&str]| {
        let mut command = Command::new(WEFT);
        command.args(words).arg("--help").env("COLUMNS", "80").stdin(Stdio::null());
        let text = stdout(&command.output().unwrap());
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "weft {words:?} --help: {line}");
        }
        text
    };
    let all = subcommands(&help(&[]));
    assert!(all.len() > 10, "{all:?}");
    for name in &all {
        if name == "bench" {
            continue;
        }
        for below in subcommands(&help(&[name])) {
            // The words of these are passed on.
            let passed_on = ["app", "paper000", "paper004"].contains(&below.as_str());
            if name != "sim" || !passed_on {
                help(&[name, &below]);
            }
        }
    }
}

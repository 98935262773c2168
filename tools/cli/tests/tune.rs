//! `weft tune` called as by a user. No test here checks speed.
#![allow(non_snake_case)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use weft::calibration::Machine;
use weft::Calibration;

/// Returns a file of this test in a folder that does not exist yet.
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    dir.join("calibration.toml")
}

fn command(file: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.args(args).env("WEFT_TUNE", file).stdin(Stdio::null());
    command
}

fn weft(file: &Path, args: &[&str]) -> Output {
    command(file, args).output().expect("weft starts")
}

fn stdout(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn info(file: &Path, link: &str) -> (Value, String) {
    let output = command(file, &["info", "--json"]).env("WEFT_LINK", link).output().unwrap();
    let text = stdout(&output);
    (serde_json::from_str(&text).unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn tune__measures_stores_shows_and_forgets() {
    let file = scratch("tune");
    let tune = ["tune", "--quick", "--link", "shm,udp"];
    let dry = stdout(&weft(&file, &[&tune[..], &["--dry-run"]].concat()));
    assert!(dry.contains("nothing stored") && !file.exists(), "{dry}");

    let text = stdout(&weft(&file, &tune));
    assert!(text.contains("one way, 16 B") && text.contains("data, 1 MiB"), "{text}");
    let stored = Calibration::read_for(&file, &Machine::here()).unwrap().expect("a file");
    let names: Vec<&str> = stored.links.iter().map(|l| l.link.as_str()).collect();
    assert_eq!(names, ["shm", "udp"]);
    assert!(stored.eager_max("shm", "shm") >= 4096, "{stored:?}");
    assert!(stdout(&weft(&file, &["tune", "--show"])).contains("data over udp"));

    let (now, _) = info(&file, "shm,udp");
    assert_eq!(now["calibration"]["file"], file.to_str().unwrap());
    let links = now["links"].as_array().unwrap();
    let udp = links.iter().find(|l| l["name"] == "udp").unwrap();
    assert_eq!(udp["caps"]["latency_ns"], stored.link("udp").unwrap().latency_ns);
    assert!(udp["caps"]["source"].as_str().unwrap().contains("measured"));

    assert!(stdout(&weft(&file, &["tune", "--forget"])).contains("removed"));
    assert!(!file.exists());
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

/// A lab of two hosts that ends when this value is dropped.
struct Lab(String);

impl Drop for Lab {
    fn drop(&mut self) {
        weft(Path::new("off"), &["lab", "down", "--name", &self.0]);
    }
}

#[test]
fn tune__between_two_hosts_stores_on_both_beside_what_is_there() {
    let file = scratch("far");
    let lab = Lab(format!("tune{}", std::process::id()));
    let up = weft(Path::new("off"), &["lab", "up", "2", "--name", &lab.0]);
    let why = String::from_utf8_lossy(&up.stderr);
    if !up.status.success() && why.contains("CAP_SYS_ADMIN") {
        return weft_conformance::skip(&why);
    }
    assert!(up.status.success(), "{why}");
    let mut made = Calibration { machine: Machine::here(), ..Calibration::default() };
    let figures = |link: &str| weft::calibration::LinkFigures {
        link: link.into(),
        place: "here".into(),
        latency_ns: 1,
        bytes_per_us: 2,
        small_bytes_per_us: 3,
        messages_per_ms: 4,
    };
    made.links.extend(["shm", "udp"].map(figures));
    made.write(&file).unwrap();
    let agent = format!("'{}' lab exec --name {}", env!("CARGO_BIN_EXE_weft"), lab.0);
    let tune = ["tune", "--hosts", "h1,h2", "--launch-agent", &agent, "--quick", "--link", "udp"];
    let text = stdout(&weft(&file, &tune));
    assert!(text.contains("stored on h1 in") && text.contains("stored on h2 in"), "{text}");
    let stored = Calibration::read_for(&file, &Machine::here()).unwrap().expect("a file");
    assert_eq!(stored.link("shm").map(|l| l.latency_ns), Some(1), "{stored:?}");
    let udp = stored.link("udp").expect("measured");
    assert!(udp.latency_ns > 1 && udp.place == "hosts h1 and h2", "{udp:?}");
    assert_eq!(stored.switches.len(), 1, "{stored:?}");
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn tune__hosts_that_cannot_be_are_refused() {
    let refused = |words: &[&str]| {
        let output = weft(Path::new("off.toml"), &[&["tune", "--dry-run"], words].concat());
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for hosts in ["a", "a,a", "a,b,c"] {
        assert!(refused(&["--hosts", hosts]).contains("two different hosts"));
    }
    assert!(refused(&["--hosts", "a,b", "--link", "shm"]).contains("one host only"));
    let gone = refused(&["--hosts", "a,b", "--launch-agent", "false", "--quick"]);
    assert!(gone.contains("no link could be measured"), "{gone}");
}

/// Sends a signal to a run of `weft tune` when it has ranks, so that there is work to interrupt.
fn signal_with_ranks(child: &Child, signal: &str) {
    let ranks = format!("/proc/{0}/task/{0}/children", child.id());
    while std::fs::read_to_string(&ranks).is_ok_and(|list| list.trim().is_empty()) {
        std::thread::yield_now();
    }
    let kill = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(kill.unwrap().success());
}

#[test]
fn tune__goes_on_after_a_signal_that_its_starter_ignores() {
    let file = scratch("ignored");
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_weft")]);
    shell.args(["tune", "--quick", "--link", "shm"]).env("WEFT_TUNE", &file);
    let child = shell.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    signal_with_ranks(&child, "-HUP");
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(file.exists());
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn tune__interrupted_stores_nothing() {
    let file = scratch("interrupted");
    let child = command(&file, &["tune", "--link", "shm"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    signal_with_ranks(&child, "-TERM");
    let done = child.wait_with_output().unwrap();
    assert!(!done.status.success() && !file.exists());
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(said, "weft tune: interrupted, nothing stored\n");
}

#[test]
fn tune__off_says_so() {
    let output = weft(Path::new("off"), &["tune", "--quick"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("WEFT_TUNE=off"));
}

#[test]
fn info__what_was_measured_changes_protocol() {
    let file = scratch("applied");
    let mut made = Calibration { machine: Machine::here(), ..Calibration::default() };
    let (small, data) = ("udp".to_string(), "udp".to_string());
    made.links.push(weft::calibration::LinkFigures {
        link: "udp".into(),
        place: "here".into(),
        latency_ns: 1,
        bytes_per_us: 2,
        small_bytes_per_us: 3,
        messages_per_ms: 4,
    });
    made.switches.push(weft::calibration::Switch { small, data, eager_max: 8192 });
    made.write(&file).unwrap();
    let ends = |file: &Path| {
        let (info, warning) = info(file, "udp");
        assert_eq!(warning, "");
        let sizes = info["messages"][0]["sizes"].clone();
        let (last, before) = (sizes.as_array().unwrap().last().unwrap().clone(), &sizes);
        assert!(last["path"] == "udp" && last["why"].is_string(), "{sizes}");
        before.as_array().unwrap().iter().rev().nth(1).unwrap()["up_to_bytes"].clone()
    };
    assert_eq!(ends(&file), 8192);
    assert_ne!(ends(Path::new("off")), 8192);
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn info__a_broken_or_foreign_file_is_left_aside_with_one_warning() {
    let file = scratch("broken");
    let here = Machine::here();
    let foreign = Machine { host: !here.host, ..here };
    let foreign = Calibration { machine: foreign, ..Calibration::default() }.to_text();
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    for (text, why) in [("version = 1\nrubbish\n", "line 2"), (&foreign, "another machine")] {
        std::fs::write(&file, text).unwrap();
        let (info, warning) = info(&file, "udp");
        assert!(info["calibration"].is_null(), "{info}");
        assert!(warning.contains(why) && warning.contains("weft tune"), "{warning}");
        assert_eq!(warning.matches("is not used").count(), 1, "{warning}");
    }
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

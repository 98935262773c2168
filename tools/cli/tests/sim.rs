//! `weft sim` called as by users and scripts.
#![allow(non_snake_case)]

use serde_json::Value;
use weft_conformance::commands::{Called, Scratch};

const SIM: Called =
    Called { program: env!("CARGO_BIN_EXE_weft"), first: "sim", without: &["WEFT_SEEDS"] };
const TMP: &str = env!("CARGO_TARGET_TMPDIR");

#[test]
fn names__a_cluster_parts_and_heals_and_its_growth_is_drawn() {
    let file = Scratch::new(TMP, "names.svg");
    let got = SIM.lines(&["names", "--hosts", "8,40", "--names", "5", "--plot", file.path()]);
    assert_eq!(got.iter().filter_map(|line| line["hosts"].as_u64()).collect::<Vec<_>>(), [8, 40]);
    for line in &got {
        for field in ["parted_ms", "healed_ms", "heal_messages", "watching_bytes", "table_bytes"] {
            assert!(line[field].as_f64().is_some_and(|value| value > 0.0), "{field} of {line}");
        }
    }
    assert!(std::fs::read(file.path()).unwrap().starts_with(b"<svg "));
    assert!(SIM
        .refused(&["names", "--hosts", "8", "--plot", "x"])
        .contains("two numbers of hosts"));
    assert!(SIM
        .refused(&["names", "--hosts", "8,40", "--plot", "x.png"])
        .contains("x.png: the plot's file is to end in .svg"));
}

#[test]
fn files__in_a_missing_folder_are_refused_before_the_work() {
    let missing = format!("{TMP}/no-such-folder/a.svg");
    for words in [
        // Either would take a quarter of an hour.
        &["names", "--hosts", "500,1000", "--plot", &missing][..],
        &["collectives", "--hosts", "16384", "--trace", &missing],
        &["collectives", "--hosts", "16384", "--log", &missing],
    ] {
        let said = SIM.refused(words);
        assert!(said.contains("no-such-folder/a.svg: No such file"), "{words:?}: {said}");
    }
}

#[test]
fn list__every_scenario_is_a_command() {
    let list = SIM.text(&["list"]);
    let names: Vec<&str> = list.lines().skip(1).filter_map(|l| l.split(' ').next()).collect();
    assert!(names.len() >= 10, "{list}");
    for name in names {
        assert!(SIM.text(&[name, "--help"]).contains("--seed"), "{name}");
    }
}

#[test]
fn scenario__text_names_the_seed_and_passes() {
    let told = SIM.text(&["corruption", "--seed", "5"]);
    for word in ["seed 5", "1000 messages delivered", "refused", "PASS"] {
        assert!(told.contains(word), "no {word:?} in {told}");
    }
}

#[test]
fn scenario__options_reach_the_network() {
    let options = ["--loss", "2%", "--dup", "--reorder", "3%", "--corrupt", "500ppm"];
    let wires = ["--latency", "10us", "--bandwidth", "1G", "--mtu", "512"];
    let words: Vec<&str> = ["pause", "--hosts", "3", "--reliability", "gbn", "--window", "64"]
        .into_iter()
        .chain(options)
        .chain(wires)
        .collect();
    let got = SIM.lines(&words);
    let config = got[0]["config"].as_str().expect("a configuration");
    for word in [
        "3 hosts",
        "mtu 512",
        "125 MB/s",
        "10000 ns a hop",
        "loss 20000 ppm",
        "duplicate 10000 ppm",
        "reorder 30000 ppm",
        "corrupt 500 ppm",
        "reliability=gbn",
        "window=64",
    ] {
        assert!(config.contains(word), "no {word:?} in {config}");
    }
    assert_eq!(got[0]["pass"], true);
}

#[test]
fn scenario__what_is_asked_for_takes_the_place_of_its_own() {
    let config = |words: &[&str]| SIM.lines(words)[0]["config"].as_str().unwrap().to_string();
    for (words, has, lacks) in [
        (&["loss", "--loss", "2%"][..], "loss 20000 ppm", "loss 10000 ppm"),
        (&["loss", "--corrupt", "1%"], "loss 10000 ppm", "loss 20000 ppm"),
        (&["corruption", "--corrupt", "1%"], "corrupt 10000 ppm", "corrupt 50000 ppm"),
    ] {
        let config = config(words);
        assert!(config.contains(has) && !config.contains(lacks), "{words:?}: {config}");
    }
    let rows = SIM.lines(&["reliability", "--loss", "2%"])[0]["rows"].as_array().unwrap().clone();
    assert!(rows.len() > 6 && rows.iter().all(|row| row["loss_percent"] == 2.0), "{rows:?}");
}

#[test]
fn tables__are_values_in_json() {
    let got = SIM.lines(&["scaling", "--hosts", "8"]);
    assert!(got[0]["lines"].is_null(), "{}", got[0]);
    let rows = got[0]["rows"].as_array().unwrap();
    let hosts: Vec<_> = rows.iter().map(|row| row["hosts"].as_f64()).collect();
    assert_eq!(hosts, [Some(2.0), Some(4.0), Some(8.0)]);
    assert!(rows.iter().all(|row| row["barrier_us"].as_f64() > Some(0.0)), "{rows:?}");
}

#[test]
fn reliability__no_row_repeats_another() {
    let got = SIM.lines(&["reliability"]);
    let rows = got[0]["rows"].as_array().unwrap();
    // Returns the figures at one loss, in the order of protocols, windows and sizes.
    let of = |loss: f64| -> Vec<&Value> {
        let rows = rows.iter().filter(|row| row["loss_percent"] == loss);
        rows.flat_map(|row| [&row["mb_per_s"], &row["us"]]).collect()
    };
    let losses = [0.0, 0.1, 1.0, 5.0];
    for (at, &loss) in losses.iter().enumerate() {
        for &other in &losses[..at] {
            let pairs = of(loss).into_iter().zip(of(other)).collect::<Vec<_>>();
            assert!(pairs.len() > 20, "{pairs:?}");
            let same = pairs.iter().filter(|(a, b)| a == b && !a.is_null()).count();
            assert_eq!(same, 0, "of {loss} % and {other} %: {pairs:?}");
        }
    }
}

#[test]
fn scenario__same_seed_same_packets() {
    let log = |seed: &str| {
        let file = Scratch::new(TMP, &format!("loss-{seed}.txt"));
        SIM.text(&["loss", "--seed", seed, "--log", file.path()]);
        std::fs::read(file.path()).expect("a log")
    };
    assert!(log("1").starts_with(b" "));
    assert_eq!(log("1"), log("1"));
    assert_ne!(log("1"), log("2"));
}

#[test]
fn scenario__trace_is_json() {
    let file = Scratch::new(TMP, "restart.json");
    SIM.text(&["restart", "--trace", file.path()]);
    let trace: Value =
        serde_json::from_slice(&std::fs::read(file.path()).expect("a trace")).unwrap();
    assert!(trace["traceEvents"].as_array().is_some_and(|events| !events.is_empty()));
}

#[test]
fn scaling__rows_come_one_by_one_and_once() {
    let told = SIM.text(&["scaling", "--hosts", "4"]);
    let rows = |host: &str| told.lines().filter(|l| l.trim_start().starts_with(host)).count();
    assert_eq!((rows("scaling: "), rows("hosts "), rows("2 "), rows("4 ")), (1, 1, 1, 1), "{told}");
    assert!(told.contains("ms of virtual time") && told.contains("PASS"), "{told}");
}

#[test]
fn scaling__hosts_as_asked() {
    let told = SIM.text(&["scaling", "--hosts", "16"]);
    assert!(told.lines().any(|line| line.trim_start().starts_with("16 ")), "{told}");
    assert!(told.contains("s of wall time"), "{told}");
}

#[test]
fn swarm__some_seeds_on_two_threads() {
    let told = SIM.text(&["swarm", "--seeds", "3..9", "--jobs", "2"]);
    assert!(told.ends_with("6 passed, 0 failed, 0 skipped\n"), "{told}");
    let mut seeds: Vec<_> =
        SIM.lines(&["swarm", "--seeds", "3..9"]).iter().map(|line| line["seed"].as_u64()).collect();
    seeds.sort();
    assert_eq!(seeds, (3..9).map(Some).collect::<Vec<_>>());
}

#[test]
fn swarm__one_seed_in_detail() {
    let told = SIM.text(&["swarm", "--seed", "4"]);
    assert!(told.contains("seed 4") && told.contains("at a time"), "{told}");
}

#[test]
fn swarm__a_seed_behind_agents() {
    let told = SIM.text(&["swarm", "--agents", "--seed", "1003"]);
    assert!(told.contains("seed 1003"), "{told}");
}

#[test]
fn swarm__models_of_some_seeds_and_one_of_a_seed() {
    let told = SIM.lines(&["swarm", "--model", "all", "--seeds", "3..5"]);
    let of = |model| told.iter().filter(move |line| line["model"] == model && line["pass"] == true);
    for model in ["calls", "order", "objects", "regions", "jobs", "together"] {
        assert_eq!(of(model).count(), 2, "{model}: {told:?}");
    }
    let told = SIM.text(&["swarm", "--model", "calls", "--seed", "4"]);
    assert!(told.ends_with("1 passed, 0 failed, 0 skipped\n"), "{told}");
}

#[test]
fn failure__names_seed_and_replay() {
    // No packet passes within the time that sessions have to open.
    let words = ["loss", "--loss", "99.9999%", "--seed", "3"];
    let output = SIM.run(&[&words[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).expect("text");
    let replay = "weft sim loss --loss '99.9999%' --seed 3 --json";
    assert!(error.contains(&format!("seed 3; replay: {replay}")), "{error}");
    let line: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((&line["pass"], &line["replay"]), (&false.into(), &replay.into()));
}

#[test]
fn args__bad_ones_are_refused() {
    assert!(SIM.refused(&["los"]).contains("'loss'"));
    assert!(SIM.refused(&["loss", "--loss", "1"]).contains("1% or 500ppm"));
    assert!(SIM.refused(&["loss", "--hosts", "1"]).contains("2..=16384"));
    assert!(SIM.refused(&["loss", "--bandwidth", "fast"]).contains("10G"));
    assert!(SIM.refused(&["swarm", "--seeds", "9..3"]).contains("0..1000"));
    assert!(SIM.refused(&["reliability", "--reliability", "gbn"]).contains("compares"));
}

//! The benchmarks of the packet interface take every choice, and name in each line the one they
//! measured. Nothing here looks at how fast.
#![allow(non_snake_case)]

use serde_json::Value;
use std::process::{Command, Output};

fn bench(words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weft"))
        .arg("bench")
        .args(words.split_whitespace())
        .args(["--quick", "--json"])
        .output()
        .expect("weft starts")
}

fn lines(words: &str) -> Vec<Value> {
    let output = bench(words);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "weft bench {words}: {why}");
    let text = String::from_utf8(output.stdout).expect("text");
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    let lines: Vec<Value> = text.lines().map(parse).collect();
    for line in &lines {
        assert!(line["value"].as_f64().is_some_and(f64::is_finite), "{line}");
    }
    lines
}

/// Each of these words is in the name of some line, and nothing else is measured.
#[track_caller]
fn measures(words: &str, names: &[&str]) {
    let lines = lines(words);
    let whats: Vec<&str> = lines.iter().map(|l| l["what"].as_str().expect("a name")).collect();
    for name in names {
        assert!(whats.iter().any(|what| what.contains(name)), "{words}: no {name} in {whats:?}");
    }
    for what in whats {
        assert!(names.iter().any(|name| what.contains(name)), "{words}: {what} was not asked for");
    }
}

#[test]
fn throughput__every_transfer_reliability_and_mtu() {
    measures(
        "throughput --link shm --size 64K --transfer copy,gather,rcpy",
        &["copy", "gather", "rcpy"],
    );
    measures(
        "throughput --link udp --size 64K --transfer gather --reliability gbn,selective",
        &["gbn", "selective"],
    );
    measures("throughput --link udp --size 64K --transfer gather --mtu 1K,2K", &["1K", "2K"]);
}

#[test]
fn logp__parameters_of_a_transfer() {
    for transfer in ["copy", "gather", "rcpy"] {
        let words = format!("logp --link shm --size 16 --transfer {transfer}");
        let lines = lines(&words);
        for parameter in ["os", "or", "L", "g"] {
            let named = format!("{parameter}, {transfer}");
            let has =
                lines.iter().any(|l| l["what"].as_str().is_some_and(|w| w.starts_with(&named)));
            assert!(has, "{words}: no {named}");
        }
    }
}

#[test]
fn multicast__every_tree() {
    measures(
        "multicast --link shm --tree flat,chain,binary,binomial",
        &["flat", "chain", "binary", "binomial"],
    );
}

#[test]
fn fetch_add__an_owner_that_polls_and_one_that_computes() {
    measures("fetch-add --link shm", &["owner polls", "owner computes"]);
}

#[test]
fn choices__what_is_none_is_refused_with_what_there_is() {
    for (words, option) in [
        ("throughput --transfer carrier", "--transfer"),
        ("throughput --reliability hope", "--reliability"),
        ("multicast --tree oak", "--tree"),
        ("fetch-add --fetch-add moon", "--fetch-add"),
    ] {
        let output = bench(words);
        assert!(!output.status.success(), "{words} was accepted");
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(why.contains(option), "{words}: {why}");
    }
}

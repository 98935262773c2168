//! The benchmarks accept every choice that affects them, name it in each line, and refuse the
//! others. No test here checks speed.
#![allow(non_snake_case)]

use serde_json::Value;
use std::process::{Command, Output};

fn bench(words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weft-bench"))
        .arg("bench")
        .args(words.split_whitespace())
        .args(["--quick", "--json"])
        .output()
        .expect("weft starts")
}

fn parse(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    let lines: Vec<Value> = text.lines().map(parse).collect();
    for line in &lines {
        assert!(line["value"].as_f64().is_some_and(f64::is_finite), "{line}");
    }
    lines
}

fn lines(words: &str) -> Vec<Value> {
    let output = bench(words);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "weft bench {words}: {why}");
    parse(&output)
}

/// Returns the lines over a link that needs root's lab hosts; none, with the reason printed, if
/// there are none.
fn raw_lines(words: &str) -> Option<Vec<Value>> {
    let output = bench(words);
    if output.status.success() {
        return Some(parse(&output));
    }
    let why = String::from_utf8_lossy(&output.stderr);
    let known = ["two lab hosts", "CAP_", "AF_XDP", "bpf(2)", "no link could be opened"];
    assert!(known.iter().any(|known| why.contains(known)), "weft bench {words}: {why}");
    weft_conformance::skip(&why);
    None
}

/// Checks that each of these words is in the name of some line, and that nothing else is measured.
#[track_caller]
fn names(words: &str, lines: &[Value], names: &[&str]) {
    let whats: Vec<&str> = lines.iter().map(|l| l["what"].as_str().expect("a name")).collect();
    for name in names {
        assert!(whats.iter().any(|what| what.contains(name)), "{words}: no {name} in {whats:?}");
    }
    for what in whats {
        assert!(names.iter().any(|name| what.contains(name)), "{words}: {what} was not asked for");
    }
}

#[track_caller]
fn measures(words: &str, wanted: &[&str]) {
    names(words, &lines(words), wanted);
}

#[track_caller]
fn measures_raw(words: &str, wanted: &[&str]) {
    if let Some(lines) = raw_lines(words) {
        names(words, &lines, wanted);
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
fn messages__choices_hold_for_the_ranks() {
    measures("pingpong --size 16 --receipt adaptive,blocking", &["adaptive", "blocking"]);
    measures("pingpong --size 16 --link udp --reliability gbn,host", &["gbn", "selective"]);
    measures("rate --transfer copy,gather --mtu 1K", &["copy 1K", "gather 1K"]);
    measures("wait --receipt blocking", &["cpu, blocking", "wake-up, blocking"]);
    measures("bandwidth --size 64K --transfer rcpy --mtu 4K,0", &["rcpy 4K", "rcpy link"]);
}

/// Returns the percentage of a core that a rank uses while it waits.
fn used(receipt: &str) -> f64 {
    let words = format!("bench wait --json --repeat 1 --receipt {receipt}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-bench"));
    let output = command.args(words.split(' ')).output().expect("weft starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = parse(&output);
    let cpu = lines.iter().find(|line| line["unit"] == "%").expect("a share of a core");
    cpu["value"].as_f64().expect("a number")
}

#[test]
fn receipt__a_rank_that_blocks_leaves_the_core_and_one_that_polls_keeps_it() {
    // Other processes may use the core too: a polling rank gets the rest, a blocked one uses
    // nothing.
    let (blocking, polling) = (used("blocking"), used("polling"));
    assert!(4.0 * blocking < polling, "blocking {blocking} %, polling {polling} %");
}

#[test]
fn receipt__in_every_figure_of_packets() {
    measures(
        "throughput --size 64K --receipt polling,blocking",
        &["selective link polling", "selective link blocking"],
    );
    measures("fetch-add --receipt blocking", &["host selective blocking"]);
    measures("multicast --tree flat --receipt adaptive,blocking", &["link adaptive", "blocking"]);
}

#[test]
fn watchdog__parameters_rates_and_owners_that_never_poll() {
    measures("logp --link shm --size 16 --receipt watchdog", &["watchdog"]);
    measures("throughput --link udp --size 64K --receipt watchdog", &["watchdog"]);
    for link in ["shm", "udp"] {
        measures(
            &format!("fetch-add --link {link} --receipt polling,watchdog"),
            &["owner polls, host", "owner computes, host", "owner never polls, host"],
        );
    }
    for words in ["fetch-add --link packet", "fetch-add --link xdp --fetch-add host"] {
        let words = format!("{words} --receipt watchdog");
        measures_raw(&words, &["owner polls", "owner computes", "owner never polls"]);
    }
    let agent = "fetch-add --link agent --fetch-add host,agent --receipt watchdog";
    measures_raw(agent, &["owner polls", "owner computes", "owner never polls"]);
    refuses("multicast --receipt watchdog", &["logp, throughput and fetch-add"]);
    refuses("wait --receipt adaptive,watchdog", &["logp, throughput and fetch-add"]);
    refuses("logp --receipt watchdog --transfer gather", &["leave out --transfer"]);
}

#[test]
fn raw_links__reliability_and_mtu() {
    for link in ["packet", "xdp"] {
        let words = format!("throughput --link {link} --size 64K --transfer gather,rcpy");
        measures_raw(&format!("{words} --reliability none"), &["gather none", "rcpy none"]);
    }
    measures_raw(
        "throughput --link packet --size 64K --mtu 1K --reliability gbn,selective",
        &["gbn 1K", "selective 1K"],
    );
    measures_raw("multicast --link packet --tree binary", &["binary host"]);
}

#[test]
fn agents__retransmit_forward_and_count() {
    measures_raw(
        "throughput --link agent --size 64K --reliability host,agent",
        &["auto selective", "auto agent"],
    );
    measures_raw("multicast --link agent --tree chain --multicast host,agent", &["host", "agent"]);
    let who = ["polls, host", "computes, host", "polls, agent", "computes, agent"];
    measures_raw("fetch-add --link agent --fetch-add host,agent", &who);
    measures_raw(
        "fetch-add --link agent --fetch-add kernel",
        &["polls, kernel", "computes, kernel"],
    );
}

#[test]
fn choices__the_grid_of_a_link_is_whole() {
    let output = Command::new(env!("CARGO_BIN_EXE_weft-bench"))
        .args(["bench", "choices", "--quick", "--link", "shm"])
        .output()
        .expect("weft starts");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{why}");
    let text = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("shm,")).collect();
    for (figure, count) in
        [("throughput,", 12), ("half trip,", 3), ("multicast", 8), ("fetch-and-add", 2)]
    {
        let of = rows.iter().filter(|row| row.starts_with(&format!("shm,{figure}")));
        assert_eq!(of.count(), count, "{figure} {text}");
    }
    // The last field is the reason for a missing figure.
    assert!(rows.iter().all(|row| row.ends_with(',')), "{text}");
}

#[test]
fn agent__what_agents_and_kernels_do_beside_what_ranks_do() {
    let Some(lines) = raw_lines_of_agents() else { return };
    for (what, place) in [
        ("owner waits", "host"),
        ("owner computes", "host"),
        ("owner computes", "agent"),
        ("receivers compute", "host"),
        ("receivers compute", "agent"),
        ("receivers compute", "kernel"),
        ("stream, a packet", "host"),
        ("stream, a packet", "agent"),
        ("stream, a packet", "kernel, answers too"),
        ("kernels have it", "kernel"),
    ] {
        let found = lines.iter().any(|line| {
            line["what"] == what && line["place"] == place && line["median_us"].is_f64()
        });
        assert!(found, "no {what} by {place}: {lines:?}");
    }
}

fn raw_lines_of_agents() -> Option<Vec<Value>> {
    let output = bench("agent");
    if output.status.success() {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        return Some(text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(["lab", "CAP_"].iter().any(|known| why.contains(known)), "{why}");
    weft_conformance::skip(&why);
    None
}

#[test]
fn choices__a_value_that_a_benchmark_would_ignore_is_refused_with_those_that_take_it() {
    for (words, option, who) in [
        ("pingpong --members 8", "--members", "multicast"),
        ("throughput --tree flat", "--tree", "multicast"),
        ("pingpong --multicast agent", "--multicast", "multicast"),
        ("rate --fetch-add agent", "--fetch-add", "fetch-add"),
        ("fetch-add --transfer rcpy", "--transfer", "throughput"),
        ("fetch-add --mtu 1K", "--mtu", "bandwidth"),
        ("fetch-add --size 64", "--size", "pingpong"),
        ("multicast --transfer copy", "--transfer", "logp"),
        ("wait --transfer copy", "--transfer", "rate"),
        ("all --receipt polling", "--receipt", "wait"),
        ("auth --receipt polling", "--receipt", "pingpong"),
        ("ethernet --reliability none", "--reliability", "throughput"),
        ("mpi --transfer copy", "--transfer", "pingpong"),
        ("agent --fetch-add agent", "--fetch-add", "fetch-add"),
        ("barrier --receipt blocking", "--receipt", "wait"),
        ("bandwidth --out x", "--out", "suite"),
        ("pingpong --situations inside-idle", "--situations", "suite"),
        ("suite --out x --reliability none", "--reliability", "pingpong"),
    ] {
        refuses(words, &[&format!("leave out {option}"), who]);
    }
    // Without --json, which it refuses as well.
    for words in ["choices --transfer copy", "choices --reliability agent --link udp"] {
        let words = ["bench"].into_iter().chain(words.split(' '));
        let output =
            Command::new(env!("CARGO_BIN_EXE_weft-bench")).args(words).output().expect("weft");
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && why.contains("measures every choice"), "{why}");
    }
    refuses("throughput --link shm --reliability gbn", &["--reliability", "nobody retransmits"]);
    refuses("pingpong --reliability agent", &["--reliability", "--link udp"]);
    refuses("fetch-add --link udp --fetch-add kernel", &["fetch_add=kernel", "--link agent"]);
}

#[track_caller]
fn refuses(words: &str, why: &[&str]) {
    let output = bench(words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{words} was accepted");
    assert!(why.iter().all(|why| said.contains(why)), "{words}: not all of {why:?}: {said}");
    assert!(output.stdout.is_empty(), "{words} measured something before it was refused");
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

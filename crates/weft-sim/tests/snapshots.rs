//! Tables kept as text; `WEFT_BLESS=1` writes them anew.
#![allow(non_snake_case)]

use std::path::PathBuf;
use weft_sim::scenarios::{default_config, run_named};

fn compare(name: &str, hosts: u32) {
    let mut config = default_config(name, 1).expect("a scenario");
    config.hosts = hosts;
    let report = run_named(name, config).unwrap_or_else(|failure| panic!("{failure}"));
    let text = format!("{}\n", report.lines.join("\n"));
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("snapshots/{name}.txt"));
    if std::env::var_os("WEFT_BLESS").is_some() {
        std::fs::write(&path, text).expect("snapshots/ is writable");
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "{name} has changed; was\n{kept}\nis\n{text}\nWEFT_BLESS=1 accepts it");
}

#[test]
fn reliability__throughput_and_latency() {
    compare("reliability", 2);
}

#[test]
fn scaling__barrier_and_allreduce() {
    compare("scaling", 64);
}

#[test]
fn incast__keeps_the_rate_of_the_bottleneck() {
    compare("incast", 33);
}

#[test]
fn incast__of_agents_keeps_the_rate_as_ranks_do() {
    compare("incast-agents", 33);
}

#[test]
fn fairness__two_flows_share_the_uplink() {
    compare("fairness", 4);
}

#[test]
fn services__agents_go_on_while_ranks_compute() {
    compare("services", 8);
}

//! Tests of the named scenarios.
#![allow(non_snake_case)]

use weft_sim::scenarios::{default_config, run_named, Report};
use weft_sim::{Fate, SimConfig};

fn tell(name: &str, seed: u64) -> Report {
    tell_with(name, default_config(name, seed).expect("a scenario"))
}

fn tell_with(name: &str, config: SimConfig) -> Report {
    run_named(name, config).unwrap_or_else(|failure| panic!("{failure}"))
}

fn at(report: &Report) -> u64 {
    report.outcome.as_ref().expect("one simulation").at
}

#[test]
fn loss_1_percent__delivers_in_order() {
    let report = tell("loss", 1);
    assert!(report.outcome.unwrap().counters.lost > 10);
}

#[test]
fn corruption__never_delivered() {
    let report = tell("corruption", 1);
    assert!(report.outcome.unwrap().counters.refused > 10);
}

#[test]
fn partition_heals__traffic_resumes() {
    let report = tell("partition", 1);
    assert!(at(&report) > 2_001_000_000, "{report}");
    // Retransmission backs off to a second at most; the rest takes milliseconds.
    assert!(at(&report) < 4_000_000_000, "{report}");
}

#[test]
fn pause_longer_than_rto__no_loss() {
    let report = tell("pause", 1);
    assert!(at(&report) > 301_000_000, "{report}");
    assert!(at(&report) < 1_500_000_000, "{report}");
}

#[test]
fn peer_dies_silently__operations_fail_with_its_name() {
    let report = tell("death", 2);
    assert!(report.lines[0].contains("nothing heard for 1"), "{report}");
    assert_eq!(report.outcome.unwrap().died, [3]);
}

#[test]
fn peer_dies_visibly__operations_fail_at_once() {
    let report = tell("death", 1);
    assert!(report.lines[0].contains("its process ended"), "{report}");
    assert!(at(&report) < 100_000_000, "{report}");
}

#[test]
fn restarted_peer__is_a_new_incarnation() {
    let report = tell("restart", 1);
    assert!(report.lines.iter().any(|l| l.contains("message 1 is its own")), "{report}");
}

#[test]
fn thousand_hosts__barrier_and_allreduce() {
    let report = tell("collectives", 1);
    assert!(at(&report) < 50_000_000, "{report}");
}

#[test]
fn same_seed__same_story() {
    let story = |seed| {
        let mut config = default_config("loss", seed).unwrap();
        config.trace = 100_000;
        let report = tell_with("loss", config);
        report.trace.events().copied().collect::<Vec<_>>()
    };
    let first = story(3);
    assert!(first.iter().any(|e| e.fate == Fate::Lost));
    assert_eq!(first, story(3));
    assert_ne!(first, story(4));
}

#[test]
fn unknown_name__lists_the_names() {
    let failure = run_named("nonsense", SimConfig::new(2, 1)).unwrap_err().to_string();
    assert!(failure.contains("loss, corruption"), "{failure}");
}

//! Choices of the packet interface, between hosts whose network loses packets.

use super::harness::{Job, Running};
use super::{at_switch, text, Lab, WEFT};
use std::path::Path;
use std::process::Output;

/// Name of the agents' socket in the lab, one on each host.
pub const AGENT: &str = "@weft-lab-choices";

/// Runs an application that compares its result with that of the sequential program, one rank per
/// host.
fn asp(lab: &Lab, nodes: &str, link: &str, settings: &[(&str, &str)]) -> Output {
    let command = ["lab", "run", "-n", "2", WEFT, "app", "asp", "--nodes", nodes, "--check"];
    let mut command = lab.command(&command);
    // By the variable, which adds no shared memory to the link.
    command.env("WEFT_LINK", link).env("WEFT_AGENT", AGENT);
    command.envs(settings.iter().copied()).output().expect("weft starts")
}

#[track_caller]
fn assert_passes(output: &Output, what: &str) {
    let said = text(&output.stderr);
    assert!(output.status.success(), "{what}: {said}");
    assert!(text(&output.stdout).contains("PASS"), "{what}: {}{said}", text(&output.stdout));
}

pub fn agent(lab: &Lab, host: &str, weftd: &str) -> Running {
    let command = lab.command(&["lab", "exec", host, weftd, "--name", AGENT, "--user="]);
    let mut agent = Job::of_marked(command, &lab.name).start();
    agent.lines(1, "serving at");
    agent
}

/// Returns a number that a host's agent reports for all ranks that it has served.
fn told(lab: &Lab, host: &str, weftd: &str, what: &str) -> u64 {
    let status = lab.sh(host, &format!("{weftd} --name {AGENT} --status"));
    let value = |line: &str| line.strip_prefix(what)?.trim().parse().ok();
    status.lines().find_map(value).unwrap_or_else(|| panic!("no {what} in {status}"))
}

/// Returns the number of packets that the lab has lost so far; `None`, with a note, if it cannot be
/// read.
fn lost(lab: &Lab) -> Option<u64> {
    let said = at_switch(lab, "tc -s qdisc show")?;
    let counts = said.split("dropped ").skip(1);
    Some(counts.filter_map(|rest| rest.split(',').next()?.parse::<u64>().ok()).sum())
}

#[test]
fn agent__every_reliability_with_every_transfer_under_loss() {
    let weftd = Path::new(WEFT).with_file_name("weftd");
    if !weftd.is_file() {
        return weft_conformance::skip("weftd is not built beside weft (cargo build -p weftd)");
    }
    let weftd = weftd.to_str().expect("a path in UTF-8");
    let Some(lab) = Lab::up(&["2", "--loss", "2%"]) else { return };
    let _agents = ["h1", "h2"].map(|host| agent(&lab, host, weftd));
    let both = |what| ["h1", "h2"].map(|host| told(&lab, host, weftd, what));
    for reliability in ["gbn", "selective", "agent", "none"] {
        for transfer in ["copy", "gather", "rcpy"] {
            let what = format!("{reliability} with {transfer}");
            let before = both("sent ");
            let settings = [("WEFT_RELIABILITY", reliability), ("WEFT_TRANSFER", transfer)];
            assert_passes(&asp(&lab, "48", "agent", &settings), &what);
            let after = both("sent ");
            // Each row of a rank crosses the network.
            assert!((0..2).all(|i| after[i] - before[i] >= 24), "{what}: {before:?} {after:?}");
        }
    }
    assert_ne!(lost(&lab), Some(0), "nothing was lost");
    assert_ne!(both("retransmitted "), [0, 0]);
}

#[test]
fn raw__short_packets_from_where_they_lie_go_back_n_under_loss() {
    let Some(lab) = Lab::up(&["2", "--loss", "2%"]) else { return };
    let settings = [("WEFT_RELIABILITY", "gbn"), ("WEFT_TRANSFER", "gather"), ("WEFT_MTU", "1K")];
    for link in ["packet", "xdp"] {
        let before = lost(&lab);
        let done = asp(&lab, "400", link, &settings);
        let said = text(&done.stderr);
        if said.contains("link xdp is not available") && said.contains("this kernel has no") {
            weft_conformance::skip(&said);
            continue;
        }
        assert_passes(&done, link);
        assert!(before.is_none() || lost(&lab) > before, "{link}: nothing was lost");
    }
}

#[test]
fn raw__a_loss_on_a_network_that_is_trusted_ends_the_job_and_says_why() {
    let Some(lab) = Lab::up(&["2", "--loss", "2%"]) else { return };
    // Hundreds of packets, so that some are lost.
    let done = asp(&lab, "600", "packet", &[("WEFT_RELIABILITY", "none")]);
    let said = text(&done.stderr);
    assert!(!done.status.success(), "nothing was lost: {}", text(&done.stdout));
    assert!(said.contains("over packet") && said.contains("a packet was lost"), "{said}");
    assert!(said.contains("WEFT_RELIABILITY=none") && said.contains("use host"), "{said}");
}

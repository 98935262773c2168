//! Packets that the switch drops in silence, by their length or by their type, while a job runs.

use super::choices::agent;
use super::*;
use std::process::Child;

/// Type number of FIN, as in `PROTOCOL.md`.
const FIN: u8 = 10;
/// Packets to the first host after which a job is under way.
const UNDER_WAY: u64 = 100;
/// Time after which ranks give up: longer than any pause of a loaded machine.
const PATIENCE_MS: &str = "15000";

/// Returns a program of classic BPF, for `tc`, that matches frames of more than so many bytes.
fn longer_than(bytes: u32) -> String {
    format!("4,128 0 0 0,37 0 1 {bytes},6 0 0 4294967295,6 0 0 0")
}

/// Returns one that matches packets of a type in frames of raw Ethernet.
fn raw_of(kind: u8) -> String {
    format!("6,40 0 0 12,21 0 3 34997,48 0 0 19,21 0 1 {kind},6 0 0 4294967295,6 0 0 0")
}

/// Returns one that matches packets of a type in datagrams over IPv4.
fn datagrams_of(kind: u8) -> String {
    format!("6,48 0 0 23,21 0 3 17,48 0 0 43,21 0 1 {kind},6 0 0 4294967295,6 0 0 0")
}

/// Drops all frames that the program matches on their way to any host. False if that is not
/// allowed.
fn drop_all(lab: &Lab, program: &str) -> bool {
    let keeper = lab.status()["keeper"].to_string();
    ["p1", "p2"].iter().all(|port| {
        let words =
            format!("-t {keeper} -n tc filter add dev {port} parent 1: protocol all prio 2");
        let words = words.split(' ').chain(["bpf", "bytecode", program, "flowid", "1:2"]);
        let done = Command::new("nsenter").args(words).output();
        let why = match done {
            Ok(output) if output.status.success() => return true,
            Ok(output) => text(&output.stderr),
            Err(e) => format!("nsenter: {e}"),
        };
        weft_conformance::skip(&why);
        false
    })
}

/// Makes a lab of two hosts whose switch has a class for packets to drop.
fn lab_that_drops(rate: &str) -> Option<Lab> {
    let lab = Lab::up(&["2", "--rate", rate, "--loss", "0.0001%"])?;
    for host in ["h1", "h2"] {
        lab.sh(host, "ip -6 addr flush dev eth0");
    }
    Some(lab)
}

/// Starts a job, and lets frames vanish while it runs. `None` if that is not allowed.
fn strike(lab: &Lab, links: &str, job: &[&str], program: &str) -> Option<Output> {
    strike_by(lab, links, job, || drop_all(lab, program))
}

/// Starts a job, and calls `fault` while it runs. `None` if the fault is not possible here.
fn strike_by(lab: &Lab, links: &str, job: &[&str], fault: impl FnOnce() -> bool) -> Option<Output> {
    let [before, _] = through_queue(lab)?;
    let words = [&["lab", "run", "-n", "2", WEFT], job].concat();
    let mut command = lab.command(&words);
    command.env("WEFT_LINK", links).env("WEFT_AGENT", choices::AGENT).env("WEFT_LOG", "warn");
    command.env("WEFT_PEER_TIMEOUT_MS", PATIENCE_MS);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("weft starts");
    struct Kill(Option<Child>);
    impl Drop for Kill {
        fn drop(&mut self) {
            self.0.iter_mut().for_each(|child| drop(child.kill()));
        }
    }
    let mut child = Kill(Some(child));
    let passed = || through_queue(lab).map_or(u64::MAX, |[now, _]| now - before);
    until(|| passed() > UNDER_WAY, || format!("{} packets", passed()));
    if !fault() {
        return None;
    }
    child.0.take().map(|child| child.wait_with_output().expect("it ends"))
}

#[test]
fn length__that_vanishes_under_a_job_is_found_and_the_job_ends_well() {
    let weftd = Path::new(WEFT).with_file_name("weftd");
    let weftd = weftd.to_str().filter(|_| weftd.is_file());
    if weftd.is_none() {
        weft_conformance::skip("no weftd beside weft: not with agents (cargo build -p weftd)");
    }
    for links in ["udp", "packet", "packet,udp", "agent"] {
        let Some(lab) = lab_that_drops("20mbit") else { return };
        let agents = match (links, weftd) {
            ("agent", Some(weftd)) => ["h1", "h2"].map(|host| agent(&lab, host, weftd)).into(),
            ("agent", None) => continue,
            _ => Vec::new(),
        };
        let job = ["app", "asp", "--nodes", "800", "--check"];
        let Some(done) = strike(&lab, links, &job, &longer_than(1000)) else { return };
        let said = text(&done.stderr);
        assert!(done.status.success(), "{links}: {said}");
        assert!(text(&done.stdout).contains("PASS"), "{links}: {said}");
        assert!(said.contains("vanish on the way"), "{links}: {said}");
        drop(agents);
    }
}

/// Runs a job whose packets that match a program vanish.
fn incast_without(links: &str, program: &str) -> Option<Output> {
    let job = ["selftest", "incast", "--bytes", "100000", "--messages", "200"];
    strike(&lab_that_drops("100mbit")?, links, &job, program)
}

#[test]
fn kind__that_vanishes_on_one_link_takes_the_other() {
    let Some(done) = incast_without("packet,udp", &raw_of(FIN)) else { return };
    let said = text(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("do not get through"), "{said}");
}

#[test]
fn kind__that_vanishes_on_the_only_link_is_named() {
    let Some(done) = incast_without("udp", &datagrams_of(FIN)) else { return };
    let said = text(&done.stderr);
    assert!(!done.status.success(), "{said}");
    assert!(said.contains("no FIN packet of ") && said.contains("over udp ("), "{said}");
}

/// Returns a program that matches TCP segments of connections with this port at either end.
fn segments_of(port: u16) -> String {
    format!(
        "8,48 0 0 23,21 0 4 6,40 0 0 34,21 3 0 {port},40 0 0 36,21 1 0 {port},6 0 0 0,\
         6 0 0 4294967295"
    )
}

/// Returns the ports of the first host's connections to the second at the end that connected.
fn connecting_ports(lab: &Lab) -> Vec<u16> {
    let port = |address: &str| address.rsplit_once(':')?.1.parse::<u16>().ok();
    let listening: Vec<u16> = ["h1", "h2"]
        .iter()
        .flat_map(|host| lab.sh(host, "ss -Hltn").lines().map(String::from).collect::<Vec<_>>())
        .filter_map(|line| port(line.split_whitespace().nth(3)?))
        .collect();
    let established = lab.sh("h1", "ss -Htn state established");
    let ends = established.lines().flat_map(|line| line.split_whitespace().skip(2).take(2));
    ends.filter_map(port).filter(|port| !listening.contains(port)).collect()
}

#[test]
fn middle_box__that_forgets_a_connection_loses_nothing() {
    let Some(lab) = lab_that_drops("100mbit") else { return };
    let job = ["selftest", "incast", "--bytes", "100000", "--messages", "200"];
    let forget = || {
        let ports = connecting_ports(&lab);
        assert!(!ports.is_empty(), "the job has no connection");
        ports.iter().all(|&port| drop_all(&lab, &segments_of(port)))
    };
    let Some(done) = strike_by(&lab, "tcp", &job, forget) else { return };
    assert!(done.status.success(), "{}", text(&done.stderr));
}

#[test]
fn middle_box__that_resets_connections_loses_nothing() {
    let Some(lab) = lab_that_drops("100mbit") else { return };
    let job = ["selftest", "incast", "--bytes", "100000", "--messages", "200"];
    let reset = || {
        for _ in 0..3 {
            let ended = lab.sh("h1", "ss -HKtn state established");
            if ended.trim().is_empty() {
                weft_conformance::skip("this kernel ends no connections on request (ss -K)");
                return false;
            }
            until(|| !connecting_ports(&lab).is_empty(), || "no new connection".into());
        }
        true
    };
    let Some(done) = strike_by(&lab, "tcp", &job, reset) else { return };
    assert!(done.status.success(), "{}", text(&done.stderr));
}

//! Commands that check, or measure, the path between two hosts named by the user.

use super::{text, Lab, WEFT};
use serde_json::Value;

fn agent() -> String {
    format!("'{WEFT}' lab exec")
}

/// Runs `weft doctor --hosts`; returns its checks, and true if it succeeded.
fn doctor(lab: &Lab, words: &[&str]) -> (Vec<Value>, bool) {
    let agent = agent();
    let start = ["doctor", "--json", "--launch-agent", &agent, "--hosts"];
    let done = lab.weft(&[&start[..], words].concat());
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let checks: Vec<Value> = text(&done.stdout).lines().map(parse).collect();
    assert!(!checks.is_empty(), "{}", text(&done.stderr));
    (checks, done.status.success())
}

/// Returns verdict and text of each check of a topic.
fn found(checks: &[Value], topic: &str) -> Vec<(String, String)> {
    let of = |check: &&Value| check["topic"] == topic;
    let word = |value: &Value| value.as_str().expect("a text").to_owned();
    checks.iter().filter(of).map(|c| (word(&c["verdict"]), word(&c["finding"]))).collect()
}

#[test]
fn doctor__sees_a_good_way_between_hosts() {
    let Some(lab) = Lab::up(&["3"]) else { return };
    let (checks, good) = doctor(&lab, &["h1,h2,h3"]);
    assert!(good, "{checks:#?}");
    assert_eq!(found(&checks, "host").len(), 3);
    for topic in ["versions", "clocks"] {
        assert_eq!(found(&checks, topic).len(), 3, "each two of three: {checks:#?}");
    }
    assert_eq!(found(&checks, "links").len(), 3, "each two of three: {checks:#?}");
    for topic in ["udp", "tcp", "mtu", "ethertype"] {
        let all = found(&checks, topic);
        assert_eq!(all.len(), 6, "both directions: {checks:#?}");
        assert!(all.iter().any(|(_, text)| text.contains("h3 -> h1")), "{all:?}");
    }
    assert!(found(&checks, "udp").iter().all(|(verdict, _)| verdict == "ok"), "{checks:#?}");
    assert!(found(&checks, "mtu").iter().all(|(_, text)| text.contains("1500")), "{checks:#?}");
}

#[test]
fn doctor__names_the_direction_that_is_blocked() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    // Drops packets from the second host on arrival, also its answers.
    let drop = "tc qdisc add dev eth0 clsact && tc filter add dev eth0 ingress protocol ip prio 1 \
                flower ip_proto udp action drop && tc filter add dev eth0 ingress protocol ipv6 \
                prio 2 flower ip_proto udp action drop";
    let blocked = lab.weft(&["lab", "exec", "h1", "sh", "-c", drop]);
    if !blocked.status.success() {
        return weft_conformance::skip(&format!("no filter: {}", text(&blocked.stderr)));
    }
    let (checks, good) = doctor(&lab, &["h1,h2"]);
    assert!(good, "jobs go over tcp: {checks:#?}");
    let udp = found(&checks, "udp");
    assert_eq!(udp.len(), 2, "{checks:#?}");
    assert!(udp.iter().all(|(verdict, _)| verdict == "warn"), "{udp:?}");
    assert!(udp[0].1.contains("h1 -> h2: datagrams arrive, and no answer comes back"), "{udp:?}");
    assert!(udp[1].1.contains("h2 -> h1: no datagram arrives"), "{udp:?}");
    assert!(found(&checks, "tcp").iter().all(|(verdict, _)| verdict == "ok"), "{checks:#?}");
    let links = found(&checks, "links");
    assert!(links[0].0 == "warn" && links[0].1.contains("since UDP does not pass"), "{links:?}");
}

/// Has a host drop what comes from others by these protocols, without an answer. False if that
/// cannot be set.
fn drop_from_others(lab: &Lab, host: &str, protocols: &str) -> bool {
    let script = format!(
        "for v in -4 -6; do ip $v rule add pref 100 lookup local && for p in {protocols}; do \
         ip $v rule add pref 10 iif eth0 ipproto $p blackhole || exit 1; done; \
         ip $v rule del pref 0 || exit 1; done; echo dropped"
    );
    lab.weft(&["lab", "exec", host, "sh", "-c", &script]).stdout.starts_with(b"dropped")
}

#[test]
fn doctor__names_tcp_that_does_not_pass_and_fails_where_nothing_does() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    if !drop_from_others(&lab, "h2", "tcp") {
        return weft_conformance::skip("no rules for TCP here (ip rule)");
    }
    let (checks, good) = doctor(&lab, &["h1,h2"]);
    assert!(good, "jobs go over udp: {checks:#?}");
    assert!(found(&checks, "udp").iter().all(|(verdict, _)| verdict == "ok"), "{checks:#?}");
    let tcp = found(&checks, "tcp");
    assert!(tcp[0].0 == "warn" && tcp[0].1.contains("h1 -> h2: no connection to"), "{tcp:?}");
    assert!(tcp[0].1.contains("no answer"), "{tcp:?}");
    assert!(found(&checks, "links")[0].1.contains("tcp does not pass, and is not needed"));
    assert!(drop_from_others(&lab, "h1", "tcp udp"));
    let (checks, _) = doctor(&lab, &["h1,h2"]);
    let remedies: Vec<&str> = checks.iter().filter_map(|c| c["remedy"].as_str()).collect();
    for part in ["let UDP of all ports", "let TCP to all ports"] {
        assert!(remedies.iter().any(|remedy| remedy.contains(part)), "{part}: {remedies:?}");
    }
    // Frames pass where the doctor has the right to send them; else nothing does.
    let (verdict, links) = &found(&checks, "links")[0];
    let frames = found(&checks, "ethertype").iter().all(|(verdict, _)| verdict == "ok");
    assert_eq!(verdict == "fail", !frames, "{links}");
    let says = if frames { "do not reach each other" } else { "no link reaches" };
    assert!(links.contains(says), "{links}");
}

#[test]
fn doctor__sees_packets_that_are_too_long_for_the_way() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    // A switch whose MTU is smaller than that of the hosts.
    let police = "tc qdisc add dev eth0 clsact && tc filter add dev eth0 ingress matchall \
                  action police mtu 1420 rate 1gbit burst 1m conform-exceed drop";
    let less = lab.weft(&["lab", "exec", "h2", "sh", "-c", police]);
    if !less.status.success() {
        return weft_conformance::skip(&format!("no policer: {}", text(&less.stderr)));
    }
    let (checks, _) = doctor(&lab, &["h1,h2"]);
    let mtu = found(&checks, "mtu");
    let (verdict, text) = &mtu[0];
    assert!(verdict == "warn" && text.contains("h1 -> h2") && text.contains("1400"), "{mtu:?}");
    assert_eq!(mtu[1].0, "ok", "the other direction: {mtu:?}");
}

#[test]
fn doctor__says_which_host_is_not_there() {
    let Some(lab) = Lab::up(&["1"]) else { return };
    let (checks, good) = doctor(&lab, &["h1,h7"]);
    let hosts = found(&checks, "host");
    assert!(!good && hosts[0].0 == "ok" && hosts[1].0 == "fail", "{hosts:?}");
    assert!(hosts[1].1.contains("h7"), "{hosts:?}");
    for hosts in ["h1", "h1,h1"] {
        let done = lab.weft(&["doctor", "--hosts", hosts]);
        assert_eq!(done.status.code(), Some(2), "{hosts}");
    }
}

#[test]
fn bench__measures_between_two_hosts() {
    if !weft_conformance::are_built(super::WEFT, &["weft-bench"]) {
        return;
    }
    let Some(lab) = Lab::up(&["2"]) else { return };
    let agent = agent();
    for (what, link, names) in [
        ("pingpong", "udp", ["bare UDP", "tcp"]),
        ("bandwidth", "udp", ["UDP GSO", "tcp"]),
        ("pingpong", "auto", ["AF_PACKET", "tcp"]),
        ("rate", "packet", ["AF_PACKET", "bare UDP"]),
    ] {
        let words = ["bench", what, "--hosts", "h1,h2", "--launch-agent", &agent, "--link", link];
        let done = lab.weft(&[&words[..], &["--quick", "--json", "--size", "64"]].concat());
        let said = text(&done.stderr);
        assert!(done.status.success(), "{what} {link}: {said}");
        let rows: Vec<Value> =
            text(&done.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(!rows.is_empty(), "{what} {link}: {said}");
        let whole = text(&done.stdout);
        assert!(names.iter().any(|name| whole.contains(name)), "{what} {link}: {whole}");
    }
    let words = ["bench", "pingpong", "--hosts", "h1,h2", "--launch-agent", &agent, "--quick"];
    let table = text(&lab.weft(&words).stdout);
    assert!(table.contains("between hosts h1 and h2"), "{table}");
    for bad in
        [&["--hosts", "h1"][..], &["--hosts", "h1,h1"], &["--hosts", "h1,h2", "--link", "shm"]]
    {
        let done = lab.weft(&[&["bench", "pingpong"], bad].concat());
        assert_eq!(done.status.code(), Some(2), "{bad:?}: {}", text(&done.stderr));
    }
}

/// Ports of all UDP sockets of a host, in hexadecimal as the kernel lists them.
const SOCKETS: &str = "cat /proc/net/udp /proc/net/udp6";

#[test]
fn ports__of_ranks_and_agents_are_of_the_range_that_is_set() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    for options in [&["--with=--link=udp"][..], &["--with=--agent"]] {
        let range = "--with=--env=WEFT_UDP_PORTS=50100-50119";
        // Each rank lists the sockets of its host while all are open.
        let words = ["lab", "run", "-n", "4", range];
        let script = format!("{WEFT} selftest ports && exit 0");
        let command = ["sh", "-c", &script];
        let done = lab.weft(&[&words[..], options, &command].concat());
        assert!(done.status.success(), "{}", text(&done.stderr));
        let ports: Vec<u16> =
            text(&done.stdout).split_whitespace().map(|port| port.parse().unwrap()).collect();
        assert!(ports.len() >= 4, "{options:?}: {ports:?}");
        assert!(ports.iter().all(|port| (50_100..50_120).contains(port)), "{options:?}: {ports:?}");
    }
    // One port is not enough for two ranks of a host.
    let one = ["lab", "run", "-n", "4", "--with=--link=udp", "--with=--env=WEFT_UDP_PORTS=50100"];
    let done = lab.weft(&[&one[..], &[WEFT, "selftest", "incast"]].concat());
    let said = text(&done.stderr);
    assert!(!done.status.success() && said.contains("WEFT_UDP_PORTS"), "{said}");
    assert!(said.contains("50100") && said.contains("wider range"), "{said}");
    let doctor = lab.sh("h1", &format!("WEFT_UDP_PORTS=50100-50119 {WEFT} doctor || true"));
    assert!(doctor.contains("50100-50119 (WEFT_UDP_PORTS), 20 of 20 free"), "{doctor}");
    assert!(lab.sh("h1", SOCKETS).contains("local_address"));
}

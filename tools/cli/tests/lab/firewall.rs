//! A start-up that cannot succeed: packets between hosts are lost.

use super::*;

/// Drops a host's packets to another host without an error to the sender: their route leads to an
/// address that no interface has. False if that cannot be set.
fn hide(lab: &Lab, host: &str, from: &str) -> bool {
    let script = format!(
        "ip -6 addr flush dev eth0 && \
         to=$(getent ahostsv4 {host} | head -n 1 | cut -d ' ' -f 1) && \
         ip neigh replace $to lladdr 02:00:00:00:00:99 nud permanent dev eth0 && echo hidden"
    );
    lab.weft(&["lab", "exec", from, "sh", "-c", &script]).stdout.starts_with(b"hidden")
}

#[test]
fn firewall__between_hosts_is_named_long_before_the_wait_fails() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    if !(hide(&lab, "h2", "h1") && hide(&lab, "h1", "h2")) {
        return weft_conformance::skip("no fixed neighbours here (ip neigh, getent)");
    }
    for link in ["udp", "tcp"] {
        let mut command = lab.command(&["lab", "run", "-n", "2", WEFT, "selftest", "circle"]);
        command.env("WEFT_LINK", link).env("WEFT_LOG", "warn");
        command.env("WEFT_WARN_AFTER_MS", "500").env("WEFT_CONNECT_TIMEOUT_MS", "5000");
        let done = command.output().expect("weft starts");
        let said = text(&done.stderr);
        assert!(!done.status.success(), "{said}");
        let over = format!(" over {link} (");
        let waits = said.lines().filter(|l| l.contains("waiting for ") && l.contains(&over));
        let unheard = waits.filter(|line| line.ends_with("which has not answered yet")).count();
        assert_eq!(unheard, 2, "{said}");
        assert!(said.contains("no answer to the first packet"), "{said}");
        let of_ranks = said.lines().filter(|line| line.contains(&over));
        assert!(of_ranks.clone().all(|line| line.contains(" on host 10.")), "{said}");
    }
}

/// Has a host drop UDP datagrams that come from others, without an answer. False if that cannot be
/// set.
fn drop_udp(lab: &Lab, host: &str) -> bool {
    let script = "for v in -4 -6; do ip $v rule add pref 100 lookup local && \
                  ip $v rule add pref 10 iif eth0 ipproto udp blackhole && \
                  ip $v rule del pref 0 || exit 1; done; echo hidden";
    lab.weft(&["lab", "exec", host, "sh", "-c", script]).stdout.starts_with(b"hidden")
}

#[test]
fn firewall__that_drops_udp_leaves_tcp() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    if !(drop_udp(&lab, "h1") && drop_udp(&lab, "h2")) {
        return weft_conformance::skip("no rules for UDP here (ip rule)");
    }
    let mut command = lab.command(&["lab", "run", "-n", "2", WEFT, "selftest", "incast"]);
    let done = command.env("WEFT_LINK", "udp,tcp").output().expect("weft starts");
    assert!(done.status.success(), "{}", text(&done.stderr));
    let mut command = lab.command(&["lab", "run", "-n", "2", WEFT, "selftest", "incast"]);
    command.env("WEFT_LINK", "udp").env("WEFT_CONNECT_TIMEOUT_MS", "3000");
    let done = command.output().expect("weft starts");
    assert!(!done.status.success(), "UDP is not dropped");
}

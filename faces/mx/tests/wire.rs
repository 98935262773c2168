//! Programs in C that talk in frames of MX over Ethernet, between two hosts.
#![allow(non_snake_case)]

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Barrier;
use weft_conformance::hosts::{self, mac, Host};
use weft_conformance::programs::{key, start, text, Face, Way};
use weft_conformance::skip;

const FACE: Face = Face {
    name: "mxoe",
    sources: env!("CARGO_MANIFEST_DIR"),
    scratch: env!("CARGO_TARGET_TMPDIR"),
    built: "libweft_mx.so",
    names: &["libmyriexpress.so", "libopen-mx.so.0"],
    linked: "-lmyriexpress",
};

/// The server's host by the system, and by its address of Ethernet.
const BY_ADDRESS: &str = "10.9.0.1";

/// One of two programs on two hosts.
struct Side<'a> {
    program: &'a Path,
    words: &'a [&'a str],
    settings: &'a [(&'a str, &'a str)],
}

/// Runs a side to its end; one that stops, until the other has ended.
fn run(side: &Side<'_>, ended: &Barrier) -> Output {
    // Programs of two keys: frames of MX carry none.
    let mut child = start(side.program, side.words, "udp", &key(), side.settings);
    if side.words == ["client", "stop"] {
        ended.wait();
        let _killed = child.kill();
        return child.wait_with_output().unwrap();
    }
    let out = child.wait_with_output().unwrap();
    // The end of a host removes its cables.
    ended.wait();
    out
}

/// Runs server and client on hosts of their own; returns their ends. `None` if this machine cannot.
fn both(
    (name, way): (&'static str, Way),
    [server, client]: [&[&str]; 2],
    settings: &[(&str, &str)],
    prepare: impl Fn(&Host) + Sync,
) -> Option<[Output; 2]> {
    let program = FACE.compile(name, way)?;
    let side = |words| Side { program: &program, words, settings };
    let [server, client] = [side(server), side(client)];
    let (ready, ended) = (Barrier::new(2), Barrier::new(2));
    let body = |host: &Host, side: &Side<'_>| {
        prepare(host);
        ready.wait();
        run(side, &ended)
    };
    match hosts::run(1, |host| body(host, &server), |host| body(host, &client)) {
        Ok((server, client)) => Some([server, client]),
        Err(why) => {
            skip(&why);
            None
        }
    }
}

fn nothing(_: &Host) {}

fn pair(
    way: Way,
    (dialect, server): (&str, &str),
    settings: &[(&str, &str)],
    prepare: impl Fn(&Host) + Sync,
) {
    let gate = Path::new(FACE.scratch).join(format!("mxoe-gate-{}", key()));
    let at = gate.display().to_string();
    let words: [&[&str]; 2] = [&["server", &at], &["client", &at]];
    let mut all = vec![("WEFT_MXOE", dialect), ("TEST_SERVER", server)];
    all.extend(settings);
    let out = both(("pair", way), words, &all, prepare);
    let _gone = std::fs::remove_file(&gate);
    let Some(out) = out else { return };
    let said = out.each_ref().map(text).concat();
    assert_eq!(said.matches("all is as it has to be").count(), 2, "{dialect} {server}: {said}");
}

/// Returns a file of hosts with the server's address of Ethernet.
fn peers(name: &str) -> PathBuf {
    let file = Path::new(FACE.scratch).join(format!("mxoe-peers-{name}"));
    std::fs::write(&file, format!("{} the-server\n", mac(0, 0))).unwrap();
    file
}

#[test]
fn pair__all_that_takes_two_in_both_dialects() {
    let file = peers("pair").display().to_string();
    pair(Way::C, ("cable0", BY_ADDRESS), &[], nothing);
    let wide = |host: &Host| host.ip("link set cable0 mtu 9000");
    pair(Way::C, ("cable0:native", "the-server"), &[("WEFT_MX_PEERS", &file)], wide);
    let by_mac = mac(0, 0).replace(':', "-");
    pair(Way::C, ("cable0:open", &by_mac), &[], wide);
}

#[test]
fn pair__over_a_network_with_faults() {
    let faults = ("WEFT_FAULTS", "loss=1%,dup=1%,reorder=1%,seed=5");
    pair(Way::C, ("cable0", BY_ADDRESS), &[faults, ("WEFT_PEER_TIMEOUT_MS", "60000")], nothing);
}

#[test]
fn pair__under_the_address_sanitizer() {
    pair(Way::Asan, ("cable0", BY_ADDRESS), &[], nothing);
}

#[test]
fn death__the_other_side_learns_of_it_by_a_status() {
    let settings =
        [("WEFT_MXOE", "cable0"), ("TEST_SERVER", BY_ADDRESS), ("WEFT_PEER_TIMEOUT_MS", "600")];
    for way in ["kill", "exit", "stop"] {
        let words: [&[&str]; 2] = [&["server", way], &["client", way]];
        let Some([server, client]) = both(("death", Way::C), words, &settings, nothing) else {
            return;
        };
        let said = text(&server);
        assert!(said.contains("the server goes on"), "{way}: {said}{}", text(&client));
    }
}

#[test]
fn many__64_endpoints_of_a_host_each_with_a_number_of_its_own() {
    let words: [&[&str]; 2] = [&["server"], &["client"]];
    let settings = [("WEFT_MXOE", "cable0"), ("TEST_SERVER", BY_ADDRESS)];
    let Some(out) = both(("many", Way::C), words, &settings, nothing) else { return };
    let said = out.each_ref().map(text).concat();
    assert_eq!(said.matches("all is as it has to be").count(), 2, "{said}");
}

#[test]
fn open__an_interface_that_cannot_be_used_is_named() {
    let Some(program) = FACE.compile("many", Way::C) else { return };
    for (setting, why) in
        [("no-such-if", "no interface"), ("lo", "loopback"), ("lo:x", "not understood")]
    {
        let settings = [("WEFT_MXOE", setting)];
        let out =
            start(&program, &["server"], "udp", &key(), &settings).wait_with_output().unwrap();
        assert!(!out.status.success() && text(&out).contains(why), "{setting}: {}", text(&out));
    }
}

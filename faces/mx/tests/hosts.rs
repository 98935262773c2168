//! Programs in C over `myriexpress.h`, on two hosts.
#![allow(non_snake_case)]

use std::path::Path;
use std::process::Output;
use weft_conformance::programs::{key, text, Face, Side, Way};

const FACE: Face = Face {
    name: "mx-hosts",
    sources: env!("CARGO_MANIFEST_DIR"),
    scratch: env!("CARGO_TARGET_TMPDIR"),
    built: "libweft_mx.so",
    names: &["libmyriexpress.so", "libopen-mx.so.0"],
    linked: "-lmyriexpress",
};

/// Links between hosts.
const LINKS: [&str; 3] = ["packet", "udp", "auto"];

/// Runs server and client on two hosts. `None` if this machine cannot.
fn both(
    program: &'static str,
    words: [&[&str]; 2],
    link: &str,
    more: &[(&str, &str)],
) -> Option<[Output; 2]> {
    let settings = [&[("TEST_SERVER", "10.9.0.1")][..], more].concat();
    let key = key();
    let side = |words| Side { words, key: &key, settings: &settings };
    FACE.between((program, Way::C), words.map(side), link, |_| {})
}

fn pair(link: &str, settings: &[(&str, &str)]) {
    let gate = Path::new(FACE.scratch).join(format!("mx-hosts-gate-{}", key()));
    let at = gate.display().to_string();
    let out = both("pair", [&["server", &at], &["client", &at]], link, settings);
    let _gone = std::fs::remove_file(&gate);
    let Some(out) = out else { return };
    let said = out.each_ref().map(text).concat();
    assert_eq!(said.matches("all is as it has to be").count(), 2, "{link}: {said}");
}

#[test]
fn pair__all_that_takes_two() {
    LINKS.into_iter().for_each(|link| pair(link, &[]));
}

#[test]
fn pair__over_a_network_with_faults() {
    pair("packet", &[("WEFT_FAULTS", "loss=1%,dup=1%,reorder=1%,seed=5")]);
}

#[test]
fn many__64_endpoints_of_a_host_each_with_a_number_of_its_own() {
    let Some(out) = both("many", [&["server"], &["client"]], "packet", &[]) else { return };
    let said = out.each_ref().map(text).concat();
    assert_eq!(said.matches("all is as it has to be").count(), 2, "{said}");
}

#[test]
fn death__the_other_side_learns_of_it_by_a_status() {
    let times = [("WEFT_PEER_TIMEOUT_MS", "600"), ("WEFT_KEEPALIVE_MS", "100")];
    for way in ["kill", "exit", "stop"] {
        let words: [&[&str]; 2] = [&["server", way], &["client", way]];
        let Some([server, client]) = both("death", words, "packet", &times) else { return };
        let said = text(&server);
        assert!(said.contains("the server goes on"), "{way}: {said}{}", text(&client));
    }
}

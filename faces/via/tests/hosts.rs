//! Programs in C over `vipl.h`, on two hosts.
#![allow(non_snake_case)]

use std::process::Output;
use weft_conformance::programs::{key, text, Face, Side, Way};

const FACE: Face = Face {
    name: "via-hosts",
    sources: env!("CARGO_MANIFEST_DIR"),
    scratch: env!("CARGO_TARGET_TMPDIR"),
    built: "libweft_via.so",
    names: &["libvipl.so", "libvipl.so.0"],
    linked: "-lvipl",
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
    // Each one learns the address of the other one's host.
    let of = |other| [&[("TEST_OTHER", other)][..], more].concat();
    let settings = ["10.9.0.2", "10.9.0.1"].map(of);
    let key = key();
    let side = |at: usize| Side { words: words[at], key: &key, settings: &settings[at] };
    FACE.between((program, Way::C), [side(0), side(1)], link, |_| {})
}

fn pair(link: &str, settings: &[(&str, &str)]) {
    let Some(out) = both("pair", [&["server"], &["client"]], link, settings) else { return };
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
fn death__the_other_side_learns_of_it_by_a_code() {
    let times = [("WEFT_PEER_TIMEOUT_MS", "600"), ("WEFT_KEEPALIVE_MS", "100")];
    for (case, way) in [("connected", "kill"), ("sending", "stop"), ("requesting", "exit")] {
        let words: [&[&str]; 2] = [&["server", case, way], &["client", case, way]];
        let Some([server, client]) = both("death", words, "packet", &times) else { return };
        let said = text(&server);
        assert!(said.contains("the server goes on"), "{case} {way}: {said}{}", text(&client));
    }
}

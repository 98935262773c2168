//! Programs in C over `myriexpress.h`, on two hosts.
#![allow(non_snake_case)]

mod face;

use std::path::Path;
use std::process::Output;
use weft_conformance::programs::{
    assert_all, assert_goes_on, key, text, Face, Side, Way, FAULTS, TIMES,
};

const FACE: Face = Face { name: "mx-hosts", ..face::FACE };

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
    let lock = Path::new(FACE.scratch).join(format!("mx-hosts-lock-{}", key()));
    let at = lock.display().to_string();
    let out = both("pair", [&["server", &at], &["client", &at]], link, settings);
    let _gone = std::fs::remove_file(&lock);
    let Some(out) = out else { return };
    let said = out.each_ref().map(text).concat();
    assert_all(&said, link);
}

#[test]
fn pair__all_that_takes_two() {
    LINKS.into_iter().for_each(|link| pair(link, &[]));
}

#[test]
fn pair__over_a_network_with_faults() {
    pair("packet", &[FAULTS]);
}

#[test]
fn many__64_endpoints_of_a_host_each_with_a_number_of_its_own() {
    let Some(out) = both("many", [&["server"], &["client"]], "packet", &[]) else { return };
    let said = out.each_ref().map(text).concat();
    assert_all(&said, "many");
}

#[test]
fn death__the_other_side_learns_of_it_by_a_status() {
    for way in ["kill", "exit", "stop"] {
        let words: [&[&str]; 2] = [&["server", way], &["client", way]];
        let Some(ends) = both("death", words, "packet", &TIMES) else { return };
        assert_goes_on(&ends, way);
    }
}

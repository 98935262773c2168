//! Programs in C over `myriexpress.h`, on two hosts.
#![allow(non_snake_case)]

mod face;

use face::with_lock;
use std::process::Output;
use weft_conformance::programs::{assert_both, assert_goes_on, key, Face, Side, Way, TIMES};

const FACE: Face = Face { name: "mx-hosts", ..face::FACE };

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
    let out = with_lock(|at| both("pair", [&["server", at], &["client", at]], link, settings));
    let Some(out) = out else { return };
    assert_both(&out, link);
}

weft_conformance::face_suite_on_hosts!(pair);

#[test]
fn many__64_endpoints_of_a_host_each_with_a_number_of_its_own() {
    let Some(out) = both("many", [&["server"], &["client"]], "packet", &[]) else { return };
    assert_both(&out, "many");
}

#[test]
fn death__the_other_side_learns_of_it_by_a_status() {
    for way in ["kill", "exit", "stop"] {
        let words: [&[&str]; 2] = [&["server", way], &["client", way]];
        let Some(ends) = both("death", words, "packet", &TIMES) else { return };
        assert_goes_on(&ends, way);
    }
}

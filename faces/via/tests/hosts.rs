//! Programs in C over `vipl.h`, on two hosts.
#![allow(non_snake_case)]

mod face;

use std::process::Output;
use weft_conformance::programs::{assert_both, assert_goes_on, key, Face, Side, Way, TIMES};

const FACE: Face = Face { name: "via-hosts", ..face::FACE };

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
    assert_both(&out, link);
}

weft_conformance::face_suite_on_hosts!(pair);

#[test]
fn death__the_other_side_learns_of_it_by_a_code() {
    for (case, way) in [("connected", "kill"), ("sending", "stop"), ("requesting", "exit")] {
        let words: [&[&str]; 2] = [&["server", case, way], &["client", case, way]];
        let Some(ends) = both("death", words, "packet", &TIMES) else { return };
        assert_goes_on(&ends, &format!("{case} {way}"));
    }
}

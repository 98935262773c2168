//! Programs in C over `vipl.h`, compiled with the system's compiler.
#![allow(non_snake_case)]

mod face;

use face::FACE;
use std::path::Path;
use weft_conformance::programs::{assert_all, Way, FAULTS, LINKS};

#[test]
fn hello__two_programs_find_each_other() {
    FACE.assert_hello();
}

fn pair(way: Way, link: &str, settings: &[(&str, &str)]) {
    let words: [&[&str]; 2] = [&["server"], &["client"]];
    let Some(said) = FACE.both("pair", way, words, link, settings) else { return };
    assert_all(&said, link);
}

#[test]
fn pair__all_that_takes_two_over_shared_memory_and_udp() {
    LINKS.into_iter().for_each(|link| pair(Way::C, link, &[]));
}

#[test]
fn pair__all_that_takes_two_over_a_network_with_faults() {
    pair(Way::C, "udp", &[FAULTS, ("WEFT_MTU", "1K")]);
}

#[test]
fn pair__under_the_address_sanitizer() {
    LINKS.into_iter().for_each(|link| pair(Way::Asan, link, &[]));
}

fn alone(way: Way) {
    for link in LINKS {
        let _said = FACE.succeeds("alone", way, &[], link, &[]);
    }
}

#[test]
fn alone__every_function_refuses_misuse_by_its_codes() {
    alone(Way::C);
}

#[test]
fn alone__under_the_address_sanitizer() {
    alone(Way::Asan);
}

#[test]
fn death__the_other_side_learns_of_it_by_a_code() {
    for link in LINKS {
        for case in ["connected", "sending", "requesting", "accepting"] {
            ["kill", "exit", "stop"]
                .into_iter()
                .for_each(|way| FACE.assert_outlives(link, &[case, way]));
        }
    }
}

#[test]
fn header__layouts_are_those_of_the_interface_in_c_and_cpp() {
    FACE.assert_layout();
}

/// The functions of the interface.
const FUNCTIONS: [&str; 41] = [
    "VipOpenNic",
    "VipCloseNic",
    "VipQueryNic",
    "VipCreateVi",
    "VipDestroyVi",
    "VipSetViAttributes",
    "VipQueryVi",
    "VipCreatePtag",
    "VipDestroyPtag",
    "VipRegisterMem",
    "VipDeregisterMem",
    "VipSetMemAttributes",
    "VipQueryMem",
    "VipPostSend",
    "VipPostRecv",
    "VipSendDone",
    "VipRecvDone",
    "VipSendWait",
    "VipRecvWait",
    "VipSendNotify",
    "VipRecvNotify",
    "VipCreateCQ",
    "VipDestroyCQ",
    "VipResizeCQ",
    "VipCQDone",
    "VipCQWait",
    "VipCQNotify",
    "VipConnectWait",
    "VipConnectAccept",
    "VipConnectReject",
    "VipConnectRequest",
    "VipConnectPeerRequest",
    "VipConnectPeerDone",
    "VipConnectPeerWait",
    "VipDisconnect",
    "VipErrorCallback",
    "VipQuerySystemManagementInfo",
    "VipNSInit",
    "VipNSGetHostByName",
    "VipNSGetHostByAddr",
    "VipNSShutdown",
];

#[test]
fn library__exports_the_functions_of_the_header_and_no_other_names() {
    let header = std::fs::read_to_string(Path::new(FACE.sources).join("include/vipl.h")).unwrap();
    let mut wanted: Vec<&str> = FUNCTIONS.to_vec();
    wanted.sort_unstable();
    let words = header.split(|c: char| !c.is_alphanumeric());
    let mut declared: Vec<&str> =
        words.filter(|word| word.starts_with("Vip") && word.len() > 4).collect();
    declared.sort_unstable();
    declared.dedup();
    declared.retain(|name| header.contains(&format!("VIP_RETURN {name}(")));
    assert_eq!(declared, wanted);
    let Some(exported) = FACE.exported() else { return };
    assert_eq!(exported, wanted);
}

//! Programs in C over `vipl.h`, compiled with the system's compiler.
#![allow(non_snake_case)]

mod face;

use face::FACE;
use std::path::Path;
use weft_conformance::programs::{assert_all, Way, LINKS};

weft_conformance::face_suite!(FACE, pair, alone);

fn pair(way: Way, link: &str, settings: &[(&str, &str)]) {
    let words: [&[&str]; 2] = [&["server"], &["client"]];
    let Some(said) = FACE.both("pair", way, words, link, settings) else { return };
    assert_all(&said, link);
}

fn alone(way: Way) {
    for link in LINKS {
        let _said = FACE.succeeds("alone", way, &[], link, &[]);
    }
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

//! Programs in C over `vipl.h`, compiled with the system's compiler.
#![allow(non_snake_case)]

use std::path::Path;
use std::process::Command;
use weft_conformance::programs::{key, start, text, Face, Way};
use weft_conformance::skip;

const FACE: Face = Face {
    name: "via",
    sources: env!("CARGO_MANIFEST_DIR"),
    scratch: env!("CARGO_TARGET_TMPDIR"),
    built: "libweft_via.so",
    names: &["libvipl.so", "libvipl.so.0"],
    linked: "-lvipl",
};

const LINKS: [&str; 2] = ["shm", "udp"];

#[test]
fn hello__two_programs_find_each_other() {
    for link in LINKS {
        let words: [&[&str]; 2] = [&["server"], &["client", "localhost"]];
        let Some(said) = FACE.both("hello", Way::C, words, link, &[]) else { return };
        assert!(said.contains("server received: client"), "{link}: {said}");
        assert!(said.contains("client received: hello, client"), "{link}: {said}");
    }
}

fn pair(way: Way, link: &str, settings: &[(&str, &str)]) {
    let words: [&[&str]; 2] = [&["server"], &["client"]];
    let Some(said) = FACE.both("pair", way, words, link, settings) else { return };
    assert_eq!(said.matches("all is as it has to be").count(), 2, "{link}: {said}");
}

#[test]
fn pair__all_that_takes_two_over_shared_memory_and_udp() {
    LINKS.into_iter().for_each(|link| pair(Way::C, link, &[]));
}

#[test]
fn pair__all_that_takes_two_over_a_network_with_faults() {
    let faults = ("WEFT_FAULTS", "loss=1%,dup=1%,reorder=1%,seed=5");
    pair(Way::C, "udp", &[faults, ("WEFT_MTU", "1K")]);
}

#[test]
fn pair__under_the_address_sanitizer() {
    LINKS.into_iter().for_each(|link| pair(Way::Asan, link, &[]));
}

fn alone(way: Way) {
    let Some(program) = FACE.compile("alone", way) else { return };
    for link in LINKS {
        let out = start(&program, &[], link, &key(), &[]).wait_with_output().unwrap();
        assert!(out.status.success(), "{link}: {}", text(&out));
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

/// Runs a server whose client ends in a way.
fn death(link: &str, case: &str, way: &str) {
    let Some(program) = FACE.compile("death", Way::C) else { return };
    let key = key();
    let times = [("WEFT_PEER_TIMEOUT_MS", "600"), ("WEFT_KEEPALIVE_MS", "100")];
    let mut client = start(&program, &["client", case, way], link, &key, &times);
    let server = start(&program, &["server", case, way], link, &key, &times);
    let server = server.wait_with_output().unwrap();
    // One that was stopped.
    let _ended = client.kill();
    let client = client.wait_with_output().unwrap();
    let said = text(&server);
    assert!(said.contains("the server goes on"), "{link} {case} {way}: {said}{}", text(&client));
}

#[test]
fn death__the_other_side_learns_of_it_by_a_code() {
    for link in LINKS {
        for case in ["connected", "sending", "requesting", "accepting"] {
            ["kill", "exit", "stop"].into_iter().for_each(|way| death(link, case, way));
        }
    }
}

#[test]
fn header__layouts_are_those_of_the_interface_in_c_and_cpp() {
    for way in [Way::C, Way::Cpp] {
        let Some(program) = FACE.compile("layout", way) else { continue };
        let out = start(&program, &[], "shm", &key(), &[]).wait_with_output().unwrap();
        assert!(out.status.success(), "{way:?}: {}", text(&out));
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
    let Ok(out) = Command::new("nm").args(["-D", "--defined-only"]).arg(FACE.library()).output()
    else {
        return skip("no nm (binutils)");
    };
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut exported: Vec<&str> =
        said.lines().filter_map(|line| line.split_whitespace().last()).collect();
    exported.sort_unstable();
    assert_eq!(exported, wanted);
}

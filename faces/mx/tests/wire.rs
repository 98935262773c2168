//! Programs in C that talk in frames of MX over Ethernet, between two hosts.
#![allow(non_snake_case)]

mod face;

use face::with_lock;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;
use weft_conformance::hosts::{mac, Host};
use weft_conformance::programs::{
    assert_both, assert_goes_on, key, start, text, Face, Side, Way, FAULTS,
};
use weft_link::ether::{EtherType, Interfaces};
use weft_link::rng::Rng;
use weft_link::BarePacket;

const FACE: Face = Face { name: "mxoe", ..face::FACE };

/// The server's host by the system, and by its address of Ethernet.
const BY_ADDRESS: &str = "10.9.0.1";

/// Runs server and client on hosts of their own; returns their ends. `None` if this machine cannot.
fn both(
    program: (&'static str, Way),
    words: [&[&str]; 2],
    settings: &[(&str, &str)],
    prepare: impl Fn(&Host) + Sync,
) -> Option<[Output; 2]> {
    // Programs of two keys: frames of MX carry none.
    let (first, second) = (key(), key());
    let side = |words, key| Side { words, key, settings };
    let sides = [side(words[0], &first), side(words[1], &second)];
    FACE.between(program, sides, "udp", prepare)
}

fn nothing(_: &Host) {}

fn pair(
    way: Way,
    (dialect, server): (&str, &str),
    settings: &[(&str, &str)],
    prepare: impl Fn(&Host) + Sync,
) {
    let mut all = vec![("WEFT_MXOE", dialect), ("TEST_SERVER", server)];
    all.extend(settings);
    let out =
        with_lock(|at| both(("pair", way), [&["server", at], &["client", at]], &all, prepare));
    let Some(out) = out else { return };
    assert_both(&out, &format!("{dialect} {server}"));
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
    pair(Way::C, ("cable0:open,frame=4096,block=8,depth=2,send=copy", &by_mac), &[], wide);
}

#[test]
fn pair__received_bytes_are_copied_by_a_second_thread() {
    pair(Way::Asan, ("cable0,receive=core", BY_ADDRESS), &[], nothing);
}

#[test]
fn pair__over_a_network_with_faults() {
    pair(Way::C, ("cable0", BY_ADDRESS), &[FAULTS, ("WEFT_PEER_TIMEOUT_MS", "60000")], nothing);
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
        let Some(ends) = both(("death", Way::C), words, &settings, nothing) else { return };
        assert_goes_on(&ends, way);
    }
}

#[test]
fn many__64_endpoints_of_a_host_each_with_a_number_of_its_own() {
    let words: [&[&str]; 2] = [&["server"], &["client"]];
    let settings = [("WEFT_MXOE", "cable0"), ("TEST_SERVER", BY_ADDRESS)];
    let Some(out) = both(("many", Way::C), words, &settings, nothing) else { return };
    assert_both(&out, "two programs");
}

#[test]
fn lent__memory_comes_back_before_the_message_has_left_and_with_a_killed_peer() {
    let words: [&[&str]; 2] = [&["server"], &["client"]];
    let silence = ("WEFT_PEER_TIMEOUT_MS", "600");
    for mxoe in ["cable0", "cable0,receive=core"] {
        let settings = [("WEFT_MXOE", mxoe), ("TEST_SERVER", BY_ADDRESS), silence];
        let Some(out) = both(("lent", Way::Asan), words, &settings, nothing) else { return };
        assert_both(&out, mxoe);
    }
}

/// Sends frames that look like those of the client's endpoints, from its address, until its host is
/// no more.
/// No refusals are among them: whoever guesses a sequence number ends a connection by one.
fn flood(to: [u8; 6], from: [u8; 6]) {
    const KINDS: [u8; 12] = [1, 2, 3, 4, 34, 35, 36, 37, 38, 39, 40, 41];
    let Interfaces(all) = Interfaces::list().unwrap();
    let interface = all.into_iter().find(|one| one.name == "cable0").unwrap();
    let kind = EtherType::new(weft_mxoe::ETHERTYPE).unwrap();
    let mut socket = BarePacket::open(&interface, kind, 1 << 16).unwrap();
    let mut rng = Rng::new(3);
    loop {
        let mut frame = [&to[..], &from, &weft_mxoe::ETHERTYPE.to_be_bytes()].concat();
        frame.resize(60 + rng.below(1400) as usize, 0);
        rng.fill(&mut frame[14..]);
        // A type that exists, the server's number and a low one; packets of pulls, too.
        frame[16] = *rng.pick(&KINDS);
        (frame[17], frame[18]) = (3, rng.below(4) as u8);
        match socket.send(&frame) {
            Err(why) if why.kind() != ErrorKind::WouldBlock => return,
            _ => {}
        }
        // tidy-allow(sleep): a stranger sends so many frames a second
        std::thread::sleep(Duration::from_micros(50));
    }
}

#[test]
fn pair__under_a_flood_of_hostile_frames() {
    let bytes = |side: u8| [2, 0x57, 0, 0, 0, side + 1];
    assert_eq!(mac(0, 1), "02:57:00:00:00:02");
    pair(Way::C, ("cable0", BY_ADDRESS), &[("TEST_FLOODED", "1")], |host| {
        if host.side == 1 {
            // The flooding thread is in the network namespace of this thread, and ends with that.
            std::thread::spawn(move || flood(bytes(0), bytes(1)));
        }
    });
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

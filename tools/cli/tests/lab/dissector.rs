//! Wireshark's dissector on real packets of every link, captured at the switch of a lab and by
//! weft.

use super::{harness, text, Lab, WEFT};
use std::path::{Path, PathBuf};
use std::process::Command;
use weft_conformance::capture::{self, Capture, Seen};
use weft_conformance::skip;

const HELLO: u8 = 1;
const RTS: u8 = 6;
const DATA: u8 = 8;

/// Links as in `weft run`, each with the protocol of its frames.
const LINKS: [(&[&str], &str); 5] = [
    (&["--link=udp"], "udp"),
    (&["--link=packet"], "weft_ether"),
    (&["--link=gso,packet"], "weft_long"),
    (&["--link=xdp"], "weft_ether"),
    (&["--agent"], "weft_ether"),
];

fn folder() -> PathBuf {
    let folder = harness::scratch("dissector");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Runs a job of two hosts that exchanges short and long messages. The error is its standard error,
/// if this machine has no such link.
fn job(lab: &Lab, options: &[&str], pcap: Option<&Path>) -> Result<(), String> {
    let with: Vec<String> = options.iter().map(|o| format!("--with={o}")).collect();
    let mut words = vec!["lab", "run", "-n", "2"];
    words.extend(with.iter().map(String::as_str));
    words.extend([WEFT, "selftest", "incast", "--bytes", "200000", "--messages", "8"]);
    let mut command = lab.command(&words);
    if let Some(folder) = pcap {
        command.env("WEFT_PCAP", folder);
    }
    let ran = command.output().expect("weft starts");
    let said = text(&ran.stderr);
    if said.contains("is not available") && said.contains("this kernel has no") {
        return Err(said);
    }
    assert!(ran.status.success(), "{options:?}: {said}");
    Ok(())
}

/// Checks that every frame is recognised and valid, and that packets of these types are there.
fn check(frames: &[Seen], types: &[u8], what: &str) {
    let strangers: Vec<&Seen> = frames.iter().filter(|f| f.types.is_empty() || f.bad).collect();
    assert!(strangers.is_empty(), "{what}: {} as {:?}", strangers.len(), strangers[0]);
    for kind in types {
        let there = frames.iter().any(|frame| frame.types.contains(kind));
        assert!(there, "{what}: no packet of type {kind} in {} frames", frames.len());
    }
}

/// Captures at the switch's port of the first host; `None`, with a note, if that is not allowed.
fn at_the_switch(lab: &Lab, file: &Path) -> Option<Capture> {
    let mut command = Command::new("nsenter");
    command.args(["-t", &lab.status()["keeper"].to_string(), "-n", "dumpcap"]);
    Capture::by(command, "p1", file).map_err(|why| skip(&why)).ok()
}

#[test]
fn dissector__knows_every_link_on_the_wire() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    let folder = folder();
    for (options, protocol) in LINKS {
        let file = folder.join(format!("{}.pcapng", options[0]));
        let Some(capture) = at_the_switch(&lab, &file) else { return };
        if let Err(why) = job(&lab, options, None) {
            skip(&why);
            continue;
        }
        capture.finish(|mark| {
            let script = format!("printf '{mark}' > /dev/udp/h2/9 || true");
            lab.weft(&["lab", "exec", "h1", "bash", "-c", &script]);
        });
        let frames = match capture::read(&file, "udp || eth.type == 0x88b5") {
            Ok(frames) => frames,
            Err(why) => return skip(&why),
        };
        check(&frames, &[HELLO, DATA], &format!("{options:?}"));
        assert!(frames.iter().any(|frame| frame.has(protocol)), "{options:?}: no {protocol}");
    }
    std::fs::remove_dir_all(folder).expect("the folder was there");
}

/// Returns the frames of all captures in a folder. No frame has a trailer, whatever its last bytes
/// are.
fn captured(folder: &Path) -> Result<Vec<Seen>, String> {
    let mut frames = Vec::new();
    for file in std::fs::read_dir(folder).expect("captures") {
        let file = file.expect("a file").path();
        frames.extend(capture::read(&file, "frame")?);
        let trailers = capture::read(&file, "weft.trailer.pn")?;
        assert!(trailers.is_empty(), "{}: {:?}", file.display(), trailers[0]);
    }
    std::fs::remove_dir_all(folder).expect("the folder was there");
    Ok(frames)
}

#[test]
fn dissector__knows_the_captures_of_every_network_link() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    for (options, _) in LINKS {
        let folder = folder();
        if let Err(why) = job(&lab, options, Some(&folder)) {
            skip(&why);
            continue;
        }
        match captured(&folder) {
            Ok(frames) => check(&frames, &[HELLO, DATA], &format!("{options:?}")),
            Err(why) => return skip(&why),
        }
    }
}

#[test]
fn dissector__knows_the_captures_of_shared_memory() {
    let folder = folder();
    let mut command = Command::new(WEFT);
    command.args(["run", "-n", "2", "--link", "shm", WEFT, "selftest", "incast"]);
    command.args(["--bytes", "200000", "--messages", "8"]).env("WEFT_PCAP", &folder);
    let ran = command.output().expect("weft starts");
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    match captured(&folder) {
        Ok(frames) => check(&frames, &[HELLO, RTS], "shm"),
        Err(why) => skip(&why),
    }
}

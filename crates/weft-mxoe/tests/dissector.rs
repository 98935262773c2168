//! The Wireshark dissector reads the fields of each packet that the codec writes, in both dialects.
#![allow(non_snake_case)]

use std::path::{Path, PathBuf};
use std::process::Command;
use weft_conformance::skip;
use weft_mxoe::{
    Ack, ConnectReply, ConnectRequest, Dialect, Ends, Frame, Host, Medium, Message, NackLib,
    NackMcp, Notify, Packet, Pull, PullReply, Refusal, Rendezvous, Window, ETHERTYPE,
};

const ENDS: Ends = Ends { to: 3, from: 1, generation: 2 };
const MESSAGE: Message = Message {
    ends: ENDS,
    len: 8,
    checksum: 9,
    seq: 10,
    ack: 11,
    match_bits: 0x0102_0304_0506_0708,
    session: 12,
};
const WINDOW: Window = Window { id: 13, seq: 14, offset: 15 };

/// A packet, its name, and fields with their values.
type Case = (Packet, &'static str, &'static [(&'static str, u64)]);

fn messages() -> Vec<Case> {
    const OF: &[(&str, u64)] = &[
        ("to", 3),
        ("from", 1),
        ("generation", 2),
        ("len", 8),
        ("checksum", 9),
        ("seq", 10),
        ("ack", 11),
        ("match", 0x0102_0304_0506_0708),
        ("session", 12),
    ];
    let message = Message { len: 4100, checksum: 0, ..MESSAGE };
    let medium = Medium { message, fragment_len: 4, fragment: 1, pipeline: 12, checksum: 16 };
    let of_medium = &[
        ("len", 4100),
        ("seq", 10),
        ("session", 12),
        ("fragment_len", 4),
        ("fragment", 1),
        ("checksum", 16),
    ];
    let rendezvous = Rendezvous { message: MESSAGE, len: 1 << 20, window: WINDOW };
    let of_rendezvous = &[
        ("session", 12),
        ("total", 1 << 20),
        ("window", 13),
        ("window_seq", 14),
        ("window_offset", 15),
    ];
    vec![
        (Packet::Tiny(MESSAGE), "TINY", OF),
        (Packet::Small(MESSAGE), "SMALL", OF),
        (Packet::Medium(medium), "MEDIUM", of_medium),
        (Packet::Rendezvous(rendezvous), "RNDV", of_rendezvous),
    ]
}

fn pulls() -> Vec<Case> {
    let pull = Pull {
        ends: ENDS,
        session: 12,
        total: 1 << 20,
        window: WINDOW,
        handle: 17,
        magic: 18,
        first_offset: 15,
        block_len: 19,
        frame_index: 20,
    };
    let of_pull = &[
        ("session", 12),
        ("total", 1 << 20),
        ("window", 13),
        ("window_seq", 14),
        ("window_offset", 15),
        ("handle", 17),
        ("magic", 18),
        ("first_offset", 15),
        ("block_len", 19),
        ("frame_index", 20),
    ];
    let reply = PullReply { seq: 21, len: 4, offset: 22, handle: 17, magic: 18 };
    let of_reply =
        &[("frame_seq", 21), ("frame_len", 4), ("offset", 22), ("handle", 17), ("magic", 18)];
    let notify = Notify {
        ends: ENDS,
        session: 12,
        total: 1 << 20,
        window: 13,
        window_seq: 14,
        seq: 10,
        ack: 11,
    };
    let of_notify =
        &[("session", 12), ("window", 13), ("window_seq", 14), ("seq", 10), ("ack", 11)];
    vec![
        (Packet::Pull(pull), "PULL", of_pull),
        (Packet::PullReply(reply), "PULL_REPLY", of_reply),
        (Packet::Notify(notify), "NOTIFY", of_notify),
    ]
}

fn others() -> Vec<Case> {
    let host = Host { peer_index: 23, magic: 24, name_len: 0 };
    let ack = Ack {
        ends: ENDS,
        session: 12,
        seq: 10,
        acked_session: 25,
        number: 26,
        send_seq: 27,
        resent: 1,
    };
    let of_ack =
        &[("session", 12), ("seq", 10), ("acked_session", 25), ("number", 26), ("send_seq", 27)];
    let request = ConnectRequest {
        ends: ENDS,
        seq: 10,
        peer_index: 23,
        session: 12,
        key: 28,
        recv_start: 29,
        connect_seq: 30,
    };
    let of_request = &[
        ("index", 23),
        ("session", 12),
        ("key", 28),
        ("recv_start", 29),
        ("is_reply", 0),
        ("connect_seq", 30),
    ];
    let reply = ConnectReply {
        ends: ENDS,
        seq: 10,
        peer_index: 23,
        asking_session: 31,
        session: 12,
        recv_start: 29,
        connect_seq: 30,
        status: 11,
    };
    let of_reply = &[("asking_session", 31), ("session", 12), ("is_reply", 1), ("status", 11)];
    let refusal = Refusal::BadSession;
    let lib = NackLib { from: 1, generation: 2, refusal, to: 3, peer_index: 23, seq: 10 };
    let mcp = NackMcp { from: 1, generation: 2, refusal, handle: 17, magic: 18 };
    vec![
        (Packet::HostQuery(host), "HOST_QUERY", &[("index", 23), ("magic", 24)]),
        (Packet::HostReply(Host { name_len: 4, ..host }), "HOST_REPLY", &[("name_len", 4)]),
        (Packet::Ack(ack), "TRUC", of_ack),
        (Packet::ConnectRequest(request), "CONNECT", of_request),
        (Packet::ConnectReply(reply), "CONNECT_REPLY", of_reply),
        (
            Packet::NackLib(lib),
            "NACK_LIB",
            &[("from", 1), ("refusal", 3), ("to", 3), ("index", 23), ("seq", 10)],
        ),
        (Packet::NackMcp(mcp), "NACK_MCP", &[("refusal", 3), ("handle", 17), ("magic", 18)]),
    ]
}

/// Writes frames as a capture file.
fn capture(dialect: Dialect, cases: &[Case]) -> PathBuf {
    let head = [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65536, 1];
    let mut file: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (packet, ..) in cases {
        let header = Frame::new(7, *packet).encode(dialect).unwrap();
        let ethernet = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &ETHERTYPE.to_be_bytes()];
        let mut frame = [&ethernet.concat()[..], &header, b"abcdefgh"].concat();
        frame.resize(frame.len().max(60), 0);
        let len = frame.len() as u32;
        file.extend([0, 0, len, len].iter().flat_map(|word| word.to_le_bytes()));
        file.extend(frame);
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mxoe-{dialect:?}.pcap"));
    std::fs::write(&path, file).unwrap();
    path
}

/// Returns the values of these fields of each frame. `None`, with the reason printed, without
/// tshark.
fn dissect(dialect: Dialect, file: &Path, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mxoe.lua");
    let mut command = Command::new("tshark");
    command.arg("-X").arg(format!("lua_script:{}", script.display())).arg("-r").arg(file);
    let native = if dialect == Dialect::Native { "TRUE" } else { "FALSE" };
    command.args(["-o", &format!("mxoe.native:{native}"), "-T", "fields"]);
    fields.iter().for_each(|field| _ = command.args(["-e", &format!("mxoe.{field}")]));
    let out = match command.output() {
        Ok(out) => out,
        Err(why) => {
            skip(&format!("needs tshark: {why}"));
            return None;
        }
    };
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && !said.contains("Lua"), "{said}");
    let text = String::from_utf8(out.stdout).unwrap();
    Some(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

/// Reads a number as tshark prints it.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[test]
fn dissector__reads_what_the_codec_writes() {
    let cases = [messages(), pulls(), others()].concat();
    let mut fields: Vec<&str> =
        cases.iter().flat_map(|(.., of)| of.iter().map(|(name, _)| *name)).collect();
    fields.sort_unstable();
    fields.dedup();
    for dialect in [Dialect::Compat, Dialect::Native] {
        let file = capture(dialect, &cases);
        let wanted = [&["name", "peer_index", "payload"], &fields[..]].concat();
        let Some(got) = dissect(dialect, &file, &wanted) else { return };
        assert_eq!(got.len(), cases.len(), "{dialect:?}: {got:?}");
        for ((packet, name, values), line) in cases.iter().zip(&got) {
            assert_eq!((&line[0][..], &line[1][..]), (*name, "7"), "{dialect:?} {packet:?}");
            for (field, value) in *values {
                let at = fields.iter().position(|of| of == field).unwrap() + 3;
                assert_eq!(number(&line[at]), Some(*value), "{dialect:?} {name} {field}: {line:?}");
            }
            if *name == "TINY" {
                assert_eq!(line[2], "6162636465666768");
            }
        }
    }
}

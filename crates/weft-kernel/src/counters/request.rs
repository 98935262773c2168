//! Requests and answers as bytes.

use super::SipKey;

/// Offsets of the fields.
pub(super) const VERSION: usize = 0;
pub(super) const KIND: usize = 1;
pub(super) const CLIENT: usize = 2;
pub(super) const COUNTER: usize = 4;
pub(super) const NUMBER: usize = 8;
pub(super) const VALUE: usize = 16;
pub(super) const TAG: usize = 24;
/// Start of the bytes that the tag covers.
pub(super) const TAGGED: usize = 0;
/// Length of a request and of an answer.
pub(super) const LEN: usize = 32;

/// Types of request and answer.
pub(super) const LAST: u8 = 0;
pub(super) const ADD: u8 = 1;
pub(super) const ANSWER: u8 = 2;
pub(super) const VERSION_NOW: u8 = 2;

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub client: u16,
    pub kind: u8,
    pub counter: u32,
    pub number: u64,
    pub value: u64,
}

impl Request {
    /// Encodes the request with its tag.
    pub fn encode(&self, key: &SipKey) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        (bytes[VERSION], bytes[KIND]) = (VERSION_NOW, self.kind);
        bytes[CLIENT..COUNTER].copy_from_slice(&self.client.to_le_bytes());
        bytes[COUNTER..NUMBER].copy_from_slice(&self.counter.to_le_bytes());
        bytes[NUMBER..VALUE].copy_from_slice(&self.number.to_le_bytes());
        bytes[VALUE..TAG].copy_from_slice(&self.value.to_le_bytes());
        let tag = key.hash(&[&bytes[TAGGED..TAG]]);
        bytes[TAG..].copy_from_slice(&tag.to_le_bytes());
        bytes
    }

    /// Returns the value of the answer to this request, if `bytes` is this answer.
    pub fn answered_by(&self, bytes: &[u8], key: &SipKey) -> Option<u64> {
        let value = u64::from_le_bytes(bytes.get(VALUE..TAG)?.try_into().ok()?);
        let answer = Request { kind: ANSWER, value, ..*self };
        (bytes == answer.encode(key)).then_some(value)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The fields with their offsets, in order.
    const FIELDS: [(&str, usize); 7] = [
        ("version", VERSION),
        ("kind", KIND),
        ("client", CLIENT),
        ("counter", COUNTER),
        ("number", NUMBER),
        ("value", VALUE),
        ("tag", TAG),
    ];

    fn document(name: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
        std::fs::read_to_string(path).unwrap()
    }

    /// Lists name, offset and size of the fields, in order.
    fn places() -> impl Iterator<Item = (&'static str, usize, usize)> {
        let ends = FIELDS.iter().skip(1).map(|&(_, at)| at).chain([LEN]);
        FIELDS.iter().zip(ends).map(|(&(name, at), end)| (name, at, end - at))
    }

    #[test]
    fn protocol_md__the_datagram_matches_the_code() {
        let text = document("PROTOCOL.md");
        let from = text.find("## Counters in the kernel").unwrap();
        let section = text[from..].split("\n## ").next().unwrap();
        for (_, at, size) in places() {
            assert!(section.contains(&format!("\n| {at} | {size} | ")), "{at}");
        }
        assert!(section.contains(&format!("version of this format: {VERSION_NOW}")));
        let kinds = format!("{LAST}: asks for the client's last number; {ADD}: add; {ANSWER}: ans");
        assert!(section.contains(&kinds));
    }

    #[test]
    fn dissector__the_datagram_matches_the_code() {
        let text = document("docs/weft.lua");
        for (name, at, size) in places() {
            assert!(text.contains(&format!("    {{ {at}, {size}, \"{name}\", ")), "{name}");
        }
        for line in [
            format!("\nlocal COUNTERS_VERSION = {VERSION_NOW}\n"),
            format!("\nlocal COUNTERS_LEN = {LEN}\n"),
            format!("[{LAST}] = \"LAST\", [{ADD}] = \"ADD\", [{ANSWER}] = \"ANSWER\""),
        ] {
            assert!(text.contains(&line), "{line}");
        }
    }
}

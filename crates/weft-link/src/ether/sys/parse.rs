//! Parses the answers of rtnetlink (rtnetlink(7)). All numbers have the machine's byte order.

use crate::ether::{Interface, Mac};
use std::net::IpAddr;

const HEADER: usize = 16;
const LINK: usize = 16;
const ADDR: usize = 8;

/// One netlink message: its type, and the bytes after the header.
pub struct Message<'a> {
    pub kind: u16,
    pub body: &'a [u8],
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Splits the bytes of one receive call; ends at the first incomplete message.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let len = u32_at(bytes, 0)? as usize;
        let kind = u16_at(bytes, 4)?;
        let body = bytes.get(HEADER..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, body })
    })
}

/// Lists type and value of each attribute.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)?;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Parses the body of an `RTM_NEWLINK`.
pub fn link(body: &[u8]) -> Option<Interface> {
    let mut out = Interface {
        index: u32_at(body, 4)?,
        name: String::new(),
        mac: Mac::default(),
        mtu: 0,
        flags: u32_at(body, 8)?,
        hardware: u16_at(body, 2)?,
        master: 0,
        ips: Vec::new(),
    };
    for (kind, value) in attributes(body.get(LINK..)?) {
        match kind {
            libc::IFLA_ADDRESS => out.mac = value.try_into().map(Mac).unwrap_or_default(),
            libc::IFLA_IFNAME => {
                let text = value.split(|b| *b == 0).next().unwrap_or_default();
                out.name = String::from_utf8_lossy(text).into_owned();
            }
            libc::IFLA_MTU => out.mtu = u32_at(value, 0)?,
            libc::IFLA_MASTER => out.master = u32_at(value, 0)?,
            _ => {}
        }
    }
    Some(out)
}

/// Parses the body of an `RTM_NEWADDR`: interface number, address and prefix length.
pub fn address(body: &[u8]) -> Option<(u32, IpAddr, u8)> {
    let (prefix, index) = (*body.get(1)?, u32_at(body, 4)?);
    let mut found = None;
    for (kind, value) in attributes(body.get(ADDR..)?) {
        let ip = match value.len() {
            4 => IpAddr::from(<[u8; 4]>::try_from(value).ok()?),
            16 => IpAddr::from(<[u8; 16]>::try_from(value).ok()?),
            _ => continue,
        };
        // If both attributes are given, IFA_LOCAL is our own address.
        match kind {
            libc::IFA_LOCAL => found = Some(ip),
            libc::IFA_ADDRESS => found = found.or(Some(ip)),
            _ => {}
        }
    }
    found.map(|ip| (index, ip, prefix))
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut out = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
        out.extend(kind.to_ne_bytes());
        out.extend(value);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    #[test]
    fn link__reads_what_matters_and_survives_every_cut() {
        let mut body = vec![0; LINK];
        body[2..4].copy_from_slice(&1u16.to_ne_bytes());
        body[4..8].copy_from_slice(&5u32.to_ne_bytes());
        body[8..12].copy_from_slice(&0x43u32.to_ne_bytes());
        body.extend(attribute(libc::IFLA_IFNAME, b"eth0\0"));
        body.extend(attribute(libc::IFLA_ADDRESS, &[2, 0, 0, 0, 0, 9]));
        body.extend(attribute(libc::IFLA_MTU, &1500u32.to_ne_bytes()));
        let got = link(&body).unwrap();
        let named = (got.index, got.name.as_str(), got.mac.0[5], got.mtu, got.flags, got.hardware);
        assert_eq!(named, (5, "eth0", 9, 1500, 0x43, 1));
        for end in 0..body.len() {
            let cut = link(&body[..end]);
            assert!(end >= LINK || cut.is_none());
        }
    }

    #[test]
    fn messages__end_at_the_first_that_is_not_whole() {
        let mut bytes = Vec::new();
        for (kind, len) in [(16u16, 18u32), (17, 16), (18, 400)] {
            let start = bytes.len();
            bytes.extend(len.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.resize(start + (len.min(20) as usize).next_multiple_of(4), 0);
        }
        let kinds: Vec<_> = messages(&bytes).map(|m| (m.kind, m.body.len())).collect();
        assert_eq!(kinds, [(16, 2), (17, 0)]);
        assert_eq!(messages(&[0; 40]).count(), 0);
    }

    #[test]
    fn address__prefers_the_local_one() {
        let mut body = vec![2, 24, 0, 0];
        body.extend(3u32.to_ne_bytes());
        body.extend(attribute(libc::IFA_ADDRESS, &[10, 0, 0, 2]));
        body.extend(attribute(libc::IFA_LOCAL, &[10, 0, 0, 1]));
        assert_eq!(address(&body), Some((3, IpAddr::from([10, 0, 0, 1]), 24)));
        assert_eq!(address(&body[..8]), None);
    }
}

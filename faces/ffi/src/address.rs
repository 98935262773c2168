//! Network addresses: a host and a discriminator.

use std::net::Ipv4Addr;

/// Length of a host's address, in bytes: an address of IPv4.
pub const HOST_LEN: usize = 4;
/// Longest discriminator, in bytes.
pub const DISCRIMINATOR_MAX: usize = 64;

/// An address: `VIP_NET_ADDRESS`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NetAddress {
    /// The host.
    pub host: Ipv4Addr,
    discriminator: [u8; DISCRIMINATOR_MAX],
    len: u8,
}

impl NetAddress {
    /// Makes an address. `None` if the discriminator is too long.
    pub fn new(host: Ipv4Addr, discriminator: &[u8]) -> Option<NetAddress> {
        let mut bytes = [0; DISCRIMINATOR_MAX];
        bytes.get_mut(..discriminator.len())?.copy_from_slice(discriminator);
        Some(NetAddress { host, discriminator: bytes, len: discriminator.len() as u8 })
    }

    /// Returns the discriminator.
    pub fn discriminator(&self) -> &[u8] {
        &self.discriminator[..usize::from(self.len)]
    }

    /// Encodes it: host, length of the discriminator, discriminator.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.host.octets());
        out.push(self.len);
        out.extend_from_slice(self.discriminator());
    }

    /// Decodes an address, and takes it off the bytes.
    pub fn decode(bytes: &mut &[u8]) -> Option<NetAddress> {
        let (host, rest) = bytes.split_first_chunk::<HOST_LEN>()?;
        let (&len, rest) = rest.split_first()?;
        let (discriminator, rest) = rest.split_at_checked(usize::from(len))?;
        let address = NetAddress::new(Ipv4Addr::from(*host), discriminator)?;
        *bytes = rest;
        Some(address)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn decode__gives_back_what_was_encoded() {
        for len in [0, 1, DISCRIMINATOR_MAX] {
            let address = NetAddress::new(Ipv4Addr::new(10, 0, 0, 1), &vec![7; len]).unwrap();
            let mut bytes = Vec::new();
            address.encode(&mut bytes);
            bytes.push(9);
            let mut rest = &bytes[..];
            assert_eq!((NetAddress::decode(&mut rest), rest), (Some(address), &[9][..]));
            for cut in 0..bytes.len() - 1 {
                assert_eq!(NetAddress::decode(&mut &bytes[..cut]), None);
            }
        }
        assert!(NetAddress::new(Ipv4Addr::LOCALHOST, &[0; DISCRIMINATOR_MAX + 1]).is_none());
    }
}

//! The address of an endpoint: all data that a peer needs to reach the endpoint over any link.
//!
//! Encoding, little-endian: version u8 (4), flags u8 (bit 0: `sim` follows, bit 1: `rank` follows,
//! bits 2 and 3: protection of frames, 0 not said, 1 auth, 2 encrypt, 3 none),
//! number of UDP sockets u8, number of Ethernet interfaces u8, endpoint u64, host u64, shm u64,
//! then `sim` u32 and `rank` u32 if flagged, then each UDP socket as family u8 (4 or 6), pad u8
//! (0), port u16, 4 or 16 address bytes and, for family 6, the scope u32, then each Ethernet
//! interface as in [`EtherAddr`]. Every address has exactly one encoding; anything else is refused.

use crate::ether::EtherAddr;
use crate::secure::Mode;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use weft_core::EndpointId;

/// Address of an endpoint. Encodes to at most [`Address::MAX`] bytes; exchanged at start-up
/// (PMI, PMIx) and carried in HELLO packets.
///
/// ```
/// use weft_link::Address;
///
/// // The bytes go to another process in any form, for instance in a file.
/// let address = Address { udp: vec!["10.0.0.1:40312".parse()?], ..Address::default() };
/// let bytes = address.encode();
/// assert_eq!(Address::decode(&bytes)?, address);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Address {
    /// Identity and incarnation.
    pub endpoint: EndpointId,
    /// Hash of the kernel's boot id and the network namespace. Two endpoints with equal hashes may
    /// share memory. Zero when the endpoint offers no shared memory.
    pub host: u64,
    /// Key of the shared-memory listener (an abstract Unix socket); zero when there is none.
    pub shm: u64,
    /// UDP sockets, best first.
    pub udp: Vec<SocketAddr>,
    /// Ethernet interfaces, best first.
    pub ether: Vec<EtherAddr>,
    /// Address in the simulated network, if the endpoint is simulated.
    pub sim: Option<u32>,
    /// Number of the process in its job, if it has one.
    pub rank: Option<u32>,
    /// The protection of its frames on networks, if it has links to a network. Endpoints of
    /// different protection cannot understand each other there.
    pub security: Option<Mode>,
}

/// The reason why bytes are not an [`Address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// The bytes end inside a field, or exceed [`Address::MAX`].
    Length,
    /// Bytes are left over after the last field.
    Trailing,
    /// This build does not know this version of the encoding.
    Version(u8),
    /// An unknown flag, an unknown socket family, too many entries, a pad that is not zero, or a
    /// MAC address that no interface has.
    Invalid,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressError::Length => write!(f, "address ends early or is too long"),
            AddressError::Trailing => write!(f, "bytes left over after the address"),
            AddressError::Version(v) => {
                write!(f, "address version {v}, this build knows {VERSION}")
            }
            AddressError::Invalid => {
                write!(f, "address has an unknown flag, family, count, pad or MAC address")
            }
        }
    }
}

impl std::error::Error for AddressError {}

const VERSION: u8 = 4;
const FLAG_SIM: u8 = 1;
const FLAG_RANK: u8 = 2;
/// The position of the two bits of the protection, and the protection of each value from 1.
const SECURITY_AT: u32 = 2;
const MODES: [Mode; 3] = [Mode::Auth, Mode::Encrypt, Mode::None];
const FIXED: usize = 28;

impl Address {
    /// Length of the longest encoding, in bytes.
    pub const MAX: usize = 220;

    /// Highest number of UDP sockets in an encoding, of both families together.
    pub const MAX_UDP: usize = 5;

    /// Highest number of Ethernet interfaces in an encoding.
    pub const MAX_ETHER: usize = 4;

    /// Encodes the address for [`Address::decode`], in at most [`Address::MAX`] bytes. The encoding
    /// holds only the first [`Address::MAX_UDP`] UDP sockets and [`Address::MAX_ETHER`] Ethernet
    /// interfaces (the lists are best first).
    pub fn encode(&self) -> Vec<u8> {
        let udp = &self.udp[..self.udp.len().min(Address::MAX_UDP)];
        let ether = &self.ether[..self.ether.len().min(Address::MAX_ETHER)];
        let mut out = Vec::with_capacity(Address::MAX);
        let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
        let flags = flag(self.sim.is_some(), FLAG_SIM) | flag(self.rank.is_some(), FLAG_RANK);
        let mode = self.security.and_then(|mode| MODES.iter().position(|m| *m == mode));
        let flags = flags | mode.map_or(0, |at| (at as u8 + 1) << SECURITY_AT);
        out.extend_from_slice(&[VERSION, flags, udp.len() as u8, ether.len() as u8]);
        for field in [self.endpoint.0, self.host, self.shm] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        for number in [self.sim, self.rank].into_iter().flatten() {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for socket in udp {
            encode_socket(socket, &mut out);
        }
        ether.iter().for_each(|e| out.extend_from_slice(&e.encode()));
        debug_assert!(out.len() <= Address::MAX);
        out
    }

    /// Decodes one address; its encoding must fill `bytes` exactly.
    pub fn decode(bytes: &[u8]) -> Result<Address, AddressError> {
        if bytes.len() < FIXED || bytes.len() > Address::MAX {
            return Err(AddressError::Length);
        }
        let mut rest = bytes;
        let [version, flags, sockets, interfaces] = take::<4>(&mut rest)?;
        if version != VERSION {
            return Err(AddressError::Version(version));
        }
        let crowded =
            usize::from(sockets) > Address::MAX_UDP || usize::from(interfaces) > Address::MAX_ETHER;
        if flags & !(FLAG_SIM | FLAG_RANK | 3 << SECURITY_AT) != 0 || crowded {
            return Err(AddressError::Invalid);
        }
        let mut address = Address {
            endpoint: EndpointId(u64::from_le_bytes(take(&mut rest)?)),
            host: u64::from_le_bytes(take(&mut rest)?),
            shm: u64::from_le_bytes(take(&mut rest)?),
            security: usize::from(flags >> SECURITY_AT).checked_sub(1).map(|at| MODES[at]),
            ..Address::default()
        };
        if flags & FLAG_SIM != 0 {
            address.sim = Some(u32::from_le_bytes(take(&mut rest)?));
        }
        if flags & FLAG_RANK != 0 {
            address.rank = Some(u32::from_le_bytes(take(&mut rest)?));
        }
        for _ in 0..sockets {
            address.udp.push(decode_socket(&mut rest)?);
        }
        for _ in 0..interfaces {
            let one = EtherAddr::decode(&take(&mut rest)?).ok_or(AddressError::Invalid)?;
            address.ether.push(one);
        }
        if rest.is_empty() {
            Ok(address)
        } else {
            Err(AddressError::Trailing)
        }
    }
}

fn encode_socket(socket: &SocketAddr, out: &mut Vec<u8>) {
    let family = if socket.is_ipv4() { 4 } else { 6 };
    out.extend_from_slice(&[family, 0]);
    out.extend_from_slice(&socket.port().to_le_bytes());
    match socket {
        SocketAddr::V4(v4) => out.extend_from_slice(&v4.ip().octets()),
        SocketAddr::V6(v6) => {
            out.extend_from_slice(&v6.ip().octets());
            out.extend_from_slice(&v6.scope_id().to_le_bytes());
        }
    }
}

fn decode_socket(rest: &mut &[u8]) -> Result<SocketAddr, AddressError> {
    let [family, pad] = take::<2>(rest)?;
    let port = u16::from_le_bytes(take(rest)?);
    match (family, pad) {
        (4, 0) => {
            let ip = Ipv4Addr::from(take::<4>(rest)?);
            Ok(SocketAddr::new(IpAddr::V4(ip), port))
        }
        (6, 0) => {
            let ip = Ipv6Addr::from(take::<16>(rest)?);
            let scope = u32::from_le_bytes(take(rest)?);
            Ok(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope)))
        }
        _ => Err(AddressError::Invalid),
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], AddressError> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(AddressError::Length)?;
    *rest = tail;
    Ok(*head)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "endpoint {}", self.endpoint)?;
        if let Some(rank) = self.rank {
            write!(f, " rank {rank}")?;
        }
        if self.shm != 0 {
            write!(f, " shm {:016x} on host {:016x}", self.shm, self.host)?;
        }
        for socket in &self.udp {
            write!(f, " udp {socket}")?;
        }
        for one in &self.ether {
            write!(f, " {one}")?;
        }
        if let Some(sim) = self.sim {
            write!(f, " sim {sim}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::ether::Mac;

    fn sample() -> Address {
        Address {
            endpoint: EndpointId(0x0102_0304_0506_0708),
            host: 9,
            shm: 10,
            udp: vec![
                "10.0.0.1:4000".parse().unwrap(),
                SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 5, 0, 3)),
            ],
            ether: vec![EtherAddr {
                mac: Mac([2, 0, 0, 0, 0, 9]),
                slot: 3,
                train: 5,
                mtu: 1500,
                net: 0x0102_0304,
            }],
            sim: Some(77),
            rank: Some(5),
            security: Some(Mode::Encrypt),
        }
    }

    #[test]
    fn decode__round_trips() {
        for address in [
            sample(),
            Address::default(),
            Address { sim: None, ..sample() },
            Address { rank: None, ..sample() },
            Address { security: None, ..sample() },
            Address { security: Some(Mode::None), ..sample() },
        ] {
            assert_eq!(Address::decode(&address.encode()), Ok(address));
        }
    }

    #[test]
    fn encode__lays_fields_out_as_the_protocol_says() {
        let wanted: [&[u8]; 13] = [
            &[4, 11, 2, 1],
            &0x0102_0304_0506_0708_u64.to_le_bytes(),
            &9u64.to_le_bytes(),
            &10u64.to_le_bytes(),
            &77u32.to_le_bytes(),
            &5u32.to_le_bytes(),
            &[4, 0, 0xa0, 0x0f, 10, 0, 0, 1],
            &[6, 0, 5, 0],
            &Ipv6Addr::LOCALHOST.octets(),
            &3u32.to_le_bytes(),
            &[2, 0, 0, 0, 0, 9],
            &[3, 0, 5, 0, 0xdc, 0x05],
            &0x0102_0304_u32.to_le_bytes(),
        ];
        assert_eq!(sample().encode(), wanted.concat());
    }

    #[test]
    fn encode__is_bounded_and_keeps_the_best_sockets() {
        let v6 = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 1);
        let udp: Vec<_> = (0..40).map(|i| SocketAddr::new(v6.ip(), i)).collect();
        let ether: Vec<_> = (0..9).map(|slot| EtherAddr { slot, ..sample().ether[0] }).collect();
        let bytes = Address { udp: udp.clone(), ether: ether.clone(), ..sample() }.encode();
        assert_eq!(bytes.len(), Address::MAX);
        let back = Address::decode(&bytes).unwrap();
        assert_eq!(back.udp, udp[..Address::MAX_UDP]);
        assert_eq!(back.ether, ether[..Address::MAX_ETHER]);
    }

    #[test]
    fn decode__refuses_every_prefix_and_every_suffix() {
        let bytes = sample().encode();
        for end in 0..bytes.len() {
            assert_eq!(Address::decode(&bytes[..end]), Err(AddressError::Length));
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Address::decode(&longer), Err(AddressError::Trailing));
    }

    #[test]
    fn decode__of_changed_bytes_is_an_error_or_canonical() {
        let bytes = sample().encode();
        for at in 0..bytes.len() {
            for value in 0..=255 {
                let mut changed = bytes.clone();
                changed[at] = value;
                if let Ok(address) = Address::decode(&changed) {
                    assert_eq!(address.encode(), changed);
                }
            }
        }
    }

    #[test]
    fn display__names_every_part() {
        let text = sample().to_string();
        for part in
            ["0102030405060708", "rank 5", "shm", "udp 10.0.0.1:4000", "packet 02:", "sim 77"]
        {
            assert!(text.contains(part), "{text}");
        }
    }
}

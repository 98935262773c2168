//! Names of endpoints: `fi_getname` returns them, `fi_av_insert` takes them.
//!
//! A name is the part of a weft address that fits in [`LEN`] bytes: callers assume that all names
//! have one length, MPICH of at most 64 bytes, LCI of at most 48. Where an endpoint has more, the
//! name has the best; the rest becomes known with the first packet, which carries the whole
//! address.
//!
//! Little-endian: flags u8 (bits 0 and 1: protection of frames, as in an address; bits 2 and 3: IP
//! addresses, 0 none, 1 one of version 4, 2 one of version 6, 3 two of version 4; bit 4: `agent`
//! follows; bit 5: `rank` follows; bits 6 and 7: `shm` is 0 none, 1 the number of the endpoint, 2 a
//! number that follows), endpoint u64, host u64, then `shm` u64, the port of the TCP sockets u16 (0
//! without them) and of each IP address the port of the UDP socket u16 (0 without it) and its
//! bytes, then `agent` u64 and `rank` u32. If [`EtherAddr::LEN`] bytes are free behind them, the
//! last of these are an Ethernet interface, or zero; other free bytes are zero. A scope of a
//! link-local address of version 6 stands in its bytes 4 to 7. The end of the name are two bytes of
//! the key's public number, which tell nothing about the key, so that processes with different keys
//! learn of it before they wait for each other, and the version of the messages between providers.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::atomic::{AtomicU32, Ordering};
use weft_core::EndpointId;
use weft_link::ether::EtherAddr;
use weft_link::secure::{JobKey, Mode};
use weft_link::Address;

/// Length of a name in bytes.
pub const LEN: usize = 48;

/// Offset of the version in a name.
const VERSION_AT: usize = LEN - 1;
/// Offset of the part of the key's public number.
const KEY_AT: usize = VERSION_AT - 2;
/// Offset of the parts that not every name has.
const PARTS_AT: usize = 17;
/// Bytes of these parts.
const ROOM: usize = KEY_AT - PARTS_AT;

/// Positions of the flags, each of two bits or, from `AGENT` to `RANK`, of one.
const IPS: u32 = 2;
const AGENT: u32 = 4;
const RANK: u32 = 5;
const SHM: u32 = 6;
/// The protection of each value of the lowest two bits, from 1.
const MODES: [Mode; 3] = [Mode::Auth, Mode::Encrypt, Mode::None];

/// The part of the public number of this process's key, above [`KNOWN`] if there is a key.
static KEY: AtomicU32 = AtomicU32::new(0);
const KNOWN: u32 = 1 << 16;

/// Sets the key of this process, whose part of the public number all its names carry.
pub fn use_key(key: &JobKey) {
    KEY.store(number_of(key), Ordering::Relaxed);
}

fn number_of(key: &JobKey) -> u32 {
    KNOWN | u32::from(key.public_id() as u16)
}

/// The version of the layout of names and of the contents of the provider's active messages (atomic
/// operations, notices of written bytes); a change of either raises it. The packets below have a
/// version of their own. The text before the version lets a test find it in the library and make a
/// provider of another version.
#[used]
static VERSION: [u8; 17] = *b"weft-fi version \x05";

/// Returns this provider's version.
pub fn version() -> u8 {
    // Read at run time: a test may have changed the byte in the file.
    std::hint::black_box(&VERSION)[VERSION.len() - 1]
}

/// A name.
pub type Name = [u8; LEN];

/// Encodes the name of an endpoint.
pub fn encode(address: &Address) -> Name {
    let mut name = [0; LEN];
    let Parts { flags, bytes, ether } = Parts::of(address);
    let mode = address.security.and_then(|mode| MODES.iter().position(|m| *m == mode));
    name[0] = flags | mode.map_or(0, |at| at as u8 + 1);
    name[1..9].copy_from_slice(&address.endpoint.0.to_le_bytes());
    name[9..PARTS_AT].copy_from_slice(&address.host.to_le_bytes());
    name[PARTS_AT..][..bytes.len()].copy_from_slice(&bytes);
    if let Some(ether) = ether {
        name[KEY_AT - EtherAddr::LEN..KEY_AT].copy_from_slice(&ether.encode());
    }
    set_key(&mut name, KEY.load(Ordering::Relaxed));
    name[VERSION_AT] = version();
    name
}

fn set_key(name: &mut Name, key: u32) {
    name[KEY_AT..VERSION_AT].copy_from_slice(&(key as u16).to_le_bytes());
}

/// The parts of a name that not every name has.
struct Parts {
    flags: u8,
    bytes: Vec<u8>,
    ether: Option<EtherAddr>,
}

impl Parts {
    /// Encodes the parts of an address. Parts that do not fit are left out: further IP addresses
    /// first, then the Ethernet interface, the rank, and the agent.
    fn of(address: &Address) -> Parts {
        let ips = ips_of(address);
        let ether = address.ether.first().copied();
        // Numbers of IP addresses, and true for the interface, the rank, and the agent.
        let choices = [
            (2, true, true, true),
            (1, true, true, true),
            (2, false, true, true),
            (1, false, true, true),
            (1, false, false, true),
        ];
        for (most, with_ether, rank, agent) in choices {
            let mut parts = Parts { flags: 0, bytes: Vec::new(), ether };
            parts.add_shm(address);
            parts.add_ips(&ips[..ips.len().min(most)], address);
            parts.add(AGENT, address.agent.filter(|_| agent).map(u64::to_le_bytes));
            parts.add(RANK, address.rank.filter(|_| rank).map(u32::to_le_bytes));
            parts.ether = ether.filter(|_| with_ether);
            let of_ether = parts.ether.map_or(0, |_| EtherAddr::LEN);
            if parts.bytes.len() + of_ether <= ROOM {
                return parts;
            }
        }
        let mut parts = Parts { flags: 0, bytes: Vec::new(), ether: None };
        parts.add_shm(address);
        parts.add_ips(&ips[..ips.len().min(1)], address);
        parts
    }

    fn add<const N: usize>(&mut self, flag: u32, bytes: Option<[u8; N]>) {
        if let Some(bytes) = bytes {
            self.flags |= 1 << flag;
            self.bytes.extend_from_slice(&bytes);
        }
    }

    fn add_shm(&mut self, address: &Address) {
        match address.shm {
            0 => {}
            shm if shm == address.endpoint.0 => self.flags |= 1 << SHM,
            shm => {
                self.flags |= 2 << SHM;
                self.bytes.extend_from_slice(&shm.to_le_bytes());
            }
        }
    }

    fn add_ips(&mut self, ips: &[SocketAddr], address: &Address) {
        self.flags |= match ips {
            [] => return,
            [one] if one.is_ipv6() => 2,
            [_] => 1,
            _ => 3,
        } << IPS;
        let tcp = ips.first().map_or(0, |first| tcp_port(address, first));
        self.bytes.extend_from_slice(&tcp.to_le_bytes());
        for ip in ips {
            self.bytes.extend_from_slice(&ip.port().to_le_bytes());
            match ip {
                SocketAddr::V4(v4) => self.bytes.extend_from_slice(&v4.ip().octets()),
                SocketAddr::V6(v6) => {
                    let mut octets = v6.ip().octets();
                    if v6.scope_id() != 0 && v6.ip().is_unicast_link_local() {
                        octets[4..8].copy_from_slice(&v6.scope_id().to_le_bytes());
                    }
                    self.bytes.extend_from_slice(&octets);
                }
            }
        }
    }
}

/// Returns the port of the TCP socket of an IP address, or 0.
fn tcp_port(address: &Address, at: &SocketAddr) -> u16 {
    address.tcp.iter().find(|tcp| tcp.ip() == at.ip()).map_or(0, SocketAddr::port)
}

/// Returns the best IP address with the port of its UDP socket, and the next one if both are of
/// version 4 and have the same carriers.
fn ips_of(address: &Address) -> Vec<SocketAddr> {
    let mut ips = address.udp.clone();
    if ips.is_empty() {
        ips = address.tcp.clone();
        ips.iter_mut().for_each(|ip| ip.set_port(0));
    }
    let alike = |two: &[SocketAddr]| {
        two.iter().all(SocketAddr::is_ipv4)
            && tcp_port(address, &two[0]) == tcp_port(address, &two[1])
    };
    ips.truncate(if ips.get(..2).is_some_and(alike) { 2 } else { 1 });
    ips
}

/// The reason why bytes are no name for this provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// The name of a provider with this version.
    Version(u8),
    /// The name of a process with another key.
    Key,
    /// No name, for the given reason.
    Other(String),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Version(theirs) => write!(
                f,
                "it is of a weft provider of version {theirs}, this one is of version {}; all \
                 ranks need the same weft",
                version()
            ),
            NameError::Key => write!(
                f,
                "its process has another key: WEFT_KEY has to be the same for all ranks or, where \
                 it is not set, the key file ({}) on all hosts",
                weft::launch::keyfile::path()
                    .map_or("weft/key".into(), |p| p.display().to_string())
            ),
            NameError::Other(why) => {
                write!(
                    f,
                    "it is not the name of a weft endpoint of this version: {why}; all ranks need \
                     the same weft"
                )
            }
        }
    }
}

/// Decodes the address in a name.
///
/// # Errors
/// The reason, and that mixed versions are a possible cause.
pub fn decode(name: &[u8]) -> Result<Address, NameError> {
    decode_with(name, KEY.load(Ordering::Relaxed))
}

/// Decodes the address in a name, for a process with a key whose part of the public number is
/// `own`.
fn decode_with(name: &[u8], own: u32) -> Result<Address, NameError> {
    let wrong = |why: &str| NameError::Other(why.to_owned());
    let (&flags, rest) = name.split_first().ok_or_else(|| wrong("it is empty"))?;
    let (&theirs, rest) = rest.split_last().ok_or_else(|| wrong("it is cut"))?;
    if name.len() != LEN {
        return Err(wrong("it is of another length"));
    }
    if theirs != version() {
        return Err(NameError::Version(theirs));
    }
    let (parts, key) = rest.split_last_chunk::<2>().ok_or_else(|| wrong("it is cut"))?;
    if own & KNOWN != 0 && own as u16 != u16::from_le_bytes(*key) {
        return Err(NameError::Key);
    }
    address_of(flags, parts).map_err(wrong)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], &'static str> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or("it is cut")?;
    *rest = tail;
    Ok(*head)
}

/// Decodes an address: the flags of a name, and the bytes between them and the key.
fn address_of(flags: u8, bytes: &[u8]) -> Result<Address, &'static str> {
    let rest = &mut &*bytes;
    let endpoint = EndpointId(u64::from_le_bytes(take(rest)?));
    let host = u64::from_le_bytes(take(rest)?);
    let mut address = Address { endpoint, host, ..Address::default() };
    address.security = usize::from(flags & 3).checked_sub(1).map(|at| MODES[at]);
    address.shm = match flags >> SHM {
        0 => 0,
        1 => endpoint.0,
        2 => u64::from_le_bytes(take(rest)?),
        _ => return Err("its flags are unknown"),
    };
    let (count, is_v6) =
        [(0, false), (1, false), (1, true), (2, false)][usize::from(flags >> IPS & 3)];
    let tcp = if count > 0 { u16::from_le_bytes(take(rest)?) } else { 0 };
    for _ in 0..count {
        let port = u16::from_le_bytes(take(rest)?);
        let mut socket = match is_v6 {
            true => v6_of(take(rest)?),
            false => SocketAddr::new(IpAddr::V4(Ipv4Addr::from(take::<4>(rest)?)), 0),
        };
        socket.set_port(port);
        address.udp.extend((port != 0).then_some(socket));
        socket.set_port(tcp);
        if tcp != 0 && !address.tcp.contains(&socket) {
            address.tcp.push(socket);
        }
    }
    if flags >> AGENT & 1 != 0 {
        address.agent = Some(u64::from_le_bytes(take(rest)?));
    }
    if flags >> RANK & 1 != 0 {
        address.rank = Some(u32::from_le_bytes(take(rest)?));
    }
    if let Some((before, last)) = rest.split_last_chunk::<{ EtherAddr::LEN }>() {
        if *last != [0; EtherAddr::LEN] {
            address.ether.push(EtherAddr::decode(last).ok_or("it has no such interface")?);
            *rest = before;
        }
    }
    match rest.iter().all(|&b| b == 0) {
        true => Ok(address),
        false => Err("bytes follow it"),
    }
}

fn v6_of(mut octets: [u8; 16]) -> SocketAddr {
    let mut scope = 0;
    if Ipv6Addr::from(octets).is_unicast_link_local() {
        scope = u32::from_le_bytes([octets[4], octets[5], octets[6], octets[7]]);
        octets[4..8].fill(0);
    }
    SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(octets), 0, 0, scope))
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn address(sockets: usize) -> Address {
        let socket = |i| format!("[fd00::{i}]:{}", 4000 + i).parse().unwrap();
        let udp = (0..sockets).map(socket).collect();
        Address { endpoint: EndpointId(7), host: 8, shm: 7, udp, ..Address::default() }
    }

    fn interface() -> EtherAddr {
        let mac = weft_link::ether::Mac([2, 0, 0, 0, 0, 9]);
        EtherAddr { mac, slot: 3, train: 4, mtu: 9000, net: 5 }
    }

    #[test]
    fn encode__what_fits_comes_back_whole() {
        let v4 = |n: u8, port| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)), port);
        let of = |udp: Vec<SocketAddr>| Address { udp, rank: Some(5), ..address(0) };
        let link_local = "[fe80::1234%7]:4000".parse().unwrap();
        let two = vec![v4(1, 4000), v4(2, 4001)];
        for whole in [
            address(1),
            Address { shm: 9, tcp: vec!["[fd00::9]:5000".parse().unwrap()], ..address(0) },
            Address { ether: vec![interface()], tcp: vec![v4(1, 5000)], ..of(vec![v4(1, 4000)]) },
            Address { tcp: vec![v4(1, 5000), v4(2, 5000)], ..of(two.clone()) },
            Address { agent: Some(6), security: Some(Mode::Encrypt), ..of(two) },
            Address { agent: Some(6), rank: None, ..of(vec![link_local]) },
            Address { shm: 0, ether: vec![interface()], ..of(Vec::new()) },
        ] {
            assert_eq!(decode(&encode(&whole)), Ok(whole));
        }
    }

    #[test]
    fn encode__a_name_of_version_6_has_sockets_of_both_kinds_and_the_agent() {
        let tcp = vec!["[fd00::0]:5000".parse().unwrap()];
        let most = Address { rank: Some(5), agent: Some(6), tcp, ..address(1) };
        let most = Address { ether: vec![interface()], ..most };
        let expected = Address { rank: None, ether: Vec::new(), ..most.clone() };
        assert_eq!(decode(&encode(&most)), Ok(expected));
    }

    #[test]
    fn encode__the_best_stay_where_not_all_fit() {
        let many = Address { shm: 9, agent: Some(6), rank: Some(5), ..address(5) };
        let back = decode(&encode(&many)).unwrap();
        assert_eq!((back.endpoint, back.host, back.shm), (many.endpoint, many.host, many.shm));
        assert_eq!(back.udp, many.udp[..1]);
    }

    #[test]
    fn decode__refuses_what_is_no_name() {
        let good = encode(&address(1));
        let mut trailing = good;
        trailing[KEY_AT - 1] = 1;
        let mut flags = good;
        flags[0] |= 3 << SHM;
        let mut cut = encode(&Address { agent: Some(6), shm: 9, ..address(0) });
        cut[0] |= 2 << IPS;
        for bad in [&[][..], &[3], &[3, 1], &good[1..], &trailing, &flags, &cut] {
            assert!(decode(bad).unwrap_err().to_string().contains("this version"), "{bad:?}");
        }
    }

    #[test]
    fn decode__a_process_with_another_key_is_an_error_and_names_carry_no_key() {
        let own = number_of(&JobKey::from_bytes(&[0x5a; 32]).unwrap());
        let mut one = encode(&address(1));
        set_key(&mut one, own);
        assert_eq!(decode_with(&one, own), Ok(address(1)));
        let mut other = one;
        other[KEY_AT] ^= 1;
        assert_eq!(decode_with(&other, own), Err(NameError::Key));
        assert_eq!(decode_with(&other, 0), Ok(address(1)), "its own key is not known yet");
        let why = NameError::Key.to_string();
        assert!(why.contains("WEFT_KEY") && why.contains("the key file ("), "{why}");
        assert!(!one.windows(2).any(|part| part == [0x5a; 2]));
        // The version stands above the key: another version has other keys.
        other[VERSION_AT] += 1;
        assert_eq!(decode_with(&other, own), Err(NameError::Version(version() + 1)));
    }

    #[test]
    fn decode__another_version_is_an_error() {
        let mut other = encode(&address(1));
        other[VERSION_AT] = version() + 1;
        assert_eq!(decode(&other), Err(NameError::Version(version() + 1)));
        // In names without a version the last byte is 0.
        assert_eq!(decode(&[0; LEN]), Err(NameError::Version(0)));
    }
}

//! The address of an endpoint: all data that a peer needs to reach the endpoint over any link.
//!
//! Encoding, little-endian: version u8 (5), flags u8 (bit 0: `sim` follows, bit 1: `rank` follows,
//! bits 2 and 3: protection of frames, 0 not said, 1 auth, 2 encrypt, 3 none, bits 4 to 6: `port`,
//! `agent` and `moves` follow), number of IP addresses u8, number of Ethernet interfaces u8,
//! endpoint u64, host u64, shm u64, then `sim` u32, `rank` u32, `port` u32, `moves` u32 and `agent`
//! u64 if flagged, then each
//! IP address as family u8 (4 or 6), carriers u8 (0: UDP, 1: UDP and TCP, 2: TCP), port of the UDP
//! socket u16 (0 without one), 4 or 16 address bytes and, for family 6, the scope u32, then each
//! Ethernet interface as in [`EtherAddr`]. `port` is that of the TCP sockets, the same for all
//! addresses. Every address has exactly one encoding; anything else is refused.

use crate::ether::EtherAddr;
use crate::mode::Mode;
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
    /// TCP sockets that take connections, best first; all have one port.
    pub tcp: Vec<SocketAddr>,
    /// Ethernet interfaces, best first.
    pub ether: Vec<EtherAddr>,
    /// Address in the simulated network, if the endpoint is simulated.
    pub sim: Option<u32>,
    /// Number of the process in its job, if it has one.
    pub rank: Option<u32>,
    /// The protection of its frames on networks, if it has links to a network. Endpoints of
    /// different protection cannot understand each other there.
    pub security: Option<Mode>,
    /// Identity of the agent at which the endpoint is registered: two endpoints with the same one
    /// run on one host, and the agent can join them over shared memory.
    pub agent: Option<u64>,
    /// The endpoint's moves between hosts: it only grows. Odd, `2n - 1`: the endpoint holds, since
    /// move `n` begins. Even, `2n`: it goes on at this address after move `n`, which may have
    /// failed. 0 of an endpoint that never moved.
    pub moves: u32,
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

/// Version of the encoding.
pub const VERSION: u8 = 5;
const FLAG_SIM: u8 = 1;
const FLAG_RANK: u8 = 2;
const FLAG_PORT: u8 = 16;
/// The position of the two bits of the protection, and the protection of each value from 1.
const SECURITY_AT: u32 = 2;
const SECURITY: u8 = 3 << SECURITY_AT;
const MODES: [Mode; 3] = [Mode::Auth, Mode::Encrypt, Mode::None];
const FLAG_AGENT: u8 = 32;
const FLAG_MOVES: u8 = 64;
const FIXED: usize = 28;
/// The carriers that reach an IP address.
const UDP: u8 = 0;
const UDP_AND_TCP: u8 = 1;
const TCP: u8 = 2;

impl Address {
    /// Length of the longest encoding, in bytes.
    pub const MAX: usize = 236;

    /// Highest number of IP addresses in an encoding, of both families together.
    pub const MAX_IP: usize = 5;

    /// Highest number of Ethernet interfaces in an encoding.
    pub const MAX_ETHER: usize = 4;

    /// Encodes the address for [`Address::decode`], in at most [`Address::MAX`] bytes. The encoding
    /// holds only the first [`Address::MAX_IP`] IP addresses and [`Address::MAX_ETHER`] Ethernet
    /// interfaces (the lists are best first), and the TCP sockets that have the port of the first.
    pub fn encode(&self) -> Vec<u8> {
        let ips = self.ips();
        let ether = &self.ether[..self.ether.len().min(Address::MAX_ETHER)];
        let tcp = ips.iter().any(|ip| ip.carriers != UDP);
        let port = self.tcp.first().filter(|_| tcp).map(|first| u32::from(first.port()));
        let mut out = Vec::with_capacity(Address::MAX);
        let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
        let flags = flag(self.sim.is_some(), FLAG_SIM)
            | flag(self.rank.is_some(), FLAG_RANK)
            | flag(port.is_some(), FLAG_PORT)
            | flag(self.agent.is_some(), FLAG_AGENT)
            | flag(self.moves != 0, FLAG_MOVES);
        let mode = self.security.and_then(|mode| MODES.iter().position(|m| *m == mode));
        let flags = flags | mode.map_or(0, |at| (at as u8 + 1) << SECURITY_AT);
        out.extend_from_slice(&[VERSION, flags, ips.len() as u8, ether.len() as u8]);
        for field in [self.endpoint.0, self.host, self.shm] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        let moves = Some(self.moves).filter(|&moves| moves != 0);
        for number in [self.sim, self.rank, port, moves].into_iter().flatten() {
            out.extend_from_slice(&number.to_le_bytes());
        }
        self.agent.into_iter().for_each(|agent| out.extend_from_slice(&agent.to_le_bytes()));
        ips.iter().for_each(|ip| ip.encode(&mut out));
        ether.iter().for_each(|e| out.extend_from_slice(&e.encode()));
        debug_assert!(out.len() <= Address::MAX);
        out
    }

    /// Lists the IP addresses of both kinds of sockets, each once, and the carriers that reach it.
    fn ips(&self) -> Vec<Ip> {
        let port = self.tcp.first().map(SocketAddr::port);
        let tcp = || self.tcp.iter().filter(|t| Some(t.port()) == port && t.port() != 0);
        let has_tcp = |addr: &SocketAddr| tcp().any(|t| place(t) == place(addr));
        let mut ips: Vec<Ip> = Vec::new();
        for &addr in self.udp.iter().filter(|addr| addr.port() != 0) {
            let first = !ips.iter().any(|ip| place(&ip.addr) == place(&addr));
            let carriers = if first && has_tcp(&addr) { UDP_AND_TCP } else { UDP };
            ips.push(Ip { addr, carriers });
        }
        for &t in tcp() {
            let mut addr = t;
            addr.set_port(0);
            if !ips.iter().any(|ip| place(&ip.addr) == place(&addr)) {
                ips.push(Ip { addr, carriers: TCP });
            }
        }
        ips.truncate(Address::MAX_IP);
        ips
    }

    /// Decodes one address; its encoding must fill `bytes` exactly.
    pub fn decode(bytes: &[u8]) -> Result<Address, AddressError> {
        if bytes.len() < FIXED || bytes.len() > Address::MAX {
            return Err(AddressError::Length);
        }
        let mut rest = bytes;
        let [version, flags, ips, interfaces] = take::<4>(&mut rest)?;
        if version != VERSION {
            return Err(AddressError::Version(version));
        }
        let crowded =
            usize::from(ips) > Address::MAX_IP || usize::from(interfaces) > Address::MAX_ETHER;
        let known = FLAG_SIM | FLAG_RANK | SECURITY | FLAG_PORT | FLAG_AGENT | FLAG_MOVES;
        if flags & !known != 0 || crowded {
            return Err(AddressError::Invalid);
        }
        let mut address = Address {
            endpoint: EndpointId(u64::from_le_bytes(take(&mut rest)?)),
            host: u64::from_le_bytes(take(&mut rest)?),
            shm: u64::from_le_bytes(take(&mut rest)?),
            security: usize::from((flags & SECURITY) >> SECURITY_AT)
                .checked_sub(1)
                .map(|at| MODES[at]),
            ..Address::default()
        };
        let mut number = |flag| match flags & flag {
            0 => Ok(None),
            _ => take(&mut rest).map(|bytes| Some(u32::from_le_bytes(bytes))),
        };
        (address.sim, address.rank) = (number(FLAG_SIM)?, number(FLAG_RANK)?);
        let port = number(FLAG_PORT)?;
        if let Some(moves) = number(FLAG_MOVES)? {
            // Without moves the flag is not set.
            address.moves = Some(moves).filter(|&n| n != 0).ok_or(AddressError::Invalid)?;
        }
        if flags & FLAG_AGENT != 0 {
            address.agent = Some(u64::from_le_bytes(take(&mut rest)?));
        }
        address.decode_ips(usize::from(ips), port, &mut rest)?;
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

    /// Decodes the list of IP addresses. Refuses what [`encode`](Self::encode) never writes.
    fn decode_ips(
        &mut self,
        count: usize,
        port: Option<u32>,
        rest: &mut &[u8],
    ) -> Result<(), AddressError> {
        let mut both = 0;
        for _ in 0..count {
            let Ip { addr, carriers } = Ip::decode(rest)?;
            if carriers != TCP {
                // Addresses without UDP stand last.
                if self.tcp.len() > both {
                    return Err(AddressError::Invalid);
                }
                both += usize::from(carriers == UDP_AND_TCP);
                self.udp.push(addr);
            }
            if carriers != UDP {
                let port = port.and_then(|port| u16::try_from(port).ok()).filter(|&port| port > 0);
                let port = port.ok_or(AddressError::Invalid)?;
                let twice = self.tcp.iter().any(|t| place(t) == place(&addr));
                let mut tcp = addr;
                tcp.set_port(port);
                self.tcp.push(tcp);
                let udp_too = self.udp.iter().filter(|u| place(u) == place(&addr)).count();
                if twice || udp_too != usize::from(carriers == UDP_AND_TCP) {
                    return Err(AddressError::Invalid);
                }
            }
        }
        match port {
            Some(_) if self.tcp.is_empty() => Err(AddressError::Invalid),
            _ => Ok(()),
        }
    }
}

/// Returns an address without its port.
fn place(addr: &SocketAddr) -> (IpAddr, u32) {
    let scope = match addr {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    };
    (addr.ip(), scope)
}

/// An entry of the list of IP addresses: the address with the port of the UDP socket, and the
/// carriers that reach it.
struct Ip {
    addr: SocketAddr,
    carriers: u8,
}

impl Ip {
    fn encode(&self, out: &mut Vec<u8>) {
        let family = if self.addr.is_ipv4() { 4 } else { 6 };
        out.extend_from_slice(&[family, self.carriers]);
        out.extend_from_slice(&self.addr.port().to_le_bytes());
        match &self.addr {
            SocketAddr::V4(v4) => out.extend_from_slice(&v4.ip().octets()),
            SocketAddr::V6(v6) => {
                out.extend_from_slice(&v6.ip().octets());
                out.extend_from_slice(&v6.scope_id().to_le_bytes());
            }
        }
    }

    fn decode(rest: &mut &[u8]) -> Result<Ip, AddressError> {
        let [family, carriers] = take::<2>(rest)?;
        let port = u16::from_le_bytes(take(rest)?);
        if carriers > TCP || (carriers == TCP) != (port == 0) {
            return Err(AddressError::Invalid);
        }
        let addr = match family {
            4 => SocketAddr::new(IpAddr::V4(Ipv4Addr::from(take::<4>(rest)?)), port),
            6 => {
                let ip = Ipv6Addr::from(take::<16>(rest)?);
                let scope = u32::from_le_bytes(take(rest)?);
                SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope))
            }
            _ => return Err(AddressError::Invalid),
        };
        Ok(Ip { addr, carriers })
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
        if let Some(agent) = self.agent {
            write!(f, " agent {agent:016x}")?;
        }
        for socket in &self.udp {
            write!(f, " udp {socket}")?;
        }
        for socket in &self.tcp {
            write!(f, " tcp {socket}")?;
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
            tcp: vec!["10.0.0.1:4001".parse().unwrap(), "10.0.0.2:4001".parse().unwrap()],
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
            agent: Some(11),
            moves: 12,
        }
    }

    #[test]
    fn decode__round_trips() {
        for address in [
            sample(),
            Address::default(),
            Address { sim: None, ..sample() },
            Address { rank: None, ..sample() },
            Address { tcp: Vec::new(), ..sample() },
            Address { udp: Vec::new(), ..sample() },
            Address { security: None, ..sample() },
            Address { security: Some(Mode::None), ..sample() },
            Address { agent: None, ..sample() },
            Address { moves: 0, ..sample() },
        ] {
            assert_eq!(Address::decode(&address.encode()), Ok(address));
        }
    }

    #[test]
    fn encode__lays_fields_out_as_the_protocol_says() {
        let wanted: [&[u8]; 17] = [
            &[5, 123, 3, 1],
            &0x0102_0304_0506_0708_u64.to_le_bytes(),
            &9u64.to_le_bytes(),
            &10u64.to_le_bytes(),
            &77u32.to_le_bytes(),
            &5u32.to_le_bytes(),
            &4001u32.to_le_bytes(),
            &12u32.to_le_bytes(),
            &11u64.to_le_bytes(),
            &[4, 1, 0xa0, 0x0f, 10, 0, 0, 1],
            &[6, 0, 5, 0],
            &Ipv6Addr::LOCALHOST.octets(),
            &3u32.to_le_bytes(),
            &[4, 2, 0, 0, 10, 0, 0, 2],
            &[2, 0, 0, 0, 0, 9],
            &[3, 0, 5, 0, 0xdc, 0x05],
            &0x0102_0304_u32.to_le_bytes(),
        ];
        assert_eq!(sample().encode(), wanted.concat());
    }

    #[test]
    fn encode__is_bounded_and_keeps_the_best_sockets() {
        let v6 = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 1);
        let udp: Vec<_> = (1..40).map(|i| SocketAddr::new(v6.ip(), i)).collect();
        let tcp = vec![v6];
        let ether: Vec<_> = (0..9).map(|slot| EtherAddr { slot, ..sample().ether[0] }).collect();
        let bytes = Address { udp: udp.clone(), tcp, ether: ether.clone(), ..sample() }.encode();
        assert_eq!(bytes.len(), Address::MAX);
        let back = Address::decode(&bytes).unwrap();
        assert_eq!(back.udp, udp[..Address::MAX_IP]);
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
        for part in [
            "0102030405060708",
            "rank 5",
            "shm",
            "udp 10.0.0.1:4000",
            "tcp 10.0.0.2:4001",
            "packet 02:",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}

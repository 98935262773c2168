//! The address of an endpoint on one Ethernet interface.

use std::fmt;

/// A MAC address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// True if an interface can have this address: neither zero nor a group address.
    pub fn is_station(self) -> bool {
        self != Mac::default() && self.0[0] & 1 == 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// One interface of an endpoint, as part of its [`Address`](crate::Address).
///
/// Encoding, little-endian, 16 bytes: mac 6, slot u16, train u16, mtu u16, net u32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EtherAddr {
    /// The interface.
    pub mac: Mac,
    /// Number of the endpoint on the interface, as in the shim of a frame; [`EtherAddr::NONE`] if
    /// it takes no frames. The bit [`EtherAddr::XDP`] is set for the XDP link and clear for the
    /// packet link, so the two never share a number. In the XDP link, [`EtherAddr::STAND_IN`] marks
    /// packet sockets. The receiving link assigns the other bits.
    pub slot: u16,
    /// Number of the endpoint for trains, which the gso link receives; coded as `slot` is.
    pub train: u16,
    /// Largest Ethernet payload of the interface, bytes; Ethernet has no other method to announce
    /// it.
    pub mtu: u16,
    /// Hash of the attached IP network ([`network_hint`](crate::ether::network_hint)), zero without
    /// one. Interfaces with different hints are assumed to be on different networks.
    pub net: u32,
}

impl EtherAddr {
    /// Bytes of the encoding.
    pub const LEN: usize = 16;
    /// The number that no endpoint has.
    pub const NONE: u16 = 0xffff;
    /// Bit of `slot`: an AF_XDP socket.
    pub const XDP: u16 = 0x8000;
    /// Bits of `slot`, [`EtherAddr::XDP`] included: an endpoint of the XDP link that has no queue
    /// of its own. The XDP program passes its frames on, and a packet socket receives them.
    pub const STAND_IN: u16 = 0xc000;

    /// True if the XDP link receives at this address.
    pub fn is_xdp(&self) -> bool {
        self.slot != EtherAddr::NONE && self.slot & EtherAddr::XDP != 0
    }

    /// True if the packet link receives at this address.
    pub fn is_packet(&self) -> bool {
        self.slot & EtherAddr::XDP == 0
    }

    /// Returns the address of the gso link, with `train` in place of `slot`.
    pub fn of_trains(&self) -> Option<EtherAddr> {
        (self.train != EtherAddr::NONE).then_some(EtherAddr { slot: self.train, ..*self })
    }

    /// Encodes the address.
    pub fn encode(&self) -> [u8; EtherAddr::LEN] {
        let mut out = [0; EtherAddr::LEN];
        out[..6].copy_from_slice(&self.mac.0);
        out[6..8].copy_from_slice(&self.slot.to_le_bytes());
        out[8..10].copy_from_slice(&self.train.to_le_bytes());
        out[10..12].copy_from_slice(&self.mtu.to_le_bytes());
        out[12..].copy_from_slice(&self.net.to_le_bytes());
        out
    }

    /// Decodes an address; `None` if no interface can have that MAC address.
    pub fn decode(bytes: &[u8; EtherAddr::LEN]) -> Option<EtherAddr> {
        let [m0, m1, m2, m3, m4, m5, s0, s1, r0, r1, t0, t1, net @ ..] = *bytes;
        let mac = Mac([m0, m1, m2, m3, m4, m5]);
        mac.is_station().then_some(EtherAddr {
            mac,
            slot: u16::from_le_bytes([s0, s1]),
            train: u16::from_le_bytes([r0, r1]),
            mtu: u16::from_le_bytes([t0, t1]),
            net: u32::from_le_bytes(net),
        })
    }
}

impl fmt::Display for EtherAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EtherAddr { mac, slot, train, mtu, .. } = self;
        let kind = if self.is_xdp() { "xdp" } else { "packet" };
        write!(f, "{kind} {mac} slot {slot:#06x} train {train:#06x} mtu {mtu}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn decode__round_trips_and_refuses_group_addresses() {
        let (mac, train) = (Mac([2, 0, 0, 0, 0, 1]), 7);
        let one = EtherAddr { mac, slot: 0x8003, train, mtu: 9000, net: 0x0403_0201 };
        assert_eq!(EtherAddr::decode(&one.encode()), Some(one));
        assert_eq!(one.to_string(), "xdp 02:00:00:00:00:01 slot 0x8003 train 0x0007 mtu 9000");
        assert_eq!(one.of_trains().map(|e| e.slot), Some(7));
        let bare = EtherAddr { slot: EtherAddr::NONE, train: EtherAddr::NONE, ..one };
        assert!(!bare.is_xdp() && !bare.is_packet() && bare.of_trains().is_none());
        for mac in [Mac([0; 6]), Mac([0xff; 6]), Mac([1, 0, 0, 0, 0, 1])] {
            assert_eq!(EtherAddr::decode(&EtherAddr { mac, ..one }.encode()), None);
        }
    }
}

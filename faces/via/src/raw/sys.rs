//! Addresses in memory of a program, which say their own lengths.

use crate::address::{NetAddress, DISCRIMINATOR_MAX, HOST_LEN};
use crate::code::{Answer, Code};
use std::ffi::c_ulong;
use std::net::Ipv4Addr;
use weft_ffi::given::{List, Place};

/// Bytes before those of the host: the lengths of host and discriminator.
const HEAD: usize = 4;

/// `VIP_NET_ADDRESS *`: null, or an address at any alignment, or room for one. The bytes of the
/// host and those of the discriminator follow the lengths of both.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct RawAddress<'a>(Place<'a, u8>);

impl<'a> RawAddress<'a> {
    /// No address.
    pub const NONE: RawAddress<'a> = RawAddress(Place::NONE);

    /// Makes one of its bytes.
    ///
    /// # Safety
    /// The bytes have an address, or room for one, as the function asks that gets it.
    pub unsafe fn new(bytes: &'a mut [u8]) -> RawAddress<'a> {
        RawAddress(List::of(bytes).first())
    }

    /// True if there is none.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the first bytes.
    fn bytes(self, count: usize) -> List<'a, u8> {
        // SAFETY: the program has an address there, or room for one.
        unsafe { self.0.list(count) }
    }

    /// Reads the address. One without a host is of `own`.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: it is null, or its lengths are wrong.
    pub fn read(self, own: Ipv4Addr) -> Answer<NetAddress> {
        let Some(&[a, b, c, d]) = self.bytes(HEAD).read() else {
            return Err(Code::InvalidParameter);
        };
        let [host_len, len] = [[a, b], [c, d]].map(|of| usize::from(u16::from_ne_bytes(of)));
        if (host_len != HOST_LEN && host_len != 0) || len > DISCRIMINATOR_MAX {
            return Err(Code::InvalidParameter);
        }
        let all = self.bytes(HEAD + host_len + len).read().unwrap_or_default();
        let (host, discriminator) = all[HEAD..].split_at(host_len);
        let host = <[u8; HOST_LEN]>::try_from(host).map_or(own, Ipv4Addr::from);
        NetAddress::new(host, discriminator).ok_or(Code::InvalidParameter)
    }

    /// Stores an address, if there is room for it.
    pub fn offer(self, host: Ipv4Addr, discriminator: &[u8]) {
        let lens = [HOST_LEN, discriminator.len()].map(|len| (len as u16).to_ne_bytes());
        let bytes = [&lens.concat()[..], &host.octets(), discriminator].concat();
        self.bytes(bytes.len()).store(&bytes);
    }
}

/// `VIP_AUTODISCOVERY_LIST`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AutodiscoveryList<'a> {
    /// Steps that the search goes.
    hops: c_ulong,
    /// Places for addresses.
    addresses: Place<'a, RawAddress<'a>>,
    /// Number of places; afterwards, of addresses.
    count: c_ulong,
}

impl AutodiscoveryList<'_> {
    /// Stores as many addresses as there are places for, and their number; without places that of
    /// all.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: the list is not there.
    pub fn answer(at: Place<'_, Self>, hosts: &[Ipv4Addr]) -> Answer {
        let list = at.read().ok_or(Code::InvalidParameter)?;
        let most = hosts.len().min(list.count as usize);
        // SAFETY: the program has as many places as it says, or more.
        let places = unsafe { list.addresses.list(most) }.read().unwrap_or_default();
        places.iter().zip(hosts).for_each(|(place, host)| place.offer(*host, &[]));
        let found = if places.is_empty() { hosts.len() } else { places.len() };
        at.store(AutodiscoveryList { count: found as c_ulong, ..list });
        Ok(())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn read__gives_back_what_was_stored_at_any_alignment() {
        let own = Ipv4Addr::new(10, 0, 0, 1);
        for start in 0..4 {
            let mut bytes = [0xff; 100];
            // SAFETY: there is room for the longest address.
            let at = unsafe { RawAddress::new(&mut bytes[start..]) };
            assert_eq!(at.read(own), Err(Code::InvalidParameter));
            for discriminator in [&[7; DISCRIMINATOR_MAX][..], b"x", b""] {
                at.offer(own, discriminator);
                assert_eq!(at.read(own).ok(), NetAddress::new(own, discriminator));
            }
            assert_eq!(bytes[start..][4..10], [10, 0, 0, 1, b'x', 7]);
        }
        let mut bytes = [[0; 2], 1u16.to_ne_bytes(), [b'y'; 2]].concat();
        // SAFETY: an address without a host.
        let at = unsafe { RawAddress::new(&mut bytes) };
        assert_eq!(at.read(own).ok(), NetAddress::new(own, b"y"));
        assert_eq!(RawAddress::NONE.read(own), Err(Code::InvalidParameter));
        RawAddress::NONE.offer(own, b"");
    }

    #[test]
    fn answer__as_many_addresses_as_there_are_places() {
        let hosts = [1, 2, 3].map(|last| Ipv4Addr::new(10, 0, 0, last));
        let (mut first, mut second) = ([0; 8], [0; 8]);
        // SAFETY: there is room for addresses without a discriminator.
        let mut places = unsafe { [RawAddress::new(&mut first), RawAddress::new(&mut second)] };
        let addresses = List::of(&mut places).first();
        // No program has so many places: no more are used than there are hosts.
        let mut list = AutodiscoveryList { hops: 1, addresses, count: c_ulong::MAX };
        assert_eq!(AutodiscoveryList::answer(Place::of(&mut list), &hosts[1..]), Ok(()));
        assert_eq!(list.count, 2);
        let mut list = AutodiscoveryList { hops: 1, addresses, count: 2 };
        assert_eq!(AutodiscoveryList::answer(Place::of(&mut list), &hosts), Ok(()));
        assert_eq!((list.count, first[7], second[7]), (2, 1, 2));
        let mut list = AutodiscoveryList { hops: 1, addresses: Place::NONE, count: 9 };
        assert_eq!(AutodiscoveryList::answer(Place::of(&mut list), &hosts), Ok(()));
        assert_eq!(list.count, 3);
        let none = AutodiscoveryList::answer(Place::NONE, &hosts);
        assert_eq!(none, Err(Code::InvalidParameter));
    }
}

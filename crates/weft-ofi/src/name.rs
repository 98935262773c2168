//! Names of endpoints: what `fi_getname` gives and `fi_av_insert` takes.
//!
//! A name is a weft address in [`LEN`] bytes: MPICH assumes that all are of one length, of at most
//! 64 bytes. Byte 0 is the length of the encoded address that follows, the rest is zero. Where an
//! endpoint has more interfaces than fit, the best are named; the others become known with the
//! first packet, which carries the whole address.

use weft_link::Address;

/// Bytes of a name.
pub const LEN: usize = 64;

/// A name.
pub type Name = [u8; LEN];

/// The name of an endpoint.
pub fn encode(address: &Address) -> Name {
    let mut short = address.clone();
    let mut bytes = short.encode();
    while bytes.len() >= LEN {
        // At least one of each kind stays as long as there is something else to leave out.
        let udp = short.udp.len() > 1 || short.ether.is_empty();
        let left_out = if udp { short.udp.pop().is_some() } else { short.ether.pop().is_some() };
        debug_assert!(left_out, "the fixed part alone is shorter");
        bytes = short.encode();
    }
    let mut name = [0; LEN];
    name[0] = bytes.len() as u8;
    name[1..=bytes.len()].copy_from_slice(&bytes);
    name
}

/// The address in a name, or what is wrong with it.
///
/// # Errors
/// Says what the name is not, and that mixed versions are a cause.
pub fn decode(name: &[u8]) -> Result<Address, String> {
    let wrong = |why: &str| format!("not the name of a weft endpoint of this version: {why}");
    let (&len, rest) = name.split_first().ok_or_else(|| wrong("it is empty"))?;
    let bytes = rest.get(..usize::from(len)).ok_or_else(|| wrong("it is cut"))?;
    if rest[usize::from(len)..].iter().any(|&b| b != 0) {
        return Err(wrong("bytes follow it"));
    }
    Address::decode(bytes).map_err(|e| wrong(&e.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use weft_core::EndpointId;

    fn address(sockets: usize) -> Address {
        let socket = |i| format!("[fd00::{i}]:{}", 4000 + i).parse().unwrap();
        let udp = (0..sockets).map(socket).collect();
        Address { endpoint: EndpointId(7), host: 8, shm: 9, udp, ..Address::default() }
    }

    #[test]
    fn encode__what_fits_comes_back_whole() {
        let one = address(1);
        assert_eq!(decode(&encode(&one)), Ok(one));
    }

    #[test]
    fn encode__the_best_stay_where_not_all_fit() {
        let many = address(5);
        let back = decode(&encode(&many)).unwrap();
        assert_eq!((back.endpoint, back.host, back.shm), (many.endpoint, many.host, many.shm));
        assert!(!back.udp.is_empty());
        assert_eq!(back.udp, many.udp[..back.udp.len()]);
    }

    #[test]
    fn decode__refuses_what_is_no_name() {
        let good = encode(&address(1));
        let mut long = good;
        long[0] = 64;
        let mut trailing = good;
        trailing[LEN - 1] = 1;
        for bad in [&[][..], &[3, 1], &long, &trailing, &[0; LEN]] {
            assert!(decode(bad).unwrap_err().contains("this version"));
        }
    }
}

//! Names of endpoints: `fi_getname` returns them, `fi_av_insert` takes them.
//!
//! A name is a weft address in [`LEN`] bytes: MPICH assumes that all names have one length, of at
//! most 64 bytes. Byte 0 is the length of the encoded address that follows, the last byte the
//! version of the messages between providers. Before it stand two bytes of the key's public number,
//! which tell nothing about the key, so that processes with different keys learn of it before they
//! wait for each other. The rest is zero. Where an endpoint has more interfaces than fit, the name
//! has the best; the others become known with the first packet, which carries the whole address.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use weft_link::secure::JobKey;
use weft_link::Address;

/// Length of a name in bytes.
pub const LEN: usize = 64;

/// Offset of the version in a name.
const VERSION_AT: usize = LEN - 1;
/// Offset of the part of the key's public number.
const KEY_AT: usize = VERSION_AT - 2;

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
static VERSION: [u8; 17] = *b"weft-fi version \x04";

/// Returns this provider's version.
pub fn version() -> u8 {
    // Read at run time: a test may have changed the byte in the file.
    std::hint::black_box(&VERSION)[VERSION.len() - 1]
}

/// A name.
pub type Name = [u8; LEN];

/// Encodes the name of an endpoint.
pub fn encode(address: &Address) -> Name {
    let mut short = address.clone();
    let mut bytes = short.encode();
    while bytes.len() >= KEY_AT {
        // At least one address of each type stays while another can be left out.
        let ips = short.udp.len().max(short.tcp.len());
        let left_out = match ips > 1 || short.ether.is_empty() {
            true => leave_out_ip(&mut short),
            false => short.ether.pop().is_some(),
        };
        debug_assert!(left_out, "the fixed part alone is shorter");
        bytes = short.encode();
    }
    let mut name = [0; LEN];
    name[0] = bytes.len() as u8;
    name[1..=bytes.len()].copy_from_slice(&bytes);
    set_key(&mut name, KEY.load(Ordering::Relaxed));
    name[VERSION_AT] = version();
    name
}

fn set_key(name: &mut Name, key: u32) {
    name[KEY_AT..VERSION_AT].copy_from_slice(&(key as u16).to_le_bytes());
}

/// Removes the last IP address, with all its sockets.
fn leave_out_ip(address: &mut Address) -> bool {
    let udp = if address.udp.len() >= address.tcp.len() { address.udp.pop() } else { None };
    let gone = udp.or_else(|| address.tcp.last().copied());
    address.tcp.retain(|tcp| gone.is_none_or(|gone| gone.ip() != tcp.ip()));
    gone.is_some()
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
    let (&len, rest) = name.split_first().ok_or_else(|| wrong("it is empty"))?;
    let (&theirs, rest) = rest.split_last().ok_or_else(|| wrong("it is cut"))?;
    if name.len() != LEN {
        return Err(wrong("it is of another length"));
    }
    if theirs != version() {
        return Err(NameError::Version(theirs));
    }
    let (rest, key) = rest.split_last_chunk::<2>().ok_or_else(|| wrong("it is cut"))?;
    if own & KNOWN != 0 && own as u16 != u16::from_le_bytes(*key) {
        return Err(NameError::Key);
    }
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
        trailing[KEY_AT - 1] = 1;
        let mut empty = [0; LEN];
        empty[VERSION_AT] = version();
        for bad in [&[][..], &[3], &[3, 1], &long, &trailing, &empty] {
            assert!(decode(bad).unwrap_err().to_string().contains("this version"));
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

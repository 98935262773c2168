//! Values as bytes: little-endian, without alignment.

use crate::id::{HostId, Life};
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Name and place of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// Offset from the start of the message or item.
    pub offset: usize,
    /// Length in bytes.
    pub size: usize,
    /// Name as in `PROTOCOL.md`.
    pub name: &'static str,
}

/// The reason why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// The message ends before its fields or its list do.
    Short,
    /// The message goes on behind its list.
    Long,
    /// The message is of another protocol version.
    Version {
        /// The version found.
        found: u8,
    },
    /// Its type is unknown.
    Type {
        /// The type found.
        found: u8,
    },
    /// A reserved field is not zero.
    Reserved,
    /// A field has a value outside its domain.
    Value {
        /// The field.
        name: &'static str,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Short => f.write_str("the message is too short"),
            WireError::Long => f.write_str("bytes follow the end of the message"),
            WireError::Version { found } => {
                write!(f, "the message has version {found}, not {}", super::VERSION)
            }
            WireError::Type { found } => write!(f, "messages of type {found} are unknown"),
            WireError::Reserved => f.write_str("a reserved field is not zero"),
            WireError::Value { name } => write!(f, "the field {name} has a value it cannot have"),
        }
    }
}

impl core::error::Error for WireError {}

/// Declares a struct of values once: its fields, their places, reading and writing.
macro_rules! layout {
    ($(#[$doc:meta])* $name:ident { $( $(#[$about:meta])* $field:ident: $kind:ty, )* }
     pad $pad:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { $( $(#[$about])* pub $field: $kind, )* }

        impl $name {
            /// Its fields.
            pub const FIELDS: &'static [$crate::wire::FieldInfo] = &{
                let mut end = 0;
                [$( {
                    let size = <$kind as $crate::wire::Value>::SIZE;
                    end += size;
                    $crate::wire::FieldInfo { offset: end - size, size, name: stringify!($field) }
                }, )*]
            };
        }

        impl $crate::wire::Value for $name {
            const SIZE: usize = 0 $( + <$kind as $crate::wire::Value>::SIZE )* + $pad;
            fn read(from: &mut $crate::wire::Reader<'_>) -> Result<$name, $crate::wire::WireError> {
                let value = $name { $( $field: from.value()?, )* };
                from.pad($pad)?;
                value.check()
            }
            fn write(&self, to: &mut $crate::wire::Writer) {
                $( to.value(&self.$field); )*
                to.bytes(&[0; $pad]);
            }
        }
    };
}

/// Takes values from the front of a message.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Takes `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(WireError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes a value.
    pub fn value<T: Value>(&mut self) -> Result<T, WireError> {
        T::read(self)
    }

    /// Takes `n` reserved bytes.
    pub fn pad(&mut self, n: usize) -> Result<(), WireError> {
        match self.bytes(n)?.iter().all(|b| *b == 0) {
            true => Ok(()),
            false => Err(WireError::Reserved),
        }
    }
}

/// Adds values to the end of a message.
#[derive(Clone, Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Adds a value.
    pub fn value<T: Value>(&mut self, value: &T) {
        value.write(self);
    }

    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// A value that has a form in bytes.
pub trait Value: Sized + Clone + PartialEq + fmt::Debug {
    /// Length in bytes; of values of several lengths, the least.
    const SIZE: usize;
    /// Takes it from the front of a message, checked.
    fn read(from: &mut Reader<'_>) -> Result<Self, WireError>;
    /// Adds it to the end of a message.
    fn write(&self, to: &mut Writer);
}

macro_rules! numbers {
    ($($kind:ty),*) => { $(
        impl Value for $kind {
            const SIZE: usize = core::mem::size_of::<$kind>();
            fn read(from: &mut Reader<'_>) -> Result<$kind, WireError> {
                const LEN: usize = core::mem::size_of::<$kind>();
                let mut number = [0; LEN];
                number.copy_from_slice(from.bytes(LEN)?);
                Ok(<$kind>::from_le_bytes(number))
            }
            fn write(&self, to: &mut Writer) {
                to.bytes(&self.to_le_bytes());
            }
        }
    )* };
}

numbers!(u8, u16, u32, u64);

impl Value for HostId {
    const SIZE: usize = 8;
    fn read(from: &mut Reader<'_>) -> Result<HostId, WireError> {
        from.value().map(HostId)
    }
    fn write(&self, to: &mut Writer) {
        to.value(&self.0);
    }
}

impl Value for Life {
    const SIZE: usize = 16;
    fn read(from: &mut Reader<'_>) -> Result<Life, WireError> {
        let life = Life { incarnation: from.value()?, nonce: from.value()? };
        match life.incarnation <= Life::INCARNATION_MAX {
            true => Ok(life),
            false => Err(WireError::Value { name: "incarnation" }),
        }
    }
    fn write(&self, to: &mut Writer) {
        to.value(&self.incarnation);
        to.value(&self.nonce);
    }
}

impl Value for SocketAddr {
    const SIZE: usize = 18;
    fn read(from: &mut Reader<'_>) -> Result<SocketAddr, WireError> {
        let mut octets = [0; 16];
        octets.copy_from_slice(from.bytes(16)?);
        let ip = Ipv6Addr::from(octets);
        let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
        Ok(SocketAddr::new(ip, from.value()?))
    }
    fn write(&self, to: &mut Writer) {
        let ip = match self.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        to.bytes(&ip.octets());
        to.value(&self.port());
    }
}

/// The list of a message: items to be sent, or those of a datagram, all checked.
pub enum List<'a, T> {
    /// Items to be sent.
    Items(&'a [T]),
    /// Items of a datagram.
    Bytes(CheckedBytes<'a, T>),
}

impl<T> Clone for List<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for List<'_, T> {}

/// The bytes of a list, every item of which was read once without an error.
pub struct CheckedBytes<'a, T> {
    bytes: &'a [u8],
    count: usize,
    items: PhantomData<T>,
}

impl<T> Clone for CheckedBytes<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for CheckedBytes<'_, T> {}

impl<'a, T: Value> List<'a, T> {
    /// Checks `count` items, which must end where `bytes` end.
    pub fn check(bytes: &'a [u8], count: usize) -> Result<List<'a, T>, WireError> {
        let mut rest = Reader(bytes);
        for _ in 0..count {
            rest.value::<T>()?;
        }
        match rest.0.is_empty() {
            true => Ok(List::Bytes(CheckedBytes { bytes, count, items: PhantomData })),
            false => Err(WireError::Long),
        }
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        match self {
            List::Items(items) => items.len(),
            List::Bytes(checked) => checked.count,
        }
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the items, in order.
    pub fn iter(&self) -> ListIter<'a, T> {
        match self {
            List::Items(items) => ListIter::Items(items.iter()),
            List::Bytes(checked) => ListIter::Bytes(Reader(checked.bytes), checked.count),
        }
    }
}

impl<T: Value> PartialEq for List<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<T: Value> fmt::Debug for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Iterator of a [`List`].
pub enum ListIter<'a, T> {
    /// Over items to be sent.
    Items(core::slice::Iter<'a, T>),
    /// Over those of a datagram; the number is that of those left.
    Bytes(Reader<'a>, usize),
}

impl<T: Value> Iterator for ListIter<'_, T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        match self {
            ListIter::Items(items) => items.next().cloned(),
            ListIter::Bytes(rest, left) => {
                *left = left.checked_sub(1)?;
                rest.value().ok()
            }
        }
    }
}

//! The types of messages.

use super::{Change, Entry, FieldInfo, Have, List, Nothing, Publication};
use super::{Reader, Value, WireError, Writer};
use crate::id::{HostId, Life};
use crate::membership::Record;
use alloc::vec::Vec;
use core::fmt;

/// Version of the messages: byte 0 of each.
pub const VERSION: u8 = 1;
/// Length of the head in bytes.
pub const HEAD_LEN: usize = 32;

/// The sender of a message, and the way of the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The number of hosts behind the receiver on the ring that get it from the receiver.
    pub relay: u16,
    /// The host that sent it.
    pub host: HostId,
    /// The life of its agent.
    pub life: Life,
}

impl Head {
    /// Its fields.
    pub const FIELDS: &'static [FieldInfo] = &[
        FieldInfo { offset: 0, size: 1, name: "version" },
        FieldInfo { offset: 1, size: 1, name: "type" },
        FieldInfo { offset: 2, size: 2, name: "relay" },
        FieldInfo { offset: 4, size: 2, name: "count" },
        FieldInfo { offset: 6, size: 2, name: "pad" },
        FieldInfo { offset: 8, size: 8, name: "host" },
        FieldInfo { offset: 16, size: 16, name: "life" },
    ];
}

macro_rules! messages {
    ($( $(#[$doc:meta])* $name:ident = $number:literal, $text:literal,
        { $( $(#[$about:meta])* $field:ident: $kind:ty, )* } [$item:ty]; )*) => {
        /// Type of a message: byte 1.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum MessageType { $( $(#[$doc])* $name = $number, )* }

        impl MessageType {
            /// Every type, in order of number.
            pub const ALL: &'static [MessageType] = &[$( MessageType::$name, )*];

            /// Returns the name as in `PROTOCOL.md`.
            pub const fn name(self) -> &'static str {
                match self { $( MessageType::$name => $text, )* }
            }

            /// Returns the fixed fields, behind the head.
            pub const fn fields(self) -> &'static [FieldInfo] {
                match self { $( MessageType::$name => $name::FIELDS, )* }
            }

            /// Returns the length without the list, head included.
            pub const fn fixed_len(self) -> usize {
                match self { $( MessageType::$name => $name::LEN, )* }
            }
        }

        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq)]
            pub struct $name<'a> {
                $( $(#[$about])* pub $field: $kind, )*
                /// The list.
                pub items: List<'a, $item>,
            }

            impl $name<'_> {
                /// The fixed fields, behind the head.
                pub const FIELDS: &'static [FieldInfo] = {
                    #[allow(unused_mut)]
                    let mut _end = HEAD_LEN;
                    &[$( {
                        let size = <$kind as Value>::SIZE;
                        _end += size;
                        FieldInfo { offset: _end - size, size, name: stringify!($field) }
                    }, )*]
                };
                /// Length without the list, head included.
                pub const LEN: usize = HEAD_LEN $( + <$kind as Value>::SIZE )*;
            }
        )*

        /// A message behind its head.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Message<'a> { $( $(#[$doc])* $name($name<'a>), )* }

        impl<'a> Message<'a> {
            /// Returns its type.
            pub const fn message_type(&self) -> MessageType {
                match self { $( Message::$name(_) => MessageType::$name, )* }
            }

            fn count(&self) -> usize {
                match self { $( Message::$name(m) => m.items.len(), )* }
            }

            fn write(&self, to: &mut Writer) {
                match self { $( Message::$name(m) => {
                    $( to.value(&m.$field); )*
                    m.items.iter().for_each(|item| to.value(&item));
                } )* }
            }

            fn read(kind: u8, count: usize, from: &mut Reader<'a>)
                -> Result<Message<'a>, WireError>
            {
                Ok(match kind {
                    $( $number => Message::$name($name {
                        $( $field: from.value()?, )*
                        items: List::check(from.0, count)?,
                    }), )*
                    found => return Err(WireError::Type { found }),
                })
            }
        }
    };
}

messages! {
    /// Asks an address for the cluster. Its only item is the sender's record.
    Join = 1, "JOIN", {
        /// Digest of all that the sender knows.
        digest: u64,
    } [Record];
    /// Answers JOIN: the sender's record, then, if it has one, its record of the receiver.
    Welcome = 2, "WELCOME", {
        /// Digest of all that the sender knows.
        digest: u64,
    } [Record];
    /// Asks a watched host for a sign of life.
    Probe = 3, "PROBE", {
        /// Number of the probe.
        serial: u64,
        /// Digest of all that the sender knows.
        digest: u64,
    } [Nothing];
    /// Answers PROBE.
    Pulse = 4, "PULSE", {
        /// Number of the probe.
        serial: u64,
        /// Digest of all that the sender knows.
        digest: u64,
    } [Nothing];
    /// Steps of the histories of hosts.
    Members = 5, "MEMBERS", {} [Record];
    /// Numbered changes of a host's names, without a gap.
    Ops = 6, "OPS", {
        /// The host.
        origin: HostId,
        /// The life in which the changes are numbered.
        origin_life: Life,
        /// Number of the first.
        first: u64,
    } [Change];
    /// The digests of all buckets.
    Sync = 7, "SYNC", {} [u64];
    /// All that the sender knows of the hosts between two places of the ring.
    Summary = 8, "SUMMARY", {
        /// The first place.
        lo: u64,
        /// The last place.
        hi: u64,
    } [Entry];
    /// Asks for changes or snapshots.
    Want = 9, "WANT", {} [Have];
    /// All claims of a host with numbers in a range.
    Snapshot = 10, "SNAPSHOT", {
        /// The host.
        origin: HostId,
        /// The life in which the claims are numbered.
        origin_life: Life,
        /// The changes that the snapshot contains.
        head: u64,
        /// The range begins behind this claim.
        after: u64,
        /// The range ends with this claim.
        upto: u64,
    } [Publication];
    /// Says that a host is silent, and asks another of its watchers.
    Suspect = 11, "SUSPECT", {
        /// The host.
        suspect: HostId,
        /// The life of it that is silent.
        suspect_life: Life,
    } [Nothing];
    /// Answers SUSPECT: the sender has heard the host.
    Vouch = 12, "VOUCH", {
        /// The host.
        suspect: HostId,
        /// The life that was heard.
        suspect_life: Life,
    } [Nothing];
    /// Asks the arbiter of a type for a unique name.
    Ask = 13, "ASK", {
        /// The asker's number of the claim.
        claim: u64,
        /// Type of the name.
        kind: u32,
        /// Its first instance.
        lower: u32,
        /// Its last instance.
        upper: u32,
    } [Nothing];
    /// Answers ASK.
    Answer = 14, "ANSWER", {
        /// The asker's number of the claim.
        claim: u64,
        /// The owner's host, if there is one.
        holder: HostId,
        /// See the verdicts.
        verdict: u32,
    } [Nothing];
    /// Evicts a slow member of its group: ends its claim.
    Evict = 15, "EVICT", {
        /// The claim, on the receiver.
        claim: u64,
        /// The life of the receiver that numbered it.
        claim_life: Life,
        /// The user who puts it out.
        user: u32,
    } [Nothing];
}

impl fmt::Display for MessageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} items", self.message_type(), self.count())
    }
}

/// Encodes a message. A list has at most 65,535 items.
pub fn emit(head: &Head, message: &Message<'_>) -> Vec<u8> {
    let mut to = Writer::default();
    to.bytes(&[VERSION, message.message_type() as u8]);
    to.value(&head.relay);
    to.value(&(message.count() as u16));
    to.value(&0u16);
    to.value(&head.host);
    to.value(&head.life);
    message.write(&mut to);
    to.0
}

/// Decodes a message, and checks all of it.
pub fn parse(bytes: &[u8]) -> Result<(Head, Message<'_>), WireError> {
    let mut from = Reader(bytes);
    let (version, kind) = (from.value::<u8>()?, from.value::<u8>()?);
    if version != VERSION {
        return Err(WireError::Version { found: version });
    }
    let (relay, count) = (from.value()?, from.value::<u16>()?);
    from.pad(2)?;
    let head = Head { relay, host: from.value()?, life: from.value()? };
    let message = Message::read(kind, usize::from(count), &mut from)?;
    Ok((head, message))
}

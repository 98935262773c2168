//! Whoever adds to counters in another host's kernel.

use super::program::{
    ADD, ANSWER, CLIENT, COUNTER, KIND, LAST, LEN, NUMBER, REPLY, TAG, TAGGED, VALUE, VERSION,
    VERSION_NOW,
};
use super::{SipKey, SLOT};
use crate::ether::{EtherHead, EtherType, Interface, Mac};
use crate::packet::BarePacket;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// Bytes of the ring for answers: there is one at a time.
const RING: usize = 64 << 10;
/// Shortest frame on Ethernet, without check sum.
const FRAME: usize = 60;
/// A request without an answer for so long is sent again.
const AGAIN: Duration = Duration::from_millis(2);

/// Why nothing was added, or nobody knows whether it was.
#[derive(Debug)]
pub enum CounterError {
    /// No answer within this time: added, or not.
    Timeout(Duration),
    /// The kernel's.
    System(io::Error),
}

impl fmt::Display for CounterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CounterError::Timeout(after) => write!(
                f,
                "no answer from the kernel's counters within {after:?}: is the program attached \
                 there, and is there such a counter?"
            ),
            CounterError::System(e) => write!(f, "kernel counters: {e}"),
        }
    }
}

impl std::error::Error for CounterError {}

impl From<io::Error> for CounterError {
    fn from(e: io::Error) -> CounterError {
        CounterError::System(e)
    }
}

/// A client of the counters of one host. It spins for its answers.
pub struct CounterClient {
    socket: BarePacket,
    key: SipKey,
    request: [u8; FRAME],
    /// Number of the last request.
    number: u64,
}

impl CounterClient {
    /// Client number `client` (below [`CLIENTS`](super::CLIENTS), of no other at that host) of the
    /// counters behind the address `server`, from an interface on the same wire, under their key.
    /// Answers carry the slot `reply`, which no link of this interface has. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// The kernel's, or no answer within `timeout`.
    pub fn open(
        interface: &Interface,
        kind: EtherType,
        server: Mac,
        (client, reply): (u16, u16),
        key: SipKey,
        timeout: Duration,
    ) -> Result<CounterClient, CounterError> {
        let head = EtherHead {
            dst: server,
            src: interface.mac,
            kind,
            slot: SLOT,
            len: (LEN - EtherHead::LEN) as u16,
        };
        let mut request = [0; FRAME];
        request[..EtherHead::LEN].copy_from_slice(&head.encode());
        request[VERSION] = VERSION_NOW;
        request[CLIENT..CLIENT + 2].copy_from_slice(&client.to_le_bytes());
        request[REPLY..REPLY + 2].copy_from_slice(&reply.to_le_bytes());
        let socket = BarePacket::open(interface, kind, RING)?;
        let mut client = CounterClient { socket, key, request, number: 0 };
        client.number = client.ask(LAST, 0, 0, timeout)?;
        Ok(client)
    }

    /// Adds `n` to a counter; its value before. Added once, however often the request is lost or
    /// repeated on the way.
    ///
    /// # Errors
    /// No answer within `timeout`, or the kernel's.
    pub fn fetch_add(
        &mut self,
        counter: u32,
        n: u64,
        timeout: Duration,
    ) -> Result<u64, CounterError> {
        self.number += 1;
        self.ask(ADD, counter, n, timeout)
    }

    fn ask(
        &mut self,
        kind: u8,
        counter: u32,
        value: u64,
        timeout: Duration,
    ) -> Result<u64, CounterError> {
        self.request[KIND] = kind;
        self.request[COUNTER..COUNTER + 4].copy_from_slice(&counter.to_le_bytes());
        self.request[NUMBER..NUMBER + 8].copy_from_slice(&self.number.to_le_bytes());
        self.request[VALUE..VALUE + 8].copy_from_slice(&value.to_le_bytes());
        let tag = self.key.hash(&[&self.request[TAGGED..TAG]]);
        self.request[TAG..LEN].copy_from_slice(&tag.to_le_bytes());
        let start = Instant::now();
        let mut tries = 0;
        loop {
            let waited = start.elapsed();
            if waited >= timeout {
                return Err(CounterError::Timeout(timeout));
            }
            if waited >= AGAIN * tries {
                tries += 1;
                match self.socket.send(&self.request) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    sent => sent?,
                }
            }
            for _ in 0..64 {
                if let Some(value) = self.answer() {
                    return Ok(value);
                }
                std::hint::spin_loop();
            }
        }
    }

    /// The answer to this request, if the next frame is that.
    fn answer(&mut self) -> Option<u64> {
        let mut frame = [0; FRAME];
        let len = self.socket.take_into(&mut frame)?;
        let same = |from: usize, to: usize| frame[from..to] == self.request[from..to];
        let ours = len >= LEN
            && frame[KIND] == ANSWER
            && frame[..6] == self.request[6..12]
            && frame[6..12] == self.request[..6]
            && frame[EtherHead::SLOT..EtherHead::SLOT + 2] == self.request[REPLY..REPLY + 2]
            && same(VERSION, KIND)
            && same(CLIENT, VALUE)
            && frame[TAG..LEN] == self.key.hash(&[&frame[TAGGED..TAG]]).to_le_bytes();
        let value = frame[VALUE..VALUE + 8].try_into().map(u64::from_le_bytes);
        value.ok().filter(|_| ours)
    }
}

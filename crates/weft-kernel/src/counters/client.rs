//! A client that adds to counters in another host's kernel.

use super::request::{Request, ADD, LAST, LEN};
use super::SipKey;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};
use weft_link::ports::Ports;

/// Time without an answer after which a request is retransmitted (doubled each time), and its
/// maximum.
const RETRANSMIT_AFTER: Duration = Duration::from_millis(1);
const RETRANSMIT_AFTER_MAX: Duration = Duration::from_millis(8);

/// A client of the counters of one host; it has one request in flight.
#[derive(Debug)]
pub struct CounterClient {
    socket: UdpSocket,
    key: SipKey,
    request: Request,
    /// Time at which the request was first sent.
    asked: Option<Instant>,
    /// Time of the next retransmission, and the interval to the one after it.
    due: Option<(Instant, Duration)>,
    /// Transmissions of the request.
    sent: u32,
}

impl CounterClient {
    /// Opens a client for counters at this address, from a port of `ports`. No other client at that
    /// host may have the number `client`. Needs no right.
    ///
    /// # Errors
    /// The kernel's: no socket, or no route.
    pub fn open(
        server: SocketAddrV4,
        client: u16,
        key: SipKey,
        ports: Ports,
    ) -> io::Result<CounterClient> {
        let socket = ports.bind(None, |port| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)))?;
        socket.connect(server)?;
        socket.set_nonblocking(true)?;
        let request = Request { client, kind: LAST, counter: 0, number: 0, value: 0 };
        Ok(CounterClient { socket, key, request, asked: None, due: None, sent: 0 })
    }

    /// Requests the number of the client's last request, from which the next request counts on. A
    /// client begins with this call, which also shows that requests arrive and are answered.
    pub fn ask(&mut self) {
        self.request.kind = LAST;
        self.begin();
    }

    /// Adds `n` to a counter; the answer is its value before. The counter is added to once, however
    /// often the request is lost or repeated on its path.
    pub fn add(&mut self, counter: u32, n: u64) {
        self.request.number += 1;
        self.request = Request { kind: ADD, counter, value: n, ..self.request };
        self.begin();
    }

    fn begin(&mut self) {
        let now = Instant::now();
        self.asked = Some(now);
        self.due = Some((now, RETRANSMIT_AFTER));
        self.sent = 0;
    }

    /// Returns the number of the last request that added.
    pub fn number(&self) -> u64 {
        self.request.number
    }

    /// Returns the time since the request was first sent.
    pub fn waited(&self) -> Duration {
        self.asked.map_or(Duration::ZERO, |asked| asked.elapsed())
    }

    /// Returns how often the request was sent. A process that had to wait for its core has sent it
    /// less often than the time since the first suggests.
    pub fn sent(&self) -> u32 {
        self.sent
    }

    /// Sends the request when it is due, and polls for its answer. An error of the kernel in either
    /// has the effect of a loss.
    pub fn poll(&mut self) -> Option<u64> {
        let now = Instant::now();
        if let Some((_, after)) = self.due.filter(|(at, _)| *at <= now) {
            let _ = self.socket.send(&self.request.encode(&self.key));
            self.sent += 1;
            self.due = Some((now + after, (2 * after).min(RETRANSMIT_AFTER_MAX)));
        }
        let mut bytes = [0; LEN + 1];
        while let Ok(len) = self.socket.recv(&mut bytes) {
            if let Some(value) = self.request.answered_by(&bytes[..len], &self.key) {
                (self.asked, self.due) = (None, None);
                if self.request.kind == LAST {
                    self.request.number = value;
                }
                return Some(value);
            }
        }
        None
    }
}

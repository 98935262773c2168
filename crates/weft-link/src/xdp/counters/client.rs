//! Whoever adds to counters in another host's kernel.

use super::request::{Request, ADD, LAST, LEN};
use super::SipKey;
use crate::ports::Ports;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

/// A request without an answer for so long is sent again, then after twice as long, and so on.
const AGAIN: Duration = Duration::from_millis(1);
const AGAIN_MAX: Duration = Duration::from_millis(8);

/// A client of the counters of one host: it has one request at a time.
#[derive(Debug)]
pub struct CounterClient {
    socket: UdpSocket,
    key: SipKey,
    request: Request,
    /// The request is under way since.
    asked: Option<Instant>,
    /// When it is sent again, and after how long then.
    due: Option<(Instant, Duration)>,
}

impl CounterClient {
    /// Client number `client`, of no other at that host, of counters behind this address, from a
    /// port of these. Needs no right.
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
        Ok(CounterClient { socket, key, request, asked: None, due: None })
    }

    /// Asks whether requests arrive and are answered, and for the number that the next one goes on
    /// from: a client begins so.
    pub fn ask(&mut self) {
        self.request.kind = LAST;
        self.begin();
    }

    /// Adds `n` to a counter; the answer is its value before. Added once, however often the request
    /// is lost or repeated on the way.
    pub fn add(&mut self, counter: u32, n: u64) {
        self.request.number += 1;
        self.request = Request { kind: ADD, counter, value: n, ..self.request };
        self.begin();
    }

    fn begin(&mut self) {
        let now = Instant::now();
        self.asked = Some(now);
        self.due = Some((now, AGAIN));
    }

    /// Number of the last request that added.
    pub fn number(&self) -> u64 {
        self.request.number
    }

    /// How long the request is under way.
    pub fn waited(&self) -> Duration {
        self.asked.map_or(Duration::ZERO, |asked| asked.elapsed())
    }

    /// Sends the request when it is due, and looks for its answer. What the kernel has against
    /// either is as if it were lost.
    pub fn poll(&mut self) -> Option<u64> {
        let now = Instant::now();
        if let Some((_, after)) = self.due.filter(|(at, _)| *at <= now) {
            let _ = self.socket.send(&self.request.encode(&self.key));
            self.due = Some((now + after, (2 * after).min(AGAIN_MAX)));
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

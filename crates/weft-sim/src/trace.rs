//! A record of the simulated network's events: as text, and for Perfetto or chrome://tracing.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};

/// The fate of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// The host gave it to its NIC.
    Sent,
    /// The frame reached the other host's NIC.
    Arrived,
    /// Lost on the wire.
    Lost,
    /// Lost at the border of a partition.
    Partitioned,
    /// Did not fit into a switch queue.
    QueueFull,
    /// Did not fit into the receiving NIC.
    RingFull,
    /// The receiving host is dead.
    HostDead,
    /// Taken by the host, found corrupt, refused.
    Refused,
    /// Some bits were flipped.
    Corrupted,
    /// A second copy was made.
    Duplicated,
    /// Delayed.
    HeldBack,
}

impl Fate {
    /// Returns a short word for logs.
    pub const fn word(self) -> &'static str {
        match self {
            Fate::Sent => "send",
            Fate::Arrived => "arrive",
            Fate::Lost => "lost",
            Fate::Partitioned => "partitioned",
            Fate::QueueFull => "queue-full",
            Fate::RingFull => "ring-full",
            Fate::HostDead => "host-dead",
            Fate::Refused => "refused",
            Fate::Corrupted => "corrupt",
            Fate::Duplicated => "duplicate",
            Fate::HeldBack => "held-back",
        }
    }
}

/// One line of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Virtual time, nanoseconds.
    pub at: u64,
    /// Time at which the frame was sent, nanoseconds.
    pub sent_at: u64,
    /// Fate of the frame.
    pub fate: Fate,
    /// Sending host.
    pub src: u32,
    /// Receiving host.
    pub dst: u32,
    /// Length of the weft packet in bytes.
    pub len: u32,
    /// The common header (24 bytes), zero-filled when shorter.
    pub header: [u8; 24],
}

/// Returns the name of packet type `kind` of the wire format.
fn type_name(kind: u8) -> &'static str {
    const NAMES: [&str; 17] = [
        "?", "HELLO", "ACK", "EAGER", "EAGER1", "EAGER+", "RTS", "PULL", "DATA", "DDONE", "FIN",
        "PUT", "GET", "ATOMIC", "REPLY", "NOP", "BYE",
    ];
    NAMES.get(usize::from(kind)).copied().unwrap_or("?")
}

impl TraceEvent {
    fn word(&self, at: usize) -> u32 {
        let h = &self.header;
        u32::from_le_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]])
    }

    /// Returns the name of the packet's type.
    pub fn type_name(&self) -> &'static str {
        type_name(self.header[1])
    }
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>13.3} {:>4} > {:<4} {:<11} {:<6} seq {} ack {} imm {} len {}",
            self.at as f64 / 1000.0,
            self.src,
            self.dst,
            self.fate.word(),
            self.type_name(),
            self.word(8),
            self.word(12),
            self.word(20),
            self.len
        )
    }
}

/// The latest events, up to a fixed number.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    events: VecDeque<TraceEvent>,
    keep: usize,
    dropped: u64,
}

impl Trace {
    /// Keeps the `keep` latest events; none when 0.
    pub fn new(keep: usize) -> Trace {
        Trace { events: VecDeque::new(), keep, dropped: 0 }
    }

    /// Returns true if events are kept.
    pub fn enabled(&self) -> bool {
        self.keep > 0
    }

    /// Adds one, forgets the oldest if there are too many.
    pub fn push(&mut self, event: TraceEvent) {
        if self.keep == 0 {
            return;
        }
        if self.events.len() == self.keep {
            self.events.pop_front();
            self.dropped += 1;
        }
        self.events.push_back(event);
    }

    /// Returns the kept events, oldest first.
    pub fn events(&self) -> impl Iterator<Item = &TraceEvent> {
        self.events.iter()
    }

    /// Writes one line per event: microseconds, hosts, fate, header.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.dropped > 0 {
            writeln!(out, "# {} earlier events were not kept", self.dropped)?;
        }
        self.events.iter().try_for_each(|e| writeln!(out, "{e}"))
    }

    /// Writes the trace-event JSON that Perfetto and chrome://tracing read: one process per
    /// receiving host, one thread per sender; a frame is a slice from sending to arrival, every
    /// other fate an instant.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let shown = self.events.iter().filter(|e| e.fate != Fate::Sent);
        for (i, e) in shown.enumerate() {
            let comma = if i == 0 { "" } else { ",\n" };
            let (name, begin) = match e.fate {
                Fate::Arrived => (e.type_name(), e.sent_at),
                other => (other.word(), e.at),
            };
            write!(
                out,
                "{comma}{{\"name\":\"{name}\",\"pid\":{},\"tid\":{},\"ts\":{:.3},",
                e.dst,
                e.src,
                begin as f64 / 1000.0
            )?;
            if e.fate == Fate::Arrived {
                write!(out, "\"ph\":\"X\",\"dur\":{:.3},", (e.at - begin) as f64 / 1000.0)?;
            } else {
                write!(out, "\"ph\":\"i\",\"s\":\"t\",")?;
            }
            write!(
                out,
                "\"args\":{{\"type\":\"{}\",\"seq\":{},\"ack\":{},\"imm\":{},\"len\":{}}}}}",
                e.type_name(),
                e.word(8),
                e.word(12),
                e.word(20),
                e.len
            )?;
        }
        writeln!(out, "\n]}}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn event(at: u64, fate: Fate) -> TraceEvent {
        let mut header = [0; 24];
        header[..2].copy_from_slice(&[1, 3]);
        header[8] = 5;
        TraceEvent { at, sent_at: at - 1000, fate, src: 1, dst: 2, len: 40, header }
    }

    #[test]
    fn push__keeps_the_latest() {
        let mut trace = Trace::new(2);
        (2..5).for_each(|t| trace.push(event(t * 1000, Fate::Arrived)));
        assert_eq!(trace.events().map(|e| e.at).collect::<Vec<_>>(), [3000, 4000]);
        let mut text = Vec::new();
        trace.write_text(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("# 1 earlier"), "{text}");
        assert!(text.contains("3.000    1 > 2    arrive      EAGER  seq 5 ack 0"), "{text}");
    }

    #[test]
    fn write_json__slices_and_instants() {
        let mut trace = Trace::new(9);
        trace.push(event(2000, Fate::Sent));
        trace.push(event(3000, Fate::Arrived));
        trace.push(event(4000, Fate::Lost));
        let mut json = Vec::new();
        trace.write_json(&mut json).unwrap();
        let json = String::from_utf8(json).unwrap();
        assert!(json.contains("\"name\":\"EAGER\",\"pid\":2,\"tid\":1,\"ts\":2.000,\"ph\":\"X\""));
        assert!(json.contains("\"dur\":1.000"));
        assert!(json.contains("\"name\":\"lost\""));
        assert_eq!(json.matches("\"ph\"").count(), 2);
    }
}

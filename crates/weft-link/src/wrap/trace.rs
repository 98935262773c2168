//! Logs one record per packet.

use super::{forward, forward_network, forward_parts, forward_paths, forward_seen, Tap};
use crate::{Link, Sink};
use log::{debug, log_enabled, Level};
use std::fmt;
use weft_core::wire::{parse, Line};

/// Target of the log records, so that they can be switched on alone.
const TARGET: &str = "weft::packet";

/// Logs every packet that goes through a link, at debug level, target `weft::packet`.
pub struct Traced {
    inner: Box<dyn Link>,
    name: &'static str,
}

impl Traced {
    /// Wraps `inner`.
    pub fn new(inner: Box<dyn Link>) -> Traced {
        let name = inner.caps().name;
        Traced { inner, name }
    }
}

/// A packet as one line of text; for an invalid packet, the reason.
struct Packet<'a> {
    header: &'a [u8],
    payload: usize,
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match parse(self.header) {
            Ok((common, packet, _)) => write!(f, "{}", Line(&common, &packet))?,
            Err(why) => write!(f, "{why}, header {:02x?}", self.header)?,
        }
        write!(f, " len {}", self.payload)
    }
}

impl Link for Traced {
    forward_seen!(inner, tell);
    forward!(inner: fn prepare_wait(&mut self) -> bool;);

    fn recv(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        self.tapped(sink, |link, sink| link.recv(budget, sink))
    }

    fn recv_soon(&mut self, rounds: u32, budget: usize, sink: &mut dyn Sink) -> usize {
        self.tapped(sink, |link, sink| link.recv_soon(rounds, budget, sink))
    }

    forward_parts!(inner);
}

impl Traced {
    /// Has packets received by `recv`, and logs each.
    fn tapped(
        &mut self,
        sink: &mut dyn Sink,
        recv: impl FnOnce(&mut dyn Link, &mut dyn Sink) -> usize,
    ) -> usize {
        if !log_enabled!(target: TARGET, Level::Debug) {
            return recv(&mut *self.inner, sink);
        }
        let name = self.name;
        let mut tap = Tap {
            sink,
            see: |from, header: &[u8], payload: crate::Bytes<'_>| {
                let packet = Packet { header, payload: payload.len() };
                match from {
                    Some(peer) => debug!(target: TARGET, "{name} from {peer}: {packet}"),
                    None => debug!(target: TARGET, "{name} from session: {packet}"),
                }
            },
        };
        recv(&mut *self.inner, &mut tap)
    }

    /// Logs a packet that left.
    fn tell(&self, to: weft_core::PeerId, header: &[u8], payload: &[u8]) {
        if log_enabled!(target: TARGET, Level::Debug) {
            let packet = Packet { header, payload: payload.len() };
            debug!(target: TARGET, "{} to {to}: {packet}", self.name);
        }
    }
}

forward_network!(Traced, inner, tell);

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use weft_core::wire::{self, Common, Eager};

    #[test]
    fn packet__reads_as_one_line() {
        let header = wire::emit(&Common::default(), &wire::Packet::Eager(Eager { tag: 42 }));
        let line = Packet { header: header.as_slice(), payload: 10 }.to_string();
        assert!(line.starts_with("EAGER #0") && line.ends_with("len 10"), "{line}");
        assert!(!line.contains('\n'));
    }

    #[test]
    fn packet__says_why_it_cannot_be_read() {
        let line = Packet { header: &[9, 9], payload: 0 }.to_string();
        assert!(line.contains("header [09, 09]"), "{line}");
    }
}

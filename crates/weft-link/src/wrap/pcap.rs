//! Capture for Wireshark.

use super::pcapng::{Direction, Writer};
use super::{forward, Clock, Tap};
use crate::{Bytes, Frame, Link, LinkError, LinkEvent, Sink};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weft_core::{wire, PeerId};

/// EtherType of weft packets: IEEE 802 local experimental 1.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// Writes every packet that goes through a link to a pcapng file, framed as Ethernet with weft's
/// EtherType whatever the link is. Link addresses are made up: `02:57:00:...` carries the number of
/// the peer, `02:57:01:...` the session number where the link does not know the peer, `02:57:ff:...`
/// is this endpoint. A network link's security trailer is not part of what is captured.
pub struct Pcap {
    inner: Box<dyn Link>,
    capture: Capture,
}

struct Capture {
    /// `None` once writing failed.
    file: Option<Writer<Box<dyn Write>>>,
    failure: Option<String>,
    clock: Clock,
    /// Time since 1970 at the clock's origin.
    origin: Duration,
    payload: Vec<u8>,
}

impl Pcap {
    /// Around `inner`, into a new file at `path`, stamped with the time of day.
    pub fn create(inner: Box<dyn Link>, path: &Path, clock: Clock) -> Result<Pcap, LinkError> {
        let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let origin = today.saturating_sub(Duration::from_nanos(clock().0));
        let failed = |source| LinkError::System {
            what: format!("capture to {}", path.display()),
            source,
            fix: "choose a file in a folder that can be written to",
        };
        let file = File::create(path).map_err(failed)?;
        Pcap::new(inner, Box::new(BufWriter::new(file)), clock, origin).map_err(failed)
    }

    /// Around `inner`, to `out`; `origin` is the time since 1970 at the clock's origin.
    pub fn new(
        inner: Box<dyn Link>,
        out: Box<dyn Write>,
        clock: Clock,
        origin: Duration,
    ) -> io::Result<Pcap> {
        let file = Some(Writer::new(out, inner.caps().name)?);
        let capture = Capture { file, failure: None, clock, origin, payload: Vec::new() };
        Ok(Pcap { inner, capture })
    }
}

impl Capture {
    fn packet(&mut self, way: Direction, far: [u8; 6], header: &[u8], payload: &[u8]) {
        const NEAR: [u8; 6] = [0x02, 0x57, 0xff, 0, 0, 0];
        let (dst, src) = if way == Direction::Out { (far, NEAR) } else { (NEAR, far) };
        let time = (self.clock)().0.saturating_add(self.origin.as_nanos() as u64);
        let parts = [&dst, &src, &ETHERTYPE[..], header, payload];
        self.with_file(|file| file.packet(time, way, &parts));
    }

    fn flush(&mut self) {
        self.with_file(Writer::flush);
    }

    /// A capture that cannot be written ends, and says so once; the link goes on.
    fn with_file(&mut self, act: impl FnOnce(&mut Writer<Box<dyn Write>>) -> io::Result<()>) {
        if let Some(Err(e)) = self.file.as_mut().map(act) {
            self.failure = Some(format!("packet capture ended: {e}"));
            self.file = None;
        }
    }
}

fn address_of(peer: PeerId) -> [u8; 6] {
    let [a, b, c, _] = peer.0.to_le_bytes();
    [0x02, 0x57, 0x00, c, b, a]
}

fn address_from(peer: Option<PeerId>, header: &[u8]) -> [u8; 6] {
    if let Some(peer) = peer {
        return address_of(peer);
    }
    let [a, b, c, _] = wire::session_of(header).unwrap_or(0).to_le_bytes();
    [0x02, 0x57, 0x01, c, b, a]
}

impl Link for Pcap {
    forward!(inner: caps advertise connect disconnect waiting direct counters);

    fn send(&mut self, frames: &[Frame<'_>]) -> usize {
        let sent = self.inner.send(frames);
        for f in &frames[..sent] {
            self.capture.packet(Direction::Out, address_of(f.peer), f.header, f.payload);
        }
        sent
    }

    fn recv(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let capture = &mut self.capture;
        let see = |from, header: &[u8], payload: Bytes<'_>| {
            let mut copy = std::mem::take(&mut capture.payload);
            copy.resize(payload.len(), 0);
            payload.copy_to(&mut copy);
            capture.packet(Direction::In, address_from(from, header), header, &copy);
            capture.payload = copy;
        };
        self.inner.recv(budget, &mut Tap { sink, see })
    }

    fn poll_event(&mut self) -> Option<LinkEvent> {
        match self.capture.failure.take() {
            Some(why) => Some(LinkEvent::Warning(why)),
            None => self.inner.poll_event(),
        }
    }

    /// A reader of the file sees everything once this endpoint sleeps.
    fn prepare_wait(&mut self) -> bool {
        self.capture.flush();
        self.inner.prepare_wait()
    }
}

impl Drop for Pcap {
    fn drop(&mut self) {
        self.capture.flush();
    }
}

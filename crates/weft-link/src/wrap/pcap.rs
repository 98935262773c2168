//! Capture for Wireshark.

use super::pcapng::{Direction, Store, Writer};
use super::{forward, forward_network, forward_parts, forward_paths, forward_seen, Clock, Tap};
use crate::ether::{EtherHead, EtherType, Mac};
use crate::{Bytes, Link, LinkError, Sink};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weft_core::{wire, PeerId};

/// Writes every packet of a link to a pcapng file, framed as on the raw Ethernet links, with slot
/// 0. Link addresses are made up: `02:57:00:...` contains the number of the peer, `02:57:01:...`
/// the session number if the link does not know the peer, `02:57:ff:...` is this endpoint. The
/// security trailer of a network link is not captured.
pub struct Pcap {
    inner: Box<dyn Link>,
    capture: Capture,
}

struct Capture {
    /// `None` once writing failed.
    file: Option<Writer<Box<dyn Store>>>,
    /// The file, for messages to people.
    name: String,
    clock: Clock,
    /// Time since 1970 at the clock's origin.
    origin: Duration,
    payload: Vec<u8>,
}

impl Pcap {
    /// Wraps `inner` and captures into a new file at `path`, with the time of day.
    pub fn create(inner: Box<dyn Link>, path: &Path, clock: Clock) -> Result<Pcap, LinkError> {
        let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let origin = today.saturating_sub(Duration::from_nanos(clock().0));
        let failed = |source| LinkError::System {
            what: format!("capture to {}", path.display()),
            source,
            fix: "set WEFT_PCAP to a folder in which files can be made",
        };
        let file = Box::new(File::create(path).map_err(failed)?);
        let link = Pcap::into_store(inner, file, path.display().to_string(), clock, origin);
        if link.capture.file.is_none() {
            // A capture whose beginning is missing cannot be read.
            let _ = std::fs::remove_file(path);
        }
        Ok(link)
    }

    /// Wraps `inner` and captures into a store of this name; `origin` is the time since 1970 at the
    /// clock's origin.
    fn into_store(
        inner: Box<dyn Link>,
        store: Box<dyn Store>,
        name: String,
        clock: Clock,
        origin: Duration,
    ) -> Pcap {
        let file = Writer::new(store, inner.caps().name);
        let file = file.inspect_err(|e| ended(&name, e)).ok();
        Pcap { inner, capture: Capture { file, name, clock, origin, payload: Vec::new() } }
    }
}

/// Reports that a capture ended because it cannot be written; at once, even if its link is about to
/// be dropped. The link continues.
fn ended(name: &str, error: &io::Error) {
    crate::warn!("packet capture ended: {name}: {error}; it holds the packets until then");
}

impl Capture {
    fn packet(&mut self, way: Direction, far: [u8; 6], header: &[u8], payload: &[u8]) {
        const NEAR: [u8; 6] = [0x02, 0x57, 0xff, 0, 0, 0];
        let (dst, src) = if way == Direction::Out { (far, NEAR) } else { (NEAR, far) };
        let time = (self.clock)().0.saturating_add(self.origin.as_nanos() as u64);
        let len = u16::try_from(header.len() + payload.len()).unwrap_or(u16::MAX);
        let (dst, src, kind) = (Mac(dst), Mac(src), EtherType::default());
        let head = EtherHead { dst, src, kind, slot: 0, len }.encode();
        let parts = [&head[..], header, payload];
        self.with_file(|file| file.packet(time, way, &parts));
    }

    fn flush(&mut self) {
        self.with_file(Writer::flush);
    }

    fn with_file(&mut self, act: impl FnOnce(&mut Writer<Box<dyn Store>>) -> io::Result<()>) {
        if let Some(Err(e)) = self.file.as_mut().map(act) {
            self.file = None;
            ended(&self.name, &e);
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
    forward_seen!(inner, tell);

    fn recv(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        self.tapped(sink, |link, sink| link.recv(budget, sink))
    }

    fn recv_soon(&mut self, rounds: u32, budget: usize, sink: &mut dyn Sink) -> usize {
        self.tapped(sink, |link, sink| link.recv_soon(rounds, budget, sink))
    }

    /// Flushes, so that a reader of the file sees all packets once this endpoint sleeps.
    fn prepare_wait(&mut self) -> bool {
        self.capture.flush();
        self.inner.prepare_wait()
    }

    forward_parts!(inner);
}

impl Pcap {
    /// Has packets received by `recv`, and captures each.
    fn tapped(
        &mut self,
        sink: &mut dyn Sink,
        recv: impl FnOnce(&mut dyn Link, &mut dyn Sink) -> usize,
    ) -> usize {
        let capture = &mut self.capture;
        let see = |from, header: &[u8], payload: Bytes<'_>| {
            let mut copy = std::mem::take(&mut capture.payload);
            copy.resize(payload.len(), 0);
            payload.copy_to(&mut copy);
            capture.packet(Direction::In, address_from(from, header), header, &copy);
            capture.payload = copy;
        };
        recv(&mut *self.inner, &mut Tap { sink, see })
    }

    /// Captures a packet that left.
    fn tell(&mut self, to: weft_core::PeerId, header: &[u8], payload: &[u8]) {
        self.capture.packet(Direction::Out, address_of(to), header, payload);
    }
}

forward_network!(Pcap, inner, tell);

impl Drop for Pcap {
    fn drop(&mut self) {
        self.capture.flush();
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::looplink::LoopLink;
    use crate::Frame;
    use crate::{Address, PeerInfo};
    use std::cell::RefCell;
    use std::io::Write;
    use std::rc::Rc;
    use weft_core::wire::{self, Common, Eager, Packet};
    use weft_core::{EndpointId, Instant};

    /// A file that can be read while it is written, with room for this number of bytes.
    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>, usize);

    impl Store for Shared {
        fn shorten(&mut self, len: u64) -> io::Result<()> {
            self.0.borrow_mut().truncate(len as usize);
            Ok(())
        }
    }

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fits = bytes.len().min(self.1 - self.0.borrow().len());
            if fits == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.borrow_mut().extend(&bytes[..fits]);
            Ok(fits)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Ignore;

    impl Sink for Ignore {
        fn frame(&mut self, _: Option<PeerId>, _: &[u8], _: Bytes<'_>) {}
    }

    /// Makes two captured ends that know each other; `a` writes to `file`.
    fn ends(file: Shared) -> (Pcap, Pcap) {
        let clock: Clock = Rc::new(|| Instant(5));
        let make = |link, out| {
            let (name, origin) = ("a file".into(), Duration::from_secs(1));
            let mut link = Pcap::into_store(Box::new(link), out, name, Rc::clone(&clock), origin);
            let endpoint = EndpointId(1);
            let address = Address::default();
            link.connect(&PeerInfo { peer: PeerId(3), session: 1, endpoint, address }).unwrap();
            link
        };
        let (a, b) = LoopLink::pair(1000, 16).unwrap();
        (make(a, Box::new(file)), make(b, Box::new(Shared(Rc::default(), usize::MAX))))
    }

    fn send(link: &mut Pcap, payload: &[u8]) {
        let packet = Packet::Eager(Eager { tag: 1 });
        let header = wire::emit(&Common { session: 9, ..Common::default() }, &packet);
        let frame = Frame { peer: PeerId(3), header: header.as_slice(), payload };
        assert_eq!(link.send(&[frame]), 1);
    }

    fn holds(file: &Shared, bytes: &[u8]) -> bool {
        file.0.borrow().windows(bytes.len()).any(|w| w == bytes)
    }

    #[test]
    fn capture__has_both_directions() {
        let file = Shared(Rc::default(), usize::MAX);
        let (mut a, mut b) = ends(file.clone());
        send(&mut a, b"going out");
        send(&mut b, b"coming in");
        assert_eq!(a.recv(10, &mut Ignore), 1);
        a.prepare_wait();
        let (near, far) = ([0x02, 0x57, 0xff, 0, 0, 0], [0x02, 0x57, 0, 0, 0, 3]);
        // EtherType, slot 0, length of 32 bytes of header and 9 of payload, version, type.
        let rest = [0x88, 0xb5, 0, 0, 41, 0, 1, 3];
        let sent = [&far[..], &near, &rest].concat();
        let received = [&near[..], &far, &rest].concat();
        assert!(holds(&file, &sent) && holds(&file, b"going out"));
        assert!(holds(&file, &received) && holds(&file, b"coming in"));
        let stamp = 1_000_000_005_u64;
        let stamp = [((stamp >> 32) as u32).to_le_bytes(), (stamp as u32).to_le_bytes()].concat();
        assert!(holds(&file, &stamp));
    }

    #[test]
    fn capture__that_finds_no_room_ends_with_whole_packets() {
        let file = Shared(Rc::default(), 300);
        let (mut a, _b) = ends(file.clone());
        (0..5).for_each(|_| send(&mut a, b"more"));
        a.prepare_wait();
        assert!(a.capture.file.is_none());
        let len = file.0.borrow().len();
        assert!((200..300).contains(&len) && len.is_multiple_of(4), "{len}");
        send(&mut a, b"the link goes on");
        drop(a);
        assert_eq!(file.0.borrow().len(), len);
    }

    #[test]
    fn create__says_which_file_and_how_to_fix_it() {
        let (a, _b) = LoopLink::pair(1000, 16).unwrap();
        let path = Path::new("/no/such/folder/x.pcapng");
        let made = Pcap::create(Box::new(a), path, Rc::new(|| Instant(0)));
        let Err(why) = made else { panic!("made in a folder that is not there") };
        assert!(why.to_string().contains("/no/such/folder"), "{why}");
    }
}

//! `WEFT_RELIABILITY=none` over raw Ethernet: nothing is kept, acknowledged or sent again when both
//! sides choose it, and the first packet that is lost or overtaken ends the session with an error.
#![allow(non_snake_case)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};
use weft::choices::Choices;
use weft::endpoint::ChoiceError;
use weft::job::{open_endpoint, Links};
use weft::{Clock, Config, Endpoint, EndpointId, OpError, PeerFailure, PeerId, Reliability};
use weft_conformance::{cable, skip};
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::wrap::Wrappers;
use weft_link::{Link, LinkError, PacketConfig, PacketLink, XdpConfig, XdpLink};
use weft_packets::Packets;

/// The links that support it.
const LINKS: [&str; 2] = ["packet", "xdp"];
/// Both sides trust the network.
const TRUSTED: [Reliability; 2] = [Reliability::None; 2];
const HANDLER: u16 = 4;
const COUNT: u32 = 3000;
/// Bound of every wait; reached only when something is broken.
const LIMIT: Duration = Duration::from_secs(300);

/// Two endpoints on the ends of a cable; each one's number of the other.
struct Pair {
    link: &'static str,
    endpoints: [Endpoint; 2],
    packets: [Packets; 2],
    peers: [PeerId; 2],
    /// Packets that the second has received, all in order.
    got: Rc<Cell<u32>>,
}

fn open(name: &str, end: &str, me: EndpointId) -> Result<Box<dyn Link>, LinkError> {
    let job_key = JobKey::from_bytes(&[7; 32]).unwrap();
    let security = Security { mode: Mode::Auth, job_key, me };
    let interfaces = Some(vec![end.to_string()]);
    if name == "xdp" {
        let config = XdpConfig { interfaces, ..XdpConfig::default() };
        return Ok(Box::new(XdpLink::new(config, security)?));
    }
    let trains = name == "gso";
    let config = PacketConfig { interfaces, trains, ..PacketConfig::default() };
    Ok(Box::new(PacketLink::new(config, security)?))
}

/// Makes one end, wrapped in a link that injects `faults`.
fn endpoint(
    name: &str,
    end: &str,
    faults: &str,
    reliability: Reliability,
) -> Result<Endpoint, LinkError> {
    let me = EndpointId(weft_link::random_u64());
    let faults = faults.parse().ok();
    let (time, clock) = (Clock::system(), Clock::system());
    let around = Wrappers { faults, ..Wrappers::default() };
    let now: weft_link::wrap::Clock = Rc::new(move || time.now());
    let link = around.around(open(name, end, me)?, &now)?;
    // The credit is what the guide says: as much as a receiver's ring holds.
    let (eager_credit, pull_depth) = (64 << 10, 1);
    let config = Config { reliability, eager_credit, pull_depth, ..Config::default() };
    Ok(Endpoint::with_links(config, me, clock, vec![link]))
}

impl Pair {
    /// Makes a pair; notes the reason and returns `None` where this machine has no such link.
    fn over(link: &'static str, faults: &str, sides: [Reliability; 2]) -> Option<Pair> {
        if let Err(why) = cable::lay(1500) {
            skip(&format!("{link}: {why}"));
            return None;
        }
        // Packets of the second all arrive.
        let faults = [faults, ""];
        let open = |at: usize| endpoint(link, cable::ENDS[at], faults[at], sides[at]);
        let endpoints = match open(0).and_then(|a| Ok([a, open(1)?])) {
            Ok(endpoints) => endpoints,
            Err(why) => {
                skip(&format!("{link}: {why}"));
                return None;
            }
        };
        let [a, b] = &endpoints;
        let peers = [b.connect(&a.address()).unwrap(), a.connect(&b.address()).unwrap()];
        let packets = [Packets::new(a).unwrap(), Packets::new(b).unwrap()];
        let got = Rc::new(Cell::new(0));
        let heard = Rc::clone(&got);
        packets[1].handle(HANDLER, move |_, packet| {
            assert_eq!(packet.argument(), heard.get(), "{link}: in order, each once");
            assert_eq!(packet.data(), body(packet.argument()), "{link}");
            heard.set(heard.get() + 1);
        });
        Some(Pair { link, endpoints, packets, peers, got })
    }

    fn poll(&self) {
        self.packets.iter().for_each(|packets| _ = packets.poll());
    }

    fn until(&self, what: &str, done: impl Fn() -> bool) {
        let end = Instant::now() + LIMIT;
        while !done() {
            assert!(Instant::now() < end, "{}: not {what}", self.link);
            self.poll();
        }
    }

    /// Returns the reason why each side gave the other up.
    fn failures(&self) -> Vec<PeerFailure> {
        let [a, b] = &self.endpoints;
        let both = [a.peer(self.peers[1]).failure(), b.peer(self.peers[0]).failure()];
        both.into_iter().flatten().collect()
    }

    /// Sends packets until all have arrived or a side has given up; returns the sender's error.
    fn send(&self) -> Option<OpError> {
        for n in 0..COUNT {
            loop {
                match self.packets[0].try_send(self.peers[1], HANDLER, n, &body(n)) {
                    Err(OpError::Busy) if self.failures().is_empty() => self.poll(),
                    Err(OpError::Busy) => return None,
                    Err(error) => return Some(error),
                    Ok(()) => break,
                }
            }
        }
        let ended = || self.got.get() == COUNT || !self.failures().is_empty();
        self.until("all sent", ended);
        None
    }

    /// Returns the number of packets that were sent again, held, or timed out.
    fn repaired(&self) -> u64 {
        let stats = self.endpoints.iter().map(Endpoint::stats);
        stats.map(|s| s.retransmitted + s.held + s.timeouts).sum()
    }
}

/// Returns the bytes of packet `n`.
fn body(n: u32) -> Vec<u8> {
    (0..n % 1000).map(|i| (i * 31 + n) as u8).collect()
}

/// Tests each link that this machine has.
fn each(faults: &str, sides: [Reliability; 2], check: impl Fn(&Pair)) {
    for link in LINKS {
        if let Some(pair) = Pair::over(link, faults, sides) {
            check(&pair);
        }
    }
}

#[test]
fn trusted__a_cable_delivers_everything_and_nothing_is_sent_again() {
    each("", TRUSTED, |pair| {
        assert_eq!(pair.send(), None, "{}", pair.link);
        assert_eq!((pair.got.get(), pair.repaired()), (COUNT, 0), "{}", pair.link);
        assert_eq!(pair.failures(), [], "{}", pair.link);
    });
}

#[test]
fn trusted__long_messages_arrive_whole() {
    each("", TRUSTED, |pair| {
        let [a, b] = &pair.endpoints;
        for len in [1 << 10, 100_000, 1 << 20] {
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let sent = a.send(pair.peers[1], 1, bytes.clone());
            let got = b.recv(Some(pair.peers[0]), 1, 0, vec![0; len]);
            pair.until("arrived", || sent.is_done() && got.is_done());
            a.block_on(sent).0.unwrap();
            let (status, data) = b.block_on(got);
            assert_eq!(status.map(|s| s.len), Ok(len), "{}", pair.link);
            assert!(data == bytes, "{}: {len} bytes are not as sent", pair.link);
        }
        assert_eq!(pair.repaired(), 0, "{}", pair.link);
    });
}

#[test]
fn trusted__a_packet_that_is_lost_or_overtaken_ends_the_session_with_an_error() {
    for faults in ["loss=1%,seed=7", "reorder=2%,seed=7"] {
        each(faults, TRUSTED, |pair| {
            let told = pair.send();
            let link = pair.link;
            assert!(pair.got.get() < COUNT, "{link}, {faults}: all came");
            let of_peer = |e| matches!(e, OpError::Peer { failure: PeerFailure::Lost, .. });
            assert!(told.is_none_or(of_peer), "{link}, {faults}: {told:?}");
            pair.until("given up by both", || pair.failures().len() == 2);
            assert_eq!(pair.failures(), [PeerFailure::Lost; 2], "{link}, {faults}");
            assert_eq!(pair.repaired(), 0, "{link}, {faults}");
            for (endpoint, peer) in pair.endpoints.iter().zip([pair.peers[1], pair.peers[0]]) {
                let text = endpoint.explain(OpError::Peer { peer, failure: PeerFailure::Lost });
                let parts = [link, "lost although WEFT_RELIABILITY=none", "use host"];
                assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            }
        });
    }
}

#[test]
fn trusted__where_one_side_does_not_choose_it_losses_are_made_good() {
    for sides in
        [[Reliability::None, Reliability::Selective], [Reliability::Selective, Reliability::None]]
    {
        let repaired = RefCell::new(Vec::new());
        each("loss=2%,seed=3", sides, |pair| {
            assert_eq!(pair.send(), None, "{}", pair.link);
            assert_eq!((pair.got.get(), pair.failures()), (COUNT, vec![]), "{}", pair.link);
            repaired.borrow_mut().push(pair.repaired());
        });
        assert!(repaired.borrow().iter().all(|&n| n > 0), "{repaired:?}: nothing was lost");
    }
}

#[test]
fn trusted__not_over_a_link_whose_receivers_are_overrun() {
    let Some(pair) = Pair::over("gso", "", [Reliability::Selective; 2]) else { return };
    let (packets, to) = (&pair.packets[0], pair.peers[1]);
    let none = Choices { reliability: Reliability::None, ..packets.endpoint().choices() };
    let refused = packets.endpoint().peer(to).choose(&none).unwrap_err();
    assert!(matches!(refused, ChoiceError::Overrun(_)), "{refused}");
    let open = |reliability, links| {
        let mut config = Config::default();
        config.set("reliability", reliability).unwrap();
        open_endpoint(config, links, [7; 32]).map(drop).map_err(|e| e.to_string())
    };
    let (gso, auto) = (Links::parse("gso,shm").unwrap(), Links { gso: true, ..Links::AUTO });
    for trusting in ["none", "gbn,3=none"] {
        let why = open(trusting, gso).unwrap_err();
        for part in ["reliability none", "link gso", "choose selective", "WEFT_LINK"] {
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(open(trusting, auto), Ok(()), "without it");
    }
    assert_eq!(open("gbn", gso), Ok(()));
}

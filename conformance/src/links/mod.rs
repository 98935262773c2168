//! The suite for links.
//!
//! ```text
//! weft_conformance::link_suite!(shm, || Ends::of(|id| ShmLink::new(ShmConfig::new(id))));
//! ```

pub mod cases;

use crate::sys;
use std::time::{Duration, Instant};
use weft_core::wire::{self, flags, Common, Eager, HeaderBuf, Hello, Packet};
use weft_core::{EndpointId, LinkCaps, PeerId, Seq};
use weft_link::rng::Rng;
use weft_link::{Address, Bytes, Frame, Link, LinkError, PeerInfo, Sink};

/// Makes a joined pair of links; or returns the reason why this machine cannot have one.
pub type Make = fn() -> Result<Ends, String>;

/// Bound of every wait in the suite. Only a broken link ever waits that long.
const TIMEOUT: Duration = Duration::from_secs(200);

/// Silence of an unreliable link after which missing packets count as lost.
const SILENCE: Duration = Duration::from_millis(30);

/// Number of times a packet is sent before an unreliable link counts as broken.
const TRIES: u32 = 100;

/// Identities of the two ends.
const IDS: [EndpointId; 2] = [EndpointId(0xa11ce), EndpointId(0xb0b)];

/// Header length of the packets the suite sends (EAGER).
const HEADER: usize = wire::PacketType::Eager.header_len();

/// One end of a pair.
pub struct End {
    /// The link.
    pub link: Box<dyn Link>,
    /// This end's number of the other.
    pub peer: PeerId,
    /// Capabilities of the path to the other end.
    pub caps: LinkCaps,
    /// The number the other end gave to this one; part of every header.
    session: u32,
}

/// Two connected links.
pub struct Ends {
    /// One end.
    pub a: End,
    /// The other.
    pub b: End,
}

impl Ends {
    /// Makes two links with one constructor, which takes the endpoint's identity.
    pub fn of<L: Link + 'static>(
        make: impl Fn(EndpointId) -> Result<L, LinkError>,
    ) -> Result<Ends, String> {
        let make = |id| Ok(Box::new(make(id)?) as Box<dyn Link>);
        let joined = make(IDS[0]).and_then(|a| Ends::join([a, make(IDS[1])?], IDS));
        joined.map_err(|e: LinkError| e.to_string())
    }

    /// Joins two links that belong to endpoints of these identities.
    pub fn join([a, b]: [Box<dyn Link>; 2], ids: [EndpointId; 2]) -> Result<Ends, LinkError> {
        const A_CALLS_B: u32 = 0;
        const B_CALLS_A: u32 = 1;
        let (mut a, mut b) = (a, b);
        let address = |link: &dyn Link, endpoint| {
            let mut address = Address { endpoint, ..Address::default() };
            link.advertise(&mut address);
            address
        };
        let info = |number: u32, address: Address| PeerInfo {
            peer: PeerId(number),
            session: wire::session_number(number, 1),
            endpoint: address.endpoint,
            address,
        };
        let (to_a, to_b) = (address(&*a, ids[0]), address(&*b, ids[1]));
        let a_caps = a.connect(&info(A_CALLS_B, to_b))?;
        let b_caps = b.connect(&info(B_CALLS_A, to_a))?;
        let end = |link, peer, caps, session| End {
            link,
            peer: PeerId(peer),
            caps,
            session: wire::session_number(session, 1),
        };
        let a = end(a, A_CALLS_B, a_caps, B_CALLS_A);
        Ok(Ends { a, b: end(b, B_CALLS_A, b_caps, A_CALLS_B) })
    }

    /// Lets both ends work, then sleeps until a packet comes or the time is over. True if a packet
    /// was received.
    fn turn(&mut self, logs: &mut [Log; 2], limit: Duration) -> bool {
        let [log_a, log_b] = logs;
        if self.a.link.recv(64, log_a) + self.b.link.recv(64, log_b) > 0 {
            return true;
        }
        // The event may be for either end, so both prepare to sleep.
        let (a, b) = (self.a.link.prepare_wait(), self.b.link.prepare_wait());
        if a && b {
            let fds = [self.a.fds(), self.b.fds()].concat();
            sys::readable(&fds, limit);
        }
        for (end, slept) in [(&mut self.a, a), (&mut self.b, b)] {
            if slept {
                end.link.finish_wait(true);
            }
        }
        false
    }

    /// Lets both ends exchange HELLOs, as endpoints do: an agent's link learns its session numbers
    /// from them.
    pub fn greet(mut self) -> Ends {
        let mut logs = [Log::default(), Log::default()];
        let offers = [self.b.session, self.a.session];
        for (at, from) in [&mut self.a, &mut self.b].into_iter().enumerate() {
            let (id, session_offer) = (IDS[at], offers[at]);
            let hello = Hello {
                src_eid: id.0,
                dst_eid: IDS[1 - at].0,
                session_offer,
                mtu: from.caps.mtu,
                version_min: wire::VERSION_MIN,
                version_max: wire::VERSION_MAX,
                credit: 0,
            };
            let common = Common { flags: flags::REPLY, session: from.session, ..Common::default() };
            let header = wire::emit(&common, &Packet::Hello(hello));
            let frame = Frame { peer: from.peer, header: header.as_slice(), payload: &[] };
            assert_eq!(from.link.send(&[frame]), 1, "an idle link is full");
        }
        self.drain(&mut logs);
        self
    }

    /// Takes turns until `done`, or until waiting on makes no sense: never on a reliable link,
    /// after a period of silence on another. Returns true if it was done.
    fn until(&mut self, logs: &mut [Log; 2], done: impl Fn(&[Log; 2]) -> bool) -> bool {
        let patience = if self.reliable() { TIMEOUT } else { SILENCE };
        let mut end = Instant::now() + patience;
        while !done(logs) {
            if self.turn(logs, Duration::from_millis(10)) {
                end = Instant::now() + patience;
            } else if Instant::now() > end {
                return false;
            }
        }
        true
    }

    /// Takes turns until nothing arrives any more: the rest of a case on an unreliable link.
    fn drain(&mut self, logs: &mut [Log; 2]) {
        let mut end = Instant::now() + SILENCE;
        while Instant::now() < end {
            if self.turn(logs, Duration::from_millis(5)) {
                end = Instant::now() + SILENCE;
            }
        }
    }

    fn reliable(&self) -> bool {
        self.a.caps.reliable && self.b.caps.reliable
    }

    /// Returns the largest payload that both paths carry.
    fn payload_max(&self) -> usize {
        self.a.caps.mtu.min(self.b.caps.mtu) as usize - HEADER
    }

    /// Sends packets `numbers` of `len` payload bytes from `a` to `b`, in bursts, and receives
    /// while the link is full.
    fn send_all(&mut self, logs: &mut [Log; 2], numbers: std::ops::Range<u32>, len: usize) {
        let packets: Vec<_> = numbers.map(|n| self.a.packet(n, len)).collect();
        let frames: Vec<_> = packets.iter().map(|p| p.frame(self.a.peer)).collect();
        let mut left = &frames[..];
        let end = Instant::now() + TIMEOUT;
        while !left.is_empty() {
            let sent = self.a.link.send(left);
            assert!(sent <= left.len(), "send returned more than it was given");
            left = &left[sent..];
            if !left.is_empty() {
                self.turn(logs, Duration::from_millis(1));
                assert!(Instant::now() < end, "the link stays full although its peer receives");
            }
        }
    }

    /// Sends one packet from `a` to `b` until it arrives.
    fn deliver(&mut self, logs: &mut [Log; 2], number: u32, len: usize) {
        let tries = if self.reliable() { 1 } else { TRIES };
        for _ in 0..tries {
            self.send_all(logs, number..number + 1, len);
            if self.until(logs, |logs| logs[1].has(number)) {
                return;
            }
        }
        panic!("packet {number} of {len} bytes did not arrive in {tries} tries");
    }
}

impl End {
    fn fds(&self) -> Vec<std::os::fd::RawFd> {
        let mut fds = Vec::new();
        self.link.wait_fds(&mut fds);
        fds.iter().map(|w| w.fd).collect()
    }

    fn packet(&self, number: u32, len: usize) -> Made {
        let common = Common {
            session: self.session,
            seq: Seq(number),
            imm: len as u32,
            ..Common::default()
        };
        let header = wire::emit(&common, &Packet::Eager(Eager { tag: u64::from(number) << 7 }));
        Made { header, payload: pattern(number, len) }
    }

    /// Returns the value of each counter.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = Vec::new();
        self.link.counters(&mut |name, value| all.push((name, value)));
        all
    }
}

/// A packet to send.
struct Made {
    header: HeaderBuf,
    payload: Vec<u8>,
}

impl Made {
    fn frame(&self, peer: PeerId) -> Frame<'_> {
        Frame { peer, header: self.header.as_slice(), payload: &self.payload }
    }
}

/// Returns the payload of packet `number` with this length.
fn pattern(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(u64::from(number)).fill(&mut bytes);
    bytes
}

/// Checks every packet as it comes, and keeps its number.
#[derive(Default)]
pub struct Log {
    numbers: Vec<u32>,
    /// The receiving end's number of the sender, where the link names it.
    from: Option<PeerId>,
}

impl Log {
    fn has(&self, number: u32) -> bool {
        self.numbers.contains(&number)
    }

    /// Checks the promises of the capabilities for packets `0..count`.
    fn check(&self, caps: &LinkCaps, count: u32) {
        assert!(self.numbers.iter().all(|n| *n < count), "a packet that nobody sent");
        if caps.ordered {
            assert!(
                self.numbers.windows(2).all(|w| w[0] < w[1]),
                "out of order: {:?}",
                self.numbers
            );
        }
        if caps.reliable {
            let mut sorted = self.numbers.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..count).collect::<Vec<_>>(), "lost or doubled");
        }
    }
}

impl Sink for Log {
    fn frame(&mut self, from: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        let (common, packet, len) = wire::parse(header).expect("the header as it was sent");
        let Packet::Eager(Eager { tag }) = packet else {
            // An agent sends packets for an end that is gone, and passes on acknowledgements as
            // signs of life; ends behind agents send HELLO.
            let of_agents = matches!(packet, Packet::Ack(_) | Packet::Bye(_) | Packet::Hello(_));
            assert!(of_agents, "as it was sent");
            return;
        };
        // Not the sequence number: an agent numbers packets anew.
        let number = (tag >> 7) as u32;
        assert_eq!(tag, u64::from(number) << 7, "the header as it was sent");
        assert_eq!(len, header.len(), "header and payload divided where the sender did");
        assert_eq!(payload.len(), common.imm as usize, "packet {number} is of another length");
        assert!(payload.to_vec() == pattern(number, payload.len()), "packet {number} was changed");
        self.numbers.push(number);
        self.from = self.from.or(from);
    }
}

/// Runs one case, or notes the reason why it cannot run here.
pub fn run(make: Make, case: fn(&mut Ends)) {
    match make() {
        Ok(mut ends) => case(&mut ends),
        Err(why) => crate::skip(&why),
    }
}

/// Declares a module of tests: every case of the suite on links from one [`Make`].
#[macro_export]
macro_rules! link_suite {
    ($module:ident, $make:expr) => {
        $crate::link_suite! { @ $module, $make;
            caps__are_sound caps
            send__every_size_arrives_whole sizes
            send__bursts_arrive bursts
            send__both_directions_at_once both_directions
            send__recovers_from_backpressure backpressure
            send__to_strangers_is_dropped strangers
            send__nothing_is_nothing nothing
            recv__keeps_its_budget budget
            recv_soon__finds_a_packet close_poll
            recv__names_the_sender_it_knows sender
            disconnect__is_final_and_harmless disconnect
            drop__does_not_block_the_other_end gone
            wait__news_after_prepare_wake wake_after_prepare
            wait__news_before_prepare_are_seen wake_before_prepare
            wait__an_idle_link_is_quiet idle
            direct__does_what_caps_say direct
            counters__are_named_once_and_grow counters
        }
    };
    (@ $module:ident, $make:expr; $($test:ident $case:ident)+) => {
        #[allow(non_snake_case)]
        mod $module {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[test]
                fn $test() {
                    $crate::links::run($make, $crate::links::cases::$case);
                }
            )+
        }
    };
}

//! Fault injection: loss, duplication, reordering, delay and corruption from a seed.

use super::{forward, forward_parts, forward_paths, Clock};
use crate::rng::Rng;
use crate::{DataRun, Frame, Link, LinkError, PeerInfo, Sink};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use weft_core::{Instant, LinkCaps, PeerId};

/// Longest time for which a reordered frame is held back, so that later frames overtake it.
const REORDER_HOLD: Duration = Duration::from_millis(1);

/// Highest number of frames held back at a time; beyond it, `send` reports a full link.
const HELD_MAX: usize = 4096;

/// Longest wait at the end for room in a full link.
const FULL_MAX: Duration = Duration::from_millis(100);

/// The faults and their frequency: `loss=1%,dup=0.1%,reorder=2%,delay=1ms,corrupt=0.01%,seed=7`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultSpec {
    /// Frames that are lost, per million.
    pub loss: u32,
    /// Frames that are sent twice, per million.
    pub dup: u32,
    /// Frames held back for up to 1 ms, so that later ones overtake them, per million.
    pub reorder: u32,
    /// Frames of which one bit is flipped, per million.
    pub corrupt: u32,
    /// Delay of every frame.
    pub delay: Duration,
    /// Longest further, random delay of every frame.
    pub jitter: Duration,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// The reason why a fault specification was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    part: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a fault: loss, dup, reorder and corrupt take a percentage (0.1%), delay \
             and jitter a time (1ms, 50us), seed a number",
            self.part
        )
    }
}

impl std::error::Error for SpecError {}

impl FromStr for FaultSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<FaultSpec, SpecError> {
        let mut spec = FaultSpec::default();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let refused = || SpecError { part: part.to_string() };
            let (key, value) = part.split_once('=').ok_or_else(refused)?;
            match key {
                "loss" => spec.loss = share(value).ok_or_else(refused)?,
                "dup" => spec.dup = share(value).ok_or_else(refused)?,
                "reorder" => spec.reorder = share(value).ok_or_else(refused)?,
                "corrupt" => spec.corrupt = share(value).ok_or_else(refused)?,
                "delay" => spec.delay = time(value).ok_or_else(refused)?,
                "jitter" => spec.jitter = time(value).ok_or_else(refused)?,
                "seed" => spec.seed = value.parse().map_err(|_| refused())?,
                _ => return Err(refused()),
            }
        }
        Ok(spec)
    }
}

/// Parses `0.1%` into parts per million.
fn share(text: &str) -> Option<u32> {
    let percent: f64 = text.strip_suffix('%')?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then(|| (percent * 10_000.0).round() as u32)
}

/// Parses `1ms`, `2.5us`, `7ns`, `1s`.
fn time(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}

impl FaultSpec {
    /// Returns the capabilities that a link still has under these faults.
    pub fn weaken(&self, mut caps: LinkCaps) -> LinkCaps {
        caps.reliable &= self.loss == 0 && self.dup == 0 && self.corrupt == 0;
        caps.ordered &= self.reorder == 0 && self.dup == 0 && self.jitter.is_zero();
        caps
    }
}

fn happens(rng: &mut Rng, per_million: u32) -> bool {
    per_million > 0 && rng.below(1_000_000) < u64::from(per_million)
}

/// Flips bits. A link that authenticates its frames owns one and applies it to the sealed bytes,
/// trailer included: bits flipped before sealing would be authenticated.
#[derive(Clone, Debug)]
pub struct Corruptor {
    per_million: u32,
    rng: Rng,
    corrupted: u64,
}

impl Corruptor {
    /// Makes a corruptor with the rate and the seed of `spec`.
    pub fn new(spec: &FaultSpec) -> Corruptor {
        let rng = Rng::new(spec.seed ^ 0xc0_44_09_7e);
        Corruptor { per_million: spec.corrupt, rng, corrupted: 0 }
    }

    /// Flips one bit of `frame` at the given rate. Returns true if it did.
    pub fn apply(&mut self, frame: &mut [u8]) -> bool {
        if !happens(&mut self.rng, self.per_million) || frame.is_empty() {
            return false;
        }
        let bit = self.rng.below(frame.len() as u64 * 8);
        frame[(bit / 8) as usize] ^= 1 << (bit % 8);
        self.corrupted += 1;
        true
    }

    /// Returns the number of frames corrupted so far.
    pub fn corrupted(&self) -> u64 {
        self.corrupted
    }
}

/// A frame held back.
struct Held {
    peer: PeerId,
    bytes: Vec<u8>,
    header_len: usize,
}

#[derive(Default)]
struct Counters {
    lost: u64,
    duplicated: u64,
    reordered: u64,
    delayed: u64,
}

/// A link with faults on outgoing frames. The same seed, clock and calls give the same faults.
/// While frames are held back, `prepare_wait` returns false, because no other event would send
/// them.
pub struct Faulty {
    inner: Box<dyn Link>,
    spec: FaultSpec,
    clock: Clock,
    rng: Rng,
    corruptor: Corruptor,
    /// Frames by due time, then by age.
    held: BTreeMap<(Instant, u64), Held>,
    age: u64,
    counters: Counters,
}

impl Faulty {
    /// Wraps `inner`. Corruption applies to the frames given to `inner`; if `inner` authenticates
    /// frames, give it a [`Corruptor`] instead and set `corrupt` to 0 here.
    pub fn new(inner: Box<dyn Link>, spec: FaultSpec, clock: Clock) -> Faulty {
        Faulty {
            inner,
            spec,
            clock,
            rng: Rng::new(spec.seed),
            corruptor: Corruptor::new(&spec),
            held: BTreeMap::new(),
            age: 0,
            counters: Counters::default(),
        }
    }

    /// Sends the frames that are due. False if some have to stay because the link is full.
    fn release(&mut self, now: Instant) -> bool {
        while let Some(entry) = self.held.first_entry().filter(|e| e.key().0 <= now) {
            let h = entry.get();
            let (header, payload) = h.bytes.split_at(h.header_len);
            if self.inner.send(&[Frame { peer: h.peer, header, payload }]) == 0 {
                return false;
            }
            entry.remove();
        }
        true
    }

    /// Draws random numbers for one frame.
    fn draw(&mut self, now: Instant) -> Fate {
        let spec = self.spec;
        let lost = happens(&mut self.rng, spec.loss);
        let twice = happens(&mut self.rng, spec.dup);
        let held = happens(&mut self.rng, spec.reorder);
        let jitter = match spec.jitter.as_nanos() as u64 {
            0 => Duration::ZERO,
            most => Duration::from_nanos(self.rng.below(most)),
        };
        let mut due = now + spec.delay + jitter;
        if held {
            due = due + Duration::from_nanos(self.rng.below(REORDER_HOLD.as_nanos() as u64));
        }
        let plain = !lost && !twice && due == now && spec.corrupt == 0;
        Fate { lost, twice, held, due, plain }
    }

    /// Sends the frames without faults. If the link refuses some, returns the index in the call of
    /// the first refused frame, restores the random numbers to their state before that frame, and
    /// takes back the count of losses after it.
    fn pass(&mut self, passing: &mut Passing<'_>) -> Option<usize> {
        if passing.frames.is_empty() {
            return None;
        }
        let sent = self.inner.send(&passing.frames);
        let refused = passing.places.get(sent).copied();
        if let Some(at) = refused {
            self.counters.lost -= passing.lost.iter().filter(|&&lost| lost > at).count() as u64;
            self.rng = passing.dice[at].clone();
        }
        passing.frames.clear();
        passing.places.clear();
        passing.lost.clear();
        refused
    }

    /// Applies the drawn faults to a frame that has one. Unless the frame is lost, it is held at
    /// least until `now`, and the next [`release`](Self::release) sends it.
    fn strike(&mut self, frame: &Frame<'_>, fate: &Fate, now: Instant) {
        if fate.lost {
            self.counters.lost += 1;
            return;
        }
        self.counters.delayed += u64::from(fate.due > now);
        self.counters.reordered += u64::from(fate.held);
        self.counters.duplicated += u64::from(fate.twice);
        let mut bytes = [frame.header, frame.payload].concat();
        self.corruptor.apply(&mut bytes);
        for _ in 0..1 + u8::from(fate.twice) {
            let held =
                Held { peer: frame.peer, bytes: bytes.clone(), header_len: frame.header.len() };
            self.held.insert((fate.due, self.age), held);
            self.age += 1;
        }
    }
}

/// Frames of one call that have no fault and are not sent yet.
struct Passing<'a> {
    frames: Vec<Frame<'a>>,
    /// Index of each frame in the call.
    places: Vec<usize>,
    /// Indices of frames that were lost among them.
    lost: Vec<usize>,
    /// State of the random numbers before each frame of the call.
    dice: Vec<Rng>,
}

impl Passing<'_> {
    fn new(most: usize) -> Self {
        Passing {
            frames: Vec::with_capacity(most),
            places: Vec::with_capacity(most),
            lost: Vec::new(),
            dice: Vec::with_capacity(most),
        }
    }
}

/// The drawn faults of one frame.
struct Fate {
    lost: bool,
    twice: bool,
    held: bool,
    due: Instant,
    /// The frame has no fault.
    plain: bool,
}

/// Frames on their way arrive, although their sender has ended.
impl Drop for Faulty {
    fn drop(&mut self) {
        let patience = std::time::Instant::now() + FULL_MAX;
        while !self.release(Instant::FAR) && std::time::Instant::now() < patience {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl Link for Faulty {
    forward!(inner:
        fn advertise(&self, address: &mut crate::Address);
        fn path_text(&self, peer: weft_core::PeerId) -> String;
        fn poll_event(&mut self) -> Option<crate::LinkEvent>;
        fn wait_fds(&self, out: &mut Vec<crate::WaitFd>);
        fn finish_wait(&mut self, ready: bool);
    );

    fn caps(&self) -> LinkCaps {
        self.spec.weaken(self.inner.caps())
    }

    fn connect(&mut self, peer: &PeerInfo) -> Result<LinkCaps, LinkError> {
        Ok(self.spec.weaken(self.inner.connect(peer)?))
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.held.retain(|_, h| h.peer != peer);
        self.inner.disconnect(peer);
    }

    fn send(&mut self, frames: &[Frame<'_>]) -> usize {
        let now = (self.clock)();
        if !self.release(now) {
            return 0;
        }
        // Frames without faults are sent in one call, as trains: a switch that loses a packet does
        // not separate the packets around it either.
        let mut passing = Passing::new(frames.len());
        for (i, frame) in frames.iter().enumerate() {
            // There must be room for a duplicate before random numbers are drawn.
            if self.held.len() + 2 > HELD_MAX {
                return self.pass(&mut passing).unwrap_or(i);
            }
            passing.dice.push(self.rng.clone());
            let fate = self.draw(now);
            if fate.plain {
                passing.frames.push(*frame);
                passing.places.push(i);
                continue;
            }
            if fate.lost {
                passing.lost.push(i);
            } else if let Some(refused) = self.pass(&mut passing) {
                return refused;
            }
            self.strike(frame, &fate, now);
            self.release(now);
        }
        self.pass(&mut passing).unwrap_or(frames.len())
    }

    fn recv(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        self.release((self.clock)());
        self.inner.recv(budget, sink)
    }

    fn prepare_wait(&mut self) -> bool {
        self.release((self.clock)());
        self.held.is_empty() && self.inner.prepare_wait()
    }

    fn recv_soon(&mut self, rounds: u32, budget: usize, sink: &mut dyn Sink) -> usize {
        self.release((self.clock)());
        self.inner.recv_soon(rounds, budget, sink)
    }

    forward_parts!(inner);

    fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.inner.counters(each);
        each("fault_lost", self.counters.lost);
        each("fault_duplicated", self.counters.duplicated);
        each("fault_reordered", self.counters.reordered);
        each("fault_delayed", self.counters.delayed);
        each("fault_corrupted", self.corruptor.corrupted());
        each("fault_held", self.held.len() as u64);
    }
}

impl crate::Network for Faulty {
    /// Sends a run as one, if no packet of it has a fault.
    fn send_run(&mut self, run: &DataRun<'_>) -> Option<usize> {
        let now = (self.clock)();
        if !self.release(now) {
            return Some(0);
        }
        let before = self.rng.clone();
        let plain = (0..run.packets).all(|_| self.draw(now).plain);
        let sent = match plain {
            true => self.inner.network().and_then(|network| network.send_run(run)),
            false => None,
        };
        if sent != Some(run.packets) {
            self.rng = before;
            for _ in 0..sent.unwrap_or(0) {
                self.draw(now);
            }
        }
        sent
    }

    forward_paths!(inner);
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::looplink::LoopLink;
    use crate::{Address, Bytes};
    use std::cell::Cell;
    use std::rc::Rc;
    use weft_core::{wire, EndpointId};

    const PEER: PeerId = PeerId(0);

    #[derive(Default)]
    struct Got(Vec<(Vec<u8>, Vec<u8>)>);

    impl Sink for Got {
        fn frame(&mut self, _: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
            self.0.push((header.to_vec(), payload.to_vec()));
        }
    }

    struct Bench {
        a: Faulty,
        b: LoopLink,
        now: Rc<Cell<u64>>,
    }

    impl Bench {
        fn new(spec: &str, depth: usize) -> Bench {
            let (mut a, mut b) = LoopLink::pair(1000, depth).unwrap();
            let info = |n| PeerInfo {
                peer: PeerId(n),
                session: 1,
                endpoint: EndpointId(n.into()),
                address: Address::default(),
            };
            a.connect(&info(0)).unwrap();
            b.connect(&info(0)).unwrap();
            let now = Rc::new(Cell::new(0));
            let clock = Rc::clone(&now);
            let clock: Clock = Rc::new(move || Instant(clock.get()));
            Bench { a: Faulty::new(Box::new(a), spec.parse().unwrap(), clock), b, now }
        }

        /// Sends frames numbered `range`; returns how many were taken.
        fn send(&mut self, range: std::ops::Range<u32>) -> usize {
            let numbers: Vec<[u8; 4]> = range.map(u32::to_le_bytes).collect();
            let frame = |n| Frame { peer: PEER, header: &[7; 24], payload: n };
            let frames: Vec<_> = numbers.iter().map(|n| frame(n)).collect();
            self.a.send(&frames)
        }

        fn tick(&mut self, time: Duration) {
            self.now.set(self.now.get() + time.as_nanos() as u64);
            self.a.recv(1, &mut Got::default());
        }

        fn received(&mut self) -> Vec<u32> {
            let mut got = Got::default();
            self.b.recv(usize::MAX >> 1, &mut got);
            let number = |p: &Vec<u8>| u32::from_le_bytes([p[0], p[1], p[2], p[3]]);
            got.0.iter().map(|(_, p)| number(p)).collect()
        }

        fn counter(&self, name: &str) -> u64 {
            let mut value = 0;
            self.a.counters(&mut |n, v| value += if n == name { v } else { 0 });
            value
        }
    }

    #[test]
    fn drop__what_is_held_still_leaves() {
        let Bench { a, mut b, .. } = {
            let mut bench = Bench::new("delay=1ms,jitter=1ms,seed=3", 16);
            assert_eq!(bench.send(0..8), 8);
            assert!(bench.received().is_empty());
            bench
        };
        drop(a);
        let mut got = Got::default();
        assert_eq!(b.recv(16, &mut got), 8);
    }

    #[test]
    fn spec__reads_every_key() {
        let text = "loss=1%, dup=0.1%,reorder=2%,delay=1ms,jitter=50us,corrupt=0.01%,seed=7";
        let spec = FaultSpec {
            loss: 10_000,
            dup: 1000,
            reorder: 20_000,
            corrupt: 100,
            delay: Duration::from_millis(1),
            jitter: Duration::from_micros(50),
            seed: 7,
        };
        assert_eq!(text.parse(), Ok(spec));
        assert_eq!("".parse(), Ok(FaultSpec::default()));
    }

    #[test]
    fn spec__refuses_and_names_the_part() {
        for bad in ["loss=1", "loss=101%", "loss=-1%", "delay=1", "delay=-1ms", "speed=9", "loss"] {
            let error = format!("dup=1%,{bad}").parse::<FaultSpec>().unwrap_err();
            assert!(error.to_string().contains(bad), "{error}");
        }
    }

    #[test]
    fn send__loses_the_share_asked_for() {
        let mut bench = Bench::new("loss=10%,seed=3", 10_000);
        assert_eq!(bench.send(0..10_000), 10_000);
        let got = bench.received();
        assert!((8_800..9_200).contains(&got.len()), "{} of 10000 arrived", got.len());
        assert!(got.windows(2).all(|w| w[0] < w[1]));
        assert_eq!(bench.counter("fault_lost"), 10_000 - got.len() as u64);
    }

    /// Counts the calls of `send`.
    struct Calls(LoopLink, Rc<Cell<usize>>);

    impl Link for Calls {
        fn caps(&self) -> LinkCaps {
            self.0.caps()
        }
        fn advertise(&self, _: &mut Address) {}
        fn connect(&mut self, peer: &PeerInfo) -> Result<LinkCaps, LinkError> {
            self.0.connect(peer)
        }
        fn disconnect(&mut self, peer: PeerId) {
            self.0.disconnect(peer);
        }
        fn send(&mut self, frames: &[Frame<'_>]) -> usize {
            self.1.set(self.1.get() + 1);
            self.0.send(frames)
        }
        fn recv(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
            self.0.recv(budget, sink)
        }
        fn wait_fds(&self, _: &mut Vec<crate::WaitFd>) {}
    }

    #[test]
    fn send__a_loss_does_not_part_the_train_around_it() {
        let mut bench = Bench::new("", 1000);
        let calls = Rc::new(Cell::new(0));
        let (inner, b) = LoopLink::pair(100, 1000).unwrap();
        let clock: Clock = Rc::new(|| Instant(0));
        let inner = Box::new(Calls(inner, Rc::clone(&calls)));
        (bench.a, bench.b) = (Faulty::new(inner, "loss=20%,seed=1".parse().unwrap(), clock), b);
        assert_eq!(bench.send(0..64), 64);
        let got = bench.received();
        assert!(got.len() < 60 && got.windows(2).all(|w| w[0] < w[1]), "{got:?}");
        assert_eq!(calls.get(), 1);
    }

    #[test]
    fn send_run__meets_with_what_its_packets_would() {
        let header =
            wire::emit(&wire::Common::default(), &wire::Packet::Data(wire::Data { offset: 0 }));
        let numbers: Vec<u8> = (0..240u32).flat_map(u32::to_le_bytes).collect();
        for spec in ["", "loss=5%,seed=2", "loss=1%,dup=1%,reorder=1%,seed=3"] {
            let run = |room: usize, whole: bool| {
                let (mut bench, mut got) = (Bench::new(spec, room), Vec::new());
                for train in numbers.chunks(40 * 4) {
                    let mut done = 0;
                    while done < 40 {
                        let left = &train[done * 4..];
                        let each: Vec<_> = left
                            .chunks(4)
                            .map(|payload| Frame { peer: PEER, header: header.as_slice(), payload })
                            .collect();
                        done += match whole {
                            true => crate::link::send_run(
                                &mut bench.a,
                                &DataRun {
                                    peer: PEER,
                                    stripe: 0,
                                    header: header.as_slice(),
                                    payload: left,
                                    packets: 40 - done,
                                },
                            ),
                            false => bench.a.send(&each),
                        };
                        got.extend(bench.received());
                    }
                }
                bench.tick(REORDER_HOLD);
                got.extend(bench.received());
                (got, bench.counter("fault_lost"))
            };
            let apart = run(1000, false);
            assert!(spec.is_empty() || apart.1 > 0);
            assert_eq!(run(1000, true), apart);
            assert_eq!(run(7, true).1, apart.1);
        }
    }

    #[test]
    fn send__losses_behind_what_the_link_refuses_have_not_happened() {
        let whole = |room: usize| {
            let mut bench = Bench::new("loss=30%,seed=5", room);
            let (mut next, mut got) = (0, Vec::new());
            while next < 200 {
                next += bench.send(next..200) as u32;
                got.extend(bench.received());
            }
            (got, bench.counter("fault_lost"))
        };
        assert_eq!(whole(7), whole(1000));
    }

    #[test]
    fn send__the_same_seed_does_the_same() {
        let run = |spec: &str| {
            let mut bench = Bench::new(spec, 10_000);
            bench.send(0..1000);
            bench.tick(Duration::from_millis(2));
            bench.received()
        };
        let spec = "loss=10%,dup=10%,reorder=10%,seed=";
        assert_eq!(run(&format!("{spec}1")), run(&format!("{spec}1")));
        assert_ne!(run(&format!("{spec}1")), run(&format!("{spec}2")));
    }

    #[test]
    fn send__duplicates() {
        let mut bench = Bench::new("dup=100%", 100);
        bench.send(0..3);
        assert_eq!(bench.received(), [0, 0, 1, 1, 2, 2]);
        assert_eq!(bench.counter("fault_duplicated"), 3);
    }

    #[test]
    fn send__reorders_and_loses_nothing() {
        let mut bench = Bench::new("reorder=20%", 1000);
        bench.send(0..100);
        bench.tick(REORDER_HOLD);
        let mut got = bench.received();
        assert!(got.windows(2).any(|w| w[0] > w[1]));
        got.sort_unstable();
        assert_eq!(got, (0..100).collect::<Vec<_>>());
        assert_eq!(bench.counter("fault_held"), 0);
    }

    #[test]
    fn send__delay_keeps_the_order_and_sleep_off() {
        let mut bench = Bench::new("delay=1ms", 100);
        bench.send(0..3);
        bench.tick(Duration::from_micros(999));
        assert!(bench.received().is_empty());
        assert!(!bench.a.prepare_wait());
        bench.tick(Duration::from_micros(1));
        assert_eq!(bench.received(), [0, 1, 2]);
        assert!(bench.a.prepare_wait());
    }

    #[test]
    fn send__holds_a_bounded_number() {
        let mut bench = Bench::new("delay=1s", 10_000);
        let taken = bench.send(0..10_000);
        assert!(taken < HELD_MAX && taken > HELD_MAX - 4);
        assert_eq!(bench.send(0..1), 0);
    }

    #[test]
    fn send__backpressure_of_the_inner_link_shows() {
        let mut bench = Bench::new("dup=50%,seed=1", 10);
        let mut next = bench.send(0..100) as u32;
        assert!(next < 100);
        let mut got = bench.received();
        while next < 100 {
            next += bench.send(next..100) as u32;
            got.extend(bench.received());
        }
        bench.tick(Duration::ZERO);
        got.extend(bench.received());
        got.dedup();
        assert_eq!(got, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn disconnect__forgets_what_was_held() {
        let mut bench = Bench::new("delay=1ms", 100);
        bench.send(0..3);
        bench.a.disconnect(PEER);
        bench.tick(Duration::from_millis(1));
        assert!(bench.received().is_empty());
    }

    #[test]
    fn corruptor__flips_one_bit() {
        let spec = FaultSpec { corrupt: 1_000_000, ..FaultSpec::default() };
        let mut corruptor = Corruptor::new(&spec);
        let mut frame = [0_u8; 100];
        assert!(corruptor.apply(&mut frame));
        assert_eq!(frame.iter().map(|b| b.count_ones()).sum::<u32>(), 1);
        assert!(!corruptor.apply(&mut []));
        assert_eq!(corruptor.corrupted(), 1);
    }

    #[test]
    fn caps__promise_no_more_than_is_left() {
        let caps = |spec: &str| {
            let caps = spec.parse::<FaultSpec>().unwrap().weaken(LinkCaps::memory("m", 100));
            (caps.reliable, caps.ordered)
        };
        assert_eq!(caps("delay=1ms"), (true, true));
        assert_eq!(caps("loss=1%"), (false, true));
        assert_eq!(caps("reorder=1%"), (true, false));
        assert_eq!(caps("dup=1%"), (false, false));
    }
}

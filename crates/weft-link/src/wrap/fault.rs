//! Fault injection: loss, duplication, reordering, delay and corruption from a seed.

use super::{forward, Clock};
use crate::rng::Rng;
use crate::{Frame, Link, LinkError, PeerInfo, Sink};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use weft_core::{Instant, LinkCaps, PeerId};

/// Longest time a reordered frame is held back, so that later ones overtake it.
const REORDER_HOLD: Duration = Duration::from_millis(1);

/// Most frames held back at a time; beyond it `send` says that the link is full.
const HELD_MAX: usize = 4096;

/// What goes wrong, and how often: `loss=1%,dup=0.1%,reorder=2%,delay=1ms,corrupt=0.01%,seed=7`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultSpec {
    /// Frames that vanish, per million.
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
    /// Where the random numbers start.
    pub seed: u64,
}

/// Why a fault specification was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    part: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a fault: loss, dup, reorder and corrupt take a share (0.1%), delay and \
             jitter a time (1ms, 50us), seed a number",
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

/// `0.1%` as parts per million.
fn share(text: &str) -> Option<u32> {
    let percent: f64 = text.strip_suffix('%')?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then(|| (percent * 10_000.0).round() as u32)
}

/// `1ms`, `2.5us`, `7ns`, `1s`.
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
    /// What is left of a link's promises under these faults.
    pub fn weaken(&self, mut caps: LinkCaps) -> LinkCaps {
        caps.reliable &= self.loss == 0 && self.dup == 0 && self.corrupt == 0;
        caps.ordered &= self.reorder == 0 && self.dup == 0 && self.jitter.is_zero();
        caps
    }
}

fn happens(rng: &mut Rng, per_million: u32) -> bool {
    rng.below(1_000_000) < u64::from(per_million)
}

/// Flips bits. A link that authenticates its frames owns one and applies it to the bytes that go
/// onto the wire, trailer included: flipped above the authentication, they would be signed.
#[derive(Clone, Debug)]
pub struct Corruptor {
    per_million: u32,
    rng: Rng,
    corrupted: u64,
}

impl Corruptor {
    /// With the share and the seed of `spec`.
    pub fn new(spec: &FaultSpec) -> Corruptor {
        let rng = Rng::new(spec.seed ^ 0xc0_44_09_7e);
        Corruptor { per_million: spec.corrupt, rng, corrupted: 0 }
    }

    /// Flips one bit of `frame`, or, mostly, does nothing. Returns whether it did.
    pub fn apply(&mut self, frame: &mut [u8]) -> bool {
        if !happens(&mut self.rng, self.per_million) || frame.is_empty() {
            return false;
        }
        let bit = self.rng.below(frame.len() as u64 * 8);
        frame[(bit / 8) as usize] ^= 1 << (bit % 8);
        self.corrupted += 1;
        true
    }

    /// Frames corrupted so far.
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

/// A link on which things go wrong, on the way out. The same seed, clock and calls give the same
/// faults. While frames are held back, `prepare_wait` answers no: nothing else would send them.
pub struct Faulty {
    inner: Box<dyn Link>,
    spec: FaultSpec,
    clock: Clock,
    rng: Rng,
    corruptor: Corruptor,
    /// By time due and then by age.
    held: BTreeMap<(Instant, u64), Held>,
    age: u64,
    counters: Counters,
}

impl Faulty {
    /// Around `inner`. Corruption strikes the frames given to `inner`; where that authenticates
    /// them, give it a [`Corruptor`] instead and set `corrupt` to 0 here.
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

    /// Sends what is due. False: some of it has to stay, the link is full.
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

    /// Decides over one frame. True: it goes on as it is, to be sent by the caller.
    fn passes(&mut self, frame: &Frame<'_>, now: Instant) -> bool {
        let spec = self.spec;
        let lost = happens(&mut self.rng, spec.loss);
        let twice = happens(&mut self.rng, spec.dup);
        let held = happens(&mut self.rng, spec.reorder);
        let jitter = Duration::from_nanos(self.rng.below(spec.jitter.as_nanos() as u64));
        if lost {
            self.counters.lost += 1;
            return false;
        }
        let mut bytes = [frame.header, frame.payload].concat();
        let corrupted = self.corruptor.apply(&mut bytes);
        let mut due = now + spec.delay + jitter;
        self.counters.delayed += u64::from(due > now);
        if held {
            self.counters.reordered += 1;
            due = due + Duration::from_nanos(self.rng.below(REORDER_HOLD.as_nanos() as u64));
        }
        if !corrupted && !twice && due == now {
            return true;
        }
        self.counters.duplicated += u64::from(twice);
        for _ in 0..1 + u8::from(twice) {
            let held =
                Held { peer: frame.peer, bytes: bytes.clone(), header_len: frame.header.len() };
            self.held.insert((due, self.age), held);
            self.age += 1;
        }
        false
    }
}

impl Link for Faulty {
    forward!(inner: advertise poll_event waiting direct);

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
        for (i, frame) in frames.iter().enumerate() {
            // The room for a duplicate has to be there before the dice fall.
            if !self.release(now) || self.held.len() + 2 > HELD_MAX {
                return i;
            }
            let before = self.rng.clone();
            if self.passes(frame, now) && self.inner.send(std::slice::from_ref(frame)) == 0 {
                self.rng = before;
                return i;
            }
        }
        self.release(now);
        frames.len()
    }

    fn recv(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        self.release((self.clock)());
        self.inner.recv(budget, sink)
    }

    fn prepare_wait(&mut self) -> bool {
        self.release((self.clock)());
        self.held.is_empty() && self.inner.prepare_wait()
    }

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

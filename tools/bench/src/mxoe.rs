//! Messages in frames of MX over Ethernet between lab hosts, by packet sockets: `weft bench mxoe`.
//! The tables are those of Figures 9 and 12 to 14 of paper 001.

use crate::faces::plots::{self, Group};
use crate::netns::Place;
use crate::own::{opened, Own};
use crate::pair::{Kind, Pair, Sample, Subject};
use crate::rank::{Channel, Outcome, Probe, Rank, Task};
use crate::table::Better;
use crate::target::{self, Aim, Run};
use crate::volley::volley;
use crate::wire::{self, Socket, FRAME};
use crate::{Bench, LinkName, Options, CONFIG, MTU};
use anyhow::{bail, ensure, Context, Result};
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weft_link::ether::{EtherType, Mac};
use weft_link::BarePacket;
use weft_mx::wire::out::Out;
use weft_mxoe::node::{Event, Node, NotSent, Outgoing, PeerIndex, Settings};
use weft_mxoe::{Dialect, ETHERTYPE, HEADER_MAX, MEDIUM_MAX};

/// Receive ring in bytes.
const RING: usize = 8 << 20;
/// Length of Ethernet's header.
const HEAD: usize = 14;
/// Longest wait for a message.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number and key of both endpoints.
const NUMBER: u8 = 3;
const KEY: u32 = 0x77ef;
/// Least MTU for the dialect of native MX, whose fragments have 4 KiB.
const NATIVE_MTU: u32 = 4096 + HEADER_MAX as u32;
/// Polls between readings of the clock.
const POLLS: u32 = 64;

/// Settings of pulls that differ from those of Open-MX; 0 for those that do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// Length of a frame.
    pub frame: u16,
    /// Frames of a block.
    pub block: u8,
    /// Blocks at a time.
    pub depth: u8,
    /// True if frames are copied together, and not gathered by the kernel.
    pub copies: bool,
    /// True in the dialect of native MX.
    pub is_native: bool,
}

impl Variant {
    fn of(arg: u64) -> Variant {
        let bit = |at: u32| arg >> at & 1 == 1;
        let (frame, block, depth) = ((arg >> 16) as u16, (arg >> 8) as u8, arg as u8);
        Variant { frame, block, depth, copies: bit(32), is_native: bit(33) }
    }

    fn packed(self) -> u64 {
        let lens = u64::from(self.frame) << 16 | u64::from(self.block) << 8;
        let bits = u64::from(self.copies) << 32 | u64::from(self.is_native) << 33;
        bits | lens | u64::from(self.depth)
    }

    /// Returns the settings for an MTU.
    fn settings(self, mtu: u32) -> Settings {
        let dialect = if self.is_native { Dialect::Compat } else { Dialect::Native };
        let usual = Settings::of(dialect, mtu as u16);
        let Variant { frame, block, depth, .. } = self;
        Settings {
            reply: if frame == 0 { usual.reply } else { frame.min(usual.reply) },
            block: if block == 0 { usual.block } else { block },
            depth: if depth == 0 { usual.depth } else { depth },
            ..usual
        }
    }
}

/// An endpoint that speaks MXoE over a packet socket, connected to that of the other rank.
pub struct Mxoe {
    variant: Variant,
    wire: BarePacket,
    node: Node,
    mac: Mac,
    peer: Option<PeerIndex>,
    /// Lengths of messages that have come.
    arrived: VecDeque<usize>,
    begun: Instant,
    now: u64,
    polls: u32,
    out: Out,
    /// The memory of messages that are pulled.
    into: Vec<u8>,
}

/// The bytes of a message, which stay where they are.
struct Lent(Rc<Vec<u8>>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Mxoe {
    /// Opens the endpoint; both ranks call it.
    fn open(rank: &mut Rank, variant: Variant) -> Result<Mxoe> {
        let interface = wire::interface_of(rank)?;
        let kind = EtherType::new(ETHERTYPE).context("the type of frames")?;
        let wire = BarePacket::open(&interface, kind, RING).context("a packet socket")?;
        let settings = variant.settings(interface.mtu);
        let session = weft_link::random_u64() as u32;
        let longest = settings.reply.max(settings.fragment);
        let stride = HEAD + HEADER_MAX + usize::from(longest);
        let mut side = Mxoe {
            variant,
            wire,
            node: Node::new(settings, NUMBER, KEY, session),
            mac: interface.mac,
            peer: None,
            arrived: VecDeque::new(),
            begun: Instant::now(),
            now: 0,
            polls: 0,
            out: Out::new(interface.mac.0, stride, !variant.copies, None),
            into: Vec::new(),
        };
        rank.tell(&side.mac.0)?;
        let theirs: [u8; 6] = rank.receive_note()?.try_into().ok().context("a note of 6 bytes")?;
        if rank.me == 0 {
            side.node.connect(0, theirs, NUMBER, KEY).context("too many peers")?;
            side.until(|side| side.peer.is_some())?;
            side.send(&Rc::new(b"hello".to_vec()))?;
        } else {
            side.until(|side| side.arrived.pop_front().is_some())?;
        }
        rank.sync()?;
        Ok(side)
    }

    /// Makes progress until something holds.
    fn until(&mut self, mut holds: impl FnMut(&mut Mxoe) -> bool) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            self.progress()?;
            if holds(self) {
                return Ok(());
            }
            ensure!(self.polls > 0 || Instant::now() < end, "no message came");
        }
    }

    fn progress(&mut self) -> Result<()> {
        self.polls = (self.polls + 1) % POLLS;
        if self.polls == 0 {
            self.now = self.begun.elapsed().as_micros() as u64;
            self.node.handle_timeout(self.now);
        }
        let Mxoe { wire, node, into, now, .. } = self;
        let mut take = |frame: &[u8]| {
            let Some((head, rest)) = frame.split_at_checked(HEAD) else { return };
            let Some(from) = head.get(6..12).and_then(|from| from.try_into().ok()) else { return };
            node.handle_into(*now, from, rest, &mut |_, at, bytes| {
                let place = into.get_mut(at..at + bytes.len());
                place.into_iter().for_each(|place| place.copy_from_slice(bytes));
            });
        };
        while wire.take_with(&mut take).is_some() {}
        self.flush()?;
        while let Some(event) = self.node.poll_event() {
            match event {
                Event::Connected(peer) => self.peer = Some(peer),
                Event::Received { peer, data, .. } => {
                    self.peer = Some(peer);
                    self.arrived.push_back(data.len());
                }
                Event::Pulled { peer, len, .. } => {
                    self.peer = Some(peer);
                    self.arrived.push_back(len as usize);
                }
                Event::Announced { offer, .. } => {
                    self.into.resize(self.into.len().max(offer.len as usize), 0);
                    self.node.pull_into(self.now, offer, offer.len, 0);
                    self.flush()?;
                }
                Event::Sent { .. } | Event::Misdirected(_) => {}
                Event::NotPulled { .. } => bail!("a message cannot be pulled"),
                Event::Refused(_, status) => bail!("the connection was refused: {status}"),
                Event::Failed(..) => bail!("the other rank does not answer"),
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        while !self.out.flush(&mut self.wire, &mut self.node) {
            std::thread::yield_now();
        }
        ensure!(self.out.errors == 0, "the system refused a frame");
        Ok(())
    }

    /// Sends a message.
    fn send(&mut self, data: &Rc<Vec<u8>>) -> Result<()> {
        let peer = self.peer.context("not connected")?;
        let sent = if data.len() > MEDIUM_MAX as usize && !self.variant.copies {
            self.node.send_lent(self.now, peer, (1, 0), Box::new(Lent(Rc::clone(data))))
        } else {
            let data = data.to_vec();
            let message = Outgoing { match_bits: 1, data, context: 0, is_sync: false };
            self.node.send(self.now, peer, message)
        };
        sent.map_err(|why: NotSent| anyhow::anyhow!("a message was not sent: {why:?}"))?;
        self.flush()
    }

    /// Receives a message of a length.
    fn recv(&mut self, len: usize) -> Result<()> {
        self.until(|side| !side.arrived.is_empty())?;
        let got = self.arrived.pop_front().unwrap_or(0);
        ensure!(got == len, "a message of {got} bytes and not {len}");
        Ok(())
    }
}

/// The probe of this benchmark: ping-pong of messages in frames of MX over Ethernet, one way; `arg`
/// as packed by [`Variant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Frames {
    PingPong,
}

probes!(Frames);

impl Own for Frames {
    const NUMBER: u8 = 2;

    fn name(self) -> &'static str {
        "MXoE ping-pong"
    }

    fn run(self, rank: &mut Rank, task: &Task) -> Result<Outcome> {
        ping_pong(rank, task)
    }
}

/// Ping-pong of messages in frames of MXoE, one way.
fn ping_pong(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let variant = Variant::of(task.arg);
    if variant.is_native && wire::interface_of(rank)?.mtu < NATIVE_MTU {
        return Ok(Outcome::Absent(format!("frames of native MX need an MTU of {NATIVE_MTU}")));
    }
    let mut side = match opened::<Option<Mxoe>>(rank)?.take().filter(|side| side.variant == variant)
    {
        Some(side) => side,
        None => Mxoe::open(rank, variant)?,
    };
    let (data, len) = (Rc::new(vec![1; task.size]), task.size);
    let send = |side: &mut Mxoe| side.send(&data);
    let outcome = volley(rank, task, &mut side, "lost", send, |s| s.recv(len).map(|()| true))?;
    // Acknowledgements of the last messages are still to come.
    rank.tell(&[0])?;
    while !rank.has_note()? {
        side.progress()?;
    }
    rank.receive_note()?;
    *opened(rank)? = Some(side);
    Ok(outcome)
}

/// Sizes at both MTUs; messages longer than 32 KiB are pulled.
const SIZES: [usize; 9] =
    [16, 128, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 128 << 10, 1 << 20, 4 << 20];
/// The sizes at which settings of pulls are compared, and that of the findings.
const LENGTHS: [usize; 3] = [128 << 10, LONG, 4 << 20];
const LONG: usize = 1 << 20;
/// The MTUs: that of Ethernet, and that of jumbo frames.
const JUMBO: u32 = 9000;

/// The settings of Open-MX.
const USUAL: Variant = Variant { frame: 0, block: 0, depth: 0, copies: false, is_native: false };

/// The first of the lines that are drawn together, and their plots.
const LINE: &str = "MXoE, one way";
const PULLS: &str = "long messages, ";
const BOTH: [Group; 1] = [("Figure 12, by MTU", LINE)];
const GROUPS: [Group; 1] = [("Figures 13 and 14, by frames and blocks", PULLS)];

/// Settings of pulls by the names of their lines.
const VARIANTS: [(&str, Variant); 10] = [
    ("long messages, copied together", Variant { copies: true, ..USUAL }),
    ("long messages, as native MX", Variant { is_native: true, ..USUAL }),
    ("long messages, frames of 1468 bytes", Variant { frame: 1468, ..USUAL }),
    ("long messages, frames of 4096 bytes", Variant { frame: 4096, ..USUAL }),
    ("long messages, 1 frame a block", Variant { block: 1, ..USUAL }),
    ("long messages, 8 frames a block", Variant { block: 8, ..USUAL }),
    ("long messages, 64 frames a block", Variant { block: 64, ..USUAL }),
    ("long messages, 1 block at a time", Variant { depth: 1, ..USUAL }),
    ("long messages, 2 blocks at a time", Variant { depth: 2, ..USUAL }),
    ("long messages, 8 blocks at a time", Variant { depth: 8, ..USUAL }),
];

/// Times of 1 MiB: ours, of a copy of it, and of TCP; and times of 16 B, ours and of TCP.
#[derive(Clone, Copy, Default)]
struct Times {
    long: [Option<Sample>; 3],
    short: [Option<Sample>; 2],
}

/// Measures messages of all sizes.
fn lines(run: &mut Run<'_>, mtu: u32) -> Result<Times> {
    let ours = run.bench.bare(Frames::PingPong);
    let tcp = run.bench.bare(Probe::PingPong(Channel::Tcp));
    let floor = run.bench.bare(Probe::Wire(Socket::Packet, false));
    let copy = run.bench.bare(Probe::Copy);
    let mut times = Times::default();
    let name = if mtu == JUMBO { "MXoE, one way, MTU 9000" } else { LINE };
    run.begin(name);
    for size in SIZES.into_iter().filter(|&size| run.wants(size)).collect::<Vec<_>>() {
        let (floor, named) = if size <= FRAME { (floor, "AF_PACKET") } else { (copy, "copy") };
        let subjects = [ours, tcp, floor];
        let got: Vec<Option<Sample>> = run.bench.measure(size, &subjects, |s| s * 1e6)?;
        let line = (name, size, "us", Better::Lower);
        let aim = match (size, mtu) {
            (16, MTU) => Some(0.6),
            (LONG, JUMBO) => Some(1.0),
            _ => None,
        };
        run.push(line, [got[0], got[2], got[1]], (named, "tcp"), Aim { peer: aim, floor: None });
        match size {
            LONG => times.long = [got[0], got[2], got[1]],
            16 => times.short = [got[0], got[1]],
            _ => {}
        }
    }
    Ok(times)
}

/// Measures long messages with settings of pulls; returns the times of 1 MiB, each with that of the
/// usual settings.
fn variants(run: &mut Run<'_>) -> Result<BTreeMap<&'static str, [f64; 2]>> {
    let mut times = BTreeMap::new();
    for (name, variant) in VARIANTS {
        run.begin(name);
        for size in LENGTHS.into_iter().filter(|&size| run.wants(size)).collect::<Vec<_>>() {
            let usual = run.bench.bare(Frames::PingPong);
            let ours = Subject { arg: variant.packed(), ..usual };
            let got = run.bench.measure(size, &[ours, usual], |s| s * 1e6)?;
            if let (LONG, [Some(ours), Some(usual)]) = (size, &got[..]) {
                times.insert(name, [ours.median, usual.median]);
            }
            let line = (name, size, "us", Better::Lower);
            run.push(line, [got[0], None, got[1]], ("", "as Open-MX"), Aim::default());
        }
    }
    Ok(times)
}

fn stands(it: bool) -> &'static str {
    if it {
        "stands"
    } else {
        "does not stand"
    }
}

/// Says which findings of paper 001 stand, by the times at both MTUs.
fn findings(narrow: &Times, wide: &Times) -> Vec<String> {
    let mut notes = Vec::new();
    if let [Some(ours), Some(tcp)] = narrow.short {
        notes.push(format!(
            "paper 001, Figure 9: short messages take 0.55 to 0.88 of TCP's time; here {:.2}: {}",
            ours.median / tcp.median,
            stands(ours.median < 0.9 * tcp.median)
        ));
    }
    if let [Some(ours), _, Some(tcp)] = wide.long {
        let gain = (tcp.median / ours.median - 1.0) * 100.0;
        notes.push(format!(
            "paper 001, Figure 9: long messages have 80 % more of TCP's rate at MTU 9000; here \
             {gain:+.0} %: {}",
            stands(gain > 30.0)
        ));
    }
    if let (Some(narrow), Some(wide)) = (narrow.long[0], wide.long[0]) {
        let gain = narrow.median / wide.median;
        notes.push(format!(
            "paper 001, Figure 12: a large MTU doubles the rate of long messages; here x \
             {gain:.1}: {}",
            stands(gain > 1.5)
        ));
    }
    if let [Some(ours), Some(copy), _] = wide.long {
        let share = copy.median / ours.median * 100.0;
        notes.push(format!(
            "paper 001, Figures 10 and 11: without copies at the receiver the rate would be half \
             as high again; here a copy of 1 MiB is {share:.0} % of its time, and more cannot be \
             hidden: {}",
            stands(share > 33.0)
        ));
    }
    notes
}

/// Says which findings of Figures 13 and 14 stand, by the times of settings of pulls.
fn findings_of_pulls(times: &BTreeMap<&'static str, [f64; 2]>) -> Vec<String> {
    let share = |name: &str| {
        let [ours, usual] = times.get(format!("{PULLS}{name}").as_str())?;
        Some(usual / ours)
    };
    let mut notes = Vec::new();
    if let Some(share) = share("as native MX") {
        notes.push(format!(
            "paper 001, Figure 13: in the dialect of native MX, long messages have at least 65 % \
             of the rate; here {:.0} % of that in Open-MX's: {}",
            share * 100.0,
            stands(share >= 0.65)
        ));
    }
    if let Some(share) = share("frames of 4096 bytes") {
        let gain = (1.0 / share - 1.0) * 100.0;
        notes.push(format!(
            "paper 001, Figure 14: frames longer than the 4 KiB of native MX raise the rate; here \
             by {gain:+.0} %: {}",
            stands(gain > 10.0)
        ));
    }
    if let Some(share) = share("8 frames a block") {
        let gain = (1.0 / share - 1.0) * 100.0;
        notes.push(format!(
            "paper 001, Figure 14: blocks of 32 frames and not 8 raise the rate little where \
             latency is low; here by {gain:+.0} %: {}",
            stands((-10.0..30.0).contains(&gain))
        ));
    }
    notes
}

/// Starts the ranks on hosts joined by a cable with an MTU.
fn start<'a>(options: &'a Options, mtu: u32) -> Result<Run<'a>> {
    let link = LinkName::Packet;
    let mut bench = Bench::start(link, options)?;
    if mtu != MTU && bench.far.is_none() {
        bench.place = Place::Between(mtu);
        for pair in &mut bench.meter.pairs {
            *pair = Pair::start(&Kind { link: "udp", config: CONFIG, place: bench.place })?;
        }
    }
    let mut run = Run { name: "mxoe", bench, link, checks: Vec::new(), notes: Vec::new() };
    run.notes.extend(run.bench.path());
    Ok(run)
}

/// Measures messages between lab hosts, and prints the tables.
pub fn print(
    options: &Options,
    (json, folder): (bool, Option<&Path>),
    out: &mut impl Write,
) -> Result<()> {
    let mut times = [Times::default(); 2];
    let (mut both, mut drawn) = (Vec::new(), Vec::new());
    for (at, mtu) in [MTU, JUMBO].into_iter().enumerate() {
        let mut run = start(options, mtu)?;
        let pulls = if mtu == JUMBO { 2 * VARIANTS.len() } else { 0 };
        run.plan(&[(&SIZES, 3), (&LENGTHS, pulls)]);
        match lines(&mut run, mtu) {
            Ok(of) => times[at] = of,
            Err(why) => run.notes.push(format!("{why:#}")),
        }
        if mtu == JUMBO {
            run.notes.extend(findings(&times[0], &times[1]));
            match variants(&mut run) {
                Ok(times) => run.notes.extend(findings_of_pulls(&times)),
                Err(why) => run.notes.push(format!("{why:#}")),
            }
            run.notes.push(copy_engine());
        }
        run.notes.append(&mut run.bench.meter.absent);
        run.notes
            .push("frames have no authentication: for networks whose hosts are all trusted".into());
        if let Some(folder) = folder {
            drawn.extend(plots::write(
                folder,
                &format!("mxoe at mtu {mtu}"),
                &run.checks,
                &GROUPS,
            )?);
        }
        target::show("mxoe between lab hosts", &run, json, out)?;
        both.append(&mut run.checks);
    }
    if let Some(folder) = folder {
        both.retain(|check| check.table.what.starts_with(LINE));
        drawn.extend(plots::write(folder, "mxoe", &both, &BOTH)?);
    }
    for plot in drawn.iter().filter(|_| !json) {
        writeln!(out, "  - plot: {plot}.svg, .png")?;
    }
    Ok(())
}

/// Says which copy engine there is.
fn copy_engine() -> String {
    match std::fs::read_dir("/dev/dsa").map(Iterator::count) {
        Ok(queues @ 1..) => format!(
            "copy engine: Intel DSA has {queues} queues in /dev/dsa; kernels let only programs \
             with CAP_SYS_RAWIO map them, and it is not used"
        ),
        _ => "copy engine: none (/dev/dsa)".into(),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn packed__each_variant_comes_back_whole() {
        for (name, variant) in VARIANTS {
            assert_eq!(Variant::of(variant.packed()), variant, "{name}");
            assert!(name.starts_with(PULLS), "{name}");
        }
    }

    #[test]
    fn findings__each_figure_is_judged_by_what_was_measured() {
        let sample = |median| Some(Sample { median, min: median, max: median });
        let times = |ours, tcp| Times {
            long: [sample(ours), sample(100.0), sample(tcp)],
            short: [sample(2.0), sample(4.0)],
        };
        let notes = findings(&times(1600.0, 400.0), &times(500.0, 330.0));
        let verdicts: Vec<bool> = notes.iter().map(|note| note.ends_with(": stands")).collect();
        assert_eq!(verdicts, [true, false, true, false], "{notes:?}");
        assert!(findings(&Times::default(), &Times::default()).is_empty());
        let of_pulls = [
            ("long messages, as native MX", [900.0, 500.0]),
            ("long messages, frames of 4096 bytes", [830.0, 500.0]),
            ("long messages, 8 frames a block", [500.0, 500.0]),
        ];
        let notes = findings_of_pulls(&of_pulls.into());
        let verdicts: Vec<bool> = notes.iter().map(|note| note.ends_with(": stands")).collect();
        assert_eq!(verdicts, [false, true, true], "{notes:?}");
    }
}

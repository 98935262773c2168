//! Messages in frames of MX over Ethernet between lab hosts, by packet sockets: `weft bench mxoe`.
//! The tables are those of Figures 9 to 12 and 14 of paper 001.

use crate::netns::Place;
use crate::pair::{Kind, Pair, Sample, Subject};
use crate::rank::{Channel, Outcome, Probe, Rank, Task};
use crate::table::Better;
use crate::target::{self, Aim, Run};
use crate::volley::volley;
use crate::wire::{self, Socket, FRAME};
use crate::{Bench, LinkName, Options, CONFIG, MTU};
use anyhow::{bail, ensure, Context, Result};
use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};
use weft_link::ether::{EtherType, Mac};
use weft_link::BarePacket;
use weft_mxoe::node::{Event, Node, Outgoing, PeerIndex, Settings};
use weft_mxoe::{Dialect, ETHERTYPE};

/// Receive ring in bytes.
const RING: usize = 8 << 20;
/// Length of Ethernet's header, and of the shortest frame.
const HEAD: usize = 14;
const SHORTEST: usize = 60;
/// Longest wait for a message.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number and key of both endpoints.
const NUMBER: u8 = 3;
const KEY: u32 = 0x77ef;
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
}

impl Variant {
    fn of(arg: u64) -> Variant {
        Variant { frame: (arg >> 16) as u16, block: (arg >> 8) as u8, depth: arg as u8 }
    }

    fn packed(self) -> u64 {
        u64::from(self.frame) << 16 | u64::from(self.block) << 8 | u64::from(self.depth)
    }

    fn apply(self, usual: Settings) -> Settings {
        let (frame, block, depth) = (self.frame, self.block, self.depth);
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
    arrived: VecDeque<Vec<u8>>,
    begun: Instant,
    now: u64,
    polls: u32,
    frame: Vec<u8>,
    out: Vec<u8>,
}

impl Mxoe {
    /// Opens the endpoint; both ranks call it.
    fn open(rank: &mut Rank, variant: Variant) -> Result<Mxoe> {
        let interface = wire::interface_of(rank)?;
        let kind = EtherType::new(ETHERTYPE).context("the type of frames")?;
        let wire = BarePacket::open(&interface, kind, RING).context("a packet socket")?;
        let settings = variant.apply(Settings::of(Dialect::Native, interface.mtu as u16));
        let session = weft_link::random_u64() as u32;
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
            frame: vec![0; 1 << 16],
            out: Vec::new(),
        };
        rank.tell(&side.mac.0)?;
        let theirs: [u8; 6] = rank.receive_note()?.try_into().ok().context("a note of 6 bytes")?;
        if rank.me == 0 {
            side.node.connect(0, theirs, NUMBER, KEY).context("too many peers")?;
            side.until(|side| side.peer.is_some())?;
            side.send(b"hello")?;
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
        while let Some(len) = self.wire.take_into(&mut self.frame) {
            let Some((head, rest)) = self.frame[..len.min(self.frame.len())].split_at_checked(HEAD)
            else {
                continue;
            };
            if let Some(from) = head.get(6..12).and_then(|from| from.try_into().ok()) {
                self.node.handle(self.now, from, rest);
            }
        }
        self.flush()?;
        while let Some(event) = self.node.poll_event() {
            match event {
                Event::Connected(peer) => self.peer = Some(peer),
                Event::Received { peer, data, .. } | Event::Pulled { peer, data, .. } => {
                    self.peer = Some(peer);
                    self.arrived.push_back(data);
                }
                Event::Announced { offer, .. } => {
                    self.node.pull(self.now, offer, offer.len, 0);
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
        loop {
            self.out.clear();
            self.out.extend_from_slice(&[0; HEAD]);
            let Some(to) = self.node.poll_transmit(&mut self.out) else { return Ok(()) };
            self.out[..6].copy_from_slice(&to);
            self.out[6..12].copy_from_slice(&self.mac.0);
            self.out[12..HEAD].copy_from_slice(&ETHERTYPE.to_be_bytes());
            self.out.resize(self.out.len().max(SHORTEST), 0);
            loop {
                match self.wire.send(&self.out) {
                    Ok(()) => break,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                    Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => std::thread::yield_now(),
                    Err(e) => return Err(e).context("sending a frame"),
                }
            }
        }
    }

    /// Sends a message.
    fn send(&mut self, data: &[u8]) -> Result<()> {
        let peer = self.peer.context("not connected")?;
        let data = data.to_vec();
        let message = Outgoing { match_bits: 1, data, context: 0, is_sync: false };
        let sent = self.node.send(self.now, peer, message);
        sent.map_err(|why| anyhow::anyhow!("a message was not sent: {why:?}"))?;
        self.flush()
    }

    /// Receives a message of a length.
    fn recv(&mut self, len: usize) -> Result<()> {
        self.until(|side| !side.arrived.is_empty())?;
        let got = self.arrived.pop_front().map_or(0, |data| data.len());
        ensure!(got == len, "a message of {got} bytes and not {len}");
        Ok(())
    }
}

/// Ping-pong of messages in frames of MXoE, one way.
pub fn ping_pong(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let variant = Variant::of(task.arg);
    let mut side = match rank.mxoe.take().filter(|side| side.variant == variant) {
        Some(side) => side,
        None => Mxoe::open(rank, variant)?,
    };
    let (data, len) = (vec![1; task.size], task.size);
    let send = |side: &mut Mxoe| side.send(&data);
    let outcome = volley(rank, task, &mut side, "lost", send, |s| s.recv(len).map(|()| true))?;
    // Acknowledgements of the last messages are still to come.
    rank.tell(&[0])?;
    while !rank.has_note()? {
        side.progress()?;
    }
    rank.receive_note()?;
    rank.mxoe = Some(side);
    Ok(outcome)
}

/// Sizes at both MTUs; messages longer than 32 KiB are pulled.
const SIZES: [usize; 9] =
    [16, 128, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 128 << 10, 1 << 20, 4 << 20];
/// The size at which settings of pulls are compared.
const LONG: usize = 1 << 20;
/// The MTUs: that of Ethernet, and that of jumbo frames.
const JUMBO: u32 = 9000;

/// Settings of pulls by name: length of frames, frames of a block, and blocks at a time.
const VARIANTS: [(&str, Variant); 8] = [
    ("1 MiB, frames of 1468 bytes", Variant { frame: 1468, block: 0, depth: 0 }),
    ("1 MiB, frames of 4096 bytes", Variant { frame: 4096, block: 0, depth: 0 }),
    ("1 MiB, 1 frame a block", Variant { frame: 0, block: 1, depth: 0 }),
    ("1 MiB, 8 frames a block", Variant { frame: 0, block: 8, depth: 0 }),
    ("1 MiB, 64 frames a block", Variant { frame: 0, block: 64, depth: 0 }),
    ("1 MiB, 1 block at a time", Variant { frame: 0, block: 0, depth: 1 }),
    ("1 MiB, 2 blocks at a time", Variant { frame: 0, block: 0, depth: 2 }),
    ("1 MiB, 8 blocks at a time", Variant { frame: 0, block: 0, depth: 8 }),
];

/// Measures messages of all sizes; returns the times of 1 MiB and of a copy of it.
fn lines(run: &mut Run<'_>, mtu: u32) -> Result<[Option<Sample>; 2]> {
    let ours = run.bench.bare(Probe::MxoePingPong);
    let tcp = run.bench.bare(Probe::PingPong(Channel::Tcp));
    let floor = run.bench.bare(Probe::Wire(Socket::Packet, false));
    let copy = run.bench.bare(Probe::Copy);
    let mut long = [None, None];
    for size in SIZES.into_iter().filter(|&size| run.wants(size)).collect::<Vec<_>>() {
        let (floor, named) = if size <= FRAME { (floor, "AF_PACKET") } else { (copy, "copy") };
        let subjects = [ours, tcp, floor];
        let got: Vec<Option<Sample>> = run.bench.measure(size, &subjects, |s| s * 1e6)?;
        let name = if mtu == JUMBO { "MXoE, one way, MTU 9000" } else { "MXoE, one way" };
        let line = (name, size, "us", Better::Lower);
        let aim = match (size, mtu) {
            (16, MTU) => Some(0.6),
            (LONG, JUMBO) => Some(1.0),
            _ => None,
        };
        run.push(line, [got[0], got[2], got[1]], (named, "tcp"), Aim { peer: aim, floor: None });
        if size == LONG {
            long = [got[0], got[2]];
        }
    }
    Ok(long)
}

/// Measures a long message with settings of pulls.
fn variants(run: &mut Run<'_>) -> Result<()> {
    if !run.wants(LONG) {
        return Ok(());
    }
    for (name, variant) in VARIANTS {
        let usual = run.bench.bare(Probe::MxoePingPong);
        let ours = Subject { arg: variant.packed(), ..usual };
        let got = run.bench.measure(LONG, &[ours, usual], |s| s * 1e6)?;
        let line = (name, LONG, "us", Better::Lower);
        run.push(line, [got[0], None, got[1]], ("", "as Open-MX"), Aim::default());
    }
    Ok(())
}

/// Says which findings of paper 001 stand, by the times of 1 MiB at both MTUs.
fn findings(narrow: [Option<Sample>; 2], wide: [Option<Sample>; 2]) -> Vec<String> {
    let mut notes = Vec::new();
    let stands = |it: bool| if it { "stands" } else { "does not stand" };
    if let (Some(narrow), Some(wide)) = (narrow[0], wide[0]) {
        let gain = narrow.median / wide.median;
        notes.push(format!(
            "paper 001, Figure 12: a large MTU doubles the rate of long messages; here x \
             {gain:.1}: {}",
            stands(gain > 1.5)
        ));
    }
    if let [Some(ours), Some(copy)] = wide {
        let share = copy.median / ours.median * 100.0;
        notes.push(format!(
            "paper 001, Figures 10 and 11: without copies at the receiver the rate would be half \
             as high again; here a copy of 1 MiB is {share:.0} % of its time, and more cannot be \
             hidden: {}",
            stands(share > 33.0)
        ));
    }
    notes.push(match std::fs::read_dir("/dev/dsa").map(Iterator::count) {
        Ok(queues @ 1..) => format!(
            "copy engine: Intel DSA has {queues} queues in /dev/dsa; kernels let only programs \
             with CAP_SYS_RAWIO map them, and it is not used"
        ),
        _ => "copy engine: none (/dev/dsa)".into(),
    });
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
pub fn print(options: &Options, json: bool, out: &mut impl Write) -> Result<()> {
    let mut long = [[None, None]; 2];
    for (at, mtu) in [MTU, JUMBO].into_iter().enumerate() {
        let mut run = start(options, mtu)?;
        match lines(&mut run, mtu) {
            Ok(of) => long[at] = of,
            Err(why) => run.notes.push(format!("{why:#}")),
        }
        if mtu == JUMBO {
            let measured = variants(&mut run);
            run.notes.extend(measured.err().map(|why| format!("{why:#}")));
            run.notes.extend(findings(long[0], long[1]));
        }
        run.notes.append(&mut run.bench.meter.absent);
        run.notes
            .push("frames have no authentication: for networks whose hosts are all trusted".into());
        target::show("mxoe between lab hosts", &run, json, out)?;
    }
    Ok(())
}

//! Messages in frames of MX over Ethernet between lab hosts, by packet sockets: `weft bench mxoe`.

use crate::pair::Sample;
use crate::rank::{Channel, Outcome, Probe, Rank, Task};
use crate::table::Better;
use crate::target::{self, Aim, Run};
use crate::volley::volley;
use crate::wire::{self, Socket, FRAME};
use crate::{Bench, LinkName, Options};
use anyhow::{bail, ensure, Context, Result};
use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};
use weft_link::ether::{EtherType, Mac};
use weft_link::BarePacket;
use weft_mxoe::node::{Event, Node, Outgoing, PeerIndex, Settings};
use weft_mxoe::{Dialect, ETHERTYPE};

/// Receive ring in bytes.
const RING: usize = 1 << 20;
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

/// An endpoint that speaks MXoE over a packet socket, connected to that of the other rank.
pub struct Mxoe {
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
    fn open(rank: &mut Rank) -> Result<Mxoe> {
        let interface = wire::interface_of(rank)?;
        let kind = EtherType::new(ETHERTYPE).context("the type of frames")?;
        let wire = BarePacket::open(&interface, kind, RING).context("a packet socket")?;
        let settings = Settings::of(Dialect::Native, interface.mtu as u16);
        let session = weft_link::random_u64() as u32;
        let mut side = Mxoe {
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
    let mut side = match rank.mxoe.take() {
        Some(side) => side,
        None => Mxoe::open(rank)?,
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

/// Sizes; messages longer than 32 KiB are pulled.
const SIZES: [usize; 8] = [16, 128, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 128 << 10, 1 << 20];

fn lines(run: &mut Run<'_>) -> Result<()> {
    let ours = run.bench.bare(Probe::MxoePingPong);
    let tcp = run.bench.bare(Probe::PingPong(Channel::Tcp));
    let floor = run.bench.bare(Probe::Wire(Socket::Packet, false));
    for size in SIZES.into_iter().filter(|&size| run.wants(size)).collect::<Vec<_>>() {
        let mut subjects = vec![ours, tcp];
        subjects.extend((size <= FRAME).then_some(floor));
        let got: Vec<Option<Sample>> = run.bench.measure(size, &subjects, |s| s * 1e6)?;
        let line = ("MXoE, one way", size, "us", Better::Lower);
        let aim = Aim { peer: (size == SIZES[0]).then_some(0.6), floor: None };
        let floor = got.get(2).copied().flatten();
        run.push(line, [got[0], floor, got[1]], ("AF_PACKET", "tcp"), aim);
    }
    Ok(())
}

/// Measures messages between lab hosts, and prints the table.
pub fn print(options: &Options, json: bool, out: &mut impl Write) -> Result<()> {
    let link = LinkName::Packet;
    let bench = Bench::start(link, options)?;
    let mut run = Run { name: "mxoe", bench, link, checks: Vec::new(), notes: Vec::new() };
    run.notes.extend(run.bench.path());
    let measured = lines(&mut run);
    run.notes.extend(measured.err().map(|why| format!("{why:#}")));
    run.notes.append(&mut run.bench.meter.absent);
    run.notes
        .push("frames have no authentication: for networks whose hosts are all trusted".into());
    target::show("mxoe between lab hosts", &run, json, out)
}

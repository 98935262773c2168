//! The C interfaces of old beside the endpoint that they are made of and TCP: `weft bench mx` and
//! `weft bench via`, each target met or not, with the figures of the papers.

pub mod busy;
pub mod many;
pub mod plots;
#[allow(unsafe_code)]
mod sys;
pub mod together;
pub mod wired;

use crate::netns::Place;
use crate::own::{opened, Own};
use crate::pair::Sample;
use crate::rank::{Channel, Outcome, Probe, Rank, Task};
use crate::sockets::Beside;
use crate::table::Better;
use crate::target::{self, Aim, Lines, Run};
use crate::volley::volley;
use crate::volley::{per, warm_up};
use crate::{Bench, LinkName, Options, What};
use anyhow::{Context, Result};
use many::Collective;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Instant;
use sys::{v4, Mx, Via};
use together::{Operation, Over};
use weft::Rights;

/// The probes of these benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Face {
    /// Time of a put, until it is complete.
    Put,
    /// Ping-pong of `myriexpress.h`, one way.
    MxPingPong,
    /// An operation of both ranks at once.
    Together(Over, Operation),
    /// Ping-pong of `myriexpress.h` in frames of MX over Ethernet, one way; `arg` is the tuning.
    MxWired,
    /// Share of a core that a receiver in frames of MX over Ethernet uses; `arg` is the tuning.
    MxBusy,
    /// Share of a core that a receiver of TCP uses, which sleeps while it waits.
    TcpBusy,
    /// A collective operation of more than two ranks.
    Many(Over, Collective),
    /// Ping-pong of `vipl.h`, one way.
    ViaPingPong,
    /// A message of bursts of `vipl.h`.
    ViaStream,
    /// Time of an RDMA write of `vipl.h`, until it is complete.
    ViaWrite,
}

probes!(Face);

impl Own for Face {
    const NUMBER: u8 = 1;

    fn name(self) -> &'static str {
        match self {
            Face::Put => "weft put",
            Face::MxPingPong => "MX ping-pong",
            Face::Together(_, operation) => operation.name(),
            Face::MxWired => "MX in frames of MXoE",
            Face::MxBusy => "processor use of a receiver of MX",
            Face::TcpBusy => "processor use of a receiver of TCP",
            Face::Many(_, operation) => operation.name(),
            Face::ViaPingPong => "VIA ping-pong",
            Face::ViaStream => "VIA bursts",
            Face::ViaWrite => "VIA write",
        }
    }

    fn run(self, rank: &mut Rank, task: &Task) -> Result<Outcome> {
        match self {
            Face::Put => put(rank, task),
            Face::MxPingPong => mx_ping_pong(rank, task),
            Face::Together(over, of) => together::measure(rank, task, over, of),
            Face::MxWired => wired::ping_pong(rank, task),
            Face::MxBusy => busy::mx(rank, task),
            Face::TcpBusy => busy::tcp(rank, task),
            Face::Many(over, of) => many::measure(rank, task, over, of),
            Face::ViaPingPong => via_ping_pong(rank, task),
            Face::ViaStream => via_stream(rank, task),
            Face::ViaWrite => via_write(rank, task),
        }
    }
}

/// The interfaces that a rank has opened.
#[derive(Default)]
struct Faces {
    mx: Option<Mx>,
    wired: Option<(u64, Mx)>,
    via: Option<(Via, sys::Place)>,
}

/// Lets the libraries open the same links under the same key as the rank's endpoint.
fn adopt(rank: &Rank) {
    let links: Vec<&str> =
        weft::Links::NAMES.into_iter().filter(|name| rank.links().has(name)).collect();
    let key: String = rank.key().iter().map(|byte| format!("{byte:02x}")).collect();
    std::env::set_var("WEFT_LINK", links.join(","));
    std::env::set_var("WEFT_KEY", key);
}

/// Prepares the libraries. Returns the addresses of the two hosts.
fn prepared(rank: &mut Rank) -> Result<[Ipv4Addr; 2]> {
    adopt(rank);
    rank.locate()?;
    let [a, b] = rank.hosts();
    Ok([v4(a)?, v4(b)?])
}

/// Returns the endpoint of MX; both ranks open it at the first use.
fn mx(rank: &mut Rank) -> Result<Mx> {
    if let Some(mx) = opened::<Faces>(rank)?.mx.take() {
        return Ok(mx);
    }
    let hosts = prepared(rank)?;
    let number = |of: usize| u32::from(rank.key()[0]) & !1 | of as u32;
    let mut mx = Mx::open(hosts[rank.me], number(rank.me))?;
    if rank.me == 0 {
        mx.connect(hosts[1], number(1))?;
    }
    rank.sync()?;
    Ok(mx)
}

/// Ping-pong of `mx_isend` and `mx_irecv`, one way.
fn mx_ping_pong(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let mut mx = mx(rank)?;
    mx.prepare(task.size);
    let outcome = volley(rank, task, &mut mx, "lost", Mx::send, |mx| mx.recv().map(|()| true))?;
    // The second rank's last message may still be under way, and the first rank may have asked for
    // a half of its bytes: who leaves MX then answers after 5 ms, by the library's own thread.
    rank.tell(&[0])?;
    while !rank.has_note()? {
        mx.poll()?;
    }
    rank.receive_note()?;
    opened::<Faces>(rank)?.mx = Some(mx);
    Ok(outcome)
}

/// Returns the virtual interface, and the place of the other rank; both open it at the first use.
fn via(rank: &mut Rank) -> Result<(Via, sys::Place)> {
    if let Some(via) = opened::<Faces>(rank)?.via.take() {
        return Ok(via);
    }
    let hosts = prepared(rank)?;
    let word = rank.key()[..8].to_vec();
    let via = Via::open(hosts[rank.me], hosts[1], rank.me, &word)?;
    let (handle, at) = via.place();
    rank.tell(&[&handle.to_le_bytes()[..], &at.to_le_bytes()].concat())?;
    let note: [u8; 12] = rank.receive_note()?.try_into().ok().context("a note of 12 bytes")?;
    let [handle, low, high] = [0, 4, 8]
        .map(|at| u32::from_le_bytes([note[at], note[at + 1], note[at + 2], note[at + 3]]));
    Ok((via, (handle, u64::from(low) | u64::from(high) << 32)))
}

/// Ping-pong of `VipPostSend` and `VipPostRecv`, one way.
fn via_ping_pong(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let (mut via, place) = via(rank)?;
    via.prepare(task.size)?;
    // Both have posted a receive before one sends.
    rank.sync()?;
    let outcome = volley(rank, task, &mut via, "lost", Via::send, |via| via.recv().map(|()| true))?;
    // The receive that is left takes one more message.
    rank.sync()?;
    via.send()?;
    via.recv_last()?;
    rank.sync()?;
    opened::<Faces>(rank)?.via = Some((via, place));
    Ok(outcome)
}

/// Time of one message of bursts, each of which the other rank answers.
fn via_stream(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let (mut via, place) = via(rank)?;
    via.resize(task.size)?;
    let (warm, mut start) = (warm_up(task.iters), Instant::now());
    match rank.me {
        0 => via.prepare(task.size)?,
        _ => via.prepare_burst()?,
    }
    rank.sync()?;
    for turn in 0..warm + task.iters {
        if turn == warm {
            start = Instant::now();
        }
        match rank.me {
            0 => via.burst()?,
            _ => via.take_burst()?,
        }
    }
    let outcome = per(start, task.iters * sys::BURST as u64);
    // The receives that are left take messages, too.
    rank.sync()?;
    match rank.me {
        0 => {
            (0..sys::BURST).try_for_each(|_| via.send())?;
            via.recv_last()?;
        }
        _ => {
            via.send()?;
            via.end_burst()?;
        }
    }
    rank.sync()?;
    opened::<Faces>(rank)?.via = Some((via, place));
    Ok(if rank.me == 0 { outcome } else { Outcome::Elsewhere })
}

/// Time of an RDMA write by `VipPostSend`, until it is complete.
fn via_write(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let (mut via, place) = via(rank)?;
    via.resize(task.size)?;
    let write = |via: &mut Via| via.write(place);
    let outcome = one_sided(rank, task, &mut via, write, Via::poll)?;
    opened::<Faces>(rank)?.via = Some((via, place));
    Ok(outcome)
}

/// Time of a put of the endpoint, until it is complete.
fn put(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let (endpoint, peer) = rank.weft()?;
    let key = endpoint.regions().register(task.size, Rights::ALL).context("no key is left")?;
    rank.tell(&key.to_le_bytes())?;
    let theirs = rank.hear_u64()?;
    let mut data = vec![1; task.size];
    let write = |data: &mut Vec<u8>| {
        let (result, back) = endpoint.put(peer, theirs, 0, std::mem::take(data)).wait();
        *data = back;
        Ok(result.map(|_| ())?)
    };
    let poll = |_: &mut Vec<u8>| _ = endpoint.progress();
    let outcome = one_sided(rank, task, &mut data, write, poll)?;
    endpoint.regions().unregister(key);
    Ok(outcome)
}

/// Measures operations of the first rank, while the other one makes progress.
fn one_sided<S>(
    rank: &mut Rank,
    task: &Task,
    state: &mut S,
    mut one: impl FnMut(&mut S) -> Result<()>,
    mut poll: impl FnMut(&mut S),
) -> Result<Outcome> {
    let (warm, mut start) = (warm_up(task.iters), Instant::now());
    rank.sync()?;
    if rank.me == 1 {
        while !rank.has_note()? {
            poll(state);
        }
        rank.sync()?;
        return Ok(Outcome::Elsewhere);
    }
    for i in 0..warm + task.iters {
        if i == warm {
            start = Instant::now();
        }
        one(state)?;
    }
    let outcome = per(start, task.iters);
    rank.sync()?;
    Ok(outcome)
}

/// The links that are compared.
const LINKS: [LinkName; 2] = [LinkName::Shm, LinkName::Auto];
/// Sizes of MX messages; the targets are those of the first and the last.
const MX_SIZES: [usize; 7] = [16, 128, 1 << 10, 4 << 10, 32 << 10, 256 << 10, 1 << 20];
/// Sizes of Table 1 of paper 001.
const TOGETHER: [usize; 4] = [16, 4 << 10, 64 << 10, 4 << 20];
/// Sizes of paper 002.
const VIA_SIZES: [usize; 8] = [4, 32, 128, 512, 2 << 10, 8 << 10, 16 << 10, 32 << 10];
const WRITE: usize = 64 << 10;
/// Sizes of bursts.
const STREAMS: [usize; 4] = [128, 2 << 10, 8 << 10, 32 << 10];

/// Lines that are drawn together.
const GROUPS: [plots::Group; 2] = [
    ("Figure 10, by copies", "MX in frames of MXoE, "),
    ("Figure 11, by copies", "processor use of a receiver, "),
];

/// Figures of paper 001.
const MX_PAPER: [&str; 4] = [
    "paper 001, latency: 10G 7.3 us against 13.2 of TCP (0.55), 1G 24.9 against 30.8 (0.81)",
    "paper 001, the same untuned, 1G: 44.6 us against 50.5 of TCP (0.88)",
    "paper 001, ping-pong at 10G: native MX 1140 MiB/s, Open-MX about 800 without a copy engine",
    "paper 001, Figures 9 and 12 to 14 in frames of MXoE: weft bench mxoe",
];
/// Figures of paper 002.
const VIA_PAPER: [&str; 4] = [
    "paper 002, 4 B: M-VIA 43.3 us against 75.6 of TCP (0.57), cLAN 8.3 against 54.9 (0.15)",
    "paper 002, M-VIA by size, us: 4 43.3, 32 44.2, 128 60.3, 512 123.1, 2K 330.3, 8K 859, \
     16K 1545, 32K 2910",
    "paper 002, cLAN by size, us: 4 8.3, 32 10.1, 128 10.5, 512 14.9, 2K 30.4, 8K 90.6, \
     16K 169.9, 32K 329",
    "paper 002, peak: M-VIA 96 Mb/s, cLAN 815 Mb/s, TCP on cLAN about 450 Mb/s",
];

impl Run<'_> {
    fn face_line(&mut self, name: &'static str, probe: Probe, size: usize, aim: Aim) -> Result<()> {
        self.begin(name);
        let tcp = self.bench.bare(Probe::PingPong(Channel::Tcp));
        let subjects = [probe.into(), Probe::WeftPingPong.into(), tcp];
        let got = self.bench.measure(size, &subjects, |s| s * 1e6)?;
        let line = (name, size, "us", Better::Lower);
        self.push(line, [got[0], got[1], got[2]], ("endpoint", "tcp"), aim);
        Ok(())
    }

    fn mx_lines(&mut self) -> Result<()> {
        for size in MX_SIZES.into_iter().filter(|&size| self.wants(size)).collect::<Vec<_>>() {
            let aimed = [MX_SIZES[0], MX_SIZES[6]].contains(&size);
            let aim = Aim { floor: aimed.then_some(1.1), peer: None };
            self.face_line("MX, one way", Face::MxPingPong.into(), size, aim)?;
        }
        if self.link != LinkName::Shm {
            self.together_lines()?;
            self.wired_lines()?;
            self.busy_lines()?;
            self.many_lines()?;
        }
        Ok(())
    }

    /// The operations of both ranks, with the paper's gains over TCP.
    fn together_lines(&mut self) -> Result<()> {
        let face = |of| move |over| Face::Together(over, of);
        for of in Operation::ALL {
            self.gains(of.name(), sizes(of == Operation::Barrier), of.paper(), face(of))?;
        }
        Ok(())
    }

    /// The collectives of more ranks than two, with the paper's gains over TCP.
    fn many_lines(&mut self) -> Result<()> {
        let face = |of| move |over| Face::Many(over, of);
        let (mut stand, mut all) = (0, 0);
        for of in Collective::ALL {
            let found =
                self.gains(of.name(), sizes(of == Collective::Barrier), of.paper(), face(of))?;
            stand += found.iter().filter(|stands| **stands).count();
            all += found.len();
        }
        if all > 0 {
            self.notes.push(format!("paper 001, Table 1: {stand} of {all} findings stand"));
        }
        Ok(())
    }

    /// Measures an operation over MX and over TCP beside the paper's gains at these sizes; returns
    /// for each size if the finding stands.
    fn gains(
        &mut self,
        name: &'static str,
        sizes: &[usize],
        paper: [f64; 4],
        face: impl Fn(Over) -> Face,
    ) -> Result<Vec<bool>> {
        let mut found = Vec::new();
        for (&size, paper) in sizes.iter().zip(paper) {
            if !self.wants(size) {
                continue;
            }
            self.begin(name);
            let subjects = [face(Over::Mx).into(), self.bench.bare(face(Over::Tcp))];
            let got = self.bench.measure(size, &subjects, |s| s * 1e6)?;
            let line = (name, size, "us", Better::Lower);
            self.push(line, [got[0], None, got[1]], ("", "tcp"), Aim::default());
            if let [Some(ours), Some(tcp)] = got[..] {
                let gain = (tcp.median / ours.median - 1.0) * 100.0;
                found.push((gain > 0.0) == (paper > 0.0));
                self.notes.push(format!(
                    "paper 001, Table 1, {name}, {}: {paper:+.0} % over TCP; here {gain:+.0} %: {}",
                    crate::table::human(size),
                    if found.last() == Some(&true) { "stands" } else { "differs" }
                ));
            }
        }
        Ok(found)
    }

    fn via_lines(&mut self) -> Result<()> {
        for size in VIA_SIZES.into_iter().filter(|&size| self.wants(size)).collect::<Vec<_>>() {
            let aim = Aim { floor: (size == VIA_SIZES[0]).then_some(1.2), peer: None };
            self.face_line("VIA, one way", Face::ViaPingPong.into(), size, aim)?;
        }
        self.stream_lines()?;
        self.write_line()?;
        if self.link == LinkName::Shm {
            let measured = self.socket_lines();
            self.notes.extend(measured.err().map(|why| format!("sockets: {why:#}")));
        }
        Ok(())
    }

    fn write_line(&mut self) -> Result<()> {
        if !self.wants(WRITE) {
            return Ok(());
        }
        self.begin("RDMA write");
        let subjects = [Face::ViaWrite.into(), Face::Put.into()];
        let got: Vec<Option<Sample>> = self.bench.measure(WRITE, &subjects, |s| s * 1e6)?;
        let line = ("VIA, RDMA write until complete", WRITE, "us", Better::Lower);
        let aim = Aim { floor: Some(1.1), peer: None };
        self.push(line, [got[0], got[1], None], ("put", ""), aim);
        Ok(())
    }
}

impl Run<'_> {
    /// Bursts, as paper 002 measures bandwidth.
    fn stream_lines(&mut self) -> Result<()> {
        for size in STREAMS.into_iter().filter(|&size| self.wants(size)).collect::<Vec<_>>() {
            self.begin("bursts");
            let tcp = self.bench.bare(Probe::Stream(Channel::Tcp));
            let subjects = [Face::ViaStream.into(), Probe::WeftBandwidth.into(), tcp];
            let rate = |s: f64| size as f64 / s / 1e6;
            let got = self.bench.measure(size, &subjects, rate)?;
            let line = ("VIA, bursts with an answer", size, "MB/s", Better::Higher);
            let names = ("endpoint", "tcp");
            self.push(line, [got[0], got[1], got[2]], names, Aim::default());
        }
        Ok(())
    }

    /// The sockets face beside: the layer that paper 002 built over virtual interfaces.
    fn socket_lines(&mut self) -> Result<()> {
        let sizes: Vec<usize> = VIA_SIZES.into_iter().filter(|&size| self.wants(size)).collect();
        if sizes.is_empty() {
            return Ok(());
        }
        self.begin("sockets");
        let beside = Beside::start(self.bench.meter.options)?;
        for size in sizes {
            let subjects = [Face::ViaPingPong.into()];
            let via = self.bench.measure(size, &subjects, |s| s * 1e6)?;
            let [ours, tcp] = beside.one_way(size)?;
            let line = ("sockets over shared memory, one way", size, "us", Better::Lower);
            self.push(line, [ours, via[0], tcp], ("via", "tcp"), Aim::default());
        }
        Ok(())
    }
}

/// Returns the sizes of an operation of Table 1; a barrier has no message.
fn sizes(is_barrier: bool) -> &'static [usize] {
    if is_barrier {
        &TOGETHER[..1]
    } else {
        &TOGETHER
    }
}

/// Returns the lines of an interface over a link.
fn planned(what: What, link: LinkName, place: Place) -> Vec<Lines> {
    let mut lines: Vec<Lines> = Vec::new();
    if what != What::Mx {
        lines.extend([(&VIA_SIZES[..], 3), (&STREAMS, 3), (&[WRITE], 2)]);
        // The sockets beside are measured by processes of their own.
        lines.extend((link == LinkName::Shm).then_some((&VIA_SIZES[..], 1)));
        return lines;
    }
    lines.push((&MX_SIZES, 3));
    if link != LinkName::Shm {
        lines.extend(Operation::ALL.map(|of| (sizes(of == Operation::Barrier), 2)));
        lines.extend(Collective::ALL.map(|of| (sizes(of == Collective::Barrier), 2)));
        if place != Place::Here {
            lines.extend([(&wired::SIZES[..], 2 * wired::TUNINGS.len())]);
            lines.extend([(&busy::SIZES[..], 2 * wired::TUNINGS.len())]);
        }
    }
    lines
}

/// Measures an interface over its links, prints the tables, and draws plots into a folder.
pub fn print(
    what: What,
    links: &[LinkName],
    options: &Options,
    (json, folder): (bool, Option<&Path>),
    out: &mut impl Write,
) -> Result<()> {
    let (name, paper): (_, &[&str]) = match what {
        What::Mx => ("mx", &MX_PAPER),
        _ => ("via", &VIA_PAPER),
    };
    for &link in if links.is_empty() { &LINKS[..] } else { links } {
        let bench = Bench::start(link, options)?;
        if link != LinkName::Shm && bench.place == Place::Here {
            let why = bench.why_not.as_deref().unwrap_or("--netns off");
            log::info!("no lab hosts: {why}");
        }
        let mut run = Run { name, bench, link, checks: Vec::new(), notes: Vec::new() };
        run.notes.extend(run.bench.path());
        run.plan(&planned(what, link, run.bench.place));
        let measured = match what {
            What::Mx => run.mx_lines(),
            _ => run.via_lines(),
        };
        run.notes.extend(measured.err().map(|why| format!("{why:#}")));
        run.notes.append(&mut run.bench.meter.absent);
        run.notes.extend(paper.iter().map(|line| line.to_string()));
        let title = format!("{name} over {}", link.name());
        if let Some(folder) = folder {
            let plots = plots::write(folder, &title, &run.checks, &GROUPS)?;
            run.notes.extend(plots.into_iter().map(|plot| format!("plot: {plot}.svg, .png")));
        }
        target::show(&title, &run, json, out)?;
    }
    Ok(())
}

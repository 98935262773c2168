//! The targets of weft on plain Ethernet, each with the floor and the peer that it refers to,
//! measured in turn between lab hosts.

use super::netns::Place;
use super::pair::{Kind, Subject};
use super::rank::{Channel, Probe, Task};
use super::table::Better;
use super::target::{Aim, Part, Run, BLOCKING};
use super::wire::FRAME;
use super::{rate, LinkName, MTU};
use anyhow::Result;

/// Number of idle endpoints on a host beside the measured one: eight ranks in all.
const IDLE: u64 = 7;
/// Packets lost, percent.
const LOSS: u32 = 1;

/// Settings of further pairs.
const QUIET: &[(&str, &str)] = &[("WEFT_WARN_AFTER_MS", "60000"), ("WEFT_LOG", "error")];

impl Run<'_> {
    fn latency(&mut self) -> Result<()> {
        let tcp = self.bench.bare(Probe::PingPong(Channel::Tcp));
        let blocking = self.bench.bare(Probe::Exchange(Channel::Tcp));
        let floor = self.bench.bare(Probe::Wire(self.socket(), false));
        let name = self.socket().name();
        for size in [16, 64, 1 << 10, 1400, 4 << 10, 16 << 10] {
            if !self.wants(size) {
                continue;
            }
            let mut subjects = vec![Probe::WeftPingPong.into(), tcp];
            subjects.extend([floor].into_iter().filter(|_| size <= FRAME));
            subjects.extend([blocking].into_iter().filter(|_| size == 16));
            let got = self.bench.measure(size, &subjects, |s| s * 1e6)?;
            let bare = got.get(2).copied().flatten();
            let names = (if size <= FRAME { name } else { "" }, "tcp");
            let aim = Aim {
                floor: Some(1.25).filter(|_| size == 16),
                peer: Some(if size <= FRAME { 0.5 } else { 0.75 }),
            };
            let line = ("one way", size, "us", Better::Lower);
            self.push(line, [got[0], bare, got[1]], names, aim);
            if let Some(&asleep) = got.get(3) {
                let aim = Aim { peer: (self.link != LinkName::Xdp).then_some(0.2), floor: None };
                self.push(line, [got[0], None, asleep], ("", "blocking tcp"), aim);
            }
        }
        Ok(())
    }

    fn blocking(&mut self) -> Result<()> {
        let size = 16;
        let tcp = self.bench.bare(Probe::Exchange(Channel::Tcp));
        let floor = self.bench.bare(Probe::Wire(self.socket(), true));
        let got = self.bench.beside(BLOCKING, |bench, pair| {
            let ours = Subject { pair, ..Probe::WeftPingPong.into() };
            bench.measure(size, &[ours, floor, tcp], |s| s * 1e6)
        })?;
        let names = (self.socket().name(), "blocking tcp");
        let line = ("one way, blocking wait", size, "us", Better::Lower);
        self.push(line, [got[0], got[1], got[2]], names, Aim { peer: Some(0.6), floor: None });
        Ok(())
    }

    fn rate(&mut self) -> Result<()> {
        let size = 16;
        let (name, floor) = rate::floor_of(self.link);
        let subjects = [
            Probe::WeftRate.into(),
            self.bench.bare(floor),
            self.bench.bare(Probe::Stream(Channel::Tcp)),
        ];
        let got = self.bench.measure(size, &subjects, |s| 1e-6 / s)?;
        let line = ("messages", size, "M/s", Better::Higher);
        let aim = Aim { peer: Some(3.0), floor: None };
        self.push(line, [got[0], got[1], got[2]], (name, "tcp nodelay"), aim);
        Ok(())
    }

    fn load(&mut self) -> Result<()> {
        let size = 16;
        let got = self.bench.beside(super::CONFIG, |bench, pair| {
            let task = Task { probe: Probe::WeftCrowd, size, iters: 1, arg: IDLE };
            bench.meter.pairs[pair].run(&task)?;
            let crowded = Subject { pair, ..Probe::WeftPingPong.into() };
            bench.measure(size, &[crowded, Probe::WeftPingPong.into()], |s| s * 1e6)
        })?;
        let line = ("one way, 8 ranks a host", size, "us", Better::Lower);
        let aim = Aim { floor: Some(1.1), peer: None };
        self.push(line, [got[0], got[1], None], ("1 rank", ""), aim);
        Ok(())
    }

    fn bulk(&mut self) -> Result<()> {
        let tcp = self.bench.bare(Probe::Stream(Channel::Tcp));
        let floor = self.bench.bare(Probe::UdpStream);
        let whole = self.is_whole();
        for size in [1 << 20, 16 << 20] {
            if !self.wants(size) {
                continue;
            }
            let subjects = [Probe::WeftBandwidth.into(), floor, tcp];
            let rate = |s: f64| size as f64 / s / 1e9;
            let got = self.bench.measure(size, &subjects, rate)?;
            let aim = Aim { floor: whole.then_some(0.85), peer: whole.then_some(1.5) };
            let line = ("bandwidth", size, "GB/s", Better::Higher);
            self.push(line, [got[0], got[1], got[2]], ("UDP GSO", "tcp"), aim);
        }
        let size = 1 << 20;
        if !self.wants(size) {
            return Ok(());
        }
        let got = self.bench.meter.measure_cost(size, &[Probe::WeftBandwidth.into(), tcp])?;
        let [ours, tcp] = [0, 1].map(|at: usize| {
            let cost = got.get(at).copied().flatten();
            cost.map(|cost| cost.map(|s| size as f64 / s.max(1e-9) / 1e9))
        });
        let aim = Aim { peer: whole.then_some(1.5), floor: None };
        let line = ("bytes a processor second", size, "GB/cpu-s", Better::Higher);
        self.push(line, [ours, None, tcp], ("", "tcp"), aim);
        Ok(())
    }

    /// Compares TCP on a cable whose ends weft has opened without sending, with TCP on a cable that
    /// weft has not opened.
    fn neighbours(&mut self) -> Result<()> {
        let (names, size) = (("tcp alone", ""), 1 << 20);
        let stream = Probe::Stream(Channel::Tcp);
        let subjects = [stream.into(), self.bench.bare(stream)];
        let got = self.bench.measure(size, &subjects, |s| size as f64 / s / 1e9)?;
        let line = ("tcp beside weft", size, "GB/s", Better::Higher);
        self.push(line, [got[0], got[1], None], names, Aim { floor: Some(0.95), peer: None });

        let exchange = Probe::Exchange(Channel::Tcp);
        let subjects = [exchange.into(), self.bench.bare(exchange)];
        let got = self.bench.measure(16, &subjects, |s| s * 1e6)?;
        self.notes.push("tcp beside weft: weft has opened the interfaces, and is silent".into());
        let line = ("tcp beside weft, one way", 16, "us", Better::Lower);
        self.push(line, [got[0], got[1], None], names, Aim { floor: Some(1.05), peer: None });
        Ok(())
    }

    /// All subjects are behind the same switch, and packets come to it one by one.
    fn loss(&mut self) -> Result<()> {
        if !self.is_whole() {
            return Ok(());
        }
        let size = 1 << 20;
        let kind = |link, loss| Kind { link, config: QUIET, place: Place::Losing(MTU, loss) };
        let link = self.link.links();
        let kinds = [kind(link, LOSS), kind(link, 0), kind("udp", LOSS)];
        let got = self.bench.with(&kinds, |bench, first| {
            let on = |at, probe: Probe| Subject { pair: first + at, ..probe.into() };
            let subjects = [
                on(0, Probe::WeftBandwidth),
                on(1, Probe::WeftBandwidth),
                on(2, Probe::Stream(Channel::Tcp)),
            ];
            bench.measure(size, &subjects, |s| size as f64 / s / 1e9)
        })?;
        let line = ("bandwidth, 1 % loss", size, "GB/s", Better::Higher);
        let aim = Aim { floor: Some(0.8), peer: None };
        self.push(line, [got[0], got[1], got[2]], ("no loss", "tcp, 1 % loss"), aim);
        self.notes.push(
            "1 % loss: weft, weft without loss and TCP each through a switch of their own that \
             takes packets of one MTU and drops each with this chance; long frames are cut up \
             before it, so that weft's data goes over udp there"
                .into(),
        );
        Ok(())
    }
}

/// The parts of the table.
pub(super) const PARTS: [Part; 7] = [
    Part { name: "latency", size: 0, subjects: 17, measure: |run| run.latency() },
    Part { name: "blocking wait", size: 16, subjects: 3, measure: |run| run.blocking() },
    Part { name: "message rate", size: 16, subjects: 3, measure: |run| run.rate() },
    Part { name: "8 ranks a host", size: 16, subjects: 2, measure: |run| run.load() },
    Part { name: "bulk", size: 0, subjects: 8, measure: |run| run.bulk() },
    Part { name: "neighbours", size: 1 << 20, subjects: 4, measure: |run| run.neighbours() },
    Part { name: "loss", size: 1 << 20, subjects: 3, measure: |run| run.loss() },
];

//! weft beside the kernel's TCP, used in the same way: each size, spinning and sleeping, with the
//! links of ranks that have rights and of ranks that have none.

use super::pair::Subject;
use super::rank::{Channel, Probe};
use super::table::Better;
use super::target::{Aim, Part, Run, BLOCKING};
use super::wire::FRAME;
use super::LinkName;
use anyhow::Result;

/// The sizes of messages in bytes.
const SIZES: [usize; 8] = [8, 64, 1400, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20];
/// Subjects of a size.
const EACH: usize = 3;

impl Run<'_> {
    /// Returns the largest part of TCP's time that a message of `size` bytes may take.
    fn most(&self, size: usize) -> Aim {
        let peer = match (self.is_whole(), size <= FRAME) {
            (true, true) => 0.55,
            (true, false) => 0.95,
            (false, true) => 0.9,
            (false, false) => 1.05,
        };
        Aim { peer: Some(peer), floor: None }
    }

    /// Returns a bare program that makes a round trip by the same sockets as small messages.
    fn bare_exchange(&self, size: usize, sleeps: bool) -> (&'static str, Probe) {
        match (self.is_whole() && size <= FRAME, sleeps) {
            (true, _) => (self.socket().name(), Probe::Wire(self.socket(), sleeps)),
            (false, true) => ("bare UDP", Probe::UdpExchange),
            (false, false) => ("bare UDP", Probe::Udp),
        }
    }

    fn one_way(&mut self) -> Result<()> {
        let tcp = self.bench.bare(Probe::PingPong(Channel::Tcp));
        for size in SIZES.into_iter().filter(|&size| self.wants(size)).collect::<Vec<_>>() {
            let (name, floor) = self.bare_exchange(size, false);
            let subjects = [Probe::WeftPingPong.into(), self.bench.bare(floor), tcp];
            let got = self.bench.measure(size, &subjects, |s| s * 1e6)?;
            let line = ("one way", size, "us", Better::Lower);
            self.push(line, [got[0], got[1], got[2]], (name, "tcp"), self.most(size));
        }
        Ok(())
    }

    fn stream(&mut self) -> Result<()> {
        let tcp = self.bench.bare(Probe::Stream(Channel::Tcp));
        for size in SIZES.into_iter().filter(|&size| self.wants(size)).collect::<Vec<_>>() {
            let (name, floor) = match size <= FRAME {
                true => ("UDP datagrams", Probe::UdpRate),
                false => ("UDP GSO", Probe::UdpStream),
            };
            let ours = if size <= FRAME { Probe::WeftRate } else { Probe::WeftBandwidth };
            let subjects = [ours.into(), self.bench.bare(floor), tcp];
            let got = self.bench.measure(size, &subjects, |s| s * 1e6)?;
            let line = ("stream, time of a message", size, "us", Better::Lower);
            self.push(line, [got[0], got[1], got[2]], (name, "tcp"), self.most(size));
        }
        Ok(())
    }

    fn asleep(&mut self) -> Result<()> {
        let size = 16;
        let (name, floor) = self.bare_exchange(size, true);
        let others = [floor, Probe::Exchange(Channel::Tcp)].map(|probe| self.bench.bare(probe));
        let got = self.bench.beside(BLOCKING, |bench, pair| {
            let ours = Subject { pair, ..Probe::WeftPingPong.into() };
            bench.measure(size, &[ours, others[0], others[1]], |s| s * 1e6)
        })?;
        let line = ("one way, blocking wait", size, "us", Better::Lower);
        let aim = Aim { peer: self.is_whole().then_some(0.9), floor: None };
        self.push(line, [got[0], got[1], got[2]], (name, "blocking tcp"), aim);
        Ok(())
    }

    fn cost(&mut self) -> Result<()> {
        let size = 1 << 20;
        let tcp = self.bench.bare(Probe::Stream(Channel::Tcp));
        let cost = self.bench.meter.measure_cost(size, &[Probe::WeftBandwidth.into(), tcp])?;
        let rate = |at: usize| {
            let cost = cost.get(at).copied().flatten();
            cost.map(|cost| cost.map(|s| size as f64 / s.max(1e-9) / 1e9))
        };
        let line = ("bytes a processor second", size, "GB/cpu-s", Better::Higher);
        let aim = Aim { peer: Some(if self.is_whole() { 1.2 } else { 1.0 }), floor: None };
        self.push(line, [rate(0), None, rate(1)], ("", "tcp"), aim);
        Ok(())
    }
}

/// The parts of the table.
pub(super) const PARTS: [Part; 4] = [
    Part { name: "one way", size: 0, subjects: EACH * SIZES.len(), measure: |run| run.one_way() },
    Part { name: "streams", size: 0, subjects: EACH * SIZES.len(), measure: |run| run.stream() },
    Part { name: "blocking wait", size: 16, subjects: EACH, measure: |run| run.asleep() },
    Part { name: "cost", size: 1 << 20, subjects: 2, measure: |run| run.cost() },
];

/// The links that are compared, unless the user names others: those of ranks without rights, and
/// with.
pub(super) const LINKS: [LinkName; 2] = [LinkName::Unprivileged, LinkName::Auto];

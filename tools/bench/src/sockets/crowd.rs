//! Many connections that share memory: the memory that they take, and the processor time while
//! nothing goes by them.

use super::{Figures, Process, Run, Way, NAME};
use crate::pair::Sample;
use crate::table::{Better, Row, Table};
use crate::target::{Aim, Check};
use anyhow::{ensure, Context, Result};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

/// Time in which the ends find out that nothing comes.
const SETTLE: Duration = Duration::from_millis(200);

/// Connections that were used, and are idle.
struct Crowd {
    /// Connections that share memory.
    joined: u64,
    /// KiB of memory of both ends, and of these the ones that are not of files: pages of programs
    /// come and go with other processes of the same program.
    kib: [f64; 2],
    /// Microseconds of a processor in a second, of each connection.
    spent: f64,
}

/// Returns the KiB of memory of a process, and how many of them are its own or shared with others,
/// not those of files; memory that it shares counts by parts.
fn memory(process: u32) -> Result<[f64; 2]> {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        number.with_context(|| format!("the memory of a process in {text:?}"))
    };
    Ok([of("Pss:")?, of("Pss_Anon:")? + of("Pss_Shmem:")?])
}

/// Returns the nanoseconds that the threads of a process were on a processor.
fn time(process: u32) -> Result<u64> {
    let mut all = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let number = text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        all += number.with_context(|| format!("the time of a thread in {text:?}"))?;
    }
    Ok(all)
}

impl Run<'_> {
    /// Returns the connections that the agent has joined.
    pub(super) fn paired(&self) -> Result<u64> {
        let text = weftd::status::status(&self.agent).context("asking the agent")?;
        let value = |line: &str| line.strip_prefix("sockets_paired")?.trim().parse().ok();
        text.lines().find_map(value).with_context(|| format!("sockets_paired in {text:?}"))
    }

    /// Opens so many connections, uses and leaves them.
    fn crowd_by(&self, way: Way, count: u64) -> Result<Crowd> {
        let (server, place) = self.serve(way, "many")?;
        let before = self.paired()?;
        let words = ["crowd", &place, "--iters", &count.to_string()];
        let mut command = self.own(way, 0, &words)?;
        let mut client = Process(command.stdout(Stdio::piped()).spawn().context("a client")?);
        let mut line = String::new();
        let said = client.0.stdout.take().context("the output of a client")?;
        BufReader::new(said).read_line(&mut line)?;
        ensure!(line == "ready\n", "a client ended without a word");
        let joined = self.paired()? - before;
        ensure!(joined > 0 || way == Way::Tcp, "no connection shares memory");
        std::thread::sleep(SETTLE);
        let ends = [server.0.id(), client.0.id()];
        let times = || ends.into_iter().map(time).sum::<Result<u64>>();
        let (idle, from) = (if self.options.quick { 100 } else { 2000 }, times()?);
        std::thread::sleep(Duration::from_millis(idle));
        let spent = (times()? - from) as f64 / idle as f64 / count as f64;
        let [one, other] = [memory(ends[0])?, memory(ends[1])?];
        Ok(Crowd { joined, kib: [one[0] + other[0], one[1] + other[1]], spent })
    }

    /// Returns what so many connections take in memory more than without the library, how many of
    /// them share memory, and the time of one with the library.
    fn more(&self, count: u64) -> Result<Crowd> {
        let with = self.crowd_by(Way::Weft, count)?;
        let without = self.crowd_by(Way::Tcp, count)?;
        let kib = [with.kib[0] - without.kib[0], with.kib[1] - without.kib[1]];
        Ok(Crowd { kib, ..with })
    }

    /// Measures memory and time of connections. A connection's memory is the difference of many and
    /// few; the rest is the library's own.
    pub(super) fn crowd(&mut self) -> Result<()> {
        let (few, many) = if self.options.quick { (4, 8) } else { (100, 400) };
        let (mut each, mut own, mut spent) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.options.repeat() {
            self.plan.show("idle connections".into());
            let (few, many) = (self.more(few)?, self.more(many)?);
            ensure!(many.joined > few.joined, "connections do not share memory");
            let kib = (many.kib[1] - few.kib[1]) / (many.joined - few.joined) as f64;
            each.push(kib);
            own.push(few.kib[0] - few.joined as f64 * kib);
            spent.push(many.spent);
            self.plan.at(self.plan.done() + 2);
        }
        self.alone(("memory of a connection", "KiB", Some(64.0)), Sample::of(each));
        self.alone(("memory of the library in two processes", "KiB", None), Sample::of(own));
        let idle = ("processor time of an idle connection in a second", "us", Some(0.0));
        self.alone(idle, Sample::of(spent));
        Ok(())
    }

    /// Adds a row whose figure itself may have a goal.
    pub(super) fn alone(
        &mut self,
        (what, unit, goal): (&'static str, &'static str, Option<f64>),
        ours: Option<Sample>,
    ) {
        let row = |ours| Row { what, size: 1, ours, floors: Vec::new(), peers: Vec::new() };
        let (rows, notes) = (ours.into_iter().map(row).collect::<Vec<_>>(), Vec::new());
        if rows.is_empty() {
            return;
        }
        let better = Better::Lower;
        let table = Table { bench: NAME, link: "sockets", what, unit, better, rows, notes };
        self.checks.push(Check { table, aim: Aim::default(), goal });
    }
}

/// Returns how much more the first way takes than the second, pair by pair.
pub(super) fn difference(figures: &Figures) -> Option<Sample> {
    let pairs = figures.first()?.1.iter().zip(&figures.get(1)?.1);
    Sample::of(pairs.map(|(with, without)| with - without).collect())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn memory__and_time_of_this_process_are_known() {
        let own = std::process::id();
        let [all, not_of_files] = memory(own).unwrap();
        assert!(all > not_of_files && not_of_files > 100.0);
        assert!(time(own).unwrap() > 0);
    }

    #[test]
    fn difference__goes_pair_by_pair() {
        let figures = vec![(Way::Weft, vec![5.0, 9.0, 7.0]), (Way::Tcp, vec![1.0, 2.0, 4.0])];
        assert_eq!(difference(&figures).unwrap().median, 4.0);
        assert!(difference(&Vec::new()).is_none());
    }
}

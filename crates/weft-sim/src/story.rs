//! The parts that scenarios have in common: a checked simulation, streams of messages, and the
//! report.

use crate::checker::{Checker, Lane, SharedChecker};
use crate::config::SimConfig;
use crate::runner::Outcome;
use crate::sim::{Env, Failure, Sim};
use crate::tasks::join_all;
use crate::trace::Trace;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use weft::Config;

/// One value of a table, for programs that read it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A name.
    Text(String),
    /// A figure.
    Number(f64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Number(number)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number as f64)
    }
}

/// A row of a table: values by name, the unit in it.
pub type Row = Vec<(&'static str, Value)>;

/// The results of a scenario.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name of the scenario.
    pub name: String,
    /// A description of the configuration.
    pub config: String,
    /// The lines to print.
    pub lines: Vec<String>,
    /// The printed lines as values, where they are a table.
    pub rows: Vec<Row>,
    /// The end of the (last) simulation.
    pub outcome: Option<Outcome>,
    /// Its packets, up to [`SimConfig::trace`].
    pub trace: Trace,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.config)?;
        self.lines.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        f.write_str(&self.ending())
    }
}

impl Report {
    /// Returns the text below the lines: the end of the simulation; empty if there was none.
    pub fn ending(&self) -> String {
        let Some(outcome) = &self.outcome else { return String::new() };
        let shown = outcome.counters.list().into_iter().filter(|&(_, n)| n > 0);
        let text: Vec<_> = shown.map(|(name, n)| format!("{name} {n}")).collect();
        let ms = outcome.at as f64 / 1e6;
        format!("  ended at {ms:.3} ms of virtual time\n  {}", text.join(", "))
    }
}

/// Returns settings under which a peer counts as dead after a second of silence.
pub(crate) fn impatient() -> Config {
    Config { peer_timeout_ms: 1000, connect_timeout_ms: 1000, ..Config::default() }
}

/// A simulation with a checker, which make a report at the end.
pub(crate) struct Story {
    pub sim: Sim,
    pub checker: SharedChecker,
    name: &'static str,
    config: String,
    lines: Rc<RefCell<Vec<String>>>,
}

impl Story {
    pub fn new(name: &'static str, config: SimConfig, settings: Config) -> Story {
        let checker = Checker::shared(config.seed);
        let text = config.to_string();
        let sim = Sim::new(name, config).settings(settings);
        Story { sim, checker, name, config: text, lines: Rc::default() }
    }

    /// Returns the lines of the report, to which programs add.
    pub fn lines(&self) -> Rc<RefCell<Vec<String>>> {
        Rc::clone(&self.lines)
    }

    /// Runs and checks; operations with `dead` hosts may fail.
    pub fn end(mut self, dead: &[u32]) -> Result<Report, Failure> {
        let outcome = self.sim.run()?;
        let verdict = self.checker.borrow_mut().verify(dead);
        verdict.map_err(|v| self.sim.failure(v.to_string()))?;
        let trace = self.sim.network().borrow().trace().clone();
        let mut lines = self.lines.take();
        let (delivered, failed) = {
            let c = self.checker.borrow();
            (c.delivered(), c.failed())
        };
        lines.push(format!(
            "{delivered} messages delivered and checked, {failed} failed as they must"
        ));
        let (name, config) = (self.name.to_string(), self.config);
        Ok(Report { name, config, lines, rows: Vec::new(), outcome: Some(outcome), trace })
    }
}

/// Sends `count` messages of `len` bytes to `dst`, `depth` at a time; any failure is a violation.
pub(crate) async fn send_stream(
    env: &Env,
    checker: &SharedChecker,
    dst: u32,
    (count, len, depth): (u64, usize, u64),
) {
    let lane = Lane { src: env.host, dst, tag: 7 };
    let peer = env.peer(dst);
    let mut left = count;
    while left > 0 {
        let batch = left.min(depth);
        left -= batch;
        let sends = (0..batch).map(|_| async {
            let (index, data) = checker.borrow_mut().send_posted(lane, len);
            let (result, _) = env.endpoint.send(peer, lane.tag, data).await;
            let failure = result.err().map(|e| (e.to_string(), false));
            checker.borrow_mut().send_ended(lane, index, failure);
        });
        join_all(sends).await;
    }
}

/// Receives the messages of [`send_stream`].
pub(crate) async fn receive_stream(
    env: &Env,
    checker: &SharedChecker,
    src: u32,
    count: u64,
    len: usize,
) {
    let lane = Lane { src, dst: env.host, tag: 7 };
    let peer = env.peer(src);
    let mut room = vec![0; len];
    for index in 0..count {
        env.note(format!("message {index} from host {src}"));
        let (result, data) = env.endpoint.recv(Some(peer), lane.tag, 0, room).await;
        match result {
            Ok(status) => {
                checker.borrow_mut().received(lane, status.len, &data[..status.len]);
                room = data;
            }
            Err(e) => return checker.borrow_mut().violation(|| format!("{lane}: {e}")),
        }
    }
}

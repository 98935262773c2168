//! Moves of ranks between the hosts of the job, as its launcher coordinates them.

use crate::run::agents::Node;
use crate::run::frame::Down;
use crate::run::moving::ask::{Caller, Desk, Event, Moved, Request, Said};
use crate::run::moving::{News, Order};
use anyhow::Result;
use std::time::{Duration, Instant};
use weft::launch::moving::coordinator::{Action, Coordinator, Outcome, Phase};
use weft::launch::{self, wire::to_hex};

/// The moves of the job's ranks.
pub struct Moves {
    /// The socket for `weft migrate`.
    pub desk: Desk,
    /// The command that asks for the move in progress.
    pub caller: Option<Caller>,
    began: Instant,
    coordinator: Coordinator,
    /// The key of the move in progress.
    key: String,
    /// Times at which its phases began.
    phases: Vec<(Phase, Instant)>,
    /// The rank that moves, and its hosts.
    hosts: (usize, usize, usize),
    bytes: u64,
    /// The time that its rank took to stand still, in milliseconds.
    quiet_ms: f64,
    pid: u32,
    /// The reasons against a move that is only asked about, and the number of hosts that have not
    /// answered.
    checked: Option<(Vec<String>, usize)>,
    /// Messages for the rank that moves, which wait until it runs.
    waiting: Vec<(Down, Vec<u8>)>,
}

/// A move that is over: what the job has to change.
pub enum Over {
    /// The rank runs on this host, as this process.
    Moved { rank: usize, node: usize, pid: u32 },
    /// The rank stays on this host.
    Stayed { rank: usize, node: usize },
    /// The rank is lost.
    Lost { why: String },
}

impl Moves {
    /// Opens the socket of a job.
    pub fn new(job: &str, size: usize) -> Result<Moves> {
        Ok(Moves {
            desk: Desk::open(job)?,
            caller: None,
            began: Instant::now(),
            coordinator: Coordinator::new(size),
            key: String::new(),
            phases: Vec::new(),
            hosts: (0, 0, 0),
            bytes: 0,
            quiet_ms: 0.0,
            pid: 0,
            checked: None,
            waiting: Vec::new(),
        })
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the rank that moves.
    pub fn moving(&self) -> Option<usize> {
        self.coordinator.current().map(|moving| moving.rank)
    }

    /// Keeps a message for a rank that moves until it runs. Returns it if it does not move.
    pub fn keep(&mut self, rank: usize, message: Down, body: &[u8]) -> Option<Down> {
        if self.moving() != Some(rank) {
            return Some(message);
        }
        self.waiting.push((message, body.to_vec()));
        None
    }

    /// Returns the messages that waited for the rank that moved.
    pub fn kept(&mut self) -> Vec<(Down, Vec<u8>)> {
        std::mem::take(&mut self.waiting)
    }

    /// Takes a new caller. One at a time is heard.
    pub fn admit(&mut self) {
        let Ok((stream, _)) = self.desk.listener.accept() else { return };
        match Caller::of(stream) {
            Ok(caller) if self.caller.is_none() => self.caller = Some(caller),
            Ok(caller) => {
                let rank = self.moving().map_or("a rank".into(), |rank| format!("rank {rank}"));
                let why = format!("{rank} moves now, and one rank of a job moves at a time");
                caller.end(&Event::Stayed { why: vec![why] });
            }
            Err(why) => eprintln!("weft run: {why:#}"),
        }
    }

    /// Reads what the caller says. Returns a new request.
    pub fn hear(&mut self, nodes: &mut [Node]) -> Option<Request> {
        match self.caller.as_mut()?.said()? {
            Said::Ask(request) if self.moving().is_none() => Some(request),
            Said::Ask(_) => None,
            Said::Cancel => {
                if self.coordinator.cancel(self.now()) {
                    self.act(nodes);
                }
                if self.moving().is_none() {
                    self.caller = None;
                }
                None
            }
        }
    }

    /// Tells the caller that nothing moves.
    pub fn refuse(&mut self, why: String) {
        if let Some(caller) = self.caller.take() {
            caller.end(&Event::Stayed { why: vec![why] });
        }
    }

    /// Begins a move.
    pub fn begin(&mut self, rank: usize, hosts: (usize, usize), nodes: &mut [Node]) -> Result<()> {
        self.key = to_hex(&launch::random_key()?);
        (self.bytes, self.pid, self.hosts) = (0, 0, (rank, hosts.0, hosts.1));
        self.phases.clear();
        let begun = self.coordinator.begin(self.now(), rank, hosts);
        begun.map_err(|why| anyhow::anyhow!(why))?;
        self.act(nodes);
        Ok(())
    }

    /// Asks both hosts what stands against a move.
    pub fn check(&mut self, rank: usize, (source, target): (usize, usize), nodes: &mut [Node]) {
        if source == target {
            return self.refuse(format!("rank {rank} runs there already"));
        }
        self.checked = Some((Vec::new(), 2));
        for host in [source, target] {
            nodes[host].send(&Down::Move { rank, number: 0, order: Order::Check }, b"");
        }
    }

    /// Handles the answer of a host to that.
    pub fn note_checked(&mut self, host: &str, why: Vec<String>) {
        let Some((all, left)) = &mut self.checked else { return };
        all.extend(why.into_iter().map(|why| format!("host {host}: {why}")));
        *left -= 1;
        if *left > 0 {
            return;
        }
        let why = self.checked.take().map(|(all, _)| all).unwrap_or_default();
        if let Some(caller) = self.caller.take() {
            caller.end(&if why.is_empty() { Event::Could } else { Event::Stayed { why } });
        }
    }

    /// Handles word of a host. Returns the end of the move, if this is it.
    pub fn news(
        &mut self,
        host: usize,
        number: u32,
        news: News,
        nodes: &mut [Node],
    ) -> Option<Over> {
        match &news {
            News::Held { ms } => self.quiet_ms = *ms,
            News::Copied { bytes } => self.bytes = *bytes,
            News::Stands { pid } => self.pid = *pid,
            News::Sending { bytes } => {
                let event = Event::Sent { bytes: *bytes, of: self.bytes };
                self.caller.iter().for_each(|caller| caller.tell(&event));
            }
            _ => {}
        }
        self.coordinator.handle(self.now(), host, number, news.into());
        self.act(nodes)
    }

    /// Handles the loss of a host.
    pub fn lost(&mut self, host: usize, nodes: &mut [Node]) -> Option<Over> {
        self.coordinator.lost(self.now(), host);
        self.act(nodes)
    }

    /// Handles the end of a rank by itself.
    pub fn ended(&mut self, rank: usize, nodes: &mut [Node]) {
        self.coordinator.ended(rank);
        self.act(nodes);
        self.waiting.clear();
    }

    /// Handles a move that takes too long.
    pub fn tick(&mut self, nodes: &mut [Node]) -> Option<Over> {
        self.coordinator.handle_timeout(self.now());
        self.act(nodes)
    }

    /// Returns the time of [`tick`](Self::tick).
    pub fn next_tick(&self) -> Option<Instant> {
        self.coordinator.timeout().map(|at| self.began + at)
    }

    fn act(&mut self, nodes: &mut [Node]) -> Option<Over> {
        let mut over = None;
        while let Some(action) = self.coordinator.poll() {
            match action {
                Action::Say { host, rank, number, order } => {
                    let order = Order::of(order, &self.key);
                    nodes[host].send(&Down::Move { rank, number, order }, b"");
                }
                Action::Began(phase) => {
                    self.phases.push((phase, Instant::now()));
                    let event = Event::Phase { name: phase.to_string() };
                    self.caller.iter().for_each(|caller| caller.tell(&event));
                }
                Action::Over(outcome) => over = Some(outcome),
            }
        }
        over.map(|outcome| self.end(outcome, nodes))
    }

    /// Ends a move: tells the caller, and returns what the job has to change.
    fn end(&mut self, outcome: Outcome, nodes: &[Node]) -> Over {
        let (rank, source, target) = self.hosts;
        let (event, over) = match outcome {
            Outcome::Moved { untold } => {
                let moved = self.moved(untold, nodes);
                (Event::Moved(moved), Over::Moved { rank, node: target, pid: self.pid })
            }
            Outcome::Stayed { why } => {
                (Event::Stayed { why: vec![why] }, Over::Stayed { rank, node: source })
            }
            Outcome::Lost { why } => (Event::Lost { why: why.clone() }, Over::Lost { why }),
        };
        if let Some(caller) = self.caller.take() {
            caller.end(&event);
        }
        over
    }

    fn moved(&self, untold: usize, nodes: &[Node]) -> Moved {
        let (rank, source, target) = self.hosts;
        let now = Instant::now();
        let ends = self.phases.iter().skip(1).map(|(_, at)| *at).chain([now]);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let each = self.phases.iter().zip(ends);
        let phases = each.map(|((phase, at), end)| (phase.to_string(), ms(end - *at))).collect();
        let held = self.phases.iter().find(|(phase, _)| *phase == Phase::Copy);
        Moved {
            rank,
            from: nodes[source].share.host.clone(),
            to: nodes[target].share.host.clone(),
            bytes: self.bytes,
            untold,
            phases,
            stopped_ms: held.map_or(0.0, |(_, at)| ms(now - *at)),
            quiet_ms: self.quiet_ms,
        }
    }
}

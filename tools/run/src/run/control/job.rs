//! The state of a running job, and its reaction to each event.

use super::dead::Dead;
use super::moves::{Moves, Over};
use crate::run::agents::Node;
use crate::run::frame::{Down, End, Up};
use crate::run::hosts::Share;
use crate::run::kvs::{Effect, Server};
use crate::run::moving::ask::Request;
use crate::run::moving::News;
use crate::run::output::Sink;
use crate::run::poll::sooner;
use crate::run::proxy::GRACE;
use crate::run::Args;
use anyhow::Result;
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::signal_name;
use std::io::{self, Stderr, Stdout};
use std::time::{Duration, Instant};
use weft::launch;

/// Time until the first message to the user that start-up takes long.
const SLOW_START: Duration = Duration::from_secs(2);

/// Time in which hosts must confirm that killed ranks ended.
const CONFIRM: Duration = Duration::from_secs(5);

/// Exit status of a job that exceeded its time limit, as of timeout(1).
const TIMED_OUT: u8 = 124;

/// Time within which the same signal counts once: timeout(1) signals both this process and its
/// group.
const ECHO: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    Ended,
}

struct Rank {
    node: usize,
    pid: u32,
    state: State,
    /// Set once it has left the job (`None` inside), or its process has ended.
    told: Option<Option<End>>,
}

#[derive(Clone, Copy)]
enum Step {
    Terminate,
    Kill,
    GiveUp,
}

/// A job in progress.
pub struct Job {
    ranks: Vec<Rank>,
    server: Server,
    out: Sink<Stdout>,
    err: Sink<Stderr>,
    closed_output: bool,
    verbose: bool,
    began: Instant,
    /// End of the job's time limit, and the limit.
    deadline: Option<(Instant, Duration)>,
    start_timeout: Duration,
    /// Time of the next message about start-up.
    progress: Option<Instant>,
    /// The first signal that asked the job to end, and its time.
    interrupted: Option<(i32, Instant)>,
    /// Exit status, if the job is to end before its ranks have.
    verdict: Option<u8>,
    /// The ranks that failed, if the job goes on without them.
    dead: Option<Dead>,
    ending: Option<(Instant, Step)>,
    /// Moves of its ranks, if they can move.
    pub moves: Option<Moves>,
}

fn named(signal: i32) -> String {
    match signal_name(signal) {
        Some(name) => format!("{name} (signal {signal})"),
        None => format!("signal {signal}"),
    }
}

/// Returns the exit status of a process that a signal ended, as shells have it.
fn status_of(signal: i32) -> u8 {
    128u8.saturating_add(signal as u8)
}

/// Returns the line for a signal that asks the job to end.
fn asked_to_end(signal: i32) -> String {
    match signal {
        SIGINT => "interrupted: the ranks are asked to end; Ctrl-C again kills them".to_owned(),
        _ => format!("{}: the ranks are asked to end; a second one kills them", named(signal)),
    }
}

fn listed(ranks: &[usize]) -> String {
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let shown: Vec<String> = ranks.iter().take(16).map(usize::to_string).collect();
    let more = if ranks.len() > 16 { format!(" and {} more", ranks.len() - 16) } else { "".into() };
    format!("{word} {}{more}", shown.join(", "))
}

/// Returns MPICH's description of the ranks that share a host: blocks of (first host, hosts, ranks
/// each).
fn mapping(shares: &[Share]) -> String {
    let block = |(at, share): (usize, &Share)| format!(",({at},1,{})", share.count);
    let with_ranks = shares.iter().enumerate().filter(|(_, share)| share.count > 0);
    format!("(vector{})", with_ranks.map(block).collect::<String>())
}

impl Job {
    /// Returns a job with its ranks placed and none started.
    pub fn new(args: &Args, shares: &[Share]) -> Result<Self> {
        let mut ranks = Vec::new();
        for (node, share) in shares.iter().enumerate() {
            let waiting = |_| Rank { node, pid: 0, state: State::Waiting, told: None };
            ranks.extend((0..share.count).map(waiting));
        }
        let salt = launch::wire::to_hex(&launch::random_key()?[..8]);
        let name = format!("weft-{}-{salt}", std::process::id());
        let moves = args.migratable.then(|| Moves::new(&name, ranks.len())).transpose()?;
        let mut server = Server::new(name, ranks.len());
        server.seed(launch::JOB_KEY, launch::wire::to_hex(&launch::random_key()?));
        server.seed("PMI_process_mapping", mapping(shares));
        let began = Instant::now();
        Ok(Job {
            ranks,
            server,
            out: Sink::new(io::stdout(), args.tag_output),
            err: Sink::new(io::stderr(), args.tag_output),
            closed_output: false,
            verbose: args.verbose,
            began,
            deadline: args.timeout.map(|time| (began + time, time)),
            start_timeout: args.start_timeout,
            progress: Some(began + SLOW_START),
            interrupted: None,
            verdict: None,
            dead: args.keep_going.then(Dead::default),
            ending: None,
            moves,
        })
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    /// True if every rank has ended.
    pub fn over(&self) -> bool {
        self.ranks.iter().all(|rank| rank.state == State::Ended)
    }

    /// Returns the exit status of the job.
    pub fn code(&self) -> u8 {
        self.verdict.or_else(|| self.dead.as_ref()?.code()).unwrap_or(0)
    }

    /// Names the ranks that the job went on without.
    pub fn say_dead(&self) {
        if let Some(line) = self.dead.as_ref().and_then(|dead| dead.summary(self.size())) {
            eprintln!("weft run: {line}");
        }
    }

    /// Notes that a rank failed, if the job goes on without it. False: the job has to end.
    fn goes_on(&mut self, (place, end, how): (&str, End, &str), nodes: &mut [Node]) -> bool {
        let ends = self.interrupted.is_some() || self.ending.is_some();
        let Some(dead) = self.dead.as_mut().filter(|_| !ends) else { return false };
        dead.add(place, end, how);
        let rest = if self.over() { "" } else { "; the others go on" };
        eprintln!("weft run: {place} {how}{rest}");
        self.check_stuck(nodes);
        true
    }

    /// True if rank 0 runs and may read input.
    pub fn takes_input(&self) -> bool {
        self.ranks[0].state == State::Running && !self.moves_now(0)
    }

    /// True if a rank moves now.
    fn moves_now(&self, rank: usize) -> bool {
        self.moves.as_ref().is_some_and(|moves| moves.moving() == Some(rank))
    }

    /// Returns the host of a rank.
    pub fn node_of(&self, rank: usize) -> usize {
        self.ranks[rank].node
    }

    fn place(&self, rank: usize, nodes: &[Node]) -> String {
        let Rank { node, pid, .. } = self.ranks[rank];
        place(rank, &nodes[node].share.host, pid)
    }

    /// Returns the time of the next action of [`Job::tick`].
    pub fn next_deadline(&self, nodes: &[Node]) -> Option<Instant> {
        let ending = self.ending.map(|(at, _)| at);
        let limit = self.deadline.map(|(at, _)| at);
        let late = nodes.iter().any(|node| !node.ready);
        let start = late.then(|| self.began + self.start_timeout);
        let moves = self.moves.as_ref().and_then(Moves::next_tick);
        match ending {
            Some(_) => ending,
            None => sooner(sooner(sooner(limit, start), self.progress), moves),
        }
    }

    /// Does the actions that are due.
    pub fn tick(&mut self, now: Instant, nodes: &mut [Node]) {
        if let Some((at, step)) = self.ending {
            if now >= at {
                self.advance(now, step, nodes);
            }
            return;
        }
        if let Some(moves) = &mut self.moves {
            let over = moves.tick(nodes);
            self.over_with(over, nodes);
        }
        if let Some((_, time)) = self.deadline.filter(|(at, _)| now >= *at) {
            let left = self.in_state(State::Running);
            let seconds = time.as_secs_f64();
            let text = match left.is_empty() {
                true => format!("no rank ran yet after {seconds} s"),
                false => format!("{} still ran after {seconds} s", listed(&left)),
            };
            return self.fail(TIMED_OUT, &text, nodes);
        }
        match nodes.iter().find(|node| !node.ready) {
            Some(node) if now >= self.began + self.start_timeout => {
                let seconds = self.start_timeout.as_secs_f64();
                let text = format!(
                    "host {} did not answer within {seconds} s; try `{} true` and see whether it \
                     asks for anything",
                    node.share.host, node.reach
                );
                self.fail(1, &text, nodes);
            }
            _ if self.progress.is_some_and(|at| now >= at) => self.send_progress(now, nodes),
            _ => {}
        }
    }

    fn in_state(&self, state: State) -> Vec<usize> {
        (0..self.ranks.len()).filter(|&rank| self.ranks[rank].state == state).collect()
    }

    fn send_progress(&mut self, now: Instant, nodes: &[Node]) {
        let elapsed = now - self.began;
        let seconds = elapsed.as_secs();
        self.progress = Some(now + elapsed);
        let late: Vec<&str> =
            nodes.iter().filter(|n| !n.ready).map(|n| n.share.host.as_str()).collect();
        let all = self.ranks.len();
        let missing: Vec<usize> = (0..all).filter(|&r| !self.server.initialised(r)).collect();
        if !late.is_empty() {
            eprintln!("weft run: after {seconds} s still waiting for host {}", late.join(", "));
        } else if !missing.is_empty() && missing.len() < all {
            let places: Vec<String> =
                missing.iter().take(8).map(|&rank| self.place(rank, nodes)).collect();
            let more = if missing.len() > 8 { ", ..." } else { "" };
            eprintln!(
                "weft run: after {seconds} s {} of {all} ranks have joined; missing: {}{more}",
                all - missing.len(),
                places.join(", ")
            );
        } else {
            // All ranks have joined, or the program does not join jobs at all.
            self.progress = None;
        }
    }

    /// Stores the first reason of failure, and starts ending the job.
    fn fail(&mut self, code: u8, reason: &str, nodes: &mut [Node]) {
        if self.verdict.is_none() {
            self.verdict = Some(code);
            eprintln!("weft run: {reason}");
        }
        self.end_ranks(nodes);
    }

    /// Starts ending all ranks, if that has not begun.
    fn end_ranks(&mut self, nodes: &mut [Node]) {
        if self.ending.is_some() {
            return;
        }
        for (at, node) in nodes.iter_mut().enumerate() {
            if !node.ready {
                self.forget(at);
                node.stdin = None;
                node.wait(Instant::now());
            }
        }
        let now = Instant::now();
        match self.interrupted {
            // Ranks that handle the user's signal get time to do so.
            Some(_) => self.ending = Some((now + GRACE, Step::Terminate)),
            None => self.advance(now, Step::Terminate, nodes),
        }
    }

    fn advance(&mut self, now: Instant, step: Step, nodes: &mut [Node]) {
        match step {
            Step::Terminate => {
                signal_all(SIGTERM, nodes);
                self.ending = Some((now + GRACE, Step::Kill));
            }
            Step::Kill => {
                let left = self.in_state(State::Running);
                if !left.is_empty() {
                    let how = match left.len() {
                        1 => "does not end: it is killed",
                        _ => "do not end: they are killed",
                    };
                    eprintln!("weft run: {} {how}", listed(&left));
                }
                signal_all(Signal::KILL.as_raw(), nodes);
                self.ending = Some((now + CONFIRM, Step::GiveUp));
            }
            Step::GiveUp => {
                for rank in 0..self.ranks.len() {
                    if self.ranks[rank].state != State::Ended {
                        eprintln!("weft run: {} may be left behind", self.place(rank, nodes));
                        self.ranks[rank].state = State::Ended;
                    }
                }
            }
        }
    }

    /// Handles a signal to the launcher.
    pub fn signalled(&mut self, signal: i32, nodes: &mut [Node]) {
        let now = Instant::now();
        let ends = matches!(signal, SIGINT | SIGTERM | SIGHUP);
        match self.interrupted.filter(|_| ends) {
            Some((first, at)) if first == signal && now < at + ECHO => return,
            Some(_) if matches!(self.ending, Some((_, Step::GiveUp))) => return,
            Some(_) => {
                eprintln!("weft run: {} again: killing all ranks", named(signal));
                self.verdict.get_or_insert(status_of(signal));
                signal_all(Signal::KILL.as_raw(), nodes);
                self.ending = Some((now + CONFIRM, Step::GiveUp));
                return;
            }
            None => signal_all(signal, nodes),
        }
        if ends {
            self.interrupted = Some((signal, now));
            if self.in_state(State::Waiting).is_empty() {
                eprintln!("weft run: {}", asked_to_end(signal));
            } else {
                self.fail(status_of(signal), &format!("{} during start-up", named(signal)), nodes);
            }
        }
    }

    /// Prints a line that a launch agent or a proxy itself printed.
    pub fn complaint(&self, node: &Node, line: &str) {
        eprintln!("weft run: host {}: {line}", node.share.host);
    }

    /// Handles a message of a proxy; returns the bytes of input that rank 0 read.
    pub fn receive(&mut self, at: usize, message: Up, body: &[u8], nodes: &mut [Node]) -> usize {
        let share = &nodes[at].share;
        let is_own = |rank: usize| self.ranks.get(rank).is_some_and(|rank| rank.node == at);
        match message {
            Up::Hello { version, cores } => self.hello(at, &version, cores, nodes),
            Up::Started { rank, pid } if is_own(rank) => {
                self.ranks[rank].pid = pid;
                self.ranks[rank].state = State::Running;
                if self.verbose {
                    eprintln!("weft run: {} started", self.place(rank, nodes));
                }
            }
            Up::NotStarted { rank, problem, code } if is_own(rank) => {
                // The proxy starts no rank after one that failed.
                for rank in rank..share.first + share.count {
                    self.ranks[rank].state = State::Ended;
                }
                let host = share.host.clone();
                self.fail(code, &format!("rank {rank} on host {host}: {problem}"), nodes);
            }
            Up::Pmi { rank } if is_own(rank) => self.request(rank, body, nodes),
            Up::Output { rank, error } if is_own(rank) => {
                self.print(rank, error, body, nodes);
            }
            Up::StdinTaken { bytes } => return bytes,
            Up::Ended { rank, end } if is_own(rank) => self.ended(rank, end, nodes),
            Up::Move { news: News::Checked { why }, .. } => {
                let host = share.host.clone();
                self.moves.iter_mut().for_each(|moves| moves.note_checked(&host, why.clone()));
            }
            Up::Move { rank, number, news } if self.moves_now(rank) => {
                let moves = self.moves.as_mut();
                let over = moves.and_then(|moves| moves.news(at, number, news, nodes));
                self.over_with(over, nodes);
            }
            // Word about a move that is over.
            Up::Move { .. } => {}
            _ => {
                let text = format!("host {} named a rank that it does not have", share.host);
                self.fail(1, &text, nodes);
            }
        }
        0
    }

    fn hello(&mut self, at: usize, version: &str, cores: usize, nodes: &mut [Node]) {
        let own = env!("CARGO_PKG_VERSION");
        let node = &mut nodes[at];
        node.ready = true;
        let (host, count) = (node.share.host.clone(), node.share.count);
        if version != own {
            self.forget(at);
            let text = format!("host {host} has weft {version}, this is {own}: install the same");
            return self.fail(1, &text, nodes);
        }
        if self.verbose && count > cores {
            eprintln!("weft run: note: {count} ranks take turns on {cores} cores of host {host}");
        }
        match node.start.take() {
            Some(start) if self.ending.is_none() => {
                node.send(&Down::Start(start), b"");
                let told = |(rank, r): (usize, &Rank)| Some((rank, r.told?));
                for (rank, end) in self.ranks.iter().enumerate().filter_map(told) {
                    node.send(&Down::Ended { rank, end }, b"");
                }
            }
            _ => self.forget(at),
        }
    }

    fn print(&mut self, rank: usize, error: bool, bytes: &[u8], nodes: &mut [Node]) {
        if error {
            // If standard error cannot be written, the job goes on without it.
            let _ = self.err.write(rank, bytes);
        } else if !self.closed_output {
            if let Err(problem) = self.out.write(rank, bytes) {
                self.closed_output = true;
                if problem.kind() == std::io::ErrorKind::BrokenPipe {
                    // The reader of the output has stopped reading: the job ends without a fault.
                    self.verdict.get_or_insert(crate::out::UNREAD);
                    return self.end_ranks(nodes);
                }
                self.fail(1, &format!("standard output: {problem}"), nodes);
            }
        }
    }

    fn request(&mut self, rank: usize, line: &[u8], nodes: &mut [Node]) {
        let joined = self.server.initialised(rank);
        for effect in self.server.handle(rank, line) {
            match effect {
                Effect::Reply { rank, text } => self.reply(rank, text.as_bytes(), nodes),
                Effect::Left { rank } => self.send_end(rank, None, nodes),
                Effect::Abort { rank, code } => self.abort(rank, code, nodes),
                Effect::Violation { rank, problem } => {
                    let place = self.place(rank, nodes);
                    self.fail(1, &format!("{place} does not speak PMI-1: {problem}"), nodes);
                }
            }
        }
        if !joined && self.server.initialised(rank) && self.progress.is_none() {
            self.progress = Some(Instant::now().max(self.began + SLOW_START));
        }
        self.check_stuck(nodes);
    }

    /// Ends the job at the request of a rank. Status 0 is no failure: `shmem_global_exit(0)` and
    /// the like.
    fn abort(&mut self, rank: usize, code: i32, nodes: &mut [Node]) {
        let text = format!("{} aborted the job with status {code}", self.place(rank, nodes));
        if code != 0 {
            // A shell sees the last eight bits, which must not be 0 for a failure.
            let code = u8::try_from(code & 0xff).unwrap_or(1).max(1);
            return self.fail(code, &text, nodes);
        }
        if self.verbose {
            eprintln!("weft run: {text}");
        }
        self.verdict.get_or_insert(0);
        self.end_ranks(nodes);
    }

    /// Sends an answer to a rank, or keeps it while the rank moves.
    fn reply(&mut self, rank: usize, text: &[u8], nodes: &mut [Node]) {
        let message = Down::Pmi { rank };
        let message = match &mut self.moves {
            Some(moves) => moves.keep(rank, message, text),
            None => Some(message),
        };
        let node = self.ranks[rank].node;
        message.into_iter().for_each(|message| nodes[node].send(&message, text));
    }

    /// Handles what `weft migrate` says.
    pub fn asked(&mut self, nodes: &mut [Node]) {
        let Some(moves) = &mut self.moves else { return };
        let Some(request) = moves.hear(nodes) else { return };
        let begun = match self.checked(&request, nodes) {
            Ok(_) if self.ending.is_some() => Err("the job ends".to_owned()),
            Ok(hosts) if request.dry_run => {
                self.moves.iter_mut().for_each(|m| m.check(request.rank, hosts, nodes));
                Ok(())
            }
            Ok(hosts) => {
                let moves = self.moves.as_mut();
                let begun = moves.map(|moves| moves.begin(request.rank, hosts, nodes));
                begun.map_or(Ok(()), |begun| begun.map_err(|why| format!("{why:#}")))
            }
            Err(why) => Err(why),
        };
        if let (Err(why), Some(moves)) = (begun, &mut self.moves) {
            moves.refuse(why);
        }
    }

    /// Returns the hosts of a move that is asked for.
    fn checked(&self, request: &Request, nodes: &[Node]) -> Result<(usize, usize), String> {
        let (rank, host) = (request.rank, &request.host);
        let Some(of) = self.ranks.get(rank) else {
            return Err(format!("the job has no rank {rank}, but 0 to {}", self.size() - 1));
        };
        if of.state != State::Running {
            return Err(format!("rank {rank} does not run"));
        }
        let Some(target) = nodes.iter().position(|node| node.share.host == *host) else {
            let names: Vec<&str> = nodes.iter().map(|node| node.share.host.as_str()).collect();
            return Err(format!(
                "{host} is no host of the job, which has {}; `weft run --spare {host}` adds one \
                 without ranks",
                names.join(", ")
            ));
        };
        if nodes[target].stdin.is_none() || !nodes[target].ready {
            return Err(format!("host {host} is lost"));
        }
        Ok((of.node, target))
    }

    /// Changes the job after a move.
    fn over_with(&mut self, over: Option<Over>, nodes: &mut [Node]) {
        let (rank, node) = match over {
            None => return,
            Some(Over::Moved { rank, node, pid }) => {
                (self.ranks[rank].node, self.ranks[rank].pid) = (node, pid);
                if self.verbose {
                    eprintln!("weft run: {} goes on", self.place(rank, nodes));
                }
                (rank, node)
            }
            Some(Over::Stayed { rank, node }) => (rank, node),
            Some(Over::Lost { why }) => return self.fail(1, &why, nodes),
        };
        let kept = self.moves.as_mut().map(Moves::kept).unwrap_or_default();
        for (message, body) in kept {
            nodes[node].send(&message, &body);
        }
        let _ = rank;
    }

    fn check_stuck(&mut self, nodes: &mut [Node]) {
        if self.ending.is_some() {
            return;
        }
        if let Some((gone, waiting)) = self.server.stuck() {
            let text = format!(
                "{} ended before it joined the job, and {} wait{} for it there: every rank has \
                 to start the same program, and to join",
                self.place(gone, nodes),
                listed(&waiting),
                if waiting.len() == 1 { "s" } else { "" }
            );
            self.fail(1, &text, nodes);
        }
    }

    /// Tells all hosts that a rank has left the job (`None`) or that its process has ended, so that
    /// no rank waits for it.
    fn send_end(&mut self, rank: usize, end: Option<End>, nodes: &mut [Node]) {
        self.ranks[rank].told = Some(end);
        for node in nodes.iter_mut().filter(|node| node.ready) {
            node.send(&Down::Ended { rank, end }, b"");
        }
    }

    fn ended(&mut self, rank: usize, end: End, nodes: &mut [Node]) {
        self.ranks[rank].state = State::Ended;
        if self.moves_now(rank) {
            self.moves.iter_mut().for_each(|moves| moves.ended(rank, nodes));
        }
        self.server.end(rank);
        self.send_end(rank, Some(end), nodes);
        let place = self.place(rank, nodes);
        let how = match end {
            End::Status(code) => format!("exited with status {code}"),
            End::Signal(signal) => format!("was killed by {}", named(signal)),
        };
        if self.verbose && (end == End::Status(0) || self.verdict.is_some()) {
            eprintln!("weft run: {place} {how}");
        }
        if end == End::Status(0) {
            return self.check_stuck(nodes);
        }
        match (self.interrupted, end) {
            // The user knows, and has been told what happens.
            (Some((asked, _)), End::Signal(signal)) if asked == signal => {
                self.verdict.get_or_insert(end.code());
                return self.end_ranks(nodes);
            }
            _ => {}
        }
        let hint = match end {
            End::Signal(9) => "; the system does that when memory runs out (see dmesg)",
            _ => "",
        };
        if self.goes_on((&place, end, &format!("{how}{hint}")), nodes) {
            return;
        }
        let rest = match (self.over(), self.interrupted) {
            (true, _) => "",
            (_, Some(_)) => " after the interrupt",
            (_, None) => "; ending the job",
        };
        self.fail(end.code(), &format!("{place} {how}{hint}{rest}"), nodes);
    }

    /// Marks all ranks of a node as ended.
    fn forget(&mut self, at: usize) {
        for rank in self.ranks.iter_mut().filter(|rank| rank.node == at) {
            rank.state = State::Ended;
        }
    }

    /// Handles the end of the connection to a proxy.
    pub fn disconnected(&mut self, at: usize, nodes: &mut [Node]) {
        nodes[at].stdin = None;
        let over = self.moves.as_mut().and_then(|moves| moves.lost(at, nodes));
        self.over_with(over, nodes);
        let open = |(_, rank): &(usize, &Rank)| rank.node == at && rank.state != State::Ended;
        let open: Vec<usize> =
            self.ranks.iter().enumerate().filter(open).map(|(rank, _)| rank).collect();
        if open.is_empty() {
            return;
        }
        self.forget(at);
        let node = &mut nodes[at];
        node.stdin = None;
        let status = node.wait(Instant::now() + Duration::from_secs(1));
        let host = node.share.host.clone();
        let how = status.map_or("lost".into(), |status| status.to_string());
        let words = match node.last_words.as_str() {
            "" => String::new(),
            words => format!(": {words}"),
        };
        if node.ready && self.lose(&open, &format!("was lost with its host ({how}){words}"), nodes)
        {
            return;
        }
        let node = &nodes[at];
        let text = match (node.ready, status.and_then(|s| s.code())) {
            (true, _) => format!("lost host {host} with its ranks ({how}){words}"),
            (false, Some(127)) => format!(
                "host {host}: weft is not there ({how}){words}; install it, or say where it is \
                 with --remote-weft"
            ),
            (false, _) => format!(
                "host {host}: no proxy could be started ({how}){words}; \
                 `{} true` must work and ask for nothing",
                node.reach
            ),
        };
        self.fail(1, &text, nodes);
    }
}

impl Job {
    /// Goes on without the ranks of a lost host, whose helper kills them. False: the job has to
    /// end.
    fn lose(&mut self, ranks: &[usize], how: &str, nodes: &mut [Node]) -> bool {
        if self.dead.is_none() || self.interrupted.is_some() || self.ending.is_some() {
            return false;
        }
        let end = End::Signal(Signal::KILL.as_raw());
        ranks.iter().all(|&rank| {
            let place = self.place(rank, nodes);
            self.server.end(rank);
            self.send_end(rank, Some(end), nodes);
            self.goes_on((&place, end, how), nodes)
        })
    }
}

/// Describes a rank in messages; process ID 0 means that there is none.
fn place(rank: usize, host: &str, pid: u32) -> String {
    match pid {
        0 => format!("rank {rank} (host {host}, not started yet)"),
        _ => format!("rank {rank} (host {host}, pid {pid})"),
    }
}

fn signal_all(signal: i32, nodes: &mut [Node]) {
    for node in nodes.iter_mut().filter(|node| node.ready) {
        node.send(&Down::Signal { signal }, b"");
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::place;

    #[test]
    fn place__a_rank_without_a_process_has_no_number_of_one() {
        assert_eq!(place(2, "node2", 0), "rank 2 (host node2, not started yet)");
        assert_eq!(place(2, "node2", 7), "rank 2 (host node2, pid 7)");
    }
}

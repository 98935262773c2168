//! The launcher: one loop over proxies, signals and standard input.

mod dead;
mod job;
mod moves;

use super::agents::{Agent, Node};
use super::frame::{read_some, Down, Start, HIGH_WATER, STDIN_WINDOW};
use super::hosts::Share;
use super::poll::{self, Set};
use super::{carried_env, Args, Bind};
use anyhow::{Context, Result};
use job::Job;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Signals passed on to the ranks.
const FORWARDED: [i32; 5] = [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];

/// Time in which proxies must end after a request.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy)]
enum Ready {
    Signal(usize),
    Stdin,
    ToNode(usize),
    FromNode(usize),
    Complaint(usize),
    Desk,
    Caller,
}

/// Standard input to be sent to rank 0.
struct Input {
    open: bool,
    /// Bytes sent that rank 0 has not read yet.
    unread: usize,
}

struct Launcher {
    nodes: Vec<Node>,
    job: Job,
    signals: Vec<(i32, UnixStream)>,
    input: Input,
}

/// Starts the job and runs it until it ends.
pub fn run(
    args: &Args,
    agent: &Agent,
    shares: Vec<Share>,
    env: Vec<(String, String)>,
) -> Result<ExitCode> {
    let signals =
        watch_signals().context("watching for signals: see the limit on open files (ulimit -n)")?;
    let job = Job::new(args, &shares)?;
    let mut nodes = Vec::new();
    for share in shares {
        nodes.push(agent.start(share)?);
    }
    for node in &mut nodes {
        node.start = Some(Box::new(start_message(args, &job, node, &env)?));
    }
    let input = Input { open: true, unread: 0 };
    let mut launcher = Launcher { nodes, job, signals, input };
    launcher.serve()?;
    launcher.close();
    launcher.job.say_dead();
    Ok(ExitCode::from(launcher.job.code()))
}

fn watch_signals() -> io::Result<Vec<(i32, UnixStream)>> {
    let mut streams = Vec::new();
    for signal in FORWARDED {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(signal, theirs)?;
        streams.push((signal, ours));
    }
    Ok(streams)
}

fn start_message(args: &Args, job: &Job, node: &Node, env: &[(String, String)]) -> Result<Start> {
    let directory = std::env::current_dir().context("finding the working directory")?;
    let mut full = if node.local { Vec::new() } else { carried_env() };
    full.extend_from_slice(env);
    Ok(Start {
        command: args.command.clone(),
        env: full,
        directory: directory.into_os_string().into_string().ok().context("directory not UTF-8")?,
        first: node.share.first,
        count: node.share.count,
        size: job.size(),
        bind: args.bind == Bind::Core,
        whole_lines: job.size() > 1 || args.tag_output,
        migratable: args.migratable,
    })
}

/// True if reading standard input cannot stop this process: it is no terminal, or this process is
/// in its foreground.
fn may_read_stdin() -> bool {
    match rustix::termios::tcgetpgrp(io::stdin()) {
        Ok(group) => group == rustix::process::getpgrp(),
        Err(_) => true,
    }
}

impl Launcher {
    fn serve(&mut self) -> Result<()> {
        while !self.job.over() {
            for event in self.wait().context("waiting for the job")? {
                self.handle(event);
            }
            self.job.tick(Instant::now(), &mut self.nodes);
        }
        Ok(())
    }

    fn wait(&self) -> rustix::io::Result<Vec<Ready>> {
        let stdin = io::stdin();
        let mut set = Set::default();
        for (at, (_, stream)) in self.signals.iter().enumerate() {
            set.add(Ready::Signal(at), stream.as_fd(), poll::READ);
        }
        let room = self.input.unread < STDIN_WINDOW && self.job.takes_input();
        if self.input.open && room && may_read_stdin() {
            set.add(Ready::Stdin, stdin.as_fd(), poll::READ);
        }
        let jammed = self.nodes.iter().any(|node| node.down.len() > HIGH_WATER);
        for (at, node) in self.nodes.iter().enumerate() {
            if let (Some(fd), false) = (&node.stdin, node.down.is_empty()) {
                set.add(Ready::ToNode(at), fd.as_fd(), poll::WRITE);
            }
            // A request of one proxy can cause answers to another, so those must be written first.
            if let (Some(fd), false) = (&node.stdout, jammed) {
                set.add(Ready::FromNode(at), fd.as_fd(), poll::READ);
            }
            if let Some(fd) = &node.stderr {
                set.add(Ready::Complaint(at), fd.as_fd(), poll::READ);
            }
        }
        if let Some(moves) = &self.job.moves {
            set.add(Ready::Desk, moves.desk.listener.as_fd(), poll::READ);
            if let Some(caller) = &moves.caller {
                set.add(Ready::Caller, caller.stream.as_fd(), poll::READ);
            }
        }
        set.wait(self.job.next_deadline(&self.nodes))
    }

    fn handle(&mut self, event: Ready) {
        match event {
            Ready::Signal(at) => {
                let (signal, stream) = &self.signals[at];
                // One byte per signal; more than two have no further effect.
                let count = read_some(stream).ok().flatten().map_or(0, |bytes| bytes.len());
                for _ in 0..count.min(2) {
                    self.job.signalled(*signal, &mut self.nodes);
                }
            }
            Ready::Stdin => self.read_input(),
            Ready::ToNode(at) => self.nodes[at].flush(),
            Ready::FromNode(at) => self.read_node(at),
            Ready::Desk => self.job.moves.iter_mut().for_each(moves::Moves::admit),
            Ready::Caller => self.job.asked(&mut self.nodes),
            Ready::Complaint(at) => {
                for line in self.nodes[at].read_complaints() {
                    self.job.complaint(&self.nodes[at], &line);
                }
            }
        }
    }

    fn read_input(&mut self) {
        let node = &mut self.nodes[self.job.node_of(0)];
        match read_some(io::stdin()) {
            Ok(None) => {}
            Ok(Some(bytes)) if !bytes.is_empty() => {
                self.input.unread += bytes.len();
                node.send(&Down::Stdin, &bytes);
            }
            _ => {
                self.input.open = false;
                node.send(&Down::StdinEnd, b"");
            }
        }
    }

    fn read_node(&mut self, at: usize) {
        match self.nodes[at].read() {
            Ok(messages) => {
                for (message, body) in messages {
                    let taken = self.job.receive(at, message, &body, &mut self.nodes);
                    self.input.unread = self.input.unread.saturating_sub(taken);
                }
            }
            Err(error) => {
                self.nodes[at].last_words = format!("{error:#}");
                self.nodes[at].stdout = None;
            }
        }
        if self.nodes[at].stdout.is_none() {
            for line in self.nodes[at].read_complaints() {
                self.job.complaint(&self.nodes[at], &line);
            }
            self.job.disconnected(at, &mut self.nodes);
        }
    }

    /// Closes the connections and waits for the proxies, which then end by themselves.
    fn close(&mut self) {
        for node in &mut self.nodes {
            node.stdin = None;
        }
        let patience = Instant::now() + TIMEOUT;
        for node in &mut self.nodes {
            node.wait(patience);
            for line in node.read_complaints() {
                self.job.complaint(node, &line);
            }
        }
    }
}

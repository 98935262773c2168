//! The proxy: starts the ranks of one host and connects them to the launcher.
//!
//! The proxy sends and receives frames over its standard input and output, so that `ssh` or any
//! other launch agent can carry them. When its input ends, for any reason, it ends its ranks and
//! itself.

mod moves;

use super::frame::{read_some, Down, End, Incoming, Outgoing, Start, Up, HIGH_WATER, MAGIC};
use super::guard::{self, children, end_children};
use super::moving::arrive::Arriving;
use super::moving::leave::Leaving;
use super::moving::shared::LeftBehind;
use super::poll::{self, sooner, Set};
use super::rank::{allowed_cores, Rank};
use crate::agent::{self, Starting};
use anyhow::{Context, Result};
use rustix::fs::{memfd_create, MemfdFlags, OFlags};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use rustix::process::{Signal, WaitId, WaitIdOptions};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weft::launch::ends;

/// Time between asking ranks to end and killing them.
pub const GRACE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy)]
enum Ready {
    Launcher,
    ToLauncher,
    Agent,
    Exit(usize),
    Pmi(usize),
    ToPmi(usize),
    Output(usize, usize),
    ToStdin(usize),
    Control(usize),
    Carrier(Side),
    Restored,
}

/// The two hosts of a move.
#[derive(Clone, Copy)]
enum Side {
    Source,
    Target,
}

/// Ranks that are started in a round.
const AT_ONCE: usize = 16;

struct Proxy {
    incoming: Incoming,
    up: Outgoing,
    ranks: Vec<Rank>,
    whole_lines: bool,
    /// The ranks to start after the agent of this host serves.
    starting: Option<(Starting, Box<Start>)>,
    /// The next rank to start, of a job whose ranks are being started.
    to_start: Option<(usize, Box<Start>)>,
    /// Set when the launcher is gone: the time at which remaining ranks are killed.
    closing: Option<Instant>,
    /// Time of the last check for processes that ranks left behind.
    looked: Instant,
    /// The limit on open files that ranks get.
    file_limit: Rlimit,
    /// The ends of all ranks of the job, for those of this host.
    ends: File,
    /// The rank that moves away, and the one that comes.
    leaving: Option<Leaving>,
    arriving: Option<Arriving>,
    /// Files in memory of ranks that moved away or were ended.
    left: LeftBehind,
}

/// Raises this process's limit on open files as far as the system allows: each rank needs five.
/// Returns the old limit.
fn raise_file_limit() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    // If this is refused, a job of many ranks fails later with the system's own error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before });
    before
}

/// Runs the proxy, under its guard, until its launcher closes the connection.
pub fn run() -> Result<ExitCode> {
    if let Some(code) = guard::begin()? {
        return Ok(code);
    }
    for fd in [io::stdin().as_fd(), io::stdout().as_fd()] {
        let flags = rustix::fs::fcntl_getfl(fd)?;
        rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
    }
    let file_limit = raise_file_limit();
    // Processes that ranks leave behind become children of this process, which can then end them.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let mut proxy = Proxy {
        incoming: Incoming::default(),
        up: Outgoing::default(),
        ranks: Vec::new(),
        whole_lines: true,
        starting: None,
        to_start: None,
        closing: None,
        looked: Instant::now(),
        file_limit,
        ends: memfd_create(ends::NAME, MemfdFlags::CLOEXEC)?.into(),
        leaving: None,
        arriving: None,
        left: LeftBehind::default(),
    };
    proxy.up.raw(MAGIC);
    let version = env!("CARGO_PKG_VERSION").to_owned();
    proxy.up.push(&Up::Hello { version, cores: allowed_cores().len() }, b"");
    let outcome = proxy.serve();
    proxy.kill_all();
    outcome.map(|()| ExitCode::SUCCESS)
}

impl Proxy {
    fn serve(&mut self) -> Result<()> {
        while self.closing.is_none() || !self.ranks.is_empty() {
            self.start_some();
            let ready = self.wait().context("waiting for ranks")?;
            // In reverse: a rank that ended is removed from the list, which moves later ones.
            for event in ready.into_iter().rev() {
                self.handle(event)?;
            }
            self.check_agent();
            self.reap_strangers();
            if self.closing.is_some_and(|at| Instant::now() >= at) {
                self.kill_all();
            }
        }
        Ok(())
    }

    fn wait(&self) -> rustix::io::Result<Vec<Ready>> {
        let (stdin, stdout) = (io::stdin(), io::stdout());
        let mut set = Set::default();
        if self.closing.is_none() {
            set.add(Ready::Launcher, stdin.as_fd(), poll::READ);
            if !self.up.is_empty() {
                set.add(Ready::ToLauncher, stdout.as_fd(), poll::WRITE);
            }
        }
        if let Some((agent, _)) = &self.starting {
            set.add(Ready::Agent, agent.fd(), poll::READ);
        }
        let room = self.up.len() < HIGH_WATER;
        for (at, rank) in self.ranks.iter().enumerate() {
            // Added before the streams, so that the reverse order reads those first.
            set.add(Ready::Exit(at), rank.pidfd.as_fd(), poll::READ);
            if let Some(pmi) = &rank.pmi {
                if room {
                    set.add(Ready::Pmi(at), pmi.as_fd(), poll::READ);
                }
                if !rank.pmi_out.is_empty() {
                    set.add(Ready::ToPmi(at), pmi.as_fd(), poll::WRITE);
                }
            }
            for (which, stream) in rank.streams.iter().enumerate() {
                if let (Some(fd), true) = (&stream.fd, room) {
                    set.add(Ready::Output(at, which), fd.as_fd(), poll::READ);
                }
            }
            if let (Some(fd), false) = (&rank.stdin, rank.stdin_out.is_empty()) {
                set.add(Ready::ToStdin(at), fd.as_fd(), poll::WRITE);
            }
            if let Some(control) = &rank.control {
                set.add(Ready::Control(at), control.socket.as_fd(), poll::READ);
            }
        }
        self.add_moves(&mut set);
        let next = self.to_start.as_ref().map(|_| Instant::now());
        let agent = self.starting.as_ref().map(|(agent, _)| agent.until());
        set.wait(sooner(self.closing, sooner(next, agent)))
    }

    fn handle(&mut self, event: Ready) -> Result<()> {
        match event {
            Ready::Launcher => self.read_launcher(),
            Ready::ToLauncher => {
                if self.up.flush(io::stdout()).is_err() {
                    self.close();
                }
                Ok(())
            }
            // The agent is checked in every round.
            Ready::Agent => Ok(()),
            Ready::Exit(at) => {
                let rank = self.ranks.remove(at);
                let number = rank.rank;
                let end = rank.finish(self.whole_lines, &mut self.up).context("reaping a rank")?;
                self.note_end(number, end.told());
                Ok(())
            }
            Ready::Pmi(at) => {
                self.ranks[at].read_pmi(&mut self.up);
                Ok(())
            }
            Ready::ToPmi(at) => {
                self.ranks[at].write_pmi();
                Ok(())
            }
            Ready::Output(at, which) => {
                self.ranks[at].read_output(which, self.whole_lines, &mut self.up);
                Ok(())
            }
            Ready::ToStdin(at) => {
                self.ranks[at].write_stdin(&mut self.up);
                Ok(())
            }
            Ready::Control(at) => {
                self.hear(at);
                Ok(())
            }
            Ready::Carrier(side) => {
                self.carried(side);
                Ok(())
            }
            Ready::Restored => {
                self.arriving.iter_mut().for_each(|arriving| arriving.restored(&mut self.up));
                Ok(())
            }
        }
    }

    fn read_launcher(&mut self) -> Result<()> {
        match read_some(io::stdin()) {
            Ok(None) => return Ok(()),
            Ok(Some(bytes)) if !bytes.is_empty() => self.incoming.extend(&bytes),
            _ => {
                self.close();
                return Ok(());
            }
        }
        while let Some((message, body)) = self.incoming.next::<Down>()? {
            self.obey(message, &body);
        }
        Ok(())
    }

    fn obey(&mut self, message: Down, body: &[u8]) {
        match message {
            Down::Start(start) => self.start(start),
            Down::Pmi { rank } => {
                if let Some(rank) = self.find(rank) {
                    rank.pmi_out.raw(body);
                    rank.write_pmi();
                }
            }
            Down::Stdin => match self.ranks.iter_mut().find(|rank| rank.rank == 0) {
                Some(rank) => {
                    rank.stdin_out.raw(body);
                    rank.write_stdin(&mut self.up);
                }
                None => self.up.push(&Up::StdinTaken { bytes: body.len() }, b""),
            },
            Down::StdinEnd => {
                if let Some(at) = self.ranks.iter().position(|rank| rank.rank == 0) {
                    self.ranks[at].stdin_ends = true;
                    self.ranks[at].write_stdin(&mut self.up);
                }
            }
            Down::Ended { rank, end } => {
                self.note_end(rank, end.map_or(ends::End::Left, End::told));
            }
            Down::Move { rank, number, order } => self.move_step(rank, number, order),
            Down::Signal { signal } => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    self.start_none(signal);
                    self.signal(signal);
                }
            }
        }
    }

    /// Tells the ranks of this host of the end of a rank.
    fn note_end(&self, rank: usize, end: ends::End) {
        // Without it they wait for as long as they would under another launcher.
        let _ = ends::record(&self.ends, rank, end);
    }

    fn find(&mut self, rank: usize) -> Option<&mut Rank> {
        self.ranks.iter_mut().find(|r| r.rank == rank)
    }

    /// Starts the agent, if the job asks for one, and then the ranks.
    fn start(&mut self, start: Box<Start>) {
        self.whole_lines = start.whole_lines;
        match agent::start_for(&start.env) {
            Ok(Some(agent)) => self.starting = Some((agent, start)),
            Ok(None) => self.start_ranks(start),
            Err(why) => {
                agent::without(&why);
                self.start_ranks(start);
            }
        }
    }

    /// Starts the ranks when the agent serves or has exceeded its time.
    fn check_agent(&mut self) {
        let Some((agent, _)) = &mut self.starting else { return };
        let said = match agent.said() {
            Ok(None) => return,
            Ok(Some(said)) => Ok(said),
            Err(why) => Err(why),
        };
        let Some((agent, start)) = self.starting.take() else { return };
        match said {
            Ok(said) => {
                log::debug!("{said}");
                drop(agent.into_agent());
            }
            Err(why) => {
                agent.end();
                agent::without(&why);
            }
        }
        self.start_ranks(start);
    }

    /// Handles a signal that ends the job while its agent or its ranks start: no further rank is
    /// started.
    fn start_none(&mut self, signal: Signal) {
        if ![Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL].contains(&signal) {
            return;
        }
        let (rank, what) = match (self.starting.take(), self.to_start.take()) {
            (Some((agent, start)), _) => {
                agent.end();
                (start.first, "agent")
            }
            (None, Some((next, _))) => (next, "ranks"),
            (None, None) => return,
        };
        let problem = format!("not started: the job ended while its {what} started");
        let code = End::Signal(signal.as_raw()).code();
        self.up.push(&Up::NotStarted { rank, problem, code }, b"");
    }

    /// Starts the first ranks; the next rounds start the others. The first one exists when this
    /// returns, since standard input is passed to it.
    fn start_ranks(&mut self, start: Box<Start>) {
        self.to_start = Some((start.first, start));
        self.start_some();
    }

    /// Starts some of the ranks that are still to be started. The launcher is listened to in
    /// between: it may end the job, or be gone.
    fn start_some(&mut self) {
        let Some((next, start)) = self.to_start.take() else { return };
        let last = start.first + start.count;
        let end = last.min(next + AT_ONCE);
        for rank in next..end {
            match Rank::spawn(&start, rank, &self.file_limit, &self.ends) {
                Ok(started) => {
                    let pid = started.pid().as_raw_nonzero().get() as u32;
                    self.up.push(&Up::Started { rank, pid }, b"");
                    self.ranks.push(started);
                }
                Err(failed) => {
                    let (problem, code) = (failed.problem, failed.code);
                    self.up.push(&Up::NotStarted { rank, problem, code }, b"");
                    return;
                }
            }
        }
        if end < last {
            self.to_start = Some((end, start));
        }
    }

    fn signal(&mut self, signal: Signal) {
        if [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL].contains(&signal) {
            let movable = self.ranks.iter().filter(|rank| rank.control.is_some());
            movable.for_each(|rank| self.left.note(rank.pid()));
        }
        let coming = self.arriving.as_ref().and_then(|arriving| arriving.copy.as_ref());
        for rank in self.ranks.iter().chain(coming) {
            rank.signal(signal);
            if signal == Signal::TERM {
                // A stopped rank handles the request only after it continues.
                rank.signal(Signal::CONT);
            }
        }
    }

    fn close(&mut self) {
        if self.closing.is_none() {
            self.closing = Some(Instant::now() + GRACE);
            self.start_none(Signal::TERM);
            self.signal(Signal::TERM);
        }
    }

    /// Reaps processes that ranks left behind and that have ended; checks at most once a second.
    fn reap_strangers(&mut self) {
        if self.looked.elapsed() < Duration::from_secs(1) {
            return;
        }
        self.looked = Instant::now();
        for pid in children() {
            if !self.ranks.iter().any(|rank| rank.pid() == pid) {
                // A process that still runs, or was reaped just now, is no error.
                let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
                let _ = rustix::process::waitid(WaitId::Pid(pid), ended);
            }
        }
    }

    /// Kills all ranks, and then all processes that they left behind.
    fn kill_all(&mut self) {
        (self.leaving, self.arriving) = (None, None);
        self.signal(Signal::KILL);
        for rank in self.ranks.drain(..) {
            // An error does not matter: the launcher has closed the connection.
            let _ = rank.finish(self.whole_lines, &mut self.up);
        }
        end_children();
        self.left.remove();
    }
}

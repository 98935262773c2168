//! The client side of PMI-1's simple wire protocol.
//!
//! MPICH's Hydra serves this protocol: text lines over a descriptor that the launcher left
//! (`PMI_FD`) or over TCP (`PMI_PORT`). Values are bytes here; on the wire they are hexadecimal
//! digits, cut into pieces that fit the launcher's longest value.

use super::wait_log::WaitLog;
use super::wire::{self, Line, LineBuffer, LineError};
use super::{announce_abort, check_key, check_rank, Bootstrap, LaunchError};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendFlags};
use std::collections::BTreeMap;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most pieces of a value; it bounds the fetches that a hostile key-value space can cause.
const MAX_PIECES: usize = 4096;

/// Longest piece, in digits. Slurm's `mpi/pmi2` offers values of 1024 characters and hangs on a
/// request line longer than that.
const PIECE_MAX: usize = 512;

/// Most ranks, and most time, that a timed-out fence spends to find the late ranks.
const LATE_RANKS: usize = 64;
const LATE_WAIT: Duration = Duration::from_secs(2);

/// Longest wire name this module makes: `weft-RANK-KEY/PIECE`.
const KEY_SPACE: usize = 56;

/// Most ranks whose values are fetched early: each costs an exchange with the launcher.
const KEPT_RANKS: usize = 4096;

/// Most time for a farewell at the exit of the process.
const FAREWELL: Duration = Duration::from_secs(5);

/// A connection to the launcher. All waits are bounded by `poll`: a bound of the socket itself
/// would be one of an MPI that uses the same connection, too.
struct Socket(OwnedFd);

impl Socket {
    /// Waits until the socket can be used as wanted.
    fn wait(&self, want: PollFlags, left: Duration) -> io::Result<()> {
        let left = left.max(Duration::from_millis(1));
        let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        match retry_on_intr(|| poll(&mut [PollFd::new(&self.0, want)], Some(&left)))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }

    fn read(&mut self, out: &mut [u8], left: Duration) -> io::Result<usize> {
        self.wait(PollFlags::IN, left)?;
        Ok(retry_on_intr(|| rustix::net::recv(&self.0, &mut *out, RecvFlags::empty()))?.0)
    }

    fn write_all(&mut self, mut bytes: &[u8], left: Duration) -> io::Result<()> {
        while !bytes.is_empty() {
            self.wait(PollFlags::OUT, left)?;
            // No signal where the other side has ended: the program may not expect one.
            let send = || rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL);
            bytes = &bytes[retry_on_intr(send)?..];
        }
        Ok(())
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Returns the text about a launcher that does not answer.
fn slow(asked: &Line) -> String {
    match asked.cmd() {
        "barrier_in" => "for ranks that have not joined the job (PMI barrier_in): they have not \
                         started, or their hosts do not reach the launcher"
            .into(),
        other => format!("for the launcher, which has not answered (PMI {other})"),
    }
}

/// Connects to the launcher within a time, and logs if that takes long.
fn dial(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let (deadline, mut patience) = (Instant::now() + timeout, WaitLog::begin());
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for to in address.to_socket_addrs()? {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let part = patience.part(left).max(Duration::from_millis(1));
            match TcpStream::connect_timeout(&to, part) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
            if !is_timeout(&last) || left <= part {
                break;
            }
            patience.say(|| {
                format!("for the launcher at {to}, which has not answered over TCP (a firewall?)")
            });
        }
    }
    Err(last)
}

/// A rank whose launcher speaks PMI-1.
pub struct Pmi1 {
    socket: Socket,
    received: LineBuffer,
    timeout: Duration,
    rank: usize,
    size: usize,
    kvsname: String,
    vallen_max: usize,
    /// The name this rank put last: a fence that times out asks which other ranks put it.
    last_put: Option<String>,
    finalized: bool,
    /// Values of ranks that were fetched early, by rank and key.
    kept: BTreeMap<(usize, String), Vec<u8>>,
    /// True if the launcher learns of a farewell when the process exits.
    until_exit: bool,
    /// True if a wait failed: a late answer could be mistaken for the answer to a later request.
    broken: bool,
}

fn wrong(asked: impl ToString, problem: impl ToString) -> LaunchError {
    LaunchError::Protocol { asked: asked.to_string(), problem: problem.to_string() }
}

impl Pmi1 {
    /// Joins over the descriptor the launcher left; `timeout` bounds every later wait.
    ///
    /// # Errors
    /// The launcher answered wrongly, or did not answer.
    pub fn over_socket(
        stream: UnixStream,
        rank: usize,
        size: usize,
        timeout: Duration,
    ) -> Result<Self, LaunchError> {
        let mut client = Pmi1::new(Socket(stream.into()), timeout);
        client.rank = rank;
        client.size = size;
        client.init()?;
        Ok(client)
    }

    /// Joins over TCP: the launcher listens at `address` and knows this process by `id`.
    ///
    /// # Errors
    /// Returns the errors of [`Pmi1::over_socket`]; or the launcher cannot be reached.
    pub fn over_tcp(address: &str, id: usize, timeout: Duration) -> Result<Self, LaunchError> {
        let stream = dial(address, timeout)
            .map_err(|e| LaunchError::io(&format!("connecting to the launcher at {address}"), e))?;
        let mut client = Pmi1::new(Socket(stream.into()), timeout);
        let hello = Line::new("initack").with("pmiid", id);
        let deadline = client.deadline();
        client.send(&hello)?;
        client.receive("initack", deadline, &hello)?;
        let (mut rank, mut size) = (None, None);
        for _ in 0..3 {
            let line = client.receive("set", deadline, &hello)?;
            rank = line.number("rank").or(rank);
            size = line.number("size").or(size);
        }
        match (rank, size) {
            (Some(rank), Some(size)) if rank < size => (client.rank, client.size) = (rank, size),
            _ => return Err(wrong(hello, "no rank and size")),
        }
        client.init()?;
        Ok(client)
    }

    fn new(socket: Socket, timeout: Duration) -> Self {
        Pmi1 {
            socket,
            received: LineBuffer::default(),
            timeout,
            rank: 0,
            size: 1,
            kvsname: String::new(),
            vallen_max: 0,
            last_put: None,
            finalized: false,
            kept: BTreeMap::new(),
            until_exit: false,
            broken: false,
        }
    }

    /// Lets the launcher learn of the farewell when the process exits. An MPI in the same process
    /// uses the same connection; the launcher ends it at the first farewell.
    pub(crate) fn until_exit(mut self) -> Self {
        self.until_exit = true;
        self
    }

    fn init(&mut self) -> Result<(), LaunchError> {
        let ask = Line::new("init").with("pmi_version", 1).with("pmi_subversion", 1);
        let answer = self.exchange(&ask, "response_to_init")?;
        if answer.number::<i64>("rc").unwrap_or(0) != 0 {
            return Err(wrong(ask, format!("it refuses PMI version 1.1: {answer}")));
        }
        let ask = Line::new("get_maxes");
        let maxes = self.exchange(&ask, "maxes")?;
        let keylen: usize = maxes.number("keylen_max").unwrap_or(64);
        self.vallen_max = maxes.number("vallen_max").unwrap_or(0);
        if self.vallen_max < 64 || keylen < KEY_SPACE {
            return Err(wrong(ask, format!("its values or names are too short: {maxes}")));
        }
        let ask = Line::new("get_my_kvsname");
        let answer = self.exchange(&ask, "my_kvsname")?;
        match answer.get("kvsname") {
            Some(name) if !name.is_empty() => self.kvsname = name.to_owned(),
            _ => return Err(wrong(ask, answer)),
        }
        Ok(())
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    fn failed(&self, during: &Line, error: io::Error) -> LaunchError {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::WouldBlock | Kind::TimedOut => LaunchError::Timeout {
                during: format!("PMI {}", during.cmd()),
                seconds: self.timeout.as_secs(),
                missing: Vec::new(),
            },
            Kind::BrokenPipe | Kind::ConnectionReset | Kind::UnexpectedEof => {
                LaunchError::LauncherGone { during: format!("PMI {}", during.cmd()) }
            }
            _ => LaunchError::io("talking PMI-1 to the launcher", error),
        }
    }

    fn send(&mut self, line: &Line) -> Result<(), LaunchError> {
        let text = format!("{line}\n");
        let sent = self.socket.write_all(text.as_bytes(), self.timeout);
        sent.map_err(|error| self.failed(line, error))
    }

    /// Reads the next line of the launcher, of any command.
    fn next(&mut self, deadline: Instant, asked: &Line) -> Result<Line, LaunchError> {
        let refuse = |error: LineError| wrong(asked, error);
        let mut patience = WaitLog::begin();
        loop {
            if let Some(bytes) = self.received.next_line().map_err(refuse)? {
                return Line::parse(&bytes).map_err(refuse);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.failed(asked, io::ErrorKind::TimedOut.into()));
            }
            let mut chunk = [0; 4096];
            let part = patience.part(left);
            match self.socket.read(&mut chunk, part) {
                Ok(0) => return Err(self.failed(asked, io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.received.extend(&chunk[..count]),
                Err(error) if is_timeout(&error) && part < left => patience.say(|| slow(asked)),
                Err(error) => return Err(self.failed(asked, error)),
            }
        }
    }

    fn receive(
        &mut self,
        want: &str,
        deadline: Instant,
        asked: &Line,
    ) -> Result<Line, LaunchError> {
        let line = self.next(deadline, asked)?;
        if line.cmd() == want {
            return Ok(line);
        }
        Err(wrong(asked, format!("expected {want}, got {line}")))
    }

    fn exchange(&mut self, ask: &Line, want: &str) -> Result<Line, LaunchError> {
        if self.broken {
            return Err(wrong(ask.cmd(), "an earlier wait for it failed"));
        }
        let deadline = self.deadline();
        let answer = self.send(ask).and_then(|()| self.receive(want, deadline, ask));
        self.broken = answer.is_err();
        answer
    }

    fn get_line(&self, name: &str) -> Line {
        Line::new("get").with("kvsname", &self.kvsname).with("key", name)
    }

    /// Returns the value of a wire name. `None` if no rank put it.
    fn fetch(&mut self, name: &str) -> Result<Option<String>, LaunchError> {
        let ask = self.get_line(name);
        let answer = self.exchange(&ask, "get_result")?;
        Ok(value_of(&answer))
    }

    fn put_piece(&mut self, name: &str, value: &str) -> Result<(), LaunchError> {
        let ask = Line::new("put").with("kvsname", &self.kvsname);
        let ask = ask.with("key", name).with("value", value);
        let answer = self.exchange(&ask, "put_result")?;
        match answer.number::<i64>("rc") {
            Some(0) => Ok(()),
            _ => Err(wrong(Line::new("put").with("key", name), answer)),
        }
    }

    /// Returns, after a fence timed out, the ranks that did not put the name that this rank put.
    /// `None` if the fence ended after all. Best effort within [`LATE_WAIT`].
    fn late_ranks(&mut self) -> Option<Vec<usize>> {
        let mut late = Vec::new();
        let Some(key) = self.last_put.clone() else {
            return Some(late);
        };
        let deadline = Instant::now() + LATE_WAIT;
        let (me, size) = (self.rank, self.size);
        for rank in (0..size).filter(|&rank| rank != me).take(LATE_RANKS) {
            let ask = self.get_line(&wire_name(rank, &key, 0));
            if self.send(&ask).is_err() {
                break;
            }
            match self.next(deadline, &ask) {
                Ok(line) if line.cmd() == "barrier_out" => {
                    // The answer to the request just sent is still to come.
                    return self.next(deadline, &ask).err().map(|_| late);
                }
                Ok(line) if line.cmd() == "get_result" && value_of(&line).is_none() => {
                    late.push(rank);
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        Some(late)
    }
}

fn value_of(answer: &Line) -> Option<String> {
    match answer.number::<i64>("rc") {
        Some(0) => answer.get("value").map(str::to_owned),
        _ => None,
    }
}

fn wire_name(rank: usize, key: &str, piece: usize) -> String {
    match piece {
        0 => format!("weft-{rank}-{key}"),
        _ => format!("weft-{rank}-{key}/{piece}"),
    }
}

impl Bootstrap for Pmi1 {
    fn launcher(&self) -> &'static str {
        "pmi1"
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn job_id(&self) -> String {
        self.kvsname.clone()
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), LaunchError> {
        check_key(key)?;
        let digits = wire::to_hex(value);
        // The first piece starts with the number of pieces and a colon; one byte is left for a NUL.
        let room = (self.vallen_max - 8).min(PIECE_MAX);
        let pieces = digits.len().div_ceil(room).max(1);
        if pieces > MAX_PIECES {
            return Err(wrong("put", format!("{} bytes are too many for {key}", value.len())));
        }
        for piece in 0..pieces {
            let end = digits.len().min((piece + 1) * room);
            let part = &digits[piece * room..end];
            let part = if piece == 0 { format!("{pieces}:{part}") } else { part.to_owned() };
            self.put_piece(&wire_name(self.rank, key, piece), &part)?;
        }
        self.last_put = Some(key.to_owned());
        Ok(())
    }

    fn fence(&mut self) -> Result<(), LaunchError> {
        let ask = Line::new("barrier_in");
        match self.exchange(&ask, "barrier_out") {
            Ok(_) => Ok(()),
            Err(LaunchError::Timeout { seconds, .. }) => match self.late_ranks() {
                None => {
                    self.broken = false;
                    Ok(())
                }
                Some(missing) => {
                    let during = "the start of the job".to_owned();
                    Err(LaunchError::Timeout { during, seconds, missing })
                }
            },
            Err(error) => Err(error),
        }
    }

    fn keep(&mut self, key: &str) -> Result<(), LaunchError> {
        if !self.until_exit || self.size > KEPT_RANKS {
            return Ok(());
        }
        for rank in 0..self.size {
            match self.get(rank, key) {
                Ok(value) => drop(self.kept.insert((rank, key.to_owned()), value)),
                // `get` tells it to those that want it.
                Err(LaunchError::NotPublished { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn get(&mut self, rank: usize, key: &str) -> Result<Vec<u8>, LaunchError> {
        check_key(key)?;
        check_rank(rank, self.size)?;
        if let Some(value) = self.kept.get(&(rank, key.to_owned())) {
            return Ok(value.clone());
        }
        let absent = || LaunchError::NotPublished { rank, key: key.to_owned() };
        let bad = || wrong("get", format!("{key} of rank {rank} is malformed"));
        let first = self.fetch(&wire_name(rank, key, 0))?.ok_or_else(absent)?;
        let (count, part) = first.split_once(':').ok_or_else(bad)?;
        let count = count.parse::<usize>().ok().filter(|c| (1..=MAX_PIECES).contains(c));
        let mut digits = part.to_owned();
        for piece in 1..count.ok_or_else(bad)? {
            digits += &self.fetch(&wire_name(rank, key, piece))?.ok_or_else(absent)?;
        }
        wire::from_hex(&digits).ok_or_else(bad)
    }

    fn preseeded(&mut self, key: &str) -> Result<Option<Vec<u8>>, LaunchError> {
        check_key(key)?;
        match self.fetch(key)? {
            None => Ok(None),
            Some(digits) => match wire::from_hex(&digits) {
                Some(value) => Ok(Some(value)),
                None => Err(wrong("get", format!("{key} of the launcher is malformed"))),
            },
        }
    }

    fn abort(&mut self, code: i32, message: &str) -> ! {
        announce_abort(self.rank, message);
        // A failure to tell the launcher does no harm: the end of this process tells it too.
        let _ = self.send(&Line::new("abort").with("exitcode", code));
        std::process::exit(code)
    }

    fn finalize(&mut self) -> Result<(), LaunchError> {
        if std::mem::replace(&mut self.finalized, true) {
            return Ok(());
        }
        if !self.until_exit {
            return self.exchange(&Line::new("finalize"), "finalize_ack").map(|_| ());
        }
        let socket = self.socket.0.try_clone();
        let socket = socket.map_err(|error| LaunchError::io("copying a descriptor", error))?;
        let leaving = Pmi1::new(Socket(socket), self.timeout.min(FAREWELL));
        let left = (std::process::id(), leaving);
        LEFT.lock().unwrap_or_else(PoisonError::into_inner).replace(left);
        Ok(())
    }
}

/// The connection of a rank that has left its job, with its process: a copy made by `fork` does not
/// leave.
static LEFT: Mutex<Option<(u32, Pmi1)>> = Mutex::new(None);

/// Tells the launcher that this rank has left its job, unless an MPI has done so.
pub(crate) extern "C" fn say_farewell() {
    let left = LEFT.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((_, mut client)) = left.filter(|(process, _)| *process == std::process::id()) {
        // After an MPI's farewell the connection has ended. Nobody is left to hear of an error.
        let _ = client.exchange(&Line::new("finalize"), "finalize_ack");
    }
}

#[cfg(test)]
mod tests;

//! Peers of the models: calls over TCP, and the counter of a Redis server.

use crate::peers::{self, Duplex, Spinning};
use crate::rank::{Channel, Outcome, Rank, Task};
use crate::sys::{self, Setup};
use crate::volley::{per, warm_up};
use anyhow::{ensure, Context, Result};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of a call before its arguments: length, number, method; an answer has the first two.
const CALL: usize = 10;
const ANSWER: usize = 8;
const ECHO: u16 = 1;
/// Longest wait for a Redis server.
const PATIENCE: Duration = Duration::from_secs(60);

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u32::from_le_bytes)
}

/// Serves calls until as many are done.
fn serve(stream: &mut dyn Duplex, count: u64) -> Result<()> {
    type Service = Box<dyn Fn(&[u8]) -> Vec<u8>>;
    let services: BTreeMap<u16, Service> =
        BTreeMap::from([(ECHO, Box::new(<[u8]>::to_vec) as Service)]);
    let (mut head, mut args) = ([0; CALL], Vec::new());
    for _ in 0..count {
        stream.read_exact(&mut head)?;
        args.resize(word(&head, 0) as usize, 0);
        stream.read_exact(&mut args)?;
        let method = u16::from_le_bytes([head[8], head[9]]);
        let result = services.get(&method).context("no such method")?(&args);
        let mut answer = Vec::with_capacity(ANSWER + result.len());
        answer.extend_from_slice(&(result.len() as u32).to_le_bytes());
        answer.extend_from_slice(&head[4..8]);
        answer.extend_from_slice(&result);
        stream.write_all(&answer)?;
    }
    Ok(())
}

/// A call and its answer over TCP, both ends spinning.
pub fn tcp_call(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let mut stream = peers::open(rank, Channel::Tcp, true)?;
    let warm = warm_up(task.iters);
    rank.sync()?;
    if rank.me == 1 {
        serve(&mut *stream, warm + task.iters)?;
        return Ok(Outcome::Elsewhere);
    }
    let (args, mut head) = (vec![1; task.size], [0; ANSWER]);
    let mut start = Instant::now();
    for i in 0..warm + task.iters {
        if i == warm {
            start = Instant::now();
        }
        let mut call = Vec::with_capacity(CALL + args.len());
        call.extend_from_slice(&(args.len() as u32).to_le_bytes());
        call.extend_from_slice(&(i as u32).to_le_bytes());
        call.extend_from_slice(&ECHO.to_le_bytes());
        call.extend_from_slice(&args);
        stream.write_all(&call)?;
        stream.read_exact(&mut head)?;
        let mut answer = vec![0; word(&head, 0) as usize];
        stream.read_exact(&mut answer)?;
        ensure!(word(&head, 4) == i as u32 && answer.len() == args.len(), "another answer");
    }
    Ok(per(start, task.iters))
}

/// A server that ends when this value is dropped, or with this process.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // An error here means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a Redis server on this rank's core. `None`: the program is not here.
fn server(rank: &Rank) -> Result<Option<(Server, SocketAddr)>> {
    let address = rank.hosts()[rank.me];
    // The port is free as soon as this listener is gone.
    let at = TcpListener::bind((address, 0)).context("a TCP socket")?.local_addr()?;
    let mut command = Command::new("redis-server");
    command.args(["--bind", &address.to_string(), "--port", &at.port().to_string()]);
    command.args(["--save", "", "--appendonly", "no", "--protected-mode", "no"]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    sys::prepare(&mut command, Setup { inherited: Vec::new(), cpus: None, host: None });
    match command.spawn() {
        Ok(server) => Ok(Some((Server(server), at))),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).context("starting redis-server"),
    }
}

/// Connects to a server that may be starting.
fn connect(at: SocketAddr) -> Result<TcpStream> {
    let end = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect(at) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                return Ok(stream);
            }
            Err(e) if Instant::now() > end => return Err(e).context("connecting to Redis"),
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// `INCR` of a Redis server on the other rank's core, whose client spins.
pub fn redis(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    rank.locate()?;
    if rank.me == 1 {
        let server = server(rank)?;
        let port = server.as_ref().map_or(0, |(_, at)| at.port());
        rank.tell(&u64::from(port).to_le_bytes())?;
        // The server has the core until the other rank is done.
        rank.receive_note()?;
        return Ok(Outcome::Elsewhere);
    }
    let port = rank.hear_u64()? as u16;
    let measured = match port {
        0 => Ok(Outcome::Absent("redis-server is not installed".into())),
        port => increments(SocketAddr::new(rank.hosts()[1], port), rank.alone, task),
    };
    rank.tell(&[0])?;
    measured
}

fn increments(at: SocketAddr, alone: bool, task: &Task) -> Result<Outcome> {
    let mut stream = Spinning(connect(at)?, alone);
    let (warm, mut answer) = (warm_up(task.iters), [0; 64]);
    let mut start = Instant::now();
    for i in 0..warm + task.iters {
        if i == warm {
            start = Instant::now();
        }
        stream.write_all(b"*2\r\n$4\r\nINCR\r\n$6\r\nticket\r\n")?;
        let mut len = 0;
        while !answer[..len].ends_with(b"\r\n") {
            let got = stream.read(&mut answer[len..])?;
            ensure!(got > 0, "Redis ended the connection");
            len += got;
        }
        ensure!(answer[0] == b':', "Redis: {}", String::from_utf8_lossy(&answer[..len]));
    }
    Ok(per(start, task.iters))
}

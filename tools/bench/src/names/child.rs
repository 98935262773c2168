//! Processes on hosts of a lab, which `weft bench names` starts: the two ends of messages, and
//! publisher and subscriber of Redis.

use super::cluster::LIMIT;
use crate::service::clock_us;
use anyhow::{bail, ensure, Context, Result};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weft::names::{claim_of, Name, Names, Pick};
use weft::{Config, Endpoint, Links, PeerId};

/// Run one process of `weft bench names`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Its part
    #[arg(value_enum)]
    role: Role,
    /// Path of its agent's socket, or address of the Redis server.
    place: String,
    /// Values to measure.
    #[arg(long, default_value_t = 1)]
    count: u32,
    /// Messages for one value.
    #[arg(long, default_value_t = 1)]
    iters: u32,
}

/// The part of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Role {
    /// Sends messages and measures.
    Ping,
    /// Returns messages.
    Echo,
    /// Publishes the time by Redis.
    Publish,
    /// Tells how old such times are.
    Subscribe,
}

/// Values that a process measured.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Values {
    /// One-way times of messages to a name, in us.
    pub by_name: Vec<f64>,
    /// One-way times of messages to its endpoint, in us.
    pub direct: Vec<f64>,
    /// Times from publishing to the event, in ms.
    pub redis: Vec<f64>,
}

/// The line that says that a subscriber subscribed.
pub const READY: &str = "ready";
/// Bytes of a message.
pub const SIZE: usize = 16;
/// Tags of messages to an endpoint, and to a name.
const DIRECT: u64 = 1;
const BY_NAME: u64 = 2;
const CHANNEL: &str = "event";
/// Time between two messages of a publisher, so that each finds an idle server.
const PAUSE: Duration = Duration::from_millis(2);

/// Runs a process.
///
/// # Errors
/// Its agent or server does not answer.
pub fn run(args: &Args) -> Result<ExitCode> {
    match args.role {
        Role::Ping => Side::open(&args.place, 0)?.ping(args)?,
        Role::Echo => Side::open(&args.place, 1)?.echo()?,
        Role::Publish => publish(args)?,
        Role::Subscribe => subscribe(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// One end of the messages.
struct Side {
    endpoint: Endpoint,
    names: Names,
    other: Name,
    peer: PeerId,
}

impl Side {
    fn open(place: &str, me: usize) -> Result<Side> {
        let links = Links::parse("udp").context("the link udp")?;
        let config = Config { warn_after_ms: 60_000, ..Config::default() };
        let endpoint = weft::job::open_endpoint(config, links, [9; 32])?;
        let mut names = Names::at(place)?;
        let [own, other] = [me, 1 - me].map(|at| format!("end:{at}"));
        names.claim(&claim_of(&endpoint, &own.parse()?)?)?;
        let other: Name = other.parse()?;
        names.wait(&other, 1, LIMIT)?;
        let peer = weft::names::connect(&endpoint, &mut names, &other, Pick::Turn)?;
        Ok(Side { endpoint, names, other, peer })
    }

    fn send(&mut self, tag: u64) -> Result<()> {
        let to = match tag {
            BY_NAME => {
                weft::names::connect(&self.endpoint, &mut self.names, &self.other, Pick::Turn)?
            }
            _ => self.peer,
        };
        Ok(self.endpoint.send_blocking(to, tag, &[7; SIZE])?)
    }

    fn recv(&mut self) -> Result<u64> {
        let status = self.endpoint.recv_blocking(Some(self.peer), 0, u64::MAX, &mut [0; SIZE])?;
        Ok(status.tag)
    }

    /// Returns messages until this process is ended.
    fn echo(mut self) -> Result<()> {
        loop {
            let tag = self.recv()?;
            self.send(tag)?;
        }
    }

    /// Measures both in turn.
    fn ping(mut self, args: &Args) -> Result<()> {
        let mut values = Values::default();
        // The first is not counted: the session begins with it.
        for at in 0..=args.count {
            for tag in [DIRECT, BY_NAME] {
                let begun = Instant::now();
                for _ in 0..args.iters {
                    self.send(tag)?;
                    self.recv()?;
                }
                let us = begun.elapsed().as_secs_f64() * 1e6 / f64::from(args.iters) / 2.0;
                let of = if tag == DIRECT { &mut values.direct } else { &mut values.by_name };
                of.extend((at > 0).then_some(us));
            }
        }
        println!("{}", serde_json::to_string(&values)?);
        Ok(())
    }
}

/// Connects to a server that may be starting.
fn connect(place: &str) -> Result<TcpStream> {
    let end = Instant::now() + LIMIT;
    loop {
        match TcpStream::connect(place) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(LIMIT))?;
                return Ok(stream);
            }
            Err(e) if Instant::now() > end => return Err(e).context("connecting to Redis"),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Returns a line of an answer, without its end.
fn line(from: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    ensure!(from.read_line(&mut line)? > 0, "Redis ended the connection");
    Ok(line.trim_end().to_string())
}

/// Returns the texts of an answer that is a list.
fn list(from: &mut impl BufRead) -> Result<Vec<String>> {
    let head = line(from)?;
    let count: usize = head.strip_prefix('*').with_context(|| format!("Redis: {head}"))?.parse()?;
    let mut items = Vec::new();
    for _ in 0..count {
        let head = line(from)?;
        let Some(len) = head.strip_prefix('$') else {
            items.push(head);
            continue;
        };
        let mut text = vec![0; len.parse::<usize>()? + 2];
        from.read_exact(&mut text)?;
        text.truncate(text.len() - 2);
        items.push(String::from_utf8(text)?);
    }
    Ok(items)
}

fn publish(args: &Args) -> Result<()> {
    let mut to = connect(&args.place)?;
    let mut from = BufReader::new(to.try_clone()?);
    for _ in 0..args.count {
        let now = format!("{:.3}", clock_us());
        let (length, name) = (now.len(), CHANNEL.len());
        let text = format!("*3\r\n$7\r\nPUBLISH\r\n${name}\r\n{CHANNEL}\r\n${length}\r\n{now}\r\n");
        to.write_all(text.as_bytes())?;
        let answer = line(&mut from)?;
        ensure!(answer == ":1", "Redis: {answer}");
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn subscribe(args: &Args) -> Result<()> {
    let mut to = connect(&args.place)?;
    let mut from = BufReader::new(to.try_clone()?);
    to.write_all(format!("SUBSCRIBE {CHANNEL}\r\n").as_bytes())?;
    list(&mut from)?;
    println!("{READY}");
    let mut values = Values::default();
    for _ in 0..args.count {
        let [_, _, sent] = &list(&mut from)?[..] else { bail!("Redis sent no message") };
        values.redis.push((clock_us() - sent.parse::<f64>()?) / 1e3);
    }
    println!("{}", serde_json::to_string(&values)?);
    Ok(())
}

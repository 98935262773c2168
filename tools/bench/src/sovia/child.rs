//! Processes that `weft bench sovia` starts.

use super::layer::{Layer, Setting};
use crate::sys::{busy, monotonic_ns, pinned};
use anyhow::{ensure, Context, Result};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;

/// Run one process of `weft bench sovia`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Its part
    #[arg(value_enum)]
    role: Role,
    /// Port of the server
    #[arg(default_value = "0")]
    place: String,
    /// Configuration of Table 4; none: the socket itself
    #[arg(long)]
    setting: Option<String>,
    /// Bytes of a message
    #[arg(long, default_value_t = 4)]
    size: usize,
    /// Messages
    #[arg(long, default_value_t = 1)]
    iters: u64,
    /// The file that is sent or written
    #[arg(long)]
    file: Option<PathBuf>,
}

/// The part of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Role {
    /// Returns messages.
    Echo,
    /// Sends messages and awaits their return.
    Ask,
    /// Takes messages, and answers at the end.
    Sink,
    /// Sends messages, and awaits the answer.
    Stream,
    /// Sends a file.
    Serve,
    /// Fetches it.
    Fetch,
    /// Pins memory.
    Pin,
    /// Copies memory, the same all the time.
    Copy,
    /// Copies memory that no cache has.
    CopyCold,
}

/// Messages before those that are measured.
const WARM_UP: u64 = 1000;
/// Bytes of a read or a write of a file.
const PIECE: usize = 64 << 10;
/// Memory that is more than a cache has.
const COLD: usize = 256 << 20;

/// A connection: the socket, or the layer over it.
enum Way {
    Plain(TcpStream),
    Layer(Box<Layer>),
}

impl Way {
    fn new(stream: TcpStream, setting: Option<&str>) -> Result<Way> {
        let Some(label) = setting else {
            stream.set_nodelay(true)?;
            return Ok(Way::Plain(stream));
        };
        let setting = Setting::of(label).with_context(|| format!("{label} is not in Table 4"))?;
        Ok(Way::Layer(Layer::new(stream, setting)?.into()))
    }

    fn send(&mut self, data: &[u8]) -> Result<()> {
        match self {
            Way::Plain(stream) => Ok(stream.write_all(data)?),
            Way::Layer(layer) => layer.send(data),
        }
    }

    fn receive(&mut self, to: &mut [u8]) -> Result<()> {
        match self {
            Way::Plain(stream) => Ok(stream.read_exact(to)?),
            Way::Layer(layer) => layer.receive(to),
        }
    }
}

fn number(way: &mut Way) -> Result<u64> {
    let mut bytes = [0; 8];
    way.receive(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Serves one connection.
fn serve(args: &Args, each: impl Fn(Way) -> Result<()>) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    let (stream, _) = listener.accept()?;
    each(Way::new(stream, args.setting.as_deref())?)
}

/// Returns so many messages as the other end says.
fn echo(mut way: Way, size: usize) -> Result<()> {
    let (all, mut data) = (number(&mut way)?, vec![0; size]);
    for _ in 0..all {
        way.receive(&mut data)?;
        way.send(&data)?;
    }
    // The last message may be combined with none that follows.
    number(&mut way).map(drop)
}

/// Returns the time of a message one way, in us.
fn ask(mut way: Way, size: usize, iters: u64) -> Result<f64> {
    let mut data = vec![7; size];
    let warm = WARM_UP.min(10 * iters);
    way.send(&(warm + iters).to_le_bytes())?;
    let mut rounds = |count: u64| -> Result<u64> {
        let begun = monotonic_ns();
        for _ in 0..count {
            way.send(&data)?;
            way.receive(&mut data)?;
        }
        Ok(monotonic_ns() - begun)
    };
    rounds(warm)?;
    let time = rounds(iters)?;
    way.send(&0u64.to_le_bytes())?;
    Ok(time as f64 / iters as f64 / 2e3)
}

/// Takes streams until one has no message; answers each by the processor time of this process.
fn sink(mut way: Way, size: usize) -> Result<()> {
    let mut data = vec![0; size];
    loop {
        let all = number(&mut way)?;
        if all == 0 {
            return Ok(());
        }
        let before = busy();
        for _ in 0..all {
            way.receive(&mut data)?;
        }
        for (now, then) in busy().into_iter().zip(before) {
            way.send(&((now - then).as_nanos() as u64).to_le_bytes())?;
        }
        if let Way::Layer(layer) = &mut way {
            layer.flush()?;
        }
    }
}

/// Returns Mbit/s, then the shares of user and system time of the sender and of the receiver, in
/// per cent.
fn stream(mut way: Way, size: usize, iters: u64) -> Result<[f64; 5]> {
    let data = vec![7; size];
    let mut one = |count: u64| -> Result<[f64; 5]> {
        let (begun, before) = (monotonic_ns(), busy());
        way.send(&count.to_le_bytes())?;
        for _ in 0..count {
            way.send(&data)?;
        }
        let theirs = [number(&mut way)?, number(&mut way)?];
        let time = (monotonic_ns() - begun) as f64;
        let after = busy();
        let own = [0, 1].map(|at| (after[at] - before[at]).as_nanos() as f64 / time * 100.0);
        let theirs = theirs.map(|ns| ns as f64 / time * 100.0);
        let rate = (size as u64 * count) as f64 * 8e3 / time;
        Ok([rate, own[0], own[1], theirs[0], theirs[1]])
    };
    one(WARM_UP.min(iters))?;
    let measured = one(iters)?;
    way.send(&0u64.to_le_bytes())?;
    if let Way::Layer(layer) = &mut way {
        layer.flush()?;
    }
    Ok(measured)
}

fn path(args: &Args) -> Result<&PathBuf> {
    args.file.as_ref().context("--file")
}

/// Sends a file: its length, then its bytes. The second time counts.
fn send_file(args: &Args) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    let (mut to, _) = listener.accept()?;
    let mut piece = vec![0; PIECE];
    for _ in 0..2 {
        to.read_exact(&mut [0])?;
        let mut file = std::fs::File::open(path(args)?)?;
        to.write_all(&file.metadata()?.len().to_le_bytes())?;
        loop {
            let n = file.read(&mut piece)?;
            if n == 0 {
                break;
            }
            to.write_all(&piece[..n])?;
        }
    }
    Ok(())
}

/// Fetches a file; returns Mbit/s.
fn fetch(args: &Args) -> Result<f64> {
    let mut from = TcpStream::connect(("127.0.0.1", args.place.parse()?))?;
    let (mut piece, mut rate) = (vec![0; PIECE], 0.0);
    for _ in 0..2 {
        let begun = monotonic_ns();
        from.write_all(&[1])?;
        let mut file = std::fs::File::create(path(args)?)?;
        let mut len = [0; 8];
        from.read_exact(&mut len)?;
        let all = u64::from_le_bytes(len);
        let mut left = all;
        while left > 0 {
            let n = from.read(&mut piece)?;
            ensure!(n > 0, "the file ended early");
            file.write_all(&piece[..n])?;
            left = left.saturating_sub(n as u64);
        }
        rate = all as f64 * 8e3 / (monotonic_ns() - begun) as f64;
    }
    Ok(rate)
}

/// Returns the time of a call in us.
fn repeated(iters: u64, mut what: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    (0..iters.min(100)).try_for_each(&mut what)?;
    let begun = monotonic_ns();
    (0..iters).try_for_each(what)?;
    Ok((monotonic_ns() - begun) as f64 / iters as f64 / 1e3)
}

/// Runs a process; one that measures prints its figures.
///
/// # Errors
/// The other end is not there, or ends.
pub fn run(args: &Args) -> Result<ExitCode> {
    let Args { size, iters, .. } = *args;
    let dial = || -> Result<Way> {
        let stream = TcpStream::connect(("127.0.0.1", args.place.parse()?))?;
        Way::new(stream, args.setting.as_deref())
    };
    let figures = match args.role {
        Role::Echo => serve(args, |way| echo(way, size)).map(|()| Vec::new())?,
        Role::Sink => serve(args, |way| sink(way, size)).map(|()| Vec::new())?,
        Role::Serve => send_file(args).map(|()| Vec::new())?,
        Role::Ask => vec![ask(dial()?, size, iters)?],
        Role::Stream => stream(dial()?, size, iters)?.to_vec(),
        Role::Fetch => vec![fetch(args)?],
        Role::Pin => {
            let data = vec![7; size];
            vec![repeated(iters, |_| Ok(pinned(black_box(&data), || ())?))?]
        }
        Role::Copy | Role::CopyCold => {
            let whole = if args.role == Role::Copy { size } else { COLD };
            let (from, mut to) = (vec![7; whole], vec![0; size]);
            let places = (whole / size) as u64;
            let copy = |turn: u64| {
                let at = (turn % places) as usize * size;
                to.copy_from_slice(black_box(&from[at..at + size]));
                black_box(&to);
                Ok(())
            };
            vec![repeated(iters, copy)?]
        }
    };
    let words: Vec<String> = figures.iter().map(f64::to_string).collect();
    println!("{}", words.join(" "));
    Ok(ExitCode::SUCCESS)
}

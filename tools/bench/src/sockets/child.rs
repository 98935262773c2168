//! Processes that `weft bench sockets` starts: socket programs that know nothing of weft.

use crate::sys::monotonic_ns;
use anyhow::{Context, Result};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::ExitCode;

/// Run one process of `weft bench sockets`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Its part
    #[arg(value_enum)]
    role: Role,
    /// Port of the server, or its name with --unix; a server of TCP chooses its own.
    #[arg(default_value = "0")]
    place: String,
    /// Unix sockets instead of TCP.
    #[arg(long)]
    unix: bool,
    /// Address of the server.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Bytes of a request and of its answer.
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Requests, connections, calls, or MiB.
    #[arg(long, default_value_t = 1)]
    iters: u64,
}

/// The part of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Role {
    /// Returns what comes, on one connection after the other.
    Echo,
    /// Sends requests and awaits their answers.
    Ask,
    /// Makes a connection for each request.
    Short,
    /// Reads all that comes, and answers with a byte at the end.
    Sink,
    /// Sends MiBs in writes of 64 KiB.
    Stream,
    /// Writes to a file that is no socket.
    Calls,
    /// Reads from a connection by TCP, where nothing comes.
    CallsTcp,
    /// Returns what comes, on all connections at once.
    Many,
    /// Makes connections, uses each, and keeps them.
    Crowd,
}

/// Requests by a connection of a crowd, and the bytes of each: more than its memory.
const OF_CROWD: (u64, usize) = (200, 4096);

/// Requests, before those that are measured.
const WARM_UP: u64 = 2000;
/// Bytes of a write of a stream.
const WRITE: usize = 64 << 10;

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

fn name(place: &str) -> Result<SocketAddr> {
    Ok(SocketAddr::from_abstract_name(place)?)
}

/// Connects to a server.
fn dial(args: &Args) -> Result<Box<dyn Stream>> {
    if args.unix {
        return Ok(Box::new(UnixStream::connect_addr(&name(&args.place)?)?));
    }
    let stream = TcpStream::connect((args.host.as_str(), args.place.parse()?))?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

/// Serves one connection after the other.
fn serve(args: &Args, each: impl Fn(&mut dyn Stream) -> Result<()>) -> Result<()> {
    if args.unix {
        let listener = UnixListener::bind_addr(&name(&args.place)?)?;
        println!("{}", args.place);
        for stream in listener.incoming() {
            each(&mut stream?)?;
        }
        return Ok(());
    }
    let listener = TcpListener::bind((args.host.as_str(), 0))?;
    println!("{}", listener.local_addr()?.port());
    for stream in listener.incoming() {
        let mut stream = stream?;
        stream.set_nodelay(true)?;
        each(&mut stream)?;
    }
    Ok(())
}

fn echo(stream: &mut dyn Stream) -> Result<()> {
    let mut buf = vec![0; WRITE];
    loop {
        let n = stream.read(&mut buf)?;
        if n == 0 {
            return Ok(());
        }
        stream.write_all(&buf[..n])?;
    }
}

fn sink(stream: &mut dyn Stream) -> Result<()> {
    let mut buf = vec![0; WRITE];
    let mut all = [0; 8];
    stream.read_exact(&mut all)?;
    let mut left = u64::from_le_bytes(all);
    while left > 0 {
        let n = stream.read(&mut buf)?;
        left = left.saturating_sub(n as u64);
        anyhow::ensure!(n > 0, "the stream ended early");
    }
    stream.write_all(&[1])?;
    Ok(())
}

fn ask(stream: &mut dyn Stream, size: usize, iters: u64) -> Result<()> {
    let mut buf = vec![7; size];
    for _ in 0..iters {
        stream.write_all(&buf)?;
        stream.read_exact(&mut buf)?;
    }
    Ok(())
}

fn stream(to: &mut dyn Stream, bytes: u64) -> Result<()> {
    let buf = vec![7; WRITE];
    to.write_all(&bytes.to_le_bytes())?;
    for _ in 0..bytes / WRITE as u64 {
        to.write_all(&buf)?;
    }
    to.read_exact(&mut [0])?;
    Ok(())
}

/// Serves all connections at once.
fn many() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    for stream in listener.incoming() {
        let mut stream = stream?;
        stream.set_nodelay(true)?;
        std::thread::Builder::new().stack_size(256 << 10).spawn(move || echo(&mut stream))?;
    }
    Ok(())
}

/// Makes connections, uses each, says so, and keeps them for as long as this process lives.
fn crowd(args: &Args) -> Result<()> {
    let (requests, size) = OF_CROWD;
    let mut all = Vec::new();
    for _ in 0..args.iters {
        let mut to = dial(args)?;
        ask(&mut *to, size, requests)?;
        all.push(to);
    }
    println!("ready");
    loop {
        std::thread::park();
    }
}

/// Returns the nanoseconds of a read that finds nothing.
fn empty_reads(iters: u64) -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut from = TcpStream::connect(listener.local_addr()?)?;
    let _to = listener.accept()?;
    from.set_nonblocking(true)?;
    let time = seconds(|| {
        for _ in 0..iters {
            let got = from.read(black_box(&mut [0; 1]));
            let empty = got.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
            anyhow::ensure!(empty, "a read found something");
        }
        Ok(())
    });
    Ok(time? / iters as f64 * 1e9)
}

/// Returns the seconds that this took.
fn seconds(mut what: impl FnMut() -> Result<()>) -> Result<f64> {
    let begun = monotonic_ns();
    what()?;
    Ok((monotonic_ns() - begun) as f64 / 1e9)
}

/// Runs a process; one that measures prints its figure: one-way time in us, connections a second,
/// GB a second, or ns of a call.
///
/// # Errors
/// The other end is not there, or ends.
pub fn run(args: &Args) -> Result<ExitCode> {
    let iters = args.iters;
    let figure = match args.role {
        Role::Echo => return serve(args, echo).map(|()| ExitCode::SUCCESS),
        Role::Many => return many().map(|()| ExitCode::SUCCESS),
        Role::Crowd => return crowd(args).map(|()| ExitCode::SUCCESS),
        Role::CallsTcp => empty_reads(iters)?,
        Role::Sink => return serve(args, sink).map(|()| ExitCode::SUCCESS),
        Role::Ask => {
            let mut to = dial(args)?;
            ask(&mut *to, args.size, WARM_UP.min(10 * iters))?;
            seconds(|| ask(&mut *to, args.size, iters))? / iters as f64 / 2.0 * 1e6
        }
        Role::Short => {
            let time =
                seconds(|| (0..iters).try_for_each(|_| ask(&mut *dial(args)?, args.size, 1)));
            iters as f64 / time?
        }
        Role::Stream => {
            // The connection is warmed up by a stream of its own, on the same server.
            let mut to = dial(args)?;
            stream(&mut *to, iters << 20)?;
            drop(to);
            let (mut to, bytes) = (dial(args)?, iters << 20);
            bytes as f64 / seconds(|| stream(&mut *to, bytes))? / 1e9
        }
        Role::Calls => {
            let mut to = std::fs::OpenOptions::new().write(true).open("/dev/null");
            let to = to.as_mut().ok().context("opening /dev/null")?;
            let time =
                seconds(|| (0..iters).try_for_each(|_| Ok(to.write_all(black_box(&[0; 1]))?)));
            time? / iters as f64 * 1e9
        }
    };
    println!("{figure}");
    Ok(ExitCode::SUCCESS)
}

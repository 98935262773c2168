//! Peers: the channels that programs use today to pass bytes between processes.

use super::floor::DATAGRAM;
use super::rank::{Channel, Outcome, Rank, Task};
use super::sys::{self, monotonic_ns};
use super::volley::{median_ns, pause, per, volley, DOZE};
use anyhow::{Context, Result};
use rustix::fs::{mkfifoat, Mode, CWD};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::DirBuilderExt;
use std::time::{Duration, Instant};

/// A channel for bytes in both directions.
pub trait Duplex: Read + Write {}
impl<T: Read + Write> Duplex for T {}

struct Pipes {
    reader: std::fs::File,
    writer: std::fs::File,
}

impl Read for Pipes {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.reader.read(buffer)
    }
}

impl Write for Pipes {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.writer.write(data)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A non-blocking stream whose calls are repeated until they succeed; the flag is true if another
/// process shares the core.
pub struct Spinning(pub TcpStream, pub bool);

impl Spinning {
    fn insist(
        &mut self,
        mut call: impl FnMut(&mut TcpStream) -> std::io::Result<usize>,
    ) -> std::io::Result<usize> {
        loop {
            match call(&mut self.0) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => pause(self.1),
                other => return other,
            }
        }
    }
}

impl Read for Spinning {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.insist(|s| s.read(buffer))
    }
}

impl Write for Spinning {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.insist(|s| s.write(data))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Opens two FIFOs in a folder of their own; the folder is deleted as soon as both ends are open.
fn fifo(rank: &mut Rank) -> Result<Pipes> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let folder = match rank.me {
        0 => {
            let name = format!("weft-bench-{:016x}", weft_link::random_u64());
            let folder = std::env::temp_dir().join(name);
            std::fs::DirBuilder::new().mode(0o700).create(&folder).context("a folder for FIFOs")?;
            let made = ["0", "1"]
                .iter()
                .try_for_each(|name| mkfifoat(CWD, folder.join(name), Mode::RUSR | Mode::WUSR));
            rank.tell(folder.as_os_str().as_bytes())?;
            made.context("a FIFO")?;
            folder
        }
        _ => std::path::PathBuf::from(std::ffi::OsString::from_vec(rank.receive_note()?)),
    };
    // Opening for reading and writing does not wait for the other side; each rank then uses its end
    // only.
    let open = |name: &str| {
        std::fs::File::options().read(true).write(true).open(folder.join(name)).context("a FIFO")
    };
    let pipes = open("0").and_then(|zero| Ok([zero, open("1")?]));
    rank.sync()?;
    if rank.me == 0 {
        std::fs::remove_dir_all(&folder).context("removing the FIFOs' folder")?;
    }
    let [zero, one] = pipes?;
    Ok(match rank.me {
        0 => Pipes { reader: zero, writer: one },
        _ => Pipes { reader: one, writer: zero },
    })
}

/// Makes a System V queue. It ends with the IPC namespace of the lab host of the ranks, and at the
/// latest when this value is dropped.
fn queue(rank: &mut Rank) -> Result<sys::Queue> {
    let id = match rank.me {
        0 => {
            let queue = sys::Queue::make()?;
            rank.tell(&u64::from(queue.id()).to_le_bytes())?;
            return Ok(queue);
        }
        _ => rank.hear_u64()?,
    };
    Ok(sys::Queue::of(id as u32))
}

/// Measures a ping-pong of single datagrams.
pub fn udp_exchange(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    if task.size > DATAGRAM {
        return Ok(Outcome::Absent(format!("a datagram carries at most {DATAGRAM} B")));
    }
    let mut socket = rank.udp(false)?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let (data, mut buffer) = (vec![1u8; task.size], vec![0u8; 65536]);
    let send = |socket: &mut UdpSocket| Ok(socket.send(&data).map(|_| ())?);
    let recv = |socket: &mut UdpSocket| Ok(socket.recv(&mut buffer).is_ok());
    volley(rank, task, &mut socket, "a datagram got lost", send, recv)
}

/// Opens a channel between the two ranks; only TCP spins.
pub fn open(rank: &mut Rank, channel: Channel, spin: bool) -> Result<Box<dyn Duplex>> {
    Ok(match channel {
        Channel::Pipe => Box::new(Pipes {
            reader: rank.pipe_in.try_clone()?,
            writer: rank.pipe_out.try_clone()?,
        }),
        Channel::Unix => Box::new(rank.unix.try_clone()?),
        Channel::Fifo => Box::new(fifo(rank)?),
        Channel::SystemV => Box::new(queue(rank)?),
        Channel::Tcp | Channel::TcpNagle => {
            let stream = rank.tcp(channel == Channel::TcpNagle)?;
            stream.set_nonblocking(spin)?;
            if spin {
                Box::new(Spinning(stream, rank.alone))
            } else {
                Box::new(stream)
            }
        }
    })
}

/// TCP spins; pipe and Unix socket block, as in the programs that use them.
pub fn ping_pong(rank: &mut Rank, task: &Task, channel: Channel) -> Result<Outcome> {
    let stream = open(rank, channel, true)?;
    exchange_over(rank, task, stream)
}

/// All channels block.
pub fn exchange(rank: &mut Rank, task: &Task, channel: Channel) -> Result<Outcome> {
    let stream = open(rank, channel, false)?;
    exchange_over(rank, task, stream)
}

fn exchange_over(rank: &mut Rank, task: &Task, mut stream: Box<dyn Duplex>) -> Result<Outcome> {
    let data = vec![1u8; task.size.max(1)];
    let mut buffer = data.clone();
    let send = |stream: &mut Box<dyn Duplex>| Ok(stream.write_all(&data)?);
    let recv = |stream: &mut Box<dyn Duplex>| Ok(stream.read_exact(&mut buffer).map(|()| true)?);
    volley(rank, task, &mut stream, "the stream broke", send, recv)
}

/// The writer uses one write per message; the reader reads as much as there is.
pub fn stream(rank: &mut Rank, task: &Task, channel: Channel) -> Result<Outcome> {
    let mut stream = open(rank, channel, false)?;
    let size = task.size.max(1);
    let total = size as u64 * task.iters;
    rank.sync()?;
    if rank.me == 1 {
        let mut buffer = vec![0u8; size.clamp(64 << 10, 1 << 20)];
        let mut left = total;
        while left > 0 {
            let want = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let got = stream.read(&mut buffer[..want])?;
            anyhow::ensure!(got > 0, "the stream ended early");
            left -= got as u64;
        }
        stream.write_all(&[1])?;
        return Ok(Outcome::Elsewhere);
    }
    let data = vec![1u8; size];
    let start = Instant::now();
    for _ in 0..task.iters {
        stream.write_all(&data)?;
    }
    stream.read_exact(&mut [0])?;
    Ok(per(start, task.iters))
}

/// Rank 1 waits in a read for `iters` milliseconds; returns the share of a core that it used.
pub fn idle(rank: &mut Rank, task: &Task, channel: Channel) -> Result<Outcome> {
    let mut stream = open(rank, channel, false)?;
    rank.sync()?;
    if rank.me == 0 {
        std::thread::sleep(Duration::from_millis(task.iters));
        stream.write_all(&[1])?;
        return Ok(Outcome::Elsewhere);
    }
    let (before, start) = (sys::cpu_time(), Instant::now());
    stream.read_exact(&mut [0])?;
    let used = sys::cpu_time() - before;
    Ok(Outcome::Value(used.as_secs_f64() / start.elapsed().as_secs_f64()))
}

/// Measures from before the write to after the return of the read that slept.
pub fn wake(rank: &mut Rank, task: &Task, channel: Channel) -> Result<Outcome> {
    let mut stream = open(rank, channel, false)?;
    let (mut samples, mut stamp) = (Vec::new(), [0; 8]);
    rank.sync()?;
    for _ in 0..task.iters {
        if rank.me == 0 {
            std::thread::sleep(DOZE);
            stream.write_all(&monotonic_ns().to_le_bytes())?;
        } else {
            stream.read_exact(&mut stamp)?;
            samples.push(monotonic_ns().saturating_sub(u64::from_le_bytes(stamp)));
        }
    }
    Ok(if rank.me == 1 { median_ns(samples) } else { Outcome::Elsewhere })
}

//! Ranks that exchange bytes without weft: by sockets of the kernel, or by whatever a program has.

use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time in which all ranks find each other.
const MEET: Duration = Duration::from_secs(60);
/// Pause of a rank before it asks again for one that does not listen yet.
const AGAIN: Duration = Duration::from_millis(20);
/// Most bytes of a message. A wrong length takes no more memory.
const MESSAGE_MAX: usize = 1 << 30;
/// Tags of sums and of the numbers of ranks.
const PART: u32 = 0xdd_10;
const WHOLE: u32 = 0xdd_11;

/// The reason why ranks cannot go on: the rank that failed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RanksError {
    /// The rank.
    pub rank: usize,
    /// The cause.
    pub why: String,
}

impl fmt::Display for RanksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}: {}", self.rank, self.why)
    }
}

impl std::error::Error for RanksError {}

/// The ranks of a program, which calls wait for.
pub trait Ranks {
    /// Returns the number of this rank.
    fn rank(&self) -> usize;

    /// Returns the number of ranks.
    fn size(&self) -> usize;

    /// Sends a message. The call does not wait for its receiver, and the bytes are free when it
    /// returns.
    ///
    /// # Errors
    /// The rank failed.
    fn send(&self, to: usize, tag: u32, bytes: &[u8]) -> Result<(), RanksError>;

    /// Receives the next message with a tag, of this length.
    ///
    /// # Errors
    /// The rank failed, or the message has another length.
    fn recv(&self, from: usize, tag: u32, bytes: &mut [u8]) -> Result<(), RanksError>;

    /// Makes each number the largest of all ranks.
    ///
    /// # Errors
    /// A rank failed.
    fn largest(&self, numbers: &mut [f64]) -> Result<(), RanksError> {
        combine(self, numbers, (f64::from_le_bytes, f64::to_le_bytes), f64::max)
    }

    /// Makes each number the sum of all ranks.
    ///
    /// # Errors
    /// A rank failed.
    fn sum(&self, numbers: &mut [f64]) -> Result<(), RanksError> {
        combine(self, numbers, (f64::from_le_bytes, f64::to_le_bytes), |one, two| one + two)
    }

    /// Makes each whole number the sum of all ranks; it wraps.
    ///
    /// # Errors
    /// A rank failed.
    fn sum_whole(&self, numbers: &mut [u64]) -> Result<(), RanksError> {
        combine(self, numbers, (u64::from_le_bytes, u64::to_le_bytes), u64::wrapping_add)
    }
}

/// The functions that read a number from its bytes, and write it.
type Form<T> = (fn([u8; 8]) -> T, fn(T) -> [u8; 8]);

/// Combines numbers at rank 0 in the order of the ranks, and gives all the result.
fn combine<T: Copy>(
    ranks: &(impl Ranks + ?Sized),
    numbers: &mut [T],
    (read, write): Form<T>,
    combine: fn(T, T) -> T,
) -> Result<(), RanksError> {
    let bytes_of =
        |numbers: &[T]| -> Vec<u8> { numbers.iter().flat_map(|number| write(*number)).collect() };
    let mut bytes = bytes_of(numbers);
    if ranks.rank() > 0 {
        ranks.send(0, PART, &bytes)?;
        ranks.recv(0, WHOLE, &mut bytes)?;
        numbers.iter_mut().zip(bytes.as_chunks().0).for_each(|(n, bytes)| *n = read(*bytes));
        return Ok(());
    }
    for rank in 1..ranks.size() {
        ranks.recv(rank, PART, &mut bytes)?;
        let parts = bytes.as_chunks().0.iter().map(|bytes| read(*bytes));
        numbers.iter_mut().zip(parts).for_each(|(all, part)| *all = combine(*all, part));
    }
    let all = bytes_of(numbers);
    (1..ranks.size()).try_for_each(|rank| ranks.send(rank, WHOLE, &all))
}

/// A message: its tag and its bytes.
type Message = (u32, Vec<u8>);

/// The connection to a rank.
struct Line {
    out: TcpStream,
    /// The messages that a thread has read: a rank that sends is never held up by one that sends,
    /// too.
    come: Receiver<Message>,
    /// Messages of other tags than the one that was asked for.
    early: VecDeque<Message>,
}

/// Ranks that are joined by TCP, each with each. It is a program of the kernel's sockets alone, so
/// `weft sockets run` carries it as any other.
pub struct Sockets {
    rank: usize,
    lines: Vec<Option<RefCell<Line>>>,
}

fn fault(rank: usize) -> impl Fn(io::Error) -> RanksError {
    move |why| RanksError { rank, why: why.to_string() }
}

fn read_u32(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// Reads messages until the connection ends.
fn read_all(mut from: TcpStream, to: &mpsc::Sender<Message>) -> io::Result<()> {
    loop {
        let (tag, len) = (read_u32(&mut from)?, read_u32(&mut from)? as usize);
        if len > MESSAGE_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; len];
        from.read_exact(&mut bytes)?;
        if to.send((tag, bytes)).is_err() {
            return Ok(());
        }
    }
}

impl Line {
    fn new(stream: TcpStream) -> io::Result<RefCell<Line>> {
        stream.set_nodelay(true)?;
        let (into, come) = mpsc::channel();
        let from = stream.try_clone()?;
        // The end of the thread is the end of the channel, which the rank notices.
        thread::spawn(move || drop(read_all(from, &into)));
        Ok(RefCell::new(Line { out: stream, come, early: VecDeque::new() }))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // The thread has the connection too, and would wait for the other rank, which waits for
        // this one.
        _ = self.out.shutdown(Shutdown::Both);
    }
}

/// Connects to a rank that may not listen yet.
fn connect(to: SocketAddr, until: Instant) -> io::Result<TcpStream> {
    loop {
        match TcpStream::connect(to) {
            Err(_) if Instant::now() < until => thread::sleep(AGAIN),
            done => return done,
        }
    }
}

impl Sockets {
    /// Joins all ranks: each listens at its address, connects to those before it, and accepts those
    /// behind it. All have the same secret, by which they know each other.
    ///
    /// # Errors
    /// A rank does not come within a minute.
    pub fn join(
        rank: usize,
        listener: &TcpListener,
        addresses: &[SocketAddr],
        secret: u64,
    ) -> Result<Sockets, RanksError> {
        let until = Instant::now() + MEET;
        let mut lines: Vec<Option<RefCell<Line>>> = addresses.iter().map(|_| None).collect();
        for (other, address) in addresses.iter().enumerate().take(rank) {
            let mut stream = connect(*address, until).map_err(fault(other))?;
            let hello = [&secret.to_le_bytes()[..], &(rank as u32).to_le_bytes()].concat();
            stream.write_all(&hello).map_err(fault(other))?;
            lines[other] = Some(Line::new(stream).map_err(fault(other))?);
        }
        listener.set_nonblocking(true).map_err(fault(rank))?;
        while let Some(missing) = (rank + 1..lines.len()).find(|rank| lines[*rank].is_none()) {
            match listener.accept() {
                Ok((mut stream, _)) => {
                    stream.set_nonblocking(false).map_err(fault(missing))?;
                    stream.set_read_timeout(Some(MEET)).map_err(fault(missing))?;
                    let (mut told, mut number) = ([0; 8], [0; 4]);
                    let read = stream.read_exact(&mut told);
                    let read = read.and_then(|()| stream.read_exact(&mut number));
                    let other = u32::from_le_bytes(number) as usize;
                    let is_known = read.is_ok() && told == secret.to_le_bytes() && other > rank;
                    // A stranger's connection is dropped.
                    if is_known && lines.get(other).is_some_and(Option::is_none) {
                        stream.set_read_timeout(None).map_err(fault(other))?;
                        lines[other] = Some(Line::new(stream).map_err(fault(other))?);
                    }
                }
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                    if Instant::now() >= until {
                        let why = format!("it has not connected within {} s", MEET.as_secs());
                        return Err(RanksError { rank: missing, why });
                    }
                    thread::sleep(AGAIN);
                }
                Err(why) => return Err(fault(rank)(why)),
            }
        }
        Ok(Sockets { rank, lines })
    }

    fn line(&self, rank: usize) -> Result<RefMut<'_, Line>, RanksError> {
        let line = self.lines.get(rank).and_then(Option::as_ref);
        let line = line.ok_or_else(|| RanksError { rank, why: "there is no such rank".into() })?;
        Ok(line.borrow_mut())
    }
}

impl Ranks for Sockets {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.lines.len()
    }

    fn send(&self, to: usize, tag: u32, bytes: &[u8]) -> Result<(), RanksError> {
        let mut line = self.line(to)?;
        let head = [tag.to_le_bytes(), (bytes.len() as u32).to_le_bytes()].concat();
        line.out.write_all(&[&head, bytes].concat()).map_err(fault(to))
    }

    fn recv(&self, from: usize, tag: u32, bytes: &mut [u8]) -> Result<(), RanksError> {
        let mut line = self.line(from)?;
        let early = line.early.iter().position(|(other, _)| *other == tag);
        let come = match early.and_then(|at| line.early.remove(at)) {
            Some((_, come)) => come,
            None => loop {
                match line.come.recv() {
                    Ok((other, come)) if other == tag => break come,
                    Ok(other) => line.early.push_back(other),
                    Err(_) => {
                        let why = "it has ended, or its connection is lost".to_string();
                        return Err(RanksError { rank: from, why });
                    }
                }
            },
        };
        if come.len() != bytes.len() {
            let why = format!("it sent {} bytes in place of {}", come.len(), bytes.len());
            return Err(RanksError { rank: from, why });
        }
        bytes.copy_from_slice(&come);
        Ok(())
    }
}

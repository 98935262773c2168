//! Floors: the speed of the machine without any message passing.

use super::rank::{Outcome, Rank, Task};
use super::sys::{self, monotonic_ns, Shared};
use super::volley::{median_ns, pause, per, volley, warm_up, DOZE};
use anyhow::{Context, Result};
use rustix::thread::futex;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[inline]
fn await_value(word: &AtomicU64, value: u64, alone: bool) {
    while word.load(Ordering::Acquire) != value {
        pause(alone);
    }
}

/// Measures one word in a cache line that goes from rank to rank and back.
pub fn cache_line(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let warm = warm_up(task.iters);
    let (mine, theirs) = (rank.me, 1 - rank.me);
    rank.shared.word(mine).store(0, Ordering::Release);
    rank.sync()?;
    let (mine, theirs) = (rank.shared.word(mine), rank.shared.word(theirs));
    let (alone, mut start) = (rank.alone, Instant::now());
    for i in 1..=warm + task.iters {
        if rank.me == 1 {
            await_value(theirs, i, alone);
            mine.store(i, Ordering::Release);
            continue;
        }
        if i == warm + 1 {
            start = Instant::now();
        }
        mine.store(i, Ordering::Release);
        await_value(theirs, i, alone);
    }
    Ok(if rank.me == 0 { per(start, 2 * task.iters) } else { Outcome::Elsewhere })
}

/// Slots of the ring of cache lines.
const SLOTS: usize = 1024;
/// Slot in which the consumer writes its position.
const TAKEN: usize = SLOTS + 8;
const _: () = assert!(TAKEN < Shared::WORDS);

/// Measures a single-producer single-consumer ring with one message per cache line, message and
/// sequence number in one word: the least cost of a stream of small messages.
pub fn ring(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    if task.size > 56 {
        return Ok(Outcome::Absent("a message of more than one cache line".into()));
    }
    let alone = rank.alone;
    if rank.me == 0 {
        (0..=TAKEN).for_each(|at| rank.shared.word(at).store(0, Ordering::Release));
    }
    rank.sync()?;
    let taken = rank.shared.word(TAKEN);
    if rank.me == 1 {
        for i in 1..=task.iters {
            await_value(rank.shared.word(i as usize % SLOTS), i, alone);
            if i % 64 == 0 || i == task.iters {
                taken.store(i, Ordering::Release);
            }
        }
        return Ok(Outcome::Elsewhere);
    }
    let start = Instant::now();
    let mut limit = SLOTS as u64;
    for i in 1..=task.iters {
        while i > limit {
            limit = taken.load(Ordering::Acquire) + SLOTS as u64;
            pause(alone);
        }
        rank.shared.word(i as usize % SLOTS).store(i, Ordering::Release);
    }
    await_value(taken, task.iters, alone);
    Ok(per(start, task.iters))
}

/// Returns a buffer with `size` bytes from a page boundary on, and their range. Processors copy
/// fastest between page boundaries, and up to twenty times slower where the offsets of the two
/// buffers within their pages differ by a few bytes.
fn pages(fill: u8, size: usize) -> (Vec<u8>, std::ops::Range<usize>) {
    const PAGE: usize = 4096;
    let buffer = vec![fill; size + PAGE];
    let start = buffer.as_ptr().align_offset(PAGE);
    (buffer, start..start + size)
}

/// Measures memcpy between two buffers of one process.
pub fn copy(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    if rank.me == 1 {
        return Ok(Outcome::Elsewhere);
    }
    let ((from, source), (mut into, target)) = (pages(1, task.size), pages(2, task.size));
    let (from, into) = (&from[source], &mut into[target]);
    let start = Instant::now();
    for _ in 0..task.iters {
        std::hint::black_box(&mut *into).copy_from_slice(std::hint::black_box(from));
    }
    Ok(per(start, task.iters))
}

/// Measures process_vm_readv of one buffer of the other rank into a buffer of this one.
pub fn remote_copy(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    if rank.me == 1 {
        let (memory, source) = pages(3, task.size);
        let source = &memory[source];
        rank.tell(&u64::from(std::process::id()).to_le_bytes())?;
        rank.tell(&(std::hint::black_box(source).as_ptr() as u64).to_le_bytes())?;
        rank.sync()?;
        drop(memory);
        return Ok(Outcome::Elsewhere);
    }
    let (pid, address) = (rank.hear_u64()? as i32, rank.hear_u64()?);
    let (mut memory, target) = pages(2, task.size);
    let into = &mut memory[target];
    let mut result = Ok(());
    for _ in 0..warm_up(task.iters) {
        result = result.and_then(|()| sys::read_process(pid, address, into));
    }
    let start = Instant::now();
    for _ in 0..task.iters {
        result = result.and_then(|()| sys::read_process(pid, address, into));
    }
    let outcome = match result {
        Ok(()) => per(start, task.iters),
        Err(e) => Outcome::Absent(format!("process_vm_readv: {e}")),
    };
    rank.sync()?;
    Ok(outcome)
}

/// Measures the time from before the waking call to after the return of the sleeping one.
pub fn futex(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let line = 4;
    rank.shared.futex(line).store(0, Ordering::Release);
    rank.sync()?;
    let (word, stamp) = (rank.shared.futex(line), rank.shared.word(line + 1));
    let flags = futex::Flags::empty();
    let mut samples = Vec::new();
    for i in 1..=task.iters as u32 {
        if rank.me == 0 {
            std::thread::sleep(DOZE);
            stamp.store(monotonic_ns(), Ordering::Release);
            word.store(i, Ordering::Release);
            futex::wake(word, flags, 1).context("futex")?;
        } else {
            while word.load(Ordering::Acquire) < i {
                // An early return means that the word has changed already or a signal came.
                let _ = futex::wait(word, flags, i - 1, None);
            }
            samples.push(monotonic_ns() - stamp.load(Ordering::Acquire));
        }
    }
    Ok(if rank.me == 1 { median_ns(samples) } else { Outcome::Elsewhere })
}

/// Payload of a datagram that fits an MTU of 1500.
const SEGMENT: usize = 1472;
/// Largest payload of one send with GSO.
const TRAIN: usize = 44 * SEGMENT;

/// Sends `data` in as few calls as the kernel allows, spinning while the socket is full.
fn send_all(socket: &UdpSocket, data: &[u8]) -> Result<()> {
    for train in data.chunks(TRAIN) {
        loop {
            match socket.send(train) {
                Ok(_) => break,
                Err(e) if would_block(&e) => std::hint::spin_loop(),
                Err(e) => return Err(e).context("UDP send"),
            }
        }
    }
    Ok(())
}

/// True if the call is to be repeated. A call on a socket with a timeout also ends early when the
/// process is stopped and continued (signal(7)).
fn would_block(e: &std::io::Error) -> bool {
    let later = matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
    later || e.raw_os_error() == Some(libc::ENOBUFS)
}

/// Receives until `len` bytes are there, spinning; false if a datagram was lost.
fn recv_all(socket: &UdpSocket, buffer: &mut [u8], len: usize, alone: bool) -> Result<bool> {
    let (mut got, mut turns, mut since) = (0, 0u32, None::<Instant>);
    while got < len.max(1) {
        match socket.recv(buffer) {
            Ok(n) => got += n.max(1),
            Err(e) if would_block(&e) => {
                turns += 1;
                if turns % 4096 == 0
                    && since.get_or_insert_with(Instant::now).elapsed().as_secs() > 0
                {
                    return Ok(false);
                }
                pause(alone);
            }
            Err(e) => return Err(e).context("UDP receive"),
        }
    }
    Ok(true)
}

/// Measures a bare UDP ping-pong; both sides spin on non-blocking sockets. Messages longer than a
/// datagram use GSO and GRO.
pub fn udp(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let large = task.size > SEGMENT;
    let mut socket = rank.udp(large)?;
    if large {
        sys::set(&socket, sys::SocketOption::Segment, SEGMENT as i32).context("UDP_SEGMENT")?;
    }
    socket.set_nonblocking(true)?;
    let (data, mut buffer) = (vec![1u8; task.size], vec![0u8; 65536.max(task.size)]);
    let (size, alone) = (task.size, rank.alone);
    let lost = "bare UDP lost a datagram";
    let send = |socket: &mut UdpSocket| send_all(socket, &data);
    volley(rank, task, &mut socket, lost, send, |socket| recv_all(socket, &mut buffer, size, alone))
}

/// Counts arriving bytes until none come for 100 ms. The value is the time for `unit` bytes at the
/// rate of arrival.
fn sink(rank: &mut Rank, socket: &UdpSocket, unit: usize) -> Result<Outcome> {
    Ok(match sink_bytes(rank, socket, unit)? {
        Outcome::Partial(value, _) => Outcome::Value(value),
        other => other,
    })
}

/// Does what `sink` does, and returns the number of bytes that arrived as well.
fn sink_bytes(rank: &mut Rank, socket: &UdpSocket, unit: usize) -> Result<Outcome> {
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut buffer = vec![0u8; 65536];
    let (mut first, mut last, mut bytes) = (None, Instant::now(), 0usize);
    rank.sync()?;
    loop {
        match socket.recv(&mut buffer) {
            Ok(n) => {
                last = Instant::now();
                // Bytes that came before the clock started do not count.
                bytes += if first.is_some() { n } else { 0 };
                first.get_or_insert(last);
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if would_block(&e) => break,
            Err(e) => return Err(e).context("UDP receive"),
        }
    }
    rank.sync()?;
    let took = first.map_or(0.0, |first| (last - first).as_secs_f64());
    if bytes == 0 || took == 0.0 {
        return Ok(Outcome::Absent("too few datagrams arrived".into()));
    }
    Ok(Outcome::Partial(took * unit as f64 / bytes as f64, bytes as f64))
}

fn source(rank: &mut Rank, socket: &UdpSocket, chunk: &[u8], total: usize) -> Result<Outcome> {
    rank.sync()?;
    let mut left = total.max(1);
    while left > 0 {
        match socket.send(chunk) {
            Ok(n) => left = left.saturating_sub(n.max(1)),
            Err(e) if would_block(&e) => std::hint::spin_loop(),
            Err(e) => return Err(e).context("UDP send"),
        }
    }
    rank.sync()?;
    Ok(Outcome::Elsewhere)
}

/// Measures one direction of full trains. Bytes that a slow receiver loses do not count.
pub fn udp_stream(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let socket = rank.udp(true)?;
    if rank.me == 1 {
        return sink(rank, &socket, task.size);
    }
    sys::set(&socket, sys::SocketOption::Segment, SEGMENT as i32).context("UDP_SEGMENT")?;
    // The stream is at least a few trains long; a shorter one gives no time.
    let total = (task.size * task.iters as usize).max(8 * TRAIN);
    source(rank, &socket, &vec![1u8; TRAIN], total)
}

/// Largest payload of a UDP datagram over IPv4.
pub const DATAGRAM: usize = 65507;

/// Measures one direction of datagrams of `size` bytes, at most `DATAGRAM`.
pub fn udp_flow(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let size = task.size.clamp(1, DATAGRAM);
    let socket = rank.udp(false)?;
    if rank.me == 1 {
        return sink_bytes(rank, &socket, task.size.max(1));
    }
    let total = task.size.max(1) * task.iters as usize;
    source(rank, &socket, &vec![1u8; size], total.max(16 * size))
}

/// Measures one direction of datagrams of `size` bytes, one call each.
pub fn udp_rate(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let size = task.size.clamp(1, SEGMENT);
    let socket = rank.udp(false)?;
    if rank.me == 1 {
        return sink(rank, &socket, size);
    }
    source(rank, &socket, &vec![1u8; size], size * task.iters.max(16) as usize)
}

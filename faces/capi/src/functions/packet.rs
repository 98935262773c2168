//! Packets: upcalls, sending, keeping, receiving without upcalls.

use crate::entry::outside;
use crate::fault::{Fault, WEFT_TOO_LONG, WEFT_TOO_MANY, WEFT_UPCALL};
use crate::job::WeftJob;
use crate::object::{is_object, Head};
use crate::sys::{Borrowed, Out};
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use weft::port::Awaits;
use weft::{OpError, PeerId};
use weft_packets::{KeptPacket, Packet, Received, SendBuffer};

/// A packet: `struct weft_packet`.
pub struct WeftPacket<'a> {
    head: Head,
    pub(crate) source: c_int,
    pub(crate) argument: u32,
    pub(crate) data: *const u8,
    pub(crate) len: usize,
    /// The packet itself, in its upcall, until it is kept.
    current: RefCell<Option<Packet<'a>>>,
    kept: Option<KeptPacket>,
}

is_object!(WeftPacket<'_>, "packet", b"weft pkt");

/// Memory for a packet: `struct weft_buffer`.
pub struct WeftBuffer {
    head: Head,
    buffer: Option<SendBuffer>,
}

is_object!(WeftBuffer, "buffer", b"weft buf");

/// Calls an upcall of the program with a packet.
pub(crate) fn deliver(job: &WeftJob, packet: Packet<'_>, upcall: impl FnOnce(*mut WeftPacket<'_>)) {
    job.depth.set(job.depth.get() + 1);
    call(job, packet, upcall);
    job.depth.set(job.depth.get() - 1);
}

fn call(job: &WeftJob, packet: Packet<'_>, upcall: impl FnOnce(*mut WeftPacket<'_>)) {
    let (data, len) = (packet.data().as_ptr(), packet.data().len());
    // Dropped where it is, so that no mark of a packet stays there.
    let mut handle = WeftPacket {
        head: Head::new::<WeftPacket<'_>>(job),
        source: job.rank_of(packet.source()),
        argument: packet.argument(),
        data,
        len,
        current: RefCell::new(Some(packet)),
        kept: None,
    };
    outside(|| upcall(&raw mut handle));
}

/// Keeps the packet of a running upcall after the upcall.
///
/// # Errors
/// The packet is kept already; `WEFT_TOO_MANY`: too many are.
pub(crate) fn keep<'a>(
    packet: &WeftPacket<'_>,
    job: &WeftJob,
) -> Result<Box<WeftPacket<'a>>, Fault> {
    let taken = packet.current.take();
    let taken = taken.ok_or_else(|| Fault::argument("packet is kept already"))?;
    let keeping = taken.keep().map_err(|(error, back)| {
        packet.current.replace(Some(back));
        Fault(WEFT_TOO_MANY, error.to_string())
    })?;
    Ok(Box::new(WeftPacket {
        head: Head::new::<WeftPacket<'_>>(job),
        source: packet.source,
        argument: packet.argument,
        data: keeping.data().as_ptr(),
        len: packet.len,
        current: RefCell::default(),
        kept: Some(keeping),
    }))
}

/// # Errors
/// The packet was not kept, so that nobody may release it.
pub(crate) fn is_kept(packet: &WeftPacket<'_>) -> Result<(), Fault> {
    match packet.kept {
        Some(_) => Ok(()),
        None => Err(Fault::argument("packet was not kept")),
    }
}

/// Returns the longest packet to a rank, in bytes.
///
/// # Errors
/// There is no such rank, or it has failed.
pub(crate) fn max(job: &WeftJob, rank: c_int) -> Result<usize, Fault> {
    Ok(job.packets.packet_max(job.peer(rank)?))
}

/// Returns the rank that a packet of this length goes to.
///
/// # Errors
/// There is no such rank, it has failed, or the packet is too long for it.
#[inline]
fn receiver(job: &WeftJob, rank: c_int, len: usize) -> Result<PeerId, Fault> {
    let peer = job.peer(rank)?;
    check_len(job, peer, len)?;
    Ok(peer)
}

fn check_len(job: &WeftJob, peer: PeerId, len: usize) -> Result<(), Fault> {
    match job.packets.packet_max(peer) {
        max if len <= max => Ok(()),
        max => Err(Fault(WEFT_TOO_LONG, format!("{len} bytes; a packet has at most {max}"))),
    }
}

/// Sends a packet to a handler of a rank, with an argument. With `waits` it waits while there is no
/// room.
///
/// # Errors
/// The packet is too long, or the rank has failed; `WEFT_BUSY`: there is no room, and it does not
/// wait.
#[inline]
pub(crate) fn send(
    job: &WeftJob,
    rank: c_int,
    (handler, argument): (u16, u32),
    data: &[u8],
    waits: bool,
) -> Result<(), Fault> {
    let peer = receiver(job, rank, data.len())?;
    job.explained(match waits {
        true => job.packets.send(peer, handler, argument, data),
        false => job.packets.try_send(peer, handler, argument, data),
    })
}

/// Sends a packet from the program's memory, without a copy: the memory is borrowed until
/// [`returned`] returns it or [`flush`] returns.
///
/// # Errors
/// Returns the errors of [`send`]; `WEFT_TOO_MANY`: thousands of addresses wait for [`returned`].
pub(crate) fn send_from(
    job: &WeftJob,
    rank: c_int,
    (handler, argument): (u16, u32),
    data: &Borrowed<u8>,
) -> Result<(), Fault> {
    let peer = receiver(job, rank, data.len())?;
    loop {
        match data.gather(&job.packets, peer, (handler, argument)) {
            Err(OpError::Busy) if job.depth.get() == 0 => {
                job.endpoint().waiting().wait_for(Awaits::Room(Some(peer)));
            }
            Err(OpError::Refused) => {
                let why = "many returned addresses wait: call weft_returned or weft_flush";
                return Err(Fault(WEFT_TOO_MANY, why.into()));
            }
            sent => return job.explained(sent),
        }
    }
}

/// Returns the address of memory that [`send_from`] has sent and that is free again. `None` if
/// there is none after one round of progress; in an upcall none is made.
pub(crate) fn returned(job: &WeftJob) -> Option<*const u8> {
    job.packets.returned().or_else(|| {
        let _ = job.depth.get() == 0 && job.packets.poll();
        job.packets.returned()
    })
}

/// Waits until all memory that packets were sent from is free again.
///
/// # Errors
/// An upcall runs, or this process is a copy.
pub(crate) fn flush(job: &WeftJob) -> Result<(), Fault> {
    job.may_wait()?;
    job.explained(job.packets.flush())
}

/// Receives the next packet for a mailbox, of a rank or of any, into memory of the program. Makes
/// progress while it waits.
///
/// # Errors
/// An upcall runs, or the rank has failed; `WEFT_TOO_LONG`: the packet is lost.
#[inline]
pub(crate) fn receive(
    job: &WeftJob,
    rank: c_int,
    number: u16,
    into: &mut [u8],
) -> Result<Received, Fault> {
    if job.depth.get() > 0 {
        return Err(Fault(WEFT_UPCALL, "weft_receive waits: not in an upcall".into()));
    }
    let (from, room) = (job.source(rank)?, into.len());
    match job.packets.receive(from, number, into) {
        Err(OpError::Truncated { sent }) => {
            let text = format!("a packet of {sent} bytes, and room for {room}: it is lost");
            Err(Fault(WEFT_TOO_LONG, text))
        }
        received => job.explained(received),
    }
}

/// Allocates memory for a packet, and stores the address for the bytes.
///
/// # Errors
/// `WEFT_TOO_LONG`: no packet is so long.
pub(crate) fn buffer_alloc(
    job: &WeftJob,
    len: usize,
    data: &Out<*mut c_void>,
) -> Result<Box<WeftBuffer>, Fault> {
    if len > weft_core::engine::ACTIVE_MAX as usize {
        return Err(Fault(WEFT_TOO_LONG, format!("{len} bytes: longer than any packet")));
    }
    let mut made = job.packets.alloc(len);
    // The bytes stay where they are while the buffer moves.
    data.store(made.as_mut_ptr().cast());
    Ok(Box::new(WeftBuffer { head: Head::new::<WeftBuffer>(job), buffer: Some(made) }))
}

/// Sends a packet that was written to a buffer.
///
/// # Errors
/// Returns the errors of [`send`].
pub(crate) fn buffer_send(
    job: &WeftJob,
    peer: PeerId,
    (handler, argument): (u16, u32),
    buffer: &mut WeftBuffer,
) -> Result<(), Fault> {
    let Some(buffer) = buffer.buffer.take() else { return Ok(()) };
    check_len(job, peer, buffer.len())?;
    job.explained(job.packets.send_buffer(peer, handler, argument, buffer))
}

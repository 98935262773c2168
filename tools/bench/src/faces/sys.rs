//! The two ranks as programs of `myriexpress.h` and of `vipl.h`.

use anyhow::{bail, ensure, Context, Result};
use std::ffi::CString;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use weft_ffi::given::{self, Text};
use weft_ffi::sys::interfaces;
use weft_mx::address::Addr;
use weft_mx::boards;
use weft_mx::errors::sys as errors;
use weft_mx::handle::Handle;
use weft_mx::memory::Segment;
use weft_mx::status::Status;
use weft_mx::sys as mx;
use weft_via::code::Code;
use weft_via::raw::{self, RawAddress};
use weft_via::sys as via;

/// Longest wait of one call, in milliseconds.
const LIMIT_MS: u32 = 120_000;
/// Longest wait for the other rank's endpoint.
const MEET: Duration = Duration::from_secs(60);
/// Match bits of measured messages, and of those of many ranks beside the sender's number.
const BITS: u64 = 1;
const MANY: u64 = 0x100;
/// Sends of a burst.
pub const BURST: usize = 16;

/// Returns the place of a value, for a function of an interface.
fn at<T: Copy>(value: &mut T) -> given::Place<'_, T> {
    given::Place::of(value)
}

fn interface_of(host: Ipv4Addr) -> Result<usize> {
    let at = interfaces::list().iter().position(|interface| interface.address == host);
    at.with_context(|| format!("no interface has the address {host}"))
}

fn good(what: &str, code: i32) -> Result<()> {
    ensure!(code == 0, "{what}: {}", weft_mx::code::text_of_return(code).to_string_lossy());
    Ok(())
}

/// Returns memory for a message.
fn segment(bytes: &mut [u8]) -> Segment {
    // SAFETY: callers wait for the request while they have the memory.
    unsafe { Segment::new(bytes.as_mut_ptr(), bytes.len() as u32) }
}

fn begin_send(endpoint: Handle, data: &[u8], other: Addr, bits: u64) -> Result<Handle> {
    // SAFETY: as in `segment`; a send reads.
    let mut segment = unsafe { Segment::new(data.as_ptr().cast_mut(), data.len() as u32) };
    let (mut request, list) = (0, at(&mut segment));
    // SAFETY: one segment.
    let code =
        unsafe { mx::message::mx_isend(endpoint, list, 1, other, bits, 0, at(&mut request)) };
    good("mx_isend", code)?;
    Ok(request)
}

fn begin_recv(endpoint: Handle, into: &mut [u8], bits: u64) -> Result<Handle> {
    let (mut request, mut segment) = (0, segment(into));
    let (list, to) = (at(&mut segment), at(&mut request));
    // SAFETY: one segment.
    let code = unsafe { mx::message::mx_irecv(endpoint, list, 1, bits, u64::MAX, 0, to) };
    good("mx_irecv", code)?;
    Ok(request)
}

/// An endpoint of MX, connected to that of the other rank.
pub struct Mx {
    endpoint: Handle,
    other: Option<Addr>,
    /// The endpoints of more ranks than two.
    all: Vec<Option<Addr>>,
    /// A message to send, which stays as it is, and the memory of one that comes: the endpoint's
    /// benchmark has two, too, so that the same bytes are in the caches of the same cores.
    out: Vec<u8>,
    into: Vec<u8>,
}

impl Mx {
    /// Opens the endpoint with a number.
    pub fn open(host: Ipv4Addr, number: u32) -> Result<Mx> {
        Mx::open_board(interface_of(host)? as u32, number)
    }

    /// Opens the endpoint with a number on a board.
    pub fn open_board(board: u32, number: u32) -> Result<Mx> {
        mx::library::mx__init_api(0x301);
        errors::mx_set_error_handler(Some(errors::MX_ERRORS_RETURN));
        let mut endpoint = 0;
        let (to, none) = (at(&mut endpoint), given::Place::NONE);
        // SAFETY: there are no parameters.
        let code = unsafe { mx::endpoint::mx_open_endpoint(board, number, 0, none, 0, to) };
        good("mx_open_endpoint", code)?;
        let (all, out, into) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Mx { endpoint, other: None, all, out, into })
    }

    /// Connects to the endpoint of the other rank.
    pub fn connect(&mut self, host: Ipv4Addr, number: u32) -> Result<()> {
        self.other = Some(self.connect_to(boards::nic_of(host), number)?);
        Ok(())
    }

    /// Connects to the endpoint of the other rank by the number of a network interface.
    pub fn connect_nic(&mut self, nic: u64, number: u32) -> Result<()> {
        self.other = Some(self.connect_to(nic, number)?);
        Ok(())
    }

    /// Connects to the endpoint of the next rank of many; none for this one.
    pub fn meet(&mut self, other: Option<(Ipv4Addr, u32)>) -> Result<()> {
        let to = |(host, number): (Ipv4Addr, u32)| self.connect_to(boards::nic_of(host), number);
        let other = other.map(to).transpose()?;
        self.all.push(other);
        Ok(())
    }

    fn connect_to(&self, nic: u64, number: u32) -> Result<Addr> {
        let (end, mut other) = (Instant::now() + MEET, Addr::default());
        loop {
            let to = at(&mut other);
            match mx::connect::mx_connect(self.endpoint, nic, number, 0, LIMIT_MS, to) {
                weft_mx::code::CONNECTION_FAILED if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                code => break good("mx_connect", code)?,
            }
        }
        Ok(other)
    }

    /// Sends to a rank of many, which receives by the sender's number.
    pub fn send_to(&mut self, me: usize, to: usize, data: &[u8]) -> Result<()> {
        let mut sent = self.begin_to(me, to, data)?;
        self.finish(&mut sent)
    }

    /// Receives from a rank of many.
    pub fn recv_of(&mut self, from: usize, into: &mut [u8]) -> Result<()> {
        let mut came = self.begin_of(from, into)?;
        self.finish(&mut came)
    }

    /// Sends to a rank of many, and receives from one, at once.
    pub fn trade_with(
        &mut self,
        (me, to, data): (usize, usize, &[u8]),
        (from, into): (usize, &mut [u8]),
    ) -> Result<()> {
        let mut came = self.begin_of(from, into)?;
        let mut sent = self.begin_to(me, to, data)?;
        self.finish(&mut sent)?;
        self.finish(&mut came)
    }

    fn begin_to(&mut self, me: usize, to: usize, data: &[u8]) -> Result<Handle> {
        let other = self.all.get(to).copied().flatten().context("no such rank")?;
        begin_send(self.endpoint, data, other, MANY | me as u64)
    }

    fn begin_of(&mut self, from: usize, into: &mut [u8]) -> Result<Handle> {
        begin_recv(self.endpoint, into, MANY | from as u64)
    }

    /// Makes memory for messages of a size.
    pub fn prepare(&mut self, size: usize) {
        self.out.resize(size, 1);
        self.into.resize(size, 1);
    }

    /// Sends a message; its memory is free when the answer has come.
    pub fn send(&mut self) -> Result<()> {
        let (other, none) = (self.other.context("not connected")?, given::Place::NONE);
        let mut segment = segment(&mut self.out);
        let list = at(&mut segment);
        // SAFETY: one segment; the message stays as it is until the next one has come.
        let code = unsafe { mx::message::mx_isend(self.endpoint, list, 1, other, BITS, 0, none) };
        good("mx_isend", code)
    }

    /// Receives a message.
    pub fn recv(&mut self) -> Result<()> {
        let mut request = begin_recv(self.endpoint, &mut self.into, BITS)?;
        self.finish(&mut request)
    }
}

impl Mx {
    /// Sends a message, and waits until its memory is free.
    pub fn send_from(&mut self, data: &[u8]) -> Result<()> {
        let mut request = self.begin_send(data)?;
        self.finish(&mut request)
    }

    /// Receives a message.
    pub fn recv_into(&mut self, into: &mut [u8]) -> Result<()> {
        let mut request = self.begin_recv(into)?;
        self.finish(&mut request)
    }

    /// Sends a message and receives one.
    pub fn trade(&mut self, data: &[u8], into: &mut [u8]) -> Result<()> {
        let mut received = self.begin_recv(into)?;
        let mut sent = self.begin_send(data)?;
        self.finish(&mut received)?;
        self.finish(&mut sent)
    }

    fn begin_send(&mut self, data: &[u8]) -> Result<Handle> {
        begin_send(self.endpoint, data, self.other.context("not connected")?, BITS)
    }

    fn begin_recv(&mut self, into: &mut [u8]) -> Result<Handle> {
        begin_recv(self.endpoint, into, BITS)
    }

    fn finish(&mut self, request: &mut Handle) -> Result<()> {
        let (mut result, mut status) = (0, Status::default());
        let (of, found) = (at(&mut status), at(&mut result));
        good("mx_wait", mx::complete::mx_wait(self.endpoint, at(request), LIMIT_MS, of, found))?;
        ensure!(result == 1 && status.code == 0, "no message: {}", status.code);
        self.other.get_or_insert(status.source);
        Ok(())
    }
}

impl Mx {
    /// Sends a message, and waits until its memory is free.
    pub fn send_whole(&mut self) -> Result<()> {
        let data = std::mem::take(&mut self.out);
        let sent = self.send_from(&data);
        self.out = data;
        sent
    }

    /// Makes progress.
    pub fn poll(&self) -> Result<()> {
        good("mx_progress", mx::endpoint::mx_progress(self.endpoint))
    }
}

impl Drop for Mx {
    fn drop(&mut self) {
        mx::endpoint::mx_close_endpoint(self.endpoint);
    }
}

/// A descriptor with room for an address segment and a data segment.
#[repr(C, align(64))]
#[derive(Clone, Copy, Default)]
struct Descriptor {
    next: u64,
    next_handle: u32,
    segments: u16,
    control: u16,
    reserved: u32,
    immediate: u32,
    len: u32,
    status: u32,
    first: Part,
    second: Part,
}

/// A segment of a descriptor.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Part {
    at: u64,
    handle: u32,
    len: u32,
}

/// `VIP_CONTROL_OP_RDMAWRITE`.
const WRITE: u16 = 1;
/// Bytes of the longest message.
const ROOM: usize = 64 << 10;

/// The memory of a rank, registered whole.
#[repr(C, align(64))]
struct Memory {
    sends: [Descriptor; BURST],
    recvs: [Descriptor; BURST],
    out: [u8; ROOM],
    into: [u8; ROOM],
}

/// The address of a place for writes: its handle and its first byte.
pub type Place = (u32, u64);

/// A virtual interface, connected to that of the other rank.
pub struct Via {
    nic: Handle,
    vi: Handle,
    memory: *mut Memory,
    handle: u32,
    size: u32,
}

fn fine(what: &str, code: Code) -> Result<()> {
    ensure!(code == Code::Success, "{what}: {code:?}");
    Ok(())
}

/// An address of virtual interfaces, as the functions take it.
fn address(host: Ipv4Addr, discriminator: &[u8]) -> Vec<u8> {
    let lens = [4u16, discriminator.len() as u16].map(u16::to_ne_bytes);
    [&lens.concat()[..], &host.octets(), discriminator].concat()
}

impl Via {
    /// Opens a virtual interface, and connects it: the second rank waits for the first.
    pub fn open(own: Ipv4Addr, waiter: Ipv4Addr, me: usize, word: &[u8]) -> Result<Via> {
        let name = interfaces::list()[interface_of(own)?].name.clone();
        let name = CString::new(name)?;
        let memory = Box::new(Memory {
            sends: [Descriptor::default(); BURST],
            recvs: [Descriptor::default(); BURST],
            out: [1; ROOM],
            into: [0; ROOM],
        });
        let mut side = Via { nic: 0, vi: 0, memory: Box::into_raw(memory), handle: 0, size: 0 };
        let mut tag = 0;
        fine("VipOpenNic", via::nic::VipOpenNic(Text::of(&name), at(&mut side.nic)))?;
        fine("VipCreatePtag", via::vi::VipCreatePtag(side.nic, at(&mut tag)))?;
        let mut of = raw::MemAttributes { tag, write: 1, read: 0 };
        let (all, len, of) = (side.memory.cast(), size_of::<Memory>() as u64, at(&mut of));
        // SAFETY: the memory is registered until the interface closes.
        let code =
            unsafe { via::memory::VipRegisterMem(side.nic, all, len, of, at(&mut side.handle)) };
        fine("VipRegisterMem", code)?;
        let (level, max) = (weft_via::code::level::DELIVERY, ROOM as u64);
        let mut of = raw::ViAttributes { level, max, qos: 0, tag, write: 1, read: 0 };
        let (of, vi) = (at(&mut of), at(&mut side.vi));
        fine("VipCreateVi", via::vi::VipCreateVi(side.nic, of, 0, 0, vi))?;
        match me {
            0 => side.request(own, waiter, word)?,
            _ => side.accept(waiter, word)?,
        }
        Ok(side)
    }

    fn request(&self, own: Ipv4Addr, waiter: Ipv4Addr, word: &[u8]) -> Result<()> {
        let (mut from, mut to) = (address(own, b"bench"), address(waiter, word));
        let end = Instant::now() + MEET;
        loop {
            // SAFETY: whole addresses.
            let (from, to) = unsafe { (RawAddress::new(&mut from), RawAddress::new(&mut to)) };
            let (limit, none) = (LIMIT_MS.into(), given::Place::NONE);
            match via::connect::VipConnectRequest(self.vi, from, to, limit, none) {
                Code::NoMatch if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                code => return fine("VipConnectRequest", code),
            }
        }
    }

    fn accept(&self, own: Ipv4Addr, word: &[u8]) -> Result<()> {
        let (mut address, mut conn) = (address(own, word), 0);
        // SAFETY: a whole address.
        let of = unsafe { RawAddress::new(&mut address) };
        let (limit, remote, none) = (LIMIT_MS.into(), RawAddress::NONE, given::Place::NONE);
        let to = at(&mut conn);
        let code = via::connect::VipConnectWait(self.nic, of, limit, remote, none, to);
        fine("VipConnectWait", code)?;
        fine("VipConnectAccept", via::connect::VipConnectAccept(conn, self.vi))
    }

    /// Returns the place to which the other rank may write.
    pub fn place(&self) -> Place {
        // SAFETY: the memory is there as long as this value.
        (self.handle, unsafe { &raw const (*self.memory).into } as u64)
    }

    /// Sets the size of messages, and posts the first receive.
    pub fn prepare(&mut self, size: usize) -> Result<()> {
        self.resize(size)?;
        self.post_recv()
    }

    /// Sets the size of messages and writes.
    pub fn resize(&mut self, size: usize) -> Result<()> {
        ensure!(size <= ROOM, "messages of virtual interfaces have at most {ROOM} bytes");
        self.size = size as u32;
        Ok(())
    }

    /// Sends a burst, and receives the answer.
    pub fn burst(&mut self) -> Result<()> {
        // SAFETY: the memory is there.
        let out = unsafe { &raw const (*self.memory).out } as u64;
        let first = Part { at: out, ..self.part() };
        let one = Descriptor { segments: 1, len: self.size, first, ..Descriptor::default() };
        (0..BURST).try_for_each(|at| self.begin(at, one))?;
        (0..BURST).try_for_each(|_| self.sent())?;
        self.recv()
    }

    /// Receives a burst, and answers it.
    pub fn take_burst(&mut self) -> Result<()> {
        for at in 0..BURST {
            self.recv_last()?;
            self.post_recv_at(at)?;
        }
        self.send()
    }

    /// Posts receives for a burst.
    pub fn prepare_burst(&mut self) -> Result<()> {
        (0..BURST).try_for_each(|at| self.post_recv_at(at))
    }

    /// Ends a stream: takes the receives of a burst, which the other rank fills.
    pub fn end_burst(&mut self) -> Result<()> {
        (0..BURST).try_for_each(|_| self.recv_last())
    }

    /// Posts a receive.
    fn post_recv(&mut self) -> Result<()> {
        self.post_recv_at(0)
    }

    fn post_recv_at(&mut self, number: usize) -> Result<()> {
        // SAFETY: the memory is there as long as this value; the library does not use it now.
        let at = unsafe {
            let recv = &raw mut (*self.memory).recvs[number];
            let first = Part { at: (&raw mut (*self.memory).into) as u64, ..self.part() };
            recv.write(Descriptor { segments: 1, len: self.size, first, ..Descriptor::default() });
            recv
        };
        fine("VipPostRecv", via::data::VipPostRecv(self.vi, at as usize, self.handle))
    }

    fn part(&self) -> Part {
        Part { at: 0, handle: self.handle, len: self.size }
    }

    fn post(&mut self, of: Descriptor) -> Result<()> {
        self.begin(0, of)?;
        self.sent()
    }

    fn begin(&mut self, number: usize, of: Descriptor) -> Result<()> {
        // SAFETY: as in `post_recv`.
        let at = unsafe {
            let send = &raw mut (*self.memory).sends[number];
            send.write(of);
            send
        };
        fine("VipPostSend", via::data::VipPostSend(self.vi, at as usize, self.handle))
    }

    fn sent(&mut self) -> Result<()> {
        let mut done = 0;
        let code = via::data::VipSendWait(self.vi, LIMIT_MS.into(), at(&mut done));
        fine("VipSendWait", code)
    }

    /// Sends a message.
    pub fn send(&mut self) -> Result<()> {
        // SAFETY: the memory is there.
        let out = unsafe { &raw const (*self.memory).out } as u64;
        let first = Part { at: out, ..self.part() };
        self.post(Descriptor { segments: 1, len: self.size, first, ..Descriptor::default() })
    }

    /// Receives a message, and posts the next receive.
    pub fn recv(&mut self) -> Result<()> {
        self.recv_last()?;
        self.post_recv()
    }

    /// Receives a message.
    pub fn recv_last(&mut self) -> Result<()> {
        let mut done = 0;
        let code = via::data::VipRecvWait(self.vi, LIMIT_MS.into(), at(&mut done));
        fine("VipRecvWait", code)
    }

    /// Makes progress: the call asks for the end of a request that was never made.
    pub fn poll(&mut self) {
        via::connect::VipConnectPeerDone(self.vi, given::Place::NONE);
    }

    /// Writes to the memory of the other rank.
    pub fn write(&mut self, (handle, at): Place) -> Result<()> {
        // SAFETY: the memory is there.
        let out = unsafe { &raw const (*self.memory).out } as u64;
        let (first, second) = (Part { at, handle, len: 0 }, Part { at: out, ..self.part() });
        let (segments, control, len) = (2, WRITE, self.size);
        self.post(Descriptor { segments, control, len, first, second, ..Descriptor::default() })
    }
}

impl Drop for Via {
    fn drop(&mut self) {
        if via::nic::VipCloseNic(self.nic) == Code::Success {
            // SAFETY: made from a box, and nobody's after the interface was closed.
            drop(unsafe { Box::from_raw(self.memory) });
        }
    }
}

/// Returns the host of an address of IPv4.
pub fn v4(host: std::net::IpAddr) -> Result<Ipv4Addr> {
    match host {
        std::net::IpAddr::V4(host) => Ok(host),
        other => bail!("{other} is no address of IPv4"),
    }
}

//! A packet socket on one interface.

use super::{check, Geometry};
use crate::ether::{EtherHead, EtherType, TrainHead};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Highest number of frames in one call.
pub const BURST: usize = 64;

/// A packet socket; other processes may hold its descriptor too.
pub struct Socket {
    pub fd: Arc<OwnedFd>,
    burst: Box<Burst>,
}

/// Working memory of `send_many` and `send_pairs`.
struct Burst {
    parts: [libc::iovec; 2 * BURST],
    messages: [libc::mmsghdr; BURST],
}

const ANY: libc::c_int = libc::SOL_PACKET;

fn set<T>(fd: RawFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is readable for `len` bytes.
    check(unsafe { libc::setsockopt(fd, level, name, (&raw const *value).cast(), len) })?;
    Ok(())
}

fn get<T: Copy>(fd: RawFd, level: i32, name: i32, start: T) -> io::Result<T> {
    let (mut value, mut len) = (start, mem::size_of::<T>() as libc::socklen_t);
    // SAFETY: `value` is writable for `len` bytes, and any bytes are a value of the plain types
    // this is called with.
    check(unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) })?;
    Ok(value)
}

/// Makes one instruction of the classic packet filter language.
const fn op(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const SHIFT: u32 = libc::BPF_ALU | libc::BPF_LSH | libc::BPF_K;
const RETURN_A: u32 = libc::BPF_RET | libc::BPF_A;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;

/// A rule by which a packet socket takes frames: those of a kind, or of all kinds, that have a
/// value at a place.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// The kind; none for all.
    pub kind: Option<u8>,
    /// The place, from the beginning of the header of Ethernet.
    pub at: u32,
    /// The value.
    pub value: Value,
}

/// A value in a frame, in network byte order.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// Of 8 bits.
    Byte(u8),
    /// Of 32 bits.
    Word(u32),
}

/// The frames that a packet socket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// Frames of an EtherType of their own, one packet each.
    Packets(EtherType),
    /// Trains of packets, which the kernel sees as UDP datagrams.
    Trains,
}

impl Carries {
    /// Returns the EtherType of the frames.
    pub fn ether_type(self) -> u16 {
        match self {
            Carries::Packets(kind) => kind.get(),
            Carries::Trains => libc::ETH_P_IP as u16,
        }
    }

    /// Returns the position of the slot in a frame.
    fn slot(self) -> u32 {
        let at = match self {
            Carries::Packets(_) => EtherHead::SLOT,
            Carries::Trains => TrainHead::SLOT,
        };
        at as u32
    }
}

/// Length of the description of a frame for the kernel: `struct virtio_net_hdr`, in the byte order
/// of the machine.
pub const OFFLOAD: usize = 10;

/// Bytes of a train that the kernel copies into a buffer of their own; the remaining bytes start at
/// the start of a page. The string instructions of AMD's Zen 3 and 4 copy at a tenth of their rate
/// if the destination is up to 31 bytes behind the source within a page. If this buffer held only
/// the headers, that would be so for memory that an allocator places 16 bytes behind the start of a
/// page.
const LINEAR: usize = 2048;

/// Describes a train of `len` bytes to the kernel: it may be cut into frames for this MTU, and is
/// passed on in one piece if no cut is needed.
pub fn offload(mtu: u32, len: usize) -> [u8; OFFLOAD] {
    const NEEDS_CHECKSUM: u8 = 1;
    const UDP_L4: u8 = 5;
    const CHECKSUM: u16 = 6;
    let mut out = [0; OFFLOAD];
    (out[0], out[1]) = (NEEDS_CHECKSUM, UDP_L4);
    let segment = mtu as usize - TrainHead::IP_AND_UDP;
    let fields = [len.min(LINEAR) as u16, segment as u16, TrainHead::UDP as u16, CHECKSUM];
    for (at, field) in fields.into_iter().enumerate() {
        out[2 + 2 * at..][..2].copy_from_slice(&field.to_ne_bytes());
    }
    out
}

const PORT: u32 = TrainHead::PORT as u32;
const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;

impl Socket {
    /// Opens a socket that receives nothing yet.
    pub fn open() -> io::Result<Socket> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is passed; the result is a descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_PACKET, kind, 0))?) };
        Ok(Socket::of(Arc::new(fd)))
    }

    /// Wraps a socket that another process opened.
    pub fn of(fd: Arc<OwnedFd>) -> Socket {
        // SAFETY: all-zero is valid for these plain structures.
        Socket { fd, burst: Box::new(unsafe { mem::zeroed() }) }
    }

    fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Sets up the receive ring and direct sending to the driver.
    pub fn prepare(&self, carries: Carries, sizes: Geometry, buffer: usize) -> io::Result<()> {
        let fd = self.raw();
        if carries == Carries::Trains {
            set(fd, ANY, libc::PACKET_VNET_HDR, &1i32)?;
        }
        set(fd, ANY, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as i32))?;
        set(fd, ANY, libc::PACKET_RX_RING, &sizes.request())?;
        set(fd, ANY, libc::PACKET_QDISC_BYPASS, &1i32)?;
        // Kernels before 4.20 do not know this option; only sockets for all EtherTypes need it.
        let _ = set(fd, ANY, libc::PACKET_IGNORE_OUTGOING, &1i32);
        let want = i32::try_from(buffer).unwrap_or(i32::MAX / 2);
        if set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &want).is_err() {
            set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &want)?;
        }
        Ok(())
    }

    /// Refuses frames in whose slot the high byte, under `mask`, differs from `high`.
    pub fn filter(&self, carries: Carries, high: u8, mask: u8) -> io::Result<()> {
        let mut program = Vec::new();
        if carries == Carries::Trains {
            // Refuse the other IPv4 packets on the interface.
            let port = (TrainHead::UDP + 2) as u32;
            let mine = [(LOAD_BYTE, 14, 0x45), (LOAD_BYTE, 23, 17), (LOAD_HALF, port, PORT)];
            for (load, at, expected) in mine {
                program.push(op(load, 0, 0, at));
                program.push(op(EQUAL, 1, 0, expected));
                program.push(op(RETURN, 0, 0, 0));
            }
        }
        program.extend([
            op(LOAD_BYTE, 0, 0, carries.slot() + 1),
            op(AND, 0, 0, u32::from(mask)),
            op(EQUAL, 0, 1, u32::from(high)),
            op(RETURN, 0, 0, u32::MAX),
            op(RETURN, 0, 0, 0),
        ]);
        self.attach(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &mut program)
    }

    /// Takes only the frames that the first rule for their kind keeps: the kind is the byte at `at`
    /// under `mask`. Without a rule for a frame's kind it is refused; without rules, none is.
    pub fn keep(&self, (at, mask): (u32, u8), rules: &[Keep]) -> io::Result<()> {
        if rules.is_empty() {
            // Fails if there was no filter.
            let _none = set(self.raw(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0i32);
            return Ok(());
        }
        let mut program = Vec::new();
        for rule in rules {
            let (load, value) = match rule.value {
                Value::Byte(value) => (LOAD_BYTE, value.into()),
                Value::Word(value) => (LOAD_WORD, value),
            };
            if let Some(kind) = rule.kind {
                program.extend([
                    op(LOAD_BYTE, 0, 0, at),
                    op(AND, 0, 0, mask.into()),
                    op(EQUAL, 0, 4, kind.into()),
                ]);
            }
            program.extend([
                op(load, 0, 0, rule.at),
                op(EQUAL, 0, 1, value),
                op(RETURN, 0, 0, u32::MAX),
                op(RETURN, 0, 0, 0),
            ]);
        }
        program.push(op(RETURN, 0, 0, 0));
        self.attach(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &mut program)
    }

    fn attach(&self, level: i32, name: i32, program: &mut [libc::sock_filter]) -> io::Result<()> {
        let whole = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        set(self.raw(), level, name, &whole)
    }

    /// Receives frames from this interface from now on.
    pub fn bind(&self, carries: Carries, index: u32) -> io::Result<()> {
        // SAFETY: all-zero is a valid sockaddr_ll.
        let mut name: libc::sockaddr_ll = unsafe { mem::zeroed() };
        name.sll_family = libc::AF_PACKET as u16;
        name.sll_protocol = carries.ether_type().to_be();
        name.sll_ifindex = index as i32;
        let len = mem::size_of_val(&name) as libc::socklen_t;
        // SAFETY: `name` is readable for its length.
        check(unsafe { libc::bind(self.raw(), (&raw const name).cast(), len) })?;
        Ok(())
    }

    /// Makes a fanout group in which the low `bits` of the slot select the member.
    pub fn found(&self, carries: Carries, bits: u32) -> io::Result<()> {
        // For the program, the packet begins after the Ethernet header.
        let slot = carries.slot() - EtherHead::ETHERNET as u32;
        let how = libc::PACKET_FANOUT_CBPF | libc::PACKET_FANOUT_FLAG_UNIQUEID;
        set(self.raw(), ANY, libc::PACKET_FANOUT, &((how << 16) as i32))?;
        let mut program = [
            op(LOAD_BYTE, 0, 0, slot + 1),
            op(AND, 0, 0, (1 << (bits - 8)) - 1),
            op(SHIFT, 0, 0, 8),
            op(libc::BPF_MISC | libc::BPF_TAX, 0, 0, 0),
            op(LOAD_BYTE, 0, 0, slot),
            op(libc::BPF_ALU | libc::BPF_OR | libc::BPF_X, 0, 0, 0),
            op(RETURN_A, 0, 0, 0),
        ];
        self.attach(ANY, libc::PACKET_FANOUT_DATA, &mut program)
    }

    /// Joins the fanout group of `other`, as its last member.
    pub fn join(&self, other: &OwnedFd) -> io::Result<()> {
        let group = get(other.as_raw_fd(), ANY, libc::PACKET_FANOUT, 0i32)?;
        set(self.raw(), ANY, libc::PACKET_FANOUT, &group)
    }

    /// Sends one Ethernet frame.
    #[inline]
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let (data, flags) = (frame.as_ptr(), libc::MSG_DONTWAIT);
        let (fd, none) = (self.raw(), std::ptr::null::<libc::sockaddr>());
        // The C function is a cancellation point, which costs a process with threads two atomic
        // operations.
        // SAFETY: `frame` is readable for its length.
        if unsafe { libc::syscall(libc::SYS_sendto, fd, data, frame.len(), flags, none, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Sends one Ethernet frame that is in several parts.
    pub fn send_parts(&self, parts: [&[u8]; 3]) -> io::Result<()> {
        let mut parts = parts.map(|part| libc::iovec {
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: part.len(),
        });
        // SAFETY: all-zero is valid for this plain structure.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), parts.len());
        let (fd, flags) = (self.raw(), libc::MSG_DONTWAIT);
        // SAFETY: the message points to live parts, and those to slices; the kernel only reads
        // them.
        if unsafe { libc::syscall(libc::SYS_sendmsg, fd, &raw const message, flags) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Sends frames that lie `stride` bytes apart in `buffer`; returns their number. An error
    /// concerns the first.
    pub fn send_many(&mut self, buffer: &[u8], stride: usize, lens: &[u32]) -> io::Result<usize> {
        let n = lens.len().min(BURST);
        for (i, len) in lens[..n].iter().enumerate() {
            let frame = &buffer[i * stride..][..*len as usize];
            let part =
                libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            self.burst.parts[i] = part;
            let message = &mut self.burst.messages[i].msg_hdr;
            message.msg_iov = &raw mut self.burst.parts[i];
            message.msg_iovlen = 1;
        }
        let (fd, messages) = (self.raw(), self.burst.messages.as_mut_ptr());
        // SAFETY: the first `n` messages point to live parts, and those to frames in `buffer`; the
        // kernel only reads them.
        let sent = unsafe { libc::sendmmsg(fd, messages, n as u32, libc::MSG_DONTWAIT) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Sends frames of two parts each; returns their number. An error concerns the first.
    pub fn send_pairs(&mut self, frames: &[[&[u8]; 2]]) -> io::Result<usize> {
        let n = frames.len().min(BURST);
        for (i, frame) in frames[..n].iter().enumerate() {
            for (part, bytes) in self.burst.parts[2 * i..].iter_mut().zip(frame) {
                let iov_base = bytes.as_ptr().cast_mut().cast();
                *part = libc::iovec { iov_base, iov_len: bytes.len() };
            }
            let message = &mut self.burst.messages[i].msg_hdr;
            message.msg_iov = &raw mut self.burst.parts[2 * i];
            message.msg_iovlen = 2;
        }
        let (fd, messages) = (self.raw(), self.burst.messages.as_mut_ptr());
        // SAFETY: the first `n` messages point to two live parts each, and those to slices; the
        // kernel only reads them.
        let sent = unsafe { libc::sendmmsg(fd, messages, n as u32, libc::MSG_DONTWAIT) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Returns the number of frames lost since the last call because the ring was full.
    pub fn drops(&self) -> u64 {
        let none = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        get(self.raw(), ANY, libc::PACKET_STATISTICS, none).map_or(0, |s| u64::from(s.tp_drops))
    }

    /// Clears the pending error of the socket, so that the socket is not readable because of it.
    pub fn clear_error(&self) {
        let _ = get(self.raw(), libc::SOL_SOCKET, libc::SO_ERROR, 0i32);
    }
}

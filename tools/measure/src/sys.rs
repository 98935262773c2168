//! System calls that the measurements need and no safe library offers.
#![allow(unsafe_code)]

use rustix::io::FdFlags;
use rustix::process::{Pid, Signal};
use rustix::thread::{move_into_thread_name_spaces, CpuSet, ThreadNameSpaceType};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;
use weft_run::sys::end_with;

/// Start conditions of a rank's process.
pub struct Setup {
    /// Descriptors that it keeps over exec, at the same numbers.
    pub inherited: Vec<RawFd>,
    /// Cores that it runs on.
    pub cpus: Option<CpuSet>,
    /// Pidfd of a process whose namespaces it enters, and the kinds of namespaces.
    pub host: Option<(RawFd, ThreadNameSpaceType)>,
}

/// Prepares the process that `command` will start: it dies with this process, and starts as `setup`
/// says. The descriptors, also that of `host`, must be open when the command is spawned.
pub fn prepare(command: &mut Command, setup: Setup) {
    let parent = rustix::process::getpid();
    // SAFETY: `child` only makes system calls; it allocates nothing and takes no lock, so it may
    // run in the forked copy of a process whose other threads are gone.
    unsafe {
        command.pre_exec(move || child(parent, &setup));
    }
}

fn child(parent: Pid, setup: &Setup) -> io::Result<()> {
    if let Some((process, kinds)) = setup.host {
        // SAFETY: the caller of `prepare` keeps this descriptor open until the spawn is done.
        let process = unsafe { BorrowedFd::borrow_raw(process) };
        // This comes before the death signal is set: entering a user namespace may reset that.
        move_into_thread_name_spaces(process, kinds)?;
    }
    end_with(parent, Signal::KILL)?;
    if let Some(cpus) = &setup.cpus {
        rustix::thread::sched_setaffinity(None, cpus)?;
    }
    for &fd in &setup.inherited {
        // SAFETY: the caller of `prepare` keeps this descriptor open until the spawn is done.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        rustix::io::fcntl_setfd(fd, FdFlags::empty())?;
    }
    Ok(())
}

fn check(result: libc::c_int) -> io::Result<()> {
    (result >= 0).then_some(()).ok_or_else(io::Error::last_os_error)
}

/// Takes ownership of a descriptor that was inherited at a known number; each number is taken once.
pub fn inherit(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD only queries the number.
    check(unsafe { libc::fcntl(number, libc::F_GETFD) })?;
    // SAFETY: the descriptor is open (checked above), and the parent gave it to this process to
    // own.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    Ok(fd)
}

/// Makes a pipe (reader, writer) of `capacity` bytes where that is allowed; closed on exec.
pub fn pipe(capacity: usize) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: pipe2 just made both, and no other code knows them.
    let (reader, writer) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
    // SAFETY: changes a property of our own pipe. The default capacity serves too.
    unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, capacity as libc::c_int) };
    Ok((reader, writer))
}

/// Bytes of the memory that both ranks map.
pub const SHARED_LEN: usize = 1 << 20;
/// Distance of two words in bytes: two cache lines, because some processors fetch pairs.
const STRIDE: usize = 128;

/// Memory that both ranks map, used as atomic words only, each on a cache line of its own.
pub struct Shared {
    base: *mut libc::c_void,
}

impl Shared {
    /// Number of words.
    pub const WORDS: usize = SHARED_LEN / STRIDE;

    /// Maps a memfd of at least [`SHARED_LEN`] bytes.
    pub fn map(fd: &OwnedFd) -> io::Result<Shared> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                SHARED_LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        (base != libc::MAP_FAILED).then_some(Shared { base }).ok_or_else(io::Error::last_os_error)
    }

    /// Returns the word on cache line `index`.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < Shared::WORDS);
        // SAFETY: inside the mapping (checked above) and aligned; the mapping lives as long as
        // `self`; both processes touch it only by atomic operations.
        unsafe { &*self.base.cast::<u8>().add(index * STRIDE).cast::<AtomicU64>() }
    }

    /// Returns a 32-bit word for a futex, in the same stride as `word(index)` but behind it.
    pub fn futex(&self, index: usize) -> &AtomicU32 {
        assert!(index < Shared::WORDS);
        // SAFETY: as in `word`; bytes 64..68 of the stride belong to no `AtomicU64`.
        unsafe { &*self.base.cast::<u8>().add(index * STRIDE + 64).cast::<AtomicU32>() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: maps exactly this range, and references into it cannot outlive `self`.
        unsafe { libc::munmap(self.base, SHARED_LEN) };
    }
}

/// Allows any process of this user to read the memory of this one, where the Yama module would
/// refuse.
pub fn allow_readers() {
    // SAFETY: sets a property of this process; kernels without Yama answer with an error.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

/// Copies from `address` in process `pid` into `into`; a partial copy is an error.
pub fn read_process(pid: i32, address: u64, into: &mut [u8]) -> io::Result<()> {
    let len = into.len();
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: len };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: len };
    // SAFETY: the kernel writes to `into` only, and checks the address in the other process.
    let got = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    match got {
        n if n == len as isize => Ok(()),
        n if n >= 0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns nanoseconds of the clock that all processes of the machine share.
pub fn monotonic_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Returns the user and the system time that this process has used.
pub fn busy() -> [Duration; 2] {
    // SAFETY: all-zero is a valid value, which the kernel fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let of = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    [of(usage.ru_utime), of(usage.ru_stime)]
}

/// Pins the pages of data while something is done, as memory is registered with a network card.
pub fn pinned<R>(data: &[u8], work: impl FnOnce() -> R) -> io::Result<R> {
    let (at, len) = (data.as_ptr().cast(), data.len());
    // SAFETY: the pages of the data are mapped; their content is not touched.
    if unsafe { libc::mlock(at, len) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let result = work();
    // SAFETY: as above.
    unsafe { libc::munlock(at, len) };
    Ok(result)
}

/// Waits until a socket can be read, by the function of the C library, which `weft sockets` sees.
pub fn await_readable(socket: &impl AsRawFd) -> io::Result<()> {
    let mut one = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry.
    match unsafe { libc::poll(&mut one, 1, -1) } {
        1.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the processor time that this process has used: all threads, user and system.
pub fn cpu_time() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// An integer socket option that this module sets.
#[derive(Clone, Copy, Debug)]
pub enum SocketOption {
    /// Length of the datagrams into which the kernel cuts each send (`UDP_SEGMENT`).
    Segment,
    /// Lets the kernel deliver several datagrams of equal length at once (`UDP_GRO`).
    Coalesce,
    /// Receive buffer, beyond the system's limit where that is allowed.
    ReceiveBuffer,
    /// Send buffer, beyond the system's limit where that is allowed.
    SendBuffer,
}

/// Sets a socket option.
pub fn set(socket: &impl AsRawFd, option: SocketOption, value: i32) -> io::Result<()> {
    const UDP_SEGMENT: i32 = 103;
    const UDP_GRO: i32 = 104;
    let names: &[(i32, i32)] = match option {
        SocketOption::Segment => &[(libc::SOL_UDP, UDP_SEGMENT)],
        SocketOption::Coalesce => &[(libc::SOL_UDP, UDP_GRO)],
        SocketOption::ReceiveBuffer => {
            &[(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE), (libc::SOL_SOCKET, libc::SO_RCVBUF)]
        }
        SocketOption::SendBuffer => {
            &[(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE), (libc::SOL_SOCKET, libc::SO_SNDBUF)]
        }
    };
    let mut result = Ok(());
    for &(level, name) in names {
        let len = size_of::<i32>() as libc::socklen_t;
        let at = std::ptr::from_ref(&value).cast();
        // SAFETY: the kernel reads the four bytes of `value`.
        result = check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, at, len) });
        if result.is_ok() {
            break;
        }
    }
    result
}

/// A System V message queue used as a stream: rank 0 sends messages of type 1 and receives those of
/// type 2; rank 1 does the reverse.
pub struct Queue {
    id: i32,
    owner: bool,
    message: Box<QueueMessage>,
    /// The part of the last message that was received and not yet read.
    rest: std::ops::Range<usize>,
}

/// Bytes of a message: the usual limit of the system.
const QUEUE_MESSAGE: usize = 8192;

#[repr(C)]
struct QueueMessage {
    kind: libc::c_long,
    text: [u8; QUEUE_MESSAGE],
}

impl Queue {
    /// Makes a queue that is removed when this value is dropped.
    pub fn make() -> io::Result<Queue> {
        // SAFETY: makes a queue.
        let id = unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600) };
        check(id)?;
        Ok(Queue::over(id, true))
    }

    /// Returns the queue with this number, made by the other rank.
    pub fn of(id: u32) -> Queue {
        Queue::over(id as i32, false)
    }

    fn over(id: i32, owner: bool) -> Queue {
        let message = Box::new(QueueMessage { kind: 0, text: [0; QUEUE_MESSAGE] });
        Queue { id, owner, message, rest: 0..0 }
    }

    /// Returns its number.
    pub fn id(&self) -> u32 {
        self.id as u32
    }

    fn kinds(&self) -> (libc::c_long, libc::c_long) {
        if self.owner {
            (1, 2)
        } else {
            (2, 1)
        }
    }
}

impl io::Write for Queue {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let len = data.len().min(QUEUE_MESSAGE);
        assert!(self.rest.is_empty(), "an answer before all was read");
        self.message.kind = self.kinds().0;
        self.message.text[..len].copy_from_slice(&data[..len]);
        let at = std::ptr::from_ref(&*self.message).cast();
        // SAFETY: the kernel reads the type and `len` bytes behind it, all inside the message.
        check(unsafe { libc::msgsnd(self.id, at, len, 0) })?;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Read for Queue {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            let at = std::ptr::from_mut(&mut *self.message).cast();
            // SAFETY: the kernel writes the type and at most QUEUE_MESSAGE bytes, which fit.
            let got = unsafe { libc::msgrcv(self.id, at, QUEUE_MESSAGE, self.kinds().1, 0) };
            let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
            self.rest = 0..got;
        }
        let len = self.rest.len().min(into.len());
        let from = self.rest.start;
        into[..len].copy_from_slice(&self.message.text[from..from + len]);
        self.rest.start += len;
        Ok(len)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.owner {
            // SAFETY: removes our own queue; the other rank has received all it will.
            unsafe { libc::msgctl(self.id, libc::IPC_RMID, std::ptr::null_mut()) };
        }
    }
}

/// Turns off the interface's work for the sockets: segmentation, coalescing and checksums.
pub fn no_offloads(interface: &str) -> io::Result<()> {
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    // ETHTOOL_STSO, SGSO, SGRO, SRXCSUM, STXCSUM (linux/ethtool.h). Checksums come last, because
    // the others depend on them.
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    const COMMANDS: [u32; 5] = [0x1f, 0x24, 0x2c, 0x15, 0x17];
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0))?;
    for command in COMMANDS {
        let mut value = Value { command, data: 0 };
        // SAFETY: all zeros is a valid value of this plain structure.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().take(15).zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut value).cast();
        let at = std::ptr::from_mut(&mut request);
        // SAFETY: the kernel reads the request and the eight bytes that it points to.
        check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, at) })?;
    }
    Ok(())
}

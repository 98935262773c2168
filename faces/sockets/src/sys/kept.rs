//! Bytes that wait in the ring of a connection while its process becomes another program, where the
//! agent cannot bring them back to TCP.
//!
//! They go along in memory of their own, whose descriptor the next program has. There this library
//! reads them before the bytes of TCP, as those of a ring that nobody writes to. This needs a
//! program of which it is known that it has this library ([`super::program`]), and a process that
//! alone has the connection: two would have the bytes twice. The memory names the process, since
//! a child that another thread makes at that moment has the descriptor too.

use super::giving::{self, Why};
use super::slot::{DENIED, NEVER, NONBLOCKING, SHARED};
use super::table::{self, Connection};
use super::{board, line, real, stream, tcp};
use libc::c_int;
use std::mem::{size_of, zeroed};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use weft_streams::count::Count;
use weft_streams::message::Other;
use weft_streams::words::{Words, HEAD, RING, SEGMENT, STRIDE};

/// Connections whose bytes are kept at one moment.
const MOST: usize = 64;
/// Descriptors of one connection.
const COPIES: usize = 8;
/// Descriptors that are looked at when a program begins.
const LOOKED_AT: usize = 1024;
/// Bytes of the memory: those of a segment, then the page of its head.
const LEN: usize = SEGMENT + 4096;
/// The first number of a head: a name and a version.
const MAGIC: u64 = u64::from_le_bytes(*b"wefkept1");

/// The head of the memory.
#[derive(Clone, Copy)]
#[repr(C)]
struct Head {
    magic: u64,
    /// The process, which keeps its number.
    process: u64,
    /// The socket's number.
    file: u64,
    /// The other end.
    other: [u64; 3],
    /// Descriptors of the connection; -1: none.
    copies: [i32; COPIES],
}

/// A connection whose bytes are kept: its descriptor and its slot, the memory, and their number.
#[derive(Clone, Copy)]
struct One {
    fd: RawFd,
    at: u32,
    memory: RawFd,
    len: u32,
}

/// Bytes that are kept while this process becomes another program. They are back in their rings
/// when it ends.
pub struct Kept {
    /// A list, which is not on the stack: that may be small. Null: there is none yet.
    all: *mut One,
    count: usize,
}

impl Kept {
    /// Keeps nothing yet.
    pub fn new() -> Kept {
        Kept { all: std::ptr::null_mut(), count: 0 }
    }

    /// The list.
    fn all(&mut self) -> Option<&mut [One; MOST]> {
        if self.all.is_null() {
            self.all = map(-1, size_of::<[One; MOST]>())?.cast();
        }
        // SAFETY: a mapping of this size, for which zeros are valid, of this object alone.
        unsafe { self.all.cast::<[One; MOST]>().as_mut() }
    }

    /// Keeps the bytes of a connection. No other thread reads it until this object ends.
    ///
    /// # Errors
    /// They stay in the ring.
    pub fn keep(&mut self, one: &Connection) -> Result<(), Why> {
        let count = self.count;
        let place = self.all().and_then(|all| all.get_mut(count));
        let place = place.ok_or_else(|| Why::new("too many connections have bytes in memory"))?;
        let Some(user) = stream::enter(*one) else { return Ok(()) };
        giving::comes_back(one)?;
        let held = one.slot.receiving.take();
        let held =
            held.ok_or_else(|| Why::new("a signal handler has interrupted a read of them"))?;
        let Some((before, parts, len)) = user.waiting() else { return Ok(()) };
        let memory = memory_of(one, before, &parts, len);
        let memory = memory.ok_or_else(|| Why::new("the system has no memory for them"))?;
        user.give(len);
        std::mem::forget(held);
        *place = One { fd: one.fd, at: one.at as u32, memory, len: len as u32 };
        self.count += 1;
        Ok(())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let count = self.count;
        if count == 0 {
            return;
        }
        for one in self.all().iter().flat_map(|all| &all[..count]) {
            let at = one.at as usize;
            // Another thread may have closed it.
            let same = table::connection(one.fd).filter(|connection| connection.at == at);
            let user = same.and_then(stream::enter);
            user.iter().for_each(|user| user.take_back(one.len as usize));
            table::slot_at(at).iter().for_each(|slot| slot.receiving.free());
            line::close(one.memory);
        }
        // SAFETY: the mapping of the list.
        unsafe { libc::munmap(self.all.cast(), size_of::<[One; MOST]>()) };
    }
}

/// Returns memory with these bytes, for the next program.
fn memory_of(one: &Connection, before: u64, parts: &[libc::iovec; 2], len: usize) -> Option<RawFd> {
    let copies = copies_of(one)?;
    let other = one.slot.other.get();
    let head = Head {
        magic: MAGIC,
        process: line::process().into(),
        file: line::file(one.fd)?,
        other: [other.program, other.token, other.key],
        copies,
    };
    let flags = libc::MFD_ALLOW_SEALING;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"weft-sockets-kept".as_ptr(), flags) };
    if fd < 0 {
        return None;
    }
    let fits = (fd as usize) < LOOKED_AT;
    // SAFETY: no memory is passed.
    let is_long = fits && unsafe { libc::ftruncate(fd, LEN as libc::off_t) } == 0;
    let Some(base) = is_long.then(|| map(fd, LEN)).flatten() else {
        line::close(fd);
        return None;
    };
    // SAFETY: the mapping has this length: words and a ring of each direction, and the head. The
    // parts are those of a ring, `len` bytes together.
    unsafe {
        let ring = base.add(HEAD + RING);
        std::ptr::copy_nonoverlapping(parts[0].iov_base.cast(), ring, parts[0].iov_len);
        let rest = ring.add(parts[0].iov_len);
        std::ptr::copy_nonoverlapping(parts[1].iov_base.cast(), rest, parts[1].iov_len);
        (*base.add(STRIDE).cast::<Words>()).leave(len, before);
        base.add(SEGMENT).cast::<Head>().write(head);
        libc::munmap(base.cast(), LEN);
        real::fcntl(fd, libc::F_ADD_SEALS, seals.into());
    }
    Some(fd)
}

/// Maps a file, or memory of this process alone (-1).
fn map(fd: RawFd, len: usize) -> Option<*mut u8> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = if fd < 0 { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS } else { libc::MAP_SHARED };
    // SAFETY: a new mapping at an address of the kernel's choice, of a file of this length.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, kind, fd, 0) };
    (at != libc::MAP_FAILED).then_some(at.cast())
}

/// Returns the descriptors of a connection that the next program has. `None`: there are too many.
fn copies_of(one: &Connection) -> Option<[i32; COPIES]> {
    let (mut copies, mut count, mut from) = ([-1; COPIES], 0, 0);
    while let Some(fd) = table::next(from, c_int::MAX) {
        from = fd + 1;
        // SAFETY: no memory is passed.
        let flags = unsafe { real::fcntl(fd, libc::F_GETFD, 0) };
        let same = table::connection(fd).is_some_and(|other| other.at == one.at);
        if same && flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
            *copies.get_mut(count)? = fd;
            count += 1;
        }
    }
    Some(copies)
}

/// Takes over what an earlier program of this process has left. `is_on`: this library may use it;
/// otherwise the connections end, as their bytes would be missing.
pub fn begin(is_on: bool) {
    let was = real::errno();
    let none = libc::pollfd { fd: -1, events: 0, revents: 0 };
    let mut all = [none; LOOKED_AT];
    all.iter_mut().zip(0..).for_each(|(one, fd)| one.fd = fd);
    let most = most_descriptors().min(LOOKED_AT);
    // SAFETY: the list has so many entries. It is looked at without a wait.
    if unsafe { real::poll(all.as_mut_ptr(), most as libc::nfds_t, 0) } >= 0 {
        let open = all[..most].iter().filter(|one| one.revents & libc::POLLNVAL == 0);
        open.filter(|one| is_kept(one.fd)).for_each(|one| take_over(one.fd, is_on));
    }
    real::set_errno(was);
}

/// Descriptors that poll(2) takes.
fn most_descriptors() -> usize {
    // SAFETY: all-zero is a valid value, written for its size.
    unsafe {
        let mut limit: libc::rlimit = zeroed();
        match libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) {
            0 => limit.rlim_cur as usize,
            _ => 0,
        }
    }
}

/// True if a descriptor is memory of this kind, which does not shrink.
fn is_kept(fd: RawFd) -> bool {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: no memory is passed; then an all-zero value, written for its size.
    unsafe {
        let has = real::fcntl(fd, libc::F_GET_SEALS, 0);
        let mut stat: libc::stat = zeroed();
        has == seals && libc::fstat(fd, &mut stat) == 0 && stat.st_size == LEN as i64
    }
}

fn take_over(memory: RawFd, is_on: bool) {
    // SAFETY: all-zero is a valid value of numbers, of which as many bytes are written.
    let (head, n) = unsafe {
        let mut head: Head = zeroed();
        let at = (&raw mut head).cast();
        let n = libc::pread(memory, at, size_of::<Head>(), SEGMENT as libc::off_t);
        (head, n)
    };
    if n == size_of::<Head>() as isize && head.magic == MAGIC {
        if head.process == u64::from(line::process()) {
            adopt(memory, &head, is_on);
        }
        line::close(memory);
    }
}

/// The program has the connection whose bytes these are.
fn adopt(memory: RawFd, head: &Head, is_on: bool) {
    let is_its = |fd: &&i32| line::is_file(**fd, head.file);
    let mut copies = head.copies.iter().filter(is_its);
    let Some(&fd) = copies.next() else { return };
    let taken = is_on.then(|| map(memory, SEGMENT)).flatten();
    let Some((one, base)) = taken.and_then(|base| Some((table::begin(fd)?, base))) else {
        return giving::reset_socket(fd);
    };
    copies.for_each(|&copy| table::copy(fd, copy));
    let [program, token, key] = head.other;
    let slot = one.slot;
    slot.other.set(Other { program, token, key });
    slot.set(NEVER);
    if tcp::is_nonblocking(fd) {
        slot.set(NONBLOCKING);
    }
    slot.ask.state.store(DENIED, Ordering::Release);
    slot.counts().into_iter().for_each(Count::share);
    slot.sender.end();
    table::set_memory(one.at, base, true);
    slot.state.store(SHARED, Ordering::SeqCst);
    board::stays(one.at, "an earlier program has left bytes in memory");
}

//! The system call bpf(2), as far as XDP programs need it.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One instruction (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Insn {
    /// Operation.
    pub code: u8,
    regs: u8,
    /// Offset of a load, or distance of a jump.
    pub off: i16,
    imm: i32,
}

impl Insn {
    /// Makes an instruction; `dst` and `src` are registers 0 to 10.
    pub fn new(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
        let regs = if cfg!(target_endian = "little") { src << 4 | dst } else { dst << 4 | src };
        Insn { code, regs, off, imm }
    }
}

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const PROG_TEST_RUN: libc::c_long = 10;
const PROG_GET_FD_BY_ID: libc::c_long = 13;
const MAP_GET_FD_BY_ID: libc::c_long = 14;
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const LINK_CREATE: libc::c_long = 28;
const LINK_GET_FD_BY_ID: libc::c_long = 30;
const LINK_GET_NEXT_ID: libc::c_long = 31;

const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_ARRAY_OF_MAPS: u32 = 12;
const MAP_TYPE_XSKMAP: u32 = 17;
const MAP_TYPE_RINGBUF: u32 = 27;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
const LINK_TYPE_XDP: u32 = 6;
const NOEXIST: u64 = 1;
/// The program accepts frames in several pieces, so that the kernel need not join them.
const PROG_XDP_HAS_FRAGS: u32 = 1 << 5;
/// Attach in the network stack (generic XDP).
pub const FLAGS_GENERIC: u32 = 1 << 1;
/// Attach in the driver (native XDP).
pub const FLAGS_NATIVE: u32 = 1 << 2;

/// Highest number of tries of a load that signals interrupt.
const LOADS_MOST: u32 = 100;

/// Length of the longest name of a program or map.
pub const NAME_MAX: usize = 15;

fn bpf<T>(command: libc::c_long, attr: &mut T) -> io::Result<libc::c_long> {
    let attr: *mut T = attr;
    // SAFETY: `attr` is a live structure of the length given, laid out as the command expects;
    // pointers in it are valid by the callers below.
    match unsafe { libc::syscall(libc::SYS_bpf, command, attr, size_of::<T>()) } {
        n if n < 0 => Err(io::Error::last_os_error()),
        n => Ok(n),
    }
}

fn descriptor<T>(command: libc::c_long, attr: &mut T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attr)?;
    // SAFETY: the commands this is called with return a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Returns a name as the kernel stores it.
fn name_bytes(name: &str) -> [u8; NAME_MAX + 1] {
    let mut out = [0; NAME_MAX + 1];
    for (to, from) in out[..NAME_MAX].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    out
}

/// Creates a map from numbers to AF_XDP sockets.
pub fn socket_map(entries: u32, name: &str) -> io::Result<OwnedFd> {
    create_map(MAP_TYPE_XSKMAP, entries, (4, 0), 0, name)
}

/// Creates an array of zeros with `size` bytes for each entry, a multiple of 8. Processes can map
/// it into their memory: one entry after the other.
pub fn mapped_array(entries: u32, size: u32, name: &str) -> io::Result<OwnedFd> {
    const MMAPABLE: u32 = 1 << 10;
    create_map(MAP_TYPE_ARRAY, entries, (size, MMAPABLE), 0, name)
}

/// Creates a ring of `size` bytes, a power of two and whole pages, to which programs add records.
pub fn record_ring(size: u32, name: &str) -> io::Result<OwnedFd> {
    create_map(MAP_TYPE_RINGBUF, size, (0, 0), 0, name)
}

/// Creates an array for maps like this one.
pub fn map_of_maps(entries: u32, like: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    create_map(MAP_TYPE_ARRAY_OF_MAPS, entries, (4, 0), like.as_raw_fd() as u32, name)
}

/// Puts a map at an index of an array of maps.
pub fn place(maps: &OwnedFd, key: u32, map: &OwnedFd) -> io::Result<()> {
    element(MAP_UPDATE_ELEM, maps, key, &mut map.as_raw_fd(), 0)
}

fn create_map(
    map_type: u32,
    entries: u32,
    (value_size, map_flags): (u32, u32),
    inner_map_fd: u32,
    name: &str,
) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
        inner_map_fd: u32,
        numa_node: u32,
        name: [u8; NAME_MAX + 1],
    }
    let mut attr = Attr {
        map_type,
        key_size: if map_type == MAP_TYPE_RINGBUF { 0 } else { 4 },
        value_size,
        max_entries: entries,
        map_flags,
        inner_map_fd,
        numa_node: 0,
        name: name_bytes(name),
    };
    descriptor(MAP_CREATE, &mut attr)
}

/// Loads an XDP program; `frags` if it may be given frames in several pieces. If the kernel's
/// verifier refuses the program, the error ends with the verifier's message.
pub fn load(code: &[Insn], name: &str, frags: bool) -> io::Result<OwnedFd> {
    let flags = if frags { PROG_XDP_HAS_FRAGS } else { 0 };
    // The verifier gives up with EAGAIN when its caller has a signal to handle (bpf(2)).
    let again = |loaded: &io::Result<OwnedFd>| {
        loaded.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EAGAIN))
    };
    let mut loaded = load_with(code, name, flags, &mut []);
    for _ in 0..LOADS_MOST {
        if !again(&loaded) {
            break;
        }
        loaded = load_with(code, name, flags, &mut []);
    }
    let judged = [libc::EINVAL, libc::EACCES, libc::E2BIG, libc::ELOOP];
    let judged = |e: &io::Error| e.raw_os_error().is_some_and(|code| judged.contains(&code));
    if !loaded.as_ref().is_err_and(judged) {
        return loaded;
    }
    let mut log = vec![0; 64 << 10];
    load_with(code, name, flags, &mut log).map_err(|e| {
        let text = String::from_utf8_lossy(&log);
        let text = text.trim_end_matches('\0').trim();
        if text.is_empty() {
            return e;
        }
        io::Error::new(e.kind(), format!("{e}; the verifier says: {text}"))
    })
}

fn load_with(code: &[Insn], name: &str, flags: u32, log: &mut [u8]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        name: [u8; NAME_MAX + 1],
        prog_ifindex: u32,
        expected_attach_type: u32,
    }
    let mut attr = Attr {
        prog_type: PROG_TYPE_XDP,
        insn_cnt: code.len() as u32,
        insns: code.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: log.len() as u32,
        log_buf: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        kern_version: 0,
        prog_flags: flags,
        name: name_bytes(name),
        prog_ifindex: 0,
        expected_attach_type: ATTACH_TYPE_XDP,
    };
    descriptor(PROG_LOAD, &mut attr)
}

/// Attaches a program to an interface, while a descriptor of the result is open in any process.
pub fn attach(program: &OwnedFd, ifindex: u32, flags: u32) -> io::Result<OwnedFd> {
    let mut attr = [program.as_raw_fd() as u32, ifindex, ATTACH_TYPE_XDP, flags];
    descriptor(LINK_CREATE, &mut attr)
}

/// Puts a socket into a map of sockets; it leaves the map when it is closed. `AlreadyExists` if
/// there is a socket at that key.
pub fn insert(map: &OwnedFd, key: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut value = socket.as_raw_fd();
    element(MAP_UPDATE_ELEM, map, key, &mut value, NOEXIST)
}

/// Runs a command on an entry of a map whose values have the length of `T`.
fn element<T>(
    command: libc::c_long,
    map: &OwnedFd,
    key: u32,
    value: &mut T,
    flags: u64,
) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        map_fd: u32,
        pad: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let (map_fd, key) = (map.as_raw_fd() as u32, &raw const key);
    let value: *mut T = value;
    let mut attr = Attr { map_fd, pad: 0, key: key as u64, value: value as u64, flags };
    bpf(command, &mut attr).map(|_| ())
}

/// Returns the number of the next link in the system after `id`; `None` after the last.
pub fn link_after(id: u32) -> io::Result<Option<u32>> {
    let mut attr = [id, 0, 0];
    match bpf(LINK_GET_NEXT_ID, &mut attr) {
        Ok(_) => Ok(Some(attr[1])),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Opens a descriptor of the link of this number, which keeps the link.
pub fn link(id: u32) -> io::Result<OwnedFd> {
    descriptor(LINK_GET_FD_BY_ID, &mut [id, 0, 0])
}

/// Opens a descriptor of the map of this number.
pub fn map(id: u32) -> io::Result<OwnedFd> {
    descriptor(MAP_GET_FD_BY_ID, &mut [id, 0, 0])
}

fn info<T>(fd: &OwnedFd, into: &mut T) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        fd: u32,
        len: u32,
        info: u64,
    }
    let into: *mut T = into;
    let len = size_of::<T>() as u32;
    let mut attr = Attr { fd: fd.as_raw_fd() as u32, len, info: into as u64 };
    bpf(OBJ_GET_INFO_BY_FD, &mut attr).map(|_| ())
}

/// Returns interface and program number of a link, if it is an XDP link.
pub fn xdp_link(link: &OwnedFd) -> io::Result<Option<(u32, u32)>> {
    #[derive(Default)]
    #[repr(C)]
    struct Info {
        kind: u32,
        id: u32,
        prog_id: u32,
        pad: u32,
        ifindex: u32,
        rest: [u32; 3],
    }
    let mut all = Info::default();
    info(link, &mut all)?;
    Ok((all.kind == LINK_TYPE_XDP).then_some((all.ifindex, all.prog_id)))
}

/// Returns the name of the program of this number, and the number of its first map.
pub fn program(id: u32) -> io::Result<(String, Option<u32>)> {
    #[derive(Default)]
    #[repr(C)]
    struct Info {
        kind: u32,
        id: u32,
        tag: [u8; 8],
        lengths: [u32; 2],
        code: [u64; 2],
        load_time: u64,
        uid: u32,
        nr_map_ids: u32,
        map_ids: u64,
        name: [u8; NAME_MAX + 1],
    }
    let fd = descriptor(PROG_GET_FD_BY_ID, &mut [id, 0, 0])?;
    let mut first = 0_u32;
    let mut all = Info { nr_map_ids: 1, map_ids: (&raw mut first) as u64, ..Info::default() };
    info(&fd, &mut all)?;
    let name = String::from_utf8_lossy(&all.name).trim_end_matches('\0').to_string();
    Ok((name, (all.nr_map_ids > 0).then_some(first)))
}

/// Returns the program's verdict on this frame.
pub fn test_run(program: &OwnedFd, frame: &[u8]) -> io::Result<u32> {
    Ok(test_frame(program, frame)?.0)
}

/// Returns the program's verdict on this frame, and the frame as the program left it.
pub fn test_frame(program: &OwnedFd, frame: &[u8]) -> io::Result<(u32, Vec<u8>)> {
    #[derive(Default)]
    #[repr(C)]
    struct Attr {
        prog_fd: u32,
        retval: u32,
        data_size_in: u32,
        data_size_out: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
    }
    let mut out = vec![0; frame.len()];
    let mut attr = Attr {
        prog_fd: program.as_raw_fd() as u32,
        data_size_in: frame.len() as u32,
        data_size_out: frame.len() as u32,
        data_in: frame.as_ptr() as u64,
        data_out: out.as_mut_ptr() as u64,
        ..Attr::default()
    };
    bpf(PROG_TEST_RUN, &mut attr)?;
    out.truncate(attr.data_size_out as usize);
    Ok((attr.retval, out))
}

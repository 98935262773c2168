//! The interface of CRL 1.0, `crl.h`, over regions of bytes.
//!
//! Its functions return nothing that could be an error, so a wrong call, or the failure of a rank,
//! ends the process with a text, as in CRL.

use crate::calls::Function;
use crate::regions::{Access, Node};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The number of this node.
#[allow(non_upper_case_globals)]
#[no_mangle]
pub static crl_self_addr: AtomicU32 = AtomicU32::new(0);
/// The number of nodes.
#[allow(non_upper_case_globals)]
#[no_mangle]
pub static crl_num_nodes: AtomicU32 = AtomicU32::new(0);

/// True once the process has left its job, at its end.
static LEFT: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// True while this thread is in a function.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The node of this thread, from `crl_init` to the end of the process. A pointer, since values
    /// that need to be dropped are gone before handlers of `atexit` run.
    static NODE: Cell<*const Node> = const { Cell::new(std::ptr::null()) };
}

/// Most bytes of the text with which the process ends.
const TEXT_MAX: usize = 4096;

/// Ends the process. A signal handler may have interrupted the use of the allocator or of a stream,
/// also in this function: so it uses neither.
fn fatal(function: &str, what: &str) -> ! {
    let node = crl_self_addr.load(Ordering::Relaxed);
    let mut text = [0; TEXT_MAX];
    let mut rest = &mut text[..];
    _ = writeln!(rest, "{function}: node {node}: {what}");
    let len = TEXT_MAX - rest.len();
    // SAFETY: the first `len` bytes of `text`.
    _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), len) };
    std::process::abort()
}

/// Runs the body of a function.
fn with<T>(function: &str, body: impl FnOnce(&Node) -> Result<T, String>) -> T {
    let node = NODE.with(Cell::get);
    if node.is_null() {
        fatal(function, absent());
    }
    // SAFETY: made by `Box::into_raw` in `crl_init_group`, for this thread, and freed by `leave`
    // alone, which takes it away first. A body does not run code of the program.
    let node = unsafe { &*node };
    if !node.is_here() {
        fatal(function, "this process is a copy, made by fork, of the one that called crl_init");
    }
    if INSIDE.replace(true) {
        fatal(function, "a signal handler called it while the node was in another function");
    }
    let done = body(node).unwrap_or_else(|what| fatal(function, &what));
    INSIDE.set(false);
    done
}

/// Returns the reason why this thread is no node.
fn absent() -> &'static str {
    if LEFT.load(Ordering::Relaxed) {
        "the process is at its end, and has left the job"
    } else if crl_num_nodes.load(Ordering::Relaxed) > 0 {
        "another thread has called crl_init: all calls of a node come from one thread"
    } else {
        "crl_init has not been called"
    }
}

/// Leaves the job at the end of the process.
extern "C" fn leave() {
    LEFT.store(true, Ordering::Relaxed);
    let node = NODE.with(|node| node.replace(std::ptr::null()));
    if INSIDE.get() {
        // A signal handler calls `exit`, and the function that it interrupts uses the node.
        return;
    }
    // SAFETY: made by `Box::into_raw`, and taken away above, so nobody frees it again.
    let node = (!node.is_null()).then(|| unsafe { Box::from_raw(node.cast_mut()) });
    if let Some(copied) = node.filter(|node| !node.is_here()) {
        // The job is that of another process.
        std::mem::forget(copied);
    }
}

/// Joins the job.
#[no_mangle]
pub extern "C" fn crl_init() {
    const NAME: &str = "crl_init";
    if !NODE.with(Cell::get).is_null() || crl_num_nodes.load(Ordering::Relaxed) > 0 {
        fatal(NAME, "it has been called before");
    }
    let node = Node::join().unwrap_or_else(|what| fatal(NAME, &what));
    crl_self_addr.store(node.rank() as u32, Ordering::Relaxed);
    crl_num_nodes.store(node.size() as u32, Ordering::Relaxed);
    NODE.with(|cell| cell.set(Box::into_raw(Box::new(node))));
    // SAFETY: `leave` may run at any time of an exit, in any thread.
    if unsafe { libc::atexit(leave) } != 0 {
        fatal(NAME, "no room for a handler of atexit");
    }
}

/// Joins the job. The name of a group is not used.
#[no_mangle]
pub extern "C" fn crl_init_group(_group: *const c_char) {
    crl_init();
}

/// Makes a region.
#[no_mangle]
pub extern "C" fn rgn_create(size: c_uint) -> u64 {
    with("rgn_create", |node| node.create(size as usize))
}

/// Deletes a region.
#[no_mangle]
pub extern "C" fn rgn_delete(region: u64) {
    with("rgn_delete", |node| node.delete(region));
}

/// Maps a region.
#[no_mangle]
pub extern "C" fn rgn_map(region: u64) -> *mut c_void {
    with("rgn_map", |node| node.map(region)).cast()
}

/// Ends one map of a region.
#[no_mangle]
pub extern "C" fn rgn_unmap(copy: *mut c_void) {
    with("rgn_unmap", |node| node.unmap(copy.addr()));
}

/// Returns the name of a mapped region.
#[no_mangle]
pub extern "C" fn rgn_rid(copy: *mut c_void) -> u64 {
    with("rgn_rid", |node| node.name(copy.addr()))
}

/// Returns the size of a mapped region.
#[no_mangle]
pub extern "C" fn rgn_size(copy: *mut c_void) -> c_uint {
    with("rgn_size", |node| node.size_of(copy.addr())) as c_uint
}

/// Begins an operation that reads.
#[no_mangle]
pub extern "C" fn rgn_start_read(copy: *mut c_void) {
    with("rgn_start_read", |node| node.start(copy.addr(), Access::Read));
}

/// Ends an operation that reads.
#[no_mangle]
pub extern "C" fn rgn_end_read(copy: *mut c_void) {
    with("rgn_end_read", |node| node.end(copy.addr(), Access::Read));
}

/// Begins an operation that writes.
#[no_mangle]
pub extern "C" fn rgn_start_write(copy: *mut c_void) {
    with("rgn_start_write", |node| node.start(copy.addr(), Access::Write));
}

/// Ends the operation that writes.
#[no_mangle]
pub extern "C" fn rgn_end_write(copy: *mut c_void) {
    with("rgn_end_write", |node| node.end(copy.addr(), Access::Write));
}

/// Gives this node's copy back to the home of the region.
#[no_mangle]
pub extern "C" fn rgn_flush(copy: *mut c_void) {
    with("rgn_flush", |node| node.flush(copy.addr()));
}

/// Waits for all nodes.
#[no_mangle]
pub extern "C" fn rgn_barrier() {
    with("rgn_barrier", Node::barrier);
}

/// Returns the length of a message of all nodes.
fn length_of(length: c_int, data: *mut c_void) -> Result<usize, String> {
    match usize::try_from(length) {
        Ok(length) if length == 0 || !data.is_null() => Ok(length),
        Ok(_) => Err("data is null".into()),
        Err(_) => Err(format!("a length of {length} bytes")),
    }
}

/// Sends bytes to all other nodes.
///
/// # Safety
/// `data` has `length` bytes.
#[no_mangle]
pub unsafe extern "C" fn rgn_bcast_send(length: c_int, data: *mut c_void) {
    with("rgn_bcast_send", |node| {
        let length = length_of(length, data)?;
        // SAFETY: promised by the caller.
        let bytes = unsafe { super::bytes(data.cast_const().cast(), length) };
        node.broadcast(Some(bytes.map_err(|fault| fault.1)?), length).map(drop)
    });
}

/// Receives the bytes of the node that sends.
///
/// # Safety
/// `data` takes `length` bytes.
#[no_mangle]
pub unsafe extern "C" fn rgn_bcast_recv(length: c_int, data: *mut c_void) {
    with("rgn_bcast_recv", |node| {
        let length = length_of(length, data)?;
        let bytes = node.broadcast(None, length)?;
        // SAFETY: promised by the caller; `bytes` has just this length.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), data.cast(), bytes.len()) };
        Ok(())
    });
}

/// Returns the sum of the numbers of all nodes.
#[no_mangle]
pub extern "C" fn rgn_reduce_dadd(mine: f64) -> f64 {
    with("rgn_reduce_dadd", |node| node.reduce(Function::Add, mine, |a, b| a + b))
}

/// Returns the least of the numbers of all nodes.
#[no_mangle]
pub extern "C" fn rgn_reduce_dmin(mine: f64) -> f64 {
    with("rgn_reduce_dmin", |node| node.reduce(Function::Least, mine, f64::min))
}

/// Returns the greatest of the numbers of all nodes.
#[no_mangle]
pub extern "C" fn rgn_reduce_dmax(mine: f64) -> f64 {
    with("rgn_reduce_dmax", |node| node.reduce(Function::Greatest, mine, f64::max))
}

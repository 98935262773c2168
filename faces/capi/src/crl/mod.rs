//! The interface of CRL 1.0, `crl.h`, over regions of bytes.
//!
//! Its functions return nothing that could be an error, so a wrong call, or the failure of a rank,
//! ends the process with a text, as in CRL.

mod calls;
mod regions;
#[allow(unsafe_code)]
pub mod sys;

use regions::Node;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use sys::{crl_num_nodes, crl_self_addr};

/// True once the process has left its job, at its end.
static LEFT: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// True while this thread is in a function.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
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
    _ = rustix::io::write(rustix::stdio::stderr(), &text[..len]);
    std::process::abort()
}

/// Runs the body of a function.
fn with<T>(function: &str, body: impl FnOnce(&Node) -> Result<T, String>) -> T {
    let node = sys::node().unwrap_or_else(|| fatal(function, absent()));
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
    // If a signal handler calls `exit`, the function that it interrupts uses the node.
    let node = sys::take_node(!INSIDE.get());
    if let Some(copied) = node.filter(|node| !node.is_here()) {
        // The job is that of another process.
        std::mem::forget(copied);
    }
}

/// Joins the job.
fn join(function: &str) {
    if sys::node().is_some() || crl_num_nodes.load(Ordering::Relaxed) > 0 {
        fatal(function, "it has been called before");
    }
    let node = Node::join().unwrap_or_else(|what| fatal(function, &what));
    crl_self_addr.store(node.rank() as u32, Ordering::Relaxed);
    crl_num_nodes.store(node.size() as u32, Ordering::Relaxed);
    if !sys::set_node(node, leave) {
        fatal(function, "no room for a handler of atexit");
    }
}

/// Returns the length of a message of all nodes.
///
/// # Errors
/// The length is negative, or the bytes are missing.
fn length_of(length: c_int, data: *const c_void) -> Result<usize, String> {
    match usize::try_from(length) {
        Ok(length) if length == 0 || !data.is_null() => Ok(length),
        Ok(_) => Err("data is null".into()),
        Err(_) => Err(format!("a length of {length} bytes")),
    }
}

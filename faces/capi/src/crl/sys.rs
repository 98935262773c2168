//! The functions of `crl.h`, and the node of a thread.

use super::calls::Function;
use super::regions::{Access, Node};
use super::{join, length_of, with};
use crate::sys::bytes;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::AtomicU32;

/// The number of this node.
#[allow(non_upper_case_globals)]
#[no_mangle]
pub static crl_self_addr: AtomicU32 = AtomicU32::new(0);
/// The number of nodes.
#[allow(non_upper_case_globals)]
#[no_mangle]
pub static crl_num_nodes: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The node of this thread, from `crl_init` to the end of the process. A pointer, since values
    /// that need to be dropped are gone before handlers of `atexit` run.
    static NODE: Cell<*const Node> = const { Cell::new(std::ptr::null()) };
}

/// Returns the node of this thread.
pub(super) fn node() -> Option<&'static Node> {
    // SAFETY: null, or made by `Box::into_raw` for this thread, and freed by `take_node` alone,
    // which takes it away first, outside of functions. A function does not run code of the
    // program.
    unsafe { NODE.with(Cell::get).as_ref() }
}

/// Makes this thread a node until the end of the process, when `leave` is called. False: the system
/// has no room for that.
pub(super) fn set_node(node: Node, leave: extern "C" fn()) -> bool {
    NODE.with(|cell| cell.set(Box::into_raw(Box::new(node))));
    // SAFETY: `leave` may run at any time of an exit, in any thread.
    unsafe { libc::atexit(leave) == 0 }
}

/// Takes the node away from this thread, which is no node afterwards. `None` if it was none, or if
/// a function uses the node, so that it is not `free`.
pub(super) fn take_node(free: bool) -> Option<Box<Node>> {
    let node = NODE.with(|node| node.replace(std::ptr::null()));
    // SAFETY: made by `Box::into_raw`, and taken away above, so nobody frees it again.
    (free && !node.is_null()).then(|| unsafe { Box::from_raw(node.cast_mut()) })
}

/// Joins the job.
#[no_mangle]
pub extern "C" fn crl_init() {
    join("crl_init");
}

/// Joins the job. The name of a group is not used.
#[no_mangle]
pub extern "C" fn crl_init_group(_group: *const c_char) {
    join("crl_init");
}

/// Defines functions of `crl.h`: each body gets the node.
macro_rules! functions {
    ($(
        fn $name:ident($($arg:ident: $type:ty),*) $(-> $ret:ty)? { |$node:ident| $body:expr }
    )*) => {$(
        #[doc = concat!("`", stringify!($name), "`, as `crl.h` describes it.")]
        ///
        /// # Safety
        /// The caller keeps the rules of `crl.h`: data has the bytes that it says.
        #[no_mangle]
        pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $ret)? {
            with(stringify!($name), |$node| $body)
        }
    )*};
}

functions! {
    fn rgn_create(size: c_uint) -> u64 { |node| node.create(size as usize) }
    fn rgn_delete(region: u64) { |node| node.delete(region) }
    fn rgn_map(region: u64) -> *mut c_void { |node| node.map(region).map(<*mut u8>::cast) }
    fn rgn_unmap(copy: *mut c_void) { |node| node.unmap(copy.addr()) }
    fn rgn_rid(copy: *mut c_void) -> u64 { |node| node.name(copy.addr()) }
    fn rgn_size(copy: *mut c_void) -> c_uint {
        |node| node.size_of(copy.addr()).map(|size| size as c_uint)
    }
    fn rgn_start_read(copy: *mut c_void) { |node| node.start(copy.addr(), Access::Read) }
    fn rgn_end_read(copy: *mut c_void) { |node| node.end(copy.addr(), Access::Read) }
    fn rgn_start_write(copy: *mut c_void) { |node| node.start(copy.addr(), Access::Write) }
    fn rgn_end_write(copy: *mut c_void) { |node| node.end(copy.addr(), Access::Write) }
    fn rgn_flush(copy: *mut c_void) { |node| node.flush(copy.addr()) }
    fn rgn_barrier() { |node| node.barrier() }
    fn rgn_bcast_send(length: c_int, data: *mut c_void) {
        |node| {
            let length = length_of(length, data)?;
            // SAFETY: promised by the caller.
            let bytes = unsafe { bytes(data, length) }.map_err(|fault| fault.1)?;
            node.broadcast(Some(bytes.as_slice()), length).map(drop)
        }
    }
    fn rgn_bcast_recv(length: c_int, data: *mut c_void) {
        |node| {
            let length = length_of(length, data)?;
            // SAFETY: promised by the caller.
            let place = unsafe { bytes(data, length) }.map_err(|fault| fault.1)?;
            node.broadcast(None, length).map(|bytes| place.put(0, &bytes))
        }
    }
    fn rgn_reduce_dadd(mine: f64) -> f64 { |node| node.reduce(Function::Add, mine, |a, b| a + b) }
    fn rgn_reduce_dmin(mine: f64) -> f64 { |node| node.reduce(Function::Least, mine, f64::min) }
    fn rgn_reduce_dmax(mine: f64) -> f64 { |node| node.reduce(Function::Greatest, mine, f64::max) }
}

//! Functions of liburing that make a ring.

use crate::hooks::rings::may_come;
use crate::hooks::symbols::behind;
use libc::{c_int, c_uint, c_void, size_t};
use std::sync::atomic::AtomicUsize;

/// Makes a ring by liburing's own function of a name, once all connections are by TCP.
///
/// # Safety
/// The function has this type, and the caller keeps its rules.
unsafe fn makes<F: Copy>(name: &[u8], known: &AtomicUsize, call: impl FnOnce(F) -> c_int) -> c_int {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    match behind(name, known) {
        0 => -libc::ENOSYS,
        _ if !may_come() => -libc::EAGAIN,
        // SAFETY: the address of the function of this type.
        own => call(unsafe { std::mem::transmute_copy(&own) }),
    }
}

macro_rules! makers {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*);)*) => {
        hooks! {
            $(
                $(#[$doc])*
                fn $name($($arg: $type),*) -> c_int {
                    static KNOWN: AtomicUsize = AtomicUsize::new(0);
                    type Function = unsafe extern "C-unwind" fn($($type),*) -> c_int;
                    makes(stringify!($name).as_bytes(), &KNOWN, |own: Function| own($($arg),*))
                }
            )*
        }
    };
}

makers! {
    /// io_uring_queue_init(3).
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint);
    /// io_uring_queue_init_params(3).
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, params: *mut c_void);
    /// io_uring_queue_init_mem(3).
    fn io_uring_queue_init_mem(
        entries: c_uint, ring: *mut c_void, params: *mut c_void, at: *mut c_void, len: size_t
    );
    /// io_uring_setup(2) of liburing.
    fn io_uring_setup(entries: c_uint, params: *mut c_void);
}

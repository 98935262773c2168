//! io_uring by liburing, which makes its calls by instructions of its own: the kernel reads and
//! writes sockets there, and nobody is asked. Connections of a program that makes such a ring are
//! the kernel's alone from then on.

use super::data::hand_over_as;
use super::process::each;
use super::programs::complain;
use super::symbols::behind;
use crate::sys::slot::BROKEN;
use crate::sys::why::Why;
use crate::sys::{rings, settings, vfork};
use libc::{c_int, c_uint, c_void, size_t};
use std::sync::atomic::AtomicUsize;

/// Makes a ring by liburing's own function of a name, once all connections are by TCP.
///
/// # Safety
/// The function has this type, and the caller keeps its rules.
unsafe fn makes<F: Copy>(name: &[u8], known: &AtomicUsize, call: impl FnOnce(F) -> c_int) -> c_int {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    let own = behind(name, known);
    if own == 0 {
        return -libc::ENOSYS;
    }
    if settings::is_on() && !vfork::is_child() && !all_by_tcp() {
        return -libc::EAGAIN;
    }
    // SAFETY: the address of the function of this type.
    call(unsafe { std::mem::transmute_copy(&own) })
}

/// Has all connections be by TCP from now on. False if bytes of one stay in its ring.
#[cold]
fn all_by_tcp() -> bool {
    rings::has_come();
    let mut all = true;
    each(true, |one| {
        let handed = hand_over_as(one, Why::Ring);
        // One that has ended by an error tells that to any reader.
        if let Some(why) = handed.err().filter(|_| !one.slot.has(BROKEN)) {
            complain("io_uring was refused", one.fd, &why);
            all = false;
        }
    });
    all
}

macro_rules! makers {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*);)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As liburing's.
            #[no_mangle]
            pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
                static KNOWN: AtomicUsize = AtomicUsize::new(0);
                type Function = unsafe extern "C-unwind" fn($($type),*) -> c_int;
                // SAFETY: the function of this name; the caller's arguments.
                unsafe {
                    makes(stringify!($name).as_bytes(), &KNOWN, |own: Function| own($($arg),*))
                }
            }
        )*
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

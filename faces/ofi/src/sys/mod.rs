//! The binary interface and the objects behind it.
//!
//! Every object starts with the structure libfabric knows (`fid`), is allocated in a box, and is
//! handed out as a raw pointer; the caller closes it once. State shared by objects lies in
//! reference counts (`Rc`). They are safe from threads because every function takes the lock of
//! the domain first, or because the caller asked for no lock and promised that one thread at a time
//! comes.

/// Functions that take an endpoint and answer as `call` does: parameters in the order of the
/// interface, then what is done.
///
/// The caller of each keeps the rules of its manual page: buffers are the provider's until the
/// completion, and lists are as long as the call says.
macro_rules! entries {
    ($(fn $name:ident($ep:ident $(, $arg:ident: $type:ty)*) $body:block)*) => {$(
        unsafe extern "C" fn $name($ep: *mut FidEp $(, $arg: $type)*) -> isize {
            // SAFETY: the caller keeps the rules of the function's manual page, which are those of
            // the functions that are called here.
            call(|| unsafe { $body })
        }
    )*};
}

pub mod abi;
mod atomic;
mod av;
mod cntr;
mod cq;
mod domain;
mod ep;
mod eq;
mod info;
mod mr;
mod msg;
mod provider;
mod rma;
mod tagged;
mod watchdog;
mod worker;
mod yields;

use crate::lock::Nested;
use abi::{err, Fid};
use libc::{c_int, iovec};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use weft_sys::forks::is_child;

/// The result of a call: a count or size, or an error number, which is returned negated.
type Answer = Result<isize, c_int>;

/// Runs the body of a call: errors become negative numbers, and a panic never unwinds into C.
#[inline]
fn call(body: impl FnOnce() -> Answer) -> isize {
    if is_child() {
        return -(err::EIO as isize);
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => -(error as isize),
        Err(_) => {
            // The panic may have come from the log.
            let _told = catch_unwind(|| {
                log::error!("the provider panicked: please report this with the lines above");
            });
            -(err::EOTHER as isize)
        }
    }
}

impl From<Nested> for c_int {
    /// Not an error after which callers try again: the interrupted call has to continue first.
    #[cold]
    fn from(_: Nested) -> c_int {
        static TOLD: AtomicBool = AtomicBool::new(false);
        let text =
            "weft: warn: a signal handler calls the provider inside of another call; this is \
                    refused, and told once\n";
        if !TOLD.swap(true, Ordering::Relaxed) {
            // SAFETY: the length is that of the text. `write` is allowed in a signal handler; the
            // log is not, because the interrupted code may be the log.
            unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
        }
        err::EBUSY
    }
}

/// `call` for functions that return an `int`.
#[inline]
fn call_int(body: impl FnOnce() -> Result<c_int, c_int>) -> c_int {
    call(|| body().map(|value| value as isize)) as c_int
}

/// Returns the object behind a pointer that libfabric's caller got from this provider.
///
/// # Safety
/// `fid` is null or a live object of this provider; if its class is `class`, it is a `T`, whose
/// first field is the `Fid`.
#[inline]
unsafe fn object<'a, T>(fid: *mut Fid, class: usize) -> Result<&'a T, c_int> {
    // SAFETY: promised by the caller.
    let found = unsafe { fid.as_ref() }.filter(|f| f.fclass == class);
    match found {
        // SAFETY: the class proves the type.
        Some(_) => Ok(unsafe { &*fid.cast::<T>() }),
        None => Err(err::EINVAL),
    }
}

/// Takes back a box handed out as a pointer.
///
/// # Safety
/// `fid` came from `give` of a `T`, and nobody uses it any more.
unsafe fn take<T>(fid: *mut Fid) {
    // SAFETY: promised by the caller.
    drop(unsafe { Box::from_raw(fid.cast::<T>()) });
}

/// Hands an object out through `out`, which need not be aligned: Charm++ keeps its registrations in
/// packed structures.
///
/// # Safety
/// `out` is null or has room for a pointer.
unsafe fn give<T, P>(object: T, out: *mut *mut P) -> Result<c_int, c_int> {
    if out.is_null() {
        return Err(err::EINVAL);
    }
    // SAFETY: promised by the caller; checked for null.
    unsafe { out.write_unaligned(Box::into_raw(Box::new(object)).cast()) };
    Ok(0)
}

/// Returns the pieces of a buffer.
///
/// # Safety
/// `iov` points to `count` structures.
unsafe fn pieces<'a>(iov: *const iovec, count: usize) -> Result<&'a [iovec], c_int> {
    if count == 0 {
        return Ok(&[]);
    }
    if iov.is_null() || count > crate::offer::PIECES {
        return Err(err::EINVAL);
    }
    // SAFETY: promised by the caller.
    Ok(unsafe { std::slice::from_raw_parts(iov, count) })
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    unsafe extern "C" fn panics(_: *mut Fid) -> c_int {
        call_int(|| panic!("on purpose"))
    }

    #[test]
    fn call__a_panic_is_an_error_number() {
        let from_c: unsafe extern "C" fn(*mut Fid) -> c_int = panics;
        // SAFETY: the function reads no memory.
        assert_eq!(unsafe { from_c(std::ptr::null_mut()) }, -err::EOTHER);
        assert_eq!(call(|| Ok(7)), 7);
        assert_eq!(call(|| Err(err::EAGAIN)), -(err::EAGAIN as isize));
    }

    #[test]
    fn give__through_a_pointer_in_a_packed_structure() {
        #[repr(C, packed)]
        struct Packed(u8, *mut Fid);
        let mut packed = Packed(0, std::ptr::null_mut());
        let out = std::ptr::addr_of_mut!(packed.1);
        // SAFETY: the structure has room for the pointer, and the box is taken back once.
        unsafe {
            assert_eq!(give(7_u64, out), Ok(0));
            assert_eq!(*Box::from_raw(out.read_unaligned().cast::<u64>()), 7);
        }
    }
}

//! The functions that libfabric calls, and the objects that callers hold. Each function makes
//! references of pointers, calls a function of a safe module, and answers as the interface wants.
//!
//! Every object starts with the structure libfabric knows (`fid`), is allocated in a box, and is
//! handed out as a raw pointer; the caller closes it once. State shared by objects lies in
//! reference counts (`Rc`). They are safe from threads because every function takes the lock of
//! the domain first, or because the caller asked for no lock and promised that one thread at a time
//! comes.

/// Functions that take an object and answer errors as negative numbers: for each kind of object,
/// how a call enters it ([`inside`] or [`outside`] of its lock), and its type; then the functions,
/// of which each has the object, its pointer's type, and other parameters in the order of the
/// interface.
///
/// The caller of each keeps the rules of its manual page: buffers are the provider's until the
/// completion, and lists are as long as the call says.
macro_rules! entries {
    ($how:ident $object:ty: $(
        $(#[$doc:meta])*
        fn $name:ident($it:ident: $head:ty $(, $arg:ident: $type:ty)* $(,)?) -> $ret:ty $body:block
    )*) => {$(
        $(#[$doc])*
        pub(super) unsafe extern "C" fn $name($it: *mut $head $(, $arg: $type)*) -> $ret {
            // SAFETY: the caller keeps the rules of the function's manual page, which are those of
            // the functions that are called here.
            unsafe { $crate::sys::$how::<$object, $ret>($it.cast(), |$it| $body) }
        }
    )*};
}

/// Functions that open an object with flags, of which none is offered.
macro_rules! flagged {
    ($name:ident is $open:ident: $of:ty, $object:ty) => {
        pub(super) unsafe extern "C" fn $name(
            of: *mut $of,
            info: *mut Info,
            out: Out<$object>,
            flags: u64,
            context: Ptr,
        ) -> c_int {
            match flags {
                // SAFETY: as for the function without flags.
                0 => unsafe { $open(of, info, out, context) },
                _ => -err::EBADFLAGS,
            }
        }
    };
}

mod atomic;
mod collective;
mod domain;
mod ep;
mod info;
mod messages;
mod objects;
mod provider;
mod queues;
mod rma;

use crate::abi::{err, Fid, Returned};
use crate::call::call;
use crate::memory::Borrowed;
use libc::{c_char, c_int, c_void};
use objects::Object;

/// An object behind the structure that libfabric has for it.
#[repr(C)]
struct Held<T: Object> {
    head: T::Head,
    object: T,
}

/// Returns the object behind a pointer that libfabric's caller got from this provider.
///
/// # Safety
/// `fid` is null or a live object of this provider.
#[inline]
unsafe fn object<'a, T: Object>(fid: *mut Fid) -> Result<&'a T, c_int> {
    // SAFETY: promised by the caller.
    let found = unsafe { fid.as_ref() }.filter(|f| f.fclass == T::CLASS);
    match found {
        // SAFETY: the class proves the type.
        Some(_) => Ok(unsafe { &(*fid.cast::<Held<T>>()).object }),
        None => Err(err::EINVAL),
    }
}

/// Runs the body of a call with an object, under the lock of its domain.
///
/// # Safety
/// The promise of [`object`].
#[inline]
unsafe fn inside<T: Object, R: Returned>(
    fid: *mut Fid,
    body: impl FnOnce(&T) -> Result<R, c_int>,
) -> R {
    call(|| {
        // SAFETY: promised by the caller.
        let object = unsafe { object::<T>(fid) }?;
        let _inside = match object.lock() {
            Some(lock) => Some(lock.enter()?),
            None => None,
        };
        body(object)
    })
}

/// Runs the body of a call with an object, without the lock of its domain.
///
/// # Safety
/// The promise of [`object`].
#[inline]
unsafe fn outside<T: Object, R: Returned>(
    fid: *mut Fid,
    body: impl FnOnce(&T) -> Result<R, c_int>,
) -> R {
    // SAFETY: promised by the caller.
    call(|| body(unsafe { object::<T>(fid) }?))
}

/// Closes an object.
unsafe extern "C" fn close<T: Object>(fid: *mut Fid) -> c_int {
    call(|| {
        // SAFETY: libfabric's caller closes what it opened, once.
        let object = unsafe { object::<T>(fid) }?;
        let domain = object.domain().cloned();
        let _inside = domain.as_ref().map(|domain| domain.lock.enter()).transpose()?;
        object.close()?;
        // SAFETY: it came from `give`, and nobody uses it any more.
        drop(unsafe { Box::from_raw(fid.cast::<Held<T>>()) });
        Ok(0)
    })
}

/// Hands an object out through `out`, which need not be aligned: Charm++ keeps its registrations in
/// packed structures.
///
/// # Safety
/// `out` is null or has room for a pointer.
unsafe fn give<T: Object>(
    head: T::Head,
    object: T,
    out: *mut *mut T::Head,
) -> Result<c_int, c_int> {
    if out.is_null() {
        return Err(err::EINVAL);
    }
    let held = Box::into_raw(Box::new(Held { head, object }));
    // SAFETY: promised by the caller; checked for null.
    unsafe { out.write_unaligned(held.cast()) };
    Ok(0)
}

/// Copies as much of a text as fits to the caller, with a zero behind it.
///
/// # Safety
/// `buf` is null or has room for `len` bytes.
unsafe fn copy_text(text: &str, buf: *mut c_char, len: usize) {
    if !buf.is_null() && len > 0 {
        // SAFETY: promised by the caller.
        unsafe {
            let fits = text.len().min(len - 1);
            Borrowed::new(buf.cast(), fits).write(text.as_bytes());
            *buf.add(fits) = 0;
        }
    }
}

/// Copies a text to the caller; returns a pointer to a readable copy.
///
/// # Safety
/// The promise of [`copy_text`].
unsafe fn told(text: &str, buf: *mut c_char, len: usize) -> *const c_char {
    // SAFETY: promised by the caller.
    unsafe { copy_text(text, buf, len) };
    match buf.is_null() || len == 0 {
        true => c"see the error number".as_ptr(),
        false => buf,
    }
}

/// Returns the room of a caller for a name: as long as `len` says.
///
/// # Safety
/// `len` is null or points to the size of the memory at `out`, which may be null.
unsafe fn room<'a>(out: *mut c_void, len: *mut usize) -> Result<(Borrowed, &'a mut usize), c_int> {
    // SAFETY: promised by the caller.
    unsafe {
        let len = len.as_mut().ok_or(err::EINVAL)?;
        Ok((Borrowed::new(out, if out.is_null() { 0 } else { *len }), len))
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::objects::Fabric;
    use super::*;
    use crate::abi::{FiOps, FiOpsFabric, FidFabric};

    #[test]
    fn give__through_a_pointer_in_a_packed_structure() {
        #[repr(C, packed)]
        struct Packed(u8, *mut FidFabric);
        let mut packed = Packed(0, std::ptr::null_mut());
        let out = std::ptr::addr_of_mut!(packed.1);
        let fid = Fid { fclass: 1, context: std::ptr::null_mut(), ops: &FiOps::NONE };
        let head = FidFabric { fid, ops: &FiOpsFabric::NONE, api_version: 7 };
        // SAFETY: the structure has room for the pointer, and the object is closed once.
        unsafe {
            assert_eq!(give(head, Fabric { api: 7 }, out), Ok(0));
            let fid = out.read_unaligned().cast();
            assert_eq!(object::<Fabric>(fid).map(|fabric| fabric.api), Ok(7));
            assert_eq!(close::<Fabric>(fid), 0);
        }
    }
}

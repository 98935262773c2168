//! Functions that are found at run time.

use std::ffi::{CStr, CString};
use std::os::fd::AsRawFd;

/// A function that receives.
#[derive(Clone, Copy)]
pub struct Found(*mut libc::c_void);

impl Found {
    /// Calls it; returns the bytes.
    pub fn recv(self, fd: &impl AsRawFd, space: usize) -> Vec<u8> {
        type Recv = unsafe extern "C" fn(i32, *mut u8, usize, i32) -> isize;
        let mut bytes = vec![0; space];
        let (at, flags) = (bytes.as_mut_ptr(), libc::MSG_DONTWAIT);
        assert!(!self.0.is_null(), "there is no such function");
        // SAFETY: a function of this type; space for so many bytes.
        let got = unsafe {
            std::mem::transmute::<*mut libc::c_void, Recv>(self.0)(fd.as_raw_fd(), at, space, flags)
        };
        bytes.truncate(got.max(0) as usize);
        bytes
    }
}

/// A library that was opened.
pub struct Library(*mut libc::c_void);

/// Opens a library.
pub fn open(path: &str, flags: i32) -> Library {
    let path = CString::new(path).unwrap();
    // SAFETY: a C string.
    let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
    assert!(!handle.is_null(), "{path:?} cannot be opened");
    Library(handle)
}

impl Library {
    /// Finds a function.
    pub fn find(&self, name: &CStr) -> Found {
        // SAFETY: a handle and a C string.
        Found(unsafe { libc::dlsym(self.0, name.as_ptr()) })
    }

    /// Finds a function of a version.
    pub fn find_version(&self, name: &CStr, version: &CStr) -> Found {
        // SAFETY: as above.
        Found(unsafe { libc::dlvsym(self.0, name.as_ptr(), version.as_ptr()) })
    }
}

//! The functions of the PMIx client library that start-up needs, loaded at run time.
//!
//! Layouts and numbers follow `pmix_common.h`; they are the same in PMIx 3, 4, 5 and 6.

use libloading::os::unix::{Library as Loaded, RTLD_NOW};
use libloading::Library;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::mem::MaybeUninit;
use std::ptr;

/// Length of `pmix_nspace_t`: `PMIX_MAX_NSLEN + 1`.
const NSPACE_LEN: usize = 256;
/// Length of `pmix_key_t`: `PMIX_MAX_KEYLEN + 1`.
const KEY_LEN: usize = 512;
const SUCCESS: c_int = 0;
/// `PMIX_BOOL`.
const TYPE_BOOL: u16 = 1;
/// `PMIX_UINT32`.
const TYPE_UINT32: u16 = 14;
/// `PMIX_BYTE_OBJECT`.
const TYPE_BYTES: u16 = 27;
/// `PMIX_GLOBAL`.
const SCOPE_GLOBAL: u8 = 3;

/// `PMIX_COLLECT_DATA`.
const COLLECT: &str = "pmix.collect";

/// `PMIX_RANK_WILDCARD`: the job itself rather than one of its ranks.
pub(crate) const RANK_JOB: u32 = u32::MAX - 1;

/// `PMIX_ERR_NOT_FOUND`.
pub(crate) const NOT_FOUND: i32 = -46;

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone)]
struct Proc {
    nspace: [c_char; NSPACE_LEN],
    rank: u32,
}

/// `pmix_byte_object_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ByteObject {
    bytes: *mut c_char,
    size: usize,
}

/// The union of `pmix_value_t`; `room` is at least as large as its largest member,
/// `pmix_envar_t`, which has two pointers and a character.
#[repr(C)]
union Data {
    flag: bool,
    uint32: u32,
    bytes: ByteObject,
    room: [usize; 3],
}

/// `pmix_value_t`.
#[repr(C)]
struct Value {
    kind: u16,
    data: Data,
}

/// `pmix_info_t`.
#[repr(C)]
struct Info {
    key: [c_char; KEY_LEN],
    flags: u32,
    value: Value,
}

type Init = unsafe extern "C" fn(*mut Proc, *mut c_void, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const c_void, usize) -> c_int;
type Abort = unsafe extern "C" fn(c_int, *const c_char, *mut Proc, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Proc, usize, *const Info, usize) -> c_int;
type Get = unsafe extern "C" fn(
    *const Proc,
    *const c_char,
    *const c_void,
    usize,
    *mut *mut Value,
) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// A call that failed: function and status.
pub(crate) type Failed = (&'static str, i32);

/// A value got from PMIx.
pub(crate) enum Got {
    /// `PMIX_UINT32`.
    Number(u32),
    /// `PMIX_BYTE_OBJECT`.
    Bytes(Vec<u8>),
    /// A type this module does not use.
    Other,
}

/// The loaded library and this process's identity in it.
pub(crate) struct Client {
    me: Proc,
    finalize: Finalize,
    abort: Abort,
    put: Put,
    commit: Commit,
    fence: Fence,
    get: Get,
    error_string: ErrorString,
    // Never unloaded: the library keeps threads of its own.
    _library: &'static Library,
}

fn key(name: &str) -> Result<[c_char; KEY_LEN], Failed> {
    let mut out = [0; KEY_LEN];
    if name.len() >= KEY_LEN || name.contains('\0') {
        return Err(("key", NOT_FOUND));
    }
    for (to, from) in out.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    Ok(out)
}

fn check(call: &'static str, status: c_int) -> Result<(), Failed> {
    if status == SUCCESS {
        Ok(())
    } else {
        Err((call, status))
    }
}

/// Opens the library by `name`, a file name or a path.
pub(crate) fn open(name: &str) -> Result<Library, String> {
    // SAFETY: loading runs the initialisers of libpmix and the libraries it needs, which expect
    // nothing of the program; the name comes from the user or is the library's own.
    unsafe { Library::new(name) }.map_err(|error| error.to_string())
}

fn symbol<T: Copy>(library: &'static Library, name: &'static str) -> Result<T, String> {
    // SAFETY: every caller names a function of the PMIx standard and gives `T` as its type.
    unsafe { library.get::<T>(name.as_bytes()) }.map(|s| *s).map_err(|error| error.to_string())
}

/// True if Open MPI was used in this process and has been left (`MPI_Finalize`).
pub(crate) fn has_mpi_left() -> bool {
    /// `dlopen` finds a library that is loaded already, and loads none.
    const LOADED: c_int = libc::RTLD_NOLOAD;
    type Finalized = unsafe extern "C" fn(*mut c_int) -> c_int;
    // SAFETY: nothing is loaded, so no initialiser runs.
    let library = unsafe { Loaded::open(Some("libmpi.so.40"), RTLD_NOW | LOADED) };
    let Ok(library) = library else { return false };
    let mut has_left = 0;
    // SAFETY: MPI has this function of this type, which may be called at any time.
    unsafe {
        let ask = library.get::<Finalized>(b"MPI_Finalized").map(|finalized| *finalized);
        ask.is_ok_and(|finalized| finalized(&raw mut has_left) == 0) && has_left != 0
    }
}

impl Client {
    /// Finds the functions in `library` and calls `PMIx_Init`.
    ///
    /// The outer error is a missing function, the inner one the failed call with its text.
    pub(crate) fn init(library: Library) -> Result<Result<Self, (Failed, String)>, String> {
        let library: &'static Library = Box::leak(Box::new(library));
        let init: Init = symbol(library, "PMIx_Init")?;
        let mut client = Client {
            me: Proc { nspace: [0; NSPACE_LEN], rank: 0 },
            finalize: symbol(library, "PMIx_Finalize")?,
            abort: symbol(library, "PMIx_Abort")?,
            put: symbol(library, "PMIx_Put")?,
            commit: symbol(library, "PMIx_Commit")?,
            fence: symbol(library, "PMIx_Fence")?,
            get: symbol(library, "PMIx_Get")?,
            error_string: symbol(library, "PMIx_Error_string")?,
            _library: library,
        };
        // SAFETY: `me` is a whole pmix_proc_t; a null info array of length 0 is allowed.
        let status = unsafe { init(&mut client.me, ptr::null_mut(), 0) };
        Ok(match check("PMIx_Init", status) {
            Ok(()) => Ok(client),
            Err(failed) => Err((failed, client.text(status))),
        })
    }

    /// Returns the library's text for a status.
    pub(crate) fn text(&self, status: i32) -> String {
        // SAFETY: PMIx_Error_string takes any number.
        let text = unsafe { (self.error_string)(status) };
        if text.is_null() {
            return "unknown error".into();
        }
        // SAFETY: the library returns a NUL-terminated constant.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Returns the job's namespace.
    pub(crate) fn nspace(&self) -> String {
        let bytes: Vec<u8> =
            self.me.nspace.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the rank of this process.
    pub(crate) fn rank(&self) -> u32 {
        self.me.rank
    }

    /// Puts bytes for all ranks and commits them to the local server.
    pub(crate) fn put(&self, name: &str, bytes: &mut [u8]) -> Result<(), Failed> {
        let key = key(name)?;
        // Zeroed whole, so that a library reading a larger member of the union reads zeros.
        let mut value = Value { kind: TYPE_BYTES, data: Data { room: [0; 3] } };
        value.data.bytes = ByteObject { bytes: bytes.as_mut_ptr().cast(), size: bytes.len() };
        // SAFETY: the key is NUL-terminated and `value` describes `bytes`, which the library copies
        // before it returns.
        check("PMIx_Put", unsafe { (self.put)(SCOPE_GLOBAL, key.as_ptr(), &mut value) })?;
        // SAFETY: PMIx_Commit takes no arguments.
        check("PMIx_Commit", unsafe { (self.commit)() })
    }

    /// Waits for all ranks of the job, and has their values collected on this host: a later request
    /// to a rank of another host may not find them (Slurm 22.05, every second time).
    pub(crate) fn fence(&self) -> Result<(), Failed> {
        // Zeroed whole, as in `put`.
        let mut value = Value { kind: TYPE_BOOL, data: Data { room: [0; 3] } };
        value.data.flag = true;
        let collect = Info { key: key(COLLECT)?, flags: 0, value };
        // SAFETY: a null array of length 0 means all ranks; the one option is whole, and lives
        // until the call returns.
        check("PMIx_Fence", unsafe { (self.fence)(ptr::null(), 0, &collect, 1) })
    }

    /// Gets a value of `rank`, or of the job for [`RANK_JOB`].
    pub(crate) fn get(&self, rank: u32, name: &str) -> Result<Got, Failed> {
        let key = key(name)?;
        let proc = Proc { nspace: self.me.nspace, rank };
        let mut value = MaybeUninit::<*mut Value>::new(ptr::null_mut());
        // SAFETY: `proc` and `key` are whole and terminated, `value` has room for the pointer.
        let status = unsafe { (self.get)(&proc, key.as_ptr(), ptr::null(), 0, value.as_mut_ptr()) };
        check("PMIx_Get", status)?;
        // SAFETY: it was initialised with null above, and on success the library stored a pointer.
        let value = unsafe { value.assume_init() };
        if value.is_null() {
            return Err(("PMIx_Get", NOT_FOUND));
        }
        // SAFETY: on success the library returns one pmix_value_t that the caller owns.
        Ok(unsafe { take(value) })
    }

    /// Asks the launcher to end the whole job.
    pub(crate) fn abort(&self, code: i32, message: &str) -> Result<(), Failed> {
        let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the message is NUL-terminated; a null process array means the whole job.
        let status = unsafe { (self.abort)(code, message.as_ptr(), ptr::null_mut(), 0) };
        check("PMIx_Abort", status)
    }

    /// Leaves the job.
    pub(crate) fn finalize(&self) -> Result<(), Failed> {
        // SAFETY: a null info array of length 0 is allowed.
        check("PMIx_Finalize", unsafe { (self.finalize)(ptr::null(), 0) })
    }
}

/// Copies a value out and frees it.
///
/// # Safety
/// `value` must come from `PMIx_Get` and is not used afterwards.
unsafe fn take(value: *mut Value) -> Got {
    // SAFETY: the caller passes a valid value, and `kind` says which member of the union is set.
    // The byte object and the value were made by malloc, which the PMIx standard has callers free.
    unsafe {
        let got = match (*value).kind {
            TYPE_UINT32 => Got::Number((*value).data.uint32),
            TYPE_BYTES => {
                let object = (*value).data.bytes;
                let mut bytes = Vec::new();
                if !object.bytes.is_null() {
                    bytes.extend_from_slice(std::slice::from_raw_parts(
                        object.bytes.cast::<u8>(),
                        object.size,
                    ));
                    libc::free(object.bytes.cast());
                }
                Got::Bytes(bytes)
            }
            _ => Got::Other,
        };
        libc::free(value.cast());
        got
    }
}

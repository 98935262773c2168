//! Loading libraries to probe them, and waiting for signals.
#![allow(unsafe_code)]

use crate::sys::end_with;
use rustix::process::Signal;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A loaded library; it stays loaded until this process ends.
#[derive(Clone, Copy)]
pub struct Library(*mut c_void);

/// Longest text taken from a library, in bytes.
const TEXT_MAX: usize = 8192;

/// Returns the last error of the loader.
fn loader_error() -> String {
    // SAFETY: dlerror returns a C string that stays valid until this thread's next call of the
    // loader, or null.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            "unknown".into()
        } else {
            CStr::from_ptr(text).to_string_lossy().into()
        }
    }
}

/// Returns at most `TEXT_MAX` bytes of a C string.
///
/// # Safety
/// `text` must be null or a C string.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: promised by the caller.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_MAX)]).into_owned()
}

impl Library {
    /// Loads a library and makes its symbols visible to later ones. Its constructors run, so this
    /// is for a process of its own.
    ///
    /// # Errors
    /// The error of the loader.
    pub fn open(path: &Path, now: bool) -> Result<Library, String> {
        let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
            return Err("a zero byte in the path".into());
        };
        let flags = libc::RTLD_GLOBAL | if now { libc::RTLD_NOW } else { libc::RTLD_LAZY };
        // SAFETY: the path is a C string. The library's constructors are code that we cannot vouch
        // for; this process exists to run them apart from others.
        let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
        if handle.is_null() {
            Err(loader_error())
        } else {
            Ok(Library(handle))
        }
    }

    fn symbol(self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open, as none is ever closed, and the name a C string.
        let at = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!at.is_null()).then_some(at)
    }

    /// Returns the version text of an MPI library (`MPI_Get_library_version`, allowed before
    /// `MPI_Init`).
    pub fn mpi_version(self) -> Option<String> {
        let at = self.symbol(c"MPI_Get_library_version")?;
        let mut buffer = vec![0 as c_char; 4 * TEXT_MAX];
        let mut len: c_int = 0;
        // SAFETY: the function of this name has this type in every MPI, and writes at most
        // MPI_MAX_LIBRARY_VERSION_STRING bytes: 8192 in MPICH, 256 in Open MPI.
        let code = unsafe {
            let call: extern "C" fn(*mut c_char, *mut c_int) -> c_int = std::mem::transmute(at);
            call(buffer.as_mut_ptr(), &raw mut len)
        };
        buffer[4 * TEXT_MAX - 1] = 0;
        // SAFETY: the buffer ends with a zero.
        (code == 0).then(|| unsafe { text(buffer.as_ptr()) })
    }

    /// Returns the version of a libfabric, as packed by `FI_VERSION`.
    pub fn libfabric_version(self) -> Option<u32> {
        let at = self.symbol(c"fi_version")?;
        // SAFETY: the function of this name has this type in every libfabric.
        Some(unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> u32>(at) }())
    }

    /// Returns names and versions of the providers that a libfabric offers in this environment. The
    /// error is that of `fi_getinfo`.
    pub fn providers(self) -> Result<Vec<(String, u32)>, i32> {
        type GetInfo = extern "C" fn(
            u32,
            *const c_char,
            *const c_char,
            u64,
            *const c_void,
            *mut *mut Info,
        ) -> c_int;
        let (Some(version), Some(at)) = (self.libfabric_version(), self.symbol(c"fi_getinfo"))
        else {
            return Err(libc::ENOSYS);
        };
        let mut list: *mut Info = std::ptr::null_mut();
        // SAFETY: the function of this name has this type in every libfabric; the call gives no
        // hints, so every pointer but that of the result may be null.
        let code = unsafe {
            let call: GetInfo = std::mem::transmute(at);
            call(version, std::ptr::null(), std::ptr::null(), 0, std::ptr::null(), &raw mut list)
        };
        if code != 0 {
            return Err(code.saturating_neg());
        }
        let mut found = Vec::new();
        while !list.is_null() && found.len() < 1000 {
            // SAFETY: libfabric returned a list of these, which is never freed here; the fields
            // read are at these places in every version.
            unsafe {
                let attr = (*list).fabric_attr;
                if !attr.is_null() {
                    found.push((text((*attr).prov_name), (*attr).prov_version));
                }
                list = (*list).next;
            }
        }
        Ok(found)
    }

    /// Returns the name of a provider (`fi_prov_ini`), and its version of weft; `None` for other
    /// providers.
    pub fn provider(self) -> Option<(String, Option<String>)> {
        let at = self.symbol(c"fi_prov_ini")?;
        // SAFETY: the function of this name has this type in every provider, and returns a static
        // structure or null.
        let name = unsafe {
            let call: extern "C" fn() -> *const Provider = std::mem::transmute(at);
            text(call().as_ref()?.name)
        };
        let version = self.symbol(c"weft_provider_version").map(|at| {
            // SAFETY: only weft's provider has a function of this name; it returns a C string.
            unsafe {
                let call: extern "C" fn() -> *const c_char = std::mem::transmute(at);
                text(call())
            }
        });
        Some((name, version))
    }
}

/// Ends this process at once, without the exit handlers of libraries.
pub fn leave() -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// The beginning of libfabric's `struct fi_info` (rdma/fabric.h, 1.0 to 2.6).
#[repr(C)]
struct Info {
    next: *mut Info,
    /// Capabilities, mode, address format and lengths, addresses, handle.
    _middle: [u64; 8],
    /// Attributes of transmission, reception, endpoint and domain.
    _attr: [*mut c_void; 4],
    fabric_attr: *const FabricAttr,
}

/// The beginning of `struct fi_fabric_attr`.
#[repr(C)]
struct FabricAttr {
    _fabric: *mut c_void,
    _name: *const c_char,
    prov_name: *const c_char,
    prov_version: u32,
}

/// The beginning of `struct fi_provider` (rdma/providers/fi_prov.h).
#[repr(C)]
struct Provider {
    _version: u32,
    _fi_version: u32,
    _context: [u64; 4],
    name: *const c_char,
}

/// The end of a wait for signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// No signal in time.
    Timeout,
    /// A child changed its state.
    Child,
    /// A signal that a process sent to this one alone.
    Sent(i32),
    /// A signal of the terminal, which the whole foreground group received.
    Terminal,
}

/// Signals that end or control a job.
const HANDLED: [c_int; 7] = [
    libc::SIGCHLD,
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

fn handled() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set; the numbers are signals.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in HANDLED {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Blocks the signals that [`wait`] returns. Must be called before other threads start.
pub fn hold() {
    // SAFETY: the set is initialised; the old set is not requested.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &handled(), std::ptr::null_mut()) };
}

/// Waits for one of the blocked signals.
pub fn wait(limit: Duration) -> Woken {
    let time = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: limit.subsec_nanos().into(),
    };
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: set and time are initialised, and the kernel writes one siginfo.
    let signal = unsafe { libc::sigtimedwait(&handled(), info.as_mut_ptr(), &raw const time) };
    // SAFETY: all zeros is a valid siginfo, and so is the one that the kernel wrote.
    let code = unsafe { info.assume_init() }.si_code;
    match signal {
        libc::SIGCHLD => Woken::Child,
        // Sent by the kernel: a key at the terminal, or its hangup.
        1.. if code > 0 => Woken::Terminal,
        1.. => Woken::Sent(signal),
        _ => Woken::Timeout,
    }
}

/// Prepares the process that `command` will start: it gets SIGTERM when this one dies, so that a
/// launcher ends its ranks, and none of this process's blocked signals stay blocked.
pub fn end_with_us(command: &mut Command) {
    let parent = rustix::process::getpid();
    let setup = move || {
        // SAFETY: the set is initialised; the old set is not requested.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &handled(), std::ptr::null_mut()) };
        end_with(parent, Signal::TERM)
    };
    // SAFETY: the closure only makes system calls; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(setup) };
}

//! The binary interface. Each function checks its pointers as far as possible, lets no panic out
//! and returns one of the codes below.

pub mod collective;
pub mod comm;
pub mod crl;
pub mod gather;
pub mod job;
mod mapped;
pub mod member;
pub mod message;
pub mod names;
pub mod packet;
pub mod receive;
pub mod remote;
pub mod request;
#[cfg(test)]
mod tests;
mod watchdog;

use job::WeftJob;
use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{compiler_fence, AtomicBool, Ordering};
use weft::endpoint::ChoiceError;

/// Success.
pub const WEFT_OK: c_int = 0;
/// No room now: try again after `weft_poll` or `weft_wait`.
pub const WEFT_BUSY: c_int = -1;
/// A rank failed; `weft_last_error` names it.
pub const WEFT_PEER: c_int = -2;
/// The other side refused: key, bounds or rights are wrong, or its memory is not there any more; or
/// a choice forbids it.
pub const WEFT_REFUSED: c_int = -3;
/// An argument is wrong: `weft_last_error` says which one.
pub const WEFT_ARGUMENT: c_int = -4;
/// Longer than a packet (see `weft_packet_max`), or than the memory of a receive.
pub const WEFT_TOO_LONG: c_int = -5;
/// Too many of them: packets kept, regions or groups; or more memory than the machine has.
pub const WEFT_TOO_MANY: c_int = -6;
/// An agent is chosen and there is none.
pub const WEFT_NO_AGENT: c_int = -7;
/// The job could not be joined.
pub const WEFT_INIT: c_int = -8;
/// A fault in weft itself: a panic was caught at the interface.
pub const WEFT_PANIC: c_int = -9;
/// Called from another thread than the one that called `weft_init`, and from no upcall.
pub const WEFT_THREAD: c_int = -10;
/// Not to be called from an upcall, as it waits.
pub const WEFT_UPCALL: c_int = -11;
/// A receive was cancelled before it matched a message.
pub const WEFT_CANCELLED: c_int = -12;
/// Called by a signal handler that interrupted another call.
pub const WEFT_SIGNAL: c_int = -13;

/// Codes and their texts for `weft_strerror`.
const CODES: &[(c_int, &std::ffi::CStr)] = &[
    (WEFT_OK, c"success"),
    (WEFT_BUSY, c"no room now: try again after weft_poll or weft_wait"),
    (WEFT_PEER, c"a rank failed"),
    (WEFT_REFUSED, c"refused"),
    (WEFT_ARGUMENT, c"an argument is wrong"),
    (WEFT_TOO_LONG, c"longer than a packet, or than there is room for"),
    (WEFT_TOO_MANY, c"too many, or too much"),
    (WEFT_NO_AGENT, c"an agent is chosen, and none serves this process"),
    (WEFT_INIT, c"the job could not be joined"),
    (WEFT_PANIC, c"a fault in weft itself"),
    (WEFT_THREAD, c"called from another thread than weft_init"),
    (WEFT_UPCALL, c"not to be called from an upcall, as it waits"),
    (WEFT_CANCELLED, c"the receive was cancelled before it matched a message"),
    (WEFT_SIGNAL, c"called by a signal handler that interrupted another call of weft"),
];

/// The reason why a function failed: its code, and the text for `weft_last_error`.
pub(crate) struct Fault(pub c_int, pub String);

impl Fault {
    pub fn argument(what: impl Into<String>) -> Fault {
        Fault(WEFT_ARGUMENT, what.into())
    }
}

impl From<ChoiceError> for Fault {
    fn from(error: ChoiceError) -> Fault {
        let code = match error {
            ChoiceError::Begun => WEFT_BUSY,
            _ => WEFT_REFUSED,
        };
        Fault(code, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
    /// True while this thread is in a function of this interface, and not in an upcall.
    static INSIDE: AtomicBool = const { AtomicBool::new(false) };
    /// Number of the calls in this thread so far, and of the ends of upcalls.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of the program's present call: another one after the program has run.
pub(crate) fn call() -> u64 {
    CALLS.with(Cell::get) | u64::from(watchdog::is_this_thread()) << 63
}

fn count_call() {
    CALLS.with(|calls| calls.set(calls.get() + 1));
}

/// Runs the body of a function; returns its number, or the code of its fault. A signal handler that
/// interrupts a function and calls another gets a code and no text: what the other needs may be in
/// the middle of a change, and memory cannot be allocated there.
pub(crate) fn enter(body: impl FnOnce() -> Result<c_int, Fault>) -> c_int {
    enter_with(|| run(body))
}

fn enter_with(body: impl FnOnce() -> c_int) -> c_int {
    INSIDE.with(|inside| {
        if inside.load(Ordering::Relaxed) {
            return WEFT_SIGNAL;
        }
        inside.store(true, Ordering::Relaxed);
        // Only handlers in this thread look, so that the compiler's order is the order.
        compiler_fence(Ordering::SeqCst);
        let code = body();
        compiler_fence(Ordering::SeqCst);
        inside.store(false, Ordering::Relaxed);
        code
    })
}

/// Runs the body of a function that uses no job: it may wait, and a watchdog goes on meanwhile.
pub(crate) fn enter_apart(body: impl FnOnce() -> Result<c_int, Fault>) -> c_int {
    enter_with(|| finish(catch_unwind(AssertUnwindSafe(body))))
}

/// Runs an upcall, which may call functions.
pub(crate) fn outside(upcall: impl FnOnce()) {
    INSIDE.with(|inside| {
        compiler_fence(Ordering::SeqCst);
        inside.store(false, Ordering::Relaxed);
        upcall();
        count_call();
        inside.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    });
}

fn run(body: impl FnOnce() -> Result<c_int, Fault>) -> c_int {
    let gate = watchdog::hold();
    count_call();
    let result = catch_unwind(AssertUnwindSafe(body));
    drop(gate);
    finish(result)
}

/// Returns the number of a body, or the code of its fault, and keeps the fault's text.
fn finish(result: std::thread::Result<Result<c_int, Fault>>) -> c_int {
    let fault = match result {
        Ok(Ok(number)) => return number,
        Ok(Err(fault)) => fault,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Fault(WEFT_PANIC, format!("a fault in weft: {}", text.unwrap_or("no text")))
        }
    };
    let text = CString::new(fault.1.replace('\0', " ")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
    fault.0
}

/// Returns the meaning of a code.
#[no_mangle]
pub extern "C" fn weft_strerror(code: c_int) -> *const c_char {
    let found = CODES.iter().find(|(of, _)| *of == code);
    found.map_or(c"no such code", |(_, text)| text).as_ptr()
}

/// Returns details of the last call of this thread that failed, valid until the next one that
/// fails; for a failed rank its number, host, link, interface and addresses, the reason, and the
/// next step for the user.
#[no_mangle]
pub extern "C" fn weft_last_error() -> *const c_char {
    // A signal handler may interrupt the change of the text.
    LAST.with(|last| last.try_borrow().map_or(c"".as_ptr(), |last| last.as_ptr()))
}

/// The head of each object that this interface makes: its type, and its job. Anything else,
/// including a freed object, most likely has other bytes there.
pub(crate) struct Head {
    mark: u64,
    job: *const WeftJob,
    /// Number of calls that use the object now: upcalls run inside of calls that wait.
    uses: Cell<u32>,
}

impl Head {
    /// Makes the head of an object of a job; of a job itself `job` is null.
    pub fn new<T: Object>(job: *const WeftJob) -> Head {
        Head { mark: T::MARK, job, uses: Cell::new(0) }
    }

    /// Returns true if both are objects of one job.
    pub fn has_job_of(&self, other: &Head) -> bool {
        self.job == other.job
    }

    /// True if a call that has not returned uses the object.
    pub fn is_used(&self) -> bool {
        self.uses.get() > 0
    }
}

/// An object that a call uses until this is dropped: no upcall inside of the call frees it.
pub(crate) struct Used<'a, T: Object>(&'a T);

impl<'a, T: Object> Used<'a, T> {
    pub fn new(object: &'a T) -> Used<'a, T> {
        let uses = &object.head().uses;
        uses.set(uses.get() + 1);
        Used(object)
    }

    /// # Errors
    /// An outer call uses the object too.
    pub fn alone(&self) -> Result<(), Fault> {
        match self.0.head().uses.get() {
            1 => Ok(()),
            _ => Err(in_use(T::NAME)),
        }
    }
}

impl<T: Object> std::ops::Deref for Used<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T: Object> Drop for Used<'_, T> {
    fn drop(&mut self) {
        let uses = &self.0.head().uses;
        uses.set(uses.get() - 1);
    }
}

/// Returns the fault of an upcall that would end what an outer call waits for.
pub(crate) fn in_use(name: &str) -> Fault {
    Fault::argument(format!("{name}: the call in which this upcall runs uses it"))
}

impl Drop for Head {
    fn drop(&mut self) {
        // SAFETY: its own field. Volatile, because the compiler sees no later read and could drop
        // the write.
        unsafe { (&raw mut self.mark).write_volatile(0) };
    }
}

/// An object that programs have a pointer to.
pub(crate) trait Object {
    /// The mark of a living object.
    const MARK: u64;
    /// Name in messages to people.
    const NAME: &'static str;
    fn head(&self) -> &Head;
}

/// Makes a type with the field `head` an object: its name, and eight letters as its mark.
macro_rules! is_object {
    ($kind:ty, $name:literal, $mark:literal) => {
        impl $crate::sys::Object for $kind {
            const MARK: u64 = u64::from_be_bytes(*$mark);
            const NAME: &'static str = $name;

            fn head(&self) -> &$crate::sys::Head {
                &self.head
            }
        }
    };
}
pub(crate) use is_object;

/// Returns the object behind a pointer.
///
/// # Safety
/// The pointer is null, misaligned or names memory of at least the object's size.
pub(crate) unsafe fn object<'a, T: Object>(pointer: *const T) -> Result<&'a T, Fault> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(Fault::argument(format!("{} is null or misaligned", T::NAME)));
    }
    // SAFETY: not null, aligned, and promised by the caller to be there.
    let object = unsafe { &*pointer };
    match object.head().mark == T::MARK {
        true => Ok(object),
        false => Err(Fault::argument(format!("{} is not one, or was freed", T::NAME))),
    }
}

/// Frees an object of a caller.
///
/// # Errors
/// The pointer is none, its job belongs to another thread, or an outer call uses it.
///
/// # Safety
/// The caller keeps the rules of `object`, and nobody uses the object afterwards.
pub(crate) unsafe fn free<T: Object>(pointer: *mut T) -> Result<c_int, Fault> {
    // SAFETY: promised by the caller.
    unsafe { object_of(pointer.cast_const()) }?.0.alone()?;
    // SAFETY: made by `Box::into_raw`, and checked to be alive.
    drop(unsafe { Box::from_raw(pointer) });
    Ok(WEFT_OK)
}

/// Returns the caller's bytes.
///
/// # Safety
/// `data..data + len` is readable and unchanged for `'a`.
pub(crate) unsafe fn bytes<'a>(data: *const u8, len: usize) -> Result<&'a [u8], Fault> {
    match (data.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Fault::argument("data is null")),
        _ => {
            mapped::check_len(data.cast(), len)?;
            // SAFETY: promised by the caller; a slice is never longer than `isize::MAX`.
            Ok(unsafe { std::slice::from_raw_parts(data, len) })
        }
    }
}

/// Stores a result.
///
/// # Safety
/// `out` is null, misaligned or points to memory that takes a `T`.
pub(crate) unsafe fn store<T>(out: *mut T, value: T) -> Result<(), Fault> {
    if out.is_null() || !out.is_aligned() {
        return Err(Fault::argument("the place for the result is null or misaligned"));
    }
    // SAFETY: not null, aligned, and promised by the caller to be there.
    unsafe { out.write(value) };
    Ok(())
}

/// Returns the object behind a pointer, for this call to use, and its job if the calling thread may
/// use it.
///
/// # Safety
/// The caller keeps the rules of [`object`]; an object lives no longer than its job.
pub(crate) unsafe fn object_of<'a, T: Object>(
    pointer: *const T,
) -> Result<(Used<'a, T>, &'a WeftJob), Fault> {
    // SAFETY: promised by the caller.
    let object = unsafe { object(pointer) }?;
    // SAFETY: as before.
    Ok((Used::new(object), unsafe { job_of(object.head().job) }?))
}

/// Returns a job if the calling thread may use it.
///
/// # Safety
/// The caller keeps the rules of [`object`].
pub(crate) unsafe fn job_of<'a>(job: *const WeftJob) -> Result<&'a WeftJob, Fault> {
    // SAFETY: promised by the caller.
    let job = unsafe { object(job) }?;
    job.check_thread()?;
    Ok(job)
}

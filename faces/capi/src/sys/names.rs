//! Names of a cluster: claims, look-ups, subscriptions and messages, beside jobs.

use super::{bytes, is_object, job_of, object, store, Fault, Head, Object};
use super::{enter, enter_apart};
use super::{
    WEFT_ARGUMENT, WEFT_NO_AGENT, WEFT_OK, WEFT_PEER, WEFT_REFUSED, WEFT_THREAD, WEFT_TOO_LONG,
};
use crate::job::WeftJob;
use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void, CStr};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::thread::ThreadId;
use std::time::Duration;
use weft::names::{Binding, Event, Mode, Name, NameError, NameEvent, Names, NamesError};
use weft::names::{Notice, Pick, Spec, Watch};

/// An owner of this host, if there is one; otherwise by turns.
pub const WEFT_NAMES_NEAREST: c_int = 0;
/// One of all owners, by turns.
pub const WEFT_NAMES_TURN: c_int = 1;
/// A claim excludes other owners.
pub const WEFT_NAMES_UNIQUE: c_int = 1;
/// A claim is seen on its host alone.
pub const WEFT_NAMES_ON_HOST: c_int = 2;
/// The owner takes messages to the name.
pub const WEFT_NAMES_MESSAGES: c_int = 4;
/// An event: a name is there.
pub const WEFT_NAMES_PUBLISHED: c_int = 1;
/// An event: a name is gone.
pub const WEFT_NAMES_WITHDRAWN: c_int = 2;
/// An event: all names that there were have been told.
pub const WEFT_NAMES_ALL: c_int = 3;
/// An event: events were missed; the differences follow.
pub const WEFT_NAMES_MISSED: c_int = 4;
/// An event: the subscription's time is over.
pub const WEFT_NAMES_TIMEOUT: c_int = 5;
/// An event: others ended a claim of this program.
pub const WEFT_NAMES_LOST: c_int = 6;
/// An event: a message.
pub const WEFT_NAMES_MESSAGE: c_int = 7;
/// An event: a message of this program came back.
pub const WEFT_NAMES_RETURNED: c_int = 8;

/// Longest wait for a function that waits for ever.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// An owner of a name: `struct weft_owner`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeftOwner {
    kind: u32,
    lower: u32,
    upper: u32,
    user: u32,
    process: u32,
    is_here: c_int,
    host: u64,
    endpoint: u64,
    name: [c_char; 96],
    address: [c_char; 64],
}

/// An event: `struct weft_names_event`.
#[repr(C)]
pub struct WeftNamesEvent {
    kind: c_int,
    number: u64,
    owner: WeftOwner,
    cause: [c_char; 160],
    data: *const c_void,
    len: usize,
}

/// A connection to the agent: `struct weft_names`.
pub struct WeftNames {
    head: Head,
    thread: ThreadId,
    pub(super) names: RefCell<Names>,
    /// The message of the last event.
    message: RefCell<Vec<u8>>,
    /// Number of the last message that was sent.
    sent: Cell<u64>,
}

/// A subscription: `struct weft_names_watch`.
pub struct WeftNamesWatch {
    head: Head,
    thread: ThreadId,
    watch: RefCell<Watch>,
    here: u64,
}

is_object!(WeftNames, "names", b"weftname");
is_object!(WeftNamesWatch, "the watch", b"weftwtch");

impl From<NamesError> for Fault {
    fn from(error: NamesError) -> Fault {
        let code = match error {
            NamesError::Name(_) => WEFT_ARGUMENT,
            NamesError::Absent { .. } | NamesError::Ended(_) => WEFT_NO_AGENT,
            _ => WEFT_REFUSED,
        };
        Fault(code, error.to_string())
    }
}

pub(super) fn put(text: &str, to: &mut [c_char]) {
    let len = text.len().min(to.len() - 1);
    for (to, byte) in to.iter_mut().zip(&text.as_bytes()[..len]) {
        *to = *byte as c_char;
    }
}

impl WeftOwner {
    pub(super) const NONE: WeftOwner = WeftOwner {
        kind: 0,
        lower: 0,
        upper: 0,
        user: 0,
        process: 0,
        is_here: 0,
        host: 0,
        endpoint: 0,
        name: [0; 96],
        address: [0; 64],
    };

    pub(super) fn of(binding: &Binding, here: u64) -> WeftOwner {
        let claim = &binding.name;
        let mut owner = WeftOwner {
            kind: claim.kind,
            lower: claim.lower,
            upper: claim.upper,
            user: claim.owner.user,
            process: claim.owner.process,
            is_here: c_int::from(binding.id.host.0 == here),
            host: binding.id.host.0,
            endpoint: claim.endpoint,
            ..WeftOwner::NONE
        };
        put(&Name::of(binding).to_string(), &mut owner.name);
        if let Some(address) = claim.address {
            put(&address.to_string(), &mut owner.address);
        }
        owner
    }

    /// Returns an owner of which only the host is known.
    pub(super) fn of_host(host: u64, is_here: c_int) -> WeftOwner {
        WeftOwner { host, is_here, ..WeftOwner::NONE }
    }
}

impl WeftNamesEvent {
    fn new(kind: c_int, number: u64) -> WeftNamesEvent {
        let (owner, data) = (WeftOwner::NONE, std::ptr::null());
        WeftNamesEvent { kind, number, owner, cause: [0; 160], data, len: 0 }
    }

    fn of(event: NameEvent, here: u64) -> WeftNamesEvent {
        let new = |kind| WeftNamesEvent::new(kind, event.seq);
        match &event.notice {
            Notice::Published(b) => {
                WeftNamesEvent { owner: WeftOwner::of(b, here), ..new(WEFT_NAMES_PUBLISHED) }
            }
            Notice::Withdrawn(b, gone) => {
                let mut event =
                    WeftNamesEvent { owner: WeftOwner::of(b, here), ..new(WEFT_NAMES_WITHDRAWN) };
                put(&gone.to_string(), &mut event.cause);
                event
            }
            Notice::SnapshotEnd => new(WEFT_NAMES_ALL),
            Notice::Missed { events } => {
                WeftNamesEvent { len: *events as usize, ..new(WEFT_NAMES_MISSED) }
            }
            Notice::Timeout => new(WEFT_NAMES_TIMEOUT),
        }
    }
}

pub(super) fn check_thread(thread: ThreadId) -> Result<(), Fault> {
    match thread == std::thread::current().id() {
        true => Ok(()),
        false => Err(Fault(WEFT_THREAD, "names belong to the thread that opened them".into())),
    }
}

/// Returns the connection behind a pointer, if this thread may use it.
///
/// # Safety
/// The caller keeps the rules of `object`.
pub(super) unsafe fn names_of<'a>(names: *const WeftNames) -> Result<&'a WeftNames, Fault> {
    // SAFETY: promised by the caller.
    let names = unsafe { object(names) }?;
    check_thread(names.thread)?;
    Ok(names)
}

/// Returns the subscription behind a pointer, if this thread may use it.
///
/// # Safety
/// The caller keeps the rules of `object`.
unsafe fn watch_of<'a>(watch: *const WeftNamesWatch) -> Result<&'a WeftNamesWatch, Fault> {
    // SAFETY: promised by the caller.
    let watch = unsafe { object(watch) }?;
    check_thread(watch.thread)?;
    Ok(watch)
}

/// Returns a text of the caller.
///
/// # Safety
/// `text` is null or a string.
pub(super) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Fault> {
    if text.is_null() {
        return Err(Fault::argument("a name or an address is null"));
    }
    // SAFETY: not null, and promised by the caller to be a string.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Fault::argument("a name or an address is no word"))
}

/// Returns a name of the caller.
///
/// # Safety
/// The caller keeps the rules of `text`.
pub(super) unsafe fn name(name: *const c_char) -> Result<Name, Fault> {
    // SAFETY: promised by the caller.
    Ok(unsafe { text(name) }?.parse()?)
}

fn pick(pick: c_int) -> Result<Pick, Fault> {
    match pick {
        WEFT_NAMES_NEAREST => Ok(Pick::Nearest),
        WEFT_NAMES_TURN => Ok(Pick::Turn),
        _ => Err(Fault::argument("pick is WEFT_NAMES_NEAREST or WEFT_NAMES_TURN")),
    }
}

pub(super) fn time(timeout_us: i64) -> Duration {
    u64::try_from(timeout_us).map_or(FOR_EVER, Duration::from_micros)
}

fn with_flags(mut spec: Spec, flags: c_int) -> Result<Spec, Fault> {
    if flags & !(WEFT_NAMES_UNIQUE | WEFT_NAMES_ON_HOST | WEFT_NAMES_MESSAGES) != 0 {
        return Err(Fault::argument("flags has an unknown bit"));
    }
    if flags & WEFT_NAMES_UNIQUE != 0 {
        spec = spec.unique();
    }
    if flags & WEFT_NAMES_ON_HOST != 0 {
        spec = spec.on_host();
    }
    Ok(if flags & WEFT_NAMES_MESSAGES != 0 { spec.messages() } else { spec })
}

/// Returns a claim of a name that leads to an address, or, if that is null, is a mark.
///
/// # Safety
/// `address` is null or a string.
pub(super) unsafe fn spec_of(
    name: &Name,
    address: *const c_char,
    flags: c_int,
) -> Result<Spec, Fault> {
    let spec = with_flags(Spec::new(name), flags)?;
    if address.is_null() {
        return Ok(spec);
    }
    // SAFETY: promised by the caller.
    let address = unsafe { text(address) }?.parse::<SocketAddr>();
    Ok(spec.address(address.map_err(|_| Fault::argument("an address is ADDRESS:PORT"))?))
}

fn number(count: usize) -> c_int {
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

/// Frees an object that is of no job.
///
/// # Safety
/// The caller keeps the rules of `object`, and nobody uses the object afterwards.
pub(super) unsafe fn free<T: Object>(pointer: *mut T, thread: ThreadId) -> Result<c_int, Fault> {
    check_thread(thread)?;
    // SAFETY: made by `Box::into_raw`, and checked to be alive by the caller.
    drop(unsafe { Box::from_raw(pointer) });
    Ok(WEFT_OK)
}

/// Connects to the agent of this host, and stores the connection.
///
/// # Safety
/// `names` is null or takes a pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_names_open(names: *mut *mut WeftNames) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        unsafe { store(names, std::ptr::null_mut()) }?;
        let opened = WeftNames {
            head: Head::new::<WeftNames>(std::ptr::null::<()>()),
            thread: std::thread::current().id(),
            names: RefCell::new(Names::connect()?),
            message: RefCell::default(),
            sent: Cell::new(0),
        };
        // SAFETY: promised by the caller.
        unsafe { store(names, Box::into_raw(Box::new(opened))) }?;
        Ok(WEFT_OK)
    })
}

/// Ends the connection, and with it its claims.
///
/// # Safety
/// `names` is a living handle, and is not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn weft_names_close(names: *mut WeftNames) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        let thread = unsafe { names_of(names) }?.thread;
        // SAFETY: promised by the caller.
        unsafe { free(names, thread) }
    })
}

/// Claims a name that leads to a socket address, or, if that is null, is a mark.
///
/// # Safety
/// `names` is a living handle, `text_of_name` a string, `address` null or a string, `claim` null or
/// takes a number.
#[no_mangle]
pub unsafe extern "C" fn weft_names_claim(
    names: *mut WeftNames,
    text_of_name: *const c_char,
    address: *const c_char,
    flags: c_int,
    claim: *mut u64,
) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        let (names, name) = unsafe { (names_of(names)?, name(text_of_name)?) };
        // SAFETY: promised by the caller.
        let spec = unsafe { spec_of(&name, address, flags) }?;
        let number = names.names.borrow_mut().claim(&spec)?;
        // SAFETY: promised by the caller.
        unsafe { store(claim, number) }?;
        Ok(WEFT_OK)
    })
}

/// Claims a name that leads to this rank.
///
/// # Safety
/// The caller keeps the rules of `weft_names_claim`; `job` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_names_claim_rank(
    names: *mut WeftNames,
    job: *mut WeftJob,
    text_of_name: *const c_char,
    flags: c_int,
    claim: *mut u64,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (names, job, name) = unsafe { (names_of(names)?, job_of(job)?, name(text_of_name)?) };
        let spec = weft::names::claim_of(job.endpoint(), &name)
            .map_err(|e| Fault(WEFT_REFUSED, e.to_string()))?;
        let number = names.names.borrow_mut().claim(&with_flags(spec, flags)?)?;
        // SAFETY: promised by the caller.
        unsafe { store(claim, number) }?;
        Ok(WEFT_OK)
    })
}

/// Withdraws a claim.
///
/// # Safety
/// `names` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_names_withdraw(names: *mut WeftNames, claim: u64) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        unsafe { names_of(names) }?.names.borrow_mut().withdraw(claim)?;
        Ok(WEFT_OK)
    })
}

/// Stores an owner of a name. Returns 1, or 0 if nobody has it.
///
/// # Safety
/// `names` is a living handle, `text_of_name` a string, `owner` null or takes an owner.
#[no_mangle]
pub unsafe extern "C" fn weft_names_find(
    names: *mut WeftNames,
    text_of_name: *const c_char,
    which: c_int,
    owner: *mut WeftOwner,
) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        let (names, name) = unsafe { (names_of(names)?, name(text_of_name)?) };
        let mut names = names.names.borrow_mut();
        let here = names.host().0;
        let found = names.resolve(&name, pick(which)?)?.map(|b| WeftOwner::of(b, here));
        // SAFETY: promised by the caller.
        unsafe { store(owner, found.unwrap_or(WeftOwner::NONE)) }?;
        Ok(c_int::from(found.is_some()))
    })
}

/// Waits until a name has at least `count` owners, and stores as many as `owners` takes. Returns
/// how many there are.
///
/// # Safety
/// `names` is a living handle, `text_of_name` a string, `owners` null or takes `room` owners.
#[no_mangle]
pub unsafe extern "C" fn weft_names_wait(
    names: *mut WeftNames,
    text_of_name: *const c_char,
    count: usize,
    timeout_us: i64,
    owners: *mut WeftOwner,
    room: usize,
) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        let (names, name) = unsafe { (names_of(names)?, name(text_of_name)?) };
        let mut names = names.names.borrow_mut();
        let here = names.host().0;
        let all = match names.wait(&name, count, time(timeout_us)) {
            Err(NamesError::Timeout { .. }) => names.resolve_all(&name)?,
            found => found?,
        };
        for (at, binding) in all.iter().take(room).enumerate() {
            // SAFETY: promised by the caller; `at` is below `room`.
            unsafe { store(owners.wrapping_add(at), WeftOwner::of(binding, here)) }?;
        }
        Ok(number(all.len()))
    })
}

/// Sends a message to an owner of a name, by turns, or to all.
///
/// # Safety
/// `names` is a living handle, `text_of_name` a string, `data..data + len` readable.
#[no_mangle]
pub unsafe extern "C" fn weft_names_send(
    names: *mut WeftNames,
    text_of_name: *const c_char,
    all: c_int,
    data: *const c_void,
    len: usize,
) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        let (names, name) = unsafe { (names_of(names)?, name(text_of_name)?) };
        if len > weft::names::MESSAGE_MAX {
            let most = weft::names::MESSAGE_MAX;
            return Err(Fault(WEFT_TOO_LONG, format!("a message has at most {most} bytes")));
        }
        // SAFETY: promised by the caller.
        let payload = unsafe { bytes(data.cast(), len) }?;
        names.sent.set(names.names.borrow_mut().send(&name, all != 0, payload)?);
        Ok(WEFT_OK)
    })
}

/// Stores the number of the last message that `weft_names_send` sent, which
/// `WEFT_NAMES_RETURNED` names; 0: none was sent.
///
/// # Safety
/// `names` is a living handle, `number` null or takes a number.
#[no_mangle]
pub unsafe extern "C" fn weft_names_sent(names: *mut WeftNames, number: *mut u64) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        let sent = unsafe { names_of(names) }?.sent.get();
        // SAFETY: promised by the caller.
        unsafe { store(number, sent) }?;
        Ok(WEFT_OK)
    })
}

/// Takes the next message, or the end of a claim, and waits for it. Returns 1, or 0 if none came
/// in time. The message is valid until the next call with this connection.
///
/// # Safety
/// `names` is a living handle, `event` null or takes an event.
#[no_mangle]
pub unsafe extern "C" fn weft_names_next(
    names: *mut WeftNames,
    timeout_us: i64,
    event: *mut WeftNamesEvent,
) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        let names = unsafe { names_of(names) }?;
        // An event that there is no place for is not taken.
        // SAFETY: promised by the caller.
        unsafe { store(event, WeftNamesEvent::new(0, 0)) }?;
        let mut connection = names.names.borrow_mut();
        let here = connection.host().0;
        let told = match connection.event(time(timeout_us))? {
            None => return Ok(0),
            Some(Event::Lost { claim, gone }) => {
                let mut told = WeftNamesEvent::new(WEFT_NAMES_LOST, claim);
                put(&gone.to_string(), &mut told.cause);
                told
            }
            Some(Event::Mail { claim, host, from, payload }) => {
                let mut message = names.message.borrow_mut();
                *message = payload;
                let (user, process) = (from.user, from.process);
                let is_here = c_int::from(host.0 == here);
                let owner = WeftOwner { user, process, host: host.0, is_here, ..WeftOwner::NONE };
                let (data, len) = (message.as_ptr().cast(), message.len());
                let told = WeftNamesEvent::new(WEFT_NAMES_MESSAGE, claim);
                WeftNamesEvent { owner, data, len, ..told }
            }
            Some(Event::Returned { message, why }) => {
                let mut told = WeftNamesEvent::new(WEFT_NAMES_RETURNED, message);
                put(&why, &mut told.cause);
                told
            }
            Some(_) => return Ok(0),
        };
        // SAFETY: promised by the caller.
        unsafe { store(event, told) }?;
        Ok(1)
    })
}

/// Returns a descriptor that is readable when `weft_names_next` may have something.
///
/// # Safety
/// `names` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_names_fd(names: *mut WeftNames) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        Ok(unsafe { names_of(names) }?.names.borrow().wait_fd().as_raw_fd())
    })
}

/// Watches a name, and stores the subscription.
///
/// # Safety
/// `names` is a living handle, `text_of_name` a string, `watch` null or takes a pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_names_watch_make(
    names: *mut WeftNames,
    text_of_name: *const c_char,
    first_last: c_int,
    timeout_us: i64,
    watch: *mut *mut WeftNamesWatch,
) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        let (names, name) = unsafe { (names_of(names)?, name(text_of_name)?) };
        // SAFETY: promised by the caller.
        unsafe { store(watch, std::ptr::null_mut()) }?;
        let mode = if first_last != 0 { Mode::FirstLast } else { Mode::Each };
        let timeout = u64::try_from(timeout_us).ok().map(Duration::from_micros);
        let names = names.names.borrow();
        let made = WeftNamesWatch {
            head: Head::new::<WeftNamesWatch>(std::ptr::null::<()>()),
            thread: std::thread::current().id(),
            watch: RefCell::new(names.watch(&name, mode, timeout)?),
            here: names.host().0,
        };
        // SAFETY: promised by the caller.
        unsafe { store(watch, Box::into_raw(Box::new(made))) }?;
        Ok(WEFT_OK)
    })
}

/// Takes the next event of a subscription, and waits for it. Returns 1, or 0 if none came in time.
///
/// # Safety
/// `watch` is a living handle, `event` null or takes an event.
#[no_mangle]
pub unsafe extern "C" fn weft_names_watch_next(
    watch: *mut WeftNamesWatch,
    timeout_us: i64,
    event: *mut WeftNamesEvent,
) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        let watch = unsafe { watch_of(watch) }?;
        // SAFETY: promised by the caller.
        unsafe { store(event, WeftNamesEvent::new(0, 0)) }?;
        let Some(found) = watch.watch.borrow_mut().next(time(timeout_us))? else { return Ok(0) };
        // SAFETY: promised by the caller.
        unsafe { store(event, WeftNamesEvent::of(found, watch.here)) }?;
        Ok(1)
    })
}

/// Returns a descriptor that is readable when `weft_names_watch_next` may have something.
///
/// # Safety
/// `watch` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_names_watch_fd(watch: *mut WeftNamesWatch) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        Ok(unsafe { watch_of(watch) }?.watch.borrow().wait_fd().as_raw_fd())
    })
}

/// Ends a subscription.
///
/// # Safety
/// `watch` is a living handle, and is not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn weft_names_watch_free(watch: *mut WeftNamesWatch) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        let thread = unsafe { watch_of(watch) }?.thread;
        // SAFETY: promised by the caller.
        unsafe { free(watch, thread) }
    })
}

/// Returns the rank of this job that has a name.
///
/// # Safety
/// `job` and `names` are living handles, `text_of_name` a string.
#[no_mangle]
pub unsafe extern "C" fn weft_connect_name(
    job: *mut WeftJob,
    names: *mut WeftNames,
    text_of_name: *const c_char,
    which: c_int,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (names, job, name) = unsafe { (names_of(names)?, job_of(job)?, name(text_of_name)?) };
        job.may_wait()?;
        let mut names = names.names.borrow_mut();
        let peer = weft::names::connect(job.endpoint(), &mut names, &name, pick(which)?);
        let peer = peer.map_err(|error| match error {
            NameError::Names(why) => why.into(),
            NameError::Connect(why) => Fault(WEFT_PEER, why.to_string()),
            other => Fault(WEFT_REFUSED, other.to_string()),
        })?;
        match job.rank_of(peer) {
            -1 => Err(Fault(WEFT_REFUSED, format!("the owner of {name} is of another job"))),
            rank => Ok(rank),
        }
    })
}

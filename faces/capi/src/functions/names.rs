//! Names of a cluster: claims, look-ups, subscriptions and messages, beside jobs.

use super::owner::{put, WeftOwner};
use super::progress::limit;
use crate::fault::{Fault, WEFT_ARGUMENT, WEFT_NO_AGENT, WEFT_PEER, WEFT_REFUSED, WEFT_TOO_LONG};
use crate::job::WeftJob;
use crate::object::{is_object, Head};
use crate::sys::{Borrowed, Given, Out};
use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;
use weft::names::{Event, Mode, Name, NameError, NameEvent, Names, NamesError};
use weft::names::{Notice, Pick, Spec, Watch, MESSAGE_MAX};

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
    pub(super) names: RefCell<Names>,
    /// The message of the last event.
    message: RefCell<Vec<u8>>,
    /// Number of the last message that was sent.
    sent: Cell<u64>,
}

/// A subscription: `struct weft_names_watch`.
pub struct WeftNamesWatch {
    head: Head,
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

impl WeftNamesEvent {
    fn new(kind: c_int, number: u64) -> WeftNamesEvent {
        let (owner, data) = (WeftOwner::NONE, std::ptr::null());
        WeftNamesEvent { kind, number, owner, cause: [0; 160], data, len: 0 }
    }

    /// Adds the cause.
    fn because(mut self, cause: &str) -> WeftNamesEvent {
        put(cause, &mut self.cause);
        self
    }

    fn of(event: NameEvent, here: u64) -> WeftNamesEvent {
        let new = |kind| WeftNamesEvent::new(kind, event.seq);
        match &event.notice {
            Notice::Published(b) => {
                WeftNamesEvent { owner: WeftOwner::of(b, here), ..new(WEFT_NAMES_PUBLISHED) }
            }
            Notice::Withdrawn(b, gone) => {
                let event = new(WEFT_NAMES_WITHDRAWN).because(&gone.to_string());
                WeftNamesEvent { owner: WeftOwner::of(b, here), ..event }
            }
            Notice::SnapshotEnd => new(WEFT_NAMES_ALL),
            Notice::Missed { events } => {
                WeftNamesEvent { len: *events as usize, ..new(WEFT_NAMES_MISSED) }
            }
            Notice::Timeout => new(WEFT_NAMES_TIMEOUT),
        }
    }
}

/// Returns a name.
///
/// # Errors
/// The text is none.
pub(crate) fn name(text: &str) -> Result<Name, Fault> {
    Ok(text.parse()?)
}

fn pick(pick: c_int) -> Result<Pick, Fault> {
    match pick {
        WEFT_NAMES_NEAREST => Ok(Pick::Nearest),
        WEFT_NAMES_TURN => Ok(Pick::Turn),
        _ => Err(Fault::argument("pick is WEFT_NAMES_NEAREST or WEFT_NAMES_TURN")),
    }
}

/// Returns the longest wait that a program names in microseconds.
pub(super) fn time(timeout_us: i64) -> Duration {
    limit(timeout_us).unwrap_or(FOR_EVER)
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

/// Returns a claim of a name that leads to an address, or, without one, is a mark.
///
/// # Errors
/// The flags or the address are wrong.
pub(super) fn spec_of(name: &Name, address: Option<&str>, flags: c_int) -> Result<Spec, Fault> {
    let spec = with_flags(Spec::new(name), flags)?;
    let Some(address) = address else { return Ok(spec) };
    let address = address.parse::<SocketAddr>();
    Ok(spec.address(address.map_err(|_| Fault::argument("an address is ADDRESS:PORT"))?))
}

/// Returns the payload of a message.
///
/// # Errors
/// `WEFT_TOO_LONG`: messages are shorter. The memory is null.
pub(super) fn payload(data: Given<u8>, len: usize) -> Result<Borrowed<u8>, Fault> {
    match len > MESSAGE_MAX {
        true => Err(Fault(WEFT_TOO_LONG, format!("a message has at most {MESSAGE_MAX} bytes"))),
        false => data.values("data", len),
    }
}

/// Connects to the agent of this host.
///
/// # Errors
/// `WEFT_NO_AGENT`: there is none of a cluster.
pub(crate) fn open() -> Result<Box<WeftNames>, Fault> {
    Ok(Box::new(WeftNames {
        head: Head::apart::<WeftNames>(),
        names: RefCell::new(Names::connect()?),
        message: RefCell::default(),
        sent: Cell::new(0),
    }))
}

impl WeftNames {
    /// Claims a name that leads to a socket address, or, without one, is a mark. Returns the number
    /// of the claim.
    ///
    /// # Errors
    /// Flags or address are wrong, or the agent refuses or has ended.
    pub(crate) fn claim(
        &self,
        name: &Name,
        address: Option<&str>,
        flags: c_int,
    ) -> Result<u64, Fault> {
        let spec = spec_of(name, address, flags)?;
        Ok(self.names.borrow_mut().claim(&spec)?)
    }

    /// Claims a name that leads to this rank. Returns the number of the claim.
    ///
    /// # Errors
    /// Returns the errors of [`claim`](Self::claim).
    pub(crate) fn claim_rank(
        &self,
        job: &WeftJob,
        name: &Name,
        flags: c_int,
    ) -> Result<u64, Fault> {
        let spec = weft::names::claim_of(job.endpoint(), name)
            .map_err(|e| Fault(WEFT_REFUSED, e.to_string()))?;
        Ok(self.names.borrow_mut().claim(&with_flags(spec, flags)?)?)
    }

    /// Withdraws a claim.
    ///
    /// # Errors
    /// There is none of this number, or the agent has ended.
    pub(crate) fn withdraw(&self, claim: u64) -> Result<(), Fault> {
        Ok(self.names.borrow_mut().withdraw(claim)?)
    }

    /// Stores an owner of a name. False if nobody has it.
    ///
    /// # Errors
    /// The kind of choice is unknown, or the agent has ended.
    pub(crate) fn find(
        &self,
        name: &Name,
        which: c_int,
        owner: &Out<WeftOwner>,
    ) -> Result<bool, Fault> {
        let mut names = self.names.borrow_mut();
        let here = names.host().0;
        let found = names.resolve(name, pick(which)?)?.map(|b| WeftOwner::of(b, here));
        owner.store(found.unwrap_or(WeftOwner::NONE));
        Ok(found.is_some())
    }

    /// Waits until a name has at least `count` owners, and stores at most `room` of them. Returns
    /// how many there are.
    ///
    /// # Errors
    /// There is no place for the owners, or the agent has ended.
    pub(crate) fn wait(
        &self,
        name: &Name,
        (count, timeout_us): (usize, i64),
        owners: Given<WeftOwner>,
        room: usize,
    ) -> Result<usize, Fault> {
        let mut names = self.names.borrow_mut();
        let here = names.host().0;
        let all = match names.wait(name, count, time(timeout_us)) {
            Err(NamesError::Timeout { .. }) => names.resolve_all(name)?,
            found => found?,
        };
        let owners = owners.values("owners", all.len().min(room))?;
        for (at, binding) in all.iter().take(room).enumerate() {
            owners.put(at, &[WeftOwner::of(binding, here)]);
        }
        Ok(all.len())
    }

    /// Sends a message to an owner of a name, by turns, or to all.
    ///
    /// # Errors
    /// The message is too long, did not come to all of these, or the agent has ended.
    pub(crate) fn send(
        &self,
        name: &Name,
        all: c_int,
        data: Given<u8>,
        len: usize,
    ) -> Result<(), Fault> {
        let payload = payload(data, len)?;
        let number = self.names.borrow_mut().send(name, all != 0, payload.as_slice())?;
        self.sent.set(number);
        Ok(())
    }

    /// Returns the number of the last message that was sent; 0: none was.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Takes the next message, or the end of a claim, and waits for it. False if none came in time.
    /// The message is valid until the next call with this connection.
    ///
    /// # Errors
    /// The agent has ended.
    pub(crate) fn next(&self, timeout_us: i64, event: &Out<WeftNamesEvent>) -> Result<bool, Fault> {
        event.store(WeftNamesEvent::new(0, 0));
        let mut connection = self.names.borrow_mut();
        let here = connection.host().0;
        let told = match connection.event(time(timeout_us))? {
            None => return Ok(false),
            Some(Event::Lost { claim, gone }) => {
                WeftNamesEvent::new(WEFT_NAMES_LOST, claim).because(&gone.to_string())
            }
            Some(Event::Mail { claim, host, from, payload }) => {
                let mut message = self.message.borrow_mut();
                *message = payload;
                let owner = WeftOwner::of_sender((from.user, from.process), host.0, here);
                let (data, len) = (message.as_ptr().cast(), message.len());
                let told = WeftNamesEvent::new(WEFT_NAMES_MESSAGE, claim);
                WeftNamesEvent { owner, data, len, ..told }
            }
            Some(Event::Returned { message, why }) => {
                WeftNamesEvent::new(WEFT_NAMES_RETURNED, message).because(&why)
            }
            Some(_) => return Ok(false),
        };
        event.store(told);
        Ok(true)
    }

    /// Returns a descriptor that is readable when [`next`](Self::next) may have something.
    pub(crate) fn fd(&self) -> c_int {
        self.names.borrow().wait_fd().as_raw_fd()
    }

    /// Watches a name; with `first_last` only the first owner that comes and the last that goes.
    ///
    /// # Errors
    /// The agent refuses, or has ended.
    pub(crate) fn watch(
        &self,
        name: &Name,
        first_last: c_int,
        timeout_us: i64,
    ) -> Result<Box<WeftNamesWatch>, Fault> {
        let mode = if first_last != 0 { Mode::FirstLast } else { Mode::Each };
        let names = self.names.borrow();
        Ok(Box::new(WeftNamesWatch {
            head: Head::apart::<WeftNamesWatch>(),
            watch: RefCell::new(names.watch(name, mode, limit(timeout_us))?),
            here: names.host().0,
        }))
    }

    /// Returns the rank of this job that has a name.
    ///
    /// # Errors
    /// An upcall runs, nobody of this job has the name, the rank has failed, or the agent has
    /// ended.
    pub(crate) fn connect(&self, job: &WeftJob, name: &Name, which: c_int) -> Result<c_int, Fault> {
        job.may_wait()?;
        let mut names = self.names.borrow_mut();
        let peer = weft::names::connect(job.endpoint(), &mut names, name, pick(which)?);
        let peer = peer.map_err(|error| match error {
            NameError::Names(why) => why.into(),
            NameError::Connect(why) => Fault(WEFT_PEER, why.to_string()),
            other => Fault(WEFT_REFUSED, other.to_string()),
        })?;
        match job.rank_of(peer) {
            -1 => Err(Fault(WEFT_REFUSED, format!("the owner of {name} is of another job"))),
            rank => Ok(rank),
        }
    }
}

impl WeftNamesWatch {
    /// Takes the next event, and waits for it. False if none came in time.
    ///
    /// # Errors
    /// The agent has ended.
    pub(crate) fn next(&self, timeout_us: i64, event: &Out<WeftNamesEvent>) -> Result<bool, Fault> {
        event.store(WeftNamesEvent::new(0, 0));
        let found = self.watch.borrow_mut().next(time(timeout_us))?;
        let Some(found) = found else { return Ok(false) };
        event.store(WeftNamesEvent::of(found, self.here));
        Ok(true)
    }

    /// Returns a descriptor that is readable when [`next`](Self::next) may have something.
    pub(crate) fn fd(&self) -> c_int {
        self.watch.borrow().wait_fd().as_raw_fd()
    }
}

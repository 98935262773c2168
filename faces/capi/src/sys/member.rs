//! Memberships of groups of names: members that see each other come and go, and send to each other.

use super::names::{check_thread, free, name, names_of, put, spec_of, time};
use super::names::{WeftNames, WeftOwner, WEFT_NAMES_MESSAGES};
use super::{bytes, enter_apart, is_object, object, store, Fault, Head};
use super::{WEFT_OK, WEFT_TOO_LONG};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::thread::ThreadId;
use std::time::Duration;
use weft::names::{BindingId, GroupMember, GroupNotice, GroupOptions, HostId, Kind, Life, To};

/// To one of the members with an instance, by turns.
pub const WEFT_TO_ONE: c_int = 1;
/// To all members with an instance.
pub const WEFT_TO_EACH: c_int = 2;
/// To all other members.
pub const WEFT_TO_ALL: c_int = 3;
/// An event: a member is there.
pub const WEFT_MEMBER_JOINED: c_int = 1;
/// An event: a member is gone.
pub const WEFT_MEMBER_LEFT: c_int = 2;
/// An event: all members that there were have been told.
pub const WEFT_MEMBER_ALL: c_int = 3;
/// An event: a message.
pub const WEFT_MEMBER_MESSAGE: c_int = 4;
/// An event: all receivers of a message have it, or are gone.
pub const WEFT_MEMBER_SETTLED: c_int = 5;
/// An event: a message did not reach a receiver.
pub const WEFT_MEMBER_RETURNED: c_int = 6;
/// An event: a member takes no messages.
pub const WEFT_MEMBER_SLOW: c_int = 7;
/// An event: a member took no messages for so long that it was put out.
pub const WEFT_MEMBER_PUT_OUT: c_int = 8;

/// A member, for messages to it: `struct weft_member_id`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeftMemberId {
    host: u64,
    claim: u64,
    life: [u64; 2],
}

/// An event: `struct weft_member_event`.
#[repr(C)]
pub struct WeftMemberEvent {
    kind: c_int,
    sent_to: c_int,
    number: u64,
    id: WeftMemberId,
    owner: WeftOwner,
    waited_us: i64,
    cause: [c_char; 160],
    data: *const c_void,
    len: usize,
}

/// A membership: `struct weft_member`.
pub struct WeftMember {
    head: Head,
    thread: ThreadId,
    member: RefCell<GroupMember>,
    here: u64,
    /// The members that are there.
    known: RefCell<BTreeMap<BindingId, WeftOwner>>,
    /// The message of the last event.
    message: RefCell<Vec<u8>>,
}

is_object!(WeftMember, "the member", b"weftmemb");

impl WeftMemberId {
    fn of(id: BindingId) -> WeftMemberId {
        let life = [id.life.incarnation, id.life.nonce];
        WeftMemberId { host: id.host.0, claim: id.claim, life }
    }

    fn id(self) -> BindingId {
        let [incarnation, nonce] = self.life;
        let life = Life { incarnation, nonce };
        BindingId { host: HostId(self.host), life, claim: self.claim }
    }
}

impl WeftMember {
    /// Returns an event about a member.
    fn about(&self, kind: c_int, id: BindingId) -> WeftMemberEvent {
        let (host, here) = (id.host.0, c_int::from(id.host.0 == self.here));
        let unknown = || WeftOwner::of_host(host, here);
        let owner = self.known.borrow().get(&id).copied().unwrap_or_else(unknown);
        WeftMemberEvent { id: WeftMemberId::of(id), owner, ..WeftMemberEvent::new(kind) }
    }

    /// Returns an event for the program. `None`: it is of a kind that this interface lacks.
    fn told(&self, notice: GroupNotice) -> Option<WeftMemberEvent> {
        Some(match notice {
            GroupNotice::Joined(binding) => {
                let owner = WeftOwner::of(&binding, self.here);
                self.known.borrow_mut().insert(binding.id, owner);
                self.about(WEFT_MEMBER_JOINED, binding.id)
            }
            GroupNotice::Left(id, gone) => {
                let mut event = self.about(WEFT_MEMBER_LEFT, id);
                put(&gone.to_string(), &mut event.cause);
                self.known.borrow_mut().remove(&id);
                event
            }
            GroupNotice::SnapshotEnd => WeftMemberEvent::new(WEFT_MEMBER_ALL),
            GroupNotice::Message { from, kind, payload } => {
                let sent_to = match kind {
                    Kind::Unicast | Kind::Anycast => WEFT_TO_ONE,
                    Kind::Multicast => WEFT_TO_EACH,
                    Kind::Broadcast => WEFT_TO_ALL,
                };
                let mut message = self.message.borrow_mut();
                *message = payload;
                let (data, len) = (message.as_ptr().cast(), message.len());
                WeftMemberEvent { sent_to, data, len, ..self.about(WEFT_MEMBER_MESSAGE, from) }
            }
            GroupNotice::Settled(number) => {
                WeftMemberEvent { number, ..WeftMemberEvent::new(WEFT_MEMBER_SETTLED) }
            }
            GroupNotice::Returned(number, id, gone) => {
                let mut event = WeftMemberEvent { number, ..self.about(WEFT_MEMBER_RETURNED, id) };
                put(&gone.to_string(), &mut event.cause);
                event
            }
            GroupNotice::Slow(id, since) => {
                let waited_us = since.as_micros() as i64;
                WeftMemberEvent { waited_us, ..self.about(WEFT_MEMBER_SLOW, id) }
            }
            GroupNotice::Evicted(id) => self.about(WEFT_MEMBER_PUT_OUT, id),
            _ => return None,
        })
    }

    /// Sends a message.
    ///
    /// # Safety
    /// `data..data + len` is readable, `number` null or takes a number.
    unsafe fn send(
        &self,
        to: To,
        (data, len): (*const c_void, usize),
        timeout_us: i64,
        number: *mut u64,
    ) -> Result<c_int, Fault> {
        if len > weft::names::MESSAGE_MAX {
            let most = weft::names::MESSAGE_MAX;
            return Err(Fault(WEFT_TOO_LONG, format!("a message has at most {most} bytes")));
        }
        // SAFETY: promised by the caller.
        let payload = unsafe { bytes(data.cast(), len) }?;
        let sent = self.member.borrow_mut().send(to, payload, time(timeout_us))?;
        if !number.is_null() {
            // SAFETY: promised by the caller.
            unsafe { store(number, sent) }?;
        }
        Ok(WEFT_OK)
    }
}

impl WeftMemberEvent {
    fn new(kind: c_int) -> WeftMemberEvent {
        WeftMemberEvent {
            kind,
            sent_to: 0,
            number: 0,
            id: WeftMemberId { host: 0, claim: 0, life: [0; 2] },
            owner: WeftOwner::NONE,
            waited_us: 0,
            cause: [0; 160],
            data: std::ptr::null(),
            len: 0,
        }
    }
}

/// Returns the membership behind a pointer, if this thread may use it.
///
/// # Safety
/// The caller keeps the rules of `object`.
unsafe fn member_of<'a>(member: *const WeftMember) -> Result<&'a WeftMember, Fault> {
    // SAFETY: promised by the caller.
    let member = unsafe { object(member) }?;
    check_thread(member.thread)?;
    Ok(member)
}

/// Makes this program a member of a group, on a connection of its own, and stores the membership.
///
/// # Safety
/// `names` is a living handle, `text_of_name` a string, `address` null or a string, `member` null
/// or takes a pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_member_join(
    names: *mut WeftNames,
    text_of_name: *const c_char,
    address: *const c_char,
    flags: c_int,
    slow_us: i64,
    put_out_us: i64,
    member: *mut *mut WeftMember,
) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        let (names, name) = unsafe { (names_of(names)?, name(text_of_name)?) };
        // SAFETY: promised by the caller.
        unsafe { store(member, std::ptr::null_mut()) }?;
        if flags & WEFT_NAMES_MESSAGES != 0 {
            return Err(Fault::argument("a member takes messages without WEFT_NAMES_MESSAGES"));
        }
        // SAFETY: promised by the caller.
        let spec = unsafe { spec_of(&name, address, flags) }?;
        let given = |us: i64| u64::try_from(us).ok().map(Duration::from_micros);
        let mut options = GroupOptions { evict_after: given(put_out_us), ..Default::default() };
        options.slow_after = given(slow_us).unwrap_or(options.slow_after);
        let names = names.names.borrow();
        let joined = WeftMember {
            head: Head::new::<WeftMember>(std::ptr::null::<()>()),
            thread: std::thread::current().id(),
            member: RefCell::new(names.join(&spec, &options)?),
            here: names.host().0,
            known: RefCell::default(),
            message: RefCell::default(),
        };
        // SAFETY: promised by the caller.
        unsafe { store(member, Box::into_raw(Box::new(joined))) }?;
        Ok(WEFT_OK)
    })
}

/// Ends a membership.
///
/// # Safety
/// `member` is a living handle, and is not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn weft_member_leave(member: *mut WeftMember) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        let thread = unsafe { member_of(member) }?.thread;
        // SAFETY: promised by the caller.
        unsafe { free(member, thread) }
    })
}

/// Takes the next event, and waits for it. Returns 1, or 0 if none came in time. The message is
/// valid until the next call with this membership.
///
/// # Safety
/// `member` is a living handle, `event` null or takes an event.
#[no_mangle]
pub unsafe extern "C" fn weft_member_next(
    member: *mut WeftMember,
    timeout_us: i64,
    event: *mut WeftMemberEvent,
) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        let member = unsafe { member_of(member) }?;
        // An event that there is no place for is not taken.
        // SAFETY: promised by the caller.
        unsafe { store(event, WeftMemberEvent::new(0)) }?;
        let found = member.member.borrow_mut().next(time(timeout_us))?;
        let Some(told) = found.and_then(|notice| member.told(notice)) else { return Ok(0) };
        // SAFETY: promised by the caller.
        unsafe { store(event, told) }?;
        Ok(1)
    })
}

/// Sends a message to members chosen by their instances.
///
/// # Safety
/// `member` is a living handle, `data..data + len` readable, `number` null or takes a number.
#[no_mangle]
pub unsafe extern "C" fn weft_member_send(
    member: *mut WeftMember,
    to: c_int,
    first: u32,
    last: u32,
    data: *const c_void,
    len: usize,
    timeout_us: i64,
    number: *mut u64,
) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        let member = unsafe { member_of(member) }?;
        let to = match to {
            WEFT_TO_ALL => To::All,
            WEFT_TO_ONE | WEFT_TO_EACH if first > last => {
                return Err(Fault::argument("the first instance is above the last"));
            }
            WEFT_TO_ONE => To::One(first..=last),
            WEFT_TO_EACH => To::Each(first..=last),
            _ => return Err(Fault::argument("to is WEFT_TO_ONE, WEFT_TO_EACH or WEFT_TO_ALL")),
        };
        // SAFETY: promised by the caller.
        unsafe { member.send(to, (data, len), timeout_us, number) }
    })
}

/// Sends a message to one member.
///
/// # Safety
/// `member` is a living handle, `id` null or readable, `data..data + len` readable, `number` null
/// or takes a number.
#[no_mangle]
pub unsafe extern "C" fn weft_member_send_to(
    member: *mut WeftMember,
    id: *const WeftMemberId,
    data: *const c_void,
    len: usize,
    timeout_us: i64,
    number: *mut u64,
) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        let member = unsafe { member_of(member) }?;
        if id.is_null() || !id.is_aligned() {
            return Err(Fault::argument("id is null or not aligned"));
        }
        // SAFETY: not null, aligned, and promised by the caller to be readable.
        let id = unsafe { *id }.id();
        // SAFETY: promised by the caller.
        unsafe { member.send(To::Member(id), (data, len), timeout_us, number) }
    })
}

/// Waits until all receivers of all messages of this member have them, or are gone.
///
/// # Safety
/// `member` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_member_flush(member: *mut WeftMember, timeout_us: i64) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        let member = unsafe { member_of(member) }?;
        let flushed = member.member.borrow_mut().flush(time(timeout_us));
        flushed.map(|()| WEFT_OK).map_err(Fault::from)
    })
}

/// Returns a descriptor that is readable when `weft_member_next` may have something.
///
/// # Safety
/// `member` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_member_fd(member: *mut WeftMember) -> c_int {
    enter_apart(|| {
        // SAFETY: promised by the caller.
        Ok(unsafe { member_of(member) }?.member.borrow().wait_fd().as_raw_fd())
    })
}

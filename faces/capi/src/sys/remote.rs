//! Operations on other ranks: multicast groups, fetch-and-add, remote-memory copy, and choices for
//! one rank.

use super::mapped::not_mapped;
use super::{bytes, enter, free, is_object, job_of, object_of, store, Fault, Head};
use super::{WEFT_BUSY, WEFT_OK, WEFT_PEER, WEFT_TOO_LONG, WEFT_TOO_MANY};
use crate::job::WeftJob;
use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void, CStr};
use weft::choices::{Place, Tree};
use weft::memory::is_mapped;
use weft::{Choices, OpError, PeerId};
use weft_packets::{Counter, Expecting, Exported, MulticastError, MulticastGroup, PacketStats};

/// Ranks forward a multicast.
pub const WEFT_BY_HOST: c_int = 0;
/// Agents forward a multicast.
pub const WEFT_BY_AGENT: c_int = 1;

/// A multicast group: `struct weft_group`.
pub struct WeftGroup {
    head: Head,
    group: MulticastGroup,
    members: Vec<PeerId>,
    /// Expectations by member index.
    expecting: RefCell<Vec<(usize, Expecting)>>,
}

is_object!(WeftGroup, "group", b"weft grp");

impl WeftGroup {
    /// Returns the index of a rank among the members.
    fn member(&self, job: &WeftJob, rank: c_int) -> Result<usize, Fault> {
        let peer = job.peer(rank)?;
        let at = self.members.iter().position(|&member| member == peer);
        at.ok_or_else(|| Fault::argument("the rank is no member of the group"))
    }

    /// Converts the failure of a multicast. The fault of a failed member has the same details as
    /// that of a packet sent to that rank alone.
    fn fault(&self, job: &WeftJob, error: MulticastError) -> Fault {
        let code = match error {
            MulticastError::Busy { .. } => WEFT_BUSY,
            MulticastError::TooLong => WEFT_TOO_LONG,
            _ => WEFT_PEER,
        };
        let MulticastError::Member { rank, failure } = error else {
            return Fault(code, error.to_string());
        };
        let Some(&peer) = self.members.get(rank) else { return Fault(code, error.to_string()) };
        Fault(
            code,
            match failure {
                Some(failure) => {
                    let why = job.world().explain(OpError::Peer { peer, failure });
                    format!("member {rank} of the multicast group: {why}")
                }
                None => format!("{error}: {}", job.describe(peer)),
            },
        )
    }
}

/// The tree of WEFT_TREE.
pub const WEFT_TREE_DEFAULT: c_int = -1;
/// The sender sends to every other member.
pub const WEFT_TREE_FLAT: c_int = 0;
/// Each member sends to the next one.
pub const WEFT_TREE_CHAIN: c_int = 1;
/// Each member sends to at most two others.
pub const WEFT_TREE_BINARY: c_int = 2;
/// The number of reached members doubles every step.
pub const WEFT_TREE_BINOMIAL: c_int = 3;

fn no_counter(key: u64) -> Fault {
    Fault::argument(format!("this rank has no counter {key:#x}"))
}

pub(super) fn tree_of(job: &WeftJob, tree: c_int) -> Result<Tree, Fault> {
    if tree == WEFT_TREE_DEFAULT {
        return Ok(job.packets.endpoint().choices().tree);
    }
    let found = usize::try_from(tree).ok().and_then(|code| Tree::ALL.get(code));
    found.copied().ok_or_else(|| Fault::argument(format!("there is no tree {tree}")))
}

/// Makes the multicast group `id` of the given ranks, including this one, and stores its handle.
/// All members call it with the same id and ranks. The group lasts as long as the job;
/// `weft_group_free` frees the handle.
///
/// # Safety
/// `job` is a living handle, `ranks..ranks + count` is readable, `group` points to memory for a
/// pointer.
#[no_mangle]
pub unsafe extern "C" fn weft_group_make(
    job: *mut WeftJob,
    id: u16,
    ranks: *const c_int,
    count: usize,
    group: *mut *mut WeftGroup,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let owner = unsafe { job_of(job) }?;
        let room = ranks.is_null() || !ranks.is_aligned() || count > usize::from(u16::MAX);
        if room || count == 0 {
            return Err(Fault::argument("ranks is null or misaligned, or count out of bounds"));
        }
        // SAFETY: not null, aligned, and promised by the caller to be readable.
        let ranks = unsafe { std::slice::from_raw_parts(ranks, count) };
        let own = owner.world().rank() as c_int;
        let me = ranks.iter().position(|&rank| rank == own);
        let me = me.ok_or_else(|| Fault::argument("this rank is not among the ranks"))?;
        let members: Vec<_> =
            ranks.iter().map(|&rank| owner.peer(rank)).collect::<Result<_, _>>()?;
        let made = owner.packets.group(id, members.clone(), me);
        let made = made.ok_or_else(|| Fault(WEFT_TOO_MANY, format!("group {id} exists")))?;
        let expecting = RefCell::default();
        let head = Head::new::<WeftGroup>(job);
        let handle = Box::new(WeftGroup { head, group: made, members, expecting });
        // SAFETY: promised by the caller.
        unsafe { store(group, Box::into_raw(handle)) }?;
        Ok(WEFT_OK)
    })
}

/// Frees the handle of a group.
///
/// # Safety
/// `group` was stored by `weft_group_make` and not freed.
#[no_mangle]
pub unsafe extern "C" fn weft_group_free(group: *mut WeftGroup) -> c_int {
    // SAFETY: promised by the caller.
    enter(|| unsafe { free(group) })
}

/// Returns the longest packet to a group, in bytes.
///
/// # Safety
/// `group` is a living handle of a living job.
#[no_mangle]
pub unsafe extern "C" fn weft_group_packet_max(group: *const WeftGroup) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (group, _) = unsafe { object_of(group) }?;
        Ok(c_int::try_from(group.group.packet_max()).unwrap_or(c_int::MAX))
    })
}

/// Returns the number of members of a group that have had no room for longer than
/// WEFT_WARN_AFTER_MS although packets wait for them here, and stores the ranks of the first
/// `count`.
///
/// # Safety
/// `group` is a living handle of a living job, `ranks..ranks + count` is writable.
#[no_mangle]
pub unsafe extern "C" fn weft_group_slow(
    group: *const WeftGroup,
    ranks: *mut c_int,
    count: usize,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (group, job) = unsafe { object_of(group) }?;
        let slow = group.group.slow();
        for (at, (member, _)) in slow.iter().enumerate().take(count) {
            let rank = group.members.get(*member).map_or(-1, |&peer| job.rank_of(peer));
            // SAFETY: promised by the caller; the index is below `count`.
            unsafe { store(ranks.wrapping_add(at), rank) }?;
        }
        Ok(c_int::try_from(slow.len()).unwrap_or(c_int::MAX))
    })
}

/// Notes that this rank waits for packets of a member: until the same number of calls of
/// `weft_group_unexpect`, or until the handle is freed, the silence of that member and of those
/// that may forward its packets to here is noticed, and ends the group for all members. A member
/// that leaves in good order is not reported: its packets may still be in flight. WEFT_PEER: the
/// group has failed.
///
/// # Safety
/// `group` is a living handle of a living job.
#[no_mangle]
pub unsafe extern "C" fn weft_group_expect(group: *mut WeftGroup, rank: c_int) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (group, job) = unsafe { object_of(group.cast_const()) }?;
        let member = group.member(job, rank)?;
        let expecting = group.group.expect(member).map_err(|error| group.fault(job, error))?;
        group.expecting.borrow_mut().push((member, expecting));
        Ok(WEFT_OK)
    })
}

/// Ends one `weft_group_expect`. WEFT_ARGUMENT: there is none for that rank.
///
/// # Safety
/// `group` is a living handle of a living job.
#[no_mangle]
pub unsafe extern "C" fn weft_group_unexpect(group: *mut WeftGroup, rank: c_int) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (group, job) = unsafe { object_of(group.cast_const()) }?;
        let member = group.member(job, rank)?;
        let mut expecting = group.expecting.borrow_mut();
        let at = expecting.iter().position(|&(of, _)| of == member);
        let at = at.ok_or_else(|| Fault::argument("nothing is expected of that rank"))?;
        drop(expecting.swap_remove(at));
        Ok(WEFT_OK)
    })
}

/// Returns WEFT_PEER once a member failed, which `weft_last_error` names; else WEFT_OK.
///
/// # Safety
/// `group` is a living handle of a living job.
#[no_mangle]
pub unsafe extern "C" fn weft_group_failed(group: *const WeftGroup) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (group, job) = unsafe { object_of(group) }?;
        match group.group.failed() {
            Some(error) => Err(group.fault(job, error)),
            None => Ok(WEFT_OK),
        }
    })
}

/// Returns the present forwarder of this rank's multicasts over a tree: WEFT_BY_HOST or
/// WEFT_BY_AGENT. With WEFT_MULTICAST=agent it is the agents once all members have joined at
/// theirs; the first packet asks for that.
///
/// # Safety
/// `group` is a living handle of a living job.
#[no_mangle]
pub unsafe extern "C" fn weft_forwarded_by(group: *const WeftGroup, tree: c_int) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (group, job) = unsafe { object_of(group) }?;
        Ok(match group.group.forwarded_by(tree_of(job, tree)?) {
            Place::Agent => WEFT_BY_AGENT,
            Place::Host => WEFT_BY_HOST,
        })
    })
}

/// Sends a packet to a handler at all other members over a tree (`WEFT_TREE_...`); the memory is
/// free when this returns. Waits while a member has no room; in an upcall it returns WEFT_BUSY.
///
/// # Safety
/// `group` is a living handle of a living job, `data..data + len` is readable.
#[no_mangle]
pub unsafe extern "C" fn weft_multicast(
    group: *mut WeftGroup,
    tree: c_int,
    handler: u16,
    argument: u32,
    data: *const c_void,
    len: usize,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let ((group, job), data) =
            unsafe { (object_of(group.cast_const())?, bytes(data.cast(), len)?) };
        let tree = tree_of(job, tree)?;
        let sent = match job.depth.get() {
            0 => group.group.send_blocking(tree, handler, argument, data),
            _ => group.group.try_send(tree, handler, argument, data),
        };
        sent.map_err(|error| group.fault(job, error))?;
        Ok(WEFT_OK)
    })
}

/// Makes a counter here for ranks to add to, and stores its key.
///
/// # Safety
/// `job` is a living handle, `key` points to memory for a number.
#[no_mangle]
pub unsafe extern "C" fn weft_counter(job: *mut WeftJob, value: u64, key: *mut u64) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let made = unsafe { job_of(job) }?.packets.counter(value);
        let made = made.ok_or_else(|| Fault(WEFT_TOO_MANY, "no more keys".into()))?;
        // SAFETY: as before.
        unsafe { store(key, made.key) }?;
        Ok(WEFT_OK)
    })
}

/// Stores the value of a counter that was made here.
///
/// # Safety
/// `job` is a living handle, `value` points to memory for a number.
#[no_mangle]
pub unsafe extern "C" fn weft_counter_value(
    job: *const WeftJob,
    key: u64,
    value: *mut u64,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let found = unsafe { job_of(job) }?.packets.counter_value(Counter { key });
        let found = found.ok_or_else(|| no_counter(key))?;
        // SAFETY: as before.
        unsafe { store(value, found) }?;
        Ok(WEFT_OK)
    })
}

/// Ends a counter that was made here: later additions of ranks are refused, and an agent that kept
/// it has room for another. WEFT_BUSY: try again after progress.
///
/// # Safety
/// `job` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_counter_end(job: *mut WeftJob, key: u64) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        if !job.packets.counts(Counter { key }) {
            return Err(no_counter(key));
        }
        match job.packets.end_counter(Counter { key }) {
            true => Ok(WEFT_OK),
            false => Err(Fault(WEFT_BUSY, "the agent is busy".into())),
        }
    })
}

/// Adds `n` to a counter at a rank and stores the value before.
///
/// # Safety
/// `job` is a living handle, `old` is null or points to memory for a number.
#[no_mangle]
pub unsafe extern "C" fn weft_fetch_add(
    job: *mut WeftJob,
    rank: c_int,
    key: u64,
    n: u64,
    old: *mut u64,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        job.may_wait()?;
        let peer = job.peer(rank)?;
        let before = job.packets.fetch_add_blocking(peer, Counter { key }, n);
        let before = job.explained(before)?;
        if !old.is_null() {
            // SAFETY: promised by the caller.
            unsafe { store(old, before) }?;
        }
        Ok(WEFT_OK)
    })
}

/// Lets ranks that have the key copy to memory of this process.
///
/// # Safety
/// `job` is a living handle, `key` points to memory for a number; until `weft_unexport` returned,
/// `memory..memory + len` exists, and ranks write to it at any time.
#[no_mangle]
pub unsafe extern "C" fn weft_export(
    job: *mut WeftJob,
    memory: *mut c_void,
    len: usize,
    key: *mut u64,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        if memory.is_null() || len == 0 || len > isize::MAX as usize {
            return Err(Fault::argument("memory is null, or len out of bounds"));
        }
        if !is_mapped(memory, len) {
            return Err(not_mapped(memory, len));
        }
        // SAFETY: promised by the caller.
        let made = unsafe { job.packets.export_at((memory.cast(), len), super::call) };
        let made = made.ok_or_else(|| Fault(WEFT_TOO_MANY, "no more keys".into()))?;
        // SAFETY: as before.
        unsafe { store(key, made.key) }?;
        Ok(WEFT_OK)
    })
}

/// Allocates zeroed memory for copies by ranks that have the key; ranks of this host map it. It
/// exists until `weft_unexport` returns.
///
/// # Safety
/// `job` is a living handle, `memory` and `key` point to memory for a pointer and a number; ranks
/// write to the memory at any time.
#[no_mangle]
pub unsafe extern "C" fn weft_export_new(
    job: *mut WeftJob,
    len: usize,
    memory: *mut *mut c_void,
    key: *mut u64,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        if len == 0 || len > isize::MAX as usize {
            return Err(Fault::argument("len out of bounds"));
        }
        let made = job.packets.export(len).ok_or_else(|| {
            Fault(WEFT_TOO_MANY, format!("no memory of {len} bytes is left here, or no more keys"))
        })?;
        let start = job.packets.exported_at(made).unwrap_or(std::ptr::null_mut());
        // SAFETY: promised by the caller.
        unsafe { store(memory, start.cast()) }?;
        // SAFETY: as before.
        unsafe { store(key, made.key) }?;
        Ok(WEFT_OK)
    })
}

/// Ends an export: when this returns, no rank writes to the memory any more. WEFT_ARGUMENT: there
/// is no export with this key, and nothing is ended.
///
/// # Safety
/// `job` is a living handle.
#[no_mangle]
pub unsafe extern "C" fn weft_unexport(job: *mut WeftJob, key: u64) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        job.may_wait()?;
        if !job.packets.exports(key) {
            return Err(Fault::argument("nothing is exported under this key"));
        }
        job.packets.unexport_blocking(Exported { key, len: 0 });
        Ok(WEFT_OK)
    })
}

/// Copies bytes to `offset` of the memory that a rank exported under a key: they have arrived when
/// this returns.
///
/// # Safety
/// `job` is a living handle, `data..data + len` is readable.
#[no_mangle]
pub unsafe extern "C" fn weft_rcpy(
    job: *mut WeftJob,
    rank: c_int,
    key: u64,
    offset: u64,
    data: *const c_void,
    len: usize,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (job, data) = unsafe { (job_of(job)?, bytes(data.cast(), len)?) };
        job.may_wait()?;
        let peer = job.peer(rank)?;
        job.explained(job.packets.rcpy(peer, key, offset, data))?;
        Ok(WEFT_OK)
    })
}

/// Stores a counter of the packet interface by its name, one of those of
/// `weft_packets::PacketStats`.
///
/// # Safety
/// `job` is a living handle, `name` is a string, `value` points to memory for a number.
#[no_mangle]
pub unsafe extern "C" fn weft_stat(
    job: *const WeftJob,
    name: *const c_char,
    value: *mut u64,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (job, name) = unsafe { (job_of(job)?, word(name)?) };
        let at = PacketStats::NAMES.iter().position(|(known, _)| *known == name);
        let at = at.ok_or_else(|| Fault::argument(format!("there is no counter {name:?}")))?;
        // SAFETY: promised by the caller.
        unsafe { store(value, job.packets.stats().values()[at]) }?;
        Ok(WEFT_OK)
    })
}

/// Returns a string of the caller.
///
/// # Safety
/// `text` is null or a string that lives and stays unchanged for `'a`.
unsafe fn word<'a>(text: *const c_char) -> Result<&'a str, Fault> {
    if text.is_null() {
        return Err(Fault::argument("a name or value is null"));
    }
    // SAFETY: not null, and promised by the caller to be a string.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Fault::argument("a name or value is no word"))
}

/// Returns the choices with one of them replaced.
fn choose(chosen: Choices, name: &str, value: &str) -> Result<Choices, Fault> {
    if !["transfer", "reliability", "mtu", "fetch_add"].contains(&name) {
        return Err(Fault::argument(
            "chosen for one rank are transfer, reliability, mtu and fetch_add; the rest for a job \
             (WEFT_...), the tree of a multicast with the call",
        ));
    }
    let mut config = weft::Config::default();
    chosen.write(&mut config);
    config.set(name, value).map_err(|error| Fault::argument(error.to_string()))?;
    if !config.exceptions.is_empty() {
        return Err(Fault::argument("chosen for one rank is one value, and no list of ranks"));
    }
    Ok(Choices::of(&config))
}

/// Makes a choice for one rank: `name` is `transfer`, `reliability`, `mtu` or `fetch_add`, `value`
/// as in WEFT_TRANSFER and so on; the other choices stay. Reliability and mtu must be chosen before
/// anything is sent to the rank: WEFT_BUSY if the session has begun with others.
///
/// # Safety
/// `job` is a living handle, `name` and `value` are strings.
#[no_mangle]
pub unsafe extern "C" fn weft_choose(
    job: *mut WeftJob,
    rank: c_int,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (name, value) = unsafe { (word(name)?, word(value)?) };
        // SAFETY: promised by the caller.
        let job = unsafe { job_of(job) }?;
        let peer = job.peer(rank)?;
        let chosen = job.packets.endpoint().peer(peer).choices();
        let chosen =
            chosen.ok_or_else(|| Fault::argument(format!("rank {rank} is no peer of this one")))?;
        let choices = choose(chosen, name, value)?;
        job.packets.endpoint().peer(peer).choose(&choices)?;
        Ok(WEFT_OK)
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use weft::choices::{Server, Transfer};
    use weft::Reliability;

    #[test]
    fn choose__what_was_chosen_before_stays() {
        let chosen = |before, name, value| choose(before, name, value).ok();
        let first = chosen(Choices::default(), "reliability", "gbn").unwrap();
        let both = chosen(first, "mtu", "2K").unwrap();
        assert_eq!((both.reliability, both.mtu), (Reliability::GoBackN, 2048));
        assert_eq!(chosen(both, "reliability", "selective").map(|c| c.mtu), Some(2048));
        let all = chosen(chosen(both, "transfer", "rcpy").unwrap(), "fetch_add", "agent").unwrap();
        assert_eq!((all.transfer, all.fetch_add), (Transfer::Rcpy, Server::Agent));
        assert_eq!((all.reliability, all.mtu), (Reliability::GoBackN, 2048));
        assert_eq!(chosen(both, "transfer", "quick"), None);
        assert_eq!(chosen(both, "transfer", "copy,3=rcpy"), None);
        assert_eq!(chosen(both, "tree", "flat"), None);
        assert_eq!(chosen(both, "mtu", "much"), None);
        assert_eq!(chosen(both, "mtu", "3"), None);
    }
}

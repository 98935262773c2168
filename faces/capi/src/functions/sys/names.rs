//! Names of a cluster, and memberships of their groups.

use super::functions;
use crate::functions::member::{self, WeftMember, WeftMemberEvent, WeftMemberId};
use crate::functions::names::{self, name, WeftNames, WeftNamesEvent, WeftNamesWatch};
use crate::functions::owner::WeftOwner;
use crate::job::sys::job_of;
use crate::job::WeftJob;
use crate::object::sys::{apart, free_apart};
use crate::sys::{optional_text, text, Given, Out};
use std::ffi::{c_char, c_int, c_void};

functions! { enter_apart:
    fn weft_names_open(names: *mut *mut WeftNames) -> c_int {
        let names = Out::handle(names)?;
        names::open().map(|opened| names.give(opened))
    }

    fn weft_names_close(names: *mut WeftNames) -> c_int {
        free_apart(names)
    }

    fn weft_names_claim(
        names: *mut WeftNames, text_of_name: *const c_char, address: *const c_char, flags: c_int,
        claim: *mut u64,
    ) -> c_int {
        let (names, name) = (apart(names)?, name(text(text_of_name)?)?);
        let (address, claim) = (optional_text(address)?, Out::new(claim)?);
        names.claim(&name, address, flags).map(|number| claim.store(number))
    }

    fn weft_names_withdraw(names: *mut WeftNames, claim: u64) -> c_int {
        apart(names)?.withdraw(claim)
    }

    fn weft_names_find(
        names: *mut WeftNames, text_of_name: *const c_char, pick: c_int, owner: *mut WeftOwner,
    ) -> c_int {
        let (names, name) = (apart(names)?, name(text(text_of_name)?)?);
        names.find(&name, pick, &Out::new(owner)?)
    }

    fn weft_names_wait(
        names: *mut WeftNames, text_of_name: *const c_char, count: usize, timeout_us: i64,
        owners: *mut WeftOwner, room: usize,
    ) -> c_int {
        let (names, name) = (apart(names)?, name(text(text_of_name)?)?);
        names.wait(&name, (count, timeout_us), Given::new(owners), room)
    }

    fn weft_names_send(
        names: *mut WeftNames, text_of_name: *const c_char, all: c_int, data: *const c_void,
        len: usize,
    ) -> c_int {
        let (names, name) = (apart(names)?, name(text(text_of_name)?)?);
        names.send(&name, all, Given::new(data.cast()), len)
    }

    fn weft_names_sent(names: *mut WeftNames, number: *mut u64) -> c_int {
        let (names, number) = (apart(names)?, Out::new(number)?);
        number.store(names.sent());
        Ok(())
    }

    fn weft_names_next(
        names: *mut WeftNames, timeout_us: i64, event: *mut WeftNamesEvent,
    ) -> c_int {
        apart(names)?.next(timeout_us, &Out::new(event)?)
    }

    fn weft_names_fd(names: *mut WeftNames) -> c_int {
        Ok(apart(names)?.fd())
    }

    fn weft_names_watch_make(
        names: *mut WeftNames, text_of_name: *const c_char, first_last: c_int, timeout_us: i64,
        watch: *mut *mut WeftNamesWatch,
    ) -> c_int {
        let (names, name) = (apart(names)?, name(text(text_of_name)?)?);
        let watch = Out::handle(watch)?;
        names.watch(&name, first_last, timeout_us).map(|made| watch.give(made))
    }

    fn weft_names_watch_next(
        watch: *mut WeftNamesWatch, timeout_us: i64, event: *mut WeftNamesEvent,
    ) -> c_int {
        apart(watch)?.next(timeout_us, &Out::new(event)?)
    }

    fn weft_names_watch_fd(watch: *mut WeftNamesWatch) -> c_int {
        Ok(apart(watch)?.fd())
    }

    fn weft_names_watch_free(watch: *mut WeftNamesWatch) -> c_int {
        free_apart(watch)
    }

    fn weft_member_join(
        names: *mut WeftNames, text_of_name: *const c_char, address: *const c_char, flags: c_int,
        slow_us: i64, put_out_us: i64, member: *mut *mut WeftMember,
    ) -> c_int {
        let (names, name) = (apart(names)?, name(text(text_of_name)?)?);
        let (member, address) = (Out::handle(member)?, optional_text(address)?);
        let joined = member::join(names, (&name, address, flags), (slow_us, put_out_us));
        joined.map(|joined| member.give(joined))
    }

    fn weft_member_leave(member: *mut WeftMember) -> c_int {
        free_apart(member)
    }

    fn weft_member_next(
        member: *mut WeftMember, timeout_us: i64, event: *mut WeftMemberEvent,
    ) -> c_int {
        apart(member)?.next(timeout_us, &Out::new(event)?)
    }

    fn weft_member_send(
        member: *mut WeftMember, to: c_int, first: u32, last: u32, data: *const c_void,
        len: usize, timeout_us: i64, number: *mut u64,
    ) -> c_int {
        let (member, number) = (apart(member)?, Out::optional(number)?);
        let to = member::receivers(to, first, last)?;
        member.send(to, (Given::new(data.cast()), len), timeout_us, number)
    }

    fn weft_member_send_to(
        member: *mut WeftMember, id: *const WeftMemberId, data: *const c_void, len: usize,
        timeout_us: i64, number: *mut u64,
    ) -> c_int {
        let (member, number) = (apart(member)?, Out::optional(number)?);
        let to = member::receiver(Given::new(id))?;
        member.send(to, (Given::new(data.cast()), len), timeout_us, number)
    }

    fn weft_member_flush(member: *mut WeftMember, timeout_us: i64) -> c_int {
        apart(member)?.flush(timeout_us)
    }

    fn weft_member_fd(member: *mut WeftMember) -> c_int {
        Ok(apart(member)?.fd())
    }
}

functions! { enter:
    fn weft_names_claim_rank(
        names: *mut WeftNames, job: *mut WeftJob, text_of_name: *const c_char, flags: c_int,
        claim: *mut u64,
    ) -> c_int {
        let (names, job) = (apart(names)?, job_of(job)?);
        let (name, claim) = (name(text(text_of_name)?)?, Out::new(claim)?);
        names.claim_rank(job, &name, flags).map(|number| claim.store(number))
    }

    fn weft_connect_name(
        job: *mut WeftJob, names: *mut WeftNames, text_of_name: *const c_char, pick: c_int,
    ) -> c_int {
        let (names, job, name) = (apart(names)?, job_of(job)?, name(text(text_of_name)?)?);
        names.connect(job, &name, pick)
    }
}

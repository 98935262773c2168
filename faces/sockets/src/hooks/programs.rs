//! Functions by which another program begins, in this process or in a child.
//!
//! The program reads the connections that it inherits, so the bytes that wait in their rings go
//! back to TCP. If they cannot, and a program in this process's place has this library, they go
//! along in memory ([`crate::kept`]). Otherwise the program is not started (EAGAIN), and one line
//! says why: a program that began would read bytes with a gap.

use super::leave::hand_over;
use super::process::each;
use crate::failure::Failure;
use crate::holders::Look;
use crate::kept::Kept;
use crate::program::Program;
use crate::slot::BROKEN;
use crate::sys::{calls, real};
use crate::table::{self, Connection};
use crate::vfork;
use libc::c_int;
use std::fmt::Write;
use std::sync::atomic::{AtomicU32, Ordering};

/// Lines about programs that were not started, at most.
const LINES: u32 = 16;
static SAID: AtomicU32 = AtomicU32::new(0);

/// A program is not to be started.
pub struct Refused;

impl Refused {
    /// The result of a function that returns -1.
    pub fn fail(self) -> c_int {
        real::fail(libc::EAGAIN)
    }
}

/// A line without allocation.
struct Line {
    bytes: [u8; 400],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, more: &str) -> std::fmt::Result {
        for (to, from) in self.bytes[self.len..].iter_mut().zip(more.bytes()) {
            *to = from;
            self.len += 1;
        }
        Ok(())
    }
}

/// Says why something is refused.
#[cold]
pub fn complain(what: &str, fd: c_int, why: &Failure) {
    if SAID.fetch_add(1, Ordering::Relaxed) >= LINES {
        return;
    }
    let mut line = Line { bytes: [0; 400], len: 0 };
    let why = std::str::from_utf8(why.bytes()).unwrap_or("");
    let _ = writeln!(
        line,
        "weft sockets: {what} (EAGAIN): bytes of the connection at descriptor {fd} wait in memory \
         and cannot go back to TCP: {why}. Try again, or set FD_CLOEXEC on it."
    );
    calls::write(2, &line.bytes[..line.len]);
}

/// Another program is about to begin, which has some connections of this one and counts nothing:
/// they are by TCP from now on.
pub fn survive() -> Result<(), Refused> {
    let _look = Look::begin();
    survive_with(&mut |one| hand_over_shared(one))?;
    each(false, |one| one.slot.holders.has_strangers());
    Ok(())
}

fn hand_over_shared(one: &Connection) -> Result<(), Failure> {
    // One that has ended by an error tells that to any reader.
    match one.slot.is_shared() && !one.slot.has(BROKEN) {
        true => hand_over(one),
        false => Ok(()),
    }
}

fn survive_with(act: &mut dyn FnMut(&Connection) -> Result<(), Failure>) -> Result<(), Refused> {
    let mut failed = None;
    each(false, |one| {
        if failed.is_none() {
            failed = act(one).err().map(|why| (one.fd, why));
        }
    });
    match failed {
        Some((fd, why)) => {
            complain("another program was not started", fd, &why);
            Err(Refused)
        }
        None => Ok(()),
    }
}

/// A program without this library is to have a descriptor.
pub fn is_for_strangers(fd: c_int) -> Result<(), Refused> {
    let was = real::errno();
    if let Some(one) = table::connection(fd) {
        let _look = Look::begin();
        if let Err(why) = hand_over_shared(&one) {
            complain("a descriptor was not copied for another program", fd, &why);
            return Err(Refused);
        }
        one.slot.holders.has_strangers();
    }
    real::set_errno(was);
    Ok(())
}

/// This process is about to become another program. No other thread joins a connection meanwhile.
fn survive_as_another(next: &Program, kept: &mut Kept) -> Result<(), Refused> {
    survive_with(&mut |one| {
        let why = match hand_over_shared(one) {
            Ok(()) => return Ok(()),
            Err(why) => why,
        };
        match next.loads_library() && one.slot.holders.is_own() {
            true => kept.keep(one),
            false => Err(why),
        }
    })?;
    each(false, |one| {
        if !one.slot.holders.is_own() {
            one.slot.holders.has_strangers();
        }
    });
    Ok(())
}

/// This process is to become another program by a call, which returns if it fails.
pub fn becomes(next: Program, call: impl FnOnce() -> c_int) -> c_int {
    // A shell looks for a program in many folders.
    if next.is_missing() {
        return call();
    }
    match vfork::is_child() {
        // Its stack may be small.
        true => survive().map_or_else(Refused::fail, |()| call()),
        false => becomes_here(&next, call),
    }
}

#[inline(never)]
fn becomes_here(next: &Program, call: impl FnOnce() -> c_int) -> c_int {
    let _look = Look::begin();
    let mut kept = Kept::new();
    if let Err(refused) = survive_as_another(next, &mut kept) {
        return refused.fail();
    }
    table::is_leaving(true);
    let failed = call();
    let was = real::errno();
    table::is_leaving(false);
    drop(kept);
    real::set_errno(was);
    failed
}

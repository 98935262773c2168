//! The functions of the interface by their objects, without what C needs.

pub mod complete;
pub mod connect;
pub mod endpoint;
pub mod info;
pub mod library;
pub mod message;

use crate::code::{self, Answer, Return};
use crate::enter::{enter, Inside};
use crate::errors;
use crate::handle::{endpoint_parts, Handle};
use crate::open::run_handler;
use crate::params::{check_contexts, check_mask};
use std::ffi::CStr;
use std::time::Duration;
use weft_ffi::given::Place;
use weft_ffi::sys::service::Until;
use weft_ffi::wall::guarded;

/// Runs the body of a function. A failure goes to the handler of errors of the endpoint, if one is
/// named, or of the library.
#[inline]
pub fn call(name: &CStr, endpoint: Handle, body: impl FnOnce() -> Answer) -> Return {
    match guarded("libmyriexpress", body).unwrap_or(Err(code::BAD_BAD_BAD)) {
        Ok(()) => code::SUCCESS,
        Err(code) => errors::raise(name, endpoint_parts(endpoint).ok().map(|(slot, _)| slot), code),
    }
}

/// The time that a call may take: of one round of progress, or so many milliseconds, where 0 is
/// without end.
pub type Time = Option<u32>;

/// Returns the end of a wait of so many milliseconds; 0 is without end.
fn until(ms: u32) -> Until {
    match ms {
        0 => Until::Never,
        ms => Until::In(Duration::from_millis(ms.into())),
    }
}

/// Makes progress and calls the handler of messages, until `look` finds something. `None` if the
/// time is over, or `mx_wakeup` was called.
#[inline]
fn look_for<R>(
    inside: &mut Inside,
    time: Time,
    mut look: impl FnMut(&mut Inside) -> Answer<Option<R>>,
) -> Answer<Option<R>> {
    let mut look = |inside: &mut Inside| {
        run_handler(inside)?;
        look(inside)
    };
    let Some(ms) = time else {
        inside.progress()?;
        return look(inside);
    };
    let wakeups = inside.open()?.waits.wakeups;
    let found = inside.wait(until(ms), |i| {
        if let Some(found) = look(i)? {
            return Ok(Some(Some(found)));
        }
        Ok((i.open()?.waits.wakeups != wakeups).then_some(None))
    });
    match found {
        Err(code::TIMEOUT) => Ok(None),
        found => found,
    }
}

/// Enters an endpoint to look for match bits.
///
/// # Errors
/// `MX_BAD_INFO_VAL`: there is no place for the result; those of [`enter`], [`check_mask`] and
/// [`check_contexts`].
fn enter_to_match(
    endpoint: Handle,
    (bits, mask): (u64, u64),
    result: Place<'_, u32>,
) -> Answer<Inside> {
    result.or(code::BAD_INFO_VAL)?;
    check_mask(bits, mask)?;
    let mut inside = enter(endpoint)?;
    check_contexts(mask, inside.open()?.contexts)?;
    Ok(inside)
}

/// Stores what was found, and if something was.
#[inline]
fn give<T: Copy>(found: Option<T>, to: Place<'_, T>, result: Place<'_, u32>) {
    if let Some(found) = found {
        to.store(found);
    }
    result.store(found.is_some().into());
}

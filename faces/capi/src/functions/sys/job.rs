//! Jobs: joining, leaving, progress, choices; the meaning of codes.

use super::functions;
use crate::entry::last_text;
use crate::fault::meaning;
use crate::functions::progress;
use crate::job::sys::{end, job_of, start};
use crate::job::{join, WeftJob};
use crate::sys::{text, Out};
use std::ffi::{c_char, c_int};

/// Returns the meaning of a code.
#[no_mangle]
pub extern "C" fn weft_strerror(code: c_int) -> *const c_char {
    meaning(code).as_ptr()
}

/// Returns details of the last call of this thread that failed, valid until the next one that
/// fails; for a failed rank its number, host, link, interface and addresses, the reason, and the
/// next step for the user.
#[no_mangle]
pub extern "C" fn weft_last_error() -> *const c_char {
    last_text()
}

functions! { enter:
    fn weft_init(job: *mut *mut WeftJob) -> c_int {
        let job = Out::handle(job)?;
        let (joined, _gate) = start(join()?)?;
        job.store(joined);
        Ok(())
    }

    fn weft_finish(job: *mut WeftJob) -> c_int {
        let of = job_of(job)?;
        of.may_wait()?;
        let here = of.is_here();
        end(job);
        here
    }

    fn weft_rank(job: *const WeftJob) -> c_int {
        Ok(job_of(job)?.world().rank())
    }

    fn weft_size(job: *const WeftJob) -> c_int {
        Ok(job_of(job)?.world().size())
    }

    fn weft_poll(job: *mut WeftJob) -> c_int {
        progress::poll(job_of(job)?)
    }

    fn weft_wait(job: *mut WeftJob, timeout_us: i64) -> c_int {
        progress::wait(job_of(job)?, timeout_us)
    }

    fn weft_wait_fd(job: *mut WeftJob) -> c_int {
        progress::wait_fd(job_of(job)?)
    }

    fn weft_prepare_wait(job: *mut WeftJob) -> c_int {
        progress::prepare_wait(job_of(job)?)
    }

    fn weft_finish_wait(job: *mut WeftJob) -> c_int {
        progress::finish_wait(job_of(job)?)
    }

    fn weft_barrier(job: *mut WeftJob) -> c_int {
        progress::barrier(job_of(job)?)
    }

    fn weft_stat(job: *const WeftJob, name: *const c_char, value: *mut u64) -> c_int {
        let (job, name, value) = (job_of(job)?, text(name)?, Out::new(value)?);
        progress::stat(job, name).map(|number| value.store(number))
    }

    fn weft_choose(
        job: *mut WeftJob, rank: c_int, name: *const c_char, value: *const c_char,
    ) -> c_int {
        let (name, value) = (text(name)?, text(value)?);
        progress::choose(job_of(job)?, rank, name, value)
    }
}

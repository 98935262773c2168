//! Functions that make processes, or confine this one.

use crate::hooks::process::{confines, forks, in_child, is_confined, made, shares};
use crate::sys::real;
use crate::{settings, vfork};
use libc::{c_int, c_long, c_void, pid_t};

/// A function that a child begins with, and its argument.
type Function = extern "C-unwind" fn(*mut c_void) -> c_int;
struct Begin(Function, *mut c_void);

extern "C-unwind" fn begins(at: *mut c_void) -> c_int {
    // SAFETY: the caller's of `clone`, in the child's copy of the memory.
    let Begin(function, argument) = unsafe { &*at.cast::<Begin>() };
    in_child();
    function(*argument)
}

hooks! {
    /// fork(2) without the handlers that libraries register.
    fn _Fork() -> pid_t {
        forks(|| real::_Fork().into()) as pid_t
    }

    /// clone(2), which has three arguments more, for some flags.
    fn clone(
        function: Option<Function>, stack: *mut c_void, flags: c_int, argument: *mut c_void,
        parent_id: *mut pid_t, tls: *mut c_void, child_id: *mut pid_t,
    ) -> c_int {
        let call = |function, argument| {
            real::clone(function, stack, flags, argument, parent_id, tls, child_id)
        };
        let is_process = flags & libc::CLONE_THREAD == 0 && !stack.is_null();
        let Some(begin) = function.filter(|_| is_process) else {
            return call(function, argument);
        };
        shares(flags);
        match flags & (libc::CLONE_VM | libc::CLONE_VFORK) {
            libc::CLONE_VM => vfork::runs_beside(|| call(function, argument)),
            0 | libc::CLONE_VFORK => {
                let mut begin = Begin(begin, argument);
                forks(|| call(Some(begins), (&raw mut begin).cast()).into()) as c_int
            }
            _ => vfork::waits(|| call(function, argument)),
        }
    }

    /// clone(2) under its other name.
    fn __clone(
        function: Option<Function>, stack: *mut c_void, flags: c_int, argument: *mut c_void,
        parent_id: *mut pid_t, tls: *mut c_void, child_id: *mut pid_t,
    ) -> c_int {
        clone(function, stack, flags, argument, parent_id, tls, child_id)
    }

    /// fork(2), which the handlers of this library follow.
    fn fork() -> pid_t {
        made(real::fork())
    }

    /// prctl(2).
    fn prctl(what: c_int, a: c_long, b: c_long, c: c_long, d: c_long) -> c_int {
        if confines(what.into(), a) && settings::is_on() {
            is_confined();
        }
        real::prctl(what, a, b, c, d)
    }
}

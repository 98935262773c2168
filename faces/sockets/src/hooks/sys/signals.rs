//! Functions that set handlers of signals, hold signals back, and send them.

use super::mask_at;
use crate::hooks::signals;
use crate::sys::real;
use crate::{guard, urgent};
use libc::{c_int, pid_t, sigaction as Action, sighandler_t, sigset_t};

hooks! {
    /// sigaction(2).
    fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
        signals::sigaction(signal, new.as_ref(), old.as_mut())
    }

    /// sigaction(2) under its other name.
    fn __sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
        sigaction(signal, new, old)
    }

    /// signal(2): calls go on after its handlers.
    fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
        signals::set(signal, handler, true, real::signal(signal, handler))
    }

    /// bsd_signal(3).
    fn bsd_signal(one: c_int, handler: sighandler_t) -> sighandler_t {
        signal(one, handler)
    }

    /// ssignal(3).
    fn ssignal(one: c_int, handler: sighandler_t) -> sighandler_t {
        signal(one, handler)
    }

    /// sysv_signal(3): its handlers end calls.
    fn sysv_signal(one: c_int, handler: sighandler_t) -> sighandler_t {
        signals::set(one, handler, false, real::sysv_signal(one, handler))
    }

    /// sysv_signal(3) under its other name: signal(2) of programs built for System V.
    fn __sysv_signal(one: c_int, handler: sighandler_t) -> sighandler_t {
        sysv_signal(one, handler)
    }

    /// sigset(3): its handlers end calls.
    fn sigset(one: c_int, handler: sighandler_t) -> sighandler_t {
        signals::set(one, handler, false, real::sigset(one, handler))
    }

    /// siginterrupt(3).
    fn siginterrupt(signal: c_int, ends: c_int) -> c_int {
        signals::has_interrupts(signal, ends, || real::siginterrupt(signal, ends))
    }

    /// pthread_sigmask(3).
    fn pthread_sigmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int {
        let result = real::pthread_sigmask(how, new, old);
        // The kernel has read the set too.
        if result == 0 {
            mask_at(new).into_iter().for_each(guard::masks);
        }
        result
    }

    /// sigprocmask(2).
    fn sigprocmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int {
        let result = real::sigprocmask(how, new, old);
        // The kernel has read the set too.
        if result == 0 {
            mask_at(new).into_iter().for_each(guard::masks);
        }
        result
    }

    /// kill(2).
    fn kill(to: pid_t, signal: c_int) -> c_int {
        urgent::sends(to, signal, || real::kill(to, signal).into()) as c_int
    }

    /// killpg(3).
    fn killpg(group: pid_t, signal: c_int) -> c_int {
        urgent::sends(group.wrapping_neg(), signal, || real::killpg(group, signal).into()) as c_int
    }

    /// sigqueue(3).
    fn sigqueue(to: pid_t, signal: c_int, value: libc::sigval) -> c_int {
        urgent::sends(to, signal, || real::sigqueue(to, signal, value).into()) as c_int
    }
}

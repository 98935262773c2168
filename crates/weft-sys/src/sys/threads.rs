//! Threads of a library in a program that it does not know.

use std::mem::zeroed;

/// Runs `start` with all signals blocked, so that no signal interrupts a thread that it starts: the
/// program's own threads handle them, and a handler in that thread would have no call of the
/// program to return to. Faults are not blocked, as functions of the program may run there.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: all-zero is a valid set; both sets are live for the calls.
    let before = unsafe {
        let (mut all, mut before) = (zeroed(), zeroed());
        libc::sigfillset(&raw mut all);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
            libc::sigdelset(&raw mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let started = start();
    // SAFETY: `before` is the set that was in force before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    started
}

/// Returns the size of the stack of a thread that needs `own` bytes of it. The C library keeps what
/// the program declares as thread-local there too, which may be more than the rest.
pub fn stack(own: usize) -> usize {
    type Least = unsafe extern "C" fn(*const libc::pthread_attr_t) -> libc::size_t;
    // SAFETY: the name is a C string.
    let least = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr()) };
    if least.is_null() {
        // A C library that keeps them elsewhere.
        return own;
    }
    // SAFETY: the function of the GNU C library has this type, as Rust's library uses it; all zeros
    // are attributes whose fields it does not follow.
    let least = unsafe {
        let attributes: libc::pthread_attr_t = zeroed();
        std::mem::transmute::<*mut libc::c_void, Least>(least)(&raw const attributes)
    };
    own + least
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::hint::black_box;

    thread_local! {
        /// More than the stack of the thread below.
        static LARGE: Cell<[u8; 1 << 20]> = const { Cell::new([0; 1 << 20]) };
    }

    #[test]
    fn stack__has_room_beside_what_the_program_keeps_for_each_thread() {
        const OWN: usize = 64 << 10;
        let uses = || {
            LARGE.with(|large| black_box(large.as_ptr()));
            let on_stack = black_box([1u8; OWN / 2]);
            on_stack.iter().map(|&byte| usize::from(byte)).sum::<usize>()
        };
        let thread = std::thread::Builder::new().stack_size(stack(OWN)).spawn(uses);
        assert_eq!(thread.unwrap().join().unwrap(), OWN / 2);
    }
}

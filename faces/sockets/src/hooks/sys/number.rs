//! syscall(2): the calls of this adapter by their numbers, with the meaning that they have for the
//! kernel. A call that is none of these, or is on a file that is none of this library's, goes to
//! the kernel after one look at its number.

use super::{data, life, programs, tipc as other, waits};
use crate::guard::{self, Caller};
use crate::hooks::number::{confines, flags_of, kind_of, knows, Kind};
use crate::hooks::{life as descriptors_of, options, process, signals};
use crate::sys::real;
use crate::{settings, urgent};
use libc::{c_int, c_long, c_uint, c_ulong, socklen_t};

/// The arguments of a call.
type Args = [c_long; 6];

/// Makes a call of the kernel.
///
/// # Safety
/// The caller's arguments.
unsafe fn by_kernel(number: c_long, [a, b, c, d, e, f]: Args) -> c_long {
    // SAFETY: the caller's arguments.
    unsafe { real::syscall(number, a, b, c, d, e, f) }
}

extern "C" {
    fn pthread_setcancelstate(state: c_int, was: *mut c_int) -> c_int;
}

/// While it lives, a thread that is cancelled ends at none of the C library's functions, which
/// stand behind the hooks: a call by its number is no place for that.
struct Uncancelled(c_int);

impl Uncancelled {
    fn begin() -> Uncancelled {
        const DISABLE: c_int = 1;
        let mut was = 0;
        // SAFETY: a number is written.
        unsafe { pthread_setcancelstate(DISABLE, &mut was) };
        Uncancelled(was)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state that this thread had.
        unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
    }
}

/// syscall(2). Programs that are refused io_uring use other calls.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let args = [a, b, c, d, e, f];
    // SAFETY: the caller's arguments.
    unsafe {
        match kind_of(number) {
            Kind::Moves => moves(number, args),
            Kind::Messages => messages(number, args),
            Kind::Descriptors => descriptors(number, args),
            Kind::Changes => changes(number, args),
            Kind::Waits => waiting(number, args),
            Kind::Processes => processes(number, args),
            Kind::Other => of_this_machine(number, args),
        }
    }
}

/// Calls that some machines have, and others not any more.
#[cfg(target_arch = "x86_64")]
unsafe fn of_this_machine(number: c_long, args: Args) -> c_long {
    let [a, b, c, d, e, _] = args;
    // SAFETY: the caller's arguments.
    unsafe {
        match number {
            libc::SYS_dup2 => {
                let _steady = Uncancelled::begin();
                life::dup2(a as c_int, b as c_int).into()
            }
            libc::SYS_poll => {
                let _steady = Uncancelled::begin();
                waits::poll(a as *mut _, b as libc::nfds_t, c as c_int).into()
            }
            libc::SYS_select => {
                let _steady = Uncancelled::begin();
                waits::select(a as c_int, b as *mut _, c as *mut _, d as *mut _, e as *mut _).into()
            }
            libc::SYS_epoll_create => waits::epoll_create(a as c_int).into(),
            libc::SYS_epoll_wait if knows(a) => {
                let _steady = Uncancelled::begin();
                waits::epoll_wait(a as c_int, b as *mut _, c as c_int, d as c_int).into()
            }
            libc::SYS_fork => process::forks_by(0, || by_kernel(number, args)),
            _ => by_kernel(number, args),
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn of_this_machine(number: c_long, args: Args) -> c_long {
    // SAFETY: the caller's arguments.
    unsafe { by_kernel(number, args) }
}

/// Calls that move bytes of one file, or between two.
unsafe fn moves(number: c_long, args: Args) -> c_long {
    let [a, b, c, d, e, f] = args;
    let other = if number == libc::SYS_splice { c } else { a };
    if !knows(a) && !knows(other) {
        // SAFETY: the caller's arguments.
        return unsafe { by_kernel(number, args) };
    }
    let _steady = Uncancelled::begin();
    let (fd, len, n) = (a as c_int, c as usize, c as c_int);
    // SAFETY: the caller's arguments.
    let moved = unsafe {
        match number {
            libc::SYS_read => data::read(fd, b as *mut _, len),
            libc::SYS_readv => data::readv(fd, b as *const _, n),
            libc::SYS_preadv2 => data::preadv2(fd, b as *const _, n, d, f as c_int),
            libc::SYS_recvfrom => {
                data::recvfrom(fd, b as *mut _, len, d as c_int, e as *mut _, f as *mut _)
            }
            libc::SYS_recvmmsg => {
                data::recvmmsg(fd, b as *mut _, c as c_uint, d as c_int, e as *mut _) as isize
            }
            libc::SYS_write => data::write(fd, b as *const _, len),
            libc::SYS_writev => data::writev(fd, b as *const _, n),
            libc::SYS_pwritev2 => data::pwritev2(fd, b as *const _, n, d, f as c_int),
            libc::SYS_sendto => {
                data::sendto(fd, b as *const _, len, d as c_int, e as *const _, f as socklen_t)
            }
            libc::SYS_sendfile => data::sendfile(fd, b as c_int, c as *mut _, d as usize),
            _ => data::splice(fd, b as *mut _, n, d as *mut _, e as usize, f as c_uint),
        }
    };
    moved as c_long
}

/// Calls that may carry descriptors.
unsafe fn messages(number: c_long, args: Args) -> c_long {
    let [a, b, c, d, ..] = args;
    let _steady = Uncancelled::begin();
    // SAFETY: the caller's arguments.
    unsafe {
        match number {
            libc::SYS_recvmsg => data::recvmsg(a as c_int, b as *mut _, c as c_int) as c_long,
            libc::SYS_sendmsg => data::sendmsg(a as c_int, b as *const _, c as c_int) as c_long,
            _ => data::sendmmsg(a as c_int, b as *mut _, c as c_uint, d as c_int).into(),
        }
    }
}

/// Calls that make, copy and close descriptors.
unsafe fn descriptors(number: c_long, args: Args) -> c_long {
    let [a, b, c, d, ..] = args;
    let _steady = Uncancelled::begin();
    // SAFETY: the caller's arguments.
    let result = unsafe {
        match number {
            libc::SYS_socket => other::socket(a as c_int, b as c_int, c as c_int),
            libc::SYS_connect => life::connect(a as c_int, b as *const _, c as socklen_t),
            libc::SYS_accept => life::accept(a as c_int, b as *mut _, c as *mut _),
            libc::SYS_accept4 => life::accept4(a as c_int, b as *mut _, c as *mut _, d as c_int),
            libc::SYS_close => life::close(a as c_int),
            libc::SYS_close_range => life::close_range(a as c_uint, b as c_uint, c as c_int),
            libc::SYS_dup => life::dup(a as c_int),
            libc::SYS_dup3 => life::dup3(a as c_int, b as c_int, c as c_int),
            _ => {
                let got = by_kernel(number, args) as c_int;
                descriptors_of::came(got);
                got
            }
        }
    };
    result.into()
}

/// Calls that change a socket, or ask about it.
unsafe fn changes(number: c_long, args: Args) -> c_long {
    let [a, b, c, d, e, _] = args;
    // The C library has meanings of its own for the rest.
    let is_hooked = number != libc::SYS_fcntl || options::is_hooked(b as c_int);
    if !knows(a) || !is_hooked {
        // SAFETY: the caller's arguments.
        return unsafe { by_kernel(number, args) };
    }
    let _steady = Uncancelled::begin();
    let (fd, level, name, len) = (a as c_int, b as c_int, c as c_int, e as socklen_t);
    // SAFETY: the caller's arguments.
    let result = unsafe {
        match number {
            libc::SYS_bind => other::bind(fd, b as *const _, c as socklen_t),
            libc::SYS_listen => other::listen(fd, b as c_int),
            libc::SYS_getsockname => other::getsockname(fd, b as *mut _, c as *mut _),
            libc::SYS_getpeername => other::getpeername(fd, b as *mut _, c as *mut _),
            libc::SYS_fcntl => life::fcntl(fd, b as c_int, c),
            libc::SYS_ioctl => life::ioctl(fd, b as c_ulong, c as *mut _),
            libc::SYS_shutdown => life::shutdown(fd, b as c_int),
            libc::SYS_setsockopt => life::setsockopt(fd, level, name, d as *const _, len),
            _ => life::getsockopt(fd, level, name, d as *mut _, e as *mut _),
        }
    };
    result.into()
}

/// Calls that wait.
unsafe fn waiting(number: c_long, args: Args) -> c_long {
    let [a, b, c, d, e, f] = args;
    let is_of_set = matches!(number, libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2);
    // The kernel refuses a mask of another size.
    let is_wrong = match number {
        libc::SYS_ppoll => d != 0 && e as usize != MASK,
        _ => is_of_set && e != 0 && f as usize != MASK,
    };
    if is_of_set && !knows(a) || is_wrong {
        // SAFETY: the caller's arguments.
        return unsafe { by_kernel(number, args) };
    }
    let _steady = Uncancelled::begin();
    // SAFETY: the caller's arguments.
    let result = unsafe {
        match number {
            libc::SYS_ppoll => {
                waits::ppoll_by(a as *mut _, b as libc::nfds_t, c as *const _, || {
                    guard::waits_with(super::mask_at(d as *const _), || {
                        by_kernel(number, args) as c_int
                    })
                })
            }
            libc::SYS_pselect6 => {
                let sets = [b, c, d].map(|set| set as *mut _);
                // A set, and its length.
                let mask = Caller::new(f as *const [usize; 2]).get().map_or(0, |[at, _]| *at);
                waits::pselect_by(a as c_int, sets, e as *const _, || {
                    guard::waits_with(super::mask_at(mask as *const _), || {
                        by_kernel(number, args) as c_int
                    })
                })
            }
            libc::SYS_epoll_create1 => waits::epoll_create1(a as c_int),
            libc::SYS_epoll_ctl => {
                waits::epoll_ctl(a as c_int, b as c_int, c as c_int, d as *mut _)
            }
            libc::SYS_epoll_pwait => {
                waits::epoll_pwait(a as c_int, b as *mut _, c as c_int, d as c_int, e as *const _)
            }
            _ => waits::epoll_pwait2_by(a as c_int, b as *mut _, c as c_int, d as *const _, {
                |events, n| {
                    let args = [a, events as c_long, n.into(), d, e, f];
                    guard::waits_with(super::mask_at(e as *const _), || {
                        by_kernel(number, args) as c_int
                    })
                }
            }),
        }
    };
    result.into()
}

/// Bytes of a mask of signals, as the kernel has it.
const MASK: usize = 8;

/// Calls about processes.
unsafe fn processes(number: c_long, args: Args) -> c_long {
    let [a, b, ..] = args;
    // SAFETY: the caller's arguments.
    let call = || unsafe { by_kernel(number, args) };
    match number {
        libc::SYS_clone => process::clones_by(a as u64, b as u64, call),
        libc::SYS_clone3 => {
            // SAFETY: the caller's arguments.
            let (flags, stack) = flags_of(unsafe { Caller::new(a as *const u64) }, b as usize);
            process::clones_by(flags, stack, call)
        }
        libc::SYS_execve => {
            let envp = args[2] as *const _;
            // SAFETY: the caller's arguments.
            unsafe {
                programs::execveat_by((libc::AT_FDCWD, a as *const _), 0, envp, |envp| {
                    by_kernel(number, [a, b, envp as c_long, 0, 0, 0]) as c_int
                })
            }
            .into()
        }
        libc::SYS_execveat => {
            let [_, _, c, d, e, _] = args;
            let file = (a as c_int, b as *const _);
            // SAFETY: the caller's arguments.
            unsafe {
                programs::execveat_by(file, e as c_int, d as *const _, |envp| {
                    by_kernel(number, [a, b, c, envp as c_long, e, 0]) as c_int
                })
            }
            .into()
        }
        libc::SYS_prctl if process::confines(a, b) && settings::is_on() => {
            process::is_confined();
            call()
        }
        libc::SYS_seccomp if confines(a as c_uint) && settings::is_on() => {
            process::is_confined();
            call()
        }
        libc::SYS_rt_sigaction => {
            // SAFETY: the caller's actions.
            let [new, old] = [b, args[2]].map(|at| unsafe { Caller::new(at as *const _) });
            signals::set_by_kernel(a as c_int, new, old, call)
        }
        libc::SYS_rt_sigprocmask => {
            let result = call();
            if result == 0 {
                // SAFETY: the caller's set, which the kernel has read.
                unsafe { super::mask_at(b as *const _) }.into_iter().for_each(guard::masks);
            }
            result
        }
        libc::SYS_kill | libc::SYS_rt_sigqueueinfo => urgent::sends(a as i32, b as c_int, call),
        libc::SYS_io_uring_setup if settings::is_on() => real::fail(libc::ENOSYS).into(),
        _ => call(),
    }
}

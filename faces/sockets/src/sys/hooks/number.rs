//! syscall(2): the calls of this face by their numbers, with the meaning that they have for the
//! kernel. A call that is none of these, or is on a file that is none of this library's, goes to
//! the kernel after one look at its number.

use super::{data, life, placed, process, programs, signals, tipc as other, waits};
use crate::sys::target;
use crate::sys::{guard, real, settings, table, tipc, urgent};
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
/// As the C library's.
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
        match number {
            libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_preadv2
            | libc::SYS_recvfrom
            | libc::SYS_recvmmsg
            | libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_pwritev2
            | libc::SYS_sendto
            | libc::SYS_sendfile
            | libc::SYS_splice => moves(number, args),
            libc::SYS_recvmsg | libc::SYS_sendmsg | libc::SYS_sendmmsg => messages(number, args),
            libc::SYS_socket
            | libc::SYS_connect
            | libc::SYS_accept
            | libc::SYS_accept4
            | libc::SYS_close
            | libc::SYS_close_range
            | libc::SYS_dup
            | libc::SYS_dup3
            | libc::SYS_pidfd_getfd => descriptors(number, args),
            libc::SYS_bind
            | libc::SYS_listen
            | libc::SYS_getsockname
            | libc::SYS_getpeername
            | libc::SYS_fcntl
            | libc::SYS_ioctl
            | libc::SYS_shutdown
            | libc::SYS_setsockopt
            | libc::SYS_getsockopt => changes(number, args),
            libc::SYS_ppoll
            | libc::SYS_pselect6
            | libc::SYS_epoll_create1
            | libc::SYS_epoll_ctl
            | libc::SYS_epoll_pwait
            | libc::SYS_epoll_pwait2 => waiting(number, args),
            libc::SYS_clone
            | libc::SYS_clone3
            | libc::SYS_execve
            | libc::SYS_execveat
            | libc::SYS_prctl
            | libc::SYS_seccomp
            | libc::SYS_rt_sigaction
            | libc::SYS_rt_sigprocmask
            | libc::SYS_rt_sigqueueinfo
            | libc::SYS_kill
            | libc::SYS_io_uring_setup => processes(number, args),
            _ => of_this_machine(number, args),
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

/// True if this library has something of a descriptor.
fn knows(fd: c_long) -> bool {
    table::knows(fd as c_int) || tipc::is(fd as c_int)
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
            libc::SYS_preadv2 => placed::preadv2(fd, b as *const _, n, d, f as c_int),
            libc::SYS_recvfrom => {
                data::recvfrom(fd, b as *mut _, len, d as c_int, e as *mut _, f as *mut _)
            }
            libc::SYS_recvmmsg => {
                data::recvmmsg(fd, b as *mut _, c as c_uint, d as c_int, e as *mut _) as isize
            }
            libc::SYS_write => data::write(fd, b as *const _, len),
            libc::SYS_writev => data::writev(fd, b as *const _, n),
            libc::SYS_pwritev2 => placed::pwritev2(fd, b as *const _, n, d, f as c_int),
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
                life::came(got);
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
    let is_hooked = number != libc::SYS_fcntl || life::is_hooked(b as c_int);
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
                    guard::waits_with(d as *const _, || by_kernel(number, args) as c_int)
                })
            }
            libc::SYS_pselect6 => {
                let sets = [b, c, d].map(|set| set as *mut _);
                // A set, and its length.
                let mask = guard::get(f as *const [usize; 2]).map_or(0, |[at, _]| *at);
                waits::pselect_by(a as c_int, sets, e as *const _, || {
                    guard::waits_with(mask as *const _, || by_kernel(number, args) as c_int)
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
                    guard::waits_with(e as *const _, || by_kernel(number, args) as c_int)
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
            let (flags, stack) = unsafe { flags_of(a as *const u64, b as usize) };
            process::clones_by(flags, stack, call)
        }
        libc::SYS_execve => {
            // SAFETY: the caller's arguments.
            let call = || unsafe { starts(number, args) } as c_int;
            programs::execve_by(a as *const _, args[2] as *const _, call).into()
        }
        libc::SYS_execveat => {
            let (path, environment) = (b as *const _, args[3] as *const _);
            // SAFETY: the caller's arguments.
            let call = || unsafe { starts(number, args) } as c_int;
            programs::execveat_by(a as c_int, path, environment, call).into()
        }
        libc::SYS_prctl if process::confines(a, b) && settings::is_on() => {
            process::is_confined();
            call()
        }
        libc::SYS_seccomp if SETS.contains(&(a as c_uint)) && settings::is_on() => {
            process::is_confined();
            call()
        }
        libc::SYS_rt_sigaction => {
            // SAFETY: the caller's actions.
            unsafe { signals::set_by_kernel(a as c_int, b as *const _, args[2] as *mut _, call) }
        }
        libc::SYS_rt_sigprocmask => {
            let result = call();
            let set = if result == 0 { b as *const u64 } else { std::ptr::null() };
            // SAFETY: the caller's set, which the kernel has read.
            unsafe { guard::masks(set) };
            result
        }
        libc::SYS_kill | libc::SYS_rt_sigqueueinfo => urgent::sends(a as i32, b as c_int, call),
        libc::SYS_io_uring_setup if settings::is_on() => real::fail(libc::ENOSYS).into(),
        _ => call(),
    }
}

/// Starts a program by execve(2), or by execveat(2), which may name it by a descriptor.
///
/// # Safety
/// The caller's arguments.
unsafe fn starts(number: c_long, args: Args) -> c_long {
    let mut args = args;
    let is_at = number == libc::SYS_execveat;
    let (folder, at, env) = if is_at { (args[0] as c_int, 1, 3) } else { (libc::AT_FDCWD, 0, 2) };
    let flags = if is_at { args[4] as c_int } else { 0 };
    let file = (folder, args[at] as *const libc::c_char);
    // SAFETY: the caller's arguments.
    unsafe {
        target::starts_at(file, flags, args[env] as *const _, |envp| {
            args[env] = envp as c_long;
            by_kernel(number, args)
        })
    }
}

/// Commands of seccomp(2) that confine a program.
const SETS: std::ops::RangeInclusive<c_uint> =
    libc::SECCOMP_SET_MODE_STRICT..=libc::SECCOMP_SET_MODE_FILTER;

/// Returns the flags and the stack of a clone3(2).
///
/// # Safety
/// The caller's arguments, of this length.
unsafe fn flags_of(args: *const u64, len: usize) -> (u64, u64) {
    const STACK: usize = 5;
    // SAFETY: the caller's arguments, if they are there.
    unsafe {
        match len > 8 * STACK && guard::is_readable(args, STACK + 1) {
            true => (*args, *args.add(STACK)),
            // The kernel refuses them.
            false => (libc::CLONE_THREAD as u64, 0),
        }
    }
}

//! The clock by which spins and pauses are bounded.
//!
//! A program may have a library that stands before the C library's clock, and has it stand still or
//! jump (libfaketime). So the kernel's own function is called, which it maps into each process
//! (vdso(7)). Waits count besides: none is bounded by a clock alone.

use super::{elf, real};
use libc::{c_int, c_long, timespec};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The address of the kernel's function; 0: there is none.
static CLOCK: AtomicUsize = AtomicUsize::new(0);

/// Looks the kernel's function up.
pub fn begin() {
    // SAFETY: a number is asked for.
    let image = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    #[cfg(target_arch = "x86_64")]
    let name = c"__vdso_clock_gettime";
    #[cfg(target_arch = "aarch64")]
    let name = c"__kernel_clock_gettime";
    let found = elf::Image::mapped(image).and_then(|image| image.find(name.to_bytes()));
    CLOCK.store(found.unwrap_or(0), Ordering::Relaxed);
}

fn read(clock: c_int) -> timespec {
    let mut t = timespec { tv_sec: 0, tv_nsec: 0 };
    type Function = unsafe extern "C" fn(c_int, *mut timespec) -> c_int;
    let at = CLOCK.load(Ordering::Relaxed);
    // SAFETY: the kernel's function of this type is there; `t` is writable.
    let read = at != 0 && unsafe { std::mem::transmute::<usize, Function>(at)(clock, &mut t) == 0 };
    if !read {
        let (clock, to) = (clock as c_long, (&raw mut t) as c_long);
        // SAFETY: `t` is writable.
        unsafe { real::syscall(libc::SYS_clock_gettime, clock, to, 0, 0, 0, 0) };
    }
    t
}

/// The time of a clock that never steps back, in nanoseconds.
pub fn now_ns() -> u64 {
    let t = read(libc::CLOCK_MONOTONIC);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The time of a clock that never steps back, in seconds, not exact.
pub fn second() -> u64 {
    read(libc::CLOCK_MONOTONIC_COARSE).tv_sec as u64
}

/// The time of a clock that never steps back, in milliseconds.
pub fn milliseconds() -> u64 {
    now_ns() / 1_000_000
}

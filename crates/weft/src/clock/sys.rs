//! The monotonic clock in one call: every message reads it, and the work of `std` around the call
//! took half as long as the call itself. Beside it a counter of the processor, which is read in a
//! few nanoseconds, where a rough measure of time will do.

/// Returns the nanoseconds of `CLOCK_MONOTONIC`.
#[inline]
pub(super) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable for its size.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the nanoseconds of `CLOCK_BOOTTIME`; of the monotonic clock where there is none.
pub(super) fn boot_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable for its size.
    match unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now) } {
        0 => now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64,
        _ => monotonic_ns(),
    }
}

/// Returns the counter of the processor that goes on by itself; the clock where there is none.
#[inline]
pub(super) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has the counter.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: programs may read this register, and it changes nothing.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack));
        }
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    monotonic_ns()
}

/// Returns the ticks of about a tenth of a millisecond: of 50 to 200 us.
pub(super) fn ticks_of_a_moment() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // The counter has 1 to 4 GHz.
        200_000
    }
    #[cfg(target_arch = "aarch64")]
    {
        let frequency: u64;
        // SAFETY: programs may read this register, and it changes nothing.
        unsafe {
            core::arch::asm!("mrs {}, cntfrq_el0", out(reg) frequency, options(nomem, nostack));
        }
        frequency / 10_000
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        100_000
    }
}

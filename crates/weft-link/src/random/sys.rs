//! Asking the kernel for random bytes: needs no descriptor.

/// Fills `out`; false if the kernel refuses.
pub(super) fn fill(out: &mut [u8]) -> bool {
    let mut done = 0;
    while done < out.len() {
        let rest = &mut out[done..];
        // SAFETY: `rest` is writable for its length.
        let n = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(n) {
            Ok(n) => done += n,
            Err(_) if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            Err(_) => return false,
        }
    }
    true
}

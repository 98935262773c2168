//! The system call for random numbers.

/// Fills `out` with random bytes from the kernel.
///
/// # Errors
/// The kernel has no random source (seccomp, very old kernels).
pub fn from_kernel(out: &mut [u8]) -> std::io::Result<()> {
    let mut done = 0;
    while done < out.len() {
        let rest = &mut out[done..];
        // SAFETY: `rest` is writable for its length.
        let n = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(n) {
            Ok(n) => done += n,
            Err(_) => {
                let error = std::io::Error::last_os_error();
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn from_kernel__fills_and_differs() {
        let (mut a, mut b) = ([0u8; 32], [0u8; 32]);
        from_kernel(&mut a).unwrap();
        from_kernel(&mut b).unwrap();
        assert_ne!(a, b);
    }
}

//! C functions of this command that its libraries call.
#![allow(unsafe_code)]

/// The C function of this name, for the libraries that draw. The C library's own has a symbol of
/// glibc 2.35, without which the command runs on 2.34 as well (Red Hat Enterprise Linux 9).
#[no_mangle]
extern "C" fn hypotf(x: f32, y: f32) -> f32 {
    let (x, y) = (f64::from(x), f64::from(y));
    // Squares of `f32` neither overflow nor vanish in `f64`.
    (x * x + y * y).sqrt() as f32
}

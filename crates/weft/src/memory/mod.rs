//! Memory whose place or length a program names: an answer where a vector made in the usual way
//! would end the process.

#[allow(unsafe_code)]
mod sys;

pub(crate) use sys::fits;
pub use sys::{copied, is_mapped, reserved, seems_mapped, zeroed};

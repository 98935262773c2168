//! The functions that programs call instead of those of the C library.

mod data;
mod life;
mod placed;
pub mod process;
mod tipc;
mod variadic;
mod waits;

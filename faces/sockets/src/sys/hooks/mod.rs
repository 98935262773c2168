//! The functions that programs call instead of those of the C library.

mod data;
mod life;
mod names;
mod number;
mod placed;
pub mod process;
mod programs;
mod quick;
mod rings;
mod signals;
mod symbols;
mod tipc;
mod variadic;
mod waits;
mod whole;

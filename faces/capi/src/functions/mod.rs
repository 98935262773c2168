//! The functions of `weft.h`. Each has the name of a function there, behind its module's name, and
//! gets checked arguments from the function in `sys` that programs call.

pub mod collective;
pub mod comm;
mod counter;
mod export;
pub mod group;
pub mod member;
pub mod message;
pub mod names;
pub mod owner;
pub mod packet;
mod progress;
pub mod request;
pub mod set;
#[allow(unsafe_code)]
pub mod sys;
pub mod tree;
mod wait;

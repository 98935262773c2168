//! The binary interface. A handle is a number and no address: a wrong or freed one is refused.

pub mod abi;
pub mod calls;
pub(crate) mod copier;
pub mod enter;
pub mod errors;
mod expect;
pub(crate) mod memory;
pub mod open;
mod request;
mod unexpected;
mod wired;

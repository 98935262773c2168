//! The binary interface. A handle is a number and no address: a wrong or freed one is refused.
//!
//! Each function gives its arguments to one of the module `calls`.

pub mod complete;
pub mod connect;
pub mod endpoint;
pub mod info;
pub mod library;
pub mod message;

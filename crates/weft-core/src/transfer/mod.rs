//! Protocols of messages by size.

pub mod pull;
pub mod select;

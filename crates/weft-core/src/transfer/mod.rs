//! How a message travels: sizes and protocols.

pub mod pull;
pub mod select;

//! The exported functions, by their objects.

pub mod complete;
pub mod connect;
pub mod endpoint;
pub mod info;
pub mod library;
pub mod message;

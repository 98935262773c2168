//! The exported functions, by their objects.

mod complete;
mod connect;
mod endpoint;
mod info;
mod library;
mod message;

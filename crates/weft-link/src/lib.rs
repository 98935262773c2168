//! Links: carriers of weft frames.
//!
//! A link moves frames and knows no message. Unsafe code lives in the `sys` modules only.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod address;
pub mod bytes;
pub mod link;
pub mod secure;
pub mod udp;

pub use address::Address;
pub use bytes::Bytes;
pub use link::{Frame, Link, LinkError, LinkEvent, PeerInfo, Prediction, Sink, WaitFd};

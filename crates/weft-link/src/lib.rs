//! Links: carriers of weft frames.
//!
//! A link moves frames and knows no message. Unsafe code lives in the `sys` modules only.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod address;
pub mod bytes;
pub mod link;
mod random;
pub mod shm;
mod sync;
pub mod looplink;
pub mod rng;
pub mod wrap;
pub mod secure;
pub mod udp;

pub use address::{Address, AddressError};
pub use bytes::Bytes;
pub use random::random_u64;
pub use udp::{UdpConfig, UdpLink};
pub use shm::{DirectCopy, ShmConfig, ShmLink};
pub use link::{Frame, Link, LinkError, LinkEvent, PeerInfo, Prediction, Sink, WaitFd};

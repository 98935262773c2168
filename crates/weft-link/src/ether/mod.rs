//! The common parts of the links on raw Ethernet: frames, addresses, interfaces.
//!
//! - `frame.rs`: EtherType and shim, checked view and typed form (`PROTOCOL.md`, Encapsulation).
//! - `train.rs`: several packets in one frame.
//! - `addr.rs`: the address of an endpoint on one interface.
//! - `interfaces.rs`: the interfaces of this host, those that can be used, those that reach a peer.
//! - `sys/`: rtnetlink, and the speed of interfaces.

mod addr;
mod frame;
mod interfaces;
mod sys;
mod train;

pub use addr::{EtherAddr, Mac};
pub use frame::{EtherFrame, EtherHead, EtherType, FrameError};
pub use interfaces::{is_live, network_hint, Interface, Interfaces, Path, Unusable, PATHS_MAX};
pub use sys::{coalescing, speed, Coalescing, Monitor};
pub use train::{TrainFrame, TrainHead};

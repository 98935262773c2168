//! What the links on raw Ethernet share: the frame, the addresses, the interfaces.
//!
//! - `frame.rs`: EtherType and shim, checked view and typed form (`PROTOCOL.md`, Encapsulation).
//! - `train.rs`: several packets in one frame.
//! - `addr.rs`: where an endpoint can be reached on one interface.
//! - `interfaces.rs`: which interfaces there are and which can be used; which reaches a peer.
//! - `sys/`: rtnetlink, and the speed of interfaces.

mod addr;
mod frame;
mod interfaces;
mod sys;
mod train;

pub use addr::{EtherAddr, Mac};
pub use frame::{EtherFrame, EtherHead, EtherType, FrameError};
pub use interfaces::{network_hint, Interface, Interfaces, Path, Unusable, PATHS_MAX};
pub use sys::{speed, Monitor};
pub use train::{TrainFrame, TrainHead};

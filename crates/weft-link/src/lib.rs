//! Links: carriers of frames, which know no message. Each link (shared memory, UDP, TCP, packet
//! sockets, XDP) implements the trait [`Link`]; wrappers inject faults, log, and capture packets.
//!
//! A link moves frames and knows no message. Unsafe code lives in the `sys` modules only.
#![deny(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
mod count;

pub mod address;
pub mod bytes;
pub mod copied;
pub mod ether;
pub mod gone;
mod ip;
pub mod kind;
pub mod link;
pub mod looplink;
mod mode;
mod no_buffers;
pub mod packet;
pub mod pieces;
pub mod ports;
mod proof;
mod random;
pub mod rng;
pub mod run;
pub mod secure;
pub mod shm;
mod stripes;
mod sync;
#[allow(unsafe_code)]
mod sys;
mod table;
pub mod tcp;
pub mod telling;
#[cfg(test)]
mod testing;
mod train;
mod turn;
pub mod udp;
pub mod wrap;
pub mod xdp;

pub use address::{Address, AddressError};
pub use bytes::Bytes;
pub use ip::advertised as own_addresses;
pub use link::{
    DataRun, Frame, Link, LinkError, LinkEvent, Movable, Network, PeerInfo, Prediction, Processes,
};
pub use link::{SharedMemory, Sink, WaitFd};
pub use packet::{BarePacket, Held, Keep, PacketConfig, PacketLink, Value};
pub use ports::Ports;
pub use random::{random_bytes, random_u64};
pub use shm::{DirectCopy, ShmConfig, ShmLink};
pub use tcp::{TcpConfig, TcpLink};
pub use turn::{Next, Turn};
pub use udp::{UdpConfig, UdpLink};
pub use weft_sys::user;
pub use xdp::{BareXdp, XdpConfig, XdpLink, XdpMode};

//! The operating system, as the shared-memory link needs it. All unsafe code of the link.
#![allow(unsafe_code)]

pub(super) mod block;
pub(super) mod map;
pub(super) mod memory;
pub(super) mod misc;
pub(super) mod socket;

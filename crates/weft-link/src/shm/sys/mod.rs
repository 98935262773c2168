//! The system calls of the shared-memory link, and all its unsafe code.
#![allow(unsafe_code)]

pub(super) mod block;
pub(super) mod map;
pub(super) mod memory;
pub(super) mod misc;
pub(super) mod socket;

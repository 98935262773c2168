//! Memory that is shared with programs in the kernel.

mod bell;
mod shared;

pub(crate) use bell::{Bell, Bells};
pub(crate) use shared::SharedArray;

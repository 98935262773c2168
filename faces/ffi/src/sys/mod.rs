//! The code that needs `unsafe`.

pub mod bell;
pub(crate) mod face;
pub mod interfaces;

pub use crate::{lock, service};

//! The code that needs `unsafe`.

pub mod bell;
pub mod gate;
pub mod interfaces;
pub mod service;

//! The code that needs `unsafe`.

pub mod bell;
pub mod interfaces;
pub mod lock;
pub mod service;

//! weft
pub mod launch;

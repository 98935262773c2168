//! Memory of collective operations.

mod field;
mod kept;
pub(super) mod plain;

pub(super) use field::{with_borrowed, with_owned, with_two, Field, Part, Slots};
pub use kept::Kept;

//! Groups of endpoints: the partners in collective operations.

pub mod tree;

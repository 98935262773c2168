//! Groups of endpoints: who talks to whom in collective operations.

pub mod tree;

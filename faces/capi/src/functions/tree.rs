//! The trees of multicasts and of operations of communicators.

use crate::fault::Fault;
use crate::job::WeftJob;
use std::ffi::c_int;
use weft::choices::Tree;

/// The tree of WEFT_TREE.
pub const WEFT_TREE_DEFAULT: c_int = -1;
/// The sender sends to every other member.
pub const WEFT_TREE_FLAT: c_int = 0;
/// Each member sends to the next one.
pub const WEFT_TREE_CHAIN: c_int = 1;
/// Each member sends to at most two others.
pub const WEFT_TREE_BINARY: c_int = 2;
/// The number of reached members doubles every step.
pub const WEFT_TREE_BINOMIAL: c_int = 3;

/// Returns a tree by its number.
///
/// # Errors
/// There is none of this number.
pub(crate) fn tree_of(job: &WeftJob, tree: c_int) -> Result<Tree, Fault> {
    if tree == WEFT_TREE_DEFAULT {
        return Ok(job.endpoint().choices().tree);
    }
    let found = usize::try_from(tree).ok().and_then(|code| Tree::ALL.get(code));
    found.copied().ok_or_else(|| Fault::argument(format!("there is no tree {tree}")))
}

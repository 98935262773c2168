//! Ranks that have failed in a job that goes on without them.

use crate::run::frame::End;

/// Most failed ranks that the last line describes; it counts the others.
const SHOWN: usize = 16;

/// The failed ranks of a job with `--keep-going`.
#[derive(Default)]
pub struct Dead {
    /// Each with its description, in the order of their ends.
    ranks: Vec<String>,
    /// Exit status of the first.
    code: Option<u8>,
}

impl Dead {
    /// Notes a rank of this description, which ended in this way.
    pub fn add(&mut self, place: &str, end: End, how: &str) {
        self.code.get_or_insert(end.code());
        self.ranks.push(format!("{place} {how}"));
    }

    /// Returns the exit status of the first rank that failed.
    pub fn code(&self) -> Option<u8> {
        self.code
    }

    /// Returns the line about them at the end of a job of `size` ranks, if there are any.
    pub fn summary(&self, size: usize) -> Option<String> {
        let count = self.ranks.len();
        let shown = self.ranks.get(..count.min(SHOWN)).unwrap_or_default().join(", ");
        let more = match count.saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (count > 0).then(|| format!("{count} of {size} ranks failed: {shown}{more}"))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn dead__are_named_in_order_and_the_first_gives_the_status() {
        let mut dead = Dead::default();
        assert_eq!((dead.summary(4), dead.code()), (None, None));
        dead.add("rank 2", End::Signal(9), "was killed");
        dead.add("rank 1", End::Status(3), "exited with status 3");
        let said = "2 of 4 ranks failed: rank 2 was killed, rank 1 exited with status 3";
        assert_eq!((dead.summary(4).as_deref(), dead.code()), (Some(said), Some(137)));
        (0..15).for_each(|_| dead.add("rank 3", End::Status(1), "ended"));
        let said = dead.summary(20).unwrap();
        assert!(said.starts_with("17 of 20") && said.ends_with("ended and 1 more"), "{said}");
    }
}

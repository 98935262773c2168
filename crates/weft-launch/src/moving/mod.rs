//! Ranks that can move to another host: the words between a rank and the part of its launcher on
//! its host, over a socket that the rank inherits.
//!
//! The launcher orders, the rank answers, a line each. `hold 3`: the rank's endpoint tells its
//! peers, closes its links and stands still; `held 3`. The launcher then copies the process, or
//! does not. `go 3 512 1024`: the endpoint goes on, after move 3, with these packet numbers, which
//! the launcher gives out once and no copy of the process contains; `went 3 0` with the number of
//! peers that have not heard of it yet. `cannot 3 TEXT` instead, with the reason. Before all that
//! the rank says `ready` once: a program that never does so cannot be moved.

pub mod coordinator;

use std::ops::Range;
use std::os::unix::net::UnixStream;

/// Variable with the number of the descriptor of that socket.
pub const VARIABLE: &str = "WEFT_RUN_MIGRATE";

/// Returns the connection to the launcher of this process, which can move.
///
/// # Errors
/// The launcher left no open descriptor; the text says so.
pub fn launcher() -> Result<UnixStream, String> {
    let fd = std::env::var(VARIABLE).ok().and_then(|fd| fd.trim().parse().ok());
    let fd = fd.ok_or_else(|| format!("{VARIABLE} names no descriptor"))?;
    let shared = crate::sys::share(fd);
    let shared = shared.map_err(|_| format!("{VARIABLE}={fd} is no open descriptor"))?;
    Ok(UnixStream::from(shared))
}

/// Returns the number of runs of packet numbers that a rank of a job of `size` ranks gets for a
/// move: each link takes one for each peer when it opens, and a few for peers that come back.
pub fn runs_of(size: usize) -> u64 {
    2 * size as u64 + 256
}

/// Returns the runs of packet numbers of the first life of a rank that can move.
pub fn first_runs(lookup: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    lookup(VARIABLE)?;
    let size = lookup("PMI_SIZE").and_then(|size| size.trim().parse().ok());
    Some(runs_of(size.unwrap_or(1)))
}

/// An order of the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Tell the peers, close the links, stand still.
    Hold {
        /// The number of the move: one more than that of the rank's move before.
        number: u32,
    },
    /// Open the links and go on.
    Go {
        /// The number of the move.
        number: u32,
        /// Runs of packet numbers that the rank may use.
        runs: Range<u64>,
    },
}

/// An answer of the rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The rank obeys orders from now on.
    Ready,
    /// The links are closed.
    Held {
        /// The number of the move.
        number: u32,
    },
    /// The links are open.
    Went {
        /// The number of the move.
        number: u32,
        /// Number of peers that have not heard of it yet; they are told again.
        untold: usize,
    },
    /// The order is not obeyed.
    Cannot {
        /// The number of the move.
        number: u32,
        /// The reason, in one line.
        why: String,
    },
}

impl Order {
    /// Returns the line, newline included.
    pub fn line(&self) -> String {
        match self {
            Order::Hold { number } => format!("hold {number}\n"),
            Order::Go { number, runs } => format!("go {number} {} {}\n", runs.start, runs.end),
        }
    }

    /// Parses a line, newline excluded.
    pub fn parse(line: &[u8]) -> Option<Order> {
        let words: Vec<&str> = std::str::from_utf8(line).ok()?.split(' ').collect();
        match words[..] {
            ["hold", number] => Some(Order::Hold { number: number.parse().ok()? }),
            ["go", number, start, end] => Some(Order::Go {
                number: number.parse().ok()?,
                runs: start.parse().ok()?..end.parse().ok()?,
            }),
            _ => None,
        }
    }
}

impl Word {
    /// Returns the line, newline included.
    pub fn line(&self) -> String {
        match self {
            Word::Ready => "ready\n".into(),
            Word::Held { number } => format!("held {number}\n"),
            Word::Went { number, untold } => format!("went {number} {untold}\n"),
            Word::Cannot { number, why } => format!("cannot {number} {}\n", why.replace('\n', " ")),
        }
    }

    /// Parses a line, newline excluded.
    pub fn parse(line: &[u8]) -> Option<Word> {
        let text = std::str::from_utf8(line).ok()?;
        let words: Vec<&str> = text.splitn(3, ' ').collect();
        match words[..] {
            ["ready"] => Some(Word::Ready),
            ["held", number] => Some(Word::Held { number: number.parse().ok()? }),
            ["went", number, untold] => {
                Some(Word::Went { number: number.parse().ok()?, untold: untold.parse().ok()? })
            }
            ["cannot", number, why] => {
                Some(Word::Cannot { number: number.parse().ok()?, why: why.to_owned() })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse__what_was_written() {
        for order in [Order::Hold { number: 3 }, Order::Go { number: 4, runs: 7..90 }] {
            let line = order.line();
            assert_eq!(Order::parse(line.trim_end().as_bytes()), Some(order));
        }
        let cannot = Word::Cannot { number: 2, why: "two words\nand a line".into() };
        for word in
            [Word::Ready, Word::Held { number: 1 }, Word::Went { number: 1, untold: 5 }, cannot]
        {
            let line = word.line();
            assert_eq!(line.matches('\n').count(), 1);
            let back = Word::parse(line.trim_end().as_bytes()).unwrap();
            assert_eq!(back.line(), line);
        }
        for bad in ["", "hold", "hold x", "go 1 2", "held", "went 1", "hold 1 2"] {
            assert!(Order::parse(bad.as_bytes()).is_none(), "{bad}");
            assert!(Word::parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}

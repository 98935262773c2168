//! Command lines that make no sense end with one status, whoever finds out: the 2 of those that
//! the parser refuses.

use std::fmt;
use std::process::ExitCode;

/// Why a command line makes no sense.
#[derive(Debug)]
pub struct Misuse(pub String);

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

/// Returns with a [`Misuse`] of this text.
macro_rules! misuse {
    ($($arg:tt)*) => { return Err($crate::misuse::Misuse(format!($($arg)*)).into()) };
}

/// Takes whatever is wrong with an argument for a [`Misuse`].
pub fn of(error: impl Into<anyhow::Error>) -> anyhow::Error {
    Misuse(format!("{:#}", error.into())).into()
}

/// Whether an error is that of a command line.
pub fn is(error: &anyhow::Error) -> bool {
    error.is::<Misuse>() || error.chain().any(|cause| cause.is::<Misuse>())
}

/// The exit status of a command that ends with this error.
pub fn status(error: &anyhow::Error) -> ExitCode {
    match is(error) {
        true => ExitCode::from(2),
        false => ExitCode::FAILURE,
    }
}

//! Wrong command lines end with status 2, whether the parser or a command finds the fault.

use std::fmt;
use std::process::ExitCode;

/// The fault of a command line.
#[derive(Debug)]
pub struct Misuse(pub String);

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

/// Returns with a [`Misuse`] of this text.
#[macro_export]
macro_rules! misuse {
    ($($arg:tt)*) => { return Err($crate::misuse::Misuse(format!($($arg)*)).into()) };
}

/// Turns an error about an argument into a [`Misuse`].
pub fn of(error: impl Into<anyhow::Error>) -> anyhow::Error {
    Misuse(format!("{:#}", error.into())).into()
}

/// True if an error is a fault of the command line.
pub fn is(error: &anyhow::Error) -> bool {
    error.is::<Misuse>() || error.chain().any(|cause| cause.is::<Misuse>())
}

/// Returns the exit status of a command that ends with this error.
pub fn status(error: &anyhow::Error) -> ExitCode {
    match is(error) {
        true => ExitCode::from(2),
        false => ExitCode::FAILURE,
    }
}

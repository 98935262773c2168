//! Standard output and standard error that may be full or closed. The standard library's macros of
//! these names would panic, but a reader that stops reading is no fault.

use std::io::{ErrorKind, Write};

/// Prints like the standard macro, but ends the program if output cannot be written.
#[macro_export]
macro_rules! print {
    ($($arg:tt)*) => { $crate::out::write(format_args!($($arg)*)) };
}

/// Prints a line like the standard macro, but ends the program if output cannot be written.
#[macro_export]
macro_rules! println {
    ($($arg:tt)*) => { $crate::out::write(format_args!("{}\n", format_args!($($arg)*))) };
}

/// Prints a line to standard error like the standard macro, but ignores errors of writing.
#[macro_export]
macro_rules! eprintln {
    ($($arg:tt)*) => { $crate::out::complain(format_args!("{}\n", format_args!($($arg)*))) };
}

/// Exit status of a command whose output has no reader any more: that of SIGPIPE.
pub const UNREAD: u8 = 128 + libc::SIGPIPE as u8;

/// Writes to standard output. Ends the program if that fails: without a reader as SIGPIPE does,
/// otherwise with a message and status 1.
pub fn write(text: std::fmt::Arguments<'_>) {
    if let Err(error) = std::io::stdout().write_fmt(text) {
        fail(&error);
    }
}

/// Flushes standard output; ends the program in the same cases.
pub fn flush() {
    if let Err(error) = std::io::stdout().flush() {
        fail(&error);
    }
}

fn fail(error: &std::io::Error) -> ! {
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(UNREAD.into());
    }
    eprintln!("weft: standard output: {error}");
    std::process::exit(1);
}

/// Writes to standard error in one piece, because ranks of one job may write to the same file.
pub fn complain(text: std::fmt::Arguments<'_>) {
    // An error here cannot be reported anywhere.
    let _ = std::io::stderr().write_all(text.to_string().as_bytes());
}

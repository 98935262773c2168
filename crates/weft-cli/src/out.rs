//! Standard output and standard error that may be full or closed: the standard library's macros of
//! these names would panic, and a reader that has seen enough is no fault.

use std::io::{ErrorKind, Write};

/// As the standard one, but ends the program where output cannot be written.
macro_rules! print {
    ($($arg:tt)*) => { $crate::out::write(format_args!($($arg)*)) };
}

/// As the standard one, but ends the program where output cannot be written.
macro_rules! println {
    ($($arg:tt)*) => { $crate::out::write(format_args!("{}\n", format_args!($($arg)*))) };
}

/// As the standard one, but goes on where nobody can be told.
macro_rules! eprintln {
    ($($arg:tt)*) => { $crate::out::complain(format_args!("{}\n", format_args!($($arg)*))) };
}

/// The exit status of a command whose output nobody reads any more: as SIGPIPE would have it.
pub const UNREAD: u8 = 128 + libc::SIGPIPE as u8;

/// Writes to standard output. Ends the program if that fails: as SIGPIPE would where nobody reads
/// any more, with a message and status 1 otherwise.
pub fn write(text: std::fmt::Arguments<'_>) {
    if let Err(error) = std::io::stdout().write_fmt(text) {
        fail(&error);
    }
}

/// Writes out what standard output still holds, with the same ends.
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

/// Writes to standard error, in one piece: ranks of one job may all write to the same place.
pub fn complain(text: std::fmt::Arguments<'_>) {
    // Nobody is left to hear that nobody hears.
    let _ = std::io::stderr().write_all(text.to_string().as_bytes());
}

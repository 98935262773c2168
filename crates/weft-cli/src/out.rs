//! Standard output that may be full or closed: the standard library's macros of these names would
//! panic, and a reader that has seen enough is no fault.

use std::io::{ErrorKind, Write};

/// As the standard one, but ends the program where output cannot be written.
macro_rules! print {
    ($($arg:tt)*) => { $crate::out::write(format_args!($($arg)*)) };
}

/// As the standard one, but ends the program where output cannot be written.
macro_rules! println {
    ($($arg:tt)*) => { $crate::out::write(format_args!("{}\n", format_args!($($arg)*))) };
}

/// Writes to standard output. Ends the program if that fails: as SIGPIPE would where nobody reads
/// any more, with a message and status 1 otherwise.
pub fn write(text: std::fmt::Arguments<'_>) {
    if let Err(error) = std::io::stdout().write_fmt(text) {
        if error.kind() == ErrorKind::BrokenPipe {
            std::process::exit(128 + libc::SIGPIPE);
        }
        eprintln!("weft: standard output: {error}");
        std::process::exit(1);
    }
}

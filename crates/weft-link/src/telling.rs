//! Lines for people.
//!
//! A library logs by the crate `log`, and a program that sets up no logger would never learn of a
//! warning. So warnings and errors go through [`warn!`](crate::warn) and [`error!`](crate::error):
//! to the program's logger or, where none is set up, to standard error. A face that has its
//! program's log for itself (C, Python) makes the same form of line its logger
//! ([`log_to_standard_error`]), for all levels. `WEFT_LOG` says what is shown: a level (`off`,
//! `error`, `warn`, `info`, `debug`, `trace`), or modules with a level each, as
//! `weft::endpoint=debug,warn`.

pub use crate::{error, warn};
pub use log::Level;

use log::{LevelFilter, Log, Metadata, Record};
use std::cell::Cell;
use std::fmt;
use std::io::Write;
use std::sync::OnceLock;

/// The environment variables in which launchers name the rank.
const RANKS: [&str; 3] = ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"];

thread_local! {
    /// True in a thread whose hosts are simulated.
    static IS_SIMULATED: Cell<bool> = const { Cell::new(false) };
}

/// Writes a warning: to the program's logger, or else to standard error.
#[macro_export]
macro_rules! warn {
    ($($text:tt)+) => {
        $crate::telling::tell(
            $crate::telling::Level::Warn,
            ::core::module_path!(),
            ::core::format_args!($($text)+),
        )
    };
}

/// Writes an error: to the program's logger, or else to standard error.
#[macro_export]
macro_rules! error {
    ($($text:tt)+) => {
        $crate::telling::tell(
            $crate::telling::Level::Error,
            ::core::module_path!(),
            ::core::format_args!($($text)+),
        )
    };
}

/// The levels that `WEFT_LOG` asks for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    usual: LevelFilter,
    /// Modules with levels of their own.
    of: Vec<(String, LevelFilter)>,
}

impl Wanted {
    fn parse(text: &str) -> Wanted {
        let mut wanted = Wanted { usual: LevelFilter::Warn, of: Vec::new() };
        // After a slash comes a pattern for the text of lines, which is not for this logger.
        let words = text.split('/').next().unwrap_or_default().split(',').map(str::trim);
        for word in words.filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some((module, level)) => {
                    let level = level.trim().parse().unwrap_or(LevelFilter::Warn);
                    wanted.of.push((module.trim().to_string(), level));
                }
                None => match word.parse() {
                    Ok(level) => wanted.usual = level,
                    // A module alone: all of it.
                    Err(_) => wanted.of.push((word.to_string(), LevelFilter::Trace)),
                },
            }
        }
        wanted
    }

    fn most(&self) -> LevelFilter {
        self.of.iter().map(|(_, level)| *level).chain([self.usual]).max().unwrap_or(self.usual)
    }

    /// Returns the level of a module: that of the longest name which begins its own.
    fn level(&self, target: &str) -> LevelFilter {
        let names = self.of.iter().filter(|(module, _)| target.starts_with(module.as_str()));
        names.max_by_key(|(module, _)| module.len()).map_or(self.usual, |(_, level)| *level)
    }
}

/// The logger that writes lines to standard error.
struct StandardError {
    wanted: Wanted,
    /// The words before each line: `weft`, or `weft rank 3`.
    who: String,
}

impl StandardError {
    fn get() -> &'static StandardError {
        static IT: OnceLock<StandardError> = OnceLock::new();
        IT.get_or_init(|| {
            let rank = RANKS.iter().find_map(|name| std::env::var(name).ok());
            StandardError {
                wanted: Wanted::parse(&std::env::var("WEFT_LOG").unwrap_or_default()),
                who: rank.map_or("weft".to_string(), |rank| format!("weft rank {rank}")),
            }
        })
    }

    fn write(&self, level: Level, target: &str, text: fmt::Arguments<'_>) {
        if level <= self.wanted.level(target) {
            let level = level.as_str().to_lowercase();
            // One write for each line, so that lines of several processes do not mix.
            let line = format!("{}: {level}: {text}\n", self.who);
            _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
}

impl Log for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= self.wanted.level(metadata.target())
    }

    fn log(&self, record: &Record<'_>) {
        self.write(record.level(), record.target(), *record.args());
    }

    fn flush(&self) {}
}

/// Writes a line for people: see the macros.
pub fn tell(level: Level, target: &str, text: fmt::Arguments<'_>) {
    // The level of a program without a logger is off.
    match log::max_level() {
        LevelFilter::Off if IS_SIMULATED.get() => {}
        LevelFilter::Off => StandardError::get().write(level, target, text),
        _ => log::log!(target: target, level, "{text}"),
    }
}

/// Notes that hosts are simulated in this thread: without a logger, nothing is said about them.
pub fn hosts_are_simulated() {
    IS_SIMULATED.set(true);
}

/// Makes standard error the log of this process, unless it has a logger.
pub fn log_to_standard_error() {
    let logger = StandardError::get();
    if log::set_logger(logger).is_ok() {
        log::set_max_level(logger.wanted.most());
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse__levels_of_modules_and_of_all_others() {
        let wanted = Wanted::parse("weft_link=debug, weft_link::udp=off,error/text");
        assert_eq!(wanted.most(), LevelFilter::Debug);
        assert_eq!(wanted.level("weft_link::shm"), LevelFilter::Debug);
        assert_eq!(wanted.level("weft_link::udp::recv"), LevelFilter::Off);
        assert_eq!(wanted.level("weft::endpoint"), LevelFilter::Error);
        assert_eq!(Wanted::parse("").usual, LevelFilter::Warn);
        assert_eq!(Wanted::parse("OFF").most(), LevelFilter::Off);
        assert_eq!(Wanted::parse("weft").level("weft::job"), LevelFilter::Trace);
    }
}

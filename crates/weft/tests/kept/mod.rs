//! The lines that the library logs in this process, from warnings on.
// Not every test program uses all of it.
#![allow(dead_code)]

use std::sync::Mutex;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Keep;

impl log::Log for Keep {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        LINES.lock().unwrap().push(record.args().to_string());
    }
    fn flush(&self) {}
}

/// Keeps lines from now on. A process calls this once.
pub fn start() {
    log::set_logger(&Keep).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
}

/// Returns the lines so far.
pub fn lines() -> Vec<String> {
    LINES.lock().unwrap().clone()
}

/// True if one line has all these parts.
pub fn has_line(parts: &[&str]) -> bool {
    lines().iter().any(|line| parts.iter().all(|part| line.contains(part)))
}

//! Tests that cannot run on a machine. Crates that this one depends on include this file.

use std::io::Write;

/// Notes the reason why the running test cannot run here: the summary counts it as skipped. The
/// test then returns.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    eprintln!("skipped {test}: {why}");
    let Some(path) = std::env::var_os("WEFT_SKIP_LOG") else { return };
    let line = format!("{test}: {}\n", why.replace('\n', " "));
    let log = std::fs::OpenOptions::new().create(true).append(true).open(path);
    if let Err(e) = log.and_then(|mut log| log.write_all(line.as_bytes())) {
        eprintln!("the skip log cannot be written: {e}");
    }
}

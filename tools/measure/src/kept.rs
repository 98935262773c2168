//! The measurements of this process so far, for an interrupt: tables of long benchmarks come at the
//! end.

use super::sample::Sample;
use std::fmt::Write as _;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// Most subjects that are kept.
const MOST: usize = 4096;

/// Subjects in the order of their first values, and the values, in seconds.
static ALL: Mutex<Vec<(String, Vec<f64>)>> = Mutex::new(Vec::new());

/// Keeps a value of a subject, in seconds.
pub fn note(subject: String, seconds: f64) {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    // The latest are those that are measured in turn.
    match all.iter().rposition(|(name, _)| *name == subject) {
        Some(at) => all[at].1.push(seconds),
        None if all.len() < MOST => all.push((subject, vec![seconds])),
        None => {}
    }
}

/// Returns a line for each subject, with its median in us.
fn lines(all: &[(String, Vec<f64>)]) -> String {
    let mut text = String::new();
    for (subject, values) in all {
        if let Some(sample) = Sample::of(values.clone()) {
            let us = sample.median * 1e6;
            let _ = writeln!(text, "{subject}: {us:.2} us (median of {})", values.len());
        }
    }
    text
}

/// Writes all that is kept to standard output, and describes it.
pub fn write() -> String {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let text = lines(&all);
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        _ if all.is_empty() => "nothing was measured yet".into(),
        Ok(()) => format!("what was measured is above: {} subjects", all.len()),
        Err(why) => format!("what was measured could not be written: {why}"),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn lines__each_subject_with_its_median() {
        let all = [("a, 8 B: tcp".to_owned(), vec![3e-6, 1e-6, 2e-6]), ("b".to_owned(), vec![])];
        assert_eq!(lines(&all), "a, 8 B: tcp: 2.00 us (median of 3)\n");
    }
}

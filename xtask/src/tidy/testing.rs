//! Rules in trees of a few files, for their tests.

use super::{Report, Rule, Tree};

/// Returns the findings of a rule.
pub fn found(rule: Rule, files: &[(&str, &str)]) -> Report {
    let mut report = Report::default();
    rule(&Tree::of(files), &mut report);
    report
}

/// Returns the messages of a rule's findings.
pub fn messages(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
    found(rule, files).findings().iter().map(|f| f.message.clone()).collect()
}

/// Returns the lines of a rule's findings.
pub fn lines_of(rule: Rule, files: &[(&str, &str)]) -> Vec<usize> {
    found(rule, files).findings().iter().map(|f| f.line).collect()
}

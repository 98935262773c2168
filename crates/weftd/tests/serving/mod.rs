//! Agents as processes.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use weft_conformance::Started;

/// Starts an agent, and waits until it serves. Returns the line in which it says so, too.
pub fn serving(command: &mut Command) -> (Started, String) {
    let mut agent = Started(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(agent.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("serving at"), "{line}");
    (agent, line)
}

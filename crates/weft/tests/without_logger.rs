//! A program that has set up no logger prints warnings and long waits to standard error.
#![allow(non_snake_case)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use weft::job::open_endpoint;
use weft::{Config, Links};

/// Set for the program that waits.
const WAITS: &str = "WEFT_TEST_WAITS";

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ended_before = self.0.kill();
        self.0.wait().unwrap();
    }
}

#[test]
fn program__waits_for_a_message_that_never_comes() {
    if std::env::var_os(WAITS).is_none() {
        return;
    }
    let config = Config { rank: Some(3), warn_after_ms: 100, ..Config::default() };
    let endpoint = open_endpoint(config, Links::parse("shm").unwrap(), [9; 32]).unwrap();
    let me = endpoint.connect(&endpoint.address()).unwrap();
    _ = endpoint.recv_blocking(Some(me), 7, 0, &mut [0; 8]);
}

#[test]
fn waits__are_said_on_standard_error_without_a_logger() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "program__waits_for_a_message_that_never_comes", "--nocapture"]);
    command.env(WAITS, "1").env("PMI_RANK", "3").env_remove("WEFT_LOG").stderr(Stdio::piped());
    let mut program = Program(command.spawn().unwrap());
    let lines = BufReader::new(program.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.into_iter().find(|line| line.contains("waiting for")).unwrap();
    assert!(line.starts_with("weft rank 3: warn: waiting for 0.1 s for a message"), "{line}");
}

//! Programs that have the kernel end them if they make a call that they need not (seccomp).

mod sys;

use crate::harness::{argument, bytes, say, start, Served};
use std::io::{Read, Write};

/// Exchanges that make sure that a connection asks for its other end.
const MANY: usize = 300;

/// Exchanges bytes with an echo, confines itself after so many exchanges, and goes on.
pub fn asks() {
    let words = argument();
    let (port, before) = words.split_once(' ').unwrap();
    let mut stream = crate::harness::dial(port);
    let before: usize = before.parse().unwrap();
    for round in 0..before + MANY {
        if round == before {
            sys::confine();
        }
        let (sent, mut got) = (bytes(1000 * round as u64, 1000), [0; 1000]);
        stream.write_all(&sent).unwrap();
        stream.read_exact(&mut got).unwrap();
        assert!(got[..] == sent, "bytes differ");
    }
    say("done");
    // A build with checks looks at a descriptor by fcntl(2) before it closes it.
    std::mem::forget(stream);
}

#[test]
fn confined__a_program_makes_no_call_that_it_did_not_make_alone() {
    // It asks later than it is confined; it is confined when it shares memory.
    for (before, joined) in [("1", 0), ("300", 1)] {
        let agent = Served::start();
        let mut echo = agent.with("echo", "");
        let words = format!("{} {before}", echo.says());
        let settings = [("WEFT_SOCKETS_AFTER", "4")];
        let mut asks = start("confined", &words, Some(&agent.name), &settings);
        assert_eq!(asks.says(), "done", "{words}");
        asks.ends_well();
        echo.ends_well();
        assert_eq!(agent.counter("sockets_paired"), joined);
    }
}

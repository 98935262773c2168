//! Programs that have the kernel end them if they make a call that they need not (seccomp).

mod sys;

use crate::harness::{argument, bytes, say, start, Served};
use crate::sys::try_pass;
use crate::sys::{fork, wait};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Exchanges that make sure that a connection asks for its other end.
const MANY: usize = 300;

/// Confines this program, and passes a connection to another process in vain.
fn passes_nothing(stream: &TcpStream) {
    let (to, _from) = UnixStream::pair().unwrap();
    sys::confine_from_sockets();
    for _ in 0..2 {
        assert_eq!(try_pass(&to, stream.as_raw_fd()), Err(libc::EAGAIN));
    }
    // A child is confined as well.
    let passed = fork(|| i32::from(try_pass(&to, stream.as_raw_fd()) != Err(libc::EAGAIN)));
    assert_eq!(wait(passed), 0);
    std::mem::forget((to, _from));
}

/// Exchanges bytes with an echo, confines itself after so many exchanges, and goes on. With a third
/// word an answer lies in the ring then, and the test ends the agent before.
pub fn asks() {
    let words = argument();
    let mut words = words.split(' ');
    let mut stream = crate::harness::dial(words.next().unwrap());
    let before: usize = words.next().unwrap().parse().unwrap();
    let more = words.next();
    let (rings, passes) = (more.is_some(), more == Some("passes"));
    for round in 0..before + MANY {
        let (sent, mut got) = (bytes(1000 * round as u64, 1000), [0; 1000]);
        if round == before && !rings {
            sys::confine();
        }
        stream.write_all(&sent).unwrap();
        if round == before && rings {
            while crate::sys::queue(&stream, libc::FIONREAD) < 1000 {
                std::hint::spin_loop();
            }
            say("an answer waits");
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            match passes {
                true => passes_nothing(&stream),
                false => sys::confine(),
            }
        }
        stream.read_exact(&mut got).unwrap();
        assert!(got[..] == sent, "bytes differ");
    }
    say("done");
    // A build with checks looks at a descriptor by fcntl(2) before it closes it.
    std::mem::forget(stream);
}

#[test]
fn confined__a_program_makes_no_call_that_it_did_not_make_alone() {
    // In the first case the program asks later than it is confined; in the second it is confined
    // when it shares memory.
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

#[test]
fn confined__bytes_that_cannot_go_back_are_read_from_the_ring() {
    for then in ["rings", "passes"] {
        let mut agent = Served::start();
        let mut echo = agent.with("echo", "");
        let mut asks = agent.with("confined", &format!("{} 300 {then}", echo.says()));
        assert_eq!(asks.says(), "an answer waits");
        agent.stop();
        drop(asks.child.stdin.take());
        asks.ends_done();
        echo.ends_well();
    }
}

/// Exchanges bytes with an echo, and counts the questions to the kernel about the socket.
pub fn unasked() {
    let mut stream = crate::harness::dial(&argument());
    sys::count_questions();
    let mut got = [0; 10];
    for _ in 0..1000 {
        stream.write_all(&[7; 10]).unwrap();
        stream.read_exact(&mut got).unwrap();
    }
    say(sys::questions().to_string());
    std::mem::forget(stream);
}

#[test]
fn call__asks_the_kernel_nothing_where_there_is_no_agent() {
    let mut agent = Served::start();
    agent.stop();
    let mut echo = agent.with("echo", "");
    let mut client = agent.with("unasked", &echo.says());
    let questions: usize = client.says().parse().unwrap();
    client.ends_well();
    echo.ends_well();
    // An agent may come, so it is tried again each second, then seldom.
    assert!(questions < 200, "{questions} questions in 2000 calls");
}

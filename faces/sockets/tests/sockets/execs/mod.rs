//! Other programs that begin while bytes wait in a ring: by every function, and where the bytes
//! cannot go back to TCP.

pub mod sys;

use crate::harness::{say, start, Process, Served, ROLE};
use crate::heirs::{both_wait, file, goes_on, heir_of, words};
use crate::roles::Server;
use crate::sys as other;
use std::io::Read;
use std::os::fd::AsRawFd;

/// All ways to become another program.
const WAYS: [&str; 12] = [
    "execve",
    "execvpe",
    "execveat",
    "execveat-file",
    "fexecve",
    "SYS_execve",
    "SYS_execveat",
    "execv",
    "execvp",
    "execl",
    "execlp",
    "execle",
];

/// Runs a case on a connection that shares memory. False if there is none of this name.
pub fn attempt(case: &str, server: &mut Server) -> bool {
    match case.split_once(':') {
        Some(("become", way)) => becomes(server, way, false),
        Some(("keep", way)) => becomes(server, way, true),
        Some(("refused", way)) => is_refused(server, way),
        Some(("spawns", _)) => spawns(server),
        Some(("child", _)) => child_is_refused(server),
        _ => return false,
    }
    true
}

/// Waits for the test to do something.
fn pause(what: &str) {
    say(what);
    assert_eq!(std::io::stdin().read(&mut [0]).unwrap(), 1);
}

/// Becomes another program while bytes wait. `keeps`: that one has the library as well, and the
/// agent does not answer.
fn becomes(server: &mut Server, way: &str, keeps: bool) {
    let n = both_wait(server);
    let fd = server.stream.as_raw_fd();
    other::keep_at_exec(fd);
    let mut command = heir_of(server, n, fd);
    if keeps {
        command.env("LD_PRELOAD", crate::harness::library());
        pause("waits");
        if way != "execvp-name" {
            fails(way);
        }
    }
    loop {
        let why = sys::exec(way, &command);
        // On a busy host the bytes may not be back in time: the program tries again.
        assert_eq!(why.kind(), std::io::ErrorKind::WouldBlock, "{why}");
    }
}

/// Programs that are not there, or may not be run, take nothing.
fn fails(way: &str) {
    let program = file();
    let mut none = std::process::Command::new(&program);
    none.env("LD_PRELOAD", crate::harness::library());
    if !matches!(way, "fexecve" | "execveat-file") {
        assert_eq!(sys::exec(way, &none).raw_os_error(), Some(libc::ENOENT), "{way}");
    }
    std::fs::copy("/bin/true", &program).unwrap();
    let rights = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&program, rights).unwrap();
    assert_eq!(sys::exec(way, &none).raw_os_error(), Some(libc::EACCES), "{way}");
    std::fs::remove_file(program).unwrap();
}

/// The other program has no library, so this one goes on.
fn is_refused(server: &mut Server, way: &str) {
    let n = both_wait(server);
    let fd = server.stream.as_raw_fd();
    other::keep_at_exec(fd);
    let command = heir_of(server, n, fd);
    pause("waits");
    // Some functions take this process's environment.
    let file = words().0;
    let error = sys::exec(way, &command);
    assert_eq!(error.raw_os_error(), Some(libc::EAGAIN), "{way}: {error}");
    goes_on(server, n, &file);
}

/// No function starts a child, which would have the connection.
fn spawns(server: &mut Server) {
    let n = both_wait(server);
    let fd = server.stream.as_raw_fd();
    other::keep_at_exec(fd);
    pause("waits");
    for (name, error) in sys::spawns(fd) {
        assert_eq!(error, libc::EAGAIN, "{name}");
    }
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(other::try_pass(&one, fd), Err(libc::EAGAIN));
    goes_on(server, n, &words().0);
}

/// A child cannot become another program, as its parent may be the reader.
fn child_is_refused(server: &mut Server) {
    let n = both_wait(server);
    let fd = server.stream.as_raw_fd();
    other::keep_at_exec(fd);
    let mut command = heir_of(server, n, fd);
    command.env("LD_PRELOAD", crate::harness::library());
    pause("waits");
    let child = other::fork(|| sys::exec("execve", &command).raw_os_error().unwrap());
    assert_eq!(other::wait(child), libc::EAGAIN << 8);
    goes_on(server, n, &words().0);
}

/// An agent that cannot bring bytes back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Agent {
    /// The agent serves.
    Serves,
    /// The agent has ended.
    Gone,
    /// The agent stands still, and goes on later.
    Still,
}

fn case(name: &str, n: usize, state: Agent) {
    let mut agent = Served::start();
    let file = file();
    let file = file.to_str().unwrap();
    let mut server = agent.with("serve", file);
    let port = server.says();
    let mut client = agent.with(&format!("try-{name}"), &format!("{port} {file} {n}"));
    if state != Agent::Serves {
        assert_eq!(client.says(), "waits");
        match state {
            Agent::Gone => agent.stop(),
            _ => agent.stands_still(true),
        }
        client.goes_on(b'x');
    }
    assert_eq!(client.says(), "done", "{name}");
    // The agent finds what it was asked meanwhile, and has sockets no longer.
    agent.stands_still(false);
    client.ends_well();
    server.ends_well();
    std::fs::remove_file(file).unwrap();
}

#[test]
fn exec__by_every_function_the_next_program_reads_what_waits() {
    for way in WAYS {
        case(&format!("become:{way}"), 9000, Agent::Serves);
    }
}

#[test]
fn exec__without_an_agent_the_library_of_the_next_program_has_the_bytes() {
    for way in WAYS {
        case(&format!("keep:{way}"), 9000, Agent::Gone);
    }
    // A folder of the program's name comes first in PATH.
    case("keep:execvp-name", 9000, Agent::Gone);
    for n in [1, 20_000, 60_000] {
        case("keep:execve", n, Agent::Gone);
    }
    case("keep:execve", 8_000_000, Agent::Gone);
}

#[test]
fn exec__with_an_agent_that_is_stopped_the_next_program_has_the_bytes() {
    case("keep:execve", 9000, Agent::Still);
    case("keep:execlp", 9000, Agent::Still);
}

#[test]
fn exec__is_refused_where_bytes_would_be_lost() {
    case("refused:execve", 9000, Agent::Gone);
    case("refused:SYS_execveat", 60_000, Agent::Gone);
    case("refused:fexecve", 9000, Agent::Still);
    case("refused:execl", 9000, Agent::Gone);
    case("child:", 9000, Agent::Gone);
}

#[test]
fn spawn__and_the_like_are_refused_where_bytes_would_be_lost() {
    case("spawns:", 9000, Agent::Gone);
}

/// Becomes a server all threads of which block SIGURG.
pub fn serve_and_block(role: &str) {
    sys::block_urgent(true);
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(std::env::args_os().skip(1)).env(ROLE, role);
    panic!("{}", sys::exec("execve", &command));
}

/// A server with a handler of its own for SIGURG, which hears of no bell.
pub fn serve_and_handle() {
    sys::handle_urgent();
    crate::roles::serve(crate::roles::accept());
    assert_eq!(sys::urgent_signals(), 0);
    // The actions of a child by vfork(2) are its own.
    assert_eq!(crate::sys::wait(sys::vfork_and_reset_urgent()), 0);
    sys::raise_urgent();
    assert_eq!(sys::urgent_signals(), 1);
}

/// A server whose threads block SIGURG, and which has a handler. It says if the bell's signal
/// waits at the end; the program's, which comes then, is the same for the kernel.
pub fn serve_held() {
    sys::handle_urgent();
    let (one, other) = sys::pair_with_urgent_signals();
    crate::roles::serve(crate::roles::accept());
    say(sys::is_urgent_pending());
    if !sys::is_urgent_pending() {
        return;
    }
    // The bell's alone is not the program's. It is the next one's.
    match std::env::var(SENDS).unwrap().as_str() {
        "nothing" => {}
        "kill" => sys::kill_by_urgent(),
        "another" => assert_eq!(crate::sys::wait(sys::killer_by_urgent()), 0),
        "data" => {
            assert_eq!(crate::sys::send(&other, b"!", libc::MSG_OOB).unwrap(), 1);
            while crate::sys::poll_for(&one, libc::POLLPRI, 1) & libc::POLLPRI == 0 {}
        }
        way => panic!("{way}"),
    }
    sys::block_urgent(false);
    // The kernel keeps one signal of a number, and says of no other who sent it.
    let is_called = ["kill", "data"].contains(&std::env::var(SENDS).unwrap().as_str());
    assert_eq!(sys::urgent_signals(), u32::from(is_called));
    drop(one);
}

/// Name of the variable with what a program sends itself.
const SENDS: &str = "WEFT_TEST_SENDS";

/// Runs a case against a server of another kind.
fn against(role: &str, case: &str, settings: &[(&str, &str)]) {
    let agent = Served::start();
    begin(&agent, role, case, settings).ends_well();
}

/// Runs a case against a server of another kind to the client's end; returns the server.
fn begin(agent: &Served, role: &str, case: &str, settings: &[(&str, &str)]) -> Process {
    let file = file();
    let file = file.to_str().unwrap();
    let with = Some(agent.name.as_str());
    let mut server = start(role, file, with, settings);
    let port = server.says();
    let mut client = start(&format!("try-{case}"), &format!("{port} {file} 9000"), with, &[]);
    if case.starts_with("refused") {
        assert_eq!(client.says(), "waits");
        client.goes_on(b'x');
    }
    client.ends_done();
    std::fs::remove_file(file).unwrap();
    server
}

#[test]
fn exec__is_refused_where_the_peer_blocks_the_bell() {
    against("serve-and-block", "refused:execve", &[]);
}

#[test]
fn exec__bytes_go_back_where_the_peer_handles_the_signal_of_the_bell() {
    against("serve-and-handle", "become:execve", &[]);
}

#[test]
fn signal__one_of_the_programs_that_comes_while_the_bells_waits_is_handled() {
    // The agent refuses for the server, and rings no bell, if it does not know the server yet.
    let is_rung = |sends: &str| {
        let agent = Served::start();
        let mut server = begin(&agent, "serve-and-hold", "refused:execve", &[(SENDS, sends)]);
        let is_rung = server.says() == "true";
        server.ends_well();
        is_rung
    };
    for sends in ["nothing", "kill", "data", "another"] {
        assert!((0..20).any(|_| is_rung(sends)), "{sends}: no bell was ever rung");
    }
}

//! The library under real programs: pairs of processes that have it loaded, and an agent.
//!
//! Each process is this test program again, which runs the role that its environment names
//! (`roles`). `cases` has a test for each behaviour, `torture` random calls against a model, `tipc`
//! programs of AF_TIPC.
#![allow(non_snake_case)]

mod cases;
mod children;
mod confined;
mod crowd;
mod ends;
mod execs;
mod faults;
mod field;
mod harness;
mod heirs;
mod hostile;
mod hosts;
mod marks;
mod networks;
mod numbers;
mod options;
mod programs;
mod rings;
mod roles;
mod symbols;
mod sys;
mod targets;
mod tipc;
mod torture;

/// Runs a role, in a process that a test has started; nothing otherwise.
#[test]
fn role__plays_what_the_environment_names() {
    if let Ok(name) = std::env::var(harness::ROLE) {
        roles::run(&name);
    }
}

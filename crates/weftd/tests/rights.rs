//! The rights that a real agent keeps.
#![allow(non_snake_case)]

mod common;
mod serving;

use common::*;
use serving::serving;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use weft_conformance::{skip, Started};
use weftd::sys;

/// An agent as a process, which has reported that it serves; killed when this value is dropped.
struct Process(Started, Served);

impl Process {
    fn start(words: &str) -> Process {
        let name = format!("@weft-test-{:016x}", weft_link::random_u64());
        let mut command = Command::new(env!("CARGO_BIN_EXE_weftd"));
        let (child, line) = serving(command.args(["--name", &name]).args(words.split(' ')));
        assert!(line.contains("capabilities 0"), "{line:?}");
        Process(child, Served { name, end: Arc::default(), thread: None })
    }

    /// Returns the fields of its /proc status, by name.
    fn status(&self) -> BTreeMap<String, Vec<String>> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let pair = |line: &str| {
            let (name, values) = line.split_once(':')?;
            Some((name.to_string(), values.split_whitespace().map(String::from).collect()))
        };
        text.lines().filter_map(pair).collect()
    }
}

#[test]
fn rights__are_given_up_before_any_rank_is_served() {
    if !sys::is_root() {
        return skip("only root has rights to give up");
    }
    for (words, user) in [
        ("--user nobody", None),
        ("--user 12345 --links udp", Some("12345")),
        ("--user= --links packet,udp", Some("0")),
    ] {
        let agent = Process::start(words);
        let status = agent.status();
        for name in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(status[name], ["0000000000000000"], "{words}: {name}");
        }
        assert_eq!(status["NoNewPrivs"], ["1"], "{words}");
        let now = status["Uid"][0].as_str();
        assert!(status["Uid"] == [now; 4] && user.is_none_or(|u| u == now), "{words}: {now}");
        if user != Some("0") {
            assert_ne!(now, "0", "{words}");
            assert!(!status["Gid"].contains(&"0".to_string()), "{words}");
            assert!(status["Groups"].is_empty(), "{words}: {:?}", status["Groups"]);
        }
        // Resources opened before the rights were dropped still work.
        joined(&agent.1, &agent.1, b"without any right");
    }
}

#[test]
fn rights__without_a_name_it_becomes_a_user_of_its_own() {
    if !sys::is_root() {
        return skip("only root becomes another user");
    }
    let agent = Process::start("--links udp");
    let status = agent.status();
    let now = status["Uid"][0].as_str();
    assert_eq!(status["Uid"], [now; 4]);
    if now == "65534" {
        return skip("this user namespace has no number to spare");
    }
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let named = passwd.lines().find(|l| l.split(':').nth(2) == Some(now));
    assert!(now != "0" && named.is_none_or(|l| l.starts_with("weft:")), "{now}: {named:?}");
    // A process of the user nobody may not even send signal 0.
    let by = |user: &str| {
        let mut kill = Command::new("setpriv");
        kill.args([&format!("--reuid={user}"), "--clear-groups", "kill", "-s", "TERM"]);
        let done = kill.arg(agent.0.id().to_string()).output().unwrap();
        (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (done, said) = by("65534");
    assert!(!done && said.contains("not permitted"), "{said}");
    joined(&agent.1, &agent.1, b"it lives");
}

#[test]
fn rights__of_a_user_that_does_not_exist_end_the_agent() {
    if !sys::is_root() {
        return skip("only root becomes another user");
    }
    let name = format!("@weft-test-{:016x}", weft_link::random_u64());
    let mut command = Command::new(env!("CARGO_BIN_EXE_weftd"));
    command.args(["--name", &name, "--links", "udp", "--user", "no-such-user-here"]);
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && done.stdout.is_empty(), "{said}");
    assert!(said.contains("giving up rights") && said.contains("no-such-user-here"), "{said}");
}

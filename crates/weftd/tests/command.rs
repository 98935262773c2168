//! The command `weftd` called as by a user: its errors, and the fixes that they name.
#![allow(non_snake_case)]

mod serving;

use serving::serving;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use weft_agent::{AgentConfig, AgentLink};
use weft_conformance::{skip, Started};
use weft_link::secure::{JobKey, Mode, Security};

fn weftd(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weftd"));
    command.args(words).env_remove("WEFT_AGENT").stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn fresh_name() -> String {
    format!("@weft-test-{:016x}", weft_link::random_u64())
}

/// An agent that serves at this name; killed when this value is dropped.
struct Agent(Started);

impl Agent {
    fn start(name: &str) -> Agent {
        Agent::by(weftd(&[]), name)
    }

    /// Starts an agent by this command.
    fn by(command: Command, name: &str) -> Agent {
        Agent::as_user(command, name, "--user=")
    }

    fn as_user(mut command: Command, name: &str, user: &str) -> Agent {
        Agent(serving(command.args(["--links", "udp", user, "--name", name])).0)
    }
}

#[test]
fn start__where_one_serves_says_how_to_end_that_one() {
    let name = fresh_name();
    let mut agent = Agent::start(&name);
    let second = weftd(&["--links", "udp", "--name", &name]).output().unwrap();
    let why = said(&second);
    assert!(!second.status.success() && why.contains("already"), "{why}");
    // The command in the message works as printed.
    let advice = why.split('`').nth(1).unwrap_or_default();
    let words: Vec<&str> = advice.split_whitespace().skip(1).collect();
    assert!(advice.starts_with("weftd "), "{why}");
    let stopped = weftd(&words).output().unwrap();
    assert!(stopped.status.success(), "{advice}: {}", said(&stopped));
    assert!(agent.0.wait().unwrap().success());
}

#[test]
fn start__where_another_user_has_the_name_names_the_user() {
    if !weftd::sys::is_root() {
        return skip("only root can become another user");
    }
    let name = fresh_name();
    let mut other = Command::new("setpriv");
    other.args(["--reuid=12345", "--clear-groups", env!("CARGO_BIN_EXE_weftd")]);
    let _other = Agent::by(other, &name);
    let refused = weftd(&["--links", "udp", "--name", &name]).output().unwrap();
    let why = said(&refused);
    assert!(!refused.status.success(), "{why}");
    for part in [&name, "no agent of root's or of this user's", "user 12345", "--name PATH"] {
        assert!(why.contains(part), "{why}");
    }
    let status = weftd(&["--status", "--name", &name]).output().unwrap();
    let why = String::from_utf8_lossy(&status.stderr).into_owned();
    assert!(status.status.success() && why.contains("user 12345"), "{why}");
    // The message is the same where the agent answers no questions.
    let why = weft_agent::Hub::listen(&name, 1, 1).unwrap_err().to_string();
    assert!(why.contains("of user 12345 has") && why.contains("take a path"), "{why}");
    // A rank does not send it the key of its job, and the error names its user.
    let job_key = JobKey::from_bytes(&[7; 32]).unwrap();
    let security = Security { mode: Mode::Auth, job_key, me: weft::EndpointId(1) };
    let config = AgentConfig { names: vec![name.clone()], ..AgentConfig::default() };
    let Err(why) = AgentLink::attach(&config, &security, &weft::Config::default()) else {
        panic!("it was trusted")
    };
    let why = why.to_string();
    assert!(why.contains("is not trusted") && why.contains("user 12345"), "{why}");
}

#[test]
fn name__is_where_ranks_look() {
    let name = fresh_name();
    let mut agent = Agent::start(&name);
    let status = weftd(&["--status"]).env("WEFT_AGENT", &name).output().unwrap();
    assert!(said(&status).contains(&format!("\nname {name}\n")), "{}", said(&status));
    let elsewhere = weftd(&["--stop", "--name", &fresh_name()]).env("WEFT_AGENT", &name).output();
    assert!(!elsewhere.unwrap().status.success(), "a name of its own comes first");
    let stopped = weftd(&["--stop"]).env("WEFT_AGENT", &name).output().unwrap();
    assert!(stopped.status.success(), "{}", said(&stopped));
    assert!(agent.0.wait().unwrap().success());
}

/// Returns the names of the files in a folder.
fn files_in(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    std::fs::read_dir(folder).unwrap().map(|e| name(e).display().to_string()).collect()
}

#[test]
fn stop__leaves_no_socket_file_whatever_user_the_agent_has_become() {
    let folder = std::env::temp_dir().join(format!("weft-stop-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let key = folder.join("cluster.key").display().to_string();
    weft_cluster::KeyFile::init(Path::new(&key)).unwrap();
    let path = folder.join("agent.sock").display().to_string();
    // Root's agent gives its rights up, and may not remove files in this folder then.
    for user in ["--user=", "--user=65521"] {
        if user.len() > 7 && !weftd::sys::is_root() {
            skip("only root can become another user");
            continue;
        }
        let mut command = weftd(&["--cluster", "stop", "--cluster-key", &key]);
        command.args(["--cluster-port", "0", "--cluster-multicast", "off"]);
        let mut agent = Agent::as_user(command, &path, user);
        assert!(files_in(&folder).len() > 2, "{:?}", files_in(&folder));
        let stopped = weftd(&["--stop", "--name", &path]).output().unwrap();
        assert!(stopped.status.success(), "{}", said(&stopped));
        assert_eq!(files_in(&folder), ["cluster.key"], "{user}");
        assert!(agent.0.wait().unwrap().success());
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn name__a_file_that_is_no_socket_is_not_removed() {
    let folder = std::env::temp_dir().join(format!("weft-file-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("agent.sock").display().to_string();
    for file in [path.clone(), format!("{path}-desk")] {
        std::fs::write(&file, "text").unwrap();
        let refused = weftd(&["--links", "udp", "--name", &path]).output().unwrap();
        let why = said(&refused);
        assert!(!refused.status.success() && why.contains(&path), "{why}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
        std::fs::remove_file(&file).unwrap();
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn status__without_a_name_is_that_of_the_agent_that_ranks_find() {
    let first = &weft_agent::usual_names()[0];
    if weftd::status::serves(first) {
        return skip(&format!("an agent serves at {first}, which ranks find first"));
    }
    let folder = std::env::temp_dir().join(format!("weft-status-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("weft")).unwrap();
    let path = folder.join("weft/agent.sock").display().to_string();
    let agent = Agent::start(&path);
    // Root and other users alike: the place at which this one would serve is another.
    let status = weftd(&["--status"]).env("XDG_RUNTIME_DIR", &folder).output().unwrap();
    assert!(said(&status).contains(&format!("\nname {path}\n")), "{}", said(&status));
    drop(agent);
    let none = weftd(&["--status"]).env("XDG_RUNTIME_DIR", &folder).output().unwrap();
    let why = said(&none);
    assert!(!none.status.success() && why.contains(first) && why.contains(&path), "{why}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn start__that_would_serve_no_rank_is_refused() {
    for (words, why) in [
        (["--sessions", "0"], "for '--sessions <N>': 0 is not in 1..=512"),
        (["--sessions", "513"], "for '--sessions <N>': 513 is not in 1..=512"),
        (["--quota", "ranks=0"], "'ranks=0' for '--quota <KEY=N>': nobody would be served"),
        (["--faults", "loss=much"], "`loss=much` is not a fault"),
    ] {
        let refused = weftd(&words).args(["--links", "udp", "--name", &fresh_name()]).output();
        let refused = refused.unwrap();
        assert!(!refused.status.success(), "{words:?}");
        assert!(said(&refused).contains(why), "{words:?}: {}", said(&refused));
    }
}

//! The agent as a service of the system: its unit file, and its messages to the service manager.
#![allow(non_snake_case)]

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use weft_conformance::skip;

const WEFTD: &str = env!("CARGO_BIN_EXE_weftd");
const UNIT: &str = include_str!("../../../dist/weftd.service");
/// Longer than any command here takes on a working machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Returns an empty folder of this test.
fn scratch() -> PathBuf {
    let name = format!("weftd-service-{:016x}", weft_link::random_u64());
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Returns the output of `systemd-analyze verify` for a unit file; `None` if there is no such
/// command.
fn verify(unit: &str) -> Option<String> {
    let folder = scratch();
    let path = folder.join("weftd.service");
    std::fs::write(&path, unit).unwrap();
    let output = Command::new("systemd-analyze").arg("verify").arg(&path).output();
    std::fs::remove_dir_all(&folder).unwrap();
    let output = output.ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    // The check may report faults of other units of this machine, too.
    let of_ours: Vec<&str> = said.lines().filter(|line| line.contains("weftd")).collect();
    Some(of_ours.join("\n"))
}

#[test]
fn unit__the_service_manager_understands_it() {
    let unit = UNIT.replace("/usr/local/bin/weftd", WEFTD);
    assert!(unit.contains(WEFTD), "the unit starts another program");
    let Some(said) = verify(&unit) else { return skip("no systemd-analyze") };
    let of_bad = verify(&unit.replace("RuntimeDirectory=", "RuntimeFolder=")).unwrap();
    if !of_bad.contains("RuntimeFolder") {
        return skip(&format!("systemd-analyze cannot verify units here: {of_bad}"));
    }
    assert!(said.is_empty(), "{said}");
}

/// Starts the command of the unit's start line, with another socket name.
fn start(name: &str, manager: &str) -> Child {
    let line = UNIT.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    // The service manager leaves the variable of options out where no file sets it.
    let words = line.split_whitespace().skip(1).filter(|word| *word != "$WEFTD_OPTIONS");
    let words = words.map(|word| if word.ends_with("agent.sock") { name } else { word });
    let mut command = Command::new(WEFTD);
    command.args(words).args(["--links", "udp", "--user="]).env("NOTIFY_SOCKET", manager);
    command.stdout(Stdio::null()).spawn().unwrap()
}

fn hears(manager: &UnixDatagram, what: &str) {
    let mut words = [0; 64];
    let len = manager.recv(&mut words).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(String::from_utf8_lossy(&words[..len]), what);
}

#[test]
fn notify__the_service_manager_learns_when_it_serves_and_when_it_ends() {
    assert!(UNIT.contains("\nType=notify\n"));
    let folder = scratch();
    let path = folder.join("manager");
    let abstract_name = format!("weft-manager-{:016x}", weft_link::random_u64());
    let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
    for (manager, name) in [
        (UnixDatagram::bind(&path), path.display().to_string()),
        (UnixDatagram::bind_addr(&address), format!("@{abstract_name}")),
    ] {
        let manager = manager.unwrap();
        manager.set_read_timeout(Some(LIMIT)).unwrap();
        let mut agent = start(&folder.join("agent.sock").display().to_string(), &name);
        hears(&manager, "READY=1");
        let told = Command::new("kill").arg(agent.id().to_string()).status().unwrap();
        assert!(told.success());
        hears(&manager, "STOPPING=1");
        assert!(agent.wait().unwrap().success());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

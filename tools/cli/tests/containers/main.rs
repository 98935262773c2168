//! Ranks in containers of one host, which share memory by way of the host's agent: in namespaces of
//! their own, under Podman, as MPI programs; and the faults that leave them to a network.
#![allow(non_snake_case)]

mod guide;
// Each test program uses a part of it.
#[allow(dead_code)]
#[path = "../run/harness.rs"]
mod harness;

use harness::{Done, Job};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use weft_conformance::skip;

const WEFT: &str = env!("CARGO_BIN_EXE_weft");
/// A rank in network, PID, IPC, mount and user namespaces of its own.
const APART: &str = "exec unshare -n -p -i -m -U -r --fork --kill-child --mount-proc \"$@\"";

/// An agent with a folder of its own, which ends with this value.
struct Agent {
    child: Child,
    folder: PathBuf,
}

impl Agent {
    /// Starts an agent; `None` if the program is not built.
    fn start(options: &[&str]) -> Option<Agent> {
        let program = Path::new(WEFT).with_file_name("weftd");
        if !program.is_file() {
            skip("weftd is not built beside weft (cargo build -p weftd)");
            return None;
        }
        // A socket's path is short.
        let folder = std::env::temp_dir().join(format!("weft-{:x}", weft_link::random_u64() >> 16));
        let mut command = Command::new(program);
        command.arg("--name").arg(folder.join("agent.sock"));
        command.args(["--links", "udp", "--user", ""]).args(options);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("serving at"), "{line:?}");
        Some(Agent { child, folder })
    }

    fn name(&self) -> String {
        self.folder.join("agent.sock").display().to_string()
    }

    fn status(&self, of: &str) -> u64 {
        let status = weftd::status::status(&self.name()).unwrap();
        let value = |line: &str| line.strip_prefix(of)?.trim().parse().ok();
        status.lines().find_map(value).unwrap_or_else(|| panic!("no {of} in {status}"))
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.end();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// True if namespaces of these kinds can be made here; else the test is skipped.
fn can_unshare() -> bool {
    let tried = Command::new("sh").args(["-c", APART, "sh", "true"]).output();
    let works = tried.as_ref().is_ok_and(|o| o.status.success());
    if !works {
        let why = tried.map(|o| String::from_utf8_lossy(&o.stderr).trim().to_string());
        skip(&format!("namespaces cannot be made here: {}", why.unwrap_or_default()));
    }
    works
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("ranks of several users take root");
    }
    root
}

/// Returns a job of two ranks, each started by this shell script, that exchange messages.
fn exchange(agent: &str, script: &str, options: &[&str]) -> Job {
    let words = ["sh", "-c", script, "sh", WEFT, "selftest", "exchange"];
    let job = Job::new(&["-n", "2"]).command(words.iter().chain(options).map(|w| w.to_string()));
    job.env("WEFT_AGENT", agent).env("WEFT_LOG", "info").env("WEFT_CONNECT_TIMEOUT_MS", "60000")
}

/// Returns the sum of a counter that both ranks print.
fn sum(out: &str, counter: &str) -> u64 {
    let words: Vec<&str> = out.split_whitespace().collect();
    let of = |two: &[&str]| (two[0] == counter).then(|| two[1].parse::<u64>().unwrap());
    words.windows(2).filter_map(of).sum()
}

/// Checks that two ranks used memory that the agent joined.
fn assert_joined(done: &Done) {
    done.assert_code(0);
    for rank in 0..2 {
        let line = done.out.lines().find(|l| l.starts_with(&format!("rank {rank} reaches")));
        let line = line.unwrap_or_else(|| panic!("{}{}", done.out, done.err));
        assert!(line.contains("over shm"), "{line}");
        assert!(done.out.contains(&format!("rank {rank} is done")), "{}", done.out);
    }
    assert!((1..=2).contains(&sum(&done.out, "shm_joined")), "{}", done.out);
    assert!(sum(&done.out, "shm_sent") > 100, "{}", done.out);
    assert_eq!(sum(&done.out, "shm_direct"), 0, "{}", done.out);
}

#[test]
fn exchange__two_sets_of_namespaces_share_memory_and_go_on_without_the_agent() {
    let Some(mut agent) = can_unshare().then(|| Agent::start(&[])).flatten() else { return };
    let flag = agent.folder.join("go on");
    let options = ["--until", flag.to_str().unwrap()];
    let mut running = exchange(&agent.name(), APART, &options).start();
    running.lines(2, " reaches rank ");
    assert_eq!(agent.status("share_ranks "), 2);
    assert!(agent.status("share_joined ") >= 1);
    agent.end();
    std::fs::write(&flag, "").unwrap();
    let done = running.finish();
    assert_joined(&done);
    done.assert_nothing_left();
}

#[test]
fn exchange__one_rank_on_the_host_and_one_in_a_container() {
    let Some(agent) = can_unshare().then(|| Agent::start(&[])).flatten() else { return };
    let script = format!("[ $PMI_RANK = 0 ] && exec \"$@\"; {APART}");
    assert_joined(&exchange(&agent.name(), &script, &[]).finish());
}

#[test]
fn exchange__without_the_socket_in_the_container_the_reason_is_named() {
    if !can_unshare() {
        return;
    }
    let done = exchange("/nowhere/agent.sock", APART, &[]).finish();
    assert_ne!(done.code, Some(0), "{}", done.out);
    let err = &done.err;
    assert!(err.contains("in another network namespace"), "{err}");
    assert!(err.contains("weftd joins containers of one host: `weft doctor`"), "{err}");
}

#[test]
fn exchange__agents_of_two_hosts_join_no_ranks() {
    if !can_unshare() {
        return;
    }
    let (Some(one), Some(other)) = (Agent::start(&[]), Agent::start(&[])) else { return };
    let script = format!("[ $PMI_RANK = 0 ] && export WEFT_AGENT='{}'; {APART}", other.name());
    let done = exchange(&one.name(), &script, &[]).finish();
    assert_ne!(done.code, Some(0), "{}", done.out);
    assert!(done.err.contains("has another agent"), "{}", done.err);
}

/// A rank of user 1001 or 1002, each in a user namespace in which it is user 1000.
const LIES: &str = "exec setpriv --reuid=$((1001 + PMI_RANK)) --regid=1001 --clear-groups \
                    unshare -U --map-user=1000 -n -p -i -m --fork --kill-child \"$@\"";

#[test]
fn exchange__a_map_that_gives_two_users_one_number_deceives_no_agent() {
    let Some(agent) = (is_root() && can_unshare()).then(|| Agent::start(&[])).flatten() else {
        return;
    };
    let done = exchange(&agent.name(), &readable(&agent, LIES), &[]).finish();
    assert_ne!(done.code, Some(0), "{}{}", done.out, done.err);
    assert!(done.err.contains("users 100"), "{}", done.err);
    assert!(agent.status("share_refused ") >= 1);
    assert_eq!(agent.status("share_joined "), 0);
}

#[test]
fn exchange__users_that_the_agents_settings_allow() {
    let policy = ["--share", "1001-1002"];
    let Some(agent) = (is_root() && can_unshare()).then(|| Agent::start(&policy)).flatten() else {
        return;
    };
    assert_joined(&exchange(&agent.name(), &readable(&agent, LIES), &[]).finish());
}

/// Returns a script whose ranks run a copy of the command that every user can read.
fn readable(agent: &Agent, script: &str) -> String {
    let copy = agent.folder.join("weft");
    format!(
        "umask 022; [ $PMI_RANK = 0 ] && cp \"$1\" '{0}.new' && mv '{0}.new' '{0}'; \
         until [ -x '{0}' ]; do sleep 0.05; done; shift; set -- '{0}' \"$@\"; {script}",
        copy.display()
    )
}

/// Its runtime refuses a machine with both versions of cgroups: root's command sees only the first.
const BOTH: &str = "/sys/fs/cgroup/unified";

/// Returns a command of Podman.
fn podman() -> Command {
    if !Path::new(BOTH).exists() {
        return Command::new("podman");
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "umount \"$0\" && exec podman \"$@\"", BOTH]);
    command
}

/// Returns a command of Podman without root: of the user `daemon`, with a home for each rank, in a
/// namespace of process ids, with which the processes end that Podman leaves behind.
fn rootless_podman(agent: &Agent) -> Command {
    let folder = agent.folder.display();
    let script = format!(
        "[ ! -d {BOTH} ] || umount {BOTH}; own={folder}/root; home={folder}/home$PMI_RANK; \
         mkdir -p $home; chown -R 1:1 $home $own; export HOME=$home XDG_RUNTIME_DIR=$home; \
         cd /; exec setpriv --reuid=1 --regid=1 --clear-groups podman \"$@\""
    );
    let mut command = Command::new("unshare");
    let own = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    command.args(own).args(["sh", "-c", &script, "sh"]);
    command
}

/// The options of a container that runs the programs of this machine: no image is needed.
fn container(agent: &Agent) -> Vec<String> {
    let root = agent.folder.join("root");
    for folder in ["usr", "lib", "lib64", "bin", "run/weft", "tmp", "proc", "sys", "dev", "etc"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    let program = Path::new(WEFT).parent().unwrap();
    let mut words: Vec<String> = [
        "run",
        "--rm",
        "--network=none",
        "--cgroups=disabled",
        "--cap-drop=all",
        "--log-driver=none",
    ]
    .map(String::from)
    .to_vec();
    // Its own limits may be above those of this process.
    words.extend(["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"].map(String::from));
    for folder in ["/usr", "/lib", "/lib64", "/bin", program.to_str().unwrap()] {
        if Path::new(folder).exists() {
            words.push(format!("--volume={folder}:{folder}:ro"));
        }
    }
    words.push(format!("--volume={}:/run/weft", agent.folder.display()));
    words.extend(["--rootfs".into(), root.display().to_string()]);
    words
}

#[test]
fn podman__two_containers_share_memory() {
    let Some(agent) = Agent::start(&[]) else { return };
    two_containers(&agent, &podman);
}

#[test]
fn podman__two_containers_without_root_share_memory() {
    let Some(agent) = is_root().then(|| Agent::start(&[])).flatten() else { return };
    two_containers(&agent, &|| rootless_podman(&agent));
}

/// Runs a rank in each of two containers that `podman` starts.
fn two_containers(agent: &Agent, podman: &dyn Fn() -> Command) {
    let tried = podman().args(container(agent)).arg("/bin/true").output();
    if !tried.as_ref().is_ok_and(|o| o.status.success()) {
        let why = tried.map(|o| String::from_utf8_lossy(&o.stderr).trim().to_string());
        return skip(&format!("Podman is not here or does not run: {why:?}"));
    }
    // The launcher's connection becomes descriptor 3, which Podman hands on.
    let run = podman();
    let of = |word: &std::ffi::OsStr| format!("'{}'", word.to_str().unwrap());
    let mut words: Vec<String> =
        std::iter::once(run.get_program()).chain(run.get_args()).map(of).collect();
    let options = container(agent);
    let (first, rest) = options.split_at(1);
    words.extend_from_slice(first);
    words.push("--preserve-fds=1 --env=PMI_FD=3 --env=PMI_RANK --env=PMI_SIZE".into());
    words.push("--env=WEFT_LOG --env=WEFT_AGENT=/run/weft/agent.sock".into());
    words.extend(rest.iter().map(|word| format!("'{word}'")));
    let script = format!("exec 3<&$PMI_FD; exec {} \"$@\"", words.join(" "));
    let bash = Path::new("/bin/bash");
    if !bash.is_file() {
        return skip("no bash, which moves descriptors above 9");
    }
    let words = ["/bin/bash", "-c", &script, "bash", WEFT, "selftest", "exchange"];
    let job = Job::new(&["-n", "2"]).command(words.iter().map(|w| w.to_string()));
    assert_joined(&job.env("WEFT_LOG", "info").finish());
}

/// Returns the launcher of MPICH below `WEFT_TEST_MPIS`, with its compiler beside it.
fn mpich() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("WEFT_TEST_MPIS")?);
    let bin = folder.join("v-mpich/bin");
    (bin.join("mpiexec").is_file() && bin.join("mpicc").is_file()).then_some(bin)
}

/// An MPI program that exchanges messages of several sizes.
const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    int rank, i;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    size_t sizes[] = {8, 20000, 1 << 20, 4 << 20};
    for (i = 0; i < 4; i++) {
        char *out = malloc(sizes[i]), *in = malloc(sizes[i]);
        memset(out, 'a' + rank, sizes[i]);
        memset(in, 0, sizes[i]);
        MPI_Sendrecv(out, sizes[i], MPI_CHAR, 1 - rank, 0, in, sizes[i], MPI_CHAR, 1 - rank, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        size_t at;
        for (at = 0; at < sizes[i]; at++)
            if (in[at] != 'a' + 1 - rank) MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d is done\n", rank);
    MPI_Finalize();
    return 0;
}
"#;

#[test]
fn mpich__a_program_in_two_containers_shares_memory_without_a_change() {
    let Some(bin) = mpich() else { return skip("WEFT_TEST_MPIS names no folder with v-mpich") };
    let provider = Path::new(WEFT).with_file_name("libweft_fi.so");
    if !provider.is_file() {
        return skip("the provider is not built (cargo build -p weft-ofi)");
    }
    let Some(agent) = can_unshare().then(|| Agent::start(&[])).flatten() else { return };
    let source = agent.folder.join("program.c");
    let program = agent.folder.join("program");
    std::fs::write(&source, PROGRAM).unwrap();
    let built = Command::new(bin.join("mpicc")).arg("-o").arg(&program).arg(&source).output();
    let built = built.unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut command = Command::new(WEFT);
    command.args(["mpi", "--all-through-weft", "--mpi"]).arg(bin.join("mpiexec"));
    command.args(["-n", "2", "sh", "-c", APART, "sh"]).arg(&program);
    let job = Job::of(command)
        .env("WEFT_AGENT", &agent.name())
        .env("WEFT_PROVIDER", provider.to_str().unwrap());
    let job = job.env("WEFT_LOG", "info").env("XDG_CONFIG_HOME", agent.folder.to_str().unwrap());
    let done = job.finish();
    done.assert_code(0);
    for rank in 0..2 {
        assert!(done.out.contains(&format!("rank {rank} is done")), "{}{}", done.out, done.err);
    }
    assert!(agent.status("share_joined ") >= 1);
}

#[test]
fn doctor__in_a_container_says_what_is_missing_and_what_works() {
    let Some(agent) = can_unshare().then(|| Agent::start(&[])).flatten() else { return };
    let doctor = |agent: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", APART, "sh", WEFT, "doctor", "--json"]).env("WEFT_AGENT", agent);
        let out = command.stdin(Stdio::null()).output().unwrap();
        let out = String::from_utf8_lossy(&out.stdout).into_owned();
        let mut checks = out.lines().map(|l| serde_json::from_str(l).unwrap());
        let of = |c: &serde_json::Value| c["topic"] == "containers";
        checks.find(of).unwrap_or_else(|| panic!("no check of containers: {out}"))
    };
    let good = doctor(&agent.name());
    assert_eq!(good["verdict"], "ok", "{good}");
    assert!(good["finding"].as_str().unwrap().contains(&agent.name()), "{good}");
    let bad = doctor("/nowhere/agent.sock");
    assert_eq!(bad["verdict"], "warn", "{bad}");
    assert!(bad["remedy"].as_str().unwrap().contains("-v /run/weft:/run/weft"), "{bad}");
    let Some(off) = Agent::start(&["--share", "off"]) else { return };
    let refused = doctor(&off.name());
    assert!(refused["finding"].as_str().unwrap().contains("joins no ranks"), "{refused}");
    assert!(refused["remedy"].as_str().unwrap().contains("--share"), "{refused}");
}

#[test]
fn info__says_if_ranks_in_other_containers_are_reached() {
    let Some(agent) = Agent::start(&[]) else { return };
    for (name, part) in [
        (agent.name(), format!("joined by the agent at {}", agent.name())),
        ("/nowhere/agent.sock".into(), "does not reach ranks in other containers".into()),
    ] {
        let out = Command::new(WEFT).arg("info").env("WEFT_AGENT", name).output().unwrap();
        let out = String::from_utf8_lossy(&out.stdout);
        assert!(out.contains(&part), "{out}");
    }
}

//! Programs as they come, with the library at both ends. Those that are not installed are named.
//!
//! `web` has servers of HTTP and programs that stand before them, `sessions` SSH and FTP, `hosts`
//! programs of two hosts, `suites` the tests that other projects have for their own programs.

mod hosts;
mod sessions;
mod suites;
mod web;

use crate::harness::{library, Served};
use crate::sys;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use weft_conformance::skip;

/// Longest wait for a server; reached only by a fault.
const LIMIT: Duration = Duration::from_secs(100);

/// True if a program is installed.
fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|out| out.status.success())
}

/// Skips the test, with the name of the program that is missing.
fn lacks(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !has(program));
    if let Some(missing) = missing {
        skip(&format!("{missing} is not installed"));
    }
    missing.is_some()
}

/// A program with the library.
fn with(agent: &Served, program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env("LD_PRELOAD", library()).env("WEFT_AGENT", &agent.name);
    command.env("WEFT_SOCKETS_AFTER", "2");
    command.stdin(Stdio::null());
    command
}

/// A server, which is killed at the end with its children.
struct Server(Child);

impl Server {
    fn start(command: &mut Command) -> Server {
        Server(command.process_group(0).spawn().unwrap())
    }

    /// Sends a signal to it, not to its children.
    fn signal(&self, signal: i32) {
        sys::signal_process(self.0.id() as i32, signal);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        sys::kill(-(self.0.id() as i32));
        let _ = self.0.wait();
    }
}

/// A port that nobody has now.
fn port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

/// Starts a server, and waits until it listens.
fn serve(agent: &Served, port: &str, program: &str, args: &[&str]) -> Server {
    serve_at(agent, ("127.0.0.1", port), program, args)
}

/// Starts a server at an address, and waits until it listens.
fn serve_at(agent: &Served, to: (&str, &str), program: &str, args: &[&str]) -> Server {
    let (address, port) = to;
    let mut command = with(agent, program, args);
    let mut server = Server::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
    let end = Instant::now() + LIMIT;
    while TcpStream::connect(format!("{address}:{port}")).is_err() {
        assert!(Instant::now() < end, "{program} does not listen");
        assert!(server.0.try_wait().unwrap().is_none(), "{program} has ended");
        std::thread::yield_now();
    }
    server
}

fn good(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// An empty folder.
fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("sockets-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Bytes of a file.
fn some_bytes(len: u32) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

#[test]
fn redis__gets_and_sets_with_one_client_and_with_many() {
    if lacks(&["redis-server", "redis-benchmark"]) {
        return;
    }
    let (agent, port) = (Served::start(), port());
    let folder = scratch("redis");
    let dir = folder.to_str().unwrap();
    let args = ["--port", &port, "--save", "", "--dir", dir, "--bind", "127.0.0.1"];
    let server = serve(&agent, &port, "redis-server", &args);
    for clients in ["1", "50"] {
        let args = [
            "-p",
            &port,
            "-t",
            "set,get,lrange_100",
            "-n",
            "2000",
            "-c",
            clients,
            "-d",
            "900",
            "-q",
        ];
        let said = good(&with(&agent, "redis-benchmark", &args).output().unwrap());
        assert!(said.contains("GET") && !said.contains("rror"), "{said}");
    }
    assert!(agent.counter("sockets_paired") > 10);
    // A background save: a child that has all connections, and uses none.
    let cli = |words: &[&str]| {
        let args = [&["-p", &port][..], words].concat();
        good(&with(&agent, "redis-cli", &args).output().unwrap())
    };
    if has("redis-cli") {
        assert_eq!(cli(&["set", "key", "value"]).trim(), "OK");
        assert!(cli(&["bgsave"]).contains("started"));
        assert_eq!(cli(&["get", "key"]).trim(), "value");
    }
    drop(server);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn iperf3__streams_one_way_and_the_other() {
    if lacks(&["iperf3"]) {
        return;
    }
    let (agent, port) = (Served::start(), port());
    let _server = serve(&agent, &port, "iperf3", &["-s", "-p", &port]);
    for more in [&["-P", "1"][..], &["-R"], &["-P", "3"]] {
        let args = [&["-c", "127.0.0.1", "-p", &port, "-n", "60M"][..], more].concat();
        let end = Instant::now() + LIMIT;
        // The server answers "busy" while it ends with the former client.
        while !with(&agent, "iperf3", &args).output().unwrap().status.success() {
            assert!(Instant::now() < end, "iperf3 fails");
        }
    }
    assert!(agent.counter("sockets_paired") > 0);
}

#[test]
fn http__files_come_whole() {
    if lacks(&["python3", "curl"]) {
        return;
    }
    let (agent, port, folder) = (Served::start(), port(), scratch("http"));
    let file = some_bytes(3_000_000);
    std::fs::write(folder.join("file"), &file).unwrap();
    let dir = folder.to_str().unwrap();
    let args = ["-m", "http.server", &port, "--bind", "127.0.0.1", "-d", dir];
    let _server = serve(&agent, &port, "python3", &args);
    let address = format!("http://127.0.0.1:{port}/file");
    for _ in 0..3 {
        let args = ["-sS", "--max-time", "100", &address, &address];
        let got = with(&agent, "curl", &args).output().unwrap();
        assert!(got.status.success());
        assert!(got.stdout == [&file[..], &file].concat(), "{} bytes", got.stdout.len());
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn socat__forks_a_child_for_each_connection() {
    if lacks(&["socat"]) {
        return;
    }
    let (agent, port) = (Served::start(), port());
    let listen = format!("TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr");
    let _server = serve(&agent, &port, "socat", &[&listen, "EXEC:cat"]);
    let bytes: Vec<u8> = (0..2_000_000u32).map(|i| (i ^ i >> 7) as u8).collect();
    let to = format!("TCP:127.0.0.1:{port}");
    let mut client = with(&agent, "socat", &["-t", "60", "-", &to]);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut into, mut out) = (client.stdin.take().unwrap(), client.stdout.take().unwrap());
    let sent = bytes.clone();
    let sender = std::thread::spawn(move || into.write_all(&sent).unwrap());
    let mut got = Vec::new();
    out.read_to_end(&mut got).unwrap();
    sender.join().unwrap();
    assert!(client.wait().unwrap().success() && got == bytes, "{} bytes", got.len());
}

#[test]
fn node__keeps_connections_of_http_alive() {
    if lacks(&["node"]) {
        return;
    }
    const SERVER: &str = "require('http').createServer((q, s) => {
        let n = 0;
        q.on('data', d => n += d.length).on('end', () => s.end('x'.repeat(+q.url.slice(1)) + n));
    }).listen(+process.argv[1], '127.0.0.1')";
    const CLIENT: &str = "const http = require('http');
        const agent = new http.Agent({ keepAlive: true, maxSockets: 5 });
        let left = 400;
        const ask = i => new Promise((good, bad) => {
            const to = { port: process.argv[1], path: '/' + i * 97, method: 'POST', agent };
            const q = http.request(to, s => {
                let text = '';
                s.on('data', d => text += d).on('end', () => {
                    text === 'x'.repeat(i * 97) + i * 31 ? good() : bad(Error('wrong ' + i));
                });
            });
            q.on('error', bad).end('y'.repeat(i * 31));
        });
        const all = async () => { while (left > 0) await ask(left--); };
        Promise.all([1, 2, 3, 4, 5].map(all)).then(() => process.exit(0));";
    let (agent, port) = (Served::start(), port());
    let _server = serve(&agent, &port, "node", &["-e", SERVER, &port]);
    good(&with(&agent, "node", &["-e", CLIENT, &port]).output().unwrap());
    assert!(agent.counter("sockets_paired") >= 5);
}

#[test]
fn java__channels_of_a_selector() {
    if lacks(&["java", "javac"]) {
        return;
    }
    let (agent, folder) = (Served::start(), scratch("java"));
    let file = folder.join("Echo.java");
    std::fs::write(&file, include_str!("Echo.java")).unwrap();
    let mut compile = Command::new("javac");
    good(&compile.arg("-d").arg(&folder).arg(&file).output().unwrap());
    let said =
        good(&with(&agent, "java", &["-cp", folder.to_str().unwrap(), "Echo"]).output().unwrap());
    assert!(said.contains("done"), "{said}");
    assert!(agent.counter("sockets_paired") > 0);
    std::fs::remove_dir_all(folder).unwrap();
}

/// The programs of PostgreSQL's server, where they are.
fn postgres() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let folders = versions.flatten().map(|version| version.path().join("bin"));
    folders.filter(|folder| folder.join("initdb").is_file()).max()
}

/// PostgreSQL, whose server and clients are the user postgres's.
struct Postgres {
    agent: Served,
    server: Option<Server>,
    folder: PathBuf,
    port: String,
    programs: PathBuf,
}

impl Postgres {
    /// Starts the server. `None`: the test is skipped.
    fn start() -> Option<Postgres> {
        let Some(programs) = postgres().filter(|_| has("pgbench") && has("setpriv")) else {
            skip("PostgreSQL, or setpriv, is not installed");
            return None;
        };
        // A folder and a library that another user sees: the server does not run as root.
        let folder = std::env::temp_dir().join(format!("weft-postgres-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::copy(library(), folder.join("libweft_sockets.so")).unwrap();
        let chown = Command::new("chown").arg("postgres").arg(&folder).output();
        if !chown.is_ok_and(|out| out.status.success()) {
            let _ = std::fs::remove_dir_all(&folder);
            skip("a folder cannot be given to the user postgres");
            return None;
        }
        let (agent, port) = (Served::start(), port());
        let mut one = Postgres { agent, server: None, folder, port, programs };
        let data = one.folder.join("data").display().to_string();
        good(&one.as_user("initdb", &["-D", &data, "-A", "trust", "-N"]).output().unwrap());
        let args = ["-D", &data, "-p", &one.port, "-c", "listen_addresses=127.0.0.1"];
        let mut command = one.with("postgres", &args);
        command.args(["-c", "unix_socket_directories=", "-c", "fsync=off"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        one.server = Some(Server::start(&mut command));
        let end = Instant::now() + LIMIT;
        while !one.bench(&["-i", "-q"]).status.success() {
            assert!(Instant::now() < end, "PostgreSQL does not answer");
        }
        Some(one)
    }

    /// A program as the user postgres: one of the server's, or another by its whole path.
    fn as_user(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
        command.arg(self.programs.join(program)).args(args).stdin(Stdio::null());
        command.env("WEFT_AGENT", &self.agent.name).env("WEFT_SOCKETS_AFTER", "2");
        command.current_dir(&self.folder);
        command
    }

    /// A program as the user postgres, with the library.
    fn with(&self, program: &str, args: &[&str]) -> Command {
        let mut command = self.as_user(program, args);
        command.env("LD_PRELOAD", self.folder.join("libweft_sockets.so"));
        command
    }

    fn bench(&self, args: &[&str]) -> Output {
        let all = [&["-h", "127.0.0.1", "-p", &self.port], args, &["postgres"]].concat();
        self.with("pgbench", &all).output().unwrap()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.server = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn postgres__forks_a_child_for_each_connection() {
    let Some(postgres) = Postgres::start() else { return };
    let said = good(&postgres.bench(&["-S", "-c", "8", "-j", "2", "-t", "400"]));
    assert!(said.contains("3200/3200"), "{said}");
    good(&postgres.bench(&["-S", "-c", "2", "-t", "20", "-C"]));
    assert!(postgres.agent.counter("sockets_paired") >= 8);
}

#[test]
fn memcached__answers_in_both_of_its_protocols() {
    if lacks(&["memcached", "memccapable", "memcaslap"]) {
        return;
    }
    let (agent, port) = (Served::start(), port());
    let args = ["-u", "root", "-l", "127.0.0.1", "-p", &port, "-U", "0", "-t", "2"];
    let _server = serve(&agent, &port, "memcached", &args);
    let args = ["-h", "127.0.0.1", "-p", &port];
    let said = good(&with(&agent, "memccapable", &args).output().unwrap());
    assert!(said.contains("All tests passed"), "{said}");
    let to = format!("127.0.0.1:{port}");
    for more in [&["-d", "1"][..], &["-d", "10"], &["-B"]] {
        let args = ["-s", &to, "-T", "2", "-c", "8", "-x", "8000", "-v", "1.0"];
        let said = good(&with(&agent, "memcaslap", &[&args[..], more].concat()).output().unwrap());
        let zero = |what: &str| said.lines().any(|line| line.trim() == format!("{what}: 0"));
        assert!(zero("verify_failed") && zero("verify_misses") && zero("get_misses"), "{said}");
    }
    assert!(agent.counter("sockets_paired") > 0);
}

#[test]
fn grpc__calls_of_python_come_back_by_memory() {
    // The environment that `cargo xtask test` makes, or the system's Python.
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/grpc/bin/python");
    let python = if Path::new(own).is_file() { own } else { "python3" };
    let imports = Command::new(python).args(["-c", "import grpc"]).output();
    if !imports.is_ok_and(|output| output.status.success()) {
        return skip("Python has no package grpc: `cargo xtask test` installs it (grpcio)");
    }
    let (agent, port) = (Served::start(), port());
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sockets/programs/calls.py");
    let _server = serve(&agent, &port, python, &[program, "serve", &port]);
    let said = good(&with(&agent, python, &[program, "call", &port, "300"]).output().unwrap());
    assert_eq!(said.trim(), "all came back");
    assert!(agent.counter("sockets_paired") > 0);
}

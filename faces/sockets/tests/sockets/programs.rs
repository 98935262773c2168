//! Programs as they come, with the library at both ends. Those that are not installed are named.

use crate::harness::{library, Served};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
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
    command.env("WEFT_SOCKETS_AFTER", "2").stdin(Stdio::null());
    command
}

/// A server, which is killed at the end.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
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
    let mut command = with(agent, program, args);
    let mut server = Server(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let end = Instant::now() + LIMIT;
    while TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
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
    let file: Vec<u8> = (0..3_000_000u32).map(|i| (i ^ i >> 8 ^ i >> 16) as u8).collect();
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

#[test]
fn postgres__forks_a_child_for_each_connection() {
    let Some(programs) = postgres().filter(|_| has("pgbench") && has("setpriv")) else {
        return skip("PostgreSQL, or setpriv, is not installed");
    };
    let (agent, port) = (Served::start(), port());
    // A folder and a library that another user sees: the server does not run as root.
    let folder = std::env::temp_dir().join(format!("weft-postgres-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let own = folder.join("libweft_sockets.so");
    std::fs::copy(library(), &own).unwrap();
    let data = folder.join("data").to_str().unwrap().to_string();
    let as_user = |program: &str, args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", program]);
        command.args(args).env("WEFT_AGENT", &agent.name).env("WEFT_SOCKETS_AFTER", "2");
        command.current_dir(&folder).stdin(Stdio::null());
        command
    };
    let chown = Command::new("chown").arg("postgres").arg(&folder).output();
    if !chown.is_ok_and(|out| out.status.success()) {
        let _ = std::fs::remove_dir_all(&folder);
        return skip("a folder cannot be given to the user postgres");
    }
    let bin = |name: &str| programs.join(name).to_str().unwrap().to_string();
    good(&as_user(&bin("initdb"), &["-D", &data, "-A", "trust", "-N"]).output().unwrap());
    let args = ["-D", &data, "-p", &port, "-c", "listen_addresses=127.0.0.1"];
    let mut command = as_user(&bin("postgres"), &args);
    command.args(["-c", "unix_socket_directories=", "-c", "fsync=off"]).env("LD_PRELOAD", &own);
    let server = Server(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let bench = |args: &[&str]| {
        let all = [&["-h", "127.0.0.1", "-p", &port], args, &["postgres"]].concat();
        as_user("pgbench", &all).env("LD_PRELOAD", &own).output().unwrap()
    };
    let end = Instant::now() + LIMIT;
    while !bench(&["-i", "-q"]).status.success() {
        assert!(Instant::now() < end, "PostgreSQL does not answer");
    }
    let said = good(&bench(&["-S", "-c", "8", "-j", "2", "-t", "400"]));
    assert!(said.contains("3200/3200"), "{said}");
    good(&bench(&["-S", "-c", "2", "-t", "20", "-C"]));
    assert!(agent.counter("sockets_paired") >= 8);
    drop(server);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Runs tests of CPython's own, if they are installed.
fn cpython(names: &[&str], only: &[&str]) {
    let script = format!("import test.{}", names.first().unwrap());
    let installed = Command::new("python3").args(["-c", &script]).output();
    if !installed.is_ok_and(|out| out.status.success()) {
        return skip("CPython's tests are not installed");
    }
    let agent = Served::start();
    let names: Vec<String> = names.iter().map(|name| format!("test.{name}")).collect();
    let mut args = vec!["-m", "unittest"];
    only.iter().for_each(|word| args.extend(["-k", word]));
    args.extend(names.iter().map(String::as_str));
    let mut command = with(&agent, "python3", &args);
    good(&command.current_dir(env!("CARGO_TARGET_TMPDIR")).output().unwrap());
    assert!(agent.counter("sockets_paired") > 0);
}

#[test]
fn cpython__servers_and_clients_pass_their_tests() {
    cpython(&["test_socketserver", "test_httplib", "test_asynchat", "test_smtplib"], &[]);
}

/// `cargo test -p weft-preload --test sockets cpython -- --ignored`: two minutes.
#[test]
#[ignore = "takes two minutes"]
fn cpython__sockets_selectors_and_tls_pass_their_tests() {
    // Some tests of other kinds of sockets hang without the library too, on some machines.
    cpython(&["test_socket"], &["TCP", "NetworkConnection", "FileObject", "Sendfile"]);
    cpython(&["test_ssl"], &[]);
    cpython(&["test_ftplib"], &[]);
    let all =
        ["streams", "sock_lowlevel", "buffered_proto", "sendfile", "server", "sslproto", "ssl"];
    let all: Vec<String> = all.iter().map(|name| format!("test_asyncio.test_{name}")).collect();
    cpython(&all.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
}

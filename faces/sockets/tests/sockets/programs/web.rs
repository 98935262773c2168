//! Servers of HTTP, and programs that stand before them.

use super::{good, lacks, port, scratch, serve, some_bytes, with, Server, LIMIT};
use crate::harness::Served;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Bytes of the file `large`.
const LARGE: u32 = 1_000_000;

/// Time after which a change that has no effect is made again.
const AGAIN: Duration = Duration::from_secs(5);

/// nginx with two workers, which serves files of a folder.
struct Nginx {
    agent: Served,
    server: Option<Server>,
    folder: PathBuf,
    port: String,
    tls: String,
}

impl Nginx {
    fn start(name: &str) -> Nginx {
        let (folder, agent) = (scratch(name), Served::start());
        let mut nginx = Nginx { agent, server: None, folder, port: port(), tls: port() };
        for word in ["one", "two"] {
            let files = nginx.folder.join(word);
            std::fs::create_dir_all(&files).unwrap();
            std::fs::write(files.join("word"), format!("{word} {}", "x".repeat(40_000))).unwrap();
            std::fs::write(files.join("large"), some_bytes(LARGE)).unwrap();
        }
        let file = |name: &str| nginx.folder.join(name).display().to_string();
        let (key, certificate) = (file("key"), file("certificate"));
        let mut make = Command::new("openssl");
        make.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        make.args(["-nodes", "-days", "2", "-subj", "/CN=localhost"]);
        good(&make.args(["-keyout", &key, "-out", &certificate]).output().unwrap());
        nginx.set_up("one");
        let (conf, log) = (nginx.path("conf"), nginx.path("log"));
        let args = ["-c", &conf, "-e", &log];
        nginx.server = Some(serve(&nginx.agent, &nginx.port, "nginx", &args));
        nginx
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Writes the configuration with the folder of the files.
    fn set_up(&self, files: &str) {
        let (here, port, tls) = (self.path(""), &self.port, &self.tls);
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {here}{name};\n"))
            .concat();
        let text = format!(
            "daemon off; user root; worker_processes 2; pid {here}pid;
             error_log {here}log; events {{ worker_connections 256; }}
             http {{
                 access_log off; keepalive_requests 100000; {temporary}
                 server {{
                     listen 127.0.0.1:{port}; listen 127.0.0.1:{tls} ssl http2;
                     ssl_certificate {here}certificate; ssl_certificate_key {here}key;
                     location / {{ root {here}{files}; sendfile on; }}
                     location /copied/ {{ alias {here}{files}/; sendfile off; }}
                 }}
             }}"
        );
        std::fs::write(self.folder.join("conf"), text).unwrap();
    }

    /// Has curl fetch files over one connection, by this scheme and port.
    fn fetch(&self, scheme: &str, port: &str, more: &[&str]) {
        let paths = ["/large", "/copied/large", "/word", "/large", "/copied/large"];
        let names = paths.map(|path| format!("{scheme}://127.0.0.1:{port}{path}"));
        let mut args = [&["-sSk", "--max-time", "100"], more].concat();
        args.extend(names.iter().map(String::as_str));
        let got = with(&self.agent, "curl", &args).output().unwrap();
        assert!(got.status.success(), "{}", String::from_utf8_lossy(&got.stderr));
        let (large, word) = (some_bytes(LARGE), format!("one {}", "x".repeat(40_000)));
        let want = [&large[..], &large, word.as_bytes(), &large, &large].concat();
        assert!(got.stdout == want, "{scheme} {more:?}: {} bytes", got.stdout.len());
    }

    /// Fetches files until so many connections more are joined: on a busy machine some are over
    /// before.
    fn fetch_joined(&self, to: (&str, &str), more: &[&str], n: u64) {
        let paired = || self.agent.counter("sockets_paired");
        let (before, end) = (paired(), Instant::now() + LIMIT);
        while paired() < before + n {
            assert!(Instant::now() < end, "{to:?} {more:?}: connections stay by TCP");
            self.fetch(to.0, to.1, more);
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.server = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Makes a change while four connections ask a server, until they have an answer with this word.
fn ask_during(agent: &Served, port: &str, word: &str, paths: &[&str], change: impl FnOnce()) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sockets/programs/client.py");
    let args = [&[script, port, word], paths].concat();
    let mut command = with(agent, "python3", &args);
    let mut client = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let _ = BufReader::new(client.stdout.take().unwrap()).read_line(&mut line);
    change();
    good(&client.wait_with_output().unwrap());
}

#[test]
fn nginx__keeps_connections_and_reloads_under_load() {
    if lacks(&["nginx", "openssl", "curl", "python3"]) {
        return;
    }
    let nginx = Nginx::start("nginx");
    for word in ["two", "one"] {
        ask_during(&nginx.agent, &nginx.port, word, &["/word", "/copied/word"], || {
            nginx.set_up(word);
            nginx.server.as_ref().unwrap().signal(libc::SIGHUP);
        });
    }
    assert!(nginx.agent.counter("sockets_paired") > 0);
    nginx.fetch("http", &nginx.port, &[]);
}

#[test]
fn nginx__files_come_whole_over_tls() {
    if lacks(&["nginx", "openssl", "curl"]) {
        return;
    }
    let nginx = Nginx::start("nginx-tls");
    for version in ["--http1.1", "--http2"] {
        nginx.fetch_joined(("https", &nginx.tls), &[version], 1);
    }
}

#[test]
fn haproxy__stands_between_and_hands_its_listeners_to_its_successor() {
    if lacks(&["nginx", "openssl", "curl", "python3", "haproxy"]) {
        return;
    }
    let nginx = Nginx::start("haproxy");
    let (http, tcp, conf) = (port(), port(), nginx.path("haproxy"));
    let text = format!(
        "global\n nbthread 2\n maxconn 200\n stats socket {} expose-fd listeners\n\
         defaults\n mode http\n timeout connect 60s\n timeout client 60s\n timeout server 60s\n\
         listen http\n bind 127.0.0.1:{http}\n server nginx 127.0.0.1:{}\n\
         listen tcp\n mode tcp\n bind 127.0.0.1:{tcp}\n option splice-request\n \
         option splice-response\n server nginx 127.0.0.1:{}\n",
        nginx.path("socket"),
        nginx.port,
        nginx.port
    );
    std::fs::write(&conf, text).unwrap();
    let between = serve(&nginx.agent, &http, "haproxy", &["-W", "-f", &conf]);
    for port in [&http, &tcp] {
        nginx.fetch("http", port, &[]);
    }
    // The new process has the listeners by SCM_RIGHTS; the old one ends what it has begun.
    for (word, port) in [("two", &http), ("one", &tcp)] {
        ask_during(&nginx.agent, port, word, &["/word", "/copied/word"], || {
            between.signal(libc::SIGUSR2);
            nginx.set_up(word);
            nginx.server.as_ref().unwrap().signal(libc::SIGHUP);
        });
    }
    assert!(nginx.agent.counter("sockets_paired") > 0);
}

#[test]
fn stunnel__carries_a_stream_in_tls() {
    if lacks(&["nginx", "openssl", "curl", "stunnel"]) {
        return;
    }
    let nginx = Nginx::start("stunnel");
    let (near, far) = (port(), port());
    let file = |name: &str, more: &str| {
        let text = format!("foreground = yes\npid =\n[nginx]\n{more}\n");
        std::fs::write(nginx.folder.join(name), text).unwrap();
        nginx.path(name)
    };
    let (key, certificate) = (nginx.path("key"), nginx.path("certificate"));
    let server = file(
        "stunnel-server",
        &format!(
            "accept = 127.0.0.1:{far}\nconnect = 127.0.0.1:{}\ncert = {certificate}\nkey = {key}",
            nginx.port
        ),
    );
    let client = file(
        "stunnel-client",
        &format!("client = yes\naccept = 127.0.0.1:{near}\nconnect = 127.0.0.1:{far}"),
    );
    let _servers = [(&far, &server), (&near, &client)]
        .map(|(port, conf)| serve(&nginx.agent, port, "stunnel", &[conf]));
    // From curl to the first one, between the two, and to nginx.
    nginx.fetch_joined(("http", &near), &[], 3);
}

/// Writes the application with a word.
fn write_app(folder: &Path, word: &str) {
    let text = include_str!("app.py").replace("\"one\"", &format!("\"{word}\""));
    // Written beside it first: a server that reloads would read half of it.
    std::fs::write(folder.join("new"), text).unwrap();
    std::fs::rename(folder.join("new"), folder.join("app.py")).unwrap();
}

#[test]
fn gunicorn__reloads_under_load() {
    if lacks(&["gunicorn", "python3"]) {
        return;
    }
    let (agent, folder) = (Served::start(), scratch("gunicorn"));
    let dir = folder.to_str().unwrap();
    // Workers that keep connections, and workers that do not.
    for (workers, word) in [(&["-k", "gthread", "--threads", "4"][..], "two"), (&[], "three")] {
        let port = port();
        write_app(&folder, "one");
        let address = format!("127.0.0.1:{port}");
        let args = ["-w", "2", "--chdir", dir, "--worker-tmp-dir", dir, "-b", &address];
        let args = [&args[..], workers, &["app:wsgi"]].concat();
        let server = serve(&agent, &port, "gunicorn", &args);
        ask_during(&agent, &port, word, &["/?SIZE"], || {
            write_app(&folder, word);
            server.signal(libc::SIGHUP);
        });
    }
    assert!(agent.counter("sockets_paired") > 0);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn uvicorn__reloads_when_a_file_changes() {
    if lacks(&["uvicorn", "python3"]) {
        return;
    }
    let (agent, port, folder) = (Served::start(), port(), scratch("uvicorn"));
    write_app(&folder, "one");
    let dir = folder.to_str().unwrap();
    let args = ["--app-dir", dir, "--reload", "--reload-dir", dir, "--port", &port, "app:asgi"];
    let server = serve(&agent, &port, "uvicorn", &args);
    let (asks, ended) = mpsc::channel::<()>();
    let change = || write_app(&folder, "two");
    std::thread::scope(|scope| {
        // Its first look for changes may come after the first change, which then stays unseen.
        scope.spawn(move || {
            while ended.recv_timeout(AGAIN) == Err(RecvTimeoutError::Timeout) {
                change();
            }
        });
        ask_during(&agent, &port, "two", &["/?SIZE"], change);
        drop(asks);
    });
    assert!(agent.counter("sockets_paired") > 0);
    drop(server);
    std::fs::remove_dir_all(folder).unwrap();
}

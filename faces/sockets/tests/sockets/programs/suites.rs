//! Tests that other projects have for their own programs.
//!
//! Tests with a source need its folder, unpacked (Debian: `apt-get source redis`), in a variable.

use super::{good, has, lacks, scratch, with, Postgres};
use crate::harness::Served;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weft_conformance::skip;

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

#[test]
fn stress_ng__its_stressors_of_sockets_pass() {
    if lacks(&["stress-ng"]) {
        return;
    }
    let (agent, folder) = (Served::start(), scratch("stress-ng"));
    let stressors: [&[&str]; 6] = [
        &["--sock", "2", "--sock-ops", "60", "--sock-opts", "random"],
        &["--sock", "1", "--sock-ops", "40", "--sock-domain", "ipv6", "--sock-zerocopy"],
        &["--sockmany", "1", "--sockmany-ops", "300"],
        &["--sockfd", "1", "--sockfd-ops", "500"],
        &["--sockabuse", "1", "--sockabuse-ops", "20"],
        &["--epoll", "1", "--epoll-ops", "500"],
    ];
    for stressor in stressors {
        let more = ["--verify", "--timeout", "60", "--temp-path", folder.to_str().unwrap()];
        let mut command = with(&agent, "stress-ng", &[stressor, &more].concat());
        good(&command.current_dir(&folder).output().unwrap());
    }
    assert!(agent.counter("sockets_paired") > 0);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Returns the folder of a source. `None`: the test is skipped.
fn source(variable: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(variable).map(PathBuf::from).filter(|folder| folder.is_dir());
    if folder.is_none() {
        skip(&format!("{variable} does not name the folder of a source"));
    }
    folder
}

/// `WEFT_TEST_REDIS=redis-7.0.15 cargo test -p weft-preload --test sockets redis__passes --
/// --ignored`: eight minutes. Debian: redis-server, redis-tools, tcl.
#[test]
#[ignore = "takes eight minutes, and redis' source in WEFT_TEST_REDIS"]
fn redis__passes_its_own_tests() {
    let Some(folder) = source("WEFT_TEST_REDIS") else { return };
    if lacks(&["redis-server", "tclsh"]) {
        return;
    }
    for name in ["server", "cli", "benchmark", "check-aof", "check-rdb", "sentinel"] {
        let (program, place) = (format!("redis-{name}"), folder.join("src"));
        std::fs::create_dir_all(&place).unwrap();
        if !place.join(&program).exists() {
            let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
            let found = good(&found.unwrap());
            std::os::unix::fs::symlink(found.trim(), place.join(&program)).unwrap();
        }
    }
    let agent = Served::start();
    // Containers forbid what the first unit sets. The second has a test, which Debian added to
    // 7.0.15, that sets an option to a value that 7.0.15 does not have. The last two expect texts
    // of errors that Debian's build does not give: they fail without the library too.
    let but = ["unit/oom-score-adj", "integration/replication"];
    let texts = ["unit/dump", "integration/corrupt-dump"];
    let but = [but, texts].concat().into_iter().map(|unit| ["--skipunit", unit]);
    let but: Vec<_> = but.collect();
    let args = [&["--clients", "4"], but.as_flattened()].concat();
    let said = with(&agent, "./runtest", &args).current_dir(&folder).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(said.contains("All tests passed without errors"), "{said}");
    assert!(agent.counter("sockets_paired") > 100);
}

/// Lines that name failures, in order.
fn failures(output: &Output, marks: &[&str]) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_failure = |line: &&str| marks.iter().any(|mark| line.contains(mark));
    let words = |line: &str| line.split_whitespace().take(4).collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> = text.lines().filter(is_failure).map(words).collect();
    lines.sort();
    lines
}

/// `WEFT_TEST_MEMCACHED=memcached-1.6.18 cargo test -p weft-preload --test sockets
/// memcached__passes -- --ignored`: four minutes. Debian: memcached, perl, gcc.
#[test]
#[ignore = "takes four minutes, and memcached's source in WEFT_TEST_MEMCACHED"]
fn memcached__passes_its_own_tests_as_without_the_library() {
    let Some(from) = source("WEFT_TEST_MEMCACHED") else { return };
    if lacks(&["memcached", "prove", "cc"]) {
        return;
    }
    // The tests want a build of their own, whose options Debian's lacks, and Unix sockets.
    let (agent, folder) = (Served::start(), scratch("memcached"));
    let copy =
        Command::new("cp").args(["-r", "t", "scripts"]).arg(&folder).current_dir(&from).output();
    good(&copy.unwrap());
    let mut build = Command::new("cc");
    good(
        &build
            .arg("-o")
            .arg(folder.join("timedrun"))
            .arg(from.join("timedrun.c"))
            .output()
            .unwrap(),
    );
    let program = Command::new("sh").args(["-c", "command -v memcached"]).output();
    std::os::unix::fs::symlink(good(&program.unwrap()).trim(), folder.join("memcached-debug"))
        .unwrap();
    let file = folder.join("t/lib/MemcachedTest.pm");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace("$args .= \" -o relaxed_privileges\";", "");
    let text = text.replace("!supports_unix_socket()", "1");
    std::fs::write(&file, text).unwrap();
    // The test wants each connection to have a higher descriptor than those before. The library
    // opens descriptors for a moment.
    std::fs::remove_file(folder.join("t/watcher_connid.t")).unwrap();
    let run = |with_library: bool| {
        let mut command = with(&agent, "sh", &["-c", "prove -j 4 t/*.t"]);
        if !with_library {
            command.env_remove("LD_PRELOAD");
        }
        failures(&command.current_dir(&folder).output().unwrap(), &["Failed tests:", "Wstat"])
    };
    let (ours, kernel) = (run(true), run(false));
    assert_eq!(ours, kernel);
    assert!(kernel.len() < 10, "{kernel:?}");
    assert!(agent.counter("sockets_paired") > 100);
    std::fs::remove_dir_all(folder).unwrap();
}

/// `WEFT_TEST_POSTGRES=postgresql-15-15.18 cargo test -p weft-preload --test sockets
/// postgres__passes -- --ignored`: two minutes. Debian: postgresql-server-dev-15, gcc.
#[test]
#[ignore = "takes two minutes, and PostgreSQL's source in WEFT_TEST_POSTGRES"]
fn postgres__passes_its_own_tests_as_without_the_library() {
    let Some(from) = source("WEFT_TEST_POSTGRES") else { return };
    let Some(postgres) = Postgres::start() else { return };
    let version = postgres.programs.parent().unwrap();
    let runner = version.join("lib/pgxs/src/test/regress/pg_regress");
    let headers = Path::new("/usr/include/postgresql").join(version.file_name().unwrap());
    if !has("cc") || !runner.is_file() || !headers.join("server/postgres.h").is_file() {
        return skip("cc, or PostgreSQL's server for developers, is not installed");
    }
    let libraries = postgres.folder.join("lib");
    std::fs::create_dir_all(&libraries).unwrap();
    let tests = from.join("src/test/regress");
    let mut build = Command::new("cc");
    build.args(["-w", "-shared", "-fPIC", "-I"]).arg(headers.join("server"));
    build.arg("-o").arg(libraries.join("regress.so")).arg(tests.join("regress.c"));
    good(&build.output().unwrap());
    for name in ["autoinc.so", "refint.so"] {
        std::fs::copy(version.join("lib").join(name), libraries.join(name)).unwrap();
    }
    let copy = Command::new("cp").arg("-r").arg(&tests).arg(postgres.folder.join("tests")).output();
    good(&copy.unwrap());
    let owner = Command::new("chown").args(["-R", "postgres"]).arg(&postgres.folder).output();
    good(&owner.unwrap());
    let path = |of: &Path| of.display().to_string();
    let (tests, libraries) = (path(&postgres.folder.join("tests")), path(&libraries));
    let run = |with_library: bool| {
        let args = [
            "--host=127.0.0.1",
            &format!("--port={}", postgres.port),
            "--user=postgres",
            &format!("--inputdir={tests}"),
            &format!("--outputdir={tests}"),
            &format!("--dlpath={libraries}"),
            &format!("--bindir={}", path(&postgres.programs)),
            &format!("--schedule={tests}/parallel_schedule"),
            "--max-connections=4",
        ];
        let mut command = postgres.with(&path(&runner), &args);
        if !with_library {
            command.env_remove("LD_PRELOAD");
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.matches("... ok").count() > 100, "{said}");
        let failed = failures(&output, &["FAILED", "failed (ignored)"]);
        // A line ends with the time that the test took.
        let is_time = |c: char| c.is_ascii_digit() || c == ' ';
        failed.iter().map(|line| line.trim_end_matches(is_time).to_owned()).collect::<Vec<_>>()
    };
    let before = postgres.agent.counter("sockets_paired");
    let (ours, kernel) = (run(true), run(false));
    assert_eq!(ours, kernel);
    // Some differ where the source is of another version than the server.
    assert!(kernel.len() < 20, "{kernel:?}");
    assert!(postgres.agent.counter("sockets_paired") > before + 50);
}

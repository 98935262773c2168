//! Programs in C over a face's library, compiled with the system's compiler as a stranger would.

use crate::hosts::{self, Host};
use crate::skip;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A face in C, as the tests of its crate have it.
#[derive(Clone, Copy, Debug)]
pub struct Face {
    /// A short name, with which its files in `scratch` begin.
    pub name: &'static str,
    /// The crate's folder, with `include`, `examples` and `tests`.
    pub sources: &'static str,
    /// Cargo's folder for files of tests.
    pub scratch: &'static str,
    /// The library as cargo builds it.
    pub built: &'static str,
    /// The names that an installation gives the library.
    pub names: &'static [&'static str],
    /// The option with which programs link it.
    pub linked: &'static str,
}

/// The way in which a program is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The program is C11.
    C,
    /// The program is C++17.
    Cpp,
    /// The program is C11, with the address sanitizer.
    Asan,
}

impl Face {
    /// Returns the library that cargo built beside the test.
    ///
    /// # Panics
    /// There is none.
    pub fn library(&self) -> PathBuf {
        let beside = std::env::current_exe().unwrap();
        let library = beside.parent().unwrap().join(self.built);
        assert!(library.is_file(), "no library at {}", library.display());
        library
    }

    /// Makes a folder in which the library has the names that an installation gives it.
    ///
    /// # Panics
    /// Panics if [`library`](Self::library) would panic.
    pub fn installed(&self) -> PathBuf {
        let folder = Path::new(self.scratch).join(format!("{}-lib", self.name));
        let library = self.library();
        std::fs::create_dir_all(&folder).unwrap();
        for name in self.names {
            let link = folder.join(name);
            let _old = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(&library, &link).unwrap();
        }
        folder
    }

    /// Compiles a program, once, because several tests run it. `None`, with the reason printed, if
    /// this machine cannot.
    ///
    /// # Panics
    /// The program does not compile.
    pub fn compile(&self, name: &'static str, way: Way) -> Option<PathBuf> {
        type Done = BTreeMap<(&'static str, Way), Option<PathBuf>>;
        static DONE: Mutex<Done> = Mutex::new(BTreeMap::new());
        let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = done.get(&(name, way)) {
            return program.clone();
        }
        let (compiler, options): (_, &[&str]) = match way {
            Way::C => ("cc", &["-std=c11"]),
            Way::Cpp => ("c++", &["-std=c++17", "-x", "c++"]),
            Way::Asan => ("cc", &["-std=c11", "-fsanitize=address,undefined"]),
        };
        let folder = self.installed();
        let program = Path::new(self.scratch).join(format!("{}-{name}-{way:?}", self.name));
        let mut cc = Command::new(compiler);
        cc.args(options).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"]);
        let of = |folder| Path::new(self.sources).join(folder).join(name).with_extension("c");
        cc.arg(Some(of("examples")).filter(|it| it.is_file()).unwrap_or_else(|| of("tests")));
        cc.args(
            ["include", "examples"]
                .map(|f| format!("-I{}", Path::new(self.sources).join(f).display())),
        );
        cc.arg("-L").arg(&folder).arg("-o").arg(&program);
        // Before LD_LIBRARY_PATH, in which cargo puts a folder first that may hold an older
        // library.
        cc.arg(format!("-Wl,--disable-new-dtags,-rpath,{}", folder.display()));
        let found = match cc.args([self.linked, "-lpthread"]).output() {
            Ok(out) if out.status.success() => Some(program),
            Ok(out) => {
                let said = String::from_utf8_lossy(&out.stderr);
                let lacks = way == Way::Asan && (said.contains("asan") || said.contains("ubsan"));
                assert!(lacks, "{said}");
                skip("the compiler has no sanitizers");
                None
            }
            Err(why) => {
                skip(&format!("no {compiler}: {why}"));
                None
            }
        };
        done.insert((name, way), found.clone());
        found
    }

    /// Runs a server and a client; returns what they have said. `None` as from `compile`.
    ///
    /// # Panics
    /// One of them fails.
    pub fn both(
        &self,
        name: &'static str,
        way: Way,
        [server, client]: [&[&str]; 2],
        link: &str,
        settings: &[(&str, &str)],
    ) -> Option<String> {
        let program = self.compile(name, way)?;
        let key = key();
        let server = start(&program, server, link, &key, settings);
        let client = start(&program, client, link, &key, settings);
        let ends = Ends::default();
        let [server, client] = std::thread::scope(|scope| {
            let server = scope.spawn(|| ends.wait(0, server));
            let client = ends.wait(1, client);
            [server.join().unwrap(), client]
        });
        let said = format!("server: {}client: {}", text(&server), text(&client));
        let good = server.status.success() && client.status.success();
        assert!(good, "{name}, {link} {settings:?}: {said}");
        Some(said)
    }
}

/// The links of two programs on one host.
pub const LINKS: [&str; 2] = ["shm", "udp"];
/// The setting of a network that loses, doubles and reorders packets.
pub const FAULTS: (&str, &str) = ("WEFT_FAULTS", "loss=1%,dup=1%,reorder=1%,seed=5");
/// Settings with which the end of a peer is noticed soon.
pub const TIMES: [(&str, &str); 2] =
    [("WEFT_PEER_TIMEOUT_MS", "600"), ("WEFT_KEEPALIVE_MS", "100")];

/// The cases that every face has, with programs of the same names.
impl Face {
    /// Runs a program to its end; returns what it has said. `None` as from `compile`.
    ///
    /// # Panics
    /// The program fails.
    pub fn succeeds(
        &self,
        name: &'static str,
        way: Way,
        words: &[&str],
        link: &str,
        settings: &[(&str, &str)],
    ) -> Option<String> {
        let program = self.compile(name, way)?;
        let out = start(&program, words, link, &key(), settings).wait_with_output().unwrap();
        let said = text(&out);
        assert!(out.status.success(), "{name} {way:?} {words:?}, {link} {settings:?}: {said}");
        Some(said)
    }

    /// Checks that two programs find each other.
    ///
    /// # Panics
    /// The programs do not.
    pub fn assert_hello(&self) {
        for link in LINKS {
            let words: [&[&str]; 2] = [&["server"], &["client", "localhost"]];
            let Some(said) = self.both("hello", Way::C, words, link, &[]) else { return };
            assert!(said.contains("server received: client"), "{link}: {said}");
            assert!(said.contains("client received: hello, client"), "{link}: {said}");
        }
    }

    /// Checks that the headers have the layouts of the interface in C and in C++.
    ///
    /// # Panics
    /// One has another.
    pub fn assert_layout(&self) {
        for way in [Way::C, Way::Cpp] {
            let _said = self.succeeds("layout", way, &[], "shm", &[]);
        }
    }

    /// Checks that a server goes on after its client has ended: `words` follow the first word of
    /// both programs.
    ///
    /// # Panics
    /// The server does not go on.
    pub fn assert_outlives(&self, link: &str, words: &[&str]) {
        let Some(program) = self.compile("death", Way::C) else { return };
        let key = key();
        let begin = |side| start(&program, &[&[side], words].concat(), link, &key, &TIMES);
        let (mut client, server) = (begin("client"), begin("server"));
        let server = server.wait_with_output().unwrap();
        // One that was stopped.
        let _ended = client.kill();
        let client = client.wait_with_output().unwrap();
        assert_goes_on(&[server, client], &format!("{link} {words:?}"));
    }

    /// Returns the names that the library exports, in order. `None`, with the reason printed, if
    /// this machine has no `nm`.
    pub fn exported(&self) -> Option<Vec<String>> {
        let mut nm = Command::new("nm");
        let Ok(out) = nm.args(["-D", "--defined-only"]).arg(self.library()).output() else {
            skip("no nm (binutils)");
            return None;
        };
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        let names = said.lines().filter_map(|line| line.split_whitespace().last());
        let mut exported: Vec<String> = names.map(String::from).collect();
        exported.sort_unstable();
        Some(exported)
    }
}

/// Checks that a server and a client have done all that takes two.
///
/// # Panics
/// One has not.
pub fn assert_all(said: &str, case: &str) {
    assert_eq!(said.matches("all is as it has to be").count(), 2, "{case}: {said}");
}

/// Checks that a server and a client have done all that takes two, by their ends.
///
/// # Panics
/// One has not.
pub fn assert_both(of: &[Output; 2], case: &str) {
    assert_all(&of.each_ref().map(text).concat(), case);
}

/// Defines the tests of a face's programs on one host: `hello`, `layout`, `pair` and `alone`.
/// `$pair` runs the server and the client of the third by a way to compile, a link and settings;
/// `$alone` runs the last by a way to compile.
#[macro_export]
macro_rules! face_suite {
    ($face:expr, $pair:path, $alone:path) => {
        #[test]
        fn hello__two_programs_find_each_other() {
            $face.assert_hello();
        }

        #[test]
        fn header__layouts_are_those_of_the_interface_in_c_and_cpp() {
            $face.assert_layout();
        }

        #[test]
        fn pair__all_that_takes_two_over_shared_memory_and_udp() {
            $crate::programs::LINKS
                .into_iter()
                .for_each(|link| $pair($crate::programs::Way::C, link, &[]));
        }

        #[test]
        fn pair__all_that_takes_two_over_a_network_with_faults() {
            $pair($crate::programs::Way::C, "udp", &[$crate::programs::FAULTS, ("WEFT_MTU", "1K")]);
        }

        #[test]
        fn pair__under_the_address_sanitizer() {
            $crate::programs::LINKS
                .into_iter()
                .for_each(|link| $pair($crate::programs::Way::Asan, link, &[]));
        }

        #[test]
        fn alone__every_function_refuses_misuse_by_its_codes() {
            $alone($crate::programs::Way::C);
        }

        #[test]
        fn alone__under_the_address_sanitizer() {
            $alone($crate::programs::Way::Asan);
        }
    };
}

/// Defines the tests of a face's program `pair` on two hosts, which `$pair` runs by a link and
/// settings.
#[macro_export]
macro_rules! face_suite_on_hosts {
    ($pair:path) => {
        #[test]
        fn pair__all_that_takes_two() {
            ["packet", "udp", "auto"].into_iter().for_each(|link| $pair(link, &[]));
        }

        #[test]
        fn pair__over_a_network_with_faults() {
            $pair("packet", &[$crate::programs::FAULTS]);
        }
    };
}

/// Checks that a server, the first of two programs, has said that it goes on.
///
/// # Panics
/// The server has not.
pub fn assert_goes_on(of: &[Output; 2], case: &str) {
    let [server, client] = of.each_ref().map(text);
    assert!(server.contains("the server goes on"), "{case}: {server}{client}");
}

/// A program on one of two hosts.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// Its words. A client whose last one is `stop` stops itself, and is killed when the server
    /// has ended.
    pub words: &'a [&'a str],
    /// Its key.
    pub key: &'a str,
    /// Its settings.
    pub settings: &'a [(&'a str, &'a str)],
}

/// The ends of a server and a client: processes 0 and 1.
#[derive(Default)]
struct Ends {
    of: Mutex<[End; 2]>,
    changed: Condvar,
}

#[derive(Default)]
struct End {
    pid: Option<u32>,
    ended: bool,
}

/// The time that one process has to end after the other one has failed: it may wait for that one's
/// messages without a limit.
const PATIENCE: Duration = Duration::from_secs(30);

impl Ends {
    /// Waits for the end of process `me`, and then for that of the other one.
    ///
    /// The other one is killed if this one fails and the other one does not end within `PATIENCE`.
    fn wait(&self, me: usize, child: Child) -> Output {
        self.of.lock().unwrap()[me].pid = Some(child.id());
        let out = child.wait_with_output().unwrap();
        let mut of = self.of.lock().unwrap();
        of[me].ended = true;
        self.changed.notify_all();
        if !out.status.success() {
            of = self.changed.wait_timeout_while(of, PATIENCE, |of| !of[1 - me].ended).unwrap().0;
            if let End { pid: Some(pid), ended: false } = of[1 - me] {
                let _sent = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
            }
        }
        drop(self.changed.wait_while(of, |of| !of[1 - me].ended).unwrap());
        out
    }

    /// Kills process `me`, which does not end by itself, when the other one has ended.
    fn kill(&self, me: usize, mut child: Child) -> Output {
        let of = self.of.lock().unwrap();
        drop(self.changed.wait_while(of, |of| !of[1 - me].ended).unwrap());
        let _killed = child.kill();
        self.wait(me, child)
    }
}

impl Face {
    /// Runs a server and a client on hosts of their own, joined by one cable, when both are
    /// prepared; returns their ends. `None`, with the reason printed, if this machine cannot.
    ///
    /// # Panics
    /// Panics if [`compile`](Self::compile) would panic.
    pub fn between(
        &self,
        (name, way): (&'static str, Way),
        [server, client]: [Side<'_>; 2],
        link: &str,
        prepare: impl Fn(&Host) + Sync,
    ) -> Option<[Output; 2]> {
        let program = self.compile(name, way)?;
        let (ready, ends) = (Barrier::new(2), Ends::default());
        let body = |host: &Host, me: usize, side: Side<'_>| {
            prepare(host);
            ready.wait();
            let child = start(&program, side.words, link, side.key, side.settings);
            // The end of a host removes its cables, so each one lives until both have ended.
            if side.words.first() == Some(&"client") && side.words.last() == Some(&"stop") {
                return ends.kill(me, child);
            }
            ends.wait(me, child)
        };
        match hosts::run(1, |host| body(host, 0, server), |host| body(host, 1, client)) {
            Ok((server, client)) => Some([server, client]),
            Err(why) => {
                skip(&why);
                None
            }
        }
    }
}

/// Starts a program with a link, under a key that only the programs of one test have.
///
/// # Panics
/// The program does not start.
pub fn start(
    program: &Path,
    words: &[&str],
    link: &str,
    key: &str,
    settings: &[(&str, &str)],
) -> Child {
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("WEFT_LINK", link).env("WEFT_KEY", key).envs(settings.iter().copied());
    // Memory that a program's end leaves is no leak: threads use it until then.
    command.env("ASAN_OPTIONS", "detect_leaks=0");
    command.spawn().unwrap()
}

/// Returns a key that no other call returns.
pub fn key() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{:032x}{:032x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns all that a program has said.
pub fn text(out: &Output) -> String {
    [&out.stdout[..], &out.stderr].map(String::from_utf8_lossy).concat()
}

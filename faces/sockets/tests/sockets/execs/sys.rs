//! Functions that start another program, and what a program may do with SIGURG.

use std::ffi::{CString, OsStr};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The words and the environment of a command, as exec(3) takes them.
struct Words {
    program: CString,
    words: Vec<CString>,
    environment: Vec<CString>,
}

fn c(text: &OsStr) -> CString {
    CString::new(text.as_bytes()).unwrap()
}

impl Words {
    fn of(command: &Command) -> Words {
        let program = c(command.get_program());
        let words = std::iter::once(program.clone()).chain(command.get_args().map(c)).collect();
        let changed = |name: &OsStr| command.get_envs().any(|(other, _)| other == name);
        let kept = std::env::vars_os().filter(|(name, _)| !changed(name));
        let own = command.get_envs().filter_map(|(name, v)| Some((name.into(), v?.into())));
        let pair = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            c(OsStr::from_bytes(&[name.as_bytes(), b"=", value.as_bytes()].concat()))
        };
        Words { program, words, environment: kept.chain(own).map(pair).collect() }
    }
}

fn list(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain(std::iter::once(std::ptr::null())).collect()
}

/// Becomes another program in one of several ways; returns the error if it does not.
pub fn exec(way: &str, command: &Command) -> std::io::Error {
    let words = Words::of(command);
    let (argv, envp) = (list(&words.words), list(&words.environment));
    let (path, argv, envp) = (words.program.as_ptr(), argv.as_ptr(), envp.as_ptr());
    let file = std::fs::File::open(command.get_program());
    let (fd, here) = (file.as_ref().map_or(-1, |file| file.as_raw_fd()), libc::AT_FDCWD);
    let none = c"".as_ptr();
    if matches!(way, "execv" | "execvp" | "execvp-name" | "execl" | "execlp") {
        changes_own(command);
    }
    let name = c(Path::new(command.get_program()).file_name().unwrap());
    if way == "execvp-name" {
        searches(command.get_program().as_ref());
    }
    // Arguments after the last one are not looked at.
    let end = std::ptr::null::<libc::c_char>();
    let word = |at: usize| words.words.get(at).map_or(end, |word| word.as_ptr());
    let [a, b, c, d, e] = std::array::from_fn(word);
    assert!(words.words.len() <= 5);
    // SAFETY: texts and lists that end with null.
    unsafe {
        match way {
            "execve" => libc::execve(path, argv, envp),
            "execvpe" => libc::execvpe(path, argv, envp),
            "execveat" => execveat(here, path, argv, envp, 0),
            "execveat-file" => execveat(fd, none, argv, envp, libc::AT_EMPTY_PATH),
            "fexecve" => libc::fexecve(fd, argv, envp),
            "SYS_execve" => libc::syscall(libc::SYS_execve, path, argv, envp) as i32,
            "execv" => libc::execv(path, argv),
            "execvp" => libc::execvp(path, argv),
            "execvp-name" => libc::execvp(name.as_ptr(), argv),
            "execl" => libc::execl(path, a, b, c, d, e, end),
            "execlp" => libc::execlp(path, a, b, c, d, e, end),
            "execle" => match words.words.len() {
                1 => execle(path, a, end, envp),
                _ => execle(path, a, b, c, d, e, end, envp),
            },
            "SYS_execveat" => libc::syscall(libc::SYS_execveat, here, path, argv, envp, 0) as i32,
            other => panic!("{other}"),
        };
    }
    std::io::Error::last_os_error()
}

/// Has names of programs looked for in two folders: one with a folder of the program's name, and
/// the program's own.
fn searches(program: &Path) {
    let first = Path::new(env!("CARGO_TARGET_TMPDIR")).join("execs-first");
    std::fs::create_dir_all(first.join(program.file_name().unwrap())).unwrap();
    let folders = [first.as_path(), program.parent().unwrap()];
    let folders = c(&std::env::join_paths(folders).unwrap());
    // SAFETY: C strings; no other thread uses the environment now.
    assert_eq!(unsafe { libc::setenv(c"PATH".as_ptr(), folders.as_ptr(), 1) }, 0);
}

/// Gives this process the changes of a command's environment.
fn changes_own(command: &Command) {
    for (name, value) in command.get_envs() {
        let name = c(name);
        // SAFETY: C strings; no other thread uses the environment now.
        unsafe {
            match value.map(c) {
                Some(value) => libc::setenv(name.as_ptr(), value.as_ptr(), 1),
                None => libc::unsetenv(name.as_ptr()),
            };
        }
    }
}

extern "C" {
    fn execle(path: *const libc::c_char, first: *const libc::c_char, ...) -> libc::c_int;
    fn execveat(
        folder: libc::c_int,
        path: *const libc::c_char,
        argv: *const *const libc::c_char,
        envp: *const *const libc::c_char,
        flags: libc::c_int,
    ) -> libc::c_int;
}

/// Returns the error of each function that starts a program in a child, or makes a copy for one.
pub fn spawns(fd: i32) -> Vec<(&'static str, i32)> {
    let words = Words::of(&Command::new("/bin/true"));
    let (argv, envp) = (list(&words.words), list(&words.environment));
    let (path, argv, envp) = (words.program.as_ptr(), argv.as_ptr(), envp.as_ptr());
    let errno = || std::io::Error::last_os_error().raw_os_error().unwrap();
    let mut child = 0;
    let null = std::ptr::null();
    // SAFETY: texts, and lists that end with null; all-zero actions are space for them.
    unsafe {
        let mut actions: libc::posix_spawn_file_actions_t = std::mem::zeroed();
        libc::posix_spawn_file_actions_init(&mut actions);
        let copied = libc::posix_spawn_file_actions_adddup2(&mut actions, fd, 77);
        libc::posix_spawn_file_actions_destroy(&mut actions);
        let spawned =
            libc::posix_spawn(&mut child, path, null, null.cast(), argv.cast(), envp.cast());
        let by_name =
            libc::posix_spawnp(&mut child, path, null, null.cast(), argv.cast(), envp.cast());
        let run = libc::system(path);
        let run = if run == -1 { errno() } else { 0 };
        let piped = libc::popen(path, c"r".as_ptr());
        let piped = if piped.is_null() { errno() } else { 0 };
        let stream = libc::fdopen(fd, c"r".as_ptr());
        let stream = if stream.is_null() { errno() } else { 0 };
        vec![
            ("posix_spawn_file_actions_adddup2", copied),
            ("posix_spawn", spawned),
            ("posix_spawnp", by_name),
            ("system", run),
            ("popen", piped),
            ("fdopen", stream),
        ]
    }
}

/// Blocks SIGURG in this thread, and in all of the program that it becomes; or blocks it no more.
pub fn block_urgent(is_blocked: bool) {
    let how = if is_blocked { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: all-zero is a valid set.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGURG);
        assert_eq!(libc::pthread_sigmask(how, &set, std::ptr::null_mut()), 0);
    }
}

/// True if SIGURG waits.
pub fn is_urgent_pending() -> bool {
    // SAFETY: all-zero is a valid set, which is written.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        assert_eq!(libc::sigpending(&mut set), 0);
        libc::sigismember(&set, libc::SIGURG) == 1
    }
}

/// Sends this process SIGURG.
pub fn kill_by_urgent() {
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGURG) }, 0);
}

/// Has a child send this process SIGURG. Returns the child.
pub fn killer_by_urgent() -> i32 {
    // SAFETY: no memory is passed.
    let parent = unsafe { libc::getpid() };
    // SAFETY: no memory is passed.
    crate::sys::fork(|| unsafe { libc::kill(parent, libc::SIGURG) })
}

/// Returns two ends of a connection, of which the first one tells this process of urgent data.
pub fn pair_with_urgent_signals() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let one = listener.accept().unwrap().0;
    // SAFETY: no memory is passed.
    let owned = unsafe { libc::fcntl(one.as_raw_fd(), libc::F_SETOWN, libc::getpid()) };
    assert_eq!(owned, 0);
    (one, other)
}

static URGENT: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_urgent(_: libc::c_int) {
    URGENT.fetch_add(1, Ordering::Relaxed);
}

/// Has a handler of this program's for SIGURG.
pub fn handle_urgent() {
    let handler = on_urgent as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: a handler that counts.
    assert_ne!(unsafe { libc::signal(libc::SIGURG, handler) }, libc::SIG_ERR);
}

/// Returns how often that handler was called; it still is the program's.
pub fn urgent_signals() -> u32 {
    let handler = on_urgent as extern "C" fn(libc::c_int) as usize;
    // SAFETY: all-zero is a valid action, which is written.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGURG, std::ptr::null(), &mut action), 0);
        assert_eq!(action.sa_sigaction, handler);
    }
    URGENT.load(Ordering::Relaxed)
}

/// Has a child by vfork(2) set the actions of SIGURG to the kernel's own, and end. Returns the
/// child.
#[allow(deprecated)]
pub fn vfork_and_reset_urgent() -> i32 {
    // SAFETY: the child calls what it may; all-zero is a valid action.
    unsafe {
        let none: libc::sigaction = std::mem::zeroed();
        match libc::vfork() {
            0 => {
                let is_set = libc::sigaction(libc::SIGURG, &none, std::ptr::null_mut()) == 0
                    && libc::signal(libc::SIGURG, libc::SIG_DFL) == libc::SIG_DFL;
                libc::_exit(i32::from(!is_set))
            }
            child => child,
        }
    }
}

/// Sends this thread SIGURG.
pub fn raise_urgent() {
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::raise(libc::SIGURG) }, 0);
}

//! Programs that find the C library's functions at run time, and libraries whose own symbols come
//! first.

mod sys;

use crate::harness::{argument, Served};
use crate::roles::Server;
use weft_conformance::skip;

/// Runs a case on a connection that shares memory. False if there is none of this name.
pub fn attempt(case: &str, server: &mut Server) -> bool {
    match case {
        "dlsym" => by_handle(server),
        "deep" => deep(server),
        _ => return false,
    }
    true
}

/// Bytes in the ring are read by a function.
fn reads(server: &mut Server, by: sys::Found) {
    for _ in 0..10 {
        server.ringed(100);
        let got = by.recv(&server.stream, 100);
        assert_eq!(got.len(), 100);
        server.check(&got);
    }
}

/// Functions of the C library's own handle.
fn by_handle(server: &mut Server) {
    let library = sys::open("libc.so.6", libc::RTLD_NOW);
    reads(server, library.find(c"recv"));
    #[cfg(target_arch = "x86_64")]
    reads(server, library.find_version(c"recv", c"GLIBC_2.2.5"));
    #[cfg(target_arch = "aarch64")]
    reads(server, library.find_version(c"recv", c"GLIBC_2.17"));
}

/// Libraries that are opened so that their own symbols come first.
fn deep(server: &mut Server) {
    let words = argument();
    for (path, when) in words.split(' ').skip(1).zip([libc::RTLD_NOW, libc::RTLD_LAZY]) {
        let library = sys::open(path, when | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND);
        reads(server, library.find(c"take"));
    }
}

#[test]
fn dlopen__a_library_whose_own_symbols_come_first() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join("take.c");
    let text = "#include <sys/socket.h>\n\
                long take(int fd, void *to, unsigned long len, int flags) \
                { return recv(fd, to, len, flags); }\n";
    std::fs::write(&source, text).unwrap();
    let mut libraries = String::new();
    for (name, more) in [("now", "-Wl,-z,now,-z,relro"), ("lazy", "-Wl,-z,lazy")] {
        let to = folder.join(format!("libtake-{name}.so"));
        let mut cc = std::process::Command::new("cc");
        cc.args(["-shared", "-fPIC", more, "-o"]).args([&to, &source]);
        match cc.status() {
            Ok(status) => assert!(status.success()),
            Err(e) => return skip(&format!("no C compiler: {e}")),
        }
        libraries += &format!(" {}", to.display());
    }
    let agent = Served::start();
    let mut server = agent.with("serve", "");
    let port = server.says();
    let client = agent.with("try-deep", &format!("{port}{libraries}"));
    client.ends_done();
    assert_eq!(agent.counter("sockets_paired"), 1);
    server.ends_well();
}

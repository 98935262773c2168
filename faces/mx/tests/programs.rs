//! Programs in C over `myriexpress.h`, compiled with the system's compiler.
#![allow(non_snake_case)]

mod face;

use face::{with_lock, FACE};
use std::path::Path;
use std::process::Command;
use weft_conformance::programs::{assert_all, key, start, text, Way, LINKS};
use weft_conformance::skip;

weft_conformance::face_suite!(FACE, pair, alone);

fn pair(way: Way, link: &str, settings: &[(&str, &str)]) {
    let said =
        with_lock(|at| FACE.both("pair", way, [&["server", at], &["client", at]], link, settings));
    let Some(said) = said else { return };
    assert_all(&said, link);
}

#[test]
fn death__the_other_side_learns_of_it_by_a_status() {
    for link in LINKS {
        ["kill", "exit", "stop"].into_iter().for_each(|way| FACE.assert_outlives(link, &[way]));
    }
}

fn alone(way: Way) {
    let peers = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mx-peers-{way:?}"));
    std::fs::write(&peers, "# hosts of the test\n10.9.8.7 far\n").unwrap();
    let peers = peers.display().to_string();
    for link in LINKS {
        let peers = [("WEFT_MX_PEERS", peers.as_str())];
        let Some(said) = FACE.succeeds("alone", way, &[], link, &peers) else { return };
        assert!(!said.contains("messages unacknowledged"), "{link}: {said}");
    }
}

#[test]
fn errors__are_fatal_unless_the_program_or_the_environment_says_otherwise() {
    let Some(program) = FACE.compile("alone", Way::C) else { return };
    let run = |settings: &[(&str, &str)]| {
        start(&program, &["fatal"], "shm", &key(), settings).wait_with_output().unwrap()
    };
    let out = run(&[]);
    assert_eq!(out.status.code(), Some(255), "{}", text(&out));
    assert!(text(&out).contains("mx_progress: the endpoint is not open"), "{}", text(&out));
    assert!(run(&[("MX_ERRORS_ARE_FATAL", "0")]).status.success());
    assert!(run(&[("MX_ERRORS_ARE_FATAL", "1"), ("OMX_FATAL_ERRORS", "0")]).status.success());
}

#[test]
fn open__without_a_link_or_an_interface_says_so() {
    for settings in [[("WEFT_LINK", "no-such-link")], [("WEFT_MXOE", "no-such-interface")]] {
        let _said = FACE.succeeds("alone", Way::C, &["none"], "udp", &settings);
    }
}

#[test]
fn pair__without_shared_memory_as_the_environment_of_mx_asks() {
    for name in ["MX_DISABLE_SHMEM", "OMX_DISABLE_SHARED"] {
        // Shared memory would be the only link.
        let settings = [("WEFT_LINK", "shm"), (name, "1")];
        let _said = FACE.succeeds("alone", Way::C, &["none"], "shm", &settings);
    }
}

/// Words of the headers that are no functions of the library.
const DATA: [&str; 2] = ["MX_ERRORS_ARE_FATAL", "MX_ERRORS_RETURN"];

#[test]
fn library__exports_the_functions_of_the_headers_and_no_other_names() {
    let header =
        |name: &str| std::fs::read_to_string(Path::new(FACE.sources).join("include").join(name));
    let text = ["myriexpress.h", "mx_io.h"].map(|name| header(name).unwrap()).concat();
    let mut declared: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("mx_"))
        .filter(|word| text.contains(&format!(" {word}(")) || text.contains(&format!("*{word}(")))
        .chain(DATA)
        .collect();
    declared.sort_unstable();
    declared.dedup();
    let Some(mut exported) = FACE.exported() else { return };
    exported.retain(|name| *name != "mx_init");
    declared.retain(|name| *name != "mx_init");
    assert_eq!(exported, declared);
}

/// Functions of the version nodes that native MX had, and others that the example calls.
const STUB: &str = "int mx_open_endpoint(void) { return 2; } int mx_wait(void) { return 2; }\
    int mx__init_api(void) { return 2; } int mx_finalize(void) { return 2; }\
    int mx_close_endpoint(void) { return 2; } int mx_set_error_handler(void) { return 2; }\
    int mx_isend(void) { return 2; } int mx_irecv(void) { return 2; }\
    int mx_connect(void) { return 2; } int mx_hostname_to_nic_id(void) { return 2; }\
    void *const MX_ERRORS_RETURN = 0;";
const NODES: &str = "MX_0.9 { global: mx_open_endpoint; }; MX_0.91 { global: mx_wait; } MX_0.9;\
    MX_0.92 { global: mx__init_api; } MX_0.91;";

#[test]
fn binary__linked_with_a_library_of_the_time_loads_this_one() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mx-stub");
    std::fs::create_dir_all(&folder).unwrap();
    let [stub, nodes] = ["stub.c", "nodes"].map(|name| folder.join(name));
    std::fs::write(&stub, STUB).unwrap();
    std::fs::write(&nodes, NODES).unwrap();
    for name in ["libmyriexpress.so", "libopen-mx.so.0"] {
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-fno-builtin", "-o"]).arg(folder.join("libmyriexpress.so"));
        cc.arg(format!("-Wl,-soname,{name},--version-script={}", nodes.display())).arg(&stub);
        let Ok(out) = cc.output() else { return skip("no cc") };
        assert!(out.status.success(), "{}", text(&out));
        let program = folder.join(format!("hello-{name}"));
        let mut cc = Command::new("cc");
        cc.args(
            ["include", "examples"]
                .map(|f| format!("-I{}", Path::new(FACE.sources).join(f).display())),
        );
        cc.arg(Path::new(FACE.sources).join("examples/hello.c")).arg("-o").arg(&program);
        let out = cc.arg("-L").arg(&folder).arg("-lmyriexpress").output().unwrap();
        assert!(out.status.success(), "{}", text(&out));
        let path = FACE.installed().display().to_string();
        let (key, path) = (key(), [("LD_LIBRARY_PATH", path.as_str())]);
        let server = start(&program, &["server"], "shm", &key, &path);
        let client = start(&program, &["client", "localhost"], "shm", &key, &path);
        for side in [client, server] {
            let out = side.wait_with_output().unwrap();
            assert!(out.status.success(), "{name}: {}", text(&out));
        }
    }
}

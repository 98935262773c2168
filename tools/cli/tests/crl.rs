//! Programs of `crl.h`, compiled with the system's compilers and run by `weft run`.
#![allow(non_snake_case)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use weft_conformance::skip;

/// The ways in which the test program is compiled: a name, the compiler, its options.
const FORMS: [(&str, &str, &[&str]); 4] = [
    ("crl", "cc", &["-std=c11"]),
    ("crl-null", "cc", &["-std=c11", "-DCRL_NULL"]),
    ("crl-cpp", "c++", &["-std=c++17", "-x", "c++", "-DTCPUNIX"]),
    ("crl-cpp-null", "c++", &["-std=c++17", "-x", "c++", "-DCRL_NULL", "-DTCPUNIX"]),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("crl")
}

fn compile(name: &str, compiler: &str, options: &[&str], source: &str) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../faces/capi");
    let program = folder().join(name);
    let mut cc = Command::new(compiler);
    cc.args(options).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"]);
    cc.arg(format!("-I{}", sources.join("include").display())).arg(sources.join(source));
    cc.arg("-o").arg(&program);
    if !options.contains(&"-DCRL_NULL") {
        // Before LD_LIBRARY_PATH, in which cargo puts a folder that may hold an older library.
        let here = format!("-Wl,--disable-new-dtags,-rpath,{}", folder().display());
        cc.args(["-x", "none", "-L"]).arg(folder()).arg(here).arg("-lweft");
    }
    let out = cc.output().unwrap();
    assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    program
}

/// Compiles all programs, once. False, with the reason printed, without compilers.
fn compiled() -> bool {
    static DONE: OnceLock<bool> = OnceLock::new();
    *DONE.get_or_init(|| {
        if ["cc", "c++"].iter().any(|name| Command::new(name).arg("--version").output().is_err()) {
            skip("no compilers of C and C++");
            return false;
        }
        std::fs::create_dir_all(folder()).unwrap();
        // The library as cargo built it for this test, under the names of an installation.
        let beside = std::env::current_exe().unwrap();
        let built = beside.parent().unwrap().join("libweft_capi.so");
        for name in ["libweft.so", "libweft.so.0"] {
            let link = folder().join(name);
            let _old = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(&built, &link).unwrap();
        }
        for (name, compiler, options) in FORMS {
            compile(name, compiler, options, "tests/crl.c");
        }
        compile("heat", "cc", FORMS[0].2, "examples/heat.c");
        compile("heat-null", "cc", FORMS[1].2, "examples/heat.c");
        true
    })
}

/// Runs a program on some nodes.
fn nodes(count: u32, name: &str, arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.args(["run", "-n", &count.to_string()]).arg(folder().join(name)).args(arguments);
    command.envs(settings.iter().copied()).output().unwrap()
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&[&out.stdout[..], &out.stderr].concat()).into_owned()
}

const SHM: &[(&str, &str)] = &[("WEFT_LINK", "shm")];
const LOSSY: &[(&str, &str)] =
    &[("WEFT_LINK", "udp"), ("WEFT_FAULTS", "loss=2%,dup=1%,reorder=1%,seed=5")];

#[test]
fn functions__do_what_the_header_says_in_c_and_in_cpp() {
    if !compiled() {
        return;
    }
    for (count, name, settings) in [(1, "crl", SHM), (3, "crl-cpp", SHM), (3, "crl", LOSSY)] {
        let out = nodes(count, name, &[], settings);
        let says = format!("{count} nodes: all is right");
        assert!(out.status.success() && said(&out).contains(&says), "{name}: {}", said(&out));
    }
}

#[test]
fn null__one_process_without_a_library() {
    if !compiled() {
        return;
    }
    for name in ["crl-null", "crl-cpp-null"] {
        let out = Command::new(folder().join(name)).output().unwrap();
        assert_eq!(said(&out), "1 nodes: all is right\n");
    }
}

#[test]
fn heat__is_the_same_on_any_number_of_nodes_and_without_a_library() {
    if !compiled() {
        return;
    }
    let alone = Command::new(folder().join("heat-null")).args(["97", "40"]).output().unwrap();
    assert!(said(&alone).starts_with("97 cells after 40 steps: 0"), "{}", said(&alone));
    for (count, settings) in [(1, SHM), (4, SHM), (2, LOSSY)] {
        let out = nodes(count, "heat", &["97", "40"], settings);
        assert_eq!(out.stdout, alone.stdout, "{count} nodes: {}", said(&out));
    }
}

#[test]
fn misuse__ends_the_program_with_the_function_and_the_reason() {
    if !compiled() {
        return;
    }
    let alone = [
        ("before", "rgn_barrier: node 0: crl_init has not been called"),
        ("init", "crl_init: node 0: it has been called before"),
        ("create", "rgn_create: node 0: a region has at least one byte"),
        ("large", "rgn_create: node 0: a region of 314572800 bytes: regions have at most"),
        ("huge", "rgn_create: node 0: a region of 4294967295 bytes: regions have at most"),
        ("long", "rgn_bcast_send: node 0: 314572800 bytes for all nodes"),
        (
            "map",
            "rgn_map: node 0: region 0:99 (rid_t 0x10000000063): it has been deleted, or never was",
        ),
        ("no name", "rgn_map: node 0: 0x0 is no region"),
        ("delete", "rgn_delete: node 0: region 0:0 (rid_t 0x10000000000) is mapped"),
        ("unmap", "is not the address of a mapped region"),
        ("unmap in use", "rgn_unmap: node 0: an operation on the region has not ended"),
        ("rid", "rgn_rid: node 0: 0x"),
        ("size", "rgn_size: node 0: 0x0 is not the address of a mapped region"),
        ("read in write", "rgn_start_read: node 0: this node is writing the region"),
        ("write in read", "rgn_start_write: node 0: this node is in an operation on the region"),
        ("end read", "rgn_end_read: node 0: this node is in no operation that reads the region"),
        ("end write", "rgn_end_write: node 0: this node is in no operation that writes"),
        ("flush", "rgn_flush: node 0: an operation on the region has not ended"),
        ("length", "rgn_bcast_send: node 0: a length of -1 bytes"),
        ("null", "rgn_bcast_send: node 0: data is null"),
    ];
    let together = [
        ("two send", "2 nodes send (rgn_bcast_send), and one should"),
        ("nobody sends", "rgn_bcast_recv: node 0: no node sends"),
        ("uneven", "rgn_bcast_recv: node 1: 4 bytes are sent, and this node has 3"),
        ("min and add", "node 0 calls rgn_reduce_dadd, and node 1 rgn_reduce_dmin"),
        ("barrier and max", "node 0 calls rgn_barrier, and node 1 rgn_reduce_dmax"),
        ("fork", "rgn_create: node 0: this process is a copy, made by fork"),
        (
            "dies",
            "rgn_start_read: node 1: region 0:0 (rid_t 0x10000000000): its home is lost: rank 0 on \
             this host over",
        ),
    ];
    let alone = alone.map(|(case, text)| (1, case, text));
    let together = together.map(|(case, text)| (2, case, text));
    for (count, case, text) in alone.into_iter().chain(together) {
        let out = nodes(count, "crl", &[case], SHM);
        let all = said(&out);
        assert!(!out.status.success() && all.contains(text), "{case}: {all}");
        assert!(count > 1 || !all.contains("went on"), "{case}: {all}");
    }
}

#[test]
fn misuse__of_a_first_program_has_a_clear_error() {
    if !compiled() {
        return;
    }
    const UNMAPPED: &str =
        "is not the address of a mapped region: it was not mapped, or is unmapped already";
    for (nodes_of, case, text) in [
        (1, "unmap twice", UNMAPPED),
        (1, "read unmapped", UNMAPPED),
        (1, "no start", "rgn_end_read: node 0: this node is in no operation that reads"),
        (1, "write twice", "rgn_start_write: node 0: this node is in an operation on the region"),
        (1, "end twice", "rgn_end_write: node 0: this node is in no operation that writes"),
        (1, "any number", "rgn_map: node 0: 0x3039 is no region: a rid_t comes from rgn_create"),
        (1, "an address", "is no region: a rid_t comes from rgn_create"),
        (1, "delete twice", "rgn_delete: node 0: region 0:0 (rid_t 0x10000000000): it has been"),
        (1, "map deleted", "rgn_map: node 0: region 0:0 (rid_t 0x10000000000): it has been"),
        (1, "thread", "rgn_start_read: node 0: another thread has called crl_init"),
        (1, "at exit", "rgn_barrier: node 0: the process is at its end, and has left the job"),
        (2, "handler", "rgn_barrier: node 0: a signal handler called it while the node was in"),
        (2, "handler exits", "exited with status 3"),
        (1, "child exits", "node 0 went on after child exits"),
        (2, "deleted and read", "rgn_start_read: node 1: region 0:0 (rid_t 0x10000000000): it has"),
        (2, "deleted and mapped", "rgn_map: node 1: region 0:0 (rid_t 0x10000000000): it has been"),
        (2, "deleted in cache", "rgn_map: node 1: region 0:0 (rid_t 0x10000000000): it has been"),
        (2, "ends", "rgn_start_read: node 1: region 0:0 (rid_t 0x10000000000): its home is lost"),
    ] {
        let out = nodes(nodes_of, "crl", &[case], SHM);
        let all = said(&out);
        assert!(!out.status.success() && all.contains(text), "{case}: {all}");
        assert!(!all.contains("panicked"), "{case}: {all}");
    }
}

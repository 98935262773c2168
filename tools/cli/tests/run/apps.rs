//! Applications in one process: results as JSON, bounds of sizes, and input that is wrong.

use weft_conformance::commands::{Called, Folder};

const APP: Called = Called {
    program: env!("CARGO_BIN_EXE_weft"),
    first: "app",
    without: &["PMI_FD", "PMI_PORT", "PMIX_NAMESPACE", "WEFT_BOOTSTRAP"],
};

#[test]
fn json__names_the_result_of_each_application() {
    for (args, expected) in [
        ("sor --size 20", &[("/rows", "20"), ("/converged", "true")][..]),
        // The first node reaches the second, and that one nothing.
        ("asp --nodes 2 --degree 1", &[("/nodes", "2"), ("/arcs", "2"), ("/reachable_pairs", "2")]),
    ] {
        APP.assert_results(args, expected);
    }
}

#[test]
fn size__above_the_memory_is_refused_with_need_and_limit() {
    for args in [
        &["asp", "--nodes", "4294967295", "--degree", "4294967295"][..],
        &["asp", "--nodes", "9", "--degree", "4000000000"],
        &["sor", "--size", "65536", "--memory", "100"],
    ] {
        APP.assert_too_large(args);
    }
}

#[test]
fn numbers__outside_their_range_are_refused_with_it() {
    for (args, expected) in [
        ("sor --omega -1", "omega -1 is not above 0 and below 2"),
        ("asp --nodes 9 --keep all", "--out <DIR>"),
    ] {
        APP.assert_misused(args, expected);
    }
}

#[test]
fn files__that_cannot_be_used_are_named() {
    let dir = Folder::new(env!("CARGO_TARGET_TMPDIR"), "apps");
    let file = dir.file("graph.gr");
    std::fs::write(&file, "p sp 2 1\na 1 3 1\n").unwrap();
    APP.assert_bad_files(&[["asp", "--graph"]], &["asp", "--nodes", "9"], &file);
    let file = file.to_str().unwrap();
    let done = APP.run(&["asp", "--graph", file]);
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(err.starts_with(&format!("weft: graph {file}: line 2: ")), "{err}");
    assert_eq!(done.status.code(), Some(1));
}

//! Applications in one process: results as JSON and pictures, bounds of sizes, and input that is
//! wrong.
#![allow(non_snake_case)]

use serde_json::Value;
use weft_conformance::commands::{Called, Folder};

const APP: Called = Called {
    program: env!("CARGO_BIN_EXE_weft-papers"),
    first: "app",
    without: &["PMI_FD", "PMI_PORT", "PMIX_NAMESPACE", "WEFT_BOOTSTRAP"],
};

#[test]
fn json__names_the_result_of_each_application() {
    for (args, expected) in [
        (
            "awari --stones 5 --position 0,0,0,0,1,2,0,2,0,0,0,0",
            &[
                ("/positions_of_most", "4368"),
                ("/answers/0/score", "1"),
                ("/answers/0/moves/1/captured", "3"),
                ("/answers/0/moves/1/best", "true"),
            ][..],
        ),
        ("barnes --bodies 50 --steps 2", &[("/bodies", "50"), ("/steps", "2")]),
        (
            "dd",
            &[
                ("/rows", "61"),
                ("/contacts/1", "\"cathode\""),
                ("/solutions/0/currents/0", "0.0"),
                ("/solutions/6/voltages/0", "0.6"),
                ("/end", "\"converged\""),
            ],
        ),
        ("leq --equations 100", &[("/iterations", "689"), ("/end", "\"converged\"")]),
        ("puzzle --korf 79", &[("/length", "42"), ("/solutions", "null")]),
        ("qr --size 30x20", &[("/rows", "30"), ("/rank", "20"), ("/error", "null")]),
        ("radix --keys 500 --below 1", &[("/keys", "500"), ("/least", "0"), ("/greatest", "0")]),
    ] {
        APP.assert_results(args, expected);
    }
}

/// Positions in files, and a database that an earlier run has written.
#[test]
fn positions__of_files_and_of_a_database_in_a_file() {
    let dir = Folder::new(env!("CARGO_TARGET_TMPDIR"), "positions");
    let (file, out) = (dir.file("positions"), dir.file("out"));
    std::fs::write(&file, "# two\n0 0 0 0 1 2 0 2 0 0 0 0\n1,1,0,0,0,0,0,0,0,0,0,1\n").unwrap();
    let (file, out) = (file.to_str().unwrap(), out.to_str().unwrap());
    let made = APP.run(&["awari", "--stones", "5", "--positions", file, "--out", out, "--json"]);
    let database = format!("{out}/awari.db");
    let found = APP.run(&["awari", "--database", &database, "--positions", file, "--json"]);
    let [made, found] = [made, found].map(|done| {
        let report: Value = serde_json::from_slice(&done.stdout).expect("a report");
        let scores = [0, 1].map(|at| report["result"]["answers"][at]["score"].clone());
        assert_eq!(scores, [1, 3], "{report}");
        report["result"].clone()
    });
    for name in ["stones", "positions", "wins", "draws", "losses", "answers"] {
        assert_eq!(made[name], found[name], "{name}");
    }
    let six = "0,0,0,0,6,0,0,0,0,0,0,0";
    let err = APP.misused(&["awari", "--database", &database, "--position", six]);
    assert!(err.contains("has 6 stones, more than the 5 of "), "{err}");
    let csv = format!("{out}/awari.csv");
    let done = APP.run(&["awari", "--database", &csv, "--position", six]);
    let err = String::from_utf8_lossy(&done.stderr);
    assert_eq!(err, format!("weft: {csv}: not a database of this version\n"));
    let err = APP.misused(&["awari", "--database", &database, "--stones", "3"]);
    assert!(err.contains("cannot be used with"), "{err}");

    let korf = korf_file();
    let done = APP.run(&["puzzle", "--input", &korf, "--number", "79"]);
    assert!(String::from_utf8_lossy(&done.stdout).contains("shortest         42 moves"));
    let err = APP.misused(&["puzzle", "--input", &korf, "--number", "101"]);
    assert!(err.contains("has 100 positions"), "{err}");
    let done = APP.run(&["puzzle", "--input", &database]);
    let err = String::from_utf8_lossy(&done.stderr);
    assert!(err.starts_with(&format!("weft: {database}: line 1: ")), "{err}");
    for (name, tiles) in [("awari", "1,2"), ("puzzle", "1 2")] {
        let err = APP.misused(&[name, "--position", tiles]);
        assert!(err.starts_with(&format!("weft: --position {tiles}: 2 ")), "{err}");
    }
}

fn korf_file() -> String {
    format!("{}/../puzzle/data/korf100.txt", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn leq__that_diverges_fails() {
    let dir = Folder::new(env!("CARGO_TARGET_TMPDIR"), "diverges");
    let file = dir.file("system.mtx");
    let head = "%%MatrixMarket matrix coordinate real general\n2 2 4\n";
    std::fs::write(&file, format!("{head}1 1 1\n1 2 5\n2 1 5\n2 2 1\n")).unwrap();
    let done = APP.run(&["leq", "--matrix", file.to_str().unwrap(), "--check"]);
    assert_eq!(done.status.code(), Some(1));
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("(diverged: ") && said.contains("PASS"), "{said}");
    std::fs::write(&file, format!("{head}1 1 1\n1 2 5\n2 1 5\n2 2 0\n")).unwrap();
    let err = APP.misused(&["leq", "--matrix", file.to_str().unwrap()]);
    assert!(err.starts_with(&format!("weft: {}: equation 2 has a zero", file.display())), "{err}");
}

/// A description of the program's own, changed: each fault has its line, and a run that does not
/// come to rest names the place and leaves the last state.
#[test]
fn dd__describes_devices_and_says_where_it_stays() {
    let dir = Folder::new(env!("CARGO_TARGET_TMPDIR"), "dd");
    let file = dir.file("own.dev");
    let name = file.to_str().unwrap();
    let text = APP.text(&["dd", "--print", "--example", "laser"]);
    std::fs::write(&file, text.replace("from 0 to 1.4", "from 0 to 0.1")).unwrap();
    let out = dir.file("out");
    let words = ["dd", "--device", name, "--check", "--out", out.to_str().unwrap()];
    let said = APP.text(&words);
    assert!(said.contains("solutions        2 (all converged)") && said.contains("PASS"), "{said}");
    for picture in ["potential", "electrons", "holes", "curve", "convergence", "rows"] {
        assert!(out.join(format!("dd-{picture}.png")).is_file(), "{picture}");
    }
    let vtk = std::fs::read_to_string(out.join("dd.vtr")).unwrap();
    assert!(vtk.contains("Name=\"potential_V\"") && vtk.ends_with("</VTKFile>\n"));

    std::fs::write(&file, text.replace("0 to 1.4 step 0.1", "0 to 90 step 90")).unwrap();
    let done = APP.run(&words[..3]);
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("(diverged: the ") && said.contains(" in layer "), "{said}");
    assert_eq!(done.status.code(), Some(1));
    let done = APP.run(&["dd", "--iterations", "2", "--json"]);
    let report: Value = serde_json::from_slice(&done.stdout).expect("a report");
    assert_eq!((done.status.code(), &report["result"]["end"]), (Some(1), &"limit".into()));
    assert_eq!(report["result"]["stuck"]["equation"], "potential", "{report}");

    for (from, to, expected) in [
        ("gap 1.424", "gap none", "line 7: `none` is not a finite number (the band gap)"),
        ("contact", "# contact", "the device has no contact, so nothing fixes its potential"),
    ] {
        let bad = text.replace(from, to).replace("sweep", "# sweep");
        std::fs::write(&file, bad).unwrap();
        let done = APP.run(&words[..3]);
        let err = String::from_utf8_lossy(&done.stderr);
        assert!(err.starts_with(&format!("weft: {name}: {expected}")), "{err}");
    }
}

#[test]
fn size__above_the_memory_is_refused_with_need_and_limit() {
    let most = usize::MAX.to_string();
    for args in [
        &["leq", "--equations", &most][..],
        &["leq", "--equations", "90000000", "--random", "1"],
        &["qr", "--size", &most],
        &["qr", "--size", "4000000000x4000000000"],
        &["barnes", "--bodies", &most],
        &["barnes", "--bodies", "9000000000"],
        &["radix", "--keys", &most],
        &["radix", "--keys", "900000000000"],
    ] {
        APP.assert_too_large(args);
    }
    let err = APP.misused(&["leq", "--equations", "10000", "--memory", "9"]);
    let expected = "weft: a system of 10000 equations takes 1.5 GiB of memory on a rank, ";
    assert_eq!(err, format!("{expected}above the limit of 9.0 MiB\n"));
}

#[test]
fn numbers__outside_their_range_are_refused_with_it() {
    for (args, expected) in [
        ("barnes --steps 0", "0 steps: at least one is needed"),
        ("barnes --opening -1", "opening -1 is not a number from 0 up"),
        ("barnes --steps -1", "invalid value '-1' for '--steps"),
        ("leq --tolerance -0.5", "tolerance -0.5 is not a number from 0 up"),
        ("radix --below 0", "0 is not in 1..=4294967295"),
        ("puzzle --jobs 0", "0 is not in 1..=65536"),
        ("puzzle --korf 0", "0 is not in 1..=100"),
        ("puzzle --korf 101", "101 is not in 1..=100"),
        ("barnes --squares 99", "--out <DIR>"),
        ("dd --tolerance 0", "tolerance 0 is not a number above 0"),
        ("awari --stones 2 --position 1,1,1,0,0,0,0,0,0,0,0,0", "3 stones, more than --stones 2"),
    ] {
        APP.assert_misused(args, expected);
    }
}

#[test]
fn files__that_cannot_be_used_are_named() {
    let dir = Folder::new(env!("CARGO_TARGET_TMPDIR"), "apps");
    let file = dir.file("rect.mtx");
    let head = "%%MatrixMarket matrix coordinate real general\n";
    std::fs::write(&file, format!("{head}2 3 0\n")).unwrap();
    let inputs =
        [["barnes", "--input"], ["leq", "--matrix"], ["qr", "--matrix"], ["radix", "--input"]];
    APP.assert_bad_files(&inputs, &["awari", "--stones", "1"], &file);
    let file = file.to_str().unwrap();
    let done = APP.run(&["leq", "--matrix", file]);
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(err, format!("weft: {file}: line 2: 2 x 3 equations are not square\n"));
    assert_eq!(done.status.code(), Some(1));
}

#[test]
fn app__writes_a_picture_with_title_and_unit() {
    let out = Folder::new(env!("CARGO_TARGET_TMPDIR"), "pictures");
    let puzzle = ["--position", "1 2 3 0 4 5 6 7 8 9 10 11 12 13 14 15"];
    let all: [(&str, &[&str], [&str; 2]); 5] = [
        ("leq", &["--equations", "40"], ["LEQ: convergence of 40 equations", "change of"]),
        ("qr", &["--size", "20"], ["QR: the diagonal of R, 20 x 20", "size of the element"]),
        ("radix", &["--keys", "2000"], ["Radix sort: 2000 keys", "keys in each range"]),
        ("awari", &["--stones", "3"], ["Awari: scores of the", "positions of each score"]),
        ("puzzle", &puzzle, ["15-puzzle: the shortest", "positions searched"]),
    ];
    APP.assert_pictures(&out, &all);
    APP.text(&["barnes", "--bodies", "64", "--steps", "2", "--out", out.path()]);
    assert!(out.file("barnes-0000.png").is_file() && out.file("barnes-0002.png").is_file());
}
